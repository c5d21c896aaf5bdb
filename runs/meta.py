"""The results over the folds of a cross-validation, in `<savename>/meta/`, with mean and 95 % interval.

`separated`: the mean of the folds' values. `concatenated`: the values of the folds' networks as one ensemble.
"""

import math
from pathlib import Path

import numpy as np

from runs import checkpoint
from runs.damage import RESULTS, lacks
from runs.folder import RunFolder, measurement, read_json
from runs.records.damaged import as_folder, set_aside
from utilities.files import write_csv, write_json
from utilities.intervals import t_interval

SEPARATED = "separated"
CONCATENATED = "concatenated"
INTERVAL = ["mean", "standard_error", "interval_95_low", "interval_95_high"]
# columns of results.csv
COLUMNS = ["embeddings", "split", "metric", *INTERVAL, "folds"]


def over_folds(scores: list[dict]) -> dict:
    """split -> metric -> `t_interval` and the folds' `values`, of metrics that all folds have.

    `scores`: split -> {metric: number} of each fold.
    """
    table = {}
    for split, metrics in scores[0].items():
        for name in metrics:
            row = [fold.get(split, {}).get(name, []) for fold in scores]
            # [], for a fold that lacks the metric, counts as an array
            has_array = any(np.ndim(value) > 0 for value in row)
            if has_array:
                continue
            # JSON has null for NaN
            values = [math.nan if value is None else float(value) for value in row]
            table.setdefault(split, {})[name] = {**t_interval(values), "values": values}
    return table


class Meta:
    """The folder meta/ of the cross-validation in `folder`, which has `n_folds` folds and the flags `opt`."""

    def __init__(self, folder: Path, opt, n_folds: int):
        self.folder = folder
        self.opt = opt
        self.n_folds = n_folds
        # name -> results that this process wrote
        self.results = {}
        self._fold = RunFolder(folder, opt).fold

    def _epochs(self, folds: list[int]) -> list:
        return [self._fold(fold).selected["epoch"] for fold in folds]

    @property
    def path(self) -> Path:
        """The folder meta/, made if it is missing."""
        return as_folder(self.folder / "meta")

    def recorded(self, name: str, folds: list[int]) -> dict | None:
        """The results under a name; None unless they are those of these folds at their presently selected epochs."""
        content = self._content(name)
        is_current = (content.get("folds"), content.get("epochs")) == (folds, self._epochs(folds))
        return content if is_current else None

    def _content(self, name: str) -> dict:
        """The results under a name; empty if there are none or they are damaged, so that they are computed again."""
        content = read_json(self.folder / "meta" / f"{name}.json")
        return {} if lacks(content, RESULTS) else content

    def is_current(self, folds: list[int], joined: bool) -> bool:
        """Whether the results are those of these folds as they stand now; `joined`: the concatenated ones too."""
        separated = self.recorded(SEPARATED, folds)
        if separated is None or set(separated["values"]) != set(self._fold(folds[0]).selected["values"]):
            return False
        return not joined or self.recorded(CONCATENATED, folds) is not None

    def aggregate(self, folds: list[int]) -> None:
        """Write separated.json and results.csv of the folds' selected epochs.

        Concatenated results of other epochs are removed.
        """
        selected = [self._fold(fold).selected for fold in folds]
        description = {
            "folds": folds,
            "epochs": [epoch_of_fold["epoch"] for epoch_of_fold in selected],
            "rule": selected[0]["rule"],
            "untrained": self._untrained(folds),
        }
        self._write(SEPARATED, description, over_folds([epoch_of_fold["values"] for epoch_of_fold in selected]))
        joined = self.recorded(CONCATENATED, folds)
        if joined is not None:
            self.results[CONCATENATED] = joined
        elif self._content(CONCATENATED):
            (self.path / f"{CONCATENATED}.json").unlink()
        self._write_table()

    def _untrained(self, folds: list[int]) -> dict:
        """Epoch (-1 or 0) -> results of the untrained networks of all folds, by --check_untrained_accuracy."""
        states = [checkpoint.progress(self._fold(fold).path / checkpoint.LAST)["run"]["untrained"] for fold in folds]
        results = {}
        for epoch in states[0]:
            if all(epoch in state for state in states):
                results[epoch] = over_folds([state[epoch] for state in states])
        return results

    def record_evaluation(self, folds: list[int], scores: list[dict]) -> None:
        """Write what `--evaluate` measured in these folds, under a name of its own and with its flags."""
        description = {**self._about(folds), "other_data": self.opt.other_data or None}
        self._write(SEPARATED, description, over_folds(scores), f"evaluation_{SEPARATED}")

    def record_ensemble(self, scores: dict) -> None:
        """Write the ensemble's results; under a name of their own if measured with other flags than in training."""
        description = self._about(list(range(self.n_folds)))
        protocol = RunFolder(self.folder).flags
        # An ensemble is measured on test alone: which splits were requested, and the batch size, do not matter.
        compared = self.opt.roles.having(compared=True)
        deciding = (description["flags"].keys() & compared) | {"evaluation_metrics"}
        name = f"evaluation_{CONCATENATED}"
        if all(description["flags"][flag] == protocol.get(flag) for flag in deciding):
            name = None
        self._write(CONCATENATED, description, over_folds([scores]), name)

    def _about(self, folds: list[int]) -> dict:
        """The description of a measurement: folds, epochs and flags."""
        return {"folds": folds, "epochs": self._epochs(folds), "flags": self.opt.measured()}

    def _write(self, kind: str, description: dict, values: dict, name: str | None = None) -> None:
        """Write results under their kind; those of a measurement other than the protocol's under their own `name`."""
        content = {"embeddings": kind, **description, "values": values}
        self.results[name or kind] = content
        path = measurement(self.path / name, description) if name else self.path / f"{kind}.json"
        if path.exists() and not self._content(path.stem):
            set_aside(path, "no results")
        write_json(path, content)

    def _write_table(self) -> None:
        rows = []
        for name, content in self._protocol().items():
            for split, metrics in content["values"].items():
                for metric, result in metrics.items():
                    bounds = result["interval_95"] or ("", "")
                    numbers = [result["mean"], result["standard_error"], *bounds, len(content["folds"])]
                    rows.append([name, split, metric, *numbers])
        write_csv(self.path / "results.csv", COLUMNS, rows)

    def _protocol(self) -> dict:
        """Name -> folds and values of the protocol's results.

        Of the selected epochs separated and concatenated, of untrained networks separated.
        """
        results = {name: self.results[name] for name in (SEPARATED, CONCATENATED) if name in self.results}
        separated = self.results.get(SEPARATED, {})
        for epoch, values in separated.get("untrained", {}).items():
            results[f"{SEPARATED}, epoch {epoch}"] = {
                "embeddings": SEPARATED,
                "folds": separated["folds"],
                "values": values,
            }
        return results

    def columns(self) -> dict:
        """The results as `reports.table` prints them: means, and half the width of the interval."""
        columns = {}
        for name, content in {**self._protocol(), **self.results}.items():
            columns[name] = _column(content, _mean)
            if content["embeddings"] != CONCATENATED:
                columns[f"{name} ± 95 %"] = _column(content, _half_width)
        return columns


def _column(content: dict, number) -> dict:
    """split -> {metric: `number(result)`} of a file of results."""
    column = {}
    for split, metrics in content["values"].items():
        column[split] = {metric: number(result) for metric, result in metrics.items()}
    return column


def _mean(result: dict) -> float:
    return result["mean"]


def _half_width(result: dict) -> float | None:
    """Half the width of a result's interval; None if it has none."""
    return result["interval_95"] and result["interval_95"][1] - result["mean"]
