"""`--eval_space hyperbolic` and `--rerank` wherever something is evaluated: splits, a run, its files and pictures."""

import json

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import evaluation
import main
import metrics
import parameters
from evaluation import __main__ as command
from evaluation import ensemble, from_splits, outputs, queries
from evaluation.averages import divided
from pictures import neighbours, space
from tests.kit.refusals import refused
from tests.kit.runs import run_words
from tests.kit.splits import Network, evaluated, made_splits, options, runtime
from tests.utilities.test_hyperbolic import moebius_distance
from utilities.hyperbolic import Ball

NAMES = ["e_recall@1", "map_r", "mAP"]
HYPERBOLIC = ["--eval_space", "hyperbolic"]


class Small(Network):
    """Embeddings of lengths around that of the clip."""

    def forward(self, images):
        embeddings, activations = super().forward(images)
        return embeddings / 90, activations


def scored(*flags, network=None, shared=False):
    words = ["--evaluation_metrics", *NAMES, "--splits_to_eval", "val", "test", "--storage_metrics", "map_r", *flags]
    network = network or Small(normalizes=False)
    scores, embedded, _ = evaluated(made_splits(shared=shared), *words, network=network)
    return (scores, embedded), options(*words)


RERANK = "--rerank k_reciprocal"


SPACE = "--eval_space hyperbolic"


def features_of(embedded, split):
    return embedded[split].features["discriminative"], embedded[split].labels


CASES = [
    (SPACE, Ball(0.1, 2.3), None),
    (f"{SPACE} --eval_space_c .5 --eval_space_clip_r 1.5", Ball(0.5, 1.5), None),
    (f"{SPACE} --loss hyperbolic --loss_hyperbolic_c .7 --loss_hyperbolic_clip_r 1.9", Ball(0.7, 1.9), None),
    (f"{SPACE} --loss hier --loss_hier_c .4 --eval_space_clip_r 2", Ball(0.4, 2.0), None),
    (f"{SPACE} --loss hyperbolic --loss_hyperbolic_c 0", Ball(0.0, 2.3), None),
    (RERANK, None, metrics.KReciprocal(20, 6, 0.3)),
    (f"{RERANK} --rerank_k1 7 --rerank_k2 2 --rerank_lambda .5", None, metrics.KReciprocal(7, 2, 0.5)),
    ("--rerank alpha_qe", None, metrics.AlphaExpansion(50, 3)),
    (f"{SPACE} {RERANK}", Ball(0.1, 2.3), metrics.KReciprocal(20, 6, 0.3)),
    (f"{SPACE} --rerank alpha_qe --rerank_n 4 --rerank_alpha 1", Ball(0.1, 2.3), metrics.AlphaExpansion(4, 1)),
]


@pytest.mark.parametrize(("flags", "ball", "rerank"), CASES)
def test_the_ball_is_the_losss_or_that_of_the_flags_and_re_ranking_that_of_the_flags(flags, ball, rerank):
    """Of an ensemble too."""
    (scores, embedded), opt = scored(*flags.split())
    results = metrics.ball(opt)
    assert (results and (results.c, results.clip_r)) == (ball and (ball.c, ball.clip_r))
    assert metrics.reranking(opt) == rerank
    test = embedded["test"]
    squared = evaluation.Embedded({"discriminative": test.features["discriminative"][:, ::-1] ** 2}, *test[1:])
    joined = ensemble.join([test, squared])
    of_joined = evaluation.score(joined, ensemble.options(opt), runtime(opt))
    for split, values, of_split in (("val", scores, embedded), ("test", scores, embedded), ("test", of_joined, joined)):
        assert values[split] == metrics.compute(NAMES, *features_of(of_split, split), ball=ball, rerank=rerank)


@pytest.mark.parametrize(
    ("reference_set", "tester"),
    [("compared_to_sets_combined", "global"), ("compared_to_training_set", "same_parent_label")],
)
@pytest.mark.parametrize("rerank", ["", f"{RERANK} --rerank_k1 5 --rerank_k2 2", "--rerank alpha_qe"])
def test_with_a_reference_and_inside_super_classes(reference_set, tester, rerank):
    words = ["--eval_reference_set", reference_set, "--tester", tester, *HYPERBOLIC, *rerank.split()]
    (scores, embedded), opt = scored(*words, shared=True)
    settings = {"ball": Ball(0.1, 2.3), "rerank": metrics.reranking(opt)}
    parts = divided(from_splits.tasks(embedded, opt, "discriminative")["val"])
    values = [metrics.compute(NAMES, **part.arguments(), **settings) for part in parts]
    assert len(values) == (2 if tester == "same_parent_label" else 1)
    means = {name: np.mean([value[name] for value in values]) for name in NAMES}
    assert scores["val"] == pytest.approx(means, abs=1e-12)


def test_unit_vectors_have_the_same_neighbours_in_the_ball():
    assert scored(*HYPERBOLIC, network=Network())[0][0] == scored(network=Network())[0][0] != scored(*HYPERBOLIC)[0][0]


@pytest.mark.parametrize(
    ("flags", "names", "message"),
    [
        (f"{SPACE} --rerank alpha_qe", "nmi rho_spectrum@1", ["Euclidean, of the tangent vectors"]),
        (RERANK, "nmi rho_spectrum@1", ["as without it"]),
        (RERANK, "", []),
    ],
)
def test_unaffected_metrics_as_it_is_is_said_once(flags, names, message, capsys):
    names = names.split()
    scored(*flags.split(), "--evaluation_metrics", "map_r", *names)
    lines = [line.rpartition("; ")[2] for line in capsys.readouterr().out.splitlines() if "changes what" in line]
    assert lines == [f"{', '.join(names)}: {text}" for text in message]


def test_pictures_show_hyperbolic_neighbours_and_distances(monkeypatch, tmp_path, with_pictures):
    (_, embedded), opt = scored(*HYPERBOLIC, "--eval_space_c", "1", "--eval_size_of_tsne", "12", "--seed", "3")
    task = from_splits.tasks(embedded, opt, "discriminative")["test"]
    x = task.queries.features.astype(np.float64)
    distances = np.array([[moebius_distance(a, b, 1.0, 2.3) for b in x.tolist()] for a in x.tolist()])
    in_ball = space.distances_of(x, x[::-1], Ball(1.0, 2.3))
    np.testing.assert_allclose(in_ball, np.diag(distances[:, ::-1]), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(space.distances_of(x, x[::-1]), np.linalg.norm(x - x[::-1], axis=1))
    for query, nearest in enumerate(queries.nearest(task, np.arange(len(x)), 4, metrics.ball(opt))):
        expected = sorted(np.delete(distances[query], query))[:4]
        np.testing.assert_allclose(distances[query][nearest], expected, rtol=1e-9)
    notes = []
    balls = []
    saved = []
    measure = space.distances_of
    monkeypatch.setattr(neighbours, "_tile", lambda *arguments: notes.append(arguments[5]))
    for module in (space, neighbours):
        monkeypatch.setattr(
            module, "distances_of", lambda *arguments: balls.append(arguments[2]) or measure(*arguments)
        )
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **how: saved.append(path.name))
    outputs.draw_pictures(tmp_path, embedded, "test", opt, "title")
    printed = {float(note.split()[1]) for note in notes if note.startswith("distance")}
    assert printed and all(np.isclose(distances, value, rtol=6e-3, atol=1e-9).any() for value in printed)
    assert all(ball is not None for ball in balls)
    assert {"tsne_test.png", "distances.png"} <= set(saved)


def test_a_run_is_measured_in_the_ball_and_again(folder_data, tmp_path):
    words = "--arch conv4 --loss hyperbolic --loss_hyperbolic_c .3 --n_epochs 1 --rerank_k1 5 --dump_embeddings".split()
    words = run_words(folder_data, tmp_path, *words, *HYPERBOLIC, *RERANK.split())
    run = main.main(parameters.read(words))
    recorded = json.loads((run.folder / "summary.json").read_text())["selected"]["values"]
    with np.load(run.folder / "embeddings_test.npz") as file:
        settings = {"ball": Ball(0.3, 2.3), "rerank": metrics.KReciprocal(5)}
        assert metrics.compute(list(recorded["test"]), file["features"], file["labels"], **settings) == recorded["test"]
        assert file["points"].shape == file["features"].shape
    words = ["--evaluate", "--resume_from", str(run.folder)]
    measured = main.main(parameters.read(words))
    assert {split: dict(values) for split, values in measured.items()} == recorded
    main.main(parameters.read([*words, "--eval_space", "euclidean", "--rerank", "alpha_qe"]))
    assert len(list(run.folder.glob("evaluation_*.json"))) == 2, "other flags, another file"


def test_a_dump_is_of_the_ball_and_measures_the_same(tmp_path):
    (_, embedded), opt = scored(*f"{SPACE} --loss hyperbolic --loss_hyperbolic_c .3 {RERANK}".split())
    path = next(path for path in outputs.dump(tmp_path, embedded, opt) if "test" in path.name)
    with np.load(path) as file:
        flags = json.loads(str(file["flags"]))
        features = file["features"]
        points = file["points"]
    assert (flags["eval_space"], flags["eval_space_c"], flags["eval_space_clip_r"]) == ("hyperbolic", 0.3, 2.3)
    assert np.array_equal(features, features_of(embedded, "test")[0])
    np.testing.assert_allclose(points, Ball(0.3, 2.3).in_ball(torch.from_numpy(features)).numpy(), rtol=1e-6)
    words = [str(path), "--evaluation_metrics", "map_r", *HYPERBOLIC, *RERANK.split()]
    for flags_of_ball, c in (([], 0.3), (["--eval_space_c", "2"], 2)):
        settings = {"ball": Ball(c, 2.3), "rerank": metrics.KReciprocal()}
        expected = metrics.compute(["map_r"], features, embedded["test"].labels, **settings)
        assert command.main([*words, *flags_of_ball]) == expected
    (_, plain), opt = scored()
    with np.load(outputs.dump(tmp_path, plain, opt)[0]) as file:
        assert "points" not in file.files


@pytest.mark.long
def test_pairs_of_a_run_and_of_its_file_are_ordered_by_the_users_scores_and_these_stay(folder_data, tmp_path):
    file = tmp_path / "pairs.py"
    file.write_text("def score(queries, images):\n    return [float(sum(map(ord, image)) % 7) for image in images]\n")
    pairs = ["--rerank_pairs", str(file), "--rerank_pairs_top", "3"]
    words = ["--n_epochs", "1", "--dump_embeddings", "--splits_to_eval", "test"]
    words += ["--arch", "conv4", "--evaluation_metrics", "e_recall@1", "map_r"]
    run = main.main(parameters.read([*run_words(folder_data, tmp_path, *words), *pairs]))
    arrays = np.load(run.folder / "embeddings_test.npz")
    features = arrays["features"]
    labels = arrays["labels"]
    plain = metrics.EmbeddingSpace(features, labels).neighbours(3)
    scores = [[sum(map(ord, str(arrays["paths"][image]))) % 7 for image in row] for row in plain]
    first = np.take_along_axis(plain, np.argsort(-np.array(scores), 1, kind="stable"), 1)[:, 0]
    expected = np.mean(labels[first] == labels)
    assert run.state["last"]["test"]["e_recall@1"] == pytest.approx(expected)
    values = command.main([str(run.folder / "embeddings_test.npz"), "--evaluation_metrics", "e_recall@1", *pairs])
    assert values["e_recall@1"] == pytest.approx(expected)
    for name in ("pairs_test.npz", "pairs_embeddings_test.npz"):
        written = np.load(run.folder / name)
        assert written["neighbours"].tolist() == plain.tolist() and written["scores"].tolist() == scores
        assert written["query_paths"].tolist() == arrays["paths"].tolist() == written["gallery_paths"].tolist()
    np.savez(tmp_path / "pathless.npz", features=features, labels=labels)
    with refused(None, "pathless.npz has no paths"):
        command.main([str(tmp_path / "pathless.npz"), *pairs])
