"""Networks: one file per family, and the networks of torchvision, pretrainedmodels and timm.

The value of `--arch` begins with the name of a file, a constructor of torchvision or pretrainedmodels, or
`timm:<name>`. The grammar of a name is `<backbone>[_<trait>]…`, traits in any order. It is parsed only here; other code
reads the network's attributes (`network.normalizes`, `network.frozen`, `network.input_size` …).

A module's class is `Network(opt, name)`, a `torch.nn.Module`: `forward(images) -> (embeddings, features)`.
`embed_dim` is the width of its embeddings. A network whose `embeddings` are a dict of different widths has
`embed_dims` (name -> dimensions).
"""

import argparse
import difflib
from typing import NamedTuple

import torch

from architectures import _adaptation, _code, _features, _neck, _osnet, _pretrainedmodels, _timm, _torchvision
from utilities.console import say
from utilities.errors import UnknownName, UserError
from utilities.registry import Registry, did_you_mean, unknown

REGISTRY = Registry("architectures", "architecture")
# fixed running statistics of BatchNorm; LayerNorm on the pooled features; embeddings of unit length
TRAITS = ("frozen", "layernorm", "normalize")
FAMILIES = (_osnet,)  # files with several names each
SOURCES = {"tv": _torchvision, "ptm": _pretrainedmodels}  # in the order in which a name without a prefix is looked up
MARKED = {**SOURCES, "timm": _timm}  # timm takes seconds to import: only for names with its prefix
# flags of data and evaluation that networks read, with what namespaces of other programs are to mean that lack them
OF_IMAGES = {"crop_size": None, "eval_long_side": None, "eval_scales": [1]}
# lines of --list beside the files of this folder that have one name
LISTED = (
    (
        "osnet_<variant>",
        f"OSNet for re-identification, with the names of torchreid's weights: {', '.join(_osnet.names())}",
    ),
    (
        "<name>",
        (
            "any classification network of torchvision, else of pretrainedmodels, by its constructor's name; "
            "tv:<name> and ptm:<name> choose the package"
        ),
    ),
    (
        "timm:<name>",
        (
            'any network of timm, tag included; find names with python -c "import timm; '
            "print(*timm.list_models('vit*', pretrained=True))\""
        ),
    ),
    (
        "features",
        "no backbone, for --dataset arrays: features:<F>, or features:<F>:<name> where <name> has computed them",
    ),
    (
        "timm:hf-hub:<owner>/<name>[@<revision>]",
        "a network of timm on the Hugging Face Hub, also exports of this program; timm:local-dir:<path> in a folder",
    ),
)


class Name(NamedTuple):
    """A parsed `--arch`: `resnet50_frozen` has the backbone `resnet50` and the traits `{"frozen"}`."""

    full: str
    backbone: str
    traits: frozenset

    @property
    def constructor(self) -> str:
        """The backbone without the `tv:`, `ptm:` or `timm:` that chooses its package."""
        return _after_package(self.backbone)


def parse(name: str) -> Name:
    """Read `<backbone>[_frozen][_layernorm][_normalize]…`.

    The backbone's own name may hold underscores (`vit_b_16_frozen`).

    Raises:
        UnknownName: no such backbone, or it is followed by something that is not a trait.
    """
    backbone, traits = _split_name(str(name))
    if _module_of(backbone) is None:
        raise _unknown(str(name), backbone)
    return Name(str(name), backbone, frozenset(traits))


def _split_name(name: str) -> tuple[str, set[str]]:
    """A name's backbone and its traits; does not check that the backbone exists."""
    backbone = name
    traits = set()
    while backbone.rpartition("_")[2] in TRAITS:
        backbone, _, trait = backbone.rpartition("_")
        traits.add(trait)
    return backbone, traits


def without_traits(name: str) -> str:
    """A name's backbone with its package's prefix, without its traits; does not check that it exists."""
    return _split_name(name)[0]


def published_weights(name: str) -> str | None:
    """The name of the weights that `select` loads unless a flag says otherwise.

    None: there are none, the backbone is unknown, or its package is not installed.
    """
    backbone = without_traits(name)
    try:
        module = _module_of(backbone)
        for package in MARKED.values():
            if module is not None and issubclass(module.Network, package.Network):
                return package.weights_of(_after_package(backbone))
        return None
    except (ImportError, UserError):
        return None


def code_of(name: str) -> dict[str, str]:
    """What says which code builds a network and computes its features, see `_code.code_of`. Raises UnknownName."""
    return _code.code_of(_module_of(parse(name).backbone))


def check(name: str) -> None:
    """Raise UnknownName if `select` would. Imports no heavy package for the families of this folder."""
    parse(name)


def select(name: str, opt=None, *, crop_size=None, **flags) -> torch.nn.Module:
    """The network `name`, on the CPU.

    Args:
        opt: the shared namespace; what it lacks takes its declared default.
        crop_size: side of the images, or (height, width), overrides `opt.crop_size`; position embeddings (of timm's
            networks) are made for it.
        flags: single flags that override `opt`, e.g. `embed_dim=512`, `not_pretrained=True`, `eval_long_side=1024`.

    Raises:
        UnknownName: no such backbone or trait. UserError: weights that cannot be loaded or do not fit,
        or an unknown flag.
    """
    parsed = parse(name)
    of_images = {flag: flags.pop(flag) for flag in OF_IMAGES if flag in flags}
    opt = REGISTRY.options(opt, **flags)
    if crop_size is not None:
        of_images["crop_size"] = crop_size
    opt = argparse.Namespace(**{**OF_IMAGES, **vars(opt), **of_images})
    if takes_features(name):
        width, source = _features.parts(parsed.backbone)
        if source:
            _draw_as(source, width, opt)
    network = _module_of(parsed.backbone).Network(opt, parsed)
    if opt.freeze_backbone and not getattr(network, "backbone_rests", False):
        raise UserError(
            f"--freeze_backbone: {name} does not declare that its backbone is frozen (attribute backbone_rests). Leave "
            "it out"
        )
    partial_flags = _adaptation.tuned(opt)
    if opt.freeze_blocks is not None:
        partial_flags.append(f"--freeze_blocks {opt.freeze_blocks}")
    if partial_flags and not hasattr(network, "resting"):
        raise UserError(
            f"{partial_flags[0]}: {name} does not declare which parts of its backbone are frozen (attribute resting). "
            "Leave it out"
        )
    defaults = {"pool": None, "last_stride": 2, "stem_pool": "padded", "neck": "none", "patch_stride": None}
    for flag, default in defaults.items():
        if getattr(opt, flag) != default and not getattr(network, "pools", False):
            raise UserError(
                f"--{flag} {getattr(opt, flag)}: {name} builds its own network and does not use this flag: leave it out"
            )
    if opt.neck_feature == "before" and opt.neck == "none":
        necks = " or ".join(name for name in _neck.NECKS if name != "none")
        raise UserError(f"--neck_feature before: there is no neck, add --neck {necks}, or leave it out")
    return network


def behind(width: int, opt) -> torch.nn.Module:
    """The network of `opt.arch` without its backbone: its input is pooled features `(B, width)`, not images."""
    opt = argparse.Namespace(**{**vars(REGISTRY.options(opt)), **OF_IMAGES})
    return _features.Network(opt, parse(opt.arch), width)


# its name in programs that were written for earlier versions
build_head = behind


def behind_name(name: str, width: int) -> str:
    """The `--arch` of the network that takes rows of `width` features where `name` is requested.

    It has the traits of `name`, but for `frozen`, which is of a backbone. A name with another width stays.
    """
    backbone, traits = _split_name(name)
    if _features.is_name(backbone):
        given_width, source = _features.parts(backbone)
        width = given_width or width
    else:
        source = backbone
    words = [_features.NAME, str(width), source]
    return "_".join([":".join(word for word in words if word), *sorted(traits - {"frozen"})])


def takes_features(name: str) -> bool:
    """Whether a network has no backbone: see `_features.py`."""
    return _features.is_name(without_traits(name))


def _draw_as(source: str, width: int, opt) -> None:
    """Draw the random first weights of a backbone, if it gives `width` features; else say that it does not."""
    states = torch.get_rng_state()
    bare = {**_features.NO_BACKBONE, "embed_dim": 0, "embed_hidden": [], "neck": "none", "head_init": "default"}
    network = select(source, argparse.Namespace(**{**vars(opt), **bare}))
    if network.feature_dim != width:
        torch.set_rng_state(states)
        say(
            f"--arch {source} gives {network.feature_dim} features, and the rows have {width}: it has not computed "
            "them, and of its name only the traits act"
        )


def _module_of(backbone: str):
    """The module whose `Network` builds `backbone`: a family of this folder, else the first package that has it.

    None if there is none.
    """
    if _features.is_name(backbone):
        return _features
    if backbone in REGISTRY.names():
        return REGISTRY.module(backbone)
    for module in FAMILIES:
        if backbone in module.names():
            return module
    source, marked, constructor = backbone.partition(":")
    if source == "timm" and _timm.is_place(constructor):
        return _timm
    if marked:
        return MARKED[source] if source in MARKED and constructor in MARKED[source].names() else None
    return next((module for module in SOURCES.values() if backbone in module.names()), None)


def _after_package(backbone: str) -> str:
    """What follows the prefix of a package: a name of timm's hub holds further colons."""
    package, colon, constructor = backbone.partition(":")
    return constructor if colon else package


def _unknown(name: str, backbone: str) -> UnknownName:
    """The error for a name that cannot be read: its trait if it starts with a known backbone, else the backbone."""
    source, marked, constructor = backbone.partition(":")
    words = backbone.split("_")
    for count in range(len(words) - 1, 0, -1):
        if _module_of("_".join(words[:count])) is not None:
            wrong = next(word for word in words[count:] if word not in TRAITS)
            if source == "timm" and not difflib.get_close_matches(wrong, TRAITS, n=1):
                # more likely part of a tag
                break
            return unknown(f"trait of architecture {name!r}:", wrong, TRAITS)
    if marked and source == "timm":
        return _timm.unknown(backbone, constructor)
    families = REGISTRY.names()
    known_names = list(families)
    for module in (*FAMILIES, *SOURCES.values()):
        known_names += module.names()
    constructor = _after_package(backbone)
    hint = did_you_mean(constructor.lower(), dict.fromkeys(known_names))
    package = f" in the package {source!r}" if marked and source in SOURCES else ""
    return UnknownName(
        f"unknown architecture {backbone!r}{package}.{hint} Available: {', '.join(families)}, and any torchvision or "
        "pretrainedmodels constructor of a classification network by its name (tv:<name> and ptm:<name> choose the "
        "package), and timm:<name>."
    )
