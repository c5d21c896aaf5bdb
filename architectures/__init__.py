"""Networks: one file a family, the file name is the head of `--arch`, and any torchvision or pretrainedmodels constructor.

The grammar of a name is `<backbone>[_<trait>]…`, traits in any order. It is read once, here; everybody else asks the network
(`network.normalizes`, `network.frozen`, `network.input_size` …).

A module's class is `Network(opt, name)`, a `torch.nn.Module`: `forward(images) -> (embeddings, features)`.
"""

import difflib
from typing import NamedTuple

import torch

from architectures import _pretrainedmodels, _torchvision
from utilities.errors import UnknownName, UserError
from utilities.registry import Registry, unknown

REGISTRY = Registry("architectures", "architecture")
TRAITS = ("frozen", "normalize")  # BatchNorm keeps its running statistics; embeddings of unit length
SOURCES = {"tv": _torchvision, "ptm": _pretrainedmodels}  # in the order in which an unmarked name is looked up


class Name(NamedTuple):
    """A parsed `--arch`: `resnet50_frozen_normalize` has the backbone `resnet50` and the traits `{"frozen", "normalize"}`."""

    full: str
    backbone: str
    traits: frozenset

    @property
    def constructor(self) -> str:
        """The backbone without the `tv:` or `ptm:` that chooses its package."""
        return self.backbone.rpartition(":")[2]


def parse(name: str) -> Name:
    """Read `<backbone>[_frozen][_normalize]…`; the backbone's own name may hold underscores (`vit_b_16_frozen`).

    Raises:
        UnknownName: no such backbone, or something behind it that is no trait.
    """
    backbone, traits = str(name), set()
    while backbone.rpartition("_")[2] in TRAITS:
        backbone, _, trait = backbone.rpartition("_")
        traits.add(trait)
    if _module_of(backbone) is None:
        raise _unknown(str(name), backbone)
    return Name(str(name), backbone, frozenset(traits))


def check(name: str) -> None:
    """Raise UnknownName where `select` would. Imports no heavy package for the families of this folder."""
    parse(name)


def select(name: str, opt=None, **flags) -> torch.nn.Module:
    """The network `name`, on the CPU.

    Args:
        opt: the shared namespace; what it lacks takes its declared default.
        flags: single flags that override `opt`, e.g. `embed_dim=512`, `not_pretrained=True`.

    Raises:
        UnknownName: no such backbone or trait. UserError: weights that cannot be had or do not fit, or an unknown flag.
    """
    parsed = parse(name)
    opt = REGISTRY.options(opt, **flags)
    network = _module_of(parsed.backbone).Network(opt, parsed)
    if opt.freeze_backbone and not getattr(network, "backbone_rests", False):
        raise UserError(f"--freeze_backbone: {name} does not say that its backbone rests (attribute backbone_rests). Leave it out")
    return network


def _module_of(backbone: str):
    """The module whose `Network` builds `backbone`, or None: a family of this folder, else the first package that has it."""
    if backbone in REGISTRY.names():
        return REGISTRY.module(backbone)
    source, marked, constructor = backbone.partition(":")
    if marked:
        return SOURCES[source] if source in SOURCES and constructor in SOURCES[source].names() else None
    return next((module for module in SOURCES.values() if backbone in module.names()), None)


def _unknown(name: str, backbone: str) -> UnknownName:
    """The error for a name that cannot be read: its trait if it starts with a known backbone, else the backbone."""
    words = backbone.split("_")
    for count in range(len(words) - 1, 0, -1):
        if _module_of("_".join(words[:count])) is not None:
            wrong = next(word for word in words[count:] if word not in TRAITS)
            return unknown(f"trait of architecture {name!r}:", wrong, TRAITS)
    families = REGISTRY.names()
    known = dict.fromkeys([*families, *(known for module in SOURCES.values() for known in module.names())])
    source, marked, constructor = backbone.rpartition(":")
    nearest = difflib.get_close_matches(constructor.lower(), known, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    where = f" in the package {source!r}" if marked and source in SOURCES else ""
    return UnknownName(
        f"unknown architecture {backbone!r}{where}.{hint} Available: {', '.join(families)}, and any torchvision or pretrainedmodels "
        f"constructor of a classification network by its name (tv:<name> and ptm:<name> choose the package)."
    )
