"""Criteria with their miners beside pytorch-metric-learning's: median milliseconds of forward and backward, the two in turn.

    python benchmarks/criteria.py --sizes 112 512 [--only margin semihard …] [--threads 2]

D = 128, two samples a class, unit vectors, as many classes as a batch of 512 holds. Three criteria are held against our own
multisimilarity step instead, where the peer's cost grows beyond measure.

Floor. At B = 512 a matrix of similarities is 0.07 GFLOP, under a millisecond; its gradient twice that. The matrix itself is 1 MB, so each
pass over it costs about 0.05 ms: a criterion on all pairs is a handful of such passes, and one on mined triplets only O(B D).
"""

import argparse
import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

import batch_mining  # noqa: E402
import criteria  # noqa: E402

DIMENSIONS, CLASSES = 128, 256
# name of the case: (loss, miner or None, factor allowed at B = 112, at B = 512, what it is held against)
PEER, OWN = "peer", "multisimilarity"
CASES = {
    "margin": ("margin", "distance", 0.3, 0.15, PEER),
    "triplet": ("triplet", "distance", 0.3, 0.15, PEER),
    "contrastive": ("contrastive", "distance", 0.3, 0.15, PEER),
    "semihard": ("triplet", "semihard", 1.0, 0.2, PEER),
    "npair": ("npair", "npair", 1.5, 4.0, PEER),
    "angular": ("angular", "npair", 1.5, 1.3, PEER),
    "lifted": ("lifted", "lifted", 1.1, 1.1, PEER),
    "multisimilarity": ("multisimilarity", None, 1.1, 1.1, PEER),
    "histogram": ("histogram", None, 4.0, 4.0, OWN),
    "snr_contrastive": ("snr_contrastive", None, 4.0, 4.0, OWN),
    "ntxent": ("ntxent", None, 4.0, 4.0, OWN),
    "nca": ("nca", None, 1.5, 4.0, PEER),
    "softtriplet": ("softtriplet", None, 1.5, 1.3, PEER),
    "proxynca_pp": ("proxynca_pp", None, 1.1, 1.1, PEER),
    "softmax": ("softmax", None, 1.1, 1.1, PEER),
    "arcface": ("arcface", None, 1.1, 1.1, PEER),
    "cosface": ("cosface", None, 1.1, 1.1, PEER),
    "subcenter_arcface": ("subcenter_arcface", None, 1.1, 1.1, PEER),
    "fastap": ("fastap", None, 1.1, 1.1, PEER),
    "supcon": ("supcon", None, 1.1, 1.1, PEER),
    "circle": ("circle", None, 1.1, 1.1, PEER),
    "proxyanchor": ("proxyanchor", None, 1.1, 1.1, PEER),
}


def peer(case: str):
    """pytorch-metric-learning's loss and miner of a case."""
    from pytorch_metric_learning import losses, miners

    c, d = CLASSES, DIMENSIONS
    makers = {
        "margin": lambda: (losses.MarginLoss(learn_beta=True, num_classes=c), miners.DistanceWeightedMiner()),
        "triplet": lambda: (losses.TripletMarginLoss(margin=0.2), miners.DistanceWeightedMiner()),
        "contrastive": lambda: (losses.ContrastiveLoss(), miners.DistanceWeightedMiner()),
        "semihard": lambda: (losses.TripletMarginLoss(margin=0.2), miners.TripletMarginMiner(0.2, type_of_triplets="semihard")),
        "npair": lambda: (losses.NPairsLoss(), None),
        "angular": lambda: (losses.AngularLoss(), None),
        "lifted": lambda: (losses.GeneralizedLiftedStructureLoss(), None),
        "multisimilarity": lambda: (losses.MultiSimilarityLoss(2, 40, 0.5), miners.MultiSimilarityMiner(0.1)),
        "nca": lambda: (losses.NCALoss(), None),
        "softtriplet": lambda: (losses.SoftTripleLoss(c, d, centers_per_class=2, la=8), None),
        "proxynca_pp": lambda: (losses.ProxyNCALoss(c, d, softmax_scale=9), None),
        "softmax": lambda: (losses.NormalizedSoftmaxLoss(c, d), None),
        "arcface": lambda: (losses.ArcFaceLoss(c, d, scale=16), None),
        "cosface": lambda: (losses.CosFaceLoss(c, d), None),
        "subcenter_arcface": lambda: (losses.SubCenterArcFaceLoss(num_classes=c, embedding_size=d), None),
        "fastap": lambda: (losses.FastAPLoss(), None),
        "supcon": lambda: (losses.SupConLoss(), None),
        "circle": lambda: (losses.CircleLoss(), None),
        "proxyanchor": lambda: (losses.ProxyAnchorLoss(c, d), None),
    }
    return makers[case]()


def step_of(loss, miner, batch, labels):
    """A function that takes one step, mining included."""

    def step():
        batch.grad = None
        mined = miner(batch, labels) if miner is not None else None
        (loss(batch, labels) if mined is None else loss(batch, labels, mined)).backward()

    return step


def in_turn(steps: list, repeats: int) -> list[float]:
    """Median milliseconds of each step, taken in turn."""
    taken = [[] for _ in steps]
    for repeat in range(repeats + 3):
        for times, step in zip(taken, steps, strict=True):
            began = time.perf_counter()
            step()
            if repeat >= 3:  # the first ones warm up
                times.append(1000 * (time.perf_counter() - began))
    return [statistics.median(times) for times in taken]


def main(arguments) -> None:
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    print(f"{torch.get_num_threads()} threads, D = {DIMENSIONS}, {CLASSES} classes; milliseconds\n")
    print("| case | B | ours | held against | its time | ratio | at most |\n|-|-|-|-|-|-|-|")
    for size in arguments.sizes:
        for case in arguments.only or CASES:
            loss, miner, *allowed, against = CASES[case]
            torch.manual_seed(0)
            labels = torch.arange(size) // 2
            batch = torch.nn.functional.normalize(torch.randn(size, DIMENSIONS), dim=1).requires_grad_()
            flags = {"n_classes": CLASSES, "embed_dim": DIMENSIONS, "arch": "resnet50"}
            ours = criteria.select(loss, None, batch_mining.select(miner) if miner else None, **flags)
            other = peer(case) if against == PEER else (criteria.select(OWN), None)
            steps = [step_of(ours, None, batch, labels), step_of(*other, batch, labels)]
            mine, theirs = in_turn(steps, arguments.repeats if size < 200 else max(arguments.repeats // 3, 3))
            limit = allowed[size > 200]
            mark = "" if mine <= limit * theirs else "  **over**"
            print(f"| {case} | {size} | {mine:.2f} | {against} | {theirs:.2f} | {mine / theirs:.2f}{mark} | {limit} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[112, 512])
    parser.add_argument("--only", nargs="+", default=None, choices=list(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=30)
    main(parser.parse_args())
