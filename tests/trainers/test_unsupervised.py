"""Every image its own class: no label reaches a batch or the criterion; what needs labels is refused."""

import math

import pytest
import torch
import yaml

import criteria
import datasampler
import datasets
import parameters
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.tiny import dot


def ntxent(embeddings, images, temperature):
    """Mean over ordered pairs of views of one image: all other images are negatives."""
    similar = [[math.exp(dot(x, y) / temperature) for y in embeddings] for x in embeddings]
    terms = []
    for i, image in enumerate(images):
        negatives = sum(similar[i][n] for n, other_image in enumerate(images) if other_image != image)
        positives = [similar[i][p] for p, other_image in enumerate(images) if other_image == image and p != i]
        terms += [-math.log(positive / (positive + negatives)) for positive in positives]
    return sum(terms) / len(terms)


@pytest.mark.parametrize("views", [2, 3])
def test_the_criterion_takes_views_of_one_image_as_a_class(views):
    flags = f"--loss ntxent --loss_ntxent_temperature .2 --views {views}"
    trainer, _ = tiny.trainer("unsupervised", flags, network=tiny.Network(True))
    assert views == trainer.VIEWS and not trainer.LABELS
    batch = tiny.batch([0, 0, 1, 1, 2], views)
    outputs, losses = tiny.losses(trainer, batch)
    assert outputs["embeddings"].shape == (5 * views, 4) and set(losses) == {"metric_loss"}
    expected = ntxent(outputs["embeddings"].tolist(), batch.indices.tolist(), 0.2)
    assert losses["metric_loss"].item() == pytest.approx(expected, abs=1e-12)
    relabelled = tiny.losses(trainer, batch._replace(labels=torch.zeros_like(batch.labels)))[1]
    assert torch.equal(losses["metric_loss"], relabelled["metric_loss"]), "labels were looked at"


def test_flags_of_classes_are_refused(tmp_path):
    weights = tmp_path / "weights.txt"
    weights.write_text("1\n" * 4)
    for flags, message in (
        (f"--loss_reduction class_weighted --loss_class_weights {weights}", "--loss_class_weights are of classes"),
        (
            "--data_sampler class_groups --data_class_groups_draw",
            "--data_class_groups_draw draws how many images of a class",
        ),
    ):
        with refused(message):
            tiny.trainer("unsupervised", "--loss contrastive --bs 56", flags)


def test_labels_put_no_batch_together(data, tmp_path):
    """The same images under other labels give the same batches; class_balanced gives distinct images."""
    for sampler in ("class_random", "class_balanced", "shuffle", "full_random"):
        opt = tiny.read(data, tmp_path, "--trainer unsupervised --loss ntxent --data_sampler", sampler)
        dataset = datasets.select(opt.dataset, opt, opt.source_path, 48)["training"]
        batches = []
        for labels in (lambda i: i // 10, lambda i: i % 3):
            dataset.image_list = [(path, labels(i)) for i, (path, _) in enumerate(dataset.image_list)]
            dataset.image_dict = {c: [] for c in range(3)}
            for i, (path, label) in enumerate(dataset.image_list):
                if label in dataset.image_dict:
                    dataset.image_dict[label].append([path, i])
            torch.manual_seed(5)
            batches.append(list(datasampler.for_training(opt, dataset, by_class=False)))
        assert batches[0] == batches[1] and max(map(max, batches[0])) > 20, sampler
        if sampler in ("class_balanced", "shuffle"):
            assert all(len(set(batch)) == len(batch) for batch in batches[0])


def test_losses_that_learn_something_of_a_class_are_refused():
    names = [name for name in criteria.REGISTRY.names() if name != "pml"]
    built = {name: criteria.select(name, n_classes=4, embed_dim=4) for name in names}
    of_classes = {name for name, criterion in built.items() if hasattr(criterion, "classes_expected")}
    assert of_classes >= {"arcface", "proxynca", "softtriplet", "margin"}
    for loss in of_classes:
        hint = "loss_margin_beta_shared" if loss == "margin" else "such as ntxent"
        with refused(f"--loss {loss} learns something of each class.*{hint}"):
            tiny.trainer("unsupervised", "--arch conv4 --loss", loss)
    for name in ("ArcFaceLoss", "SoftTripleLoss", "ProxyAnchorLoss"):
        with refused("--loss pml learns something of each class"):
            tiny.trainer("unsupervised", "--loss pml --loss_pml_class", name)
    # The loss beside which hier stands learns something of each class
    with refused("--loss hier learns something of each class"):
        tiny.trainer("unsupervised", "--loss hier")


@pytest.mark.parametrize(
    "loss",
    [
        "vicreg",
        "contextual",
        "hier --loss_hier_base ntxent --loss_hier_n_proxies 9 --loss_hier_per_anchor 3",
        "pml --loss_pml_class NTXentLoss",
    ],
)
def test_losses_that_learn_nothing_of_a_class_take_numbers_of_images(loss):
    """Whether they compare with samples of a memory is another question."""
    trainer, opt = tiny.trainer("unsupervised", f"--loss {loss}")
    batch = tiny.batch(range(8), views=2)
    values = []
    assert batch.indices.max() >= opt.n_classes
    for labels in (batch.labels, torch.zeros_like(batch.labels)):
        # hier draws, and has to draw the same both times
        torch.manual_seed(1)
        values.append(tiny.losses(trainer, batch._replace(labels=labels))[1]["metric_loss"])
    assert torch.equal(*values) and values[0].isfinite()
    assert "last_linear.weight" in tiny.gradients(values[0], trainer.network)


def test_a_batch_without_labels_need_not_be_whole_classes():
    batch = "--samples_per_class 4 --subset_mining maximum_loss --subset_size 29"
    tiny.resolve("--trainer unsupervised --loss ntxent --bs 58", batch)
    with refused("--bs 58 is not a multiple"):
        tiny.resolve("--loss ntxent --bs 58 --samples_per_class 4")
    with refused("--subset_size 29 is not a multiple"):
        tiny.resolve("--loss ntxent --bs 60 --subset_mining maximum_loss --subset_size 29")


def test_views_are_a_flag_of_every_trainer(data, tmp_path, capsys):
    """The trainer's own number without the flag, also from a saved run's flags."""
    tiny.run(data, tmp_path, "--views 2 --samples_per_class 1 --dry_run")
    assert "dry run: one batch of 16 images" in capsys.readouterr().out
    opt = tiny.resolve()
    saved = tmp_path / "saved.yaml"
    saved.write_text(yaml.safe_dump(opt.saved()))
    changed = parameters.resolve(["--config", str(saved), *"--trainer unsupervised --loss ntxent".split()])
    assert opt.views == 1 and changed.views == 2
