"""The options of a run from defaults, --config files, a saved run and the command line, later ones winning. A mistake
raises UserError.
"""

import argparse
from pathlib import Path

import batch_mining
import criteria
import datasampler
import datasets
import metrics
import trainers
from options import checks, files
from options.options import Options
from runs import changes
from runs.folder import PARAMETERS, RunFolder, fold_of, has_its_split_file, run_folder
from utilities import configs, roles
from utilities.errors import UserError
from utilities.registry import did_you_mean

FOLLOWS = {
    "split_sets": "split_partitions",
    "fc_lr": "lr",
    "fc_decay": "decay",
    "eval_bs": "bs",
    "eval_kernels": "kernels",
}  # flag -> the one whose value it takes where it is unset
DEFAULT_METRICS = [
    "e_recall@1",
    "e_recall@2",
    "e_recall@4",
    "nmi",
    "f1",
    "mAP_1000",
    "mAP_lim",
    "mAP_c",
    "dists@intra",
    "dists@inter",
    "dists@intra_over_inter",
    "rho_spectrum@0",
    "rho_spectrum@-1",
    "rho_spectrum@1",
    "rho_spectrum@2",
    "rho_spectrum@10",
]


def compose(parser, argv: list[str] | None) -> Options:
    """The options of a run; for a reproduction those of its first stage, with those of the other stages in `later`."""
    layers = Layers(parser, argv)
    opt = argparse.Namespace(**{**layers.defaults, **layers.explicit})
    for name in opt.config:
        layers.add_file(configs.find(name))
    return _continued(layers) if opt.reproduce_results is None else _reproduction(layers, Path(opt.reproduce_results))


class Layers:
    """The sources of the options, each as flag -> value: `defaults`, the `files` of --config, and `explicit`, the
    command line itself.
    """

    def __init__(self, parser, argv: list[str] | None):
        self.parser = parser
        self.roles = roles.declared(parser)
        self.defaults = vars(parser.parse_args([]))
        silent = argparse.Namespace(
            **{action.dest: argparse.SUPPRESS for action in parser._actions if action.dest != "help"}
        )
        self.explicit = {
            name: value
            for name, value in vars(parser.parse_args(argv, silent)).items()
            if value is not argparse.SUPPRESS
        }
        if self.explicit.get("resume_or_start"):
            self.explicit.setdefault("resume", "latest")
        self.files = {}
        self.file_of = {}

    def add_file(self, path: Path) -> None:
        """Add the flags of a --config file; they win over those of earlier files."""
        found = files.read(self.parser, path)
        is_saved = {"savename", "fc_lr", "lr", "eval_kernels", "kernels"} <= set(
            found
        )  # a run's parameters.yaml names every flag
        if is_saved:
            found = self.underived({**files.before_they_existed(self.parser, found), **found})
        self.files |= found
        self.file_of |= dict.fromkeys((name for name in found if self.files[name] is not None), f"--config {path}")

    def resolved(self, saved: dict | None = None, explicit: dict | None = None) -> Options:
        """The options of all layers, checked. `saved`: a run's flags, which win over the files; `explicit`: replaces
        the command line's.
        """
        explicit = self.explicit if explicit is None else explicit
        below = {**self.files, **(saved or {})}
        if _is_derived(below, explicit):
            del below["savename"]  # another seed or group makes another name, and a new run another number
        opt = Options({**self.defaults, **below, **_with_weights(explicit, below, self.roles)}, self.roles)
        if opt.list is None and opt.find is None:
            if "batch_mining" not in below and "batch_mining" not in explicit:
                opt.batch_mining = criteria.only_miner(opt) or opt.batch_mining
            opt.repeats = saved is not None
            if not opt.evaluate_only:
                _resume(opt, explicit, self)
            _refuse_code(opt, self.explicit)
            if (opt.evaluate_all or datasets.is_test_only(opt)) and "splits_to_eval" not in explicit:
                opt.splits_to_eval = ["test"]
            _derive(opt)
            checks.check(opt)
            opt.set_by = self._set_by(opt, explicit)
            opt.typed = frozenset(explicit)
        return opt

    def _set_by(self, opt: Options, explicit: dict) -> dict[str, str]:
        otherwise = "derived" if opt.resume is None else f"derived, or the run {run_folder(opt)}"
        places = {**self.file_of, **dict.fromkeys(opt.overruled, otherwise), **dict.fromkeys(explicit, "command line")}
        return {
            name: places.get(name, otherwise) for name, value in opt.saved().items() if value != self.defaults[name]
        }

    def underived(self, flags: dict) -> dict:
        """A run's flags, but unset where they equal what they are derived from: they then follow its new value."""
        derived = _defaults(argparse.Namespace(**{**self.defaults, **flags}))
        return {name: None if name in derived and value == derived[name] else value for name, value in flags.items()}

    def saved(self, folder: Path, flags: dict) -> dict:
        """Flags of the run in `folder` as options, each passed through its flag's type. Raises UserError for a damaged
        value.
        """
        values = files.passed(self.parser, folder / PARAMETERS, flags)
        return {**files.before_they_existed(self.parser, values), **values}


def _is_derived(flags: dict, explicit: dict) -> bool:
    """Whether the saved name of a run is made of its group and seed. That of a numbered folder is kept to resume it."""
    plain = f"{flags.get('group')}_s{flags.get('seed')}"
    name = flags.get("savename") or ""
    resumes = explicit.get("resume") is not None and not {"group", "seed"} & explicit.keys()
    return name == plain or (
        not resumes and name.startswith(f"{plain}_") and name.removeprefix(f"{plain}_").isdecimal()
    )


def _reproduction(layers: Layers, source: Path) -> Options:
    """The options of a saved run's first stage, and in `later` those of each stage at which a flag was changed."""
    for name in ("resume_from", "evaluate", "evaluate_only", "evaluate_ensemble", "aggregate_only", "list"):
        if layers.explicit.get(name):
            raise UserError(f"--reproduce_results makes a new run: leave out --{name}")
    if layers.files:
        raise UserError(
            "--reproduce_results takes all flags of the run, over which a file has no say: leave out --config, "
            "and name on the command line what is to differ"
        )
    if fold_of(source) is not None:
        source, layers.explicit["folds"] = fold_of(source)
    if not (source / PARAMETERS).exists():
        raise UserError(
            f"--reproduce_results: no run in {source} (parameters.yaml is missing); published runs of "
            "powerful-benchmarker are lines of experiments/MLRC_Runs.sh, for python -m launch"
        )
    resume = layers.explicit.pop("resume", None)
    first = _staged(layers, source, changes.stages(source, layers.roles), layers.explicit)
    folder = run_folder(first)
    if resume is None:
        return first
    if not (folder / PARAMETERS).exists():
        _refuse_missing(folder, first)
        first.resume = resume
        return first
    if folder.resolve() == source.resolve():
        raise UserError(
            f"--resume: {folder} is what is to be reproduced. Name its reproduction by --resume_from or --savename"
        )
    del layers.explicit["reproduce_results"]
    layers.explicit |= {"resume": resume, "resume_from": str(folder)}
    return _continued(layers)


def _continued(layers: Layers) -> Options:
    """The options of a run; for a reproduction with stages still to train those of the first, with those of the others
    in `later`.
    """
    opt = layers.resolved()
    stages = changes.stages_left(opt) if opt.list is None and opt.find is None else []
    if not stages:
        return opt
    folder = run_folder(opt)
    saved = layers.saved(folder, RunFolder(folder).flags)
    free = layers.roles.having(change=False)
    different = [
        name for name in sorted(set(layers.explicit) - free) if name in saved and getattr(opt, name) != saved[name]
    ]
    if different or opt.resume == "best":
        what = ", ".join(f"--{name}" for name in different) or "--resume best"
        raise UserError(
            f"{folder} is a reproduction with changes still to come: continue it without {what}, or let it end first"
        )
    layers.files = {}
    kept = {name: value for name, value in layers.explicit.items() if name in free - {"resume", "resume_from"}}
    first = _staged(layers, folder, stages, kept)
    for stage in (first, *first.later):
        stage.resume = opt.resume
        stage.resume_from = str(folder)
        stage.savename = opt.savename
    return first


def _staged(layers: Layers, folder: Path, stages: list, explicit: dict) -> Options:
    """The options of the first of `stages`, as `runs.changes` gives them, with those of the others in `later`."""
    staged = []
    for until, flags in stages:
        opt = layers.resolved(layers.underived(layers.saved(folder, flags)), explicit)
        opt.until = until
        if until is not None and len(until) != datasets.n_folds(opt):
            raise UserError(
                f"the saved run was changed at the epochs {checks.shown(until)} of its folds, and these flags "
                f"make {datasets.n_folds(opt)}: leave the flags of the split as they were"
            )
        staged.append(opt)
    first, *first.later = staged
    return first


def _resume(opt: Options, explicit: dict, layers: Layers) -> None:
    """On resume, take the saved run's flags; those of the command line win, but a difference is an error unless it is
    allowed.
    """
    measures = opt.job != "train"
    if opt.resume is None and (opt.resume_from is not None or measures):
        opt.resume = "latest"
    if opt.resume is None:
        return
    if opt.resume_from is None:
        _derive_savename(opt)
    elif fold_of(Path(opt.resume_from)) is not None:  # a fold's folder: its cross-validation, this fold alone
        folder, opt.folds = fold_of(Path(opt.resume_from))
        opt.resume_from = str(folder)
    folder = run_folder(opt)
    if opt.job == "evaluate_ensemble":
        for name, why in (
            ("folds", "joins all folds"),
            ("splits_to_eval", "measures test alone: the folds validate on different data"),
        ):
            if name in explicit and explicit[name] != ["test"]:
                raise UserError(f"--evaluate_ensemble {why}: leave out --{name}")
    if not (folder / PARAMETERS).exists():
        if opt.resume_from is not None or measures:
            asked = f"--resume_from {folder}" if opt.resume_from is not None else f"--{opt.job} {folder}"
            raise UserError(f"{asked}: no run there (parameters.yaml is missing)")
        _refuse_missing(folder, opt)
        return
    saved = layers.saved(folder, RunFolder(folder).flags)
    opt.repeats = True
    saved = {
        **{name: layers.defaults[name] for name in opt.roles.having(fixed="always")},
        **saved,
    }  # a run may be older than a flag
    explicit = _with_weights(explicit, saved, opt.roles)
    opt.loss_weights = explicit.get("loss_weights", opt.loss_weights)
    if opt.job == "evaluate":
        opt.other_data = datasets.changed_flags(saved, opt.but(**{**saved, **explicit}))
    _refuse_changes(folder, opt, saved, explicit)
    asked = {
        name: layers.files[name]
        for name in layers.file_of
        if name in saved and name not in explicit and name not in ("save_path", "savename")
    }
    derived = opt.but(**{**saved, **asked})
    _derive(derived)
    opt.overruled = {name: layers.file_of[name] for name in asked if getattr(derived, name) != saved[name]}
    is_found_here = {"save_path", "savename"} if opt.resume_from is None else set()  # the folder may have moved since
    for name, value in layers.underived(saved).items():
        if (
            name not in explicit
            and name not in is_found_here
            and not (measures and name in ("dump_embeddings", "dump_query_results"))
        ):
            setattr(opt, name, value)
    if (
        "dataset" in opt.other_data
        and "evaluation_metrics" not in explicit
        and (published := datasets.evaluation_metrics(opt))
    ):
        opt.evaluation_metrics = list(published)  # those of the run may not be defined there
    if opt.other_data:  # the run's flags for cropping and caching do not apply to images that are shown whole
        for name in set(datasets.unfit(opt)) - set(explicit):
            setattr(opt, name, layers.defaults[name])
    if not opt.other_data and not has_its_split_file(folder, opt.split_file):
        raise UserError(
            f"--split_file {opt.split_file} is gone, or no longer what {folder} began with. The run has a copy: "
            f"--split_file {folder / 'split_file.json'}"
        )


def _refuse_code(opt: Options, typed: dict) -> None:
    """Raise UserError for a file of code that only a file or a saved run names; `typed`: the command line's flags."""
    for name in sorted(opt.roles.having(code=True)):
        file = getattr(opt, name)
        if file is not None and typed.get(name) != file:
            raise UserError(
                f"--{name} {file} is code, and a saved run or a --config file asks for it: if you trust it, name it on "
                "the "
                f"command line, --{name} {file}; --{name} none measures without it"
            )


def _refuse_missing(folder: Path, opt: Options) -> None:
    """Raise UserError where --resume names a run that does not exist.

    An empty folder is a run that was killed before it wrote anything.
    """
    if folder.is_dir() or opt.resume_or_start:
        return
    runs = [path.parent.name for path in folder.parent.glob(f"*/{PARAMETERS}")]
    raise UserError(
        f"--resume: there is no run {folder}.{did_you_mean(folder.name, runs)} --resume_or_start begins a new run "
        "where "
        "there is none"
    )


def _with_weights(explicit: dict, below: dict, declared) -> dict:
    """The command line, whose flags of single weights also win over `--loss_weights` of the layers `below`."""
    single = {
        role.weighs: explicit[name] for name, role in declared.items() if role.weighs and explicit.get(name) is not None
    }
    if not single or "loss_weights" in explicit:
        return explicit
    kept = [word for word in below.get("loss_weights", []) if word.partition("=")[0] not in single]
    return {**explicit, "loss_weights": kept + [f"{name}={value:g}" for name, value in single.items() if value != 1]}


def _refuse_changes(folder: Path, opt: Options, saved: dict, explicit: dict) -> None:
    """Raise UserError where the command line differs from the saved flags, unless the change is allowed, harmless, or
    only adds epochs.
    """
    measures = opt.job != "train"
    free = {name for name, role in opt.roles.items() if not role.change or (measures and role.measured)}
    if opt.other_data:  # other data have a split of their own; the folds are the run's
        free |= {"dataset", *datasets.REGISTRY.flags()} - {"split_scheme", "split_sets", "split_partitions"}
    given = {name: value for name, value in explicit.items() if name in saved and name not in free}
    derived = opt.but(**{**saved, **given})  # so that `--savename group_plus_seed` equals its resolved value
    _derive(derived)
    longer = {"n_epochs"} if not measures and given.get("n_epochs", 0) > saved.get("n_epochs", 0) else set()
    differing = {
        name: f"--{name} {checks.shown(getattr(derived, name))} (saved: {checks.shown(saved[name])})"
        for name in sorted(given)
        if opt.roles[name].changes(saved[name], getattr(derived, name)) and name not in longer
    }
    what = opt.job if measures else "resume"
    fixed = [text for name, text in differing.items() if opt.roles[name].forbids(saved[name], getattr(derived, name))]
    if fixed:
        raise UserError(
            f"--{what}: {'; '.join(fixed)}: the images that train, validate and test, and the metric that chooses the "
            "epoch, stay "
            f"those of {folder}. Start a new run"
        )
    if differing and (measures or not opt.resume_allow_changes):
        way_out = "Leave them out" if measures else "Leave them out, or add --resume_allow_changes"
        raise UserError(f"--{what}: flags differ from those of {folder}: {'; '.join(differing.values())}. {way_out}")


def _derive_savename(opt: Options) -> None:
    if opt.savename == "group_plus_seed":
        opt.savename = f"{opt.group}_s{opt.seed}"


def _defaults(opt) -> dict:
    """Flag -> the value that it has where it is unset, of the flags whose default depends on other flags or on the
    trainer.
    """
    registries = {
        "loss": criteria,
        "batch_mining": batch_mining,
        "data_sampler": datasampler,
        "trainer": trainers,
        "dataset": datasets,
    }
    loss = (
        criteria.REGISTRY.module(opt.loss) if opt.loss in criteria.REGISTRY.names() else None
    )  # a record may name one that is gone
    mines = getattr(opt, getattr(loss, "INNER_LOSS", "loss"))  # a miner follows the loss inside another
    read = {"batch_mining": argparse.Namespace(**{**vars(opt), "loss": mines})}
    of_plug_ins = [
        package.REGISTRY.derived(getattr(opt, flag), read.get(flag, opt)) for flag, package in registries.items()
    ]
    found = {name: getattr(opt, source) for name, source in FOLLOWS.items()}
    return {name: value for part in (found, *of_plug_ins, metrics.derived(opt)) for name, value in part.items()}


def completed(defaults: dict, flags: dict) -> dict:
    """Recorded flags whose unset ones have the value that they stand for; `defaults`: flag -> default, of the
    parser.
    """
    derived = _defaults(argparse.Namespace(**{**defaults, **flags}))
    return {name: derived[name] if value is None and name in derived else value for name, value in flags.items()}


def followers(defaults: dict, flags: dict) -> set[str]:
    """Recorded flags whose value is the one that other flags give them where they are unset.

    `defaults`: flag -> default, of the parser.
    """
    values = _defaults(argparse.Namespace(**{**defaults, **flags}))
    return {name for name, value in values.items() if name in flags and flags[name] == value}


def derived_flags(defaults: dict) -> set[str]:
    """The flags whose default is derived; `defaults`: flag -> default, of the parser."""
    return {
        "savename",
        "source_path",
        "augmentation",
        "evaluation_metrics",
        "splits_to_eval",
        *_defaults(argparse.Namespace(**defaults)),
    }


def _derive(opt: Options) -> None:
    """Set the flags that are unset by default from other flags, the data set or the trainer."""
    _derive_savename(opt)
    dataset = datasets.REGISTRY.module(opt.dataset)
    if opt.source_path is None:
        opt.source_path = str(getattr(dataset, "default_source_path", lambda: "./Datasets")())
    if opt.augmentation is None:
        opt.augmentation = getattr(dataset, "DEFAULT_AUGMENTATION", "base")
    if opt.evaluation_metrics is None:
        opt.evaluation_metrics = list(datasets.evaluation_metrics(opt) or DEFAULT_METRICS)
    opt.evaluation_metrics = metrics.at_prefixes(opt.evaluation_metrics, (opt.matryoshka or [])[:-1])
    if opt.fc_lr is not None and opt.fc_lr < 0:
        opt.fc_lr = None
    for name, value in _defaults(opt).items():
        if getattr(opt, name) is None:
            setattr(opt, name, value)
    weighed = {word.partition("=")[0] for word in opt.loss_weights}
    for name, role in opt.roles.items():
        if role.weighs and getattr(opt, name) not in (None, 1) and role.weighs not in weighed:
            opt.loss_weights = [*opt.loss_weights, f"{role.weighs}={getattr(opt, name):g}"]
    if opt.splits_to_eval is None:
        validation = ["val"] * datasets.has_validation(opt)
        opt.splits_to_eval = (validation or ["test"]) if opt.is_cross_validation else ["train", *validation, "test"]
    if opt.no_train_metrics:
        opt.splits_to_eval = [split for split in opt.splits_to_eval if split != "train"]
    if opt.online_backend == "comet":
        opt.online_backend = "comet_ml"
