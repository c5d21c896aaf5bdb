"""The machinery of a training step: runtime, processes, chunks, loading, optimisers, schedules, meter.

What a method computes in a step: trainers/.
"""
