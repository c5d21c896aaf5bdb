"""The shapes of what a run writes into the files of its folder; readers check the content by them.

A shape is a type, a test, None, a tuple of shapes (any of them), `[shape]`, `{key type: shape}`, or `{name: shape, …}`. The last allows
further names, and a name may be missing if its shape allows `...`.
"""

import re

import torch

LARGEST = 2**53  # epochs, steps and measured whole numbers are below


def fits(value, shape) -> bool:
    """Whether a value is of a shape."""
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if isinstance(kind := next(iter(shape)), type):
            return all(isinstance(key, kind) and fits(item, shape[kind]) for key, item in value.items())
        return all(fits(value.get(name, ...), of) for name, of in shape.items())
    if isinstance(shape, type):
        return isinstance(value, shape)
    return value is shape if shape in (None, ...) else shape(value)


def number(value) -> bool:
    """An int or a float, also NaN; no bool."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST)


def count(value) -> bool:
    """An int of at least 0."""
    return number(value) and isinstance(value, int) and value >= 0


def _checkpoint(value) -> bool:
    return isinstance(value, str) and re.fullmatch(r"checkpoint_[^/\\\0]+", value) is not None


def _text(value) -> bool:
    return isinstance(value, str) and "\0" not in value


def _pair(value) -> bool:
    return fits(value, [VALUE]) and len(value) == 2


VALUE = (number, None)  # None stands for NaN in JSON
SCORES = {str: {str: VALUE}}  # split -> {metric: number}
FLAG_VALUE = (None, int, float, _text)
FLAGS = {str: (FLAG_VALUE, [FLAG_VALUE])}
SELECTED = {"epoch": (count, None, ...), "values": SCORES, "checkpoint": (_checkpoint, ...)}  # no epoch before the first evaluation
INTERVALS = {str: {str: {"mean": VALUE, "standard_error": VALUE, "interval_95": (None, _pair)}}}  # of `utilities.intervals.t_interval`
RESULTS = {  # over the folds of a cross-validation, a file of meta/
    "folds": [count], "epochs": [(count, None)], "embeddings": str, "values": INTERVALS, "untrained": ({str: INTERVALS}, ...),
}  # fmt: skip
RUN = {  # the state of `runs.run.Run`
    "best": {str: {str: {"value": number, "epoch": count}}}, "selected": SELECTED, "last": SCORES, "seconds": number,
    "untrained": {str: SCORES}, "stopped": bool, "steps": (count, ...),
}  # fmt: skip
RANDOM_STATES = {  # what `training.runtime.random_states` gave; NumPy does not check the position itself
    "python": lambda state: isinstance(state, list) and len(state) == 3,
    "numpy": lambda state: isinstance(state, list) and len(state) == 5 and count(state[2]) and state[2] <= 624,
    "torch": torch.Tensor, "cuda": [torch.Tensor],
}  # fmt: skip
CHECKPOINT = {  # every checkpoint has the first three; a run that resumes from it needs the others
    "epoch": count,
    "run": RUN,
    "state_dict": {str: torch.Tensor},
    "trained": ({str: torch.Tensor}, ...),
    "random_states": (RANDOM_STATES, ...),
    "optimizer": ({"state": {object: dict}, "param_groups": [{"params": [count], "lr": number, "initial_lr": number}]}, ...),
    "scaler": ({str: number}, ...),
}


def wrong_part(content) -> str | None:
    """What is wrong with the content of a checkpoint, in a few words; None where nothing is."""
    if not isinstance(content, dict):
        return f"it holds a {type(content).__name__}, no parts"
    wrong = [part for part, shape in CHECKPOINT.items() if not fits(content.get(part, ...), shape)]
    if not wrong:
        return None
    return f"its part {wrong[0]} is " + ("not what a run writes" if wrong[0] in content else "missing")
