"""Evaluation: metrics, splits, queries and galleries, the embeddings that are compared, files and jobs."""

from options.derived import DEFAULT_METRICS
from options.flags import roles
from utilities.evaltypes import MAIN
from utilities.numbers import number, whole
from utilities.words import unless_none


def metrics_and_selection(group) -> None:
    """What is measured, how often, and which epoch is chosen."""
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


def splits(group) -> None:
    """The images that are measured."""
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
        "--no_train_metrics", action="store_true", help="do not evaluate the training images"
    ).role = roles.EXTENT


def relevance(group) -> None:
    """The gallery of a query, and what is relevant in it."""
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
        "--eval_relevance",
        metavar="FILE",
        type=unless_none,
        help="Python file with relevance(query_rows, gallery_rows) -> (q, g) from 0 to 1, of rows of a split: what is "
        "above 0 is to be found, in place of the images of the query's class. It is executed only where the command "
        "line names it; none: not that of the saved run",
    ).role = roles.CODE


def embeddings(group) -> None:
    """The embeddings that are compared."""
    group.add_argument(
        "--eval_pca",
        type=whole(1, off="none"),
        metavar="N",
        help="evaluate the first N principal components, fitted on the reference; none: not those of the saved run "
        "(unset: all dimensions as they are)",
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
        choices=["mean", "gem", "max"],
        help=(
            "how --eval_scales joins: the mean, the mean of the power of --pool gem or gem_learned, for --embed_dim 0, "
            "or max, the largest of each dimension, as SuperGlobal does"
        ),
    ).needs = "eval_scales"


def computation(group) -> None:
    """Batches, processes and devices of an evaluation, and its clustering."""
    group.add_argument(
        "--evaluate_on_gpu", action="store_true", help="compute neighbours, clusters and spectra on the GPU"
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


def files(group) -> None:
    """Files that an evaluation writes beside its values."""
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
    query_results(group)


def query_results(group) -> None:
    """The form of `--dump_query_results`, here and in `python -m evaluation FILE`."""
    form = group.add_argument(
        "--query_results_format",
        default="npz",
        choices=["npz", "trec"],
        help="npz: a file of arrays; trec: what each query finds, .run, and its relevant items, .qrels, as trec_eval, "
        "pytrec_eval and ranx read them, a pair for each protocol of lists",
    )
    form.role = roles.RECORDS
    form.needs = "dump_query_results"
    depth = group.add_argument(
        "--query_results_depth",
        type=whole(1),
        default=1000,
        metavar="N",
        help="nearest images of each query that a .run lists; relevant ones beyond are reported",
    )
    depth.role = roles.RECORDS
    depth.only_with = {"query_results_format": ["trec"]}


def jobs(group) -> None:
    """Evaluations without training, and the one at the end of a run."""
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
