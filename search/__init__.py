"""Search over flags: the ranges of a command (space), the study that several processes share (study),
whether it is whole (journal), one trial (trials), the report, and what was asked for and written before (settings, files).

Knows neither the parser nor the main job: Bayesian_Optimization.py hands both in.
"""
