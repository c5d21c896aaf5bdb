"""The losses of pytorch-metric-learning by their names; mistakes in these are those of tests/utilities/test_pml.py."""

import inspect

import pytest
import torch
from pytorch_metric_learning import losses
from torch.testing import assert_close

import criteria
from tests.kit.refusals import refused
from utilities import pml

LABELS = torch.arange(12) // 2


def points():
    return torch.randn(12, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()


def select(name, **flags):
    return criteria.select("pml", loss_pml_class=name, n_classes=6, embed_dim=6, **flags)


def test_value_and_gradient_are_those_of_the_package():
    criterion = select("CircleLoss", loss_pml_kwargs=["m=0.3", "gamma=40"])
    values = []
    for loss in (criterion, losses.CircleLoss(m=0.3, gamma=40)):
        x = points()
        value = loss(x, LABELS)
        values.append((value, torch.autograd.grad(value, x)))
    assert_close(*values)
    assert not criterion.optim_dict_list and not list(criterion.parameters())


def test_sizes_are_filled_in_and_parameters_get_their_rate():
    criterion = select("ArcFaceLoss", loss_pml_lr=0.02)
    assert tuple(criterion.loss.W.shape) == (6, 6)
    assert criterion.optim_dict_list[0]["lr"] == 0.02 and criterion.optim_dict_list[0]["params"][0] is criterion.loss.W
    criterion(points(), LABELS).backward()
    assert criterion.loss.W.grad.abs().sum() > 0


def test_mistakes_are_one_line():
    for name, kwargs, message in (
        ("CircleLos", None, "Did you mean 'CircleLoss'"),
        (None, None, "--loss_pml_class"),
        ("CircleLoss", ["m:3"], "key=value"),
        ("CircleLoss", ["mm=3"], "it takes m, gamma"),
    ):
        with refused(message):
            select(name, loss_pml_kwargs=kwargs)


# what has to be given besides the class, of those that need it
KWARGS = {"P2SGradLoss": ["descriptors_dim=6"], "RankedListLoss": ["margin=0.4", "Tn=10"]}
CLASSES = [
    name
    for name, member in vars(losses).items()
    if inspect.isclass(member) and not name.startswith("Base") and "Mixin" not in name
]


@pytest.mark.filterwarnings("ignore")
def test_every_class_of_the_package_computes_or_is_refused_in_one_line():
    for name in CLASSES:
        kwargs = KWARGS.get(name)
        if name in pml.NOT_ALONE:
            with refused(f"^{name} of .*: write a file in criteria/ around it"):
                select(name, loss_pml_kwargs=kwargs)
        else:
            x = points()
            loss = select(name, loss_pml_kwargs=kwargs)(x, LABELS)
            loss.backward()
            assert loss.shape == () and loss.isfinite() and x.grad.abs().sum() > 0, name


def test_a_histogram_keeps_no_graph_and_unequal_classes_are_refused_in_one_line():
    criterion = select("DynamicSoftMarginLoss")
    for _ in range(3):
        x = points()
        criterion(x, LABELS).backward()
    resumed = select("DynamicSoftMarginLoss")
    resumed.load_state_dict(criterion.state_dict())
    assert torch.equal(resumed(x, LABELS), criterion(x, LABELS)), "a resumed run has the histogram"
    # of an earlier version
    resumed.load_state_dict({name: value for name, value in criterion.state_dict().items() if "hist" not in name})
    with refused("--loss_pml_class SmoothAPLoss: All classes must have the same number of elements"):
        select("SmoothAPLoss")(x, torch.arange(12) // 5)
