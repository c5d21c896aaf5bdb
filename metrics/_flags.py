"""The flags of an evaluation that say by which distances neighbours are found,
and whether their lists are re-ranked.
"""

from metrics.neighbours.rerank import AlphaExpansion, KReciprocal
from utilities.hyperbolic import Ball
from utilities.numbers import number, whole

HYPERBOLIC = "hyperbolic"
LOSSES = ("hyperbolic", "hier")  # their flags define the ball in which their embeddings lie
# their defaults
C = 0.1
CLIP_R = 2.3


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument(
        "--eval_space",
        default="euclidean",
        choices=["euclidean", HYPERBOLIC],
        help="distances by which neighbours are found; hyperbolic: embeddings are clipped and mapped into the Poincare "
        "ball. Clusterings, spectrum, dists and c_ metrics stay Euclidean, of the embeddings before the map",
    )
    group.add_argument(
        "--eval_space_c",
        type=number(0, 100),
        default=None,
        metavar="C",
        help=(
            "the ball of --eval_space hyperbolic has the curvature -C (unset: as --loss hyperbolic or hier says, "
            f"with another loss {C})"
        ),
    ).only_with = {"eval_space": [HYPERBOLIC]}
    group.add_argument(
        "--eval_space_clip_r",
        type=number(above=0),
        default=None,
        metavar="R",
        help=(
            "length to which --eval_space hyperbolic clips embeddings (unset: as --loss hyperbolic or hier says, "
            f"with another loss {CLIP_R})"
        ),
    ).only_with = {"eval_space": [HYPERBOLIC]}
    group.add_argument(
        "--eval_skip_unmatched",
        nargs="?",
        const=1,
        type=whole(),
        choices=[0, 1],
        default=None,
        help="leave queries with nothing to find out of every ranking metric, and report their number; 0: they count "
        "as 0 for e_recall and mAP, and the others leave them out (unset: 1 for data sets of re-identification, ilias, "
        "and those with lists of positives, which leave them out in any case; else 0)",
    )
    _rerank(group)


def _rerank(group) -> None:
    """Declare the flags of re-ranking."""
    group.add_argument(
        "--rerank",
        default=None,
        choices=["k_reciprocal", "alpha_qe"],
        help="re-rank what queries find before ranking metrics are computed: by k-reciprocal encodings, or by queries "
        "expanded with what they find (unset: not)",
    )
    group.add_argument(
        "--rerank_k1",
        type=whole(1, 10**4),
        default=20,
        help="nearest samples among which k_reciprocal looks for reciprocal ones",
    ).only_with = {"rerank": ["k_reciprocal"]}
    group.add_argument(
        "--rerank_k2",
        type=whole(1, 10**4),
        default=6,
        help="nearest samples, itself counted in, whose encodings k_reciprocal averages",
    ).only_with = {"rerank": ["k_reciprocal"]}
    group.add_argument(
        "--rerank_lambda",
        type=number(0, 1),
        default=0.3,
        help="weight of the original distance in k_reciprocal",
    ).only_with = {"rerank": ["k_reciprocal"]}
    group.add_argument(
        "--rerank_n",
        type=whole(1, 10**4),
        default=50,
        help="nearest samples with which alpha_qe expands a query",
    ).only_with = {"rerank": ["alpha_qe"]}
    group.add_argument(
        "--rerank_alpha",
        type=number(0, 100),
        default=3.0,
        help="power of the cosine that is a sample's weight in alpha_qe",
    ).only_with = {"rerank": ["alpha_qe"]}


def ball(opt) -> Ball | None:
    """The ball of `--eval_space hyperbolic`; None where neighbours are Euclidean, as in runs from before the flag."""
    if getattr(opt, "eval_space", "euclidean") != HYPERBOLIC:
        return None
    unset = derived(opt)
    c = unset["eval_space_c"] if opt.eval_space_c is None else opt.eval_space_c
    clip_r = unset["eval_space_clip_r"] if opt.eval_space_clip_r is None else opt.eval_space_clip_r
    return Ball(c, clip_r)


def derived(opt) -> dict:
    """Flag -> value that an unset flag of the ball has: that of the loss, where it is hyperbolic."""
    if getattr(opt, "eval_space", "euclidean") != HYPERBOLIC:
        return {}
    loss = getattr(opt, "loss", None)  # a program that reads files of embeddings has no --loss
    if loss not in LOSSES:
        return {"eval_space_c": C, "eval_space_clip_r": CLIP_R}
    return {"eval_space_c": getattr(opt, f"loss_{loss}_c"), "eval_space_clip_r": getattr(opt, f"loss_{loss}_clip_r")}


def reranking(opt) -> KReciprocal | AlphaExpansion | None:
    """The re-ranker that `--rerank` asks for; None without."""
    if getattr(opt, "rerank", None) is None:
        return None
    if opt.rerank == "alpha_qe":
        return AlphaExpansion(opt.rerank_n, opt.rerank_alpha)
    return KReciprocal(opt.rerank_k1, opt.rerank_k2, opt.rerank_lambda)


def measured_by(opt) -> dict:
    """The arguments of `metrics.compute` that these flags set: `ball`, `rerank`, `skip_unmatched`."""
    return {
        "ball": ball(opt),
        "rerank": reranking(opt),
        "skip_unmatched": bool(getattr(opt, "eval_skip_unmatched", None)),
    }
