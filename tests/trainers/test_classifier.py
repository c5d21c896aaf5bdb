"""The linear classifier: its loss in plain loops, its input, rates and logits; alone it is plain classification training."""

import json
import math

import numpy as np
import pytest
import torch

import parameters
from runs import RunFolder, checkpoint, load_run
from tests.trainers import tiny


def cross_entropy(logits, labels, smoothing=0.0):
    """Mean over rows of minus the target distribution times the log probabilities."""
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        log_sum = math.log(sum(math.exp(value) for value in row))
        target = [smoothing / len(row) + (1 - smoothing) * (c == label) for c in range(len(row))]
        total -= sum(share * (value - log_sum) for share, value in zip(target, row, strict=True))
    return total / len(labels)


def multi_margin(logits, labels, margin=1.0):
    """Mean over rows of the sum of hinges over the other classes, by the number of classes."""
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total += sum(max(0.0, margin - row[label] + value) for c, value in enumerate(row) if c != label) / len(row)
    return total / len(labels)


@pytest.mark.parametrize("source", ["embeddings", "pooled"])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], cross_entropy),
        (["--classifier_kwargs", "label_smoothing=.1"], lambda logits, labels: cross_entropy(logits, labels, 0.1)),
        (
            ["--classifier_loss", "MultiMarginLoss", "--classifier_kwargs", "margin=.5"],
            lambda logits, labels: multi_margin(logits, labels, 0.5),
        ),
    ],
)
def test_scalars_equal_plain_loops(source, flags, expected):
    trainer, opt = tiny.trainer("classifier", "--classifier_input", source, *flags)
    batch = tiny.batch()
    outputs, losses = tiny.losses(trainer, batch)
    linear = trainer.evaluated_heads.linear
    logits = [
        [
            sum(w * x for w, x in zip(row, rows, strict=True)) + b
            for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
        ]
        for rows in outputs[source].tolist()
    ]
    assert torch.allclose(outputs["classifier_logits"], torch.tensor(logits, dtype=torch.float64), rtol=0, atol=1e-12)
    assert losses["classifier_loss"].item() == pytest.approx(expected(torch.tensor(logits, dtype=torch.float64), batch.labels), abs=1e-12)
    assert torch.equal(losses["metric_loss"], trainer.criterion(outputs["embeddings"], batch.labels))
    assert set(losses) == set(trainer.LOSSES)


def test_gradients_reach_what_the_input_says():
    own = {"evaluated_heads.linear.weight", "evaluated_heads.linear.bias"}
    backbone, last = (
        {f"network.backbone.{name}" for name in ("0.weight", "1.weight", "1.bias")},
        {"network.last_linear.weight", "network.last_linear.bias"},
    )
    for source, reached in (("embeddings", own | backbone | last), ("pooled", own | backbone)):
        trainer, _ = tiny.trainer("classifier", "--classifier_input", source)
        losses = tiny.losses(trainer, tiny.batch())[1]
        assert tiny.gradients(losses["classifier_loss"], trainer) == reached
        assert tiny.gradients(losses["metric_loss"], trainer) == backbone | last


def test_rates():
    for flags, lr in ((["--lr", ".002"], 0.002), (["--lr", ".002", "--classifier_lr", ".5"], 0.5)):
        trainer, opt = tiny.trainer("classifier", *flags)
        group = tiny.groups(opt, trainer)["classifier"]
        assert opt.classifier_lr == lr == group["lr"] and group["weight_decay"] == opt.decay
        assert {id(p) for p in group["params"]} == {id(p) for p in trainer.evaluated_heads.parameters()}


def test_class_weights_are_a_tensor_that_moves_with_the_trainer():
    trainer, _ = tiny.trainer("classifier", "--classifier_kwargs", "weight=[1,2,0.5,3]")
    batch = tiny.batch()
    outputs, losses = tiny.losses(trainer, batch)
    weights = [(1, 2, 0.5)[label] for label in batch.labels.tolist()]
    each = [cross_entropy(outputs["classifier_logits"][i : i + 1], batch.labels[i : i + 1]) for i in range(6)]
    assert losses["classifier_loss"].item() == pytest.approx(
        sum(w * x for w, x in zip(weights, each, strict=True)) / sum(weights), abs=1e-12
    )
    with tiny.refused("CrossEntropyLoss --classifier_kwargs weight=.* cannot take logits"):
        tiny.trainer("classifier", "--classifier_kwargs", "weight=[1,2]")


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        (["--classifier_loss", "CrosEntropyLoss"], "unknown class of torch.nn 'CrosEntropyLoss'. Did you mean 'CrossEntropyLoss'"),
        (["--classifier_loss", "ReLU"], "unknown class of torch.nn 'ReLU'"),
        (["--classifier_loss", "NLLLoss"], "NLLLoss takes log-probabilities"),
        (["--classifier_loss", "MSELoss"], "MSELoss cannot take logits"),
        (["--classifier_loss", "TripletMarginLoss"], "TripletMarginLoss cannot take logits"),
        (["--classifier_kwargs", "reduction='none'"], "reduction=.none. gives no finite scalar"),
        (["--classifier_kwargs", "smoothing=.1"], "smoothing=.1 cannot take logits"),
        (["--classifier_kwargs", "label_smoothing"], "not of the form key=value"),
    ],
)
def test_what_cannot_be_the_loss_is_one_line_before_anything_is_loaded(flags, match, capsys):
    with pytest.raises(SystemExit) as stop:
        parameters.read(["--dataset", "glyphs", "--trainer", "classifier", *flags])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    with tiny.refused(match):
        parameters.resolve(["--dataset", "glyphs", "--trainer", "classifier", *flags])






def test_without_the_metric_loss_it_is_plain_classification(data, tmp_path, capsys):
    """The criterion, though infinite, leaves no trace: the network moves as by cross-entropy alone."""
    from training.runtime import Runtime
    from training.step import Step
    from utilities.words import parse_weights

    trainer, opt = tiny.trainer(
        "classifier", "--loss_weights", "metric_loss=0", "--loss", "proxyanchor", "--optim", "sgd", "--lr", ".1", "--loss_decay", "1"
    )
    alone, _ = tiny.trainer("classifier", "--loss", "proxyanchor", "--optim", "sgd")
    batch = tiny.batch()
    groups = list(tiny.groups(opt, trainer).values())
    sampler = type("Sampler", (), {"replace_storage_entries": lambda *a: None, "precompute_indices": lambda self: None})()
    trainer.metric_loss = lambda outputs, batch: outputs["embeddings"].sum() * math.inf
    step = Step(trainer, torch.optim.SGD(groups, lr=0.1), Runtime(opt), sampler, parse_weights(opt.loss_weights))
    step.start_epoch(1)
    done = step(batch)
    optimizer = torch.optim.SGD(
        [*alone.network.parameters(), *alone.evaluated_heads.parameters()], lr=0.1, momentum=0, weight_decay=opt.decay
    )
    outputs = alone.outputs(batch.images)
    loss = torch.nn.functional.cross_entropy(outputs["classifier_logits"], batch.labels)
    loss.backward()
    optimizer.step()
    assert torch.equal(done.loss, loss.detach())
    for (name, one), other in zip(trainer.named_parameters(), alone.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-14), name
    tiny.run(data, tmp_path, "--trainer", "classifier", "--loss_weights", "metric_loss=0", "--dry_run")
    assert "dry run: one batch of" in capsys.readouterr().out
    with tiny.refused("all of metric_loss, classifier_loss weigh 0"):
        tiny.run(data, tmp_path, "--trainer", "classifier", "--loss_weights", "metric_loss=0", "classifier_loss=0", "--dry_run")
