"""Where class vectors begin: as ever by default, bit for bit, and as the classes of pytorch-metric-learning begin on demand."""

import hashlib

import pytest
import torch
from pytorch_metric_learning import losses

import criteria
from criteria._proxies import ProxyCriterion

AS_EVER = {  # SHA-256 of the vectors of 7 classes in 24 dimensions, seed 0, before there was a choice
    "arcface": "9ebc11f5ba7e433e",
    "cosface": "9ebc11f5ba7e433e",
    "instance": "9ebc11f5ba7e433e",
    "largemargin_softmax": "9ebc11f5ba7e433e",
    "manifold": "9ebc11f5ba7e433e",
    "p2sgrad": "9ebc11f5ba7e433e",
    "proxyanchor": "178732d873d80bc6",
    "proxynca": "4859ad3da74929dd",
    "proxynca_pp": "4859ad3da74929dd",
    "softmax": "9ebc11f5ba7e433e",
    "softtriplet": "96afa3a993b9ef74",
    "sphereface": "9ebc11f5ba7e433e",
    "subcenter_arcface": "0bab4fb2f9e95e34",
}
PEERS = {
    "arcface": losses.ArcFaceLoss,
    "cosface": losses.CosFaceLoss,
    "instance": losses.NormalizedSoftmaxLoss,  # the package's InstanceLoss has no vectors
    "largemargin_softmax": losses.LargeMarginSoftmaxLoss,
    "manifold": lambda n, d: losses.ManifoldLoss(d, min(n, 50)),
    "p2sgrad": lambda n, d: losses.P2SGradLoss(d, n),
    "proxyanchor": losses.ProxyAnchorLoss,
    "proxynca": losses.ProxyNCALoss,
    "proxynca_pp": losses.ProxyNCALoss,
    "softmax": losses.NormalizedSoftmaxLoss,
    "sphereface": losses.SphereFaceLoss,
    "softtriplet": lambda n, d: losses.SoftTripleLoss(n, d, centers_per_class=2),
    "subcenter_arcface": lambda n, d: losses.SubCenterArcFaceLoss(num_classes=n, embedding_size=d),
}
LENGTHS_COUNT = {"instance", "largemargin_softmax"}  # products, not cosines
every_loss = pytest.mark.parametrize("name", PEERS)


def vectors(name, n_classes, embed_dim, **flags):
    torch.manual_seed(0)
    return criteria.select(name, n_classes=n_classes, embed_dim=embed_dim, **flags).proxies.detach()


def test_every_criterion_with_class_vectors_is_here():
    modules = criteria.REGISTRY.modules()
    with_vectors = {name for name, module in modules.items() if issubclass(module.Criterion, ProxyCriterion)}
    assert with_vectors == set(PEERS) == set(AS_EVER)


@every_loss
def test_the_default_is_as_ever(name):
    assert hashlib.sha256(vectors(name, 7, 24).numpy().tobytes()).hexdigest()[:16] == AS_EVER[name]
    assert torch.equal(vectors(name, 7, 24), vectors(name, 7, 24, loss_vectors_start="icml"))


@every_loss
@pytest.mark.parametrize(("n_classes", "embed_dim"), [(7, 24), (300, 128)])
def test_pml_is_the_start_of_the_package(name, n_classes, embed_dim):
    """The very draws of its class from the same seed, and so its distribution."""
    ours = vectors(name, n_classes, embed_dim, loss_vectors_start="pml")
    torch.manual_seed(0)
    (theirs,) = PEERS[name](n_classes, embed_dim).parameters()
    theirs = theirs.detach()
    assert torch.equal(ours, theirs if theirs.shape == ours.shape else theirs.T)


@every_loss
def test_lengths_under_pml(name):
    """At 128 dimensions, over 1,000 classes: 11.3 from a unit normal; the fans of the two that have one."""
    lengths = vectors(name, 1000, 128, loss_vectors_start="pml").norm(dim=1)
    expected = {"softtriplet": (128 / (3 * 2000)) ** 0.5, "proxyanchor": (128 * 2 / 1000) ** 0.5, "p2sgrad": 1}.get(name, 128**0.5)
    assert float(lengths.mean()) == pytest.approx(expected, rel=0.02 if name == "manifold" else 0.01)  # 50 vectors
    assert (name == "p2sgrad") or 0.02 < float(lengths.std() / lengths.mean()) < 0.1


@pytest.mark.parametrize("name", sorted(set(PEERS) - LENGTHS_COUNT))
def test_the_direction_alone_is_what_the_value_sees(name):
    """So that another start is another rate, not another loss."""
    batch = torch.randn(6, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 0, 1, 2, 3, 6])
    criterion = criteria.select(name, n_classes=7, embed_dim=24).double()
    value = criterion(batch, labels)
    with torch.no_grad():
        criterion.proxies.mul_(20)
    torch.testing.assert_close(criterion(batch, labels), value)


def test_a_fusion_passes_it_on():
    opt = criteria.REGISTRY.options(None, loss_vectors_start="pml", n_classes=50, embed_dim=128)
    assert float(criteria.select("softmax", opt).proxies.detach().norm(dim=1).mean()) > 10
