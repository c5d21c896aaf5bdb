"""Metrics where no query counts: NaN, left out of means over domains, super-classes and draws, and reported."""

import json
import math

import numpy as np
import pytest

import metrics
from evaluation import averages
from evaluation.task import Rows, Task
from runs import reports
from tests.kit.splits import Images, evaluated, measured
from utilities.files import write_json

# labels of classes of one image
SINGLE = np.arange(6)


def points(size, seed=0):
    return np.random.default_rng(seed).normal(size=(size, 3)).astype(np.float32)


def test_a_metric_that_searches_is_nan_where_no_query_counts():
    names = ["map_r", "c_map_r", "mrr_macro", "precision@1", "ap", "e_recall@1"]
    values = metrics.compute(names, points(6), SINGLE)
    assert [name for name in names if math.isnan(values[name])] == names[:-1]
    assert values["e_recall@1"] == 0.0, "a query alone in its class counts as 0"
    skipped = metrics.compute(names, points(6), SINGLE, skip_unmatched=True)
    assert all(math.isnan(value) for value in skipped.values())
    assert metrics.compute("map_r", points(6), SINGLE, uncounted=0.0) == {"map_r": 0.0}


def test_a_file_of_domains_leaves_the_undefined_one_out_and_says_so(tmp_path, capsys):
    labels = [0, 0, 1, 1, 2, 3, 4]
    out = tmp_path / "out.json"
    arrays = {"features": points(7), "labels": labels, "domains": ["birds"] * 4 + ["cars"] * 3}
    results = measured(tmp_path, "--out", str(out), names=["map_r", "e_recall@1"], **arrays)
    assert math.isnan(results["cars/map_r"]) and results["map_r"] == results["birds/map_r"]
    assert results["e_recall@1"] == pytest.approx(results["birds/e_recall@1"] / 2)
    printed = capsys.readouterr().out
    assert "map_r: mean over 1 of 2 domains (without cars); NaN in the others, no query counts" in printed
    assert [line for line in printed.splitlines() if "cars/map_r" in line and line.endswith("NaN")]
    written = json.loads(out.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert written["cars/map_r"] is None and written["map_r"] == results["map_r"]


def test_a_file_without_a_query_that_counts(tmp_path, capsys):
    results = measured(tmp_path, names=["map_r", "precision@1", "e_recall@1"], features=points(6), labels=SINGLE)
    assert math.isnan(results["map_r"]) and results["e_recall@1"] == 0.0
    assert "map_r, precision@1: NaN, no query counts: none has anything to find" in capsys.readouterr().out


def test_draws_and_super_classes_where_a_metric_is_nan():
    pairs = [Task(Rows(points(4), np.array([0, 0, 1, 1])))]
    singles = [Task(Rows(points(4), np.arange(4)))]
    notes = []
    results = averages.over_draws(iter([pairs, singles, pairs]), ["map_r", "e_recall@1"], {}, notes)
    expected = metrics.compute(["map_r", "e_recall@1"], points(4), np.array([0, 0, 1, 1]))
    assert results == pytest.approx({"map_r": expected["map_r"], "e_recall@1": expected["e_recall@1"] * 2 / 3})
    reason = "NaN in the others, no query counts: none has anything to find"
    assert notes == [f"map_r: mean over 2 of 3 draws of the gallery; {reason}"]
    notes = []
    results = averages.over_draws(iter([pairs + singles]), ["map_r", "dists@intra"], {}, notes)
    undefined = "mean over 1 of 2 super-classes; NaN in the others, it is not defined on these images"
    assert results["map_r"] == expected["map_r"] and len(notes) == 2
    assert notes[0].startswith("map_r: mean over 1 of 2 super-classes") and f"dists@intra: {undefined}" in notes
    averages.over_draws(iter([pairs, pairs]), ["map_r"], {}, notes)
    assert len(notes) == 2, "nothing is said where all is defined"


def test_a_run_says_it_once_and_its_table_shows_nan(made_single, capsys):
    scores = evaluated(made_single, "--splits_to_eval", "val")[0]["val"]
    assert math.isnan(scores["map_r"]) and scores["e_recall@1"] == 0.0
    assert "val: map_r: NaN, no query counts" in capsys.readouterr().out
    last_line = reports.table({"value": {"val": scores}, "other": {"val": {}}}).splitlines()[-1]
    assert last_line.split() == ["val", "map_r", "NaN", "-"]


@pytest.fixture
def made_single():
    images = Images(points(4, seed=3) * 20 + 100, list("efgh"))
    return dict.fromkeys(("training", "evaluation", "validation", "testing"), images)


def test_json_files_have_null_for_nan(tmp_path):
    write_json(tmp_path / "a.json", {"a": [math.nan, {"b": np.float64(math.inf)}], "c": 1.5})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [None, {"b": None}], "c": 1.5}
