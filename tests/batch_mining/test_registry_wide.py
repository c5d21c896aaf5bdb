"""What holds for every miner, found by the registry, not by name; only the exceptions that the methods define are named."""

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import batch_mining
from tests.batch_mining._reference import batch_of, complete
from utilities.tuples import Pairs, Sets, Triplets

# a miner of batches that are made of triplets refuses any other one: test_packaged.py
NAMES = [name for name, module in batch_mining.REGISTRY.modules().items() if not getattr(module, "NEEDS_TRIPLETS", False)]
OTHER_LABELS = {"random_distance", "intra_random"}  # ablations: their triplets are not valid under the batch's labels
SAME_TWICE = {"uniform_histogram"}  # its pairs are drawn with replacement
SAME_CLASS_NEGATIVES = {"rho_distance"}  # (a, a, p) beside valid triplets
ONE_AN_ANCHOR = {"semihard", "softhard", "distance", "rho_distance", "parametric", "batchhard"}
BATCHES = {
    "one class": [3, 3, 3, 3],
    "all singletons": [0, 1, 2, 3],
    "one sample": [5],
    "two samples": [1, 1],
    "two samples of two classes": [0, 1],
    "one pair": [0, 0, 1],
    "labels far apart": [10**12, -4, 10**12, -4, 7],
}

labels_of_batches = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def check(name, mined, labels):
    """Is `mined` what the miner promises for `labels` (a list)?"""
    size, with_triplets = len(labels), set(complete(labels))
    for column in mined:
        if column.dtype != torch.bool:
            assert column.dtype == torch.long
            assert column.ndim == 1
            assert all(0 <= i < size for i in column.tolist())
    if isinstance(mined, Triplets):
        assert len({len(column) for column in mined}) == 1
        for a, p, n in zip(*(column.tolist() for column in mined), strict=True):
            if name in OTHER_LABELS:
                continue
            assert a in with_triplets
            assert labels[a] == labels[p]
            if name in SAME_CLASS_NEGATIVES and a == p:
                assert n != a
                assert labels[n] == labels[a]
            else:
                assert a != p
                assert labels[n] != labels[a]
        if name in ONE_AN_ANCHOR:
            assert sorted(mined.anchors.tolist()) == sorted(with_triplets)
    elif isinstance(mined, Pairs):
        assert len(mined.anchors_p) == len(mined.positives)
        assert len(mined.anchors_n) == len(mined.negatives)
        positives, negatives = (list(zip(*(c.tolist() for c in columns), strict=True)) for columns in (mined[:2], mined[2:]))
        assert all(a != p and labels[a] == labels[p] for a, p in positives)
        assert all(labels[a] != labels[n] for a, n in negatives)
        if name not in SAME_TWICE:
            assert len(set(positives)) == len(positives)
            assert len(set(negatives)) == len(negatives)
    else:
        assert isinstance(mined, Sets)
        assert sorted(mined.anchors.tolist()) == sorted(with_triplets)
        assert mined.negatives.shape == (len(mined.anchors), size)
        for row, a in enumerate(mined.anchors.tolist()):
            assert mined.negatives[row].tolist() == [label != labels[a] for label in labels]
            if mined.positives.dtype == torch.bool:
                assert mined.positives[row].tolist() == [j != a and label == labels[a] for j, label in enumerate(labels)]
            else:
                p = int(mined.positives[row])
                assert p != a
                assert labels[p] == labels[a]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(labels=labels_of_batches, dimensions=st.integers(1, 5), seed=st.integers(0, 2**20), copies=st.booleans())
def test_tuples_are_valid(name, labels, dimensions, seed, copies):
    embeddings, y = batch_of(labels, dimensions, seed)
    if copies:  # ties: half of the batch are copies of the other half
        embeddings = embeddings[torch.arange(len(labels)) // 2]
    torch.manual_seed(seed)
    check(name, batch_mining.select(name)(embeddings, y), labels)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("name", NAMES)
def test_degenerate_batches(name, kind):
    labels = BATCHES[kind]
    for embeddings in (batch_of(labels)[0], torch.zeros(len(labels), 3), torch.ones(len(labels), 1), 1e4 * batch_of(labels, 2)[0]):
        check(name, batch_mining.select(name)(embeddings, torch.tensor(labels)), labels)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_every_precision(name, dtype):
    labels = [0, 0, 1, 1, 2, 2, 2, 3]
    embeddings, y = batch_of(labels, dtype=dtype)
    check(name, batch_mining.select(name)(embeddings, y), labels)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_tuples(name):
    embeddings, y = batch_of([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    miner = batch_mining.select(name)
    torch.manual_seed(7)
    first = miner(embeddings, y)
    torch.manual_seed(7)
    second = miner(embeddings, y)
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_no_graph_and_no_change_of_the_batch(name):
    embeddings, y = batch_of([0, 0, 1, 1, 2, 2])
    embeddings.requires_grad_()
    before, labels_before = embeddings.detach().clone(), y.clone()
    miner = batch_mining.select(name)
    mined = miner(embeddings, y)
    assert torch.equal(embeddings, before)
    assert torch.equal(y, labels_before)
    assert not any(column.requires_grad for column in mined)
    assert miner.stats["tuples"] == len(mined[0]) + (len(mined[2]) if isinstance(mined, Pairs) else 0)
    for value in miner.stats.values():
        assert value.shape == ()
        assert not value.requires_grad
        assert torch.isfinite(value)


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_yields(name):
    module = batch_mining.REGISTRY.module(name)
    mined = batch_mining.select(name)(*batch_of([0, 0, 1, 1, 2, 2]))
    assert {"triplets": Triplets, "pairs": Pairs, "sets": Sets}[module.YIELDS] is type(mined)


@pytest.mark.parametrize("name", NAMES)
def test_has_a_caption_and_its_own_prefix(name):
    assert batch_mining.REGISTRY.caption(name)
    source = inspect.getsource(batch_mining.REGISTRY.module(name))
    declared = [line.split('"')[1] for line in source.splitlines() if line.strip().startswith(('group.add_argument("--', '"--'))]
    assert all(flag.startswith(f"--miner_{name}_") for flag in declared)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"all", "none", "tripletmargin", "hdc", "pml", "angular"}])
def test_a_batch_of_many(name):
    """2048 samples: what grows with the cube would take 34 GB. Those left out give tuples without end, or take long."""
    embeddings, y = batch_of([i // 2 for i in range(2048)], 8)
    mined = batch_mining.select(name)(embeddings, y)
    assert len(mined[0]) > 0


def test_an_unknown_miner_is_named():
    with pytest.raises(LookupError, match="Did you mean 'distance'"):
        batch_mining.select("distnce")
