"""Many metrics in one call: names and variants, types of features and labels, mistakes, ranges; nothing computed twice or for nothing."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import metrics
from metrics import _kmeans, _space
from tests.metrics._plain import DISTS, plain, random_space, ranked
from utilities.errors import UnknownName, UserError

ILL_FORMED = """
    e_recall@0 e_recall@x e_recall@ e_recall e_recall@-1 e_recall@1.5 e_recall@01 e_recall@1@2 e_recall@k c_recall@0 recall@1 e_recall_macro@1
    rho_spectrum@x rho_spectrum@ rho_spectrum rho_spectrum@m rho_spectrum@1.0 nmi@1 nmi_macro c_nmi_macro dists@intra_macro dists@foo dists
    c_dists@intra fnmr@0 fnmr@.0 fnmr@1 fnmr@1.5 fnmr@-.1 fnmr@fmr fnmr@.1e-3 fnmr@.01_ fnmr fnmr@.1_macro c_opis e_recall@0_worst10 e_recall@k_worst10
    e_recall@1_worst e_recall_worst10 e_recall@1_worst10_macro fnmr@_low c_rho_spectrum@1 c_e_recall@1 mAP_1001 map c_ @1 _macro
"""


def test_ill_formed_names_are_refused_in_one_line():
    for name in [*ILL_FORMED.split(), ""]:
        with pytest.raises(UserError) as error:
            metrics.check(name)
        assert "\n" not in str(error.value) and repr(name) in str(error.value), name
    with pytest.raises(UnknownName, match="Did you mean 'map_r'"):
        metrics.check("mapr")


def test_every_listed_name_and_variant_is_accepted_and_within_its_range():
    features, labels = random_space(n=50)
    for name, caption in metrics.listing():
        assert caption and "is better" in caption
        variants = caption.rpartition("; also ")[2].split(", ") if "; also " in caption else []
        for variant in [name, *variants]:
            kind = name.partition("@")[2].partition("_")[0]
            for parameter in {"k": ["1", "5"], "m": ["0", "-1", "2"], "fmr": [".01", "0.25"]}.get(kind, [""]):
                asked = variant.replace(f"@{kind}", f"@{parameter}") if parameter else variant
                metrics.check(asked)
                value = metrics.compute([asked], features, np.stack([labels, labels % 2], 1), groups=labels % 2)[asked]
                assert isinstance(metrics.higher_is_better(asked), bool)
                assert metrics.is_array(asked) == isinstance(value, np.ndarray)
                assert metrics.is_array(asked) or isinstance(value, float)
                low, high = metrics._parse(asked).metric.range
                assert np.all(np.asarray(value) >= low) and np.all(np.asarray(value) <= high) and np.all(np.isfinite(value))


def test_names_of_the_defaults_their_groups_and_parameters():
    default = ["e_recall@1", "e_recall@2", "e_recall@4", "nmi", "f1", "mAP_1000", "mAP_lim", "mAP_c", *DISTS]
    default += [f"rho_spectrum@{m}" for m in (0, -1, 1, 2, 10)]
    measured = metrics.compute(default, *random_space(d=16))
    assert list(measured) == default and len(measured["rho_spectrum@0"]) == 16
    groups = {"e_recall@1": "e_recall", "nmi": "nmi", "dists@intra": "dists", "fnmr@.01": "fnmr", "e_recall@1_worst10": "e_recall", "opis": "opis"}
    assert {name: metrics.group(name) for name in groups} == groups
    parameters = {"fnmr@.01": 0.01, "c_fnmr@0.01_high": 0.01, "e_recall@4_worst10": 4}
    assert {name: metrics._parse(name).metric.parameter for name in parameters} == parameters and metrics._parse("c_recall@4_worst10").cosine
    lower = ["fnmr@.01", "opis", "alignment", "uniformity", "e_recall@1_group_gap", "rho_spectrum@2"]
    assert not any(map(metrics.higher_is_better, lower)) and all(map(metrics.higher_is_better, ("e_recall@1_worst10", "c_map_r_macro")))
    assert metrics.needs_groups("c_recall@1_group_gap") and not metrics.needs_groups("e_recall@1")
    assert metrics.searches("e_recall@1_worst10") and not metrics.searches("fnmr@.01")


def test_a_new_file_is_a_new_metric(monkeypatch, tmp_path):
    """One file, nothing else: found, listed, with its variants."""
    text = """
        '''Rank of the farthest relevant sample.'''
        from metrics._metric import RetrievalMetric
        import numpy as np

        class Metric(RetrievalMetric):
            '''.'''
            NAMES = {"last_rank": "rank of the farthest same-class sample"}
            RANGE = (0, np.inf)
            HIGHER_IS_BETTER = False
            def depth(self, relevant, sizes):
                return np.inf
            def score(self, hits):
                return hits.sum(np.where(hits.orders == hits.relevant[hits.queries], hits.ranks, 0))
    """
    (tmp_path / "last_rank.py").write_text(inspect.cleandoc(text))
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    monkeypatch.setattr(type(metrics.REGISTRY), "names", lambda self: ["e_recall", "last_rank"])
    features, labels = random_space(n=30, classes=4)
    same = [[j for j in range(30) if j != i and labels[j] == labels[i]] for i in range(30)]
    expected = [max(ranked(features[i], features, i).index(j) + 1 for j in same[i]) for i in range(30)]
    assert metrics.compute(["last_rank"], features, labels)["last_rank"] == pytest.approx(np.mean(expected))
    assert [name for name, _ in metrics.listing()] == ["e_recall@k", "last_rank"]
    metrics.check("c_last_rank_macro")


def test_cosine_variants_are_the_plain_ones_on_normalised_features():
    features, labels = random_space(n=80, seed=11)
    features[3] = 0.0
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    normalised = features / np.where(norms > 0, norms, 1)
    names = ["e_recall@1", "map_r", "mAP_c", "mrr", "precision@1", "map@5", "nmi", "f1", "ami", "map_r_macro"]
    cosine = metrics.compute(["c_" + name.removeprefix("e_") for name in names], features, labels)
    assert list(cosine.values()) == pytest.approx(list(metrics.compute(names, normalised, labels).values()), abs=1e-9)
    assert cosine["c_map_r"] != metrics.compute(["map_r"], features, labels)["map_r"]
    unit = torch.nn.functional.normalize(torch.from_numpy(features[4:]).float(), dim=1)
    space, other = (_space.EmbeddingSpace(x, labels[4:]) for x in (unit, features[4:]))
    assert space.normalised() is space and other.normalised() is not other, "unit features share one space"


def test_what_is_not_asked_for_is_not_computed_and_the_rest_once(monkeypatch):
    features, labels = random_space(n=40)
    calls = []
    for owner, name in ((_space.Search, "run"), (_kmeans, "kmeans")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, _o=original, _n=name, **k: (calls.append(_n), _o(*a, **k))[1])
    names = ["e_recall@1", "mAP", "map_r_macro", "map_r", "e_recall@1_worst10", "e_recall@4_worst10", "e_recall@1_group_gap", "nmi", "f1", "ami"]
    metrics.compute(names, features, labels, groups=labels % 2)
    assert sorted(calls) == ["kmeans", "run"]
    calls.clear()
    assert set(metrics.compute([*DISTS, "rho_spectrum@2"], features, labels)) == {*DISTS, "rho_spectrum@2"}
    metrics.compute(["nmi", "f1"], features, labels, clusters=labels)
    assert not calls


def test_a_missing_gpu_is_one_line_and_the_cpu(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    features, labels = random_space(n=40)
    assert metrics.compute(["map_r"], features, labels, device="cuda:0") == metrics.compute(["map_r"], features, labels)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_perfect_space_has_exactly_its_highest_value():
    sizes = np.array([2, 3, 5, 7])
    labels = np.repeat(np.arange(4), sizes)
    features = np.eye(4)[labels] + 1e-3 * np.random.default_rng(0).standard_normal((17, 4))
    names = ["map_r", "r_precision", "mrr", "e_recall@1", "map@4", "nmi", "ami", "f1"]
    forms = dict.fromkeys(("mAP_c", "mAP_1000", "mAP"), np.mean((sizes[labels] - 1) / sizes[labels]))
    assert metrics.compute([*names, *forms], features, labels, clusters=100 - labels) == dict.fromkeys(names, 1.0) | forms
    for classes, size in ((3, 2), (6, 5), (7, 3), (30, 10), (11, 13)):  # equal values have that value as their mean
        labels = np.repeat(np.arange(classes), size)
        expected = dict.fromkeys(("mAP_c", "mAP", "mAP_c_macro"), (size - 1) / size) | dict.fromkeys(("map_r_macro", "nmi", "ami"), 1.0)
        assert metrics.compute(list(expected), np.eye(classes)[labels], labels, clusters=(labels + 3) % classes) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12))
def test_values_stay_in_their_range(seed, n):
    rng = np.random.default_rng(seed)
    features, labels = rng.integers(-1, 2, (n, 2)).astype(float), rng.integers(0, 4, n)
    for name in ["e_recall@1", "map@2", "mAP", "mrr", "nmi", "ami", "f1", *DISTS, "rho_spectrum@1", "rho_spectrum@-1"]:
        low, high = metrics._parse(name).metric.range
        value = metrics.compute([name], features, labels)[name]
        assert np.isnan(value) or low <= value <= high, (name, value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_of_features_and_labels(dtype):
    features, labels = random_space(n=60)
    features = torch.from_numpy(features).to(dtype)
    raised = (features.float() if features.element_size() == 2 else features).numpy()
    names = ["e_recall@1", "map_r", "nmi", "dists@intra", "dists@inter", "rho_spectrum@1", "map_r_macro", "f1"]
    measured = metrics.compute(names, features, torch.from_numpy(labels).int())
    for other in (labels.astype(np.int16), labels.astype(np.uint8), (labels * 10**12 - 5).astype(np.int64)):
        assert measured == metrics.compute(names, raised, other)
    sequences = np.where(labels % 3, labels, -1)
    for more in ({}, {"query_sequences": sequences}):
        value = metrics.compute("map_r", features, labels, **more)["map_r"]
        assert value == pytest.approx(plain(["map_r"], raised, labels, **more)["map_r"], abs=1e-12)


def test_bad_input_is_one_line():
    halves, mixed = np.array([0.0, 0.0, np.nan, np.nan, 1.0]), np.array([1, None, "a", 2, 3], dtype=object)
    for wrong in (
        {"features": np.zeros(5)}, {"features": np.zeros((0, 3)), "labels": np.zeros(0, int)}, {"features": np.full((5, 2), np.nan)},
        {"features": np.array([["1", "2"]] * 5)}, {"features": np.ones((5, 2), dtype=complex)}, {"features": torch.ones(5, 2, dtype=torch.complex64)},
        {"labels": np.zeros(4, int)}, {"labels": halves}, {"labels": torch.tensor(halves)}, {"labels": mixed}, {"reference": np.zeros((3, 2))},
        {"reference": np.zeros((3, 4)), "reference_labels": np.zeros(3, int)}, {"reference_labels": np.zeros(5, int)}, {"clusters": np.zeros(3, int)},
        {"clusters": halves}, {"exclude": np.arange(5) + 1}, {"exclude": np.arange(5) + 0.5}, {"exclude": np.array(list("abcde"))},
        {"exclude": np.full(5, -2)}, {"seed": None}, {"seed": 10**30}, {"device": "foo"}, {"device": None},
    ):  # fmt: skip
        with pytest.raises(UserError) as error:
            arguments = {"features": np.random.default_rng(0).standard_normal((5, 2)), "labels": np.zeros(5, int), **wrong}
            metrics.compute(["e_recall@1", "nmi"], **arguments)
        assert "\n" not in str(error.value), wrong


PREFIXED = ["e_recall@1", "map_r", "c_map_r_macro", "nmi", "rho_spectrum@1", "e_recall@2_worst10"]


@pytest.mark.parametrize("unit", [True, False])
def test_metrics_of_a_prefix_are_those_of_the_cut_features(unit):
    features, labels = np.random.default_rng(0).normal(size=(40, 6)), np.arange(40) % 5
    reference, reference_labels = np.random.default_rng(1).normal(size=(30, 6)), np.arange(30) % 5
    if unit:
        features, reference = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (features, reference))
    features[3, :2] = 0  # nothing left of it
    features[3] /= np.linalg.norm(features[3]) if unit else 1
    names = [*PREFIXED, *(f"{name}@d2" for name in PREFIXED), "map_r@d6"]
    found = metrics.compute(names, features, labels, reference, reference_labels)
    cut = []
    for rows in (features, reference):
        part = rows[:, :2].astype(np.float32)
        lengths = np.linalg.norm(part, axis=1, keepdims=True)
        cut.append(part / np.where(lengths > 0, lengths, 1) if unit else part)
    expected = metrics.compute(PREFIXED, cut[0], labels, cut[1], reference_labels)
    assert {name: found[f"{name}@d2"] for name in PREFIXED} == expected and found["map_r@d6"] == found["map_r"]
    assert {name: found[name] for name in PREFIXED} == metrics.compute(PREFIXED, features, labels, reference, reference_labels)
    assert found["map_r"] != found["map_r@d2"]


def test_a_prefix_of_features_in_files(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    stacked = metrics.Stacked((mapped, np.arange(0, 50, 2)), (mapped, None))
    assert (metrics.prefix(mapped, 2) == rows[:, :2]).all() and (metrics.prefix(stacked, 3) == np.concatenate([rows[::2], rows])[:, :3]).all()
    assert metrics.prefix(mapped, 6) is mapped


def test_names_of_prefixes():
    assert metrics.higher_is_better("e_recall@1@d64") and not metrics.higher_is_better("dists@intra@d8")
    assert metrics.group("e_recall@1@d64") == "e_recall" and metrics.searches("c_map_r@d3") and not metrics.searches("nmi@d3")
    assert metrics.at_prefixes(["nmi", "map_r@d2"], [2, 4]) == ["nmi", "map_r@d2", "nmi@d2", "nmi@d4"]
    for name in ("e_recall@1@d0", "e_recall@1@d", "e_recall@d2", "nmi@d2@d3", "@d2"):
        with pytest.raises(UserError):
            metrics.check(name)
    with pytest.raises(UserError, match=r"metric 'nmi@d9': the embeddings have 4 dimensions, take at most @d4"):
        metrics.compute(["nmi@d9"], np.eye(4), [0, 0, 1, 1])
