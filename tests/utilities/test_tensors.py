"""Small tensor helpers against loops in float64."""

import pytest
import torch
from torch.testing import assert_close

from tests.kit.mining import assert_drawn_with, normal
from utilities import tensors


def points(n=7, d=4, dtype=torch.float64, seed=0):
    return normal(n, d, seed=seed).to(dtype)


def loops(x, y):
    return torch.tensor(
        [[sum((float(a) - float(b)) ** 2 for a, b in zip(p, q, strict=True)) for q in y] for p in x],
        dtype=torch.float64,
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_distances(dtype, tolerance):
    x = points(dtype=dtype)
    y = points(5, dtype=dtype, seed=1)
    for reference, expected in ((None, loops(x, x)), (y, loops(x, y))):
        assert_close(tensors.squared_distances(x, reference).double(), expected, rtol=tolerance, atol=tolerance)
        assert_close(tensors.pairwise_distances(x, reference).double(), expected.sqrt(), rtol=tolerance, atol=tolerance)


def test_equal_points_are_exactly_0_apart_and_have_no_gradient():
    x = (1000 + points(dtype=torch.float32)).repeat(2, 1).requires_grad_()
    distances = tensors.pairwise_distances(x)
    assert (distances.diagonal() == 0).all() and (distances.diagonal(7) == 0).all()
    distances.diagonal(7).sum().backward()
    assert (x.grad == 0).all()


def test_the_root_has_no_infinite_gradient():
    x = torch.tensor([4.0, 0.0, -1.0], requires_grad=True)
    root = tensors.safe_sqrt(x)
    root.sum().backward()
    assert root.tolist() == [2, 0, 0] and x.grad.tolist() == [0.25, 0, 0]


# Few pairs go by their differences, many by the matrix
@pytest.mark.parametrize("repeats", [1, 20])
@pytest.mark.parametrize("squared", [False, True])
def test_distances_of_pairs(repeats, squared):
    x = points().requires_grad_()
    rows = torch.tensor([0, 1, 1, 6]).repeat(repeats)
    columns = torch.tensor([2, 2, 1, 0]).repeat(repeats)
    expected = loops(x.detach(), x.detach())[rows, columns]
    expected = expected if squared else expected.sqrt()
    distances = tensors.pair_distances(x, rows, columns, squared)
    assert torch.equal(tensors.take_pairs(x, rows, columns % 4), x[rows, columns % 4])
    assert_close(distances.detach(), expected)
    distances.sum().backward()
    slow = points().requires_grad_()
    differences = [
        (slow[i] - slow[j]).square().sum() for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if i != j
    ]
    terms = differences if squared else [difference.sqrt() for difference in differences]
    sum(terms).backward()
    assert_close(x.grad, slow.grad)


@pytest.mark.parametrize("repeats", [1, 9])
def test_nan_stays_nan_in_distances_of_pairs(repeats):
    x = torch.tensor([[0.0, 1.0], [torch.nan, 0.0], [1.0, 1.0]])
    rows = torch.tensor([0, 0]).repeat(repeats)
    columns = torch.tensor([1, 2]).repeat(repeats)
    assert tensors.pair_distances(x, rows, columns).isnan().tolist() == [True, False] * repeats


def test_unit_length_and_zero_rows():
    x = points()
    x[2] = 0
    assert_close(tensors.normalize(x).norm(dim=1), (torch.arange(7) != 2).double())


def test_half_precision_is_raised_and_nothing_else():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        expected = torch.float32 if dtype.itemsize == 2 else dtype
        assert tensors.raise_half(torch.ones(1, dtype=dtype)).dtype == expected


def test_means_of_what_a_mask_chooses():
    x = torch.tensor([1.0, 2.0, float("inf")], requires_grad=True)
    assert tensors.masked_mean(x, torch.tensor([True, True, False])) == 1.5
    empty_mean = tensors.masked_mean(x, torch.zeros(3, dtype=torch.bool))
    empty_mean.backward()
    assert empty_mean == 0 and (x.grad == 0).all()


def test_columns_are_drawn_uniformly_from_a_mask():
    torch.manual_seed(0)
    mask = torch.tensor([[True, False, True, True], [False, True, False, False]]).repeat(3000, 1)
    columns = tensors.chosen_uniformly(mask).view(-1, 2)
    assert_drawn_with({0: 1 / 3, 2: 1 / 3, 3: 1 / 3}, columns[:, 0].tolist())
    assert (columns[:, 1] == 1).all()
