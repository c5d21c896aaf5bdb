"""The results of Study_Runs.sh: tables, a joint test, correlations with their bootstrap, power, figures; written into docs/study.md.

    python -m experiments.study.tables --runs Training_Results --write docs/study.md
    python -m experiments.study.tables --of baseline --runs experiments/study/baseline_runs.csv --write docs/study.md
    python -m experiments.study.tables --of splits --runs experiments/study/split_runs.csv --write docs/study_splits.md
    python -m experiments.study.tables --of recent --runs experiments/study/recent_runs.csv --write docs/study_recent.md
    python -m experiments.study.tables --of union --runs experiments/study/union_runs.csv --write docs/study_union.md

--of names the script: Study_Runs.sh without it, else Baseline_Runs.sh (a classifier beside the study's best losses), Split_Runs.sh (what
another split of the classes changes), Recent_Runs.sh (methods of 2021 to 2024 beside the study's best losses) and Union_Runs.sh (one
embedding for four domains). --runs takes folders of runs, whose other runs are left out, and files of `raw.py`.

A thin client of results/, which groups runs and tests differences. No number is shown for a data set whose runs are not all finished: the
finished part was not drawn at random, so it is no smaller study. Of `--of splits` what is there is shown, and how much that is. Without
any run of a data set, its part of the page stays as it is.
"""

import functools
import itertools
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import parameters
from experiments.study import protocol, raw
from experiments.study.protocol import METHODS, MINED, Data
from results import collect, columns, formats, groups, inference, paired, plots, roles, splits, tables
from results.columns import BEST_ON_TEST, LAST, SELECTED
from results.formats import Cell, Table
from results.groups import Group
from results.tables.notes import head, text
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.intervals import t_interval
from utilities.numbers import whole

ROOT = Path(__file__).resolve().parents[2]
R_AT_1 = columns.column("test", "e_recall@1")
MAP_R = columns.column("test", "map_r")
RHO = columns.column("train", "rho_spectrum@2")
ON_VALIDATION = columns.column("val", "e_recall@1")
BY_COSINE = [
    columns.column("test", "c_recall@1"),
    columns.column("test", "c_map_r"),
]  # classifiers are trained and judged so
COMPARISONS = {one.name.lower(): one for one in protocol.COMPARISONS}
UNION = "Union"  # name of the results of Union_Runs.sh on its page
OTHERS = {
    "splits": "Split",
    "union": UNION,
    **{key: one.name for key, one in COMPARISONS.items()},
}  # how the groups of the other scripts' runs begin
ASKED = (0.5, 1.0, 2.0)  # points: the differences whose number of seeds is stated
RESTS = {
    "val": 0.5,
    "train": 1.0,
}  # points of R@1: the pilot has converged once the best so far rises by no more on either split
MARKS = (
    "<!-- results of {}: written by experiments/study/tables.py -->",
    "<!-- end of the results of {} -->",
)  # of a data set's part of the page


# -------------------------------------------------------------------------------------------------------------------- numbers
def sign_flips(differences: np.ndarray, draws: int, rng: np.random.Generator) -> float:
    """Two-sided p of the mean of paired differences of any shape, by flipping signs: without an effect both signs are equally likely."""
    flat = np.ravel(differences)
    signs = rng.integers(0, 2, (draws, flat.size)) * 2 - 1
    reached = np.abs(signs @ flat) >= abs(flat.sum()) * (
        1 - 1e-12
    )  # the same sum in another order may differ by rounding
    return (1 + int(reached.sum())) / (draws + 1)


def shuffled_f(values: np.ndarray, draws: int, rng: np.random.Generator) -> float:
    """p of one-way analysis of variance of `values` `(groups, seeds)`, by shuffling all values over the groups."""

    def between(
        of: np.ndarray,
    ) -> np.ndarray:  # with the total fixed, the F statistic rises with the spread of the means
        return of.mean(axis=-1).var(axis=-1)

    drawn = rng.permuted(np.broadcast_to(values.ravel(), (draws, values.size)), axis=1).reshape(draws, *values.shape)
    return (1 + int((between(drawn) >= between(values) * (1 - 1e-12)).sum())) / (draws + 1)


def bootstrap(
    x: list[np.ndarray], y: list[np.ndarray], units: list[int], draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """95 % interval of Pearson's coefficient over the groups' means, by resampling losses, with their twins, and seeds within each group.

    Args:
        x, y: one array `(seeds,)` per group, of the same runs.
        units: one number per group, the same for twins.
    """
    names = np.unique(units)
    members = [np.flatnonzero(np.asarray(units) == name) for name in names]
    means = np.empty((2, draws, len(x)))
    for group in range(len(x)):
        drawn = rng.integers(0, len(x[group]), (draws, len(x[group])))
        means[:, :, group] = x[group][drawn].mean(axis=1), y[group][drawn].mean(axis=1)
    found = np.full(draws, np.nan)
    for draw in range(draws):  # each draw has another number of points
        chosen = np.concatenate([members[unit] for unit in rng.integers(0, len(names), len(names))])
        a, b = means[:, draw, chosen]
        if np.ptp(a) > 0 and np.ptp(b) > 0:
            found[draw] = np.corrcoef(a, b)[0, 1]
    return tuple(np.nanpercentile(found, [2.5, 97.5])) if np.isfinite(found).any() else (math.nan, math.nan)


# --------------------------------------------------------------------------------------------------------------------- tables
def expected(data: Data) -> list[str]:
    """The groups of a data set's last stage."""
    return [f"{data.name}_{m.name}" for m in METHODS] + [f"{data.name}reg_{m.name}" for m in MINED]


def of_data(found: list[Group], data: Data) -> list[Group]:
    """The groups of the last stage that were begun, in the order of the methods."""
    of = {group.name: group for group in found}
    return [of[name] for name in expected(data) if name in of]


def finished(found: list[Group], data: Data) -> int:
    """How many runs of the last stage count."""
    return sum(seed in group.seeds for group in of_data(found, data) for seed in protocol.SEEDS)


def pairs(found: list[Group], data: Data) -> list[tuple[Group, Group]]:
    """Each loss with a miner: its groups without and with rho_distance."""
    of = {group.name: group for group in found}
    return [(of[f"{data.name}_{m.name}"], of[f"{data.name}reg_{m.name}"]) for m in MINED]


def joint(found: list[Group], data: Data, draws: int) -> Table:
    """The effect of rho_distance on all losses together."""
    table = Table(
        f"{data.name}_joint",
        f"{data.name}: rho_distance, all losses together",
        ["quantity", "difference", "p, these losses", "rises, falls", "p, signs"],
    )
    for column in (R_AT_1, MAP_R, RHO):
        values = np.stack(
            [other.values(column, SELECTED) - plain.values(column, SELECTED) for plain, other in pairs(found, data)]
        )
        means = values.mean(axis=1)
        rng = np.random.default_rng(0)
        above, below, p = inference.sign_test(means)
        change = Cell(means.mean(), digits=column.digits, sign=True, interval=t_interval(means)["interval_95"])
        table.add(
            [
                text(head(column)),
                change,
                Cell(sign_flips(values, draws, rng), digits=4),
                text(f"{above}, {below}"),
                Cell(p, digits=4),
            ]
        )
    table.notes = [
        f"Difference: mean over {len(MINED)} losses; in brackets its 95 % t-interval, the losses as the sample: for losses like these. p, these losses: "
        f"the joint test, by flipping the signs of the {len(MINED)} x {len(protocol.SEEDS)} differences of runs with one seed ({draws:,} draws). p, signs: the sign test over the losses."
    ]
    return table


def methods_differ(found: list[Group], data: Data, draws: int) -> str:
    """Whether the losses without rho_distance differ, and by how much: all of them, and without the one that is furthest from the others."""
    plain = [group for group in of_data(found, data) if group.name.startswith(f"{data.name}_")]
    names = [group.name.partition("_")[2] for group in plain]
    lines = []
    for column in (R_AT_1, MAP_R):
        values = np.stack([group.values(column, SELECTED) for group in plain])
        means = values.mean(axis=1)
        apart = int(np.abs(means - means.mean()).argmax())
        rest = names[:apart] + names[apart + 1 :]
        others = np.delete(values, apart, axis=0)
        lines.append(
            f"{column.title}: {_spread(names, values, draws)}. Without {names[apart]}: {_spread(rest, others, draws)}."
        )
    return f"Do the {len(plain)} losses differ? By analysis of variance, {draws:,} shuffles. {' '.join(lines)}"


def _spread(names: list[str], values: np.ndarray, draws: int) -> str:
    """Highest and lowest mean of `values` `(groups, seeds)`, the deviations, and the p of analysis of variance."""
    means = values.mean(axis=1)
    p = shuffled_f(values, draws, np.random.default_rng(0))
    high = int(means.argmax())
    low = int(means.argmin())
    within = math.sqrt(values.var(axis=1, ddof=1).mean())
    ends = f"from {means[high]:.2f} ({names[high]}) to {means[low]:.2f} ({names[low]})"
    return f"{ends}, deviation of the means {means.std(ddof=1):.2f}, of seeds {within:.2f}, p {p:.4f}"


def correlations(found: list[Group], data: Data, draws: int) -> Table:
    """rho of the training embeddings with R@1 and MAP@R of new classes, with and without the twins."""
    heads = ["with", "epoch", "groups", "Pearson", "p", "Spearman"]
    table = Table(f"{data.name}_correlations", f"{data.name}: rho (train) and new classes", heads)
    there = of_data(found, data)
    plain = [group for group in there if group.name.startswith(f"{data.name}_")]
    for how, (title, members) in itertools.product(
        (SELECTED, LAST), (("all, twins too", there), ("without twins", plain))
    ):
        for column in (R_AT_1, MAP_R):
            x, y = ([group.values(c, how) for group in members] for c in (RHO, column))
            result = inference.correlation([v.mean() for v in x], [v.mean() for v in y])
            low, high = bootstrap(x, y, groups.units(members), draws, np.random.default_rng(0))
            shown = [
                Cell(result.pearson, sign=True, interval=(low, high)),
                Cell(result.p, digits=4),
                Cell(result.spearman, sign=True),
            ]
            table.add([text(column.title), text(how), text(f"{len(members)}, {title}"), *shown])
    table.notes = [
        "Over the groups' means at the selected or the last epoch. In brackets: 95 % percentile interval of Pearson's coefficient by a bootstrap "
        f"({draws:,} draws) of the losses, each with its twin, and of the seeds within. p treats groups as independent, which twins are not."
    ]
    return table


def optimism(found: list[Group], data: Data) -> str:
    """One sentence: by how much the epoch chosen on test looks better."""
    gaps = []
    for column in (R_AT_1, MAP_R):
        each = [
            (group.values(column, BEST_ON_TEST) - group.values(column, SELECTED)).mean()
            for group in of_data(found, data)
        ]
        gaps.append(f"{column.title} {np.mean(each):+.2f} points (from {min(each):+.2f} to {max(each):+.2f})")
    return (
        "Both selections: each metric's own best epoch on test, in place of the one that R@1 on validation chose, gives in the mean over the "
        f"groups {', '.join(gaps)}."
    )


def power(deviation: float, of: str) -> Table:
    """How many seeds per group differences of R@1 need, given a deviation in points; `of`: what it is the deviation of."""
    table = Table("power", f"Seeds a group for a power of 80 %, by {of}", ["difference of two groups", "seeds"])
    for difference in ASKED:
        count = inference.seeds_needed(difference, deviation)
        table.add(
            [
                text(f"{difference:g} points"),
                text(f"more than {inference.MOST_SEEDS:,}" if count is None else str(count)),
            ]
        )
    table.notes = [
        f"Two-sided t-test at 5 %, deviation of seeds {deviation:.2f} points. The study has {len(protocol.SEEDS)}."
    ]
    return table


def pilot(runs: list, data: Data) -> list[str]:
    """The pilot's curves, the epochs that follow from them, and the power of the study; if it is not finished, what is missing."""
    names = [f"Pilot_{data.name}_{name}" for name in protocol.PILOT]
    there = [run for run in runs if run.group in names and run.seed in protocol.PILOT_SEEDS and run.problem is None]
    wanted = len(names) * len(protocol.PILOT_SEEDS)
    if len(there) < wanted:
        return [f"The pilot has not been run to its end: {len(there)} of {wanted} runs are finished."]
    shown = [("train", "e_recall@1"), ("val", "e_recall@1"), ("val", "map_r"), ("train", RHO.metric)]
    keys = [columns.column(*key) for key in shown]
    table = Table(f"{data.name}_pilot", f"{data.name}: the pilot", ["epoch", *[head(c) for c in keys]])
    epochs = there[0].series.epochs[np.isfinite(there[0].series.of("val", "e_recall@1"))]
    values = {c: np.array([[_at(run, c, epoch) for epoch in epochs] for run in there]) for c in keys}  # (runs, epochs)
    for place, epoch in enumerate(epochs):
        table.add([text(f"{epoch:g}"), *[Cell(values[c][:, place].mean(), digits=c.digits) for c in keys]])
    best = {
        c.split: np.maximum.accumulate(values[c], axis=1) for c in keys[:2]
    }  # so far; on validation, what would be selected
    curve = best["val"]
    means = {split: so_far.mean(axis=0) for split, so_far in best.items()}
    rests = int(np.flatnonzero(np.all([mean >= mean[-1] - RESTS[split] for split, mean in means.items()], axis=0))[0])
    deviations = [curve[[run.group == name for run in there], rests].std(ddof=1) for name in names]
    deviation = math.sqrt(np.mean(np.square(deviations)))
    table.notes = [
        f"Means over {len(protocol.PILOT)} losses ({', '.join(protocol.PILOT)}) x {len(protocol.PILOT_SEEDS)} seeds. From epoch {epochs[rests]:g} on, the best R@1 so far "
        f"rises to the end of the pilot by no more than {RESTS['val']:g} points on validation and {RESTS['train']:g} on training classes: the rule for the "
        "epochs of the study. Deviation over seeds of the best on validation there: "
        + ", ".join(f"{name} {value:.2f}" for name, value in zip(protocol.PILOT, deviations, strict=True))
        + "."
    ]
    return [_markdown(table), _markdown(power(deviation, "the pilot"))]


def _at(run, column, epoch) -> float:
    return float(run.series.of(column.split, column.metric)[run.series.epochs == epoch][0]) * column.scale


def _markdown(table: Table) -> str:
    return "##" + formats.to_markdown(table)  # one page: a table's heading is below the page's


# -----------------------------------------------------------------------------------------------------------------------
# page
def part(
    runs: list, found: list[Group], data: Data, chosen: dict[str, str], draws: int, folder: Path | None = None
) -> str:
    """The results on one data set, as Markdown; without all runs, how many there are. `folder` gets the figure (None:
    there is none).
    """
    wanted = len(expected(data)) * len(protocol.SEEDS)
    done = finished(found, data)
    lines = [f"### {data.name}", *pilot(runs, data)]
    if done < wanted:
        lines.append(
            f"**The study on {data.name} has not been run to its end**: {done} of {wanted} runs are finished. "
            "Until all are, no number of it is shown."
        )
        return "\n\n".join(lines)
    there = of_data(found, data)
    wrong = _unlike(there, data, chosen)
    lines += (
        [f"**Values that the search did not choose**: {', '.join(wrong)}: these runs are not the study's."]
        if wrong
        else []
    )
    shown = [R_AT_1, MAP_R]
    spread = inference.pooled([group.estimate(R_AT_1, SELECTED) for group in there]).deviation
    lines += [
        _markdown(tables.single(there, shown, SELECTED, 1)),
        _markdown(power(spread, "the study itself")),
        methods_differ(found, data, draws),
        optimism(found, data),
    ]
    lines += [_markdown(tables.regularised(there, [*shown, RHO], 1)), _markdown(joint(found, data, draws))]
    lines += [_markdown(correlations(found, data, draws)), *([figure(there, data, folder)] if folder else [])]
    return "\n\n".join(lines)


def split_part(of: splits.Splits, data: Data, folder: Path | None = None) -> str:
    """What the runs of Split_Runs.sh on one data set say, as Markdown; `folder` gets the figures (None: there are
    none).
    """
    count = len(protocol.SPLIT_METHODS) * len(protocol.SPLITS) * len(protocol.SPLIT_SEEDS)
    done = sum(len(group.seeds) for row in of.members for group in row)
    lines = [
        f"### {data.name}",
        f"{done} of {count} runs: {len(of.methods)} losses on {len(of.splits)} of {len(protocol.SPLITS)} splits.",
    ]
    lines += [_markdown(table) for table in tables.of_splits(of, [R_AT_1, MAP_R])]
    for column in (R_AT_1, MAP_R) if folder else ():
        name = f"study_splits_{data.name.lower()}_{column.metric.replace('@', '')}.png"
        with tempfile.TemporaryDirectory() as made:
            shutil.copyfile(Path(made) / f"{plots.by_split(of, column, Path(made))}.png", folder / name)
        lines.append(f"![{column.title} of each loss on each split less the split's mean, {data.name}]({name})")
    return "\n\n".join(lines)


def comparison_part(one: protocol.Comparison, runs: list) -> str:
    """What the runs of a comparison's script say, as Markdown; without all of them, how many there are."""
    searched = Table(
        f"{one.name.lower()}_rates", "The search: R@1 on validation classes", ["method", "rate", "R@1 (val) [%]"]
    )
    value_of = {run.group: columns.value(run, columns.column("val", "c_recall@1"), SELECTED) for run in runs}
    for method in one.methods:
        for rate, group in one.searched(method).items():
            searched.add([text(method.name), text(rate), Cell(100 * value_of.get(group, math.nan), digits=2)])
    of = {
        group.name: group
        for group in groups.build([run for run in runs if run.group in one.groups() and run.seed in protocol.SEEDS])
    }
    wanted = len(one.groups()) * len(protocol.SEEDS)
    if (done := sum(len(group.seeds) for group in of.values())) < wanted:
        return (
            f"{_markdown(searched)}\n\n**Not run to its end**: {done} of {wanted} runs are finished. Until all are, "
            "no number of them is shown."
        )
    there = [of[name] for name in one.groups()]
    shown = [searched, tables.single(there, BY_COSINE, SELECTED, 1)]
    if len(one.variants) > 1:
        pairs = list(zip(there[: len(one.methods)], there[len(one.methods) :], strict=True))
        shown.append(
            tables.beside_twins(
                pairs,
                BY_COSINE,
                1,
                ("plain", "erasing"),
                "in --random_erasing 0.5 alone, which no rate was searched for",
            )
        )
    else:
        shown += [
            *costs(one),
            *(tables.ranks(there, column) for column in BY_COSINE),
            tables.optimism(there, BY_COSINE, 1),
        ]
    return "\n\n".join(map(_markdown, shown))


def costs(one: protocol.Comparison) -> list[Table]:
    """A step of each method beside multi-similarity's, as `benchmarks/methods.py --costs` measured it; nothing where no
    such file lies beside the script's rows.
    """
    if not (file := ROOT / f"experiments/study/{one.name.lower()}_costs.csv").exists():
        return []
    found = pd.read_csv(file, index_col="method")
    table = Table(f"{one.name.lower()}_costs", "A step", ["method", "ms", "of MS", "MB"])
    for method in one.methods:
        milliseconds, megabytes, _ = found.loc[method.name]
        table.add(
            [
                text(method.name),
                Cell(milliseconds, digits=0),
                Cell(milliseconds / found.milliseconds["MS"], digits=2),
                Cell(megabytes, digits=0),
            ]
        )
    table.notes = [
        (
            f"Medians of steps taken in turns, on {found.threads.iloc[0]} threads, without loading; MB: what a step "
            "takes beyond weights, in a process of its own."
        )
    ]
    return [table]


def union_part(runs: list) -> str:
    """What the runs of Union_Runs.sh say, as Markdown; without all of them, how many there are."""
    names = {
        f"{UNION}_{name}"
        for name in (*protocol.UNIVERSAL, *(f"Specialist_{name}" for name in protocol.DOMAINS.values()))
    }
    of = {(run.group, run.seed): run for run in runs if run.problem is None}
    wanted = [(f"{UNION}_Features", 0), *itertools.product(sorted(names), protocol.UNION_SEEDS)]
    if (done := sum(key in of for key in wanted)) < len(wanted):
        return (
            f"**Not run to its end**: {done} of {len(wanted)} runs are finished. Until all are, no number of them is "
            "shown."
        )
    return "\n\n".join(_markdown(table) for metric in ("e_recall@1", "mmp@5") for table in _union_tables(of, metric))


def _union_tables(of: dict, metric: str) -> list[Table]:
    """One metric: each way of training on each domain; differences of these, paired by seed; each specialist on each
    domain.
    """
    of_metric = columns.column("test", metric)
    heads = [*protocol.DOMAINS.values(), "mean"]
    domains = protocol.DOMAINS

    def values(group: str, seeds) -> np.ndarray:  # (seeds, domains)
        return np.array(
            [
                [
                    columns.value(of[f"{UNION}_{group}", seed], columns.column("test", f"{domain}/{metric}"), LAST)
                    for domain in domains
                ]
                for seed in seeds
            ]
        )

    specialists = [values(f"Specialist_{name}", protocol.UNION_SEEDS) for name in domains.values()]
    rows = {"Specialists": np.stack([own[:, place] for place, own in enumerate(specialists)], 1)}
    rows |= {name: values(name, protocol.UNION_SEEDS) for name in protocol.UNIVERSAL} | {
        "Features": values("Features", [0])
    }
    rows = {name: 100 * np.column_stack([found, found.mean(1)]) for name, found in rows.items()}
    plain = Table(
        f"union_{metric}",
        f"{of_metric.title}: queries of a domain in the index of all",
        ["training", "seeds", *(f"{head} [%]" for head in heads)],
    )
    for name, found in rows.items():
        plain.add([text(name), text(str(len(found))), *(_with_interval(column) for column in found.T)])
    plain.notes = [
        (
            "In brackets: 95 % t-interval of the seeds' mean. Specialists: each domain by the network of its own. "
            "Features: the pretrained network as it is, 1,280 dimensions."
        )
    ]
    less = Table(
        f"union_{metric}_differences",
        f"{of_metric.title}: differences, paired by seed",
        ["difference", *(f"{head} [points]" for head in heads)],
    )
    for one, other in (
        ("Separate", "Joint"),
        ("Joint", "Specialists"),
        ("Separate", "Specialists"),
        ("Joint", "Features"),
        ("Separate", "Features"),
    ):
        less.add(
            [
                text(f"{one} less {other}"),
                *(_with_interval(column, sign=True) for column in (rows[one] - rows[other]).T),
            ]
        )
    less.notes = [
        (
            f"In brackets: 95 % t-interval over {len(protocol.UNION_SEEDS)} seeds, of the runs alone: the classes and "
            "images are the same in all."
        )
    ]
    away = Table(
        f"union_{metric}_specialists",
        f"{of_metric.title} of each specialist on each domain",
        ["trained on", *(f"{head} [%]" for head in heads)],
    )
    for name, found in zip(domains.values(), specialists, strict=True):
        away.add([text(name), *(_with_interval(column) for column in 100 * np.column_stack([found, found.mean(1)]).T)])
    return [plain, less, away]


def _with_interval(values: np.ndarray, sign: bool = False) -> Cell:
    """The mean of values `(seeds,)` and its 95 % t-interval; of a single one none. `sign`: of differences."""
    found = t_interval(values)
    sign = "+" * sign
    within = found["interval_95"]
    return text(f"{found['mean']:{sign}.2f}" + (f" [{within[0]:{sign}.2f}, {within[1]:{sign}.2f}]" if within else ""))


def figure(there: list[Group], data: Data, folder: Path) -> str:
    """Write R@1 on test against rho of training, one point per group, to `folder`. Returns the Markdown line that shows
    it.
    """
    name = f"study_{data.name.lower()}.png"
    with tempfile.TemporaryDirectory() as made:
        drawn = plots.relation(there, RHO, R_AT_1, Path(made))
        shutil.copyfile(Path(made) / f"{drawn}.png", folder / name)
    return f"![R@1 on new classes against rho of the training embeddings, {data.name}]({name})"


def _unlike(there: list[Group], data: Data, chosen: dict[str, str]) -> list[str]:
    """The groups whose rate or probability is not the one that the search chose."""
    wrong = []
    for group in there:
        method = next(m for m in METHODS if m.name == group.name.partition("_")[2])
        kinds = {"rate": "lr"}
        if group.name.startswith(f"{data.name}reg_"):
            kinds["cp"] = "miner_rho_distance_cp"
        for kind, flag in kinds.items():
            value = chosen.get(protocol.variable(kind, data, method))
            if value is None or float(value) != float(group.flags.get(flag, math.nan)):
                wrong.append(f"{group.name} ({flag})")
    return wrong


def split_sections(runs: list, read_queries, folder: Path | None = None) -> dict[str, str]:
    """Data set -> what the runs of Split_Runs.sh say; `read_queries` as `splits.find` takes it."""
    of = groups.of_datasets(groups.build(runs))
    found = splits.find(of, r"^(Split\d+)_[A-Z][a-z]+_", read_queries)
    by_name = {one.dataset: one for one in found}
    return {
        data.name: split_part(by_name[data.name.lower()], data, folder)
        for data in protocol.DATA
        if data.name.lower() in by_name
    }


def sections(runs: list, chosen: dict[str, str], draws: int, folder: Path | None = None) -> dict[str, str]:
    """Data set -> its results, as Markdown, for those with a run. `folder` gets the figures (None: there are none)."""
    stages = [run for run in runs if run.group.partition("_")[0] not in ("Pilot", "Rate", "Cp")]
    found = groups.build(stages) if stages else []
    begun = [data for data in protocol.DATA if any(data.name in run.group for run in runs)]  # of any stage
    return {data.name: part(runs, found, data, chosen, draws, folder) for data in begun}


def put(page: Path, name: str, results: str) -> None:
    """Write a data set's results between its marks on the page. Raises UserError where it has none."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    start, end = (mark.format(name) for mark in MARKS)
    if not before.count(start) == before.count(end) == 1:
        raise UserError(
            f"--write {page}: the page holds no lines {start} and {end}: add them where the results are to stand"
        )
    above, rest = before.split(start)
    page.write_text(f"{above}{start}\n\n{results}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")


def _asked(runs: list, files: list[Path], options) -> dict[str, str]:
    """Part of the page -> its results, by `--of`."""
    folder = options.write and options.write.parent
    if options.of in WHOLE:
        name, part_of = WHOLE[options.of]
        return {name: part_of(runs)} if runs else {}
    if options.of == "splits":
        return split_sections(runs, raw.queries(files) if files else paired.of_groups, folder)
    return sections(runs, protocol.choices(protocol.SCRIPT.read_text(encoding="utf-8")), options.draws, folder)


WHOLE = {"union": (UNION, union_part)} | {  # results that are one part of a page, whatever the data
    key: (one.name, functools.partial(comparison_part, one)) for key, one in COMPARISONS.items()
}


def main(argv=None) -> None:
    """Read the runs, write or print the section."""
    parser = OneLineParser(
        prog="experiments.study.tables", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument(
        "--of", choices=["losses", *OTHERS], default="losses", help="runs of Study_Runs.sh, or of <Name>_Runs.sh"
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
    roles.use(parameters.declared_roles())
    files = [Path(name) for name in options.runs if name.endswith(".csv")]
    folders = [name for name in options.runs if not name.endswith(".csv")]
    runs = [run for file in files for run in raw.read(file)] + (collect.collect(folders, [])[0] if folders else [])
    runs = [
        run
        for run in runs
        if options.of == next((of for of, begin in OTHERS.items() if run.group.startswith(begin)), "losses")
    ]
    names = [WHOLE[options.of][0]] if options.of in WHOLE else [data.name for data in protocol.DATA]
    found = _asked(runs, files, options)
    for name in [name for name in names if name not in found]:
        print(
            f"{name}: no run of it in {', '.join(options.runs)}"
            + ("; its results stay as they are" if options.write else "")
        )
    for name, results in found.items():
        if options.write is None:
            print(results)
        else:
            put(options.write, name, results)
            print(f"{options.write}: results of {name} written")


if __name__ == "__main__":
    with one_line_errors("experiments.study.tables"):
        main()
