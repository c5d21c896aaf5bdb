"""`--eval_space hyperbolic` and `--rerank` wherever something is evaluated: splits, a finished run, its files and pictures, another program's, folds."""

import importlib
import json

import numpy as np
import pytest
import torch

import evaluation
import main
import metrics
import parameters
from evaluation import ensemble, outputs, queries, spaces
from pictures import neighbours, space
from tests import builders
from tests.evaluation._made import Network, made_splits, options, runtime
from tests.utilities.test_hyperbolic import moebius_distance
from utilities.errors import UserError
from utilities.hyperbolic import Ball

command = importlib.import_module("evaluation.__main__")
NAMES = ["e_recall@1", "map_r", "mAP"]


class Small(Network):
    """Embeddings of lengths around that of the clip."""

    def forward(self, images):
        embeddings, activations = super().forward(images)
        return embeddings / 90, activations


def scored(*flags, network=None, shared=False):
    opt = options("--evaluation_metrics", *NAMES, "--splits_to_eval", "val", "test", "--storage_metrics", "map_r", *flags)
    network = network or Small(normalizes=False)
    return evaluation.evaluate(network, evaluation.loaders(made_splits(shared=shared), opt), opt, runtime(opt)), opt


def features_of(embedded, split):
    return embedded[split].features["discriminative"], embedded[split].labels


@pytest.mark.parametrize(
    ("flags", "ball"),
    [
        ([], Ball(0.1, 2.3)),
        (["--eval_space_c", ".5", "--eval_space_clip_r", "1.5"], Ball(0.5, 1.5)),
        (["--loss", "hyperbolic", "--loss_hyperbolic_c", ".7", "--loss_hyperbolic_clip_r", "1.9"], Ball(0.7, 1.9)),
        (["--loss", "hier", "--loss_hier_c", ".4", "--eval_space_clip_r", "2"], Ball(0.4, 2.0)),
        (["--loss", "hyperbolic", "--loss_hyperbolic_c", "0"], Ball(0.0, 2.3)),
    ],
)
def test_the_ball_is_the_losss_or_that_of_the_flags(flags, ball):
    (scores, embedded), opt = scored("--eval_space", "hyperbolic", *flags)
    found = metrics.ball(opt)
    assert (found.c, found.clip_r) == (ball.c, ball.clip_r)
    for split in ("val", "test"):
        assert scores[split] == metrics.compute(NAMES, *features_of(embedded, split), ball=ball)
    assert scores != scored()[0][0], "the case must tell the distances apart"


@pytest.mark.parametrize(
    ("flags", "rerank"),
    [
        (["k_reciprocal"], metrics.KReciprocal(20, 6, 0.3)),
        (["k_reciprocal", "--rerank_k1", "7", "--rerank_k2", "2", "--rerank_lambda", ".5"], metrics.KReciprocal(7, 2, 0.5)),
        (["alpha_qe"], metrics.AlphaExpansion(50, 3)),
        (["alpha_qe", "--rerank_n", "4", "--rerank_alpha", "1"], metrics.AlphaExpansion(4, 1)),
    ],
)
@pytest.mark.parametrize("space", [[], ["--eval_space", "hyperbolic"]])
def test_re_ranking_is_that_of_the_flags(flags, rerank, space):
    (scores, embedded), opt = scored("--rerank", *flags, *space)
    assert metrics.reranking(opt) == rerank
    for split in ("val", "test"):
        assert scores[split] == metrics.compute(NAMES, *features_of(embedded, split), ball=Ball(0.1, 2.3) if space else None, rerank=rerank)


@pytest.mark.parametrize(
    ("reference_set", "tester"), [("compared_to_sets_combined", "global"), ("compared_to_training_set", "same_parent_label")]
)
@pytest.mark.parametrize("rerank", [[], ["--rerank", "k_reciprocal", "--rerank_k1", "5", "--rerank_k2", "2"], ["--rerank", "alpha_qe"]])
def test_with_a_reference_and_inside_super_classes(reference_set, tester, rerank):
    flags = ["--eval_reference_set", reference_set, "--tester", tester, "--eval_space", "hyperbolic", *rerank]
    (scores, embedded), opt = scored(*flags, shared=True)
    about = {"ball": Ball(0.1, 2.3), "rerank": metrics.reranking(opt)}
    values = [metrics.compute(NAMES, **part.arguments(), **about) for part in spaces.build(embedded, "discriminative", opt)["val"]]
    assert len(values) == (2 if tester == "same_parent_label" else 1)
    for name in NAMES:
        assert scores["val"][name] == pytest.approx(np.mean([value[name] for value in values]), abs=1e-12)


def test_unit_vectors_have_the_same_neighbours_in_the_ball():
    assert scored("--eval_space", "hyperbolic", network=Network())[0][0] == scored(network=Network())[0][0]


def test_unaffected_metrics_as_it_is_is_said_once(capsys):
    others = ["--evaluation_metrics", "map_r", "nmi", "rho_spectrum@1", "--storage_metrics", "map_r"]
    for flags, told in (
        (["--eval_space", "hyperbolic", "--rerank", "alpha_qe", *others],
         "--eval_space hyperbolic --rerank alpha_qe: changes what queries find; nmi, rho_spectrum@1: Euclidean, of the tangent vectors"),
        (["--rerank", "k_reciprocal", *others], "--rerank k_reciprocal: changes what queries find; nmi, rho_spectrum@1: as without it"),
        (["--rerank", "k_reciprocal"], None),
    ):  # fmt: skip
        scored(*flags)
        assert [line for line in capsys.readouterr().out.splitlines() if "changes what" in line] == [told] * (told is not None)


def test_flags_that_cannot_work_are_refused_in_one_line():
    parser = parameters.get_parser()
    parser.exits = False
    for flags, words in (
        ("--eval_space_c 1", "--eval_space_c 1 has no effect: add --eval_space hyperbolic"),
        ("--rerank_k1 7", "--rerank_k1 7 has no effect: add --rerank k_reciprocal"),
        ("--rerank_alpha 1", "--rerank_alpha 1 has no effect: add --rerank alpha_qe"),
        ("--eval_space hyperbolic --eval_space_c -1", "--eval_space_c -1 must be at least 0"),
        ("--rerank k_reciprocal --rerank_k1 0", "--rerank_k1 0 must be at least 1"),
        ("--rerank k_reciprocal --rerank_lambda 1.5", "--rerank_lambda 1.5 must be at most 1"),
        ("--rerank other", "--rerank"),
    ):
        with pytest.raises(UserError) as told:
            parameters.composition.compose(parser, flags.split())
        assert words in str(told.value) and "\n" not in str(told.value), flags


def test_pictures_show_hyperbolic_neighbours_and_distances(monkeypatch, tmp_path, with_pictures):
    (_, embedded), opt = scored("--eval_space", "hyperbolic", "--eval_space_c", "1", "--eval_size_of_tsne", "12", "--seed", "3")
    compared = spaces.compare(embedded, "discriminative", opt)["test"]
    x = compared.space.features.astype(np.float64)
    distances = np.array([[moebius_distance(a, b, 1.0, 2.3) for b in x.tolist()] for a in x.tolist()])
    for query, few in enumerate(queries.nearest(compared, np.arange(len(x)), 4)):
        expected = sorted(distances[query][[j for j in range(len(x)) if j != query]])[:4]
        np.testing.assert_allclose(distances[query][few], expected, rtol=1e-9)
    notes, seen = [], []
    monkeypatch.setattr(neighbours, "_tile", lambda axis, left, top, image, name, note, colour: notes.append(note))
    drawn = space.distances_of
    for module in (space, neighbours):
        monkeypatch.setattr(module, "distances_of", lambda *given: seen.append(given[2]) or drawn(*given))
    outputs.draw_pictures(tmp_path, embedded, "test", opt, "title")
    told = {float(note.split()[1]) for note in notes if note.startswith("distance")}
    assert told and all(np.isclose(distances, value, rtol=6e-3, atol=1e-9).any() for value in told)
    assert all(ball is not None for ball in seen)
    assert (tmp_path / "tsne_test.png").exists() and (tmp_path / "distances.png").exists()


def test_distances_of_pairs():
    x, y = (np.random.default_rng(seed).normal(size=(5, 3)).astype(np.float32) for seed in (0, 1))
    expected = [moebius_distance(a, b, 0.5, 2.3) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_allclose(space.distances_of(x, y, Ball(0.5, 2.3)), expected, rtol=1e-9)
    np.testing.assert_array_equal(space.distances_of(x, y), np.linalg.norm(x - y, axis=1))


@pytest.fixture(scope="module")
def run(folder_data, tmp_path_factory):
    """A run with the hyperbolic loss, measured in the ball in each epoch."""
    words = [*builders.SHORT_RUN, "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path_factory.mktemp("runs")),
             "--arch", "conv4", "--loss", "hyperbolic", "--loss_hyperbolic_c", ".3", "--n_epochs", "2", "--eval_space", "hyperbolic",
             "--rerank", "k_reciprocal", "--rerank_k1", "5", "--dump_embeddings"]  # fmt: skip
    return main.main(parameters.read(words))


def test_a_run_is_measured_in_the_ball_and_again(run):
    recorded = json.loads((run.folder / "summary.json").read_text())["selected"]["values"]
    words = ["--evaluate", "--resume_from", str(run.folder)]
    again = main.main(parameters.read(words))
    assert {split: dict(values) for split, values in again.items()} == recorded
    other = main.main(parameters.read([*words, "--eval_space", "euclidean", "--rerank", "alpha_qe"]))
    assert set(other) == set(recorded)
    assert len(list(run.folder.glob("evaluation_*.json"))) == 2, "other flags, another file"


def test_a_dump_is_of_the_ball_and_measures_the_same(run, tmp_path):
    flags = ["--eval_space", "hyperbolic", "--loss", "hyperbolic", "--loss_hyperbolic_c", ".3", "--rerank", "k_reciprocal"]
    (_, embedded), opt = scored(*flags)
    paths = outputs.dump(tmp_path, embedded, opt)
    path = next(path for path in paths if "test" in path.name)
    with np.load(path) as file:
        flags, features, points = json.loads(str(file["flags"])), file["features"], file["points"]
    assert (flags["eval_space"], flags["eval_space_c"], flags["eval_space_clip_r"]) == ("hyperbolic", 0.3, 2.3)
    assert np.array_equal(features, features_of(embedded, "test")[0])
    np.testing.assert_allclose(points, Ball(0.3, 2.3).in_ball(torch.from_numpy(features)).numpy(), rtol=1e-6)
    expected = metrics.compute(["map_r"], features, embedded["test"].labels, ball=Ball(0.3, 2.3), rerank=metrics.KReciprocal())
    words = ["--evaluation_metrics", "map_r", "--eval_space", "hyperbolic", "--rerank", "k_reciprocal"]
    assert command.main([str(path), *words]) == expected
    given = command.main([str(path), *words, "--eval_space_c", "2"])
    assert given == metrics.compute(["map_r"], features, embedded["test"].labels, ball=Ball(2, 2.3), rerank=metrics.KReciprocal())
    (_, plain), opt = scored()
    with np.load(outputs.dump(tmp_path, plain, opt)[0]) as file:
        assert "points" not in file.files
    with np.load(run.folder / "embeddings_test.npz") as file:
        assert file["points"].shape == file["features"].shape


def test_the_command_on_another_programs_file(tmp_path, capsys):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    features = (generator.normal(size=(6, 5))[labels] + 0.9 * generator.normal(size=(48, 5))).astype(np.float32)
    np.savez(tmp_path / "plain.npz", features=features, labels=labels)
    apart = {"reference": features[10:], "reference_labels": labels[10:]}
    of_file = {"reference_features": features[10:], "reference_labels": labels[10:]}
    np.savez(tmp_path / "gallery.npz", features=features[:10], labels=labels[:10], **of_file)
    for name, rows, given in (("plain", slice(None), {}), ("gallery", slice(10), apart)):
        for words, about in (
            (["--rerank", "k_reciprocal", "--rerank_k1", "6"], {"rerank": metrics.KReciprocal(6)}),
            (["--rerank", "alpha_qe", "--rerank_n", "3"], {"rerank": metrics.AlphaExpansion(3)}),
            (["--eval_space", "hyperbolic"], {"ball": Ball(0.1, 2.3)}),
        ):
            values = command.main([str(tmp_path / f"{name}.npz"), "--evaluation_metrics", "map_r", "nmi", *words])
            assert values == metrics.compute(["map_r", "nmi"], features[rows], labels[rows], seed=1, **given, **about)
            assert "nmi" in capsys.readouterr().out
    with pytest.raises(UserError, match="--eval_space_c 1 has no effect"):
        command.main([str(tmp_path / "plain.npz"), "--eval_space_c", "1"])


@pytest.mark.parametrize(
    "flags", [["--eval_space", "hyperbolic"], ["--rerank", "k_reciprocal", "--rerank_k1", "5"], ["--rerank", "alpha_qe"]]
)
def test_an_ensemble(flags):
    (_, embedded), opt = scored(*flags)
    other = evaluation.Embedded({"discriminative": embedded["test"].features["discriminative"][:, ::-1] ** 2}, *embedded["test"][1:])
    joined = ensemble.join([embedded["test"], other])
    scores = evaluation.score(joined, ensemble.options(opt), runtime(opt))
    about = {"ball": metrics.ball(opt), "rerank": metrics.reranking(opt)}
    assert scores["test"] == metrics.compute(NAMES, *features_of(joined, "test"), **about)
