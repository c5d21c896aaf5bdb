"""Statistics that name a collapse against plain loops, what warns and when, and no warning after a resume."""

import json
import math

import numpy as np
import pytest
import torch

import criteria
import main
from benchmarks._method_settings import COMMON, METHODS
from engine import collapse
from engine.assembly import build_training
from engine.collapse import EXCESS, REACH, SEPARATION, SPREAD, Watch
from engine.meter import EpochMeter
from tests.kit.runs import resolve, run_words

X = torch.tensor([(1, 0, 0), (0.8, 0.6, 0), (0, 1, 0), (0, 0.6, 0.8)])
Y = torch.tensor([0, 0, 1, 1])
STUCK = {SPREAD: 0.004, SEPARATION: 0.3, EXCESS: 0.02, REACH: 0.1}
APART = {SPREAD: 0.06, SEPARATION: 0.3, EXCESS: 0.02, REACH: 0.1}


def by_loops(rows, labels, images):
    rows = [np.array(row) / np.linalg.norm(row) for row in rows[: collapse.ROWS].double().tolist()]
    pairs = [(i, j) for i in range(len(rows)) for j in range(i) if images[i] != images[j]]
    squares = {pair: float(((rows[pair[0]] - rows[pair[1]]) ** 2).sum()) for pair in pairs}
    within = [square for (i, j), square in squares.items() if labels[i] == labels[j]]
    between = [square for (i, j), square in squares.items() if labels[i] != labels[j]]
    if not squares:
        return {SPREAD: math.nan, SEPARATION: math.nan}
    mean = np.mean(list(squares.values()))
    separation = math.nan
    if within and between:
        separation = (np.mean(between) - np.mean(within)) / mean
    return {SPREAD: mean / 2, SEPARATION: separation}


def test_spread_and_separation_by_hand_and_by_loops(monkeypatch):
    monkeypatch.setattr(collapse, "ROWS", 30)
    values = collapse.statistics(X, Y, torch.arange(4))
    assert [values[name].item() for name in (SPREAD, SEPARATION)] == pytest.approx([0.6066667, 0.7582418], abs=1e-6)
    generator = torch.Generator().manual_seed(0)
    for size, n_classes, n_images in ((40, 5, 40), (40, 5, 9), (7, 1, 7), (7, 7, 7), (1, 1, 1)):
        rows = torch.randn(size, 6, generator=generator) + 2
        images = torch.arange(size) % n_images
        labels = images % n_classes
        values = {name: value.item() for name, value in collapse.statistics(rows, labels, images).items()}
        expected = by_loops(rows, labels.tolist(), images.tolist())
        assert values == pytest.approx(expected, abs=1e-5, nan_ok=True), (size, n_classes, n_images)
    nearly_alike = collapse.statistics(torch.ones(6, 8).bfloat16(), torch.arange(6) % 2, torch.arange(6))
    assert nearly_alike[SPREAD] < collapse.ALIKE


def test_excess_and_reach_of_all_triplets_by_hand():
    criterion = criteria.select("triplet", loss_triplet_margin=0.2, batch_mining="all")
    criterion(X, Y)
    assert criterion.stats["excess"].item() == pytest.approx(-4.6, abs=1e-5)
    assert criterion.stats["reach"].item() == pytest.approx(5.3, abs=1e-5)


def lines_of(epochs, loss="triplet", state=None):
    """The epochs that warn, with their lines."""
    if state is None:
        state = {}
    watch = Watch(loss, state)
    return {epoch: lines for epoch, means in enumerate(epochs, 1) if (lines := watch.warnings(epoch, means))}


def test_a_loss_at_its_margin_warns_in_the_second_epoch_once_and_after_a_recovery_again():
    falling = [APART, STUCK | {SEPARATION: 0.33}, STUCK | {SEPARATION: 0.26}, STUCK, APART, STUCK, STUCK]
    lines = lines_of(falling)
    assert list(lines) == [3, 7]
    (line,) = lines[3]
    assert line.startswith(
        "WARNING: epoch 3: the loss stays at the margin and classes run together (separation .33, then .26): lower "
        "--lr or add --warmup_epochs, or mine softer (--batch_mining semihard, distance)"
    )
    assert "criterion/excess" in line and "criterion/reach" in line
    (line,) = lines_of([STUCK, STUCK | {SEPARATION: 0.71}])[2]
    assert line.startswith(
        "WARNING: epoch 2: the loss stays at the margin, while classes stay apart (separation .71): it may still leave "
        "it; a smaller margin or a lower --lr is safer"
    )
    assert list(lines_of([STUCK, STUCK], "hyperbolic")) == [2]


@pytest.mark.parametrize(
    ("means", "loss", "warns"),
    [
        ({SPREAD: 9e-5}, "contrastive", True),
        ({SPREAD: 9e-5, SEPARATION: 0.9}, "contrastive", True),
        ({SPREAD: 0.019, SEPARATION: 0.01}, "contrastive", True),
        ({SPREAD: 0.019, SEPARATION: 0.01}, "hyperbolic", False),
        ({SPREAD: 0.019, SEPARATION: 0.03}, "contrastive", False),
        ({SPREAD: 0.021, SEPARATION: -0.1}, "contrastive", False),
        ({SPREAD: 0.019}, "ntxent", False),
        ({}, "contrastive", False),
        # measured: a large margin without unit length, a cone of mean cosine .99
        (STUCK | {SPREAD: 0.64}, "triplet", False),
        ({SPREAD: 0.01, SEPARATION: 0.3}, "triplet", False),
    ],
)
def test_alike_embeddings_warn_at_once_and_others_never(means, loss, warns):
    lines = lines_of([means, means, means], loss)
    assert list(lines) == [1] * warns
    for (line,) in lines.values():
        assert line.startswith("WARNING: epoch 1: the embeddings of all images are alike (criterion/spread ")


def test_the_state_of_before_is_that_of_a_run_that_goes_on():
    state = {}
    assert lines_of([STUCK, STUCK], state=state)
    assert not lines_of([STUCK, STUCK], state=json.loads(json.dumps(state)))


def test_a_last_layer_of_zero_warns_in_epoch_1_and_a_resume_repeats_nothing(folder_data, tmp_path, monkeypatch, capsys):
    build = build_training

    def dead(opt, network, *arguments, **teacher):
        training = build(opt, network, *arguments, **teacher)
        with torch.no_grad():
            network.last_linear.weight.zero_()
            network.last_linear.bias.fill_(1)
        return training

    monkeypatch.setattr(main, "build_training", dead)
    words = "--arch conv4_normalize --iterations_per_epoch 2 --lr 1e-9 --no_records --evaluation_metrics map_r".split()
    words = run_words(folder_data, tmp_path, *words)
    run = main.main(resolve(*words, "--n_epochs 1"))
    assert capsys.readouterr().out.count("WARNING: epoch 1: the embeddings of all images are alike") == 1
    (warning,) = json.loads((run.folder / "summary.json").read_text())["warnings"]
    assert warning.startswith("epoch 1: the embeddings of all images are alike")
    main.main(resolve(f"--resume_from {run.folder} --n_epochs 2"))
    assert "WARNING: epoch" not in capsys.readouterr().out
    assert json.loads((run.folder / "summary.json").read_text())["warnings"] == [warning]


@pytest.mark.long
@pytest.mark.parametrize("loss", METHODS)
def test_no_loss_warns_in_its_benchmark_setting(loss):
    import architectures
    import datasets
    from engine.runtime import Runtime

    opt = resolve(COMMON, f"--loss {loss}", METHODS[loss])
    runtime = Runtime(opt).begin()
    network = architectures.select(opt.arch, opt)
    splits = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(network))
    opt.n_classes = splits["training"].n_classes
    _, optimizer, _, loader, step = build_training(opt, network, splits["training"], runtime)
    watch = Watch(loss, {})
    for epoch in range(1, opt.n_epochs + 1):
        step.start_epoch(epoch)
        meter = EpochMeter(step.trainer.criterion)
        for batch in loader:
            meter.add(step(batch))
        assert not watch.warnings(epoch, meter.means(optimizer))
