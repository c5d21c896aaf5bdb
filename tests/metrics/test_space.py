"""The embedding space: types of features and labels, mistakes, neighbours."""

import numpy as np
import pytest
import torch

import metrics
from metrics import _space
from tests.metrics._plain import plain, random_space, ranked
from utilities.errors import UserError


def test_neighbours_in_order_filled_up_with_minus_one():
    features, labels = random_space(n=12)
    neighbours = _space.EmbeddingSpace(features, labels).neighbours(15)
    assert neighbours[:, :11].tolist() == [ranked(query, features, i) for i, query in enumerate(features)]
    assert (neighbours[:, 11:] == -1).all()


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
