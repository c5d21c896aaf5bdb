"""Initial weights of a network: the package's, a local file's, or none.

`fill` loads them. A file may hold the backbone anywhere (`_checkpoints.search`), in the names of another program
(`Network.published_state`), or a whole network of this program, whose embedding layer is loaded too if its shapes fit.
Whatever does not fit exactly ends the program with one line; nothing is silently left at random values.
"""

import functools
import os
import socket
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple

import torch

from architectures import _adaptation, _checkpoints, _foreign, _pool
from architectures._checkpoints import content_of
from utilities import weights
from utilities.console import say
from utilities.errors import UserError
from utilities.reading import Unreadable

TIMEOUT = 20  # seconds without an answer
WRAPPERS = ("module.", "_orig_mod.", "model.")  # prefixes of all keys by DataParallel, compile and other programs
CLASSIFIERS = (
    "fc",
    "last_linear",
    "last_conv",
    "classifier",
    "head",
    "heads",
    "head_dist",
    "aux1",
    "aux2",
    "AuxLogits",
    "aux_logits",
)
OPTIONAL = ("num_batches_tracked",)  # of BatchNorm: files of old versions of torch lack it
CONTAINERS = ("state_dict", "model_state_dict", "model")  # keys under which checkpoints hold the network's state dict
# of --pool gem_learned and --prompts: published files lack them
LEARNED = (f".{_pool.POWER}", f".{_adaptation.PROMPTS}")
# ending of a file's name -> what it is, and the way out
OTHER_FILES = {
    ".onnx": (
        "an ONNX graph, without the names of a network's parameters: give the .pth or .safetensors file that it was "
        "exported from"
    ),
    ".safetensors.index.json": "the index of a model in several files: join them into one .safetensors file",
}


class Pretrained(NamedTuple):
    """Weights that a package publishes. `hashed`: the file's name holds the start of its SHA-256 sum.

    `fetch`: for weights that are not a file at `url`: folder of --weights_cache or None -> state dict.
    """

    name: str
    url: str
    hashed: bool
    fetch: Callable | None = None


def fill(network, opt, pretrained: Pretrained | None) -> str:
    """Give `network` its initial weights: those of `--weights`, random ones (`--not_pretrained`), or the package's.

    Returns the weights' name for the records: that of the package, the file's path, or `random`.
    """
    if opt.weights:
        grid = tuple(opt.weights_grid) if opt.weights_grid else None
        _load(network, _read(opt.weights), f"--weights {opt.weights}", opt.weights_prefix, grid)
        return str(opt.weights)
    if opt.not_pretrained:
        return "random"
    if pretrained is None:
        say(f"{network.name}: there are no pretrained weights, it starts random")
        return "random"
    _load(network, _download(network.name, pretrained, opt.weights_cache), f"{pretrained.name} at {pretrained.url}")
    return pretrained.name


def _read(path) -> dict:
    """The file's content, tensors only. Raises UserError if it cannot be read."""
    for ending, description in OTHER_FILES.items():
        if str(path).endswith(ending):
            raise UserError(f"--weights {path} is {description}")
    try:
        return content_of(os.path.expanduser(str(path)))
    except Unreadable as error:
        raise UserError(
            f"--weights {path} cannot be read ({error.reason}): give a file that torch.save(network.state_dict(), …) "
            "wrote"
        ) from None


def _download(name: str, pretrained: Pretrained, cache) -> dict:
    """The published state dict, from the cache or the network. Raises UserError if neither has it."""
    cache = os.path.expanduser(cache) if cache else None
    folder = cache or os.path.join(torch.hub.get_dir(), "checkpoints")
    file = os.path.join(folder, os.path.basename(pretrained.url))
    try:
        with patience(TIMEOUT):
            if pretrained.fetch is not None:
                return pretrained.fetch(cache)
            return torch.hub.load_state_dict_from_url(
                pretrained.url,
                model_dir=folder,
                map_location="cpu",
                progress=sys.stderr.isatty(),
                check_hash=pretrained.hashed,
                weights_only=True,
            )
    except UserError:
        raise
    except Exception as error:
        # hosts, disks and damaged files fail in all kinds of ways
        if pretrained.fetch is None and os.path.isfile(file):
            raise UserError(
                f"{name}: its weights in {file} cannot be read ({first_line(error)}): delete that file"
            ) from None
        raise UserError(
            f"{name}: its weights {pretrained.name} cannot be had from {pretrained.url} ({first_line(error)}): give "
            "a local state dict with --weights FILE, or start random with --not_pretrained"
        ) from None


@contextmanager
def patience(seconds: float):
    """Context in which sockets time out after `seconds` without an answer, as torch's downloader sets no limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def first_line(error: Exception) -> str:
    """The first line of an error's message, without its full stop; of one without a message its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".: ")[:160]


def _load(
    network, content, source: str, prefix: str | None = None, requested_grid: tuple[int, int] | None = None
) -> None:
    """Load a file's content: the weights of the backbone, and those of a whole network of this program.

    Args:
        prefix: --weights_prefix; None: the place of the backbone is searched.
        requested_grid: --weights_grid; None: that which the file names, if it does.

    Raises UserError if there are no weights, or those of another backbone, and for values that are no weights.
    """
    grid = _source_grid(network, _checkpoints.grid_of(content), requested_grid, source)
    flat = _checkpoints.flattened(content)
    if not flat or not _is_of_tensors(content):
        way_out = "give a file that torch.save(network.state_dict(), …) wrote"
        raise UserError(f"{source} holds no state dict (names to tensors): {way_out}")
    flat = _foreign.renamed(network, flat, source)
    fit = functools.partial(_fit, network, flat, grid)
    size = len(network.backbone.state_dict())
    place, further_places = _checkpoints.search(flat, size, fit, _usual_prefix(content), prefix, source)
    if isinstance(place.fault, UserError):
        raise UserError(f"{source}: {place.fault}")
    if isinstance(place.fault, Exception):
        reason = first_line(place.fault)
        raise UserError(
            f"{source} does not fit {network.name} ({reason}): give weights of this backbone, or --not_pretrained"
        )
    weights.refuse_faults(place.state, network.backbone, source, place.prefix)
    missing, unexpected = _load_backbone(network, place, source)
    prefixes = [] if prefix is not None else _checkpoints.prefixes(flat, size // 2)
    _refuse_other_keys(network, missing, unexpected, source, [name.rstrip(".") for name in prefixes if name])
    network_state = _whole_network(network, flat, place.prefix)
    _tell_place(flat, place, further_places, network_state, content, source)
    if network_state is not None:
        _load_embedding_layer(network, network_state, source)


def _source_grid(network, named, requested, source: str) -> tuple[int, int] | None:
    """The grid of a file's positions, (rows, columns), as the file or --weights_grid names it; None if neither does."""
    if requested is None:
        return named
    words = " ".join(map(str, requested))
    if not network.has_positions:
        raise UserError(f"--weights_grid {words}: {network.name} has no position embeddings to resample: leave it out")
    if named not in (None, requested):
        raise UserError(f"--weights_grid {words}: {source} names its own grid, {named[0]} {named[1]}: leave it out")
    return requested


def _load_backbone(network, place: "_checkpoints.Fit", source: str) -> tuple[list[str], list[str]]:
    """Load the backbone's weights; returns missing and unexpected keys. Raises UserError for other shapes."""
    state = {key: weights.dequantized(value) for key, value in place.state.items()}
    metadata = getattr(place.state, "_metadata", {"": {"version": getattr(network.backbone, "_version", 1)}})
    try:
        missing, unexpected = network.backbone.load_state_dict(
            _checkpoints.with_metadata(state, metadata), strict=False
        )
    except (RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        if not lines:
            lines = [first_line(error)]
        raise UserError(f"{source} does not fit {network.name}: {_few(lines, '; ', 2)}") from None
    _refuse_other_prompts(state, missing, unexpected, source)
    return missing, unexpected


def _refuse_other_prompts(state: dict, missing: list, unexpected: list, source: str) -> None:
    """Raise UserError if a file holds prompts that the network does not have, or fewer."""
    prompts = f".{_adaptation.PROMPTS}"
    are_fewer = any(key.endswith(prompts) for key in state) and any(key.endswith(prompts) for key in missing)
    if are_fewer or any(key.endswith(prompts) for key in unexpected):
        flags = "--prompts, --prompt_depth and --prompt_step"
        raise UserError(f"{source} holds prompts: give the {flags} that they were trained with")


def _refuse_other_keys(network, missing: list, unexpected: list, source: str, places: list[str]) -> None:
    """Raise UserError if keys of the backbone are missing, or there are others.

    `places`: where else they may lie.
    """
    missing = [key for key in missing if not key.endswith(LEARNED)]
    faults = []
    if missing:
        faults.append(f"missing {_few(missing)}")
    if unexpected:
        faults.append(f"unexpected {_few(unexpected)}")
    if not faults:
        return
    way_out = "give weights of this backbone"
    if places:
        way_out += f", or say by --weights_prefix where they lie: {_few(places)}"
    way_out += ", or --not_pretrained"
    raise UserError(f"{source} does not fit {network.name}: {'; '.join(faults)}: {way_out}")


def _fit(network, flat: dict, grid: tuple[int, int] | None, prefix: str) -> "_checkpoints.Fit":
    """How the tensors below a prefix fit the backbone, as they are or in the names that other programs give them.

    grid: of the file's positions, None if it is not named.
    """
    below = _checkpoints.under(flat, prefix)
    as_it_is = _fit_of(network, below, grid, prefix)
    if as_it_is.is_exact:
        return as_it_is
    for renamed in (_checkpoints.by_position(below, network.backbone), _checkpoints.without_chunks(below)):
        if renamed is not None:
            fit = _fit_of(network, renamed, grid, prefix)
            if fit.is_exact:
                return fit
    return as_it_is


def _fit_of(network, state: dict, grid: tuple[int, int] | None, prefix: str) -> "_checkpoints.Fit":
    backbone = network.backbone.state_dict()
    try:
        state = _adaptation.merged(state)
        # `published_state` of networks of earlier plug-ins takes no grid
        named_grid = () if grid is None else (grid,)
        state = network.published_state(_with_keys(state, network.published_key), *named_grid)
    except UserError as error:
        # The error speaks of the grid of the positions.
        missing = [key for key in backbone if key not in state]
        return _checkpoints.Fit(prefix, state, missing, [], [], error)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return _checkpoints.Fit(prefix, state, list(backbone), list(state), [], error)
    classifiers = tuple(f"{name}." for name in (network.head, *CLASSIFIERS))
    entries = {key: value for key, value in state.items() if key in backbone or not key.startswith(classifiers)}
    if hasattr(state, "_metadata"):
        entries = _checkpoints.with_metadata(entries, state._metadata)
    missing = [key for key in backbone if key not in entries and not key.endswith((*OPTIONAL, *LEARNED))]
    unexpected = []
    other_shape = []
    for key, value in entries.items():
        if key not in backbone:
            unexpected.append(key)
        elif value.shape != backbone[key].shape:
            other_shape.append(key)
    return _checkpoints.Fit(prefix, entries, missing, unexpected, other_shape)


def _usual_prefix(content) -> str:
    """The prefix of the state dict, alone or inside a checkpoint, with the names that wrappers put before all keys."""
    prefix = ""
    for key in CONTAINERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
            prefix = f"{prefix}{key}."
    keys = []
    if isinstance(content, dict):
        keys = list(map(str, content))
    while (wrapper := _wrapper_of(keys)) is not None:
        keys = [key[len(wrapper) :] for key in keys]
        prefix += wrapper
    if any(key.startswith("backbone.") for key in keys):
        prefix += "backbone."
    return prefix


def _wrapper_of(keys: list[str]) -> str | None:
    """The name that DataParallel, compile or another program put before all keys; None without one."""
    for name in WRAPPERS:
        if keys and all(key.startswith(name) for key in keys):
            return name
    return None


def _is_of_tensors(content) -> bool:
    """Whether the content, or what lies in it under a name of CONTAINERS, is a dict that is not empty."""
    for key in CONTAINERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    return isinstance(content, dict) and len(content) > 0


def _whole_network(network, flat: dict, prefix: str) -> dict | None:
    """The state of a whole network of this program around a backbone's prefix; None if there is none."""
    if not f".{prefix}".endswith(".backbone."):
        return None
    state = _checkpoints.under(flat, prefix.removesuffix("backbone."))
    layers = tuple(f"{name}." for name in network.embedding_layers)
    n_layers = sum(key.startswith(layers) for key in state)
    n_backbone = sum(key.startswith("backbone.") for key in state)
    if not n_layers or n_layers + n_backbone < len(state):
        return None
    return state


def _tell_place(flat: dict, place, further_places: list, network_state: dict | None, content, source: str) -> None:
    """Print the place of weights that are not at the usual one, what else fits, and what is not used."""
    used_prefix = place.prefix
    if network_state is not None:
        used_prefix = place.prefix.removesuffix("backbone.")
    used_keys = {key for key in flat if key.startswith(used_prefix)}
    unused = _checkpoints.unused(flat, place.prefix, used_keys)
    if not unused and not further_places and place.prefix == _usual_prefix(content):
        return
    line = f"{source}: weights under {place.prefix.rstrip('.') or 'no prefix'}"
    if unused:
        line += f"; not used: {', '.join(unused)}"
    if further_places:
        names = ", ".join(fit.prefix.rstrip(".") or "(none)" for fit in further_places)
        line += f"; these fit too, by --weights_prefix: {names}"
    say(line)


def _load_embedding_layer(network, state: dict, source: str) -> None:
    """Load the layers behind the backbone if all have this network's shapes; else print that they are random."""
    for part, layers in network.embedding_layers.items():
        below = _checkpoints.under(state, f"{part}.")
        if _shapes(below) != _shapes(layers.state_dict()):
            say(
                f"{source}: only the backbone fits; what follows it has other shapes (--embed_dim, --embed_hidden, "
                "--neck) and starts random"
            )
            return
    for part, layers in network.embedding_layers.items():
        below = _checkpoints.under(state, f"{part}.")
        weights.refuse_faults(below, layers, source, f"{part}.")
        layers.load_state_dict({key: weights.dequantized(value) for key, value in below.items()})


def _shapes(state: dict) -> dict:
    return {key: value.shape for key, value in state.items()}


def _with_keys(state: dict, rename) -> dict:
    entries = {rename(key): value for key, value in state.items()}
    if hasattr(state, "_metadata"):
        entries = _checkpoints.with_metadata(entries, state._metadata)
    return entries


def _few(items, separator: str = ", ", count: int = 3) -> str:
    items = list(items)
    text = separator.join(items[:count])
    if len(items) > count:
        text += f"{separator}… ({len(items)} in all)"
    return text
