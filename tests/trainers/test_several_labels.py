"""Training on images with several labels: the memory, chunks, checkpoints, and what is refused."""

import pytest
import torch
from torch.testing import assert_close

import trainers
from tests.datasets.test_csv import write
from tests.datasets.test_several_labels import table
from tests.engine.test_chunks import TOLERANCES, assert_same_steps, trained
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import run_main
from trainers._memory import Queue
from utilities.criterion import MetricCriterion

MEMORY = "--memory_size 10 --memory_start 0"
SETS = [[{0}, {0, 1}, {2}, {3}], [{1, 3}, {2}, {0}, {0, 2}], [{3}, {1}, {1, 2}, {0}]]


class Products(MetricCriterion):
    """-sum of products with positives."""

    several_labels = True

    def forward(self, batch, labels, reference, **kwargs):
        return -((batch @ reference.embeddings.T) * reference.masks(labels)[0]).sum()


def batches():
    for number, sets in enumerate(SETS * 2):
        relevance = torch.tensor([[label in labels for label in range(4)] for labels in sets])
        firsts = [min(labels) for labels in sets]
        yield sets, tiny.batch(firsts, seed=number)._replace(relevance=relevance)


def with_products(*flags):
    def select(name, opt, network, _):
        return trainers.select(name, opt, network, Products())

    return tiny.trainer("metric_only", "--optim sgd --lr 1e-4", MEMORY, *flags, make=select)[0]


def test_the_memory_knows_the_labels_of_its_rows():
    trainer = with_products()
    held = []  # (embedding, labels, step, row)
    for number, (sets, batch) in enumerate(batches()):
        outputs, losses = tiny.losses(trainer, batch)
        x = outputs["embeddings"]
        held = [*held, *((x[row].detach(), sets[row], number, row) for row in range(4))][-10:]
        expected = 0
        for row in range(4):
            for vector, labels, *place in held:
                if labels & sets[row] and place != [number, row]:
                    expected = expected - x[row] @ vector
        assert_close(losses["memory_loss"], expected)
    state = trainer.added_losses[0].get_extra_state()
    assert state["relevance"].shape == (10, 4)


def test_a_memory_goes_on_where_a_checkpoint_left_it():
    first = with_products()
    resumed = with_products()
    *first_batches, (_, last_batch) = batches()
    for _, batch in first_batches:
        tiny.losses(first, batch)
    resumed.added_losses[0].set_extra_state(first.added_losses[0].get_extra_state())
    values = [tiny.losses(trainer, last_batch)[1]["memory_loss"] for trainer in (first, resumed)]
    assert torch.equal(*values)
    queue = Queue(6)
    queue.restore(first.added_losses[0].get_extra_state())
    newest = torch.cat([batch.relevance for _, batch in batches()])[-6:]
    assert torch.equal(queue.relevance, newest)


@pytest.mark.parametrize(
    "flags", ["--loss multisimilarity", "--loss triplet --batch_mining batchhard", "--loss softmax"]
)
def test_chunks_change_nothing(flags):
    memory = "" if "softmax" in flags else "--memory_size 30 --memory_start 1"
    how = {"stand_in": False, "label_sets": True}
    expected = trained(0, *flags.split(), *memory.split(), **how)
    assert_same_steps(expected, trained(4, *flags.split(), *memory.split(), **how), *TOLERANCES[torch.float64])
    single = trained(0, *flags.split(), *memory.split(), stand_in=False)
    assert not torch.equal(expected[2][-1].loss, single[2][-1].loss)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--loss proxyanchor", "the criterion proxyanchor takes one label per image"),
        ("--loss triplet --batch_mining intra_random", "the miner intra_random takes one label per image"),
        ("--loss triplet --loss_reduction class_weighted", "the criterion triplet takes one label per image"),
        ("--loss softmax --sample_classes .5", "the criterion softmax takes one label per image"),
        ("--loss ntxent --trainer classifier", "--trainer classifier: images have several labels"),
        ("--loss multisimilarity --metrix .5", "--metrix 0.5 goes by one label per image"),
        (
            "--loss ntxent --memory_size 12 --memory_start 0 --noise_filter prism",
            "--noise_filter prism goes by one label per image",
        ),
        ("--loss softmax --weight_regularizer anticollapse", "--weight_regularizer anticollapse goes by one label"),
        (
            "--loss ntxent --subset_mining maximum_loss --subset_size 2",
            "--subset_mining maximum_loss goes by one label",
        ),
    ],
)
def test_what_goes_by_one_label_is_refused(tmp_path, flags, message):
    path = write(tmp_path / "t.csv", table(tmp_path))
    words = f"--dataset csv --dataset_csv {path} --arch conv4 --bs 4 --samples_per_class 2 --kernels 0 --dry_run"
    with refused(message):
        run_main(words, "--save_path", tmp_path / "runs", flags)


@pytest.mark.long
def test_a_run_resumes_exactly_and_is_measured_by_shared_labels(tmp_path):
    path = write(tmp_path / "t.csv", table(tmp_path))
    words = f"--dataset csv --dataset_csv {path} --arch conv4_normalize --bs 4 --samples_per_class 2 --kernels 0"
    words += f" --loss multisimilarity {MEMORY} --evaluation_metrics e_recall@1 ap --save_path {tmp_path / 'runs'}"
    straight = run_main(words, "--n_epochs 2 --savename whole")
    run_main(words, "--n_epochs 1 --savename part")
    part = run_main(words, "--n_epochs 2 --savename part --resume")
    tiny.assert_equal_runs(straight.folder, part.folder)
