"""The objects of docs/data.md: their data, and the study of docs/evidence.md."""
