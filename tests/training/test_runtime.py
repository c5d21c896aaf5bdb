"""A step: gradients, clipping, precision, random states, the loss that is not finite."""

import random
from argparse import Namespace

import numpy as np
import pytest
import torch

from training.random_state import random_states, seed_everything, set_random_states
from training.runtime import NonFiniteLoss, Runtime
from utilities.errors import NotFinite


def runtime(**flags):
    return Runtime(Namespace(**{"gpu": [0], "precision": "float32", "clip_grad_norm": None, "seed": 0, **flags}))


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item(), np.random.randn()  # noqa: NPY002


@pytest.fixture(autouse=True)
def states():
    """Tests after these draw as if these had not been."""
    before = random_states()
    yield
    set_random_states(before)


def test_a_seed_sets_all_generators():
    drawn = []
    for seed in (3, 3, 4, 2**32 + 3):
        seed_everything(seed)
        drawn.append(draws())
    assert drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[0], drawn[2], strict=True))


def test_random_states_come_back_from_a_file(tmp_path):
    np.random.randn()  # noqa: NPY002  an odd number of normal draws leaves one in store
    torch.save(random_states(), tmp_path / "states.pt")
    expected = draws()
    draws()
    set_random_states(torch.load(tmp_path / "states.pt", weights_only=True))
    assert draws() == expected


@pytest.mark.parametrize(("clip", "factor"), [(None, 1.0), (100.0, 1.0), (2.0, 2.0 / 5.0)])
def test_a_step_with_and_without_clipping(clip, factor):
    one, two = (torch.nn.Parameter(torch.zeros(1, device=runtime().device)) for _ in range(2))
    unused = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [one, unused]}, {"params": [two], "lr": 0.5}], lr=1.0)
    norm = runtime(clip_grad_norm=clip).step((3 * one + 4 * two).sum(), optimizer)
    assert norm.item() == pytest.approx(5.0)
    assert (one.item(), two.item()) == pytest.approx((-3 * factor, -0.5 * 4 * factor), rel=1e-5)
    assert unused.grad is None


def test_gradients_do_not_add_up():
    steps, weight = runtime(), torch.nn.Parameter(torch.zeros(1, device=runtime().device))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    assert [steps.step(weight.sum(), optimizer).item() for _ in range(2)] == [1.0, 1.0]


def test_precision_of_the_forward_pass():
    layer = torch.nn.Linear(2, 2).to(runtime().device)
    images = torch.ones(1, 2, device=runtime().device)
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        steps = runtime(precision=precision)
        with steps.autocast():
            output = layer(images)
        assert output.dtype == dtype
        assert steps.full(output).dtype == torch.float32
        assert {name: value.dtype for name, value in steps.full({"a": output}).items()} == {"a": torch.float32}
    assert runtime().full(torch.ones(1, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU looks at the loss every so many steps")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_names_epoch_step_and_value(value):
    steps, weight = runtime(), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    steps.start_epoch(4)
    steps.step(weight.sum(), optimizer)
    with pytest.raises(NonFiniteLoss, match=f"the loss is {value} at epoch 4, step 2: "):
        steps.step(value * weight.sum(), optimizer)
    assert issubclass(NonFiniteLoss, NotFinite)
    with pytest.raises(NonFiniteLoss, match="step 2"):
        steps.check_finite()
    steps.start_epoch(5)
    steps.check_finite()


def test_the_first_bad_step_is_named_though_looked_at_later():
    steps, weight = runtime(), torch.nn.Parameter(torch.ones(1, device=runtime().device))
    steps._check_every = 25  # as on a GPU
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for factor in (1.0, float("nan"), float("inf"), 1.0):
        steps.step(factor * weight.sum(), optimizer)
    with pytest.raises(NonFiniteLoss, match="the loss is nan at epoch 0, step 2"):
        steps.check_finite()
