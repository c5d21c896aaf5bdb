"""SNR loss: loops, pytorch-metric-learning, the regularisation that the miner `distance` switches off."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers, regularizers

import batch_mining
import criteria
from tests.criteria._oracles import MIXED, Fixed, check_empty, check_finite, check_tuples, criterion_of, embeddings_of, mined, rows
from utilities.tuples import as_triplets


def slow(tuples, margin, weight):
    def value(criterion, x):
        triplets = rows(as_triplets(tuples))
        terms = []
        for a, p, n in triplets:
            ratios = [torch.var(x[a] - x[i]) / torch.var(x[a]) for i in (p, n)]
            terms.append(torch.relu(ratios[0] - ratios[1] + margin))
        sums = [x[a].sum().abs() for a, _, _ in triplets]
        active = sum(bool(term > 0) for term in terms)
        return sum(terms, x.sum() * 0) / max(active, 1) + weight * sum(sums, x.sum() * 0) / max(len(triplets), 1)

    return value


@pytest.mark.parametrize("miner", ["all", "rho_distance", "random", "none"])
def test_value(miner):
    tuples = mined(miner, embeddings_of())
    check_tuples("snr", slow(tuples, 0.4, 0.3), tuples, loss_snr_margin=0.4, loss_snr_reg_lambda=0.3)


def test_agrees_with_pytorch_metric_learning():
    x, y = embeddings_of(), torch.tensor(MIXED)
    tuples = mined("all", x)
    value = criterion_of("snr", tuples, loss_snr_reg_lambda=0.0)(x, y)
    metric = distances.SNRDistance(normalize_embeddings=False)
    expected = losses.TripletMarginLoss(margin=0.2, distance=metric, reducer=reducers.AvgNonZeroReducer())(x, y, tuple(tuples))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (value, expected)))


def test_regularisation_agrees_with_pytorch_metric_learning():
    labels = [0, 0, 1, 1]
    x = embeddings_of(labels)
    tuples = mined("distance", x, labels)  # every sample is an anchor once
    weighted, plain = (criterion_of("snr", tuples, loss_snr_reg_lambda=w)(x, torch.tensor(labels)) for w in (1.0, 0.0))
    torch.testing.assert_close(weighted - plain, regularizers.ZeroMeanRegularizer()(x))


def test_no_regularisation_with_the_miner_distance(capsys):
    for miner, name in ((batch_mining.select("distance"), "random"), (Fixed([]), "distance")):
        assert criteria.select("snr", None, miner, batch_mining=name).reg_lambda == 0
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        assert "0.005" in out
    assert criteria.select("snr", None, Fixed([])).reg_lambda == 0.005, "of a miner without a name"
    for miner, name in ((batch_mining.select("rho_distance"), "distance"), (Fixed([]), "random")):
        assert criteria.select("snr", None, miner, batch_mining=name).reg_lambda == 0.005
    assert capsys.readouterr().out == ""


def test_constant_embeddings_do_not_divide_by_zero():
    x = torch.ones(4, 3)
    x[3] = torch.tensor([1.0, 2.0, 3.0])
    x.requires_grad_()
    value = criterion_of("snr", [(0, 1, 3), (2, 3, 0)])(x, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(x.grad).all()


def test_nothing_mined():
    check_empty("snr")


def test_finite():
    check_finite("snr", ["all", "distance", "rho_distance"])
