"""Where the time of a training step goes, and which flag would help first: `--profile_steps`."""

import itertools
import time

import torch

import criteria
from engine.meter import EpochMeter
from utilities.processes import kernels
from utilities.spans import Clock, running, span

PARTS = ("data", "copy", "network", "miner", "loss", "backward", "optimiser", "logging")
# steps at most: the profiler keeps each operation in memory
TRACED = 20
# Steps before the clock starts: libraries load, buffers and the optimiser's state are made, workers have begun.
WARM_UP = 3


def profile(step, loader, n: int, trace: str | None) -> dict[str, float]:
    """Time n steps, then run as many, at most `TRACED`, in torch's profiler.

    trace: the file that the profiler writes; None: no file.

    Returns milliseconds a step by part; `other` is what is in none, such as moving averages and samplers' storages. The
    clock waits for a GPU at the ends of each part, so that nothing overlaps there but the loader's workers.
    """
    cuda = step.runtime.device.type == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    meter = EpochMeter(step.trainer.criterion)

    def steps(number: int) -> None:
        for _ in range(number):
            with span("data"):
                batch = next(batches)
            done = step(batch)
            with span("logging"):
                meter.add(done)
        wait()

    steps(WARM_UP)
    with running(Clock(wait)) as clock:
        began = time.perf_counter()
        steps(n)
        total = time.perf_counter() - began
    activities = [torch.profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    # As in training nothing waits for the device here.
    with torch.profiler.profile(activities=activities) as profiler, running(Clock(lambda: None)):
        steps(min(n, TRACED))
    if trace is not None:
        profiler.export_chrome_trace(trace)
    milliseconds = {part: 1000 * clock.seconds.get(part, 0.0) / n for part in PARTS}
    return {**milliseconds, "other": 1000 * total / n - sum(milliseconds.values())}


def table(milliseconds: dict[str, float]) -> str:
    """One line per part: milliseconds per step, and their share."""
    total = sum(milliseconds.values())
    lines = [f"{'part':>9}  {'ms':>9}  {'%':>5}"]
    for part, value in [*milliseconds.items(), ("step", total)]:
        lines.append(f"{part:>9}  {value:9.2f}  {100 * value / total:5.1f}")
    return "\n".join(lines)


def advice(opt, milliseconds: dict[str, float], device: torch.device) -> str:
    """The part that takes longest, and the first flag not yet given that would shorten it.

    Network and backward pass count as one part.
    """
    joined = {part: value for part, value in milliseconds.items() if part != "backward"}
    joined["network"] += milliseconds["backward"]
    longest = max(joined, key=joined.get)
    title = "network and backward" if longest == "network" else longest
    return f"most time: {title}. First: {remedy(opt, longest, device)}"


def remedy(opt, part: str, device: torch.device) -> str:
    """The first flag not yet given that would shorten a part."""
    cuda = device.type == "cuda"
    cpus = kernels(10**6)
    computes = [
        (cuda and opt.precision == "float32", "--precision bfloat16 computes in half precision"),
        (cuda and not opt.compile, "--compile joins its operations"),
        (cuda, "torchrun --nproc_per_node N divides each batch over N GPUs"),
        (not opt.freeze_backbone, "--freeze_backbone or --freeze_blocks N train less, and a GPU computes faster"),
        (True, "--feature_cache (with --augmentation none) computes a resting backbone once"),
    ]
    ways = {
        "data": [
            (opt.decode_once, "a lower --image_cache_side, or --image_cache on a faster disk or in memory"),
            (opt.kernels < cpus, f"--kernels {cpus} loads with every CPU of this machine"),
            (not opt.image_cache, "--image_cache DIR keeps decoded images"),
            (opt.augmentation in ("base", "adv", "big"), "--decode_once with it crops whole batches on the device"),
            (True, "a simpler --augmentation or a smaller --crop_size makes images faster"),
        ],
        "copy": [(True, "a smaller --crop_size or --bs copies less")],
        "network": computes,
        "miner": [(True, "another --batch_mining or a smaller --bs mines less")],
        "loss": [
            (
                opt.loss in criteria.divisible() and opt.sample_classes == 1,
                "--sample_classes .1 compares with a tenth of the classes, --shard_classes divides them under torchrun",
            ),
            (bool(opt.memory_size), f"a --memory_size below {opt.memory_size} compares less"),
            (True, "a smaller --bs compares less"),
        ],
        "optimiser": [(True, "--freeze_blocks N or --lora_rank R train fewer parameters")],
        "logging": [(True, "a larger --log_every records less")],
        "other": [
            (True, "a --data_sampler without a storage, no --ema_decay and no --subset_mining do less between steps")
        ],
    }
    return next(words for holds, words in ways[part] if holds)
