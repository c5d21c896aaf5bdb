"""The hard-aware cascade against plain loops; its embedding, evaluated, saved and loaded; refusals."""

import math

import numpy as np
import pytest
import torch

import architectures
import criteria
import main
import parameters
from runs import RunFolder, checkpoint, load_run
from tests.trainers import tiny
from trainers.cascaded import hardest
from training.loading import Batch
from training.optimisers import build_optimizer
from utilities.errors import UserError
from utilities.tuples import Pairs

LABELS = [0, 0, 0, 1, 1, 1, 2, 2, 3]
SIZES = ["--cascade_sizes", "4", "3", "5"]


def network(name="conv4_normalize"):
    torch.manual_seed(1)
    return architectures.select(name, not_pretrained=True, embed_dim=4).double()


def images():
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (len(LABELS), 3, 16, 16), dtype=torch.uint8, generator=generator)


def batch():
    return Batch(torch.tensor(LABELS), images(), torch.arange(len(LABELS)))


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def kept_by_hand(levels, shares):
    """For each level the positive and the negative pairs that it keeps, plain lists of (anchor, other)."""
    every = [(i, j) for i in range(len(LABELS)) for j in range(len(LABELS)) if i != j]
    positives = [(i, j) for i, j in every if LABELS[i] == LABELS[j]]
    negatives = [(i, j) for i, j in every if LABELS[i] != LABELS[j]]
    kept = []
    for level, share in zip(levels, shares, strict=True):
        positives = sorted(positives, key=lambda pair: -distance(level[pair[0]], level[pair[1]]))[: math.ceil(share * len(positives))]
        negatives = sorted(negatives, key=lambda pair: distance(level[pair[0]], level[pair[1]]))[: math.ceil(share * len(negatives))]
        kept.append((positives, negatives))
    return kept


@pytest.mark.parametrize("arch", ["conv4", "conv4_normalize"])
@pytest.mark.parametrize("percents", [["1", ".5", ".2"], [".7", ".3", "1"]])
def test_losses_are_the_criterion_on_the_kept_pairs(arch, percents):
    trainer, _ = tiny.trainer(
        "cascaded", "--loss", "contrastive", *SIZES, "--cascade_percents", *percents, network=network(arch), n_classes=4
    )
    outputs = trainer.outputs(batch().images)
    losses = trainer.losses(outputs, batch())
    levels = [outputs[f"level_{number}"].tolist() for number in (1, 2, 3)]
    kept = kept_by_hand(levels, [float(percent) for percent in percents])
    assert list(losses) == list(trainer.LOSSES) == ["metric_loss_1", "metric_loss_2", "metric_loss_3"]
    for level, (positives, negatives), loss in zip(levels, kept, losses.values(), strict=True):
        far = sum(distance(level[i], level[j]) for i, j in positives) / len(positives)
        near = sum(max(1 - distance(level[i], level[j]), 0) for i, j in negatives) / len(negatives)
        assert loss.item() == pytest.approx(far + near, rel=1e-10)


def test_triplets_are_the_kept_pairs_joined_on_the_anchor():  # even numbers are kept: of a pair both orders, or none
    trainer, _ = tiny.trainer(
        "cascaded", "--loss", "triplet", "--batch_mining", "distance", *SIZES, "--cascade_percents", "1", ".4", ".3", network=network()
    )
    outputs = trainer.outputs(batch().images)
    losses = trainer.losses(outputs, batch())
    levels = [outputs[f"level_{number}"].tolist() for number in (1, 2, 3)]
    for level, (positives, negatives), loss in zip(levels, kept_by_hand(levels, [1, 0.4, 0.3]), losses.values(), strict=True):
        terms = [
            max(distance(level[a], level[p]) ** 2 - distance(level[a], level[n]) ** 2 + 0.2, 0)
            for a, p in positives for b, n in negatives if a == b
        ]  # fmt: skip
        assert terms and loss.item() == pytest.approx(sum(terms) / len(terms), rel=1e-9)
    assert type(trainer.criterion.batchminer).__name__ == "BatchMiner", "its own miner is there again"


def test_hardest_rounds_up_and_takes_nothing_of_nothing():
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=torch.float64)
    pairs = Pairs(torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2]), torch.tensor([3, 3, 3]), torch.tensor([0, 1, 2]))
    kept = hardest(x, pairs, 0.34)
    assert sorted(zip(kept.anchors_p.tolist(), kept.positives.tolist(), strict=True)) == [(0, 2), (1, 2)]
    assert sorted(zip(kept.anchors_n.tolist(), kept.negatives.tolist(), strict=True)) == [(3, 1), (3, 2)]
    none = torch.zeros(0, dtype=torch.long)
    assert all(len(part) == 0 for part in hardest(x, Pairs(none, none, none, none), 0.5))


@pytest.mark.parametrize("arch", ["conv4", "conv4_normalize"])
def test_the_embedding_is_the_levels_side_by_side(arch):
    net = network(arch)
    trainer, _ = tiny.trainer("cascaded", "--loss", "triplet", *SIZES, network=net, n_classes=4)
    outputs, stages = trainer.outputs(images()), net(images())[1]["stages"]
    levels = []
    for layer, stage in zip(trainer.evaluated_heads.layers, stages, strict=True):
        level = stage @ layer.weight.T + layer.bias
        levels.append(level / level.norm(dim=1, keepdim=True) if net.normalizes else level)
    torch.testing.assert_close(outputs["embeddings"], torch.cat(levels, 1) / math.sqrt(3))
    for number, level in enumerate(levels, start=1):
        torch.testing.assert_close(outputs[f"level_{number}"], level)
    if net.normalizes:
        torch.testing.assert_close(outputs["embeddings"].norm(dim=1), torch.ones(len(LABELS), dtype=torch.float64))
    assert [layer.in_features for layer in trainer.evaluated_heads.layers] == [64, 64, 64] and trainer.evaluated().embed_dim == 12


def test_every_criterion_of_tuples_takes_the_pairs():
    for loss in filter(criteria.takes_tuples, criteria.REGISTRY.names()):
        trainer, _ = tiny.trainer("cascaded", "--loss", loss, *SIZES, network=network(), n_classes=4)
        one_class = batch()._replace(labels=torch.zeros(len(LABELS), dtype=torch.long))
        for a_batch in (batch(), one_class):
            losses = trainer.losses(trainer.outputs(a_batch.images), a_batch)
            assert all(math.isfinite(value.item()) for value in losses.values()), loss
            sum(losses.values()).backward()


def test_gradients_and_optimiser_groups():
    trainer, opt = tiny.trainer(
        "cascaded", "--loss", "contrastive", *SIZES, "--fc_lr", ".5", "--fc_decay", ".25", network=network(), n_classes=4
    )
    losses = trainer.losses(trainer.outputs(images()), batch())
    for number, loss in enumerate(losses.values()):
        reached = tiny.gradients(loss, trainer)
        assert {name for name in reached if name.startswith("evaluated_heads")} == {
            f"evaluated_heads.layers.{number}.{part}" for part in ("weight", "bias")
        }
        deepest = max(int(name.split(".")[2]) for name in reached if name.startswith("network.backbone"))
        assert deepest in range(4 * (number + 1), 4 * (number + 2)), "a level trains the stages before it alone"
    groups = build_optimizer(trainer.network, trainer.criterion, opt, trainer.param_groups(opt)).param_groups
    ids = [id(p) for group in groups for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in trainer.parameters())
    levels = next(group for group in groups if group["name"] == "levels")
    assert (levels["lr"], levels["weight_decay"], len(levels["params"])) == (0.5, 0.25, 6)




def test_the_joined_embedding_alone_is_what_a_plain_run_evaluates(data, tmp_path):
    run = main.main(tiny.read(data, tmp_path, "--trainer", "cascaded", *SIZES, "--n_epochs", "1"))
    assert load_run(run.folder)[0](torch.zeros(2, 3, 16, 16, dtype=torch.uint8))[0].shape == (2, 12)
    lengths = []
    for more in ([], ["--eval_no_normalize"]):
        main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), "--dump_embeddings", *more]))
        features = [np.load(path)["features"] for path in sorted(run.folder.rglob("embeddings_test.npz"))][-1]
        lengths.append(np.linalg.norm(features, axis=1))
        for path in run.folder.rglob("embeddings_*.npz"):
            path.unlink()
    assert features.shape[1] == 12 and np.allclose(lengths[0], 1, atol=1e-6) and not np.allclose(lengths[1], 1, atol=1e-2)


def test_what_it_cannot_train_is_refused_in_one_line(data, tmp_path, capsys):
    for flags, said in (
        (["--loss", "softmax"], "--loss softmax takes none"),
        (["--loss", "npair", "--batch_mining", "npair"], "--loss npair takes none"),
        (["--loss", "histogram"], "--loss histogram takes none"),
        (["--cascade_sizes", "4", "4"], "--cascade_percents names 3 of the levels, --cascade_sizes 2"),
        (["--cascade_stages", "block1"], "--cascade_stages names 1 of the levels, --cascade_sizes 3"),
        (["--cascade_percents", "1", ".5", "0"], "above 0"),
    ):
        with pytest.raises(SystemExit):
            tiny.read(data, tmp_path, "--trainer", "cascaded", *flags)
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    for flags, said in (
        (["--cascade_stages", "block1", "block2", "layer3"], "conv4_normalize has no stage 'layer3': block1, block2, block3, block4"),
        (["--cascade_sizes", *"44444", "--cascade_percents", *"11111"], "only 4 stages of conv4_normalize are known"),
        (["--arch", "vgg11", "--not_pretrained", "--crop_size", "32"], "no stages of vgg11 are known"),
        (["--memory_size", "20"], "--memory_size has no effect with this --trainer, whose losses do not call the base.s: leave it out"),
        (["--arch", "conv4", "--embed_regularizer", "lp"], "--embed_regularizer has no effect with this --trainer"),
    ):
        with pytest.raises(UserError, match=said) as caught:
            main.main(tiny.read(data, tmp_path, "--trainer", "cascaded", *flags, "--dry_run"))
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="gives its stages"):
        tiny.trainer("cascaded", "--loss", "triplet")


