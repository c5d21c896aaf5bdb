"""Checkpoints of FastReID, whose networks have more than a backbone, in the names of this program.

FastReID saves `{"model": …}` with the backbone, a head and the pixels' mean and deviation. Its head's BatchNorm is the
neck here, a 1 x 1 convolution before it (EMBEDDING_DIM) the embedding layer, the power of its pooling that of
`--pool gem_learned`. torchreid's files need nothing: they are a backbone and a classifier. Read in
github.com/JDAI-CV/fast-reid, commit c9bc3ce.
"""

import re

import torch

from architectures import _checkpoints, _pool
from utilities.console import say
from utilities.errors import UserError

BACKBONE = "backbone."
HEAD = re.compile(r"heads\.(bottleneck\.|pool_layer\.|weight$)|pixel_(mean|std)$")
NON_LOCAL = re.compile(r"backbone\.NL_\d")
CONVOLUTION = "heads.bottleneck.0.weight"  # of four dimensions with EMBEDDING_DIM, else the neck's scale
STEM = "backbone.conv1.weight"  # of ResNets; ResNeSt has three convolutions, and pools as torchvision
POWER = "heads.pool_layer.p"


def renamed(network, flat: dict, source: str) -> dict:
    """A file's tensors, those of FastReID in the names of a whole network of this program; others as they are.

    Raises UserError for a FastReID file of a network with other layers, or that this network would compute otherwise.

    Args:
        network: which is filled. flat: path -> tensor. source: the file, for messages.
    """
    prefix = _prefix(flat)
    if prefix is None:
        return flat
    state = {key.removeprefix(prefix): value for key, value in flat.items() if key.startswith(prefix)}
    _refuse_other_networks(network, state, source)
    entries = {key: value for key, value in flat.items() if not key.startswith(prefix)}
    for key, value in _in_our_names(state).items():
        entries[f"{prefix}{key}"] = value
    metadata = getattr(flat, "_metadata", None)
    return entries if metadata is None else _checkpoints.with_metadata(entries, metadata)


def _prefix(flat: dict) -> str | None:
    """The prefix of a FastReID network; None if there is none."""
    for key in flat:
        prefix, backbone, _ = key.partition(BACKBONE)
        if backbone and not prefix.replace("model.", "").replace("module.", ""):
            names = [name.removeprefix(prefix) for name in flat if name.startswith(prefix)]
            return prefix if any(map(HEAD.match, names)) else None
    return None


def _refuse_other_networks(network, state: dict, source: str) -> None:
    if any(map(NON_LOCAL.match, state)):
        raise UserError(
            f"{source} is of a FastReID network with non-local blocks (NL_1 …), which none here has: give one "
            "trained with WITH_NL False"
        )
    if STEM in state and network.stem_pool != "ceil":
        raise UserError(
            f"{source} is FastReID's, whose ResNets pool behind the stem without padding, other than --arch "
            f"{network.name}: add --stem_pool ceil"
        )
    if POWER in state and not any(key.endswith(f".{_pool.POWER}") for key in network.backbone.state_dict()):
        raise UserError(
            f"{source} pools by the generalised mean of a learned power, {float(state[POWER]):.4g}: add --pool "
            "gem_learned"
        )
    means = state.get("pixel_mean")
    if means is not None and not torch.allclose(means.flatten().float() / 255, torch.tensor(network.mean), atol=1e-3):
        say(f"{source}: its pixel_mean is not that of --arch {network.name}, by which images are normalised here")


def _in_our_names(state: dict) -> dict:
    """The state of a whole network of this program; the classifier and the pixels' statistics are left out."""
    neck = "heads.bottleneck.0."
    entries = {key: value for key, value in state.items() if key.startswith(BACKBONE)}
    if CONVOLUTION in state and state[CONVOLUTION].ndim == 4:
        weight = state[CONVOLUTION].flatten(1)
        entries |= {"last_linear.weight": weight, "last_linear.bias": weight.new_zeros(len(weight))}
        neck = "heads.bottleneck.1."
    for key, value in state.items():
        if key.startswith(neck):
            entries[f"neck.{key.removeprefix(neck)}"] = value
        elif key == POWER:
            entries[f"backbone.avgpool.{_pool.POWER}"] = value
    return entries
