"""Cost of the records: an epoch with everything logged (every sink, --log_every 1, W&B offline) beside one with metrics.csv alone.

One run on the glyphs, its epochs in pairs of one of each kind (the order changes from pair to pair), each from training through
evaluation and the pictures of a best epoch to the checkpoint. The median of the pairs' ratios counts; beside it stands its standard
error. The first pair, which starts loaders and imports, is left out. On a machine with other work read the processor time: it counts
this process with all its threads, though neither loaders nor W&B's service.

Epochs scatter by more than the records cost. So the calls themselves are counted too: what the training waits for them, and the
processor time of the thread and of the process behind W&B, for which a training that uses every core would wait as well. (Those of
metrics.csv, which both kinds write, are among them.)
"""

import argparse
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
from runs import records  # noqa: E402
from runs.records.local import LongFile  # noqa: E402
from runs.records.online import Wandb  # noqa: E402
from runs.run import Run  # noqa: E402
from utilities.meter import BatchLog  # noqa: E402

FLAGS = ["--config", "demo_glyphs", "--no_train_metrics", "--kernels", "1", "--plot_every", "0", "--log_online", "--log_every", "1"]
KINDS = ("everything", "no records")
TARGET = 1.03
CALLS = ("write", "write_batches", "arrays", "picture")


class Counted:
    """Seconds spent in the methods that it wraps, calls within calls once.

    Args:
        clock: counts them.
    """

    def __init__(self, clock):
        self.clock, self.seconds, self._inside = clock, 0.0, False

    def wrap(self, owner, names) -> None:
        """Count the methods of an object or a class."""
        for name in names:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, method):
        def counted(*args, **kwargs):
            if self._inside:
                return method(*args, **kwargs)
            self._inside, began = True, self.clock()
            try:
                return method(*args, **kwargs)
            finally:
                self._inside = False
                self.seconds += self.clock() - began

        return counted


def seconds_of_service() -> float:
    """Processor time so far of W&B's process and of those that it started. Raises RuntimeError where there is none (or no Linux)."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            found[int(stat.parent.name)] = (name, int(fields[1]), int(fields[11]) + int(fields[12]))
    service = {process for process, (name, parent, _) in found.items() if name.startswith("wandb") and parent == os.getpid()}
    if not service:
        raise RuntimeError("no process of W&B's under this one: its cost cannot be counted")
    service |= {process for process, (_, parent, _) in found.items() if parent in service}
    return sum(found[process][2] for process in service) / os.sysconf("SC_CLK_TCK")


TRAINING, BEHIND = Counted(time.perf_counter), Counted(time.thread_time)


def seconds_of_calls() -> dict[str, float]:
    """Where the records' time goes, in words -> seconds so far."""
    return {"the training waits": TRAINING.seconds, "W&B's thread": BEHIND.seconds, "W&B's process": seconds_of_service()}


class Alternating(Run):
    """A run that logs every other epoch in full, and else writes metrics.csv alone.

    `clocks`: time before each epoch and at the end. `calls`: `seconds_of_calls` of all epochs but the first pair.
    """

    def epochs(self):
        self.clocks, every, sinks = [], self.batches.every, self.sinks
        for epoch in super().epochs():
            in_full = KINDS[kind_of(epoch)] == "everything"
            self.batches.every = every if in_full else 0
            self.sinks = sinks if in_full else [sink for sink in sinks if isinstance(sink, LongFile)]
            self.clocks.append((time.perf_counter(), time.process_time()))
            if epoch == 3:
                self.calls = seconds_of_calls()
            yield epoch
        self.clocks.append((time.perf_counter(), time.process_time()))
        self.calls = {what: seconds - self.calls[what] for what, seconds in seconds_of_calls().items()}
        self.sinks = sinks

    def _update_best(self, epoch, scores):
        deciding = (self.selection.split, self.selection.metric)
        return list({*super()._update_best(epoch, scores), deciding})  # every epoch draws and records its pictures


def kind_of(epoch: int) -> int:
    """Place in `KINDS` of what an epoch is: 0 1, 1 0, 0 1, …"""
    return (epoch // 2) % 2


def measure(pairs: int):
    """For each pair but the first, kind -> (wall-clock, processor) seconds of its epoch; `seconds_of_calls` of one pair."""
    main.Run, opened = Alternating, records.open_sinks
    TRAINING.wrap(BatchLog, ["take", "flush"])
    BEHIND.wrap(Wandb, CALLS)

    def open_sinks(opt, folder):
        sinks = opened(opt, folder)
        for sink in sinks:
            TRAINING.wrap(sink, CALLS)
        return sinks

    records.open_sinks = open_sinks
    with contextlib.redirect_stdout(io.StringIO()):
        run = main.main(parameters.read([*FLAGS, "--n_epochs", str(2 * (pairs + 1)), "--save_path", tempfile.mkdtemp()]))
    passed = [(KINDS[kind_of(i + 1)], (b[0] - a[0], b[1] - a[1])) for i, (a, b) in enumerate(itertools.pairwise(run.clocks))]
    return [dict(passed[i : i + 2]) for i in range(2, len(passed), 2)], {what: seconds / pairs for what, seconds in run.calls.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="measured epochs of each kind, at least 2")
    measured, calls = measure(max(2, parser.parse_args().pairs))
    print(f"threads {torch.get_num_threads()}, {len(measured)} pairs")
    for place, clock in enumerate(("wall-clock", "processor")):
        for kind in KINDS:
            seconds = [pair[kind][place] for pair in measured]
            print(f"{clock}  {kind:10}  median {statistics.median(seconds):.2f} s an epoch   {[round(value, 2) for value in seconds]}")
        ratios = sorted(pair["everything"][place] / pair["no records"][place] for pair in measured)
        quartiles = statistics.quantiles(ratios, n=4)
        error = 1.2533 * (quartiles[2] - quartiles[0]) / 1.349 / len(ratios) ** 0.5  # of a median, from the quartiles of normal noise
        print(f"{clock}  ratio       {statistics.median(ratios):.3f} ± {error:.3f}   (target: at most {TARGET})")
    bare = statistics.median(pair["no records"][0] for pair in measured)
    for what, seconds in calls.items():
        print(f"calls       {what:18}  {seconds:.3f} s an epoch with everything, {seconds / bare:.2%} of one without")
    print(f"calls       ratio if nothing ran beside the training   {1 + sum(calls.values()) / bare:.3f}   (target: at most {TARGET})")
