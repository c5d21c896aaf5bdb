"""Initial weights of a network: the package's, a local file's, or none."""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple

import torch

from architectures import _adaptation, _pool
from utilities.console import say
from utilities.errors import UserError
from utilities.reading import Unreadable, read_safetensors, read_tensors

TIMEOUT = 20  # seconds without an answer
WRAPPERS = ("module.", "_orig_mod.", "model.")  # prefixes of all keys by DataParallel, compile and other programs
CLASSIFIERS = ("fc", "last_linear", "last_conv", "classifier", "head", "heads", "head_dist", "aux1", "aux2", "AuxLogits", "aux_logits")
CONTAINERS = ("state_dict", "model_state_dict", "model")  # keys under which checkpoints hold the network's state dict
SAFE = ".safetensors"
LEARNED = (f".{_pool.POWER}", f".{_adaptation.PROMPTS}")  # of --pool gem_learned and --prompts: published files lack them
OTHER_FILES = {  # ending of a file's name -> what it is, and the way out
    ".onnx": "an ONNX graph, without the names of a network's parameters: give the .pth or .safetensors file that it was exported from",
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
    """Give `network` its initial weights: those of `--weights`, else random ones with `--not_pretrained`, else the package's.

    Returns the weights' name for the records: that of the package, the file's path, or `random`.
    """
    if opt.weights:
        _load(network, _read(opt.weights), f"--weights {opt.weights}")
        return str(opt.weights)
    if opt.not_pretrained:
        return "random"
    if pretrained is None:
        say(f"{network.name}: there are no pretrained weights, it starts random")
        return "random"
    _load(network, _download(network.name, pretrained, opt.weights_cache), f"{pretrained.name} at {pretrained.url}")
    return pretrained.name


def _read(path) -> dict:
    """The file's content, tensors only. Raises UserError where it cannot be read."""
    for ending, what in OTHER_FILES.items():
        if str(path).endswith(ending):
            raise UserError(f"--weights {path} is {what}")
    try:
        return content_of(os.path.expanduser(str(path)))
    except Unreadable as error:
        raise UserError(f"--weights {path} cannot be read ({error.reason}): give a file that torch.save(network.state_dict(), …) wrote") from None


def content_of(path: str) -> dict:
    """The tensors of a `.safetensors` file, else of one of `torch.save`. Raises Unreadable for any other file."""
    return read_safetensors(path) if path.endswith(SAFE) else read_tensors(path)


def _download(name: str, pretrained: Pretrained, cache) -> dict:
    """The published state dict, from the cache or the network. Raises UserError where neither has it."""
    folder = os.path.expanduser(cache) if cache else os.path.join(torch.hub.get_dir(), "checkpoints")
    file = os.path.join(folder, os.path.basename(pretrained.url))
    try:
        with _patience(TIMEOUT):
            if pretrained.fetch is not None:
                return pretrained.fetch(os.path.expanduser(cache) if cache else None)
            return torch.hub.load_state_dict_from_url(
                pretrained.url, model_dir=folder, map_location="cpu", progress=sys.stderr.isatty(),
                check_hash=pretrained.hashed, weights_only=True,
            )  # fmt: skip
    except UserError:
        raise
    except Exception as error:  # hosts, disks and damaged files fail in all kinds of ways
        if pretrained.fetch is None and os.path.isfile(file):
            raise UserError(f"{name}: its weights in {file} cannot be read ({_first_line(error)}): delete that file") from None
        raise UserError(
            f"{name}: its weights {pretrained.name} cannot be had from {pretrained.url} ({_first_line(error)}): "
            f"give a local state dict with --weights FILE, or start random with --not_pretrained"
        ) from None


@contextmanager
def _patience(seconds: float):
    """Context in which sockets time out after `seconds` without an answer, as torch's downloader sets no limit."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".: ")[:160]


def _load(network, content, source: str) -> None:
    """Load a file's content: a state dict of the bare backbone, or of a whole network of this program.

    Raises UserError where it is neither, or a state dict of another backbone.
    """
    state = _adaptation.merged(_without_wrappers(_state_dict_in(content, source)))
    own, whole = network.backbone.state_dict(), None
    if any(key.startswith("backbone.") for key in state) and not any(key.startswith("backbone.") for key in own):
        whole, state = state, _under(state, "backbone.")
    try:
        state = network.published_state(_with_keys(state, network.published_key))
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"{source} does not fit {network.name} ({_first_line(error)}): give weights of this backbone, or --not_pretrained"
        ) from None
    classifiers = tuple(f"{name}." for name in (network.head, *CLASSIFIERS))
    kept = {key: value for key, value in state.items() if key in own or not key.startswith(classifiers)}
    kept = _with_metadata(kept, getattr(state, "_metadata", {"": {"version": getattr(network.backbone, "_version", 1)}}))
    try:
        missing, unexpected = network.backbone.load_state_dict(kept, strict=False)
    except (RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if "size mismatch" in line] or [_first_line(error)]
        raise UserError(f"{source} does not fit {network.name}: {_few(lines, '; ', 2)}") from None
    prompts = f".{_adaptation.PROMPTS}"
    if any(key.endswith(prompts) for key in unexpected) or (any(key.endswith(prompts) for key in kept) and any(key.endswith(prompts) for key in missing)):
        raise UserError(f"{source} holds prompts: give the --prompts, --prompt_depth and --prompt_step that they were trained with")
    missing = [key for key in missing if not key.endswith(LEARNED)]
    faults = [f"{kind} {_few(keys)}" for kind, keys in (("missing", missing), ("unexpected", unexpected)) if keys]
    if faults:
        raise UserError(f"{source} does not fit {network.name}: {'; '.join(faults)}: give weights of this backbone, or --not_pretrained")
    if whole is not None:
        _load_embedding_layer(network, whole, source)


def _load_embedding_layer(network, state: dict, source: str) -> None:
    """Load the layers behind the backbone, if all have the shapes of this network's; else print that they start random."""
    for part, layers in network.behind.items():
        given = _under(state, f"{part}.")
        if {key: value.shape for key, value in given.items()} != {key: value.shape for key, value in layers.state_dict().items()}:
            say(f"{source}: only the backbone fits; what follows it has other shapes (--embed_dim, --embed_hidden) and starts random")
            return
    for part, layers in network.behind.items():
        layers.load_state_dict(_under(state, f"{part}."))


def _state_dict_in(content, source: str) -> dict:
    """The state dict itself, or the one inside a checkpoint."""
    for key in CONTAINERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise UserError(f"{source} holds no state dict (names to tensors): give a file that torch.save(network.state_dict(), …) wrote")
    return content


def _without_wrappers(state: dict) -> dict:
    wrapper = next((prefix for prefix in WRAPPERS if all(key.startswith(prefix) for key in state)), None)
    return state if wrapper is None else _without_wrappers(_under(state, wrapper))


def _under(state: dict, prefix: str) -> dict:
    """The entries below `prefix`, without it, and the modules' versions, by which torch converts old formats."""
    entries = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
    if not hasattr(state, "_metadata"):
        return entries
    return _with_metadata(entries, {path[len(prefix) :]: data for path, data in state._metadata.items() if f"{path}.".startswith(prefix)})


def _with_keys(state: dict, rename) -> dict:
    entries = {rename(key): value for key, value in state.items()}
    return _with_metadata(entries, state._metadata) if hasattr(state, "_metadata") else entries


def _with_metadata(entries: dict, metadata: dict) -> dict:
    entries = _StateDict(entries)
    entries._metadata = metadata
    return entries


class _StateDict(dict):
    """A dict that can carry `_metadata`, as torch's own do."""


def _few(items, separator: str = ", ", count: int = 3) -> str:
    items = list(items)
    return separator.join(items[:count]) + (f"{separator}… ({len(items)} in all)" if len(items) > count else "")
