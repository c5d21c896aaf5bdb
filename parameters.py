"""The command line: the only parser of the program.

options/composition.py adds files and saved runs, over which the command line wins;
options/checks.py refuses flags that cannot work.

Where a flag is declared:
  here                    flags of the run as a whole: schedule, optimiser, evaluation, records, resume
  options/flags/shared.py flags that plug-ins of several folders read: --bs, --lr, --embed_dim, --loss, --batch_mining …
  <folder>/_<helper>.py   flags that several plug-ins of one folder read: image sizes, weights of networks, storages
  <folder>/<plug-in>.py   a plug-in's own, with its name in front: --loss_<name>_…, --miner_<name>_…, --<trainer>_…

Beside a declaration stand its role (options/flags/roles.py) and with which other flags it acts (rules.py there).
All end up in one flat namespace, `opt`; docs/flags.md lists them. A default of None is derived in `read`; the help
says from what.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Collection

import yaml

import architectures
import batch_mining
import criteria
import datasampler
import datasets
import metrics
import trainers
from evaluation import whitening
from options import composition
from options import help as help_pages
from options.derived import DEFAULT_METRICS
from options.flags import migration, roles
from options.flags import shared as shared_flags
from utilities import plug_in_folders
from utilities.errors import OneLineParser, UserError
from utilities.evaltypes import MAIN
from utilities.numbers import number, whole
from utilities.registry import unknown

REGISTRIES = {  # in the order in which their flags are listed
    "datasets": datasets.REGISTRY,
    "architectures": architectures.REGISTRY,
    "samplers": datasampler.REGISTRY,
    "trainers": trainers.REGISTRY,
    "losses": criteria.REGISTRY,
    "miners": batch_mining.REGISTRY,
}
NAMED = {  # flag -> the registry of its values
    "dataset": datasets.REGISTRY,
    "data_sampler": datasampler.REGISTRY,
    "trainer": trainers.REGISTRY,
    "loss": criteria.REGISTRY,
    "batch_mining": batch_mining.REGISTRY,
}
LISTS = ("losses", "miners", "samplers", "architectures", "datasets", "trainers", "metrics")


NEGATION = "--no-"  # before a switch's name: switches it off


class _Switch(argparse._StoreTrueAction):
    """A flag without a value: `--NAME` switches it on, `--no-NAME` off, also one of a --config file or a saved run."""

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, not option_string.startswith(NEGATION))


class _Parser(OneLineParser):
    """A parser whose switches can be switched off, and that reads values in brackets, `[val, test]`.

    It says what takes the place of a flag that it does not know.
    """

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.register("action", "store_true", _Switch)

    def add_negations(self) -> None:
        """Let `--no-NAME` switch off each switch declared so far; help and docs list its name alone."""
        for action in self._actions:
            if isinstance(action, _Switch):
                names = [option.removeprefix("--") for option in action.option_strings]
                self._option_string_actions |= {f"{NEGATION}{name}": action for name in names}

    def parse_args(self, args=None, namespace=None):
        """The namespace of a command line; ends with one line for a word that is no flag or is refused."""
        words = sys.argv[1:] if args is None else list(args)
        if (refusal := self.refusal(words)) is not None:
            self.error(refusal)
        namespace, unknown_words = self.parse_known_args(words, namespace)
        if unknown_words:
            self.error(self._unrecognized(words, unknown_words[0]))
        return namespace

    @property
    def options(self) -> list[str]:
        """All flags, with dashes, older and other names included."""
        return list(self._option_string_actions)

    def refusal(self, words: list[str], searches: bool = False) -> str | None:
        """The error for words as powerful-benchmarker takes them, see `migration.refusal`; None for none."""
        return migration.refusal(words, self._option_string_actions, NAMED, searches)

    def _unrecognized(self, words: list[str], word: str) -> str:
        """The error for the first of `words` that nothing takes."""
        option = word.partition("=")[0]  # the value may be a key or a password
        before = words[words.index(word) - 1] if word in words[1:] else ""
        is_switch = before in self.options and self._option_string_actions[before].nargs == 0
        if is_switch and word.lower() in ("true", "false"):
            off = f"leave it out, or switch it off by {NEGATION}{before.removeprefix('--')}"
            way_out = "give it without a value" if word.lower() == "true" else off
            return f"{before} {word}: {before} is a switch: {way_out}"
        nearest = difflib.get_close_matches(option, self.options, n=1, cutoff=0.75) if option.startswith("-") else []
        hint = f"Did you mean {nearest[0]}?" if nearest else f"--find {option.strip('-')} searches."
        return f"unrecognized argument {option}. {hint}"

    def _check_value(self, action, value):
        """As argparse does; a name of another program gets what takes its place."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            equivalent = migration.answer(str(value))
            if equivalent is not None:
                error.message = f"{value}: here {equivalent}"
            raise

    def _get_values(self, action, arg_strings):
        """The values of a flag that takes several, also as `[a, b]`."""
        joined = " ".join(arg_strings)
        if action.nargs in ("+", "*") and joined.startswith("[") and joined.endswith("]"):
            words = re.split(r"[,\s]+", joined[1:-1])
            arg_strings = [word.strip("'\"") for word in words if word]
            if action.nargs == "+" and not arg_strings:
                raise argparse.ArgumentError(action, "expected at least one value")
        return super()._get_values(action, arg_strings)


def _schedule(name: str) -> str:
    return {"multistep": "step"}.get(name, name)  # as older versions called it


def _file_of_code(name: str) -> str | None:
    return None if name == "none" else name


def basic_training_parameters(parser) -> None:
    """Schedule, optimiser, device."""
    group = roles.group(parser, "schedule", roles.METHOD)
    group.add_argument(
        "--n_epochs",
        "--num_epochs_train",
        type=whole(0),
        default=150,
        help=(
            "epochs to train; 0: the untrained network alone, evaluated by --check_untrained_accuracy, or its "
            "embeddings by --dump_embeddings, what its queries find by --dump_query_results"
        ),
    )
    group.add_argument(
        "--iterations_per_epoch",
        type=whole(1, 10**5),
        help="batches per epoch (unset: the sampler's number, about images / --bs)",
    )
    group.add_argument(
        "--scheduler",
        default="step",
        choices=["step", "cosine", "flat_cosine", "onecycle", "plateau", "none"],
        type=_schedule,
        help="learning-rate schedule: step multiplies by --gamma at the epochs --tau, cosine falls to --min_lr over "
        "--n_epochs, flat_cosine does so after --flat_share, onecycle rises from a 25th in --onecycle_rise of the "
        "steps and then falls to --min_lr, plateau multiplies by --gamma when the selection metric no longer improves",
    )
    group.add_argument(
        "--min_lr",
        type=number(0),
        default=0.0,
        help=(
            "where cosine, flat_cosine and onecycle end: the network's rate; all other rates fall in the same "
            "proportion"
        ),
    ).only_with = {"scheduler": ["cosine", "flat_cosine", "onecycle"]}
    group.add_argument(
        "--flat_share",
        type=number(0, below=1),
        default=0.5,
        help="share of the epochs in which flat_cosine keeps the full rate",
    ).only_with = {"scheduler": ["flat_cosine"]}
    group.add_argument(
        "--onecycle_rise", type=number(0, below=1), default=0.3, help="share of the steps in which onecycle rises"
    ).only_with = {"scheduler": ["onecycle"]}
    group.add_argument(
        "--gamma", type=number(above=0, most=1), default=0.3, help="factor of the learning-rate schedule"
    ).only_with = {"scheduler": ["step", "plateau"]}
    group.add_argument(
        "--tau",
        type=whole(1),
        nargs="+",
        default=[1000],
        help="epochs after which `step` multiplies the rate by --gamma",
    ).only_with = {"scheduler": ["step"]}
    group.add_argument(
        "--plateau_patience",
        type=whole(0),
        default=4,
        help="evaluations without improvement before `plateau` lowers the rate",
    ).only_with = {"scheduler": ["plateau"]}
    group.add_argument(
        "--patience", type=whole(1), help="stop when validation has not improved for this many epochs (unset: never)"
    )
    group = roles.group(parser, "optimiser", roles.METHOD)
    group.add_argument(
        "--optim",
        default="adam",
        choices=["adam", "adamw", "radam", "sgd", "rmsprop"],
        help="optimiser of the network and of the criterion's own parameters",
    )
    group.add_argument(
        "--fc_lr", type=number(0, special=-1), default=-1, help="learning rate of the last layer; -1: --lr"
    )
    group.add_argument("--decay", type=number(0), default=0.0004, help="weight decay of the network")
    group.add_argument("--fc_decay", type=number(0), help="weight decay of the last layer (unset: --decay)")
    group.add_argument(
        "--loss_decay", type=number(0), default=0.0, help="weight decay of the criterion's own parameters"
    )
    group.add_argument(
        "--momentum", type=number(0, below=1), default=0.9, help="momentum of sgd and rmsprop"
    ).only_with = {"optim": ["sgd", "rmsprop"]}
    group.add_argument("--nesterov", action="store_true", help="Nesterov's momentum, of --optim sgd").only_with = {
        "optim": ["sgd"]
    }
    group.add_argument(
        "--clip_grad_norm",
        type=number(above=0),
        help="largest norm of the network's and criterion's gradient (unset: no limit)",
    )
    group.add_argument(
        "--clip_grad_each",
        type=number(above=0),
        help="largest norm of the gradient of each single parameter (unset: no limit)",
    ).excludes = "clip_grad_norm"
    group.add_argument(
        "--clip_grad_value",
        type=number(above=0),
        help="largest absolute value of an entry of the gradient (unset: no limit)",
    ).excludes = "clip_grad_norm", "clip_grad_each"
    group = roles.group(parser, "machine", roles.PLACE)
    group.add_argument(
        "--gpu",
        type=whole(0),
        nargs="+",
        default=[0],
        help="index of the GPU that trains; without CUDA the CPU is used",
    )
    group.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "bfloat16", "float16"],
        help="precision of the forward pass; mining and loss are always float32",
    ).role = roles.METHOD
    group.add_argument(
        "--kernels",
        type=whole(0),
        default=6,
        help="worker processes that load training images, at most the CPUs there are",
    )


def step_parameters(parser) -> None:
    """The training step: chunks, warm-up, averages, and how the machine computes it."""
    group = roles.group(parser, "steps", roles.METHOD)
    group.add_argument(
        "--chunk_size",
        type=whole(0, 10**6),
        default=0,
        metavar="C",
        help="images that go through the network at once: memory grows with C, not with --bs, and each step equals "
        "that of the whole batch, but for BatchNorm's batch statistics and dropout; 0, or --bs times --views and more: "
        "the whole batch at once",
    )
    group.add_argument(
        "--ema_decay",
        type=number(0, below=1),
        metavar="DECAY",
        help="keep a moving average of the network's weights and of BatchNorm's statistics with this decay per step, "
        "such as .999: the average is evaluated and selected, and checkpoints contain it as the network, and also "
        "the trained weights (unset: none)",
    )
    group.add_argument(
        "--warmup_epochs",
        type=whole(0, 10**5),
        default=0,
        metavar="N",
        help=(
            "in the first N epochs the rates of --scheduler are multiplied by a factor that rises linearly, step by "
            "step, to 1"
        ),
    )
    group.add_argument(
        "--warmup_steps", type=whole(0, 10**9), default=0, metavar="N", help="as --warmup_epochs, in the first N steps"
    ).excludes = "warmup_epochs"
    group.add_argument(
        "--warmup_start", type=number(0, below=1), default=0.0, metavar="F", help="factor from which the warm-up rises"
    ).needs = "warmup_epochs", "warmup_steps"
    group.add_argument(
        "--warmup_head_epochs",
        type=whole(0, 10**5),
        default=0,
        metavar="N",
        help=(
            "in the first N epochs the backbone is frozen, in evaluation mode (BatchNorm's statistics, dropout): only "
            "the layers after it are trained"
        ),
    ).excludes = "freeze_backbone"
    group.add_argument(
        "--freeze_backbone_steps",
        type=whole(0, 10**9),
        default=0,
        metavar="N",
        help="as --warmup_head_epochs, in the first N steps",
    ).excludes = "freeze_backbone", "warmup_head_epochs"
    group.add_argument(
        "--no_decay_on_bias_and_norm",
        action="store_true",
        help=(
            "no weight decay on the biases and norm layers of the networks, that is on their parameters of one "
            "dimension; for those of the criterion: --loss_decay"
        ),
    )
    group.add_argument(
        "--sync_bn",
        action="store_true",
        help=(
            "under torchrun, on GPUs, BatchNorm takes its batch statistics from the whole batch; without it from each "
            "process's part"
        ),
    )
    group.add_argument(
        "--channels_last",
        action="store_true",
        help="images and convolutions with the channels last in memory, faster on most GPUs",
    )
    group.add_argument(
        "--compile",
        action="store_true",
        help="torch.compile the network; the number of graphs compiled after the first epoch is reported",
    )
    group.add_argument(
        "--tf32",
        action="store_true",
        help=(
            "on a GPU multiply matrices of float32 with TensorFloat-32, as PyTorch's convolutions do anyway; not in "
            "mining and loss"
        ),
    )


def evaluation_parameters(parser) -> None:
    """What is measured, on what, and how the best epoch is chosen."""
    group = roles.group(parser, "evaluation", roles.EVALUATION)
    group.add_argument(
        "--evaluation_metrics",
        nargs="+",
        metavar="METRIC",
        help=(
            "metrics to compute, --list metrics (unset: those published for the data set where it names some, else "
            f"{' '.join(DEFAULT_METRICS)})"
        ),
    ).role = roles.EXTENT
    group.add_argument(
        "--storage_metrics",
        nargs="+",
        default=["e_recall@1"],
        metavar="METRIC",
        help="metrics whose best epochs keep a checkpoint; the first chooses the best epoch",
    ).role = roles.SELECTION
    group.add_argument(
        "--evaltypes",
        nargs="+",
        default=[MAIN],
        help="embeddings to evaluate, where a network gives several; Combined_<a>_<b>-<w>-<w> joins them",
    ).role = roles.EVALUATION.but(fixed="first")
    group.add_argument(
        "--no_train_metrics", action="store_true", help="do not evaluate the training images"
    ).role = roles.EXTENT
    group.add_argument(
        "--evaluate_on_gpu", action="store_true", help="search neighbours and clusters on the GPU"
    ).role = roles.PLACE
    group.add_argument(
        "--eval_kmeans_starts",
        type=whole(1, 1000),
        metavar="N",
        help="nmi, ami and f1 are the mean over N k-means starts, with the seeds 0 to N-1 in every run: their "
        "deviation over --seed then does not include the randomness of the clustering (unset: one start, seeded with "
        "--seed, as published)",
    )
    group.add_argument(
        "--eval_bs", type=whole(1, 10**6), help="images per batch in evaluation (unset: --bs)"
    ).role = roles.EXTENT
    group.add_argument(
        "--eval_kernels", type=whole(0), help="worker processes in evaluation (unset: --kernels)"
    ).role = roles.PLACE
    group.add_argument(
        "--save_interval",
        type=whole(1),
        default=1,
        help="evaluate, and keep the best, every N epochs; the last checkpoint is saved after each epoch",
    ).role = roles.SELECTION.but(fixed=None)
    group.add_argument(
        "--check_untrained_accuracy",
        action="store_true",
        help="first evaluate the bare backbone (epoch -1), with _normalize at unit length as the network, and the "
        "untrained network (epoch 0)",
    ).role = roles.RECORDS
    group.add_argument(
        "--splits_to_eval",
        nargs="+",
        choices=["train", "val", "test"],
        help=(
            "splits to evaluate (unset: train unless --no_train_metrics, val where there is one, test; with a "
            "--split_scheme of folds val alone)"
        ),
    ).role = roles.EXTENT
    group.add_argument(
        "--eval_reference_set",
        default="compared_to_self",
        choices=["compared_to_self", "compared_to_sets_combined", "compared_to_training_set"],
        help=(
            "where a split's images search their neighbours: among themselves, in all evaluated splits, in the "
            "training images; a query never finds itself, classes are distinguished by name"
        ),
    )
    group.add_argument(
        "--tester",
        default="global",
        choices=["global", "same_parent_label"],
        help="same_parent_label measures inside each super-class and takes the mean",
    )
    group.add_argument(
        "--label_hierarchy_level",
        type=whole(),
        default=0,
        choices=[0, 1],
        help="labels used in evaluation: 0 the classes, 1 the super-classes",
    )
    group.add_argument(
        "--eval_pca",
        type=whole(1),
        metavar="N",
        help="evaluate the first N principal components, fitted on the reference (unset: all dimensions as they are)",
    ).excludes = "eval_whiten"
    group.add_argument(
        "--eval_no_normalize", action="store_true", help="evaluate embeddings before they are brought to unit length"
    )
    group.add_argument(
        "--eval_use_trunk_output",
        action="store_true",
        help="evaluate the backbone's features, with _normalize at unit length, instead of the embedding",
    )
    group.add_argument(
        "--eval_scales",
        type=number(above=0, most=4),
        nargs="+",
        default=[1],
        metavar="S",
        help=(
            "embed each image at these scales of its size, 1 .7071 .5 for Oxford and Paris, and join the embeddings "
            "at unit length"
        ),
    )
    group.add_argument(
        "--eval_scales_join",
        default="mean",
        choices=["mean", "gem"],
        help=(
            "how --eval_scales joins: the mean, or the mean of the power of --pool gem or gem_learned, for "
            "--embed_dim 0"
        ),
    ).needs = "eval_scales"
    group.add_argument(
        "--eval_relevance",
        metavar="FILE",
        type=_file_of_code,
        help="Python file with relevance(query_rows, gallery_rows) -> (q, g) from 0 to 1, of rows of a split: what is "
        "above 0 is to be found, in place of the images of the query's class. It is executed only where the command "
        "line names it; none: not that of the saved run",
    ).role = roles.CODE
    whitening.add_arguments(group)
    metrics.add_arguments(group)
    _beside_the_values(group)


def _beside_the_values(group) -> None:
    """Files that an evaluation writes beside its values, and jobs without training."""
    group.add_argument(
        "--eval_size_of_tsne",
        type=whole(0),
        default=0,
        metavar="N",
        help="also draw a t-SNE of N images of each split; 0: none",
    ).role = roles.RECORDS
    group.add_argument(
        "--dump_embeddings",
        action="store_true",
        help="write features as they are measured, labels and paths of the best epoch to embeddings_<split>.npz in the "
        "run folder; with --evaluate, if it has them already, next to that evaluation's pictures; with --n_epochs 0 "
        "those of the untrained network",
    ).role = roles.RECORDS
    group.add_argument(
        "--dump_query_results",
        action="store_true",
        help="write of each query whether its nearest neighbour is of its class (hit), its average precision among the "
        "R nearest (ap_at_r, its term of map_r), the rank of its first hit, label and path, of the best epoch, to "
        "query_results_<split>.npz in the run folder: a few MB, by which Result_Evaluations.py compares runs query by "
        "query; otherwise as --dump_embeddings, and with --final_test of test too",
    ).role = roles.RECORDS
    group.add_argument(
        "--evaluate",
        action="store_true",
        help="do not train: measure the best checkpoint of the run of this --savename (or --group and --seed, or "
        "--resume_from) on --splits_to_eval; with --resume_from on other data too, by --dataset and its flags, split "
        "as the flags of the split say, or whole by --evaluate_all",
    ).role = roles.CONTROL
    group.add_argument(
        "--evaluate_only",
        action="store_true",
        help="do not train: measure the network of --arch as it starts, with pretrained weights or those of --weights, "
        "and its bare backbone, with _normalize at unit length too, on --splits_to_eval, or by --evaluate_all on all "
        "classes; --embed_dim 0 leaves out the embedding layer, which is random",
    ).role = roles.CONTROL
    group.add_argument(
        "--evaluate_ensemble",
        action="store_true",
        help=(
            "do not train: measure the networks of all folds of a finished cross-validation as one, their embeddings "
            "side by side, on test"
        ),
    ).role = roles.CONTROL
    group.add_argument(
        "--final_test",
        action="store_true",
        help="at the end evaluate the selected checkpoint on test, after all folds their ensemble too",
    ).role = roles.RECORDS


def logging_parameters(parser) -> None:
    """Where a run is written, and under which name."""
    group = roles.group(parser, "records", roles.RECORDS)
    group.add_argument(
        "--save_path",
        "--root_experiment_folder",
        default="./Training_Results",
        help="parent folder of <dataset>/<savename>/",
    ).role = roles.PLACE
    group.add_argument(
        "--savename",
        "--experiment_name",
        default="group_plus_seed",
        help="name of the run folder; group_plus_seed becomes <group>_s<seed>",
    ).role = roles.IDENTITY
    group.add_argument(
        "--log_online", action="store_true", help="also log to --online_backend; without credentials offline"
    )
    group.add_argument(
        "--online_backend", default="wandb", choices=["wandb", "comet_ml", "comet"], help="service of --log_online"
    ).needs = "log_online"
    group.add_argument(
        "--online_names",
        default="both",
        choices=["both", "icml", "plain"],
        help="names of values at the online service; icml: `Test: discriminative_e_recall: e_recall@1`, as the ICML "
        "2020 pipeline and the files of groups; plain: `test/e_recall@1`, the names that TensorBoard and metrics.csv "
        "always have: W&B and Comet then show one section a split, and batch/ and pictures/; both: W&B keeps each "
        "value under the two, draws panels of the plain names alone; Comet, which hides nothing, takes icml",
    ).needs = "log_online"
    group.add_argument(
        "--log_artifacts",
        action="store_true",
        help="with --log_online: at the end of the run its selected checkpoint goes to the service too, as an artifact "
        "of type `model` from which `load_run` reads (W&B) or as the model `selected` (Comet)",
    ).needs = "log_online"
    group.add_argument(
        "--wandb_key", help="W&B key, never stored or logged; `wandb login` or WANDB_API_KEY is better"
    ).role = roles.SECRET
    group.add_argument(
        "--comet_api_key", help="Comet key, never stored or logged; COMET_API_KEY is better"
    ).role = roles.SECRET
    group.add_argument("--project", default="Sample_Project", help="project of --log_online").role = roles.IDENTITY
    group.add_argument(
        "--group", default="Sample_Group", help="name of the configuration; runs that differ only in the seed share it"
    ).role = roles.IDENTITY
    group.add_argument(
        "--plot_every",
        type=whole(0),
        default=10,
        help="draw the curves every N epochs, and at the end; 0: at the end only",
    )
    group.add_argument(
        "--log_every",
        type=whole(0),
        default=0,
        help=(
            "also record every N-th batch: loss and its parts, gradient norm, mined tuples, rates, throughput, memory "
            "(0: epochs only)"
        ),
    )
    group.add_argument(
        "--no_records",
        action="store_true",
        help="write only metrics.csv, checkpoints, summary.json and what describes the run (parameters.yaml, "
        "Parameter_Info.txt, environment.yaml): no pictures, no curves, no other records; --log_online, --log_every "
        "and --plot_every do nothing",
    )


def run_parameters(parser) -> None:
    """Configuration files, resume, and flags that end the program before training."""
    group = roles.group(parser, "configuration and resume", roles.CONTROL)
    group.add_argument(
        "--config",
        nargs="+",
        default=[],
        metavar="FILE",
        help=(
            "YAML files of `flag: value`, later ones win, a saved run wins over them (--resume, --evaluate) and the "
            "command line over all; a bare name is looked up in configs/"
        ),
    )
    group.add_argument(
        "--plugins",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="folders with plug-ins of yours: FOLDER/criteria/mine.py is --loss mine. They are code, which only the "
        "command line names",
    )
    group.add_argument("--print_config", action="store_true", help="print the resolved flags as such a file and exit")
    group.add_argument(
        "--resume",
        "--resume_training",
        nargs="?",
        const="latest",
        choices=["latest", "best"],
        help="continue the run of this --savename (or --group and --seed) from its last, or its best, checkpoint",
    )
    group.add_argument(
        "--resume_or_start",
        action="store_true",
        help="as --resume if the run exists, else start it: for scripts and schedulers that repeat one command",
    )
    group.add_argument("--resume_from", metavar="FOLDER", help="continue the run in this folder")
    group.add_argument(
        "--resume_allow_changes", action="store_true", help="continue although flags differ from the saved ones"
    )
    group.add_argument(
        "--reproduce_results",
        metavar="FOLDER",
        help=(
            "start a new run with the flags of the run in FOLDER; changes that were allowed on resume are made again "
            "at the same epochs"
        ),
    )
    group.add_argument(
        "--folds",
        type=whole(0),
        nargs="+",
        metavar="N",
        help="train only these folds of --split_scheme, from 0 (unset: all)",
    )
    group.add_argument(
        "--aggregate_only", action="store_true", help="do not train: compute the results over the finished folds"
    )
    group.add_argument(
        "--dry_run",
        action="store_true",
        help=(
            "build everything, take the first batch of each split, one through a step, draw its images as the network "
            "sees them (<savename>_batch.png), and stop; --check_data examines all images"
        ),
    )
    group.add_argument(
        "--profile_steps",
        type=whole(0, 10**4),
        default=0,
        metavar="N",
        help="time N steps, then run as many (20 at most) in torch's profiler, print the time by part with the flag "
        "that would help first, write the trace next to the run's folder (<savename>_trace.json, for chrome://tracing "
        "or ui.perfetto.dev), and stop",
    )
    group.add_argument(
        "--check_data",
        action="store_true",
        help=(
            "decode every image of --dataset, print every error in its files, and stop; the exit status is 0 if there "
            "is none"
        ),
    )
    group.add_argument(
        "-h",
        "--help",
        action=help_pages.Help,
        nargs=argparse.REMAINDER,
        default=argparse.SUPPRESS,
        metavar="WORD",
        help=(
            "print the most used flags and exit; with WORD those of a group, of a plug-in (loss margin), one flag, or "
            "all"
        ),
    )
    group.add_argument("--find", metavar="WORD", help="print the flags whose name or text holds WORD and exit")
    group.add_argument(
        "--explain",
        action="store_true",
        help="print every flag that differs from its default, with the place where it was set, and exit",
    )
    group.add_argument("--list", choices=LISTS, help="print the plug-ins of one kind with their captions and exit")


def get_parser() -> argparse.ArgumentParser:
    """The parser with every flag of the program and of its plug-ins."""
    parser = _Parser(
        prog="main.py",
        formatter_class=help_pages.Formatter,
        allow_abbrev=False,
        add_help=False,
        usage="python main.py [flags]",
    )
    parser.plug_ins = {
        f"{registry.kind} {name}": module
        for registry in REGISTRIES.values()
        for name, module in registry.modules().items()
    }
    shared_flags.add_arguments(parser)
    for declare in (
        basic_training_parameters,
        step_parameters,
        evaluation_parameters,
        logging_parameters,
        run_parameters,
    ):
        declare(parser)
    for registry in REGISTRIES.values():
        registry.add_arguments(parser)
    inner = [module.INNER_LOSS for module in parser.plug_ins.values() if hasattr(module, "INNER_LOSS")]
    named = NAMED | dict.fromkeys(inner, criteria.REGISTRY)
    for action in parser._actions:
        if action.dest in named:
            action.type = named[action.dest].resolve
    parser.add_negations()
    return parser


def declared_roles() -> roles.Roles:
    """Flag -> its role, of every flag of the program and of its plug-ins."""
    return roles.declared(get_parser())


def read(argv: list[str] | None = None) -> argparse.Namespace:
    """The checked options, an `options.options.Options`. Without side effects: no folder, no device, no seeding.

    Later ones win: defaults, --config files, the saved run on resume or reproduction, the command line. A mistake: exit
    2, one line.
    """
    try:
        if argv is None:
            argv = sys.argv[1:]
        plug_in_folders.use(argv)
        return resolve(argv)
    except UserError as error:
        get_parser().error(str(error))


def resolve(
    argv: list[str] | None = None, searched: Collection[str] = (), is_checked: bool = True
) -> argparse.Namespace:
    """As `read`; a mistake raises UserError.

    Args:
        searched: flags whose values a search varies: what has no effect with one of them, and would with another, is
            not refused.
        is_checked: options that cannot work are refused.
    """
    parser = get_parser()
    parser.exits = False
    return composition.compose(parser, argv, searched, is_checked)


def unchecked(argv: list[str]) -> argparse.Namespace:
    """As `resolve`, for a command that is known to work and is not run. Its checks would import large packages."""
    return resolve(argv, is_checked=False)


def listing(kind: str) -> list[tuple[str, str]]:
    """(name, caption) of the plug-ins of one kind of `LISTS`."""
    if kind == "metrics":
        return metrics.listing()
    if kind not in LISTS:
        raise unknown("list", kind, LISTS)
    captions = [(name, REGISTRIES[kind].caption(name)) for name in REGISTRIES[kind].names()]
    if kind == "architectures":
        captions += architectures.LISTED
    return captions


def checked(problems: list[str]) -> str:
    """The answer to --check_data. Raises UserError, after printing them, where there are problems."""
    if not problems:
        return "every image can be decoded; nothing else is wrong with the files"
    print("\n".join(problems))
    raise UserError(f"--check_data: {len(problems)} problems, listed above")


def answer(opt) -> str | None:
    """The text that --list, --find, --explain, --check_data or --print_config asks for;
    None where the flags ask for a run.
    """
    if opt.find is not None:
        return help_pages.find(get_parser(), opt.find)
    if opt.explain:
        return help_pages.explain(opt)
    if opt.check_data:
        return checked(datasets.problems(opt))
    if opt.list is not None:
        rows = listing(opt.list)
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {caption}" for name, caption in rows)
    return yaml.safe_dump(opt.saved(), sort_keys=True).rstrip() if opt.print_config else None
