"""Self-distillation from wider target embeddings: scalars in loops, gradients, the delay, one beta per target."""

import copy
import math

import pytest
import torch

from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import equal_states
from tests.kit.tiny import dot, linear, unit

SMALL = "--s2sd_dims 5 8"
FEATURES = f"{SMALL} --s2sd_features --s2sd_features_after"


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


@pytest.mark.parametrize(("pooling", "temperature"), [("", 1.0), ("--s2sd_pool_both", 0.3)])
def test_scalars_equal_plain_loops(pooling, temperature):
    trainer, _ = tiny.trainer("s2sd", f"{FEATURES} 0 --s2sd_T {temperature}", pooling)
    batch = tiny.batch()
    outputs, losses = tiny.losses(trainer, batch)
    _, activations = trainer.network(batch.images)
    features = pooled_both(activations["spatial"]) if pooling else activations["pooled"].tolist()
    embeddings = outputs["embeddings"].tolist()
    heads = []
    for head in trainer.heads:
        hidden = [[max(x, 0.0) for x in row] for row in linear(head[0], features)]
        heads.append([unit(row) for row in linear(head[2], hidden)])
    targets = []
    for loss, h in zip(trainer.targets, heads, strict=True):
        targets.append(loss(torch.tensor(h, dtype=torch.float64), batch.labels).item())
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
    trainer, _ = tiny.trainer("s2sd", FEATURES, "0")
    losses = tiny.losses(trainer, tiny.batch())[1]
    heads = tiny.parameters_of(trainer, "heads.")
    taught = tiny.parameters_of(trainer, "network.backbone.") | heads
    assert tiny.gradients(losses["target_loss"], trainer) == taught and len(heads) == 8
    for name in ("metric_loss", "distill_loss", "feature_loss"):
        assert tiny.gradients(losses[name], trainer) == tiny.parameters_of(trainer, "network."), name


def test_the_sum_is_that_of_the_paper_and_features_wait_for_their_steps():
    trainer, opt = tiny.trainer("s2sd", FEATURES, "2", "--optim sgd --lr 1e-3")
    step = tiny.step(opt, trainer)
    for number in range(4):
        done = step(tiny.batch(seed=number))
        parts = {"feature_loss": torch.zeros(()), **done.losses}
        assert ("feature_loss" in done.losses) == (number >= 2)
        halves = parts["metric_loss"] + parts["target_loss"]
        total = halves / 2 + 50 * (parts["distill_loss"] + parts["feature_loss"])
        assert done.loss.item() == pytest.approx(total.item(), rel=1e-12)
    trainer, opt = tiny.trainer("s2sd", SMALL, "--loss_weights distill_loss=2 metric_loss=1")
    done = tiny.step(opt, trainer)(tiny.batch())
    total = done.losses["metric_loss"] + done.losses["target_loss"] / 2 + 2 * done.losses["distill_loss"]
    assert done.loss.item() == pytest.approx(total.item(), rel=1e-12)


def test_every_target_has_its_own_beta_and_its_own_rate():
    flags = "--loss margin --batch_mining distance --loss_margin_beta_lr .01 --lr .001"
    trainer, opt = tiny.trainer("s2sd", SMALL, flags)
    groups = tiny.groups(opt, trainer)
    assert set(groups) == {"s2sd_heads", "s2sd_target_0", "s2sd_target_1", "criterion", "network"}
    criteria = [*trainer.targets, trainer.criterion]
    assert len({id(criterion.beta) for criterion in criteria}) == 3 == len({id(c.batchminer) for c in criteria})
    rates = {name: (group["lr"], group["weight_decay"]) for name, group in groups.items()}
    for number, target in enumerate(trainer.targets):
        (beta,) = groups[f"s2sd_target_{number}"]["params"]
        assert beta is target.beta and beta.shape == (4,) and rates[f"s2sd_target_{number}"] == (0.01, 0)
    assert rates["s2sd_heads"] == (0.001, 0)
    reached = tiny.gradients(tiny.losses(trainer, tiny.batch())[1]["target_loss"], trainer)
    assert {"targets.0.beta", "targets.1.beta"} <= reached and "criterion.beta" not in reached
    trainer, _ = tiny.trainer("s2sd", SMALL, "--s2sd_target arcface --loss contrastive")
    widths = [tuple(target.proxies.shape) for target in trainer.targets]
    assert widths == [(4, 5), (4, 8)], "another criterion for the targets"


class NoMap(tiny.Network):
    """Without the map before pooling."""

    def forward(self, images):
        embeddings, features = super().forward(images)
        return embeddings, {"pooled": features["pooled"]}


def test_what_cannot_work_is_one_line():
    with refused("--s2sd_pool_both: NoMap gives no map before its pooling"):
        tiny.trainer("s2sd", "--s2sd_pool_both", network=NoMap())
    trainer, opt = tiny.trainer("s2sd", SMALL, "--loss_weights feature_loss=1")
    with refused("feature_loss: the trainer has no such loss"):
        tiny.step(opt, trainer)
    # The search for its map leaves the network as it was
    network = tiny.Network()
    before = copy.deepcopy(network.state_dict())
    trainer, _ = tiny.trainer("s2sd", SMALL, "--s2sd_pool_both", network=network)
    assert network.training and equal_states(before, network.state_dict())
    assert trainer.heads[0][0].in_features == 6
