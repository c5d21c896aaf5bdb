"""Every metric against a plain float64 version of its definition, on spaces that are easy to get wrong."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import metrics
from metrics import _kmeans, _search, _space
from utilities.errors import UnknownName, UserError

RETRIEVAL = ["e_recall@1", "e_recall@2", "e_recall@4", "e_recall@1000", "precision@1", "precision@5", "r_precision"]
RETRIEVAL += ["map_r", "mrr", "map@3", "map@1000", "mAP_c", "mAP_1000", "mAP_lim", "mAP"]
DISTS = ["dists@intra", "dists@inter", "dists@intra_over_inter"]


# ---------------------------------------------------------------------------------------------- plain versions, one query at a time
def ranked(query, reference, left_out):
    distances = [(sum((float(a) - float(b)) ** 2 for a, b in zip(query, r, strict=True)), j) for j, r in enumerate(reference)]
    return [j for _, j in sorted(distances) if j != left_out]


def precision_sum(relevance, depth):
    total, found = 0.0, 0
    for i, hit in enumerate(relevance[: int(min(depth, len(relevance)))], start=1):
        found += hit
        total += hit * found / i
    return total


def plain_scores(name, relevance, total, size):
    """One query's value, None where it is left out. `total` relevant samples, `size` of its class in the reference."""
    head, _, k = name.partition("@")
    k = int(k or 0)
    if head == "e_recall":
        return float(any(relevance[:k]))
    if head.startswith("mAP"):
        depth = {"mAP_c": size, "mAP_1000": 1000, "mAP_lim": 1023, "mAP": len(relevance)}[head]
        return precision_sum(relevance, depth) / size if size else 0.0
    if total == 0:
        return None
    if head == "precision":
        return sum(relevance[:k]) / k
    if head == "r_precision":
        return sum(relevance[:total]) / total
    if head == "map_r":
        return precision_sum(relevance, total) / total
    if head == "map":
        return precision_sum(relevance, k) / min(k, total)
    assert head == "mrr"
    return 1.0 / (relevance.index(True) + 1)


def plain(names, features, labels, reference=None, reference_labels=None, exclude=None):
    if reference is None:
        reference, reference_labels, exclude = features, labels, range(len(features))
    exclude = [-1] * len(features) if exclude is None else exclude
    values = {name: [] for name in names}
    for query, label, left_out in zip(features, labels, exclude, strict=True):
        order = ranked(query, reference, left_out)
        relevance = [bool(reference_labels[j] == label) for j in order]
        size = sum(bool(other == label) for other in reference_labels)
        for name in names:
            values[name].append((label, plain_scores(name, relevance, sum(relevance), size)))
    results = {}
    for name, scored in values.items():
        kept = [(label, score) for label, score in scored if score is not None]
        results[name] = float(np.mean([score for _, score in kept])) if kept else 0.0
        means = [np.mean([score for other, score in kept if other == label]) for label in {label for label, _ in kept}]
        results[f"{name}_macro"] = float(np.mean(means)) if kept else 0.0
    return results


def assert_retrieval(features, labels, names=tuple(RETRIEVAL), **options):
    names = list(names) + [f"{name}_macro" for name in names]
    expected = plain([name for name in names if not name.endswith("_macro")], features, labels, **options)
    measured = metrics.compute(names, np.asarray(features), np.asarray(labels), **options)
    assert list(measured) == names
    for name in names:
        assert measured[name] == pytest.approx(expected[name], abs=1e-12), name


# --------------------------------------------------------------------------------------------------------------------- retrieval
def random_space(n=120, d=6, classes=11, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return rng.standard_normal((classes, d))[labels] + spread * rng.standard_normal((n, d)), labels


@pytest.mark.parametrize("spread", [0.1, 0.7, 5.0])
def test_random_spaces(spread):
    assert_retrieval(*random_space(spread=spread))


def test_random_space_in_float32():
    features, labels = random_space(spread=0.8, seed=3)
    assert_retrieval(features.astype(np.float32), labels)


def test_ties_and_duplicates_lower_index_first_and_self_by_index():
    rng = np.random.default_rng(1)
    features = rng.integers(-2, 3, (100, 2)).astype(np.float32)  # 25 places for 100 samples: duplicates of every class, ties everywhere
    assert_retrieval(features, rng.integers(0, 6, 100))


def test_all_identical():
    assert_retrieval(np.ones((30, 4), dtype=np.float32) * 0.3, np.arange(30) % 4)
    assert_retrieval(np.zeros((9, 3)), np.arange(9) % 2)


def test_collapsed_far_from_the_origin():
    rng = np.random.default_rng(2)
    features = 1000.0 + 1e-6 * rng.standard_normal((80, 5))  # in float32 without a shift all of these are one point
    assert_retrieval(features, rng.integers(0, 5, 80))


def test_near_ties_below_float32_are_settled_in_float64():
    rng = np.random.default_rng(4)
    corners = rng.integers(0, 2, (90, 3)).astype(np.float64)
    assert_retrieval(corners + 1e-9 * rng.standard_normal((90, 3)), rng.integers(0, 7, 90))


def test_outlier_and_extreme_scales():
    features, labels = random_space(n=60)
    features[0] *= 1e6
    assert_retrieval(features, labels)
    assert_retrieval(features[1:] * 1e-25, labels[1:])
    assert_retrieval((features[1:] * 1e30).astype(np.float32), labels[1:])


def test_singletons_one_class_fewer_samples_than_k_and_single_sample():
    features, _ = random_space(n=20)
    assert_retrieval(features, np.arange(20))  # each alone
    assert_retrieval(features, np.r_[np.arange(10), np.zeros(10)].astype(int))  # some alone
    assert_retrieval(features, np.zeros(20, dtype=int))  # one class
    assert_retrieval(features[:3], np.array([0, 0, 1]))
    assert_retrieval(features[:1], np.array([5]))


def test_perfect_space_has_exactly_its_highest_value():
    sizes = np.array([2, 3, 5, 7])
    labels = np.repeat(np.arange(4), sizes)
    features = np.eye(4)[labels] + 1e-3 * np.random.default_rng(0).standard_normal((17, 4))
    names = ["map_r", "r_precision", "mrr", "e_recall@1", "map@4", "mAP_c", "mAP_1000", "mAP", "nmi", "ami", "f1"]
    measured = metrics.compute(names, features, labels, clusters=100 - labels)
    for name in ("map_r", "r_precision", "mrr", "e_recall@1", "map@4"):
        assert measured[name] == 1.0, name
    for name in ("nmi", "ami", "f1"):
        assert measured[name] == 1.0, name
    for name in ("mAP_c", "mAP_1000", "mAP"):
        assert measured[name] == np.mean((sizes[labels] - 1) / sizes[labels]), name
    separated = np.repeat(np.eye(3), 2, axis=0)
    assert metrics.compute("mAP_c", separated, [0, 0, 1, 1, 2, 2])["mAP_c"] == 0.5


@pytest.mark.parametrize(("classes", "size"), [(6, 5), (7, 3), (30, 10), (11, 13)])
def test_equal_values_have_that_value_as_their_mean(classes, size):
    labels = np.repeat(np.arange(classes), size)
    names = ["mAP_c", "mAP", "mAP_c_macro", "map_r_macro", "nmi", "ami"]
    expected = dict.fromkeys(names[:3], (size - 1) / size) | dict.fromkeys(names[3:], 1.0)
    assert metrics.compute(names, np.eye(classes)[labels], labels, clusters=(labels + 3) % classes) == expected


@pytest.mark.parametrize("size", [2, 60, 1000, 20_000])
def test_distances_of_identical_points(size):
    features = np.repeat(np.random.default_rng(size).standard_normal((1, 33)), size, axis=0)
    measured = metrics.compute(DISTS, features, np.arange(size) % 7 // 4)
    inter = 0.0 if size > 2 else np.nan
    assert measured == pytest.approx({"dists@intra": 0.0, "dists@inter": inter, "dists@intra_over_inter": np.nan}, abs=0, nan_ok=True)
    opposite = metrics.compute(DISTS, np.random.default_rng(0).standard_normal((1, 5)) * [[1], [1], [-1], [-1]], [0, 0, 1, 1])
    assert opposite == {"dists@intra": 0.0, "dists@inter": 2.0, "dists@intra_over_inter": 0.0}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12))
def test_values_stay_in_their_range(seed, n):
    rng = np.random.default_rng(seed)
    features, labels = rng.integers(-1, 2, (n, 2)).astype(float), rng.integers(0, 4, n)
    for name in ["e_recall@1", "map@2", "mAP", "mrr", "nmi", "ami", "f1", *DISTS, "rho_spectrum@1", "rho_spectrum@-1"]:
        head, _, parameter = name.partition("@")
        low, high = metrics._parse(name).metric.range
        value = metrics.compute([name], features, labels)[name]
        assert np.isnan(value) or low <= value <= high, (name, value)


def test_numbers_beyond_64_bits_are_those_beyond_the_reference():
    features, labels = random_space(n=30)
    heads = ["e_recall@", "precision@", "map@", "c_recall@", "rho_spectrum@", "rho_spectrum@-"]
    for parameter in ("9223372036854775807", "99999999999999999999", "9" * 5000):
        measured = metrics.compute([head + parameter for head in heads], features, labels)
        beyond = metrics.compute([head + "1000000" for head in heads], features, labels)
        assert list(measured.values()) == pytest.approx(list(beyond.values()), abs=1e-4, nan_ok=True)


def test_what_is_said_where_no_query_counts():
    names = ["map_r", "mrr_macro", "e_recall@1", "mAP"]
    features, labels = random_space(n=4)[0], np.arange(4)
    assert metrics.compute(names, features, labels) == dict.fromkeys(names, 0.0)
    measured = metrics.compute(names, features, labels, uncounted=None)
    assert measured == {"map_r": None, "mrr_macro": None, "e_recall@1": 0.0, "mAP": 0.0}  # for the last two, alone counts as 0


def test_query_and_gallery_with_classes_missing_on_either_side():
    queries, labels = random_space(n=50, classes=9, seed=5)
    gallery, gallery_labels = random_space(n=70, classes=14, seed=6)
    keep = gallery_labels != 3
    options = {"reference": gallery[keep], "reference_labels": gallery_labels[keep] + 2}
    assert set(labels) - set(options["reference_labels"]) and set(options["reference_labels"]) - set(labels)
    assert_retrieval(queries, labels, **options)
    nothing = metrics.compute(["e_recall@1", "map_r", "mAP"], queries, labels, reference=gallery, reference_labels=gallery_labels + 100)
    assert nothing == {"e_recall@1": 0.0, "map_r": 0.0, "mAP": 0.0}


def test_reference_that_holds_the_queries():
    features, labels = random_space(n=90, seed=7)
    features[10] = features[70]
    reference = np.concatenate([features[40:], features[:40]])  # the queries 0..29 stand at 50..79
    options = {"reference": reference, "reference_labels": np.concatenate([labels[40:], labels[:40]])}
    exclude = np.where(np.arange(30) % 5, np.arange(30) + 50, -1)
    assert_retrieval(features[:30], labels[:30], exclude=exclude, **options)


@pytest.mark.parametrize(
    "constants",
    [
        {"SAMPLE": 8},
        {"PAIRS": 1},
        {"COLUMNS": 16, "ROWS": 4, "SAMPLE": 9},
        {"COLUMNS": 16, "ROWS": 4, "PAIRS": 1},
        {"COLUMNS": 32, "ROWS": 16, "SAMPLE": 20, "WAITING": 200},
        {"ROWS": 4, "SAMPLE": 5, "KEPT": 40},
        {"KEPT": 16, "COLUMNS": 8, "ROWS": 8},
    ],
)
def test_blocks_tiles_and_estimates_change_nothing(monkeypatch, constants):
    for name, value in constants.items():
        monkeypatch.setattr(_search, name, value)
    for names in (RETRIEVAL, ["e_recall@2"], ["map_r"], ["map_r", "mAP_c", "e_recall@4"], ["mrr"], ["map@3"]):
        assert_retrieval(*random_space(spread=2.0, seed=8), names)
    features, labels = random_space(spread=1.0, seed=9)
    features = np.round(features)
    assert_retrieval(features, labels, ["map_r", "map@3", "e_recall@1"])
    expected = [ranked(query, features, i)[:7] for i, query in enumerate(features)]
    assert _space.EmbeddingSpace(features, labels).neighbours(7).tolist() == expected


@pytest.mark.parametrize(("waiting", "blocks"), [(10**6, 15), (100, 0), ("too much after three", 3)])
def test_a_search_in_itself_computes_each_score_once_unless_too_much_waits(monkeypatch, waiting, blocks):
    for name, value in {"COLUMNS": 32, "ROWS": 8, "SAMPLE": 20, "WAITING": waiting if blocks != 3 else 10**6}.items():
        monkeypatch.setattr(_search, name, value)
    tile, triangle, scores, taken = _search.Search._tile, _search.Search._triangle, [], []

    def counted(self, queries, start):
        scores.append(tile(self, queries, start).numel())
        return tile(self, queries, start)

    def watched(self, needs):
        for block in triangle(self, needs):
            taken.append(block)
            yield block
            if len(taken) == blocks == 3:
                monkeypatch.setattr(_search, "WAITING", 0)

    monkeypatch.setattr(_search.Search, "_tile", counted)
    monkeypatch.setattr(_search.Search, "_triangle", watched)
    features, labels = random_space(n=120, spread=0.2, seed=21)
    assert_retrieval(features, labels, ["map_r", "mAP_c", "e_recall@2"])
    assert len(taken) == blocks
    expected = {15: sum(8 * (120 - start) for start in range(0, 120, 8)), 0: 120 * 120}
    assert sum(scores) == expected.get(blocks, sum(scores))


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("names", [["e_recall@3"], ["map_r", "e_recall@6"], ["map@3"], ["map_r", "map@5", "e_recall@1"]])
def test_what_waits_too_long_is_pruned_to_what_is_needed(monkeypatch, names, rounded):
    for name, value in {"COLUMNS": 64, "ROWS": 16, "SAMPLE": 30, "WAITING": 3000}.items():
        monkeypatch.setattr(_search, name, value)
    pruned, blocks = _search.Search._pruned, _search.Search._triangle
    before, after, taken = [], [], []

    def counted(self, block, found, needs):
        result = pruned(self, block, found, needs)
        before.append(sum(len(keys) for _, keys in found))
        after.append(len(result[1]))
        return result

    def watched(self, needs):
        for block in blocks(self, needs):
            taken.append(block)
            yield block

    monkeypatch.setattr(_search.Search, "_pruned", counted)
    monkeypatch.setattr(_search.Search, "_triangle", watched)
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=22)
    assert_retrieval(np.round(2 * features) if rounded else features, labels, names)
    assert sum(done.sum() for _, _, done in taken) == 400  # nothing that was left out was needed after all
    assert 0 < sum(after) < sum(before)
    assert sum(before) <= 9000  # not again and again: cuts have risen for those that wait


@pytest.mark.parametrize("equal", [400, 200])
def test_ties_that_no_depth_bounds_do_not_pile_up(monkeypatch, equal):
    for name, value in {"COLUMNS": 64, "ROWS": 16, "SAMPLE": 30, "WAITING": 3000, "KEPT": 2000}.items():
        monkeypatch.setattr(_search, name, value)
    assembled, sizes = _search.Search._assembled, []

    def watched(self, block, found):
        sizes.append(sum(len(keys) for _, keys in found))
        return assembled(self, block, found)

    monkeypatch.setattr(_search.Search, "_assembled", watched)
    features, labels = random_space(n=400, classes=80, spread=2.0, seed=23)
    features[:equal] = features[0]
    assert_retrieval(features, labels, ["map_r", "e_recall@1"])
    assert max(sizes) <= 2000 + 16 * 64  # KEPT and a tile


@pytest.mark.parametrize("names", [["e_recall@3", "map_r"], ["mAP", "mrr"]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_samples_that_are_found_once_change_nothing(monkeypatch, names, dtype):
    monkeypatch.setattr(_search, "FEW", 0)
    rng = np.random.default_rng(24)
    features = rng.standard_normal((9, 5))[rng.integers(0, 9, 100)].astype(dtype)
    labels = rng.integers(0, 6, 100)
    features[20:30] += 1e-9 * rng.standard_normal((10, 5)).astype(dtype)  # equal in float32, in float64 not
    assert_retrieval(features, labels, names)
    assert_retrieval(np.where(np.arange(100)[:, None] % 3, features, -0.0), labels, names)
    assert_retrieval(features[:40], labels[:40], names, reference=features[30:], reference_labels=labels[30:])
    expected = [ranked(query, features, i)[:60] for i, query in enumerate(features)]
    assert _space.EmbeddingSpace(features, labels).neighbours(60).tolist() == expected


@pytest.mark.parametrize("equal", [900, 600])
def test_a_collapsed_space_does_not_take_a_distance_for_every_pair(monkeypatch, equal):
    taken = []
    original = _space.EmbeddingSpace.squared_distances
    monkeypatch.setattr(
        _space.EmbeddingSpace, "squared_distances", lambda self, rows, columns: (taken.append(len(rows)), original(self, rows, columns))[1]
    )
    features, labels = random_space(n=900, d=16, classes=90, seed=25)
    features[:equal] = features[0]
    space = _space.EmbeddingSpace(features, labels)
    found = space.neighbours(899)
    assert sum(taken) < 60 * 900, "and not the square of 900"
    for query in (0, 5, equal - 1, 899):
        assert found[query].tolist() == ranked(features[query], features, query)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_any_small_space(seed, n, d, classes, rounded):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d))
    features = np.round(2 * features) if rounded else features
    assert_retrieval(features, rng.integers(0, classes, n))


def test_neighbours_in_order_filled_up_with_minus_one():
    features, labels = random_space(n=12)
    neighbours = _space.EmbeddingSpace(features, labels).neighbours(15)
    assert neighbours[:, :11].tolist() == [ranked(query, features, i) for i, query in enumerate(features)]
    assert (neighbours[:, 11:] == -1).all()


# ------------------------------------------------------------------------------------------------------------- inputs and variants
def test_cosine_variants_are_the_plain_ones_on_normalised_features():
    features, labels = random_space(n=80, seed=11)
    features[3] = 0.0
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    normalised = features / np.where(norms > 0, norms, 1)
    names = ["e_recall@1", "map_r", "mAP_c", "mrr", "precision@1", "map@5", "nmi", "f1", "ami", "map_r_macro"]
    cosine = metrics.compute(["c_" + name.removeprefix("e_") for name in names], features, labels)
    assert list(cosine.values()) == pytest.approx(list(metrics.compute(names, normalised, labels).values()), abs=1e-9)
    assert cosine["c_map_r"] != metrics.compute(["map_r"], features, labels)["map_r"]


def test_unit_features_share_one_space():
    features, labels = random_space()
    space = _space.EmbeddingSpace(torch.nn.functional.normalize(torch.from_numpy(features).float(), dim=1), labels)
    assert space.normalised() is space
    other = _space.EmbeddingSpace(features, labels)
    assert other.normalised() is not other


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_float_types_torch_and_numpy(dtype):
    features, labels = random_space(n=60)
    features = torch.from_numpy(features).to(dtype)
    raised = features.float() if features.element_size() == 2 else features
    names = ["e_recall@1", "map_r", "nmi", "dists@intra", "rho_spectrum@1"]
    measured = metrics.compute(names, features, torch.from_numpy(labels).int())
    assert measured == metrics.compute(names, raised.numpy(), labels.astype(np.int16))
    assert measured["map_r"] == pytest.approx(plain(["map_r"], raised.numpy(), labels)["map_r"], abs=1e-12)


def test_labels_may_be_any_integers():
    features, labels = random_space(n=60)
    names = ["map_r", "nmi", "dists@intra", "dists@inter", "map_r_macro", "f1"]
    wild = (labels * 10**12 - 5).astype(np.int64)
    assert metrics.compute(names, features, wild) == metrics.compute(names, features, labels.astype(np.uint8))


def test_labels_of_mixed_types_do_not_meet_as_floats():
    features, _ = random_space(n=8)
    large = 2**60 + np.arange(4)  # neighbours that float64 cannot tell apart
    options = {"reference": features[4:], "reference_labels": large.astype(np.uint64)}
    measured = metrics.compute(["map_r", "e_recall@4"], features[:4], large, **options)
    assert measured["e_recall@4"] == 1.0 and measured["map_r"] == plain(["map_r"], features[:4], large, features[4:], large)["map_r"]


def test_low_matmul_precision_of_the_training_does_not_leak_in():
    features, labels = random_space()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert_retrieval(features, labels, ["map_r"])
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_what_is_not_asked_for_is_not_computed(monkeypatch):
    features, labels = random_space(n=40)
    monkeypatch.setattr(_space, "Search", None)
    monkeypatch.setattr(_kmeans, "kmeans", None)
    assert set(metrics.compute([*DISTS, "rho_spectrum@2"], features, labels)) == {*DISTS, "rho_spectrum@2"}
    metrics.compute(["nmi", "f1"], features, labels, clusters=labels)


def test_search_and_clusters_are_computed_once(monkeypatch):
    features, labels = random_space(n=40)
    calls = []
    for owner, name in ((_space.Search, "run"), (_kmeans, "kmeans")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, _o=original, _n=name, **k: (calls.append(_n), _o(*a, **k))[1])
    metrics.compute(["e_recall@1", "mAP", "map_r_macro", "map_r", "nmi", "f1", "ami"], features, labels)
    assert sorted(calls) == ["kmeans", "run"]


def test_a_missing_gpu_is_one_line_and_the_cpu(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    features, labels = random_space(n=40)
    assert metrics.compute(["map_r"], features, labels, device="cuda:0") == metrics.compute(["map_r"], features, labels)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"features": np.zeros(5)},
        {"features": np.zeros((0, 3)), "labels": np.zeros(0, int)},
        {"labels": np.zeros(4, int)},
        {"features": np.full((5, 2), np.nan)},
        {"reference": np.zeros((3, 2))},
        {"reference": np.zeros((3, 4)), "reference_labels": np.zeros(3, int)},
        {"exclude": np.arange(5) + 1},
        {"clusters": np.zeros(3, int)},
        {"labels": np.array([0.0, 0.0, np.nan, np.nan, 1.0])},
        {"labels": torch.tensor([0.0, 0.0, np.nan, np.nan, 1.0])},
        {"labels": np.array([1, None, "a", 2, 3], dtype=object)},
        {"clusters": np.array([0.0, 0.0, np.nan, np.nan, 1.0])},
        {"features": np.array([["1", "2"]] * 5)},
        {"features": np.ones((5, 2), dtype=complex)},
        {"features": torch.ones(5, 2, dtype=torch.complex64)},
        {"reference_labels": np.zeros(5, int)},
        {"exclude": np.arange(5) + 0.5},
        {"exclude": np.array(list("abcde"))},
        {"exclude": np.full(5, -2)},
        {"seed": None},
        {"seed": 10**30},
        {"device": "foo"},
        {"device": None},
    ],
)
def test_bad_input_is_one_line(arguments):
    given = {"features": np.random.default_rng(0).standard_normal((5, 2)), "labels": np.zeros(5, int), **arguments}
    with pytest.raises(UserError) as error:
        metrics.compute(["e_recall@1", "nmi"], **given)
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------------------------------------------------------- dists and rho
def cosine_distance(a, b):
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return 1.0 - float(np.dot(a, b)) / norms if norms else 1.0


def plain_dists(features, labels):
    intra, means = [], []
    for label in sorted(set(labels.tolist())):
        own = features[labels == label].astype(np.float64)
        means.append(own.mean(0))
        if len(own) > 1:
            intra.append(np.mean([cosine_distance(a, b) for i, a in enumerate(own) for j, b in enumerate(own) if i != j]))
    inter = [cosine_distance(a, b) for i, a in enumerate(means) for j, b in enumerate(means) if i != j]
    intra, inter = (np.mean(values) if values else np.nan for values in (intra, inter))
    return {"dists@intra": intra, "dists@inter": inter, "dists@intra_over_inter": intra / inter}


@pytest.mark.parametrize("classes", [1, 3, 40])
def test_dists(classes):
    features, labels = random_space(n=60, classes=classes, seed=13)
    labels[:2] = [classes, classes] if classes > 1 else labels[:2]
    labels[2] = classes + 1 if classes > 1 else 0  # a singleton
    assert metrics.compute(DISTS, features, labels) == pytest.approx(plain_dists(features, labels), abs=1e-12, nan_ok=True)


def test_dists_without_a_pair_are_nan():
    measured = metrics.compute(DISTS, np.eye(3), [0, 1, 2])
    assert np.isnan(measured["dists@intra"]) and measured["dists@inter"] == pytest.approx(1.0)


def plain_rho(features, m):
    spectrum = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    spectrum = np.maximum(spectrum, 1e-8 * spectrum[0])[max(abs(m) - 1, 0) :]
    spectrum = spectrum / spectrum.sum()
    uniform = np.full(len(spectrum), 1 / len(spectrum))
    first, second = (uniform, spectrum) if m > 0 else (spectrum, uniform)
    return spectrum if m == 0 else float(sum(p * np.log(p / q) for p, q in zip(first, second, strict=True)))


@pytest.mark.parametrize("shape", [(50, 6), (5, 12), (1, 4)])
@pytest.mark.parametrize("m", [1, -1, 2, -2, 5, 0])
def test_rho_spectrum(monkeypatch, shape, m):
    if abs(m) > min(shape):
        assert np.isnan(metrics.compute([f"rho_spectrum@{m}"], np.ones(shape), np.zeros(shape[0], int))[f"rho_spectrum@{m}"])
        return
    features = np.random.default_rng(14).standard_normal(shape).astype(np.float32)
    for block in (7, 65536):
        monkeypatch.setattr(_space, "BLOCK", block)
        measured = metrics.compute([f"rho_spectrum@{m}"], features, np.zeros(shape[0], int))[f"rho_spectrum@{m}"]
        assert measured == pytest.approx(plain_rho(features, m), rel=1e-9, abs=1e-12)


def test_rho_of_a_space_of_low_rank_is_floored():
    features = np.random.default_rng(15).standard_normal((40, 2)) @ np.random.default_rng(16).standard_normal((2, 6))
    measured = metrics.compute(["rho_spectrum@1", "rho_spectrum@0"], features, np.zeros(40, int))
    assert measured["rho_spectrum@1"] == pytest.approx(plain_rho(features, 1), rel=1e-9)
    assert measured["rho_spectrum@0"][-1] == pytest.approx(1e-8 * measured["rho_spectrum@0"][0])
    assert metrics.compute(["rho_spectrum@1"], np.zeros((4, 3)), np.zeros(4, int))["rho_spectrum@1"] == 0.0


# ---------------------------------------------------------------------------------------------------------------------- clustering
def plain_f1(labels, clusters):
    together = found = true = 0
    for i in range(len(labels)):
        for j in range(i):
            together += labels[i] == labels[j] and clusters[i] == clusters[j]
            found += clusters[i] == clusters[j]
            true += labels[i] == labels[j]
    if not found + true:
        return 1.0
    if not together:
        return 0.0
    precision, recall = together / found, together / true
    return 2 * precision * recall / (precision + recall)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 12), st.integers(1, 12))
def test_clustering_metrics_agree_with_scikit_learn(seed, n, classes, parts):
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    clusters = np.where(rng.random(n) < 0.4, labels, rng.integers(0, parts, n))
    measured = metrics.compute(["nmi", "ami", "f1"], rng.standard_normal((n, 2)), labels, clusters=clusters)
    assert measured["nmi"] == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-10)
    assert measured["f1"] == pytest.approx(plain_f1(labels, clusters), abs=1e-12)
    expected = adjusted_mutual_info_score(labels, clusters)
    if abs(expected) < 1e3:  # where chance explains everything, both are a quotient of rounding errors
        assert measured["ami"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("partition", ["one", "each"])
def test_clustering_limits(partition):
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    labels = np.zeros(8, int) if partition == "one" else np.arange(8)
    for clusters in (np.zeros(8, int), np.arange(8), np.arange(8) % 3):
        measured = metrics.compute(["nmi", "ami", "f1"], np.ones((8, 1)), labels, clusters=clusters)
        assert measured["nmi"] == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-12)
        assert measured["ami"] == pytest.approx(adjusted_mutual_info_score(labels, clusters), abs=1e-9)
        assert measured["f1"] == pytest.approx(plain_f1(labels, clusters), abs=1e-12)


def test_kmeans_has_as_many_clusters_as_the_queries_have_classes_and_follows_the_seed():
    features, labels = random_space(n=200, classes=8, spread=0.05, seed=17)
    reference, reference_labels = random_space(n=30, classes=20)
    space = _space.EmbeddingSpace(features, labels * 3, reference, reference_labels)
    assert len(np.unique(space.clusters)) == 8
    rough = random_space(n=200, classes=8, spread=1.5, seed=18)
    values = [metrics.compute(["nmi"], *rough, seed=seed)["nmi"] for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


def test_of_several_kmeans_starts_the_measures_are_means():
    names, rough = ["nmi", "ami", "f1", "c_nmi"], random_space(n=200, classes=8, spread=1.5, seed=18)
    apart = [metrics.compute(names, *rough, seed=seed) for seed in range(3)]
    together = metrics.compute(names, *rough, seed=range(3))
    for name in names:
        assert together[name] == pytest.approx(np.mean([one[name] for one in apart]), abs=1e-12)
    assert metrics.compute(names, *rough, seed=[2]) == apart[2]
    clusters = np.arange(200) % 8
    assert metrics.compute(names, *rough, clusters=clusters, seed=range(3)) == metrics.compute(names, *rough, clusters=clusters)
    for seeds in ([], [0.5], "012"):
        with pytest.raises(UserError, match="no whole number"):
            metrics.compute(names, *rough, seed=seeds)


@pytest.mark.parametrize(("n", "k", "d", "spread"), [(1500, 280, 32, 1.2), (1500, 30, 8, 3.0), (500, 499, 4, 1.0), (900, 200, 2, 0.01)])
def test_kmeans_is_that_of_faiss_and_torch_can_do_it_too(monkeypatch, n, k, d, spread):
    import faiss

    features = random_space(n=n, d=d, classes=k // 8, spread=spread, seed=19)[0].astype(np.float32)
    bare = faiss.Kmeans(d, k, niter=20, seed=5, min_points_per_centroid=1, max_points_per_centroid=10**6)
    bare.train(features)
    expected = bare.index.search(features, 1)[1][:, 0]
    assert (_kmeans.kmeans(features, k, seed=5) == expected).mean() > 0.999
    monkeypatch.setattr(_kmeans, "searcher", _kmeans.on_torch)
    by_torch = _kmeans.kmeans(features, k, seed=5)
    assert inertia(features, by_torch) == pytest.approx(inertia(features, expected), rel=0.02)


def inertia(features, clusters):
    return sum(float(((features[clusters == c] - features[clusters == c].mean(0)) ** 2).sum()) for c in np.unique(clusters))


def test_kmeans_of_fewer_places_than_clusters_ends():
    places = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    for k in (3, 5, 12):
        clusters = _kmeans.kmeans(places, k)
        assert clusters.shape == (12,)
        assert all(len(set(clusters[i : i + 4])) == 1 for i in (0, 4, 8))  # duplicates stay together
    assert metrics.compute(["nmi"], np.ones((6, 2)), np.arange(6))["nmi"] == 0.0


# ------------------------------------------------------------------------------------------------------------- pytorch-metric-learning
def test_agrees_with_pytorch_metric_learning():
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    features, labels = random_space(n=150, classes=30, spread=0.8, seed=20)
    features = features.astype(np.float32)
    names = {
        "precision_at_1": "precision@1", "mean_average_precision_at_r": "map_r", "r_precision": "r_precision",
        "mean_reciprocal_rank": "mrr", "mean_average_precision": "map@149",
    }  # fmt: skip
    for averages, suffix in ((False, ""), (True, "_macro")):
        calculator = AccuracyCalculator(include=tuple(names), k=149, avg_of_avgs=averages, device=torch.device("cpu"))
        expected = calculator.get_accuracy(torch.from_numpy(features), torch.from_numpy(labels))
        measured = metrics.compute([name + suffix for name in names.values()], features, labels)
        for theirs, ours in names.items():
            assert measured[ours + suffix] == pytest.approx(expected[theirs], abs=1e-6), ours


# --------------------------------------------------------------------------------------------------------------------------- names
ILL_FORMED = ["e_recall@0", "e_recall@x", "e_recall@", "e_recall", "e_recall@-1", "e_recall@1.5", "e_recall@01", "e_recall@1@2"]
ILL_FORMED += ["e_recall@k", "c_recall@0", "recall@1", "rho_spectrum@x", "rho_spectrum@", "rho_spectrum", "rho_spectrum@m"]
ILL_FORMED += ["rho_spectrum@1.0", "nmi@1", "nmi_macro", "c_nmi_macro", "dists@intra_macro", "dists@foo", "dists", "c_dists@intra"]
ILL_FORMED += ["c_rho_spectrum@1", "c_e_recall@1", "mAP_1001", "map", "", "c_", "@1", "_macro"]


@pytest.mark.parametrize("name", ILL_FORMED)
def test_ill_formed_names_are_refused_in_one_line(name):
    with pytest.raises(UserError) as error:
        metrics.check(name)
    assert "\n" not in str(error.value) and repr(name) in str(error.value)


def test_an_unknown_name_comes_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'map_r'"):
        metrics.check("mapr")


def test_every_listed_name_and_variant_is_accepted_and_within_its_range():
    features, labels = random_space(n=50)
    for name, caption in metrics.listing():
        assert caption and "is better" in caption
        variants = caption.rpartition("; also ")[2].split(", ") if "; also " in caption else []
        for variant in [name, *variants]:
            for parameter in {"k": ["1", "5"], "m": ["0", "-1", "2"]}.get(name.partition("@")[2], [""]):
                asked = variant.replace("@k", "@" + parameter).replace("@m", "@" + parameter) if parameter else variant
                metrics.check(asked)
                value = metrics.compute([asked], features, labels)[asked]
                assert isinstance(metrics.higher_is_better(asked), bool)
                assert metrics.is_array(asked) == isinstance(value, np.ndarray)
                assert metrics.is_array(asked) or isinstance(value, float)
                assert np.all(np.asarray(value) >= -1) and np.all(np.isfinite(value))


def test_names_of_the_defaults_and_their_groups():
    default = ["e_recall@1", "e_recall@2", "e_recall@4", "nmi", "f1", "mAP_1000", "mAP_lim", "mAP_c", *DISTS]
    default += [f"rho_spectrum@{m}" for m in (0, -1, 1, 2, 10)]
    measured = metrics.compute(default, *random_space(d=16))
    assert list(measured) == default and len(measured["rho_spectrum@0"]) == 16
    assert [metrics.group(name) for name in ("e_recall@1", "nmi", "dists@intra")] == ["e_recall", "nmi", "dists"]
    assert not metrics.higher_is_better("rho_spectrum@2") and metrics.higher_is_better("c_map_r_macro")


def test_a_new_file_is_a_new_metric(monkeypatch, tmp_path):
    """One file, nothing else: found, listed, with its variants."""
    (tmp_path / "last_rank.py").write_text(
        inspect.cleandoc(
            """
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
        )
    )
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    monkeypatch.setattr(type(metrics.REGISTRY), "names", lambda self: ["e_recall", "last_rank"])
    features, labels = random_space(n=30, classes=4)
    same = [[j for j in range(30) if j != i and labels[j] == labels[i]] for i in range(30)]
    expected = [max(ranked(features[i], features, i).index(j) + 1 for j in same[i]) for i in range(30)]
    assert metrics.compute(["last_rank"], features, labels)["last_rank"] == pytest.approx(np.mean(expected))
    assert [name for name, _ in metrics.listing()] == ["e_recall@k", "last_rank"]
    metrics.check("c_last_rank_macro")


def test_labels_of_numbers_are_not_compared_with_names():
    for labels, reference_labels in (([0, 1, 2], ["0", "1", "2"]), (["0", "1", "2"], [0, 1, 2])):
        with pytest.raises(UserError, match="give numbers, or names"):
            metrics.compute(["e_recall@1"], np.eye(3), labels, np.eye(3), reference_labels)
    assert metrics.compute(["e_recall@1"], np.eye(3), ["a", "bb", "c"], np.eye(3), ["a", "bb", "c"]) == {"e_recall@1": 1.0}
