"""`--dry_run` and `--profile_steps`: some batches through everything, without a run folder."""

import math
from pathlib import Path

import torch

import trainers
from engine import profiling
from runs.folder import run_folder
from utilities.console import say
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import refuse_unwritable

# images of a batch in the picture of a dry run
MOST_IMAGES = 64


def try_out(opt, step, training, evaluated: dict) -> None:
    """What `--dry_run` or `--profile_steps` requests. A sampler with a memory chooses from random embeddings."""
    if getattr(step.sampler, "requires_storage", False):
        width = trainers.width(step.trainer.evaluated(), opt)
        step.sampler.load_state_dict({"storage": torch.randn(len(training.dataset), width)})
    step.start_epoch(1)
    if opt.profile_steps:
        profile(opt, step, training)
    else:
        dry_run(opt, step, training, evaluated)


def profile(opt, step, training) -> None:
    """Some steps, timed and in torch's profiler: the table is printed, the first process writes its trace."""
    refuse_unwritable(run_folder(opt))
    trace = path_of_file(opt, "trace.json")
    trace_file = str(trace) if step.runtime.ranks.writes else None
    milliseconds = profiling.profile(step, training, opt.profile_steps, trace_file)
    steps = f"{count_of(opt.profile_steps, 'step')} of {opt.bs} images on {step.runtime.device}"
    print(f"\n{steps}, mean of a step\n\n{profiling.table(milliseconds)}\n")
    say(f"{profiling.advice(opt, milliseconds, step.runtime.device)}\ntrace: {trace}; nothing else was written")


def dry_run(opt, step, training, evaluated: dict) -> None:
    """One batch through everything; only its picture is written."""
    batch = next(iter(training))
    loss = step.forward(batch)[2]
    if not math.isfinite(loss.item()):
        raise UserError(f"the first batch gives loss {loss.item()}: check the loss's own flags, --lr and --precision")
    images = step(batch).images
    text = f"dry run: one batch of {images} images gives loss {loss.item():.4f}"
    for loader in evaluated.values():
        next(iter(loader))
    refuse_unwritable(run_folder(opt))

    is_of_rows = torch.is_tensor(batch.images) and batch.images.ndim == 2
    if is_of_rows:
        say(f"{text}; nothing was written: rows of features have no picture")
        return

    def draw():
        return _picture(step.runtime.to_device(step.seen(batch).images[:MOST_IMAGES]), opt)

    picture = step.runtime.ranks.first(draw)
    say(f"{text}; only {picture} was written: the batch as the network sees it")


def path_of_file(opt, ending: str) -> Path:
    """The path `<savename>_<ending>` beside the future folder of the run; the folder that holds both is made."""
    folder = run_folder(opt) if opt.fold is None else run_folder(opt).parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.with_name(f"{folder.name}_{ending}")


def _picture(images: torch.Tensor, opt) -> Path:
    """Draw images `(N, 3, H, W)`, uint8 or float in [0, 1], to a file. Returns its path."""
    from torchvision.utils import save_image

    if not images.is_floating_point():
        images = images / 255
    path = path_of_file(opt, "batch.png")
    save_image(images, path)
    return path
