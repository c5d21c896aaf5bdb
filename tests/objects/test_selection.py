"""experiments/objects/selection.py and sets.py on made models: what is a class, and what is in which set."""

from collections import Counter

import numpy as np
import pytest

from experiments.objects import selection, sets
from experiments.objects.selection import distinct, few_per_series, fixed_views, geometry_hash, part_series
from experiments.objects.sets import Entry
from tests.objects.models import box, joined

GREEN = (0.1, 0.6, 0.2)
BODY = box((4.0, 2.0, 1.0), diffuse=GREEN)
PIN = box((0.2, 0.2, 2.0), (0.5, 0.5, -2.0), diffuse=(0.9, 0.9, 0.9))
PART = joined(BODY, PIN)


def shuffled(model, seed=0):
    """The same triangles in another order, their corners too."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(model.corners))
    corners = np.stack([triangle[rng.permutation(3)] for triangle in model.corners[order]])
    return model._replace(corners=corners, material=model.material[order], uv=model.uv[order])


def test_the_hash_is_free_of_order_and_place():
    moved = PART._replace(corners=PART.corners + (7.5, -3.25, 1000.125))
    numbered = PART._replace(material=1 - PART.material, materials=PART.materials[::-1])
    for equal in (shuffled(PART), shuffled(moved, 1), numbered):
        assert geometry_hash(equal) == geometry_hash(PART)
    below_the_grid = PART._replace(corners=PART.corners + np.where(PART.corners > 1, 1e-5, 0))
    assert geometry_hash(below_the_grid) == geometry_hash(PART)


@pytest.mark.parametrize(
    "variant",
    [
        joined(BODY, PIN, PIN),
        joined(BODY, box((0.2, 0.2, 2.0), (0.5, 0.502, -2.0), diffuse=(0.9, 0.9, 0.9))),
        joined(BODY, box((0.2, 0.2, 2.0), (0.5, 0.5, -2.0), diffuse=(0.89, 0.9, 0.9))),
        PART._replace(corners=PART.corners * (-1, 1, 1)),
        PART._replace(corners=PART.corners * 2),
    ],
    ids=["a pin twice", "moved pin", "colour", "mirrored", "scaled"],
)
def test_the_hash_tells_models_apart(variant):
    assert geometry_hash(variant) != geometry_hash(PART)


def test_nearly_equal_models_are_dropped():
    models = {
        "part": PART,
        "copy": shuffled(PART),
        "scaled": PART._replace(corners=PART.corners * 3),
        "hardly longer": joined(box((4.02, 2.0, 1.0), diffuse=GREEN), PIN),
        "recoloured": joined(box((4.0, 2.0, 1.0), diffuse=(0.7, 0.1, 0.1)), PIN),
        "longer": joined(box((8.0, 2.0, 1.0), diffuse=GREEN), PIN),
        # a cover of glass around it, which is opaque here
        "glass": joined(PART, box((5.0, 3.0, 2.0), (-0.5, -0.5, 0.0), diffuse=(0.9, 0.9, 1.0))),
    }
    views = np.stack([fixed_views(model) for model in models.values()])
    assert views.shape == (7, 6, 32, 32, 3)
    assert [list(models)[row] for row in distinct(views)] == ["part", "recoloured", "longer", "glass"]


def slow_distinct(views, threshold):
    values = views.reshape(len(views), 6, -1) / 255
    survivors = []
    for row in range(len(values)):
        distances = [sorted(np.sqrt(((values[row] - values[survivor]) ** 2).mean(axis=1)))[2] for survivor in survivors]
        if all(distance >= threshold for distance in distances):
            survivors.append(row)
    return survivors


def test_blocks_equal_a_plain_loop(monkeypatch):
    monkeypatch.setattr(selection, "BLOCK", 7)
    rng = np.random.default_rng(0)
    centres = rng.integers(0, 200, (12, 6, 32, 32, 3))
    views = centres[rng.integers(0, 12, 40)] + rng.integers(0, 40, (40, 6, 1, 1, 1))
    views = views.astype(np.uint8)
    survivors = distinct(views)
    assert survivors == slow_distinct(views, 0.04) and 12 <= len(survivors) < 40
    assert distinct(views[:0]) == []


def test_of_equal_models_the_first_name_stays():
    assert selection.first_of_equal(["c", "a", "b", "d"], [b"1", b"1", b"2", b"2"]) == [1, 2]


def test_series_of_parts():
    assert part_series("LED.3dshapes/LED_D5.0mm-3") == "LED.#dshapes/LED_D#mm-#"
    names = [f"R.3dshapes/R_{number}" for number in range(12)] + ["R.3dshapes/Rx_1", "S.3dshapes/R_1"]
    chosen = few_per_series(names)
    assert Counter(map(part_series, chosen)) == {"R.#dshapes/R_#": 5, "R.#dshapes/Rx_#": 1, "S.#dshapes/R_#": 1}
    # one name less moves one
    assert len(set(few_per_series([name for name in names if name != chosen[0]])) - set(chosen)) <= 1


def entries(n_series=60):
    """Parts and furniture of series of one to five classes."""
    classes = [
        Entry(f"p/S{series}x_{k}", f"p.3dshapes/{chr(97 + series % 26)}{'x' * series}_{k}", "", "")
        for series in range(n_series)
        for k in range(1 + series % 5)
    ]
    return classes + [Entry(f"furniture_a/c_chair{k}", f"c/chair{k}/chair{k}.obj", "", "") for k in range(3)]


def test_no_series_is_on_two_sides():
    classes = entries()
    series = {entry.label: entry.series for entry in classes}
    assert series["furniture_a/c_chair2"] == "chair" and len(set(series.values())) == 61
    training = sets.training_half(classes)
    assert 0 <= len(training) - len(classes) / 2 < 5
    assert not {series[label] for label in training} & {series[label] for label in set(series) - training}
    for size in (20, 7):
        groups = sets.disjoint_sets(classes, size)
        assert len(groups) >= 0.7 * len(classes) // size and {len(group) for group in groups} == {size}
        assert len(set().union(*groups)) == size * len(groups)
        of_set = [{series[label] for label in group} for group in groups]
        assert sum(map(len, of_set)) == len(set().union(*of_set))
    # the order of the models does not matter
    assert sets.disjoint_sets(classes[::-1], 7) == sets.disjoint_sets(classes, 7)
    assert sets.training_half(classes[::-1]) == training


def test_draws_use_each_set_once_per_side():
    groups = [[f"{number}"] for number in range(6)]
    splits = sets.draws(groups)
    assert [(s["train"][0], s["test"][0], s["val"][0]) for s in splits] == [
        ("0", "1", "2"),
        ("2", "3", "4"),
        ("4", "5", "0"),
    ]
    assert len(sets.draws(groups[:5])) == 2
