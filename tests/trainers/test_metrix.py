"""Mixed embeddings: each loss against loops over mixed points, the pins, the draw, one step, what is refused."""

import pytest
import torch
from scipy.stats import kstest
from torch.nn.functional import normalize
from torch.testing import assert_close

import criteria
from criteria import _pairs
from tests.criteria._table import PINNED, PINNED_LABELS
from tests.kit import tiny
from tests.kit.mining import batch_of
from tests.kit.refusals import refused
from trainers import _metrix

# loss -> its mixed form, flags
LOSSES = {
    "contrastive": (
        _metrix.of_contrastive,
        [{"neg_margin": 0.5, "reduction": "nonzero"}, {"pos_margin": 0.4, "neg_margin": 1.3}],
    ),
    "multisimilarity": (_metrix.of_multisimilarity, [{}, {"pos_weight": 3.0, "neg_weight": 7.0, "thresh": 0.1}]),
    "proxyanchor": (_metrix.of_proxyanchor, [{}, {"alpha": 5.0, "delta": 0.2}]),
}
SHARE = torch.tensor(0.3, dtype=torch.float64)
LABELS = [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 0, 2, 2, 2, 3, 0, 4], [3, 3, 3, 3], [0, 1, 2, 3], [2]]


def built(name, **flags):
    torch.manual_seed(0)
    flags = {f"loss_{name}_{flag}": value for flag, value in flags.items()}
    return criteria.select(name, n_classes=5, embed_dim=6, batch_mining="none", **flags).double()


def points_of(anchor, label, x, labels, share, from_anchor):
    """The mixed points, unit vectors, of an anchor with this label that is image `anchor` (None: a proxy)."""
    unit = [row / row.norm() for row in x]
    firsts = [from_anchor]
    if from_anchor is None:
        firsts = [unit[p] for p, y in enumerate(labels) if y == label and p != anchor]
    mixed = [share * first + (1 - share) * unit[n] for first in firsts for n, y in enumerate(labels) if y != label]
    return [point / point.norm() for point in mixed]


def log1p_sum(terms):
    return torch.log1p(sum(terms))


def slow_multisimilarity(c, to, share):
    if not to:
        return 0.0
    positive = log1p_sum([share * torch.exp(-c.pos_weight * (s - c.thresh)) for s in to]) / c.pos_weight
    return positive + log1p_sum([(1 - share) * torch.exp(c.neg_weight * (s - c.thresh)) for s in to]) / c.neg_weight


def slow_proxyanchor(c, x, labels, share, with_anchors):
    positive = negative = 0.0
    having = 0
    for k, proxy in enumerate(c.proxies):
        proxy = proxy / proxy.norm()
        from_anchor = proxy if with_anchors else None
        to = [proxy @ v for v in points_of(None, k, x, labels, share, from_anchor)]
        if to:
            having += 1
            positive = positive + log1p_sum([share * torch.exp(-c.alpha * (s - c.delta)) for s in to])
            negative = negative + log1p_sum([(1 - share) * torch.exp(c.alpha * (s + c.delta)) for s in to])
    return positive / max(having, 1) + negative / len(c.proxies)


def slow(name, c, x, labels, share, with_anchors):
    if name == "proxyanchor":
        return slow_proxyanchor(c, x, labels, share, with_anchors)
    unit = [row / row.norm() for row in x]
    total = 0.0
    far = []
    near = []
    for a, y in enumerate(labels):
        from_anchor = unit[a] if with_anchors else None
        points = points_of(a, y, x, labels, share, from_anchor)
        if name == "multisimilarity":
            total = total + slow_multisimilarity(c, [unit[a] @ v for v in points], share) / len(x)
        else:
            distances = [(unit[a] - v).norm() for v in points]
            far += [share * (d - c.pos_margin).clamp(min=0) for d in distances]
            near += [(1 - share) * (c.neg_margin - d).clamp(min=0) for d in distances]
    for terms in (far, near):
        counted = [term for term in terms if term > 0 or c.reduction.how != "nonzero"]
        total = total + sum(terms) / max(len(counted), 1)
    return total


def assert_same(ours, expected, inputs):
    """Values and gradients."""
    zero = sum(0 * tensor.sum() for tensor in inputs)
    values = ours, torch.as_tensor(expected, dtype=torch.float64)
    assert_close(*values, rtol=1e-9, atol=1e-9)
    gradients = [torch.autograd.grad(value + zero, inputs, retain_graph=True) for value in values]
    assert_close(*gradients, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_mixed_points_is_that_of_loops(name, labels, monkeypatch):
    monkeypatch.setattr(_metrix, "ENTRIES", 1)
    # three anchors at once
    monkeypatch.setattr(_pairs, "ANCHORS", 3)
    value, all_flags = LOSSES[name]
    for flags in all_flags:
        x, y = batch_of(labels, 6, 0, torch.float64)
        x.requires_grad_()
        c = built(name, **flags)
        for with_anchors, ours in enumerate(value(c, normalize(x), y, SHARE)):
            assert_same(ours, slow(name, c, x, labels, SHARE, bool(with_anchors)), [x, *c.parameters()])


class Maps(torch.nn.Module):
    """Pooling by the mean of mean and maximum, which does not commute with mixing, and a layer with a bias."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 6).double()

    def pool(self, spatial):
        return (spatial.mean((2, 3)) + spatial.amax((2, 3))) / 2

    def embed(self, pooled):
        return self.layer(pooled)


@pytest.mark.parametrize("y", [[0, 0, 1, 2, 2], *LABELS[2:]], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_mixed_maps_are_pooled_and_embedded_one_by_one(name, y, monkeypatch):
    # one image's maps at once
    monkeypatch.setattr(_metrix, "ENTRIES", 1)
    labels = torch.tensor(y)
    torch.manual_seed(1)
    maps = torch.randn(len(labels), 4, 2, 3, dtype=torch.float64, requires_grad=True)
    network = Maps()

    def point(maps):
        pooled = torch.stack([(plane.mean() + plane.max()) / 2 for plane in maps])
        embedding = network.layer.weight @ pooled + network.layer.bias
        return embedding / embedding.norm()

    unit = torch.stack([point(image_map) for image_map in maps])
    c = built(name)
    mixed = _metrix.mixed_maps(network, {"spatial": maps}, SHARE)
    rows = []
    for first in maps:
        rows.append(torch.stack([point(SHARE * first + (1 - SHARE) * second) for second in maps]))
    expected = torch.stack(rows)
    assert_close(mixed, expected)

    def points(anchor, label, x, labels, share, from_anchor):
        firsts = [anchor]
        if from_anchor is None:
            firsts = [p for p, y in enumerate(labels) if y == label and p != anchor]
        return [expected[first, n] for first in firsts for n, y in enumerate(labels) if y != label]

    monkeypatch.setattr("tests.trainers.test_metrix.points_of", points)
    inputs = [maps, *network.parameters(), *c.parameters()]
    for with_anchors, ours in enumerate(LOSSES[name][0](c, unit, labels, SHARE, mixed)):
        assert_same(ours, slow(name, c, unit, y, SHARE, bool(with_anchors) and name != "proxyanchor"), inputs)


def test_the_pinned_values():
    point = 0.3 * PINNED[1] + 0.7 * PINNED[2]
    cosines = PINNED @ PINNED.T
    mixed = _metrix.mixed_cosines(cosines, cosines, cosines, SHARE)
    assert_close(mixed[0, 1, 2], PINNED[0] @ point / point.norm())
    distance = (2 - 2 * mixed[0, 1, 2]).sqrt().item()
    assert round(distance, 7) == 1.2139873 and round(0.3 * distance + 0.7 * max(0.5 - distance, 0), 7) == 0.3641962
    c = built("multisimilarity")
    to = [PINNED[0] @ v for v in points_of(0, 0, PINNED, PINNED_LABELS.tolist(), 0.3, None)]
    assert round(slow_multisimilarity(c, to, 0.3).item(), 7) == 0.3331487


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_draws_a_share_and_which_points_are_mixed(name):
    flags = f"--loss {name} --metrix .4"
    if name == "proxyanchor":
        flags += " --loss_proxyanchor_lrmulti 1"
    trainer, opt = tiny.trainer("metric_only", flags)
    batch = tiny.batch()
    added = trainer.added_losses[0]
    outputs, losses, total = tiny.step(opt, trainer).forward(batch)
    assert_close(total, losses["metric_loss"] + losses["metrix_loss"])
    seen = []
    value = added.value
    shares = []

    def watched(criterion, rows, labels, share, mixed):
        shares.append(float(share))
        seen.append(value(criterion, rows, labels, share, mixed))
        return seen[-1]

    added.value = watched
    chosen = []
    steps = 200 if name == "contrastive" else 30
    for _ in range(steps):
        loss = added.loss(trainer, outputs, batch)
        chosen.append(bool(loss == 0.4 * seen[-1][1]))
        assert loss == 0.4 * seen[-1][chosen[-1]]
    assert set(chosen) == {True, False}
    if name == "contrastive":
        assert abs(sum(chosen) / 200 - 0.5) < 0.15 and kstest(shares, "beta", (2, 2)).pvalue > 1e-3


@pytest.mark.parametrize("name", LOSSES)
def test_points_without_a_direction_are_finite(name):
    """Opposite points halfway, zeros, points that coincide; in float32 too."""
    x = torch.eye(6)[[0, 0, 0, 1, 2]] * torch.tensor([1.0, 1, -1, 0, 1])[:, None]
    for share in (0.5, 0.3):
        rows = x.clone().requires_grad_()
        c = built(name).float()
        for value in LOSSES[name][0](c, rows, torch.tensor([0, 0, 1, 1, 2]), torch.tensor(share)):
            assert value.isfinite() and torch.autograd.grad(value, rows, retain_graph=True)[0].isfinite().all()


def test_what_it_cannot_mix_is_refused_in_one_line():
    with refused("--metrix mixes for --loss contrastive, multisimilarity, proxyanchor, not for triplet"):
        tiny.trainer("metric_only", "--loss triplet --metrix .4")
    feature = "--loss contrastive --metrix .4 --metrix_level feature"
    with refused("--metrix_level feature embeds mixed maps as the network does its own, which --neck bn changes"):
        tiny.trainer("metric_only", feature, "--neck bn")
    trainer, opt = tiny.trainer("metric_only", feature)
    trainer.network.forward = lambda images: (torch.zeros(6, 4, dtype=torch.float64, requires_grad=True), {})
    with refused("--metrix_level feature: Network gives no map before its pooling: take embed"):
        tiny.step(opt, trainer).forward(tiny.batch())
    for flag, value in (("--sample_classes", ".5"), ("--loss_dims", "2")):
        with refused(f"{flag}.*: --metrix compares mixed points with whole class vectors of all classes"):
            tiny.resolve("--loss proxyanchor --metrix .4", flag, value)
    with refused("--metrix --loss_reduction sum: mixed points have the mean"):
        tiny.trainer("metric_only", "--loss contrastive --loss_reduction sum --metrix .4")


@pytest.mark.long
@pytest.mark.parametrize("level", ["embed", "feature"])
def test_it_resumes_to_the_bit(level, data, tmp_path):
    flags = f"--loss multisimilarity --metrix .4 --metrix_level {level} --chunk_size 3"
    tiny.assert_resumes(data, tmp_path, flags, "--memory_size 48 --memory_start 1")
