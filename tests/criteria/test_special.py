"""What the table does not reach: a user's loss, statistics, draws, and sizes that a wrong step would not survive."""

import sys
import types

import pytest
import torch
from torch.nn.functional import softplus
from torch.testing import assert_close

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
from tests.kit.mining import normal


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
    terms = [torch.exp(5 * (s - 0.2)) for s in ns] + [torch.exp(5 * (0.2 - s)) for s in ps]
    return torch.log(1 + sum(terms, torch.zeros(())))


def test_a_users_loss_works_with_memory_miner_and_learned_numbers(monkeypatch):
    x = points(6, 1, False)
    r = points(9, 2, False)
    labels = torch.tensor([0, 0, 1, 1, 2, 3])
    memory = {"reference": r, "reference_labels": torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4])}
    monkeypatch.setattr(_pairs, "ENTRIES", 1)
    monkeypatch.setattr(_pairs, "ANCHORS", 2)
    for miner, are_few in ((None, False), (TableMiner("few"), True)):
        in_memory = pairs_of(labels, memory["reference_labels"], None, are_few)
        in_batch = pairs_of(labels, labels, torch.arange(6), are_few)
        for form, y, pairs, inputs in (({}, x, in_batch, [x]), (memory, r, in_memory, [x, r])):
            criterion = mine(monkeypatch, miner)
            values = criterion(x, labels, **form), slowly(criterion, x, y, pairs, None)
            assert_close(*values)
            assert_close(*(torch.autograd.grad(value, inputs) for value in values))
            assert set(criterion.stats) == {"positive_similarity", "negative_similarity"}
    for per_class, shape in ((False, ()), (True, (5,))):
        learned = mine(monkeypatch, None, ["scale"], per_class)
        value = learned(x, labels, **memory)
        expected = slowly(learned, x, r, pairs_of(labels, memory["reference_labels"], None), None)
        assert_close(value, expected)
        value.backward()
        (parameter,) = learned.parameters()
        assert parameter.shape == shape and parameter.grad.abs().sum() > 0


def test_no_matrix_of_a_large_reference_is_kept(monkeypatch):
    """What autograd keeps between the passes is small beside the matrix (B, M)."""
    monkeypatch.setattr(_pairs, "ENTRIES", 1 << 17)
    x = points(128, 1, True, torch.float32)
    memory = {"reference": points(8192, 2, True, torch.float32).detach(), "reference_labels": torch.arange(8192) % 400}
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel())
        return tensor

    for name in ("multisimilarity", "supcon", "circle", "ntxent", "nca", "rankedlist"):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            criteria.select(name).float()(x, torch.arange(128) // 2, **memory).backward()
        assert max(sizes) < 128 * 8192 / 2, name


def test_statistics_count_what_they_name():
    x = torch.eye(6)[[0, 0, 1, 1]] + torch.tensor([0, 0.1, 0, 0.2])[:, None] * torch.eye(6)[2]
    names = ("multisimilarity", "circle", "softmax")
    losses = [criteria.select(name, n_classes=2, embed_dim=6) for name in names]
    losses[2].proxies.data.copy_(x[::2])
    for criterion in losses:
        criterion(x, torch.tensor([0, 0, 1, 1]))
    multisimilarity, circle, softmax = (criterion.stats for criterion in losses)
    # far apart: nothing is hard
    assert multisimilarity["kept_positive_share"] == multisimilarity["kept_negative_share"] == 0
    assert circle["active_anchor_share"] == 1 and circle["negative_similarity"] < circle["positive_similarity"]
    assert softmax["accuracy"] == 1


def test_simix_adds_the_mixtures_of_a_class_and_mixes_no_memory():
    x = points(5, 3, True)
    labels = torch.tensor([0, 0, 0, 1, 2])
    flags = {"temperature": 0.2, "ks": [1, 2]}
    torch.manual_seed(0)
    value = build("recallatk", simix=True, **flags)(x, labels)
    torch.manual_seed(0)
    shares = torch.rand(3, 1).double()
    mixtures = shares * x[[0, 0, 1]] + (1 - shares) * x[[1, 2, 2]]
    expected = build("recallatk", **flags)(torch.cat([x, mixtures]), torch.tensor([0, 0, 0, 1, 2, 0, 0, 0]))
    assert_close(value, expected)
    form = {"reference": points(7, 4, True), "reference_labels": torch.arange(7) % 3}
    values = [build("recallatk", simix=mix, **flags)(x, labels, **form) for mix in (False, True)]
    assert_close(*values, rtol=0, atol=0)


def test_a_common_offset_cancels_in_single_precision():
    x = points(8, 1, True).detach() + 100
    labels = torch.arange(8) // 2
    for name in ("nca", "snr_contrastive"):
        single = criteria.select(name)(x.float(), labels).double()
        assert_close(single, build(name)(x, labels), rtol=2e-3, atol=1e-4)


def test_softtriplet_of_many_classes_makes_no_matrix_of_all_centres():
    """11,318 classes of 10 centres: a (CK)^2 matrix would take 51 GB."""
    criterion = criteria.select("softtriplet", n_classes=11318, embed_dim=8, loss_softtriplet_n_centroids=10)
    criterion(torch.randn(4, 8), torch.tensor([0, 1, 2, 11317])).backward()
    assert criterion.proxies.grad.isfinite().all()


def test_snr_takes_no_regulariser_with_the_miner_distance(capsys):
    assert criteria.select("snr", batch_mining="distance").reg_lambda == 0
    assert "as in the published runs" in capsys.readouterr().out
    assert criteria.select("snr", batch_mining="random").reg_lambda == 0.005


def test_manifold_groups_are_equally_large_and_part_of_the_state():
    first, second = (
        torch.manual_seed(seed) and criteria.select("manifold", n_classes=103, embed_dim=4) for seed in (1, 2)
    )
    sizes = torch.bincount(first.groups, minlength=50)
    assert len(sizes) == 50 and set(sizes.tolist()) == {2, 3} and not torch.equal(first.groups, second.groups)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.groups, second.groups)


def test_a_network_that_normalises_is_warned_of(capsys):
    for name in ("npair", "angular", "lifted", "sphereface", "vicreg", "hyperbolic", "hier"):
        build(name, arch="resnet50_normalize", loss_hier_n_proxies=12)
        assert f"--loss {name} is meant for embeddings of any length" in capsys.readouterr().err
        build(name, loss_hier_n_proxies=12)
        assert not capsys.readouterr().err


def test_large_exponents_of_meanfield_do_not_overflow():
    """beta times a cosine beyond exp's range in float32: the terms are then linear."""
    criterion = build("meanfield", alpha=300.0, beta=500.0, margin=0.0).float()
    x = criterion.proxies.detach()[[0, 1, 1]].neg().requires_grad_()
    loss = criterion(x, torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss.isfinite() and x.grad.isfinite().all() and x.grad.abs().sum() > 0


def test_contextual_of_a_whole_batchs_neighbourhood_is_finite():
    """NaN in the authors' code, as is a collapsed batch."""
    for flags in ({"k": 4}, {"k": 9}, {"eps": 4.0}):
        for x in (X, X[:1].repeat(4, 1), torch.zeros_like(X)):
            x = x.clone().requires_grad_()
            value = build("contextual", embed_dim=3, **flags)(x, Y)
            value.backward()
            assert value.isfinite() and x.grad.isfinite().all(), flags


# --- values of re-identification code
def test_centres_move_as_by_an_optimiser_of_their_own_whatever_the_weight():
    """SGD at .5 with the weight divided out of the centres' gradient."""
    flags = {"loss_center_weight": 5e-4, "loss_center_lr": 0.5}
    criterion = criteria.select("center", n_classes=3, embed_dim=3, **flags).double()
    (group,) = criterion.optim_dict_list
    assert parameters.read("--dataset glyphs --loss center --optim sgd".split()).loss_center_lr == 0.5 == group["lr"]
    start = criterion.proxies.detach().clone()
    x = X.clone().requires_grad_()
    criterion(x, Y).backward()
    torch.optim.SGD([group]).step()
    moved = start.clone()
    for row, y in zip(X, Y.tolist(), strict=True):
        moved[y] -= 0.5 * 2 * (start[y] - row) / 4
    assert_close(criterion.proxies.detach(), moved)
    assert_close(x.grad, 5e-4 * 2 * (X - start[Y]) / 4)


@pytest.mark.parametrize(("smooth", "pinned_margin", "pinned"), [(False, 0.3, 0.1002712), (True, 0.0, 0.5555828)])
def test_an_anchor_alone_in_its_class_is_its_own_positive(smooth, pinned_margin, pinned):
    """FastReID's batch-hard mining takes the farthest of all rows of the class, the anchor's own among them."""
    x = normal(7, 4, seed=0)
    labels = torch.tensor([0, 0, 0, 1, 2, 2, 3])
    zero = torch.zeros((), dtype=torch.float64)
    terms = []
    for i in range(7):
        positive = max([(x[i] - x[j]).norm() for j in range(7) if labels[j] == labels[i] and i != j], default=zero)
        gap = positive - min((x[i] - x[j]).norm() for j in range(7) if labels[j] != labels[i]) + 0.3
        term = softplus(gap) if smooth else gap.clamp(min=0)
        terms.append(term)

    def criterion(margin):
        flags = {"distance": "euclidean", "smooth": smooth, "own_positive": True, "margin": margin}
        named = {f"loss_triplet_{flag}": value for flag, value in flags.items()}
        return criteria.select("triplet", batchminer=batch_mining.select("batchhard"), **named).double()

    assert_close(criterion(0.3)(x, labels), torch.stack(terms).mean())
    assert_close(criterion(0.3)(x[:3], labels[:3]), zero, msg="one class: no negative")
    assert criterion(pinned_margin)(X, Y).item() == pytest.approx(pinned, abs=1e-7)
