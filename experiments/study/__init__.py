"""The study of docs/study.md: its data, its runs, its tables."""
