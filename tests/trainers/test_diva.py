"""DiVA's five losses against plain loops; the moving average and its queue; resume, folds, ensemble, refusals."""

import json
import math

import pytest
import torch

import main
import parameters
from runs import RunFolder, checkpoint, load_run
from tests.trainers import tiny
from trainers.diva import EMBEDDINGS, OTHERS, rhos, three_classes
from training.optimisers import build_optimizer
from utilities.errors import UserError
from utilities.tuples import Triplets

LABELS = [0, 0, 1, 2, 2, 3]
FLAGS = ["--bs", "6", "--samples_per_class", "2", "--diva_queue", "2", "--diva_hidden", "3"]


def views():
    """Two views of six images: other pixels, the same labels and places in the data set."""
    batch = tiny.batch(2 * LABELS)
    return batch._replace(indices=batch.indices % len(LABELS))


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def unit(x):
    return [a / math.sqrt(dot(x, x)) for a in x]


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def with_queue(trainer, count):
    """Put `count` random unit keys into the queue."""
    rows = torch.randn(len(trainer.queue), trainer.queue.shape[1], generator=torch.Generator().manual_seed(7)).double()
    trainer.queue.copy_(rows / rows.norm(dim=1, keepdim=True))
    trainer.enqueued.fill_(count)
    return trainer.queue[: min(count, len(rows))].tolist()


@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize(("upper", "count"), [(1.4, 5), (9, 24), (0.6, 60), (1.4, 0)])
def test_selfsimilarity_loss(normalizes, upper, count):
    trainer, _ = tiny.trainer("diva", "--loss", "triplet", *FLAGS, "--diva_upper_cutoff", str(upper), network=tiny.Network(normalizes, 6))
    assert trainer.queue.shape == (2 * 6 * 2, 6)
    keys_of_old = with_queue(trainer, count)
    outputs = trainer.outputs(views().images)
    queries, keys = [unit(x) for x in outputs["selfsimilarity"].tolist()], outputs["keys"].tolist()
    dimensions, logs = 6, []
    for q in queries:
        row = []
        for k in keys_of_old:
            d = max(math.sqrt(2 - 2 * dot(q, k)), 0.5)
            row.append(math.exp((2 - dimensions) * math.log(d) - (dimensions - 3) / 2 * math.log(1 - d * d / 4)) if d <= upper else 0)
        logs.append(row)
    sums = [sum(row[j] for row in logs) for j in range(len(keys_of_old))]
    terms = []
    for i, q in enumerate(queries):
        positive = math.exp(dot(q, keys[(i + 6) % 12]) / 0.1)
        weights = [logs[i][j] / sums[j] if sums[j] else 1 / 12 for j in range(len(keys_of_old))]
        negative = sum(math.exp(w * dot(q, k) / 0.1) for w, k in zip(weights, keys_of_old, strict=True))
        terms.append(-math.log(positive / (positive + negative)))
    loss = trainer.losses(outputs, views())["selfsimilarity_loss"]
    assert loss.item() == pytest.approx(sum(terms) / 12, rel=1e-9, abs=1e-12)
    loss.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in trainer.parameters())


def test_shared_and_intra_losses_are_the_criterion_on_their_triplets():
    trainer, _ = tiny.trainer("diva", "--loss", "margin", "--loss_margin_beta", ".5", *FLAGS)
    outputs, handed = trainer.outputs(views().images), {}
    for name, miner in trainer.miners.items():
        trainer.miners[name] = lambda rows, labels, name=name, miner=miner: handed.setdefault(name, miner(rows, labels))
    losses, labels = trainer.losses(outputs, views()), 2 * LABELS
    for name in ("shared", "intra"):
        x, far, near = outputs[name].tolist(), [], []
        for a, p, n in zip(*(part.tolist() for part in handed[name]), strict=True):
            classes = len({labels[a], labels[p], labels[n]})
            assert classes == (3 if name == "shared" else 1)
            far.append(max(distance(x[a], x[p]) - 0.5 + 0.2, 0))
            near.append(max(0.5 - distance(x[a], x[n]) + 0.2, 0))
        active = sum(term > 0 for term in far + near)
        assert len(far) == 12 and losses[f"{name}_loss"].item() == pytest.approx((sum(far) + sum(near)) / active, rel=1e-9)
        assert trainer.criteria[name].beta is not trainer.criterion.beta


def test_three_classes_draws_uniformly():
    labels, counts = torch.tensor(LABELS), {}
    torch.manual_seed(0)
    for _ in range(2000):
        drawn = three_classes(labels)
        assert drawn.anchors.tolist() == list(range(6))
        for triplet in zip(*(part.tolist() for part in drawn), strict=True):
            counts[triplet] = counts.get(triplet, 0) + 1
    for a in range(6):
        for p in range(6):
            others = [n for n in range(6) if len({LABELS[a], LABELS[p], LABELS[n]}) == 3]
            for n in others:
                expected = 2000 / sum(LABELS[i] != LABELS[a] for i in range(6)) / len(others)
                assert abs(counts.pop((a, p, n)) - expected) < 5 * math.sqrt(expected)
    assert not counts and all(len(part) == 0 for labels in ([0, 0, 1], [0, 0], []) for part in three_classes(torch.tensor(labels).long()))


def test_decorrelation_loss_and_whom_it_trains_which_way():
    words = ["10", "shared-intra=0", "intra-discriminative=3"]
    trainer, _ = tiny.trainer("diva", "--loss", "triplet", *FLAGS, "--diva_decorrelation", *words)
    outputs = trainer.outputs(views().images)
    loss = trainer.losses(outputs, views())["decorrelation_loss"]
    x = {"discriminative": outputs["embeddings"], **{name: outputs[name] for name in OTHERS}}
    x = {name: [unit(row) for row in rows.tolist()] for name, rows in x.items()}
    total = 0
    for source in EMBEDDINGS:
        for target in EMBEDDINGS:
            rho = {("shared", "intra"): 0, ("intra", "discriminative"): 3}.get((source, target), 10) if source != target else 0
            if not rho:
                continue
            layers = trainer.predictors[f"{source}-{target}"]
            predicted = [unit(layers(torch.tensor(row, dtype=torch.float64)).tolist()) for row in x[source]]
            products = [(t * p) ** 2 for ts, ps in zip(x[target], predicted, strict=True) for t, p in zip(ts, ps, strict=True)]
            total -= rho * sum(products) / len(products)
    assert loss.item() == pytest.approx(total, rel=1e-9) and len(trainer.predictors) == 11
    reached = tiny.gradients(loss, trainer)
    assert not any(name.startswith(("criteri", "average.")) for name in reached) and "evaluated_heads.layers.shared.weight" in reached
    size = 1e-4 / max(p.grad.abs().max() for p in trainer.parameters() if p.grad is not None)
    changes = {}
    for kind in ("predictors", "network"):  # each by a step against its own gradient
        before = [p.detach().clone() for p in getattr(trainer, kind).parameters()]
        with torch.no_grad():
            for p in getattr(trainer, kind).parameters():
                p.sub_(size * p.grad if p.grad is not None else 0)
            changes[kind] = (trainer.losses(trainer.outputs(views().images), views())["decorrelation_loss"] - loss).item()
            for p, old in zip(getattr(trainer, kind).parameters(), before, strict=True):
                p.copy_(old)
    assert changes["predictors"] < 0 < changes["network"], "who predicts learns to, the embeddings learn not to be predicted"


def test_the_words_of_decorrelation():
    assert rhos(["2"]) == {(s, t): 2 for s in EMBEDDINGS for t in EMBEDDINGS if s != t}
    assert rhos(["0", "shared-discriminative=1500"]) == {("shared", "discriminative"): 1500}
    for word in ("x", "shared=1", "shared-shared=1", "shared-other=1", "shared-intra=-1", "shared-intra=", "nan", "a-b-c=1"):
        with pytest.raises(UserError, match="^--diva_decorrelation") as caught:
            rhos([word])
        assert "\n" not in str(caught.value)


def test_the_moving_average_and_the_queue():
    trainer, _ = tiny.trainer("diva", "--loss", "triplet", *FLAGS, "--diva_momentum", ".75")
    before = {name: p.detach().clone() for name, p in trainer.named_parameters()}
    assert all(torch.equal(before[f"average.network.{name}"], p) for name, p in before.items() if name.startswith("network"))
    with torch.no_grad():
        for parameter in (*trainer.network.parameters(), *trainer.evaluated_heads.parameters()):
            parameter.add_(1)
    seen = []
    for step in range(3):
        outputs = trainer.outputs(views().images)
        assert not outputs["keys"].requires_grad
        trainer.losses(outputs, views())
        trainer.after_step()
        seen.append(outputs["keys"])
        if step == 0:
            for name, parameter in trainer.named_parameters():
                if name.startswith("average."):
                    torch.testing.assert_close(parameter, before[name] + 0.25)
    assert trainer.enqueued == 36 and torch.equal(trainer.queue, torch.cat([seen[2], seen[1]])), "the oldest batch gave way"


def test_gradients_groups_and_weights():
    trainer, opt = tiny.trainer(
        "diva", "--loss", "margin", "--loss_margin_beta", ".4", *FLAGS, "--fc_lr", ".5", "--diva_weights", "1", "2", "3"
    )
    with_queue(trainer, 24)
    losses = trainer.losses(trainer.outputs(views().images), views())
    assert set(losses) == set(trainer.LOSSES)
    assert trainer.WEIGHTS == {"shared_loss": 1, "intra_loss": 2, "selfsimilarity_loss": 3}
    backbone = "network.backbone.0.weight"
    for name in OTHERS:
        reached = tiny.gradients(losses[f"{name}_loss"], trainer)
        heads = {p for p in reached if p.startswith("evaluated_heads")}
        assert backbone in reached and f"evaluated_heads.layers.{name}.weight" in heads
        assert all(f".{name}." in p for p in heads) and "network.last_linear.weight" not in reached
        assert {p for p in reached if p.startswith("criteri")} == ({f"criteria.{name}.beta"} if name != "selfsimilarity" else set())
    assert {p for p in tiny.gradients(losses["metric_loss"], trainer) if "backbone" not in p} <= {
        "network.last_linear.weight", "network.last_linear.bias", "criterion.beta"
    }  # fmt: skip
    groups = build_optimizer(trainer.network, trainer.criterion, opt, trainer.param_groups(opt)).param_groups
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in trainer.parameters() if p.requires_grad)
    rates = {group["name"]: (group["lr"], group["weight_decay"]) for group in groups}
    assert rates["embeddings"] == (0.5, opt.decay) and rates["shared_criterion"] == rates["intra_criterion"] == (0.0005, 0)
    assert {name for name, p in trainer.named_parameters() if not p.requires_grad} == {
        name for name, _ in trainer.named_parameters() if name.startswith("average.")
    }


def test_a_batch_of_one_class_costs_nothing_and_keeps_the_graph():
    for loss in ("triplet", "multisimilarity", "contrastive"):
        trainer, _ = tiny.trainer("diva", "--loss", loss, *FLAGS)
        batch = views()._replace(labels=torch.zeros(12, dtype=torch.long))
        losses = trainer.losses(trainer.outputs(batch.images), batch)
        assert losses["shared_loss"].item() == 0 and all(math.isfinite(value.item()) for value in losses.values())
        sum(losses.values()).backward()
    assert isinstance(trainer.miners["intra"](torch.zeros(12, 4), batch.labels), Triplets)






def test_what_it_cannot_train_is_refused_in_one_line(data, tmp_path, capsys):
    for flags, said in (
        (["--loss", "softmax"], "--loss softmax takes none"),
        (["--diva_decorrelation", "shared-x=1"], "expected RHO or SOURCE-TARGET=RHO"),
        (["--views", "1"], "no other view"),
        (["--diva_weights", "1", "1"], "expected 3 arguments"),
    ):
        with pytest.raises(SystemExit):
            tiny.read(data, tmp_path, "--trainer", "diva", *flags)
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    with pytest.raises(UserError, match="has no such loss; it has metric_loss, shared_loss"):
        main.main(tiny.read(data, tmp_path, "--trainer", "diva", "--loss_weights", "shared=1", "--dry_run"))
    with pytest.raises(UserError, match="pooled features"):
        tiny.trainer("diva", "--loss", "triplet", network=torch.nn.Linear(3, 4))


def test_with_three_views_each_serves_the_next():
    trainer, _ = tiny.trainer("diva", "--loss", "triplet", *FLAGS, "--views", "3")
    batch = tiny.batch(3 * LABELS)
    outputs, seen = trainer.outputs(batch.images), []
    trainer.selfsimilarity_loss = lambda queries, keys: seen.append(keys) or queries.sum()
    trainer.losses(outputs, batch)
    assert all(torch.equal(seen[0][i], outputs["keys"][(i + 6) % 18]) for i in range(18)) and len(trainer.queue) == 2 * 6 * 3


