"""The studies' runs as one CSV file, a row a run, from which every table and figure of their pages is made.

    python -m experiments.study.raw --runs Training_Results --filter "^Split" --write experiments/study/split_runs.csv

adds the finished runs below the folders; rows that stand in the file stay, so a study may be run in parts and on
several machines.
Columns: data set, group, seed, wall seconds; flags unlike their defaults and versions as JSON; the evaluated epochs;
each metric's values at them; and where the run dumped what its queries found, the hits of R@1 in each test class, one
character a class (base 36).
"""

import csv
import json
import re
from pathlib import Path

import numpy as np

import parameters
from options import composition
from results import bootstrap, collect, paired, roles
from results.groups import Group
from results.recorded import RecordedRun, Series
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import write_records

FIXED = ("dataset", "group", "seed", "seconds", "flags", "environment", "epochs")
# of test
QUERIES = "queries_per_class"
HITS = "hits_per_class"
ENVIRONMENT = ("torch", "python", "GPU", "images")
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def defaults() -> dict:
    """The default of every flag; the tables learn the flags' roles."""
    roles.use(parameters.declared_roles())
    return vars(parameters.get_parser().parse_args([]))


def row(run: RecordedRun, usual: dict) -> dict[str, str]:
    """One run as texts."""
    series = run.series
    at = np.flatnonzero(np.isfinite(series.values).any(1) & (series.epochs > 0))
    at = at[
        np.isfinite(np.stack([series.of(*key)[at] for key in series.keys if "@" in key[1]])).any(0)
    ]  # epochs that were evaluated
    flags = {name: value for name, value in sorted(roles.compared(run.flags).items()) if value != usual.get(name)}
    summary = Path(run.where) / "summary.json"
    cells = {
        "dataset": run.dataset,
        "group": run.group,
        "seed": str(run.seed),
        "seconds": f"{json.loads(summary.read_text())['seconds']:.0f}",
        "flags": json.dumps(flags),
        "environment": json.dumps({name: run.environment[name] for name in ENVIRONMENT if name in run.environment}),
        "epochs": " ".join(map(str, series.epochs[at])),
    }
    for split, metric in series.keys:
        values = series.of(split, metric)[at]
        if (
            ("/" not in metric or split == "test")
            and np.isfinite(values).all()
            and (split != "train" or "@" in metric or metric == "map_r")
        ):
            cells[f"{split}/{metric}"] = " ".join(f"{value:.6g}" for value in values)
    if (queries := paired.of_run(run)) is not None:
        _, classes = np.unique(queries.classes, return_inverse=True)
        found = bootstrap.class_outcomes([queries.values["hit"]], classes.reshape(-1))
        if len(set(found.sizes)) > 1 or found.sizes[0] >= len(DIGITS):
            raise UserError(
                f"{run.name}: its test classes have not the same number of images, or more than {len(DIGITS) - 1}"
            )
        cells |= {QUERIES: f"{found.sizes[0]:.0f}", HITS: "".join(DIGITS[int(count)] for count in found.sums[0])}
    return cells


def write(path: Path, runs: list[RecordedRun]) -> tuple[int, int]:
    """Add runs whose data set, group and seed are not there yet. Returns how many were added, and how many the file has
    now.
    """
    there = _lines(path) if path.exists() else []
    usual = defaults()
    known = {(line["dataset"], line["group"], line["seed"]) for line in there}
    new = [run for run in runs if run.problem is None and (run.dataset, run.group, str(run.seed)) not in known]
    every = sorted(
        [*there, *(row(run, usual) for run in new)],
        key=lambda line: (line["dataset"], line["group"], int(line["seed"])),
    )
    names = [*FIXED, *sorted({name for line in every for name in line if "/" in name}), QUERIES, HITS]
    write_records(path, names, every)
    return len(new), len(every)


def _lines(path: Path) -> list[dict[str, str]]:
    limit = csv.field_size_limit(1 << 20)  # of the whole process
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    finally:
        csv.field_size_limit(limit)


def read(path: Path) -> list[RecordedRun]:
    """The runs of a file, as `collect.collect` gives those of folders."""
    usual = defaults()
    found = []
    for line in _lines(path):
        epochs = np.array([int(epoch) for epoch in line["epochs"].split()])
        keys = [tuple(name.split("/", 1)) for name in line if "/" in name and line[name]]
        values = np.array([[float(value) for value in line["/".join(key)].split()] for key in keys]).T
        flags = usual | json.loads(line["flags"]) | {"group": line["group"], "seed": int(line["seed"])}
        run = RecordedRun(
            f"{line['dataset']}/{line['group']}_s{line['seed']}",
            str(path),
            line["dataset"],
            line["group"],
            int(line["seed"]),
        )
        run.flags = flags
        run.environment = json.loads(line["environment"])
        run.series = Series(epochs, keys, values)
        run.derived = composition.followers(usual, flags)
        found.append(run)
    return found


def queries(paths: list[Path]):
    """A stand-in for `paired.of_groups`, by the hits in the files: groups -> (name -> `paired.Method`, notes)."""
    hits = {
        (line["dataset"], line["group"], line["seed"]): line for path in paths for line in _lines(path) if line[HITS]
    }

    def of_groups(found: list[Group]) -> tuple[dict[str, paired.Method], list[str]]:
        methods = {}
        for group in found:
            lines = [hits.get((group.dataset, group.name, str(seed))) for seed in group.seeds]
            if lines and all(lines):
                sums = np.array([[DIGITS.index(one) for one in line[HITS]] for line in lines], dtype=np.float64)
                sizes = np.full(sums.shape[1], float(lines[0][QUERIES]))
                methods[group.name] = paired.Method(group, {"hit": bootstrap.Outcomes(sums, sizes)}, None)
        return methods, []

    return of_groups


def main(argv=None) -> None:
    """Add runs to a file."""
    parser = OneLineParser(prog="experiments.study.raw", allow_abbrev=False, description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--runs", nargs="+", default=["Training_Results"], metavar="FOLDER", help="folders with run folders below them"
    )
    parser.add_argument("--filter", default="", metavar="TEXT", help="groups whose name holds this regular expression")
    parser.add_argument("--write", type=Path, required=True, metavar="FILE", help="the .csv file that gets a row a run")
    options = parser.parse_args(argv)
    runs = [run for run in collect.collect(options.runs, [])[0] if re.search(options.filter, run.group)]
    added, there = write(options.write, runs)
    print(
        f"{options.write}: {added} runs added, {len(runs) - added} not, as they have a row or did not end; {there} now"
    )


if __name__ == "__main__":
    with one_line_errors("experiments.study.raw"):
        main()
