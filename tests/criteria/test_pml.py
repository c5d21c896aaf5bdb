import inspect
import sys

import pytest
import torch
from pytorch_metric_learning import losses

import criteria
from tests.kit.refusals import refused
from utilities import pml


def points(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 6, generator=generator, dtype=dtype).requires_grad_(), torch.arange(12) // 2


def test_value_and_gradient_are_those_of_the_package():
    criterion = criteria.select("pml", loss_pml_class="CircleLoss", loss_pml_kwargs=["m=0.3", "gamma=40"])
    (ours_in, labels), (theirs_in, _) = points(), points()
    ours = criterion(ours_in, labels)
    theirs = losses.CircleLoss(m=0.3, gamma=40)(theirs_in, labels)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours_in.grad, theirs_in.grad)
    assert not criterion.optim_dict_list and not list(criterion.parameters())


def test_sizes_are_filled_in_and_parameters_get_their_rate():
    criterion = criteria.select("pml", loss_pml_class="ArcFaceLoss", loss_pml_lr=0.02, n_classes=6, embed_dim=6)
    assert tuple(criterion.loss.W.shape) == (6, 6)
    assert criterion.optim_dict_list[0]["lr"] == 0.02 and criterion.optim_dict_list[0]["params"][0] is criterion.loss.W
    batch, labels = points()
    criterion(batch, labels).backward()
    assert criterion.loss.W.grad.abs().sum() > 0


def test_mistakes_are_one_line(monkeypatch):
    for flags, message in (
        ({"loss_pml_class": "CircleLos"}, "CircleLoss"),
        ({"loss_pml_class": None}, "loss_pml_class"),
        ({"loss_pml_class": "CircleLoss", "loss_pml_kwargs": ["m:3"]}, "key=value"),
        ({"loss_pml_class": "CircleLoss", "loss_pml_kwargs": ["mm=3"]}, "mm"),
    ):
        with refused(message):
            criteria.select("pml", **flags)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)
    with refused("pip install pytorch-metric-learning"):
        criteria.select("pml", loss_pml_class="CircleLoss")


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
        flags = {"loss_pml_class": name, "loss_pml_kwargs": KWARGS.get(name), "n_classes": 6, "embed_dim": 6}
        if name in pml.NOT_ALONE:
            with refused(f"^{name} of .*: write a file in criteria/ around it"):
                criteria.select("pml", **flags)
        else:
            batch, labels = points()
            loss = criteria.select("pml", **flags)(batch, labels)
            loss.backward()
            assert loss.shape == () and loss.isfinite() and batch.grad.abs().sum() > 0, name


def test_a_histogram_keeps_no_graph_and_unequal_classes_are_refused_in_one_line():
    criterion = criteria.select("pml", loss_pml_class="DynamicSoftMarginLoss", embed_dim=6)
    for _ in range(3):
        batch, labels = points()
        criterion(batch, labels).backward()
    again = criteria.select("pml", loss_pml_class="DynamicSoftMarginLoss", embed_dim=6)
    again.load_state_dict(criterion.state_dict())
    assert torch.equal(again(batch, labels), criterion(batch, labels)), "a resumed run has the histogram"
    # of an earlier version
    again.load_state_dict({name: value for name, value in criterion.state_dict().items() if "hist" not in name})
    with refused("--loss_pml_class SmoothAPLoss: All classes must have the same number of elements"):
        criteria.select("pml", loss_pml_class="SmoothAPLoss", embed_dim=6)(batch, torch.arange(12) // 5)
