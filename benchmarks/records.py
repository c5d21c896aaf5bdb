"""Cost of the records: an epoch with everything logged (every sink, --log_every 1, W&B offline) beside one with metrics.csv alone.

One run on the glyphs, its epochs in pairs of one of each kind (the order changes from pair to pair), each from training through
evaluation and the pictures of a best epoch to the checkpoint. The median of the pairs' ratios counts; beside it stands its standard
error. The first pair, which starts loaders and imports, is left out. On a machine with other work read the processor time: it counts
this process with all its threads, though neither loaders nor W&B's service.
"""

import contextlib
import io
import itertools
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ["WANDB_MODE"] = "offline"

import torch  # noqa: E402

import main  # noqa: E402
import parameters  # noqa: E402
from runs.records.local import LongFile  # noqa: E402
from runs.run import Run  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import whole  # noqa: E402

FLAGS = ["--config", "demo_glyphs", "--no_train_metrics", "--kernels", "1", "--plot_every", "0", "--log_online", "--log_every", "1"]
KINDS = ("everything", "no records")
TARGET = 1.03


class Alternating(Run):
    """A run that logs every other epoch in full, and else writes metrics.csv alone. `clocks`: time before each epoch and at the end."""

    def epochs(self):
        self.clocks, every, sinks = [], self.batches.every, self.sinks
        for epoch in super().epochs():
            in_full = KINDS[kind_of(epoch)] == "everything"
            self.batches.every = every if in_full else 0
            self.sinks = sinks if in_full else [sink for sink in sinks if isinstance(sink, LongFile)]
            self.clocks.append((time.perf_counter(), time.process_time()))
            yield epoch
        self.clocks.append((time.perf_counter(), time.process_time()))
        self.sinks = sinks

    def _update_best(self, epoch, scores):
        deciding = (self.selection.split, self.selection.metric)
        return list({*super()._update_best(epoch, scores), deciding})  # every epoch draws and records its pictures


def kind_of(epoch: int) -> int:
    """Place in `KINDS` of what an epoch is: 0 1, 1 0, 0 1, …"""
    return (epoch // 2) % 2


def measure(pairs: int) -> list[dict]:
    """For each pair but the first, kind -> (wall-clock, processor) seconds of its epoch."""
    main.Run = Alternating
    with contextlib.redirect_stdout(io.StringIO()):
        run = main.main(parameters.read([*FLAGS, "--n_epochs", str(2 * (pairs + 1)), "--save_path", tempfile.mkdtemp()]))
    passed = [(KINDS[kind_of(i + 1)], (b[0] - a[0], b[1] - a[1])) for i, (a, b) in enumerate(itertools.pairwise(run.clocks))]
    return [dict(passed[i : i + 2]) for i in range(2, len(passed), 2)]


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--pairs", type=whole(2), default=20, help="measured epochs of each kind")
    measured = measure(parser.parse_args().pairs)
    print(f"threads {torch.get_num_threads()}, {len(measured)} pairs")
    for place, clock in enumerate(("wall-clock", "processor")):
        for kind in KINDS:
            seconds = [pair[kind][place] for pair in measured]
            print(f"{clock}  {kind:10}  median {statistics.median(seconds):.2f} s an epoch   {[round(value, 2) for value in seconds]}")
        ratios = sorted(pair["everything"][place] / pair["no records"][place] for pair in measured)
        quartiles = statistics.quantiles(ratios, n=4)
        error = 1.2533 * (quartiles[2] - quartiles[0]) / 1.349 / len(ratios) ** 0.5  # of a median, from the quartiles of normal noise
        print(f"{clock}  ratio       {statistics.median(ratios):.3f} ± {error:.3f}   (target: at most {TARGET})")
