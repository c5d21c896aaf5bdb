"""Self-distillation from wider target embeddings: scalars in plain loops, gradients, the delay of the features, one
beta a target.
"""

import math

import pytest
import torch

from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.tiny import dot, linear, unit

SMALL = ["--s2sd_dims", "5", "8"]
FEATURES = ["--s2sd_features", "--s2sd_features_after"]


def softmax(row, temperature):
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def divergence(student, teacher, temperature):
    """T^2 / B times the sum over rows of KL(teacher || student) of the softmax over similarities."""
    total = 0.0
    for i in range(len(student)):
        student_shares = softmax([dot(student[i], row) for row in student], temperature)
        teacher_shares = softmax([dot(teacher[i], row) for row in teacher], temperature)
        total += sum(p * math.log(p / q) for p, q in zip(teacher_shares, student_shares, strict=True))
    return temperature**2 / len(student) * total


def pooled_both(spatial):
    """Mean plus maximum over the places of each channel."""
    return [[sum(c := sum(channel, [])) / len(c) + max(c) for channel in image] for image in spatial.tolist()]


@pytest.mark.parametrize(("weights", "temperature"), [(False, 1.0), (True, 0.3)])
def test_scalars_equal_plain_loops(weights, temperature):
    flags = [*SMALL, "--s2sd_T", str(temperature), *FEATURES, "0"]
    if weights:
        flags.append("--s2sd_pool_both")
    trainer, _ = tiny.trainer("s2sd", *flags)
    batch = tiny.batch()
    outputs, losses = tiny.losses(trainer, batch)
    _, activations = trainer.network(batch.images)
    features = pooled_both(activations["spatial"]) if weights else activations["pooled"].tolist()
    embeddings = outputs["embeddings"].tolist()
    heads = []
    for head in trainer.heads:
        hidden = [[max(x, 0.0) for x in row] for row in linear(head[0], features)]
        heads.append([unit(row) for row in linear(head[2], hidden)])
    targets = [
        loss(torch.tensor(h, dtype=torch.float64), batch.labels).item()
        for loss, h in zip(trainer.targets, heads, strict=True)
    ]
    expected = {
        "metric_loss": trainer.criterion(outputs["embeddings"], batch.labels).item(),
        "target_loss": sum(targets) / 2,
        "distill_loss": sum(divergence(embeddings, h, temperature) for h in heads) / 2,
        "feature_loss": divergence(embeddings, [unit(row) for row in features], temperature),
    }
    assert [len(h[0]) for h in heads] == [5, 8] and set(trainer.LOSSES) == set(expected) and min(expected.values()) > 0
    assert {name: value.item() for name, value in losses.items()} == pytest.approx(expected, abs=1e-11, rel=1e-10)


def test_gradients():
    """The teachers are taught by target_loss alone; it and the others reach the backbone."""
    trainer, _ = tiny.trainer("s2sd", *SMALL, *FEATURES, "0")
    losses = tiny.losses(trainer, tiny.batch())[1]
    backbone = {f"network.backbone.{name}" for name in ("0.weight", "1.weight", "1.bias")}
    last = {"network.last_linear.weight", "network.last_linear.bias"}
    heads = {name for name, _ in trainer.named_parameters() if name.startswith("heads.")}
    assert tiny.gradients(losses["target_loss"], trainer) == backbone | heads and len(heads) == 8
    for name in ("metric_loss", "distill_loss", "feature_loss"):
        assert tiny.gradients(losses[name], trainer) == backbone | last, name


def test_the_sum_is_that_of_the_paper_and_features_wait_for_their_steps():
    trainer, opt = tiny.trainer("s2sd", *SMALL, *FEATURES, "2", "--optim", "sgd", "--lr", "1e-3")
    step = tiny.step(opt, trainer)
    for number in range(4):
        done = step(tiny.batch(seed=number))
        parts = {"feature_loss": torch.zeros(()), **done.losses}
        assert ("feature_loss" in done.losses) == (number >= 2)
        total = (
            (parts["metric_loss"] + parts["target_loss"]) / 2 + 50 * parts["distill_loss"] + 50 * parts["feature_loss"]
        )
        assert done.loss.item() == pytest.approx(total.item(), rel=1e-12)
    trainer, opt = tiny.trainer("s2sd", *SMALL, "--loss_weights", "distill_loss=2", "metric_loss=1")
    done = tiny.step(opt, trainer)(tiny.batch())
    total = done.losses["metric_loss"] + done.losses["target_loss"] / 2 + 2 * done.losses["distill_loss"]
    assert done.loss.item() == pytest.approx(total.item(), rel=1e-12)


def test_every_target_has_its_own_beta_and_its_own_rate():
    flags = ["--loss", "margin", "--batch_mining", "distance", "--loss_margin_beta_lr", ".01", "--lr", ".001"]
    trainer, opt = tiny.trainer("s2sd", *SMALL, *flags)
    groups = tiny.groups(opt, trainer)
    assert {"s2sd_heads", "s2sd_target_0", "s2sd_target_1", "criterion", "network"} == set(groups)
    betas = [target.beta for target in trainer.targets]
    assert len({id(beta) for beta in (*betas, trainer.criterion.beta)}) == 3 and all(
        beta.shape == (4,) for beta in betas
    )
    assert len({id(criterion.batchminer) for criterion in (*trainer.targets, trainer.criterion)}) == 3
    for number, beta in enumerate(betas):
        group = groups[f"s2sd_target_{number}"]
        assert [id(p) for p in group["params"]] == [id(beta)] and group["lr"] == 0.01 and group["weight_decay"] == 0
    assert groups["s2sd_heads"]["lr"] == 0.001 and groups["s2sd_heads"]["weight_decay"] == 0
    reached = tiny.gradients(tiny.losses(trainer, tiny.batch())[1]["target_loss"], trainer)
    assert {"targets.0.beta", "targets.1.beta"} <= reached and "criterion.beta" not in reached
    trainer, _ = tiny.trainer("s2sd", *SMALL, "--s2sd_target", "arcface", "--loss", "contrastive")
    assert [tuple(target.proxies.shape) for target in trainer.targets] == [(4, 5), (4, 8)], (
        "another criterion for the targets"
    )


class NoMap(tiny.Network):
    """Without the map before pooling."""

    def forward(self, images):
        embeddings, features = super().forward(images)
        return embeddings, {"pooled": features["pooled"]}


def test_what_cannot_work_is_one_line():
    with refused("--s2sd_pool_both: NoMap gives no map before its pooling"):
        tiny.trainer("s2sd", "--s2sd_pool_both", network=NoMap())
    trainer, opt = tiny.trainer("s2sd", *SMALL, "--loss_weights", "feature_loss=1")
    with refused("feature_loss: the trainer has no such loss"):
        tiny.step(opt, trainer)
    network = tiny.Network()  # finding its map leaves it as it was
    before = {name: value.clone() for name, value in network.state_dict().items()}
    trainer, _ = tiny.trainer("s2sd", *SMALL, "--s2sd_pool_both", network=network)
    assert network.training and all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert trainer.heads[0][0].in_features == 6
