"""Criteria beside pytorch-metric-learning's: milliseconds of forward and backward, in turn; with a memory also the
memory that they take.

    python benchmarks/criteria.py [--sizes 112 512] [--memories 8192 65536] [--only margin supcon …] [--threads 2]

D = 128, two samples a class, unit vectors, as many classes as a batch of 512 holds. Without a memory mining counts;
three criteria are compared with our own multisimilarity step instead, because the peer's cost grows beyond measure.
With one, B = 112, 1,000 classes, no image is in both, and the peer gets the memory as `ref_emb`; each of the two runs
in a process of its own, where the peak is the growth of its resident set in a step, in MB.
"""

import argparse
import ctypes
import subprocess
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import batch_mining
import criteria
from benchmarks._common import medians
from benchmarks.metrics import memory
from engine.memory import keep_freed
from utilities.errors import OneLineParser
from utilities.numbers import whole

DIMENSIONS = 128
CLASSES = 256
# the loss that a criterion is compared with if there is no peer
OWN = "multisimilarity"
# name of the case: loss, miner or None; the loss and miner of pytorch-metric-learning, or None
CASES = {
    "margin": (
        "margin",
        "distance",
        lambda losses, miners: (
            losses.MarginLoss(learn_beta=True, num_classes=CLASSES),
            miners.DistanceWeightedMiner(),
        ),
    ),
    "triplet": (
        "triplet",
        "distance",
        lambda losses, miners: (losses.TripletMarginLoss(margin=0.2), miners.DistanceWeightedMiner()),
    ),
    "contrastive": (
        "contrastive",
        "distance",
        lambda losses, miners: (losses.ContrastiveLoss(), miners.DistanceWeightedMiner()),
    ),
    "semihard": (
        "triplet",
        "semihard",
        lambda losses, miners: (
            losses.TripletMarginLoss(margin=0.2),
            miners.TripletMarginMiner(0.2, type_of_triplets="semihard"),
        ),
    ),
    "npair": ("npair", "npair", lambda losses, miners: (losses.NPairsLoss(), None)),
    "angular": ("angular", "npair", lambda losses, miners: (losses.AngularLoss(), None)),
    "lifted": ("lifted", "lifted", lambda losses, miners: (losses.GeneralizedLiftedStructureLoss(), None)),
    "multisimilarity": (
        "multisimilarity",
        None,
        lambda losses, miners: (losses.MultiSimilarityLoss(2, 40, 0.5), miners.MultiSimilarityMiner(0.1)),
    ),
    "histogram": ("histogram", None, None),
    "snr_contrastive": ("snr_contrastive", None, None),
    "ntxent": ("ntxent", None, None),
    "nca": ("nca", None, lambda losses, miners: (losses.NCALoss(), None)),
    "softtriplet": (
        "softtriplet",
        None,
        lambda losses, miners: (losses.SoftTripleLoss(CLASSES, DIMENSIONS, centers_per_class=2, la=8), None),
    ),
    "proxynca_pp": (
        "proxynca_pp",
        None,
        lambda losses, miners: (losses.ProxyNCALoss(CLASSES, DIMENSIONS, softmax_scale=9), None),
    ),
    "softmax": ("softmax", None, lambda losses, miners: (losses.NormalizedSoftmaxLoss(CLASSES, DIMENSIONS), None)),
    "arcface": ("arcface", None, lambda losses, miners: (losses.ArcFaceLoss(CLASSES, DIMENSIONS, scale=16), None)),
    "cosface": ("cosface", None, lambda losses, miners: (losses.CosFaceLoss(CLASSES, DIMENSIONS), None)),
    "subcenter_arcface": (
        "subcenter_arcface",
        None,
        lambda losses, miners: (losses.SubCenterArcFaceLoss(num_classes=CLASSES, embedding_size=DIMENSIONS), None),
    ),
    "fastap": ("fastap", None, lambda losses, miners: (losses.FastAPLoss(), None)),
    "supcon": ("supcon", None, lambda losses, miners: (losses.SupConLoss(), None)),
    "circle": ("circle", None, lambda losses, miners: (losses.CircleLoss(), None)),
    "proxyanchor": ("proxyanchor", None, lambda losses, miners: (losses.ProxyAnchorLoss(CLASSES, DIMENSIONS), None)),
}
# with a memory: loss, miner or None; the loss of pytorch-metric-learning on all pairs
WITH_A_MEMORY = {
    "contrastive": ("none", lambda losses: losses.ContrastiveLoss()),
    "multisimilarity": (None, lambda losses: losses.MultiSimilarityLoss(2, 40, 0.5)),
    "ntxent": (None, lambda losses: losses.NTXentLoss()),
    "supcon": (None, lambda losses: losses.SupConLoss()),
    "circle": (None, lambda losses: losses.CircleLoss()),
    "lifted": ("lifted", lambda losses: losses.GeneralizedLiftedStructureLoss()),
}
SIZE = 112
MEMORY_CLASSES = 1000
# rows with which the peer's, which compares every positive pair with every negative pair, fits into 64 GB
MOST_OF_NTXENT = 16384
# number of the option in malloc.h
M_MMAP_THRESHOLD = -3


def step_of(loss, miner, batch, labels):
    """A function that takes one step, mining included."""

    def step():
        batch.grad = None
        mined = [] if miner is None else [miner(batch, labels)]
        loss(batch, labels, *mined).backward()

    return step


def of_batches(arguments) -> None:
    """The table without a memory."""
    from pytorch_metric_learning import losses, miners

    print("| case | B | ours, ms | held against | its time | ratio |\n|-|-|-|-|-|-|")
    for size in arguments.sizes:
        for case in arguments.only or CASES:
            loss, miner, peer = CASES[case]
            torch.manual_seed(0)
            labels = torch.arange(size) // 2
            batch = torch.nn.functional.normalize(torch.randn(size, DIMENSIONS), dim=1).requires_grad_()
            flags = {"n_classes": CLASSES, "embed_dim": DIMENSIONS, "arch": "resnet50"}
            batch_miner = batch_mining.select(miner) if miner else None
            ours = criteria.select(loss, None, batch_miner, **flags)
            opponent = peer(losses, miners) if peer else (criteria.select(OWN), None)
            steps = {"ours": step_of(ours, None, batch, labels), "other": step_of(*opponent, batch, labels)}
            repeats = arguments.repeats if size < 200 else max(arguments.repeats // 3, 3)
            our_time, their_time = (1000 * seconds for seconds in medians(steps, 3, repeats).values())
            name = "peer" if peer else OWN
            ratio = our_time / their_time
            print(f"| {case} | {size} | {our_time:.2f} | {name} | {their_time:.2f} | {ratio:.2f} |", flush=True)


def steps_with_a_memory(case: str, size: int) -> dict:
    """Functions that take one step with a memory of `size` rows, ours and the peer's."""
    from pytorch_metric_learning import losses

    torch.manual_seed(0)
    batch, rows = (torch.nn.functional.normalize(torch.randn(n, DIMENSIONS)) for n in (SIZE, size))
    labels = torch.arange(SIZE) // 2
    row_labels = torch.randint(MEMORY_CLASSES, (size,))
    batch.requires_grad_()
    miner, peer = WITH_A_MEMORY[case]
    flags = {"n_classes": MEMORY_CLASSES, "embed_dim": DIMENSIONS, "arch": "resnet50"}
    batch_miner = batch_mining.select(miner) if miner else None
    ours = criteria.select(case, None, batch_miner, **flags)
    theirs = peer(losses)

    def step():
        batch.grad = None
        ours(batch, labels, reference=rows, reference_labels=row_labels).backward()

    def peers_step():
        batch.grad = None
        theirs(batch, labels, ref_emb=rows, ref_labels=row_labels).backward()

    return {"ours": step, "peer": peers_step}


def peak(step) -> float:
    """Growth of the resident set in a step, in MB.

    Blocks of 1 MB and more are then taken from the system and returned to it.
    """
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
    # threads and libraries take their memory before it is measured
    step()
    ctypes.CDLL(None).malloc_trim(0)
    # the peak counts from here
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before = memory("VmRSS")
    step()
    return memory("VmHWM") - before


def compared_cells(values: dict, form: str) -> str:
    """Ours, the peer's and their ratio, as cells of a table."""
    if "peer" not in values:
        return f"{values['ours']:{form}} | out of memory | - "
    return f"{values['ours']:{form}} | {values['peer']:{form}} | {values['ours'] / values['peer']:.2f}"


def of_memories(arguments) -> None:
    """The table with a memory."""
    print(
        "\n| case, with a memory | rows | ours, ms | peer, ms | ratio | ours, MB | peer, MB | ratio "
        "|\n|-|-|-|-|-|-|-|-|"
    )
    for size in arguments.memories:
        for case in arguments.only or WITH_A_MEMORY:
            if case not in WITH_A_MEMORY:
                continue
            steps = steps_with_a_memory(case, size)
            if case == "ntxent" and size > MOST_OF_NTXENT:
                steps.pop("peer")
            times = {
                side: 1000 * seconds for side, seconds in medians(steps, 2, max(arguments.repeats // 3, 3)).items()
            }
            command = [sys.executable, __file__, "--threads", str(arguments.threads), "--peak", case, str(size)]
            peaks = {
                side: float(subprocess.run([*command, side], capture_output=True, check=True, text=True).stdout)
                for side in times
            }
            print(f"| {case} | {size} | {compared_cells(times, '.1f')} | {compared_cells(peaks, '.0f')} |", flush=True)


def main(arguments) -> None:
    """Print the comparisons that the flags select; with --peak the memory of one case."""
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore")
    if arguments.peak:
        case, size, side = arguments.peak
        print(peak(steps_with_a_memory(case, int(size))[side]))
        return
    # A run keeps freed memory, too.
    keep_freed()
    print(f"{torch.get_num_threads()} threads, D = {DIMENSIONS}, {CLASSES} classes\n")
    of_batches(arguments)
    of_memories(arguments)


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=whole(2, 10**4), nargs="*", default=[112, 512])
    parser.add_argument("--memories", type=whole(1, 10**7), nargs="*", default=[8192, 65536])
    parser.add_argument("--only", nargs="+", default=None, choices=list(CASES))
    parser.add_argument("--threads", type=whole(1, 1000), default=2)
    parser.add_argument("--repeats", type=whole(1), default=30)
    # what the processes above are started with
    parser.add_argument("--peak", nargs=3, default=None, help=argparse.SUPPRESS)
    main(parser.parse_args())
