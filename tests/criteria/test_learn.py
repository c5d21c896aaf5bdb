"""`--loss_learn`: gradients against finite differences, bounds, a value per class, groups, records, resume."""

import functools

import pytest
import torch
from torch.testing import assert_close

import criteria
from criteria import _learn, _pairs
from runs import RunFolder
from tests.criteria import test_table as table
from tests.criteria.test_table import N_CLASSES, points
from tests.kit import tiny
from tests.kit.refusals import refused
from utilities.errors import UserError

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])
# settings of losses whose defaults leave the formula flat on this batch or do not use the number; None: not tried
VALUES = {
    "contrastive": {"pos_margin": 0.1, "neg_margin": 1.6},
    "margin": {"nu": 0.1},
    "hist": {"hidden": 4},
    "snr": {"batch_mining": "all", "margin": 0.5},
    "pml": None,
    "hier": {"n_proxies": 12, "per_anchor": 4, "topk": 3},
    "rankedlist": {"alpha": 1.25},
    "pnp": {"variant": "Ib"},
}
X = points(len(LABELS), 1, True).detach()


def build(name, **flags):
    criterion = table.build(name, **{"loss": name, **VALUES.get(name, {}), **flags})
    # The statistics of these two move in training, so that a second call would differ
    return criterion.train(name not in ("adaface", "curricularface"))


def value(criterion, memory=False):
    """The loss of the batch, or beside a memory that holds it too."""
    torch.manual_seed(3)
    form = {"reference": torch.cat([X, X.roll(1, 1)]), "reference_labels": LABELS.repeat(2), "own": torch.arange(8)}
    return criterion(X, LABELS, **form) if memory else criterion(X, LABELS)


@functools.cache
def plain_value(name, memory):
    """The loss without anything learned."""
    return value(build(name), memory).detach()


@functools.cache
def start_of(name, held):
    return getattr(build(name), held)


def raw_of(criterion, held):
    """The trained tensor behind an attribute."""
    if held in getattr(criterion, "parametrizations", {}):
        return criterion.parametrizations[held].original
    return getattr(criterion, held)


def gradient(criterion, held, memory=False):
    """The gradient of the loss by the value itself."""
    raw = raw_of(criterion, held)
    (of_loss,) = torch.autograd.grad(value(criterion, memory), raw)
    (of_value,) = torch.autograd.grad(getattr(criterion, held).sum(), raw)
    return of_loss / of_value


CASES = [
    (name, hyper)
    for name in criteria.REGISTRY.names()
    if VALUES.get(name, {}) is not None
    for hyper in _learn.hyperparameters(name, criteria.REGISTRY.module(name), build(name))
]
PER_CLASS = [
    (name, hyper) for name, hyper in CASES if hyper in getattr(criteria.REGISTRY.module(name), "PER_CLASS", ())
]
OF_ANCHORS = (
    "adaface arcface circle circle_softmax contrastive cosface curricularface magface margin multisimilarity ntxent "
    "quadruplet snr softmax supcon triplet"
)


def check_derivative(name, hyper, memory):
    held = _learn.attribute(criteria.REGISTRY.module(name), hyper)
    start = start_of(name, held)
    if start == 0:
        # A value that starts at its bound is refused
        return
    learned = build(name, loss_learn=[hyper])
    assert_close(value(learned, memory), plain_value(name, memory), rtol=1e-6, atol=1e-9)
    step = 1e-5 * max(abs(start), 1)
    above, below = (float(value(build(name, **{hyper: start + way * step}), memory).detach()) for way in (1, -1))
    slope = float(gradient(learned, held, memory))
    assert slope == pytest.approx((above - below) / (2 * step), rel=2e-4, abs=1e-6)


def check_per_class(name, hyper, memory):
    if start_of(name, hyper) == 0:
        return
    learned = build(name, loss_learn=[hyper], loss_learn_per_class=True)
    assert getattr(learned, hyper).shape == (N_CLASSES,)
    assert_close(value(learned, memory), plain_value(name, memory), rtol=1e-6, atol=1e-9)
    ours = gradient(learned, hyper, memory)
    assert_close(ours.sum(), gradient(build(name, loss_learn=[hyper]), hyper, memory), rtol=1e-6, atol=1e-9)
    assert ours[3] == 0 or name in ("arcface", "circle_softmax", "cosface", "softmax"), "class 3 has no anchor"
    with torch.no_grad():
        raw_of(learned, hyper)[0] += 1e-3
    expected = float(ours[0]) * float(getattr(learned, hyper)[0].detach() - start_of(name, hyper))
    change = value(learned, memory).detach() - plain_value(name, memory)
    assert float(change) == pytest.approx(expected, rel=0.1, abs=1e-6)


def compares(name):
    """Whether a loss can be compared with a memory."""
    try:
        value(build(name), memory=True)
    except UserError:
        return False
    return True


@pytest.mark.long
def test_gradients_are_those_of_finite_differences_and_a_class_has_its_own(monkeypatch):
    # a few anchors at a time beside the memory
    monkeypatch.setattr(_pairs, "ENTRIES", 1)
    monkeypatch.setattr(_pairs, "ANCHORS", 3)
    names = {name for name, _ in CASES}
    beside_memory = set(filter(compares, names))
    checks = [(check_derivative, *case, case[0] in beside_memory) for case in CASES]
    checks += [(check_per_class, *case, case[0] in beside_memory) for case in PER_CLASS]
    checks += [(check_per_class, *case, False) for case in PER_CLASS if case[0] in beside_memory]
    wrong = {}
    for check, *case in checks:
        try:
            check(*case)
        except (Exception, pytest.fail.Exception) as error:
            wrong[tuple(case)] = str(error)[:200]
    assert not wrong and {"lifted_original", "rankedlist", "contrastive", "triplet"} <= beside_memory
    assert {"margin", "ntxent", "arcface", "softtriplet", "angular"} <= names
    assert {name for name, _ in PER_CLASS} == set(OF_ANCHORS.split())


@pytest.mark.parametrize(("name", "hyper"), [("ntxent", "temperature"), ("softtriplet", "lambda")])
def test_what_must_be_positive_stays_so(name, hyper):
    criterion = build(name, loss_learn=[hyper])
    held = _learn.attribute(criteria.REGISTRY.module(name), hyper)
    raw = criterion.parametrizations[held].original
    for far in (-3.0, -300.0, 40.0):
        with torch.no_grad():
            raw.fill_(far)
        loss = value(criterion)
        (slope,) = torch.autograd.grad(loss, raw)
        assert getattr(criterion, held) >= 1e-6 and loss.isfinite() and slope.isfinite()


@pytest.mark.parametrize(("name", "hyper"), [("rankedlist", "imbalance"), ("happier", "weight")])
def test_what_has_two_bounds_stays_between_them(name, hyper):
    criterion = build(name, loss_learn=[hyper])
    held = _learn.attribute(criteria.REGISTRY.module(name), hyper)
    raw = criterion.parametrizations[held].original
    assert getattr(criterion, held) == start_of(name, held)
    for far, expected in ((-300.0, 0.0), (300.0, 1.0)):
        with torch.no_grad():
            raw.fill_(far)
        bounded = getattr(criterion, held).item()
        assert 0 < bounded < 1 and bounded == pytest.approx(expected, abs=1e-5) and value(criterion).isfinite()


def test_groups_and_statistics():
    criterion = build("margin", loss_learn=["margin"], loss_learn_lr=0.01)
    groups = criterion.optim_dict_list
    assert [(group["lr"], group.get("weight_decay")) for group in groups] == [(0.0005, 0), (0.01, 0)]
    assert groups[1]["params"][0] is criterion.margin
    value(criterion)
    assert float(criterion.stats["margin"]) == pytest.approx(0.2) and "beta" in criterion.stats
    arcface = build("arcface", loss_learn=["angular_margin"], loss_learn_per_class=True)
    covered = [id(p) for group in arcface.optim_dict_list for p in group["params"]]
    assert sorted(covered) == sorted(id(p) for p in arcface.parameters())

    twice = build("margin", loss_learn=["margin", "margin"])
    assert len(twice.optim_dict_list[-1]["params"]) == 1, "a name given twice is learned once"


def test_what_cannot_be_learned_is_refused_in_one_line():
    for name, hyper, flags, message in (
        ("triplet", "margn", {}, "margn: --loss triplet has no such number to learn; it has margin"),
        ("proxyanchor", "alpha", {"loss_learn_per_class": True}, "alpha of --loss proxyanchor has no value per anchor"),
        ("margin", "nu", {"nu": 0.0}, "nu: it starts at its bound 0 and could not move"),
        ("rankedlist", "imbalance", {"imbalance": 1.0}, "it starts at its bound 1 and .* a smaller value"),
        ("hier", "tau", {}, "tau: --loss hier has no derivative by it"),
        ("fastap", "num_bins", {}, "num_bins: --loss fastap has no such number to learn; it has none"),
    ):
        with refused(message):
            build(name, loss_learn=[hyper], **flags)


def test_a_run_learns_records_and_resumes_to_the_bit(data, tmp_path):
    """Running statistics of a criterion with it, under chunks."""
    flags = "--loss hist --loss_hist_hidden 8 --chunk_size 5 --loss_learn tau --loss_learn_lr 0.1".split()
    run = tiny.assert_resumes(data, tmp_path, *flags)
    values = [row.value for row in RunFolder(run.folder).metrics.itertuples() if row.metric == "criterion/tau"]
    assert len(values) == 2 == len(set(values)) and min(values) > 0
    state = run.parts["criterion"].state_dict()
    assert state["norm.num_batches_tracked"] == 4 and state["norm.running_mean"].abs().sum() > 0
