"""docs/evidence.md from the rows of the runs: every sentence with a number, every table and picture.

    python -m experiments.objects.tables --rows experiments/objects/rows --write docs

also writes results/objects_components.csv, the file of `Result_Evaluations.py --plan_components objects`.
"""

import itertools
import re
from collections import Counter
from pathlib import Path

import numpy as np

from experiments.objects import analysis, components, evidence
from experiments.objects.analysis import METRICS, PAIRS, Runs
from experiments.objects.evidence import LOSSES, RATES, STAGES
from experiments.study.page import markdown
from pictures import draws as pictures
from results import columns, planning
from results.formats import Cell, Table
from results.planning import COMPONENTS, Design
from results.tables.notes import text
from utilities.console import say
from utilities.counts import count_of
from utilities.errors import OneLineParser, one_line_errors
from utilities.files import write_csv, write_file
from utilities.reading import read_records

TITLES = [columns.title(metric) for metric in METRICS]
POINTS = (0.5, 1.0, 2.0)
# the page's text, with places for what is computed
PAGE = Path(__file__).with_name("page.md")
PLACE = re.compile(r"\{\w+\}")
# with fewer, the variance of training sets is not known at all
FEWEST_SETS = 5
FURTHER = ("classes20", "classes50", "classes200", "classes500", "images4")
PARTS = {
    "T": "training classes",
    "E": "test classes",
    "TE": "training and test classes together",
    "S": "seed",
    "r": "seed and test classes together",
}


def number(value: float, digits: int = 2) -> Cell:
    """A cell of the page."""
    return Cell(float(value), digits=digits)


def percent(share: float) -> str:
    """A share as text."""
    return f"{100 * share:.0f} %"


def bounds(low: float, high: float, digits: int = 2) -> str:
    """An interval as text."""
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def losses_table(folder: Path, runs: Runs) -> Table:
    """Each loss's mean and deviation over the field's habit, how often it is first, and its rate."""
    rates = evidence.chosen_rates(folder)
    of_split = np.stack([runs.habit(metric).mean(2) for metric in range(2)])  # (2, losses, splits)
    first = [Counter(of_split[metric].argmax(0).tolist()) for metric in range(2)]
    heads = ["loss", "rate"]
    for title in TITLES:
        heads += [f"{title} [%]", f"first by {title}"]
    table = Table("losses", f"The losses on {len(runs.trained)} splits of 100 + 100 classes", heads)
    frozen = read_records(folder / "frozen.csv")[1][: runs.stage.sets]
    cells = [text("frozen features"), text("")]
    for key in ("r1", "map_r"):
        values = np.array([float(row[key]) for row in frozen])
        cells += [Cell(values.mean(), values.std(ddof=1)), text("")]
    table.add(cells)
    for number_of_loss, loss in enumerate(LOSSES):
        cells = [text(loss), text(f"{rates[loss][0]:g}")]
        for metric in range(2):
            values = of_split[metric, number_of_loss]
            cells += [Cell(values.mean(), values.std(ddof=1)), text(str(first[metric][number_of_loss]))]
        remarks = []
        if rates[loss][0] in (RATES[0], RATES[-1]):
            remarks = ["the rate is at an end of its range: a further one may be better"]
        table.add(cells, remarks)
    table.notes = [
        f"Means of {count_of(runs.seeds, 'seed')}; ±: deviation over the splits. First: on how many of the "
        f"{len(runs.trained)} splits the loss has the highest mean.",
    ]
    return table


def components_table(estimates: list[dict], intervals: list[dict]) -> Table:
    """The variance components of both metrics, averaged over all pairs of losses."""
    table = Table("components", "Variance of a difference of two losses, in points squared", ["part", "of", *TITLES])
    for name in COMPONENTS:
        cells = [f"{estimates[metric][name]:.3f} {bounds(*intervals[metric][name], 3)}" for metric in range(2)]
        table.add([text(name), text(PARTS[name]), *map(text, cells)])
    table.notes = [
        f"Means over the {len(PAIRS)} pairs of losses, at 100 test classes, one seed; in brackets: 95 % intervals by a "
        "jackknife over the 20 sets. An estimate below 0 stands for a component that is too small to be seen: its "
        "upper bound is the result, and plans count it as 0.",
    ]
    return table


def verdicts_table(verdicts: list[analysis.Verdicts], seeds: int) -> Table:
    """What one split says, against the mean of the other draws."""
    table = Table("verdicts", "One split against the mean of all draws that share no set with it", ["", *TITLES])
    count = verdicts[0].count
    for title, cells in (
        ("deviation over the splits [points]", [f"{verdict.deviation:.2f}" for verdict in verdicts]),
        ("standard error by the paired interval [points]", [f"{verdict.error:.2f}" for verdict in verdicts]),
        ("distance to the others' mean over this error (rms)", [f"{verdict.ratio:.2f}" for verdict in verdicts]),
        ("interval holds the others' mean", [percent(verdict.holds) for verdict in verdicts]),
        ("the same if intervals were right", [percent(verdict.expected) for verdict in verdicts]),
        (f"differences shown, of {count}", [f"{verdict.claims}" for verdict in verdicts]),
        ("of these with the wrong sign", [f"{verdict.wrong}" for verdict in verdicts]),
        (
            "of these the others: size over the others' mean (median)",
            [f"{verdict.inflated:.1f}" for verdict in verdicts],
        ),
        (f"wrong sign, {count_of(seeds, 'seed')}", [percent(verdict.sign) for verdict in verdicts]),
        ("wrong sign, 1 seed", [percent(verdict.sign_of_one) for verdict in verdicts]),
    ):
        table.add([text(title), *map(text, cells)])
    table.notes = [
        f"{count} = {len(PAIRS)} pairs x {count // len(PAIRS)} splits. Interval: results/bootstrap.py, over the test "
        "classes and the seeds of that split. The others' mean is uncertain too, which the fifth line counts.",
    ]
    return table


def plan_table(plans: list[planning.Components]) -> Table:
    """What is needed for differences of `POINTS`."""
    heads = ["metric", "test classes", "seeds", *(f"draws for {points:g}" for points in POINTS)]
    heads += ["one draw shows [points]", "one draw: wrong sign at 1 point"]
    table = Table("plans", "Draws of classes that a claim of 0.5, 1 and 2 points needs", heads)
    for of_metric, classes, seeds in itertools.product(plans, (100, 1000), (1, 3, 5)):
        design = Design(classes, seeds)
        cells = [text(columns.title(of_metric.metric)), number(classes, 0), number(seeds, 0)]
        cells += [number(of_metric.draws_needed(points, design), 0) for points in POINTS]
        cells += [number(of_metric.least_shown(design)), text(percent(of_metric.wrong_sign(1, design)))]
        table.add(cells)
    table.notes = [
        "With 80 % power, two-sided t-test at 5 % over the draws; one draw is judged by the components as if they were "
        "exact. E, TE and r are taken to fall with the number of test classes, as the next table tests. "
        "Result_Evaluations.py --plan gives further ones.",
    ]
    return table


def sizes_table(folder: Path, main_estimates: list[dict]) -> Table | None:
    """The error of one draw at other numbers of classes and images, measured and scaled from 100 classes."""
    heads = ["classes", "images", "draws"]
    for title in TITLES:
        heads += [f"{title} [%]", f"error of {title}: measured", "scaled from 100"]
    table = Table("sizes", "Error of one draw's difference at other sizes, in points", heads)
    for name in FURTHER:
        runs = analysis.read(folder, name)
        if len(runs.trained) < min(FEWEST_SETS, runs.stage.sets):
            continue
        stage = runs.stage
        design = Design(stage.classes, runs.seeds)
        cells = [number(stage.classes, 0), number(stage.images, 0), number(len(runs.trained), 0)]
        for metric in range(2):
            measured = components.mean_estimate(runs.differences(metric))
            cells += [
                number(runs.habit(metric).mean()),
                number(analysis.planned(measured, metric, stage.classes).error(design)),
                number(analysis.planned(main_estimates[metric], metric, 100).error(design)),
            ]
        table.add(cells)
    table.notes = [
        f"Training and test sets of so many classes, {STAGES[FURTHER[0]].seeds} seeds. Scaled: from the components at "
        "100 classes, as plans do it. Few draws know an error badly: ten to 24 %, four to 41 %.",
    ]
    return table if table.rows else None


def selection_table(selections: list[analysis.Selection]) -> Table:
    """What the choice of the checkpoint changes."""
    heads = ["loss"]
    for title in TITLES:
        heads += [f"{title}: on a third set less last step", f"{title}: on test less on a third set"]
    table = Table("selection", "Selecting the best of eight checkpoints, in points", heads)
    for index, loss in enumerate(LOSSES):
        cells = [text(loss)]
        for of_metric in selections:
            for change in (of_metric.by_validation[index], of_metric.by_test[index]):
                cells.append(text(f"{change.value:+.2f} {bounds(change.low, change.high)}"))
        table.add(cells)
    table.notes = [
        "Checkpoints every 30 steps, selected by R@1. In brackets: 95 % t-intervals over the 20 splits. "
        + " ".join(
            f"{title}: selecting on test changes the difference of no pair of losses by more than {bound:.2f} points "
            "(simultaneous 95 %)."
            for title, bound in zip(TITLES, largest_changes(selections), strict=True)
        )
    ]
    return table


def largest_changes(selections: list[analysis.Selection]) -> list[float]:
    """The upper bound of what selecting on test changes in any difference of two losses, per metric."""
    largest = []
    for of_metric in selections:
        largest.append(max(max(-change.low, change.high) for change in of_metric.of_difference))
    return largest


def gains(selected: analysis.Selection) -> str:
    """What selecting on test adds to a loss, the least and the most."""
    values = [change.value for change in selected.by_test]
    return f"{min(values):.1f} to {max(values):.1f}"


def finetuning(folder: Path, runs: Runs) -> str:
    """The components of a pair of fine-tuned losses beside those of their adapters on the same sets, as Markdown."""
    path = folder / "finetune.csv"
    if not path.exists():
        return "Not run yet: `python -m experiments.objects.finetune` does so on a GPU, in nine minutes."
    _, rows = read_records(path)
    losses = list(dict.fromkeys(row["loss"] for row in rows))
    draws = 1 + max(int(row["test_set"]) // 2 for row in rows)
    seeds = len({row["seed"] for row in rows})
    scores = np.full((2, len(losses), draws, draws, seeds), np.nan)
    for row in rows:
        cell = int(row["train_set"]) // 2, int(row["test_set"]) // 2, int(row["seed"])
        scores[(slice(None), losses.index(row["loss"]), *cell)] = float(row["r1"]), float(row["map_r"])
    table = Table("finetuning", f"{losses[0]} less {losses[1]}", ["metric", "network", "mean", *COMPONENTS])
    numbers = [LOSSES.index(loss) for loss in losses]
    adapters = runs.scores[:, numbers, : 2 * draws : 2, 1 : 2 * draws : 2, : runs.seeds]
    for metric, (network, values) in itertools.product(range(2), (("fine-tuned", scores), ("adapter", adapters))):
        differences = values[metric, 0] - values[metric, 1]
        cells = [text(TITLES[metric]), text(network), number(np.nanmean(differences))]
        if np.isfinite(differences).all() and differences.shape[2] > 1:
            cells += [number(value, 3) for value in components.estimate(differences).values()]
        else:
            cells += [Cell()] * len(COMPONENTS)
        table.add(cells)
    table.notes = [f"{draws} training and {draws} test sets, in points and points squared; {seeds} seeds fine-tuned."]
    return markdown(table)


def counts(folder: Path) -> str:
    """How many runs of each stage are finished, and of an unfinished one how many are analysed."""
    lines = []
    for name in STAGES:
        if name == "tune":
            continue
        runs = analysis.read(folder, name)
        line = f"`{name}` {runs.finished:,} of {runs.expected:,}"
        if runs.finished < runs.expected and len(runs.trained):
            line += f" ({count_of(runs.seeds, 'seed')} of {count_of(len(runs.trained), 'training set')} are analysed)"
        lines.append(line)
    return "; ".join(lines)


def results(folder: Path, runs: Runs, write: Path) -> dict[str, str]:
    """Place of the page's text -> what is computed for it.

    Draws the pictures of the results into the folder `write`, and writes the components that ship.
    """
    differences = [runs.differences(metric) for metric in range(2)]
    estimates = [components.mean_estimate(of_metric) for of_metric in differences]
    intervals = [components.interval(of_metric) for of_metric in differences]
    plans = [analysis.planned(estimates[metric], metric, runs.stage.classes) for metric in range(2)]
    percents = analysis.by_class(folder / "main", runs)
    verdicts = [analysis.verdicts(runs, metric, percents[metric]) for metric in range(2)]
    selections = [analysis.selection(runs, metric) for metric in range(2)]
    sizes = sizes_table(folder, estimates)
    write_components(plans, runs)
    pictures.parts(write / "evidence_parts.png", dict(zip(TITLES, estimates, strict=True)), PARTS)
    draw_splits(write / "evidence_splits.png", runs, percents[0])
    design = Design(runs.stage.classes, runs.seeds)
    place = {
        "seeds": count_of(runs.seeds, "seed"),
        "trained": count_of(len(runs.trained), "training set"),
        "losses": markdown(losses_table(folder, runs)),
        "components": markdown(components_table(estimates, intervals)),
        "verdicts": markdown(verdicts_table(verdicts, runs.seeds)),
        "plans": markdown(plan_table(plans)),
        "sizes": markdown(sizes) if sizes else "Not finished: no number is shown.",
        "selection": markdown(selection_table(selections)),
    }
    computed = estimates, verdicts, selections, largest_changes(selections), plans
    for title, of_metric, of_split, selected, bound, plan in zip(("r1", "map_r"), *computed, strict=True):
        total = sum(max(of_metric[name], 0) for name in COMPONENTS)
        place |= {
            f"{title}_draws": count_of(plan.draws_needed(1, design), "draw"),
            f"{title}_least": f"{plan.least_shown(design):.1f}",
            f"{title}_sign": percent(plan.wrong_sign(1, design)),
            f"{title}_holds": percent(of_split.holds),
            f"{title}_expected": percent(of_split.expected),
            f"{title}_ratio": f"{of_split.ratio:.2f}",
            f"{title}_sign_of_one": percent(of_split.sign_of_one),
            f"{title}_shown": f"{of_split.claims} of {of_split.count}",
            f"{title}_wrong": str(of_split.wrong),
            f"{title}_inflated": f"{of_split.inflated:.1f}",
            f"{title}_bound": f"{bound:.2f}",
            f"{title}_gain": gains(selected),
        }
        place |= {f"{title}_{name}": percent(max(of_metric[name], 0) / total) for name in COMPONENTS}
    return place


def draw_splits(path: Path, runs: Runs, percents: np.ndarray) -> None:
    """The picture of one pair of losses, that whose mean difference in R@1 is nearest to one point."""
    differences = runs.differences(0)
    means = [float(np.nanmean(of_pair)) for of_pair in differences]
    pair = int(np.argmin(np.abs(np.abs(means) - 1)))
    order = PAIRS[pair] if means[pair] > 0 else PAIRS[pair][::-1]
    splits = [analysis.of_split(percents, order, train_set) for train_set in runs.trained]
    title = f"R@1 of {LOSSES[order[0]]} less {LOSSES[order[1]]}"
    pictures.splits(path, splits, abs(means[pair]), title)


def write_components(plans: list[planning.Components], runs: Runs) -> None:
    """Write the file that ships; of an unfinished study its source says so."""
    addition = ""
    if runs.finished < runs.expected:
        addition = f" (unfinished: {count_of(runs.seeds, 'seed')} of {count_of(len(runs.trained), 'training set')})"
    rows = []
    for of_metric in plans:
        for name, variance in of_metric.variances.items():
            rows.append(
                (of_metric.metric, name, f"{variance:.4f}", of_metric.classes[name], of_metric.source + addition)
            )
    write_csv(planning.SHIPPED_FILE, planning.HEAD, rows)


def filled(page: str, values: dict[str, str]) -> str:
    """The page's text with its values; paragraphs that lack one are left out, and headings of nothing."""
    for name, value in values.items():
        page = page.replace("{" + name + "}", value)
    paragraphs = [paragraph for paragraph in page.split("\n\n") if not PLACE.search(paragraph)]
    lines = []
    for paragraph, following in zip(paragraphs, [*paragraphs[1:], "# "], strict=True):
        level = len(paragraph) - len(paragraph.lstrip("#"))
        next_level = len(following) - len(following.lstrip("#"))
        if not 0 < next_level <= level:
            lines.append(paragraph)
    return "\n\n".join(lines).rstrip() + "\n"


def main(argv=None) -> None:
    """Write the page, its pictures and the components."""
    parser = OneLineParser(
        prog="experiments.objects.tables", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--rows", type=Path, default=evidence.ROWS, help="folder of the results of evidence.py")
    parser.add_argument(
        "--write", type=Path, default=Path("docs"), help="folder that gets evidence.md and its pictures"
    )
    options = parser.parse_args(argv)
    stages = [analysis.read(options.rows, name) for name in STAGES if name != "tune"]
    runs = stages[0]
    values = {
        "counts": counts(options.rows),
        "finetuning": finetuning(options.rows, runs),
    }
    pictures.design(options.write / "evidence_design.png", runs.stage.sets)
    if len(runs.trained) >= FEWEST_SETS:
        is_whole = all(of_stage.finished == of_stage.expected for of_stage in stages)
        values["partial"] = "" if is_whole else f"Not finished: {values['counts']} runs. "
        values |= results(options.rows, runs, options.write)
    else:
        values["unfinished"] = f"Not finished: {values['counts']} runs."
        say(f"no number is shown and no components are written: two seeds of {FEWEST_SETS} training sets are needed")
    write_file(options.write / "evidence.md", filled(PAGE.read_text(encoding="utf-8"), values))
    say(f"{options.write / 'evidence.md'}: {values['counts']}")


if __name__ == "__main__":
    with one_line_errors("experiments.objects.tables"):
        main()
