"""DiVA's five losses against plain loops; the moving average and its queue; refusals."""

import copy
import math

import pytest
import torch

from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.tiny import distance, dot, rows_of, unit
from trainers.diva import EMBEDDINGS, OTHERS, rhos, three_classes

LABELS = [0, 0, 1, 2, 2, 3]


def diva(*flags, **options):
    return tiny.trainer("diva", "--bs 6 --samples_per_class 2 --diva_queue 2 --diva_hidden 3", *flags, **options)


def views(number=2):
    """Views of six images: other pixels, the same labels and places in the data set."""
    return tiny.batch(LABELS, number)


def with_queue(trainer, count):
    """Put `count` random unit keys into the queue."""
    rows = torch.randn(len(trainer.queue), trainer.queue.shape[1], generator=torch.Generator().manual_seed(7)).double()
    trainer.queue.copy_(rows / rows.norm(dim=1, keepdim=True))
    trainer.enqueued.fill_(count)
    return trainer.queue[: min(count, len(rows))].tolist()


@pytest.mark.parametrize(
    ("normalizes", "upper", "count", "fixed"),
    [
        (False, 1.4, 5, False),
        (True, 9, 24, True),
        (False, 0.6, 60, True),
        (True, 1.4, 0, False),
        (False, 0.6, 24, False),
    ],
)
def test_selfsimilarity_loss(normalizes, upper, count, fixed):
    flags = f"--loss triplet --diva_upper_cutoff {upper}"
    if fixed:
        flags += " --diva_fixed"
    trainer, _ = diva(flags, network=tiny.Network(normalizes, 6))
    assert trainer.queue.shape == (2 * 6 * 2, 6)
    old = with_queue(trainer, count)
    outputs = trainer.outputs(views().images)
    queries = [unit(x) for x in outputs["selfsimilarity"].tolist()]
    keys = outputs["keys"].tolist()

    def inverse_density(q, k, size=6):
        d = max(math.sqrt(2 - 2 * dot(q, k)), 0.5)
        return math.exp((2 - size) * math.log(d) - (size - 3) / 2 * math.log(1 - d * d / 4)) if d <= upper else 0

    densities = [[inverse_density(q, k) for k in old] for q in queries]
    sums = [sum(row[j] for row in densities) for j in range(len(old))]
    terms = []
    for i, q in enumerate(queries):
        positive = math.exp(dot(q, keys[(i + 6) % 12]) / 0.1)
        weights = [densities[i][j] / sums[j] if sums[j] else 1 / 12 for j in range(len(old))]
        if fixed:
            weights = [density / sum(densities[i]) if sum(densities[i]) else 1 / len(old) for density in densities[i]]
        negative = sum(math.exp(w * dot(q, k) / 0.1) for w, k in zip(weights, old, strict=True))
        terms.append(-math.log(positive / (positive + negative)))
    loss = trainer.losses(outputs, views())["selfsimilarity_loss"]
    assert loss.item() == pytest.approx(sum(terms) / 12, rel=1e-9, abs=1e-12)
    loss.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in trainer.parameters())


def test_shared_and_intra_losses_are_the_criterion_on_their_triplets():
    trainer, _ = diva("--loss margin --loss_margin_beta .5")
    outputs = trainer.outputs(views().images)
    triplets = {}
    labels = 2 * LABELS
    for name, miner in trainer.miners.items():
        trainer.miners[name] = lambda *batch, name=name, miner=miner: triplets.setdefault(name, miner(*batch))
    losses = trainer.losses(outputs, views())
    for name in ("shared", "intra"):
        x = outputs[name].tolist()
        terms = []
        for a, p, n in rows_of(triplets[name]):
            assert len({labels[a], labels[p], labels[n]}) == (3 if name == "shared" else 1)
            terms += [max(distance(x[a], x[p]) - 0.5 + 0.2, 0), max(0.5 - distance(x[a], x[n]) + 0.2, 0)]
        assert len(terms) == 24
        assert losses[f"{name}_loss"].item() == pytest.approx(sum(terms) / sum(term > 0 for term in terms), rel=1e-9)
        assert trainer.criteria[name].beta is not trainer.criterion.beta


def test_three_classes_draws_uniformly():
    labels = torch.tensor(LABELS)
    counts = {}
    torch.manual_seed(0)
    for _ in range(600):
        triplets = three_classes(labels)
        assert triplets.anchors.tolist() == list(range(6))
        for triplet in rows_of(triplets):
            counts[triplet] = counts.get(triplet, 0) + 1
    for a in range(6):
        for p in range(6):
            strangers = [n for n in range(6) if len({LABELS[a], LABELS[p], LABELS[n]}) == 3]
            for n in strangers:
                expected = 600 / sum(LABELS[i] != LABELS[a] for i in range(6)) / len(strangers)
                assert abs(counts.pop((a, p, n)) - expected) < 5 * math.sqrt(expected)
    assert not counts
    # under permuted labels: of any classes
    trainer, _ = diva("--loss margin --diva_sharing random")
    triplets = [row for _ in range(20) for row in rows_of(trainer.miners["shared"](torch.randn(6, 6), labels))]
    assert {len({LABELS[i] for i in triplet}) for triplet in triplets} >= {2, 3}
    for too_few in ([0, 0, 1], [0, 0], []):
        assert not any(map(len, three_classes(torch.tensor(too_few).long())))


def test_decorrelation_loss_and_whom_it_trains_which_way():
    trainer, _ = diva("--loss triplet --diva_decorrelation 10 shared-intra=0 intra-discriminative=3")
    outputs = trainer.outputs(views().images)
    loss = trainer.losses(outputs, views())["decorrelation_loss"]
    x = {"discriminative": outputs["embeddings"], **{name: outputs[name] for name in OTHERS}}
    x = {name: [unit(row) for row in rows.tolist()] for name, rows in x.items()}
    total = 0
    for source, target in [(s, t) for s in EMBEDDINGS for t in EMBEDDINGS if s != t and (s, t) != ("shared", "intra")]:
        layers = trainer.predictors[f"{source}-{target}"]
        predicted = [unit(layers(torch.tensor(row, dtype=torch.float64)).tolist()) for row in x[source]]
        products = []
        for ts, ps in zip(x[target], predicted, strict=True):
            products += [(t * p) ** 2 for t, p in zip(ts, ps, strict=True)]
        weight = 3 if (source, target) == ("intra", "discriminative") else 10
        total -= weight * sum(products) / len(products)
    assert loss.item() == pytest.approx(total, rel=1e-9) and len(trainer.predictors) == 11
    reached = tiny.gradients(loss, trainer)
    assert not any(name.startswith(("criteri", "average.")) for name in reached)
    assert "evaluated_heads.layers.shared.weight" in reached
    size = 1e-4 / max(p.grad.abs().max() for p in trainer.parameters() if p.grad is not None)
    changes = {}
    # each by a step against its own gradient
    for kind in ("predictors", "network"):
        before = copy.deepcopy(getattr(trainer, kind).state_dict())
        with torch.no_grad():
            for p in getattr(trainer, kind).parameters():
                if p.grad is not None:
                    p.sub_(size * p.grad)
            changes[kind] = (tiny.losses(trainer, views())[1]["decorrelation_loss"] - loss).item()
        getattr(trainer, kind).load_state_dict(before)
    # who predicts learns to, the embeddings learn not to be predicted
    assert changes["predictors"] < 0 < changes["network"]


def test_the_moving_average_and_the_queue():
    trainer, _ = diva("--loss triplet --diva_momentum .75")
    before = {name: p.detach().clone() for name, p in trainer.named_parameters()}
    for name in tiny.parameters_of(trainer, "network"):
        assert torch.equal(before[f"average.network.{name}"], before[name])
    with torch.no_grad():
        for parameter in (*trainer.network.parameters(), *trainer.evaluated_heads.parameters()):
            parameter.add_(1)
    seen = []
    for step in range(3):
        outputs, _ = tiny.losses(trainer, views())
        assert not outputs["keys"].requires_grad
        trainer.after_step()
        seen.append(outputs["keys"])
        for name, parameter in trainer.named_parameters():
            if step == 0 and name.startswith("average."):
                torch.testing.assert_close(parameter, before[name] + 0.25)
    assert trainer.enqueued == 36
    assert torch.equal(trainer.queue, torch.cat([seen[2], seen[1]])), "the oldest batch gave way"


def test_gradients_groups_and_weights():
    trainer, opt = diva("--loss margin --loss_margin_beta .4 --fc_lr .5 --diva_weights 1 2 3")
    with_queue(trainer, 24)
    losses = tiny.losses(trainer, views())[1]
    assert set(losses) == set(trainer.LOSSES)
    assert trainer.WEIGHTS == {"shared_loss": 1, "intra_loss": 2, "selfsimilarity_loss": 3}
    for name in OTHERS:
        reached = {part for part in tiny.gradients(losses[f"{name}_loss"], trainer) if "backbone" not in part}
        beta = f"criteria.{name}.beta"
        assert reached <= tiny.parameters_of(trainer, f"evaluated_heads.layers.{name}.") | {beta} and len(reached) >= 2
        assert (beta in reached) == (name != "selfsimilarity")
        assert tiny.gradients(losses[f"{name}_loss"], trainer) > reached, "and the backbone"
    main = {part for part in tiny.gradients(losses["metric_loss"], trainer) if "backbone" not in part}
    assert main <= {"network.last_linear.weight", "network.last_linear.bias", "criterion.beta"}
    groups = {name: (group["lr"], group["weight_decay"]) for name, group in tiny.groups(opt, trainer).items()}
    assert groups["embeddings"] == (0.5, opt.decay) and groups["decorrelation"] == (opt.lr, 0)
    assert groups["shared_criterion"] == groups["intra_criterion"] == (0.0005, 0)
    assert all(p.requires_grad != name.startswith("average.") for name, p in trainer.named_parameters())


@pytest.mark.parametrize("loss", ["triplet", "multisimilarity", "contrastive"])
def test_a_batch_of_one_class_costs_nothing_and_keeps_the_graph(loss):
    trainer, _ = diva("--loss", loss)
    losses = tiny.losses(trainer, views()._replace(labels=torch.zeros(12, dtype=torch.long)))[1]
    assert losses["shared_loss"].item() == 0 and all(math.isfinite(value.item()) for value in losses.values())
    sum(losses.values()).backward()


def test_with_three_views_each_serves_the_next():
    trainer, _ = diva("--loss triplet --views 3")
    outputs = trainer.outputs(views(3).images)
    seen = []
    trainer.selfsimilarity_loss = lambda queries, keys: seen.append(keys) or queries.sum()
    trainer.losses(outputs, views(3))
    assert torch.equal(seen[0], outputs["keys"].roll(-6, 0)) and len(trainer.queue) == 2 * 6 * 3


def test_weights_of_decorrelation():
    assert rhos(["2"]) == {(s, t): 2 for s in EMBEDDINGS for t in EMBEDDINGS if s != t}
    assert rhos(["0", "shared-discriminative=1500"]) == {("shared", "discriminative"): 1500}
    for word in ("x", "shared=1", "shared-shared=1", "shared-other=1", "shared-intra=-1", "shared-intra=", "nan"):
        with refused("^--diva_decorrelation"):
            rhos([word])
