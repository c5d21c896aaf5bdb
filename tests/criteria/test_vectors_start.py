"""Class vectors: where they begin, by default to the bit and as the package's on demand; rates; directions."""

import hashlib

import pytest
import torch
from pytorch_metric_learning import losses

import criteria
from criteria._proxies import ProxyCriterion
from tests.kit.mining import normal

# loss; SHA-256 of the vectors of 7 classes in 24 dimensions, seed 0, before there was a choice; the package's class
# that begins as it does under `pml` (CosFaceLoss where it has no such loss); vectors a class; rate at --lr 1e-4
STARTS = [
    ("adaface", "58e5c8c2bbb25456", losses.CosFaceLoss, 1, 5e-4),
    ("arcface", "9ebc11f5ba7e433e", losses.ArcFaceLoss, 1, 5e-4),
    ("center", "e15fc10bc094ba4d", losses.CosFaceLoss, 1, 5e-4),
    ("circle_softmax", "1af5a0349cc0849b", losses.CosFaceLoss, 1, 3.5e-4),
    ("cosface", "9ebc11f5ba7e433e", losses.CosFaceLoss, 1, 5e-4),
    ("curricularface", "1af5a0349cc0849b", losses.CosFaceLoss, 1, 5e-4),
    ("hist", "178732d873d80bc6", losses.ProxyAnchorLoss, 1, 0.1),
    # the package's InstanceLoss has no vectors
    ("instance", "9ebc11f5ba7e433e", losses.NormalizedSoftmaxLoss, 1, 5e-4),
    ("largemargin_softmax", "9ebc11f5ba7e433e", losses.LargeMarginSoftmaxLoss, 1, 5e-4),
    ("magface", "58e5c8c2bbb25456", losses.CosFaceLoss, 1, 5e-4),
    ("manifold", "9ebc11f5ba7e433e", lambda n, d: losses.ManifoldLoss(d, min(n, 50)), 1, 5e-4),
    ("meanfield", "e15fc10bc094ba4d", losses.CosFaceLoss, 1, 0.2),
    ("p2sgrad", "9ebc11f5ba7e433e", lambda n, d: losses.P2SGradLoss(d, n), 1, 5e-4),
    ("proxyanchor", "178732d873d80bc6", losses.ProxyAnchorLoss, 1, 0.01),
    ("proxynca", "4859ad3da74929dd", losses.ProxyNCALoss, 1, 0.005),
    ("proxynca_pp", "4859ad3da74929dd", losses.ProxyNCALoss, 1, 0.005),
    ("softmax", "9ebc11f5ba7e433e", losses.NormalizedSoftmaxLoss, 1, 1e-5),
    ("softtriplet", "96afa3a993b9ef74", lambda n, d: losses.SoftTripleLoss(n, d, centers_per_class=2), 2, 1e-4),
    ("sphereface", "9ebc11f5ba7e433e", losses.SphereFaceLoss, 1, 5e-4),
    (
        "subcenter_arcface",
        "0bab4fb2f9e95e34",
        lambda n, d: losses.SubCenterArcFaceLoss(num_classes=n, embedding_size=d),
        3,
        5e-4,
    ),
]
# losses of distances or products, in which the lengths of class vectors count
LENGTHS_COUNT = {"center", "instance", "largemargin_softmax"}


def build(name, n_classes=7, embed_dim=24, **flags):
    torch.manual_seed(0)
    return criteria.select(name, n_classes=n_classes, embed_dim=embed_dim, **flags)


def test_starts_and_rates():
    """The default to the bit; `pml` by the very draws of the package's class from the same seed."""
    modules = criteria.REGISTRY.modules()
    with_vectors = {name for name, module in modules.items() if issubclass(module.Criterion, ProxyCriterion)}
    assert with_vectors == {name for name, *_ in STARTS}
    for name, digest, peer, per_class, rate in STARTS:
        criterion = build(name, lr=1e-4)
        assert hashlib.sha256(criterion.proxies.detach().numpy().tobytes()).hexdigest()[:16] == digest, name
        group, *_ = criterion.optim_dict_list
        assert group["lr"] == pytest.approx(rate), name
        assert [tuple(p.shape) for p in group["params"]] == [(7 * per_class, 24)] * (1 + (name == "hist")), name
        for size in ((7, 24), (300, 128)):
            ours = build(name, *size, loss_vectors_start="pml").proxies.detach()
            torch.manual_seed(0)
            (theirs,) = peer(*size).parameters()
            theirs = theirs if theirs.shape == ours.shape else theirs.T
            assert torch.equal(ours, theirs), name


def test_the_direction_alone_is_what_the_value_sees():
    """So that another start is another rate, not another loss."""
    batch = normal(6, 24, seed=1)
    labels = torch.tensor([0, 0, 1, 2, 3, 6])
    for name in sorted({name for name, *_ in STARTS} - LENGTHS_COUNT):
        criterion = build(name).double().eval()
        value = criterion(batch, labels)
        with torch.no_grad():
            criterion.proxies.mul_(20)
        torch.testing.assert_close(criterion(batch, labels), value)
