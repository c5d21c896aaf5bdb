"""Files of weights in the layouts of the field: read without running code, searched for the prefix of a backbone's
keys.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from utilities import pickles
from utilities.errors import UserError
from utilities.reading import read_arrays, read_safetensors

SAFE = ".safetensors"
ARRAYS = ".npz"
SHARE = 0.5  # of a backbone's tensors that lie below a prefix which is looked at
SECOND = {
    "student",
    "k",
    "momentum",
    "ema",
    "target",
    "trained",
}  # words of prefixes of copies that a project's own evaluation does not take
NAMED = 6  # groups of tensors that a line names


def content_of(path: str):
    """The content of a `.safetensors` or `.npz` file, else of a file of torch.save as of `pickles.load_tensors`, on the
    CPU.

    Raises Unreadable for any other file.
    """
    if path.endswith(ARRAYS):
        return {name: torch.from_numpy(values) for name, values in read_arrays(path).items()}
    return read_safetensors(path) if path.endswith(SAFE) else pickles.load_tensors(path)


class StateDict(dict):
    """A dict that can carry `_metadata`, the modules' versions by which torch converts old formats."""


def with_metadata(entries: dict, metadata: dict) -> StateDict:
    """The entries with the modules' versions."""
    entries = StateDict(entries)
    entries._metadata = metadata
    return entries


def flattened(content) -> StateDict:
    """All tensors of nested dicts by their path, keys joined by dots; numeric arrays come as tensors."""
    entries = {}
    metadata = {}
    _flatten(content, "", entries, metadata)
    return with_metadata(entries, metadata) if metadata else StateDict(entries)


def _flatten(content, prefix: str, entries: dict, metadata: dict) -> None:
    for path, versions in getattr(content, "_metadata", {}).items():
        metadata[f"{prefix}{path}"] = versions
    for key, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, pickles.Array) and value.values.dtype.kind in "fiub":
            value = torch.from_numpy(np.array(value.values))
        if isinstance(value, torch.Tensor):
            entries[f"{prefix}{key}"] = value
        elif isinstance(value, dict):
            _flatten(value, f"{prefix}{key}.", entries, metadata)


def under(state: dict, prefix: str) -> dict:
    """The entries below `prefix`, without it, and the modules' versions."""
    entries = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
    if not hasattr(state, "_metadata"):
        return entries
    return with_metadata(
        entries, {path[len(prefix) :]: data for path, data in state._metadata.items() if f"{path}.".startswith(prefix)}
    )


class Fit(NamedTuple):
    """How the tensors below `prefix` fit a backbone.

    Attributes:
        state: the tensors in the backbone's names. missing, unexpected: keys. other_shape: keys of tensors of another
            shape.
    """

    prefix: str
    state: dict
    missing: list
    unexpected: list
    other_shape: list
    fault: Exception | None = None  # why the keys cannot be converted to the backbone's names

    @property
    def is_exact(self) -> bool:
        """Whether exactly the backbone's keys lie there, in its shapes."""
        return not (self.missing or self.unexpected or self.other_shape)


def prefixes(flat: dict, least: int) -> list[str]:
    """The prefixes, up to a dot, below which at least `least` tensors lie, the shortest first."""
    counts = Counter()
    for key in flat:
        parts = key.split(".")
        counts.update(".".join([*parts[:depth], ""]) for depth in range(len(parts)))
    return sorted(
        (prefix for prefix, count in counts.items() if count >= least), key=lambda prefix: (prefix.count("."), prefix)
    )


def search(flat: dict, size: int, fit: Callable, usual: str, asked: str | None, source: str) -> tuple[Fit, list[Fit]]:
    """Where a backbone's weights lie in a file's tensors, and the other places where they fit too.

    Args:
        size: number of the backbone's tensors. fit: prefix -> `Fit`. usual: the prefix that is taken if none fits.
        asked: --weights_prefix.

    Raises UserError where the asked prefix does not exist, or several places are as good.
    """
    places = prefixes(flat, max(round(SHARE * size), 1))
    if asked is not None:
        places = _below_asked(places, flat, asked, source)
    fits = [fit(prefix) for prefix in places]
    exact = [found for found in fits if found.is_exact]
    exact = [
        found
        for found in exact
        if not any(other is not found and other.prefix.startswith(found.prefix) for other in exact)
    ]
    if not exact:
        near = [found for found in fits if len(found.missing) < SHARE * size]
        if asked is None:
            near.insert(0, fit(usual))
        return min(near or fits or [fit(usual)], key=lambda found: len(found.missing)), []
    first = [found for found in exact if not SECOND & set(re.split(r"[._]", found.prefix))]
    best = first or exact
    if len(best) > 1 and usual in [found.prefix for found in best]:
        best = [found for found in best if found.prefix == usual]
    if len(best) > 1:
        shown = ", ".join(found.prefix.rstrip(".") or "(none)" for found in best[:NAMED])
        raise UserError(
            f"{source} holds weights of this backbone in several places: choose one by --weights_prefix: {shown}"
        )
    return best[0], [found for found in exact if found is not best[0]]


def _below_asked(places: list[str], flat: dict, asked: str, source: str) -> list[str]:
    """The prefixes that end with the asked one, and those below. Raises UserError where there is none, or several."""
    asked = asked.strip(".")
    every = prefixes(flat, 1)
    tops = [prefix for prefix in every if f".{prefix}".endswith(f".{asked}." if asked else ".")] if asked else [""]
    tops = [prefix for prefix in tops if not any(other != prefix and prefix.startswith(other) for other in tops)]
    if not tops:
        shown = ", ".join(prefix.rstrip(".") for prefix in places[:NAMED] if prefix) or ", ".join(list(flat)[:3])
        raise UserError(
            f"--weights_prefix {asked}: no key of {source.removeprefix('--weights ')} begins so; there are {shown}"
        )
    if len(tops) > 1:
        raise UserError(
            f"--weights_prefix {asked}: {source.removeprefix('--weights ')} has {' and '.join(tops[:NAMED])}: give "
            "one of them in full"
        )
    return [prefix for prefix in places if prefix.startswith(tops[0])] or tops


def unused(flat: dict, taken: str, used: set[str]) -> list[str]:
    """Groups of the tensors that are not `used`, with their numbers: the parts beside those of the prefix `taken`."""
    groups = Counter()
    for key in flat:
        if key in used:
            continue
        parts = key.split(".")
        depth = 1
        while depth < len(parts) and taken.startswith(".".join([*parts[:depth], ""])):
            depth += 1
        groups[".".join(parts[:depth])] += 1
    named = [name if count == 1 else f"{name} ({count} tensors)" for name, count in groups.items()]
    return named[:NAMED] + ([f"{len(named) - NAMED} more"] if len(named) > NAMED else [])


def by_position(state: dict, backbone: torch.nn.Module) -> dict | None:
    """The state of a `Sequential` of a backbone's children, as in lightly's examples, in the backbone's names; else
    None.
    """
    names = [name for name, _ in backbone.named_children()]
    renamed = {}
    for key, value in state.items():
        position, dot, rest = key.partition(".")
        if not (dot and position.isdecimal() and int(position) < len(names)):
            return None
        renamed[f"{names[int(position)]}.{rest}"] = value
    return renamed


def without_chunks(state: dict) -> dict | None:
    """The state of a ViT of DINOv2's training, `blocks.<chunk>.<block>.`, without the chunks; None where there are
    none.
    """
    chunked = re.compile(r"blocks\.\d+\.(\d+)\.")
    renamed = {chunked.sub(r"blocks.\1.", key): value for key, value in state.items()}
    return renamed if len(renamed) == len(state) and renamed.keys() != state.keys() else None
