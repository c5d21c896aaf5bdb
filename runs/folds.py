"""A cross-validation on disk: `<savename>/fold_0 …`, each a complete run folder, and `<savename>/meta/` with the results over all folds.

Of several processes with `--folds` each trains its own folds of one folder; the meta results are made when the last fold is finished, or by
`--aggregate_only`.
"""

import contextlib
import csv
import json
import math
import shutil
from argparse import Namespace
from pathlib import Path

import numpy as np

from runs import checkpoint
from runs.configuration import (
    CHANGES,
    EVALUATION_FLAGS,
    NEVER_A_CHANGE,
    SPLIT_FILE,
    describe,
    read_parameters,
    record_changes,
    run_folder,
    until,
)
from runs.run import json_safe
from utilities.errors import UserError
from utilities.files import new_folder, replacing
from utilities.intervals import t_interval

WHAT_ENSEMBLES_SET = {"splits_to_eval", "no_train_metrics", "eval_bs"}  # evaluation flags without an effect on an ensemble's numbers


def over_folds(scores: list[dict]) -> dict:
    """split -> metric -> `t_interval` and the folds' `values`, of one split -> {metric: number} a fold; only what every fold has."""
    table = {}
    for split, metrics in scores[0].items():
        common = [name for name in metrics if all(np.ndim(fold.get(split, {}).get(name, [])) == 0 for fold in scores)]
        if common:
            columns = {name: [_number(fold[split][name]) for fold in scores] for name in common}
            table[split] = {name: {**t_interval(values), "values": values} for name, values in columns.items()}
    return table


def _number(value) -> float:
    return math.nan if value is None else float(value)  # JSON knows no NaN: a summary has null


class CrossValidation:
    """The folds of one cross-validation.

    Args:
        opt: the resolved flags.
        n_folds: how many folds the split scheme makes.
    """

    def __init__(self, opt, n_folds: int):
        self.opt, self.n_folds = opt, n_folds
        self.asked = list(range(n_folds)) if opt.folds is None else sorted(opt.folds)
        self.folder = run_folder(opt)
        self._is_new = False  # made by this process, for itself
        self.results = {}  # separated, concatenated: what `aggregate` wrote

    @contextlib.contextmanager
    def started(self):
        """Take the folder, or with another process's folds in it share it, and write the flags.

        Inside, the folds are trained. Where the first of them refuses the flags, those that were there before come back.
        """
        self._take()
        before, theirs = self._written(), self._written_by_folds()
        epochs = [self._epochs_of(fold) for fold in range(self.n_folds)]
        record_changes(self.folder, epochs, self.opt)
        describe(self.folder, self.opt)
        try:
            yield
        except UserError:
            if before and theirs == self._written_by_folds():
                shutil.rmtree(self.folder / CHANGES, ignore_errors=True)
                for path, content in before.items():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
            elif self._is_new and not any(self.folder.glob("fold_*")):  # so that the next gets its name
                self._unmake()
            raise

    def _unmake(self) -> None:
        """Remove the folder that this process has made, with what it wrote there and nothing else."""
        for name in ("parameters.yaml", "Parameter_Info.txt", SPLIT_FILE):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / CHANGES, ignore_errors=True)
        with contextlib.suppress(OSError):  # something else is there
            self.folder.rmdir()

    def _written(self) -> dict[Path, bytes]:
        """What `started` replaces."""
        there = [self.folder / "parameters.yaml", self.folder / "Parameter_Info.txt", *(self.folder / CHANGES).rglob("*.yaml")]
        return {path: path.read_bytes() for path in there if path.exists()}

    def _written_by_folds(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self.folder.glob("fold_*/parameters.yaml"))]

    def _epochs_of(self, fold: int) -> int:
        """The epochs after which a fold goes on: those trained, or with `--resume best` those of its best checkpoint."""
        folder = self.folder / f"fold_{fold}"
        epochs, _ = checkpoint.progress(folder)
        if self.opt.resume == "best" and fold in self.asked and epochs:
            return checkpoint.read(folder / checkpoint.LAST, lazily=True)["run"]["selected"]["epoch"] or 0
        return epochs

    def _take(self) -> None:
        if self.opt.resume is None or not self.folder.is_dir():
            self._is_new = self.opt.folds is None  # else other processes may be about to train their folds there
            self.folder = new_folder(self.folder) if self.opt.folds is None else self._shared(self.folder)
            self.opt = Namespace(**{**vars(self.opt), "savename": str(Path(self.opt.savename).with_name(self.folder.name))})

    def _shared(self, wanted: Path) -> Path:
        """The first of `wanted`, `wanted_1` … where no fold of ours lies, and the others are of the same flags."""
        number = 0
        while True:
            folder = wanted.with_name(f"{wanted.name}_{number}") if number else wanted
            if not folder.exists():
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise UserError(f"cannot make the run folder {folder}: {error.strerror}. Choose another --save_path") from error
                return folder
            if not any((folder / f"fold_{fold}").exists() for fold in self.asked) and self._is_ours(folder):
                return folder
            number += 1

    def _is_ours(self, folder: Path) -> bool:
        try:
            saved = read_parameters(folder)
        except UserError:
            return all(path.name.startswith(".") for path in folder.iterdir())  # another process has just made it
        return all(getattr(self.opt, name) == saved.get(name) for name in self.opt.flags - NEVER_A_CHANGE - {"savename"})

    def options(self, folds=None) -> list[Namespace]:
        """The flags of each fold, which name it; of the folds asked for by `--folds` unless others are given."""
        return [Namespace(**{**vars(self.opt), "fold": fold}) for fold in (self.asked if folds is None else folds)]

    def to_train(self):
        """The flags of each fold that still has something to do, one after the other."""
        for opt in self.options():
            if until(opt) == 0:
                continue  # of a reproduction: in this stage the fold had not begun
            if self.opt.resume == "latest" and opt.fold in self.done():
                print(f"fold {opt.fold} of {self.n_folds} is finished")
                continue
            print(f"\nfold {opt.fold} of {self.n_folds}, counted from 0", flush=True)
            yield opt

    def finished(self) -> list[int]:
        """The folds whose epochs are all trained, or whose patience ran out."""
        found = []
        for opt in self.options(range(self.n_folds)):
            folder = run_folder(opt)
            epochs, stopped = checkpoint.progress(folder, self.opt.patience)
            if (folder / checkpoint.LAST).exists() and (folder / "summary.json").exists() and (stopped or epochs >= self.opt.n_epochs):
                found.append(opt.fold)
        return found

    def done(self) -> list[int]:
        """The folds with nothing left to do: finished, and with `--final_test` measured on test where an epoch was selected."""
        return [fold for fold in self.finished() if not (self.opt.final_test and self._lacks_test(fold))]

    def _lacks_test(self, fold: int) -> bool:
        selected = self._summary(fold)["selected"]
        return selected["epoch"] is not None and "test" not in selected["values"]

    @property
    def complete(self) -> bool:
        """Whether every fold is finished."""
        return len(self.finished()) == self.n_folds

    @property
    def joins_folds(self) -> bool:
        """Whether `--final_test` measures the folds' networks as one too; there is no such training set to compare that with."""
        return (
            self.opt.final_test and self.n_folds > 1 and self.opt.n_epochs > 0 and self.opt.eval_reference_set != "compared_to_training_set"
        )

    def refuse_untrained(self) -> None:
        """Raise UserError where `--evaluate_ensemble` would join networks that are not what the protocol trains."""
        finished = self.finished()
        unfinished = [f"fold_{fold}" for fold in range(self.n_folds) if fold not in finished]
        if unfinished:
            raise UserError(f"--evaluate_ensemble joins all folds of {self.folder}; not finished: {', '.join(unfinished)}. --resume first")
        untrained = [f"fold_{fold}" for fold in finished if self._summary(fold)["selected"]["epoch"] is None]
        if untrained:
            raise UserError(f"--evaluate_ensemble joins trained networks: of {', '.join(untrained)} in {self.folder} no epoch was selected")

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do: the folds asked for are done, and where no other is open, the meta results are those of all."""
        done = self.done()
        if len(done) < self.n_folds:
            return set(self.asked) <= set(done)
        separated = self._recorded("separated", done)
        if separated is None or set(separated["values"]) != set(self._summary(done[0])["selected"]["values"]):
            return False
        return not self.joins_folds or self._recorded("concatenated", done) is not None

    def _recorded(self, name: str, folds: list[int]) -> dict | None:
        """What meta/ holds under a name, where it is of these folds and of the epochs now selected."""
        content = self._content(name)
        return content if (content.get("folds"), content.get("epochs")) == (folds, self._epochs(folds)) else None

    def _content(self, name: str) -> dict:
        """What meta/ holds under a name, empty where there is nothing; what is no JSON is made anew."""
        path = self.folder / "meta" / f"{name}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        except ValueError:
            return {}

    def _summary(self, fold: int) -> dict:
        path = self.folder / f"fold_{fold}" / "summary.json"
        try:
            summary = json.loads(path.read_text(encoding="utf-8"))
            if set(summary["selected"]) >= {"rule", "epoch", "values"}:
                return summary
        except (ValueError, TypeError, KeyError):
            pass
        raise UserError(f"{path} is damaged: delete it, and --resume writes it anew from the checkpoint")

    def _epochs(self, folds: list[int]) -> list:
        return [self._summary(fold)["selected"]["epoch"] for fold in folds]

    def aggregate(self) -> dict:
        """Write what the folds' selected epochs give: meta/separated.json and meta/results.csv. Returns `results`.

        Concatenated results of other epochs than those now selected are removed. Raises UserError where no fold is finished.
        """
        folds = self.finished()
        if not folds:
            raise UserError(f"--aggregate_only: no fold in {self.folder} is finished")
        missing = sorted(set(range(self.n_folds)) - set(folds))
        if missing:
            print(f"folds {' '.join(map(str, missing))} are not finished: the meta results are over the others")
        summaries = [self._summary(fold) for fold in folds]
        about = {"folds": folds, "epochs": self._epochs(folds), "rule": summaries[0]["selected"]["rule"]}
        untrained = self._untrained(folds)
        self._write("separated", {**about, "untrained": untrained}, over_folds([summary["selected"]["values"] for summary in summaries]))
        joined = self._recorded("concatenated", folds)
        if joined is not None:
            self.results["concatenated"] = joined
        else:
            (self.meta / "concatenated.json").unlink(missing_ok=True)
        self._write_table()
        return self.results

    def _untrained(self, folds: list[int]) -> dict:
        """Epoch, -1 or 0, -> what the untrained networks of all folds give; empty without --check_untrained_accuracy."""
        states = [checkpoint.read(self.folder / f"fold_{fold}" / checkpoint.LAST, lazily=True)["run"]["untrained"] for fold in folds]
        return {epoch: over_folds([state[epoch] for state in states]) for epoch in states[0] if all(epoch in state for state in states)}

    def record_evaluation(self, scores: list[dict]) -> None:
        """Write what `--evaluate` measured in the folds asked for, under a name and with the flags of its own."""
        about = self._about(self.asked)
        self._write("separated", about, over_folds(scores), "evaluation_separated")

    def record_ensemble(self, scores: dict) -> None:
        """Write what the folds' embeddings give together; measured otherwise than the protocol says, under a name of its own."""
        about, protocol = self._about(list(range(self.n_folds))), read_parameters(self.folder)
        alike = all(about["flags"][flag] == protocol.get(flag) for flag in EVALUATION_FLAGS - WHAT_ENSEMBLES_SET)
        self._write("concatenated", about, over_folds([scores]), None if alike else "evaluation_concatenated")

    def _about(self, folds: list[int]) -> dict:
        """What a measurement is of, and how it was made."""
        return {
            "folds": folds,
            "epochs": self._epochs(folds),
            "flags": {flag: getattr(self.opt, flag) for flag in sorted(EVALUATION_FLAGS)},
        }

    def _free(self, name: str, about: dict) -> str:
        """The name under which meta/ holds the same measurement, else the first free of `name`, `name_1`, …"""
        number = 0
        while True:
            numbered = f"{name}_{number}" if number else name
            content = self._content(numbered)
            if not content or about == {key: content.get(key) for key in about}:
                return numbered
            number += 1

    @property
    def meta(self) -> Path:
        """The folder of the results over folds."""
        folder = self.folder / "meta"
        folder.mkdir(exist_ok=True)
        return folder

    def _write(self, kind: str, about: dict, values: dict, apart: str | None = None) -> None:
        """Put results into `results` and meta/, under their kind; those of another measurement than the protocol's under a name `apart`."""
        content = self.results[apart or kind] = {"embeddings": kind, **about, "values": values}
        with replacing(self.meta / f"{self._free(apart, about) if apart else kind}.json") as file:
            json.dump(json_safe(content), file, indent=1)

    def _write_table(self) -> None:
        with replacing(self.meta / "results.csv") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["embeddings", "split", "metric", "mean", "standard_error", "interval_95_low", "interval_95_high", "folds"])
            for name, content in self._protocol().items():
                for split, metrics in content["values"].items():
                    for metric, found in metrics.items():
                        low, high = found["interval_95"] or ("", "")
                        error = "" if found["standard_error"] is None else found["standard_error"]
                        writer.writerow([name, split, metric, found["mean"], error, low, high, len(content["folds"])])

    def _protocol(self) -> dict:
        """Name -> folds and values of what the protocol asks for: the selected epochs apart and joined, the untrained networks apart."""
        found = {name: self.results[name] for name in ("separated", "concatenated") if name in self.results}
        separated = self.results.get("separated", {})
        for epoch, values in separated.get("untrained", {}).items():
            found[f"separated, epoch {epoch}"] = {"embeddings": "separated", "folds": separated["folds"], "values": values}
        return found

    def columns(self) -> dict:
        """The results as `reports.table` prints them: means, and half the width of the interval."""
        columns = {}
        for name, content in {**self._protocol(), **self.results}.items():
            columns[name] = _column(content, lambda found: found["mean"])
            if content["embeddings"] != "concatenated":
                columns[f"{name} ± 95 %"] = _column(content, lambda found: found["interval_95"] and found["interval_95"][1] - found["mean"])
        return columns


def _column(content: dict, value) -> dict:
    return {split: {metric: value(found) for metric, found in metrics.items()} for split, metrics in content["values"].items()}


def fold_of(folder: Path) -> tuple[Path, list[int]] | None:
    """(cross-validation's folder, [fold]) where `folder` is one fold of a cross-validation, else None."""
    name, _, number = folder.name.rpartition("_")
    if name != "fold" or not number.isdigit() or not (folder.parent / "parameters.yaml").exists():
        return None
    flags = read_parameters(folder.parent)
    return (folder.parent, [int(number)]) if flags.get("split_scheme", "half") != "half" else None
