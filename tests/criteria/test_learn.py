"""`--loss_learn`: gradients of hyperparameters against finite differences, bounds, one value a class, groups, records,
resume, refusals.
"""

import functools

import pytest
import torch

import criteria
from criteria import _learn, _pairs
from runs import RunFolder
from tests.criteria import test_table as table
from tests.criteria.test_table import N_CLASSES, points
from tests.kit import tiny
from utilities.errors import UserError

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])
VALUES = {  # where the default leaves a formula flat on this batch, or gives the number no place
    "contrastive": {"loss_contrastive_pos_margin": 0.1, "loss_contrastive_neg_margin": 1.6},
    "margin": {"loss_margin_nu": 0.1},
    "hist": {"loss_hist_hidden": 4},
    "snr": {"batch_mining": "all", "loss_snr_margin": 0.5},
    "pml": None,
    "hier": {"loss_hier_n_proxies": 12, "loss_hier_per_anchor": 4, "loss_hier_topk": 3},
    "rankedlist": {"loss_rankedlist_alpha": 1.25},
    "pnp": {"loss_pnp_variant": "Ib"},
}


X = points(len(LABELS), 1, True).detach()


def build(name, **flags):
    return table.build(name, **{"loss": name, **VALUES.get(name, {}), **flags})


def value(criterion, memory=False):
    """The loss of the batch, beside a memory that holds it too where that is asked for."""
    torch.manual_seed(3)
    if not memory:
        return criterion(X, LABELS)
    others = torch.cat([X, X.roll(1, 1)])
    return criterion(
        X, LABELS, reference=others, reference_labels=torch.cat([LABELS, LABELS]), own=torch.arange(len(LABELS))
    )


@functools.cache
def plain_value(name, memory):
    """The loss without anything learned."""
    return value(build(name), memory).detach()


@functools.cache
def start_of(name, held):
    return getattr(build(name), held)


def raw_of(criterion, held):
    """The trained tensor behind an attribute."""
    return (
        criterion.parametrizations[held].original
        if held in getattr(criterion, "parametrizations", {})
        else getattr(criterion, held)
    )


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
    "arcface circle circle_softmax contrastive cosface margin multisimilarity ntxent quadruplet snr softmax supcon "
    "triplet"
)


def check_derivative(name, hyper, memory):
    held = _learn.attribute(criteria.REGISTRY.module(name), hyper)
    start = start_of(name, held)
    if start == 0:
        return  # at its bound: refused
    learned = build(name, loss_learn=[hyper])
    torch.testing.assert_close(value(learned, memory), plain_value(name, memory), rtol=1e-6, atol=1e-9)
    step = 1e-5 * max(abs(start), 1)
    outer = [value(build(name, **{f"loss_{name}_{hyper}": start + sign * step}), memory).detach() for sign in (1, -1)]
    assert float(gradient(learned, held, memory)) == pytest.approx(
        float(outer[0] - outer[1]) / (2 * step), rel=2e-4, abs=1e-6
    )


def check_per_class(name, hyper, memory):
    if start_of(name, hyper) == 0:
        return
    learned = build(name, loss_learn=[hyper], loss_learn_per_class=True)
    assert getattr(learned, hyper).shape == (N_CLASSES,)
    torch.testing.assert_close(value(learned, memory), plain_value(name, memory), rtol=1e-6, atol=1e-9)
    ours = gradient(learned, hyper, memory)
    whole = gradient(build(name, loss_learn=[hyper]), hyper, memory)
    torch.testing.assert_close(ours.sum(), whole, rtol=1e-6, atol=1e-9)
    assert ours[3] == 0 or name in ("arcface", "circle_softmax", "cosface", "softmax"), "class 3 has no anchor"
    with torch.no_grad():
        raw_of(learned, hyper)[0] += 1e-3
    change = float(getattr(learned, hyper)[0].detach() - start_of(name, hyper))
    assert float((value(learned, memory) - plain_value(name, memory)).detach()) == pytest.approx(
        float(ours[0]) * change, rel=0.1, abs=1e-6
    )


def compares(name):
    """Whether a loss can be compared with a memory."""
    try:
        value(build(name), memory=True)
    except UserError:
        return False
    return True


def test_gradients_are_those_of_finite_differences_and_a_class_has_its_own(monkeypatch):
    monkeypatch.setattr(_pairs, "ENTRIES", 1)  # a few anchors at a time beside the memory
    monkeypatch.setattr(_pairs, "ANCHORS", 3)
    wrong = {}
    beside_memory = {name for name in {name for name, _ in CASES} if compares(name)}
    for check, cases in ((check_derivative, CASES), (check_per_class, PER_CLASS)):
        for name, hyper in cases:
            for memory in {name in beside_memory, False} if check is check_per_class else (name in beside_memory,):
                try:
                    check(name, hyper, memory)
                except (Exception, pytest.fail.Exception) as error:
                    wrong[name, hyper, memory] = str(error)[:200]
    assert not wrong and {"lifted_original", "rankedlist", "contrastive", "triplet"} <= beside_memory
    assert {"margin", "ntxent", "arcface", "softtriplet", "angular"} <= {name for name, _ in CASES}
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


@pytest.mark.parametrize(("name", "hyper", "most"), [("rankedlist", "imbalance", 1.0), ("happier", "weight", 1.0)])
def test_what_has_two_bounds_stays_between_them(name, hyper, most):
    criterion = build(name, loss_learn=[hyper])
    held = _learn.attribute(criteria.REGISTRY.module(name), hyper)
    raw = criterion.parametrizations[held].original
    assert getattr(criterion, held) == start_of(name, held)
    for far, expected in ((-300.0, 0.0), (300.0, most)):
        with torch.no_grad():
            raw.fill_(far)
        assert 0 < (found := getattr(criterion, held).item()) < most and found == pytest.approx(expected, abs=1e-5)
        assert value(criterion).isfinite()


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


def test_a_name_given_twice_is_learned_once():
    assert len(build("margin", loss_learn=["margin", "margin"]).optim_dict_list[-1]["params"]) == 1


def test_what_cannot_be_learned_is_refused_in_one_line():
    for flags, said in (
        (
            {"loss": "triplet", "loss_learn": ["margn"]},
            "margn: --loss triplet has no such number to learn; it has margin",
        ),
        (
            {"loss": "proxyanchor", "loss_learn": ["alpha"], "loss_learn_per_class": True},
            "alpha of --loss proxyanchor has no value per anchor",
        ),
        (
            {"loss": "margin", "loss_learn": ["nu"], "loss_margin_nu": 0.0},
            "nu: it starts at its bound 0 and could not move",
        ),
        (
            {"loss": "rankedlist", "loss_learn": ["imbalance"], "loss_rankedlist_imbalance": 1.0},
            "it starts at its bound 1 and .* a smaller value",
        ),
        ({"loss": "hier", "loss_learn": ["tau"]}, "tau: --loss hier has no derivative by it"),
        (
            {"loss": "fastap", "loss_learn": ["num_bins"]},
            "num_bins: --loss fastap has no such number to learn; it has none",
        ),
    ):
        with pytest.raises(UserError, match=said):
            build(flags["loss"], **flags)


def test_a_run_learns_records_and_resumes_to_the_bit(data, tmp_path):
    """Running statistics of a criterion with it, under chunks."""
    flags = ["--loss", "hist", "--loss_hist_hidden", "8", "--chunk_size", "5"]
    whole = tiny.assert_resumes(data, tmp_path, *flags, "--loss_learn", "tau", "--loss_learn_lr", "0.1")
    values = [row.value for row in RunFolder(whole.folder).metrics.itertuples() if row.metric == "criterion/tau"]
    assert len(values) == 2 == len(set(values)) and min(values) > 0
    state = whole.parts["criterion"].state_dict()
    assert state["norm.num_batches_tracked"] == 4 and state["norm.running_mean"].abs().sum() > 0
