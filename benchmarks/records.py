"""Cost of the records: an epoch with everything logged (every sink, --log_every 1, W&B offline) beside one as with --no_records.

One run on the glyphs whose epochs take turns, each from training through evaluation and the pictures of a best epoch to the
checkpoint; the medians are compared. The first epoch of each kind, which starts loaders and imports, is left out. On a machine with
other work read the processor time: it counts this process with all its threads, though neither loaders nor W&B's service.
"""

import argparse
import contextlib
import io
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
from utilities.records.local import LongFile  # noqa: E402
from utilities.run import Run  # noqa: E402

FLAGS = ["--config", "demo_glyphs", "--no_train_metrics", "--kernels", "1", "--plot_every", "0", "--log_online", "--log_every", "1"]
KINDS = ("everything", "no records")
TARGET = 1.03


class Alternating(Run):
    """A run that logs every other epoch in full, and else writes metrics.csv alone. `clocks`: time before each epoch and at the end."""

    def epochs(self):
        self.clocks, every, sinks = [], self.batches.every, self.sinks
        for epoch in super().epochs():
            in_full = epoch % 2 == 1
            self.batches.every = every if in_full else 0
            self.sinks = sinks if in_full else [sink for sink in sinks if isinstance(sink, LongFile)]
            self.clocks.append((time.perf_counter(), time.process_time()))
            yield epoch
        self.clocks.append((time.perf_counter(), time.process_time()))
        self.sinks = sinks

    def _update_best(self, epoch, scores):
        deciding = (self.selection.split, self.selection.metric)
        return list({*super()._update_best(epoch, scores), deciding})  # every epoch draws and records its pictures


def seconds_of_epochs(epochs: int) -> dict[str, list[tuple[float, float]]]:
    """Kind -> (wall-clock, processor) seconds of each of its epochs but the first."""
    main.Run = Alternating
    with contextlib.redirect_stdout(io.StringIO()):
        run = main.main(parameters.read([*FLAGS, "--n_epochs", str(2 * (epochs + 1)), "--save_path", tempfile.mkdtemp()]))
    passed = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(run.clocks, run.clocks[1:], strict=False)]
    return {kind: passed[first::2][1:] for first, kind in enumerate(KINDS)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6, help="measured epochs of each kind")
    measured = seconds_of_epochs(parser.parse_args().epochs)
    print(f"threads {torch.get_num_threads()}")
    for place, clock in enumerate(("wall-clock", "processor")):
        of = {kind: [seconds[place] for seconds in values] for kind, values in measured.items()}
        medians = {kind: statistics.median(values) for kind, values in of.items()}
        for kind, values in of.items():
            print(f"{clock}  {kind:10}  {medians[kind]:.2f} s an epoch   {[round(value, 2) for value in values]}")
        print(f"{clock}  ratio       {medians['everything'] / medians['no records']:.3f}   (target: at most {TARGET})")
