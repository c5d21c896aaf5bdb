"""Epoch means of every criterion's and miner's statistics, values of single batches; no step waits for the device."""

import math

import pytest
import torch

import batch_mining
import criteria
from engine.meter import BLOCK, BatchLog, EpochMeter, statistics
from engine.step import StepResult

LABELS = torch.arange(4).repeat_interleave(4)
MINED = {"angular": "npair", "npair": "npair", "lifted": "lifted"}
# an adapter, which needs a class; one that takes batches of triplets alone
NOT_HERE = {"pml", "packaged"}


def result(loss, losses=None, norm=1.0, images=4):
    return StepResult(loss, losses or {}, torch.tensor(norm), images)


def sgd(lr, **names):
    return torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], **names}], lr=lr)


def test_steps_that_float16_leaves_out_are_in_no_mean():
    for norms, mean in (([2.0, math.inf, 4.0], 3.0), ([math.inf], math.nan)):
        meter = EpochMeter(torch.nn.Identity())
        for norm in norms:
            meter.add(result(torch.ones(()), norm=norm))
        means = meter.means(sgd(0.25))
        assert means["gradient_norm"] == pytest.approx(mean, nan_ok=True) and means["loss"] == 1


def means_are_those_of_each_batch(loss, mining):
    options = {"n_classes": 4, "embed_dim": 8, "bs": 16, "samples_per_class": 4, "batch_mining": mining}
    miner = batch_mining.select(mining, **options) if criteria.REGISTRY.module(loss).REQUIRES_BATCHMINER else None
    # whose triplets take a second else
    criterion = criteria.select(loss, batchminer=miner, loss_hier_n_proxies=12, **options)
    meter = EpochMeter(criterion)
    seen = []
    generator = torch.Generator().manual_seed(5)
    for number in range(2):
        embeddings = torch.nn.functional.normalize(torch.randn(16, 8, generator=generator), dim=1)
        value = criterion(embeddings.requires_grad_(), LABELS).detach()
        meter.add(result(value, {"metric_loss": value}, float(number)))
        seen.append({"loss": value.item(), **{name: float(number) for name, number in statistics(criterion).items()}})
    means = meter.means(sgd(0.25))
    assert means["gradient_norm"] == 0.5 and means["rate/0"] == 0.25
    for name in seen[0]:
        expected = sum(values[name] for values in seen) / 2
        assert means[name] == pytest.approx(expected, rel=1e-5, abs=1e-7), (loss, mining, name)
    return means


def test_every_criterion_and_miner_has_statistics_and_their_epoch_means():
    for loss in set(criteria.REGISTRY.names()) - NOT_HERE:
        means = means_are_those_of_each_batch(loss, MINED.get(loss, "distance"))
        assert any(name.startswith("criterion/") for name in means), loss
    for mining, module in batch_mining.REGISTRY.modules().items():
        if module.YIELDS != "sets" and mining not in NOT_HERE:
            assert means_are_those_of_each_batch("contrastive", mining)["miner/tuples"] > 0, mining


class Counting:
    """A criterion whose statistics are written into one tensor, in place."""

    def __init__(self):
        self.stats = {"share": torch.zeros(()), "plain": 0.5}


def test_a_step_never_waits_for_the_device(monkeypatch):
    def waits(*args, **kwargs):
        raise AssertionError("this waits for the device")

    for name in ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "__index__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    meter = EpochMeter(Counting(), BatchLog(1, sgd(0.1), write=None))
    for _ in range(BLOCK - 1):
        meter.add(result(torch.ones(())))


def test_every_nth_batch_is_kept_with_all_that_is_asked_for(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr("engine.meter.time.monotonic", lambda: next(clock))
    written = []
    criterion = Counting()
    log = BatchLog(3, sgd(0.125, name="network"), written.extend)
    meter = EpochMeter(criterion, log)
    for step in range(1, 8):
        criterion.stats["share"].fill_(step / 10)
        meter.add(result(torch.tensor(1 / step, dtype=torch.float64), norm=2.0 * step, images=10))
    assert written == []
    for _ in range(2):
        log.flush()
    assert [step for step, _ in written] == [3, 6] and log.steps == 7
    first, second = (values for _, values in written)
    assert first["loss"] == 1 / 3 and second["loss"] == 1 / 6, "float64 stays whole"
    assert second["gradient_norm"] == 12.0 and second["rate/network"] == 0.125 and second["criterion/plain"] == 0.5
    shares = [values["criterion/share"] for values in (first, second)]
    assert shares == pytest.approx([0.3, 0.6]), "each step's own value"
    # 30 images between two ticks of the clock
    assert second["images_per_second"] == 30.0 and 1 < second["memory_mib"] < 1e6


def test_blocks_are_handed_over_while_the_epoch_runs():
    written = []
    logs = BatchLog(1, sgd(0.1), written.append), BatchLog(0)
    for _ in range(2 * BLOCK + 1):
        for log in logs:
            log.take({"loss": torch.ones(())}, 4)
    assert [len(block) for block in written] == [BLOCK, BLOCK] and logs[1].steps == 2 * BLOCK + 1
