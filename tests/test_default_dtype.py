"""What was written in float32 works, and draws the same, in a program whose `torch.set_default_dtype` is float64."""

import contextlib
import functools

import numpy as np
import pytest
import torch

import architectures
import batch_mining
import criteria
import datasampler
import metrics
from metrics.neighbours import search
from tests.criteria.test_registry_wide import ADAPTERS, DIMENSIONS, points
from tests.criteria.test_registry_wide import build as criterion_of
from tests.engine.test_chunks import failures
from tests.kit.plain_metrics import every_name
from tests.kit.samplers import SIZES, make_sampler

NAMES = every_name()
MINER_FLAGS = {"pml": {"miner_pml_class": "MultiSimilarityMiner"}}
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 3, 4])


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def under_both(result):
    """What `result()` gives under float32 and under float64, from the same seed."""
    results = []
    for dtype in (torch.float32, torch.float64):
        with default_dtype(dtype):
            torch.manual_seed(0)
            results.append(result())
    return results


def is_same(first, second) -> bool:
    """Equal in type and value, arrays and tensors included."""
    return type(first) is type(second) and np.array_equal(np.asarray(first), np.asarray(second), equal_nan=True)


@pytest.mark.parametrize("tile", [8192, 16])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_metrics(monkeypatch, tile, device, dtype):
    monkeypatch.setattr(search, "Limits", functools.partial(search.Limits, rows=min(1024, tile), columns=tile))
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 7
    features = torch.randn(60, 5, dtype=dtype, generator=generator) + torch.nn.functional.one_hot(labels, 7)[:, :5].to(
        dtype
    )
    gallery = torch.randn(45, 5, dtype=dtype, generator=generator)
    gallery_labels = torch.arange(45) % 6
    of_levels = [torch.stack([level, level % 2], 1) for level in (labels, gallery_labels)]
    values = functools.partial(metrics.compute, NAMES, features, of_levels[0], device=device, groups=labels % 2)
    for reference in ({}, {"reference": gallery, "reference_labels": of_levels[1]}):
        single, double = under_both(functools.partial(values, **reference))
        assert list(single) == list(double) == NAMES
        assert all(is_same(single[name], double[name]) for name in NAMES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_miners(dtype):
    batch = torch.nn.functional.normalize(points(len(LABELS))).to(dtype)

    def check(name):
        def mined():
            miner = batch_mining.select(name, loss="triplet", embed_dim=DIMENSIONS, **MINER_FLAGS.get(name, {}))
            return list(miner(batch, LABELS)), {key: float(value) for key, value in miner.stats.items()}

        (single, stats), (double, other_stats) = under_both(mined)
        assert all(is_same(a, b) for a, b in zip(single, double, strict=True))
        assert stats == pytest.approx(other_stats)

    # which computes nothing
    assert not failures(((name,) for name in batch_mining.REGISTRY.names() if name != "packaged"), check)


def deterministic(module):
    """Its start is drawn in the default precision."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel(), dtype=torch.float32).view_as(parameter))
    return module


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_criteria(dtype):
    batch = torch.nn.functional.normalize(points(len(LABELS))).to(dtype)

    def check(name):
        def computed():
            criterion = deterministic(criterion_of(name))
            rows = batch.clone().requires_grad_()
            torch.manual_seed(1)
            loss = criterion(rows, LABELS)
            loss.backward()
            for parameter in criterion.parameters():
                assert parameter.grad is not None and parameter.grad.dtype == parameter.dtype
            return [loss.detach(), rows.grad]

        single, double = under_both(computed)
        assert single[0].dtype == double[0].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert single[1].dtype == double[1].dtype == dtype
        torch.testing.assert_close(single, double)

    # adaface divides differences of lengths near 1, rounding of the default precision, by their deviation
    rounds = "adaface"
    names = [name for name in criteria.REGISTRY.names() if name not in {*ADAPTERS, rounds}]
    assert not failures(((name,) for name in names), check)


def test_samplers_and_networks():
    def check(name):
        def batches():
            sampler = make_sampler(name, SIZES, bs=12, samples_per_class=3, data_batchmatch_bigbs=40)
            sampler.precompute_indices()
            return torch.tensor(sum(sampler, []))

        assert is_same(*under_both(batches))

    assert not failures(((name,) for name in datasampler.REGISTRY.names()), check)

    def embedded():
        network = deterministic(architectures.select("conv4_normalize", embed_dim=8))
        images = torch.randint(256, (2, 3, network.input_size, network.input_size), dtype=torch.uint8)
        return network.eval()(images)[0]

    single, double = under_both(embedded)
    assert single.dtype == torch.float32 and double.dtype == torch.float64
    torch.testing.assert_close(single, double.float(), rtol=1e-3, atol=1e-4)
