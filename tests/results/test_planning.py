"""Plans from variance components: the formula and its simulation, what the command prints and refuses."""

import itertools
import math

import numpy as np
import pytest

import Result_Evaluations
from results import planning
from results.planning import Components, Design
from utilities.errors import UserError

VARIANCES = {"T": 0.05, "E": 0.4, "TE": 0.3, "S": 0.1, "r": 1.2}
R1 = Components("e_recall@1", VARIANCES, dict.fromkeys(VARIANCES, 100), "made")


def lines_of(metrics=("e_recall@1", "map_r"), change=None):
    """A file of components; `change`: (line, column, text) of a cell that is written otherwise."""
    lines = ["metric,component,variance,classes,source"]
    for metric, (name, variance) in itertools.product(metrics, VARIANCES.items()):
        lines.append(f"{metric},{name},{variance},100,made")
    if change:
        row, column, text = change
        cells = lines[row].split(",")
        cells[column] = text
        lines[row] = ",".join(cells)
    return lines


def written(folder, lines):
    path = folder / "components.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def drawn_differences(rng, design, studies):
    """Mean differences of studies with a true difference of 0: each draw, class and seed by itself."""
    size = (studies, design.draws)
    scale = 100 / design.classes
    training = rng.normal(0, math.sqrt(VARIANCES["T"]), size)
    classes = rng.normal(0, math.sqrt(scale * (VARIANCES["E"] + VARIANCES["TE"])), size)
    seeds = rng.normal(0, math.sqrt(VARIANCES["S"] + scale * VARIANCES["r"]), (*size, design.seeds))
    return training + classes + seeds.mean(2)


@pytest.mark.parametrize("design", [Design(100, 3, 6), Design(400, 1, 4)])
def test_a_simulation_has_the_power_and_the_wrong_signs_of_the_plan(design):
    draws = drawn_differences(np.random.default_rng(0), design, 40_000)
    assert draws.mean(1).var() == pytest.approx(R1.variance(design), rel=0.03)
    points = R1.least_shown(design)
    means = draws.mean(1) + points
    errors = draws.std(1, ddof=1) / math.sqrt(design.draws)
    # Student's t, 97.5 %, from a table
    bound = {6: 2.5706, 4: 3.1824}[design.draws]
    assert (np.abs(means / errors) > bound).mean() == pytest.approx(0.8, abs=0.01)
    assert (draws.mean(1) + 0.5 < 0).mean() == pytest.approx(R1.wrong_sign(0.5, design), abs=0.01)
    assert R1.draws_needed(points, design) == design.draws
    assert R1.draws_needed(points * 0.98, design) == design.draws + 1


def test_one_draw_is_judged_by_the_components_alone():
    design = Design(50, 2, 1)
    variance = 0.05 + 0.1 / 2 + (0.4 + 0.3 + 1.2 / 2) * 2
    assert R1.variance(design) == pytest.approx(variance)
    assert R1.least_shown(design) == pytest.approx((1.959964 + 0.841621) * math.sqrt(variance), rel=1e-5)


def test_components_of_nothing_and_of_too_much():
    exact = Components("m", dict.fromkeys(VARIANCES, 0.0), dict.fromkeys(VARIANCES, 1), "made")
    assert exact.draws_needed(1, Design()) == 2 and exact.wrong_sign(1, Design()) == exact.least_shown(Design()) == 0
    assert R1.draws_needed(1e-4, Design()) is None


def test_the_command_prints_a_plan_and_reads_no_runs(tmp_path, capsys):
    path = written(tmp_path, lines_of())
    words = [
        "--plan",
        "1",
        "--plan_components",
        path,
        "--plan_classes",
        "200",
        "--plan_seeds",
        "3",
        "--metrics",
        "map_r",
    ]
    assert Result_Evaluations.main(Result_Evaluations.read(words)) is None
    output = capsys.readouterr().out
    design = Design(200, 3, 1)
    assert f"MAP@R: {R1.draws_needed(1, design)} draws needed" in output and "R@1:" not in output
    assert f"{R1.least_shown(design):.2f} points" in output and "made: yours may differ" in output
    assert not list(tmp_path.glob("*.html"))


def test_bad_files_are_refused_in_one_line(tmp_path):
    for lines, message in (
        (lines_of()[:-1], "map_r lacks the component r"),
        (lines_of(change=(1, 2, "-0.1")), "line 2: variance: must be at least 0"),
        (lines_of(change=(1, 2, "nan")), "variance: must be finite"),
        (lines_of(change=(2, 2, "x")), "line 3: variance: invalid float value: 'x'"),
        (lines_of(change=(1, 3, "0")), "classes: must be at least 1"),
        (lines_of(change=(1, 0, " ")), "line 2: the metric is missing"),
        (lines_of(change=(1, 1, "Q")), "component 'Q' is none of T, E, TE, S, r"),
        (lines_of(change=(2, 1, "T")), "the component T of e_recall@1 is there twice"),
        (lines_of(change=(3, 4, "elsewhere")), "several sources"),
        (lines_of(change=(0, 2, "value")), "no column 'variance'"),
        (lines_of()[:1], "has no rows"),
    ):
        with pytest.raises(UserError, match=message.replace("'", ".")) as refusal:
            planning.read(written(tmp_path, lines))
        assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="no components of the metric nmi"):
        planning.read(written(tmp_path, lines_of()), ["nmi"])


@pytest.mark.parametrize(
    "words", ["--plan_components f", "--plan_seeds 3", "--plan 1 --plan_draws 2", "--plan 1 --plan_classes 0"]
)
def test_flags_of_a_plan_without_effect_are_refused(words, capsys):
    with pytest.raises(SystemExit) as stop:
        Result_Evaluations.read(words.split())
    message = capsys.readouterr().err
    assert stop.value.code == 2 and message.count("\n") == 1 and "--plan" in message
