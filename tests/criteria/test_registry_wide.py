"""What every criterion of the registry keeps, without naming one."""

import contextlib
import io
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import batch_mining
import criteria
import parameters
from tests.kit.flags import another_value
from tests.kit.runs import equal_states
from utilities import criterion as criterion_module
from utilities.errors import UserError

N_CLASSES = 6
DIMENSIONS = 8
NAMES = criteria.REGISTRY.names()
ACTIONS = {action.dest: action for action in parameters.get_parser()._actions}
# what a criterion cannot guess: flags without a usable default; and few of HIER's proxies, whose triplets take a second
# each time
NEEDED = {"loss_pml_class": "ContrastiveLoss", "loss_hier_n_proxies": 12, "loss_hier_per_anchor": 4}
# losses whose values another package computes
ADAPTERS = {"pml"}

LABELS = {
    "repeated": [0, 0, 0, 1, 1, 2, 2, 2],
    "pairs": [0, 0, 1, 1],
    "with singletons": [0, 0, 1, 2, 3, 3],
    "all singletons": [0, 1, 2, 3, 4, 5],
    "one class": [4, 4, 4, 4],
    "one sample": [2],
    "two of a class": [1, 1],
    "two classes": [1, 5],
}


def points(n: int) -> torch.Tensor:
    return torch.randn(n, DIMENSIONS, generator=torch.Generator().manual_seed(n))


def on_a_line(n: int) -> torch.Tensor:
    """Cosines of exactly 1 and -1."""
    return torch.eye(DIMENSIONS)[0].repeat(n, 1) * torch.tensor([1.0, -1.0]).repeat(n)[:n, None]


POINTS = {
    "unit": lambda n: normalize(points(n)),
    "as they are": points,
    "long": lambda n: 100 * points(n),
    "tiny": lambda n: 1e-6 * points(n),
    "identical": lambda n: normalize(points(1)).repeat(n, 1),
    "opposite": on_a_line,
    "zero": lambda n: torch.zeros(n, DIMENSIONS),
    "one zero": lambda n: normalize(points(n)) * (torch.arange(n) > 0)[:, None],
    "constant entries": lambda n: torch.ones(n, DIMENSIONS) * torch.arange(1, n + 1)[:, None],
}


def build(name: str, **flags):
    """The criterion with a miner that it allows, where it requires one or takes one under `mine_pairs`."""
    module = criteria.REGISTRY.module(name)
    flags = {"loss": name, "n_classes": N_CLASSES, "embed_dim": DIMENSIONS, **NEEDED, **flags}
    takes = module.REQUIRES_BATCHMINER or (getattr(module, "MINES_PAIRS", False) and flags.get("mine_pairs"))
    miner_name = (module.ALLOWED_MINING_OPS or ["distance"])[0]
    miner = batch_mining.select(miner_name, loss=name, batch_mining=miner_name, embed_dim=DIMENSIONS) if takes else None
    torch.manual_seed(0)
    return criteria.select(name, batchminer=miner, batch_mining=miner_name, **flags)


def run(criterion, batch, labels, **kwargs):
    """Loss, gradient of the embeddings, gradients of the parameters; the miner's draws are seeded."""
    torch.manual_seed(1)
    batch = batch.clone().requires_grad_()
    criterion.zero_grad(set_to_none=True)
    loss = criterion(batch, labels, **kwargs)
    loss.backward()
    return loss.detach(), batch.grad, [parameter.grad for parameter in criterion.parameters()]


def every_criterion(check):
    """A test that collects what `check(name)` says of each criterion."""

    def test():
        wrong = {}
        for name in NAMES:
            try:
                check(name)
            except (Exception, pytest.fail.Exception) as error:
                wrong[name] = str(error).strip().splitlines()[:3]
        assert not wrong

    test.__name__ = check.__name__
    test.__doc__ = check.__doc__
    return test


@every_criterion
def test_constants(name):
    module = criteria.REGISTRY.module(name)
    assert isinstance(module.REQUIRES_BATCHMINER, bool) and isinstance(module.REQUIRES_OPTIM, bool)
    assert module.ALLOWED_MINING_OPS is None or set(module.ALLOWED_MINING_OPS) <= set(batch_mining.REGISTRY.names())
    assert not (module.REQUIRES_BATCHMINER and getattr(module, "MINES_PAIRS", False))
    assert criteria.REGISTRY.caption(name)
    assert module.REQUIRES_OPTIM or not list(build(name).parameters())


# labels, points, whether a miner chooses the pairs
DEGENERATE = [("repeated", shape, False) for shape in POINTS] + [("with singletons", shape, True) for shape in POINTS]
DEGENERATE += [(kind, "opposite", False) for kind in LABELS]
DEGENERATE += [(kind, "one zero", False) for kind, labels in LABELS.items() if len(labels) > 2]


@every_criterion
def test_degenerate_batches_give_finite_values_and_gradients(name):
    criterion = {False: build(name)}
    if getattr(criteria.REGISTRY.module(name), "MINES_PAIRS", False):
        criterion[True] = build(name, mine_pairs=True)
    for kind, shape, mine_pairs in DEGENERATE:
        if mine_pairs in criterion:
            labels = torch.tensor(LABELS[kind])
            loss, gradient, gradients = run(criterion[mine_pairs], POINTS[shape](len(labels)), labels)
            case = f"{name}, {kind}, {shape}"
            assert loss.shape == () and torch.isfinite(loss), case
            assert all(slope is not None and torch.isfinite(slope).all() for slope in (gradient, *gradients)), case
            for key, value in criterion[mine_pairs].stats.items():
                assert value.shape == () and not value.requires_grad, f"{case}: {key}"
                assert torch.isfinite(value.double()), f"{case}: {key}"


@every_criterion
def test_labels_without_a_class_vector_are_refused_in_words(name):
    batch = points(4)
    if name in ADAPTERS or not any(len(parameter) % N_CLASSES == 0 for parameter in build(name).parameters()):
        return
    for unknown in (-100, -1, N_CLASSES):
        with pytest.raises(ValueError, match=f"of {N_CLASSES} classes they go from 0 to {N_CLASSES - 1}"):
            build(name)(batch, torch.tensor([0, 0, 1, unknown]))


class OnGpu(torch.Tensor):
    """Labels whose range costs a wait."""

    waits: list = []

    @property
    def device(self):
        return torch.device("cuda")

    def aminmax(self):
        self.waits.append(True)
        return self.as_subclass(torch.Tensor).aminmax()


def test_on_a_gpu_labels_are_looked_at_once():
    """Where looking holds up the step: the first call asks, later ones do not."""

    def check(criterion, labels):
        criterion_module.check_labels(criterion, (), {"labels": torch.tensor(labels).as_subclass(OnGpu)})

    criterion = build("arcface")
    for labels in ([0, 1], [1, 2], [0, N_CLASSES]):
        check(criterion, labels)
    assert len(OnGpu.waits) == 1
    with pytest.raises(ValueError, match=f"of {N_CLASSES} classes"):
        check(build("arcface"), [0, N_CLASSES])


@every_criterion
def test_whole_labels_of_any_type_are_the_same_and_others_are_refused(name):
    labels = torch.tensor([0, 0, 1, 1])
    expected = run(build(name), points(4), labels)[0]
    for dtype in (torch.float32, torch.bool):
        criterion = build(name)
        assert torch.equal(run(criterion, points(4), labels.to(dtype))[0], expected)
    for last in (1.5, math.nan, math.inf):
        with pytest.raises(ValueError, match="labels .*: whole numbers are expected"):
            criterion(points(4), torch.tensor([0.0, 0.0, 1.0, last]))


@every_criterion
def test_every_parameter_is_in_exactly_one_group_with_a_rate(name):
    criterion = build(name, lr=1e-3)
    parameters = list(criterion.parameters())
    groups = getattr(criterion, "optim_dict_list", None) or [
        {"params": parameters, "lr": getattr(criterion, "lr", None)}
    ]
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(map(id, parameters))
    rates = [group["lr"] for group in groups if group["params"]]
    assert all(isinstance(rate, float) and math.isfinite(rate) and rate > 0 for rate in rates)
    if parameters:
        torch.optim.Adam(groups)


@every_criterion
def test_same_seed_same_bits_whatever_other_keywords(name):
    labels = torch.tensor(LABELS["repeated"])
    batch = normalize(points(len(labels)))
    keywords = {"f_embed": torch.nn.Linear(2, 2), "batch_features": points(8), "something_later": "x"}
    assert equal_states(run(build(name), batch, labels), run(build(name), batch, labels, **keywords))


@every_criterion
def test_nan_reaches_the_loss(name):
    """The loop stops a run at a loss that is not finite: no criterion hides it behind a zero, or fails on its own."""
    if criteria.REGISTRY.module(name).REQUIRES_BATCHMINER or name in ADAPTERS:
        # what tuples of NaN are is the miner's or the package's matter
        return
    labels = torch.tensor(LABELS["pairs"])
    assert not torch.isfinite(build(name)(torch.full((len(labels), DIMENSIONS), torch.nan), labels))


@every_criterion
def test_whole_state_survives_a_state_dict(name):
    labels = torch.tensor(LABELS["repeated"])
    batch = normalize(points(len(labels)))
    trained = build(name)
    fresh = build(name)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(run(trained, batch, labels)[0], run(fresh, batch, labels)[0])


def effects(name: str, **flags) -> list:
    """What a criterion computes of two batches, the gradients, and how its parameters are trained."""
    # With more neighbours all points are reciprocal ones, and no triplet is left
    few_neighbours = {"loss_hier_topk": 3}
    criterion = build(name, **{**few_neighbours, **flags})
    if hasattr(criterion, "set_levels"):
        criterion.set_levels(np.arange(N_CLASSES)[:, None] // 2)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4])
    values = []
    for batch in (torch.nn.functional.normalize(points(len(labels))), 3 * points(len(labels))):
        loss, gradient, gradients = run(criterion, batch, labels)
        values += [loss, gradient, *gradients]
    rates = [group["lr"] for group in getattr(criterion, "optim_dict_list", None) or []]
    return [*(value.tolist() for value in values if value is not None), rates]


@every_criterion
def test_each_flag_alone_acts_or_is_refused_or_noted(name):
    if name in ADAPTERS:
        return
    usual = effects(name)
    for flag in criteria.REGISTRY.flags(name) - NEEDED.keys():
        value = another_value(ACTIONS[flag])
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                changed = effects(name, **{flag: value})
        except UserError as error:
            assert "\n" not in str(error)
            continue
        is_noted = f"--{flag} {value}" in printed.getvalue()
        assert is_noted or changed != usual, f"--{flag} {value} has no effect: declare a rule"
