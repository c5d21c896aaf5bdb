"""Checkpoints: everything a run needs to go on as if it had never stopped, in one file that is whole or absent."""

from pathlib import Path

import torch

from utilities.errors import UserError
from utilities.files import replacing
from utilities.runtime import random_states, set_random_states

LAST = "checkpoint_last.pth.tar"


def save(path: Path | str, parts: dict, **extra) -> None:
    """Write the states of `parts` (name -> object with `state_dict()`), the random states, and `extra` (plain values).

    The network, part `model`, is stored under `state_dict`. Raises UserError when the file cannot be written.
    """
    states = {("state_dict" if name == "model" else name): part.state_dict() for name, part in parts.items()}
    with replacing(path, "wb") as file:
        try:
            torch.save({**states, "random_states": random_states(), **extra}, file)
        except RuntimeError as error:  # torch's writer hides the OSError of a full disk
            raise OSError(getattr(error.__context__, "errno", None) or 28, str(error).splitlines()[0]) from error


def read(path: Path | str, lazily: bool = False) -> dict:
    """The checkpoint's content, on the CPU; `lazily`: a tensor's values are read when they are first asked for.

    Raises UserError for a file that is missing or no checkpoint.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=lazily)
    except FileNotFoundError as error:
        raise UserError(f"no checkpoint at {path}") from error
    except Exception as error:
        if lazily:
            return read(path)  # which says what is wrong with it: torch says that of lazy reading alone
        raise UserError(f"{path} is no checkpoint of this program, or damaged: {str(error).splitlines()[0]}") from error


def out_of_patience(content: dict, patience: int | None) -> bool:
    """Whether a run was stopped by its `--patience`, and would be by this one too."""
    run = content["run"]
    return run["stopped"] and patience is not None and content["epoch"] - (run["selected"]["epoch"] or 0) >= patience


def restore(content: dict, parts: dict) -> None:
    """Put the states that `read` gave back into `parts`, and set the random generators.

    Raises UserError when a part's state is missing or does not fit.
    """
    for name, part in parts.items():
        key = "state_dict" if name == "model" else name
        if key not in content:
            raise UserError(f"the checkpoint holds no state of the {name}: it was not written by a run of this program")
        try:
            part.load_state_dict(content[key])
        except (RuntimeError, ValueError, KeyError) as error:
            raise UserError(f"the checkpoint's {name} does not fit this run's: {str(error).splitlines()[-1].strip()}") from error
    set_random_states(content["random_states"])
