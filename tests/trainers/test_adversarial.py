"""Adversarial negatives against plain loops; what each loss reaches; phases."""

import itertools
import math

import pytest
import torch

import criteria
from tests.kit import tiny
from tests.kit.tiny import distance, dot, rows_of, unit
from trainers.adversarial import GENERATOR_LOSSES, random_triplets

LABELS = [0, 0, 0, 1, 1, 2, 3, 3]
ALL = [
    (a, p, n)
    for a, p, n in itertools.product(range(8), repeat=3)
    if a != p and LABELS[a] == LABELS[p] and LABELS[n] != LABELS[a]
]


def mean_squared(x, y):
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / len(x)


def computed(trainer, batch):
    """The losses, and the triplets and synthetic negatives they are of."""
    outputs = trainer.outputs(batch.images)
    torch.manual_seed(5)
    losses = trainer.losses(outputs, batch)
    torch.manual_seed(5)
    triplets = rows_of(random_triplets(batch.labels, trainer.at_most))
    synthetic = [trainer.generator(torch.cat([outputs["pooled"][i] for i in triplet])) for triplet in triplets]
    return outputs, losses, triplets, torch.stack(synthetic)


@pytest.mark.parametrize(("normalizes", "at_most", "margin"), [(False, 100, -0.4), (True, 100, -0.4), (True, 3, -5.0)])
def test_the_losses_of_the_generator_are_those_of_plain_loops(normalizes, at_most, margin):
    flags = f"--loss triplet --adversarial_triplets_per_anchor {at_most} --adversarial_margin={margin}"
    network = tiny.Network(normalizes)
    trainer, _ = tiny.trainer("adversarial", flags, "--adversarial_hidden 7 6", network=network)
    outputs, losses, triplets, synthetic = computed(trainer, tiny.batch(LABELS))
    pooled = outputs["pooled"].tolist()
    embeddings = outputs["embeddings"].tolist()
    embedded = trainer.network.embed(synthetic).tolist()
    hard = []
    reg = []
    adv = []
    for t, (a, p, n) in enumerate(triplets):
        hard.append(mean_squared(unit(synthetic[t].tolist()), unit(pooled[a])))
        reg.append(mean_squared(unit(synthetic[t].tolist()), unit(pooled[n])))
        adv.append(max(distance(embeddings[a], embedded[t]) - distance(embeddings[a], embeddings[p]) - margin, 0))
    for name, terms in zip(GENERATOR_LOSSES, (hard, reg, adv), strict=True):
        assert losses[name].item() == pytest.approx(sum(terms) / len(terms), rel=1e-10), name
    assert any(adv) and (all(adv) or at_most > 3) and len(hard) == (3 * 7 if at_most == 3 else len(ALL))


def test_synth_loss_is_the_criterion_on_the_triplets_as_they_are():
    trainer, _ = tiny.trainer("adversarial", "--loss triplet --adversarial_hidden")
    outputs, losses, triplets, synthetic = computed(trainer, tiny.batch(LABELS))
    x = outputs["embeddings"].tolist()
    embedded = trainer.network.embed(synthetic).tolist()

    def mean(triplets):
        """Of the hinges of (anchor, positive, negative)."""
        return sum(max(distance(a, p) ** 2 - distance(a, n) ** 2 + 0.2, 0) for a, p, n in triplets) / len(triplets)

    expected = {
        "synth_loss": mean([(x[a], x[p], embedded[t]) for t, (a, p, _) in enumerate(triplets)]),
        "metric_loss": mean([(x[a], x[p], x[n]) for a, p, n in ALL]),
    }
    assert len(trainer.generator) == 1
    assert {name: losses[name].item() for name in expected} == pytest.approx(expected, rel=1e-10)


def test_synth_loss_of_class_vectors_sees_every_row_of_every_triplet(monkeypatch):
    monkeypatch.setattr(criteria.REGISTRY.module("softmax"), "COMPARES_SAMPLES", False, raising=False)
    trainer, _ = tiny.trainer("adversarial", "--loss softmax")
    outputs, losses, triplets, synthetic = computed(trainer, tiny.batch(LABELS))
    x = outputs["embeddings"]
    embedded = trainer.network.embed(synthetic)
    terms = []
    for t, (a, p, n) in enumerate(triplets):
        for row, label in ((x[a], LABELS[a]), (x[p], LABELS[p]), (embedded[t], LABELS[n])):
            terms.append(trainer.criterion(row[None], torch.tensor([label])).item())
    assert losses["synth_loss"].item() == pytest.approx(sum(terms) / len(terms), rel=1e-10)


def test_synthetic_triplets_leave_a_running_histogram():
    histograms = []
    for name in ("adversarial", "metric_only"):
        trainer, _ = tiny.trainer(name, "--loss dynamic_softmargin --batch_mining batchhard")
        tiny.losses(trainer, tiny.batch(LABELS))
        histograms.append(trainer.criterion.histogram)
    assert histograms[0].sum() > 0
    torch.testing.assert_close(*histograms)


def test_random_triplets_are_valid_all_or_so_many():
    labels = torch.tensor(LABELS)
    counts = dict.fromkeys(ALL, 0)
    assert sorted(rows_of(random_triplets(labels, 100))) == sorted(ALL)
    torch.manual_seed(0)
    for _ in range(800):
        triplets = rows_of(random_triplets(labels, 2))
        assert [a for a, _, _ in triplets] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 7, 7]
        for triplet in triplets:
            counts[triplet] += 1
    for (a, _, _), count in counts.items():
        expected = 800 * 2 / sum(triplet[0] == a for triplet in ALL)
        assert abs(count - expected) < 5 * math.sqrt(expected), "uniform"
    assert all(len(random_triplets(torch.tensor(labels), 5).anchors) == 0 for labels in ([1, 1], [0, 1]))


def test_each_loss_reaches_its_own_parameters_alone():
    flags = "--loss margin --adversarial_margin=-9 --loss_margin_beta 0.3 --loss_weights classifier_loss=1"
    trainer, _ = tiny.trainer("adversarial", flags)
    losses = tiny.losses(trainer, tiny.batch(LABELS))[1]
    assert set(losses) == set(trainer.LOSSES)
    network = tiny.parameters_of(trainer, "network.")
    reached = {name: tiny.gradients(loss, trainer) for name, loss in losses.items()}
    assert all(reached[name] == tiny.parameters_of(trainer, "generator.") for name in GENERATOR_LOSSES)
    assert all(p.requires_grad for p in trainer.parameters())
    # the backbone's bias stands before a BatchNorm, the last layer's bias cancels in distances of images alone
    common = network - {"network.backbone.0.bias", "network.last_linear.bias"}
    for name in ("metric_loss", "synth_loss"):
        assert common | {"criterion.beta"} <= reached[name] <= network | {"criterion.beta"}, name
    classifier = {"evaluated_heads.linear.weight", "evaluated_heads.linear.bias"}
    assert classifier | common <= reached["classifier_loss"] <= classifier | network


def test_phases_what_rests_has_no_gradient_and_batch_norm_rests_too():
    flags = "--adversarial_metric_epochs 1 --adversarial_generator_epochs 2 --loss_weights classifier_loss=1"
    trainer, opt = tiny.trainer("adversarial", "--loss margin", flags)
    batch = tiny.batch(LABELS)
    seen = {}
    for epoch in range(1, 5):
        trainer.train()
        trainer.start_epoch(epoch)
        before = trainer.network.backbone[1].running_mean.clone()
        losses = tiny.losses(trainer, batch)[1]
        trained = {name.partition(".")[0] for name in tiny.gradients(sum(losses.values()), trainer)}
        seen[epoch] = set(losses), trained, not torch.equal(before, trainer.network.backbone[1].running_mean)
        if epoch in (2, 3):
            assert trainer.criterion.stats == {} and not trainer.network.training and trainer.generator.training
    network_phase = {"metric_loss", "classifier_loss"}, {"network", "criterion", "evaluated_heads"}, True
    generator = set(GENERATOR_LOSSES), {"generator"}, False
    joint_phase = set(trainer.LOSSES), {"network", "criterion", "evaluated_heads", "generator"}, True
    assert seen == {1: network_phase, 2: generator, 3: generator, 4: joint_phase}
    assert set(tiny.groups(opt, trainer)) == {"network", "criterion", "generator", "classifier"}


@pytest.mark.parametrize("loss", ["triplet", "contrastive", "margin"])
def test_a_batch_without_triplets_costs_nothing_and_keeps_the_graph(loss):
    losses = tiny.losses(tiny.trainer("adversarial", "--loss", loss)[0], tiny.batch([0, 1, 2]))[1]
    assert all(losses[name].item() == 0 and losses[name].requires_grad for name in (*GENERATOR_LOSSES, "synth_loss"))
    sum(losses.values()).backward()


def test_synthetic_features_leave_the_statistics_of_the_networks_layers():
    trainer, _ = tiny.trainer("adversarial", "--loss margin --batch_mining distance")
    seen = torch.nn.BatchNorm1d(4).double()
    trainer.network.last_linear = torch.nn.Sequential(trainer.network.last_linear, seen)
    before = seen.running_mean.clone()
    trainer._embedded(torch.randn(5, 6, dtype=torch.float64))
    assert torch.equal(seen.running_mean, before) and seen.num_batches_tracked == 0


def angular_excess(x, a, p, n, tangent):
    anchor = unit(x[a])
    positive = unit(x[p])
    negative = unit(n)
    towards = [4 * tangent * (i + j) for i, j in zip(anchor, positive, strict=True)]
    return dot(towards, negative) - 2 * (1 + tangent) * dot(anchor, positive)


@pytest.mark.parametrize("normalizes", [False, True])
def test_a_loss_for_each_key(normalizes):
    """Angular on the synthetic triplets for the network, its opposite for the generator."""
    flags = "--adversarial_losses synth_loss=angular g_adv_loss=angular --loss_angular_alpha 35 --adversarial_hidden 7"
    trainer, opt = tiny.trainer("adversarial", "--loss triplet", flags, network=tiny.Network(normalizes))
    outputs, losses, triplets, synthetic = computed(trainer, tiny.batch(LABELS))
    x = outputs["embeddings"].tolist()
    embedded = trainer.network.embed(synthetic).tolist()
    tangent = math.tan(math.radians(35)) ** 2
    synth = []
    opposite = []
    for t, (a, p, _) in enumerate(triplets):
        npair = dot(x[a], embedded[t]) - dot(x[a], x[p])
        angular = angular_excess(x, a, p, embedded[t], tangent)
        synth.append(math.log1p(math.exp(npair)) + 2 * math.log1p(math.exp(angular)))
        opposite.append(math.log1p(math.exp(-npair)) + 2 * math.log1p(math.exp(-angular)))
    norms = sum(math.sqrt(dot(row, row)) for row in x) / len(x)
    assert losses["synth_loss"].item() == pytest.approx(sum(synth) / len(synth) + 0.005 * norms, rel=1e-10)
    assert losses["g_adv_loss"].item() == pytest.approx(sum(opposite) / len(opposite), rel=1e-10)
    assert tiny.gradients(losses["g_adv_loss"], trainer) == tiny.parameters_of(trainer, "generator.")
    assert set(tiny.groups(opt, trainer)) == {"network", "generator"}


def test_the_generators_loss_of_any_other_criterion_is_its_negative():
    flags = "--loss margin --adversarial_losses g_adv_loss=contrastive synth_loss=triplet"
    trainer, _ = tiny.trainer("adversarial", flags)
    outputs, losses, triplets, synthetic = computed(trainer, tiny.batch(LABELS))
    x = outputs["embeddings"].tolist()
    embedded = trainer.network.embed(synthetic).tolist()
    near = [distance(x[a], x[p]) for a, p, _ in triplets]
    far = [distance(x[a], embedded[t]) for t, (a, _, _) in enumerate(triplets)]
    contrastive = sum(near) / len(near) + sum(max(1 - d, 0) for d in far) / len(far)
    triplet = [max(p**2 - n**2 + 0.2, 0) for p, n in zip(near, far, strict=True)]
    assert losses["g_adv_loss"].item() == pytest.approx(-contrastive, rel=1e-10)
    assert losses["synth_loss"].item() == pytest.approx(sum(triplet) / len(triplet), rel=1e-10)
    assert "criterion.beta" not in tiny.gradients(losses["synth_loss"], trainer)


@pytest.mark.parametrize("name", ["softmax", "margin"])
def test_parameters_of_a_loss_for_a_key_are_trained(name):
    flags = f"--loss triplet --adversarial_losses synth_loss={name} --loss_softmax_lr .5"
    trainer, opt = tiny.trainer("adversarial", flags)
    losses = tiny.losses(trainer, tiny.batch(LABELS))[1]
    reached = tiny.gradients(losses["synth_loss"], trainer)
    assert any(parameter.startswith("synth_criterion.") for parameter in reached)
    assert tiny.groups(opt, trainer)["synth_loss"]["lr"] == (0.5 if name == "softmax" else opt.loss_margin_beta_lr)


@pytest.mark.parametrize("loss", ["npair", "angular"])
def test_losses_on_sets_train_adversarially(loss):
    trainer, _ = tiny.trainer("adversarial", "--loss", loss, "--batch_mining npair")
    assert tiny.losses(trainer, tiny.batch(LABELS))[1]["synth_loss"].item() > 0
    assert tiny.losses(trainer, tiny.batch([0, 1, 2]))[1]["synth_loss"].item() == 0
