"""Checkpoints: everything a run needs to go on as if it had never stopped, in one file that is whole or absent."""

import errno
import functools
import os
import re
from pathlib import Path

import torch

from engine.optimisers import check_state
from engine.random_state import random_states, set_random_states
from runs import damage
from runs.damage import line
from utilities import weights
from utilities.errors import UserError
from utilities.files import replacing
from utilities.reading import read_tensors

LAST = "checkpoint_last.pth.tar"
NAME = re.compile(r"checkpoint_[^/\0]+\.pth\.tar")
NETWORKS = ("model", "trained")  # the parts whose weights are checked on resume
EVALUATED = ("model", "trainer", "criterion")  # the parts that evaluation and use need


def save(path: Path | str, parts: dict, **extra) -> None:
    """Write the states of `parts` (name -> object with `state_dict()`), the random states, and `extra` (plain values).

    Part `model`, the network that is evaluated, is stored under `state_dict`; `grid` names the rows and columns of its
    patches, so that its position embeddings can be resampled.
    Raises UserError when the file cannot be written.
    """
    grid = getattr(parts.get("model"), "grid", None)
    if grid is not None:
        extra["grid"] = list(grid)
    states = {("state_dict" if name == "model" else name): part.state_dict() for name, part in parts.items()}
    with replacing(path, "wb") as file:
        try:
            torch.save({**states, "random_states": random_states(), **extra}, file)
        except RuntimeError as error:
            # torch's writer hides the OSError of a full disk
            number = getattr(error.__context__, "errno", None) or errno.ENOSPC
            raise OSError(number, os.strerror(number)) from error


def read(path: Path | str, lazily: bool = False) -> dict:
    """The checkpoint's content, on the CPU; `lazily`: a tensor's values are read when they are first requested.

    Raises UserError for a file that is missing, no checkpoint, or not what a run writes.
    """
    try:
        content = damage.load(path, functools.partial(read_tensors, lazily=lazily), damage.CHECKPOINT, way_out(path))
    except FileNotFoundError as error:
        raise UserError(f"no checkpoint at {path}") from error
    if "optimizer" in content:
        reason = damage.lacks(content, damage.RESUMED)
        if reason is not None:
            raise damaged(path, reason)
    return content


def selected(folder: Path, state: dict) -> Path:
    """The checkpoint of the selected epoch, which the `state` of a run in `folder` names.

    The last one where it names none.

    Raises UserError for a name that no run gives: files beside it are named after it.
    """
    name = state["selected"].get("checkpoint", LAST)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        reason = f"it names the checkpoint {name!r:.80}, expected checkpoint_….pth.tar in the run folder"
        raise damaged(folder / LAST, reason)
    return folder / name


def progress(path: Path | str) -> dict:
    """`epoch` and `run` of a checkpoint, to be left unchanged. A file that stays the same is read once.

    Raises UserError as `read`.
    """
    stamp = os.stat(path) if os.path.exists(path) else None
    return _progress(path, stamp and (stamp.st_ino, stamp.st_mtime_ns, stamp.st_size))


# Folds and trials are asked again and again. No tensor is kept: it would hold the space of a deleted file.
@functools.lru_cache(maxsize=32)
def _progress(path: Path | str, stamp: tuple[int, int, int] | None) -> dict:
    content = read(path, lazily=True)
    return {"epoch": content["epoch"], "run": content["run"]}


def way_out(path: Path | str) -> str:
    """What to do about a checkpoint that cannot be used."""
    if Path(path).name == LAST:
        return "--resume best goes on from that of the best epoch, or start a new run"
    return f"{LAST} is the run's last: --resume, or start a new run"


def damaged(path: Path | str, reason: str) -> UserError:
    """The error of a checkpoint that cannot be used, with the way out."""
    return damage.damaged(path, reason, way_out(path))


def with_or_without_average(content: dict, parts: dict) -> dict:
    """`content`, as `read` gave it, for a run that starts a moving average, or no longer keeps one.

    A new average starts from the network's weights.
    """
    if "trained" in parts and "trained" not in content:
        return {**content, "trained": content["state_dict"]}
    if "trained" in content and "trained" not in parts:
        return {**content, "state_dict": content["trained"]}
    return content


def restore_network(path: Path | str, content: dict, network: torch.nn.Module) -> None:
    """Put the weights that `read` gave of `path` into a network.

    Raises UserError where they belong to another network, or are no weights.
    """
    try:
        network.load_state_dict(content["state_dict"])
    except Exception as error:
        raise damaged(path, f"its weights are not of the network in parameters.yaml: {line(error)}") from error
    weights.refuse_faults(content["state_dict"], network, str(path))


def restore(path: Path | str, content: dict, parts: dict) -> None:
    """Restore `parts` and random generators from what `read` gave of `path`.

    Raises UserError where a state is missing or does not fit, or weights of the network are NaN or infinite.
    """
    for name, part in parts.items():
        key = "state_dict" if name == "model" else name
        if key not in content:
            reason = f"it holds no state of the {name}"
            if name == "trainer":
                reason += ": was --trainer another?"
            raise damaged(path, reason)
        try:
            part.load_state_dict(content[key])
            if name == "optimizer":
                check_state(part)
        except Exception as error:
            # a plug-in's own state may fail in any way
            reason = (
                f"its {name} does not fit this run's ({line(error).rstrip('.')}), for example because a changed "
                f"flag needs another {name}"
            )
            raise damaged(path, reason) from error
        if name in NETWORKS and isinstance(part, torch.nn.Module):
            weights.refuse_faults(content[key], part, str(path), way_out=way_out(path))
    try:
        set_random_states(content["random_states"])
    except Exception as error:
        raise damaged(path, f"its random_states are missing or none: {line(error)}") from error
