"""The training step: chunks, moving average, warm-up, and how the machine computes it."""

from options.flags import roles
from utilities.numbers import number, whole


def devices(group) -> None:
    """GPU, precision, worker processes."""
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


def updates(group) -> None:
    """Parts of a batch, and what an update does to the weights."""
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
        "--no_decay_on_bias_and_norm",
        action="store_true",
        help=(
            "no weight decay on the biases and norm layers of the networks, that is on their parameters of one "
            "dimension; for those of the criterion: --loss_decay"
        ),
    )


def warm_up(group) -> None:
    """The first steps of a training."""
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


def computation(group) -> None:
    """How the machine computes a step."""
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
        help=(
            "images and convolutions with the channels last in memory; a GPU in half precision does so by itself where "
            "the network has several convolutions"
        ),
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
    group.add_argument(
        "--deterministic",
        action="store_true",
        help=(
            "the same bits in equal and in resumed runs on one kind of GPU, by torch's slower deterministic "
            "algorithms; an operation without one ends the run with its name"
        ),
    )
