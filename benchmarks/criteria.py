"""Criteria with their miners beside pytorch-metric-learning's: median milliseconds of forward and backward, the two in turn.

    python benchmarks/criteria.py --sizes 112 512 [--only margin semihard …] [--threads 2]

D = 128, two samples a class, unit vectors, as many classes as a batch of 512 holds. Three criteria are compared with our own
multisimilarity step instead, because the peer's cost grows beyond measure.
"""

import argparse
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

import batch_mining  # noqa: E402
import criteria  # noqa: E402
from benchmarks._common import medians  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import whole  # noqa: E402

DIMENSIONS, CLASSES = 128, 256
OWN = "multisimilarity"  # what ours are compared with where there is no peer
# name of the case: loss, miner or None, factor allowed at B = 112, at B = 512; the loss and miner of pytorch-metric-learning, or None
CASES = {
    "margin": ("margin", "distance", 0.3, 0.15, lambda losses, miners: (losses.MarginLoss(learn_beta=True, num_classes=CLASSES), miners.DistanceWeightedMiner())),
    "triplet": ("triplet", "distance", 0.3, 0.15, lambda losses, miners: (losses.TripletMarginLoss(margin=0.2), miners.DistanceWeightedMiner())),
    "contrastive": ("contrastive", "distance", 0.3, 0.15, lambda losses, miners: (losses.ContrastiveLoss(), miners.DistanceWeightedMiner())),
    "semihard": ("triplet", "semihard", 1.0, 0.2, lambda losses, miners: (losses.TripletMarginLoss(margin=0.2), miners.TripletMarginMiner(0.2, type_of_triplets="semihard"))),
    "npair": ("npair", "npair", 1.5, 4.0, lambda losses, miners: (losses.NPairsLoss(), None)),
    "angular": ("angular", "npair", 1.5, 1.3, lambda losses, miners: (losses.AngularLoss(), None)),
    "lifted": ("lifted", "lifted", 1.1, 1.1, lambda losses, miners: (losses.GeneralizedLiftedStructureLoss(), None)),
    "multisimilarity": ("multisimilarity", None, 1.1, 1.1, lambda losses, miners: (losses.MultiSimilarityLoss(2, 40, 0.5), miners.MultiSimilarityMiner(0.1))),
    "histogram": ("histogram", None, 4.0, 4.0, None),
    "snr_contrastive": ("snr_contrastive", None, 4.0, 4.0, None),
    "ntxent": ("ntxent", None, 4.0, 4.0, None),
    "nca": ("nca", None, 1.5, 4.0, lambda losses, miners: (losses.NCALoss(), None)),
    "softtriplet": ("softtriplet", None, 1.5, 1.3, lambda losses, miners: (losses.SoftTripleLoss(CLASSES, DIMENSIONS, centers_per_class=2, la=8), None)),
    "proxynca_pp": ("proxynca_pp", None, 1.1, 1.1, lambda losses, miners: (losses.ProxyNCALoss(CLASSES, DIMENSIONS, softmax_scale=9), None)),
    "softmax": ("softmax", None, 1.1, 1.1, lambda losses, miners: (losses.NormalizedSoftmaxLoss(CLASSES, DIMENSIONS), None)),
    "arcface": ("arcface", None, 1.1, 1.1, lambda losses, miners: (losses.ArcFaceLoss(CLASSES, DIMENSIONS, scale=16), None)),
    "cosface": ("cosface", None, 1.1, 1.1, lambda losses, miners: (losses.CosFaceLoss(CLASSES, DIMENSIONS), None)),
    "subcenter_arcface": ("subcenter_arcface", None, 1.1, 1.1, lambda losses, miners: (losses.SubCenterArcFaceLoss(num_classes=CLASSES, embedding_size=DIMENSIONS), None)),
    "fastap": ("fastap", None, 1.1, 1.1, lambda losses, miners: (losses.FastAPLoss(), None)),
    "supcon": ("supcon", None, 1.1, 1.1, lambda losses, miners: (losses.SupConLoss(), None)),
    "circle": ("circle", None, 1.1, 1.1, lambda losses, miners: (losses.CircleLoss(), None)),
    "proxyanchor": ("proxyanchor", None, 1.1, 1.1, lambda losses, miners: (losses.ProxyAnchorLoss(CLASSES, DIMENSIONS), None)),
}  # fmt: skip


def step_of(loss, miner, batch, labels):
    """A function that takes one step, mining included."""

    def step():
        batch.grad = None
        mined = miner(batch, labels) if miner is not None else None
        (loss(batch, labels) if mined is None else loss(batch, labels, mined)).backward()

    return step


def main(arguments) -> None:
    from pytorch_metric_learning import losses, miners

    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    print(f"{torch.get_num_threads()} threads, D = {DIMENSIONS}, {CLASSES} classes; milliseconds\n")
    print("| case | B | ours | held against | its time | ratio | at most |\n|-|-|-|-|-|-|-|")
    for size in arguments.sizes:
        for case in arguments.only or CASES:
            loss, miner, *allowed, peer = CASES[case]
            torch.manual_seed(0)
            labels = torch.arange(size) // 2
            batch = torch.nn.functional.normalize(torch.randn(size, DIMENSIONS), dim=1).requires_grad_()
            flags = {"n_classes": CLASSES, "embed_dim": DIMENSIONS, "arch": "resnet50"}
            ours = criteria.select(loss, None, batch_mining.select(miner) if miner else None, **flags)
            other = peer(losses, miners) if peer else (criteria.select(OWN), None)
            steps = {"ours": step_of(ours, None, batch, labels), "other": step_of(*other, batch, labels)}
            found = medians(steps, 3, arguments.repeats if size < 200 else max(arguments.repeats // 3, 3))
            mine, theirs = (1000 * seconds for seconds in found.values())
            limit = allowed[size > 200]
            mark = "" if mine <= limit * theirs else "  **over**"
            print(
                f"| {case} | {size} | {mine:.2f} | {'peer' if peer else OWN} | {theirs:.2f} | {mine / theirs:.2f}{mark} | {limit} |",
                flush=True,
            )


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=whole(2, 10**4), nargs="+", default=[112, 512])
    parser.add_argument("--only", nargs="+", default=None, choices=list(CASES))
    parser.add_argument("--threads", type=whole(1, 1000), default=2)
    parser.add_argument("--repeats", type=whole(1), default=30)
    main(parser.parse_args())
