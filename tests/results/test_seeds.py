"""What seeds can show: power and plans by hand, marks, first places, both selections, progressions."""

import itertools
import math
import statistics

import numpy as np
import pytest
import yaml
from scipy import special, stats

import Result_Evaluations
from results import columns, groups, inference, progression, tables
from results.inference import Estimate
from tests.kit.run_folders import built, collected, evaluated, lines, make_run

R1 = columns.column("test", "e_recall@1")


def by_hand(true, s1, n1, s2, n2):
    """Power of Welch's test: the chance that |Z + shift| / sqrt(V / df) is above the bound, summed over the chi-squared
    V.
    """
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


def test_power_is_that_of_the_definition():
    for case in [
        (1, 0.5, 5, 0.5, 5),
        (0.3, 0.7, 3, 0.2, 9),
        (2, 0.5, 2, 0.9, 2),
        (0, 1, 5, 1, 5),
        (-1, 0.6, 8, 0.6, 8),
        (3, 0.2, 5, 0.2, 5),
    ]:
        true, s1, n1, s2, n2 = case
        power = inference.power(true, Estimate(0, s1, n1), Estimate(0, s2, n2))
        assert power == pytest.approx(by_hand(*case), abs=2e-3), case
        assert true or power == pytest.approx(0.05, abs=1e-9), "without a difference the test errs in five of a hundred"
    single = Estimate(0, math.nan, 1)
    five = Estimate(0, 0.5, 5)
    constant = Estimate(0, 0.0, 3)
    assert math.isnan(inference.power(1, single, five)) and math.isnan(inference.least_shown(single, five))
    assert (
        inference.power(1, constant, constant) == 1
        and inference.power(0, constant, constant) == inference.least_shown(constant, constant) == 0
    )
    for shift in np.geomspace(10, 1e6, 60):  # scipy gives NaN for some of these
        for count in (2, 3, 5, 1000):
            group = Estimate(0, 1.0, count)
            assert 0.5 < inference.power(shift * math.sqrt(2 / count), group, group) <= 1


def is_fewest(count, points, deviation):
    """Whether so many seeds a group suffice and one less does not."""
    enough = by_hand(points, deviation, count, deviation, count) >= 0.8
    return enough and (count == 2 or by_hand(points, deviation, count - 1, deviation, count - 1) < 0.8)


def test_the_needed_seeds_are_the_fewest_that_suffice():
    for points, deviation in itertools.product((0.5, 1.0, 2.0), (0.1, 0.35, 0.8, 2.0)):
        seeds = inference.seeds_needed(points, deviation)
        assert is_fewest(seeds, points, deviation)
        least = inference.least_shown(Estimate(0, deviation, seeds), Estimate(0, deviation, seeds))
        assert least <= points and by_hand(least, deviation, seeds, deviation, seeds) == pytest.approx(0.8, abs=2e-4)
    assert (
        inference.seeds_needed(1, math.nan) is None
        and inference.seeds_needed(1e-6, 1.0) is None
        and inference.seeds_needed(1, 0.0) == 2
    )
    pooled = inference.pooled([Estimate(1, 0.3, 5), Estimate(2, 0.6, 3), Estimate(3, math.nan, 1)])
    assert pooled.deviation == pytest.approx(math.sqrt((4 * 0.09 + 2 * 0.36) / 6))
    assert math.isnan(inference.pooled([]).deviation)


def curves(test, val=None):
    """Rows of two epochs: (test value, validation value) of each."""
    records = []
    for epoch, value in enumerate(test, 1):
        records += [(epoch, "test", "e_recall@1", value)] + (
            [(epoch, "val", "e_recall@1", val[epoch - 1])] if val else []
        )
    return records


VALUES = {
    "A": ([0.60, 0.62, 0.61], 0.5),
    "B": ([0.61, 0.60, 0.64], 0.6),
    "C": ([0.50, 0.52, 0.54], 0.4),
    "D": ([0.60, 0.62, 0.58], 0.3),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Four groups of three seeds; validation prefers epoch 1, on test epoch 2 is better by 1, 2 and 3 points in seeds
    0, 1, 2.
    """
    folder = tmp_path_factory.mktemp("seeds")
    for i, (group, (values, val)) in enumerate(VALUES.items()):
        for seed, value in enumerate(values):
            records = curves([value, value + 0.01 * (seed + 1)], [val + 0.02, val + 0.001 * seed])
            make_run(folder / "runs", group, seed, epochs=2, records=records, loss_margin_beta=1 + i, use_tv_split=True)
    return folder / "runs", evaluated(folder, "--plan", "0.7")


def test_both_selections_stand_side_by_side(written):
    _, out = written
    for name, key, heads in (
        ("cub200_selected", "group", ("R@1 [%]", "R@1 chosen on test [%]")),
        ("cub200_last", "group", ("R@1 chosen on validation [%]", "R@1 chosen on test [%]")),
        ("cub200_best_on_test", "group", ("R@1 chosen on validation [%]", "R@1 [%]")),
        ("shared_selected", "method", ("cub200 R@1 [%]", "cub200 R@1 chosen on test [%]")),
    ):
        for line in lines(out / f"{name}.csv"):
            mean = 100 * statistics.mean(VALUES[line[key]][0])
            assert (line[heads[0]], line[heads[1]]) == (f"{mean:.2f}", f"{mean + 2:.2f}"), name
            gap = "R@1 optimism" if key == "group" else "cub200 R@1 optimism"
            assert (line[gap], line[f"{gap} deviation"]) == ("+2.00", "1.00"), "paired by seed"
    table_rows = lines(out / "cub200_optimism.csv")
    assert [line["optimism"] for line in table_rows] == ["+2.00"] * 5 and table_rows[-1]["group"] == "mean of 4 groups"
    assert [line["epoch (validation)"] + line["epoch (test)"] for line in table_rows[:4]] == ["1.02.0"] * 4
    assert (out / "index.html").read_text().count("improves R@1 on test by 2.00 points (mean of 4 groups") == 1


def test_without_validation_there_is_one_selection(tmp_path):
    for group in "AB":
        make_run(tmp_path / "runs", group, 0, epochs=2, records=curves([0.5, 0.6]))
        make_run(tmp_path / "once", group, 0, epochs=2, records=curves([0.5, math.nan], [0.5, 0.6]))
    for name in ("runs", "once"):
        all_groups = list(built(tmp_path / name).values())
        assert tables.optimism(all_groups, [R1], 1) is None and tables.on_average(all_groups, {"cub200": R1}) == []
        assert columns.with_both([R1], all_groups[0].counted, "selected") == [R1]


def test_optimism_of_a_metric_where_lower_is_better(monkeypatch, tmp_path):
    monkeypatch.setattr(columns, "direction", lambda metric: metric != "low")
    records = []
    for epoch, low, high in ((1, 0.4, 0.6), (2, 0.3, 0.5)):
        records += [
            (epoch, "val", "e_recall@1", high),
            (epoch, "test", "e_recall@1", high),
            (epoch, "test", "low", low),
        ]
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
        assert line_of[group]["deviation of R@1"] == f"{deviation:.2f}" and is_fewest(
            int(line_of[group]["seeds for 2"]), 2, deviation
        )
        least = float(line_of[group]["least difference shown"])
        assert by_hand(least, deviation, 3, deviation, 3) == pytest.approx(0.8, abs=0.005)
    total = line_of["all, pooled (4)"]
    assert all(is_fewest(int(total[f"seeds for {points:g}"]), points, pooled) for points in (0.7, 1, 2))
    low = math.sqrt(2 / stats.chi2.ppf(0.975, 2))
    high = math.sqrt(2 / stats.chi2.ppf(0.025, 2))
    assert f"between {low:.2f} and {high:.2f} times it" in total["notes"]
    all_groups = list(built(root).values())
    counts = sorted(int(line_of[group]["seeds for 2"]) for group in spread)
    plan = tables.plan(all_groups, R1, 2)
    assert plan.startswith(
        f"plan, cub200: {total['seeds for 2']} seeds per group detect a difference of 2 points in R@1 with 80% power"
    )
    assert f"by their own deviations {counts[0]} to {counts[-1]})" in plan


def test_the_plan_is_printed(tmp_path, capsys):
    for seed in (0, 1):
        make_run(tmp_path / "runs", "A", seed, epochs=2, records=curves([0.5 + 0.01 * seed, 0.4]))
    make_run(tmp_path / "runs", "B", 0, epochs=2, records=curves([0.5, 0.4]), dataset="cars196")
    evaluated(tmp_path, "--plan", "1")
    output = capsys.readouterr().out
    assert (
        "plan, cub200: 9 seeds per group" in output
        and "plan, cars196: no group has two seeds, so that no deviation is known" in output
    )
    assert by_hand(1, math.sqrt(0.5), 9, math.sqrt(0.5), 9) >= 0.8 > by_hand(1, math.sqrt(0.5), 8, math.sqrt(0.5), 8)
    with pytest.raises(SystemExit):
        Result_Evaluations.read(["--plan", "0"])


def test_first_places_and_the_order_on_validation(written):
    _, out = written
    line_of = {line["group"]: line for line in lines(out / "cub200_ranks.csv")}
    # seed 0: B; seed 1: A and D tie; seed 2: B
    share = {
        "A": 100 / 2 / 3,
        "B": 100 * 2 / 3,
        "C": 0.0,
        "D": 100 / 2 / 3,
    }
    assert {group: line["first over seeds [%]"] for group, line in line_of.items()} == {
        group: f"{value:.1f}" for group, value in share.items()
    }
    assert [line_of[g]["rank on test"] + line_of[g]["rank on validation"] for g in "ABCD"] == ["22", "11", "43", "34"]
    exact = {group: 0.0 for group in "ABD"}  # all 27^3 draws of three seeds of three groups; C is never first
    means = {
        group: [sum(draw) / 3 for draw in np.ndindex(3, 3, 3) for draw in [[VALUES[group][0][i] for i in draw]]]
        for group in exact
    }
    a, b, d = np.meshgrid(*(np.round(means[g], 9) for g in "ABD"), indexing="ij")
    best = np.maximum(np.maximum(a, b), d)
    ties = sum((x == best).astype(float) for x in (a, b, d))
    for group, values in zip("ABD", (a, b, d), strict=True):
        assert float(line_of[group]["first in the bootstrap [%]"]) == pytest.approx(
            100 * ((values == best) / ties).mean(), abs=1.5
        )
    assert line_of["C"]["first in the bootstrap [%]"] == "0.0"
    tau = stats.kendalltau([2, 1, 3, 4], [2, 1, 4, 3])
    sentence = (
        f"Kendall's tau of the order on validation and on test over 4 groups: {tau.statistic:+.2f} (p {tau.pvalue:.3g})"
    )
    assert sentence in line_of["A"]["notes"]


def test_ranks_without_common_seeds_and_of_lone_groups(tmp_path):
    for group, seeds in (("A", (0, 1)), ("B", (2, 3)), ("C", (0,))):
        for seed in seeds:
            make_run(tmp_path, group, seed, epochs=1, records=curves([0.5]))
    all_groups = list(built(tmp_path).values())
    table = tables.ranks(all_groups, R1)
    assert [row[0].text for row in table.rows] == ["A", "B"] and all(
        math.isnan(row[3].value) and row[4].value == 50 for row in table.rows
    )
    assert "- without common seeds" in table.notes[0] and tables.ranks(all_groups[:1], R1) is None


def make_progressed(root, loss, split, fid, seed, records):
    """A run of a method on one split of a progression."""
    folder = make_run(
        root,
        loss.title(),
        seed,
        epochs=2,
        records=records,
        name=f"{loss}_{split}_s{seed}",
        loss=loss,
        split_scheme="oodml",
        oodml_file="cub.pkl",
        oodml_id=split,
    )
    path = folder / "environment.yaml"
    content = yaml.safe_load(path.read_text()) if path.exists() else {}
    path.write_text(yaml.safe_dump({**content, "data": {**(content.get("data") or {}), "oodml": {"fid": fid}}}))


@pytest.fixture(scope="module")
def progressions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("progression")
    for loss, drop in (("margin", 0.1), ("triplet", 0.2)):
        for split, fid in ((3, 100.0), (1, 20.0), (2, 40.0)) + (((4, 200.0),) if loss == "margin" else ()):
            for seed in (0, 1):
                value = 0.7 + 0.01 * seed - drop * fid / 100
                make_progressed(folder / "runs", loss, split, fid, seed, curves([value, value + 0.02], [0.5, 0.4]))
    return folder


def test_a_progression_has_a_table_an_area_and_a_figure(progressions):
    out = evaluated(progressions)
    line_of = {line["method"]: line for line in lines(out / "cub200_progression.csv")}
    for name, drop in (("Margin", 10), ("Triplet", 20)):
        heights = [70.5 - drop * fid / 100 for fid in (20, 40, 100)]
        area = ((heights[0] + heights[1]) / 2 * 20 + (heights[1] + heights[2]) / 2 * 60) / 80
        line = line_of[name]
        assert [line[f"split {split}"] for split in (1, 2, 3)] == [
            f"{height:.2f}" for height in heights
        ] and "split 4" not in line
        assert (line["area, R@1 [%]"], line["area, R@1 [%] deviation"]) == (f"{area:.2f}", f"{math.sqrt(0.5):.2f}")
        assert line["area, R@1 chosen on test [%]"] == f"{area + 2:.2f}" and line["area, R@1 optimism"] == "+2.00"
    assert "not all methods have split 4" in line_of["Margin"]["remarks"]
    assert "FID of split 1: 20.0, 2: 40.0, 3: 100.0" in line_of["Triplet"]["remarks"]
    assert (out / "cub200_progression.png").read_bytes().startswith(b"\x89PNG")
    assert "cub200, out of distribution" in (out / "index.html").read_text()
    assert {line["group"] for line in lines(out / "cub200_oodml_4_selected.csv")} == {"Margin"}, (
        "each split is a data set of its own"
    )


def test_areas_follow_the_order_of_a_methods_own_fids_and_methods_without_a_common_split_have_none(progressions):
    methods = {m.name: m for m in progression.find(groups.build(collected(progressions / "runs")))["cub200"]}
    margin = methods["Margin"]
    margin.fids = {"1": 40.0, "2": 20.0, "3": 100.0}  # another backbone orders the splits otherwise
    heights = [[70 + seed - 10 * fid / 100 for fid in (40, 20, 100)] for seed in (0, 1)]
    expected = [((a + b) / 2 * 20 + (b + c) / 2 * 60) / 80 for a, b, c in heights]
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
    for loss, validation in (("margin", ()), ("triplet", ([0.5, 0.4],)), ("contrastive", ([0.5, 0.4],))):
        for split, fid in ((1, 20.0), (2, 40.0)):
            for seed in (0, 1, 2):
                make_progressed(
                    tmp_path, loss, split, fid, seed, curves([0.7 + 0.01 * seed - 0.01 * split, 0.6], *validation)
                )
    ((name, methods),) = progression.find(groups.build(collected(tmp_path))).items()
    table = tables.progressed(name, methods, R1, 1)
    assert dict(zip([row[0].text for row in table.rows], table.parts, strict=True)) == {
        "Contrastive": "selected on val",
        "Triplet": "selected on val",
        "Margin": "selected on test",
    }
    area = {row[0].text: row[2] for row in table.rows}
    assert area["Margin"].interval is None and any(area[name].interval for name in ("Contrastive", "Triplet"))
    assert "areas in a part of the table" in table.notes[1] and table.notes[-1].startswith("Settings (")
