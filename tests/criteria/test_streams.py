"""All pairs with a large reference, a few columns at a time: against loops in float64, and against the matrix in float32."""

import pytest
import torch

import batch_mining
from criteria import _streams
from tests.criteria import _reference_loops as loops
from tests.criteria import (
    test_gpw,
    test_intrapair_variance,
    test_lifted_original,
    test_rankedlist,
    test_reference,
    test_threshold_consistent,
)
from tests.criteria.test_reference import LABELS, OTHERS, check, given, step
from utilities.reference import Reference

STREAMING = [
    *("circle", "contrastive", "gpw", "intrapair_variance", "lifted_original", "multisimilarity", "nca", "ntxent"),
    *("rankedlist", "snr_contrastive", "supcon", "threshold_consistent", "tupletmargin"),
]
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


def of_pairs(slow):
    """The loop of a loss's own test file in the form of `loops.FORMULAS`."""
    return lambda c, x, r, found, context: slow(x, r, *found)


FORMULAS = {
    **loops.FORMULAS,
    "contrastive": contrastive,
    "gpw": of_pairs(test_gpw.slow("multisimilarity")),
    "intrapair_variance": of_pairs(test_intrapair_variance.slow),
    "lifted_original": of_pairs(test_lifted_original.slow),
    "rankedlist": of_pairs(test_rankedlist.slow),
    "threshold_consistent": of_pairs(test_threshold_consistent.slow),
}


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


def check_against_the_matrix(criterion, batch, labels, form, monkeypatch):
    """Value, gradients and statistics are those of the path that takes the whole matrix."""
    others = form["reference"]
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


CASES = [
    *((name, {}) for name in STREAMING),
    ("multisimilarity", {"loss_multisimilarity_margin": float("inf")}),
    ("nca", {"loss_nca_scale": 9.0}),
    ("nca", {"loss_learn": ["scale"]}),
    ("multisimilarity", {"loss_learn": ["neg_weight", "thresh", "margin"], "loss_learn_per_class": True, "n_classes": 90}),
    ("lifted_original", {"loss_lifted_original_neg_margin": 0.3}),
    ("gpw", {"loss_gpw_weights": "contrastive"}),
    ("gpw", {"loss_gpw_weights": "contrastive", "loss_gpw_threshold": -0.2}),
    ("gpw", {"loss_gpw_weights": "lifted"}),
    ("gpw", {"loss_gpw_neg_scale": 300.0}),  # the running sums are relative to the largest exponent
    ("gpw", {"loss_gpw_neg_scale": 3.0, "loss_gpw_pos_scale": 30.0, "loss_gpw_threshold": 0.1}),
    ("rankedlist", {"loss_rankedlist_alpha": 1.5, "loss_rankedlist_pos_temperature": 2.0, "loss_rankedlist_imbalance": 0.3}),
    ("rankedlist", {"loss_rankedlist_alpha": 0.8, "loss_rankedlist_neg_temperature": 30.0}),  # most anchors have no active negative
    ("contrastive", {"loss_contrastive_reduction": "nonzero", "loss_contrastive_neg_margin": 1.3}),
    ("snr_contrastive", {"loss_snr_contrastive_neg_margin": 1.9}),
    ("ntxent", {"loss_ntxent_temperature": 0.01}),
    ("ntxent", {"loss_learn": ["temperature"], "loss_learn_per_class": True, "n_classes": 90}),
    ("supcon", {"loss_learn": ["temperature"]}),
    ("threshold_consistent", {"loss_threshold_consistent_neg_margin": 0.1}),
    ("threshold_consistent", {"loss_learn": ["pos_margin", "neg_margin"]}),
    ("intrapair_variance", {"loss_intrapair_variance_neg_eps": 0.5}),
]


@pytest.mark.parametrize("name, flags", CASES)
def test_it_is_what_the_matrix_gives(name, flags, monkeypatch):
    batch, labels, others, others_labels, own = large()
    form = {"reference": others, "reference_labels": others_labels, "own": own}
    criterion = build(name, **flags).float()
    monkeypatch.setitem(_streams.BLOCK, "cpu", len(batch) * 128)
    assert criterion.streamed(labels, Reference.of(batch, labels, others, others_labels, own)) is not None
    check_against_the_matrix(criterion, batch, labels, form, monkeypatch)


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


@pytest.mark.parametrize("n_classes", [1, 5, 400])
@pytest.mark.parametrize("n_others", [0, 1, 7, 300])
def test_the_pairs_apart_are_those_of_the_masks(n_classes, n_others, monkeypatch):
    monkeypatch.setattr(_streams, "SHORT", 0)
    generator = torch.Generator().manual_seed(n_others)
    labels, others = (torch.randint(-n_classes, n_classes, (n,), generator=generator) for n in (20, n_others))
    own = torch.randint(-1, n_others, (20,), generator=generator)  # of any class
    reference = Reference.of(torch.rand(20, 3), labels, torch.rand(n_others, 3), others, own)
    apart, (positives, negatives) = _streams.apart(labels, reference), reference.masks(labels)
    assert (apart.columns.diff() >= 0).all()

    def mask(which):
        rows, columns = apart.rows[which], apart.columns[which]
        assert len(rows) == len(set(zip(rows.tolist(), columns.tolist(), strict=True)))
        return torch.zeros(20, n_others, dtype=torch.bool).index_put((rows, columns), torch.tensor(True))

    assert torch.equal(mask(slice(None)), ~negatives)
    assert torch.equal(mask(apart.positive), positives)
    assert torch.equal(mask(apart.own), reference.own[:, None] == torch.arange(n_others))
    assert torch.equal(apart.rows[apart.positive], apart.anchors)


def lined_up(cosine: float, n_others=3000):
    """Four anchors, all of whose negatives have one cosine with them, one positive with -cosine."""
    batch = torch.eye(8)[:4]
    others = torch.zeros(n_others, 8)
    others[:, :4], others[:, 4] = cosine / 2, (1 - cosine**2) ** 0.5
    batch[:, :4] = 0.5
    others[0] = -others[0]
    labels = torch.ones(n_others, dtype=torch.long)
    labels[0] = 0
    return batch, torch.zeros(4, dtype=torch.long), others, labels


@pytest.mark.parametrize("cosine", [-1.0, 0.0, 0.999, 1.0])
@pytest.mark.parametrize(
    "name, flags",
    [
        *(("ntxent", {"loss_ntxent_temperature": t}) for t in (0.07, 0.0127, 0.001)),  # far from the bounds of float32, at them, beyond
        *(("supcon", {"loss_supcon_temperature": t}) for t in (0.1, 0.0127, 0.001)),
        *(("tupletmargin", {"loss_tupletmargin_scale": s}) for s in (64.0, 81.0, 500.0)),
        *(("circle", {"loss_circle_gamma": g, "loss_circle_m": m}) for g in (80.0, 81.5, 500.0) for m in (0.4, -0.2, 1.2)),
        *(("multisimilarity", {"loss_multisimilarity_neg_weight": w}) for w in (40.0, 500.0)),
    ],
)
def test_at_the_bounds_of_float32_nothing_is_lost(name, flags, cosine):
    batch, labels, others, others_labels = lined_up(cosine)
    criterion, results = build(name, **flags), []
    for dtype in (torch.float32, torch.float64):
        inputs = batch.to(dtype).requires_grad_(), others.to(dtype).requires_grad_()
        results.append(step(criterion.to(dtype), inputs[0], labels, inputs=inputs, reference=inputs[1], reference_labels=others_labels))
    (value, gradients), (expected, slow) = results
    torch.testing.assert_close(value.double(), expected, rtol=2e-5, atol=1e-5)
    for ours, theirs in zip(gradients, slow, strict=True):
        scale = max(float(theirs.abs().max()), 1e-6)
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("margin", [-0.5, 0.0, 1.0])
@pytest.mark.parametrize("name", ["contrastive", "snr_contrastive"])
def test_what_is_equal_is_0_apart(name, margin, monkeypatch):
    batch, labels, others, others_labels, own = large()
    others = others.detach().clone()
    strangers = [int((others_labels != label).nonzero()[i]) for i, label in enumerate(labels)]
    others[strangers] = batch.detach()
    criterion = build(name, **{f"loss_{name}_neg_margin": margin}).float()
    form = {"reference": others.requires_grad_(), "reference_labels": others_labels, "own": own}
    check_against_the_matrix(criterion, batch, labels, form, monkeypatch)


def test_many_positives_are_left_to_the_matrix():
    labels = torch.zeros(8, dtype=torch.long)
    reference = Reference.of(torch.rand(8, 4), labels, torch.rand(50, 4), torch.zeros(50, dtype=torch.long))
    assert _streams.apart(labels, reference) is None
