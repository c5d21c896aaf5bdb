"""The machinery of a training step: runtime, processes, chunks, loading, optimisers and schedules, meter. What happens
in a step: trainers/.
"""
