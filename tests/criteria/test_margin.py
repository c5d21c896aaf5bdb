"""Margin loss: loops, pytorch-metric-learning, its beta in all forms."""

import pytest
import torch
from pytorch_metric_learning import distances, losses

import batch_mining
import criteria
from tests.criteria._oracles import MIXED, check_empty, check_finite, check_tuples, criterion_of, distance, embeddings_of, mined, rows
from utilities.tuples import as_triplets


def slow(tuples, nu):
    def value(criterion, x):
        beta = criterion.beta
        total, active, betas = x.sum() * 0, 0, 0.0
        for a, p, n in rows(as_triplets(tuples)):
            b = beta if isinstance(beta, float) else beta[0 if len(beta) == 1 else MIXED[a]].double()
            terms = torch.relu(distance(x, a, p) - b + criterion.margin), torch.relu(b - distance(x, a, n) + criterion.margin)
            total = total + sum(terms)
            active += sum(bool(term > 0) for term in terms)
            betas = betas + b
        return (total + nu * betas) / active if active else total

    return value


def spread_out(criterion):
    """Give every class a beta of its own."""
    if isinstance(criterion.beta, torch.Tensor):
        with torch.no_grad():
            criterion.beta.add_(torch.linspace(0, 1.5, len(criterion.beta)))


@pytest.mark.parametrize("nu", [0.0, 0.3])
@pytest.mark.parametrize("form", [{}, {"loss_margin_beta_shared": True}, {"loss_margin_beta_constant": True, "loss_margin_beta": 2.5}])
@pytest.mark.parametrize("miner", ["all", "rho_distance", "none"])
def test_value(miner, form, nu):
    tuples = mined(miner, embeddings_of())
    check_tuples("margin", slow(tuples, nu), tuples, prepare=spread_out, loss_margin_nu=nu, **form)


@pytest.mark.parametrize("nu", [0.0, 0.3])
def test_gradient_of_beta(nu):
    x, y = embeddings_of(), torch.tensor(MIXED)
    tuples = mined("all", x)
    criterion = criterion_of("margin", tuples, loss_margin_nu=nu).double()
    spread_out(criterion)
    torch.testing.assert_close(*(torch.autograd.grad(v, criterion.beta)[0] for v in (criterion(x, y), slow(tuples, nu)(criterion, x))))


@pytest.mark.parametrize("per_class", [True, False])
def test_agrees_with_pytorch_metric_learning(per_class):
    x, y = embeddings_of(), torch.tensor(MIXED)
    tuples = mined("all", x)
    criterion = criterion_of("margin", tuples, loss_margin_beta_shared=not per_class)
    metric = distances.LpDistance(normalize_embeddings=False)
    oracle = losses.MarginLoss(margin=0.2, beta=1.2, learn_beta=True, num_classes=5 if per_class else None, distance=metric)
    value, expected = criterion(x, y), oracle(x, y, tuple(tuples))
    torch.testing.assert_close(value, expected)
    for one, two in zip(torch.autograd.grad(value, [x, criterion.beta]), torch.autograd.grad(expected, [x, oracle.beta]), strict=True):
        torch.testing.assert_close(one, two.view_as(one))


@pytest.mark.parametrize("form, shape", [({}, (5,)), ({"loss_margin_beta_shared": True}, (1,))])
def test_beta_is_in_one_group_without_decay(form, shape):
    criterion = criterion_of("margin", [], loss_margin_beta_lr=0.01, **form)
    assert criterion.beta.shape == shape
    assert (criterion.beta == 1.2).all()
    (group,) = criterion.optim_dict_list
    assert group["params"] == list(criterion.parameters())
    assert (group["lr"], group["weight_decay"]) == (0.01, 0)


def test_a_constant_beta_may_be_learned_as_a_hyperparameter():
    x, labels = embeddings_of(MIXED), torch.tensor(MIXED)
    given = mined("random", x, MIXED)
    learned = criterion_of("margin", given, loss_margin_beta_constant=True, loss_margin_nu=0.3, loss_learn=["beta"])
    shared = criterion_of("margin", given, loss_margin_beta_shared=True, loss_margin_nu=0.3)
    torch.testing.assert_close(learned(x, labels), shared(x, labels))
    torch.testing.assert_close(*(torch.autograd.grad(c(x, labels), c.beta)[0].sum() for c in (learned, shared)))


def test_constant_beta_is_no_parameter():
    criterion = criterion_of("margin", [], loss_margin_beta_constant=True, loss_margin_beta=0.6)
    assert list(criterion.parameters()) == criterion.optim_dict_list == []
    assert criterion.beta == 0.6


def test_beta_moves():
    torch.manual_seed(0)
    x, y = embeddings_of(dtype=torch.float32), torch.tensor(MIXED)
    criterion = criteria.select("margin", None, batch_mining.select("distance"), n_classes=7)
    optimizer = torch.optim.Adam(criterion.optim_dict_list)
    criterion(x, y).backward()
    optimizer.step()
    assert (criterion.beta[:3] != 1.2).all()
    assert (criterion.beta[4:] == 1.2).all()  # classes that are not in the batch
    assert criterion.stats["beta"] == pytest.approx(1.2)


def test_nothing_active_is_zero_with_a_graph():
    x = torch.tensor([[0.0], [0.1], [9.0], [9.1]], requires_grad=True)
    tuples = mined("all", x, [0, 0, 1, 1])
    criterion = criterion_of("margin", tuples, loss_margin_nu=0.5)
    value = criterion(x, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value == 0
    assert (x.grad == 0).all()
    assert (criterion.beta.grad == 0).all()


@pytest.mark.parametrize("form", [{}, {"loss_margin_nu": 0.1}, {"loss_margin_beta_shared": True}, {"loss_margin_beta_constant": True}])
def test_nothing_mined(form):
    check_empty("margin", **form)


def test_finite():
    check_finite("margin", ["all", "distance", "rho_distance"], loss_margin_nu=0.1)
