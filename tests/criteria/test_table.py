"""Every loss of the table against its formula in loops: any labels, reference, own images, rows at a time, precision.
And its peers.
"""

import contextlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import batch_mining
import criteria
from criteria import _pairs, _ranking, happier
from criteria._pairs import PairCriterion
from criteria._proxies import ProxyCriterion
from tests.criteria import _table
from utilities.errors import UserError
from utilities.tuples import Sets

N_CLASSES = 5
DIMENSIONS = 6
PREPARED = {
    "happier": lambda criterion, formula: criterion.set_levels(formula.__closure__[0].cell_contents.numpy()),
    "hist": lambda criterion, formula: criterion.log_variances.data.mul_(10),  # some beyond 6
}


class TableMiner:
    """All triplets, or the sets that a loss takes, of the pairs that are given."""

    stats: dict = {}

    def __init__(self, yields):
        self.yields = yields

    def __call__(self, batch, labels, reference=None, reference_labels=None, own=None):
        others, own = (labels, torch.arange(len(labels))) if reference is None else (reference_labels, own)
        partner_rows = pairs_of(labels, others, own, self.yields == "few")
        complete = _table.sets(partner_rows)
        if self.yields in ("triplets", "few"):
            return _table.triplets(partner_rows)
        masks = [torch.zeros(len(complete), len(others), dtype=torch.bool) for _ in range(2)]
        for row, (_, *partner_sets) in enumerate(complete):
            for mask, chosen in zip(masks, partner_sets, strict=True):
                mask[row, chosen] = True
        positives = (
            masks[0] if self.yields == "lifted" else torch.tensor([ps[-1] for _, ps, _ in complete], dtype=torch.long)
        )
        return Sets(torch.tensor([a for a, _, _ in complete], dtype=torch.long), positives, masks[1])


def pairs_of(labels, reference_labels, own, few=False):
    """Positives and negatives of each anchor; with `few` the first positive and the first two negatives of those that
    have both.
    """
    partner_rows = _table.partners(labels.tolist(), reference_labels.tolist(), own)
    if not few:
        return partner_rows
    are_complete = [bool(ps and ns) for ps, ns in zip(*partner_rows, strict=True)]
    return [
        [chosen[:count] if is_complete else [] for chosen, is_complete in zip(kind, are_complete, strict=True)]
        for kind, count in zip(partner_rows, (1, 2), strict=True)
    ]


def build(name, yields=None, formula=None, **flags):
    """The criterion in float64, with the same parameters in every call."""
    module = criteria.REGISTRY.module(name)
    kind = yields or (module.ALLOWED_MINING_OPS or ["triplets"])[0]
    miner = TableMiner(kind) if module.REQUIRES_BATCHMINER or yields else None
    torch.manual_seed(0)
    about = {
        "n_classes": N_CLASSES + (name == "happier"),
        "embed_dim": DIMENSIONS,
        "batch_mining": "random",
        "arch": "resnet50",
    }
    criterion = criteria.select(name, batchminer=miner, mine_pairs=bool(yields), **{**about, **flags}).double()
    if formula is not None and name in PREPARED:
        PREPARED[name](criterion, formula)
    return criterion


MIXED = [0, 0, 0, 1, 1, 2, 2, 2, 3]


def mined(name, x):
    """The tuples of a real miner, once."""
    torch.manual_seed(0)
    return batch_mining.select(name)(x, torch.tensor(MIXED))


def criterion_of(name, tuples, **flags):
    """The criterion on the same tuples whatever the batch."""
    criterion = build(name, **flags)
    criterion.batchminer = criterion.batchminer and (lambda batch, labels: tuples)
    return criterion


def points(n, seed, unit, dtype=torch.float64):
    made = torch.randn(n, DIMENSIONS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (torch.nn.functional.normalize(made) if unit else 0.6 * made).to(dtype).requires_grad_()


def step(function, inputs, *args, **kwargs):
    """Value and gradients; what draws is seeded."""
    torch.manual_seed(1)
    value = torch.as_tensor(function(*args, **kwargs), dtype=torch.float64)
    value = value + sum(0 * x.double().sum() for x in inputs)
    return value.detach(), torch.autograd.grad(value, inputs)


def check_numbers(criterion, ours, expected, smooth):
    torch.testing.assert_close(ours[0], expected[0], rtol=1e-8, atol=1e-8)
    if smooth:
        for one, other in zip(ours[1], expected[1], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
    for key, statistic in criterion.stats.items():
        assert statistic.shape == () and statistic.isfinite() and not statistic.requires_grad, key


def check_precisions(criterion, call, expected):
    """The value in float32 and, finite, of bfloat16."""
    criterion.float()
    single = call(torch.float32)
    half = call(torch.bfloat16)
    assert single.dtype == half.dtype == torch.float32 and half.isfinite()
    torch.testing.assert_close(single.double(), expected, rtol=2e-3, atol=2e-4)


FIRST = {name: at for at, (name, *_) in reversed([*enumerate(_table.COMPARING)])}
COMPARING = [
    (*row, yields)
    for at, row in enumerate(_table.COMPARING)
    for yields in (
        (None, "few")
        if at == FIRST[row[0]] and getattr(criteria.REGISTRY.module(row[0]), "MINES_PAIRS", False)
        else (None,)
    )
]
# labels, those of a reference and the own images there (None: the batch itself), length, anchors at a time, whether two
# images are one
SCENES = [
    ([0, 0, 1, 1, 0, 2, 1], None, None, False, 2, False),
    ([2, 2, 3, 2, 3], None, None, True, 100, True),
    ([0, 1, 1, 4, 0, 3], [1, 0, 5, 1, 0, 0, 4, 1], [1, 0, -1, 6, 2, -1], True, 1, False),
    ([0, 2, 0], [0, 0, 2, 1, 2], [-1, 2, 0], False, 2, False),
    ([3], None, None, True, 1, False),
    ([1, 1], [], [-1, -1], True, 1, False),
]


@pytest.mark.parametrize(
    ("name", "formula", "flags", "yields"), COMPARING, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_loss_that_compares_samples_is_its_formula(name, formula, flags, yields):
    for seed, scene in enumerate(SCENES):
        check_comparing(name, formula, flags, yields, seed, *scene)


few_labels = st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=7)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "formula", "flags", "yields"), COMPARING, ids=lambda value: value if isinstance(value, str) else ""
)
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(labels=few_labels, others=st.none() | st.lists(st.integers(0, N_CLASSES), max_size=9), data=st.data())
def test_it_is_its_formula_for_any_labels(name, formula, flags, yields, labels, others, data):
    own = (
        None
        if others is None
        else data.draw(st.lists(st.integers(-1, len(others) - 1), min_size=len(labels), max_size=len(labels)))
    )
    copies = others is None and len(labels) > 2 and data.draw(st.booleans())
    seed = data.draw(st.integers(0, 99))
    rows = data.draw(st.sampled_from([1, 2, 100]))
    check_comparing(name, formula, flags, yields, seed, labels, others, own, data.draw(st.booleans()), rows, copies)


def check_comparing(name, formula, flags, yields, seed, labels, others, own, unit, rows, copies):
    copies = copies and name != "happier"
    labels, x = torch.tensor(labels), points(len(labels), seed, unit)
    if copies:
        x.data[1] = x.data[0]
    criterion = build(name, yields, formula, **flags)
    form = {}
    inputs = [x]
    r = x
    reference_labels = labels
    own = torch.arange(len(labels)) if own is None else torch.tensor(own)
    if others is not None:
        reference_labels = torch.tensor(others, dtype=torch.long)
        r = points(len(others), seed + 100, unit)
        form = {"reference": r, "reference_labels": reference_labels, "own": own}
        inputs = [x, r]
    partner_rows = pairs_of(labels, reference_labels, own, bool(yields))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pairs, "ENTRIES", 1)
        patch.setattr(_pairs, "ANCHORS", rows)
        patch.setattr(_ranking, "CHUNK", rows)
        patch.setattr(happier, "CHUNK", 30 * rows)
        inputs += [p for p in criterion.parameters()]
        ours = step(criterion, inputs, x, labels, **form)
        expected = step(formula, inputs, criterion, x, r, partner_rows, (labels, reference_labels, own))
        check_numbers(criterion, ours, expected, not copies)
        if others is None and not copies:  # the batch as its own reference is the plain form
            copy = x.detach().clone().requires_grad_()
            against_itself = step(criterion, [x, copy], x, labels, reference=copy, reference_labels=labels, own=own)
            torch.testing.assert_close(against_itself[0], ours[0], rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(against_itself[1][0] + against_itself[1][1], ours[1][0], rtol=1e-8, atol=1e-9)

    def call(dtype):
        torch.manual_seed(1)
        return criterion(x.detach().to(dtype), labels, **({**form, "reference": r.detach().to(dtype)} if form else {}))

    if len(r) and name not in ("pml", "smoothap", "recallatk", "pnp", "tupletmargin", "happier") and not copies:
        check_precisions(criterion, call, expected[0])


def test_rows_at_a_time_change_nothing():
    """Values, gradients and statistics, with and without own images and a miner's pairs."""
    x = points(8, 1, False)
    r = points(14, 2, False)
    labels = torch.tensor([0, 0, 1, 1, 2, 3, 0, 4])
    reference_labels = torch.tensor([0, 1] * 3 + [2, 3, 4, 0] * 2)
    for name, formula, flags, yields in COMPARING:
        results = []
        form = {"reference": r, "reference_labels": reference_labels, "own": torch.tensor([0, -1, 5, 3, 6, 1, 2, -1])}
        for rows in (100, 3):
            criterion = build(name, yields, formula, **flags)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_pairs, "ENTRIES", 1)
                patch.setattr(_pairs, "ANCHORS", rows)
                results.append((*step(criterion, [x, r, *criterion.parameters()], x, labels, **form), criterion.stats))
        torch.testing.assert_close(
            results[1], results[0], rtol=1e-10, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize(
    ("name", "formula", "flags"), _table.WHOLE, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_loss_of_the_batch_as_a_whole_is_its_formula(name, formula, flags):
    for labels, unit in (([0, 0, 1, 1, 0, 2, 1], False), ([2, 3, 2, 4], True), ([1, 1], False), ([3], True)):
        check_whole(name, formula, flags, labels, unit)


def check_whole(name, formula, flags, labels, unit):
    criterion, labels, x = build(name, None, formula, **flags), torch.tensor(labels), points(len(labels), 0, unit)
    x.data *= 5 if name == "vicreg" and not unit else 1  # beyond the variance that it wants
    inputs = [x, *criterion.parameters()]
    expected = step(formula, inputs, criterion, x, labels)
    check_numbers(criterion, step(criterion, inputs, x, labels), expected, True)
    if name != "contextual":  # which has steps
        check_precisions(criterion, lambda dtype: criterion(x.detach().to(dtype), labels), expected[0])


def test_values_of_the_authors_code():
    for name, flags, state, values in _table.PINS:
        criterion = build(name, n_classes=3, embed_dim=3, **flags)
        criterion.load_state_dict({**criterion.state_dict(), **state})
        results = {"loss": criterion(_table.PINNED, _table.PINNED_LABELS), **criterion.stats}
        for key, value in values.items():
            assert results[key].item() == pytest.approx(value, abs=1e-7), (name, flags, key)


def test_every_loss_is_in_the_table_or_has_tests_of_its_own():
    """As those with draws or a state of their own have."""
    listed = {name for name, *_ in _table.COMPARING + _table.WHOLE}
    lacking = [
        name
        for name in criteria.REGISTRY.names()
        if name not in listed and not (Path(__file__).parent / f"test_{name}.py").exists()
    ]
    assert not lacking, "a row in tests/criteria/_table.py, or tests/criteria/test_<name>.py"


@pytest.mark.parametrize(
    ("name", "flags", "peer", "vectors", "miner"),
    _table.PEERS,
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore")
def test_pytorch_metric_learning_agrees(name, flags, peer, vectors, miner):
    labels = torch.arange(24) // 2 % N_CLASSES
    x, y = (points(24, 1, False) for _ in range(2))
    criterion = build(name, **flags)
    peer = peer()
    if vectors:
        weight = getattr(peer, vectors)
        weight.data = weight.data.double()
        with torch.no_grad():
            criterion.proxies.copy_(weight if weight.shape == criterion.proxies.shape else weight.T)
    unit = torch.nn.functional.normalize(x)
    of_peer = torch.nn.functional.normalize(y)
    tuples = [tuple(batch_mining.select(miner)(unit, labels))] if miner else []
    if miner:
        criterion.batchminer = lambda batch, labels: tuples[0]
    ours = criterion(unit, labels)
    theirs = peer(of_peer, labels, *tuples)
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-6, atol=1e-8)
    assert x.grad.abs().sum() > 0
    if vectors:
        gradient = weight.grad if weight.shape == criterion.proxies.shape else weight.grad.T
        torch.testing.assert_close(criterion.proxies.grad, gradient, rtol=1e-6, atol=1e-8)


def test_every_precision():
    """Gradients in float32 are those of float64; in float16 they are finite, with zero rows too; inside autocast all is
    float32.
    """
    wrong = []
    labels = torch.arange(24) // 4
    for name in criteria.REGISTRY.names():
        if name == "pml":
            continue
        flags = {"n_classes": 6, **({"loss_hier_n_proxies": 12, "loss_hier_per_anchor": 4} if name == "hier" else {})}

        def of(x, criterion, context=contextlib.nullcontext):
            x = x.clone().requires_grad_()
            torch.manual_seed(1)
            with context():
                value = criterion(x, labels)
            return value.detach(), torch.autograd.grad(value, x)[0]

        x = points(24, 1, True).detach()
        double = of(x, build(name, **flags))
        single = of(x.float(), build(name, **flags).float())
        if (single[1] - double[1]).norm() > 1e-4 * double[1].norm() or single[0].dtype != torch.float32:
            wrong.append((name, "float32"))
        inside = of(x.float(), build(name, **flags).float(), lambda: torch.autocast("cpu", torch.bfloat16))
        if any(not torch.equal(one, other) for one, other in zip(single, inside, strict=True)):
            wrong.append((name, "autocast"))
        x[0] = x[5] = 0
        half = of(x.half(), build(name, **flags).float())
        if not (half[0].isfinite() and half[1].isfinite().all()) and not name.startswith(
            "snr"
        ):  # which divides by a row's variance
            wrong.append((name, "float16"))
    assert not wrong


LOSSES_ON_PAIRS = [
    name
    for name in criteria.REGISTRY.names()
    if issubclass(criteria.REGISTRY.module(name).Criterion, PairCriterion)
    and name not in ("recallatk", "happier")  # has steps
]


def test_an_outlier_in_the_memory_spoils_no_anchors_loss():
    """One row of length 1,000: values and gradients in float32 are those of float64, anchor by anchor, against a
    reference in parts.
    """
    generator = torch.Generator().manual_seed(0)
    wrong = []
    x, r = (
        torch.nn.functional.normalize(torch.randn(n, 16, generator=generator, dtype=torch.float64)) for n in (6, 400)
    )
    r[7] *= 1000
    labels = torch.arange(6) // 2
    others = torch.arange(400) % 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pairs, "ENTRIES", 1)
        patch.setattr(_pairs, "ANCHORS", 2)
        for name in LOSSES_ON_PAIRS:
            module = criteria.REGISTRY.module(name)
            found = {}
            for dtype in (torch.float64, torch.float32):
                miner = (
                    batch_mining.select({"lifted": "lifted"}.get(name, "none")) if module.REQUIRES_BATCHMINER else None
                )
                criterion = criteria.select(name, None, miner, arch="resnet50").to(dtype)
                batch = x.to(dtype).requires_grad_()
                value = criterion(batch, labels, reference=r.to(dtype), reference_labels=others)
                (gradient,) = torch.autograd.grad(value, batch)
                found[dtype] = value.detach().double(), gradient.double()
            for one, other in zip(found[torch.float32], found[torch.float64], strict=True):
                scale = other.abs().amax(-1, keepdim=True) if other.ndim else other.abs()
                if not bool(((one - other).abs() <= 2e-4 * scale + 1e-6).all()):
                    wrong.append((name, float(((one - other).abs() / (scale + 1e-9)).max())))
    assert not wrong


def test_a_tie_at_the_margin_has_one_answer():
    """A negative exactly at the margin counts among the active ones, in the batch and beside a memory."""
    x = torch.eye(DIMENSIONS, dtype=torch.float64)[:3]
    labels = torch.tensor([0, 1, 2])
    criterion = build("threshold_consistent", loss_threshold_consistent_neg_margin=0.0)
    shares = []
    for form in ({}, {"reference": x.clone(), "reference_labels": labels, "own": torch.arange(3)}):
        criterion(x, labels, **form)
        shares.append(float(criterion.stats["active_negative_share"]))
    assert shares == [1.0, 1.0]


def test_class_vectors_refuse_a_reference_in_one_line():
    x = points(4, 0, True)
    labels = torch.tensor([0, 0, 1, 1])
    for name, module in criteria.REGISTRY.modules().items():
        if issubclass(module.Criterion, ProxyCriterion) or name in ("hier", "vicreg", "contextual"):
            with pytest.raises(
                UserError, match=f"^the criterion {name} (compares no samples|cannot be used with a memory)"
            ):
                build(name)(x, labels, reference=x, reference_labels=labels)
