"""Each flag of evaluation against a computation by hand."""

import contextlib
import itertools

import numpy as np
import pytest
import torch

import architectures
import evaluation
import metrics
from engine.runtime import Runtime
from evaluation import from_splits
from tests.kit.plain_metrics import unit
from tests.kit.refusals import refused
from tests.kit.splits import (
    SPLITS,
    Images,
    Network,
    by_loops,
    evaluated,
    made_splits,
    options,
    pca,
    points_of,
    splits_with_roles,
)

CLASSWISE = ["nmi", "f1", "dists@intra", "dists@inter", "rho_spectrum@1", "c_nmi"]


SEARCHED = ["e_recall@1", "map_r"]


INSIDE = ("--tester", "same_parent_label")


LEVEL = ("--label_hierarchy_level", "1")


REFERENCES = {
    "compared_to_self": lambda split, measured: [split],
    "compared_to_sets_combined": lambda split, measured: measured,
    "compared_to_training_set": lambda split, measured: ["train"],
}
# of data: classes of their own or shared; roles of test or everywhere, sequences by number or name
KINDS = {
    "apart": made_splits,
    "shared": lambda: made_splits(shared=True),
    "roles": lambda: splits_with_roles(10, sequences=False),
    "sequences": lambda: splits_with_roles(10, everywhere=True),
    "named sequences": lambda: splits_with_roles(10, named=True),
}
# flags of evaluation, and what they change in `expected`
FLAGS = {
    (): {},
    ("--splits_to_eval", "val"): {"measured": ["val"]},
    ("--splits_to_eval", "val", "test"): {"measured": ["val", "test"]},
    ("--eval_pca", "2"): {"components": 2},
    ("--eval_no_normalize",): {"normalize": False},
    LEVEL: {"level": 1},
    INSIDE: {"parents": ("first", "second")},
}

# cases that differ little from another
BESIDE = {
    ("shared", "compared_to_self"),
    ("named sequences", "compared_to_self"),
    ("apart", "compared_to_sets_combined"),
    ("roles", "compared_to_training_set"),
    ("sequences", "compared_to_training_set"),
}


def expected(
    splits, split, reference_set, measured=tuple(SPLITS), components=None, normalize=True, level=0, parents=None
):
    sources = REFERENCES[reference_set](split, list(measured))
    points = points_of(splits, normalize=normalize)
    if components:
        galleries = [points[source][splits[SPLITS[source]].rows_of("is_gallery")] for source in sources]
        fitted = pca(np.concatenate(galleries), components)
        points = {source: fitted(rows) for source, rows in points.items()}
    return over_parents([by_loops(splits, split, sources, points, parent, level)[0] for parent in parents or (None,)])


def over_parents(values):
    """Metric -> its mean over those super-classes where it is defined; NaN where there are none."""
    means = {}
    for name in values[0]:
        defined = [value[name] for value in values if not np.isnan(value[name])]
        means[name] = np.mean(defined) if defined else np.nan
    return means


def classwise(names, splits, split, parents=None):
    """Means over the super-classes of the values of queries and gallery together."""
    dataset = splits[SPLITS[split]]
    points = points_of(splits)[split].astype(np.float32)
    values = []
    for parent in parents or (None,):
        rows = [row for row in dataset.pool() if parent is None or dataset.parent(row) == parent]
        values.append(metrics.compute(names, points[rows], dataset.labels[rows], seed=options().seed))
    return over_parents(values)


def cases_of_flags():
    for case in itertools.product(KINDS, REFERENCES):
        marks = pytest.mark.long if case in BESIDE else ()
        yield pytest.param(*case, marks=marks)


@pytest.mark.parametrize(("kind", "reference_set"), list(cases_of_flags()))
def test_every_flag_against_loops(kind, reference_set):
    splits = KINDS[kind]()
    seen = {}
    for flags, case in FLAGS.items():
        of_classes = {(): CLASSWISE, INSIDE: ["nmi"]}.get(flags, [])
        words = ["--eval_reference_set", reference_set, "--evaluation_metrics", *SEARCHED, *of_classes]
        scores, embedded, network = evaluated(splits, *words, *flags)
        assert list(scores) == list(case.get("measured", SPLITS)) and network.normalizes, flags
        assert ("train" in embedded) == ("train" in scores or reference_set == "compared_to_training_set")
        for split, values in scores.items():
            results = {name: values[name] for name in SEARCHED}
            by_hand = expected(splits, split, reference_set, **case)
            assert results == pytest.approx(by_hand, abs=1e-12, nan_ok=True), (flags, split)
            results = {name: values[name] for name in of_classes}
            by_hand = classwise(of_classes, splits, split, case.get("parents")) if of_classes else {}
            assert results == pytest.approx(by_hand, abs=1e-5), (flags, split)
        seen[flags] = scores["val"]["map_r"]
    if reference_set == "compared_to_self":
        changing = ((), ("--eval_no_normalize",), LEVEL, INSIDE)
        assert len({seen[flags] for flags in changing}) == len(changing), "the case must tell the flags apart"


def test_every_image_is_embedded_once_and_modes_are_restored(capsys):
    splits = made_splits()
    network = Network().train()
    scores, embedded, _ = evaluated(splits, network=network)
    assert network.images == sum(len(splits[name]) for name in SPLITS.values()) and network.training
    assert embedded["val"].dataset is splits["validation"]
    assert embedded["val"].labels.tolist() == splits["validation"].labels.tolist()
    np.testing.assert_allclose(embedded["val"].features["discriminative"], points_of(splits)["val"], atol=1e-6)
    assert evaluated(splits, "--evaluate_on_gpu")[0] == scores
    assert capsys.readouterr().out.count("CUDA") == 1, "said once"
    del network.normalizes
    with refused("--eval_no_normalize"):
        evaluated(splits, "--eval_no_normalize", network=network)


def test_splits_and_super_classes_that_are_not_there(capsys):
    splits = made_splits()
    assert list(evaluated(splits, "--splits_to_eval", "train", "val", "--no_train_metrics")[0]) == ["val"]
    in_training = ("--eval_reference_set", "compared_to_training_set", "--splits_to_eval", "val")
    opt = options(*in_training)
    loaders = evaluation.loaders(splits, opt)
    assert "no query of val has a counterpart" in capsys.readouterr().out
    del loaders["train"]
    with refused("training images were not embedded"):
        evaluation.evaluate(Network(), loaders, opt, Runtime(opt))
    assert evaluation.evaluate(Network(), {}, opt, Runtime(opt)) == ({}, {})
    for flags in (INSIDE, LEVEL):
        with refused(f"{flags[0]} .*: --dataset made has no super-classes"):
            evaluated(made_splits(parents=False), *flags)
    splits["evaluation"].super_labels = dict.fromkeys(splits["evaluation"].super_labels, "first")
    with refused("super-class 'second' of val has no image"):
        evaluated(splits, *INSIDE, *in_training)
    splits["validation"] = None
    with refused("--splits_to_eval val"):
        evaluated(splits)


def test_flags_that_cannot_work_are_refused_in_one_line(capsys):
    needs = "--rerank_k1 7 has no effect without --rerank k_reciprocal: add it, or leave --rerank_k1 out"
    for flags, words in (
        ("--splits_to_eval train", "chosen on val"),
        ("--splits_to_eval train --no_train_metrics", "leaves nothing"),
        ("--tester same_parent_label --label_hierarchy_level 1", "no parents"),
        ("--rerank_k1 7", needs),
    ):
        with pytest.raises(SystemExit):
            options(*flags.split())
        message = capsys.readouterr().err
        assert words in message and message.count("\n") == 1, flags


def test_a_super_class_in_which_a_metric_is_not_defined_is_left_out_of_its_mean():
    splits = made_splits()
    test = splits["testing"]
    parents = {"i": "second", "j": "first", "k": "lone", "l": "first", "m": "single"}
    keep = [*range(10), 10, 15, 20, 25]
    splits["validation"] = val = Images(test.points[keep], [test.names[i] for i in keep], parents)
    names = ["e_recall@1", "map_r", "map_r_macro", "nmi", "dists@intra", "rho_spectrum@2", "rho_spectrum@0"]
    flags = (*INSIDE, "--splits_to_eval", "val", "--evaluation_metrics", *names)
    scores, _, network = evaluated(splits, *flags)
    values = []
    points = network.expected(val.points).astype(np.float32)
    for parent in ("first", "second", "lone", "single"):
        rows = [row for row in range(len(val)) if val.parent(row) == parent]
        values.append(metrics.compute(names, points[rows], val.labels[rows], seed=options().seed))
    # of few samples it is shorter
    padded = [np.pad(spectrum, (0, 3 - len(spectrum))) for spectrum in (part.pop("rho_spectrum@0") for part in values)]
    np.testing.assert_allclose(scores["val"].pop("rho_spectrum@0"), np.mean(padded, axis=0), atol=1e-6)
    assert [sum(np.isnan(part[name]) for part in values) for name in values[0]] == [0, 2, 2, 0, 2, 2]
    assert scores["val"] == pytest.approx(over_parents(values), abs=1e-6)
    splits["validation"] = Images(test.points[[0, 5, 10]], ["i", "j", "k"], parents)
    scores = evaluated(splits, *flags[:-1])[0]["val"]
    undefined = {"map_r", "map_r_macro", "dists@intra", "rho_spectrum@2"}
    assert {name for name, value in scores.items() if np.isnan(value)} == undefined


def test_kmeans_is_seeded_with_the_run_or_apart_from_it():
    splits = made_splits()
    network = Network()

    def nmi(*flags):
        words = ["--evaluation_metrics", "nmi", "e_recall@1", *flags]
        return [evaluated(splits, *words, "--seed", seed, network=network)[0]["test"]["nmi"] for seed in ("1", "2")]

    points = points_of(splits)["test"].astype(np.float32)
    by_seed = [metrics.compute(["nmi"], points, splits["testing"].labels, seed=seed)["nmi"] for seed in range(3)]
    assert len(set(by_seed)) > 1, "the case must tell the starts apart"
    assert nmi() == pytest.approx(by_seed[1:], abs=1e-6), "as published"
    # the same starts in every run
    assert nmi("--eval_kmeans_starts", "3") == pytest.approx([np.mean(by_seed)] * 2, abs=1e-6)


def test_principal_components_of_any_number_and_shape():
    plain = evaluated(made_splits())[0]
    # all components change nothing
    rotated = evaluated(made_splits(), "--eval_pca", "3")[0]
    assert rotated == {split: pytest.approx(values, abs=1e-12) for split, values in plain.items()}
    network = Network()
    network.weight[0] = torch.nan
    with refused("--eval_pca 2: the reference holds NaN or infinity"):
        evaluated(made_splits(), "--eval_pca", "2", network=network)
    # fewer samples than dimensions
    features = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    projected = from_splits._projection(features, 3)(features)
    np.testing.assert_allclose(np.abs(projected), np.abs(pca(features.astype(np.float64), 3)(features)), atol=1e-5)


TWO_HEADS = "--evaltypes Combined_a_b"


IN_TRAINING = "--eval_reference_set compared_to_training_set"


@pytest.mark.parametrize(
    ("flags", "heads", "words"),
    [
        ("--eval_pca 3", (), None),
        ("--eval_pca 4", (), "--eval_pca 4: at most 3: the reference is .* x 3"),
        (f"--eval_pca 6 {TWO_HEADS}", "ab", None),
        (f"--eval_pca 7 {TWO_HEADS}", "ab", "at most 6: the reference is .* x 6"),
        (f"--eval_pca 4 {TWO_HEADS} a", "ab", "at most 3: the reference is .* x 3"),
        (f"--eval_pca 4 {TWO_HEADS} --eval_use_trunk_output", "ab", "at most 3: the reference is .* x 3"),
        (f"--eval_pca 4 {TWO_HEADS} --check_untrained_accuracy", "ab", "at most 3: the reference is .* x 3"),
        ("--eval_pca 3 --splits_to_eval val", (), "at most 2: the reference is 2 x 3"),
        ("--eval_pca 3 --splits_to_eval val test --eval_reference_set compared_to_sets_combined", (), None),
        (f"--eval_pca 3 --splits_to_eval val {IN_TRAINING}", (), None),
    ],
)
def test_more_components_than_there_are_is_refused_before_anything_is_trained(flags, heads, words):
    # no epoch is chosen by a metric
    splits = made_splits(shared=True)
    opt = options(*flags.split()).but(n_epochs=0)
    if "val" in flags.split():
        splits["validation"] = Images(splits["validation"].points[:2], splits["validation"].names[:2])
    network = Network(heads=heads)
    with refused(words) if words else contextlib.nullcontext():
        evaluation.check(network, evaluation.loaders(splits, opt), opt, Runtime(opt))
    assert network.images == 1 and network.training


class Larger(Images):
    """Grey images of 48 x 48 pixels."""

    def __getitem__(self, index):
        return 0, torch.full((3, 48, 48), index, dtype=torch.uint8), index


def test_eval_no_normalize_on_a_network_of_the_registry():
    network = architectures.select("conv4_normalize", embed_dim=8, not_pretrained=True).eval()
    opt = options("--eval_no_normalize")
    images = made_splits()["testing"]
    images.__class__ = Larger
    settings = evaluation.EmbedSettings(normalize=False)
    loader = evaluation.evaluation_loader(images, opt)
    features = evaluation.embed(network, loader, Runtime(opt), settings=settings).features["discriminative"]
    with torch.no_grad():
        results = network.last_linear(network(torch.stack([images[i][1] for i in range(len(images))]))[1]["pooled"])
    np.testing.assert_allclose(features, results.numpy(), rtol=1e-4, atol=1e-5)


def test_trunk_output_and_a_bare_network():
    splits = made_splits()
    pixels = {split: splits[name].points.astype(float) for split, name in SPLITS.items()}
    at_length = {split: unit(points) for split, points in pixels.items()}
    seen = []
    for normalizes, flags, points in (
        (True, [], at_length),
        (True, ["--eval_no_normalize"], pixels),
        (False, [], pixels),
    ):
        expected = {split: pytest.approx(by_loops(splits, split, [split], points)[0], abs=1e-12) for split in SPLITS}
        network = Network(normalizes)
        opt = options(*flags)
        assert evaluated(splits, "--eval_use_trunk_output", *flags, network=network)[0] == expected
        bare, embedded = evaluation.evaluate(network, evaluation.loaders(splits, opt), opt, Runtime(opt), bare=True)
        assert bare == expected and network.normalizes == normalizes
        np.testing.assert_allclose(embedded["val"].features["pooled"], points["val"], rtol=1e-6)
        seen.append(bare["val"]["map_r"])
    assert seen[0] != seen[1], "the case must tell features at unit length from others"


def test_several_embeddings():
    splits = made_splits()
    types = ["class", "class_head", "Combined_class_class_head-2-0.5"]
    flags = ("--splits_to_eval", "val", "--evaltypes", *types)
    scores, embedded, _ = evaluated(splits, *flags, network=Network(heads=types[:2]))
    x = points_of(splits)["val"]
    combined = np.concatenate([2 * unit(x), 0.5 * unit(2 * x + 1)], axis=1)
    expected = {}
    for kind, points in zip(types, (x, 2 * x + 1, combined), strict=True):
        values = by_loops(splits, "val", ["val"], {"val": points})[0]
        expected |= {f"{kind}/{name}": value for name, value in values.items()}
    assert scores["val"] == pytest.approx(expected, abs=1e-12) and set(embedded["val"].features) == set(types[:2])


def test_combinations_of_embeddings():
    a = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    b = np.array([[2.0], [-5.0]], np.float32)
    # weights are one unless told
    for ending in ("", "-1.0-1.0"):
        combined = from_splits.of_type({"a": a, "b": b}, f"Combined_a_b{ending}")
        np.testing.assert_allclose(combined, [[0.6, 0.8, 1.0], [0.0, 0.0, -1.0]], atol=1e-7)
    endings = ("1", "1-2-3", "x-1", "1--1", "nan-1", "inf-1", "0-1", "1e99-1", "-1")
    for name in ("c", "Combined_", "Combined_a_c", *(f"Combined_a_b-{ending}" for ending in endings)):
        with refused("--evaltypes .*the network gives a, b"):
            from_splits.of_type({"a": a, "b": b}, name)
