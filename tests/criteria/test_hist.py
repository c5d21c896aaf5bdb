import pytest
import torch

from tests.criteria import _oracles
from tests.criteria._oracles import LABELS, PINNED, PINNED_LABELS, batch_of, build, compare, gradcheck
from tests.trainers import tiny

SMALL = {"loss_hist_hidden": 4, "loss_hist_alpha": 1.1, "loss_hist_tau": 3.0, "loss_hist_weight": 0.7}


def slow(criterion, labels):
    """Sample by sample, class by class."""
    labels = labels.tolist()
    present = sorted(set(labels))

    def loss(x, means, rhos, norm_weight, norm_bias, w1, b1, w2, b2):
        distances = []
        for row in x:
            unit = row / row.norm()
            distances.append([sum((unit[d] - w[d] / w.norm()) ** 2 / torch.exp(rho[d].clamp(0, 6)) for d in range(len(row))) for w, rho in zip(means, rhos, strict=True)])
        logits = [torch.stack([-criterion.tau * m for m in row]) for row in distances]
        of_distributions = sum(torch.logsumexp(row, 0) - row[y] for row, y in zip(logits, labels, strict=True)) / len(x)
        edges = torch.stack([torch.stack([torch.ones((), dtype=x.dtype) if c == y else torch.exp(-criterion.alpha * row[c]) for c in present])
                             for row, y in zip(distances, labels, strict=True)])  # fmt: skip
        root = torch.diag(edges.sum(1) ** -0.5)
        graph = root @ edges @ torch.diag(1 / edges.sum(0)) @ edges.T @ root
        hidden = graph @ (x @ w1.T + b1)
        hidden = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt() * norm_weight + norm_bias
        out = graph @ (torch.where(hidden > 0, hidden, 0.1 * hidden) @ w2.T + b2)
        of_graph = sum(torch.logsumexp(row, 0) - row[y] for row, y in zip(out, labels, strict=True)) / len(x)
        return of_distributions + criterion.weight * of_graph

    def by_name(x, *parameters):
        named = dict(zip([name for name, _ in criterion.named_parameters()], parameters, strict=True))
        return loss(x, *(named[name] for name in ("proxies", "log_variances", "norm.weight", "norm.bias", "layers.0.weight", "layers.0.bias",
                                                  "layers.1.weight", "layers.1.bias")))  # fmt: skip

    return by_name


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("kind", LABELS)
def test_formula(kind, unit):
    batch, labels = batch_of(kind, unit)
    criterion = build("hist", **SMALL)
    with torch.no_grad():
        criterion.log_variances.mul_(10)  # some beyond 6
    compare(criterion, slow(criterion, labels), batch, labels)


def test_gradient():
    gradcheck(build("hist", **SMALL), *batch_of("ragged", unit=False))


def test_the_authors_functions_give_the_same():
    criterion = _oracles.criteria.select("hist", n_classes=3, embed_dim=3, loss_hist_alpha=1.1, loss_hist_hidden=3).double()
    identity = torch.eye(3, dtype=torch.float64)
    state = {"proxies": identity, "log_variances": torch.tensor([[-1, 0, 0.5], [0.2, 0.2, 0.2], [7, 0, 0]])}
    for i in range(2):
        state |= {f"layers.{i}.weight": identity, f"layers.{i}.bias": torch.zeros(3)}
    criterion.load_state_dict(state, strict=False)
    for tau, expected in ((32, 2.0400198), (1, 0.6048190)):
        criterion.tau = tau
        criterion(PINNED, PINNED_LABELS)
        assert round(criterion.stats["distribution_loss"].item(), 7) == expected
    assert round(criterion.stats["hypergraph_loss"].item(), 7) == 0.8944482


def test_a_row_far_from_its_class_counts():
    """Its probability underflows in float32: the authors' mean is without it."""
    criterion = build("hist", loss_hist_tau=1000.0, **{name: value for name, value in SMALL.items() if name != "loss_hist_tau"}).float()
    with torch.no_grad():
        criterion.log_variances.zero_()
    x = criterion.proxies.detach()[[0, 1]].clone().requires_grad_()
    criterion(x, torch.tensor([1, 0])).backward()
    assert criterion.stats["distribution_loss"] > 100 and x.grad.isfinite().all() and x.grad.abs().sum() > 1


def test_running_statistics_are_those_of_torch_and_travel_with_the_state():
    criterion = build("hist", **SMALL)
    batch, labels = batch_of("ragged")
    peer = torch.nn.BatchNorm1d(4).double()
    graph = criterion.graph(criterion.distances(batch), labels)
    hidden = graph @ criterion.layers[0](batch)
    torch.testing.assert_close(criterion.norm(hidden), peer(hidden))
    assert {"norm.running_mean", "norm.running_var"} <= set(criterion.state_dict())
    for name, value in peer.state_dict().items():
        torch.testing.assert_close(criterion.norm.state_dict()[name], value)
    torch.testing.assert_close(criterion.norm.eval()(hidden), peer.eval()(hidden))
    one, row = build("hist", **SMALL), batch[:1].clone().requires_grad_()
    value = one(row, labels[:1])
    value.backward()
    assert value.isfinite() and one.norm.running_var.isfinite().all() and row.grad.isfinite().all()


def test_a_run_resumes_to_the_bit(data, tmp_path):
    run = tiny.assert_resumes(data, tmp_path, "--loss", "hist", "--loss_hist_hidden", "8", "--chunk_size", "5")
    state = run.parts["criterion"].state_dict()
    assert state["norm.num_batches_tracked"] == 4 and state["norm.running_mean"].abs().sum() > 0
