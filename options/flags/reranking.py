"""The flags of re-ranking, which evaluations and `python -m retrieval query` share."""

from options.flags import roles
from utilities.numbers import number, whole
from utilities.words import unless_none

K_RECIPROCAL = "k_reciprocal"
ALPHA_QE = "alpha_qe"
SUPERGLOBAL = "superglobal"
METHODS = (K_RECIPROCAL, ALPHA_QE, SUPERGLOBAL)


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument(
        "--rerank",
        default=None,
        choices=METHODS,
        help="re-rank what queries find before ranking metrics are computed: by k-reciprocal encodings, by queries "
        "expanded with what they find, or as SuperGlobal by refined unit features of the first neighbours (unset: not)",
    )
    _of_k_reciprocal(group)
    group.add_argument(
        "--rerank_n",
        type=whole(1, 10**4),
        default=50,
        help="nearest samples with which alpha_qe expands a query",
    ).only_with = {"rerank": [ALPHA_QE]}
    group.add_argument(
        "--rerank_alpha",
        type=number(0, 100),
        default=3.0,
        help="power of the cosine that is a sample's weight in alpha_qe; 0: all weigh 1 (average query expansion)",
    ).only_with = {"rerank": [ALPHA_QE]}
    _of_superglobal(group)
    group.add_argument(
        "--rerank_dba",
        type=number(0, 10**4),
        nargs=2,
        default=None,
        metavar=("K", "ALPHA"),
        help="before anything is searched, each gallery image becomes the sum of itself and of its K nearest others "
        "there, weighted by max(cosine, 0)^ALPHA, at unit length (database-side augmentation; unset: not)",
    ).idle_with = {"rerank": [K_RECIPROCAL]}
    _of_pairs(group)


def _of_k_reciprocal(group) -> None:
    group.add_argument(
        "--rerank_k1",
        type=whole(1, 10**4),
        default=20,
        help="nearest samples among which k_reciprocal looks for reciprocal ones",
    ).only_with = {"rerank": [K_RECIPROCAL]}
    group.add_argument(
        "--rerank_k2",
        type=whole(1, 10**4),
        default=6,
        help="nearest samples, itself counted in, whose encodings k_reciprocal averages",
    ).only_with = {"rerank": [K_RECIPROCAL]}
    group.add_argument(
        "--rerank_lambda",
        type=number(0, 1),
        default=0.3,
        help="weight of the original distance in k_reciprocal",
    ).only_with = {"rerank": [K_RECIPROCAL]}


def _of_superglobal(group) -> None:
    group.add_argument(
        "--rerank_m",
        type=whole(1, 10**4),
        default=400,
        help="first neighbours of a query that superglobal re-ranks; the rest stays behind them",
    ).only_with = {"rerank": [SUPERGLOBAL]}
    group.add_argument(
        "--rerank_k",
        type=whole(0, 10**4),
        default=9,
        help="nearest others, among the first, by which superglobal refines each of them",
    ).only_with = {"rerank": [SUPERGLOBAL]}
    group.add_argument(
        "--rerank_beta",
        type=number(0, 1),
        default=0.15,
        help="weight of these others in superglobal, times their cosine",
    ).only_with = {"rerank": [SUPERGLOBAL]}


def _of_pairs(group) -> None:
    group.add_argument(
        "--rerank_pairs",
        type=unless_none,
        default=None,
        metavar="FILE",
        help="Python file with score(query_paths, gallery_paths) -> (n,), higher is nearer, by which the first of each "
        "list are put in order after all else; it may define prepare(paths), called before with images that are new. "
        "It is executed only where the command line names it; none: not that of the saved run",
    ).role = roles.CODE
    group.add_argument(
        "--rerank_pairs_top",
        type=whole(1, 10**4),
        default=100,
        metavar="N",
        help="neighbours of each query that --rerank_pairs scores; ignored items are left out before",
    ).needs = "rerank_pairs"
