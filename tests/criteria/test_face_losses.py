"""Values of the authors' code, and the state, of the losses from face recognition; of ROADMAP and decoupled NT-Xent."""

import pytest
import torch

import criteria
import parameters
from tests.criteria._table import PINNED, PINNED_LABELS, VECTORS
from tests.kit.refusals import refused
from tests.kit.runs import words_of
from utilities.tensors import normalize

LENGTHS = torch.tensor([[10.0], [20.0], [30.0], [40.0]], dtype=torch.float64)


def build(name, **flags):
    flags = {f"loss_{name}_{flag}": value for flag, value in flags.items()}
    criterion = criteria.select(name, n_classes=3, embed_dim=3, **flags).double()
    criterion.load_state_dict({**criterion.state_dict(), "proxies": normalize(VECTORS.double())})
    return criterion


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("adaface", {"scale": 1}, 0.9424109),
        ("adaface", {"scale": 64}, 8.1535616),
        ("adaface", {"scale": 1, "momentum": 0.01}, 0.9454485),
        ("magface", {"scale": 1, "weight": 0}, 0.8890981),
        ("magface", {"scale": 64, "weight": 0}, 6.8562978),
        ("magface", {"scale": 1}, 2.7843288),
        ("curricularface", {"scale": 1}, 0.8672231),
        ("curricularface", {"scale": 64}, 3.6177675),
    ],
)
def test_values_of_the_authors_code(name, flags, expected):
    value = build(name, **flags)(PINNED * LENGTHS, PINNED_LABELS)
    assert value.item() == pytest.approx(expected, abs=1e-7)


def test_statistics_move_in_training_alone():
    criterion = build("curricularface", scale=1)
    criterion.progress.fill_(0.3)
    assert criterion(PINNED, PINNED_LABELS).item() == pytest.approx(0.8936142, abs=1e-7)
    moved = criterion.progress.clone()
    criterion.eval()(PINNED, PINNED_LABELS)
    assert torch.equal(criterion.progress, moved) and moved != 0.3
    criterion = build("adaface")
    # one image has no deviation
    criterion(PINNED[:1] * 50, PINNED_LABELS[:1])
    assert criterion.mean_length == 50 and criterion.deviation == 100
    criterion.eval()(PINNED, PINNED_LABELS)
    assert criterion.mean_length == 50


def test_the_state_is_in_a_checkpoint():
    criterion = build("adaface")
    criterion(PINNED * LENGTHS, PINNED_LABELS)
    copy = build("adaface")
    copy.load_state_dict(criterion.state_dict())
    assert copy.mean_length == 25 and copy.deviation == pytest.approx(12.9099445)


def test_lengths_have_a_gradient_in_magface_alone():
    for name, has_gradient in (("magface", True), ("adaface", False)):
        batch = (PINNED * LENGTHS).requires_grad_()
        (gradient,) = torch.autograd.grad(build(name)(batch, PINNED_LABELS), batch)
        along = (gradient * PINNED).sum(1).abs()
        # The first length, 10, is clipped
        assert (along[1:] > 1e-4).all() == has_gradient and (along > 1e-9).any() == has_gradient, name


@pytest.mark.parametrize("name", ["adaface", "magface"])
def test_unit_vectors_and_coordinates_are_refused(name):
    with refused(f"--loss {name} reads the lengths of embeddings, which --arch conv4_normalize sets to 1"):
        parameters.resolve(words_of(f"--dataset glyphs --arch conv4_normalize --loss {name}"))
    with refused("--loss_dims 2: the loss reads the length of the whole embedding"):
        criteria.select(name, n_classes=3, embed_dim=3, loss_dims=2)


def test_magface_margins_are_in_order():
    with refused("--loss_magface_longest 5.* above --loss_magface_shortest 10"):
        build("magface", longest=5)


def test_sup_ap_of_roadmap():
    cosines = torch.tensor([1, 0.6, 0.63, 0.59, 0.9], dtype=torch.float64)
    batch = torch.stack([cosines, (1 - cosines**2).sqrt()], 1)
    criterion = criteria.select("roadmap")
    criterion(batch, torch.tensor([0, 0, 1, 1, 2]))
    assert 1 - criterion.stats["sup_ap"].item() == pytest.approx(0.7416059, abs=1e-7)


def test_decoupled_ntxent():
    flags = {"loss_ntxent_temperature": 0.5}
    plain = criteria.select("ntxent", **flags)(PINNED, PINNED_LABELS)
    decoupled = criteria.select("ntxent", loss_ntxent_decoupled=True, **flags)(PINNED, PINNED_LABELS)
    assert (plain.item(), decoupled.item()) == pytest.approx((0.6399345, -0.1613254), abs=1e-7)
