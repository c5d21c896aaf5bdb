"""Search over flags: the ranges of a command (space), the study that several processes share (study), one trial (trials), the report.

Knows neither the parser nor the main job: Bayesian_Optimization.py hands both in.
"""
