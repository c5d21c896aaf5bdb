"""Each trainer's step beside that of metric_only, on the same batch: `python benchmarks/trainers.py`.

The batch holds two views of --bs / 2 images, two images a class. Losses, optimiser and network are the same; the steps alternate, and
medians are compared. Beside them stands the floor: the forward passes of the network in a step, with and without a gradient, and the
multiplications of all its layers and products, forward and backward, relative to those of metric_only's step. A memory fills meanwhile.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402
from torch.nn.modules.module import register_module_forward_hook  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import trainers  # noqa: E402
from benchmarks._common import CLASSES, built, medians  # noqa: E402
from training.loading import Batch  # noqa: E402
from training.step import Step  # noqa: E402
from utilities.errors import OneLineParser  # noqa: E402
from utilities.numbers import whole  # noqa: E402

METRIC_ONLY = "metric_only", ()
MORE = {  # name -> variants beside that without flags
    "metric_only": [
        ("--memory_size", "8192", "--memory_start", "0"),
        ("--memory_size", "8192", "--memory_start", "0", "--memory_ema", ".999"),
    ],
    "adversarial": [("--adversarial_generator_epochs", "1"), ("--adversarial_triplets_per_anchor", "10")],
    "s2sd": [("--s2sd_dims", "512")],
}  # fmt: skip


def batch_of(size: int, side: int) -> Batch:
    """Two views of size / 2 images, two of each class; the second views follow the first."""
    numbers = torch.arange(size // 2)
    images = torch.randint(0, 256, (len(numbers) * 2, 3, side, side), dtype=torch.uint8)
    return Batch((numbers // 2 % CLASSES).repeat(2), images, numbers.repeat(2))


def step_of(name: str, flags: tuple, arguments) -> Step:
    """A step of a trainer in its first epoch."""
    views, size = trainers.views(name), str(arguments.side)
    common = (
        "--embed_dim",
        "64",
        "--loss",
        "contrastive",
        "--batch_mining",
        "distance",
        "--crop_size",
        size,
        "--bs",
        str(arguments.bs // views),
    )
    return built(arguments.arch, *common, "--trainer", name, *flags)[0]


def floor_of(step: Step, batch: Batch) -> tuple[int, int, int]:
    """Forward passes of the network and its copies with a gradient, without one, and the step's floating-point operations."""
    kind, passes = type(step.trainer.network), [0, 0]

    def count(module, inputs, output):
        if type(module) is kind:
            passes[not (torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()))] += 1

    hook = register_module_forward_hook(count)
    try:
        with FlopCounterMode(display=False) as counter:
            step(batch)
    finally:
        hook.remove()
    return *passes, counter.get_total_flops()


def main(arguments) -> None:
    """Print the table."""
    torch.manual_seed(0)
    batch, plain = batch_of(arguments.bs, arguments.side), step_of(*METRIC_ONLY, arguments)
    *_, products = floor_of(plain, batch)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"{arguments.arch}, {len(batch.images)} images of {arguments.side} x {arguments.side} pixels, {where}\n")
    print("| trainer | step, ms | metric_only, ms | times | forward passes, with gradient + without | multiplications, times |")
    print("|-|-|-|-|-|-|")
    for name in arguments.only or trainers.REGISTRY.names():
        for flags in ((), *MORE.get(name, ())):
            step = step_of(name, flags, arguments)
            trained, rested, multiplied = floor_of(step, batch)
            works = {"ours": lambda step=step: step(batch), "plain": lambda: plain(batch)}
            ours, theirs = (1000 * seconds for seconds in medians(works, 1, arguments.steps).values())
            about = " ".join((name, *flags))
            print(
                f"| {about} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} | {trained} + {rested} | {multiplied / products:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=None, choices=trainers.REGISTRY.names(), metavar="TRAINER", help="these alone")
    parser.add_argument("--arch", default="conv4_normalize", help="the network; with --side that suits it")
    parser.add_argument("--bs", type=whole(8, 10**5), default=112, help="images of the batch, both views counted")
    parser.add_argument("--side", type=whole(1, 10**4), default=48, help="pixels of an image's side")
    parser.add_argument("--steps", type=whole(1), default=20, help="of each, whose median counts")
    main(parser.parse_args())
