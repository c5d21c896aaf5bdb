"""The console output of a run: start-up summary, progress, the table at the end, interruptions."""

import contextlib
import math
import platform
import shlex
import shutil
import sys

import torch
from tqdm import tqdm

import criteria
import datasets
import metrics
import trainers
from architectures import _adaptation
from engine import profiling, ranks
from runs.folder import RunFolder, run_folder
from runs.idle import idle
from runs.names import plain
from utilities import provenance
from utilities.console import aligned, joined, propose, say, without_flags, wrapped
from utilities.counts import count_of
from utilities.errors import BrokenImage, UserError, terminable
from utilities.files import expanded, refuse_unwritable
from utilities.intervals import difference_interval
from utilities.processes import kernels
from utilities.secrets import mask_words
from utilities.spans import moment, seconds_between

MOST_LINES = 32  # of a printed table
# Flags of the command line, no file has them, without which a command trains -> number of values.
TRYING = {"--dry_run": 0, "--profile_steps": 1, "--evaluate_only": 0}
ORDER = ("val", "test", "train")  # of splits in a printed table
MOST_SHOWN = 64  # images of a batch in the picture of a dry run
SHOW_EVERY = 10  # steps between updates of the loss in the progress bar: each waits for the device


@contextlib.contextmanager
def interruptible(run):
    """On Ctrl-C or SIGTERM close the records, say how to go on, exit with 130: the last epoch's checkpoint is on disk
    already.
    """
    try:
        with terminable():
            yield
    except KeyboardInterrupt:
        run.close()
        epoch = RunFolder(run.folder).progress.epochs  # of the checkpoint: the run may be ahead of it
        saved = f": epochs 1 to {epoch} are saved" if epoch else " before the end of epoch 1"
        say(f"\ninterrupted{saved} in {run.folder}")
        folder = run.folder if run.opt.fold is None else run.folder.parent
        words = [*ranks.starter(), "main.py", "--resume_from", str(folder), *_code_words(run.opt)]
        print(f"continue with: {run.opt.command or shlex.join(words)}")
        sys.exit(130)
    except BaseException as error:
        with contextlib.suppress(
            UserError, OSError
        ):  # what ended the run is told, not that its last records fail likewise
            run.close()
        if (
            isinstance(error, BrokenImage)
            and run.writes
            and not run.resumed
            and run.epoch == 0
            and run.opt.fold is None
        ):
            shutil.rmtree(run.folder, ignore_errors=True)  # nothing is trained: the same command has the name again
        raise


def start_up(opt, runtime, data: str, trainer, optimizer, sampler, selection) -> None:
    """Print what is about to run: data, network, optimiser groups, trainer, criterion and miner, selection rule."""
    model = trainer.network
    criterion = trainer.criterion
    lines = [("device", runtime.description)]
    lines += [("data" if number == 0 else "", line.strip()) for number, line in enumerate(data.splitlines())]
    lines.append(("network", described_network(opt, trainer)))
    if getattr(model, "backbone_rests", False):
        start = ", at the random weights that it starts from" if model.weights_name == "random" else ""
        lines.append(("", f"--freeze_backbone: the backbone rests{start}; only what stands behind it is trained"))
    lines += [("", text) for text in partly(opt, model)]
    for group in optimizer.param_groups:
        description = f"{group.get('name', 'group')}, {_size(group['params']):,} parameters"
        lines.append(
            ("optimiser", f"{opt.optim}: {description}, rate {group['lr']:g}, decay {group['weight_decay']:g}")
        )
    miner = f" with miner {opt.batch_mining}" if getattr(criterion, "batchminer", None) is not None else ""
    lines.append(("criterion", f"{opt.loss}{miner}"))
    lines += [("trainer", opt.trainer)] if opt.trainer != "metric_only" else []
    lines += [
        ("beside it", f"{added.NAME}, {added.FLAG} {getattr(opt, added.FLAG[2:])}") for added in trainer.added_losses
    ]
    batches = opt.iterations_per_epoch or len(sampler)
    epochs = count_of(opt.n_epochs, "epoch")
    lines.append(("batches", f"{opt.bs} images by {opt.data_sampler}, {batches} per epoch, {epochs}"))
    lines += [("steps", text) for text in steps(opt)]
    published = datasets.evaluation_metrics(opt)
    if published is not None and list(published) == opt.evaluation_metrics:
        lines.append(("metrics", f"--evaluation_metrics: those published for {opt.dataset}: {' '.join(published)}"))
    lines.append(("selection", selection.rule))
    if criteria.only_miner(opt) is not None and opt.set_by.get("batch_mining") == "derived":
        lines.append(("note", f"--batch_mining {opt.batch_mining}, the only miner that --loss {opt.loss} takes"))
    lines += [("note", text) for text in idle(opt)]
    if kernels(opt.kernels) < opt.kernels:
        lines.append(("kernels", f"--kernels {opt.kernels} is capped at this machine's {kernels(opt.kernels)} CPUs"))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(wrapped(f"{name:>{width}}  {text}", indent=width + 2))
    sys.stdout.flush()


def described_network(opt, trainer) -> str:
    """The network's name, parameters (without those the trainer leaves out), weights and width of the embedding."""
    model = trainer.network
    heads = getattr(trainer, "evaluated_heads", None)
    size = _size(model.parameters())
    embedding = opt.embed_dim or "as the features"
    if getattr(model, "leaves_out_embedding", False):
        size -= sum(_size(module.parameters()) for module in model.embedding_layers.values())
    if getattr(heads, "CHANGES_MAIN", False):
        embedding = heads.embed_dim
    weights = getattr(model, "weights_name", "unknown")
    return f"{opt.arch}, {size / 1e6:.2f} M parameters, weights: {weights}, embedding {embedding}"


def partly(opt, model) -> list[str]:
    """How many parameters train where a part of the backbone is frozen, in words."""
    by = " ".join(_adaptation.tuned(opt)) or (
        f"--freeze_blocks {opt.freeze_blocks}" if opt.freeze_blocks is not None else ""
    )
    if not by:
        return []
    total = _size(model.parameters())
    rests = _size(model.resting_parameters())
    return [f"{by}: {total - rests:,} of {total:,} parameters train, {(total - rests) / total:.2%}; the others rest"]


def _size(parameters) -> int:
    return sum(p.numel() for p in parameters)


def steps(opt) -> list[str]:
    """The changes that flags make to a step or to the evaluated network, in words."""
    texts = {
        "chunk_size": f"in chunks of {opt.chunk_size} images" if opt.chunk_size < opt.bs * opt.views else "",
        "warmup_epochs": f"rates rise linearly, step by step, over {count_of(opt.warmup_epochs or 0, 'epoch')} to "
        f"those of --scheduler {opt.scheduler}",
        "warmup_steps": f"rates rise linearly over {count_of(opt.warmup_steps or 0, 'step')} to those of --scheduler "
        f"{opt.scheduler}",
        "freeze_backbone_steps": f"the backbone rests for {count_of(opt.freeze_backbone_steps or 0, 'step')}, its "
        "BatchNorm statistics too",
        "warmup_head_epochs": f"the backbone rests for {count_of(opt.warmup_head_epochs or 0, 'epoch')}, its BatchNorm "
        "statistics too",
        "ema_decay": f"evaluated is a moving average of the weights and of BatchNorm's statistics, decay {opt.ema_decay}",
    }
    texts |= {name: f"--{name}" for name in ("channels_last", "compile", "tf32", "grad_checkpointing")}
    return [text for name, text in texts.items() if text and getattr(opt, name)]


def _vectors_hash(opt) -> dict:
    if not opt.language_vectors:
        return {}
    return {"language_vectors_sha256": provenance.sha256(expanded(opt.language_vectors))}


def environment(runtime, data: dict, model, opt) -> dict:
    """The content of environment.yaml: software, hardware, code, weights, transforms and counts as resolved."""
    return {
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "device": str(runtime.device),
        "gpu": torch.cuda.get_device_name(runtime.device) if runtime.device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        **({"processes": runtime.ranks.size} if runtime.ranks.size > 1 else {}),
        "weights": getattr(model, "weights_name", None),
        **(
            {"dimensions": model.embed_dim}
            if isinstance(getattr(model, "last_linear", None), torch.nn.Identity)
            else {}
        ),  # --embed_dim 0
        **({"data_config": model.data_config} if hasattr(model, "data_config") else {}),
        **provenance.describe(getattr(model, "weights_file", None)),
        **_vectors_hash(opt),
        **({"code_files": opt.code_files()} if opt.code_files() else {}),
        "data": data,
    }


def progress(loader, epoch: int, opt, meter):
    """The loader's batches behind a progress bar with loss and images per second; after the first epoch a line on who
    is the brake.
    """
    images = []
    steps = []
    with tqdm(loader, desc=f"epoch {epoch}/{opt.n_epochs}", unit="batch", leave=False, disable=None) as bar:
        for step, batch in enumerate(bar):
            began = (
                moment(meter.latest.device) if epoch == 1 and step else None
            )  # the first step loads what the others use
            yield batch
            images.append(len(batch.labels))
            if began is not None:
                steps.append((began, moment(meter.latest.device)))
            if not bar.disable and step % SHOW_EVERY == 0:
                bar.set_postfix(loss=f"{meter.latest.item():.4f}", img_s=f"{meter.images_per_second:.0f}")
    if steps:
        say(pace(sum(images) / loader.seconds, sum(images[1:]) / seconds_between(steps), opt, meter.latest.device))


def epoch_line(run, epoch: int, means: dict, scores: dict) -> None:
    """One line an epoch: loss, time, and the storage metrics of every split."""
    parts = [f"epoch {epoch}/{run.opt.n_epochs}", f"loss {means['loss']:.4f}", f"{means['epoch_seconds']:.1f} s"]
    for split, values in scores.items():
        for metric in run.opt.storage_metrics:
            parts += [f"{split} {name} {value:.4f}" for name, value in values.items() if plain(name) == metric]
    if run.state["selected"]["epoch"] == epoch:
        parts.append("best so far")
    print(joined(parts), flush=True)


def pace(loaded: float, trained: float, opt, device) -> str:
    """Images a second that the input can load and that the steps take, and which of the two is the brake."""
    brake = (
        f"the input is the brake: {profiling.remedy(opt, 'data', device)}"
        if loaded < trained
        else "the network is the brake"
    )
    return f"images a second a process: the input {loaded:,.0f}, the network {trained:,.0f}: {brake}"


def tried(opt, step, training, evaluated: dict) -> None:
    """What `--dry_run` or `--profile_steps` asks for. A sampler with a memory chooses from random embeddings."""
    if getattr(step.sampler, "requires_storage", False):
        width = trainers.width(step.trainer.evaluated(), opt)
        step.sampler.load_state_dict({"storage": torch.randn(len(training.dataset), width)})
    step.start_epoch(1)
    (profiled if opt.profile_steps else dry_run)(opt, step, training, evaluated)


def profiled(opt, step, training, evaluated: dict) -> None:
    """Some steps, timed and in torch's profiler: the table is printed, the first process writes its trace."""
    refuse_unwritable(run_folder(opt))
    trace = beside(opt, "trace.json")
    milliseconds = profiling.profile(
        step, training, opt.profile_steps, str(trace) if step.runtime.ranks.writes else None
    )
    print(
        f"\n{count_of(opt.profile_steps, 'step')} of {opt.bs} images on {step.runtime.device}, mean of a "
        f"step\n\n{profiling.table(milliseconds)}\n"
    )
    say(f"{profiling.advice(opt, milliseconds, step.runtime.device)}\ntrace: {trace}; nothing else was written")


def beside(opt, ending: str):
    """The path `<savename>_<ending>` beside the run's folder to be, in a folder that is there."""
    folder = run_folder(opt) if opt.fold is None else run_folder(opt).parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.with_name(f"{folder.name}_{ending}")


def dry_run(opt, step, training, evaluated: dict) -> None:
    """One batch through everything; all that is written is its picture."""
    batch = next(iter(training))
    loss = step.forward(batch)[2]
    if not math.isfinite(loss.item()):
        raise UserError(f"the first batch gives loss {loss.item()}: check the loss's own flags, --lr and --precision")
    images = step(batch).images
    for loader in evaluated.values():
        next(iter(loader))
    refuse_unwritable(run_folder(opt))
    picture = step.runtime.ranks.first(
        lambda: _picture(step.runtime.to_device(step.seen(batch).images[:MOST_SHOWN]), opt)
    )
    say(
        f"dry run: one batch of {images} images gives loss {loss.item():.4f}; nothing was written but {picture}, its "
        "images for the network"
    )


def _picture(images: torch.Tensor, opt):
    """Draw images `(N, 3, H, W)`, uint8 or float in [0, 1], to a file beside the run's folder to be. Returns its
    path.
    """
    from torchvision.utils import save_image

    path = beside(opt, "batch.png")
    save_image(images if images.is_floating_point() else images / 255, path)
    return path


def finish(run) -> None:
    """Close the records, print the table of metrics before and after training and the paths of pictures."""
    run.hand_over()
    run.close()
    columns = {"bare backbone": run.untrained(-1), "untrained": run.untrained(0)}
    selected = run.state["selected"]
    if selected["epoch"] is not None:
        columns[f"epoch {selected['epoch']} (selected)"] = selected["values"]
    columns[f"epoch {run.epoch} (last)"] = run.state["last"] if run.epoch else {}
    columns = {title: values for title, values in columns.items() if values}
    say(
        f"\n{run.folder}: {count_of(run.epoch, 'epoch')}, {run.state['seconds']:.0f} s\nselected: "
        f"{run.selection.rule}\n"
    )
    print(table(columns, (run.selection.split, run.selection.metric)))
    for text in below_untrained(run):
        say(text)
    for title, path in (
        ("curves", run.folder / "Progression_Plots"),
        ("retrieval", run.folder / "sample_recoveries.png"),
    ):
        if path.exists():
            print(f"{title:>10}  {path}")


def propose_next(opt, result) -> None:
    """Print the command to type after main.py. `result`: what it returned, a run, a cross-validation, or scores."""
    if any(getattr(opt, flag.removeprefix("--")) for flag in TRYING):
        words = mask_words(sys.argv[1:], {f"--{name}" for name in opt.roles.having(secret=True)})
        propose(*ranks.starter(), "main.py", *without_flags(words, TRYING))
    elif getattr(result, "complete", True):
        folder = getattr(result, "folder", None) or run_folder(opt)
        propose("python", "Result_Evaluations.py", "--runs", folder.parent)
    else:
        propose("python", "main.py", "--resume_from", result.folder, *_code_words(opt))


def _code_words(opt) -> list[str]:
    """The flags of files of code, with their values: a run that goes on executes only what its command line names."""
    words = []
    for name in sorted(opt.roles.having(code=True)):
        if getattr(opt, name) is not None:
            words += [f"--{name}", getattr(opt, name)]
    return words


def finish_folds(cross) -> None:
    """Print the table of a cross-validation's results and their folder, or that folds are missing."""
    if cross.results:
        print(f"\n{cross.meta.path}: results over the folds\n\n{table(cross.meta.columns())}")
    else:
        say(
            f"\n{cross.folder}: not all of {cross.n_folds} folds are finished; meta results come after the last, or by "
            "--aggregate_only"
        )


def below_untrained(run) -> list[str]:
    """A line for each untrained state that is better than the selected epoch by the metric that selects."""
    split = run.selection.split
    metric = run.selection.metric
    trained = run.state["selected"]["values"].get(split, {}).get(metric)
    sign = 1 if run.selection.higher_is_better(metric) else -1
    notes = []
    for epoch, name in ((-1, "the bare backbone"), (0, "the untrained network")):
        before = run.untrained(epoch).get(split, {}).get(metric)
        if None not in (trained, before) and sign * trained < sign * before:
            values = f"{metric} on {split} is {trained:.4f}, of {name} {before:.4f}"
            sureness = evidence(metric, trained, before, run.queries.get(split, 0))
            notes.append(f"training did not help: {values}; {sureness}")
    return notes


def evidence(metric: str, trained: float, before: float, queries: int) -> str:
    """How sure the difference of two values of a metric over the same queries is, in words."""
    if not queries:
        return "without an interval, as the queries of this split are not counted: compare several seeds"
    if not metrics.is_mean_of_queries(plain(metric)):
        return f"{queries:,} queries, and no interval, as the metric is not a mean over queries: compare several seeds"
    low, high = difference_interval(trained, before, queries)
    interval = f"difference {trained - before:+.4f}, 95 % interval {low:+.4f} to {high:+.4f} over {queries:,} queries"
    return interval if low > 0 or high < 0 else f"{interval}, which contains 0: too few queries to tell"


def table(columns: dict, first: tuple[str, str] | None = None) -> str:
    """Text table of `columns`: title -> {split: {metric: value}}, a line for each split and metric.

    The splits come in the order val, test, train, and within its split the metric of `first`, (split, metric), is on
    top. Of a table longer than a screen lines of train are left out, never one of val or test.
    """
    lines = list(
        dict.fromkeys((split, metric) for values in columns.values() for split in values for metric in values[split])
    )
    lines.sort(key=lambda line: (_place(line[0]), line != first))  # stable
    evaluated = sum(split in ORDER[:-1] for split, _ in lines)
    printed_lines = lines[: max(MOST_LINES, evaluated)]
    rows = [["split", "metric", *columns]]
    for split, metric in printed_lines:
        rows.append([split, metric, *(_cell(values.get(split, {}).get(metric)) for values in columns.values())])
    n_omitted = len(lines) - len(printed_lines)
    return "\n".join(aligned(rows, left=(0, 1)) + ([f"and {n_omitted} more, in the records"] if n_omitted else []))


def _place(split: str) -> int:
    return ORDER.index(split) if split in ORDER else len(ORDER)


def _cell(value) -> str:
    """A number; `-` where nothing was measured, `NaN` where the metric is not defined."""
    if value is None or math.isinf(value):
        return "-"
    return "NaN" if math.isnan(value) else f"{value:.4f}"
