"""A damaged or foreign file in a run folder: one check of its keys, one error that names the file and the way out."""

from pathlib import Path

from utilities.errors import UserError
from utilities.reading import Unreadable, parsing

# Keys that a reader needs, each with those of the mapping below it; None: any value.
SUMMARY = {"selected": {"values": {}}}
# the state of `runs.run.Run`
RUN = {
    "best": {},
    "selected": {"values": {}},
    "last": {},
    "seconds": None,
    "untrained": {},
    "stopped": None,
}
CHECKPOINT = {"epoch": None, "run": RUN, "state_dict": {}}
# further content of those checkpoints from which a run goes on
RESUMED = {"optimizer": {"state": {}, "param_groups": None}}
# over the folds of a cross-validation, a file of meta/
RESULTS = {
    "folds": None,
    "epochs": None,
    "embeddings": None,
    "values": {},
}


def load(path: Path | str, read, keys: dict | None = None, way_out: str = ""):
    """The content of a file, `read(path)`. Raises UserError where that fails in any way, or lacks one of the `keys`."""
    try:
        with parsing(path):
            content = read(path)
    except Unreadable as error:
        if error.is_missing:
            raise FileNotFoundError(path) from error
        raise damaged(path, error.reason, way_out) from error
    reason = None if keys is None else lacks(content, keys)
    if reason is not None:
        raise damaged(path, reason, way_out)
    return content


def lacks(content, keys: dict) -> str | None:
    """The reason why a content is not usable: which of the keys it lacks; None if it has all."""
    if not isinstance(content, dict):
        return f"it holds a {type(content).__name__} in place of names with values"
    for key, below in keys.items():
        if key not in content:
            return f"its part {key} is missing"
        if below is not None and lacks(content[key], below) is not None:
            return f"its part {key} is not what a run writes"
    return None


def damaged(path: Path | str, reason: str, way_out: str = "") -> UserError:
    """The error of a file that cannot be used."""
    message = f"{path} is damaged, or of another program: {reason}"
    if way_out:
        message += f". {way_out}"
    return UserError(message)


def line(error: Exception) -> str:
    """The last line of an error's message, shortened."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()[:200]
