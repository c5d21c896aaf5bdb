"""Optimisation: learning-rate schedule, optimiser and the limits of its gradients."""

from utilities.numbers import number, whole


def _schedule(name: str) -> str:
    # older versions called the schedule `step` so
    return {"multistep": "step"}.get(name, name)


def epochs(group) -> None:
    """Length of the training."""
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
        "--patience",
        type=whole(1),
        help="stop when validation has not improved for this many epochs, at an evaluated one (unset: never)",
    )


def schedule(group) -> None:
    """The course of the learning rates over the epochs."""
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


def optimiser(group) -> None:
    """The optimiser and its decays."""
    group.add_argument(
        "--optim",
        default="adam",
        choices=["adam", "amsgrad", "adamw", "radam", "sgd", "rmsprop"],
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


def gradient_clipping(group) -> None:
    """Limits of the gradient."""
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
