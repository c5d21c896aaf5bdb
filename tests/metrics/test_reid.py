"""Re-identification against plain loops: a worked example, queries without a match, the CMC curve."""

import numpy as np
import pytest
from matplotlib.axes import Axes

import metrics
from evaluation import queries
from evaluation.task import Rows, Task
from pictures import space as charts
from tests.kit.plain_metrics import RETRIEVAL, orders, plain_per_query, random_space
from tests.metrics.test_class_recalls import hits_by_part, worst_tenth

# identity and camera, the nearest first
GALLERY = [("1", 1), ("2", 1), ("1", 2), ("-1", 3), ("0", 2), ("1", 3), ("2", 2)]
NAMES = ["e_recall@1", "e_recall@5", "ap", "map@100000", "inp", "mAP"]


def measured(gallery, cameras=True, identities=("1",), **flags):
    """Of queries at 0 in camera 1 that search images at 1, 2, ..."""
    if cameras:
        flags["query_sequences"] = [f"{name}_1" for name in identities]
        flags["reference_sequences"] = [f"{name}_{camera}" for name, camera in gallery]
    places = np.arange(1.0, len(gallery) + 1)[:, None]
    queries = np.zeros((len(identities), 1))
    return metrics.compute(NAMES, queries, list(identities), places, [name for name, _ in gallery], **flags)


def test_the_worked_example():
    """Junk of the query's camera takes no rank: hits at 2 and 4 of 5 (eval_market1501 of torchreid and FastReID)."""
    without_junk = [shot for shot in GALLERY if shot[0] != "-1"]
    right = {"e_recall@1": 0, "e_recall@5": 1, "ap": 0.5, "map@100000": 0.5, "inp": 0.5, "mAP": 0.5}
    assert measured(without_junk) == pytest.approx(right, abs=1e-12)
    with_junk = measured(GALLERY)
    assert (with_junk["ap"], with_junk["inp"]) == pytest.approx((0.45, 0.4))
    assert measured(without_junk, cameras=False)["ap"] == pytest.approx(0.755556, abs=1e-6)
    counted, skipped = (measured(without_junk, identities=("1", "7"), skip_unmatched=skips) for skips in (False, True))
    assert (counted["map@100000"], counted["mAP"], counted["e_recall@5"]) == (0.5, 0.25, 0.5)
    assert skipped == measured(without_junk)
    none_counts = measured(without_junk, identities=("7",), skip_unmatched=True)
    assert np.isnan(list(none_counts.values())).all()


@pytest.mark.parametrize("seed", range(2))
def test_random_lists_by_loops(seed):
    features, labels = random_space(n=60, classes=18, spread=2.0, seed=seed)
    # Rounded features tie
    features = np.round(features)
    numbers = np.random.default_rng(seed + 100).integers(0, 3, 60)
    cameras = [f"{label}_{camera}" for label, camera in zip(labels, numbers, strict=True)]
    queries = (features[:20], labels[:20])
    settings = {"reference": features[20:], "reference_labels": labels[20:]}
    settings |= {"query_sequences": cameras[:20], "reference_sequences": cameras[20:]}
    terms = plain_per_query(RETRIEVAL, *queries, **settings)
    matched = ~np.isnan(terms["ap"])
    assert 0 < matched.sum() < 20
    groups = labels[:20] % 3
    terms = {name: np.array(values)[matched] for name, values in terms.items()}
    of_classes = {name: hits_by_part(values, labels[:20][matched]) for name, values in terms.items()}
    expected = {name: np.mean(values) for name, values in terms.items()}
    expected |= {f"{name}_macro": np.mean(values) for name, values in of_classes.items()}
    expected["e_recall@1_worst10"] = worst_tenth(of_classes["e_recall@1"])
    expected["e_recall@1_group_gap"] = np.ptp(hits_by_part(terms["e_recall@1"], groups[matched]))
    results = metrics.compute(list(expected), *queries, **settings, groups=groups, skip_unmatched=True)
    assert results == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("parents", [False, True])
def test_the_curve_of_matches(parents, monkeypatch, tmp_path):
    features, labels = random_space(n=70, classes=35, spread=3.0, seed=8)
    inside = labels % 2 if parents else np.zeros(70, int)
    super_classes = inside if parents else None
    rows = Rows(features, labels, parents=super_classes)
    task = Task(rows.take(np.arange(25)), rows.take(np.arange(25, 70)), np.full(25, -1))
    hits = []
    for i, (_, order) in enumerate(orders(features[:25], features[25:])):
        hits_in_order = [labels[j + 25] == labels[i] for j in order if inside[j + 25] == inside[i]]
        rank = hits_in_order.index(True) + 1 if any(hits_in_order) else np.inf
        hits.append(rank)
    assert np.inf in hits
    assert queries.first_hits(task, skips=False).tolist() == hits
    ranks = queries.first_hits(task, skips=True)
    assert ranks.tolist() == [hit for hit in hits if hit < np.inf]
    drawings = []
    plot = Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda axis, *data, **style: drawings.append(data) or plot(axis, *data, **style))
    assert charts.cmc(tmp_path / "cmc.png", ranks, "Group").stat().st_size > 1000
    ((k, shares),) = drawings
    assert k.tolist() == list(range(1, 51))
    assert shares.tolist() == pytest.approx([100 * np.mean(ranks <= rank) for rank in k])
