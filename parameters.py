"""The command line: the only parser of the program. What cannot work is refused by checks.py before anything is loaded.

Where a flag lives:
  here                      what the run as a whole reads: schedule, optimiser, evaluation, records, resume
  utilities/flags.py        what plug-ins of several folders read: --bs, --lr, --embed_dim, --loss, --batch_mining …
  <folder>/_<helper>.py     what several plug-ins of one folder read: image sizes, weights of networks, storages of samplers
  <folder>/<plug-in>.py     a plug-in's own, always --loss_<name>_…, --miner_<name>_…, --data_…, --arch_…, --dataset_…
All end up in one flat namespace, `opt`; docs/flags.md lists them. A default of None is derived in `read`; the help says from what.
"""

import argparse
import difflib
from pathlib import Path

import yaml

import architectures
import batch_mining
import checks
import criteria
import datasampler
import datasets
import metrics
from utilities import configuration
from utilities import flags as shared_flags
from utilities.errors import UserError
from utilities.folds import fold_of
from utilities.registry import unknown

LISTS = ("losses", "miners", "samplers", "architectures", "datasets", "metrics")
DEFAULT_METRICS = [
    "e_recall@1", "e_recall@2", "e_recall@4", "nmi", "f1", "mAP_1000", "mAP_lim", "mAP_c", "dists@intra", "dists@inter",
    "dists@intra_over_inter", "rho_spectrum@0", "rho_spectrum@-1", "rho_spectrum@1", "rho_spectrum@2", "rho_spectrum@10",
]  # fmt: skip


FOLLOWS = {"fc_lr": "lr", "fc_decay": "decay", "eval_bs": "bs", "eval_kernels": "kernels"}  # unset, they are as the other


class _Help(argparse.HelpFormatter):
    """Help with every default, wrapped at 120 columns."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=42, width=120)

    def _get_help_string(self, action):
        if isinstance(action, argparse._StoreTrueAction) or action.default in (None, argparse.SUPPRESS) or "%(default)" in action.help:
            return action.help
        shown = " ".join(map(str, action.default)) if isinstance(action.default, list) else "%(default)s"
        return f"{action.help} (default: {shown or 'none'})"


class _Parser(argparse.ArgumentParser):
    """Errors in one line, with exit status 2; unknown flags with the nearest that exists."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")

    def parse_args(self, args=None, namespace=None):
        namespace, rest = self.parse_known_args(args, namespace)
        if rest:
            known = [option for action in self._actions for option in action.option_strings]
            nearest = difflib.get_close_matches(rest[0].partition("=")[0], known, n=1)
            hint = f" Did you mean {nearest[0]}?" if nearest and rest[0].startswith("-") else " --help lists all flags."
            self.error(f"unrecognized argument {rest[0]}.{hint}")
        return namespace


def basic_training_parameters(parser) -> None:
    """Schedule, optimiser, device."""
    group = parser.add_argument_group("schedule")
    group.add_argument(
        "--n_epochs", type=int, default=150, help="epochs to train; 0 with --check_untrained_accuracy evaluates the untrained network alone"
    )
    group.add_argument(
        "--iterations_per_epoch", type=int, default=None, help="batches an epoch (unset: as many as the sampler says, about images / --bs)"
    )
    group.add_argument(
        "--scheduler",
        default="step",
        choices=["step", "multistep", "cosine", "plateau", "none"],
        help="learning-rate schedule: step and multistep multiply by --gamma at the epochs --tau, cosine falls to 0 over --n_epochs, plateau multiplies by --gamma when the selection metric rests",
    )
    group.add_argument("--gamma", type=float, default=0.3, help="factor of the learning-rate schedule")
    group.add_argument(
        "--tau", type=int, nargs="+", default=[1000], help="one or more epochs after which `step` multiplies the rate by --gamma"
    )
    group.add_argument("--plateau_patience", type=int, default=4, help="evaluations without improvement before `plateau` lowers the rate")
    group.add_argument("--patience", type=int, default=None, help="stop when validation has not improved for so many epochs (unset: never)")
    group = parser.add_argument_group("optimiser")
    group.add_argument(
        "--optim",
        default="adam",
        choices=["adam", "adamw", "sgd", "rmsprop"],
        help="optimiser of the network and of the criterion's own parameters",
    )
    group.add_argument("--fc_lr", type=float, default=-1, help="learning rate of the last layer; -1: --lr")
    group.add_argument("--decay", type=float, default=0.0004, help="weight decay of the network")
    group.add_argument("--fc_decay", type=float, default=None, help="weight decay of the last layer (unset: --decay)")
    group.add_argument("--loss_decay", type=float, default=0.0, help="weight decay of the criterion's own parameters")
    group.add_argument("--momentum", type=float, default=0.9, help="momentum of sgd and rmsprop")
    group.add_argument(
        "--clip_grad_norm", type=float, default=None, help="largest norm of the network's and criterion's gradient (unset: no limit)"
    )
    group = parser.add_argument_group("machine")
    group.add_argument("--gpu", type=int, nargs="+", default=[0], help="which GPU trains; without CUDA the CPU does")
    group.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "bfloat16", "float16"],
        help="precision of the forward pass; mining and loss are always float32",
    )
    group.add_argument("--kernels", type=int, default=6, help="worker processes that load training images, at most the CPUs there are")


def evaluation_parameters(parser) -> None:
    """What is measured, on what, and how the best epoch is chosen."""
    group = parser.add_argument_group("evaluation")
    group.add_argument(
        "--evaluation_metrics", nargs="+", default=DEFAULT_METRICS, metavar="METRIC", help="metrics to compute (--list metrics)"
    )
    group.add_argument(
        "--storage_metrics",
        nargs="+",
        default=["e_recall@1"],
        metavar="METRIC",
        help="metrics whose best epochs keep a checkpoint; the first chooses the best epoch",
    )
    group.add_argument(
        "--evaltypes",
        nargs="+",
        default=["discriminative"],
        help="embeddings to evaluate, where a network gives several; Combined_<a>_<b>-<w>-<w> joins them",
    )
    group.add_argument("--no_train_metrics", action="store_true", help="do not evaluate the training images")
    group.add_argument("--evaluate_on_gpu", action="store_true", help="search neighbours and clusters on the GPU")
    group.add_argument("--eval_bs", type=int, default=None, help="images a batch in evaluation (unset: --bs)")
    group.add_argument("--eval_kernels", type=int, default=None, help="worker processes in evaluation (unset: --kernels)")
    group.add_argument(
        "--save_interval",
        type=int,
        default=1,
        help="evaluate, and keep the best, every so many epochs; the last checkpoint is kept after each",
    )
    group.add_argument(
        "--check_untrained_accuracy",
        action="store_true",
        help="first evaluate the bare backbone (epoch -1) and the untrained network (epoch 0)",
    )
    group.add_argument(
        "--splits_to_eval",
        nargs="+",
        default=None,
        choices=["train", "val", "test"],
        help="splits to evaluate (unset: train unless --no_train_metrics, val where there is one, test; with a --split_scheme of folds val alone)",
    )
    group.add_argument(
        "--eval_reference_set",
        default="compared_to_self",
        choices=["compared_to_self", "compared_to_sets_combined", "compared_to_training_set"],
        help="where a split's images search their neighbours: among themselves, in all evaluated splits, in the training images; a query never finds itself, classes are told apart by name",
    )
    group.add_argument(
        "--tester",
        default="global",
        choices=["global", "same_parent_label"],
        help="same_parent_label measures inside each super-class and takes the mean",
    )
    group.add_argument(
        "--label_hierarchy_level",
        type=int,
        default=0,
        choices=[0, 1],
        help="which labels evaluation goes by: 0 the classes, 1 the super-classes",
    )
    group.add_argument(
        "--eval_pca",
        type=int,
        default=None,
        metavar="N",
        help="evaluate the first N principal components, fitted on the reference (unset: all dimensions as they are)",
    )
    group.add_argument(
        "--eval_no_normalize", action="store_true", help="evaluate the network's embedding before it is brought to unit length"
    )
    group.add_argument("--eval_use_trunk_output", action="store_true", help="evaluate the backbone's features instead of the embedding")
    group.add_argument(
        "--eval_size_of_tsne",
        type=int,
        default=0,
        metavar="N",
        help="draw a t-SNE of N images of each split beside the other pictures; 0: none",
    )
    group.add_argument(
        "--dump_embeddings",
        action="store_true",
        help="write features, labels and paths of the best epoch to embeddings_<split>.npz in the run folder",
    )
    group.add_argument(
        "--evaluate",
        action="store_true",
        help="do not train: measure the best checkpoint of the run of this --savename (or --group and --seed, or --resume_from) on --splits_to_eval",
    )
    group.add_argument(
        "--evaluate_ensemble",
        action="store_true",
        help="do not train: measure the networks of all folds of a finished cross-validation as one, their embeddings side by side, on test",
    )
    group.add_argument(
        "--final_test",
        action="store_true",
        help="at the end evaluate the selected checkpoint on test, after all folds their ensemble too",
    )


def logging_parameters(parser) -> None:
    """Where a run is written, and under which name."""
    group = parser.add_argument_group("records")
    group.add_argument("--save_path", default="./Training_Results", help="parent folder of <dataset>/<savename>/")
    group.add_argument("--savename", default="group_plus_seed", help="name of the run folder; group_plus_seed becomes <group>_s<seed>")
    group.add_argument("--log_online", action="store_true", help="also log to --online_backend; without credentials offline")
    group.add_argument("--online_backend", default="wandb", choices=["wandb", "comet_ml", "comet"], help="service of --log_online")
    group.add_argument("--wandb_key", default=None, help="W&B key, never stored or logged; `wandb login` or WANDB_API_KEY is better")
    group.add_argument("--comet_api_key", default=None, help="Comet key, never stored or logged; COMET_API_KEY is better")
    group.add_argument("--project", default="Sample_Project", help="project of --log_online")
    group.add_argument("--group", default="Sample_Group", help="name of the configuration; runs that differ by seed alone share it")
    group.add_argument(
        "--plot_every", type=int, default=10, help="draw the curves every so many epochs, and at the end; 0: at the end only"
    )
    group.add_argument(
        "--log_every",
        type=int,
        default=0,
        help="also record every N-th batch: loss and its parts, gradient norm, mined tuples, rates, throughput, memory (0: epochs only)",
    )
    group.add_argument("--no_records", action="store_true", help="write metrics.csv, checkpoints and summary.json only")


def run_parameters(parser) -> None:
    """Configuration files, resume, and what ends before training."""
    group = parser.add_argument_group("configuration and resume")
    group.add_argument(
        "--config",
        nargs="+",
        default=[],
        metavar="FILE",
        help="YAML files of `flag: value`, later ones win, the command line wins over all; a bare name is looked up in configs/",
    )
    group.add_argument("--print_config", action="store_true", help="print the resolved flags as such a file and exit")
    group.add_argument(
        "--resume",
        nargs="?",
        const="latest",
        default=None,
        choices=["latest", "best"],
        help="continue the run of this --savename (or --group and --seed) from its last, or its best, checkpoint",
    )
    group.add_argument("--resume_from", default=None, metavar="FOLDER", help="continue the run in this folder")
    group.add_argument("--resume_allow_changes", action="store_true", help="continue although flags differ from the saved ones")
    group.add_argument(
        "--reproduce_results",
        default=None,
        metavar="FOLDER",
        help="a new run with the flags of the one in FOLDER, changes that were allowed on resume made again at the same epochs",
    )
    group.add_argument(
        "--folds", type=int, nargs="+", default=None, metavar="N", help="train only these folds of --split_scheme, from 0 (unset: all)"
    )
    group.add_argument("--aggregate_only", action="store_true", help="do not train: make the meta results of the folds that are finished")
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="build everything, take one batch through it, and stop: exit 0 means that the run would start",
    )
    group.add_argument("--list", choices=LISTS, default=None, help="print the plug-ins of one kind with their captions and exit")


def batch_creation_parameters(parser) -> None:
    """Flags of the batch samplers."""
    datasampler.REGISTRY.add_arguments(parser)


def loss_specific_parameters(parser) -> None:
    """Flags of the criteria."""
    criteria.REGISTRY.add_arguments(parser)


def batchmining_specific_parameters(parser) -> None:
    """Flags of the miners."""
    batch_mining.REGISTRY.add_arguments(parser)


def data_parameters(parser) -> None:
    """Flags of data sets and networks."""
    datasets.REGISTRY.add_arguments(parser)
    architectures.REGISTRY.add_arguments(parser)


def get_parser() -> argparse.ArgumentParser:
    """The parser with every flag of the program and of its plug-ins."""
    parser = _Parser(
        prog="main.py", formatter_class=_Help, allow_abbrev=False, description="Deep metric learning: train, evaluate, record, resume.",
        usage="python main.py [flags]    (--help: every flag; --list losses: the losses; docs/flags.md)",
    )  # fmt: skip
    shared_flags.add_arguments(parser)
    for declare in (
        basic_training_parameters, evaluation_parameters, logging_parameters, run_parameters,
        data_parameters, batch_creation_parameters, loss_specific_parameters, batchmining_specific_parameters,
    ):  # fmt: skip
        declare(parser)
    return parser


def read(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse, compose, derive, check. Without side effects: no folder, no device, no seeding.

    Order, later wins: defaults, --config files, the saved run on resume or reproduction, the command line. A mistake exits with status 2
    and one line. `opt.flags` names all flags; of a reproduction `opt.later_stages` holds the options of each stage but the first.
    """
    parser = get_parser()
    defaults = vars(parser.parse_args([]))
    explicit = _explicit(parser, argv)
    try:
        opt = argparse.Namespace(**{**defaults, **explicit})
        values = _config_values(parser, opt.config)
        if opt.reproduce_results is not None:
            return _reproduction(defaults, values, explicit)
        return _continued(defaults, values, explicit)
    except UserError as error:
        parser.error(str(error))


def _resolved(defaults: dict, values: dict, explicit: dict) -> argparse.Namespace:
    """The options that the three layers give, later ones winning."""
    if values.get("savename") == f"{values.get('group')}_s{values.get('seed')}":
        values = {name: value for name, value in values.items() if name != "savename"}  # with another seed or group there is another
    opt = argparse.Namespace(**{**defaults, **_following(values, explicit), **explicit}, flags=frozenset(defaults))
    if opt.list is None:
        _resume(opt, explicit, defaults)
        _derive(opt)
        checks.check(opt)
    return opt


def _following(values: dict, explicit: dict) -> dict:
    """Saved values without those that had been derived from a flag which the command line now gives: they follow it."""
    gone = {name for name, source in FOLLOWS.items() if source in explicit and values.get(name) == values.get(source)}
    return {name: value for name, value in values.items() if name not in gone}


def _reproduction(defaults: dict, values: dict, explicit: dict) -> argparse.Namespace:
    """The options of a saved run's first stage, and in `later_stages` those of each in which a flag had been changed."""
    for name in ("resume_from", "evaluate", "evaluate_ensemble", "aggregate_only", "list"):
        if explicit.get(name):
            raise UserError(f"--reproduce_results makes a new run: leave out --{name}")
    source, explicit = Path(explicit["reproduce_results"]), dict(explicit)
    if fold_of(source) is not None:
        source, explicit["folds"] = fold_of(source)
    resume = explicit.pop("resume", None)
    first = _staged(defaults, values, explicit, configuration.stages(source))
    folder = configuration.run_folder(first)
    if resume is None or not (folder / "parameters.yaml").exists():
        first.resume = resume
        return first
    if folder.resolve() == source.resolve():
        raise UserError(
            f"--resume: {folder} is what is to be reproduced. Continue its reproduction by --resume_from, or name it by --savename"
        )
    del explicit["reproduce_results"]
    return _continued(defaults, values, {**explicit, "resume": resume, "resume_from": str(folder)})


def _continued(defaults: dict, values: dict, explicit: dict) -> argparse.Namespace:
    """The options of a run; of a reproduction with changes still to come, as those of `_reproduction`."""
    opt = _resolved(defaults, values, explicit)
    stages = configuration.plan(opt) if opt.list is None else []
    if not stages:
        return opt
    folder = configuration.run_folder(opt)
    saved, asked = configuration.read_parameters(folder), set(explicit) - configuration.NEVER_A_CHANGE
    different = [name for name in sorted(asked & set(saved)) if getattr(opt, name) != saved[name]]
    if different or opt.resume == "best":
        what = ", ".join(f"--{name}" for name in different) or "--resume best"
        raise UserError(f"{folder} is a reproduction with changes still to come: continue it without {what}, or let it end first")
    kept = {name: value for name, value in explicit.items() if name in configuration.NEVER_A_CHANGE - {"resume", "resume_from"}}
    first = _staged(defaults, {}, kept, stages)
    for stage in (first, *first.later_stages):
        stage.resume, stage.resume_from, stage.savename = opt.resume, str(folder), opt.savename
    return first


def _staged(defaults: dict, values: dict, explicit: dict, stages: list) -> argparse.Namespace:
    """The options of the first of some `configuration.stages`; `later_stages`: those of the others."""
    staged = []
    for until, flags in stages:
        known = {name: value for name, value in flags.items() if name in defaults}
        staged.append(_resolved(defaults, {**values, **known}, explicit))
        staged[-1].until = until
        n_folds = 1 if staged[-1].split_scheme == "half" else datasets.n_folds(staged[-1])
        if until is not None and len(until) != n_folds:
            raise UserError(
                f"the saved run was changed at the epochs {checks.shown(until)} of its folds, and these flags make {n_folds}: leave the flags of the split as they were"
            )
    first, *first.later_stages = staged
    return first


def _explicit(parser, argv) -> dict:
    """Only what the command line itself says."""
    silent = argparse.Namespace(**{action.dest: argparse.SUPPRESS for action in parser._actions if action.dest != "help"})
    return {name: value for name, value in vars(parser.parse_args(argv, silent)).items() if value is not argparse.SUPPRESS}


def _config_values(parser, files: list[str]) -> dict:
    values = {}
    for name in files:
        path = Path(name)
        if not path.exists():
            preset = Path(__file__).parent / "configs" / f"{name.removesuffix('.yaml')}.yaml"
            if not preset.exists():
                presets = sorted(p.stem for p in preset.parent.glob("*.yaml"))
                raise UserError(f"--config {name}: no such file, and no such preset (configs/ holds {', '.join(presets) or 'none'})")
            path = preset
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"--config {path}: not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(content, dict):
            raise UserError(f"--config {path}: expected lines of `flag: value`")
        for key, value in content.items():
            values[key] = _config_value(parser, path, key, value)
    return values


def _config_value(parser, path, key, value):
    """A file's value passed through its flag's own type."""
    actions = {
        action.dest: action for action in parser._actions if action.dest not in ("help", "config", "list", *configuration.NEVER_SAVED)
    }
    if key not in actions:
        nearest = difflib.get_close_matches(str(key), actions, n=1)
        raise UserError(f"{path}: unknown flag {key!r}." + (f" Did you mean {nearest[0]!r}?" if nearest else ""))
    action = actions[key]
    if isinstance(action, argparse._StoreTrueAction):
        if not isinstance(value, bool):
            raise UserError(f"{path}: {key} is a switch: true or false, not {value!r}")
        return value
    if value is None:
        return action.default
    several = action.nargs in ("+", "*") or isinstance(action.nargs, int)
    if isinstance(value, (list, tuple)) != several and isinstance(value, (list, tuple, dict)):
        raise UserError(f"{path}: {key} takes one value, not {value!r}")
    items = value if isinstance(value, (list, tuple)) else [value]
    try:
        items = [parser._get_value(action, str(item)) for item in items]
        for item in items:
            parser._check_value(action, item)
    except argparse.ArgumentError as error:
        raise UserError(f"{path}: {key}: {error.message}") from error
    return items if several else items[0]


def _resume(opt, explicit: dict, defaults: dict) -> None:
    """On resume the saved run's flags stand below the command line's; a difference is an error unless it is allowed."""
    action = next((name for name in ("evaluate", "evaluate_ensemble", "aggregate_only") if getattr(opt, name)), None)
    if opt.resume is None and (opt.resume_from is not None or action):
        opt.resume = "latest"
    if opt.resume is None:
        return
    if opt.resume_from is None:
        _derive_savename(opt)
    elif fold_of(Path(opt.resume_from)) is not None:  # one fold of a cross-validation: of that, this fold
        folder, opt.folds = fold_of(Path(opt.resume_from))
        opt.resume_from = str(folder)
    folder = configuration.run_folder(opt)
    if not (folder / "parameters.yaml").exists():
        if opt.resume_from is not None or action:
            asked = f"--resume_from {folder}" if opt.resume_from is not None else f"--{action} {folder}"
            raise UserError(f"{asked}: no run there (parameters.yaml is missing)")
        return
    saved = configuration.read_parameters(folder)
    _refuse_changes(folder, opt, saved, explicit, configuration.NEVER_A_CHANGE | (configuration.EVALUATION_FLAGS if action else set()))
    for name, value in _following(saved, explicit).items():
        if name in defaults and name not in explicit:
            setattr(opt, name, value)


def _refuse_changes(folder: Path, opt, saved: dict, explicit: dict, free: set) -> None:
    """Raise UserError where the command line gives what differs from the saved flags, unless that is allowed, `free`, or more epochs."""
    given = {name: value for name, value in explicit.items() if name in saved}
    derived = argparse.Namespace(**{**vars(opt), **saved, **given})  # so that `--savename group_plus_seed` equals its resolved value
    _derive(derived)
    differing = [
        f"--{name} {checks.shown(getattr(derived, name))} (saved: {checks.shown(saved[name])})"
        for name in sorted(given)
        if name not in free and getattr(derived, name) != saved[name] and not (name == "n_epochs" and given[name] > saved[name])
    ]
    if differing and not opt.resume_allow_changes:
        raise UserError(
            f"--resume: flags differ from those of {folder}: {'; '.join(differing)}. Leave them out, or add --resume_allow_changes"
        )


def _derive_savename(opt) -> None:
    if opt.savename == "group_plus_seed":
        opt.savename = f"{opt.group}_s{opt.seed}"


def _derive(opt) -> None:
    """Give every default of None that stands for another flag its value."""
    _derive_savename(opt)
    dataset = datasets.REGISTRY.module(opt.dataset)
    if opt.source_path is None:
        opt.source_path = str(getattr(dataset, "default_source_path", lambda: "./Datasets")())
    if opt.augmentation is None:
        opt.augmentation = getattr(dataset, "DEFAULT_AUGMENTATION", "base")
    for name, source in FOLLOWS.items():
        if getattr(opt, name) is None or (name == "fc_lr" and opt.fc_lr < 0):
            setattr(opt, name, getattr(opt, source))
    if opt.splits_to_eval is None:
        opt.splits_to_eval = ["train"] + ["val"] * datasets.has_validation(opt) + ["test"]
        if opt.split_scheme != "half":
            opt.splits_to_eval = ["val" if datasets.has_validation(opt) else "test"]
    if opt.no_train_metrics:
        opt.splits_to_eval = [split for split in opt.splits_to_eval if split != "train"]
    if opt.online_backend == "comet":
        opt.online_backend = "comet_ml"


def listing(kind: str) -> list[tuple[str, str]]:
    """(name, caption) of the plug-ins of one kind of `LISTS`."""
    if kind == "metrics":
        return metrics.listing()
    if kind not in LISTS:
        raise unknown("list", kind, LISTS)
    registry = {
        "losses": criteria.REGISTRY, "miners": batch_mining.REGISTRY, "samplers": datasampler.REGISTRY,
        "architectures": architectures.REGISTRY, "datasets": datasets.REGISTRY,
    }[kind]  # fmt: skip
    return [(name, registry.caption(name)) for name in registry.names()]


def answer(opt) -> str | None:
    """What --list or --print_config asks for, as text; None where the flags ask for a run."""
    if opt.list is not None:
        rows = listing(opt.list)
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {caption}" for name, caption in rows)
    return yaml.safe_dump(configuration.saved_flags(opt), sort_keys=True).rstrip() if opt.print_config else None
