"""Labels of several levels: the pins of HAPPIER, random levels against plain loops, what cannot be levels."""

import numpy as np
import pytest

import metrics
from metrics.neighbours.search import Limits, Search
from tests.kit.plain_metrics import orders, plain_hierarchical, plain_value, random_levels, unit
from tests.kit.refusals import refused

HIERARCHICAL = ["h_ap", "h_ap_others", "asi", "ndcg"]
RANKED = ["e_recall@1", "e_recall@4", "ap", "map_r", "map@3", "mAP_c", "mrr", "r_precision"]


def levels_in_order(levels, n_levels):
    """A query, and samples that it finds in this order and that share so many levels with it."""
    labels = [[0] * n_levels]
    for i, level in enumerate(levels):
        own_labels = [10 * i + column + 1 for column in range(n_levels)]
        labels.append(own_labels[: n_levels - level] + [0] * level)
    return np.arange(len(levels) + 1.0)[:, None], np.array(labels)


PIN = {"h_ap": 0.832143, "h_ap_others": 0.758333, "ndcg": 0.785043, "asi": 0.479167, "asi_level0": 0.25, "ap": 0.5}
PIN |= {"ap_level0": 0.5, "ap_level1": 0.8875, "e_recall@1": 0, "e_recall@1_level1": 1}


@pytest.mark.parametrize(("levels", "pin"), [([1, 2, 0, 2, 1], PIN), ([2, 1, 0], {"h_ap": 1.0, "h_ap_others": 1.0})])
def test_the_pins_of_the_standard(levels, pin):
    """Of levels 2 1 0, the query counted, both classes have relevance 1/2, counted once. HAPPIER's function gives 2."""
    results = metrics.per_query(list(pin), metrics.EmbeddingSpace(*levels_in_order(levels, 2)))
    assert {name: values[0] for name, values in results.items()} == pytest.approx(pin, abs=1e-6)


def plain_levels(names, features, labels, reference=None, reference_labels=None, **settings):
    """Name -> a value for each query."""
    reference_labels = labels if reference is None else reference_labels
    n_levels = labels.shape[1]
    values = {name: [] for name in names}
    for label, (itself, order) in zip(labels, orders(features, reference, **settings), strict=True):
        levels = [int((label == reference_labels[j]).sum()) for j in order]
        for name in names:
            base, _, column = name.partition("_level")
            relevant = [level >= n_levels - int(column or 0) for level in levels]
            if base not in HIERARCHICAL:
                value = plain_value(base, relevant, sum(relevant), sum(relevant) + (itself >= 0))
            elif column:
                value = plain_hierarchical(base, list(map(int, relevant)), 1, itself >= 0)
            else:
                value = plain_hierarchical(base, levels, n_levels, itself >= 0)
            values[name].append(value)
    return values


def assert_as_plain(features, labels, limits=None, **settings):
    names = [*HIERARCHICAL, *RANKED]
    for column in range(labels.shape[1]):
        names += [f"{name}_level{column}" for name in [*RANKED, "asi", "ndcg"]]
    space = metrics.EmbeddingSpace(features, labels, **settings)
    space.search = Search(space, limits)
    results = metrics.per_query(names, space)
    expected = plain_levels(names, features, labels, **settings)
    for name in names:
        np.testing.assert_allclose(results[name], expected[name], rtol=0, atol=1e-12, err_msg=name)
    return results


@pytest.mark.parametrize(
    "limits",
    [Limits(), Limits(rows=8, columns=16, sample=9, pairs=2), Limits(rows=4, columns=8, sample=5, candidates=40)],
)
def test_random_levels_by_loops(limits):
    """In a gallery: some queries have no relative there, some are in it, some have a sequence in it."""
    for n_levels in (2, 4):
        assert_as_plain(*random_levels(n_levels, 40, n_levels), limits=limits)
    features, labels = random_levels(7, 60)
    labels[3] = [90, 91, 92]
    labels[4, 0] = 93
    exclude = np.where(np.arange(28) >= 20, np.arange(28) - 20, -1)
    numbers = np.random.default_rng(0).integers(-1, 12, 60)
    queries = (features[:28], labels[:28], limits)
    gallery = {"reference": features[20:], "reference_labels": labels[20:], "exclude": exclude}
    results = assert_as_plain(*queries, **gallery)
    assert np.isnan(results["h_ap"][3:5]).tolist() == [True, False]
    assert np.isnan(results["ap"][4]) and results["e_recall@1"][4] == 0
    assert_as_plain(*queries, **gallery, query_sequences=numbers[:28], reference_sequences=numbers[20:])


def test_means_macro_cosine_and_queries_left_out():
    features, labels = random_levels(1, 50)
    labels[0] = [90, 91, 92]
    plain = plain_levels(["ap_level1", "e_recall@1_level1", "h_ap"], features, labels)
    results = metrics.compute([*plain, "ap_level1_macro", "c_h_ap", "c_recall@1_level1"], features, labels)
    coarse = labels[:, 1]
    of_classes = [np.nanmean(np.array(plain["ap_level1"])[coarse == name]) for name in set(coarse[1:])]
    units = metrics.compute(["h_ap", "e_recall@1_level1"], unit(features), labels)
    expected = {name: np.nanmean(values) for name, values in plain.items()}
    expected |= {"ap_level1_macro": np.nanmean(of_classes), "c_h_ap": units["h_ap"]}
    assert results == pytest.approx({**expected, "c_recall@1_level1": units["e_recall@1_level1"]}, abs=1e-12)
    skipping = metrics.compute(["e_recall@1_level1"], features, labels, skip_unmatched=True)
    assert skipping["e_recall@1_level1"] == pytest.approx(np.mean(plain["e_recall@1_level1"][1:]))


def test_other_metrics_go_by_the_finest():
    features, labels = random_levels(2, 40)
    of_levels = metrics.compute(["map_r", "nmi", "ndcg", "map_r_macro"], features, labels)
    # At this second level no class has a pair, and no metric asks for it
    no_levels = np.stack([labels[:, 0], np.arange(40)], 1)
    for finest in (labels[:, 0], labels[:, :1], no_levels):
        assert of_levels | metrics.compute(["map_r", "nmi", "map_r_macro"], features, finest) == of_levels


@pytest.mark.parametrize("reranker", [metrics.KReciprocal(6, 3), metrics.AlphaExpansion(5, 1.0)])
def test_lists_that_are_ranked_anew(reranker):
    features, labels = random_levels(5, 60)
    features += np.random.default_rng(0).standard_normal(features.shape) / 9
    space = metrics.EmbeddingSpace(features, labels)
    space.search = reranker.search(space)
    lists = space.neighbours(59)
    assert (lists != metrics.EmbeddingSpace(features, labels).neighbours(59)).any()
    levels = [[int((labels[i] == labels[j]).sum()) for j in order] for i, order in enumerate(lists)]
    expected = {}
    for name in HIERARCHICAL:
        expected[name] = np.nanmean([plain_hierarchical(name, of_query, 3, True) for of_query in levels])
    assert metrics.compute(HIERARCHICAL, features, labels, rerank=reranker) == pytest.approx(expected, abs=1e-12)


NESTED = np.array([[0, 0], [1, 0], [2, 1], [2, 1]])


TWO_ABOVE = np.array([[0, 0], [0, 1], [2, 1], [2, 1]])


IS_ABOVE = [[False, True]] * 4


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("h_ap", [TWO_ABOVE], "labels: levels do not nest: 0 of level 0 is in 0 and 1 of level 1"),
        ("h_ap", [np.where(NESTED == 1, np.nan, NESTED)], "labels hold NaN in 3 of 4 rows"),
        ("h_ap", [np.where(IS_ABOVE, -1, NESTED)], "labels: 0 has no class of level 1"),
        ("asi", [np.where(IS_ABOVE, "", NESTED.astype(str))], "labels: 0 has no class of level 1"),
        ("h_ap", [NESTED[:, 0]], "metric 'h_ap' compares levels of classes, and labels have a single level"),
        ("ndcg", [NESTED[:, :1]], "metric 'ndcg' compares levels"),
        (
            "map_r_level2",
            [NESTED],
            "metric 'map_r_level2' compares levels of classes, and labels have the levels 0 to 1",
        ),
        (
            "h_ap",
            [NESTED.T],
            "labels have shape (2, 4): (4,) is expected, one for each row of features, or (4, L)",
        ),
        ("h_ap_level1", [NESTED], "metric 'h_ap_level1' has no variant for one level; use 'h_ap'"),
        ("h_ap", [NESTED, np.eye(4), NESTED[:, 0]], "both need the same levels"),
        ("h_ap", [NESTED, np.eye(4)[:1], [[0, 5]]], "levels do not nest: 0 of level 0 is in 0 and 5 of level 1"),
    ],
)
def test_what_cannot_be_levels_is_one_line(name, arguments, message):
    with refused(None, message):
        metrics.compute(["map_r", name], np.eye(4), *arguments)


def test_lists_have_no_levels():
    with refused("lists have a single level"):
        metrics.compute(["h_ap"], np.eye(4), NESTED, lists=metrics.Lists.of([[1], [0], [3], [2]]))
