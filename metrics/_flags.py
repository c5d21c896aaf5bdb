"""The flags of an evaluation that say by which distances neighbours are found,
and whether their lists are re-ranked.
"""

from metrics._names import refuse_reranked
from metrics.neighbours.dba import DatabaseAugmentation
from metrics.neighbours.pair_scores import PairReranking, scorer_of
from metrics.neighbours.rerank import AlphaExpansion, KReciprocal
from metrics.neighbours.superglobal import SuperGlobal
from options.flags import reranking as reranking_flags
from utilities.errors import UserError
from utilities.hyperbolic import Ball
from utilities.numbers import number, whole

HYPERBOLIC = "hyperbolic"
# their flags define the ball in which their embeddings lie
LOSSES = ("hyperbolic", "hier")
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
    reranking_flags.add_arguments(group)


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
    # a program that reads files of embeddings has no --loss
    loss = getattr(opt, "loss", None)
    if loss not in LOSSES:
        return {"eval_space_c": C, "eval_space_clip_r": CLIP_R}
    return {"eval_space_c": getattr(opt, f"loss_{loss}_c"), "eval_space_clip_r": getattr(opt, f"loss_{loss}_clip_r")}


def reranking(opt):
    """The re-ranking that the flags ask for, an object with `search(space, progress)`; None without."""
    # a run from before a flag has none of its kind
    flags = vars(opt)
    reranker = _of_lists(opt) if flags.get("rerank") is not None else None
    if flags.get("rerank_dba") is not None and flags.get("rerank") != reranking_flags.K_RECIPROCAL:
        k, alpha = opt.rerank_dba
        reranker = DatabaseAugmentation(int(k), alpha, reranker)
    if flags.get("rerank_pairs") is not None:
        reranker = PairReranking(opt.rerank_pairs, opt.rerank_pairs_top, reranker)
    return reranker


def _of_lists(opt) -> KReciprocal | AlphaExpansion | SuperGlobal:
    """What `--rerank` names."""
    if opt.rerank == reranking_flags.ALPHA_QE:
        return AlphaExpansion(opt.rerank_n, opt.rerank_alpha)
    if opt.rerank == reranking_flags.SUPERGLOBAL:
        return SuperGlobal(opt.rerank_m, opt.rerank_k, opt.rerank_beta)
    return KReciprocal(opt.rerank_k1, opt.rerank_k2, opt.rerank_lambda)


def reranked_by(opt) -> list[str]:
    """The flags that re-rank, with their values, as on a command line."""
    words = []
    if opt.rerank is not None:
        words.append(f"--rerank {opt.rerank}")
    if opt.rerank_dba is not None:
        words.append("--rerank_dba {:g} {:g}".format(*opt.rerank_dba))
    if opt.rerank_pairs is not None:
        words.append(f"--rerank_pairs {opt.rerank_pairs}")
    return words


def check_reranking(opt, metric_names) -> None:
    """Raise UserError for a re-ranking that metrics, distances or its own numbers do not allow."""
    flags = reranked_by(opt)
    if flags:
        refuse_reranked(metric_names, flags[0])
    check_augmentation(opt)
    by_cosine = [flag for flag in flags if flag.startswith(("--rerank superglobal", "--rerank_dba"))]
    if by_cosine and ball(opt) is not None:
        raise UserError(f"{by_cosine[0]} goes by cosines: leave it out, or --eval_space hyperbolic")


def read_pair_scorer(opt) -> None:
    """Execute the file of `--rerank_pairs`: its mistakes are seen before anything is measured. Raises UserError."""
    if opt.rerank_pairs is not None:
        scorer_of(opt.rerank_pairs)


def check_augmentation(opt) -> None:
    """Raise UserError for a K of `--rerank_dba` that is no number of neighbours."""
    if opt.rerank_dba is not None and (opt.rerank_dba[0] < 1 or opt.rerank_dba[0] % 1):
        raise UserError("--rerank_dba {:g} {:g}: K, the first, is a whole number of at least 1".format(*opt.rerank_dba))


def measured_by(opt) -> dict:
    """The arguments of `metrics.compute` that these flags set: `ball`, `rerank`, `skip_unmatched`."""
    return {
        "ball": ball(opt),
        "rerank": reranking(opt),
        "skip_unmatched": bool(getattr(opt, "eval_skip_unmatched", None)),
    }
