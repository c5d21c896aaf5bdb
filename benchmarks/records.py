"""Cost of the records: an epoch with everything logged (every sink, --log_every 1, W&B offline) beside one with --no_records.

Both train the same network on the glyphs, from training through evaluation to the checkpoint, in turns; the medians of the epochs are
compared. The first epoch of each, which starts loaders and imports, is left out.
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

FLAGS = "--config demo_glyphs --no_train_metrics --kernels 1 --plot_every 0".split()
MODES = {"everything": "--log_online --log_every 1".split(), "--no_records": ["--no_records"]}
TARGET = 1.03


def seconds_of_epochs(mode: str, epochs: int) -> list[float]:
    """Wall-clock seconds of each epoch after the first, its records and the picture of a best epoch included."""
    opt = parameters.read([*FLAGS, *MODES[mode], "--n_epochs", str(epochs + 1), "--save_path", tempfile.mkdtemp()])
    began, real = [], main.train_one_epoch

    def noted(*args, **kwargs):
        began.append(time.perf_counter())
        return real(*args, **kwargs)

    main.train_one_epoch = noted
    ended, finish = [], main.reports.finish
    main.reports.finish = lambda run: (ended.append(time.perf_counter()), finish(run))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main.main(opt)
    finally:
        main.train_one_epoch, main.reports.finish = real, finish
    times = [*began, *ended]
    return [after - before for before, after in zip(times, times[1:], strict=False)][1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4, help="measured epochs a run")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each kind, in turns")
    options = parser.parse_args()
    measured = {mode: [] for mode in MODES}
    for _ in range(options.rounds):
        for mode in MODES:
            measured[mode] += seconds_of_epochs(mode, options.epochs)
    medians = {mode: statistics.median(values) for mode, values in measured.items()}
    print(f"threads {torch.get_num_threads()}")
    for mode, values in measured.items():
        print(f"{mode:14} {medians[mode]:.2f} s an epoch   {[round(value, 2) for value in values]}")
    print(f"ratio          {medians['everything'] / medians['--no_records']:.3f}   (target: at most {TARGET})")
