"""The console output of a run in training and at its end: progress, tables, interruptions, the next command.

The summary at its start: `runs.start_up`.
"""

import contextlib
import math
import shlex
import shutil
import sys

from tqdm import tqdm

import datasets
import metrics
from engine import profiling, ranks
from runs.folder import RunFolder, run_folder
from runs.names import plain
from utilities.console import aligned, joined, propose, say, without_flags
from utilities.counts import count_of
from utilities.errors import BrokenImage, UserError, terminable
from utilities.intervals import difference_interval
from utilities.programs import as_typed
from utilities.secrets import mask_words
from utilities.spans import moment, seconds_between

# lines of a printed table
MOST_LINES = 32
# Flags of the command line, no file has them, without which a command trains -> number of values.
TRYING = {"--dry_run": 0, "--profile_steps": 1, "--evaluate_only": 0}
ORDER = ("val", "test", "train")  # of splits in a printed table
SHOW_EVERY = 10  # steps between updates of the loss in the progress bar: each waits for the device


@contextlib.contextmanager
def interruptible(run):
    """On Ctrl-C or SIGTERM close the records, print how to go on, exit with 130.

    The last epoch's checkpoint is on disk already.
    """
    try:
        with terminable():
            yield
    except KeyboardInterrupt:
        run.close()
        # the epoch of the checkpoint: the run may be ahead of it
        epoch = RunFolder(run.folder).progress.epochs
        moment_of_end = " before the end of epoch 1"
        if epoch:
            moment_of_end = f": epochs 1 to {epoch} are saved"
        say(f"\ninterrupted{moment_of_end} in {run.folder}")
        folder = run.folder
        if run.opt.fold is not None:
            folder = run.folder.parent
        words = [*ranks.starter(), "main.py", "--resume_from", str(folder), *_code_words(run.opt)]
        print(as_typed(f"continue with: {run.opt.command or shlex.join(words)}"))
        sys.exit(130)
    except BaseException as error:
        # What ended the run is reported, not that its last records fail in the same way.
        with contextlib.suppress(UserError, OSError):
            run.close()
        is_untrained = run.epoch == 0 and not run.resumed and run.opt.fold is None
        if isinstance(error, BrokenImage) and is_untrained and run.writes:
            # the same command can then have the name again
            shutil.rmtree(run.folder, ignore_errors=True)
        raise


def progress(loader, epoch: int, opt, meter):
    """The loader's batches behind a progress bar with loss and images per second.

    After the first epoch a line reports whether the input or the network is slower.
    """
    images = []
    steps = []
    with tqdm(loader, desc=f"epoch {epoch}/{opt.n_epochs}", unit="batch", leave=False, disable=None) as bar:
        for step, batch in enumerate(bar):
            began = None
            # the first step is not timed: it loads what the others use
            if epoch == 1 and step:
                began = moment(meter.latest.device)
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
    """Images per second that the input can load and that the steps take, and which of the two is the bottleneck."""
    bottleneck = "the network is the bottleneck"
    if loaded < trained:
        bottleneck = f"the input is the bottleneck: {profiling.remedy(opt, 'data', device)}"
    return f"throughput per process: input {loaded:,.0f} images/s, network {trained:,.0f} images/s; {bottleneck}"


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
    length = f"{count_of(run.epoch, 'epoch')}, {run.state['seconds']:.0f} s"
    say(f"\n{run.folder}: {length}\nselected: {run.selection.rule}\n")
    print(table(columns, (run.selection.split, run.selection.metric)))
    for text in below_untrained(run):
        say(text)
    pictures = {"curves": run.folder / "Progression_Plots", "retrieval": run.folder / "sample_recoveries.png"}
    for title, path in pictures.items():
        if path.exists():
            print(f"{title:>10}  {path}")


def propose_next(opt, result) -> None:
    """Print the command to type after main.py. `result`: what it returned, a run, a cross-validation, or scores."""
    if opt.evaluate_only and datasets.is_test_only(opt):
        # there is nothing to train on
        return
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
    words = ["--plugins", *opt.plugins] if opt.plugins else []
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
    """How sure the difference of two values of a metric over the same queries is, as text."""
    if not queries:
        return "without an interval, as the queries of this split are not counted: compare several seeds"
    if not metrics.is_mean_of_queries(plain(metric)):
        return f"{queries:,} queries, and no interval, as the metric is not a mean over queries: compare several seeds"
    low, high = difference_interval(trained, before, queries)
    interval = f"difference {trained - before:+.4f}, 95 % interval {low:+.4f} to {high:+.4f} over {queries:,} queries"
    if low > 0 or high < 0:
        return interval
    return f"{interval}, which contains 0: too few queries to tell"


def table(columns: dict, first: tuple[str, str] | None = None) -> str:
    """Text table of `columns`: title -> {split: {metric: value}}, a line for each split and metric.

    The splits come in the order val, test, train, and within its split the metric of `first`, (split, metric), is on
    top. Of a table longer than a screen lines of train are left out, never one of val or test.
    """
    names = {}  # (split, metric), each once, in the order of the columns
    for scores in columns.values():
        for split, values in scores.items():
            names |= dict.fromkeys((split, metric) for metric in values)
    names = sorted(names, key=lambda name: (_place(name[0]), name != first))
    n_evaluated = sum(split in ORDER[:-1] for split, _ in names)
    printed_names = names[: max(MOST_LINES, n_evaluated)]
    rows = [["split", "metric", *columns]]
    for split, metric in printed_names:
        rows.append([split, metric, *(_cell(scores.get(split, {}).get(metric)) for scores in columns.values())])
    lines = aligned(rows, left_columns=(0, 1))
    if len(names) > len(printed_names):
        lines.append(f"{len(names) - len(printed_names)} more rows in the records of the run folder")
    return "\n".join(lines)


def _place(split: str) -> int:
    return ORDER.index(split) if split in ORDER else len(ORDER)


def _cell(value) -> str:
    """A number; `-` where nothing was measured, `NaN` where the metric is not defined."""
    if value is None or math.isinf(value):
        return "-"
    return "NaN" if math.isnan(value) else f"{value:.4f}"
