"""The command line: the only parser of the program. options/composition.py puts files and saved runs beneath it, options/checks.py refuses what cannot work.

Where a flag lives:
  here                      what the run as a whole reads: schedule, optimiser, evaluation, records, resume
  utilities/flags.py        what plug-ins of several folders read: --bs, --lr, --embed_dim, --loss, --batch_mining …
  <folder>/_<helper>.py     what several plug-ins of one folder read: image sizes, weights of networks, storages of samplers
  <folder>/<plug-in>.py     a plug-in's own, always --loss_<name>_…, --miner_<name>_…, --data_…, --arch_…, --dataset_…
All end up in one flat namespace, `opt`; docs/flags.md lists them. A default of None is derived in `read`; the help says from what.
"""

import argparse
import difflib

import yaml

import architectures
import batch_mining
import criteria
import datasampler
import datasets
import metrics
from options import composition
from runs import configuration
from utilities import flags as shared_flags
from utilities.errors import OneLineParser, UserError
from utilities.registry import unknown

LISTS = ("losses", "miners", "samplers", "architectures", "datasets", "metrics")
DEFAULT_METRICS = [
    "e_recall@1", "e_recall@2", "e_recall@4", "nmi", "f1", "mAP_1000", "mAP_lim", "mAP_c", "dists@intra", "dists@inter",
    "dists@intra_over_inter", "rho_spectrum@0", "rho_spectrum@-1", "rho_spectrum@1", "rho_spectrum@2", "rho_spectrum@10",
]  # fmt: skip


class _Help(argparse.HelpFormatter):
    """Help with every default, wrapped at 120 columns."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=42, width=120)

    def _get_help_string(self, action):
        if isinstance(action, argparse._StoreTrueAction) or action.default in (None, argparse.SUPPRESS) or "%(default)" in action.help:
            return action.help
        shown = " ".join(map(str, action.default)) if isinstance(action.default, list) else "%(default)s"
        return f"{action.help} (default: {shown or 'none'})"


class _Parser(OneLineParser):
    """Names the nearest flag that exists of an unknown one."""

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
    group.add_argument(
        "--eval_kmeans_starts",
        type=int,
        default=None,
        metavar="N",
        help="nmi, ami and f1 are the mean over N k-means starts, with the seeds 0 to N-1 in every run: their deviation over --seed then holds "
        "no chance of the clustering (unset: one start, seeded with --seed, as published)",
    )
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
        help="write features, labels and paths of the best epoch to embeddings_<split>.npz in the run folder; with --evaluate, where it has "
        "them already, beside that evaluation's pictures",
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
    try:
        return composition.compose(parser, argv)
    except UserError as error:
        parser.error(str(error))


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
