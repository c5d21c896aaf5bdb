"""Search over flags: ranges (space), what was asked for (plan) and is compared with an earlier start (settings), the study that several
processes share (study) and whether it is whole (journal), trials, and what a search writes (tables, report) and reads (files).

Knows neither the parser nor the main job: Bayesian_Optimization.py hands both in.
"""
