"""Adversarial negatives against plain loops; what each loss reaches; phases, resume, refusals."""

import math

import pytest
import torch

import criteria
import main
import parameters
from runs import RunFolder, checkpoint, load_run
from tests.trainers import tiny
from trainers.adversarial import GENERATOR_LOSSES, random_triplets
from training.optimisers import build_optimizer
from utilities.errors import UserError

LABELS = [0, 0, 0, 1, 1, 2, 3, 3]


def unit(vector):
    norm = math.sqrt(sum(v * v for v in vector))
    return [v / norm for v in vector]


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def mean_squared(x, y):
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / len(x)


def computed(trainer, batch):
    """The losses, and the triplets and synthetic negatives they are of."""
    outputs = trainer.outputs(batch.images)
    torch.manual_seed(5)
    losses = trainer.losses(outputs, batch)
    torch.manual_seed(5)
    triplets = random_triplets(batch.labels, trainer.at_most)
    pooled = outputs["pooled"]
    inputs = [torch.cat([pooled[a], pooled[p], pooled[n]]) for a, p, n in zip(*(t.tolist() for t in triplets), strict=True)]
    return outputs, losses, triplets, torch.stack([trainer.generator(row) for row in inputs])


@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize(("at_most", "margin"), [(100, -0.4), (3, -5.0)])
def test_the_losses_of_the_generator_are_those_of_plain_loops(normalizes, at_most, margin):
    trainer, _ = tiny.trainer(
        "adversarial", "--loss", "triplet", "--adversarial_triplets_per_anchor", str(at_most), "--adversarial_hidden", "7", "6",
        f"--adversarial_margin={margin}", network=tiny.Network(normalizes),
    )  # fmt: skip
    batch = tiny.batch(LABELS)
    outputs, losses, triplets, synthetic = computed(trainer, batch)
    pooled, embeddings = outputs["pooled"].tolist(), outputs["embeddings"].tolist()
    embedded = trainer.network.embed(synthetic).tolist()
    hard, reg, adv = [], [], []
    for t, (a, p, n) in enumerate(zip(*(part.tolist() for part in triplets), strict=True)):
        hard.append(mean_squared(unit(synthetic[t].tolist()), unit(pooled[a])))
        reg.append(mean_squared(unit(synthetic[t].tolist()), unit(pooled[n])))
        adv.append(max(distance(embeddings[a], embedded[t]) - distance(embeddings[a], embeddings[p]) - margin, 0))
    for name, terms in zip(GENERATOR_LOSSES, (hard, reg, adv), strict=True):
        assert losses[name].item() == pytest.approx(sum(terms) / len(terms), rel=1e-10), name
    assert any(adv) and (all(adv) or at_most > 3) and len(hard) == (3 * 7 if at_most == 3 else 3 * 2 * 5 + 2 * 6 + 2 * 6)


def test_synth_loss_is_the_criterion_on_the_triplets_as_they_are():
    trainer, _ = tiny.trainer("adversarial", "--loss", "triplet", "--adversarial_hidden")
    batch = tiny.batch(LABELS)
    outputs, losses, triplets, synthetic = computed(trainer, batch)
    x, embedded = outputs["embeddings"].tolist(), trainer.network.embed(synthetic).tolist()
    terms = [
        max(distance(x[a], x[p]) ** 2 - distance(x[a], embedded[t]) ** 2 + 0.2, 0)
        for t, (a, p, n) in enumerate(zip(*(part.tolist() for part in triplets), strict=True))
    ]
    assert len(trainer.generator) == 1 and losses["synth_loss"].item() == pytest.approx(sum(terms) / len(terms), rel=1e-10)
    of_all = [
        max(distance(x[i], x[j]) ** 2 - distance(x[i], x[k]) ** 2 + 0.2, 0)
        for i in range(8) for j in range(8) for k in range(8) if i != j and LABELS[i] == LABELS[j] and LABELS[k] != LABELS[i]
    ]  # fmt: skip
    assert losses["metric_loss"].item() == pytest.approx(sum(of_all) / len(of_all), rel=1e-10)


def test_synth_loss_of_class_vectors_sees_every_row_of_every_triplet(monkeypatch):
    monkeypatch.setattr(criteria.REGISTRY.module("softmax"), "COMPARES_SAMPLES", False, raising=False)
    trainer, _ = tiny.trainer("adversarial", "--loss", "softmax")
    batch = tiny.batch(LABELS)
    outputs, losses, triplets, synthetic = computed(trainer, batch)
    embedded, terms = trainer.network.embed(synthetic), []
    for t, (a, p, n) in enumerate(zip(*(part.tolist() for part in triplets), strict=True)):
        for row, label in ((outputs["embeddings"][a], LABELS[a]), (outputs["embeddings"][p], LABELS[p]), (embedded[t], LABELS[n])):
            terms.append(trainer.criterion(row[None], torch.tensor([label])).item())
    assert losses["synth_loss"].item() == pytest.approx(sum(terms) / len(terms), rel=1e-10)


def test_random_triplets_are_valid_all_or_so_many():
    labels = torch.tensor(LABELS)
    every = {
        (a, p, n) for a in range(8) for p in range(8) for n in range(8) if a != p and LABELS[a] == LABELS[p] and LABELS[n] != LABELS[a]
    }
    assert sorted(zip(*(t.tolist() for t in random_triplets(labels, 100)), strict=True)) == sorted(every)
    counts = dict.fromkeys(every, 0)
    torch.manual_seed(0)
    for _ in range(3000):
        drawn = list(zip(*(t.tolist() for t in random_triplets(labels, 2)), strict=True))
        assert [a for a, _, _ in drawn] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 7, 7]
        for triplet in drawn:
            counts[triplet] += 1
    for (a, _, _), count in counts.items():
        share = 2 / sum(triplet[0] == a for triplet in every)
        assert abs(count - 3000 * share) < 5 * math.sqrt(3000 * share), "uniform"
    assert len(random_triplets(torch.tensor([1, 1]), 5).anchors) == len(random_triplets(torch.tensor([0, 1]), 5).anchors) == 0


def test_each_loss_reaches_its_own_parameters_alone():
    trainer, _ = tiny.trainer(
        "adversarial", "--loss", "margin", "--adversarial_margin=-9", "--loss_margin_beta", "0.3", "--loss_weights", "classifier_loss=1"
    )
    batch = tiny.batch(LABELS)
    losses = trainer.losses(trainer.outputs(batch.images), batch)
    assert set(losses) == set(trainer.LOSSES)
    generator = {f"generator.{name}" for name, _ in trainer.generator.named_parameters()}
    network = {f"network.{name}" for name, _ in trainer.network.named_parameters()}
    reached = {name: tiny.gradients(loss, trainer) for name, loss in losses.items()}
    for name in GENERATOR_LOSSES:
        assert reached[name] == generator, name
    assert all(p.requires_grad for p in trainer.parameters())
    # the backbone's bias stands before a BatchNorm, the last layer's bias cancels in distances of images alone
    common = network - {"network.backbone.0.bias", "network.last_linear.bias"}
    for name in ("metric_loss", "synth_loss"):
        assert common | {"criterion.beta"} <= reached[name] <= network | {"criterion.beta"}, name
    assert (
        reached["classifier_loss"] >= {"evaluated_heads.linear.weight", "evaluated_heads.linear.bias", *common}
        and "criterion.beta" not in reached["classifier_loss"]
    )


def test_phases_what_rests_has_no_gradient_and_batch_norm_rests_too():
    trainer, opt = tiny.trainer(
        "adversarial", "--loss", "margin", "--adversarial_metric_epochs", "1", "--adversarial_generator_epochs", "2",
        "--loss_weights", "classifier_loss=1",
    )  # fmt: skip
    batch, seen = tiny.batch(LABELS), {}
    for epoch in range(1, 5):
        trainer.train()
        trainer.start_epoch(epoch)
        before = trainer.network.backbone[1].running_mean.clone()
        losses = trainer.losses(trainer.outputs(batch.images), batch)
        trainer.zero_grad(set_to_none=True)
        sum(losses.values()).backward()
        trained = {name.partition(".")[0] for name, p in trainer.named_parameters() if p.grad is not None}
        seen[epoch] = set(losses), trained, not torch.equal(before, trainer.network.backbone[1].running_mean)
        if epoch in (2, 3):
            assert trainer.criterion.stats == {} and not trainer.network.training and trainer.generator.training
    alone = {"metric_loss", "classifier_loss"}, {"network", "criterion", "evaluated_heads"}, True
    generator = set(GENERATOR_LOSSES), {"generator"}, False
    both = set(trainer.LOSSES), {"network", "criterion", "evaluated_heads", "generator"}, True
    assert seen == {1: alone, 2: generator, 3: generator, 4: both}
    opt.loss_weights = []
    groups = build_optimizer(trainer.network, trainer.criterion, opt, trainer.param_groups(opt)).param_groups
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in trainer.parameters())
    assert {"generator", "classifier"} <= {group["name"] for group in groups}


def test_a_batch_without_triplets_costs_nothing_and_keeps_the_graph():
    for loss in ("triplet", "contrastive", "margin"):
        trainer, _ = tiny.trainer("adversarial", "--loss", loss)
        batch = tiny.batch([0, 1, 2])
        losses = trainer.losses(trainer.outputs(batch.images), batch)
        for name in (*GENERATOR_LOSSES, "synth_loss"):
            assert losses[name].item() == 0 and losses[name].requires_grad
        sum(losses.values()).backward()








def test_what_it_cannot_train_is_refused_in_one_line(data, tmp_path, capsys):
    for flags, said in (
        (["--loss", "npair", "--batch_mining", "npair"], "--loss npair takes neither"),
        (["--loss", "histogram"], "--loss histogram takes neither"),
        (["--loss_weights", "classifier_loss=1", "--classifier_loss", "NLLLoss"], "--classifier_loss NLLLoss takes"),
    ):
        with pytest.raises(SystemExit):
            tiny.read(data, tmp_path, "--trainer", "adversarial", *flags)
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    with pytest.raises(UserError, match="pooled features"):
        tiny.trainer("adversarial", "--loss", "triplet", network=torch.nn.Linear(3, 4))
    with pytest.raises(UserError, match="has no such loss"):
        main.main(tiny.read(data, tmp_path, "--trainer", "adversarial", "--loss_weights", "g_loss=1", "--dry_run"))


