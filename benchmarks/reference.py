"""Criteria that compare a batch with a large reference, such as a memory: milliseconds, also in units of one matrix product.

    python benchmarks/reference.py [--only ntxent contrastive …] [--threads 2]

B = 512 against M = 50,000 rows of D = 128, unit vectors of 1,000 classes, each anchor's own image in the reference. The unit is
`batch @ reference.T`, a new matrix in memory that the process keeps, as a run does, timed in turn with each criterion; with one thread
the times are processor time. In memory fresh from the system, as a bare script has it, the product takes longer; that time is printed too.
Memory is the growth of the resident set, in matrices `(B, M)` of 102 MB. Mining is not in the figures: what a miner finds is prepared, one
triplet an anchor, or its sets. Contrastive takes all pairs.

Floor. Where all pairs count, the forward pass needs that product. The backward pass needs one more, for the gradient of the batch (the
reference, a memory, needs none), and a third where the product is not kept but made again. Besides, each pass over a matrix of
25.6 million numbers costs about a thirtieth of the product on a CPU, its exponentials two such passes.
"""

import argparse
import ctypes
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

import batch_mining  # noqa: E402
import criteria  # noqa: E402
from benchmarks.metrics import memory  # noqa: E402
from training.memory import keep_freed, release_freed  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import whole  # noqa: E402
from utilities.reference import Reference  # noqa: E402
from utilities.tuples import Classes, Sets, Triplets  # noqa: E402

SIZE, OTHERS, DIMENSIONS, CLASSES = 512, 50_000, 128, 1000
M_MMAP_THRESHOLD = -3  # of malloc.h
MATRIX = 4 * SIZE * OTHERS / 2**20  # MB
NAMES = [name for name, module in criteria.REGISTRY.modules().items() if getattr(module, "COMPARES_SAMPLES", True) and name != "pml"]


class Mined:
    """A miner whose tuples are prepared, of the kind that a criterion takes."""

    stats: dict = {}

    def __init__(self, labels, reference, kind: str):
        classes = Classes(labels, reference)
        anchors, positives = classes.anchors(), classes.draw_positives()
        if kind == "triplets":
            self.tuples = Triplets(anchors, positives[anchors], classes.draw_negatives()[anchors])
        else:
            masks = [mask[anchors] for mask in reference.masks(labels)]
            self.tuples = Sets(anchors, masks[0] if kind == "lifted" else positives[anchors], masks[1])

    def __call__(self, batch, labels, reference=None, reference_labels=None, own=None):
        """See the class."""
        return self.tuples


def steps_of(name: str, batch, labels, reference) -> tuple:
    """Functions that take one forward pass without a graph, and one forward and backward pass."""
    module = criteria.REGISTRY.module(name)
    kind = (module.ALLOWED_MINING_OPS or ["triplets"])[0]
    miner = Mined(labels, reference, kind) if module.REQUIRES_BATCHMINER else None
    miner = batch_mining.select("none") if name == "contrastive" else miner
    criterion = criteria.select(name, None, miner, n_classes=CLASSES, embed_dim=DIMENSIONS, arch="resnet50", batch_mining="random")
    given = {"reference": reference.embeddings, "reference_labels": reference.labels, "own": reference.own}

    def forward():
        with torch.no_grad():
            criterion(batch, labels, **given)

    def step():
        batch.grad = None
        criterion(batch, labels, **given).backward()

    return forward, step


def peak(step) -> float:
    """Growth of the resident set in a step, in matrices. Blocks of 1 MB and more are then taken from the system and returned to it."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
    release_freed()
    release_freed()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak counts from here
    before = memory("VmRSS")
    step()
    return (memory("VmHWM") - before) / MATRIX


def in_turn(functions: list, repeats: int) -> list[float]:
    """Median milliseconds of each function, called in turn; with one thread of processor time, which other work leaves as it is."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    taken = [[] for _ in functions]
    for repeat in range(repeats + 1):
        for times, function in zip(taken, functions, strict=True):
            began = clock()
            function()
            if repeat:  # the first warms up
                times.append(1000 * (clock() - began))
    return [statistics.median(times) for times in taken]


def main(arguments) -> None:
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    batch, others = (torch.nn.functional.normalize(torch.randn(n, DIMENSIONS)) for n in (SIZE, OTHERS))
    labels, own = torch.randint(CLASSES, (OTHERS,)), torch.randint(OTHERS, (SIZE,))
    batch.requires_grad_()
    reference = Reference.of(batch, labels[own], others, labels, own)
    names = arguments.only or NAMES
    steps = {name: steps_of(name, batch, labels[own], reference) for name in names}
    peaks = {}
    for name, (_, step) in steps.items():
        step()  # threads and libraries take their memory before it is measured
        peaks[name] = peak(step)
    [fresh] = in_turn([lambda: batch.detach() @ others.T], arguments.repeats)
    keep_freed()  # as a run does
    print(f"{torch.get_num_threads()} threads, B = {SIZE}, M = {OTHERS}, D = {DIMENSIONS}, {CLASSES} classes")
    print(f"The product in memory fresh from the system: {fresh:.0f} ms\n")
    print("| criterion | forward, ms | products | with backward, ms | products | peak, matrices |\n|-|-|-|-|-|-|")
    for name, (forward, step) in steps.items():
        product, once, both = in_turn([lambda: batch.detach() @ others.T, forward, step], arguments.repeats)
        print(f"| {name} | {once:.0f} | {once / product:.1f} | {both:.0f} | {both / product:.1f} | {peaks[name]:.1f} |", flush=True)


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=None, choices=NAMES)
    parser.add_argument("--threads", type=whole(1, 10**4), default=2)
    parser.add_argument("--repeats", type=whole(1, 10**6), default=5)
    main(parser.parse_args())
