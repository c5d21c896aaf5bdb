"""Files of weights in the layouts of the field, read without running code and searched for a backbone's keys.

Projects store a backbone in different places: at the top, below `state_dict.`, `teacher.backbone.`, `module.encoder_q.`
and so on. `search` tries every prefix below which enough tensors lie, and takes the one whose keys and shapes are those
of the backbone; of several it prefers the copy that a project itself evaluates.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from utilities import pickles
from utilities.errors import UserError
from utilities.reading import read_arrays, read_safetensors, read_safetensors_metadata

SAFE = ".safetensors"
ARRAYS = ".npz"
GRID = "grid"  # the key of a checkpoint, or the entry of a safetensors file, that names the grid of the positions
SHARE = 0.5  # of a backbone's tensors that lie below a prefix which is looked at
# words of prefixes of copies that a project's own evaluation does not take
SECOND = {"student", "k", "momentum", "ema", "target", "trained"}
# the most prefixes, or groups of tensors, that a message names
NAMED = 6


def content_of(path: str):
    """The content of a `.safetensors`, `.npz` or torch.save file, on the CPU. Raises Unreadable for any other file."""
    if path.endswith(ARRAYS):
        return {name: torch.from_numpy(values) for name, values in read_arrays(path).items()}
    if path.endswith(SAFE):
        words = read_safetensors_metadata(path).get(GRID, "").split()
        grid = [int(word) for word in words if word.isdecimal()]
        return with_grid(read_safetensors(path), grid_of({GRID: grid}))
    return pickles.load_tensors(path)


class StateDict(dict):
    """A dict that can carry `_metadata`, the modules' versions by which torch converts old formats, and `grid`."""

    grid = None


def with_grid(entries: dict, grid: tuple[int, int] | None) -> StateDict:
    """The entries, and the grid (rows, columns) of their position embeddings."""
    entries = StateDict(entries)
    entries.grid = grid
    return entries


def grid_of(content) -> tuple[int, int] | None:
    """The grid (rows, columns) that a file of weights names; None if it names none, as those of other programs."""
    if isinstance(content, StateDict):
        return content.grid
    grid = content.get(GRID) if isinstance(content, dict) else None
    is_pair = isinstance(grid, list | tuple) and len(grid) == 2
    if not is_pair or not all(type(side) is int and side > 0 for side in grid):
        return None
    return tuple(grid)


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
    if metadata:
        return with_metadata(entries, metadata)
    return StateDict(entries)


def _flatten(content, prefix: str, entries: dict, metadata: dict) -> None:
    for path, versions in getattr(content, "_metadata", {}).items():
        metadata[f"{prefix}{path}"] = versions
    if not isinstance(content, dict):
        return
    for key, value in content.items():
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
    metadata = {}
    for path, versions in state._metadata.items():
        if f"{path}.".startswith(prefix):
            metadata[path[len(prefix) :]] = versions
    return with_metadata(entries, metadata)


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
    # why the keys cannot be converted to the backbone's names
    fault: Exception | None = None

    @property
    def is_exact(self) -> bool:
        """Whether exactly the backbone's keys lie there, in its shapes."""
        return self.fault is None and not (self.missing or self.unexpected or self.other_shape)


def prefixes(flat: dict, least: int) -> list[str]:
    """The prefixes, up to a dot, below which at least `least` tensors lie, the shortest first."""
    counts = Counter()
    for key in flat:
        parts = key.split(".")
        counts.update(".".join([*parts[:depth], ""]) for depth in range(len(parts)))
    common = [prefix for prefix, count in counts.items() if count >= least]
    return sorted(common, key=lambda prefix: (prefix.count("."), prefix))


def search(flat: dict, size: int, fit: Callable, usual: str, prefix: str | None, source: str) -> tuple[Fit, list[Fit]]:
    """Where a backbone's weights lie in a file's tensors, and the other places where they fit too.

    Args:
        size: number of the backbone's tensors. fit: prefix -> `Fit`. usual: the prefix that is taken if none fits.
        prefix: --weights_prefix, None if unset. source: the file, for messages.

    Raises UserError if the prefix of --weights_prefix does not exist, or several places fit equally well.
    """
    places = prefixes(flat, max(round(SHARE * size), 1))
    if prefix is not None:
        places = _below(prefix, places, flat, source)
    fits = [fit(place_prefix) for place_prefix in places]
    exact = _innermost([place for place in fits if place.is_exact])
    if not exact:
        near = [place for place in fits if len(place.missing) < SHARE * size]
        if prefix is None:
            near.insert(0, fit(usual))
        return min(near or fits or [fit(usual)], key=lambda place: len(place.missing)), []
    evaluated = [place for place in exact if not SECOND & set(re.split(r"[._]", place.prefix))]
    best = evaluated or exact
    if len(best) > 1 and usual in [place.prefix for place in best]:
        best = [place for place in best if place.prefix == usual]
    if len(best) > 1:
        names = ", ".join(place.prefix.rstrip(".") or "(none)" for place in best[:NAMED])
        raise UserError(
            f"{source} holds weights of this backbone in several places: choose one by --weights_prefix: {names}"
        )
    return best[0], [place for place in exact if place is not best[0]]


def _innermost(fits: list[Fit]) -> list[Fit]:
    """The fits below whose prefix there is no further one."""
    innermost = []
    for place in fits:
        below = sum(fit.prefix.startswith(place.prefix) for fit in fits)
        # Only the prefix itself begins so.
        if below == 1:
            innermost.append(place)
    return innermost


def _below(prefix: str, places: list[str], flat: dict, source: str) -> list[str]:
    """Those of `places` at and below --weights_prefix. Raises UserError if the prefix is absent or ambiguous."""
    prefix = prefix.strip(".")
    file = source.removeprefix("--weights ")
    tops = [""]
    if prefix:
        tops = _outermost([place for place in prefixes(flat, 1) if f".{place}".endswith(f".{prefix}.")])
    if not tops:
        names = ", ".join(place.rstrip(".") for place in places[:NAMED] if place) or ", ".join(list(flat)[:3])
        raise UserError(f"--weights_prefix {prefix}: no key of {file} begins so; there are {names}")
    if len(tops) > 1:
        raise UserError(f"--weights_prefix {prefix}: {file} has {' and '.join(tops[:NAMED])}: give one of them in full")
    return [place for place in places if place.startswith(tops[0])] or tops


def _outermost(names: list[str]) -> list[str]:
    """The prefixes that lie below no other one."""
    outermost = []
    for prefix in names:
        above = sum(prefix.startswith(outer) for outer in names)
        # Of all prefixes it begins only with itself.
        if above == 1:
            outermost.append(prefix)
    return outermost


def unused(flat: dict, prefix: str, used_keys: set[str]) -> list[str]:
    """Groups of the tensors that are not used, with their numbers: the parts beside those of the used `prefix`."""
    groups = Counter()
    for key in flat:
        if key in used_keys:
            continue
        parts = key.split(".")
        depth = 1
        while depth < len(parts) and prefix.startswith(".".join([*parts[:depth], ""])):
            depth += 1
        groups[".".join(parts[:depth])] += 1
    lines = []
    for name, count in groups.items():
        text = name
        if count > 1:
            text += f" ({count} tensors)"
        lines.append(text)
    if len(lines) > NAMED:
        return [*lines[:NAMED], f"{len(lines) - NAMED} more"]
    return lines


def by_position(state: dict, backbone: torch.nn.Module) -> dict | None:
    """The state of a `Sequential` of a backbone's children, in the backbone's names; None for another state.

    lightly's examples write such files.
    """
    names = [name for name, _ in backbone.named_children()]
    renamed = {}
    for key, value in state.items():
        position, dot, name = key.partition(".")
        if not (dot and position.isdecimal() and int(position) < len(names)):
            return None
        renamed[f"{names[int(position)]}.{name}"] = value
    return renamed


def without_chunks(state: dict) -> dict | None:
    """The state of a ViT of DINOv2's training, `blocks.<chunk>.<block>.`, without the chunks; None without any."""
    chunked = re.compile(r"blocks\.\d+\.(\d+)\.")
    renamed = {chunked.sub(r"blocks.\1.", key): value for key, value in state.items()}
    if len(renamed) < len(state) or renamed.keys() == state.keys():
        return None
    return renamed
