"""Where class vectors begin: as ever by default, bit for bit, and as the classes of pytorch-metric-learning begin on demand."""

import hashlib

import pytest
import torch
from pytorch_metric_learning import losses

import criteria
from criteria._proxies import ProxyCriterion

AS_EVER = {  # SHA-256 of the vectors of 7 classes in 24 dimensions, seed 0, before there was a choice
    "arcface": "9ebc11f5ba7e433e",
    "center": "e15fc10bc094ba4d",
    "circle_softmax": "1af5a0349cc0849b",
    "cosface": "9ebc11f5ba7e433e",
    "hist": "178732d873d80bc6",
    "instance": "9ebc11f5ba7e433e",
    "largemargin_softmax": "9ebc11f5ba7e433e",
    "manifold": "9ebc11f5ba7e433e",
    "meanfield": "e15fc10bc094ba4d",
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
    "center": losses.CosFaceLoss,  # the package has neither of these two; it begins all class vectors so
    "circle_softmax": losses.CosFaceLoss,
    "cosface": losses.CosFaceLoss,
    "hist": losses.ProxyAnchorLoss,  # begins as this one, here and there
    "instance": losses.NormalizedSoftmaxLoss,  # the package's InstanceLoss has no vectors
    "largemargin_softmax": losses.LargeMarginSoftmaxLoss,
    "manifold": lambda n, d: losses.ManifoldLoss(d, min(n, 50)),
    "meanfield": losses.CosFaceLoss,
    "p2sgrad": lambda n, d: losses.P2SGradLoss(d, n),
    "proxyanchor": losses.ProxyAnchorLoss,
    "proxynca": losses.ProxyNCALoss,
    "proxynca_pp": losses.ProxyNCALoss,
    "softmax": losses.NormalizedSoftmaxLoss,
    "sphereface": losses.SphereFaceLoss,
    "softtriplet": lambda n, d: losses.SoftTripleLoss(n, d, centers_per_class=2),
    "subcenter_arcface": lambda n, d: losses.SubCenterArcFaceLoss(num_classes=n, embedding_size=d),
}
LENGTHS_COUNT = {"center", "instance", "largemargin_softmax"}  # distances and products, not cosines


def vectors(name, n_classes, embed_dim, **flags):
    torch.manual_seed(0)
    return criteria.select(name, n_classes=n_classes, embed_dim=embed_dim, **flags).proxies.detach()


def test_the_starts_are_those_of_ever_and_of_the_package():
    """The default to the bit; `pml` by the very draws of the package's class from the same seed, and so its distribution."""
    modules = criteria.REGISTRY.modules()
    assert {name for name, module in modules.items() if issubclass(module.Criterion, ProxyCriterion)} == set(PEERS) == set(AS_EVER)
    for name, digest in AS_EVER.items():
        assert hashlib.sha256(vectors(name, 7, 24).numpy().tobytes()).hexdigest()[:16] == digest, name
        for size in ((7, 24), (300, 128)):
            ours = vectors(name, *size, loss_vectors_start="pml")
            torch.manual_seed(0)
            (theirs,) = PEERS[name](*size).parameters()
            assert torch.equal(ours, theirs if theirs.shape == ours.shape else theirs.T), name


RATES = {"proxyanchor": 100, "proxynca": 50, "proxynca_pp": 50, "softtriplet": 1, "meanfield": 2000}  # times --lr; the others have a rate of their own, 5e-4
OWN_RATES = {"hist": 0.1, "softmax": 1e-5, "circle_softmax": 3.5e-4}


def test_rates_by_default():
    for name in AS_EVER:
        group, *_ = criteria.select(name, n_classes=7, embed_dim=24, lr=1e-4).optim_dict_list
        assert group["lr"] == pytest.approx(RATES[name] * 1e-4 if name in RATES else OWN_RATES.get(name, 5e-4)), name
        assert [tuple(p.shape) for p in group["params"]] == [({"softtriplet": 14, "subcenter_arcface": 21}.get(name, 7), 24)] * (1 + (name == "hist")), name


def test_the_direction_alone_is_what_the_value_sees():
    """So that another start is another rate, not another loss."""
    batch = torch.randn(6, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 0, 1, 2, 3, 6])
    for name in sorted(set(PEERS) - LENGTHS_COUNT):
        criterion = criteria.select(name, n_classes=7, embed_dim=24).double()
        value = criterion(batch, labels)
        with torch.no_grad():
            criterion.proxies.mul_(20)
        torch.testing.assert_close(criterion(batch, labels), value)
