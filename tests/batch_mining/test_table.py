"""Every miner of the registry: what it finds for any batch, alone or with a reference and own images, against loops; draws against their probabilities."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import batch_mining
from batch_mining._miner import Miner
from tests.batch_mining._reference import as_lists, assert_drawn_with, slow_distances
from tests.builders import refused
from utilities import tuples
from utilities.errors import UserError
from utilities.reference import Reference
from utilities.tuples import Pairs, Sets, Triplets

NAMES = batch_mining.REGISTRY.names()
DRAWING = {"distance", "rho_distance", "random_distance", "random", "intra_random", "npair", "parametric", "semihard", "softhard", "uniform_histogram"}  # fmt: skip
OTHER_ORDER = {"angular"}  # within a batch it finds (a, p) and (p, a) together
OWN_AMONG = {"intra_random", "random_distance"}  # ablations that may draw the anchor itself within a batch
FLAGS = {"multisimilarity": {"miner_multisimilarity_epsilon": 0.05}, "packaged": {}, "tripletmargin": {"miner_tripletmargin_margin": 0.5}}
LABELS = [0, 0, 1, 2, 2, 3, 0, 0, 1]  # triplets too: (0, 0, 1), (2, 2, 3), (0, 0, 1)
OTHERS = {
    "the batch": None,
    "as many": [0, 1, 2, 3, 0, 1, 2, 0, 9],
    "more": [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 0, 1, 4, 0, 2, 2],
    "fewer": [2, 0, 1, 0],
    "classes are lacking": [0, 9, 0, 9, 9],
    "no class of the batch": [7, 8, 7],
    "one class": [0, 0, 0],
    "one sample": [2],
    "none": [],
}


def draw(size, seed=0, dimensions=3, dtype=torch.float64):
    return torch.randn(size, dimensions, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def reference_of(kind, own_kind, seed=2, dtype=torch.float64):
    """What the miner is given beside the batch, and labels and own images as loops need them."""
    if OTHERS[kind] is None:
        return (), LABELS, torch.arange(len(LABELS))
    others = OTHERS[kind]
    own = owns(own_kind, LABELS, others)
    return (draw(len(others), seed, dtype=dtype), torch.tensor(others, dtype=torch.long), own), others, own


def owns(kind, labels, others):
    """Own images: none, of the anchor's label where there is one, or wherever (its label can then be another one)."""
    b, m = len(labels), len(others)
    if kind == "none" or not m:
        return None if kind == "none" else torch.full((b,), -1)
    if kind == "some":
        rows = [[j for j in range(m) if others[j] == labels[i]] for i in range(b)]
        return torch.tensor([row[i % len(row)] if row and i % 3 else -1 for i, row in enumerate(rows)])
    return torch.tensor([(2 * i + 1) % m for i in range(b)])


def partners(labels, others, own):
    """Positives and negatives of each anchor, by loops."""
    own = [-1] * len(labels) if own is None else own.tolist()
    rows = range(len(others))
    return (
        [[j for j in rows if j != own[i] and others[j] == labels[i]] for i in range(len(labels))],
        [[j for j in rows if j != own[i] and others[j] != labels[i]] for i in range(len(labels))],
    )


def check(name, mined, labels, others, own):
    """Is `mined` what the miner promises? An anchor's own image never occurs, but where the method says so."""
    positives, negatives = partners(labels, others, own)
    complete = [i for i in range(len(labels)) if positives[i] and negatives[i]]
    if isinstance(mined, Sets):
        assert mined.anchors.tolist() == complete
        assert mined.negatives.shape == (len(complete), len(others))
        for row, a in enumerate(complete):
            assert mined.negatives[row].nonzero().flatten().tolist() == negatives[a]
            if mined.positives.dtype == torch.bool:
                assert mined.positives[row].nonzero().flatten().tolist() == positives[a]
            else:
                assert int(mined.positives[row]) in positives[a]
        return
    pairs = mined if isinstance(mined, Pairs) else (mined.anchors, mined.positives, mined.anchors, mined.negatives)
    assert all(column.dtype == torch.long for column in pairs)
    positive_pairs, negative_pairs = as_lists(*pairs[:2]), as_lists(*pairs[2:])
    if name == "random_distance":  # valid under other labels
        own = [-1] * len(labels) if own is None else own
        assert all(0 <= p < len(others) and p != own[a] for a, p in positive_pairs + negative_pairs)
    elif name == "intra_random":
        assert all(labels[a] == others[j] for a, j in positive_pairs + negative_pairs)
        assert len(mined.anchors) == (len(labels) if set(labels) & set(others) else 0)
    elif name == "rho_distance":
        for (a, p), (_, n) in zip(positive_pairs, negative_pairs, strict=True):
            assert a in complete
            switched = own is not None and p == own[a] and n in positives[a]
            assert switched or (p in positives[a] and n in negatives[a])
    else:
        assert all(p in positives[a] for a, p in positive_pairs)
        assert all(n in negatives[a] for a, n in negative_pairs)
    if name in {"semihard", "softhard", "distance", "rho_distance", "parametric", "batchhard"}:
        assert mined.anchors.tolist() == complete


@pytest.mark.parametrize("name", NAMES)
def test_tuples_are_valid(name):
    """In three precisions, with ties, with broken embeddings; from the same seed they are the same; the batch is left as it is."""
    miner = batch_mining.select(name, **FLAGS.get(name, {}))
    assert batch_mining.REGISTRY.caption(name)
    for kind in OTHERS:
        for own_kind in ("none", "some", "any"):
            for dtype in (torch.float64, torch.float32, torch.bfloat16):
                x, y = draw(len(LABELS), 1, dtype=dtype), torch.tensor(LABELS)
                form, others, own = reference_of(kind, own_kind, dtype=dtype)
                if form and others and own_kind == "some":  # ties, also with the anchors
                    form = (x[torch.arange(len(others)) % 3], *form[1:])
                before, mined = x.clone(), []
                for _ in range(2):
                    torch.manual_seed(7)
                    mined.append(miner(x, y, *form))
                assert all(torch.equal(one, two) for one, two in zip(*mined, strict=True)) and torch.equal(x, before)
                check(name, mined[0], LABELS, others, own if form or name not in OWN_AMONG else None)
                assert all(value.isfinite() and value.shape == () for value in miner.stats.values())
                assert miner.stats["tuples"] == len(mined[0][0]) + (len(mined[0][2]) if isinstance(mined[0], Pairs) else 0)
    assert {"triplets": Triplets, "pairs": Pairs, "sets": Sets}[batch_mining.REGISTRY.module(name).YIELDS] is type(mined[0])
    broken = torch.cat([torch.full((1, 3), torch.nan), draw(len(LABELS) - 1)])
    check(name, miner(broken, torch.tensor(LABELS)), LABELS, LABELS, None if name in OWN_AMONG else torch.arange(len(LABELS)))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "packaged"])
@settings(max_examples=12, derandomize=True, deadline=None, database=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=8), others=st.none() | st.lists(st.integers(0, 4), max_size=10), data=st.data()
)
def test_tuples_of_any_batch_are_valid(name, labels, others, data):
    x, y = draw(len(labels), data.draw(st.integers(0, 99))), torch.tensor(labels)
    if data.draw(st.booleans()):  # ties: half of the batch are copies of the other half
        x = x[torch.arange(len(labels)) // 2]
    if others is None:
        mined, others, own = batch_mining.select(name)(x, y), labels, None if name in OWN_AMONG else torch.arange(len(labels))
    else:
        own = torch.tensor([data.draw(st.integers(-1, len(others) - 1)) for _ in labels])
        mined = batch_mining.select(name)(x, y, draw(len(others), 4), torch.tensor(others, dtype=torch.long), own)
    check(name, mined, labels, others, own)


@pytest.mark.parametrize("name", NAMES)
def test_the_batch_as_its_own_reference_is_the_plain_form(name, labels=LABELS):
    """Also of miners that draw, from the same seed: both forms ask for the same random numbers."""
    x, y = draw(len(labels), 5), torch.tensor(labels)
    own = torch.arange(len(labels))
    for seed in range(5):
        mined = []
        for given_reference in ((), (x.clone(), y.clone(), own), (Reference(x, y, own, True),), (Reference(x.clone(), y, own, False),)):
            torch.manual_seed(seed)
            mined.append(batch_mining.select(name, **FLAGS.get(name, {}))(x, y, *given_reference))
        for other in mined[1:]:
            assert type(other) is type(mined[0])
            if name in OTHER_ORDER:
                assert sorted(as_lists(*other)) == sorted(as_lists(*mined[0]))
            else:
                assert all(torch.equal(one, two) for one, two in zip(other, mined[0], strict=True))


# ------------------------------------------------------------------------------------------------ by plain loops


def distances_between(x, r, normalised=False):
    return slow_distances(torch.cat([x, r]), normalised)[: len(x), len(x) :]


def loops_of(name, x, r, positives, negatives):
    """What a miner without draws finds, as sorted lists: triplets, or positive and negative pairs."""
    d = distances_between(x, r)
    anchors = [i for i in range(len(x)) if positives[i] and negatives[i]]
    triplets = [(i, p, n) for i in anchors for p in positives[i] for n in negatives[i]]
    pairs = [(i, p) for i in range(len(x)) for p in positives[i]], [(i, n) for i in range(len(x)) for n in negatives[i]]
    s = x.numpy() @ r.numpy().T
    if name == "all":
        return triplets
    if name in ("tripletmargin", "pml"):
        d = distances_between(x, r, normalised=True) if name == "pml" else d
        return [(i, p, n) for i, p, n in triplets if d[i, n] - d[i, p] <= 0.5]
    if name == "angular":
        u, v = torch.nn.functional.normalize(x).numpy(), torch.nn.functional.normalize(r).numpy()
        tangent = np.tan(np.radians(20))
        return [(i, p, n) for i, p, n in triplets if np.linalg.norm(u[i] - v[p]) / (2 * np.linalg.norm(v[n] - (u[i] + v[p]) / 2)) > tangent]
    if name == "batchhard":
        return [(i, max(positives[i], key=lambda j: d[i, j]), min(negatives[i], key=lambda j: d[i, j])) for i in anchors]
    if name == "none":
        return pairs
    if name == "pairmargin":
        return [(i, p) for i, p in pairs[0] if d[i, p] > 0.2], [(i, n) for i, n in pairs[1] if d[i, n] < 0.8]
    if name == "multisimilarity":
        return (
            [(i, p) for i, p in pairs[0] if i in anchors and s[i, p] - 0.05 < max(s[i, n] for n in negatives[i])],
            [(i, n) for i, n in pairs[1] if i in anchors and s[i, n] + 0.05 > min(s[i, p] for p in positives[i])],
        )
    if name == "hdc":
        kept = []
        for of_kind, sign in ((pairs[0], -1), (pairs[1], 1)):
            of_kind = sorted(of_kind, key=lambda pair: sign * d[pair])
            kept.append(of_kind[: -(-len(of_kind) // 2)])
        return tuple(kept)
    if name == "easy_hard":  # easy positive, semihard negative
        nearest = {i: min(positives[i], key=lambda j: d[i, j]) for i in anchors}
        farther = {i: [n for n in negatives[i] if d[i, n] > d[i, nearest[i]]] for i in anchors}
        kept = [i for i in anchors if farther[i]]
        return [(i, nearest[i]) for i in kept], [(i, min(farther[i], key=lambda j: d[i, j])) for i in kept]
    raise AssertionError(f"{name} has no loops here: write them")


@pytest.mark.parametrize("name", sorted(set(NAMES) - DRAWING - {"packaged", "lifted"}))
def test_equals_plain_loops(name):
    """The sets of lifted are compared above, whole; packaged below."""
    miner = batch_mining.select(name, **{"pml": {"miner_pml_kwargs": ["margin=0.5"]}, **FLAGS}.get(name, {}))
    for kind in OTHERS:
        for own_kind in ("none", "some", "any"):
            x = draw(len(LABELS), len(kind))
            form, others, own = reference_of(kind, own_kind, len(kind) + 10)
            mined, r = miner(x, torch.tensor(LABELS), *form), form[0] if form else x
            expected = loops_of(name, x, r, *partners(LABELS, others, own))
            for one, other in zip(
                [mined] if isinstance(mined, Triplets) else [mined[:2], mined[2:]],
                [expected] if isinstance(mined, Triplets) else expected,
                strict=True,
            ):
                assert sorted(as_lists(*one)) == sorted(other), (kind, own_kind)


def test_packaged_finds_its_own_images():
    others, own = [5, 0, 0, 1, 2, 3, 2, 0, 0, 1], torch.tensor([1, 2, 3, 4, 6, -1, 7, 8, 3])
    mined = batch_mining.select("packaged")(draw(9), torch.tensor(LABELS), draw(10), torch.tensor(others), own)
    assert as_lists(*mined) == [(0, 2, 3), (6, 8, 3)]  # the second triplet's negative is not there


# ------------------------------------------------------------------------------------------------ distributions of draws


def probabilities(name, x, r, labels, positives, negatives, own):
    """anchor -> {(positive, negative): probability}, by loops in float64, for the miners of one triplet an anchor."""
    unit = distances_between(x, r, normalised=True)
    d, found = distances_between(x, r), {}
    for i in range(len(x)):
        if not (positives[i] and negatives[i]):
            continue
        p_weights, n_weights = dict.fromkeys(positives[i], 1.0), dict.fromkeys(negatives[i], 1.0)
        if name in ("distance", "rho_distance"):
            clamped = {n: max(unit[i, n], 0.5) for n in negatives[i]}
            n_weights = {n: c ** (2 - x.shape[1]) * (1 - c**2 / 4) ** (-(x.shape[1] - 3) / 2) for n, c in clamped.items()}
        if name == "parametric":
            inside = {n: 1.0 for n in negatives[i] if 0.1 <= d[i, n] <= 1.4}
            n_weights = inside or n_weights
        if name == "softhard":
            p_weights = {p: 1.0 for p in positives[i] if d[i, p] > min(d[i, n] for n in negatives[i])} or p_weights
            n_weights = {n: 1.0 for n in negatives[i] if d[i, n] < max(d[i, p] for p in positives[i])} or n_weights
        table = {}
        for p, weight in p_weights.items():
            n_of_p = n_weights
            if name == "semihard":
                n_of_p = {n: 1.0 for n in negatives[i] if d[i, p] < d[i, n] < d[i, p] + 0.2} or n_weights
            for n, other in n_of_p.items():
                table[p, n] = weight / sum(p_weights.values()) * other / sum(n_of_p.values())
        if name == "rho_distance" and own[i] >= 0:
            table = {pair: 0.8 * value for pair, value in table.items()} | {(int(own[i]), p): 0.2 / len(positives[i]) for p in positives[i]}
        found[i] = table
    return found


@pytest.mark.parametrize(("kind", "own_kind"), [("more", "some"), ("more", "any"), ("the batch", "none")])
@pytest.mark.parametrize("name", ["distance", "rho_distance", "parametric", "semihard", "softhard"])
def test_draws_follow_their_probabilities(name, kind, own_kind):
    times, x = 1000, draw(len(LABELS), 6)
    form, others, own = reference_of(kind, own_kind, 7)
    flags = {"loss": "contrastive"} if name == "semihard" else {}  # without a margin of that name: 0.2
    tables = probabilities(name, x, form[0] if form else x, LABELS, *partners(LABELS, others, own), own)
    miner, drawn = batch_mining.select(name, **flags), {a: [] for a in tables}
    torch.manual_seed(3)
    for _ in range(times):
        for a, p, n in as_lists(*miner(x, torch.tensor(LABELS), *form)):
            drawn[a].append((p, n))
    for a, table in tables.items():
        assert len(drawn[a]) == times
        assert_drawn_with(table, drawn[a])


def often(name, others, own, times=800, **flags):
    miner = batch_mining.select(name, **flags)
    x, r = draw(len(LABELS), 6), draw(len(others), 7)
    torch.manual_seed(4)
    return [miner(x, torch.tensor(LABELS), r, torch.tensor(others), own) for _ in range(times)]


@pytest.mark.parametrize("per_anchor", [None, 2])
def test_random_draws_all_triplets_alike(per_anchor):
    others = OTHERS["fewer"] + [3, 3]
    own = owns("any", LABELS, others)
    positives, negatives = partners(LABELS, others, own)
    counts = [len(positives[i]) * len(negatives[i]) for i in range(len(LABELS))]
    expected = {
        (i, p, n): 1.0 if per_anchor is None else 1 / counts[i] for i in range(len(LABELS)) for p in positives[i] for n in negatives[i]
    }
    mined = often("random", others, own, miner_random_per_anchor=per_anchor)
    assert len(mined[0].anchors) == (len(LABELS) if per_anchor is None else 2 * sum(count > 0 for count in counts))
    assert_drawn_with(expected, [triplet for one in mined for triplet in as_lists(*one)])


def test_npair_draws_positives_alike():
    others = OTHERS["more"]
    own = owns("some", LABELS, others)
    positives, _ = partners(LABELS, others, own)
    drawn = [(a, p) for one in often("npair", others, own) for a, p in as_lists(*one[:2])]
    assert_drawn_with({(i, p): 1 / len(positives[i]) for i in range(len(LABELS)) for p in positives[i]}, drawn)


def test_intra_random_draws_classes_alike():
    others = OTHERS["more"]
    own = owns("some", LABELS, others)
    members = {label: [i for i in range(len(LABELS)) if LABELS[i] == label] for label in set(LABELS) & set(others)}
    there = {label: [j for j in range(len(others)) if others[j] == label] for label in members}
    expected = {
        (a, p, n): 1 / len(members) / len(members[label]) / len(there[label]) ** 2
        for label in members for a in members[label] for p in there[label] for n in there[label]
    }  # fmt: skip
    assert_drawn_with(expected, [triplet for one in often("intra_random", others, own) for triplet in as_lists(*one)])


def test_random_distance_gives_an_image_one_label_wherever_it_lies(monkeypatch):
    """Reversed lists instead of permuted ones: then it is the distance miner under labels that can be told."""
    others = OTHERS["more"]
    own = owns("some", LABELS, others)
    monkeypatch.setattr(torch, "randperm", lambda size, device=None: torch.arange(size - 1, -1, -1))
    reversed_others = others[::-1]
    labels = [reversed_others[own[i]] if own[i] >= 0 else LABELS[::-1][i] for i in range(len(LABELS))]
    x, r = draw(len(LABELS), 6), draw(len(others), 7)
    mined = []
    for name, y, z in (("random_distance", LABELS, others), ("distance", labels, reversed_others)):
        torch.manual_seed(0)
        mined.append(batch_mining.select(name)(x, torch.tensor(y), r, torch.tensor(z), own))
    assert all(torch.equal(one, two) for one, two in zip(*mined, strict=True))
    assert len(mined[0].anchors)


def test_uniform_histogram_draws_each_bin_alike():
    others = OTHERS["more"]
    own = owns("some", LABELS, others)
    d = distances_between(draw(len(LABELS), 6), draw(len(others), 7))
    flags = {"miner_uniform_histogram_bins": 4, "miner_uniform_histogram_pos_per_bin": 3, "miner_uniform_histogram_neg_per_bin": 2}
    mined = often("uniform_histogram", others, own, 500, **flags)
    for kind, (of_anchor, count) in enumerate(zip(partners(LABELS, others, own), (3, 2), strict=True)):
        pairs = [(i, j) for i in range(len(LABELS)) for j in of_anchor[i]]
        low, high = min(d[pair] for pair in pairs), max(d[pair] for pair in pairs)
        bins = {pair: min(int((d[pair] - low) / (high - low) * 4), 3) for pair in pairs}
        expected = {pair: 1 / list(bins.values()).count(bins[pair]) for pair in pairs}
        drawn = [pair for one in mined for pair in as_lists(*one[2 * kind : 2 * kind + 2])]
        assert len(drawn) == 500 * count * len(set(bins.values()))
        assert_drawn_with(expected, drawn)


# ------------------------------------------------------------------------------------------------ users' miners, users' mistakes


class OfTheBatch(Miner):
    """A user's miner from before there were references."""

    def mine(self, embeddings, labels):
        return Triplets(*torch.tensor([[0], [1], [2]]))


def test_a_users_miner_of_batches_goes_on_working_and_refuses_a_reference():
    x, y = draw(3), torch.tensor([0, 0, 1])
    assert as_lists(*OfTheBatch()(x, y)) == as_lists(*tuples.TupleMiner(OfTheBatch())(x, y, Reference.build(x, y))) == [(0, 1, 2)]
    plain_callable = tuples.TupleMiner(lambda batch, labels: [(0, 1, 2)])
    assert as_lists(*plain_callable(x, y)) == as_lists(*plain_callable(x, y, Reference.build(x, y))) == [(0, 1, 2)]
    for miner in (tuples.TupleMiner(OfTheBatch()), plain_callable):
        with refused("takes no reference"):
            miner(x, y, Reference.build(x, y, x, y))
    with pytest.raises(UserError, match="OfTheBatch takes no reference"):
        OfTheBatch()(x, y, x, y)


def test_a_users_miner_with_a_reference():
    class OfAll(Miner):
        def mine(self, embeddings, labels, reference):
            assert torch.equal(reference.own, torch.tensor([-1, -1, 2]))
            return Triplets(*torch.tensor([[0], [1], [len(reference) - 1]]))

    x, y = draw(3), torch.tensor([0, 0, 1])
    assert as_lists(*OfAll()(x, y, draw(7), torch.zeros(7), torch.tensor([-1, -1, 2]))) == [(0, 1, 6)]


def test_no_graph_and_what_does_not_fit_is_said():
    x, y = draw(9).requires_grad_(), torch.tensor(LABELS)
    r = draw(5, 3).requires_grad_()
    for name in NAMES:
        mined = batch_mining.select(name)(x, y.int(), r, torch.tensor([0, 0, 1, 2, 2], dtype=torch.int32))
        assert not any(column.requires_grad for column in (*mined, *batch_mining.select(name)(x, y))), name
        for wrong in ((r, None), (r, y), (r[:, :2], y[:5]), (r, y[:5], y[:4]), (None, y)):
            with pytest.raises(ValueError, match="expected|belong"):
                batch_mining.select(name)(x, y, *wrong)


def test_many_references_without_a_matrix_of_them():
    """The miners that number partners take a large reference in a moment, and nothing of the size (B, M)."""
    x, r = draw(64, 1, 8, torch.float32), draw(100_000, 2, 8, torch.float32)
    y, z = torch.arange(64) % 20, torch.arange(100_000) % 30
    mined = batch_mining.select("random")(x, y, r, z)
    assert (y[mined.anchors] == z[mined.positives]).all() and (y[mined.anchors] != z[mined.negatives]).all()


def test_a_batch_of_many():
    """2,048 samples: what grows with the cube would take 34 GB. Those left out give tuples without end, or take long."""
    for name in sorted(set(NAMES) - {"all", "none", "tripletmargin", "hdc", "pml", "angular", "packaged"}):
        assert len(batch_mining.select(name)(draw(2048, dtype=torch.float32), torch.arange(2048) // 2)[0]), name
