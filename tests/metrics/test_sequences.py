"""A query does not find the samples of its own group, whatever the path of the search, against plain loops."""

import numpy as np
import pytest
import torch

import metrics
from metrics._search import Limits, Search
from tests.metrics._plain import RETRIEVAL, assert_retrieval, plain_per_query, random_space, ranked
from tests.metrics.test_search import LIMITS, searched
from utilities.errors import UserError


def groups(size, of, seed=0):
    """Numbers of `of` groups, a third of the samples in none."""
    generator = np.random.default_rng(seed)
    return np.where(generator.random(size) < 1 / 3, -1, 7 * generator.integers(0, of, size))


@pytest.mark.parametrize("limits", [*LIMITS[:-1], pytest.param(LIMITS[-1], marks=pytest.mark.long)])
@pytest.mark.parametrize("rounded", [False, True])
def test_a_set_in_itself(limits, rounded):
    features, labels = random_space(spread=2.0, seed=31)
    features = np.round(features) if rounded else features
    features[40:60] = features[0]  # duplicates, of several classes and groups
    for of in (2, 40):
        for names in (RETRIEVAL, ["e_recall@2"], ["map_r", "mAP_c", "e_recall@4"], ["mrr"], ["map@3"]):
            searched(features, labels, names, limits, query_sequences=groups(120, of))


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("rounded", [False, True])
def test_in_a_reference(limits, rounded):
    features, labels = random_space(n=150, spread=2.0, seed=32)
    features = np.round(features) if rounded else features
    features[100:110] = features[40]
    numbers = groups(150, 12, seed=1)
    exclude = np.where(np.arange(50) < 30, -1, np.arange(50) - 30)  # queries 30 to 49 are the reference's 0 to 19
    given = {"reference": features[30:], "reference_labels": labels[30:], "exclude": exclude}
    for of_queries, of_reference in (
        (numbers[:50], numbers[30:]),
        (numbers[:50], numbers[30:][::-1]),
    ):  # with itself in its group, and apart
        for names in (RETRIEVAL, ["map_r", "mAP", "mrr"]):
            searched(features[:50], labels[:50], names, limits, **given, query_sequences=of_queries, reference_sequences=of_reference)


def test_a_class_that_is_all_of_the_querys_group_but_its_last_samples():
    """The scores that set a cut are those of the class's first samples: where the query may find none of these, it may others."""
    features, _ = random_space(n=90, spread=3.0, seed=33)
    labels, numbers = np.arange(90) % 2, np.where(np.arange(90) < 60, 5, -1)
    for limits in (Limits(pairs=3), Limits(pairs=3, columns=16, rows=8, sample=10)):
        searched(features, labels, ["mrr", "e_recall@1", "map_r"], limits, query_sequences=numbers)


@pytest.mark.parametrize("share", [1.0, 0.95])
def test_one_group_holds_all_or_nearly_all(share):
    features, labels = random_space(n=100, seed=34)
    numbers = np.where(np.arange(100) < 100 * share, 3, -1)
    for limits in (Limits(), Limits(columns=16, rows=8, sample=10)):
        searched(features, labels, RETRIEVAL, limits, query_sequences=numbers)
    nothing = metrics.compute(["e_recall@1", "map_r", "mAP_c"], features, labels, query_sequences=np.zeros(100, int), uncounted=-1.0)
    assert nothing == {"e_recall@1": 0.0, "map_r": -1.0, "mAP_c": 0.0}


def test_means_and_macro_means_and_names():
    features, labels = random_space(n=80, classes=6, seed=35)
    numbers = groups(80, 9, seed=2)
    assert_retrieval(features, labels, query_sequences=numbers)
    names = ["map_r", "e_recall@2", "c_map_r", "nmi", "dists@intra"]
    by_number = metrics.compute(names, features, labels, query_sequences=numbers)
    texts = np.where(numbers < 0, "", np.char.add("track ", numbers.astype(str)))
    given = [texts, texts.astype(object), np.array([None if n < 0 else int(n) for n in numbers], dtype=object), torch.from_numpy(numbers)]
    given += [np.array([text or None for text in texts], dtype=object), numbers.astype(np.int16), numbers.tolist()]
    for other in given:
        assert metrics.compute(names, features, labels, query_sequences=other) == by_number
    without = metrics.compute(names, features, labels)
    assert without["map_r"] != by_number["map_r"] and without["c_map_r"] != by_number["c_map_r"]
    assert (without["nmi"], without["dists@intra"]) == (by_number["nmi"], by_number["dists@intra"])


def test_no_group_is_as_no_groups():
    features, labels = random_space(n=60, seed=36)
    none = np.full(60, -1)
    assert metrics.compute(RETRIEVAL, features, labels, query_sequences=none) == metrics.compute(RETRIEVAL, features, labels)
    gallery = {"reference": features[20:], "reference_labels": labels[20:]}
    apart = {"query_sequences": np.arange(20), "reference_sequences": np.arange(40) + 20}
    assert metrics.compute(RETRIEVAL, features[:20], labels[:20], **gallery, **apart) == metrics.compute(
        RETRIEVAL, features[:20], labels[:20], **gallery
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(columns=16, rows=8, sample=10)])
def test_neighbours_are_of_other_groups(limits):
    features, labels = random_space(n=70, seed=37)
    features = np.round(features)
    numbers = groups(70, 4, seed=3)
    space = metrics.EmbeddingSpace(features, labels, query_sequences=numbers)
    space.search = Search(space, limits)
    for query, found in enumerate(space.neighbours(69)):
        hidden = {j for j in range(70) if numbers[query] >= 0 and numbers[j] == numbers[query]}
        expected = [j for j in ranked(features[query], features, query) if j not in hidden]
        assert found.tolist() == expected + [-1] * (69 - len(expected))
        assert space.visible[query] == len(expected)
        assert space.relevant[query] == sum(labels[j] == labels[query] for j in expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types_of_features(dtype):
    features, labels = random_space(n=50, seed=38)
    features, numbers = torch.from_numpy(features).to(dtype), groups(50, 6)
    expected = plain_per_query(["map_r", "e_recall@1"], features.double().numpy(), labels, query_sequences=numbers)
    measured = metrics.per_query(list(expected), metrics.EmbeddingSpace(features, labels, query_sequences=numbers))
    for name, values in expected.items():
        np.testing.assert_allclose(measured[name], values, atol=1e-12)


def test_a_search_in_itself_still_computes_each_score_once():
    features, labels = random_space(n=120, spread=0.2, seed=21)
    numbers = np.where(np.arange(120) % 3, np.arange(120) // 4, -1)
    work = searched(features, labels, ["map_r", "mAP_c", "e_recall@2"], Limits(columns=32, rows=8, sample=20), query_sequences=numbers)
    assert work.scores == sum(8 * (120 - start) for start in range(0, 120, 8))


@pytest.mark.parametrize(
    ("groups_of", "words"),
    [
        ({"query_sequences": np.zeros(4, int)}, "query_sequences must be (5,)"),
        ({"query_sequences": np.zeros(5)}, "of type float64"),
        ({"query_sequences": np.array([1, "a", None, 2, 3], dtype=object)}, "whole numbers, -1 for none, or names"),
        ({"query_sequences": np.zeros(5, bool)}, "of type bool"),
        ({"reference_sequences": np.zeros(5, int)}, "give both"),
        ({"query_sequences": np.zeros(5, int), "reference_sequences": np.zeros(5, int)}, "query_sequences alone"),
        ({"query_sequences": np.zeros(5, int), "reference": np.eye(3, 2), "reference_labels": np.zeros(3, int)}, "give both"),
        (
            {"query_sequences": np.zeros(5, int), "reference": np.eye(3, 2), "reference_labels": np.zeros(3, int), "reference_sequences": list("abc")},
            "numbers, or names",
        ),
    ],
)  # fmt: skip
def test_bad_groups_are_one_line(groups_of, words):
    with pytest.raises(UserError) as error:
        metrics.compute(["e_recall@1"], np.eye(5, 2), np.zeros(5, int), **groups_of)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.gpu
@pytest.mark.parametrize("limits", LIMITS)
def test_on_a_gpu(limits):
    features, labels = random_space(spread=2.0, seed=31)
    features, numbers = np.round(features), groups(120, 12)
    searched(features, labels, RETRIEVAL, limits, device="cuda", query_sequences=numbers)
    given = {"reference": features[30:], "reference_labels": labels[30:], "reference_sequences": numbers[30:]}
    searched(features[:30], labels[:30], RETRIEVAL, limits, device="cuda", query_sequences=numbers[:30], **given)
