"""Open-set metrics and the certainty of answers against plain loops in float64, pinned values, and what they refuse."""

import numpy as np
import pytest

import metrics
from metrics import certainty, open_set
from metrics._answers import Answers, answers, precision_at_right
from tests.kit.plain_metrics import orders, random_lists, random_space
from tests.kit.refusals import refused
from tests.kit.splits import evaluated, made_splits, options
from tools import measure as command

BY_DISTANCE = "known_auroc known_aupr unknown_aupr fpr@.95 fpr@.5 fpr@1 oscr dir@.1 dir@.5 dir@0 dir@1 gap".split()
NAMES = [*BY_DISTANCE, "micro_ap@1", "micro_ap@3", "micro_ap@1000", "r_auroc", "aurc", "e_aurc"]
TRUTH = np.array(list("aaabbcuuuv"))
PINNED = Answers(
    np.array([0.2, 0.5, 0.6, 0.3, 0.7, 0.4, 0.6, 0.9, 0.8, 0.35]),
    np.array(list("aabbbcacbb")) == TRUTH,
    np.isin(TRUTH, list("abc")),
    TRUTH,
)


def lists_of(features, labels, reference=None, reference_labels=None, k=1, **options):
    """Of each query: whether anything is relevant, and (distance, right) of its `k` nearest images."""
    rows = features if reference is None else reference
    row_labels = labels if reference is None else reference_labels
    results = []
    for query, label, (_, order) in zip(features, labels, orders(features, reference, **options), strict=True):
        nearest = []
        for row in order[:k]:
            distance = float(np.sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(query, rows[row], strict=True))))
            nearest.append((distance, bool(row_labels[row] == label)))
        results.append((any(row_labels[row] == label for row in order), nearest))
    return results


def plain_exceedance(low, high, weights):
    if not low or not high:
        return np.nan
    total = 0.0
    for a, weight in zip(low, weights, strict=True):
        for b in high:
            total += weight * ((a < b) + 0.5 * (a == b))
    return total / (len(low) * len(high))


def plain_aupr(near, far):
    """Average precision of the scores `near`, ascending, among `near` and `far`."""
    if not near or not far:
        return np.nan
    total = 0.0
    for step in sorted(set(near)):
        hits = sum(value <= step for value in near)
        total += near.count(step) * hits / (hits + sum(value <= step for value in far))
    return total / len(near)


def plain_precisions(answered):
    """Sum of the precision at the right ones of (distance, right)."""
    total = 0.0
    hits = 0
    for rank, (_, right) in enumerate(sorted(answered), start=1):
        hits += right
        total += right * hits / rank
    return total


def plain_fpr(near, far, share):
    for threshold in sorted(near):
        if sum(value <= threshold for value in near) >= share * len(near) - 1e-9:
            return np.mean([value <= threshold for value in far])
    raise AssertionError("the last threshold holds all")


def plain_dir(of_known, far, rate):
    allowed = int(rate * len(far) + 1e-9)
    threshold = [*sorted(far), np.inf][allowed]
    assert sum(value < threshold for value in far) <= rate * len(far) + 1e-9, "FPIR is never above the rate"
    return sum(right and distance < threshold for distance, right in of_known) / len(of_known)


def plain_aurc(certain, wrong):
    """Mean over all orders of equally certain queries: their errors are spread evenly."""
    expected = []
    for value in sorted(set(certain), reverse=True):
        block = [error for of_query, error in zip(certain, wrong, strict=True) if of_query == value]
        expected += [float(np.mean(block))] * len(block)
    risks = [sum(expected[:i]) / i for i in range(1, len(expected) + 1)]
    return float(np.mean(risks)) if risks else np.nan


def plain(of_queries, of_pairs, certain=None):
    """Name -> value of all `NAMES`; `of_queries`, `of_pairs`: as `lists_of` gives them, of k 1 and of all."""
    answered = [(is_known, *(nearest or [(np.inf, False)])[0]) for is_known, nearest in of_queries]
    of_known = [(distance, right) for is_known, distance, right in answered if is_known]
    near = [distance for distance, _ in of_known]
    far = [distance for is_known, distance, _ in answered if not is_known]
    if certain is None:
        certain = [-distance for _, distance, _ in answered]
    values = {
        "known_auroc": plain_exceedance(near, far, [1] * len(near)),
        "known_aupr": plain_aupr(near, far),
        "unknown_aupr": plain_aupr([-value for value in far], [-value for value in near]),
        "oscr": plain_exceedance(near, far, [right for _, right in of_known]),
    }
    for share in ("0.95", "0.5", "1"):
        value = plain_fpr(near, far, float(share)) if near and far else np.nan
        values[f"fpr@{share.removeprefix('0')}"] = value
    for rate in ("0.1", "0.5", "0", "1"):
        value = plain_dir(of_known, far, float(rate)) if near and far else np.nan
        values[f"dir@{rate if rate == '0' else rate.removeprefix('0')}"] = value
    values["gap"] = np.nan
    if of_known:
        values["gap"] = plain_precisions([answer[1:] for answer in answered]) / len(of_known)
    total = sum(right for _, nearest in of_pairs for _, right in nearest)
    for k in (1, 3, 1000):
        pairs = [pair for _, nearest in of_pairs for pair in nearest[:k]]
        values[f"micro_ap@{k}"] = plain_precisions(pairs) / total if total else np.nan
    hits = [of_query for of_query, (is_known, _, right) in zip(certain, answered, strict=True) if is_known and right]
    misses = [of_query for of_query, (is_known, _, right) in zip(certain, answered, strict=True) if is_known > right]
    values["r_auroc"] = plain_exceedance([-value for value in hits], [-value for value in misses], [1] * len(hits))
    wrong = [not right for _, _, right in answered]
    values["aurc"] = plain_aurc(certain, wrong)
    values["e_aurc"] = values["aurc"] - plain_aurc([-error for error in wrong], wrong)
    return values


def space_of(seed):
    """Features with many ties, labels, and what else `metrics.compute` takes: ten kinds in turn."""
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 40))
    features = generator.integers(0, 3, (n, 2)).astype(float)
    labels = generator.integers(0, 9, n)
    kind = seed % 10
    options = {}
    if kind == 1:
        features[:] = 1.5
    elif kind == 2:
        labels = np.arange(n)
    elif kind == 3:
        labels = np.concatenate([labels, labels])
        features = np.concatenate([features, generator.integers(0, 3, (n, 2))])
    elif kind == 4:
        labels[:] = 7
    elif kind in (5, 6):
        options = {"reference": generator.integers(0, 3, (25, 2)), "reference_labels": generator.integers(0, 5, 25)}
        if kind == 6:
            options["exclude"] = generator.integers(-1, 25, n)
    elif kind == 7:
        options["query_sequences"] = generator.integers(-1, 4, n)
    elif kind == 8:
        options["query_sequences"] = np.zeros(n, int)
    elif kind == 9:
        features = generator.standard_normal((n, 3))
    return features, labels, options


@pytest.mark.parametrize("kind", range(10))
def test_random_spaces(kind):
    for seed in range(kind, 40, 10):
        features, labels, options = space_of(seed)
        certain = np.random.default_rng(seed).integers(0, 4, len(labels))
        of_queries = lists_of(features, labels, **options)
        of_pairs = lists_of(features, labels, k=100, **options)
        expected = plain(of_queries, of_pairs)
        measured = metrics.compute(NAMES, features, labels, **options)
        assert measured == pytest.approx(expected, abs=1e-12, nan_ok=True), seed
        expected = plain(of_queries, of_pairs, certain.tolist())
        measured = metrics.compute(NAMES, features, labels, certainty=certain, **options)
        assert measured == pytest.approx(expected, abs=1e-12, nan_ok=True), seed
        # with another metric in the same pass
        together = metrics.compute(["map_r", *NAMES, "e_recall@2"], features, labels, certainty=certain, **options)
        assert {name: together[name] for name in NAMES} == pytest.approx(measured, abs=0, nan_ok=True), seed


def test_pin_a():
    values = {"known_auroc": 0.770833, "known_aupr": 0.835714, "unknown_aupr": 0.775, "oscr": 0.666667, "gap": 0.695833}
    for name, value in values.items():
        assert open_set.OF_ANSWERS[name](PINNED) == pytest.approx(value, abs=1e-6), name
    assert open_set.fpr(PINNED, 0.95) == open_set.fpr(PINNED, 0.8) == 0.5
    assert open_set.dir_at(PINNED, 0.25) == pytest.approx(0.666667, abs=1e-6)
    assert open_set.dir_at(PINNED, 0.1) == pytest.approx(0.333333, abs=1e-6)


def test_pin_b():
    distance = -np.array([0.9, 0.9, 0.8, 0.7])
    assert precision_at_right(distance, np.array([True, False, True, False])) / 3 == pytest.approx(0.388889, abs=1e-6)
    hits = np.array([1, 1, 0, 1, 0], dtype=bool)
    for uncertainty, expected in (
        ([0.1, 0.3, 0.2, 0.4, 0.5], {"r_auroc": 0.666667, "aurc": 0.296667, "e_aurc": 0.166667}),
        ([0.1, 0.2, 0.2, 0.4, 0.5], {"r_auroc": 0.75, "aurc": 0.246667}),
    ):
        for name, value in expected.items():
            measured = certainty.OF_ANSWERS[name](-np.array(uncertainty), hits)
            assert measured == pytest.approx(value, abs=1e-6), name


def test_properties():
    """`oscr` is `known_auroc` if all are right; a larger gallery never accepts fewer unknown queries."""
    rightly = PINNED._replace(right=PINNED.known)
    assert open_set.oscr(rightly) == open_set.known_auroc(rightly)
    assert open_set.oscr(PINNED._replace(right=~PINNED.known | PINNED.known, distance=np.ones(10))) == 0.5
    features, labels = random_space(n=90, classes=30, seed=3)
    for size in (21, 40, 89):
        smaller, larger = (
            answers(metrics.EmbeddingSpace(features[:20], np.full(20, -1), features[20:stop], labels[20:stop]))
            for stop in (size, 90)
        )
        assert not smaller.known.any() and (larger.distance <= smaller.distance).all()


def test_scale_does_not_matter_and_c_is_at_unit_length():
    features, labels = random_space(n=70, classes=40, seed=5)
    values = metrics.compute(NAMES, features, labels)
    assert metrics.compute(NAMES, 7 * features, labels) == pytest.approx(values, abs=1e-12)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    cosine = metrics.compute([f"c_{name}" for name in NAMES], features, labels)
    assert list(cosine.values()) == pytest.approx([*metrics.compute(NAMES, features / lengths, labels).values()])


def test_gallery_images_of_no_class_are_left_out_of_answers(capsys):
    features, labels = random_space(n=60, classes=12, seed=4)
    reference, reference_labels = random_space(n=50, classes=9, seed=6)
    of_class = np.arange(50) % 3 > 0
    names = BY_DISTANCE + ["aurc"]
    sequences = {"query_sequences": np.arange(60) % 5, "reference_sequences": np.arange(50) % 5}
    of_part = {"query_sequences": np.arange(60) % 5, "reference_sequences": (np.arange(50) % 5)[of_class]}
    expected = metrics.compute(names, features, labels, reference[of_class], reference_labels[of_class], **of_part)
    assert not capsys.readouterr().out
    exclude = np.where(np.arange(60) == 7, np.flatnonzero(of_class)[3], -1)
    for marked, queries in (
        (np.where(of_class, reference_labels, -1), labels),
        (np.where(of_class, reference_labels.astype(str), ""), labels.astype(str)),
    ):
        measured = metrics.compute([*names, "map_r"], features, queries, reference, marked, **sequences)
        assert {name: measured[name] for name in names} == pytest.approx(expected, abs=1e-12)
        assert capsys.readouterr().out == "open set: 17 of 50 gallery images have no class and are left out\n"
    hidden = metrics.compute(
        names, features, labels, reference, np.where(of_class, reference_labels, -1), exclude=exclude
    )
    of_rest = np.where(np.arange(60) == 7, 3, -1)
    expected = metrics.compute(
        names, features, labels, reference[of_class], reference_labels[of_class], exclude=of_rest
    )
    assert hidden == pytest.approx(expected, abs=1e-12)
    nobody = metrics.compute(["known_auroc", "aurc"], features, labels, reference, np.full(50, -1))
    assert nobody == pytest.approx({"known_auroc": np.nan, "aurc": 1.0}, nan_ok=True)
    pairs = [
        metrics.compute("micro_ap@3", features, labels, reference, marked)["micro_ap@3"]
        for marked in (reference_labels, np.where(of_class, reference_labels, -1))
    ]
    assert pairs[0] != pairs[1], "pairs with images of no class count, as wrong ones"


def test_lists():
    """Positives and junk in place of classes; queries without positives are unknown, and not certain of anything."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((20, 3))
    reference = rng.standard_normal((40, 3))
    positives, junk = random_lists(1, 40, 20)
    of_queries = []
    of_pairs = []
    for query, relevant, ignored in zip(features, positives, junk, strict=True):
        distances = np.sqrt(((query - reference) ** 2).sum(1))
        order = [row for row in np.argsort(distances).tolist() if row not in ignored]
        nearest = [(float(distances[row]), row in relevant) for row in order]
        of_queries.append((len(relevant) > 0, nearest[:1]))
        of_pairs.append((len(relevant) > 0, nearest))
    names = [name for name in NAMES if "aurc" not in name]
    expected = plain(of_queries, of_pairs)
    lists = metrics.Lists.of(positives, junk)
    measured = metrics.compute(names, features, reference=reference, lists=lists)
    assert measured == pytest.approx({name: expected[name] for name in names}, abs=1e-12)
    of_known = plain([pair for pair in of_queries if pair[0]], [])
    skipping = metrics.compute(["aurc", "e_aurc"], features, reference=reference, lists=lists)
    assert skipping == pytest.approx({name: of_known[name] for name in skipping}, abs=1e-12)


def test_refusals():
    features, labels = random_space(n=30)
    for name in (*NAMES, "c_oscr", "known_auroc@d2"):
        assert metrics.searches(name) and not metrics.is_mean_of_queries(name) and metrics.is_share(name), name
        lower = name.startswith(("fpr", "aurc", "e_aurc"))
        assert metrics.higher_is_better(name) == (not lower), name
        with refused(None, repr(name), "goes by distances"):
            metrics.compute(["map_r", name], features, labels, rerank=metrics.KReciprocal(3, 2))
    for (
        name
    ) in "fpr fpr@ fpr@0 fpr@1.5 fpr@x dir@-1 dir@2 dir@ oscr@1 micro_ap@0 micro_ap gap_macro oscr_level1".split():
        with refused(None, repr(name)):
            metrics.check(name)
    for array in (np.zeros(29), np.zeros((30, 1)), np.full(30, "sure"), np.full(30, np.nan)):
        with refused("certainty"):
            metrics.compute("aurc", features, labels, certainty=array)


def write(folder, **arrays):
    """A file of 60 embeddings, some alone in their class, and the words that measure it."""
    features, labels = random_space(n=60, classes=30, seed=8)
    np.savez(folder / "file.npz", **{"features": features, "labels": labels, **arrays})
    return [str(folder / "file.npz"), "--evaluation_metrics", *NAMES]


def test_files_and_their_certainty(tmp_path, capsys):
    features, labels = random_space(n=60, classes=30, seed=8)
    certain = np.arange(60) * 7 % 13
    measured = command.main(write(tmp_path, certainty=certain))
    assert measured == metrics.compute(NAMES, features, labels, certainty=certain)
    is_query = np.arange(60) % 2 > 0
    measured = command.main(write(tmp_path, certainty=certain, is_query=is_query, is_gallery=~is_query))
    of_gallery = features[~is_query], labels[~is_query]
    queries = features[is_query], labels[is_query]
    assert measured == metrics.compute(NAMES, *queries, *of_gallery, certainty=certain[is_query])
    capsys.readouterr()
    command.main(write(tmp_path, labels=np.arange(60) // 2))
    assert "NaN, it needs queries with and without a relevant item" in capsys.readouterr().out
    for array in (np.zeros(59), np.full(60, "sure")):
        with refused("certainty"):
            command.main(write(tmp_path, certainty=array))
    with refused("metric 'known_auroc' goes by distances, which --rerank alpha_qe does not give"):
        command.main([*write(tmp_path), "--rerank", "alpha_qe"])


def test_runs(capsys):
    words = ["--evaluation_metrics", "map_r", "oscr", "aurc", "--storage_metrics", "map_r"]
    scores, embedded, _ = evaluated(made_splits(), *words)
    of_test = embedded["test"]
    expected = metrics.compute(["map_r", "oscr", "aurc"], of_test.features["discriminative"], of_test.labels)
    assert scores["test"] == pytest.approx(expected, nan_ok=True)
    with pytest.raises(SystemExit):
        options(*words, "--rerank", "k_reciprocal")
    assert "metric 'oscr' goes by distances, which --rerank k_reciprocal does not" in capsys.readouterr().err
