"""--guide in a step, against a memory by loops, in chunks, in runs that go on; what it refuses."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import criteria
import trainers
from engine.optimisers import build_optimizer
from engine.runtime import Runtime
from engine.step import Step, StepSettings
from runs import Embedder
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import run_main
from trainers._guide import GuideFile, has_negatives

# of cosines from 0 to 1
FEATURES = torch.rand(30, 3, generator=torch.Generator().manual_seed(6))


def guided(*flags, name="metric_only", fingerprint="hash"):
    """A trainer with a guide, and its flags."""

    def make(trainer, opt, *modules):
        file = GuideFile("guide.npz", fingerprint, FEATURES)
        return trainers.select(trainer, opt.but(loaded_guide=file), *modules)

    return tiny.trainer(name, "--guide guide.npz", *flags, make=make)


def slow_ntxent(anchors, rows, first_own, drops):
    """Of lists of (embedding, label, image) at temperature .5; the own image of anchor a is row `first_own` + a.

    drops: (image of the anchor, of the positive, of the negative) -> is it?
    """
    terms = []
    for a, (x, label, image) in enumerate(anchors):
        other_rows = [row for j, row in enumerate(rows) if j != first_own + a]
        exponents = [2 * tiny.dot(tiny.unit(x), tiny.unit(row)) for row, _, _ in other_rows]
        for p, (_, label_of_p, image_of_p) in enumerate(other_rows):
            if label_of_p != label:
                continue
            total = 0
            for n, (_, label_of_n, image_of_n) in enumerate(other_rows):
                if label_of_n != label and not drops(image, image_of_p, image_of_n):
                    total += math.exp(exponents[n] - exponents[p])
            terms.append(math.log(1 + total))
    return sum(terms) / len(terms)


def test_batch_and_memory_are_those_of_loops():
    flags = "--loss ntxent --loss_ntxent_temperature .5 --guide_margin .1 --memory_size 40 --memory_start 0"
    trainer, _ = guided(flags)
    cosines = torch.nn.functional.normalize(FEATURES) @ torch.nn.functional.normalize(FEATURES).T

    def drops(a, p, n):
        return bool(cosines[a, n] > cosines[a, p] - 0.1 + 1e-6)

    memory = []
    for seed in (1, 2, 3):
        batch = tiny.batch(seed=seed)
        batch = batch._replace(indices=batch.indices.roll(seed))
        outputs, losses = tiny.losses(trainer, batch)
        columns = (outputs["embeddings"], batch.labels, batch.indices)
        anchors = list(zip(*(column.tolist() for column in columns), strict=True))
        memory += anchors
        assert losses["metric_loss"].item() == pytest.approx(slow_ntxent(anchors, anchors, 0, drops), rel=1e-6)
        expected = slow_ntxent(anchors, memory, len(memory) - len(anchors), drops)
        assert losses["memory_loss"].item() == pytest.approx(expected, rel=1e-6)
    assert 0 < trainer.criterion.stats["guide_dropped"] < 1


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("--loss ntxent", "metric_only"),
        ("--loss multisimilarity", "classifier"),
        ("--loss multisimilarity --augmentation base", "unsupervised"),
    ],
)
def test_it_reaches_views_and_other_trainers(flags, name):
    losses = []
    for margin in ("-1", ".4"):
        trainer, _ = guided(flags, f"--guide_margin {margin}", name=name)
        losses.append(tiny.losses(trainer, tiny.batch(views=trainer.VIEWS))[1]["metric_loss"])
    plain, _ = tiny.trainer(name, flags)
    expected = tiny.losses(plain, tiny.batch(views=plain.VIEWS))[1]["metric_loss"]
    assert losses[0] == expected and losses[1] < expected


@pytest.mark.parametrize("loss", ["ntxent", "triplet", "multisimilarity"])
def test_steps_in_chunks_are_plain_steps(loss):
    results = []
    for chunk_size in (0, 2):
        trainer, opt = guided(f"--loss {loss} --memory_size 12 --memory_start 0")
        # BatchNorm would see the chunks in place of the batch
        trainer.network.backbone[1] = torch.nn.Identity()
        optimizer = build_optimizer(trainer.network, trainer.criterion, opt, trainers.groups_of(trainer, opt))
        step = Step(trainer, optimizer, Runtime(opt), tiny.Sampler(), StepSettings(chunk_size=chunk_size))
        step.start_epoch(1)
        losses = [torch.stack(list(step(tiny.batch(seed=seed)).losses.values())) for seed in (1, 2)]
        results.append((torch.stack(losses), trainer.network.state_dict()))
    assert_close(results[0], results[1], rtol=1e-6, atol=1e-8)


def test_a_checkpoint_holds_hash_and_images_of_the_memory():
    flags = "--loss ntxent --memory_size 12 --memory_start 0"
    trainer, _ = guided(flags)
    tiny.losses(trainer, tiny.batch())
    state = trainers.TrainerState(trainer).state_dict()
    resumed, _ = guided(flags)
    trainers.TrainerState(resumed).load_state_dict(state)
    assert torch.equal(resumed.added_losses[0].queue.indices, tiny.batch().indices)
    assert tiny.losses(resumed, tiny.batch(seed=4))[1]["memory_loss"].isfinite()
    another, _ = guided(flags, fingerprint="another")
    with refused("its guide had other features than --guide guide.npz"):
        trainers.TrainerState(another).load_state_dict(state)
    earlier = {key: value for key, value in state["added_losses.0._extra_state"].items() if key != "indices"}
    plain, _ = tiny.trainer("metric_only", flags)
    trainers.TrainerState(plain).load_state_dict({"added_losses.0._extra_state": earlier})
    assert plain.added_losses[0].queue.indices.tolist() == [-1] * 6


def test_runs_of_a_file_of_features(data, tmp_path):
    paths = sorted(str(path) for path in data.rglob("*.*") if path.suffix in (".png", ".jpg"))
    old = tiny.run(data, tmp_path, "--n_epochs 1 --savename Old")
    features = Embedder(old.folder)(paths)
    np.savez(tmp_path / "guide.npz", features=features, paths=paths)
    flags = "--loss ntxent --memory_size 20 --memory_start 1 --precision bfloat16 --guide"
    run = tiny.assert_resumes(data, tmp_path, flags, tmp_path / "guide.npz")
    values = tiny.values_of_training(run)
    assert 0 < values[2, "criterion/guide_dropped"] < 1
    for message, arrays in (
        ("--guide .* lacks 1 of", {"features": features[1:], "paths": paths[1:]}),
        ("holds NaN", {"features": features * np.nan, "paths": paths}),
        ("has no paths", {"features": features}),
    ):
        np.savez(tmp_path / "bad.npz", **arrays)
        with refused(message):
            tiny.run(data, tmp_path, flags, tmp_path / "bad.npz", "--savename Bad")
    with refused("its guide had other features"):
        np.savez(tmp_path / "other.npz", features=-(features[:, ::-1] ** 2), paths=paths)
        run_main("--resume_from", run.folder, "--n_epochs 3 --guide", tmp_path / "other.npz")
    for name, message in (("none.npz", "none.npz"), ("guide.csv", "not an .npz file")):
        with refused(message):
            tiny.run(data, tmp_path, flags, tmp_path / name, "--savename Bad")


def test_losses_without_negatives_to_drop_are_refused():
    able = {name for name, module in criteria.REGISTRY.modules().items() if has_negatives(module)}
    assert {"ntxent", "triplet", "contrastive", "multisimilarity", "roadmap", "npair"} <= able
    assert not able & {"arcface", "center", "hist", "vicreg", "smoothap", "recallatk", "contextual", "pml", "hier"}
    for flags, message in (
        ("--loss arcface", "--loss arcface can leave none out; these can: angle, angular, "),
        ("--loss smoothap", "--loss smoothap can leave none out"),
        ("--loss triplet --trainer s2sd", "--trainer s2sd compares samples in ways"),
        ("--loss triplet --trainer cascaded", "--guide has no effect with --trainer cascaded"),
        ("--loss multisimilarity --metrix .4", "--metrix mixes images"),
        ("--loss triplet --guide_margin 2", "--guide_margin"),
    ):
        with refused(message):
            tiny.resolve("--guide a.npz", flags)
    with refused("no effect without --guide"):
        tiny.resolve("--loss triplet --guide_relative")
