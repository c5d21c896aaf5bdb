"""Runs compared query by query: what is read, what is refused, what the table says."""

import itertools
import json

import numpy as np
import pytest

import metrics
import Result_Evaluations
from results import bootstrap, groups, inference, paired
from tests.kit.refusals import refused
from tests.kit.run_folders import built, curve, evaluated, lines, make_run
from tests.results.test_cross_validation import make

CLASSES = np.repeat(np.arange(12), [2, 5, 9, 3, 4, 8, 6, 2, 7, 3, 5, 6])


def outcomes(quality, seed, group):
    generator = np.random.default_rng([int(1000 * quality), seed, group])
    hit = (generator.random(len(CLASSES)) < quality).astype(np.uint8)
    first_hit = np.where(hit, 1, 3).astype(np.int32)
    return {"hit": hit, "ap_at_r": hit * generator.random(len(CLASSES)), "first_hit": first_hit}


def dump(folder, values, name="query_results_test.npz", classes=CLASSES, root="/data", **arrays):
    paths = np.array([f"{root}/{c}/{i}.jpg" for i, c in enumerate(classes)])
    names = {"labels": classes, "class_names": classes.astype(str), "paths": paths}
    np.savez_compressed(folder / name, **values, **names, **arrays)


def flags_of(**flags):
    return np.array(json.dumps(flags))


def tables(root, out, *pairs):
    """The rows of cub200's table, and the notes."""
    by_dataset = groups.of_datasets(list(built(root).values()))
    parts = {dataset: [] for dataset in by_dataset}
    notes = paired.add(parts, by_dataset, list(pairs))
    out.mkdir(exist_ok=True)
    for table in parts["cub200"]:
        table.write(out)
    return lines(out / "cub200_paired.csv") if parts["cub200"] else [], notes


def names(table):
    return [(line["group"], line["minus"], line["seeds"]) for line in table]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three groups with such files, and one without."""
    folder = tmp_path_factory.mktemp("paired")
    for number, (group, quality) in enumerate({"CUB_A": 0.6, "CUB_B": 0.75, "CUB_C": 0.5, "CUB_D": 0.4}.items()):
        for seed in range(3):
            run = make_run(folder / "runs", group, seed, quality)
            if group != "CUB_D":
                dump(run, outcomes(quality, seed, number), root=f"/machine_{seed}")
    return folder


@pytest.fixture
def runs(folder):
    return folder / "runs"


def expected(runs, group, value="hit"):
    values = []
    for seed in range(3):
        with np.load(runs / "cub200" / f"{group}_s{seed}" / "query_results_test.npz") as file:
            values.append(file[value].astype(float))
    return bootstrap.class_outcomes(values, CLASSES)


def test_each_group_beside_the_best(folder, runs):
    out = evaluated(folder)
    table_rows = lines(out / "cub200_paired.csv")
    assert names(table_rows) == [("CUB_B", "CUB_A", "3 / 3"), ("CUB_B", "CUB_C", "3 / 3")]
    for line in table_rows:
        for title, value in (("R@1", "hit"), ("MAP@R", "ap_at_r")):
            means = [expected(runs, line[column], value).means for column in ("group", "minus")]
            difference = line[f"{title} difference [%]"]
            assert difference == f"{100 * (means[0].mean() - means[1].mean()):+.2f}"
            bounds = inference.difference(*(inference.estimate(100 * of_group) for of_group in means))
            assert line[f"{title} Welch 95 %"] == "[{:+.2f}, {:+.2f}]".format(*bounds)
            low, high = (float(line[f"{title} paired {side}"]) for side in ("low", "high"))
            assert low < float(difference) < high and line[f"{title} paired 95 %"] == f"[{low:+.2f}, {high:+.2f}]"
    page = (out / "index.html").read_text()
    assert "differences, query by query" in page and (out / "cub200_paired.tex").exists()


def test_pairs_that_are_asked_for(runs, tmp_path):
    (line,), _ = tables(runs, tmp_path, ["CUB_C", "CUB_A"])
    assert Result_Evaluations.read(["--paired", "a", "b", "--paired", "c", "d"]).paired == [["a", "b"], ["c", "d"]]
    assert (line["group"], line["minus"]) == ("CUB_C", "CUB_A") and float(line["R@1 difference [%]"]) < 0
    assert "not to be ranked" not in line["remarks"]
    written = (tmp_path / "cub200_paired.md").read_text()
    assert "Epochs: selected epoch; epoch with the highest" in written
    assert "- Settings (cub200), unless marked: " in written


def test_a_pair_of_unlike_groups_says_what_differs_and_one_of_a_single_seed_is_not_the_best(tmp_path):
    validated = {"lr": 0.1, "use_tv_split": True}
    for number, (group, quality, n_seeds, changes) in enumerate(
        (("CUB_A", 0.5, 2, {}), ("CUB_B", 0.6, 2, validated), ("CUB_Lucky", 0.9, 1, {}))
    ):
        records = curve(quality)
        if changes:
            records += curve(0.6, split="val")
        for seed in range(n_seeds):
            folder = make_run(tmp_path / "runs", group, seed, epochs=1, records=records, **changes)
            dump(folder, outcomes(quality, seed, number))
    (line,), _ = tables(tmp_path / "runs", tmp_path / "out", ["CUB_A", "CUB_B"])
    assert "epochs chosen on test and on val: not to be ranked with each other" in line["remarks"]
    assert "lr 0.1" in line["remarks"]
    # the others, chosen on val, are not ranked with them
    assert names(tables(tmp_path / "runs", tmp_path / "out")[0]) == [("CUB_A", "CUB_Lucky", "2 / 1")]


def test_what_cannot_be_compared_is_refused_or_left_out(runs, tmp_path):
    for name, message in (("CUB_D", "CUB_D has no run that counts and has such a file"), ("CUB_X", "Did you mean")):
        with refused(message):
            tables(runs, tmp_path, ["CUB_A", name])
    folder = make_run(tmp_path / "alone", "CUB_A", 0)
    assert tables(tmp_path / "alone", tmp_path / "out") == ([], []), "without such files nothing changes"
    (folder / "query_results_test.npz").write_bytes(b"PK no zip")
    table, (note,) = tables(tmp_path / "alone", tmp_path / "out")
    assert not table and "CUB_A is not compared query by query with seed 0" in note


def test_embeddings_serve_as_well(tmp_path):
    root = tmp_path / "runs"
    generator = np.random.default_rng(0)
    for group, spread in (("CUB_A", 0.5), ("CUB_B", 0.8)):
        for seed in range(2):
            folder = make_run(root, group, seed)
            features = np.eye(12)[CLASSES] + spread * generator.normal(size=(len(CLASSES), 12)).astype(np.float32)
            query_values = metrics.query_results(metrics.EmbeddingSpace(features, CLASSES))
            if seed:
                dump(folder, query_values)
            dump(folder, {"features": features}, "embeddings_test.npz", flags=flags_of(tester="global"))
            values = metrics.compute(["e_recall@1", "map_r"], features, CLASSES)
            assert query_values["hit"].mean() == values["e_recall@1"]
            assert query_values["ap_at_r"].mean() == pytest.approx(values["map_r"])
    (line,), notes = tables(root, tmp_path / "out")
    assert line["group"] == "CUB_A" and line["seeds"] == "2 / 2" and float(line["MAP@R difference [%]"]) > 0


EMBEDDINGS = {"name": "embeddings_test.npz"}


WITH_ROLES = {**EMBEDDINGS, "is_query": CLASSES > 0, "is_gallery": CLASSES < 9}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epoch": 1}, "is of epoch 1, the selected one is"),
        ({"classes": CLASSES[::-1]}, "not those of the other runs"),
        ({**EMBEDDINGS, "flags": flags_of(tester="same_parent_label")}, "--tester same_parent_label"),
        ({**EMBEDDINGS, "flags": flags_of(rerank="alpha_qe")}, "--rerank alpha_qe"),
        ({**EMBEDDINGS, "flags": flags_of(eval_relevance="own.py")}, "--eval_relevance own.py"),
        (WITH_ROLES, "images with is_query, images with is_gallery"),
    ],
)
def test_what_is_not_comparable_is_left_out_and_said(tmp_path, changed, message):
    root = tmp_path / "runs"
    for seed, (number, group) in itertools.product(range(2), enumerate(("CUB_A", "CUB_B"))):
        is_changed = seed == 1 and group == "CUB_B"
        values = {} if is_changed and "name" in changed else outcomes(0.5, seed, number)
        changes = changed if is_changed else {}
        dump(make_run(root, group, seed), values, **changes)
    (line,), notes = tables(root, tmp_path / "out")
    seeds = dict(zip((line["group"], line["minus"]), line["seeds"].split(" / "), strict=True))
    assert seeds == {"CUB_A": "2", "CUB_B": "1"} and "a single seed of CUB_B" in line["remarks"]
    assert any(message in note for note in notes)


def test_folds_of_a_seed_are_averaged(tmp_path):
    root = tmp_path / "runs"
    for group, quality in (("Cross", 0.5), ("Other", 0.7)):
        base = make(root, group)
        for fold in range(4):
            dump(base / f"fold_{fold}", outcomes(quality, fold, 0), epoch=2)
    (line,), notes = tables(root, tmp_path / "out")
    mean = {q: np.mean([outcomes(q, fold, 0)["hit"].mean() for fold in range(4)]) for q in (0.5, 0.7)}
    assert line["R@1 difference [%]"] == f"{100 * (mean[0.7] - mean[0.5]):+.2f}" and line["seeds"] == "1 / 1"


def test_queries_without_a_match_are_left_out_where_the_evaluation_leaves_them_out(tmp_path):
    means = {}
    for group, quality in (("A", 0.6), ("B", 0.8)):
        recalls = []
        for seed in range(2):
            values = outcomes(quality, seed, 1)
            recalls.append(np.delete(values["hit"], slice(None, None, 3)).mean())
            values["hit"][::3] = 0
            values["ap_at_r"][::3] = np.nan
            dump(make_run(tmp_path, group, seed, quality), values, flags=flags_of(eval_skip_unmatched=1))
        means[group] = np.mean(recalls)
    (row,), _ = tables(tmp_path, tmp_path / "out")
    assert (row["group"], row["R@1 difference [%]"]) == ("B", f"{100 * (means['B'] - means['A']):+.2f}")
