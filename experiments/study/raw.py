"""The studies' runs as one CSV file, a row per run, from which every table and figure of their pages is made.

    python -m experiments.study.raw --runs Training_Results --filter "^Split" --write experiments/study/split_runs.csv

adds the finished runs below the folders; rows of the file stay, so a study may be run in parts and on several machines.

Columns: data set, group, seed, wall seconds; flags unlike their defaults and versions as JSON; the evaluated epochs;
each metric's values at them; and for runs with --dump_query_results the hits of R@1 in each test class, one character
per class (base 36).
"""

import csv
import json
import re
from pathlib import Path

import numpy as np

import parameters
from options import derived
from results import bootstrap, collect, paired
from results.groups import Group
from results.recorded import RecordedRun, Series
from results.roles import FlagRoles
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import write_records

FIXED = ("dataset", "group", "seed", "seconds", "flags", "environment", "epochs")
# of test
QUERIES = "queries_per_class"
HITS = "hits_per_class"
ENVIRONMENT = ("torch", "python", "GPU", "images")
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def defaults() -> dict:
    """The default of every flag."""
    return vars(parameters.get_parser().parse_args([]))


def row(run: RecordedRun, usual: dict) -> dict[str, str]:
    """One run as texts."""
    series = run.series
    at_k = np.stack([series.get(*key) for key in series.keys if "@" in key[1]])
    is_evaluated = np.isfinite(at_k).any(0) & np.isfinite(series.values).any(1) & (series.epochs > 0)
    flags = {name: value for name, value in sorted(run.roles.compared(run.flags).items()) if value != usual.get(name)}
    summary = Path(run.location) / "summary.json"
    cells = {
        "dataset": run.dataset,
        "group": run.group,
        "seed": str(run.seed),
        "seconds": f"{json.loads(summary.read_text())['seconds']:.0f}",
        "flags": json.dumps(flags),
        "environment": json.dumps({name: run.environment[name] for name in ENVIRONMENT if name in run.environment}),
        "epochs": " ".join(map(str, series.epochs[is_evaluated])),
    }
    for split, metric in series.keys:
        values = series.get(split, metric)[is_evaluated]
        if _is_written(split, metric) and np.isfinite(values).all():
            cells[f"{split}/{metric}"] = " ".join(f"{value:.6g}" for value in values)
    queries = paired.of_run(run)
    if queries is not None:
        _, classes = np.unique(queries.classes, return_inverse=True)
        outcomes = bootstrap.class_outcomes([queries.values["hit"]], classes.reshape(-1))
        size = outcomes.sizes[0]
        if len(set(outcomes.sizes)) > 1 or size >= len(DIGITS):
            raise UserError(
                f"{run.name}: its test classes have not the same number of images, or more than {len(DIGITS) - 1}"
            )
        cells[QUERIES] = f"{size:.0f}"
        cells[HITS] = "".join(DIGITS[int(count)] for count in outcomes.sums[0])
    return cells


def _is_written(split: str, metric: str) -> bool:
    """Whether the file has the values: of training data only metrics of the embedding, of domains only those on test.

    Metrics of the embedding have an `@`, or are MAP@R; a domain's have its name before a `/`.
    """
    if "/" in metric and split != "test":
        return False
    return split != "train" or "@" in metric or metric == "map_r"


def write(path: Path, runs: list[RecordedRun]) -> tuple[int, int]:
    """Add runs whose data set, group and seed have no row yet.

    Returns how many were added, and how many the file has now.
    """
    lines = _lines(path) if path.exists() else []
    usual = defaults()
    old_keys = {(line["dataset"], line["group"], line["seed"]) for line in lines}
    new = [run for run in runs if run.problem is None and (run.dataset, run.group, str(run.seed)) not in old_keys]
    lines += [row(run, usual) for run in new]
    lines.sort(key=lambda line: (line["dataset"], line["group"], int(line["seed"])))
    metrics = {name for line in lines for name in line if "/" in name}
    write_records(path, [*FIXED, *sorted(metrics), QUERIES, HITS], lines)
    return len(new), len(lines)


def _lines(path: Path) -> list[dict[str, str]]:
    # The limit is one of the whole process, so it is set back below.
    limit = csv.field_size_limit(1 << 20)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    finally:
        csv.field_size_limit(limit)


def read(path: Path) -> list[RecordedRun]:
    """The runs of a file, as `collect.collect` gives those of folders."""
    usual = defaults()
    flag_roles = FlagRoles(parameters.declared_roles())
    runs = []
    for line in _lines(path):
        epochs = np.array([int(epoch) for epoch in line["epochs"].split()])
        keys = [tuple(name.split("/", 1)) for name in line if "/" in name and line[name]]
        values = np.array([list(map(float, line["/".join(key)].split())) for key in keys]).T
        flags = usual | json.loads(line["flags"]) | {"group": line["group"], "seed": int(line["seed"])}
        run = RecordedRun(
            f"{line['dataset']}/{line['group']}_s{line['seed']}",
            str(path),
            line["dataset"],
            line["group"],
            int(line["seed"]),
            flag_roles,
        )
        run.flags = flags
        run.environment = json.loads(line["environment"])
        run.series = Series(epochs, keys, values)
        run.derived = derived.followers(usual, flags)
        runs.append(run)
    return runs


def queries(paths: list[Path]):
    """A stand-in for `paired.of_groups`, by the hits in the files: groups -> (name -> `paired.Method`, notes)."""
    line_of = {}
    for path in paths:
        for line in _lines(path):
            if line[HITS]:
                line_of[line["dataset"], line["group"], line["seed"]] = line

    def of_groups(groups: list[Group]) -> tuple[dict[str, paired.Method], list[str]]:
        methods = {}
        for group in groups:
            lines = [line_of.get((group.dataset, group.name, str(seed))) for seed in group.seeds]
            if lines and all(lines):
                sums = np.array([list(map(DIGITS.index, line[HITS])) for line in lines], dtype=np.float64)
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
    parser.add_argument(
        "--write", type=Path, required=True, metavar="FILE", help="the .csv file that gets one row per run"
    )
    options = parser.parse_args(argv)
    collected, _ = collect.collect(options.runs, [], FlagRoles(parameters.declared_roles()))
    runs = [run for run in collected if re.search(options.filter, run.group)]
    added, total = write(options.write, runs)
    print(
        f"{options.write}: {added} runs added, {len(runs) - added} not, as they have a row or did not end; {total} now"
    )


if __name__ == "__main__":
    with one_line_errors("experiments.study.raw"):
        main()
