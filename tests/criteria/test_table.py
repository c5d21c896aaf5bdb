"""Every loss of the table against its formula in loops, with any labels, reference and precision; and its peers."""

import contextlib
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize
from torch.testing import assert_close

import batch_mining
import criteria
from criteria import _pairs, _ranking
from criteria._pairs import PairCriterion
from criteria._proxies import ProxyCriterion
from tests.criteria import _table
from tests.kit.mining import normal
from tests.kit.refusals import refused
from utilities.tuples import Sets

N_CLASSES = 5
DIMENSIONS = 6
PREPARED = {
    "happier": lambda criterion, formula: criterion.set_levels(formula.levels.numpy()),
    # Some log variances then exceed 6, where the criterion cuts them
    "hist": lambda criterion, formula: criterion.log_variances.data.mul_(10),
}


class TableMiner:
    """All triplets, or the sets that a loss takes, of all pairs or ("few") of some."""

    stats: dict = {}

    def __init__(self, yields):
        self.yields = yields

    def __call__(self, batch, labels, reference=None, reference_labels=None, **rows):
        own_rows = rows.get("own")
        if reference is None:
            reference_labels = labels
            own_rows = torch.arange(len(labels))
        pairs = pairs_of(labels, reference_labels, own_rows, self.yields == "few")
        if self.yields in ("triplets", "few"):
            return _table.triplets(pairs)
        complete = _table.sets(pairs)
        masks = [torch.zeros(len(complete), len(reference_labels), dtype=torch.bool) for _ in range(2)]
        for row, (_, *partner_sets) in enumerate(complete):
            for mask, chosen in zip(masks, partner_sets, strict=True):
                mask[row, chosen] = True
        anchors = torch.tensor([a for a, _, _ in complete], dtype=torch.long)
        last_positives = torch.tensor([ps[-1] for _, ps, _ in complete], dtype=torch.long)
        positives = masks[0] if self.yields == "lifted" else last_positives
        return Sets(anchors, positives, masks[1])


def pairs_of(labels, reference_labels, own_rows, are_few=False):
    """Positives and negatives of each anchor; if few, the first and the first two of anchors that have both."""
    positives, negatives = _table.partners(labels.tolist(), reference_labels.tolist(), own_rows)
    if are_few:
        for a, (ps, ns) in enumerate(zip(positives, negatives, strict=True)):
            positives[a] = ps[:1] if ns else []
            negatives[a] = ns[:2] if ps else []
    return positives, negatives


COMMON = {"n_classes": N_CLASSES, "embed_dim": DIMENSIONS, "batch_mining": "random", "arch": "resnet50"}


def build(name, yields=None, formula=None, **flags):
    """The criterion in float64, with the same parameters in every call. A flag of the loss is without its prefix."""
    module = criteria.REGISTRY.module(name)
    kind = yields or (module.ALLOWED_MINING_OPS or ["triplets"])[0]
    miner = TableMiner(kind) if module.REQUIRES_BATCHMINER or yields else None
    options = {**COMMON, "n_classes": N_CLASSES + (name == "happier"), "mine_pairs": bool(yields)}
    for flag, value in flags.items():
        is_common = flag in (*COMMON, "loss", "lr") or flag.startswith("loss_")
        options[flag if is_common else f"loss_{name}_{flag}"] = value
    torch.manual_seed(0)
    criterion = criteria.select(name, batchminer=miner, **options).double()
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
    rows = normal(n, DIMENSIONS, seed=seed)
    rows = normalize(rows) if unit else 0.6 * rows
    return rows.to(dtype).requires_grad_()


def step(function, inputs, *args, **kwargs):
    """Value and gradients; what draws is seeded."""
    torch.manual_seed(1)
    value = torch.as_tensor(function(*args, **kwargs), dtype=torch.float64)
    value = value + sum(0 * x.double().sum() for x in inputs)
    return value.detach(), torch.autograd.grad(value, inputs)


def check_numbers(criterion, ours, expected, smooth):
    assert_close(ours[0], expected[0], rtol=1e-8, atol=1e-8)
    if smooth:
        assert_close(ours[1], expected[1], rtol=1e-7, atol=1e-7)
    for key, statistic in criterion.stats.items():
        assert statistic.shape == () and statistic.isfinite() and not statistic.requires_grad, key


def check_precisions(criterion, call, expected):
    """The value in float32 and, finite, of bfloat16."""
    criterion.float()
    single = call(torch.float32)
    half = call(torch.bfloat16)
    assert single.dtype == half.dtype == torch.float32 and half.isfinite()
    assert_close(single.double(), expected, rtol=2e-3, atol=2e-4)


COMPARING = []
for name, formula, flags in _table.COMPARING:
    is_first = name not in (row[0] for row in COMPARING)
    COMPARING.append((name, formula, flags, None))
    if is_first and getattr(criteria.REGISTRY.module(name), "MINES_PAIRS", False):
        COMPARING.append((name, formula, flags, "few"))
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


def over(columns, rows):
    """The test for each row, with the texts of the row as its name."""
    return pytest.mark.parametrize(columns.split(), rows, ids=lambda value: value if isinstance(value, str) else "")


@over("name formula flags yields", COMPARING)
def test_a_loss_that_compares_samples_is_its_formula(name, formula, flags, yields):
    for seed, scene in enumerate(SCENES):
        check_comparing(name, formula, flags, yields, seed, *scene)


few_labels = st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=7)


@pytest.mark.long
@over("name formula flags yields", COMPARING)
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@given(few_labels, st.none() | st.lists(st.integers(0, N_CLASSES), max_size=9), st.data())
def test_it_is_its_formula_for_any_labels(name, formula, flags, yields, labels, reference_labels, data):
    own_rows = None
    if reference_labels is not None:
        row = st.integers(-1, len(reference_labels) - 1)
        own_rows = data.draw(st.lists(row, min_size=len(labels), max_size=len(labels)))
    copies = reference_labels is None and len(labels) > 2 and data.draw(st.booleans())
    seed = data.draw(st.integers(0, 99))
    rows = data.draw(st.sampled_from([1, 2, 100]))
    scene = labels, reference_labels, own_rows, data.draw(st.booleans()), rows, copies
    check_comparing(name, formula, flags, yields, seed, *scene)


@contextlib.contextmanager
def anchors_at_a_time(rows):
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((_pairs, "ENTRIES", 1), (_pairs, "ANCHORS", rows), (_ranking, "CHUNK", rows)):
            patch.setattr(module, name, value)
        yield


def check_comparing(name, formula, flags, yields, seed, labels, reference_labels, own_rows, unit, rows, copies):
    copies = copies and name != "happier"
    labels = torch.tensor(labels)
    x = r = points(len(labels), seed, unit)
    if copies:
        x.data[1] = x.data[0]
    criterion = build(name, yields, formula, **flags)
    form = {}
    inputs = [x, *criterion.parameters()]
    own_rows = torch.arange(len(labels)) if own_rows is None else torch.tensor(own_rows)
    is_plain = reference_labels is None
    reference_labels = labels if is_plain else torch.tensor(reference_labels, dtype=torch.long)
    if not is_plain:
        r = points(len(reference_labels), seed + 100, unit)
        form = {"reference": r, "reference_labels": reference_labels, "own": own_rows}
        inputs.append(r)
    pairs = pairs_of(labels, reference_labels, own_rows, bool(yields))
    with anchors_at_a_time(rows):
        ours = step(criterion, inputs, x, labels, **form)
        expected = step(formula, inputs, criterion, x, r, pairs, (labels, reference_labels, own_rows))
        check_numbers(criterion, ours, expected, not copies)
        # the batch as its own reference is the plain form
        if is_plain and not copies:
            copy = x.detach().clone().requires_grad_()
            value, gradients = step(
                criterion, [x, copy], x, labels, reference=copy, reference_labels=labels, own=own_rows
            )
            assert_close(value, ours[0], rtol=1e-10, atol=1e-10)
            assert_close(sum(gradients), ours[1][0], rtol=1e-8, atol=1e-9)

    def call(dtype):
        torch.manual_seed(1)
        if not is_plain:
            form["reference"] = r.detach().to(dtype)
        return criterion(x.detach().to(dtype), labels, **form)

    if len(r) and name not in ("pml", "smoothap", "recallatk", "pnp", "tupletmargin", "happier") and not copies:
        check_precisions(criterion, call, expected[0])


def test_the_matrix_of_a_memory_is_kept_while_it_fits():
    """Nothing is computed twice up to `entries`, which --memory_entries sets; values and gradients are the same."""
    x = points(6, 1, True)
    r = points(40, 2, True)
    labels = torch.arange(6) // 2
    form = {"reference": r, "reference_labels": torch.arange(40) % 4, "own": torch.full((6,), -1)}
    results = []
    for entries, is_split in ((None, False), (6 * 40, False), (16 * 40 - 1, False), (1, True)):
        criterion = criteria.select("multisimilarity")
        criterion.entries = entries
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_pairs, "ANCHORS", 3)
            calls = mock.Mock(side_effect=_pairs.few_at_a_time)
            patch.setattr(_pairs, "few_at_a_time", calls)
            results.append(step(criterion, [x, r], x, labels, **form))
        assert calls.called == is_split, entries
    for result in results[1:]:
        assert_close(result, results[0], rtol=1e-10, atol=1e-12)


def test_rows_at_a_time_change_nothing():
    """Values, gradients and statistics, with and without own images and a miner's pairs."""
    x = points(8, 1, False)
    r = points(14, 2, False)
    labels = torch.tensor([0, 0, 1, 1, 2, 3, 0, 4])
    form = {"reference": r, "reference_labels": torch.tensor([0, 1] * 3 + [2, 3, 4, 0] * 2)}
    form["own"] = torch.tensor([0, -1, 5, 3, 6, 1, 2, -1])
    for name, formula, flags, yields in COMPARING:
        results = []
        for rows in (100, 3):
            criterion = build(name, yields, formula, **flags)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_pairs, "ENTRIES", 1)
                patch.setattr(_pairs, "ANCHORS", rows)
                results.append((*step(criterion, [x, r, *criterion.parameters()], x, labels, **form), criterion.stats))
        assert_close(*results, rtol=1e-10, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


@over("name formula flags", _table.WHOLE)
def test_a_loss_of_the_batch_as_a_whole_is_its_formula(name, formula, flags):
    for labels, unit in (([0, 0, 1, 1, 0, 2, 1], False), ([2, 3, 2, 4], True), ([1, 1], False), ([3], True)):
        criterion = build(name, None, formula, **flags)
        labels = torch.tensor(labels)
        x = points(len(labels), 0, unit)
        if name == "vicreg" and not unit:
            # The deviations then exceed what vicreg asks for
            x.data *= 5
        inputs = [x, *criterion.parameters()]
        expected = step(formula, inputs, criterion, x, labels)
        check_numbers(criterion, step(criterion, inputs, x, labels), expected, True)
        if name in ("adaface", "curricularface"):
            # In evaluation the statistics stay as they are
            criterion.eval()
        # contextual has steps, which rounding may cross
        if name != "contextual":
            call = lambda dtype, x=x, labels=labels, loss=criterion: loss(x.detach().to(dtype), labels)  # noqa: E731
            check_precisions(criterion, call, expected[0])


def test_values_of_the_authors_code():
    for name, flags, state, values in _table.PINS:
        criterion = build(name, n_classes=3, embed_dim=3, **flags)
        criterion.load_state_dict({**criterion.state_dict(), **state})
        results = {"loss": criterion(_table.PINNED, _table.PINNED_LABELS), **criterion.stats}
        for key, value in values.items():
            assert results[key].item() == pytest.approx(value, abs=1e-7), (name, flags, key)


def test_every_loss_is_in_the_table_or_has_tests_of_its_own():
    """As those with draws or a state of their own have."""
    lacking = set(criteria.REGISTRY.names()) - {name for name, *_ in _table.COMPARING + _table.WHOLE}
    lacking -= {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert not lacking, "a row in tests/criteria/_table.py, or tests/criteria/test_<name>.py"


@over("name flags peer vectors miner", _table.PEERS)
@pytest.mark.filterwarnings("ignore")
def test_pytorch_metric_learning_agrees(name, flags, peer, vectors, miner):
    labels = torch.arange(24) // 2 % N_CLASSES
    x, y = (points(24, 1, False) for _ in range(2))
    criterion = build(name, **flags)
    peer = peer()
    if vectors:
        weight = getattr(peer, vectors)
        weight.data = weight.data.double()
        oriented = (lambda matrix: matrix) if weight.shape == criterion.proxies.shape else torch.t
        criterion.proxies.data.copy_(oriented(weight))
    tuples = []
    if miner:
        tuples = [tuple(batch_mining.select(miner)(normalize(x), labels))]
        criterion.batchminer = lambda batch, labels: tuples[0]
    ours = criterion(normalize(x), labels)
    theirs = peer(normalize(y), labels, *tuples)
    assert_close(ours, theirs, rtol=1e-7, atol=1e-8)
    ours.backward()
    theirs.backward()
    assert_close(x.grad, y.grad, rtol=1e-6, atol=1e-8)
    assert x.grad.abs().sum() > 0
    if vectors:
        assert_close(criterion.proxies.grad, oriented(weight.grad), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", sorted({*criteria.REGISTRY.names()} - {"pml"}))
def test_every_precision(name):
    """Gradients in float32 are those of float64, inside autocast too; in float16 they are finite, with zero rows."""
    labels = torch.arange(24) // 4
    flags = {"n_proxies": 12, "per_anchor": 4} if name == "hier" else {}

    def value_and_gradient(x, dtype=torch.float32, context=contextlib.nullcontext):
        criterion = build(name, n_classes=6, **flags).to(dtype)
        x = x.clone().requires_grad_()
        torch.manual_seed(1)
        with context():
            value = criterion(x, labels)
        return value.detach(), torch.autograd.grad(value, x)[0]

    x = points(24, 1, True).detach()
    _, expected = value_and_gradient(x, torch.float64)
    single = value_and_gradient(x.float())
    assert (single[1] - expected).norm() <= 1e-4 * expected.norm() and single[0].dtype == torch.float32
    inside = value_and_gradient(x.float(), context=lambda: torch.autocast("cpu", torch.bfloat16))
    assert all(map(torch.equal, single, inside))
    x[0] = x[5] = 0
    value, gradient = value_and_gradient(x.half())
    # snr divides by a row's variance
    assert (value.isfinite() and gradient.isfinite().all()) or name.startswith("snr")


LOSSES_ON_PAIRS = [
    name
    for name, module in criteria.REGISTRY.modules().items()
    if issubclass(module.Criterion, PairCriterion)
    # These three have steps, which rounding may cross
    and name not in ("recallatk", "happier", "roadmap")
]


@pytest.mark.parametrize("name", LOSSES_ON_PAIRS)
def test_an_outlier_in_the_memory_spoils_no_anchors_loss(name):
    """One row of length 1,000: values and gradients in float32 are those of float64, anchor by anchor."""
    generator = torch.Generator().manual_seed(0)
    x, r = (normalize(torch.randn(n, 16, generator=generator, dtype=torch.float64)) for n in (6, 400))
    r[7] *= 1000
    results = []
    for dtype in (torch.float64, torch.float32):
        miner = None
        if criteria.REGISTRY.module(name).REQUIRES_BATCHMINER:
            miner = batch_mining.select({"lifted": "lifted"}.get(name, "none"))
        criterion = criteria.select(name, None, miner, arch="resnet50").to(dtype)
        batch = x.to(dtype).requires_grad_()
        with anchors_at_a_time(2):
            reference = {"reference": r.to(dtype), "reference_labels": torch.arange(400) % 4}
            value = criterion(batch, torch.arange(6) // 2, **reference)
        results.append((value.detach().double(), torch.autograd.grad(value, batch)[0].double()))
    (value, gradient), (single_value, single_gradient) = results
    assert (single_value - value).abs() <= 2e-4 * value.abs() + 1e-6
    assert ((single_gradient - gradient).abs() <= 2e-4 * gradient.abs().amax(-1, keepdim=True) + 1e-6).all()


def test_a_tie_at_the_margin_has_one_answer():
    """A negative exactly at the margin counts among the active ones, in the batch and beside a memory."""
    x = torch.eye(DIMENSIONS, dtype=torch.float64)[:3]
    labels = torch.tensor([0, 1, 2])
    criterion = build("threshold_consistent", neg_margin=0.0)
    for form in ({}, {"reference": x.clone(), "reference_labels": labels, "own": torch.arange(3)}):
        criterion(x, labels, **form)
        assert criterion.stats["active_negative_share"] == 1


def test_class_vectors_refuse_a_reference_in_one_line():
    x = points(4, 0, True)
    labels = torch.tensor([0, 0, 1, 1])
    for name, module in criteria.REGISTRY.modules().items():
        if issubclass(module.Criterion, ProxyCriterion) or name in ("hier", "vicreg", "contextual"):
            with refused(f"^the criterion {name} (compares no samples|cannot be used with a memory)"):
                build(name)(x, labels, reference=x, reference_labels=labels)
