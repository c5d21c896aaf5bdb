"""PRISM: probabilities and thresholds by plain loops, in a step, over a restart."""

import math

import pytest
import torch

from tests.criteria._table import PINNED, PINNED_LABELS
from tests.kit import tiny
from tests.kit.mining import normal
from tests.kit.refusals import refused
from tests.kit.runs import resolve
from trainers._noise import NoiseFilter, probabilities

WORDS = "--loss contrastive --noise_filter prism --memory_size 12 --memory_start 0"


def slow_probabilities(embeddings, labels, rows, row_labels):
    centres = {}
    for label in set(row_labels.tolist()):
        of_class = [row for row, other_label in zip(rows, row_labels.tolist(), strict=True) if other_label == label]
        centres[label] = sum(of_class) / len(of_class)
    values = []
    for x, label in zip(embeddings, labels.tolist(), strict=True):
        if label in centres:
            total = sum(math.exp(centre @ x) for centre in centres.values())
            values.append(math.exp(centres[label] @ x) / total)
        else:
            values.append(1.0)
    return values


class SlowFilter:
    """The filter with lists."""

    def __init__(self, rate, window):
        self.rate = rate
        self.window = window
        self.thresholds = []

    def __call__(self, values):
        n_dropped = math.floor(self.rate * len(values))
        if n_dropped == 0:
            return list(range(len(values)))
        order = sorted(range(len(values)), key=values.__getitem__)
        threshold = values[order[n_dropped - 1]]
        if threshold != 1:
            self.thresholds = [*self.thresholds, threshold][-self.window :]
        if self.thresholds:
            mean = sum(self.thresholds) / len(self.thresholds)
            above = [place for place, value in enumerate(values) if value > mean]
            if above:
                return above
            self.thresholds = self.thresholds[-1:]
        return sorted(order[n_dropped:])


def test_probabilities_by_centres_of_the_memory():
    values = probabilities(PINNED, PINNED_LABELS, PINNED, PINNED_LABELS, 2)
    assert values.tolist() == pytest.approx([0.7109495, 0.6034832, 0.6224593, 0.6502185], abs=1e-7)
    rows = normal(20, 4, seed=0)
    row_labels = torch.arange(20) % 3
    embeddings = normal(9, 4, seed=1)
    # Labels 3 and 4 are not in the memory
    labels = torch.tensor([0, 0, 1, 2, 3, 4, 2, 1, 0])
    values = probabilities(embeddings, labels, rows, row_labels, 6)
    assert values.tolist() == pytest.approx(slow_probabilities(embeddings, labels, rows, row_labels), abs=1e-12)
    assert values[4] == values[5] == 1


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_the_filter_is_that_of_lists(rate):
    noise_filter = NoiseFilter(rate, 4, 7).double()
    slow = SlowFilter(rate, 4)
    generator = torch.Generator().manual_seed(5)
    for step in range(30):
        # now and then no image is above the mean
        rows = normal(15, 3, seed=step) * (1 if step % 7 else 0.01)
        row_labels = torch.randint(0, 5, (15,), generator=generator)
        embeddings = normal(10, 3, seed=100 + step)
        labels = torch.randint(0, 7, (10,), generator=generator)
        values = probabilities(embeddings, labels, rows, row_labels, 7).tolist()
        assert noise_filter(embeddings, labels, rows, row_labels).tolist() == slow(values), step


def test_without_a_class_in_the_memory_the_lowest_are_all_equal():
    noise_filter = NoiseFilter(0.5, 3, 4).double()
    staying = noise_filter(PINNED, torch.tensor([2, 2, 3, 3]), PINNED, PINNED_LABELS)
    assert staying.tolist() == [2, 3] and noise_filter.count == 0
    assert NoiseFilter(0.2, 3, 4).double()(PINNED, PINNED_LABELS, PINNED, PINNED_LABELS).tolist() == [0, 1, 2, 3]


def test_a_step_leaves_images_out_of_both_losses_and_the_memory():
    trainer, opt = tiny.trainer("metric_only", f"{WORDS} --noise_rate .4 --embed_regularizer koleo")
    tiny.losses(trainer, tiny.batch())
    queue = trainer.added_losses[0].queue
    rows = queue.rows.clone()
    row_labels = queue.labels.clone()
    assert len(rows) == 6
    batch = tiny.batch(seed=4)
    outputs, losses = tiny.losses(trainer, batch)
    staying = SlowFilter(0.4, 30)(slow_probabilities(outputs["embeddings"].detach(), batch.labels, rows, row_labels))
    assert 0 < len(staying) < 6 and len(queue.rows) == 6 + len(staying)
    unfiltered, _ = tiny.trainer("metric_only", "--loss contrastive --embed_regularizer koleo")
    part = batch._replace(labels=batch.labels[staying], indices=batch.indices[staying])
    expected = unfiltered.losses({"embeddings": outputs["embeddings"][staying]}, part)
    for name in ("metric_loss", "embed_regularizer"):
        torch.testing.assert_close(losses[name], expected[name])
    torch.testing.assert_close(queue.rows[6:], outputs["embeddings"][staying].detach())
    noise_filter = trainer.added_losses[0].noise_filter
    resumed, _ = tiny.trainer("metric_only", f"{WORDS} --noise_rate .4 --embed_regularizer koleo")
    resumed.load_state_dict(trainer.state_dict())
    copy = resumed.added_losses[0]
    assert torch.equal(copy.noise_filter.thresholds, noise_filter.thresholds) and copy.noise_filter.count == 1


def test_where_it_cannot_act():
    for words, message in (
        ("--loss contrastive --noise_filter prism", "no effect without --memory_size"),
        (f"{WORDS} --trainer unsupervised --augmentation base", "--trainer unsupervised has losses of its own"),
        (f"{WORDS} --trainer classifier", "--trainer classifier has losses of its own"),
        ("--loss contrastive --noise_rate .2", "--noise_rate"),
    ):
        with refused(message):
            resolve("--dataset glyphs --arch conv4", words)
