"""The linear classifier: its loss in plain loops, its input, rates and logits; alone it is plain classification."""

import math
from functools import partial

import pytest
import torch

import criteria
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.tiny import linear
from trainers import _classifier

OWN = {"evaluated_heads.linear.weight", "evaluated_heads.linear.bias"}


def cross_entropy(logits, labels, smoothing=0.0, own_share=None):
    """Of each row minus the target distribution times the log probabilities; `own_share`: of the row's own class."""
    terms = []
    for row, label in zip(logits, labels, strict=True):
        log_sum = math.log(sum(math.exp(value) for value in row))
        target = [smoothing / len(row) + (1 - smoothing) * (c == label) for c in range(len(row))]
        if own_share is not None:
            target = [own_share if c == label else (1 - own_share) / (len(row) - 1) for c in range(len(row))]
        terms.append(-sum(share * (value - log_sum) for share, value in zip(target, row, strict=True)))
    return terms


def multi_margin(logits, labels, margin=1.0):
    """Of each row the sum of hinges over the other classes, by the number of classes."""
    sums = []
    for row, label in zip(logits, labels, strict=True):
        hinges = [max(0.0, margin - row[label] + value) for c, value in enumerate(row) if c != label]
        sums.append(sum(hinges) / len(row))
    return sums


@pytest.mark.parametrize("source", ["embeddings", "pooled"])
@pytest.mark.parametrize(
    ("flags", "terms", "weights"),
    [
        ("", cross_entropy, (1, 1, 1)),
        ("--classifier_kwargs label_smoothing=.1", partial(cross_entropy, smoothing=0.1), (1, 1, 1)),
        ("--classifier_smoothing .1", partial(cross_entropy, smoothing=0.1), (1, 1, 1)),
        (
            "--classifier_smoothing .3 --classifier_smoothing_over others",
            partial(cross_entropy, own_share=0.7),
            (1, 1, 1),
        ),
        ("--classifier_kwargs weight=[1,2,0.5,3]", cross_entropy, (1, 2, 0.5)),
        (
            "--classifier_loss MultiMarginLoss --classifier_kwargs margin=.5",
            partial(multi_margin, margin=0.5),
            (1, 1, 1),
        ),
    ],
)
def test_scalars_equal_plain_loops_and_gradients_reach_what_the_input_says(source, flags, terms, weights):
    trainer, _ = tiny.trainer("classifier", "--classifier_input", source, flags)
    batch = tiny.batch()
    outputs, losses = tiny.losses(trainer, batch)
    logits = linear(trainer.evaluated_heads.linear, outputs[source].tolist())
    labels = batch.labels.tolist()
    each = [weights[label] for label in labels]
    expected = sum(w * term for w, term in zip(each, terms(logits, labels), strict=True)) / sum(each)
    assert torch.allclose(outputs["classifier_logits"], torch.tensor(logits, dtype=torch.float64), rtol=0, atol=1e-12)
    assert losses["classifier_loss"].item() == pytest.approx(expected, abs=1e-12)
    assert torch.equal(losses["metric_loss"], trainer.criterion(outputs["embeddings"], batch.labels))
    assert set(losses) == set(trainer.LOSSES)
    backbone = tiny.parameters_of(trainer, "network.backbone.")
    last = tiny.parameters_of(trainer, "network.last_linear.")
    of_input = backbone | last if source == "embeddings" else backbone
    assert tiny.gradients(losses["classifier_loss"], trainer) == of_input | OWN
    assert tiny.gradients(losses["metric_loss"], trainer) == backbone | last


def test_the_two_ways_of_smoothing_on_known_logits():
    logits = torch.tensor([[2.0, 0, -1], [0, 1, 0.5]], dtype=torch.float64)
    labels = torch.tensor([0, 2])
    for eps, over, expected in ((0.1, "others", 0.8000578), (0.1, "all", 0.7583912), (0.15, "all", 0.8000578)):
        smoothing = _classifier.torch_smoothing(eps, over, 3)
        loss = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        assert loss.item() == pytest.approx(expected, abs=1e-7)


def test_a_classifier_of_weighted_cosines_is_the_loss_of_class_vectors():
    words = "--classifier_layer circle_softmax --loss_circle_softmax_scale 8"
    trainer, _ = tiny.trainer("classifier", words)
    batch = tiny.batch()
    outputs, losses = tiny.losses(trainer, batch)
    weight = trainer.evaluated_heads.linear.weight
    sizes = {"n_classes": len(weight), "embed_dim": weight.shape[1]}
    criterion = criteria.select("circle_softmax", **sizes, loss_circle_softmax_scale=8).double()
    criterion.proxies.data.copy_(weight)
    torch.testing.assert_close(losses["classifier_loss"], criterion(outputs["evaluated"], batch.labels))
    smoothed, _ = tiny.trainer("classifier", words, "--classifier_smoothing .1")
    assert trainer.evaluated_heads.linear.bias is None and smoothed.classifier_loss.loss.label_smoothing == 0.1


def test_how_the_classifier_begins_and_its_rates():
    for flags, lr in (("", 0.002), ("--classifier_lr .5", 0.5)):
        trainer, opt = tiny.trainer("classifier", "--lr .002", flags)
        group = tiny.groups(opt, trainer)["classifier"]
        assert opt.classifier_lr == lr == group["lr"] and group["weight_decay"] == opt.decay
        assert {id(p) for p in group["params"]} == {id(p) for p in trainer.evaluated_heads.parameters()}
    plain, zeros, normal = (
        tiny.trainer("classifier", flags)[0].evaluated_heads
        for flags in (
            "",
            "--classifier_start zeros --classifier_dropout .5",
            "--classifier_start normal --classifier_no_bias",
        )
    )
    assert plain.linear.bias is not None and plain.linear.weight.any() and not plain.dropout.p
    assert not zeros.linear.weight.any() and not zeros.linear.bias.any() and zeros.dropout.p == 0.5
    assert normal.linear.bias is None and 0 < normal.linear.weight.std() < 0.02


def test_what_cannot_be_the_loss_is_one_line_before_anything_is_loaded():
    for name in {name for name in dir(torch.nn) if name.endswith("Loss")} - {"CrossEntropyLoss", "MultiMarginLoss"}:
        with refused("Loss"):
            tiny.resolve("--trainer classifier --classifier_loss", name)
    with refused("CrossEntropyLoss --classifier_kwargs weight=.* cannot take logits"):
        tiny.trainer("classifier", "--classifier_kwargs weight=[1,2]")
    # of 100 classes, not of 5
    tiny.resolve("--trainer classifier --classifier_smoothing .85 --classifier_smoothing_over others")


def test_without_the_metric_loss_it_is_plain_classification():
    """The criterion, though infinite, leaves no trace: the network moves as by cross-entropy alone."""
    flags = "--loss_weights metric_loss=0 --loss proxyanchor --optim sgd --lr .1 --momentum 0 --loss_decay 1"
    trainer, opt = tiny.trainer("classifier", flags)
    single, _ = tiny.trainer("classifier", "--loss proxyanchor")
    trainer.metric_loss = lambda outputs, batch: outputs["embeddings"].sum() * math.inf
    done = tiny.step(opt, trainer)(tiny.batch())
    parameters = [*single.network.parameters(), *single.evaluated_heads.parameters()]
    logits = single.outputs(tiny.batch().images)["classifier_logits"]
    loss = torch.nn.functional.cross_entropy(logits, tiny.batch().labels)
    loss.backward()
    torch.optim.SGD(parameters, lr=0.1, weight_decay=opt.decay).step()
    assert torch.equal(done.loss, loss.detach())
    for (name, parameter), expected in zip(trainer.named_parameters(), single.parameters(), strict=True):
        assert torch.allclose(parameter, expected, rtol=0, atol=1e-14), name
    trainer, opt = tiny.trainer("classifier", "--loss_weights metric_loss=0 classifier_loss=0")
    with refused("the weights of metric_loss, classifier_loss are all 0"):
        tiny.step(opt, trainer)(tiny.batch())
