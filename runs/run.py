"""A run on disk: its folder, records, checkpoints, best epoch so far, and how it is resumed."""

import contextlib
import math
import time
from pathlib import Path

from engine.meter import BatchLog
from engine.optimisers import change_of_length, fitting, keeping_rates
from runs import checkpoint, records
from runs.changes import (
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
from runs.names import apart, mean_of, named, plain
from runs.records.damaged import as_file
from runs.records.local import BatchFile, LongFile, read_rows
from utilities.console import say
from utilities.errors import UserError
from utilities.files import link, new_folder, write_json, write_yaml
from utilities.locks import Lock

BEFORE_ALL = -2  # an epoch before the first, which is -1
DATA_SETS = {"val": "validation", "test": "testing"}  # split -> its name in environment.yaml


class Selection:
    """How the best epoch is chosen: by the first of `--storage_metrics` on `split`. `metric_direction`: plain name ->
    is higher better?
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
        """The rule in words."""
        direction = "highest" if self.higher_is_better(self.metric) else "lowest"
        note = "" if self.split == "val" else " (no validation data: the choice sees the test set)"
        return f"epoch with the {direction} {self.metric} on {self.split}{note}"


class Run:
    """One training run.

    Args:
        opt: the resolved flags.
        parts: name -> object with `state_dict` and `load_state_dict`, for the checkpoint. `model` is the bare network;
        `optimizer` and
            `scheduler` take their rates from the flags on resume.
    """

    writes = True  # False: of a process that follows another, see `runs.follow`

    def __init__(self, opt, parts: dict, selection: Selection):
        self.opt = opt
        self.parts = parts
        self.selection = selection
        wanted = run_folder(opt)
        self.resumed = opt.resume is not None and wanted.is_dir()  # also one that was killed before it wrote anything
        if opt.resume is not None and not self.resumed:
            say(f"there is no run in {wanted} yet: this is a new one")
        self.folder = wanted if self.resumed else new_folder(wanted, numbered=opt.fold is None)
        if opt.fold is None and not self.resumed:  # the folder may have got a number
            self.opt = opt.but(savename=str(Path(opt.savename).with_name(self.folder.name)))
        self.begin()
        self.batches = BatchLog(0 if opt.no_records else opt.log_every, parts["optimizer"], self._write_batches)

    def begin(self) -> None:
        """Set the state of a run that has trained nothing yet."""
        self.epoch = 0  # trained epochs
        self.state = {
            "best": {},
            "selected": {"epoch": None, "values": {}},
            "last": {},
            "seconds": 0.0,
            "untrained": {},
            "stopped": False,
        }
        self._began = time.monotonic()
        self.sinks = []
        self.roles = {}  # split -> description of its queries and gallery, where it has such roles
        self.queries = {}  # split -> number of its queries, of val and test

    def start(self, environment: dict) -> None:
        """Describe the run on disk, or restore it; open the records. UserError if the folder is in use or the
        checkpoint does not fit.
        """
        self._lock = Lock(as_file(self.folder / ".lock"))
        if not self._lock.acquire(wait=False):
            raise UserError(f"another process trains in {self.folder}: wait for it, or choose another --savename")
        for partial_file in (
            self.folder.glob(".checkpoint_*.tmp") if self.writes else ()
        ):  # of a process that was killed while it wrote
            partial_file.unlink(missing_ok=True)
        data = environment.get("data") or {}
        self.roles = dict(data.get("roles") or {})
        counts = data.get("counts") or {}
        self.queries = {split: _queries(counts[name]) for split, name in DATA_SETS.items() if name in counts}
        for name in (SUMMARY, "environment.yaml", INFO):
            as_file(self.folder / name)
        changes = changes_of_data(self.folder, data, self.opt) if self.resumed else []
        if self.resumed:
            refuse_changed_code(self.folder, environment, self.opt)
        last = self.folder / checkpoint.LAST
        if last.exists():
            self._restore(last if self.opt.resume == "latest" else self._best_checkpoint())
        has_flags = self.resumed and (self.folder / PARAMETERS).exists()
        planned = RunFolder(self.folder).flags.get("n_epochs") if has_flags else None
        record_changes(
            self.folder, [self.epoch], self.opt
        )  # after `_restore`: flags that do not fit the checkpoint change nothing
        if self.opt.fold is None:
            write_plan(self.folder, self.opt)  # before the flags: who finds these finds the stages that follow
        describe(self.folder, self.opt)
        if last.exists():
            self._summarise()  # the run may have ended between its last checkpoint and its last summary
            say(f"resumed {self.folder} after epoch {self.epoch}")
            if planned is not None and (note := change_of_length(self.opt, planned, self.epoch)):
                say(f"note  {note}")
        elif self.resumed:
            say(f"resumed {self.folder}: it has no checkpoint yet and starts from epoch 1")
        goes_on = not self.finished or self.lacks_final_test
        if not (self.folder / "environment.yaml").exists():
            write_yaml(self.folder / "environment.yaml", environment, sort_keys=False)
        elif goes_on:
            record_changes_of_environment(self.folder, environment, self.epoch)
        if changes and goes_on:
            record_changes_of_data(self.folder, changes, self.epoch, data)
        self.sinks = records.open_sinks(self.opt, self.folder)
        if self.resumed:
            for sink in self.sinks:
                sink.cut(
                    self.epoch if last.exists() else BEFORE_ALL, self.batches.steps, tested=not self.lacks_final_test
                )
            rows, batches = self._recorded()
            for sink in self.sinks:
                sink.fill(rows, batches)

    def _restore(self, path: Path) -> None:
        """Load; with `--resume best`, delete later checkpoints."""
        content = checkpoint.with_or_without_average(checkpoint.read(path), self.parts)
        if "optimizer" in content:
            content["optimizer"] = fitting(content["optimizer"], self.parts["optimizer"])
        if content.get("scaler") == {} and "scaler" in self.parts:  # of a run without float16
            content["scaler"] = self.parts["scaler"].state_dict()
        if "num_bad_epochs" in content.get(
            "scheduler", {}
        ):  # plateau counts evaluations; another schedule goes by epochs
            content["scheduler"] = self.parts["scheduler"].after(content["scheduler"], content["epoch"])
        with keeping_rates(self.parts["optimizer"], self.parts["scheduler"]):
            checkpoint.restore(path, content, self.parts)
        self.epoch = content["epoch"]
        self.state = content["run"]
        self.state["stopped"] = was_stopped(content, self.opt.patience)
        self.batches.steps = self.state.get("steps", 0)  # older checkpoints have none
        if not self.finished and "test" not in self.opt.splits_to_eval:
            self.state["selected"]["values"].pop(
                "test", None
            )  # of a shorter run's `--final_test`: another epoch may be selected yet
        if self.opt.resume == "best":
            if self.writes:
                link(path, self.folder / checkpoint.LAST)  # first: a run killed during the deletion must still have it
            for path_of_other in self.folder.glob("checkpoint_*.pth.tar"):
                with contextlib.suppress(UserError):  # a damaged one stays: nothing reads it
                    if checkpoint.read(path_of_other, lazily=True)["epoch"] > self.epoch:
                        path_of_other.unlink()

    @property
    def finished(self) -> bool:
        """All epochs are trained, or those of this stage of a reproduction, or patience ran out."""
        return is_finished(self.epoch, self.opt.last_epoch, self.state["stopped"])

    def epochs(self):
        """The numbers of the epochs still to train."""
        while not self.finished:
            yield self.epoch + 1

    def untrained_epochs(self):
        """(epoch, bare) of the untrained states that are still to be evaluated: -1 the bare backbone, 0 the network.

        Both by `--check_untrained_accuracy`; the latter for a run that trains nothing and writes embeddings or its
        queries' results.
        """
        opt = self.opt
        writes_untrained = opt.n_epochs == 0 and (opt.dump_embeddings or opt.dump_query_results)
        for epoch, asked in ((-1, opt.check_untrained_accuracy), (0, opt.check_untrained_accuracy or writes_untrained)):
            if asked and self.epoch == 0 and str(epoch) not in self.state["untrained"]:
                yield epoch, epoch == -1

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
            draw: called for a new best epoch, before the last checkpoint is saved: a run that is killed meanwhile draws
            again.
        """
        self.batches.flush()
        self.state["steps"] = self.batches.steps
        rows = [self._row(epoch, "train", name, value) for name, value in training.items()]
        self._write(rows + self._metric_rows(epoch, scores))
        self._write_arrays(epoch, scores)
        self.epoch = epoch
        improved = self._update_best(epoch, scores)
        self._count_seconds()
        if scores:
            self.state["last"] = _numbers(scores)
            self._end_without_patience(epoch)
        self._save_best(improved)
        if (self.selection.split, self.selection.metric) in improved:
            try:
                draw()
            except Exception as error:  # a picture never stops a run
                say(f"the pictures or files of epoch {epoch} failed ({type(error).__name__}: {error}); the run goes on")
        self._summarise()
        self._save(checkpoint.LAST)  # last: where it has all epochs, the summary has them too

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
        later = (
            self.batches.steps + self.epoch - selected["epoch"] + 1
        )  # after all rows so far: W&B drops earlier steps
        self._write([row._replace(step=later) for row in rows])
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
        """With `--log_artifacts`, hand every sink the selected checkpoint and the files that `load_run` needs beside
        it.
        """
        selected = self.state["selected"]
        if not self.opt.log_artifacts or selected["epoch"] is None:
            return
        best = self._best_checkpoint()
        files = {name: self.folder / name for name in (PARAMETERS, "environment.yaml", SUMMARY, best.name)} | {
            checkpoint.LAST: best
        }
        for sink in self.sinks:
            sink.best({"rule": self.selection.rule, "epoch": selected["epoch"], "values": selected["values"]}, files)

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
            for sink in self.sinks:
                sink.arrays(epoch, split, {name: value for name, value in values.items() if not _is_scalar(value)})

    def _write_batches(self, batches: list[tuple[int, dict]]) -> None:
        rows = [
            records.BatchRow(self.epoch + 1, step, name, value)
            for step, values in batches
            for name, value in values.items()
        ]
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
        return [
            self._row(epoch, split, name, float(value))
            for split, values in scores.items()
            for name, value in values.items()
            if _is_scalar(value)
        ]

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
        n_classes = getattr(self.opt, "n_classes", None)  # to build the trainer's heads again
        checkpoint.save(self.folder / name, parts or self.parts, epoch=self.epoch, run=self.state, n_classes=n_classes)

    def _save_best(self, improved: list[tuple[str, str]]) -> None:
        """Keep the epoch for each of `--storage_metrics` that it is the best in: whole where selection chose it, from
        which a run can go on.

        For the others what evaluation needs is one file of several names.
        """
        names = []
        for split, metric in improved:
            above, own = apart(
                metric
            )  # of an embedding, a protocol; a domain's, whose mean is measured too, is not kept by itself
            if own in self.opt.storage_metrics and mean_of(metric) not in self.state["best"][split]:
                names.append(_checkpoint(split, above.replace("/", "_") or self.opt.evaltypes[0], own))
        best_name = self._best_checkpoint().name
        other_names = [name for name in names if name != best_name]
        if best_name in names:
            self._save(best_name)
        if other_names:
            self._save(
                other_names[0], {name: part for name, part in self.parts.items() if name in checkpoint.EVALUATED}
            )
        for name in other_names[1:] if self.writes else ():
            link(self.folder / other_names[0], self.folder / name)

    def _summarise(self) -> None:
        summary = {
            "parameters": self.opt.saved(),
            "selected": {
                "rule": self.selection.rule,
                "epoch": self.state["selected"]["epoch"],
                "values": self.state["selected"]["values"],
            },
            "best": self.state["best"],
            "last": self.state["last"],
            "seconds": round(self.state["seconds"], 3),
            **({"roles": self.roles} if self.roles else {}),
        }
        write_json(self.folder / SUMMARY, summary)
        for sink in self.sinks if self.state["selected"]["epoch"] is not None else ():
            sink.selected(**summary["selected"])


def _checkpoint(split: str, evaltype: str, metric: str) -> str:
    return f"checkpoint_{records.SPLIT_TITLES[split]}_{evaltype}_{metric}.pth.tar"


def _queries(counts: dict) -> int:
    """The number of queries of a split with these counts: its images, unless some are gallery alone."""
    return counts.get("query_images", counts.get("images", 0))


def _is_scalar(value) -> bool:
    return getattr(value, "ndim", 0) == 0


def _numbers(scores: dict) -> dict:
    return {
        split: {name: float(value) for name, value in values.items() if _is_scalar(value)}
        for split, values in scores.items()
    }
