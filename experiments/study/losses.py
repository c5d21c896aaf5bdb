"""The results of Study_Runs.sh on one data set, as Markdown: which losses differ, and what rho_distance changes.

A data set's groups are named `<Data>_<Loss>`, and `<Data>reg_<Loss>` for the twin of a loss, the same with the miner
rho_distance. `part` writes the whole section. The pilot is shown once it is finished; of the study itself no number is
shown until all runs are finished: the finished part was not drawn at random, so it is no smaller study.
"""

import itertools
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np

from experiments.study import protocol, settings
from experiments.study.page import MAP_R, R_AT_1, RHO, markdown, p_text
from experiments.study.settings import METHODS, MINED, Data
from experiments.study.statistics import bootstrap, shuffled_f, sign_flips, welch_anova
from results import columns, groups, inference, plots, tables
from results.columns import BEST_ON_TEST, LAST, SELECTED
from results.formats import Cell, Table
from results.groups import Group
from results.tables.notes import head, text
from utilities.intervals import t_interval

# Differences of two groups, in points, whose number of seeds is stated.
STATED_DIFFERENCES = (0.5, 1.0, 2.0)
# The pilot has converged once the best R@1 so far rises by no more points than this, on either split.
CONVERGED = {"val": 0.5, "train": 1.0}


def expected(data: Data) -> list[str]:
    """The groups of a data set's last stage."""
    return [f"{data.name}_{m.name}" for m in METHODS] + [f"{data.name}reg_{m.name}" for m in MINED]


def of_data(all_groups: list[Group], data: Data) -> list[Group]:
    """The groups of the last stage that were begun, in the order of the methods."""
    by_name = {group.name: group for group in all_groups}
    return [by_name[name] for name in expected(data) if name in by_name]


def without_twins(all_groups: list[Group], data: Data) -> list[Group]:
    """The groups of the last stage that are without rho_distance."""
    return [group for group in of_data(all_groups, data) if group.name.startswith(f"{data.name}_")]


def finished(all_groups: list[Group], data: Data) -> int:
    """How many runs of the last stage count."""
    return sum(seed in group.seeds for group in of_data(all_groups, data) for seed in settings.SEEDS)


def pairs(all_groups: list[Group], data: Data) -> list[tuple[Group, Group]]:
    """Each loss with a miner: its groups without and with rho_distance."""
    by_name = {group.name: group for group in all_groups}
    return [(by_name[f"{data.name}_{m.name}"], by_name[f"{data.name}reg_{m.name}"]) for m in MINED]


def joint(all_groups: list[Group], data: Data, draws: int) -> Table:
    """The effect of rho_distance on all losses together."""
    table = Table(
        f"{data.name}_joint",
        f"{data.name}: rho_distance, all losses together",
        ["quantity", "difference", "p, these losses", "rises, falls", "p, signs"],
    )
    for column in (R_AT_1, MAP_R, RHO):
        differences = np.stack(
            [twin.values(column, SELECTED) - plain.values(column, SELECTED) for plain, twin in pairs(all_groups, data)]
        )
        means = differences.mean(axis=1)
        p_losses = sign_flips(differences, draws, np.random.default_rng(0))
        above, below, p_signs = inference.sign_test(means)
        interval = t_interval(means)["interval_95"]
        table.add(
            [
                text(head(column)),
                Cell(means.mean(), digits=column.digits, sign=True, interval=interval),
                Cell(p_losses, digits=4),
                text(f"{above}, {below}"),
                Cell(p_signs, digits=4),
            ]
        )
    table.notes = [
        f"Difference: mean over {len(MINED)} losses; in brackets its 95 % t-interval over losses, which holds for "
        "similar losses too. p, these losses: joint test for these losses only, by flipping the signs of the "
        f"{len(MINED)} x {len(settings.SEEDS)} differences of runs with the same seed ({draws:,} draws). p, signs: "
        "sign test over the losses."
    ]
    return table


def methods_differ(all_groups: list[Group], data: Data, draws: int) -> str:
    """Whether the losses without rho_distance differ, and by how much.

    Twice: all of them, and without the one that is furthest from the mean of all.
    """
    plain = without_twins(all_groups, data)
    names = [group.name.partition("_")[2] for group in plain]
    sentences = []
    for column in (R_AT_1, MAP_R):
        values = np.stack([group.values(column, SELECTED) for group in plain])
        means = values.mean(axis=1)
        furthest = int(np.abs(means - means.mean()).argmax())
        remaining_names = names[:furthest] + names[furthest + 1 :]
        remaining_values = np.delete(values, furthest, axis=0)
        sentences.append(
            f"{column.title}: {_spread(names, values, draws)}. Without {names[furthest]}: "
            f"{_spread(remaining_names, remaining_values, draws)}."
        )
    return f"Analysis of variance of the {len(plain)} losses, {draws:,} shuffles. {' '.join(sentences)}"


def _spread(names: list[str], values: np.ndarray, draws: int) -> str:
    """Highest and lowest mean of `values` `(groups, seeds)`, the deviations, and the p of analysis of variance."""
    means = values.mean(axis=1)
    p = shuffled_f(values, draws, np.random.default_rng(0))
    high = int(means.argmax())
    low = int(means.argmin())
    within = math.sqrt(values.var(axis=1, ddof=1).mean())
    ends = f"from {means[high]:.2f} ({names[high]}) to {means[low]:.2f} ({names[low]})"
    welch = welch_anova(list(values))
    return (
        f"{ends}, deviation of the means {means.std(ddof=1):.2f}, of seeds {within:.2f}, p {p:.4f}, by Welch's test "
        f"{p_text(welch)}"
    )


def correlations(all_groups: list[Group], data: Data, draws: int) -> Table:
    """rho of the training embeddings with R@1 and MAP@R of new classes, with and without the twins."""
    heads = ["metric", "epoch", "groups", "Pearson", "p", "Spearman"]
    table = Table(f"{data.name}_correlations", f"{data.name}: rho (train) and new classes", heads)
    samples = {
        "all, with twins": of_data(all_groups, data),
        "without twins": without_twins(all_groups, data),
    }
    for epoch, (title, members), column in itertools.product((SELECTED, LAST), samples.items(), (R_AT_1, MAP_R)):
        x = [group.values(RHO, epoch) for group in members]
        y = [group.values(column, epoch) for group in members]
        result = inference.correlation([v.mean() for v in x], [v.mean() for v in y])
        interval = bootstrap(x, y, groups.units(members), draws, np.random.default_rng(0))
        table.add(
            [
                text(column.title),
                text(epoch),
                text(f"{len(members)}, {title}"),
                Cell(result.pearson, sign=True, interval=interval),
                Cell(result.p, digits=4),
                Cell(result.spearman, sign=True),
            ]
        )
    table.notes = [
        "Computed from the groups' means at the selected or the last epoch. Twins: the runs of a loss with "
        "rho_distance. In brackets: 95 % percentile interval of Pearson's coefficient by a bootstrap "
        f"({draws:,} draws) of the losses, each with its twin, and of their seeds. p treats groups as independent, "
        "although twins are not."
    ]
    return table


def optimism(all_groups: list[Group], data: Data) -> str:
    """One sentence: how much higher the values are if the epoch is selected on test."""
    gaps = []
    for column in (R_AT_1, MAP_R):
        gap_of_groups = [
            (group.values(column, BEST_ON_TEST) - group.values(column, SELECTED)).mean()
            for group in of_data(all_groups, data)
        ]
        ends = f"from {min(gap_of_groups):+.2f} to {max(gap_of_groups):+.2f}"
        gaps.append(f"{column.title} {np.mean(gap_of_groups):+.2f} points ({ends})")
    return (
        "Both selections: selecting each metric's best epoch on test instead of the best epoch by R@1 on validation "
        f"changes the mean over the groups by {', '.join(gaps)}."
    )


def power(deviation: float, source: str) -> Table:
    """How many seeds per group differences of R@1 need, given a deviation in points of the runs of `source`."""
    title = f"Seeds per group for a power of 80 %, from the deviation of {source}"
    table = Table("power", title, ["difference of two groups", "seeds"])
    for difference in STATED_DIFFERENCES:
        count = inference.seeds_needed(difference, deviation)
        seeds = f"more than {inference.MOST_SEEDS:,}" if count is None else str(count)
        table.add([text(f"{difference:g} points"), text(seeds)])
    table.notes = [
        f"Two-sided t-test at 5 %, deviation of seeds {deviation:.2f} points. The study has {len(settings.SEEDS)}."
    ]
    return table


def pilot(runs: list, data: Data) -> list[str]:
    """The pilot's curves, the epochs that follow from them, and the power of the study.

    If the pilot is not finished, how many of its runs are.
    """
    names = [f"Pilot_{data.name}_{name}" for name in settings.PILOT]
    n_expected = len(names) * len(settings.PILOT_SEEDS)
    pilot_runs = [
        run for run in runs if run.group in names and run.seed in settings.PILOT_SEEDS and run.problem is None
    ]
    if len(pilot_runs) < n_expected:
        return [f"The pilot is not finished: {len(pilot_runs)} of {n_expected} runs."]
    r_at_1 = {split: columns.column(split, "e_recall@1") for split in ("train", "val")}
    shown_columns = [*r_at_1.values(), columns.column("val", "map_r"), columns.column("train", RHO.metric)]
    table = Table(f"{data.name}_pilot", f"{data.name}: the pilot", ["epoch", *map(head, shown_columns)])
    series = pilot_runs[0].series
    epochs = series.epochs[np.isfinite(series.get("val", "e_recall@1"))]
    values = {c: np.array([[_at(run, c, epoch) for epoch in epochs] for run in pilot_runs]) for c in shown_columns}
    for place, epoch in enumerate(epochs):
        cells = [Cell(values[c][:, place].mean(), digits=c.digits) for c in shown_columns]
        table.add([text(f"{epoch:g}"), *cells])
    # (runs, epochs) of each split: the best R@1 so far; on validation, what would be selected
    best = {split: np.maximum.accumulate(values[c], axis=1) for split, c in r_at_1.items()}
    is_converged = np.ones(len(epochs), dtype=bool)
    for split, best_so_far in best.items():
        mean = best_so_far.mean(axis=0)
        is_converged &= mean >= mean[-1] - CONVERGED[split]
    first_converged = int(np.flatnonzero(is_converged)[0])
    deviations = []
    for name in names:
        is_member = [run.group == name for run in pilot_runs]
        deviations.append(best["val"][is_member, first_converged].std(ddof=1))
    deviation = math.sqrt(np.mean(np.square(deviations)))
    deviation_of = ", ".join(f"{name} {value:.2f}" for name, value in zip(settings.PILOT, deviations, strict=True))
    table.notes = [
        f"Means over {len(settings.PILOT)} losses ({', '.join(settings.PILOT)}) x {len(settings.PILOT_SEEDS)} seeds. "
        f"From epoch {epochs[first_converged]:g} to the end of the pilot the best R@1 so far rises by at most "
        f"{CONVERGED['val']:g} points on validation and {CONVERGED['train']:g} on training classes; this rule sets the "
        f"epochs of the study. Deviation over seeds of the best R@1 on validation at this epoch: {deviation_of}."
    ]
    return [markdown(table), markdown(power(deviation, "the pilot"))]


def _at(run, column, epoch) -> float:
    """A run's value of a column in one epoch."""
    values = run.series.get(column.split, column.metric)
    return float(values[run.series.epochs == epoch][0]) * column.scale


def figure(data_groups: list[Group], data: Data, folder: Path) -> str:
    """Write R@1 on test against rho of training, one point per group, to `folder`.

    Returns the Markdown line that shows it.
    """
    name = f"study_{data.name.lower()}.png"
    with tempfile.TemporaryDirectory() as temporary:
        stem = plots.relation(data_groups, RHO, R_AT_1, Path(temporary))
        shutil.copyfile(Path(temporary) / f"{stem}.png", folder / name)
    return f"![R@1 on new classes against rho of the training embeddings, {data.name}]({name})"


def _not_chosen(data_groups: list[Group], data: Data, chosen: dict[str, str]) -> list[str]:
    """The groups whose rate or probability is not the one that the search chose."""
    names = []
    for group in data_groups:
        method = next(m for m in METHODS if m.name == group.name.partition("_")[2])
        flags = {"rate": "lr"}
        if group.name.startswith(f"{data.name}reg_"):
            flags["cp"] = "miner_rho_distance_cp"
        for kind, flag in flags.items():
            value = chosen.get(protocol.variable(kind, data, method))
            if value is None or float(value) != float(group.flags.get(flag, math.nan)):
                names.append(f"{group.name} ({flag})")
    return names


def answer(all_groups: list[Group], data: Data, draws: int) -> str:
    """The results in a few sentences; if runs are missing, that they are."""
    if finished(all_groups, data) < len(expected(data)) * len(settings.SEEDS):
        return f"- **{data.name}**: not finished, so no result is shown."
    plain = without_twins(all_groups, data)
    tests = []
    for column in (R_AT_1, MAP_R):
        values = [group.values(column, SELECTED) for group in plain]
        means = np.array([seeds.mean() for seeds in values])
        furthest = int(np.abs(means - means.mean()).argmax())
        p_of_remaining = welch_anova(values[:furthest] + values[furthest + 1 :])
        name = plain[furthest].name.partition("_")[2]
        tests.append(f"{column.title} {p_text(welch_anova(values))}, without {name} {p_text(p_of_remaining)}")
    changes = [f"{row[0].text} {_with_interval(row[1])}" for row in joint(all_groups, data, draws).rows if row[0].text]
    relations = [
        f"{row[0].text} {_with_interval(row[3])}"
        for row in correlations(all_groups, data, draws).rows
        if row[1].text == SELECTED and row[2].text.endswith("without twins")
    ]
    return "\n".join(
        [
            f"- **{data.name}: do the losses differ?** Welch's test of the {len(plain)} losses: {'; '.join(tests)}.",
            f"- **{data.name}: is rho correlated with new classes?** Pearson's coefficient over the losses: "
            f"{', '.join(relations)}.",
            f"- **{data.name}: does rho_distance help?** Mean change over {len(MINED)} losses, with an interval for "
            f"similar losses: {', '.join(changes)}.",
        ]
    )


def _with_interval(cell: Cell) -> str:
    """`-0.11 [-0.36, +0.14]`."""
    low, high = cell.interval
    return f"{cell.value:+.2f} [{low:+.2f}, {high:+.2f}]"


def part(
    runs: list, all_groups: list[Group], data: Data, chosen: dict[str, str], draws: int, folder: Path | None = None
) -> str:
    """The results on one data set, as Markdown; if runs are missing, how many are finished.

    `chosen`: rates and probabilities of the search, by the name of their variable in the script. `folder` gets the
    figure (None: there is none).
    """
    n_expected = len(expected(data)) * len(settings.SEEDS)
    n_finished = finished(all_groups, data)
    lines = [f"### {data.name}", *pilot(runs, data)]
    if n_finished < n_expected:
        lines.append(
            f"**The study on {data.name} is not finished**: {n_finished} of {n_expected} runs. Results are shown only "
            "when all runs are finished."
        )
        return "\n\n".join(lines)
    data_groups = of_data(all_groups, data)
    not_chosen = _not_chosen(data_groups, data, chosen)
    if not_chosen:
        lines.append(
            f"**Values that the search did not choose**: {', '.join(not_chosen)}. These runs do not follow the "
            "protocol."
        )
    deviation = inference.pooled([group.estimate(R_AT_1, SELECTED) for group in data_groups]).deviation
    lines += [
        markdown(tables.single(data_groups, [R_AT_1, MAP_R], SELECTED, 1)),
        markdown(power(deviation, "the study")),
        methods_differ(all_groups, data, draws),
        optimism(all_groups, data),
        markdown(tables.regularised(data_groups, [R_AT_1, MAP_R, RHO], 1)),
        markdown(joint(all_groups, data, draws)),
        markdown(correlations(all_groups, data, draws)),
    ]
    if folder:
        lines.append(figure(data_groups, data, folder))
    return "\n\n".join(lines)
