"""A run on disk: its folder, records, checkpoints, best epoch so far, and how it is resumed."""

import contextlib
import math
import time
from pathlib import Path

from engine.collapse import Watch
from engine.meter import BatchLog
from engine.optimisers import change_of_length, fitting, keeping_rates
from runs import checkpoint, records
from runs.changes import (
    ENVIRONMENT,
    changes_of_data,
    record_changes,
    record_changes_of_data,
    record_changes_of_environment,
    refuse_changed_code,
    write_plan,
)
from runs.folder import (
    INFO,
    PARAMETERS,
    SUMMARY,
    RunFolder,
    describe,
    is_finished,
    out_of_patience,
    run_folder,
    was_stopped,
)
from runs.names import mean_of, named, plain, split_name
from runs.records.damaged import as_file
from runs.records.local import BatchFile, LongFile, read_rows
from utilities.console import say
from utilities.errors import UserError
from utilities.files import link, new_folder, write_json, write_yaml
from utilities.locks import Lock
from utilities.splits import DATA_SETS

# an epoch before the first, which is -1
BEFORE_ALL = -2


class Selection:
    """How the best epoch is chosen: by the first of `--storage_metrics` on `split`.

    metric_direction: plain name of a metric -> whether higher is better.
    """

    def __init__(self, opt, metric_direction, split: str):
        self._direction = metric_direction
        self.split = split
        self.metric = named(opt.evaltypes[0], opt.storage_metrics[0], opt.evaltypes)

    def higher_is_better(self, metric: str) -> bool:
        """Direction of a metric by its name in files."""
        return self._direction(plain(metric))

    def value(self, scores: dict) -> float:
        """The deciding value of an epoch's scores."""
        return scores[self.split][self.metric]

    @property
    def rule(self) -> str:
        """Description of the rule."""
        direction = "highest" if self.higher_is_better(self.metric) else "lowest"
        rule = f"epoch with the {direction} {self.metric} on {self.split}"
        if self.split == "val":
            return rule
        return f"{rule} (no validation data, so the epoch is selected on the test set)"


class Run:
    """One training run.

    Args:
        opt: the resolved flags.
        parts: name -> object with `state_dict` and `load_state_dict`, for the checkpoint. `model` is the bare network;
        `optimizer` and `scheduler` take their rates from the flags on resume.
    """

    # False: of a process that follows another, see `runs.follow`
    writes = True

    def __init__(self, opt, parts: dict, selection: Selection):
        self.opt = opt
        self.parts = parts
        self.selection = selection
        named_folder = run_folder(opt)
        # Also a run that was killed before it wrote anything is resumed.
        self.resumed = opt.resume is not None and named_folder.is_dir()
        if opt.resume is not None and not self.resumed:
            say(f"there is no run in {named_folder} yet: this is a new one")
        self.folder = named_folder if self.resumed else new_folder(named_folder, numbered=opt.fold is None)
        # the folder may have got a number
        if opt.fold is None and not self.resumed:
            self.opt = opt.but(savename=str(Path(opt.savename).with_name(self.folder.name)))
        self.begin()
        log_every = 0 if opt.no_records else opt.log_every
        self.batches = BatchLog(log_every, parts["optimizer"], self._write_batches)

    def begin(self) -> None:
        """Set the state of a run that has trained nothing yet."""
        # trained epochs
        self.epoch = 0
        self.stop_requested = False
        self.state = {
            "best": {},
            "selected": {"epoch": None, "values": {}},
            "last": {},
            "seconds": 0.0,
            "untrained": {},
            "stopped": False,
            "warnings": [],
            "collapse": {},
        }
        self._began = time.monotonic()
        self.sinks = []
        # split -> description of its queries and gallery, where it has such roles
        self.roles = {}
        # split -> number of its queries, of val and test
        self.queries = {}

    def start(self, environment: dict) -> None:
        """Describe the run on disk, or restore it; open the records.

        Raises UserError if the folder is in use or the checkpoint does not fit.
        """
        self._take_folder()
        data = environment.get("data") or {}
        self.roles = dict(data.get("roles") or {})
        counts = data.get("counts") or {}
        self.queries = {}
        for split in ("val", "test"):
            if DATA_SETS[split] in counts:
                self.queries[split] = _queries(counts[DATA_SETS[split]])
        changes = []
        if self.resumed:
            changes = changes_of_data(self.folder, data, self.opt)
            refuse_changed_code(self.folder, environment, self.opt)
        last = self.folder / checkpoint.LAST
        has_checkpoint = last.exists()
        if has_checkpoint:
            path = last if self.opt.resume == "latest" else self._best_checkpoint()
            self._restore(path)
        # After `_restore`: flags that do not fit the checkpoint change nothing.
        note = self._describe()
        if has_checkpoint:
            # the run may have ended between its last checkpoint and its last summary
            self._summarise()
            say(f"resumed {self.folder} after epoch {self.epoch}")
            if note is not None:
                say(f"note  {note}")
        elif self.resumed:
            say(f"resumed {self.folder}: it has no checkpoint yet and starts from epoch 1")
        self._record_environment(environment, changes)
        last_epoch = self.epoch if has_checkpoint else BEFORE_ALL
        self._open_records(last_epoch)

    def _take_folder(self) -> None:
        """Lock the folder, and remove or set aside what a run that was killed left in it."""
        self._lock = Lock(as_file(self.folder / ".lock"))
        if not self._lock.acquire(wait=False):
            raise UserError(f"another process trains in {self.folder}: wait for it, or choose another --savename")
        if self.writes:
            for partial_file in self.folder.glob(".checkpoint_*.tmp"):
                partial_file.unlink(missing_ok=True)
        for name in (SUMMARY, ENVIRONMENT, INFO):
            as_file(self.folder / name)

    def _describe(self) -> str | None:
        """Write the flags, and what differs from those of before. Returns a note on what another length changes."""
        planned = None
        if self.resumed and (self.folder / PARAMETERS).exists():
            planned = RunFolder(self.folder).flags.get("n_epochs")
        record_changes(self.folder, [self.epoch], self.opt)
        if self.opt.fold is None:
            # before the flags: who finds these finds the stages that follow
            write_plan(self.folder, self.opt)
        describe(self.folder, self.opt)
        return None if planned is None else change_of_length(self.opt, planned, self.epoch)

    def _record_environment(self, environment: dict, changes: list[str]) -> None:
        """Write environment.yaml of a new run; of one that goes on add to it what changed, `changes` of the data."""
        goes_on = not self.finished or self.lacks_final_test
        if not (self.folder / ENVIRONMENT).exists():
            write_yaml(self.folder / ENVIRONMENT, environment, sort_keys=False)
        elif goes_on:
            record_changes_of_environment(self.folder, environment, self.epoch)
        if changes and goes_on:
            record_changes_of_data(self.folder, changes, self.epoch, environment["data"])

    def _open_records(self, last_epoch: int) -> None:
        """Open the records; of a resumed run drop the rows after `last_epoch`, and add those that a record lacks."""
        self.sinks = records.open_sinks(self.opt, self.folder)
        if not self.resumed:
            return
        for sink in self.sinks:
            sink.cut(last_epoch, self.batches.steps, tested=not self.lacks_final_test)
        rows, batches = self._recorded()
        for sink in self.sinks:
            sink.fill(rows, batches)

    def _restore(self, path: Path) -> None:
        """Load; with `--resume best`, delete later checkpoints."""
        content = checkpoint.with_or_without_average(checkpoint.read(path), self.parts)
        if "optimizer" in content:
            content["optimizer"] = fitting(content["optimizer"], self.parts["optimizer"])
        # the scaler's state in a checkpoint of a run without float16 is empty
        if content.get("scaler") == {} and "scaler" in self.parts:
            content["scaler"] = self.parts["scaler"].state_dict()
        if "num_bad_epochs" in content.get("scheduler", {}):
            # plateau counts evaluations; another schedule goes by epochs
            content["scheduler"] = self.parts["scheduler"].after(content["scheduler"], content["epoch"])
        with keeping_rates(self.parts["optimizer"], self.parts["scheduler"]):
            checkpoint.restore(path, content, self.parts)
        self.epoch = content["epoch"]
        self.state = content["run"]
        # older checkpoints have no warnings
        self.state.setdefault("warnings", [])
        self.state.setdefault("collapse", {})
        self.state["stopped"] = was_stopped(content, self.opt.patience)
        # older checkpoints do not have the number of steps
        self.batches.steps = self.state.get("steps", 0)
        if not self.finished and "test" not in self.opt.splits_to_eval:
            # That of a shorter run's `--final_test`: another epoch may be selected yet.
            self.state["selected"]["values"].pop("test", None)
        if self.opt.resume == "best":
            self._drop_later_checkpoints(path)

    def _drop_later_checkpoints(self, path: Path) -> None:
        """Make the checkpoint `path` the last one, and delete those of later epochs."""
        if self.writes:
            # The link comes first: a run killed during the deletion must still have its last checkpoint.
            link(path, self.folder / checkpoint.LAST)
        for later in self.folder.glob("checkpoint_*.pth.tar"):
            # a damaged checkpoint stays: nothing reads it
            with contextlib.suppress(UserError):
                if checkpoint.read(later, lazily=True)["epoch"] > self.epoch:
                    later.unlink()

    @property
    def finished(self) -> bool:
        """All epochs are trained, or those of this stage of a reproduction, or patience ran out."""
        return is_finished(self.epoch, self.opt.last_epoch, self.state["stopped"])

    def epochs(self):
        """The numbers of the epochs still to train."""
        while not self.finished and not self.stop_requested:
            yield self.epoch + 1

    def stop(self) -> None:
        """End after the current epoch, as a callback may ask. The run is unfinished, and can be resumed."""
        self.stop_requested = True

    def untrained_epochs(self):
        """(epoch, bare) of the untrained states that are still to be evaluated: -1 the bare backbone, 0 the network.

        Both by `--check_untrained_accuracy`;
        the latter for a run that trains nothing and writes embeddings or its queries' results.
        """
        opt = self.opt
        if self.epoch > 0:
            return
        writes_untrained = opt.n_epochs == 0 and (opt.dump_embeddings or opt.dump_query_results)
        if opt.check_untrained_accuracy and "-1" not in self.state["untrained"]:
            yield -1, True
        if (opt.check_untrained_accuracy or writes_untrained) and "0" not in self.state["untrained"]:
            yield 0, False

    def untrained(self, epoch: int) -> dict:
        """split -> {metric: value} of an untrained state, empty where it was not evaluated."""
        return self.state["untrained"].get(str(epoch), {})

    def record_untrained(self, epoch: int, scores: dict) -> None:
        """Record an untrained state; it is never eligible as best."""
        self._write(self._metric_rows(epoch, scores))
        self._count_seconds()
        self.state["untrained"][str(epoch)] = _numbers(scores)
        self.state["last"] = _numbers(scores)
        if epoch == 0:
            self._save(checkpoint.LAST)
        self._summarise()

    def end_epoch(self, epoch: int, training: dict, scores: dict, draw=lambda: None) -> None:
        """Record an epoch, keep its checkpoints.

        Args:
            training: name -> epoch mean of loss, statistics, rates.
            scores: split -> {metric: value or array}; empty where this epoch was not evaluated.
            draw: called for a new best epoch, before the last checkpoint is saved:
            a run that is killed meanwhile draws again.
        """
        self.batches.flush()
        self.state["steps"] = self.batches.steps
        rows = [self._row(epoch, "train", name, value) for name, value in training.items()]
        self._write(rows + self._metric_rows(epoch, scores))
        self._write_arrays(epoch, scores)
        self.epoch = epoch
        self._warn(training)
        improved = self._update_best(epoch, scores)
        self._count_seconds()
        if scores:
            self.state["last"] = _numbers(scores)
            self._end_without_patience(epoch)
        self._save_best(improved)
        if (self.selection.split, self.selection.metric) in improved:
            try:
                draw()
            except Exception as error:
                # a picture never stops a run
                say(f"the pictures or files of epoch {epoch} failed ({type(error).__name__}: {error}); the run goes on")
        self._summarise()
        # The checkpoint comes last: where it has all epochs, the summary has them too.
        self._save(checkpoint.LAST)
        for callback in self.opt.callbacks:
            callback.on_epoch_end(self, epoch, scores)

    def _warn(self, training: dict) -> None:
        """Name a collapse that begins in this epoch, on the console and in the summary. `training`: epoch means."""
        lines = Watch(self.opt.loss, self.state["collapse"]).warnings(self.epoch, training)
        self.state["warnings"] += [line.removeprefix("WARNING: ") for line in lines]
        if self.writes:
            for line in lines:
                say(line)

    def _end_without_patience(self, epoch: int) -> None:
        """Stop where `--patience` ran out."""
        best = self.state["selected"]["epoch"]
        if out_of_patience(epoch, best, self.opt.patience):
            self.state["stopped"] = True
            criterion = f"{self.selection.metric} on {self.selection.split}"
            since = f"no better {criterion} since epoch {best}" if best is not None else f"{criterion} was never finite"
            say(f"--patience {self.opt.patience}: {since}: done")

    def _count_seconds(self) -> None:
        """Add what has passed since the last time to the run's seconds."""
        time_now = time.monotonic()
        self.state["seconds"] += time_now - self._began
        self._began = time_now

    @property
    def lacks_final_test(self) -> bool:
        """Whether `--final_test` is still to be done: the selected epoch was not evaluated on test."""
        selected = self.state["selected"]
        return (
            self.opt.final_test
            and self.opt.until is None
            and selected["epoch"] is not None
            and "test" not in selected["values"]
        )

    def record_final(self, scores: dict) -> None:
        """Record the scores of the selected epoch's checkpoint on splits that were not evaluated in training."""
        selected = self.state["selected"]
        rows = self._metric_rows(selected["epoch"], scores)
        # after all rows so far: W&B drops earlier steps
        step = self.batches.steps + self.epoch - selected["epoch"] + 1
        self._write([row._replace(step=step) for row in rows])
        self._write_arrays(selected["epoch"], scores)
        selected["values"] = {**selected["values"], **_numbers(scores)}
        self._count_seconds()
        self._summarise()
        self._save(checkpoint.LAST)

    def _best_checkpoint(self) -> Path:
        return self.folder / _checkpoint(self.selection.split, self.opt.evaltypes[0], self.opt.storage_metrics[0])

    def add_picture(self, path: Path) -> None:
        """Hand a picture to every sink."""
        for sink in self.sinks:
            sink.picture(self.epoch, path.stem, path)

    def hand_over(self) -> None:
        """With `--log_artifacts`, hand every sink the selected checkpoint and the other files that `load_run` needs."""
        selected = self.state["selected"]
        if not self.opt.log_artifacts or selected["epoch"] is None:
            return
        best = self._best_checkpoint()
        files = {name: self.folder / name for name in (PARAMETERS, ENVIRONMENT, SUMMARY, best.name)}
        files[checkpoint.LAST] = best
        description = {"rule": self.selection.rule, "epoch": selected["epoch"], "values": selected["values"]}
        for sink in self.sinks:
            sink.best(description, files)

    def close(self) -> None:
        """Finish the records: all of them, also where one fails."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._lock.release)
            for sink in self.sinks:
                closing.callback(sink.close)
            self.batches.flush()
        self.sinks = []

    def _write(self, rows: list) -> None:
        for sink in self.sinks:
            sink.write(rows)

    def _write_arrays(self, epoch: int, scores: dict) -> None:
        for split, values in scores.items():
            arrays = {name: value for name, value in values.items() if not _is_scalar(value)}
            for sink in self.sinks:
                sink.arrays(epoch, split, arrays)

    def _write_batches(self, batches: list[tuple[int, dict]]) -> None:
        rows = []
        for step, values in batches:
            rows += [records.BatchRow(self.epoch + 1, step, name, value) for name, value in values.items()]
        for sink in self.sinks:
            sink.write_batches(rows)

    def _row(self, epoch: int, split: str, name: str, value: float) -> records.Row:
        return records.named_row(epoch, split, name, value, self.batches.steps, self.opt.evaltypes)

    def _recorded(self) -> tuple[list, list]:
        """All rows so far, of epochs and of batches, as the CSV files have them."""
        logs = self.folder / "CSV_Logs"
        rows = [
            self._row(int(r["epoch"]), r["split"], r["metric"], float(r["value"]))
            for r in read_rows(logs / LongFile.NAME)
        ]
        batches = [
            records.BatchRow(int(r["epoch"]), int(r["step"]), r["name"], float(r["value"]))
            for r in read_rows(logs / BatchFile.NAME)
        ]
        return rows, batches

    def _metric_rows(self, epoch: int, scores: dict) -> list:
        rows = []
        for split, values in _numbers(scores).items():
            rows += [self._row(epoch, split, name, value) for name, value in values.items()]
        return rows

    def _update_best(self, epoch: int, scores: dict) -> list[tuple[str, str]]:
        improved = []
        for split, values in scores.items():
            best = self.state["best"].setdefault(split, {})
            for name, value in values.items():
                if not _is_scalar(value) or not math.isfinite(value):
                    continue
                sign = 1 if self.selection.higher_is_better(name) else -1
                if name not in best or sign * value > sign * best[name]["value"]:
                    best[name] = {"value": float(value), "epoch": epoch}
                    improved.append((split, name))
        if (self.selection.split, self.selection.metric) in improved:
            self.state["selected"] = {
                "epoch": epoch,
                "values": _numbers(scores),
                "checkpoint": self._best_checkpoint().name,
            }
        return improved

    def _save(self, name: str, parts: dict | None = None) -> None:
        # The number of classes serves to build the trainer's heads again.
        checkpoint.save(
            self.folder / name, parts or self.parts, epoch=self.epoch, run=self.state, n_classes=self.opt.n_classes
        )

    def _save_best(self, improved: list[tuple[str, str]]) -> None:
        """Keep the epoch for each of `--storage_metrics` that it is the best in.

        The checkpoint of the selected epoch is whole: a run can go on from it. The others hold what evaluation needs,
        in one file of several names.
        """
        names = []
        for split, metric in improved:
            prefix, metric_name = split_name(metric)
            # A domain's value, whose mean is measured too, is not kept by itself.
            if metric_name in self.opt.storage_metrics and mean_of(metric) not in self.state["best"][split]:
                evaltype = prefix.replace("/", "_") or self.opt.evaltypes[0]
                names.append(_checkpoint(split, evaltype, metric_name))
        best_name = self._best_checkpoint().name
        if best_name in names:
            self._save(best_name)
        other_names = [name for name in names if name != best_name]
        if not other_names:
            return
        first_name, *linked_names = other_names
        self._save(first_name, {name: part for name, part in self.parts.items() if name in checkpoint.EVALUATED})
        if self.writes:
            for name in linked_names:
                link(self.folder / first_name, self.folder / name)

    def _summarise(self) -> None:
        selected = {
            "rule": self.selection.rule,
            "epoch": self.state["selected"]["epoch"],
            "values": self.state["selected"]["values"],
        }
        summary = {
            "parameters": self.opt.saved(),
            "selected": selected,
            "best": self.state["best"],
            "last": self.state["last"],
            "seconds": round(self.state["seconds"], 3),
            "warnings": self.state["warnings"],
        }
        if self.roles:
            summary["roles"] = self.roles
        write_json(self.folder / SUMMARY, summary)
        if selected["epoch"] is not None:
            for sink in self.sinks:
                sink.selected(**selected)


def _checkpoint(split: str, evaltype: str, metric: str) -> str:
    return f"checkpoint_{records.SPLIT_TITLES[split]}_{evaltype}_{metric}.pth.tar"


def _queries(counts: dict) -> int:
    """The number of queries of a split with these counts: its images, unless some are gallery alone."""
    return counts.get("query_images", counts.get("images", 0))


def _is_scalar(value) -> bool:
    return getattr(value, "ndim", 0) == 0


def _numbers(scores: dict) -> dict:
    """split -> {metric: number}, without the values that are arrays."""
    numbers = {}
    for split, values in scores.items():
        numbers[split] = {name: float(value) for name, value in values.items() if _is_scalar(value)}
    return numbers
