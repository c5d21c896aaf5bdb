"""Cross-batch memory: the queue, the loss against it, the moving average of keys, resume to the bit, refusals."""

import collections

import pytest
import torch

import main
import parameters
import trainers
from runs import RunFolder, checkpoint
from tests import builders
from tests.trainers.test_trainers import Network, Recording, batch
from trainers._averaging import MovingAverage
from trainers._memory import KEYS, Queue
from training.runtime import Runtime
from training.step import Step
from utilities.errors import UserError


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [3, 5, 1, 7, 7], [7]])
def test_the_queue_holds_the_last_rows(sizes):
    queue, last, written = Queue(7), collections.deque(maxlen=7), 0
    for size in sizes:
        rows = torch.arange(written, written + size, dtype=torch.float64)[:, None].repeat(1, 2)
        written += size
        places = queue.put(rows, rows[:, 0].long() * 10)
        last.extend(rows[:, 0].tolist())
        assert torch.equal(queue.rows[places], rows) and torch.equal(queue.labels[places], rows[:, 0].long() * 10)
        assert sorted(queue.rows[:, 0].tolist()) == sorted(last) and torch.equal(queue.labels, queue.rows[:, 0].long() * 10)


class Against(torch.nn.Module):
    """-sum of products with positives, a plain module that takes a reference."""

    def forward(self, batch, labels, reference=None, reference_labels=None, own=None, **kwargs):
        if reference is None:
            reference, reference_labels, own = batch, labels, torch.arange(len(batch))
        same = labels[:, None] == reference_labels[None]
        same[torch.arange(len(batch))[own >= 0], own[own >= 0]] = False
        return -((batch @ reference.T) * same).sum()


class Alone(torch.nn.Module):
    """Knows the batch alone."""

    def forward(self, batch, labels, **kwargs):
        return batch.sum()


def trainer_of(*flags, loss="contrastive"):
    opt = parameters.read(["--dataset", "glyphs", "--loss", loss, "--evaltypes", "first", *flags])
    torch.manual_seed(0)
    return opt, trainers.select("metric_only", opt, Network().double(), Against())


def shuffled(seed):
    one = batch(4)
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, one.images.shape, dtype=torch.uint8, generator=generator)
    return one._replace(images=images, labels=torch.randint(0, 3, (4,), generator=generator))


@pytest.mark.parametrize("start", [0, 2])
def test_the_loss_against_the_memory_is_that_of_plain_loops(start):
    opt, trainer = trainer_of("--memory_size", "10", "--memory_start", str(start))
    trainer.network.forward = lambda images: _embed(trainer.network, images)
    held = []  # (embedding, label, step, row)
    for number in range(6):
        one = shuffled(number)
        outputs = trainer.outputs(one.images)
        losses = trainer.losses(outputs, one)
        assert ("memory_loss" in losses) == (number >= start)
        if number < start:
            continue
        x = outputs["embeddings"]
        held = [*held, *((x[i].detach(), int(one.labels[i]), number, i) for i in range(4))][-10:]
        expected = sum(
            -(x[i] @ row) for i in range(4) for row, label, at, place in held if label == one.labels[i] and (at, place) != (number, i)
        )
        torch.testing.assert_close(losses["memory_loss"], torch.as_tensor(expected, dtype=torch.float64))
        gradients = [
            torch.autograd.grad(value, trainer.network.last_linear.weight, retain_graph=True)[0]
            for value in (losses["memory_loss"], expected)
        ]
        torch.testing.assert_close(*gradients)


def _embed(network, images):
    pooled = images.double().mean((2, 3))
    embedding = network.last_linear(pooled)
    return {"first": embedding, "second": -2 * embedding}, {"pooled": pooled}


def test_weights_and_the_moving_average():
    opt, trainer = trainer_of("--memory_size", "10", "--memory_start", "0", "--loss_weights", "memory_loss=.5", "--memory_ema", ".9")
    trainer.float()
    optimizer = torch.optim.SGD([p for p in trainer.parameters() if p.requires_grad], lr=1e-4)
    step = Step(trainer, optimizer, Runtime(opt), Recording(), {"memory_loss": 0.5})
    before = [p.detach().clone() for p in trainer.network.parameters()]
    outputs, losses, total = step.forward(shuffled(0))
    torch.testing.assert_close(total, losses["metric_loss"] + 0.5 * losses["memory_loss"])
    assert torch.equal(outputs[KEYS], outputs["embeddings"]) and not outputs[KEYS].requires_grad
    done = step(shuffled(1))
    average = trainer.added_losses[0].average
    for old, new, kept in zip(before, trainer.network.parameters(), average.network.parameters(), strict=True):
        assert not torch.equal(old, new)
        torch.testing.assert_close(kept, 0.9 * old + 0.1 * new)
    assert set(done.losses) == {"metric_loss", "memory_loss"} and not trainer.own_parameters()
    assert Step(trainer, optimizer, Runtime(opt), Recording(), {"memory_loss": 2.0}).weights["memory_loss"] == 2


def test_an_average_keeps_its_own_buffers():
    network = torch.nn.BatchNorm1d(3)
    average = MovingAverage(network, 0.5)
    average(torch.randn(8, 3))
    average.update(network)
    assert not torch.equal(average.network.running_mean, network.running_mean)


def test_what_cannot_work_is_refused_in_one_line():
    for loss in ("arcface", "proxyanchor", "softtriplet"):
        with pytest.raises(UserError, match=f"--memory_size 10: --loss {loss} compares no samples that a memory could hold"):
            trainer_of("--memory_size", "10", loss=loss)
    with pytest.raises(UserError, match="Alone takes no reference"):
        trainers.select("metric_only", parameters.read(["--dataset", "glyphs", "--memory_size", "9"]), Network(), Alone())
    _, trainer = trainer_of("--memory_size", "3")
    with pytest.raises(UserError, match="--memory_size 3 is less than the 4 embeddings of a batch"):
        trainer.losses({"embeddings": torch.zeros(4, 2)}, shuffled(0))


def test_a_trainer_that_does_not_ask_for_it_is_refused():
    class Alone(trainers.Base):
        """A loss of its own."""

        def losses(self, outputs, batch):
            return {"own_loss": outputs["embeddings"].sum()}

    opt = parameters.read(["--dataset", "glyphs", "--memory_size", "10"])
    trainer = Alone(opt, Network(), Against())
    with pytest.raises(UserError, match="--memory_size has no effect with this --trainer"):
        Step(trainer, None, Runtime(opt), Recording(), {}).forward(batch())


