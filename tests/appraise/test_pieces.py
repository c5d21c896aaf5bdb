"""Parts of an appraisal by themselves: shares of classes, refusals, the plan, near-duplicates, power, the choice."""

import json
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

from appraise import __main__ as appraise
from appraise import decision, networks, photographs
from appraise.plan import plan_of
from datasets._images import Image
from results.bootstrap import Outcomes
from tests.kit.data_sets import make_folder
from tests.kit.refusals import refused

PARTS = [0.4, 0.1, 0.25, 0.25]


# ------------------------------------------------------------------------------------------------------------- classes
@pytest.mark.parametrize(
    "count, expected", [(12, [5, 1, 3, 3]), (16, [6, 2, 4, 4]), (100, [40, 10, 25, 25]), (9, [4, 1, 2, 2])]
)
def test_shares(count, expected):
    assert photographs.shares(count, PARTS) == expected


def test_shares_add_up():
    rng = np.random.default_rng(0)
    for count in range(1, 200):
        parts = rng.uniform(0.05, 1, 4)
        counts = np.array(photographs.shares(count, parts))
        assert counts.sum() == count
        assert (np.abs(counts - count * parts / parts.sum()) < 1).all()


def images_of(sizes):
    return [Image(f"{name}/{i}.jpg", name) for name, size in sizes.items() for i in range(size)]


def test_too_few_classes_are_refused():
    with refused("7 classes: an appraisal needs 8"):
        photographs.refuse_few(images_of({f"c{n}": 3 for n in range(7)}), PARTS)
    with refused("all 20 classes have one image"):
        photographs.refuse_few(images_of({f"c{n}": 1 for n in range(20)}), PARTS)
    with refused(r"12 classes give 5, 1, 3, 3 \(train, select, set aside, test\): select needs 2"):
        photographs.refuse_few(images_of({f"c{n}": 3 for n in range(12)}), PARTS)
    photographs.refuse_few(images_of({f"c{n}": 3 for n in range(16)}), PARTS)


def test_names_that_a_table_does_not_give_back():
    assert photographs.unwritable(Image("photos/é/1.jpg", "é")) is None
    assert photographs.unwritable(Image("photos/distractor.jpg", None)) is None
    assert "class 'None' means no class" in photographs.unwritable(Image("photos/None/1.jpg", "None"))
    assert "not UTF-8" in photographs.unwritable(Image("photos/\udcff/1.jpg", "\udcff"))
    assert "not UTF-8" in photographs.unwritable(Image("photos/a/\udcff.jpg", "a"))


def test_fewer_images_of_each_class_do_not_depend_on_the_order():
    images = images_of({"a": 9, "b": 2})
    fewer = photographs.fewer_of_each_class(images, 4)
    assert [image.class_name for image in fewer] == ["a"] * 4 + ["b"] * 2
    assert set(fewer) == set(photographs.fewer_of_each_class(images[::-1], 4))


@pytest.mark.parametrize("seed", range(20))
def test_classes_are_dealt_whole_in_groups(seed):
    rng = np.random.default_rng(seed)
    names = [f"c{n}" for n in range(60)]
    cuts = [0, *np.sort(rng.choice(np.arange(1, 60), 40, replace=False)).tolist(), 60]
    units = [names[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]
    counts = photographs.shares(60, PARTS)
    part_of = photographs._deal(units, counts, seed)
    assert sorted(name for part in part_of.values() for name in part) == sorted(names)
    for unit in units:
        assert sum(set(unit) <= set(part) for part in part_of.values()) == 1
    sizes = [len(part) for part in part_of.values()]
    assert np.abs(np.array(sizes) - counts).max() <= max(map(len, units))
    assert part_of != photographs._deal(units, counts, seed + 1)


def test_classes_of_one_group_have_nothing_to_find():
    images = [Image(f"{name}/{i}.jpg", name, sequence=f"burst of {name}") for name in "abcd" for i in range(3)]
    part_of = {"train": ["a"], "select": ["b", "c"], "set aside": [], "test": ["d", "a"]}
    with refused("0 of 2 select classes have photographs of two groups, and 2 are needed", "at several times"):
        photographs.refuse_single_groups(images, part_of)
    images += [Image(f"{name}/later.jpg", name) for name in "abcd"]
    photographs.refuse_single_groups(images, part_of)
    assert photographs.groups_of_classes(images) == dict.fromkeys("abcd", 2)


# ------------------------------------------------------------------------------------------------------------- refusals
def test_bad_places_are_refused(tmp_path):
    photos = make_folder(tmp_path / "photos", n_classes=16, n_images=2)
    with refused("no such folder or table", tmp_path / "none"):
        appraise.main([str(tmp_path / "none"), "--out", str(tmp_path / "out")])
    with refused("the photographs lie in it"):
        appraise.main([str(photos), "--out", str(tmp_path)])
    with refused("it lies among the photographs"):
        appraise.main([str(photos), "--out", str(photos / "out")])
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("x")
    with refused("it holds letter.txt and no appraisal"):
        appraise.main([str(photos), "--out", str(foreign)])
    with refused("no image"):
        appraise.main([str(foreign), "--out", str(tmp_path / "out")])
    with refused("--n_epochs: no flag of data"):
        appraise.main([str(photos), "--out", str(tmp_path / "out"), "--n_epochs", "3"])
    with refused("--split_scheme: no flag of data"):
        appraise.main([str(photos), "--out", str(tmp_path / "out"), "--split_scheme", "half"])
    with refused("--parts"):
        appraise.main([str(photos), "--out", str(tmp_path / "out"), "--parts", "1", "0", "1", "1"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign", "photos"]


# ----------------------------------------------------------------------------------------------------------------- plan
def plan(budget, tune="auto", rates=None, size=100, side=224):
    flags = Namespace(budget=budget, tune=tune, parts=PARTS)
    return plan_of({f"c{n}": size for n in range(10)}, rates or {"a": 10.0, "b": 5.0}, side, flags)


def test_a_small_budget_leaves_out_training_then_a_network_then_pixels_then_images():
    # 1,000 images: a takes 100 s, b 200 s; a run 3 x 30 x 400 / 5 = 7,200 s
    assert plan(400)[:4] == (["a", "b"], [], None, 3)
    assert plan(200)[:4] == (["a", "b"], [], None, 1)
    assert plan(6)[:4] == (["a", "b"], [], None, 0)
    assert plan(6).seconds == pytest.approx(300)
    assert plan(2)[:4] == (["a"], [], None, 0)
    small = plan(1)
    assert small[:4] == (["a"], ["--crop_size", "128"], None, 0)
    assert small.seconds == pytest.approx(100 * (128 / 224) ** 2)
    least = plan(0.4)
    assert least[:4] == (["a"], ["--crop_size", "128"], 50, 0)
    assert least.seconds == pytest.approx(50 * (128 / 224) ** 2)
    assert len(least.notes) == 4
    assert plan(0.4, side=64).words == []


def test_training_is_the_users_choice():
    assert plan(1000, "no").seeds == 0
    assert plan(6, "yes").seeds == 1
    assert plan(1000, "yes").seeds == 3


# ------------------------------------------------------------------------------------------------------ near-duplicates
def test_near_duplicates_are_pairs_once():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 16)).astype(np.float32)
    features[7] = features[3] * 1.001
    features[20] = features[5]
    similarity, pairs = photographs.near_duplicates(features, np.arange(40) // 4)
    assert similarity == 0.95
    assert sorted(zip(pairs.test.tolist(), pairs.reference.tolist(), strict=True)) == [(3, 7), (5, 20)]


def test_a_network_that_finds_all_alike_is_asked_for_more_similarity():
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1, (2, 8))
    features = (np.repeat(centres, 50, axis=0) + rng.normal(0, 0.1, (100, 8))).astype(np.float32)
    similarity, pairs = photographs.near_duplicates(features, np.arange(len(features)) % 10)
    assert similarity > 0.95
    alike = np.union1d(pairs.test, pairs.reference)
    assert similarity == 0.999 or len(alike) <= 0.1 * len(features)


# ---------------------------------------------------------------------------------------------------------------- power
def test_the_least_difference_is_shown_in_four_of_five_samples():
    """A t-test of 25 classes, the error of 100 known."""
    rng = np.random.default_rng(0)
    least = networks.least_difference(0.01, 100, 25)
    samples = rng.normal(least, 0.01 * np.sqrt(100), (20_000, 25))
    errors = samples.std(1, ddof=1) / 5
    is_significant = np.abs(samples.mean(1) / errors) > 2.0639
    assert is_significant.mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("difference", [0.01, 0.02, 0.05, 0.2])
def test_classes_needed_are_the_least(difference):
    count = networks.classes_needed(0.02, 40, difference)
    assert networks.least_difference(0.02, 40, count) <= difference
    assert count == 2 or networks.least_difference(0.02, 40, count - 1) > difference
    assert networks.classes_needed(50.0, 40, 1e-3) is None


# ------------------------------------------------------------------------------------------------------------- training
class FakeRunner:
    """A runner whose first call fails, as beside the run that a killed appraisal has left at work."""

    calls = 0

    def __init__(self, tasks, jobs, gpus):
        self.tasks = tasks
        self.outcomes = {decision.FINISHED: [], decision.FAILED: []}

    def run(self):
        assert not any(task.workers for task in self.tasks)
        FakeRunner.calls += 1
        outcome = decision.FAILED if FakeRunner.calls == 1 else decision.FINISHED
        self.outcomes[outcome] = [task.name for task in self.tasks]


class FakeTask:
    """A task on which another process works, as often as it is asked."""

    name = "s0"

    def __init__(self, workers):
        self.workers = workers

    def at_work(self):
        return self.workers.pop() if self.workers else None


def test_a_run_that_was_left_at_work_is_waited_for(monkeypatch, capsys):
    monkeypatch.setattr(decision, "Runner", FakeRunner)
    monkeypatch.setattr(decision.time, "sleep", lambda seconds: None)
    runner = decision.trained([FakeTask(["process 7", "process 7"])])
    assert FakeRunner.calls == 2 and runner.outcomes[decision.FINISHED] == ["s0"]
    assert capsys.readouterr().out.count("waiting for a run that was started before: process 7") == 1


# --------------------------------------------------------------------------------------------------------------- choice
def row(name, kind, hits, size=20):
    sums = np.array(hits, dtype=float)[None]
    outcomes = Outcomes(sums, np.full(len(hits), float(size)))
    return {"name": name, "kind": kind, "recall": networks.interval(outcomes), "select": networks.saved(outcomes)}


def ranked(*rows):
    return sorted(rows, key=lambda row: -row["recall"][0])


def test_the_cheapest_row_that_is_not_worse_is_chosen():
    rng = np.random.default_rng(0)
    hits = rng.integers(10, 18, 30)
    frozen = row("frozen", "frozen", hits)
    alike = row("adapter", "adapter", hits + rng.integers(-1, 2, 30))
    better = row("trained", "tuned", hits + 2)
    assert decision.chosen(ranked(frozen, alike))["name"] == "frozen"
    assert decision.chosen(ranked(frozen, alike, better))["name"] == "trained"
    assert decision.chosen(ranked(row("other", "frozen", hits - 3), frozen))["name"] == "frozen"


def test_half_of_the_groups_of_each_class_is_gallery():
    classes = np.repeat(["a", "b", "c"], [6, 3, 1])
    sequences = np.array(["s", "s", "t", "t", "", "", "u", "u", "u", ""])
    paths = np.array([f"{i}.jpg" for i in range(10)])
    first = decision.first_half(classes, sequences, paths, 0)
    assert first[:2].all() or not first[:2].any()
    assert first[2:4].all() or not first[2:4].any()
    # two of the four groups of a, and the only group of b and of c
    of_a = len({name for name, is_first in zip(["s", "s", "t", "t", "4", "5"], first[:6], strict=True) if is_first})
    assert of_a == 2 and first[6:].all()


def test_sentences_name_faults_before_networks():
    results = {
        "data": {"copies_across": [], "broken": [], "single": [], "sizes": {"a": 2}},
        "groups": {"class_pairs": []},
        "threshold": {
            "chosen": "n",
            "frozen": "n",
            "test": [0.5, 0.4, 0.6],
            "difference": [0, 0, 0],
            "promise": {"sentence": "Impossible."},
        },
        "tuned": {"rows": []},
        "power": {"test_classes": 25, "least": 4.0},
    }
    assert decision.recommendation(results)[0] == "Use n."
    results["data"] |= {"single": ["a"], "sizes": {"a": 1, "b": 2}}
    assert decision.recommendation(results)[0].startswith("Collect more photographs: 1 of 2 classes")
    results["groups"]["class_pairs"] = [["a", "b"]]
    assert "1 pair of classes has photographs that look almost the same" in decision.recommendation(results)[0]
    results["data"]["copies_across"] = [[["x/1.jpg", "a"], ["y/1.jpg", "b"]]]
    assert "1 pair of classes shares photographs" in decision.recommendation(results)[0]
    assert "almost the same" not in " ".join(decision.recommendation(results))
    results["tuned"]["rows"] = [SimpleNamespace(name="t").__dict__]
    assert "cannot show less than 4.0 points" in " ".join(decision.recommendation(results))
    assert json.dumps(results)
