"""What a GPU computes, its code run on the CPU: the values of the CPU, and few bytes that come back."""

from unittest import mock

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import metrics
from metrics import _kmeans, _tensors
from metrics.neighbours import counts
from tests.kit.plain_metrics import DISTS, RETRIEVAL, plain_per_query, random_space

ICML = "e_recall@1 e_recall@2 e_recall@4 nmi f1 mAP_1000 mAP_lim mAP_c dists@intra dists@inter rho_spectrum@2".split()
OTHERS = ["c_map_r", "c_nmi", "map_r_macro", "alignment", "rho_spectrum@0", *DISTS]
LIMITS = [{}, {"ENTRIES": 900, "PAIRS": 30, "FLOATS": 60}, {"PAIRS_PER_QUERY": 2, "ENTRIES": 2000}]


@pytest.fixture
def on_device(monkeypatch):
    """All devices count as a GPU that keeps the features, and faiss as one of the CPU alone."""
    monkeypatch.setattr(_kmeans, "faiss_runs_on", lambda device: False)
    with mock.patch.object(_tensors, "is_gpu", lambda device: True):
        yield


def spaces():
    """Name -> features and labels: one class, singletons, duplicates, ties, few samples, zero rows."""
    features, labels = random_space(n=60, spread=2.0, seed=8)
    duplicates = features.copy()
    duplicates[20:40] = features[0]
    mirrored = features.copy()
    # as far from each row as from its mirror image, but for the order of the sum
    mirrored[0] = 0
    mirrored[30:] = features[:30, ::-1]
    with_zeros = features.copy()
    with_zeros[::4] = 0
    return {
        "hard": (features, labels),
        "one class": (features, np.zeros(60, int)),
        "singletons": (features, np.arange(60)),
        "duplicates": (duplicates, labels),
        "collapsed": (np.ones_like(features), labels),
        "ties": (np.round(features), labels),
        "ties by rounding": (mirrored, labels),
        "fewer than k": (features[:3], labels[:3]),
        "zero rows": (with_zeros.astype(np.float32), labels),
        "near float32": (1 + 1e-9 * features, labels),
    }


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", spaces())
def test_every_query_has_the_value_of_the_plain_loops(on_device, monkeypatch, name, limits):
    features, labels = spaces()[name]
    for key, value in limits.items():
        monkeypatch.setattr(counts, key, value)
    expected = plain_per_query(RETRIEVAL, features, labels)
    measured = metrics.per_query(RETRIEVAL, metrics.EmbeddingSpace(features, labels))
    for metric in RETRIEVAL:
        np.testing.assert_allclose(measured[metric], expected[metric], rtol=0, atol=1e-12, err_msg=metric)


@pytest.mark.parametrize("name", spaces())
def test_the_values_are_those_of_the_cpu(name, request):
    features, labels = spaces()[name]
    with mock.patch.object(_kmeans, "faiss_runs_on", lambda device: False):
        expected = metrics.compute([*ICML, *OTHERS], features, labels)
    request.getfixturevalue("on_device")
    measured = metrics.compute([*ICML, *OTHERS], features, labels)
    for metric, value in expected.items():
        np.testing.assert_allclose(measured[metric], value, rtol=1e-12, atol=1e-12, equal_nan=True, err_msg=metric)
        if metric.startswith(("e_recall", "m", "c_m")):
            assert np.array_equal(measured[metric], value, equal_nan=True), metric


def test_references_sequences_levels_and_lists(on_device):
    features, labels = random_space(n=80, spread=2.0, seed=3)
    features = np.round(features)
    numbers = np.arange(80) * 7 % 9 - 1
    levels = np.stack([labels, labels // 2], 1)
    positives = [np.flatnonzero((labels == labels[i]) & (np.arange(80) != i)) for i in range(80)]
    junk = [np.setdiff1d(np.arange(i % 9), [i, *positives[i]]) for i in range(80)]
    names = ["map_r", "e_recall@2", "mAP_1000", "mrr"]
    of_lists = {"lists": metrics.Lists.of(positives, junk)}
    for words, column, settings in (
        (names, labels, {"query_sequences": numbers}),
        (names, labels, {"reference": features[9:], "reference_labels": labels[9:]}),
        (names, labels, {"skip_unmatched": True}),
        ([*names, "map_r_level1", "mrr_level1"], levels, {}),
        (names[:2], labels, of_lists),
    ):
        measured = metrics.compute(words, features, column, **settings)
        with mock.patch.object(_tensors, "is_gpu", lambda device: False):
            assert measured == metrics.compute(words, features, column, **settings), settings


class Moved(TorchFunctionMode):
    """Counts the bytes that come back to the host. A read of one number counts as 8."""

    CASTS = (torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__)
    OF_ONE_NUMBER = (torch.Tensor.item, torch.Tensor.nonzero, *CASTS)

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.Tensor.cpu:
            self.bytes += result.numel() * result.element_size()
        elif function in self.OF_ONE_NUMBER:
            self.bytes += 8
        return result


def test_few_bytes_come_back_to_the_host(on_device):
    """The embeddings of SOP have 5.3 images a class: ranks and clusters, 4 bytes each."""
    features, labels = random_space(n=3000, d=16, classes=560, spread=1.0, seed=5)
    with Moved() as moved:
        metrics.compute([*ICML, "map_r"], features.astype(np.float32), labels)
    assert 8 * 3000 < moved.bytes <= 40 * 3000


def test_arrays_that_step_backwards_or_are_read_only(on_device):
    features, labels = random_space(n=40, spread=2.0, seed=3)
    expected = metrics.compute(["map_r", "c_map_r"], features[:, ::-1].copy(), labels)
    backwards = features[:, ::-1]
    backwards.flags.writeable = False
    assert metrics.compute(["map_r", "c_map_r"], backwards, labels) == expected


def test_parts_of_a_reference_are_not_mixed_up(on_device):
    features, labels = random_space(n=60, spread=2.0, seed=3)
    space = metrics.EmbeddingSpace(features, labels)
    for start in range(20):
        rows = np.arange(start, 60)
        part = space.within(rows)
        assert np.array_equal(part.tensors.reference.numpy(), features[rows])


def test_two_evaluations_end_in_the_same_bits(on_device):
    features, labels = random_space(n=300, d=8, classes=40, spread=1.0, seed=6)
    first, second = (metrics.compute([*ICML, *OTHERS], features, labels) for _ in range(2))
    assert all(np.array_equal(first[name], second[name], equal_nan=True) for name in first)
