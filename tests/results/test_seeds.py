"""What seeds can show: power and plans by hand, marks, first places, both selections, progressions."""

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import special, stats

import Result_Evaluations
from results import columns, groups, inference, progression, tables
from results.inference import Estimate
from tests.kit.run_folders import ENVIRONMENT, built, collected, curve, evaluated, lines, make_run, make_runs

R1 = columns.column("test", "e_recall@1")


def by_hand(true, s1, n1, s2, n2):
    """Power of Welch's test: the chance that |Z + shift| / sqrt(V / df) is above the bound, summed over V."""
    a = s1**2 / n1
    b = s2**2 / n2
    freedom = (a + b) ** 2 / (a**2 / (n1 - 1) + b**2 / (n2 - 1))
    bound = stats.t.ppf(0.975, freedom)
    shift = true / math.sqrt(a + b)

    v = np.linspace(0, freedom + 12 * math.sqrt(2 * freedom) + 60, 400_001)[1:] - 1e-9
    limit = bound * np.sqrt(v / freedom)
    step = v[1] - v[0]
    density = np.exp((freedom / 2 - 1) * np.log(v) - v / 2 - special.gammaln(freedom / 2) - freedom / 2 * math.log(2))
    return float(((special.ndtr(shift - limit) + special.ndtr(-limit - shift)) * density).sum() * step)


@pytest.mark.parametrize(
    "case",
    [
        (1, 0.5, 5, 0.5, 5),
        (0.3, 0.7, 3, 0.2, 9),
        (2, 0.5, 2, 0.9, 2),
        (0, 1, 5, 1, 5),
        (-1, 0.6, 8, 0.6, 8),
        (3, 0.2, 5, 0.2, 5),
    ],
)
def test_power_is_that_of_the_definition(case):
    true, s1, n1, s2, n2 = case
    power = inference.power(true, Estimate(0, s1, n1), Estimate(0, s2, n2))
    assert power == pytest.approx(by_hand(*case), abs=2e-3)
    assert true or power == pytest.approx(0.05, abs=1e-9), "without a difference the test errs in five of a hundred"


def test_power_of_single_seeds_of_constants_and_of_far_groups():
    single = Estimate(0, math.nan, 1)
    five = Estimate(0, 0.5, 5)
    constant = Estimate(0, 0.0, 3)
    assert math.isnan(inference.power(1, single, five)) and math.isnan(inference.least_shown(single, five))
    assert inference.power(1, constant, constant) == 1
    assert inference.power(0, constant, constant) == inference.least_shown(constant, constant) == 0
    # scipy gives NaN for some
    for shift, count in itertools.product(np.geomspace(10, 1e6, 60), (2, 3, 5, 1000)):
        group = Estimate(0, 1.0, count)
        assert 0.5 < inference.power(shift * math.sqrt(2 / count), group, group) <= 1


def of_equal(points, deviation, count):
    """`by_hand` of two groups with this deviation and number of seeds each."""
    return by_hand(points, deviation, count, deviation, count)


def is_fewest(count, points, deviation):
    """Whether so many seeds a group suffice and one less does not."""
    return of_equal(points, deviation, count) >= 0.8 and (count == 2 or of_equal(points, deviation, count - 1) < 0.8)


def test_the_needed_seeds_are_the_fewest_that_suffice():
    for points, deviation in itertools.product((0.5, 1.0, 2.0), (0.1, 0.35, 0.8, 2.0)):
        seeds = inference.seeds_needed(points, deviation)
        assert is_fewest(seeds, points, deviation)
        least = inference.least_shown(Estimate(0, deviation, seeds), Estimate(0, deviation, seeds))
        assert least <= points and of_equal(least, deviation, seeds) == pytest.approx(0.8, abs=2e-4)
    assert inference.seeds_needed(1, math.nan) is None and inference.seeds_needed(1e-6, 1.0) is None
    assert inference.seeds_needed(1, 0.0) == 2
    pooled = inference.pooled([Estimate(1, 0.3, 5), Estimate(2, 0.6, 3), Estimate(3, math.nan, 1)])
    assert pooled.deviation == pytest.approx(math.sqrt((4 * 0.09 + 2 * 0.36) / 6))
    assert math.isnan(inference.pooled([]).deviation)


def curves(test, val=()):
    """Rows of epochs: the values on test, and on validation."""
    return sorted(curve(*test) + curve(*val, split="val"))


VALUES = {
    "A": ([0.60, 0.62, 0.61], 0.5),
    "B": ([0.61, 0.60, 0.64], 0.6),
    "C": ([0.50, 0.52, 0.54], 0.4),
    "D": ([0.60, 0.62, 0.58], 0.3),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Validation prefers epoch 1; on test epoch 2 is better by 1, 2 and 3 points in seeds 0, 1, 2."""
    folder = tmp_path_factory.mktemp("seeds")
    for i, (group, (values, val)) in enumerate(VALUES.items()):
        for seed, value in enumerate(values):
            records = curves([value, value + 0.01 * (seed + 1)], [val + 0.02, val + 0.001 * seed])
            make_run(folder / "runs", group, seed, epochs=2, records=records, loss_margin_beta=1 + i, use_tv_split=True)
    return folder / "runs", evaluated(folder, "--plan", "0.7")


def test_both_selections_stand_side_by_side(written):
    _, out = written
    on_test = "R@1 chosen on test [%]"
    for name, key, of_validation, of_test, gap in (
        ("cub200_selected", "group", "R@1 [%]", on_test, "R@1 optimism"),
        ("cub200_last", "group", "R@1 chosen on validation [%]", on_test, "R@1 optimism"),
        ("cub200_best_on_test", "group", "R@1 chosen on validation [%]", "R@1 [%]", "R@1 optimism"),
        ("shared_selected", "method", "cub200 R@1 [%]", f"cub200 {on_test}", "cub200 R@1 optimism"),
    ):
        for line in lines(out / f"{name}.csv"):
            mean = 100 * statistics.mean(VALUES[line[key]][0])
            assert (line[of_validation], line[of_test]) == (f"{mean:.2f}", f"{mean + 2:.2f}"), name
            assert (line[gap], line[f"{gap} deviation"]) == ("+2.00", "1.00"), "paired by seed"
    table_rows = lines(out / "cub200_optimism.csv")
    assert [line["optimism"] for line in table_rows] == ["+2.00"] * 5 and table_rows[-1]["group"] == "mean of 4 groups"
    assert [line["epoch (validation)"] + line["epoch (test)"] for line in table_rows[:4]] == ["1.02.0"] * 4
    assert (out / "index.html").read_text().count("improves R@1 on test by 2.00 points (mean of 4 groups") == 1


def test_without_validation_there_is_one_selection(tmp_path):
    on_test_once = curves([0.5, math.nan], [0.5, 0.6])
    for name, records in (("runs", curves([0.5, 0.6])), ("once", on_test_once)):
        make_runs(tmp_path / name, "AB", 1, epochs=2, records=records)
        all_groups = list(built(tmp_path / name).values())
        assert tables.optimism(all_groups, [R1], 1) is None and tables.on_average(all_groups, {"cub200": R1}) == []
        assert columns.with_both([R1], all_groups[0].counted, "selected") == [R1]


def test_optimism_of_a_metric_where_lower_is_better(monkeypatch, tmp_path):
    monkeypatch.setattr(columns, "direction", lambda metric: metric != "low")
    records = curves([0.6, 0.5], [0.6, 0.5]) + curve(0.4, 0.3, metric="low")
    make_run(tmp_path, "A", 0, epochs=2, records=records)
    run = built(tmp_path)["A"].runs[0]
    low = columns.Column("test", "low", False, True)
    assert columns.value(run, columns.selected_by(low, columns.OPTIMISM), "selected") == pytest.approx(0.1)


def test_the_power_table_and_the_plan(written):
    root, out = written
    line_of = {line["group"]: line for line in lines(out / "cub200_power.csv")}
    spread = {group: statistics.stdev([100 * v for v in values]) for group, (values, _) in VALUES.items()}
    pooled = math.sqrt(statistics.mean(s**2 for s in spread.values()))
    for group, deviation in spread.items():
        line = line_of[group]
        assert line["deviation of R@1"] == f"{deviation:.2f}" and is_fewest(int(line["seeds for 2"]), 2, deviation)
        assert of_equal(float(line["least difference shown"]), deviation, 3) == pytest.approx(0.8, abs=0.005)
    total = line_of["all, pooled (4)"]
    assert all(is_fewest(int(total[f"seeds for {points:g}"]), points, pooled) for points in (0.7, 1, 2))
    low, high = (math.sqrt(2 / stats.chi2.ppf(tail, 2)) for tail in (0.975, 0.025))
    assert f"between {low:.2f} and {high:.2f} times it" in total["notes"]
    counts = sorted(int(line_of[group]["seeds for 2"]) for group in spread)
    plan = tables.plan(list(built(root).values()), R1, 2)
    detected = "seeds per group detect a difference of 2 points in R@1 with 80% power"
    assert plan.startswith(f"plan, cub200: {total['seeds for 2']} {detected}")
    assert f"by their own deviations {counts[0]} to {counts[-1]})" in plan


def test_the_plan_is_printed(tmp_path, capsys):
    for seed in (0, 1):
        make_run(tmp_path / "runs", "A", seed, epochs=2, records=curves([0.5 + 0.01 * seed, 0.4]))
    make_run(tmp_path / "runs", "B", 0, epochs=2, records=curves([0.5, 0.4]), dataset="cars196")
    evaluated(tmp_path, "--plan", "1")
    output = capsys.readouterr().out
    assert "plan, cub200: 9 seeds per group" in output and is_fewest(9, 1, math.sqrt(0.5))
    assert "plan, cars196: no group has two seeds, so that no deviation is known" in output
    with pytest.raises(SystemExit):
        Result_Evaluations.read(["--plan", "0"])


def test_first_places_and_the_order_on_validation(written):
    _, out = written
    line_of = {line["group"]: line for line in lines(out / "cub200_ranks.csv")}
    # seed 0: B; seed 1: A and D tie; seed 2: B
    shares = {"A": "16.7", "B": "66.7", "C": "0.0", "D": "16.7"}
    assert {group: line["first over seeds [%]"] for group, line in line_of.items()} == shares
    assert [line_of[g]["rank on test"] + line_of[g]["rank on validation"] for g in "ABCD"] == ["22", "11", "43", "34"]
    # all 27^3 draws of three seeds of three groups; C is never first
    means = {group: np.mean(list(itertools.product(VALUES[group][0], repeat=3)), axis=1) for group in "ABD"}
    means_of_draws = np.stack(np.meshgrid(*(np.round(means[group], 9) for group in "ABD")))
    is_best = means_of_draws == means_of_draws.max(0)
    exact = (is_best / is_best.sum(0)).mean((1, 2, 3))
    bootstrapped = [float(line_of[group]["first in the bootstrap [%]"]) for group in "ABD"]
    assert bootstrapped == pytest.approx(100 * exact, abs=1.5)
    assert line_of["C"]["first in the bootstrap [%]"] == "0.0"
    tau = stats.kendalltau([2, 1, 3, 4], [2, 1, 4, 3])
    value = f"{tau.statistic:+.2f} (p {tau.pvalue:.3g})"
    sentence = f"Kendall's tau of the order on validation and on test over 4 groups: {value}"
    assert sentence in line_of["A"]["notes"]


def test_ranks_without_common_seeds_and_of_lone_groups(tmp_path):
    for group, seeds in (("A", (0, 1)), ("B", (2, 3)), ("C", (0,))):
        for seed in seeds:
            make_run(tmp_path, group, seed, epochs=1, records=curves([0.5]))
    all_groups = list(built(tmp_path).values())
    table = tables.ranks(all_groups, R1)
    assert [row[0].text for row in table.rows] == ["A", "B"] and [row[4].value for row in table.rows] == [50, 50]
    assert all(math.isnan(row[3].value) for row in table.rows)
    assert "- without common seeds" in table.notes[0] and tables.ranks(all_groups[:1], R1) is None


def make_progressed(root, loss, split, fid, seed, records):
    """A run of a method on one split of a progression."""
    flags = {"loss": loss, "split_scheme": "oodml", "oodml_file": "cub.pkl", "oodml_id": split}
    environment = {**ENVIRONMENT, "data": {**ENVIRONMENT["data"], "oodml": {"fid": fid}}}
    name = f"{loss}_{split}_s{seed}"
    make_run(root, loss.title(), seed, epochs=2, records=records, name=name, environment=environment, **flags)


@pytest.fixture(scope="module")
def progressions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("progression")
    fids = {3: 100.0, 1: 20.0, 2: 40.0, 4: 200.0}
    for (loss, drop), (split, fid), seed in itertools.product(
        (("margin", 0.1), ("triplet", 0.2)), fids.items(), (0, 1)
    ):
        if (loss, split) != ("triplet", 4):
            value = 0.7 + 0.01 * seed - drop * fid / 100
            make_progressed(folder / "runs", loss, split, fid, seed, curves([value, value + 0.02], [0.5, 0.4]))
    return folder


def area_of(heights, fids):
    """The mean height under the line through these points, by trapezoids."""
    return np.trapezoid(heights, fids) / (fids[-1] - fids[0])


def test_a_progression_has_a_table_an_area_and_a_figure(progressions):
    out = evaluated(progressions)
    line_of = {line["method"]: line for line in lines(out / "cub200_progression.csv")}
    for name, drop in (("Margin", 10), ("Triplet", 20)):
        heights = [70.5 - drop * fid / 100 for fid in (20, 40, 100)]
        area = area_of(heights, (20, 40, 100))
        line = line_of[name]
        assert [line[f"split {split}"] for split in (1, 2, 3)] == [f"{height:.2f}" for height in heights]
        assert "split 4" not in line
        assert (line["area, R@1 [%]"], line["area, R@1 [%] deviation"]) == (f"{area:.2f}", f"{math.sqrt(0.5):.2f}")
        assert line["area, R@1 chosen on test [%]"] == f"{area + 2:.2f}" and line["area, R@1 optimism"] == "+2.00"
    assert "not all methods have split 4" in line_of["Margin"]["remarks"]
    assert "FID of split 1: 20.0, 2: 40.0, 3: 100.0" in line_of["Triplet"]["remarks"]
    assert (out / "cub200_progression.png").read_bytes().startswith(b"\x89PNG")
    assert "cub200, out of distribution" in (out / "index.html").read_text()
    # each split is a data set of its own
    assert {line["group"] for line in lines(out / "cub200_oodml_4_selected.csv")} == {"Margin"}


def test_areas_follow_the_order_of_a_methods_own_fids_and_methods_without_a_common_split_have_none(progressions):
    methods = {m.name: m for m in progression.find(groups.build(collected(progressions / "runs")))["cub200"]}
    margin = methods["Margin"]
    # another backbone orders the splits otherwise
    margin.fids = {"1": 40.0, "2": 20.0, "3": 100.0}
    expected = [area_of([70 + seed - 10 * fid / 100 for fid in (40, 20, 100)], (20, 40, 100)) for seed in (0, 1)]
    assert progression.areas(margin, ["1", "2", "3"], R1) == pytest.approx(expected)
    margin.groups = {"4": margin.groups["4"]}
    (table,) = [tables.progressed("cub200", [margin, methods["Triplet"]], R1, 1)]
    assert [row[1].text for row in table.rows] == ["0", "0"]


def test_a_methods_name_keeps_its_own_number():
    for names, common in (
        (["Margin_0.6_1", "Margin_0.6_2"], "Margin_0.6"),
        (["Margin_ood_10", "Margin_ood_11"], "Margin_ood"),
        (["A", "A"], "A"),
    ):
        assert progression._common_name(names) == common


def test_a_lone_split_or_one_without_fid_is_no_progression(progressions):
    all_groups = groups.build(collected(progressions / "runs"))
    assert {m.name for m in progression.find(all_groups)["cub200"]} == {"Margin", "Triplet"}
    assert not progression.find([group for group in all_groups if group.dataset == "cub200_oodml_1"])
    for group in all_groups:
        for run in group.runs:
            run.fid = None
    assert not progression.find(all_groups)


def test_a_progression_ranks_no_epochs_chosen_on_test_beside_those_chosen_on_validation(tmp_path):
    validations = {"margin": (), "triplet": [0.5, 0.4], "contrastive": [0.5, 0.4]}
    for loss, (split, fid), seed in itertools.product(validations, ((1, 20.0), (2, 40.0)), range(3)):
        records = curves([0.7 + 0.01 * seed - 0.01 * split, 0.6], validations[loss])
        make_progressed(tmp_path, loss, split, fid, seed, records)
    ((name, methods),) = progression.find(groups.build(collected(tmp_path))).items()
    table = tables.progressed(name, methods, R1, 1)
    area = {row[0].text: row[2] for row in table.rows}
    parts = {"Contrastive": "selected on val", "Triplet": "selected on val", "Margin": "selected on test"}
    assert dict(zip(area, table.parts, strict=True)) == parts
    assert area["Margin"].interval is None and any(area[name].interval for name in ("Contrastive", "Triplet"))
    assert "areas in a part of the table" in table.notes[1] and table.notes[-1].startswith("Settings (")
