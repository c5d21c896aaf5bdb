"""The flags that plug-ins of several folders read. `select`, called from another program, needs their defaults too."""

from options.flags import roles
from utilities.numbers import WIDEST, number, whole

# Names in the namespace that are no flags: of the data, the machine, the cross-validation, the data that an evaluation
# measures.
DERIVED = {"n_classes", "class_names", "device", "fold", "other_data", "loaded_teacher", "loaded_guide"}


# Values of --split_scheme without folds; --use_tv_split cuts validation from training.
OF_KNOWN_CLASSES = ("time_proportion", "time_cutoff", "open_set")
ONE_DIVISION = ("half", "oodml", *OF_KNOWN_CLASSES)


def has_folds(flags: dict) -> bool:
    """Whether the flags (of a command line or a saved run) ask for folds:
    every `--split_scheme` does but those of `ONE_DIVISION`.
    """
    return flags.get("split_scheme", "half") not in ONE_DIVISION


def rescaling_layer(opt) -> str | None:
    """The flag, with its value, of a layer behind the embedding layer that rescales embeddings; None without one.

    Losses for embeddings of any length and trainers that build embeddings of their own ask for it: a further layer of
    this kind is named here.
    """
    # the flag is of architectures/: the options of a loss alone lack it
    neck = vars(opt).get("neck", "none")
    return None if neck == "none" else f"--neck {neck}"


def add_arguments(parser) -> None:
    """Declare the shared flags in two groups."""
    group = roles.group(parser, "what to train", roles.METHOD)
    group.add_argument(
        "--dataset", default="cub200", help="data set, a file of datasets/ (--list datasets)"
    ).role = roles.DATA
    group.add_argument(
        "--arch",
        default="resnet50_frozen_normalize",
        help="network: <backbone>[_frozen][_layernorm][_normalize] (--list architectures)",
    )
    group.add_argument(
        "--embed_dim",
        type=whole(0, WIDEST),
        default=128,
        help="dimensions of the embedding; 0 takes the backbone's features as they are",
    )
    group.add_argument(
        "--trainer", default="metric_only", help="training method, a file of trainers/ (--list trainers)"
    )
    group.add_argument("--loss", default="margin", help="criterion, a file of criteria/ (--list losses)")
    group.add_argument(
        "--batch_mining",
        default="distance",
        help="miner of tuples for the losses that need one, a file of batch_mining/ (--list miners)",
    )
    group.add_argument(
        "--mine_pairs",
        action="store_true",
        help="losses on all pairs of a batch take only those that --batch_mining chooses",
    )
    group.add_argument(
        "--data_sampler", default="class_random", help="sampler of batches, a file of datasampler/ (--list samplers)"
    )
    group = roles.group(parser, "batches and rates", roles.METHOD)
    group.add_argument("--bs", "--batch_size", type=whole(1, 10**6), default=112, help="images per batch")
    group.add_argument(
        "--samples_per_class",
        type=whole(1),
        default=2,
        help="images per class in a batch, for the samplers that group by class",
    )
    group.add_argument("--lr", type=number(0), default=1e-5, help="learning rate of the network")
    group.add_argument(
        "--seed", type=whole(0), default=1, help="seeds Python, NumPy, torch, workers, samplers, miners and k-means"
    ).role = roles.IDENTITY
