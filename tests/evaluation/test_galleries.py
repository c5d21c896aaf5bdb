"""Queries and galleries: what the flags of evaluation show, dump and refuse, against loops over images. What they
measure: test_evaluate.py.
"""

import contextlib
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


def with_first(splits):
    """The test images, and which of them are of the first super-class."""
    test = splits["testing"]
    return test, np.array([test.parent(row) == "first" for row in range(36)])


def test_a_super_class_of_gallery_images_alone_counts_in_class_wise_numbers():
    splits = splits_with_roles(3, sequences=False)
    test, first = with_first(splits)
    test.is_query = ~first & (np.arange(36) % 2 == 0)
    test.is_gallery = np.ones(36, bool)
    flags = ("--tester", "same_parent_label", *BOTH, "--evaluation_metrics", "e_recall@1", "nmi")
    scores, _, network = evaluated(splits, *flags)
    points = network.expected(test.points).astype(np.float32)
    parts = [
        metrics.compute(["nmi"], points[rows], test.labels[rows], seed=options().seed)["nmi"]
        for rows in (first, ~first)
    ]
    assert scores["test"]["nmi"] == pytest.approx(np.mean(parts), abs=1e-6)
    queries = test.is_query & ~first
    themselves = np.flatnonzero(test.is_query[~first])
    of_second = metrics.compute(
        ["e_recall@1"], points[queries], test.labels[queries], points[~first], test.labels[~first], exclude=themselves
    )
    assert scores["test"]["e_recall@1"] == pytest.approx(of_second["e_recall@1"], abs=1e-12)


def test_images_without_a_class_are_in_no_class_wise_number():
    is_distractor = np.arange(6) > 3
    for lists in (None, {"": {}}):
        roles = galleries.roles_of(SimpleNamespace(is_distractor=is_distractor, lists=lists), 6)
        assert roles.pool.tolist() == [0, 1, 2, 3], "though all are queries and gallery"
    assert galleries.roles_of(SimpleNamespace(is_distractor=np.ones(6, bool)), 6).pool is None, (
        "lists alone say what is found"
    )


def test_super_classes_and_splits_without_queries_or_gallery_are_refused():
    splits = splits_with_roles(3, sequences=False)
    test, first = with_first(splits)
    test.is_query = np.ones(36, bool)
    test.is_gallery = ~first
    with refused("the super-class 'first' of test has no image in the reference"):
        evaluated(splits, "--tester", "same_parent_label")
    for name, role in (("is_query", "query"), ("is_gallery", "gallery")):
        test.is_query = np.ones(36, bool)
        test.is_gallery = np.ones(36, bool)
        setattr(test, name, np.zeros(36, bool))
        with refused(f"test, of --dataset made: none of its 36 images is a {role} image"):
            evaluated(splits)
    test.is_gallery = np.arange(36) < 2
    opt = options("--eval_pca", "3")
    with refused("--eval_pca 3: at most 2: the reference is 2 x 3"):
        evaluation.check(Network(), evaluation.loaders(splits, opt), opt, Runtime(opt))


def test_what_is_said_once_and_without_roles_not_at_all(capsys):
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
    assert (
        f"test: {len(queries)} queries search in {len(gallery)} images, its gallery; "
        f"{len({*queries} & {*gallery})} images are query"
    ) in printed
    assert (
        f"together, {len(test.pool())} images" in printed
        and f"{lone} of {len(queries)} queries have no image of their class to find" in printed
    )
    splits = splits_with_roles(7, sequences=False)
    splits["testing"].is_query = splits["testing"].is_gallery = np.ones(36, bool)
    _, embedded, _ = evaluated(splits)
    assert (
        "test: " not in capsys.readouterr().out
        and evaluation.roles(evaluation.loaders(splits, options()), options()) == {}
    )
    task = from_splits.tasks(embedded, options(), "discriminative")["test"]
    assert task.gallery is None and task.pool is None and task.queries.sequences is None
    assert galleries.dumped(galleries.roles_of(splits["testing"], 36)) == {}


ALL = ["train", "val", "test"]
SHOWN = {  # flags -> the splits that are searched
    "": ["test"],
    "--eval_reference_set compared_to_sets_combined --tester same_parent_label": ALL,
    "--eval_reference_set compared_to_training_set": ["train"],
    "--label_hierarchy_level 1": ["test"],
    "--eval_pca 2 --eval_reference_set compared_to_sets_combined": ALL,
}


@pytest.mark.parametrize("flags", SHOWN)
def test_pictures_show_what_is_evaluated(monkeypatch, tmp_path, flags, with_pictures):
    splits = splits_with_roles(10, everywhere=True)
    sources = SHOWN[flags]
    opt = options(*flags.split(), "--eval_size_of_tsne", "30")
    embedded = evaluation.embed_all(Network(), evaluation.loaders(splits, opt), opt, Runtime(opt))
    points = points_of(splits)
    drawings = []
    charted = {}
    monkeypatch.setattr(outputs, "recoveries", lambda path, **drawing: drawings.append(drawing))
    for name in ("spectra", "distances", "tsne"):
        monkeypatch.setattr(
            space, name, lambda path, *arguments, _name=name: charted.setdefault(_name, []).append(arguments) or path
        )
    outputs.draw_pictures(tmp_path, embedded, "test", opt, "Group")
    test = splits["testing"]
    orders = {}
    gallery = [(source, j) for source in sources for j in splits[SPLITS[source]].rows_of("is_gallery")]
    if opt.eval_pca:
        fitted = pca(np.array([points[source][j] for source, j in gallery]), 2)
        points = {split: fitted(rows) for split, rows in points.items()}
    parents = ("first", "second") if "tester" in flags else (None,)
    for parent in parents:
        orders |= by_loops(splits, "test", sources, points, parent)[1]
    for drawing in drawings:
        queries_of, reference_of = drawing["images"]
        assert len(reference_of) == len(gallery)
        names = {"first", "second"} if opt.label_hierarchy_level else {*"abcdef"}
        assert {*drawing["class_names"].values()} <= names
        for query, results in zip(*drawing["rankings"][:2], strict=True):
            row = test.rows_of("is_query")[query]
            assert [gallery[index] for index in results] == orders[row][:7]
            for images, index, (source, j) in (
                (queries_of, query, ("test", row)),
                *((reference_of, index, gallery[index]) for index in results),
            ):
                image = np.asarray(splits[SPLITS[source]][j][1]).transpose(1, 2, 0)
                assert neighbours.whole_image(images, int(index)).tolist() == image.tolist()
    title = drawings[0]["title"]
    pool = test.pool()
    assert ("in its gallery" in title) == (sources == ["test"]) and ("on test in train" in title) == (
        sources != ["test"]
    )
    plotted = charted["tsne"][-1][0]
    for rows in (charted["spectra"][0][0]["test"], charted["distances"][0][0]["test"], plotted.features):
        np.testing.assert_allclose(abs(rows), abs(points["test"][pool]), atol=1e-6)  # components have no sign
    assert charted["distances"][0][1]["test"].tolist() == plotted.labels.tolist()
    assert (charted["distances"][0][2]["test"] is None) == ("tester" not in flags)


def test_pictures_are_drawn(tmp_path, monkeypatch, with_pictures):
    monkeypatch.setattr(outputs, "NEIGHBOURS", 2)  # each tile takes time
    splits = splits_with_roles(9)
    opt = options(*BOTH)
    embedded = evaluation.embed_all(Network(), evaluation.loaders(splits, opt), opt, Runtime(opt))
    paths = outputs.draw_pictures(tmp_path, embedded, "test", opt, "Group")
    assert len(paths) == 5 and paths[2].name == "cmc.png" and all(path.stat().st_size > 1000 for path in paths)


def dumped(folder, splits, *flags):
    scores, embedded, _ = evaluated(splits, *flags)
    return scores, {
        path.stem.removeprefix("embeddings_"): path for path in outputs.dump(folder, embedded, options(*flags))
    }


@pytest.mark.parametrize(("named", "flags"), [(False, []), (True, ["--eval_pca", "2"])])
def test_a_dump_gives_the_same_numbers_again(tmp_path, flags, named, capsys):
    names = ["e_recall@1", "map_r", "mAP_c", "mrr", "nmi", "dists@intra", "rho_spectrum@1", "c_map_r", "map_r_macro"]
    scores, paths = dumped(tmp_path, splits_with_roles(10, named=named), "--evaluation_metrics", *names, *flags)
    with np.load(paths["test"]) as file, np.load(paths["val"]) as validation:
        assert {"is_query", "is_gallery", "sequence"} <= set(file.files) and len(file["features"]) == 36
        assert (file["sequence"].dtype.kind == "U") == named and "is_query" not in validation.files
    for split in ("val", "test"):
        capsys.readouterr()
        values = command.main([str(paths[split]), "--evaluation_metrics", *names])
        assert values == pytest.approx(scores[split], abs=1e-12), split
        printed = capsys.readouterr().out
        assert ("queries search in" in printed) == (split == "test") and "never find each other" in printed


@pytest.mark.parametrize("named", [False, True])
def test_the_queries_of_one_file_in_the_gallery_of_another(tmp_path, named, capsys):
    splits = splits_with_roles(11, everywhere=True, named=named)
    splits["testing"].paths = [path.replace("/images", "/others") for path in splits["testing"].paths]
    if not named:
        for dataset in splits.values():
            dataset.sequences = None  # numbers of two splits' own mean nothing to each other
    _, paths = dumped(tmp_path, splits)
    names = ["e_recall@1", "map_r", "nmi"]
    points = points_of(splits)
    values = command.main([str(paths["test"]), "--gallery", str(paths["val"]), "--evaluation_metrics", *names])
    expected, _ = by_loops(splits, "test", ["val"], points)
    assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    rows = splits["testing"].rows_of("is_query")
    gallery_rows = splits["validation"].rows_of("is_gallery")
    together = np.concatenate([points["test"][rows], points["val"][gallery_rows]]).astype(np.float32)
    labels = np.array(
        [splits["testing"].names[row] for row in rows] + [splits["validation"].names[row] for row in gallery_rows]
    )
    assert values["nmi"] == pytest.approx(metrics.compute(["nmi"], together, labels, seed=1)["nmi"], abs=1e-9)
    assert f"{len(rows)} queries search in {len(gallery_rows)} images, --gallery" in capsys.readouterr().out
    in_itself = [
        command.main([str(paths["test"]), *flags, "--evaluation_metrics", *names])
        for flags in ([], ["--gallery", str(paths["test"])])
    ]
    assert in_itself[1]["map_r"] == in_itself[0]["map_r"] and in_itself[1]["e_recall@1"] == in_itself[0]["e_recall@1"]


def test_a_choice_among_equal_epochs_is_refused():
    """Against random places of the images: does the metric take two values?"""
    roles = [
        ("aabb", "1111", "1111", None),
        ("aabb", "1010", "0101", None),
        ("aabb", "1010", "0001", None),
        ("aabb", "1100", "0011", None),
    ]
    roles += [
        ("aabb", "1111", "1111", [0, 0, 1, 1]),
        ("aabb", "1111", "1111", [0, 1, 0, 1]),
        ("aab", "100", "010", None),
    ]
    for metric, (names, queries, gallery, sequences) in itertools.product(("e_recall@1", "map_r", "nmi"), roles):
        opt = options(
            "--splits_to_eval", "val", "--evaluation_metrics", *{"e_recall@1", metric}, "--storage_metrics", metric
        )
        is_query, is_gallery = ([c == "1" for c in text] for text in (queries, gallery))
        if sequences is not None:
            sequences = np.array(sequences)
        images = Images(
            np.zeros((len(names), 3)),
            names,
            None,
            is_query,
            is_gallery,
            sequences,
        )
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
    names = np.array(splits["testing"].names)
    draws = np.zeros((n_draws, len(names)), dtype=bool)
    for draw in draws:
        draw[[generator.choice(np.flatnonzero(names == name)) for name in sorted(set(names))]] = True
    splits["testing"].is_gallery = draws[0]
    splits["testing"].is_query = ~draws[0]
    splits["testing"].role_draws = draws
    return splits


@pytest.mark.parametrize(
    "flags", [(), ("--rerank", "alpha_qe", "--rerank_n", "3"), ("--eval_space", "hyperbolic", "--eval_no_normalize")]
)
def test_embeddings_of_drawn_galleries_measure_as_the_run_does(flags, tmp_path):
    splits = with_drawn_galleries(splits_with_roles())
    names = ["e_recall@1", "map_r", "c_recall@1", "e_recall@1_group_gap", "nmi", "fnmr@.1", "opis"]
    scores, embedded, _ = evaluated(splits, *BOTH, "--evaluation_metrics", *names, *flags)
    opt = options(*BOTH, *flags)
    path = outputs.dump(tmp_path, embedded, opt)[-1]
    of_queries = dump_queries(tmp_path, embedded, opt, 1)[-1]
    flags_of_file = [flag for flag in flags if flag != "--eval_no_normalize"]
    values = command.main(
        [str(path), "--evaluation_metrics", *names, "--dump_query_results", str(tmp_path / "q.npz"), *flags_of_file]
    )
    assert values == pytest.approx(scores["test"], abs=1e-12)
    first = dict(np.load(path))
    del first["role_draws"]
    of_first = measured(tmp_path, *flags_of_file, names=names, **first)
    assert of_first["e_recall@1"] != values["e_recall@1"] and of_first["nmi"] == values["nmi"]
    with np.load(of_queries) as run, np.load(tmp_path / "q.npz") as later:
        # what queries found is of the first draw
        assert run["hit"].mean() == pytest.approx(of_first["e_recall@1"], abs=1e-12)
        for name in ("hit", "ap_at_r", "first_hit", "paths"):
            assert np.array_equal(run[name], later[name], equal_nan=name == "ap_at_r"), name
    *_, reduced = outputs.dump(tmp_path, embedded, options(*BOTH, "--eval_pca", "2"))
    assert "role_draws" not in np.load(reduced)  # each draw has a projection of its own
    for draws in (
        first["is_gallery"],
        first["is_gallery"][None, :-1],
        first["is_gallery"][None].astype(int),
        np.zeros((0, 36), bool),
    ):
        with refused(r"role_draws must be \(D, 36\)"):
            measured(tmp_path, **first, role_draws=draws)


@pytest.mark.parametrize(
    "flags", [(), ("--eval_reference_set", "compared_to_sets_combined"), ("--tester", "same_parent_label")]
)
def test_where_the_gallery_is_drawn_the_mean_over_the_draws_is_measured(flags):
    splits = with_drawn_galleries(splits_with_roles(sequences=False))
    results = []
    draws = splits["testing"].role_draws
    chosen = (*BOTH, "--evaluation_metrics", "e_recall@1", "map_r", "mAP", "nmi", *flags)
    for draw in [*draws, None]:
        splits["testing"].is_gallery, splits["testing"].is_query = (
            (draws[0], ~draws[0]) if draw is None else (draw, ~draw)
        )
        splits["testing"].role_draws = draws if draw is None else None
        results.append(evaluated(splits, *chosen)[0])
    *single, mean = results
    assert len({scores["test"]["e_recall@1"] for scores in single}) > 1
    for split, name in itertools.product(("val", "test"), ("e_recall@1", "map_r", "mAP")):
        assert mean[split][name] == pytest.approx(np.mean([scores[split][name] for scores in single]), abs=1e-12)
    assert mean["test"]["nmi"] == single[0]["test"]["nmi"]
    combined = "compared_to_sets_combined" in flags  # the images of val search in the drawn gallery too
    assert (len({scores["val"]["map_r"] for scores in single}) > 1) == combined
    printed = evaluation.roles(evaluation.loaders(splits, options(*chosen)), options(*chosen))
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
    text = (
        f"{(~matched).sum()} of {len(matched)} queries have no image of their class to find: left out of all ranking "
        "metrics"
    )
    assert text in capsys.readouterr().out and 0 < matched.sum() < len(matched)
    for name in ("e_recall@1", "mAP"):
        assert scores["test"][name] == pytest.approx(plain["test"][name] * len(matched) / matched.sum())
    assert {name: scores["test"][name] for name in ("map_r", "nmi")} == {
        name: plain["test"][name] for name in ("map_r", "nmi")
    }
    (*_, path) = outputs.dump(tmp_path, embedded, opt)
    assert command.main([str(path), "--evaluation_metrics", *names]) == pytest.approx(scores["test"], abs=1e-12), (
        "as the file was written"
    )
    assert text in capsys.readouterr().out
    counted = command.main([str(path), "--eval_skip_unmatched", "0", "--evaluation_metrics", *names])
    assert counted == pytest.approx(plain["test"], abs=1e-12)
    of_other = measured(
        tmp_path, "--eval_skip_unmatched", "1", names=["e_recall@1"], features=np.eye(3), labels=[0, 0, 1]
    )
    assert (
        of_other == {"e_recall@1": 1.0}
        and "1 of 3 queries have no image of their class to find: left out" in capsys.readouterr().out
    )
