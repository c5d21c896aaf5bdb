"""What the table does not reach: a user's loss, statistics, draws, and sizes that a wrong step would not survive."""

import sys
import types

import pytest
import torch

import batch_mining
import criteria
import parameters
from criteria import _pairs
from criteria._learn import make_learnable
from tests.criteria import _table
from tests.criteria._table import PINNED as X
from tests.criteria._table import PINNED_LABELS as Y
from tests.criteria.test_table import TableMiner, build, pairs_of, points
from tests.kit.documents import documented_example


def mine(monkeypatch, miner=None, learn=(), per_class=False):
    """The loss of CONTRIBUTING.md as `criteria.select` builds it from a user's file."""
    learning = {"loss_learn": list(learn), "loss_learn_lr": 0.1, "loss_learn_per_class": per_class}
    opt = types.SimpleNamespace(loss_mine_margin=0.2, loss_mine_scale=5.0, n_classes=5, **learning)
    module = types.ModuleType("criteria.mine")
    monkeypatch.setitem(sys.modules, "criteria.mine", module)
    exec(documented_example("class Criterion(PairCriterion):"), vars(module))
    criterion = module.Criterion(opt, miner)
    if learn:
        make_learnable("mine", module, criterion, opt)
    return criterion.double()


@_table.each_anchor(_table.cosine)
def slowly(c, ps, ns):
    return torch.log(
        1 + sum(torch.exp(5 * (s - 0.2)) for s in ns) + sum(torch.exp(5 * (0.2 - s)) for s in ps) + torch.zeros(())
    )


def test_a_users_loss_works_with_memory_miner_and_learned_numbers(monkeypatch):
    x = points(6, 1, False)
    r = points(9, 2, False)
    labels = torch.tensor([0, 0, 1, 1, 2, 3])
    others = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4])
    monkeypatch.setattr(_pairs, "ENTRIES", 1)
    monkeypatch.setattr(_pairs, "ANCHORS", 2)
    form = {"reference": r, "reference_labels": others}
    own = torch.arange(6)
    for few in (False, True):
        for given, y, found in (
            ({}, x, pairs_of(labels, labels, own, few)),
            (form, r, pairs_of(labels, others, None, few)),
        ):
            criterion = mine(monkeypatch, TableMiner("few") if few else None)
            value = criterion(x, labels, **given)
            expected = slowly(criterion, x, y, found, None)
            torch.testing.assert_close(value, expected)
            inputs = [x, r] if given else [x]
            for one, other in zip(*(torch.autograd.grad(of, inputs) for of in (value, expected)), strict=True):
                torch.testing.assert_close(one, other)
            assert set(criterion.stats) == {"positive_similarity", "negative_similarity"}
    for per_class in (False, True):
        learned = mine(monkeypatch, None, ["scale"], per_class)
        value = learned(x, labels, **form)
        torch.testing.assert_close(value, slowly(learned, x, r, pairs_of(labels, others, None), None))
        value.backward()
        (parameter,) = learned.parameters()
        assert parameter.shape == ((5,) if per_class else ()) and parameter.grad.abs().sum() > 0


def test_no_matrix_of_a_large_reference_is_kept():
    """What autograd keeps between the passes is small beside the matrix (B, M)."""
    x = points(128, 1, True, torch.float32)
    r = points(8192, 2, True, torch.float32)
    kept = []
    labels = torch.arange(128) // 2
    others = torch.arange(8192) % 400
    for name in ("multisimilarity", "supcon", "circle", "ntxent", "nca", "rankedlist"):
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
        ):
            criteria.select(name).float()(x, labels, reference=r.detach(), reference_labels=others).backward()
        assert max(kept) < 128 * 8192 / 2, name


def test_statistics_count_what_they_name():
    x = torch.eye(6)[[0, 0, 1, 1]] + torch.tensor([0, 0.1, 0, 0.2])[:, None] * torch.eye(6)[2]
    labels = torch.tensor([0, 0, 1, 1])
    multisimilarity, circle, softmax = (
        criteria.select(name, n_classes=2, embed_dim=6) for name in ("multisimilarity", "circle", "softmax")
    )
    softmax.proxies.data.copy_(x[::2])
    for criterion in (multisimilarity, circle, softmax):
        criterion(x, labels)
    # far apart: nothing is hard
    assert multisimilarity.stats["kept_positive_share"] == multisimilarity.stats["kept_negative_share"] == 0
    assert (
        circle.stats["active_anchor_share"] == 1
        and circle.stats["negative_similarity"] < circle.stats["positive_similarity"]
    )
    assert softmax.stats["accuracy"] == 1


def test_simix_adds_the_mixtures_of_a_class_and_mixes_no_memory():
    x = points(5, 3, True)
    labels = torch.tensor([0, 0, 0, 1, 2])
    flags = {"loss_recallatk_temperature": 0.2, "loss_recallatk_ks": [1, 2]}
    torch.manual_seed(0)
    value = build("recallatk", loss_recallatk_simix=True, **flags)(x, labels)
    torch.manual_seed(0)
    shares = torch.rand(3, 1).double()
    first = x[[0, 0, 1]]
    second = x[[1, 2, 2]]
    more = torch.cat([x, shares * first + (1 - shares) * second])
    of_more = torch.tensor([0, 0, 0, 1, 2, 0, 0, 0])
    torch.testing.assert_close(value, build("recallatk", **flags)(more, of_more))
    form = {"reference": points(7, 4, True), "reference_labels": torch.arange(7) % 3}
    values = [build("recallatk", loss_recallatk_simix=mix, **flags)(x, labels, **form) for mix in (False, True)]
    torch.testing.assert_close(*values, rtol=0, atol=0)


def test_a_common_offset_cancels_in_single_precision():
    x = points(8, 1, True)
    labels = torch.arange(8) // 2
    for name in ("nca", "snr_contrastive"):
        near = x.detach() + (100 * torch.ones(6, dtype=torch.float64))
        single = criteria.select(name)(near.float(), labels).double()
        torch.testing.assert_close(single, build(name)(near, labels), rtol=2e-3, atol=1e-4)


def test_softtriplet_of_many_classes_makes_no_matrix_of_all_centres():
    """11,318 classes of 10 centres: a (CK)^2 matrix would take 51 GB."""
    criterion = criteria.select("softtriplet", n_classes=11318, embed_dim=8, loss_softtriplet_n_centroids=10)
    criterion(torch.randn(4, 8), torch.tensor([0, 1, 2, 11317])).backward()
    assert criterion.proxies.grad.isfinite().all()


def test_snr_takes_no_regulariser_with_the_miner_distance(capsys):
    assert (
        criteria.select("snr", batch_mining="distance").reg_lambda == 0
        and "as in the published runs" in capsys.readouterr().out
    )
    assert criteria.select("snr", batch_mining="random").reg_lambda == 0.005


def test_manifold_groups_are_equally_large_and_part_of_the_state():
    one, other = (
        torch.manual_seed(seed) and criteria.select("manifold", n_classes=103, embed_dim=4) for seed in (1, 2)
    )
    sizes = torch.bincount(one.groups, minlength=50)
    assert len(sizes) == 50 and set(sizes.tolist()) == {2, 3} and not torch.equal(one.groups, other.groups)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.groups, other.groups)


def test_a_network_that_normalises_is_warned_of(capsys):
    for name in ("npair", "angular", "lifted", "sphereface", "vicreg", "hyperbolic", "hier"):
        build(name, arch="resnet50_normalize", loss_hier_n_proxies=12)
        assert f"--loss {name} is meant for embeddings of any length" in capsys.readouterr().err
        build(name, loss_hier_n_proxies=12)
        assert not capsys.readouterr().err


def test_large_exponents_of_meanfield_do_not_overflow():
    """beta times a cosine beyond exp's range in float32: the terms are then linear."""
    criterion = build(
        "meanfield", loss_meanfield_alpha=300.0, loss_meanfield_beta=500.0, loss_meanfield_margin=0.0
    ).float()
    x = criterion.proxies.detach()[[0, 1, 1]].neg().requires_grad_()
    loss = criterion(x, torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss.isfinite() and x.grad.isfinite().all() and x.grad.abs().sum() > 0


def test_contextual_of_a_whole_batchs_neighbourhood_is_finite():
    """NaN in the authors' code, as is a collapsed batch."""
    for flags in ({"loss_contextual_k": 4}, {"loss_contextual_k": 9}, {"loss_contextual_eps": 4.0}):
        for x in (X, X[:1].repeat(4, 1), torch.zeros_like(X)):
            x = x.clone().requires_grad_()
            value = build("contextual", embed_dim=3, **flags)(x, Y)
            value.backward()
            assert value.isfinite() and x.grad.isfinite().all(), flags


# --------------------------------------------------------------------------------------------- values of
# re-identification code
def test_centres_move_as_by_an_optimiser_of_their_own_whatever_the_weight():
    """SGD at .5 with the weight divided out of the centres' gradient."""
    criterion = criteria.select(
        "center", n_classes=3, embed_dim=3, loss_center_weight=5e-4, loss_center_lr=0.5
    ).double()
    (group,) = criterion.optim_dict_list
    assert (
        parameters.read(["--dataset", "glyphs", "--loss", "center", "--optim", "sgd"]).loss_center_lr
        == 0.5
        == group["lr"]
    )
    start = criterion.proxies.detach().clone()
    x = X.clone().requires_grad_()
    criterion(x, Y).backward()
    torch.optim.SGD([group]).step()
    moved = start.clone()
    for k in range(3):
        moved[k] -= 0.5 * sum(
            (2 * (start[k] - row) / 4 for row, y in zip(X, Y.tolist(), strict=True) if y == k), torch.zeros(3).double()
        )
    torch.testing.assert_close(criterion.proxies.detach(), moved)
    torch.testing.assert_close(x.grad, 5e-4 * 2 * (X - start[Y]) / 4)


@pytest.mark.parametrize("smooth", [False, True])
def test_an_anchor_alone_in_its_class_is_its_own_positive(smooth):
    """FastReID's batch-hard mining takes the farthest of all rows of the class, the anchor's own among them."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(7, 4, generator=rng, dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 2, 2, 3])
    terms = []
    for i in range(7):
        positive = max(
            (x[i] - x[j]).norm() if i != j else torch.zeros(()).double() for j in range(7) if labels[j] == labels[i]
        )
        gap = positive - min((x[i] - x[j]).norm() for j in range(7) if labels[j] != labels[i]) + 0.3
        terms.append(torch.nn.functional.softplus(gap) if smooth else gap.clamp(min=0))
    flags = {
        "loss_triplet_margin": 0.3,
        "loss_triplet_distance": "euclidean",
        "loss_triplet_smooth": smooth,
        "loss_triplet_own_positive": True,
    }
    criterion = criteria.select("triplet", batchminer=batch_mining.select("batchhard"), **flags).double()
    torch.testing.assert_close(criterion(x, labels), torch.stack(terms).mean())
    torch.testing.assert_close(criterion(x[:3], labels[:3]), torch.zeros(()).double(), msg="one class: no negative")
    known = {**flags, "loss_triplet_margin": 0.0 if smooth else 0.3}
    criterion = criteria.select("triplet", batchminer=batch_mining.select("batchhard"), **known)
    assert criterion(X, Y).item() == pytest.approx(0.5555828 if smooth else 0.1002712, abs=1e-7)
