"""Features of `python -m evaluation models`: images per second beside the loader's and the network's own pace.

`python benchmarks/extraction.py [--arch resnet50] [--images 1024] [--repeats 3]`: photographs as in input.py, random
weights, one worker and one thread for the network. In turns: the loader alone, the network alone on batches that are
loaded already, and the command's extraction into a new folder. Extraction is bound by the slower of the first two.
"""

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import evaluation
from benchmarks._common import seconds
from benchmarks.input import make_files
from engine.loading import evaluation_loader
from engine.runtime import Runtime
from tools import models
from tools._frozen_model import Model
from utilities.errors import OneLineParser
from utilities.numbers import whole


class Loaded(list):
    """Batches in memory, in place of a loader."""

    dataset: object


def main():
    """Measure and print."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--images", type=whole(128), default=1024)
    parser.add_argument("--bs", type=whole(1), default=64)
    parser.add_argument("--repeats", type=whole(1), default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder) / "photographs", options.images)
        words = [
            "--archs",
            options.arch,
            "--dataset",
            "folder",
            "--dataset_folder_path",
            f"{folder}/photographs",
            "--evaluate_all",
            "--not_pretrained",
        ]
        _, options_of = models.read(
            [*words, "--eval_kernels", "1", "--eval_bs", str(options.bs), "--save_path", folder]
        )
        (opt,) = options_of.values()
        runtime = Runtime(opt).begin()
        rounds = []
        for number in range(options.repeats + 1):
            model = Model(options.arch, opt, Path(folder) / f"features_{number}", "float32", runtime)
            ((split, dataset),) = models.splits_for(opt, model.facts, False).items()
            loaded = Loaded(evaluation_loader(dataset, opt))
            loaded.dataset = dataset
            rounds.append(
                [
                    len(dataset) / seconds(work)
                    for work in (
                        lambda dataset=dataset: list(evaluation_loader(dataset, opt)),
                        lambda loaded=loaded, model=model: evaluation.embed(
                            model.network, loaded, runtime, settings=evaluation.EmbedSettings(bare=True)
                        ),
                        lambda split=split, dataset=dataset, model=model: model.embedded({split: dataset}),
                    )
                ]
            )
        loader, network, extraction = (statistics.median(column) for column in zip(*rounds[1:], strict=True))
    slower = statistics.median(rate / min(*paces) for *paces, rate in rounds[1:])
    print(
        f"images per second: loader {loader:,.1f}, network {network:,.1f}, extraction {extraction:,.1f}; extraction "
        f"/ the slower of both {slower:.3f}"
    )


if __name__ == "__main__":
    main()
