"""HIER: against the authors' straight-through form by autograd, on the same triplets and the same noise."""

import pytest
import torch
from torch.testing import assert_close

import criteria
from criteria import hier
from tests.kit import tiny
from tests.kit.refusals import refused
from utilities.hyperbolic import Ball

N_CLASSES = 7
DIMENSIONS = 6
SMALL = {"loss_hier_n_proxies": 12, "loss_hier_topk": 4, "loss_hier_per_anchor": 5, "lr": 1e-3}
OPTIONS = {"n_classes": N_CLASSES, "embed_dim": DIMENSIONS, "arch": "resnet50"}


def build(**flags):
    torch.manual_seed(0)
    return criteria.select("hier", **{**OPTIONS, **SMALL, **flags}).double()


def batch_of(n=20, seed=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, DIMENSIONS, dtype=torch.float64, generator=generator)
    return x.requires_grad_(), torch.arange(n) // 3 % N_CLASSES


def by_autograd(distances, triplets, margin, tau, noise):
    """The formula as it stands, hard one-hot vectors with the gradient of the softmax, as F.gumbel_softmax."""

    def choice(longest, its_noise):
        logits = -longest / tau + its_noise
        soft = torch.softmax(logits, 1)
        hard = torch.zeros_like(soft).scatter_(1, logits.argmax(1, keepdim=True), 1.0)
        return hard - soft.detach() + soft

    a, b, c = (distances[rows] for rows in triplets)
    two = choice(torch.maximum(a, b), noise[0])
    three = choice(torch.maximum(torch.maximum(a, b), c), noise[1])
    near = [(x * two).sum(1) for x in (a, b, c)]
    far = [(x * three).sum(1) for x in (a, b, c)]
    gaps = near[0] - far[0], near[1] - far[1], far[2] - near[2]
    return (sum(torch.relu(gap + margin) for gap in gaps) * (two.argmax(1) != three.argmax(1))).mean()


@pytest.mark.parametrize("chunk", [1 << 18, 24])
def test_value_and_gradients_are_those_of_the_straight_through_form(chunk, monkeypatch):
    monkeypatch.setattr(hier, "CHUNK", chunk)
    generator = torch.Generator().manual_seed(1)
    table = (4 * torch.rand(9, 12, dtype=torch.float64, generator=generator)).requires_grad_()
    i, j, k = (torch.randint(9, (40,), generator=generator) for _ in range(3))
    # equal distances of two samples: each has half of the maximum's gradient
    table.data[1] = table.data[0]
    i[:10] = 0
    j[:10] = 1
    margin = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(5)
    ours = hier._Hierarchy.apply(table, i, j, k, margin, 0.5)
    torch.manual_seed(5)
    draws = [[hier.gumbel((len(part), 12), table) for _ in range(2)] for part in i.split(max(chunk // 12, 1))]
    noise = [torch.cat(parts) for parts in zip(*draws, strict=True)]
    expected = by_autograd(table, (i, j, k), margin, 0.5, noise)
    assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    assert expected > 0
    gradients = [torch.autograd.grad(value, [table, margin]) for value in (ours, expected)]
    assert_close(*gradients, rtol=1e-9, atol=1e-12)
    assert all(gradient.abs().sum() > 0 for gradient in gradients[1])


def test_the_whole_loss():
    """Base plus weight times the regulariser of the samples and of the proxies, by autograd through the distances."""
    criterion = build()
    batch, labels = batch_of()
    torch.manual_seed(2)
    value = criterion(batch, labels)
    torch.manual_seed(2)
    ball = Ball(0.1, 2.3)
    proxies = criterion.ancestors
    of_samples = 1e6 * (labels[:, None] == labels[None, :]) - ball.distances(batch, batch).detach()
    expected = criterion.base(batch, labels)
    for points, closeness in ((batch, of_samples), (proxies, -ball.distances(proxies, proxies).detach())):
        triplets = hier.reciprocal_triplets(closeness, 4, 5)
        table = ball.distances(points, proxies)
        noise = [hier.gumbel((len(triplets[0]), 12), table) for _ in range(2)]
        expected = expected + 0.5 * by_autograd(table, triplets, 0.1, 0.1, noise)
    assert_close(value, expected, rtol=1e-10, atol=1e-10)
    inputs = [batch, *criterion.parameters()]
    assert_close(*(torch.autograd.grad(loss, inputs) for loss in (value, expected)), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("n", "topk"), [(9, 1), (9, 50), (30, 3), (30, 8)])
def test_triplets_are_reciprocal_neighbours_and_others(n, topk):
    points = torch.randn(n, 3, generator=torch.Generator().manual_seed(n + topk))
    closeness = -torch.cdist(points, points)
    near = [sorted(range(n), key=lambda j: -closeness[i, j])[:topk] for i in range(n)]  # noqa: B023
    pairs = {(i, j) for i in range(n) for j in near[i] if i != j}
    reciprocal = {i: set() for i in range(n)}
    for i, j in pairs & {(j, i) for i, j in pairs}:
        reciprocal[i].add(j)
    i, j, k = (part.tolist() for part in hier.reciprocal_triplets(closeness, topk, 400))
    anchors = [a for a in range(n) if reciprocal[a] and len(reciprocal[a]) < n - 1]
    assert sorted(set(i)) == anchors and len(i) == 400 * len(anchors)
    for a in anchors:
        # 400 draws miss none of at most 29
        assert {b for x, b in zip(i, j, strict=True) if x == a} == reciprocal[a]
        assert {b for x, b in zip(i, k, strict=True) if x == a} == set(range(n)) - reciprocal[a] - {a}


def test_near_neighbours_within_a_class_are_told_apart(monkeypatch):
    seen = []
    triplets = hier.reciprocal_triplets
    monkeypatch.setattr(hier, "reciprocal_triplets", lambda *words: seen.append(words[0]) or triplets(*words))
    # in float32, as in a run
    spread = torch.linspace(0.1, 0.11, 21)[1:, None].expand(-1, DIMENSIONS)
    build().float()(spread, torch.arange(20) // 10)
    in_class, of_strangers = seen[0][0].split(10)
    assert in_class.tolist() == sorted(set(in_class.tolist()), reverse=True) and in_class.min() > of_strangers.max()


def test_start_values_and_rates():
    criterion = criteria.select("hier", n_classes=3, embed_dim=128, lr=1e-5, arch="resnet50")
    assert criterion.ancestors.shape == (512, 128)
    assert float(criterion.ancestors.detach().norm(dim=1).mean()) == pytest.approx(2.3 * 0.9, rel=0.02)
    proxies, ancestors = criterion.optim_dict_list
    assert ancestors["lr"] == pytest.approx(5e-4) and ancestors["params"] == [criterion.ancestors]
    assert proxies["params"] == [criterion.base.proxies]


@pytest.mark.parametrize("base", ["margin", "softtriplet"])
def test_it_stands_beside_other_losses(base):
    criterion = build(loss_hier_base=base, loss_hier_weight=0, batch_mining="semihard")
    torch.manual_seed(0)
    base_alone = criteria.select(base, **OPTIONS, batch_mining="semihard").double()
    values = []
    for loss in (criterion, base_alone):
        torch.manual_seed(4)
        values.append(loss(*batch_of()))
    assert_close(*values)
    grouped = [id(p) for group in criterion.optim_dict_list for p in group["params"]]
    assert sorted(grouped) == sorted(map(id, criterion.parameters()))


@pytest.mark.parametrize("c", [0, 0.1, 100])
def test_the_border_zeros_and_few_samples(c):
    criterion = build(loss_hier_c=c, loss_hier_clip_r=1e3).float()
    shape = (9, DIMENSIONS)
    for x in (1e4 * torch.randn(shape), torch.zeros(shape), torch.ones(shape), torch.randn(1, DIMENSIONS)):
        value = criterion(x.requires_grad_(), torch.arange(len(x)) % 3)
        value.backward()
        assert value.isfinite() and x.grad.isfinite().all() and criterion.ancestors.grad.isfinite().all()


def test_what_cannot_work_is_refused_in_one_line():
    with refused("--loss_hier_base hier: choose another loss"):
        build(loss_hier_base="hier")
    with refused("Did you mean 'proxyanchor'"):
        build(loss_hier_base="proxyanchr")
    criterion = build(loss_hier_base="contrastive", batch_mining="random")
    with refused("dimensions"):
        criterion(torch.randn(4, DIMENSIONS + 1), torch.tensor([0, 0, 1, 1]))


@pytest.mark.long
def test_a_run_resumes_to_the_bit(data, tmp_path):
    """What is drawn goes on where it stopped; evaluated in the ball."""
    flags = "--loss hier --loss_hier_n_proxies 16 --loss_hier_topk 4 --arch conv4 --eval_space hyperbolic".split()
    tiny.assert_resumes(data, tmp_path, *flags)
