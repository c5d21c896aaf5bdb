"""Records: the run folder and its name, the files in it, and the online service."""

from options.flags import roles
from utilities.numbers import whole


def names(group) -> None:
    """Place and name of the run folder."""
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
        "--group", default="Sample_Group", help="name of the configuration; runs that differ only in the seed share it"
    ).role = roles.IDENTITY


def files(group) -> None:
    """Files in the run folder."""
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


def online_service(group) -> None:
    """W&B and Comet."""
    group.add_argument(
        "--log_online", action="store_true", help="also log to --online_backend; without credentials offline"
    )
    group.add_argument(
        "--online_backend", default="wandb", choices=["wandb", "comet_ml", "comet"], help="service of --log_online"
    ).needs = "log_online"
    group.add_argument("--project", default="Sample_Project", help="project of --log_online").role = roles.IDENTITY
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
