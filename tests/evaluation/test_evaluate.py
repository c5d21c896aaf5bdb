"""Each flag of evaluation against a computation by hand."""

import numpy as np
import pytest
import torch

import evaluation
import metrics
from evaluation import spaces
from tests.evaluation._made import Images, Network, by_hand, made_splits, options, runtime
from utilities.errors import NotFinite, UserError

SPLITS = {"train": "evaluation", "val": "validation", "test": "testing"}


def evaluated(splits, *flags, network=None):
    opt = options(*flags)
    network = network or Network()
    scores, embedded = evaluation.evaluate(network, evaluation.loaders(splits, opt), opt, runtime(opt))
    return scores, embedded, network


def assert_same(scores, expected):
    assert set(scores) == set(expected)
    for split, values in expected.items():
        assert scores[split] == pytest.approx(values, abs=1e-12), split


def test_each_split_against_itself():
    splits = made_splits()
    scores, embedded, network = evaluated(splits)
    assert_same(scores, {split: by_hand(network.expected(splits[name].points), splits[name].names) for split, name in SPLITS.items()})
    assert 0.2 < scores["test"]["e_recall@1"] < 1, "the case must tell right from wrong"
    assert embedded["val"].dataset is splits["validation"]
    np.testing.assert_allclose(embedded["val"].features["discriminative"], network.expected(splits["validation"].points), atol=1e-6)
    assert embedded["val"].labels.tolist() == splits["validation"].labels.tolist()


def test_every_image_is_embedded_once_and_modes_are_restored():
    splits = made_splits()
    network = Network().train()
    evaluated(splits, "--evaltypes", "discriminative", network=network)
    assert network.images == sum(len(splits[name]) for name in SPLITS.values())
    assert network.training


def test_twice_gives_the_same():
    flags = ("--evaluation_metrics", "e_recall@1", "nmi", "f1", "rho_spectrum@0")
    first, second = (evaluated(made_splits(), *flags)[0] for _ in range(2))
    for split in first:
        for name, value in first[split].items():
            assert np.array_equal(value, second[split][name])


def test_splits_to_eval_and_no_train_metrics():
    splits = made_splits()
    assert list(evaluated(splits, "--splits_to_eval", "val")[0]) == ["val"]
    assert list(evaluated(splits, "--no_train_metrics")[0]) == ["val", "test"]
    assert list(evaluated(splits, "--splits_to_eval", "train", "val", "--no_train_metrics")[0]) == ["val"]
    splits["validation"] = None
    with pytest.raises(UserError, match="--splits_to_eval val"):
        evaluated(splits)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--splits_to_eval", "train"], "chosen on val"),
        (["--splits_to_eval", "train", "--no_train_metrics"], "leaves nothing"),
        (["--tester", "same_parent_label", "--label_hierarchy_level", "1"], "no parents"),
        (["--eval_pca", "0"], "--eval_pca 0 must be at least 1"),
        (["--eval_kmeans_starts", "0"], "--eval_kmeans_starts 0 must be at least 1"),
        (["--eval_size_of_tsne", "-1"], "--eval_size_of_tsne -1"),
    ],
)
def test_flags_that_cannot_work_are_refused_in_one_line(flags, words, capsys):
    with pytest.raises(SystemExit) as stop:
        options(*flags)
    message = capsys.readouterr().err
    assert stop.value.code == 2 and words in message and message.count("\n") == 1


@pytest.mark.parametrize("shared", [False, True])
def test_compared_to_sets_combined(shared):
    splits = made_splits(shared=shared)
    scores, _, network = evaluated(splits, "--eval_reference_set", "compared_to_sets_combined")
    points = {split: network.expected(splits[name].points) for split, name in SPLITS.items()}
    reference = np.concatenate(list(points.values()))
    names = [class_name for name in SPLITS.values() for class_name in splits[name].names]
    starts = {"train": 0, "val": len(points["train"]), "test": len(points["train"]) + len(points["val"])}
    assert_same(scores, {
        split: by_hand(points[split], splits[name].names, reference, names, starts[split] + np.arange(len(points[split])))
        for split, name in SPLITS.items()
    })  # fmt: skip
    alone = evaluated(splits)[0]
    assert scores["val"]["map_r"] != alone["val"]["map_r"]


def test_combined_takes_the_evaluated_splits_alone():
    splits = made_splits()
    one = evaluated(splits, "--eval_reference_set", "compared_to_sets_combined", "--splits_to_eval", "val")[0]
    assert one == {"val": pytest.approx(evaluated(splits)[0]["val"], abs=1e-12)}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scored", ["val", "train val"])
def test_compared_to_training_set(shared, scored):
    splits = made_splits(shared=shared)
    flags = ("--eval_reference_set", "compared_to_training_set", "--splits_to_eval", *scored.split())
    scores, embedded, network = evaluated(splits, *flags)
    train, val = (network.expected(splits[name].points) for name in ("evaluation", "validation"))
    names = splits["evaluation"].names
    expected = {"val": by_hand(val, splits["validation"].names, train, names, np.full(len(val), -1))}
    if "train" in scored:
        expected["train"] = by_hand(train, names)
    assert_same(scores, expected)
    assert (scores["val"]["e_recall@1"] > 0) == shared, "classes are told apart by name, not by number"
    assert "train" in embedded


def test_training_set_that_was_not_embedded():
    opt = options("--eval_reference_set", "compared_to_training_set", "--splits_to_eval", "val")
    loaders = evaluation.loaders(made_splits(), opt)
    del loaders["train"]
    with pytest.raises(UserError, match="training images were not embedded"):
        evaluation.evaluate(Network(), loaders, opt, runtime(opt))


@pytest.mark.parametrize("reference_set", ["compared_to_self", "compared_to_sets_combined", "compared_to_training_set"])
def test_same_parent_label(reference_set):
    splits = made_splits(shared=True)
    flags = ("--tester", "same_parent_label", "--eval_reference_set", reference_set, "--splits_to_eval", "val", "test")
    scores, _, network = evaluated(splits, *flags)
    sources = {"compared_to_self": None, "compared_to_sets_combined": ["validation", "testing"], "compared_to_training_set": ["evaluation"]}
    sources = sources[reference_set]
    expected = {}
    for split in ("val", "test"):
        means = []
        for parent in ("first", "second"):
            queries, names, _ = inside(splits, SPLITS[split], parent, network)
            if sources is None:
                means.append(by_hand(queries, names))
                continue
            parts = [inside(splits, source, parent, network) for source in sources]
            reference = np.concatenate([part[0] for part in parts])
            reference_names = [name for part in parts for name in part[1]]
            places = [(source, i) for source, part in zip(sources, parts, strict=True) for i in part[2]]
            own = [
                places.index((SPLITS[split], i)) if (SPLITS[split], i) in places else -1
                for i in inside(splits, SPLITS[split], parent, network)[2]
            ]
            means.append(by_hand(queries, names, reference, reference_names, own))
        expected[split] = {metric: np.mean([m[metric] for m in means]) for metric in means[0]}
        if reference_set == "compared_to_training_set" and split == "test":
            assert expected[split]["map_r"] == 0.0 and np.isnan(scores[split].pop("map_r"))  # no class of it can be found
            del expected[split]["map_r"]
    assert_same(scores, expected)


def test_a_super_class_in_which_a_metric_is_not_defined_is_left_out_of_its_mean():
    splits = made_splits()
    lone = {"i": "second", "j": "first", "k": "lone", "l": "first", "m": "single"}
    keep = [*range(5), *range(5, 10), 10, 15, 20, 25]
    splits["validation"] = Images(splits["testing"].points[keep], [splits["testing"].names[i] for i in keep], lone)
    names = ["e_recall@1", "map_r", "map_r_macro", "nmi", "dists@intra", "rho_spectrum@2"]
    flags = ("--tester", "same_parent_label", "--splits_to_eval", "val", "--evaluation_metrics", *names)
    scores, _, network = evaluated(splits, *flags)
    values = []
    for parent in ("first", "second", "lone", "single"):
        points, own, _ = inside(splits, "validation", parent, network)
        values.append(metrics.compute(names, points.astype(np.float32), own, seed=options().seed, uncounted=np.nan))
    assert [sum(np.isnan(part[name]) for part in values) for name in names] == [0, 2, 2, 0, 2, 2]
    assert scores["val"] == pytest.approx({name: np.nanmean([part[name] for part in values]) for name in names}, abs=1e-6)
    splits["validation"] = Images(splits["testing"].points[[0, 5, 10]], ["i", "j", "k"], lone)
    scores = evaluated(splits, *flags)[0]["val"]
    assert {name for name, value in scores.items() if np.isnan(value)} == {"map_r", "map_r_macro", "dists@intra", "rho_spectrum@2"}
    assert scores["e_recall@1"] == 0.0


def inside(splits, split, parent, network):
    dataset = splits[split]
    rows = [i for i, label in enumerate(dataset.labels) if dataset.super_labels[label] == parent]
    return network.expected(dataset.points)[rows], [dataset.names[i] for i in rows], rows


def test_spectra_of_super_classes_are_averaged_to_the_longest():
    splits = made_splits()
    keep = [0, 1, *range(5, 10), *range(15, 20)]  # the super-class `second` of validation has two images alone
    parents = {splits["validation"].class_names[label]: parent for label, parent in splits["validation"].super_labels.items()}
    splits["validation"] = Images(splits["validation"].points[keep], [splits["validation"].names[i] for i in keep], parents)
    flags = ("--tester", "same_parent_label", "--splits_to_eval", "val", "--evaluation_metrics", "e_recall@1", "rho_spectrum@0")
    scores, _, network = evaluated(splits, *flags)
    expected = np.zeros(3)
    for parent in ("first", "second"):
        values = np.linalg.svd(inside(splits, "validation", parent, network)[0], compute_uv=False)
        expected[: len(values)] += values / values.sum() / 2
    np.testing.assert_allclose(scores["val"]["rho_spectrum@0"], expected, atol=1e-6)


def test_label_hierarchy_level():
    splits = made_splits()
    scores, _, network = evaluated(splits, "--label_hierarchy_level", "1")
    expected = {}
    for split, name in SPLITS.items():
        dataset = splits[name]
        expected[split] = by_hand(network.expected(dataset.points), [dataset.super_labels[label] for label in dataset.labels])
    assert_same(scores, expected)
    assert scores["val"]["map_r"] != evaluated(splits)[0]["val"]["map_r"]


@pytest.mark.parametrize("flags", [["--tester", "same_parent_label"], ["--label_hierarchy_level", "1"]])
def test_a_data_set_without_super_classes(flags):
    with pytest.raises(UserError, match=f"{flags[0]} .*: --dataset made knows no super-classes"):
        evaluated(made_splits(parents=False), *flags)


def test_a_super_class_without_reference():
    splits = made_splits()
    splits["evaluation"].super_labels = dict.fromkeys(splits["evaluation"].super_labels, "first")
    with pytest.raises(UserError, match="super-class 'second' of val has no image"):
        evaluated(splits, "--tester", "same_parent_label", "--eval_reference_set", "compared_to_training_set", "--splits_to_eval", "val")


def pca(reference, components):
    mean = reference.mean(0)
    directions = np.linalg.svd(reference - mean, full_matrices=False)[2][:components]
    return lambda x: (x - mean) @ directions.T


@pytest.mark.parametrize("reference_set", ["compared_to_self", "compared_to_training_set", "compared_to_sets_combined"])
def test_eval_pca_is_fitted_once_on_the_reference(reference_set):
    splits = made_splits(shared=True)
    scores, _, network = evaluated(splits, "--eval_pca", "2", "--eval_reference_set", reference_set)
    points = {split: network.expected(splits[name].points) for split, name in SPLITS.items()}
    names = {split: splits[name].names for split, name in SPLITS.items()}
    expected = {}
    if reference_set == "compared_to_self":
        expected = {split: by_hand(pca(points[split], 2)(points[split]), names[split]) for split in SPLITS}
    else:
        sources = ["train"] if reference_set == "compared_to_training_set" else list(SPLITS)
        places = [(split, i) for split in sources for i in range(len(points[split]))]
        reference = np.concatenate([points[split] for split in sources])
        project = pca(reference, 2)
        for split in SPLITS:
            own = [places.index((split, i)) if (split, i) in places else -1 for i in range(len(points[split]))]
            all_names = [name for source in sources for name in names[source]]
            expected[split] = by_hand(project(points[split]), names[split], project(reference), all_names, own)
    assert_same(scores, expected)


def test_eval_pca_of_embeddings_that_are_no_numbers_is_said_in_one_line():
    network = Network()
    network.weight[0] = torch.nan
    with pytest.raises(NotFinite, match="--eval_pca 2: the reference holds NaN or infinity"):
        evaluated(made_splits(), "--eval_pca", "2", network=network)


def test_kmeans_is_seeded_with_the_run_or_apart_from_it():
    splits, network = made_splits(), Network()

    def nmi(*more):
        words = ["--evaluation_metrics", "nmi", "e_recall@1", *more]
        return [evaluated(splits, *words, "--seed", seed, network=network)[0]["test"]["nmi"] for seed in ("1", "2")]

    images = splits["testing"]
    points = network.expected(images.points).astype(np.float32)
    by_seed = [metrics.compute(["nmi"], points, images.labels, seed=seed)["nmi"] for seed in range(3)]
    assert len(set(by_seed)) > 1, "the case must tell the starts apart"
    assert nmi() == pytest.approx(by_seed[1:], abs=1e-6), "as published"
    assert nmi("--eval_kmeans_starts", "3") == pytest.approx([np.mean(by_seed)] * 2, abs=1e-6), "the same starts in every run"


def test_all_components_change_nothing_and_more_are_refused():
    splits = made_splits()
    assert_same(evaluated(splits, "--eval_pca", "3")[0], evaluated(splits)[0])
    with pytest.raises(UserError, match="--eval_pca 4: at most 3"):
        evaluated(splits, "--eval_pca", "4")


@pytest.mark.parametrize(
    ("flags", "heads", "words"),
    [
        ("--eval_pca 3", (), None),
        ("--eval_pca 4", (), "--eval_pca 4: at most 3: the reference is .* x 3"),
        ("--eval_pca 6 --evaltypes Combined_a_b", ("a", "b"), None),
        ("--eval_pca 7 --evaltypes Combined_a_b", ("a", "b"), "at most 6: the reference is .* x 6"),
        ("--eval_pca 4 --evaltypes Combined_a_b a", ("a", "b"), "at most 3: the reference is .* x 3"),
        ("--eval_pca 4 --evaltypes Combined_a_b --eval_use_trunk_output", ("a", "b"), "at most 3: the reference is .* x 3"),
        ("--eval_pca 4 --evaltypes Combined_a_b --check_untrained_accuracy", ("a", "b"), "at most 3: the reference is .* x 3"),
        ("--eval_pca 3 --splits_to_eval val", (), "at most 2: the reference is 2 x 3"),
        ("--eval_pca 3 --splits_to_eval val test --eval_reference_set compared_to_sets_combined", (), None),
        ("--eval_pca 3 --splits_to_eval val --eval_reference_set compared_to_training_set", (), None),
    ],
)
def test_more_components_than_there_are_is_refused_before_anything_is_trained(flags, heads, words):
    splits, opt = made_splits(shared=True), options(*flags.split()).but(n_epochs=0)  # no epoch is chosen by a metric
    if "val" in flags.split():
        splits["validation"] = Images(splits["validation"].points[:2], splits["validation"].names[:2])
    network = Network(heads=heads)
    loaders = evaluation.loaders(splits, opt)
    if words is None:
        evaluation.check(network, loaders, opt, runtime(opt))
    else:
        with pytest.raises(UserError, match=words):
            evaluation.check(network, loaders, opt, runtime(opt))
    assert network.images == 1 and network.training


@pytest.mark.parametrize("shared", [False, True])
def test_where_no_query_has_a_counterpart_is_said_in_one_line(shared, capsys):
    splits = made_splits(shared=shared)
    for reference_set in ("compared_to_training_set", "compared_to_sets_combined", "compared_to_self"):
        evaluation.loaders(splits, options("--eval_reference_set", reference_set, "--splits_to_eval", "train", "val"))
        lines = [line for line in capsys.readouterr().out.splitlines() if "counterpart" in line]
        assert [line for line in lines if "no query of val" in line] == lines
        assert len(lines) == (reference_set == "compared_to_training_set" and not shared)
    level = ("--label_hierarchy_level", "1", "--eval_reference_set", "compared_to_training_set", "--splits_to_eval", "val")
    evaluation.loaders(splits, options(*level))
    assert "counterpart" not in capsys.readouterr().out


def test_fewer_samples_than_dimensions_in_pca():
    reference = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    projected = spaces._projection(reference, 3)(reference)
    np.testing.assert_allclose(np.abs(projected), np.abs(pca(reference.astype(np.float64), 3)(reference)), atol=1e-5)


def test_eval_no_normalize():
    splits = made_splits()
    network = Network()
    scores, embedded, _ = evaluated(splits, "--eval_no_normalize", network=network)
    raw = {split: network.expected(splits[name].points, normalize=False) for split, name in SPLITS.items()}
    assert_same(scores, {split: by_hand(raw[split], splits[name].names) for split, name in SPLITS.items()})
    np.testing.assert_allclose(embedded["test"].features["discriminative"], raw["test"], rtol=1e-6)
    assert network.normalizes, "put back"
    assert scores["test"] != evaluated(splits)[0]["test"]
    del network.normalizes
    with pytest.raises(UserError, match="--eval_no_normalize"):
        evaluated(splits, "--eval_no_normalize", network=network)


def test_eval_no_normalize_on_a_network_of_the_registry():
    import architectures

    network = architectures.select("conv4_normalize", embed_dim=8, not_pretrained=True).eval()
    opt = options("--eval_no_normalize")
    images = made_splits()["testing"]
    images.__class__ = type("Larger", (Images,), {"__getitem__": lambda self, i: (0, torch.full((3, 48, 48), i, dtype=torch.uint8), i)})
    loader = evaluation.evaluation_loader(images, opt)
    features = evaluation.embed(network, loader, runtime(opt), normalize=False).features["discriminative"]
    with torch.no_grad():
        expected = network.last_linear(network(torch.stack([images[i][1] for i in range(len(images))]))[1]["pooled"])
    np.testing.assert_allclose(features, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_eval_use_trunk_output_and_bare():
    splits = made_splits()
    expected = {split: by_hand(splits[name].points.astype(float), splits[name].names) for split, name in SPLITS.items()}
    assert_same(evaluated(splits, "--eval_use_trunk_output")[0], expected)
    opt = options()
    assert_same(evaluation.evaluate(Network(), evaluation.loaders(splits, opt), opt, runtime(opt), bare=True)[0], expected)


def test_several_embeddings():
    splits = made_splits()
    heads = ("class", "class_head")
    types = ["class", "class_head", "Combined_class_class_head-2-0.5"]
    scores, embedded, network = evaluated(splits, "--splits_to_eval", "val", "--evaltypes", *types, network=Network(heads=heads))
    x, names = network.expected(splits["validation"].points), splits["validation"].names
    parts = {"class": x, "class_head": 2 * x + 1}
    units = {name: part / np.linalg.norm(part, axis=1, keepdims=True) for name, part in parts.items()}
    spaces_by_hand = {**parts, types[2]: np.concatenate([2 * units["class"], 0.5 * units["class_head"]], axis=1)}
    expected = {f"{name}/{metric}": value for name, part in spaces_by_hand.items() for metric, value in by_hand(part, names).items()}
    assert scores["val"] == pytest.approx(expected, abs=1e-12)
    assert set(embedded["val"].features) == set(heads)


@pytest.mark.parametrize("name", ["Combined_a_b", "Combined_a_b-1-1", "Combined_a_b-1.0-1.0"])
def test_combinations_weigh_one_unless_told(name):
    a, b = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), np.array([[2.0], [-5.0]], np.float32)
    expected = [[0.6, 0.8, 1.0], [0.0, 0.0, -1.0]]
    np.testing.assert_allclose(spaces.of_type({"a": a, "b": b}, name), expected, atol=1e-7)


@pytest.mark.parametrize(
    "name",
    ["c", "Combined_", "Combined_a_c", "Combined_a_b-1", "Combined_a_b-1-2-3", "Combined_a_b-x-1", "Combined_a_b-1--1"]
    + [f"Combined_a_b-{weight}-1" for weight in ("nan", "inf", "0", "1e99", "")],
)
def test_embeddings_that_are_not_there(name):
    with pytest.raises(UserError, match="--evaltypes .*the network gives a, b"):
        spaces.of_type({"a": np.ones((2, 2)), "b": np.ones((2, 1))}, name)


def test_evaluate_on_gpu_without_one_says_so_once_a_run(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    opt = options("--evaluate_on_gpu")
    for _ in range(2):  # two runs of one process, such as folds or trials
        of_run = runtime(opt)
        for _ in range(2):  # epochs
            assert evaluation._device(opt, of_run) == torch.device("cpu")
    lines = [line for line in capsys.readouterr().out.splitlines() if "CUDA" in line]
    assert len(lines) == 2 and lines[0].startswith("--evaluate_on_gpu")
    splits = made_splits()
    assert evaluated(splits, "--evaluate_on_gpu")[0] == evaluated(splits)[0]


def test_nothing_to_evaluate_between_evaluations():
    opt = options()
    assert evaluation.evaluate(Network(), {}, opt, runtime(opt)) == ({}, {})
