"""The reference form of every criterion: anchors are compared with other embeddings than the batch. Against loops in float64."""

import inspect

import pytest
import torch
from pytorch_metric_learning import losses

import criteria
from criteria import _pairs, _ranking
from criteria._proxies import ProxyCriterion
from tests.criteria import _reference_loops as loops
from tests.criteria.test_registry_wide import NEEDED
from utilities import pml
from utilities.criterion import MetricCriterion, takes_reference
from utilities.errors import UserError
from utilities.reference import Reference
from utilities.tuples import Classes, Sets

N_CLASSES, DIMENSIONS = 6, 5
LABELS = [0, 0, 1, 1, 2, 3, 0, 4]
# of a reference: as many samples as the batch has, more, fewer, none of the batch's classes, none at all; class 4 is in none of them
OTHERS = {
    "as many": [0, 1, 1, 2, 2, 3, 0, 5],
    "more": [5, 0, 1, 0, 2, 1, 1, 3, 3, 2, 0, 5, 1, 0],
    "fewer": [1, 0, 0, 2, 1],
    "one class": [1, 1, 1],
    "other classes": [5, 5, 5],
    "empty": [],
}
every_reference = pytest.mark.parametrize("kind", OTHERS)


def takes(name: str) -> bool:
    try:
        takes_reference(criteria.REGISTRY.module(name).Criterion)
    except UserError:
        return False
    return True


COMPARING = [name for name in criteria.REGISTRY.names() if takes(name)]


class StandIn:
    """A miner of all there is: triplets, or the sets that the criteria on sets take. Without a reference the batch is the reference."""

    stats: dict = {}

    def __init__(self, yields: str):
        self.yields = yields

    def __call__(self, batch, labels, reference=None, reference_labels=None, own=None):
        others, own = (labels, range(len(labels))) if reference is None else (reference_labels, own.tolist())
        positives, negatives = loops.partners(labels, others, own)
        complete = [a for a in range(len(labels)) if positives[a] and negatives[a]]
        if self.yields == "triplets":
            return [(a, p, n) for a in complete for p in positives[a] for n in negatives[a]]
        masks = [[[j in found[a] for j in range(len(others))] for a in complete] for found in (positives, negatives)]
        masks = [torch.tensor(mask, dtype=torch.bool).view(len(complete), len(others)) for mask in masks]
        anchors = torch.tensor(complete, dtype=torch.long)
        if self.yields == "lifted":
            return Sets(anchors, *masks)
        return Sets(anchors, torch.tensor([positives[a][-1] for a in complete], dtype=torch.long), masks[1])


def build(name: str, **flags):
    """The criterion in float64, with a stand-in miner where it requires one."""
    module = criteria.REGISTRY.module(name)
    allowed = (module.ALLOWED_MINING_OPS or ["triplets"])[0]
    miner = StandIn(allowed if allowed in ("npair", "lifted") else "triplets") if module.REQUIRES_BATCHMINER else None
    flags = {"n_classes": N_CLASSES, "embed_dim": DIMENSIONS, "batch_mining": "random", "arch": "resnet50", **NEEDED, **flags}
    torch.manual_seed(0)
    return criteria.select(name, batchminer=miner, **flags).double()


def points(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (0.6 * torch.randn(n, DIMENSIONS, generator=generator, dtype=torch.float64)).requires_grad_()


def given(kind: str, with_own: bool):
    """Batch, labels, reference, its labels, own: rows of the anchor's label, of another label, and -1."""
    batch, labels, others = points(len(LABELS)), torch.tensor(LABELS), torch.tensor(OTHERS[kind], dtype=torch.long)
    own = None
    if with_own:
        own = torch.arange(len(LABELS)) * 3 % max(len(others), 1)
        own[torch.tensor([3, 7])] = -1
        if not len(others):
            own.fill_(-1)
    return batch, labels, points(len(others), seed=1), others, own


def step(criterion, *args, inputs, **kwargs):
    """Value, and gradients by `inputs` and the criterion's parameters; what draws is seeded."""
    torch.manual_seed(1)
    value = criterion(*args, **kwargs)
    inputs = [*inputs, *criterion.parameters()]
    gradients = torch.autograd.grad(value, inputs, allow_unused=True)
    return value.detach(), [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients, strict=True)]


def check(ours, expected, tolerance=1e-9):
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------------ the plain form is a special case
@pytest.mark.parametrize("name", COMPARING)
def test_the_batch_as_reference_is_the_plain_form(name):
    batch, labels = points(len(LABELS)), torch.tensor(LABELS)
    criterion = build(name)
    value, (gradient, *of_parameters) = step(criterion, batch, labels, inputs=[batch])
    copy = batch.detach().clone().requires_grad_()
    form = {"reference": copy, "reference_labels": labels, "own": torch.arange(len(labels))}
    same, (of_anchors, of_others, *others) = step(criterion, batch, labels, inputs=[batch, copy], **form)
    check(same, value, 1e-10)
    check(of_anchors + of_others, gradient, 1e-10)
    check(others, of_parameters, 1e-10)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", COMPARING)
def test_the_plain_reference_itself_changes_no_bit(name):
    batch, labels = points(len(LABELS)).detach().float().requires_grad_(), torch.tensor(LABELS)
    criterion = build(name).float()
    plain = step(criterion, batch, labels, inputs=[batch])
    same = step(criterion, batch, labels, inputs=[batch], reference=Reference.of(batch, labels))
    assert torch.equal(plain[0], same[0]) and torch.equal(plain[1][0], same[1][0])


# --------------------------------------------------------------------------------------------------------------------- against loops
@every_reference
@pytest.mark.parametrize("with_own", [False, True])
@pytest.mark.parametrize("name", loops.FORMULAS)
def test_value_and_gradients_are_those_of_loops(name, with_own, kind):
    batch, labels, reference, others, own = given(kind, with_own)
    criterion = build(name, **loops.FLAGS.get(name, {}))
    form = {"reference": reference, "reference_labels": others, "own": own}
    found = loops.partners(labels, others, own)
    ours = step(criterion, batch, labels, inputs=[batch, reference], **form)

    def slow(batch, labels):
        return loops.FORMULAS[name](criterion, batch, reference, found, (labels, others, own)) + 0 * batch.sum()

    slow.parameters = criterion.parameters
    expected = step(slow, batch, labels, inputs=[batch, reference])
    check(ours[0], expected[0])
    check(ours[1], expected[1], 1e-8)
    for key, statistic in criterion.stats.items():
        assert statistic.shape == () and statistic.isfinite() and not statistic.requires_grad, key
    # a reference without a gradient: the same for the batch
    form["reference"] = reference.detach()
    detached = step(criterion, batch, labels, inputs=[batch], **form)
    assert torch.equal(detached[0], ours[0])
    check(detached[1][0], ours[1][0], 1e-12)


def test_loops_exist_for_every_criterion_of_ours():
    """Who adds a criterion that compares samples may add its loops; those here have them."""
    assert set(loops.FORMULAS) <= set(COMPARING)
    assert {"contrastive", "pml", "quadruplet", "recallatk", "snr_contrastive"} <= set(loops.FORMULAS)


@pytest.mark.parametrize("name", COMPARING)
def test_an_empty_reference_costs_nothing(name):
    """But for the term on the anchors' own norms."""
    batch, labels, reference, others, own = given("empty", True)
    criterion = build(name)
    for norm in ("l2", "npair_l2", "regularizer_weight"):
        if hasattr(criterion, norm):
            setattr(criterion, norm, 0.0)
    form = {"reference": reference, "reference_labels": others}
    for rows in (own, None):
        value, gradients = step(criterion, batch, labels, inputs=[batch, reference], own=rows, **form)
        assert value == 0 and value.shape == ()
        assert all((gradient == 0).all() for gradient in gradients)
        assert all(statistic.isfinite() for statistic in criterion.stats.values())


@pytest.mark.parametrize("name", COMPARING)
@every_reference
def test_half_precision_is_raised(name, kind):
    batch, labels, reference, others, own = given(kind, True)
    criterion = build(name).float()
    halves = [tensor.detach().bfloat16().requires_grad_() for tensor in (batch, reference)]
    form = {"reference_labels": others, "own": own}
    value, gradients = step(criterion, halves[0], labels, inputs=halves, reference=halves[1], **form)
    singles = [tensor.detach().float().requires_grad_() for tensor in halves]
    expected, _ = step(criterion, singles[0], labels, inputs=singles, reference=singles[1], **form)
    assert value.dtype == torch.float32 and torch.equal(value, expected)
    assert all(gradient.isfinite().all() for gradient in gradients)


PAIR_CRITERIA = [
    name
    for name in COMPARING
    if issubclass(criteria.REGISTRY.module(name).Criterion, _pairs.PairCriterion) and not criteria.REGISTRY.module(name).REQUIRES_BATCHMINER
]


@pytest.mark.parametrize(
    ("name", "mine_pairs"), [("angular", False), ("lifted", False), *((name, mined) for name in PAIR_CRITERIA for mined in (False, True))]
)
@pytest.mark.parametrize("with_own", [False, True])
def test_few_anchors_at_a_time_change_nothing(name, mine_pairs, with_own, monkeypatch):
    batch, labels, reference, others, own = given("more", with_own)
    criterion = build(name)
    if name in PAIR_CRITERIA:
        criterion.batchminer = StandIn("triplets") if mine_pairs else None
    form = {"reference": reference, "reference_labels": others, "own": own}
    whole, stats = step(criterion, batch, labels, inputs=[batch, reference], **form), criterion.stats
    for size in (1, 3 * len(others)):
        monkeypatch.setattr(_pairs, "ENTRIES", size)
        monkeypatch.setattr(_pairs, "ANCHORS", 1)
        monkeypatch.setattr(_ranking, "CHUNK", size)
        parts = step(criterion, batch, labels, inputs=[batch, reference], **form)
        check(parts[0], whole[0], 1e-12)
        check(parts[1], whole[1], 1e-12)
        check(criterion.stats, stats, 1e-12)


@pytest.mark.parametrize("name", ["multisimilarity", "snr_contrastive", "nca"])
def test_a_miners_pairs_with_a_reference(name):
    """The stand-in's triplets leave out the pairs of anchors that lack a positive or a negative."""
    batch, labels, reference, others, own = given("more", True)
    criterion = build(name)
    criterion.batchminer = StandIn("triplets")
    value = criterion(batch, labels, reference=reference, reference_labels=others, own=own)
    positives, negatives = loops.partners(labels, others, own)
    for a in range(len(labels)):
        if not positives[a] or not negatives[a]:
            positives[a], negatives[a] = [], []
    check(value, loops.FORMULAS[name](criterion, batch, reference, (positives, negatives), (labels, others, own)))


# ------------------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("name", [name for name in criteria.REGISTRY.names() if name not in COMPARING])
def test_class_vectors_refuse_a_reference_in_one_line(name):
    batch, labels, reference, others, _ = given("more", False)
    with pytest.raises(UserError, match=f"^the criterion {name} (compares no samples|takes no reference)") as told:
        build(name)(batch, labels, reference=reference, reference_labels=others)
    assert "\n" not in str(told.value)


def test_no_criterion_with_class_vectors_takes_one():
    vectors = {name for name in criteria.REGISTRY.names() if issubclass(criteria.REGISTRY.module(name).Criterion, ProxyCriterion)}
    assert {"arcface", "softtriplet", "proxyanchor"} <= vectors
    assert not vectors & set(COMPARING)


class Unaware(MetricCriterion):
    def forward(self, batch, labels, **kwargs):
        return batch.sum()


class Bare(MetricCriterion):
    def forward(self, batch, labels):
        return batch.sum()


class Aware(MetricCriterion):
    def forward(self, batch, labels, reference):
        return batch.sum() + reference.embeddings.sum()


@pytest.mark.parametrize("kind", [Unaware, Bare])
def test_a_users_criterion_takes_a_reference_if_it_names_it(kind):
    batch, labels, reference, others, own = given("more", True)
    form = {"reference": reference, "reference_labels": others, "own": own}
    assert kind()(batch, labels) == batch.sum()
    with pytest.raises(UserError, match=f"the criterion {kind.__name__} takes no reference: its forward does not name it"):
        kind()(batch, labels, **form)
    check(Aware()(batch, labels, **form), batch.sum() + reference.sum())


# --------------------------------------------------------------------------------------------------- pytorch-metric-learning's classes
CLASSES = [
    name
    for name, member in vars(losses).items()
    if inspect.isclass(member) and not name.startswith("Base") and "Mixin" not in name and name not in pml.NOT_ALONE
]
KWARGS = {"P2SGradLoss": [f"descriptors_dim={DIMENSIONS}"], "RankedListLoss": ["margin=0.4", "Tn=10"]}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.filterwarnings("ignore")
def test_every_class_of_the_package_takes_a_reference_or_refuses_it_in_one_line(name):
    batch, labels, reference, others, own = given("more", True)
    flags = {"loss_pml_class": name, "loss_pml_kwargs": KWARGS.get(name)}
    refused = []
    for rows in (None, own):
        criterion = build("pml", **flags)
        try:
            value, gradients = step(
                criterion, batch, labels, inputs=[batch, reference], reference=reference, reference_labels=others, own=rows
            )
        except UserError as error:
            assert str(error).startswith(f"--loss_pml_class {name} ") and "\n" not in str(error)
            refused.append(str(error))
            continue
        assert value.isfinite() and all(gradient.isfinite().all() for gradient in gradients)
        assert gradients[0].abs().sum() > 0 and gradients[1].abs().sum() > 0
    if not refused:  # the batch itself, without each anchor's own image, is the plain form
        torch.manual_seed(0)
        plain, (gradient,) = step(build("pml", **flags), batch, labels, inputs=[batch])[:2]
        copy, form = batch.detach().clone().requires_grad_(), {"reference_labels": labels, "own": torch.arange(len(labels))}
        same, gradients = step(build("pml", **flags), batch, labels, inputs=[batch, copy], reference=copy, **form)
        check(same, plain, 1e-6)
        check(gradients[0] + gradients[1], gradient, 1e-6)
    elif len(refused) == 1:
        assert name in pml.OWN_PAIRS


def test_classes_of_the_package_that_compare_pairs_take_a_reference():
    batch, labels, reference, others, own = given("more", True)
    for name in ("ContrastiveLoss", "TripletMarginLoss", "MultiSimilarityLoss", "CircleLoss", "NTXentLoss", "SupConLoss", "MarginLoss"):
        build("pml", loss_pml_class=name)(batch, labels, reference=reference, reference_labels=others, own=own)


def test_pmls_pairs_are_ours():
    """Where the formula is the same, so is the value with a reference."""
    batch, labels, reference, others, own = given("more", True)
    form = {"reference": reference, "reference_labels": others, "own": own}
    for ours, theirs in (("circle", "CircleLoss"), ("ntxent", "NTXentLoss")):
        check(build(ours)(batch, labels, **form), build("pml", loss_pml_class=theirs)(batch, labels, **form), 1e-6)


# ------------------------------------------------------------------------------------------------------------------- the fourth sample
def test_quadruplets_strangers_are_of_a_third_class_of_the_reference():
    batch, labels, reference, others, own = given("more", True)
    triplets = torch.tensor(StandIn("triplets")(batch, labels, reference, others, own))
    strangers, exist = Classes(labels, Reference.of(batch, labels, reference, others, own)).draw_strangers(triplets[:, 0], triplets[:, 2])
    assert exist.all()
    assert (others[strangers] != labels[triplets[:, 0]]).all() and (others[strangers] != others[triplets[:, 2]]).all()
