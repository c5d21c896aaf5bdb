"""The hard-aware cascade against plain loops; its embedding; refusals."""

import math

import pytest
import torch
from torch.testing import assert_close

import architectures
import batch_mining
import criteria
from engine.loading import Batch
from runs.start_up import described_network
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.tiny import distance
from trainers.cascaded import hardest
from utilities.criterion import with_tuples
from utilities.tuples import Pairs

LABELS = [0, 0, 0, 1, 1, 1, 2, 2, 3]
SIZES = "--cascade_sizes 4 3 5"
Y = torch.tensor(LABELS)
EVERY = [(i, j) for i in range(9) for j in range(9) if i != j]


def network(name="conv4_normalize"):
    torch.manual_seed(1)
    return architectures.select(name, not_pretrained=True, embed_dim=4).double()


def batch():
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (len(LABELS), 3, 16, 16), dtype=torch.uint8, generator=generator)
    return Batch(Y, images, torch.arange(len(LABELS)))


def cascade(*flags, network_of="conv4_normalize", **options):
    return tiny.trainer("cascaded", SIZES, *flags, **{"network": network(network_of), **options})


def kept_by_hand(levels, shares):
    """For each level its rows, and the positive and negative pairs that it keeps, lists of (anchor, other)."""
    positives = [(i, j) for i, j in EVERY if LABELS[i] == LABELS[j]]
    negatives = [(i, j) for i, j in EVERY if LABELS[i] != LABELS[j]]
    for level, share in zip(levels, shares, strict=True):
        far = {pair: distance(level[pair[0]], level[pair[1]]) for pair in EVERY}
        positives = sorted(positives, key=lambda pair: -far[pair])[: math.ceil(share * len(positives))]  # noqa: B023
        negatives = sorted(negatives, key=lambda pair: far[pair])[: math.ceil(share * len(negatives))]  # noqa: B023
        yield far, positives, negatives


@pytest.mark.parametrize(
    ("arch", "loss", "percents"),
    [
        ("conv4", "contrastive", "1 0.5 0.2"),
        ("conv4_normalize", "contrastive", "0.7 0.3 1"),
        ("conv4", "triplet", "1 0.4 0.3"),
    ],
)
def test_losses_are_the_criterion_on_the_kept_pairs(arch, loss, percents):
    """Triplets are the kept pairs joined on the anchor; even numbers are kept, of a pair both orders or none."""
    flags = f"--loss {loss} --batch_mining distance --cascade_percents {percents}"
    trainer, _ = cascade(flags, network_of=arch)
    outputs, losses = tiny.losses(trainer, batch())
    assert list(losses) == list(trainer.LOSSES) == ["metric_loss_1", "metric_loss_2", "metric_loss_3"]
    levels = [outputs[f"level_{number}"].tolist() for number in (1, 2, 3)]
    kept_pairs = kept_by_hand(levels, map(float, percents.split()))
    for (far, positives, negatives), value in zip(kept_pairs, losses.values(), strict=True):
        if loss == "contrastive":
            expected = sum(far[pair] for pair in positives) / len(positives)
            expected += sum(max(1 - far[pair], 0) for pair in negatives) / len(negatives)
        else:
            terms = [
                max(far[a, p] ** 2 - far[b, n] ** 2 + 0.2, 0) for a, p in positives for b, n in negatives if a == b
            ]
            expected = sum(terms) / len(terms)
        assert value.item() == pytest.approx(expected, rel=1e-9)
    no_rows = torch.zeros(0, dtype=torch.long)
    assert not any(map(len, hardest(outputs["level_1"], Pairs(*[no_rows] * 4), 0.5))), "nothing of nothing"
    # its own miner is there again
    assert loss == "contrastive" or type(trainer.criterion.batchminer).__name__ == "BatchMiner"


@pytest.mark.parametrize("arch", ["conv4", "conv4_normalize"])
def test_the_embedding_is_the_levels_side_by_side(arch):
    trainer, _ = cascade("--loss triplet", network_of=arch)
    outputs = trainer.outputs(batch().images)
    stages = trainer.network(batch().images)[1]["stages"]
    levels = []
    for layer, stage in zip(trainer.evaluated_heads.layers, stages, strict=True):
        level = stage @ layer.weight.T + layer.bias
        if arch == "conv4_normalize":
            level = level / level.norm(dim=1, keepdim=True)
        levels.append(level)
        assert_close(outputs[f"level_{len(levels)}"], levels[-1])
    assert_close(outputs["embeddings"], torch.cat(levels, 1) / math.sqrt(3))


def test_gradients_and_optimiser_groups():
    trainer, opt = cascade("--loss contrastive --fc_lr .5 --fc_decay .25")
    for number, loss in enumerate(tiny.losses(trainer, batch())[1].values()):
        reached = tiny.gradients(loss, trainer)
        heads = {f"evaluated_heads.layers.{number}.{part}" for part in ("weight", "bias")}
        assert {name for name in reached if name.startswith("evaluated_heads")} == heads
        deepest = max(int(name.split(".")[2]) for name in reached if name.startswith("network.backbone"))
        assert deepest in range(4 * (number + 1), 4 * (number + 2)), "a level trains the stages before it alone"
    levels = tiny.groups(opt, trainer)["levels"]
    assert (levels["lr"], levels["weight_decay"], len(levels["params"])) == (0.5, 0.25, 6)


def test_what_it_cannot_train_is_refused_in_one_line(data, tmp_path):
    for flags, message in (
        ("--cascade_stages block1 block2 layer3", "has no stage 'layer3': block1, block2, block3, block4"),
        ("--cascade_sizes 4 4 4 4 4 --cascade_percents 1 1 1 1 1", "only 4 stages of conv4_normalize are known"),
    ):
        with refused(message, "conv4_normalize"):
            tiny.run(data, tmp_path, "--trainer cascaded --dry_run", flags)
    with refused("gives its stages"):
        cascade("--loss triplet", network=None)
    unknown = network()
    unknown.STAGES = {}
    with refused("no stages of conv4_normalize are known"):
        cascade("--loss triplet", network=unknown)


@pytest.mark.parametrize("flag", ["--neck bn", "--memory_size 20", "--metrix 0.4"])
def test_what_it_never_asks_for_is_refused(flag):
    with refused(f"{flag.split()[0]}.* has no effect with --trainer cascaded"):
        tiny.resolve("--trainer cascaded --loss contrastive", flag)


def test_under_mine_pairs_each_level_mines_in_its_own_embedding():
    """Multi-similarity on pairs of the distance-weighted miner, with a classifier on the main embedding."""
    flags = "--batch_mining distance --mine_pairs --loss_weights classifier_loss=.5 --classifier_lr .1"
    trainer, opt = cascade(flags)
    assert opt.cascade_mining == "miner" and trainer.LOSSES[-1] == "classifier_loss"
    outputs = trainer.outputs(batch().images)
    torch.manual_seed(4)
    losses = trainer.losses(outputs, batch())
    torch.manual_seed(4)
    plain = criteria.select("multisimilarity", opt, batch_mining.select("none"))
    miner = batch_mining.select("distance", opt)
    for number in (1, 2, 3):
        level = outputs[f"level_{number}"]
        with with_tuples(plain, miner(level, Y)):
            expected = plain(level, Y)
        assert losses[f"metric_loss_{number}"].item() == pytest.approx(expected.item(), rel=1e-10)
    linear = trainer.evaluated_heads.classifier.linear
    logits = outputs["classifier_logits"]
    assert_close(logits, outputs["embeddings"] @ linear.weight.T + linear.bias)
    terms = [row.exp().sum().log() - row[label] for row, label in zip(logits, LABELS, strict=True)]
    assert losses["classifier_loss"].item() == pytest.approx(sum(terms).item() / len(terms), rel=1e-10)
    groups = tiny.groups(opt, trainer)
    assert groups["classifier"]["lr"] == 0.1 and set(groups) == {"backbone", "levels", "classifier"}


def test_triplets_of_a_miner_at_each_level():
    trainer, _ = cascade("--loss triplet --batch_mining all --cascade_mining miner")
    outputs, losses = tiny.losses(trainer, batch())
    for number in (1, 2, 3):
        x = outputs[f"level_{number}"].tolist()
        terms = [
            max(distance(x[a], x[p]) ** 2 - distance(x[a], x[n]) ** 2 + 0.2, 0)
            for a, p in EVERY
            for n in range(9)
            if LABELS[a] == LABELS[p] != LABELS[n]
        ]
        assert losses[f"metric_loss_{number}"].item() == pytest.approx(sum(terms) / len(terms), rel=1e-9)


def test_the_networks_own_embedding_layer_is_not_trained_nor_counted():
    trainer, opt = cascade("--loss contrastive")
    net = trainer.network
    assert "last_linear" not in tiny.groups(opt, trainer) and not net.last_linear.weight.requires_grad
    net.requires_grad_(True)
    assert not net.last_linear.weight.requires_grad, "in no phase of a trainer"
    parameters = sum(parameter.numel() for parameter in net.backbone.parameters())
    assert f"{parameters / 1e6:.2f} M parameters" in described_network(opt, trainer)
    assert "embedding 12" in described_network(opt, trainer)


def test_logits_see_the_embedding_of_training():
    trainer, _ = cascade("--loss triplet --loss_weights classifier_loss=1")
    trainer.eval()
    features = trainer.network(batch().images)[1]
    expected = trainer.evaluated_heads({}, features)["classifier_logits"]
    trainer.evaluated_heads.normalizes = False
    outputs = trainer.evaluated_heads({}, features)
    assert not torch.allclose(outputs["level_1"].norm(dim=1), torch.ones(len(LABELS), dtype=torch.float64))
    assert_close(outputs["classifier_logits"], expected)
