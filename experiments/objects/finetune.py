"""Do components of fine-tuned networks differ from those of adapters? Two losses on ten draws, on a GPU.

    make objects-data
    python -m experiments.objects.finetune --minutes 9

EfficientNet-Lite0 is trained as a whole on 128 pixels, 300 steps in bfloat16, with all images on the device. The even
ones of the 20 sets train, the odd ones test. The first run is timed; if all do not fit into the minutes, seeds are left
out, never draws. Of three rates each loss takes that of the best R@1 on the tuning sets. Rows go to
<rows>/finetune.csv, in the columns of evidence.py; `python -m experiments.objects.tables` shows them.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import collections
import itertools
import math
import time
from pathlib import Path

import numpy as np
import torch

import architectures
from experiments.objects import evidence, training
from experiments.objects.training import Sample
from utilities.console import say
from utilities.counts import count_of
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import write_csv
from utilities.numbers import number, whole
from utilities.reading import read_json, read_records

LOSSES = ("multisimilarity", "proxyanchor")
RATES = (0.00003, 0.0001, 0.0003)
SEEDS = 2
# images that are embedded at once
BATCH = 500


def samples(data: Path, numbers: list[int], device: torch.device) -> dict[int, Sample]:
    """Sets of 100 classes as pixels `(N, 3, 128, 128)`, uint8, on the device."""
    from PIL import Image

    _, rows = read_records(data / "objects.csv", "run make objects-data")
    paths = {}
    for row in sorted(rows, key=lambda row: row["path"]):
        paths.setdefault(row["label"], []).append(data / row["path"])
    sets = read_json(data / "objects_sets" / "100.json", "run make objects-data")
    by_number = {}
    for set_number in numbers:
        files = [paths[label] for label in sets[set_number]]
        pictures = [np.asarray(Image.open(path).convert("RGB")) for path in itertools.chain.from_iterable(files)]
        images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous().to(device)
        sizes = torch.tensor(list(map(len, files)))
        by_number[set_number] = Sample(images, torch.arange(len(files)).repeat_interleave(sizes))
    return by_number


def run(loss: str, rate: float, seed: int, sample: Sample, tests: dict[int, Sample], options) -> list[tuple]:
    """Train one network. Returns the score on each of the test sets, `(test set, r1, map_r)`."""
    words = f"--precision {options.precision} --weights {options.data / 'efficientnet_lite0.safetensors'}"
    opt = training.flags(loss, rate, seed, words)
    trained = training.train(opt, lambda opt: architectures.select(opt.arch, opt), sample, options.steps)
    [(_, network)] = collections.deque(trained, maxlen=1)
    network.eval()
    scores = []
    for test_set, test in tests.items():
        with torch.no_grad(), torch.autocast(test.inputs.device.type, torch.bfloat16, options.precision == "bfloat16"):
            embeddings = torch.cat([network(images)[0].float() for images in test.inputs.split(BATCH)])
        result = training.score(embeddings, test.labels)
        scores.append((test_set, f"{result.r1:.3f}", f"{result.map_r:.4f}"))
    return scores


def tuned(sets: dict[int, Sample], options) -> dict[str, float]:
    """Loss -> the best of `RATES` on the tuning sets, a run each."""
    first, second = evidence.STAGES["tune"].members()
    rates = {}
    for loss in LOSSES:
        scores = {}
        for rate in RATES:
            scores[rate] = float(run(loss, rate, 0, sets[first], {second: sets[second]}, options)[0][1])
        rates[loss] = max(scores, key=scores.get)
        say(f"{loss}: R@1 by rate {scores}")
    return rates


def main(argv=None) -> None:
    """Tune, time the first run, then train and measure as many seeds as fit."""
    parser = OneLineParser(
        prog="experiments.objects.finetune", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--data", type=Path, default=Path("Datasets"), help="folder of objects.csv and the weights")
    parser.add_argument("--rows", type=Path, default=evidence.ROWS, help="folder that gets finetune.csv")
    parser.add_argument("--minutes", type=number(above=0), default=9.0, help="by which all is finished")
    parser.add_argument("--steps", type=whole(1), default=300, help="of a run")
    parser.add_argument("--draws", type=whole(2, 10), default=10, help="pairs of sets")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16", help="of the network")
    options = parser.parse_args(argv)
    end = time.monotonic() + 60 * options.minutes
    name = "cuda" if torch.cuda.is_available() else "cpu"
    numbers = [*range(2 * options.draws), *evidence.STAGES["tune"].members()]
    sets = samples(options.data, numbers, torch.device(name))
    rates = tuned(sets, options)
    tests = {number_of_set: sets[number_of_set] for number_of_set in range(1, 2 * options.draws, 2)}
    rows = []
    seeds = SEEDS
    runs = itertools.product(range(SEEDS), range(0, 2 * options.draws, 2), LOSSES)
    for seed, train_set, loss in runs:
        if seed >= seeds:
            break
        started = time.monotonic()
        scores = run(loss, rates[loss], seed, sets[train_set], tests, options)
        rows += [(loss, train_set, seed, test, options.steps, *values, rates[loss]) for test, *values in scores]
        if len(rows) == len(tests):
            seconds = time.monotonic() - started
            fitting = math.floor((end - started) / seconds / (options.draws * len(LOSSES)))
            seeds = min(SEEDS, max(fitting, 0))
            say(f"{seconds:.1f} s per run: {count_of(seeds, 'seed')} of {SEEDS}")
            if not seeds:
                raise UserError(f"--minutes {options.minutes:g}: one seed of all draws does not fit")
        write_csv(options.rows / "finetune.csv", evidence.HEAD, rows)
    say(f"{options.rows / 'finetune.csv'}: {len(rows):,} rows")


if __name__ == "__main__":
    with one_line_errors("experiments.objects.finetune"):
        main()
