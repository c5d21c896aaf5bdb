"""The results of the study's scripts: tables, tests, correlations and figures, written into pages of docs/.

    python -m experiments.study.tables --runs Training_Results --write docs/study.md
    python -m experiments.study.tables --of baseline --runs experiments/study/baseline_runs.csv --write docs/study.md
    python -m experiments.study.tables --of splits --runs experiments/study/split_runs.csv --write docs/study_splits.md
    python -m experiments.study.tables --of recent --runs experiments/study/recent_runs.csv --write docs/study_recent.md
    python -m experiments.study.tables --of union --runs experiments/study/union_runs.csv --write docs/study_union.md

--of names the script: Study_Runs.sh if missing (`losses.py`), else Baseline_Runs.sh (a classifier beside the study's
best losses), Recent_Runs.sh (methods of 2021 to 2024 beside them; both `comparisons.py`), Union_Runs.sh (one embedding
for four domains, `union.py`) or Split_Runs.sh (what another split of the classes changes, here). --runs takes folders
of runs, whose other runs are left out, and files of `raw.py`.

A thin client of results/, which groups runs and tests differences. Of `--of splits` the runs that are finished are
shown, and how many they are; of the others no number is shown until all runs are finished. Without any run of a data
set, its part of the page stays as it is.
"""

import functools
import shutil
import tempfile
from pathlib import Path

import parameters
from experiments.study import designs, losses, protocol, raw, settings
from experiments.study.comparisons import comparison_answer, comparison_part
from experiments.study.interaction import answer as split_answer
from experiments.study.interaction import interaction_part
from experiments.study.page import MAP_R, R_AT_1, markdown, put
from experiments.study.settings import Data
from experiments.study.union import UNION, union_answer, union_part
from results import collect, groups, paired, plots, splits, tables
from results.roles import FlagRoles
from utilities.errors import OneLineParser, one_line_errors
from utilities.numbers import whole

# name of the part of a page that has the answer
ANSWER = "{}, answer"
COMPARISONS = {comparison.name.lower(): comparison for comparison in protocol.COMPARISONS}
# `--of` -> how the groups of the script's runs begin; all other groups are of Study_Runs.sh, `losses`.
PREFIXES = {"splits": "Split", "union": UNION} | {key: comparison.name for key, comparison in COMPARISONS.items()}
# `--of` -> name, writer and writer of the answer of results that are one part of a page, whatever the data.
WHOLE = {"union": (UNION, union_part, union_answer)} | {
    key: (
        comparison.name,
        functools.partial(comparison_part, comparison),
        functools.partial(comparison_answer, comparison),
    )
    for key, comparison in COMPARISONS.items()
}


def split_part(runs: splits.Splits, data: Data, folder: Path | None = None) -> str:
    """What the runs of Split_Runs.sh on one data set say, as Markdown. `folder` gets the figures (None: no figures)."""
    n_expected = len(settings.SPLIT_METHODS) * len(settings.SPLITS) * len(settings.SPLIT_SEEDS)
    n_finished = sum(len(group.seeds) for row in runs.members for group in row)
    n_splits = f"{len(runs.splits)} of {len(settings.SPLITS)} splits"
    lines = [
        f"### {data.name}",
        f"{n_finished} of {n_expected} runs: {len(runs.methods)} losses on {n_splits}.",
    ]
    lines.append(interaction_part(runs, [R_AT_1, MAP_R]))
    lines += map(markdown, tables.of_splits(runs, [R_AT_1, MAP_R]))
    if folder:
        lines += [split_figure(runs, data, column, folder) for column in (R_AT_1, MAP_R)]
    return "\n\n".join(lines)


def split_figure(runs: splits.Splits, data: Data, column, folder: Path) -> str:
    """Write the figure of a column to `folder`. Returns the Markdown line that shows it."""
    name = f"study_splits_{data.name.lower()}_{column.metric.replace('@', '')}.png"
    with tempfile.TemporaryDirectory() as temporary:
        stem = plots.by_split(runs, column, Path(temporary))
        shutil.copyfile(Path(temporary) / f"{stem}.png", folder / name)
    return f"![{column.title} of each loss on each split less the split's mean, {data.name}]({name})"


def split_sections(runs: list, read_queries, folder: Path | None = None) -> dict[str, str]:
    """Data set -> what the runs of Split_Runs.sh say; `read_queries` as `splits.find` takes it."""
    dataset_groups = groups.of_datasets(groups.build(runs))
    by_name = {
        split_runs.dataset: split_runs
        for split_runs in splits.find(dataset_groups, r"^(Split\d+)_[A-Z][a-z]+_", read_queries)
    }
    sections = {}
    for data in settings.DATA:
        if data.name.lower() in by_name:
            split_runs = by_name[data.name.lower()]
            sections[data.name] = split_part(split_runs, data, folder)
            sections[ANSWER.format(data.name)] = split_answer(split_runs, [R_AT_1, MAP_R], data.name)
    return sections


def loss_sections(runs: list, chosen: dict[str, str], draws: int, folder: Path | None = None) -> dict[str, str]:
    """Data set -> what the runs of Study_Runs.sh say, for data sets with a run of any stage.

    `chosen`, `draws` and `folder` as `losses.part` takes them.
    """
    last_stage = [run for run in runs if run.group.partition("_")[0] not in ("Pilot", "Rate", "Cp")]
    all_groups = groups.build(last_stage) if last_stage else []
    sections = {}
    for data in settings.DATA:
        if any(data.name in run.group for run in runs):
            sections[data.name] = losses.part(runs, all_groups, data, chosen, draws, folder)
            sections[ANSWER.format(data.name)] = losses.answer(all_groups, data, draws)
    return sections


def script_of(group: str) -> str:
    """The `--of` of the script that a group belongs to."""
    for script, prefix in PREFIXES.items():
        if group.startswith(prefix):
            return script
    return "losses"


def results_of(runs: list, files: list[Path], options) -> dict[str, str]:
    """Part of the page -> its results, by `--of`."""
    folder = options.write.parent if options.write else None
    if options.of in WHOLE:
        name, part_of, answer_of = WHOLE[options.of]
        return {name: part_of(runs), ANSWER.format(name): answer_of(runs)} if runs else {}
    if options.of == "splits":
        read_queries = raw.queries(files) if files else paired.of_groups
        return split_sections(runs, read_queries, folder)
    chosen = protocol.choices(protocol.SCRIPT.read_text(encoding="utf-8"))
    return loss_sections(runs, chosen, options.draws, folder)


def main(argv=None) -> None:
    """Read the runs, write or print the section."""
    parser = OneLineParser(
        prog="experiments.study.tables", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument(
        "--of",
        choices=["losses", *PREFIXES],
        default="losses",
        help="runs of Study_Runs.sh, or of <Name>_Runs.sh",
    )
    parser.add_argument(
        "--runs",
        nargs="+",
        default=["Training_Results"],
        metavar="FOLDER",
        help="folders with these runs, or .csv files of them",
    )
    parser.add_argument(
        "--write",
        type=Path,
        default=None,
        metavar="PAGE",
        help="page that gets the results between its marks, and figures beside it; without it they are printed",
    )
    parser.add_argument("--draws", type=whole(100, 10**6), default=10_000, help="of permutations and of the bootstrap")
    options = parser.parse_args(argv)
    files = [Path(name) for name in options.runs if name.endswith(".csv")]
    folders = [name for name in options.runs if not name.endswith(".csv")]
    runs = [run for file in files for run in raw.read(file)]
    if folders:
        runs += collect.collect(folders, [], FlagRoles(parameters.declared_roles()))[0]
    runs = [run for run in runs if script_of(run.group) == options.of]
    results = results_of(runs, files, options)
    if options.write and results:
        designs.draw(options.of, options.write.parent)
    names = [WHOLE[options.of][0]] if options.of in WHOLE else [data.name for data in settings.DATA]
    consequence = "; its results stay as they are" if options.write else ""
    for name in names:
        if name not in results:
            print(f"{name}: no run of it in {', '.join(options.runs)}{consequence}")
    for name, section in results.items():
        if options.write is None:
            print(section)
        else:
            put(options.write, name, section)
            print(f"{options.write}: results of {name} written")


if __name__ == "__main__":
    with one_line_errors("experiments.study.tables"):
        main()
