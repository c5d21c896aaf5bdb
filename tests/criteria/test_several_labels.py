"""Images with several labels: positives share one, for every loss and miner that can; the memory_rows refuse."""

import copy
import math

import pytest
import torch
from torch.nn.functional import normalize

import batch_mining
import criteria
from tests.kit.refusals import refused
from utilities.reference import Reference
from utilities.tuples import Related, partners

X = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8]], dtype=torch.float64)
V = normalize(torch.tensor([[1, 0.2, 0], [0, 1, 0.3], [0.1, 0, 1]], dtype=torch.float64))
SETS = [{0}, {0, 1}, {1}, {2}]
SIZES = {"n_classes": 5, "embed_dim": 6}
# each compares images by one label, or learns something of classes
REFUSED = {
    *("adaface", "arcface", "circle_softmax", "cosface", "curricularface", "largemargin_softmax", "magface"),
    *("sphereface", "subcenter_arcface", "p2sgrad", "instance", "proxyanchor", "proxynca", "proxynca_pp"),
    *("softtriplet", "hist", "meanfield", "center", "manifold", "vicreg", "happier", "hier", "hyperbolic"),
    *("contextual", "quadruplet", "margin"),
}
FOLLOWING = sorted(set(criteria.REGISTRY.names()) - REFUSED - {"pml"})
MINERS_REFUSED = {"intra_random", "packaged", "pml", "random_distance"}
MINERS = sorted(set(batch_mining.REGISTRY.names()) - MINERS_REFUSED)
# no tuples that are wrong on purpose
MINER_SETTINGS = {"rho_distance": {"miner_rho_distance_cp": 0.0}}
SETTINGS = {"softmax": {"loss_softmax_temperature": 1.0}}


def rows_of(sets, n_labels):
    rows = torch.zeros(len(sets), n_labels, dtype=torch.bool)
    for row, labels in enumerate(sets):
        rows[row, list(labels)] = True
    return rows


def random_rows(n, seed, n_labels=5):
    """Random unit vectors, and a set of one to three labels of each; a label more that all images of a half have."""
    generator = torch.Generator().manual_seed(seed)
    points = normalize(torch.randn(n, 6, generator=generator, dtype=torch.float64))
    sets = []
    for _ in range(n):
        count = int(torch.randint(1, 4, (1,), generator=generator))
        sets.append(set(torch.randperm(n_labels, generator=generator)[:count].tolist()))
    return points, sets


def firsts(sets):
    return torch.tensor([min(labels) for labels in sets])


def related(anchors, memory_rows, own_rows):
    """Masks by sets: which of `memory_rows` share a label with each anchor, and which do not; not its own image."""
    positives = torch.zeros(len(anchors), len(memory_rows), dtype=torch.bool)
    negatives = torch.zeros_like(positives)
    for row, labels in enumerate(anchors):
        for column, partner in enumerate(memory_rows):
            if column != own_rows[row]:
                positives[row, column] = bool(labels & partner)
                negatives[row, column] = not labels & partner
    return positives, negatives


def test_pinned_values():
    relevance = rows_of(SETS, 3)
    labels = firsts(SETS)
    unmined = criteria.select("multisimilarity", loss_multisimilarity_margin=math.inf)
    assert unmined(X, labels, relevance=relevance).item() == pytest.approx(0.2874353, abs=5e-8)
    softmax = criteria.select("softmax", n_classes=3, embed_dim=3, loss_softmax_temperature=1.0).double()
    softmax.proxies.data = V
    assert softmax(X, labels, relevance=relevance).item() == pytest.approx(0.7634882, abs=1e-7)


def test_masks_are_those_of_sets_and_are_split_with_the_anchors():
    points, sets = random_rows(9, seed=1)
    memory_rows, other_sets = random_rows(13, seed=2)
    # Image 4 has no label and is related to nothing, not even to itself
    sets[4] = set()
    labels = torch.zeros(9, dtype=torch.long)
    reference = Reference.build(points, labels, relevance=rows_of(sets, 5).long())
    for mask, expected in zip(reference.masks(labels), related(sets, sets, range(9)), strict=True):
        assert torch.equal(mask, expected)
    assert torch.equal(reference.negatives(labels), related(sets, sets, range(9))[1])
    own_rows = torch.tensor([3, -1, 0, 12, -1, 5, 6, 7, 8])
    form = {"relevance": rows_of(sets, 5), "reference_relevance": rows_of(other_sets, 5)}
    reference = Reference.build(points, labels, memory_rows, torch.zeros(13), own_rows, **form)
    expected = related(sets, other_sets, own_rows.tolist())
    for part, rows in zip(reference.split(4), (slice(0, 4), slice(4, 8), slice(8, 9)), strict=True):
        for mask, expected_mask in zip(part.masks(labels[rows]), expected, strict=True):
            assert torch.equal(mask, expected_mask[rows])
    empty = Reference.build(
        points, labels, memory_rows[:0], torch.zeros(0), **(form | {"reference_relevance": form["relevance"][:0]})
    )
    assert not any(mask.any() for mask in empty.with_own_row().masks(labels))


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_loss_of_one_label_each_is_that_of_labels(name):
    """With one label per image the relevance says what the labels say, also in a memory of other images."""
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 4])
    points = random_rows(8, seed=3)[0].requires_grad_()
    relevance = torch.nn.functional.one_hot(labels, 5)
    miner = {"batch_mining": "all"} if name not in ("angular", "npair", "lifted") else {}
    criterion = criteria.select(name, **SIZES, **miner, **SETTINGS.get(name, {})).double()
    torch.manual_seed(0)
    expected = copy.deepcopy(criterion)(points, labels)
    torch.manual_seed(0)
    value = criterion(points, labels, relevance=relevance)
    # The miner of these two draws the positive, so that the values may differ
    if name in ("angular", "npair"):
        assert torch.isfinite(value)
        return
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    slopes = [torch.autograd.grad(loss, points)[0] for loss in (value, expected)]
    assert torch.allclose(*slopes, rtol=1e-10, atol=1e-14)
    if name == "softmax":
        return
    memory_rows, sets = random_rows(11, seed=4)
    form = {"reference": memory_rows, "reference_labels": firsts(sets), "own": torch.tensor([2, -1, 0, 1, 3, -1, 5, 6])}
    criterion = criteria.select(name, **SIZES, **miner).double()
    expected = copy.deepcopy(criterion)(points, labels, **form)
    rows = torch.nn.functional.one_hot(firsts(sets), 5)
    value = criterion(points, labels, **form, relevance=relevance, reference_relevance=rows)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("name", sorted(set(FOLLOWING) - {"softmax"}))
def test_a_loss_on_pairs_sees_the_sets(name):
    """Other first labels change nothing, another label does."""
    points, sets = random_rows(10, seed=5)
    criterion = criteria.select(name, **SIZES).double()
    values = []
    for labels, relevance in (
        (firsts(sets), rows_of(sets, 5)),
        (firsts(sets).flip(0), rows_of(sets, 5)),
        (firsts(sets), rows_of(sets[::-1], 5)),
    ):
        torch.manual_seed(0)
        values.append(copy.deepcopy(criterion)(points, labels, relevance=relevance).item())
    assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("name", MINERS)
def test_miners_keep_to_the_sets(name):
    points, sets = random_rows(12, seed=6)
    memory_rows, other_sets = random_rows(15, seed=7)
    own_rows = torch.tensor([*range(10), -1, -1])
    relevance = {"relevance": rows_of(sets, 5)}
    memory = {"reference": memory_rows, "reference_labels": firsts(other_sets), "own": own_rows}
    cases = [
        ({}, related(sets, sets, range(12))),
        ({**memory, "reference_relevance": rows_of(other_sets, 5)}, related(sets, other_sets, own_rows.tolist())),
    ]
    for form, (positives, negatives) in cases:
        torch.manual_seed(0)
        miner = batch_mining.select(name, None, **MINER_SETTINGS.get(name, {}))
        mined = miner(points, firsts(sets), **form, **relevance)
        complete = (positives.any(1) & negatives.any(1)).nonzero().squeeze(1)
        if hasattr(mined, "anchors_p"):
            assert (
                positives[mined.anchors_p, mined.positives].all() and negatives[mined.anchors_n, mined.negatives].all()
            )
            continue
        assert len(mined.anchors)
        if mined.negatives.ndim == 2:
            assert torch.equal(mined.anchors, complete) and torch.equal(mined.negatives, negatives[complete])
            chosen = torch.zeros_like(positives[complete])
            chosen[mined.positives if mined.positives.ndim == 2 else (range(len(complete)), mined.positives)] = True
            assert not (chosen & ~positives[complete]).any() and chosen.any(1).all()
            continue
        assert positives[mined.anchors, mined.positives].all() and negatives[mined.anchors, mined.negatives].all()
        if name in ("batchhard", "distance", "parametric", "rho_distance", "semihard", "softhard"):
            assert torch.equal(mined.anchors, complete)
        if name == "all":
            n_triplets = (positives.sum(1) * negatives.sum(1)).sum()
            assert len(set(zip(*(column.tolist() for column in mined), strict=True))) == n_triplets


def test_partners_are_drawn_uniformly():
    _, sets = random_rows(8, seed=8)
    reference = Reference.build(torch.eye(8), firsts(sets), relevance=rows_of(sets, 5))
    positives = reference.masks(firsts(sets))[0]
    relations = partners(firsts(sets), reference)
    assert isinstance(relations, Related) and torch.equal(relations.n_positives, positives.sum(1))
    torch.manual_seed(0)
    anchors = torch.arange(8).repeat(4000)
    counts = torch.zeros(8, 8).index_put_((anchors, relations.draw_positives(anchors)), torch.ones(()), accumulate=True)
    has_some = positives.any(1)
    shares = positives[has_some] / positives[has_some].sum(1, keepdim=True)
    assert torch.allclose(counts[has_some] / 4000, shares.float(), atol=0.04)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_losses_of_single_labels_refuse(name):
    points, sets = random_rows(6, seed=9)
    extra = {"loss_hier_n_proxies": 12} if name == "hier" else {}
    criterion = criteria.select(name, **SIZES, **extra).double()
    with refused(f"the criterion {name} takes one label per image"):
        criterion(points, firsts(sets), relevance=rows_of(sets, 5))


@pytest.mark.parametrize("name", sorted(MINERS_REFUSED - {"pml"}))
def test_miners_of_single_labels_refuse(name):
    points, sets = random_rows(6, seed=9)
    with refused(f"the miner {name} takes one label per image"):
        batch_mining.select(name, None)(points, firsts(sets), relevance=rows_of(sets, 5))


def test_what_is_learned_or_weighed_per_class_refuses():
    points, sets = random_rows(6, seed=9)
    cases = (
        ("multisimilarity", {"loss_learn": ["thresh"], "loss_learn_per_class": True}),
        ("triplet", {"loss_reduction": "class_weighted"}),
        ("recallatk", {"loss_recallatk_simix": True}),
        ("softmax", {"sample_classes": 0.5}),
    )
    for name, flags in cases:
        with refused(f"the criterion {name} takes one label per image"):
            criteria.select(name, **SIZES, **flags).double()(points, firsts(sets), relevance=rows_of(sets, 5))
    shared = criteria.select("margin", **SIZES, loss_margin_beta_shared=True).double()
    assert torch.isfinite(shared(points, firsts(sets), relevance=rows_of(sets, 5)))


def test_wrong_shapes_are_errors():
    with pytest.raises(ValueError, match=r"relevance is \(3, 5\): expected \(4, L\)"):
        Reference.build(X, torch.zeros(4), relevance=torch.ones(3, 5))
    with pytest.raises(ValueError, match="relevance and reference_relevance belong together"):
        Reference.build(X, torch.zeros(4), X, torch.zeros(4), relevance=torch.ones(4, 5))
