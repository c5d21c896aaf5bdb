"""Many metrics in one call: names, types of features and labels, mistakes, ranges; nothing computed twice."""

import numpy as np
import pytest
import torch

import metrics
from metrics import _kmeans, _space
from tests.kit.plain_metrics import DISTS, plain, random_space, unit
from tests.kit.refusals import refused
from utilities.errors import UnknownName

ILL_FORMED = """
    e_recall@0 e_recall@x e_recall@ e_recall e_recall@-1 e_recall@1.5 e_recall@01 e_recall@1@2 e_recall@k c_recall@0
    recall@1 e_recall_macro@1 rho_spectrum@x rho_spectrum nmi@1 nmi_macro dists@intra_macro dists@foo c_dists@intra
    fnmr@0 fnmr@1 fnmr@-.1 fnmr@fmr fnmr@.1e-3 fnmr@.01_ fnmr@.1_macro c_opis e_recall@0_worst10 e_recall@1_worst
    e_recall_worst10 e_recall@1_worst10_macro fnmr@_low c_e_recall@1 map c_ @1 _macro
    e_recall@1@d0 e_recall@1@d e_recall@d2 nmi@d2@d3 @d2
"""


def test_ill_formed_names_are_refused_in_one_line():
    for name in [*ILL_FORMED.split(), ""]:
        words = [] if "@d2" in name else [repr(name)]
        with refused(None, *words):
            metrics.check(name)
    with pytest.raises(UnknownName, match="Did you mean 'map_r'"):
        metrics.check("mapr")
    with refused("metric 'nmi@d9': the embeddings have 4 dimensions, take at most @d4"):
        metrics.compute(["nmi@d9"], np.eye(4), [0, 0, 1, 1])


def test_every_listed_name_and_variant_is_accepted_and_within_its_range():
    features, labels = random_space(n=50)
    # a query of an unknown class
    labels[0] = 99
    parameters = {"k": ["1", "5"], "m": ["0", "-1", "2"], "fmr": [".01", "0.25"], "p": [".95"], "far": ["0"]}
    requested = []
    for name, caption in metrics.listing():
        variants = caption.rpartition("; also ")[2].split(", ") if "; also " in caption else []
        kind = name.partition("@")[2].partition("_")[0]
        for parameter in parameters.get(kind, [kind]):
            requested += [variant.replace(f"@{kind}", f"@{parameter}") for variant in [name, *variants]]
    values = metrics.compute(requested, features, np.stack([labels, labels % 2], 1), groups=labels % 2)
    assert list(values) == requested
    for name, value in values.items():
        expected_type = np.ndarray if metrics.is_array(name) else float
        assert isinstance(value, expected_type), name
        low, high = metrics.parse(name).metric.range
        assert np.all(np.asarray(value) >= low) and np.all(np.asarray(value) <= high), name


def test_what_names_say():
    groups = {"e_recall@1@d64": "e_recall", "nmi": "nmi", "fnmr@.01": "fnmr", "e_recall@1_worst10": "e_recall"}
    assert {name: metrics.group(name) for name in groups} == groups
    parameters = {"c_fnmr@0.01_high": 0.01, "e_recall@4_worst10": 4}
    assert {name: metrics.parse(name).metric.parameter for name in parameters} == parameters
    lower = "fnmr@.01 opis alignment uniformity e_recall@1_group_gap rho_spectrum@2 dists@intra@d8"
    assert not [name for name in lower.split() if metrics.higher_is_better(name)]
    for name in ("e_recall@1_worst10", "c_map_r_macro", "e_recall@1@d64"):
        assert metrics.higher_is_better(name) and metrics.searches(name), name
    assert metrics.needs_groups("c_recall@1_group_gap") and not metrics.needs_groups("e_recall@1")
    assert not metrics.searches("fnmr@.01") and not metrics.searches("nmi@d3")
    assert metrics.at_prefixes(["nmi", "map_r@d2"], [2, 4]) == ["nmi", "map_r@d2", "nmi@d2", "nmi@d4"]


def test_a_new_file_is_a_new_metric(monkeypatch, tmp_path):
    """One file, nothing else: found, listed, with its variants, though metrics were asked for before."""
    metrics.check("mrr")
    (tmp_path / "first_hit.py").write_text(
        "from metrics.mrr import Metric as Mrr\nclass Metric(Mrr):\n    NAMES = {'first_hit': 'as mrr'}\n"
    )
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    monkeypatch.setattr(type(metrics.REGISTRY), "names", lambda self: ["first_hit", "mrr"])
    results = metrics.compute(["mrr", "first_hit", "c_first_hit_macro"], *random_space(n=30, classes=4))
    assert results["first_hit"] == results["mrr"] and [name for name, _ in metrics.listing()] == ["first_hit", "mrr"]


def test_cosine_variants_are_the_plain_ones_on_normalised_features():
    features, labels = random_space(n=80, seed=11)
    features[3] = 0.0
    names = "e_recall@1 map_r mAP_c mrr precision@1 map@5 nmi f1 ami map_r_macro".split()
    cosine = metrics.compute(["c_" + name.removeprefix("e_") for name in names], features, labels)
    plain_values = metrics.compute(names, unit(features), labels)
    assert list(cosine.values()) == pytest.approx(list(plain_values.values()), abs=1e-9)
    assert cosine["c_map_r"] != metrics.compute(["map_r"], features, labels)["map_r"]
    at_length = torch.nn.functional.normalize(torch.from_numpy(features[4:]).float(), dim=1)
    space, unscaled = (_space.EmbeddingSpace(x, labels[4:]) for x in (at_length, features[4:]))
    assert space.normalised() is space and unscaled.normalised() is not unscaled, "unit features share one space"


def test_what_is_not_asked_for_is_not_computed_and_the_rest_once(monkeypatch):
    features, labels = random_space(n=40)
    calls = []
    for owner, name in ((_space.Search, "run"), (_kmeans, "kmeans")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, _o=original, _n=name, **k: (calls.append(_n), _o(*a, **k))[1])
    searching = "e_recall@1 mAP map_r_macro map_r e_recall@1_worst10 e_recall@4_worst10 e_recall@1_group_gap".split()
    metrics.compute([*searching, "nmi", "f1", "ami"], features, labels, groups=labels % 2)
    assert sorted(calls) == ["kmeans", "run"]
    calls.clear()
    metrics.compute([*DISTS, "rho_spectrum@2"], features, labels)
    metrics.compute(["nmi", "f1"], features, labels, clusters=labels)
    assert not calls


def test_a_missing_gpu_is_one_line_and_the_cpu(capsys):
    features, labels = random_space(n=40)
    assert metrics.compute(["map_r"], features, labels, device="cuda:0") == metrics.compute(["map_r"], features, labels)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    "sizes", [[2, 3, 5, 7], *([size] * n for n, size in ((3, 2), (6, 5), (7, 3), (30, 10), (11, 13)))], ids=str
)
def test_perfect_space_has_exactly_its_highest_value(sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    # equal values have that value as their mean
    share = (sizes[0] - 1) / sizes[0]
    if len(set(sizes)) > 1:
        share = np.mean([(size - 1) / size for size in np.array(sizes)[labels]])
    names = "map_r map_r_macro r_precision mrr e_recall@1 map@4 nmi ami f1".split()
    expected = dict.fromkeys(names, 1.0) | dict.fromkeys(("mAP_c", "mAP_1000", "mAP"), share)
    assert metrics.compute(list(expected), np.eye(len(sizes))[labels], labels, clusters=100 - labels) == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_of_features_and_labels(dtype):
    features, labels = random_space(n=60)
    features = torch.from_numpy(features).to(dtype)
    full = features.float() if features.element_size() == 2 else features
    raised = full.numpy()
    names = ["e_recall@1", "map_r", "nmi", "dists@intra", "dists@inter", "rho_spectrum@1", "map_r_macro", "f1"]
    measured = metrics.compute(names, features, torch.from_numpy(labels).int())
    for converted in (labels.astype(np.int16), labels.astype(np.uint8), (labels * 10**12 - 5).astype(np.int64)):
        assert measured == metrics.compute(names, raised, converted)
    for sequences in ({}, {"query_sequences": np.where(labels % 3, labels, -1)}):
        value = metrics.compute("map_r", features, labels, **sequences)["map_r"]
        assert value == pytest.approx(plain(["map_r"], raised, labels, **sequences)["map_r"], abs=1e-12)


def test_bad_input_is_one_line():
    halves = np.array([0.0, 0.0, np.nan, np.nan, 1.0])
    mixed = np.array([1, None, "a", 2, 3], dtype=object)
    for wrong in (
        {"features": np.zeros(5)},
        {"features": np.zeros((0, 3)), "labels": np.zeros(0, int)},
        {"features": np.full((5, 2), np.nan)},
        {"features": np.array([["1", "2"]] * 5)},
        {"features": np.ones((5, 2), dtype=complex)},
        {"features": torch.ones(5, 2, dtype=torch.complex64)},
        {"labels": np.zeros(4, int)},
        {"labels": halves},
        {"labels": torch.tensor(halves)},
        {"labels": mixed},
        {"reference": np.zeros((3, 2))},
        {"reference": np.zeros((3, 4)), "reference_labels": np.zeros(3, int)},
        {"reference_labels": np.zeros(5, int)},
        {"clusters": np.zeros(3, int)},
        {"clusters": halves},
        {"exclude": np.arange(5) + 1},
        {"exclude": np.arange(5) + 0.5},
        {"exclude": np.array(list("abcde"))},
        {"exclude": np.full(5, -2)},
        {"seed": None},
        {"seed": 10**30},
        {"device": "foo"},
        {"device": None},
    ):
        arguments = {"features": np.random.default_rng(0).standard_normal((5, 2)), "labels": np.zeros(5, int), **wrong}
        with refused(None):
            metrics.compute(["e_recall@1", "nmi"], **arguments)


PREFIXED = ["e_recall@1", "map_r", "c_map_r_macro", "nmi", "rho_spectrum@1", "e_recall@2_worst10"]


@pytest.mark.parametrize("at_length", [True, False])
def test_metrics_of_a_prefix_are_those_of_the_cut_features(at_length):
    features = np.random.default_rng(0).normal(size=(40, 6))
    labels = np.arange(40) % 5
    reference = np.random.default_rng(1).normal(size=(30, 6))
    reference_labels = np.arange(30) % 5
    # The prefix of this sample is zero
    features[3, :2] = 0
    lengthen = unit if at_length else np.asarray
    features = lengthen(features)
    space = (features, labels, lengthen(reference), reference_labels)
    cut = [lengthen(rows[:, :2].astype(np.float32)) for rows in (features, space[2])]
    results = metrics.compute([*PREFIXED, *(f"{name}@d2" for name in PREFIXED), "map_r@d6"], *space)
    expected = metrics.compute(PREFIXED, cut[0], labels, cut[1], reference_labels)
    assert {name: results[f"{name}@d2"] for name in PREFIXED} == expected and results["map_r@d6"] == results["map_r"]
    assert {name: results[name] for name in PREFIXED} == metrics.compute(PREFIXED, *space)
    assert results["map_r"] != results["map_r@d2"]
