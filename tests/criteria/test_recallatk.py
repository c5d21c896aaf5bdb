import pytest
import torch

import criteria
import parameters
from criteria import _ranking
from criteria.recallatk import mixed
from tests.criteria._oracles import batch_of, build, check_formula, check_gradient, every_batch, partners
from utilities.errors import UserError


def reference(ks=(1, 2, 4, 8, 16), temperature=0.01, k_temperature=1.0):
    def loss(batch, labels):
        positives, negatives = partners(labels)
        used = [k for k in ks if k <= len(labels) - 1]
        recalls = []
        for q in range(len(labels)):
            if not positives[q]:
                continue
            s = [batch[q] @ x for x in batch]
            others = positives[q] + negatives[q]
            ranks = [1 + sum(torch.sigmoid((s[j] - s[p]) / temperature) for j in others if j != p) for p in positives[q]]
            for k in used:
                hits = sum(torch.sigmoid((k - rank) / k_temperature) for rank in ranks)
                recalls.append(hits.clamp(max=k) / min(k, len(positives[q])))
        return 1 - sum(recalls) / len(recalls) if recalls else 0.0

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("recallatk", reference(), kind, unit)


def test_other_flags():
    flags = {"loss_recallatk_ks": [1, 3], "loss_recallatk_temperature": 0.1, "loss_recallatk_k_temperature": 0.5}
    check_formula("recallatk", reference((1, 3), 0.1, 0.5), "ragged", True, **flags)


def test_gradient():
    check_gradient("recallatk", loss_recallatk_temperature=0.2)


@pytest.mark.parametrize("kind", ["pairs", "ragged", "one class", "all alone"])
@pytest.mark.parametrize("chunk", [1, 20])
def test_chunks_change_nothing(kind, chunk, monkeypatch):
    batch, labels = batch_of(kind)
    criterion = build("recallatk", loss_recallatk_temperature=0.1)
    results = []
    for size in (_ranking.CHUNK, chunk):
        monkeypatch.setattr(_ranking, "CHUNK", size)
        points = batch.clone().requires_grad_()
        loss = criterion(points, labels)
        loss.backward()
        results += [loss.detach(), points.grad]
    torch.testing.assert_close(results[0], results[2], rtol=1e-12, atol=0)
    torch.testing.assert_close(results[1], results[3], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("ks", [[], [0, 1]])
def test_impossible_ks_are_refused(ks):
    with pytest.raises(UserError, match="ks"):
        build("recallatk", loss_recallatk_ks=ks)


# ------------------------------------------------------------------------------------------------------------------------------- SiMix
def mixing(labels, shares):
    """`(B + V, B)`: which convex combination of the batch each image is, real ones first."""
    rows = [[float(i == j) for j in range(len(labels))] for i in range(len(labels))]
    virtual, shares = [], iter(shares)
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            if labels[i] == labels[j]:
                share = float(next(shares))
                rows.append([share * (x == i) + (1 - share) * (x == j) for x in range(len(labels))])
                virtual.append(int(labels[i]))
    return torch.tensor(rows, dtype=torch.float64), torch.cat([labels, torch.tensor(virtual, dtype=torch.long)])


def draws(count):
    torch.manual_seed(7)
    return torch.rand(count, 1).flatten().double()


@pytest.mark.parametrize("kind", ["pairs", "ragged", "one class", "all alone"])
def test_simix_ranks_virtual_images_by_convex_combinations_of_similarities(kind):
    batch, labels = batch_of(kind, unit=True)
    batch.requires_grad_()
    n_pairs = sum(int(n) * (int(n) - 1) // 2 for n in labels.bincount())
    weights, joined = mixing(labels, draws(n_pairs))
    similarities = weights @ (batch @ batch.T) @ weights.T  # of all, from those of the real ones alone
    flags = {"loss_recallatk_temperature": 0.2, "loss_recallatk_ks": [1, 2, 3]}
    recalls = []
    for q in range(len(joined)):
        positives = [p for p in range(len(joined)) if joined[p] == joined[q] and p != q]
        ranks = [
            1 + sum(torch.sigmoid((similarities[q, j] - similarities[q, p]) / 0.2) for j in range(len(joined)) if j not in (p, q))
            for p in positives
        ]
        for k in [k for k in (1, 2, 3) if k < len(joined)] if positives else []:
            recalls.append(sum(torch.sigmoid(k - rank) for rank in ranks).clamp(max=k) / min(k, len(positives)))
    expected = 1 - sum(recalls) / len(recalls) if recalls else batch.sum() * 0
    criterion = build("recallatk", loss_recallatk_simix=True, **flags)
    torch.manual_seed(7)
    value = criterion(batch, labels)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)
    ours, theirs = (torch.autograd.grad(v, batch, retain_graph=True)[0] for v in (value, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    plain = build("recallatk", **flags)(batch, labels)
    assert (value != plain) == (n_pairs > 0)


def test_virtual_images_are_those_of_every_pair_of_a_class():
    """Of 3, 4 and 6 images 3, 6 and 15, as in the authors' code."""
    for m, expected in ((1, 0), (2, 1), (3, 3), (4, 6), (6, 15)):
        batch, labels = torch.randn(2 * m, 4), torch.arange(2).repeat_interleave(m)
        images, joined = mixed(batch, labels)
        assert len(images) == len(joined) == 2 * (m + expected) and torch.equal(images[: 2 * m], batch)
        assert joined[2 * m :].bincount(minlength=2).tolist() == [expected, expected]


def test_simix_mixes_no_memory():
    batch, labels = batch_of("pairs")
    memory = {"reference": torch.randn(4, batch.shape[1], dtype=torch.float64), "reference_labels": torch.tensor([0, 0, 1, 1])}
    assert build("recallatk", loss_recallatk_simix=True)(batch, labels, **memory) == build("recallatk")(batch, labels, **memory)


def test_the_flag_has_the_papers_name_too():
    assert parameters.resolve(["--loss", "recallatk", "--simix"]).loss_recallatk_simix
    assert parameters.resolve(["--loss", "recallatk", "--loss_recallatk_simix"]).loss_recallatk_simix
    assert not parameters.resolve(["--loss", "recallatk"]).loss_recallatk_simix
    assert criteria.select("recallatk", loss_recallatk_simix=True).simix
