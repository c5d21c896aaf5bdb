"""What the files of a run folder may hold: whoever reads one asks here whether it is as a run writes it."""

import re

import torch

LARGEST = 2**53  # beyond, no epoch, step or measured value


def is_number(value) -> bool:
    """An int or a float, also NaN; no truth value."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST)


def is_count(value) -> bool:
    """An int from 0."""
    return is_number(value) and isinstance(value, int) and value >= 0


def is_mapping(value, of) -> bool:
    """A dict from texts to what `of` accepts."""
    return isinstance(value, dict) and all(isinstance(key, str) and of(item) for key, item in value.items())


def is_list(value, of) -> bool:
    """A list of what `of` accepts."""
    return isinstance(value, list) and all(map(of, value))


def is_scores(value) -> bool:
    """split -> {metric: number}; None stands for NaN in JSON."""
    return is_mapping(value, lambda metrics: is_mapping(metrics, _is_value))


def _is_value(value) -> bool:
    return value is None or is_number(value)


def is_flags(value) -> bool:
    """flag -> value or list of values: texts, numbers, truth values, None."""
    return is_mapping(value, lambda item: is_list(item, _is_flag_value) if isinstance(item, list) else _is_flag_value(item))


def _is_flag_value(value) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and "\0" not in value)


def is_selected(value) -> bool:
    """The selected epoch, None before the first evaluation, its values, and the name of its checkpoint where it has one."""
    return (
        isinstance(value, dict)
        and (value.get("epoch") is None or is_count(value["epoch"]))
        and is_scores(value.get("values"))
        and isinstance(name := value.get("checkpoint", "checkpoint_last"), str)
        and re.fullmatch(r"checkpoint_[^/\\\0]+", name) is not None
    )


def is_results(value) -> bool:
    """Results over the folds of a cross-validation, a file of meta/."""
    return (
        isinstance(value, dict)
        and is_list(value.get("folds"), is_count)
        and is_list(value.get("epochs"), lambda epoch: epoch is None or is_count(epoch))
        and isinstance(value.get("embeddings"), str)
        and _are_intervals(value.get("values"))
        and is_mapping(value.get("untrained", {}), _are_intervals)
    )


def _are_intervals(value) -> bool:
    return is_mapping(value, lambda metrics: is_mapping(metrics, _is_interval))


def _is_interval(value) -> bool:
    """What `utilities.intervals.t_interval` gave, None for NaN."""
    return (
        isinstance(value, dict)
        and {"mean", "standard_error", "interval_95"} <= set(value)
        and _is_value(value["mean"])
        and _is_value(value["standard_error"])
        and (value["interval_95"] is None or (is_list(value["interval_95"], _is_value) and len(value["interval_95"]) == 2))
    )


# ------------------------------------------------------------------------------------------------------------ checkpoints
def _is_run(value) -> bool:
    """The state of `runs.run.Run`."""
    return (
        isinstance(value, dict)
        and is_mapping(value.get("best"), lambda metrics: is_mapping(metrics, _is_best))
        and is_selected(value.get("selected"))
        and is_scores(value.get("last"))
        and is_number(value.get("seconds"))
        and is_mapping(value.get("untrained"), is_scores)
        and isinstance(value.get("stopped"), bool)
        and is_count(value.get("steps", 0))
    )


def _is_best(value) -> bool:
    return isinstance(value, dict) and is_number(value.get("value")) and is_count(value.get("epoch"))


def _is_optimizer(value) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("state"), dict)
        and all(isinstance(state, dict) for state in value["state"].values())
        and is_list(value.get("param_groups"), lambda group: isinstance(group, dict) and is_list(group.get("params"), is_count))
        and all(is_number(group.get(rate)) for group in value["param_groups"] for rate in ("lr", "initial_lr"))
    )


def _are_random_states(value) -> bool:
    """What `utilities.runtime.random_states` gave. NumPy itself does not look whether the position is one."""
    return (
        is_mapping(value, lambda state: isinstance(state, list | torch.Tensor))
        and {"python", "numpy", "torch", "cuda"} <= set(value)
        and len(value["python"]) == 3
        and len(value["numpy"]) == 5
        and is_count(value["numpy"][2])
        and value["numpy"][2] <= 624
    )


def _is_tensors(value) -> bool:
    return is_mapping(value, lambda tensor: isinstance(tensor, torch.Tensor))


# Part -> what it has to be. Of every checkpoint the first three are asked, the others where a run goes on with it.
CHECKPOINT = {
    "epoch": is_count,
    "run": _is_run,
    "state_dict": _is_tensors,
    "trained": _is_tensors,
    "random_states": _are_random_states,
    "optimizer": _is_optimizer,
    "scaler": lambda value: is_mapping(value, is_number),
}
REQUIRED = ("epoch", "run", "state_dict")


def wrong_part(content) -> str | None:
    """What is wrong with the content of a checkpoint, in a few words; None where it may be one of a run."""
    if not isinstance(content, dict):
        return f"it holds a {type(content).__name__}, no parts"
    missing = next((part for part in REQUIRED if part not in content), None)
    if missing is not None:
        return f"its part {missing} is missing"
    wrong = next((part for part, fits in CHECKPOINT.items() if part in content and not fits(content[part])), None)
    return None if wrong is None else f"its part {wrong} is not what a run writes"
