"""Queries and galleries: what is shown, dumped and refused. What is measured: test_evaluate.py."""

import contextlib
import functools
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import evaluation
import evaluation.__main__ as command
import metrics
from engine.runtime import Runtime
from evaluation import from_splits, galleries, outputs, selectable
from evaluation.queries import dump as dump_queries
from pictures import neighbours, space
from tests.kit.refusals import refused
from tests.kit.splits import (
    SPLITS,
    Images,
    Network,
    by_loops,
    evaluated,
    measured,
    options,
    pca,
    points_of,
    splits_with_roles,
)

BOTH = ("--splits_to_eval", "val", "test")


INSIDE = ("--tester", "same_parent_label")


def embedded_splits(splits, opt, network=None):
    """Split -> its embedded images."""
    return evaluation.embed_all(network or Network(), evaluation.loaders(splits, opt), opt, Runtime(opt))


def with_first(splits):
    """The test images, and which of them are of the first super-class."""
    test = splits["testing"]
    return test, np.array([test.parent(row) == "first" for row in range(36)])


def test_a_super_class_of_gallery_images_alone_counts_in_class_wise_numbers():
    splits = splits_with_roles(3, sequences=False)
    test, first = with_first(splits)
    test.is_query = ~first & (np.arange(36) % 2 == 0)
    test.is_gallery = np.ones(36, bool)
    scores, _, network = evaluated(splits, *INSIDE, *BOTH, "--evaluation_metrics", "e_recall@1", "nmi")
    points = network.expected(test.points).astype(np.float32)
    parts = [metrics.compute("nmi", points[rows], test.labels[rows], seed=options().seed) for rows in (first, ~first)]
    assert scores["test"]["nmi"] == pytest.approx(np.mean([part["nmi"] for part in parts]), abs=1e-6)
    queries = test.is_query & ~first
    gallery = (points[~first], test.labels[~first])
    themselves = np.flatnonzero(test.is_query[~first])
    of_second = metrics.compute("e_recall@1", points[queries], test.labels[queries], *gallery, exclude=themselves)
    assert scores["test"]["e_recall@1"] == pytest.approx(of_second["e_recall@1"], abs=1e-12)


def test_images_without_a_class_are_in_no_class_wise_number():
    is_distractor = np.arange(6) > 3
    for lists in (None, {"": {}}):
        roles = galleries.roles_of(SimpleNamespace(is_distractor=is_distractor, lists=lists), 6)
        assert roles.pool.tolist() == [0, 1, 2, 3], "though all are queries and gallery"
    # lists alone say what is found
    assert galleries.roles_of(SimpleNamespace(is_distractor=np.ones(6, bool)), 6).pool is None


@pytest.mark.parametrize("reference", ["compared_to_self", "compared_to_sets_combined"])
def test_images_without_a_class_stay_without_one_in_any_reference(reference):
    images = evaluation.Embedded({}, np.array([0, 1, -1, 1]), 0.0, Images(np.zeros((4, 3)), "abab"))
    task = from_splits.tasks({"test": images}, options("--eval_reference_set", reference))["test"]
    assert task.queries.labels.tolist() == task.searched.labels.tolist() == [0, 1, -1, 1]


def test_super_classes_and_splits_without_queries_or_gallery_are_refused():
    splits = splits_with_roles(3, sequences=False)
    test, first = with_first(splits)
    test.is_query = np.ones(36, bool)
    test.is_gallery = ~first
    with refused("the super-class 'first' of test has no image in the reference"):
        evaluated(splits, *INSIDE)
    for role in ("query", "gallery"):
        test.is_query = np.full(36, role != "query")
        test.is_gallery = np.full(36, role != "gallery")
        with refused(f"test, of --dataset made: none of its 36 images is a {role} image"):
            evaluated(splits)
    test.is_gallery = np.arange(36) < 2
    opt = options("--eval_pca", "3")
    with refused("--eval_pca 3: at most 2: the reference is 2 x 3"):
        evaluation.check(Network(), evaluation.loaders(splits, opt), opt, Runtime(opt))


def test_what_is_said_once(capsys):
    splits = splits_with_roles(6)
    opt = options(*BOTH)
    test = splits["testing"]
    loaders = evaluation.loaders(splits, opt)
    run = Runtime(opt)
    evaluation.check(Network(), loaders, opt, run)
    for _ in range(2):
        evaluation.evaluate(Network(), loaders, opt, run)
    printed = capsys.readouterr().out
    queries = test.rows_of("is_query")
    gallery = test.rows_of("is_gallery")
    orders = by_loops(splits, "test", ["test"], points_of(splits))[1]
    lone = sum(not any(test.names[j] == test.names[row] for _, j in order) for row, order in orders.items())
    assert lone > 0 and printed.count("test: ") == 1 and "val: images of one sequence, of " in printed
    n_both = len({*queries} & {*gallery})
    counts = f"{len(queries)} queries search in {len(gallery)} images, its gallery; {n_both} images are query"
    assert f"test: {counts}" in printed and f"together, {len(test.pool())} images" in printed
    assert f"{lone} of {len(queries)} queries have no image of their class to find" in printed


def test_without_roles_nothing_is_said(capsys):
    splits = splits_with_roles(7, sequences=False)
    splits["testing"].is_query = splits["testing"].is_gallery = np.ones(36, bool)
    _, embedded, _ = evaluated(splits)
    assert "test: " not in capsys.readouterr().out
    assert evaluation.roles(evaluation.loaders(splits, options()), options()) == {}
    task = from_splits.tasks(embedded, options(), "discriminative")["test"]
    assert task.gallery is None and task.pool is None and task.queries.sequences is None
    assert galleries.dumped(galleries.roles_of(splits["testing"], 36)) == {}


ALL = ["train", "val", "test"]
# flags -> the splits that are searched
SHOWN = {
    "": ["test"],
    "--eval_reference_set compared_to_sets_combined --tester same_parent_label": ALL,
    "--eval_reference_set compared_to_training_set": ["train"],
    "--label_hierarchy_level 1": ["test"],
    "--eval_pca 2 --eval_reference_set compared_to_sets_combined": ALL,
}


@pytest.mark.parametrize("flags", SHOWN)
def test_pictures_show_what_is_evaluated(monkeypatch, tmp_path, flags, with_pictures):
    splits = splits_with_roles(10, everywhere=True)
    test = splits["testing"]
    sources = SHOWN[flags]
    opt = options(*flags.split(), "--eval_size_of_tsne", "30")
    embedded = embedded_splits(splits, opt)
    points = points_of(splits)
    drawings = []
    charted = {}
    monkeypatch.setattr(outputs, "recoveries", lambda path, **drawing: drawings.append(drawing))
    for name in ("spectra", "distances", "tsne"):
        chart = functools.partial(lambda name, path, *arguments: charted.update({name: arguments}) or path, name)
        monkeypatch.setattr(space, name, chart)
    outputs.draw_pictures(tmp_path, embedded, "test", opt, "Group")
    gallery = [(source, j) for source in sources for j in splits[SPLITS[source]].rows_of("is_gallery")]
    if opt.eval_pca:
        fitted = pca(np.array([points[source][j] for source, j in gallery]), 2)
        points = {split: fitted(rows) for split, rows in points.items()}
    orders = {}
    parents = ("first", "second") if "tester" in flags else (None,)
    for parent in parents:
        orders |= by_loops(splits, "test", sources, points, parent)[1]
    names = {"first", "second"} if opt.label_hierarchy_level else {*"abcdef"}
    for drawing in drawings:
        queries_of, reference_of = drawing["images"]
        assert len(reference_of) == len(gallery) and {*drawing["class_names"].values()} <= names
        for query, results in zip(*drawing["rankings"][:2], strict=True):
            row = test.rows_of("is_query")[query]
            assert [gallery[index] for index in results] == orders[row][:7]
            places = [(queries_of, query, ("test", row)), *((reference_of, index, gallery[index]) for index in results)]
            for images, index, (source, j) in places:
                image = np.asarray(splits[SPLITS[source]][j][1]).transpose(1, 2, 0)
                assert neighbours.whole_image(images, int(index)).tolist() == image.tolist()
    title = drawings[0]["title"]
    assert ("in its gallery" in title) == (sources == ["test"]) != ("on test in train" in title)
    plotted = charted["tsne"][0]
    distances = charted["distances"]
    for rows in (charted["spectra"][0]["test"], distances[0]["test"], plotted.features):
        # components have no sign
        np.testing.assert_allclose(abs(rows), abs(points["test"][test.pool()]), atol=1e-6)
    assert distances[1]["test"].tolist() == plotted.labels.tolist()
    assert (distances[2]["test"] is None) == ("tester" not in flags)


def test_pictures_are_drawn(tmp_path, monkeypatch, with_pictures):
    # each tile takes time
    monkeypatch.setattr(outputs, "NEIGHBOURS", 2)
    opt = options(*BOTH)
    paths = outputs.draw_pictures(tmp_path, embedded_splits(splits_with_roles(9), opt), "test", opt, "Group")
    assert len(paths) == 5 and paths[2].name == "cmc.png" and all(path.stat().st_size > 1000 for path in paths)


def dumped(folder, splits, *flags):
    """The scores, and the file of each split."""
    scores, embedded, _ = evaluated(splits, *flags)
    paths = outputs.dump(folder, embedded, options(*flags))
    return scores, {path.stem.removeprefix("embeddings_"): path for path in paths}


def of_file(path, names, *words):
    """What `python -m evaluation` finds of a file."""
    return command.main([str(path), *map(str, words), "--evaluation_metrics", *names])


@pytest.mark.parametrize(("named", "flags"), [(False, []), (True, ["--eval_pca", "2"])])
def test_a_dump_gives_the_same_numbers_again(tmp_path, flags, named, capsys):
    names = ["e_recall@1", "map_r", "mAP_c", "mrr", "nmi", "dists@intra", "rho_spectrum@1", "c_map_r", "map_r_macro"]
    scores, paths = dumped(tmp_path, splits_with_roles(10, named=named), "--evaluation_metrics", *names, *flags)
    with np.load(paths["test"]) as file, np.load(paths["val"]) as validation:
        assert {"is_query", "is_gallery", "sequence"} <= set(file.files) and len(file["features"]) == 36
        assert (file["sequence"].dtype.kind == "U") == named and "is_query" not in validation.files
    for split in ("val", "test"):
        capsys.readouterr()
        assert of_file(paths[split], names) == pytest.approx(scores[split], abs=1e-12), split
        printed = capsys.readouterr().out
        assert ("queries search in" in printed) == (split == "test") and "never find each other" in printed


@pytest.mark.parametrize("named", [False, True])
def test_the_queries_of_one_file_in_the_gallery_of_another(tmp_path, named, capsys):
    splits = splits_with_roles(11, everywhere=True, named=named)
    test = splits["testing"]
    test.paths = [path.replace("/images", "/others") for path in test.paths]
    if not named:
        for dataset in splits.values():
            # numbers of two splits' own mean nothing to each other
            dataset.sequences = None
    _, paths = dumped(tmp_path, splits)
    names = ["e_recall@1", "map_r", "nmi"]
    points = points_of(splits)
    values = of_file(paths["test"], names, "--gallery", paths["val"])
    expected, _ = by_loops(splits, "test", ["val"], points)
    parts = [(points["test"], test, "is_query"), (points["val"], splits["validation"], "is_gallery")]
    together = np.concatenate([x[dataset.rows_of(role)] for x, dataset, role in parts]).astype(np.float32)
    labels = np.concatenate([np.array(dataset.names)[dataset.rows_of(role)] for _, dataset, role in parts])
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert values["nmi"] == pytest.approx(metrics.compute(["nmi"], together, labels, seed=1)["nmi"], abs=1e-9)
    n_queries, n_gallery = (len(dataset.rows_of(role)) for _, dataset, role in parts)
    assert f"{n_queries} queries search in {n_gallery} images, --gallery" in capsys.readouterr().out
    without_gallery, in_itself = (
        of_file(paths["test"], names[:2], *flags) for flags in ([], ["--gallery", paths["test"]])
    )
    assert in_itself == without_gallery


# classes, queries, gallery, sequences of a few images
ROLES = [
    ("aabb", "1111", "1111", None),
    ("aabb", "1010", "0101", None),
    ("aabb", "1010", "0001", None),
    ("aabb", "1100", "0011", None),
    ("aabb", "1111", "1111", [0, 0, 1, 1]),
    ("aabb", "1111", "1111", [0, 1, 0, 1]),
    ("aab", "100", "010", None),
]


def test_a_choice_among_equal_epochs_is_refused():
    """Against random places of the images: does the metric take two values?"""
    for metric, (names, *flags, sequences) in itertools.product(("e_recall@1", "map_r", "nmi"), ROLES):
        words = ["--splits_to_eval", "val", "--evaluation_metrics", *{"e_recall@1", metric}]
        opt = options(*words, "--storage_metrics", metric)
        roles = [[letter == "1" for letter in text] for text in flags]
        sequences = None if sequences is None else np.array(sequences)
        images = Images(np.zeros((len(names), 3)), names, None, *roles, sequences)
        values = set()
        for seed in range(20):
            points = np.random.default_rng(seed).normal(size=(len(names), 3)).astype(np.float32)
            embedded = evaluation.Embedded({"discriminative": points}, images.labels, 0.0, images)
            value = float(evaluation.score({"val": embedded}, opt, Runtime(opt))["val"][metric])
            value = "NaN" if np.isnan(value) else round(value, 9)
            values.add(value)
            if len(values) > 1:
                break
        with contextlib.nullcontext() if len(values) > 1 else refused(metric):
            selectable.check({"val": images}, opt)


def with_drawn_galleries(splits, n_draws=3, seed=4):
    """The test images with the roles of random draws: one image of each class is the gallery."""
    generator = np.random.default_rng(seed)
    test = splits["testing"]
    names = np.array(test.names)
    draws = np.zeros((n_draws, len(names)), dtype=bool)
    for draw in draws:
        draw[[generator.choice(np.flatnonzero(names == name)) for name in sorted(set(names))]] = True
    test.is_gallery = draws[0]
    test.is_query = ~draws[0]
    test.role_draws = draws
    return splits


@pytest.mark.parametrize("flags", ["", "--rerank alpha_qe --rerank_n 3", "--eval_space hyperbolic --eval_no_normalize"])
def test_embeddings_of_drawn_galleries_measure_as_the_run_does(flags, tmp_path):
    flags = flags.split()
    names = ["e_recall@1", "map_r", "c_recall@1", "e_recall@1_group_gap", "nmi", "fnmr@.1", "opis"]
    splits = with_drawn_galleries(splits_with_roles())
    scores, embedded, _ = evaluated(splits, *BOTH, "--evaluation_metrics", *names, *flags)
    opt = options(*BOTH, *flags)
    path = outputs.dump(tmp_path, embedded, opt)[-1]
    of_queries = dump_queries(tmp_path, embedded, opt, 1)[-1]
    of_flags = [flag for flag in flags if flag != "--eval_no_normalize"]
    values = of_file(path, names, "--dump_query_results", tmp_path / "q.npz", *of_flags)
    assert values == pytest.approx(scores["test"], abs=1e-12)
    first = dict(np.load(path))
    del first["role_draws"]
    of_first = measured(tmp_path, *of_flags, names=names, **first)
    assert of_first["e_recall@1"] != values["e_recall@1"] and of_first["nmi"] == values["nmi"]
    with np.load(of_queries) as run, np.load(tmp_path / "q.npz") as later:
        # what queries found is of the first draw
        assert run["hit"].mean() == pytest.approx(of_first["e_recall@1"], abs=1e-12)
        for name in ("hit", "ap_at_r", "first_hit", "paths"):
            assert np.array_equal(run[name], later[name], equal_nan=name == "ap_at_r"), name
    *_, reduced = outputs.dump(tmp_path, embedded, options(*BOTH, "--eval_pca", "2"))
    # each draw has a projection of its own
    assert "role_draws" not in np.load(reduced)
    draws = first["is_gallery"][None]
    for wrong in (draws[0], draws[:, :-1], draws.astype(int), draws[:0]):
        with refused(r"role_draws must be \(D, 36\)"):
            measured(tmp_path, **first, role_draws=wrong)


@pytest.mark.parametrize("flags", [(), ("--eval_reference_set", "compared_to_sets_combined"), INSIDE])
def test_where_the_gallery_is_drawn_the_mean_over_the_draws_is_measured(flags):
    splits = with_drawn_galleries(splits_with_roles(sequences=False))
    test = splits["testing"]
    draws = test.role_draws
    chosen = (*BOTH, "--evaluation_metrics", "e_recall@1", "map_r", "mAP", "nmi", *flags)
    mean = evaluated(splits, *chosen)[0]
    opt = options(*chosen)
    printed = evaluation.roles(evaluation.loaders(splits, opt), opt)
    single = []
    test.role_draws = None
    for draw in draws:
        test.is_gallery = draw
        test.is_query = ~draw
        single.append(evaluated(splits, *chosen)[0])
    assert len({scores["test"]["e_recall@1"] for scores in single}) > 1
    for split, name in itertools.product(("val", "test"), ("e_recall@1", "map_r", "mAP")):
        assert mean[split][name] == pytest.approx(np.mean([scores[split][name] for scores in single]), abs=1e-12)
    assert mean["test"]["nmi"] == single[0]["test"]["nmi"]
    # the images of val search in the drawn gallery too
    combined = "compared_to_sets_combined" in flags
    assert (len({scores["val"]["map_r"] for scores in single}) > 1) == combined
    words = "the first of 3 drawn galleries, over which retrieval metrics are means"
    assert words in printed["test"] and (words in printed.get("val", "")) == combined


def test_queries_without_a_match_are_left_out_and_said(tmp_path, capsys):
    names = ["e_recall@1", "mAP", "map_r", "c_recall@1_macro", "nmi"]
    flags = (*BOTH, "--evaluation_metrics", *names)
    plain, _, _ = evaluated(splits_with_roles(), *flags)
    capsys.readouterr()
    scores, embedded, _ = evaluated(splits_with_roles(), *flags, "--eval_skip_unmatched")
    opt = options(*flags, "--eval_skip_unmatched")
    matched = from_splits.tasks(embedded, opt, "discriminative")["test"].findable()[0] > 0
    lacking = f"{(~matched).sum()} of {len(matched)} queries have no image of their class to find"
    text = f"{lacking}: left out of all ranking metrics"
    assert text in capsys.readouterr().out and 0 < matched.sum() < len(matched)
    for name in ("e_recall@1", "mAP"):
        assert scores["test"][name] == pytest.approx(plain["test"][name] * len(matched) / matched.sum())
    assert [scores["test"][name] for name in ("map_r", "nmi")] == [plain["test"][name] for name in ("map_r", "nmi")]
    (*_, path) = outputs.dump(tmp_path, embedded, opt)
    assert of_file(path, names) == pytest.approx(scores["test"], abs=1e-12), "as the file was written"
    assert text in capsys.readouterr().out
    assert of_file(path, names, "--eval_skip_unmatched", "0") == pytest.approx(plain["test"], abs=1e-12)
    single = {"features": np.eye(3), "labels": [0, 0, 1]}
    assert measured(tmp_path, "--eval_skip_unmatched", "1", names=["e_recall@1"], **single) == {"e_recall@1": 1.0}
    assert "1 of 3 queries have no image of their class to find: left out" in capsys.readouterr().out
