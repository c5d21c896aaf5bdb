"""Cross-validations in the tables: folds are no seeds, each kind has its rows, intervals are Student's."""

import json
import math

import numpy as np
import pytest
import scipy.stats

from results import columns, published, tables
from results.columns import BEST_ON_TEST, LAST, SELECTED
from tests.kit.run_folders import built, curve, evaluated, make_run, rows_of

MAP_R = columns.column("test", "map_r")
VALIDATED = columns.column("val", "map_r")
FLAGS = {
    "split_scheme": "mlrc",
    "split_test_size": 0.5,
    "split_test_start": 0.5,
    "split_partitions": 4,
    "split_sets": 4,
    "storage_metrics": ["map_r"],
    "use_tv_split": False,
    "tv_split_perc": 0.8,
    "embed_dim": 128,
    "eval_pca": None,
}


R = "MAP@R [%]"


INTERVAL = f"{R} 95 % interval"


def on_test(seed, fold):
    return 0.20 + 0.03 * seed + 0.01 * fold**2


def make(root, group="Cross", seed=1, folds=range(4), joined=0.4, missing=(), **flags):
    """A cross-validation as main.py leaves it: test is measured at the selected epoch, the second of three."""
    flags = FLAGS | flags
    base = root / "cub200" / f"{group}_s{seed}"
    for fold in folds:
        records = curve(*(value + 0.01 * fold for value in (0.2, 0.3, 0.25)), split="val", metric="map_r")
        records.insert(2, (2, "test", "map_r", on_test(seed, fold)))
        if fold in missing:
            records = []
        make_run(root, group, seed, epochs=3, records=records, name=f"{group}_s{seed}/fold_{fold}", **flags)
    (base / "meta").mkdir(parents=True)
    (base / "parameters.yaml").write_text("split_scheme: mlrc\n")
    if joined is not None:
        values = {"test": {"map_r": {"mean": joined}}}
        content = {"folds": [0, 1, 2, 3], "epochs": [2] * 4, "flags": {"eval_pca": None}, "values": values}
        (base / "meta" / "concatenated.json").write_text(json.dumps({"embeddings": "concatenated", **content}))
    return base


def rows(root):
    """(group, kind of embeddings) -> row of the table of the cross-validations below a folder."""
    table = rows_of(tables.cross_validation(list(built(root).values()), [MAP_R]))
    return {(row["group"], row["embeddings"].partition(",")[0]): row for row in table}


def printed(values):
    """Mean and interval, as they are printed."""
    return f"{np.mean(values):.2f}", f"{half(values):.2f}"


def half(values):
    return scipy.stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))


def test_over_several_cross_validations_each_counts_once(tmp_path):
    for seed in (1, 2, 3):
        make(tmp_path, seed=seed, joined=0.4 + 0.02 * seed**2)
    group = built(tmp_path)["Cross"]
    means = [100 * np.mean([on_test(seed, fold) for fold in range(4)]) for seed in (1, 2, 3)]
    assert group.values(MAP_R, SELECTED) == pytest.approx(means) and group.seeds_text == "3 x 4 folds"
    separated, joined = (rows(tmp_path)["Cross", kind] for kind in ("separated", "concatenated"))
    assert (separated[R], separated[INTERVAL]) == printed(means)
    assert (joined[R], joined[INTERVAL]) == printed([42, 48, 58])
    # validation images differ from fold to fold
    assert separated["MAP@R (val) [%]"] == "31.50" and joined["MAP@R (val) [%]"] == ""
    assert separated["embeddings"] == "separated, 128 dimensions"
    assert joined["embeddings"] == "concatenated, 512 dimensions"
    assert separated["interval over"] == joined["interval over"] == "3 cross-validations"
    assert separated["folds"] == "0 1 2 3"


def test_of_one_cross_validation_the_interval_is_that_of_its_folds(tmp_path):
    make(tmp_path)
    group = built(tmp_path)["Cross"]
    values = [100 * on_test(1, fold) for fold in range(4)]
    separated, joined = (rows(tmp_path)["Cross", kind] for kind in ("separated", "concatenated"))
    assert separated[INTERVAL] == f"{half(values):.2f}" and separated["interval over"] == "4 folds"
    assert (joined[R], joined[INTERVAL], joined["interval over"]) == ("40.00", "", "")
    estimate = group.estimate(MAP_R, SELECTED)
    assert estimate.count == 1 and math.isnan(estimate.deviation), "four folds are not four seeds"
    assert group.epochs(SELECTED).count == 1
    measured = [np.isfinite(group.estimate(MAP_R, how).mean) for how in (SELECTED, LAST, BEST_ON_TEST)]
    assert measured == [True, False, False], "of test measured once no epoch is the best or the last"
    assert group.estimate(VALIDATED, LAST).mean == pytest.approx(26.5)


def test_that_folds_were_averaged_is_said_in_every_table(tmp_path):
    make(tmp_path / "runs")
    # its folder alone: no fold has begun
    make(tmp_path / "runs", "Half", 5, folds=[], joined=None)
    make_run(tmp_path / "runs", "Plain", 0)
    out = evaluated(tmp_path, "--metrics", "map_r", "e_recall@1")
    for name in ("cub200_selected", "cub200_last", "cub200_best_on_test", "shared_selected"):
        text = (out / f"{name}.md").read_text()
        assert "a seed's number is the mean of 4 folds, separated" in text and "counts as one seed" in text, name
        assert "| 1 x 4 folds |" in text
    text = (out / "cub200_cross_validation.md").read_text()
    assert "| separated, 128 dimensions |" in text and "| concatenated, 512 dimensions |" in text
    assert "Plain" not in text and "split_scheme mlrc" in text and "epoch with the highest map_r on val" in text
    assert "cross-validations" in (out / "index.html").read_text()


def test_a_missing_fold_is_told_and_old_concatenated_results_are_not_used(tmp_path):
    make(tmp_path, missing=[2])
    group = built(tmp_path)["Cross"]
    assert group.folds == [0, 1, 3] and group.n_folds == 4
    assert "of 4 folds, counted from 0, only 0, 1, 3" in group.remarks
    row = rows(tmp_path)["Cross", "concatenated"]
    assert row[R] == "" and "is of other folds or epochs" in row["remarks"] and "--evaluate_ensemble" in row["remarks"]


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": [2, 2, 2, 3]},
        {"folds": 3},
        {"epochs": "x"},
        {"flags": 3},
        {"values": 3},
        {"values": {"test": None}},
        {"values": {"test": {"map_r": 3}}},
        None,
    ],
)
def test_concatenated_results_that_are_not_those_of_the_folds_are_not_used(change, tmp_path):
    path = make(tmp_path) / "meta" / "concatenated.json"
    text = "{ cut short" if change is None else json.dumps({**json.loads(path.read_text()), **change})
    path.write_text(text)
    assert np.isnan(built(tmp_path)["Cross"].joined(MAP_R)).all()


def test_concatenated_results_of_another_measurement_have_a_note(tmp_path):
    path = make(tmp_path) / "meta" / "concatenated.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "flags": {"eval_pca": 64}}))
    group = built(tmp_path)["Cross"]
    assert group.joined(MAP_R) == [40]
    assert group.about_meta == ["Cross_s1/meta/concatenated.json was measured with eval_pca 64 (folds: None)"]


def test_without_cross_validations_there_is_no_such_table(tmp_path):
    make_run(tmp_path, "Plain")
    make_run(tmp_path, "Single", name="Single_s0/fold_0", split_scheme="predefined")
    all_groups = list(built(tmp_path).values())
    assert tables.cross_validation(all_groups, [MAP_R]) is None
    assert [group.seeds_text for group in all_groups] == ["1", "1"]
    assert not any("fold" in remark for group in all_groups for remark in group.remarks[:-1])


def test_the_reality_checks_test_value_stands_beside_the_concatenated_one(tmp_path):
    make(tmp_path / "joined")
    make(tmp_path / "separate", joined=None)
    joined, separate = (built(tmp_path / name)["Cross"] for name in ("joined", "separate"))
    validation, test = next(p for p in published.load("mlrc") if p.group == "MLRC_CUB_Margin").figures
    assert (test.column, validation.column) == (MAP_R, VALIDATED)
    assert published.rule(test) == published.rule(validation) == SELECTED
    assert published.compare(joined, test)[0].mean == pytest.approx(40)
    assert published.compare(joined, validation)[0].mean == pytest.approx(31.5)
    mean = 100 * np.mean([on_test(1, fold) for fold in range(4)])
    assert not published.joined(separate, test) and published.compare(separate, test)[0].mean == pytest.approx(mean)
    assert published.is_joined(test) and not published.is_joined(validation)


@pytest.mark.parametrize(
    ("values", "means", "marks", "marks_of_separated"),
    [
        ({"A": (0.401, 0.402), "B": (0.701, 0.702)}, ["40.15", "70.15"], ["", "best"], ["best", "best"]),
        (
            {"A": (0.9, None), "B": (0.5, 0.6), "C": (0.3, 0.4)},
            ["", "55.00", "35.00"],
            ["", "best", ""],
            ["best", "best", "best"],
        ),
        (
            {"A": (0.9,), "B": (0.5, 0.5), "C": (0.4, 0.4)},
            ["90.00", "50.00", "40.00"],
            ["", "best", ""],
            ["", "best", "best"],
        ),
    ],
    ids=["whole", "some", "one"],
)
def test_what_is_printed_and_marked_among_several(values, means, marks, marks_of_separated, tmp_path):
    """Concatenated values of seeds, None if not measured: the mean of some is not printed, nor is one the best."""
    for group, of_seeds in values.items():
        for seed, joined in enumerate(of_seeds, 1):
            make(tmp_path, group, seed, joined=joined)
    table_rows = rows(tmp_path)
    joined, separated = ([table_rows[group, kind] for group in values] for kind in ("concatenated", "separated"))
    assert [row[R] for row in joined] == means and [row[f"{R} mark"] for row in joined] == marks
    assert [row[f"{R} mark"] for row in separated] == marks_of_separated
    if None in values["A"]:
        assert joined[0]["remarks"] == "not measured in A_s2: main.py --evaluate_ensemble does it"
