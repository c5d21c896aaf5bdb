"""All pairs with a large reference, a few columns at a time: against loops in float64, and against the matrix in float32."""

import pytest
import torch

import batch_mining
from criteria import _streams
from tests.criteria import _reference_loops as loops
from tests.criteria import test_reference
from tests.criteria.test_reference import LABELS, OTHERS, check, given, step
from utilities.reference import Reference

STREAMING = ["circle", "contrastive", "multisimilarity", "ntxent", "snr_contrastive", "supcon", "tupletmargin"]
every_name = pytest.mark.parametrize("name", STREAMING)


def build(name, **flags):
    """As `test_reference.build`; contrastive with the miner of all pairs."""
    criterion = test_reference.build(name, **flags)
    if name == "contrastive":
        criterion.batchminer = batch_mining.select("none")
    return criterion


def contrastive(c, x, r, found, context):
    far = [torch.relu(loops.distance(x[a], r[p]) - c.pos_margin) for a, ps in enumerate(found[0]) for p in ps]
    near = [torch.relu(c.neg_margin - loops.distance(x[a], r[n])) for a, ns in enumerate(found[1]) for n in ns]
    return loops.mean(far) + loops.mean(near)


FORMULAS = {**loops.FORMULAS, "contrastive": contrastive}


@pytest.fixture(params=[1, 3, 1000])
def columns(request, monkeypatch):
    """Blocks of one column, of some, of all; however few pairs there are."""
    monkeypatch.setattr(_streams, "SHORT", 0)
    monkeypatch.setitem(_streams.BLOCK, "cpu", len(LABELS) * request.param)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("with_own", [False, True])
@every_name
def test_value_and_gradients_are_those_of_loops(name, with_own, kind, columns):
    batch, labels, reference, others, own = given(kind, with_own)
    criterion = build(name, **loops.FLAGS.get(name, {}))
    form = {"reference": reference, "reference_labels": others, "own": own}
    assert criterion.streamed(labels, Reference.of(batch, labels, reference, others, own)) is not None
    ours = step(criterion, batch, labels, inputs=[batch, reference], **form)
    found = loops.partners(labels, others, own)

    def slow(batch, labels):
        return FORMULAS[name](criterion, batch, reference, found, (labels, others, own)) + 0 * batch.sum()

    slow.parameters = criterion.parameters
    expected = step(slow, batch, labels, inputs=[batch, reference])
    check(ours[0], expected[0])
    check(ours[1], expected[1], 1e-8)


def large(n=24, n_others=700, n_classes=90, dimensions=16, scale=1.0):
    generator = torch.Generator().manual_seed(3)
    batch, others = (torch.nn.functional.normalize(torch.randn(m, dimensions, generator=generator)) for m in (n, n_others))
    labels = torch.randint(n_classes, (n_others,), generator=generator)
    own = torch.randint(n_others, (n,), generator=generator)
    others[own[:4]] = batch[:4]  # the anchor's own image, and duplicates
    of_batch = labels[own].clone()
    own[::5] = -1
    return (scale * batch).requires_grad_(), of_batch, (scale * others).requires_grad_(), labels, own


CASES = [
    *((name, {}) for name in STREAMING),
    ("multisimilarity", {"loss_multisimilarity_margin": float("inf")}),
    ("multisimilarity", {"loss_learn": ["neg_weight", "thresh"], "loss_learn_per_class": True, "n_classes": 90}),
    ("contrastive", {"loss_contrastive_reduction": "nonzero", "loss_contrastive_neg_margin": 1.3}),
    ("snr_contrastive", {"loss_snr_contrastive_neg_margin": 1.9}),
    ("ntxent", {"loss_ntxent_temperature": 0.01}),
    ("ntxent", {"loss_learn": ["temperature"], "loss_learn_per_class": True, "n_classes": 90}),
    ("supcon", {"loss_learn": ["temperature"]}),
]


@pytest.mark.parametrize("name, flags", CASES)
def test_it_is_what_the_matrix_gives(name, flags, monkeypatch):
    batch, labels, others, others_labels, own = large()
    form = {"reference": others, "reference_labels": others_labels, "own": own}
    criterion = build(name, **flags).float()
    monkeypatch.setitem(_streams.BLOCK, "cpu", len(batch) * 128)
    assert criterion.streamed(labels, Reference.of(batch, labels, others, others_labels, own)) is not None
    value, gradients = step(criterion, batch, labels, inputs=[batch, others], **form)
    told = criterion.stats
    monkeypatch.setattr(_streams, "apart", lambda labels, reference: None)
    expected, slow = step(criterion, batch, labels, inputs=[batch, others], **form)
    torch.testing.assert_close(value, expected, rtol=2e-6, atol=1e-6)
    for ours, theirs in zip(gradients, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * max(float(theirs.abs().max()), 1))
    assert told.keys() == criterion.stats.keys()
    for key, statistic in criterion.stats.items():
        torch.testing.assert_close(told[key], statistic, rtol=1e-4, atol=1e-5)


@every_name
def test_what_the_reference_does_not_want_it_does_not_get(name):
    batch, labels, others, others_labels, own = large()
    loss = build(name).float()(batch, labels, reference=others.detach(), reference_labels=others_labels, own=own)
    (gradient,) = torch.autograd.grad(loss, batch)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0


@every_name
def test_far_apart_nothing_overflows_and_nan_is_seen(name):
    batch, labels, others, others_labels, own = large(scale=30.0)
    form = {"reference_labels": others_labels, "own": own}
    criterion = build(name).float()
    assert criterion(batch, labels, reference=others, **form).isfinite()
    broken = others.detach().clone()
    broken[5, 0] = torch.nan
    assert criterion(batch, labels, reference=broken, **form).isnan()


def test_many_positives_are_left_to_the_matrix():
    labels = torch.zeros(8, dtype=torch.long)
    reference = Reference.of(torch.rand(8, 4), labels, torch.rand(50, 4), torch.zeros(50, dtype=torch.long))
    assert _streams.apart(labels, reference) is None
