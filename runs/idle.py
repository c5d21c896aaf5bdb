"""Flags that were set and have no effect: what the start of a run says of them.

A plug-in that is not used has no effect, and neither have its flags. Used are the plug-ins that flags name, those that
their files select by name, and those whose flags their files read: a file of the user's may read any flag.
"""

import functools
import re
import tokenize
from collections.abc import Collection
from pathlib import Path

import torch

import architectures
import batch_mining
import criteria
import datasampler
import datasets
import trainers
from engine.ranks import local_rank

# package of plug-ins -> flag that names one
FLAG_OF = {
    "datasets": "dataset",
    "criteria": "loss",
    "batch_mining": "batch_mining",
    "datasampler": "data_sampler",
    "trainers": "trainer",
    "architectures": "arch",
}
# package of plug-ins -> its files' class
CLASSES = {
    "criteria": "Criterion",
    "batch_mining": "BatchMiner",
    "datasampler": "Sampler",
    "trainers": "Trainer",
}
_PACKAGES = (datasets, criteria, batch_mining, datasampler, trainers, architectures)
REGISTRIES = {module.REGISTRY.package: module.REGISTRY for module in _PACKAGES}
# Folders without plug-ins whose files read flags.
ROOMS = ("engine", "evaluation", "metrics", "options", "pictures", "runs", "utilities")
_SELECTED = re.compile(r"(?:(\w+)\.)?\bselect\(\s*[\"'](\w+)[\"']")


def idle(opt) -> list[str]:
    """What to say of flags that were given and have no effect."""
    flags = asked_for(opt) - opt.without_effect.keys()
    return [
        *opt.without_effect.values(),
        *overruled(opt),
        *of_device(opt, flags),
        *of_class_vectors(opt, opt.typed),
        *of_schedule(opt, flags),
        *trainers.without_classifier(opt, flags),
        *of_plug_ins(opt, flags),
    ]


def asked_for(opt) -> set[str]:
    """The flags that the command line sets, and those that a --config file sets to another value than the default."""
    return opt.typed | {flag for flag, place in opt.set_by.items() if place.startswith("--config")}


def overruled(opt) -> list[str]:
    """What to say of --config files over which a saved run wins."""
    files = {}
    for name, file in opt.overruled.items():
        files.setdefault(file, []).append(name)
    return [
        f"{file}: {', '.join(names)} not as there, but as the run has it: the command line alone changes a run"
        for file, names in files.items()
    ]


def of_device(opt, flags: set[str]) -> list[str]:
    """What to say of --gpu where it chooses no device."""
    if "gpu" not in flags:
        return []
    gpus = " ".join(map(str, opt.gpu))
    if not torch.cuda.is_available():
        return [f"--gpu {gpus} has no effect: this machine has no CUDA device, the run is on the CPU"]
    if local_rank() is not None:
        return [f"--gpu {gpus} has no effect: torchrun gives each process its own GPU"]
    return []


def of_class_vectors(opt, flags: Collection[str]) -> list[str]:
    """What to say of --loss_vectors_start where no loss has class vectors."""
    if "loss_vectors_start" not in flags:
        return []
    plug_ins = used_plug_ins(opt)
    losses = [name for package, name in plug_ins if package == "criteria"]
    if opt.loss_vectors_start == "icml" or any(criteria.has_class_vectors(loss) for loss in losses):
        return []
    # a user's file may read the flag without class vectors that the program knows of
    if any(_reads("loss_vectors_start", _own_text(*plug_in)) for plug_in in plug_ins):
        return []
    return [
        f"--loss_vectors_start {opt.loss_vectors_start} has no effect: --loss {opt.loss} has no class vectors; take a "
        "loss that has some, such as proxyanchor, or leave it out"
    ]


def of_schedule(opt, flags: set[str]) -> list[str]:
    """What to say of the epochs of --tau that change no rate."""
    if "tau" not in flags or not opt.n_epochs:
        return []
    late = [str(epoch) for epoch in opt.tau if epoch >= opt.n_epochs]
    return [f"--tau {' '.join(late)} has no effect: --n_epochs {opt.n_epochs} is the last epoch"] if late else []


def of_plug_ins(opt, requested: set[str]) -> list[str]:
    """What to say of flags among `asked` of plug-ins that are not used, and of a miner that no loss takes."""
    plug_ins = used_plug_ins(opt)
    lines = []
    texts = "\n".join(_source(*plug_in) for plug_in in plug_ins)
    if "batch_mining" in requested and not _takes_miner(opt):
        lines.append(f"--batch_mining {opt.batch_mining} has no effect: --loss {opt.loss} {_without_miner(opt)}")
    # plug-in -> its flags
    unused = {}
    for flag in sorted(requested & owners().keys()):
        # such a flag of an older version becomes a word of --loss_weights
        is_weight = opt.roles[flag].weighs is not None
        if owners()[flag] not in plug_ins and not is_weight and not _is_read(flag, texts):
            unused.setdefault(owners()[flag], []).append(f"--{flag}")
    for (package, name), flags in unused.items():
        have = "has" if len(flags) == 1 else "have"
        chooser = FLAG_OF[package]
        if name is None:
            reason = f" with --{chooser} {getattr(opt, chooser)}"
        else:
            reason = f": of --{chooser} {name}, which this run does not use"
        lines.append(f"{', '.join(flags)} {have} no effect{reason}")
    return lines


def used_plug_ins(opt) -> set[tuple[str, str]]:
    """(package, name) of the plug-ins that the run uses: those that flags name, and those that these select by name."""
    losses = trainers.losses(opt)
    plug_ins = {("trainers", opt.trainer), ("datasampler", opt.data_sampler), ("datasets", opt.dataset)}
    plug_ins |= {("criteria", loss) for loss in losses}
    plug_ins |= {("datasets", word.partition(":")[0]) for word in opt.union or ()}
    plug_ins |= {("architectures", name) for name in architectures.REGISTRY.names() if name in opt.arch}
    if _takes_miner(opt):
        plug_ins.add(("batch_mining", opt.batch_mining))
        for loss in losses:
            allowed = getattr(criteria.REGISTRY.module(loss), "ALLOWED_MINING_OPS", None)
            # A loss inside another takes the first miner that it allows.
            if allowed and opt.batch_mining not in allowed:
                plug_ins.add(("batch_mining", allowed[0]))
    waiting = list(plug_ins)
    while waiting:
        package, name = waiting.pop()
        selections = [(owner or package, selected) for owner, selected in _selections(_source(package, name))]
        for selected in (*selections, *_base_plug_ins(package, name)):
            if selected[0] in REGISTRIES and selected not in plug_ins:
                plug_ins.add(selected)
                waiting.append(selected)
    return plug_ins


def _base_plug_ins(package: str, name: str) -> set[tuple[str, str]]:
    """(package, name) of the plug-ins from whose classes that of a file is derived."""
    class_name = CLASSES.get(package)
    if class_name is None or name not in REGISTRIES[package].names():
        return set()
    kind = getattr(REGISTRIES[package].module(name), class_name, None)
    modules = [base.__module__ for base in getattr(kind, "__mro__", ())]
    return {tuple(module.split(".")) for module in modules if module.startswith(f"{package}.") and "._" not in module}


@functools.cache
def _selections(source: str) -> list[tuple[str, str]]:
    """(package, name) of what a source selects by name; the package is empty for its own."""
    return _SELECTED.findall(source)


@functools.cache
def owners() -> dict[str, tuple[str, str | None]]:
    """Flag -> (package, name) of the plug-in that declares it.

    Name None: a helper of the package declares it, for several plug-ins.
    """
    owner_of = {}
    for package, registry in REGISTRIES.items():
        owner_of |= dict.fromkeys(registry.flags(), (package, None))
        for name in registry.names():
            owner_of |= dict.fromkeys(registry.flags(name), (package, name))
    return owner_of


@functools.cache
def _other_texts() -> str:
    """The texts of all files that belong to no plug-in: other folders, and each package of plug-ins as a whole."""
    root = REGISTRIES["criteria"].folder.parent
    paths = [root / "main.py"]
    # files that declare flags read none
    declarations = root / "options" / "groups"
    for room in ROOMS:
        paths += [path for path in (root / room).rglob("*.py") if path.parent != declarations]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    texts += [_source(package, "__init__") for package in REGISTRIES]
    return "\n".join(texts)


def _is_read(flag: str, texts: str) -> bool:
    """Whether the plug-ins that are used read a flag, by their `texts`; that of a helper may also be read elsewhere."""
    is_of_helper = owners()[flag][1] is None
    return _reads(flag, texts) or (is_of_helper and _reads(flag, _other_texts()))


def _reads(flag: str, text: str) -> bool:
    """Whether a text has `.flag`, as in `opt.flag`, or the flag's name as a string."""
    return re.search(rf"\.{flag}\b(?!\()|[\"']{flag}[\"']", text) is not None


def _names(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def _takes_miner(opt) -> bool:
    losses = [getattr(opt, flag) for flag in ("loss", *trainers.inner_losses(opt))]
    return any(criteria.takes_miner(loss, opt) for loss in losses)


def _without_miner(opt) -> str:
    """Why a loss takes no miner."""
    loss_module = criteria.REGISTRY.module(opt.loss)
    mines_pairs = getattr(loss_module, "MINES_PAIRS", False)
    return "compares all pairs of a batch, and those of a miner with --mine_pairs" if mines_pairs else "has no miner"


@functools.cache
def _source(package: str, name: str) -> str:
    """The text of a plug-in's file and of the helpers of its folder that it and they name; empty for no such file."""
    files = REGISTRIES[package].files
    helpers = {stem for stem in files if stem.startswith("_") and not stem.startswith("__")}
    texts = {}
    waiting = [name]
    while waiting:
        stem = waiting.pop()
        texts[stem] = _without_flags(_read(files[stem])) if stem in files else ""
        unread = helpers - texts.keys() - set(waiting)
        waiting += [helper for helper in sorted(unread) if _names(helper, texts[stem])]
    return "\n".join(texts.values())


def _read(path: Path) -> str:
    """The text of a Python file in the encoding that it declares.

    A file of the user's may have another one than UTF-8.
    """
    with tokenize.open(path) as file:
        return file.read()


def _own_text(package: str, name: str) -> str:
    """The text of a plug-in's file alone; empty for no such file."""
    files = REGISTRIES[package].files
    return _without_flags(_read(files[name])) if name in files else ""


def _without_flags(text: str) -> str:
    """A file's text without its declarations of flags, which read nothing."""
    return re.sub(r"^(def add_arguments\(.*?(?=^\S)|FLAGS = {\n.*?^}$)", "", text, flags=re.MULTILINE | re.DOTALL)
