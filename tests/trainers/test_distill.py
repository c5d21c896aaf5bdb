"""A teacher beside a trainer: the losses against loops and pins, what a teacher may be, chunks, resume, refusals."""

import json
import math
import shutil

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

import trainers
from engine.optimisers import build_optimizer
from engine.runtime import Runtime
from engine.step import Step, StepSettings
from evaluation import teachers
from runs import Embedder
from tests.criteria._table import PINNED, PINNED_LABELS, PINNED_VECTORS
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import run_main
from trainers import _likeness
from trainers._distill import EMBEDDINGS, OF_TEACHER, WEIGHTS, Teacher

TAUGHT = torch.tensor([(1, 0), (0.6, 0.8), (0, 1), (-0.6, 0.8)], dtype=torch.float64)
RELATIONS = [name for name in WEIGHTS if name not in ("regression", "logits")]


# --- slow formulas
def huber(difference):
    size = abs(difference)
    return size**2 / 2 if size < 1 else size - 0.5


def distance(x, y):
    return torch.sqrt(((x - y) ** 2).sum().clamp(min=1e-12))


def cosine(x, y):
    lengths = x.norm() * y.norm()
    return x @ y / lengths if lengths > 0 else 0 * (x @ y)


def slow_rkd_distance(student, teacher):
    n = len(student)
    total = 0 * student.sum()
    scaled = []
    for rows in (student, teacher):
        table = {(i, j): distance(rows[i], rows[j]) for i in range(n) for j in range(n) if i != j}
        mean = sum(table.values()) / max(len(table), 1)
        scaled.append({pair: value / mean for pair, value in table.items()})
    for pair in scaled[0]:
        total = total + huber(scaled[0][pair] - scaled[1][pair])
    return total / n**2


def slow_rkd_angle(student, teacher):
    n = len(student)
    total = 0 * student.sum()
    for i in range(n):
        for j in range(n):
            for k in range(n):
                angles = []
                for rows in (student, teacher):
                    angles.append(cosine(rows[j] - rows[i], rows[k] - rows[i]))
                total = total + huber(angles[0] - angles[1])
    return total / n**3


def slow_darkrank(student, teacher, nearest=4):
    n = len(student)
    total = 0 * student.sum()
    for i in range(n):
        order = sorted((j for j in range(n) if j != i), key=lambda j: float(distance(teacher[i], teacher[j])))
        scores = [-2 * distance(student[i], student[j]) ** 3 for j in order[:nearest]]
        for place, score in enumerate(scores):
            total = total - score + torch.log(sum(torch.exp(later) for later in scores[place:]))
    return total / n


def slow_pkt(student, teacher):
    n = len(student)
    total = 0
    for i in range(n):
        of_teacher, of_student = ([(cosine(x[i], x[j]) + 1) / 2 for j in range(n)] for x in (teacher, student))
        for p, q in zip(of_teacher, of_student, strict=True):
            share = p / sum(of_teacher)
            total = total + share * torch.log((share + 1e-7) / (q / sum(of_student) + 1e-7))
    return total / n**2


def slow_sp(student, teacher):
    n = len(student)
    total = 0
    for i in range(n):
        rows = [[x[i] @ x[j] for j in range(n)] for x in (student, teacher)]
        lengths = [math.sqrt(sum(value.item() ** 2 for value in row)) for row in rows]
        length = torch.sqrt(sum(value**2 for value in rows[0])) if lengths[0] else 1
        for a, b in zip(*rows, strict=True):
            total = total + (a / length - b / (lengths[1] or 1)) ** 2
    return total / n**2


SLOW = {
    "rkd_distance": slow_rkd_distance,
    "rkd_angle": slow_rkd_angle,
    "darkrank": slow_darkrank,
    "pkt": slow_pkt,
    "sp": slow_sp,
}


def test_the_pins():
    """Those of the relational losses are also the values of the authors' functions."""
    expected = {"rkd_distance": 0.0177390, "rkd_angle": 0.0319359, "pkt": 0.0052860, "sp": 0.0313867}
    for name, value in expected.items():
        assert getattr(_likeness, name)(PINNED, TAUGHT).item() == pytest.approx(value, abs=6e-8), name
    for nearest, value in ((2, 0.5414623), (3, 0.7777104), (4, 0.7777104)):
        assert _likeness.darkrank(PINNED, TAUGHT, nearest).item() == pytest.approx(value, abs=6e-8)
    regression = _likeness.regression(PINNED, PINNED_VECTORS[PINNED_LABELS])
    assert regression.item() == pytest.approx(0.0887212, abs=6e-8)
    student = torch.tensor([(2, 0, -1), (0, 1, 0.5)], dtype=torch.float64)
    teacher = torch.tensor([(1, 1, 0), (0, 2, 0)], dtype=torch.float64)
    assert _likeness.logits(student, teacher).item() == pytest.approx(0.3282982, abs=6e-8)


def cases():
    """Batches of student and teacher: of 6, with duplicates of either or both, all equal, of 2, of 1, opposite rows."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    t = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    doubled = x[[0, 0, 1, 2, 3, 3]]
    yield "plain", x, t
    yield "duplicates of the student", doubled, t
    yield "duplicates of the teacher", x, t[[0, 0, 1, 2, 2, 2]]
    yield "duplicates of both", doubled, t[[0, 0, 1, 2, 2, 3]]
    yield "all equal", x[[1] * 6], t
    yield "two", x[:2], t[:2]
    yield "two equal", x[[0, 0]], t[:2]
    yield "one", x[:1], t[:1]
    yield "opposite", torch.cat([x[:2], -x[:2]]), torch.cat([t[:2], -t[:2]])


@pytest.mark.parametrize("name", RELATIONS)
def test_values_and_gradients_are_those_of_loops(name):
    for case, rows, teacher in cases():
        student = rows.clone().requires_grad_()
        values = getattr(_likeness, name)(student, teacher), SLOW[name](student, teacher)
        assert_close(*values, rtol=1e-9, atol=1e-12, msg=lambda text, case=case: f"{case}: {text}")
        gradients = [torch.autograd.grad(value, student)[0] for value in values]
        assert gradients[0].isfinite().all(), case
        assert_close(*gradients, rtol=1e-7, atol=1e-9, msg=lambda text, case=case: f"{case}: {text}")


def test_angles_in_blocks_are_those_at_once(monkeypatch):
    monkeypatch.setattr("criteria._pairs.ANCHORS", 1)
    _, rows, teacher = next(cases())
    student = rows.clone().requires_grad_()
    values = [_likeness.rkd_angle(student, teacher, entries) for entries in (None, 2 * 6 * 13)]
    assert_close(*values)
    assert_close(*(torch.autograd.grad(value, student)[0] for value in values))


def test_a_zero_row_has_no_infinite_slope():
    teacher = torch.randn(3, 2, dtype=torch.float64)
    for name in [*RELATIONS, "regression"]:
        student = torch.tensor([[0.0, 0], [1, 2], [2, 1]], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(getattr(_likeness, name)(student, teacher), student)
        assert gradient.isfinite().all(), name


# --- beside a trainer
class Taught(torch.nn.Module):
    """A teacher of images of 4 x 4 that counts its calls and would draw a number in each."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.layer = torch.nn.Linear(48, 5)
        self.eval()

    def forward(self, images):
        assert not torch.is_grad_enabled() and not self.training
        self.calls += 1
        rows = self.layer(images.flatten(1).float() / 255)
        return {EMBEDDINGS: rows + torch.rand(()), OF_TEACHER: rows[:, :4]}


def taught(*flags, name="metric_only", teacher=None, source="run"):
    """A trainer with a teacher, and its flags."""
    teacher = teacher or Teacher(source, "hash", 5, 4, Taught())

    def make(trainer, opt, *modules):
        return trainers.select(trainer, opt.but(loaded_teacher=teacher), *modules)

    return tiny.trainer(name, f"--teacher {source}", *flags, make=make)


def test_the_loss_is_the_weighted_sum():
    names = " ".join(WEIGHTS)
    trainer, opt = taught(f"--distill {names} --distill_weights sp=2 pkt=5 --distill_nearest 2", name="classifier")
    batch = tiny.batch()
    outputs, losses = tiny.losses(trainer, batch)
    rows = outputs[EMBEDDINGS].double()
    embeddings = outputs["embeddings"]
    added = trainer.added_losses[0]
    expected = {name: SLOW[name](embeddings, rows) for name in RELATIONS}
    expected["darkrank"] = slow_darkrank(embeddings, rows, 2)
    mapped = embeddings @ added.map.weight.T
    expected["regression"] = sum(1 - cosine(x, y) for x, y in zip(mapped, rows, strict=True)) / len(rows)
    expected["logits"] = _likeness.logits(outputs["classifier_logits"], outputs[OF_TEACHER].double())
    weights = {**WEIGHTS, "sp": 2, "pkt": 5}
    assert_close(losses["distill_loss"], sum(weights[name] * expected[name] for name in WEIGHTS))
    trained = tiny.gradients(losses["distill_loss"], trainer)
    assert {"added_losses.0.map.weight", "network.last_linear.weight"} <= trained
    tiny.groups(opt, trainer)
    state = trainer.state_dict()
    in_checkpoint = {name for name in state if name.startswith("added_losses")}
    assert in_checkpoint == {"added_losses.0.map.weight", "added_losses.0._extra_state"}, "no weight of the teacher"


def test_another_teacher_does_not_go_on():
    trainer, _ = taught("--distill sp")
    state = trainers.TrainerState(trainer).state_dict()
    trainers.TrainerState(taught("--distill sp")[0]).load_state_dict(state)
    student, _ = taught("--distill sp", teacher=Teacher("b", "another", 5, None, Taught()))
    with refused("its teacher had other weights than --teacher b"):
        trainers.TrainerState(student).load_state_dict(state)


@pytest.mark.parametrize("name", ["metric_only", "s2sd"])
def test_steps_in_chunks_are_plain_steps_and_the_teacher_runs_once_a_chunk(name):
    results = []
    for chunk_size in (0, 2):
        teacher = Taught()
        teacher.forward = without_draws(teacher)
        trainer, opt = taught(
            "--distill rkd_distance rkd_angle regression", name=name, teacher=Teacher("run", "hash", 5, 4, teacher)
        )
        optimizer = build_optimizer(trainer.network, trainer.criterion, opt, trainers.groups_of(trainer, opt))
        # BatchNorm would see the chunks in place of the batch
        trainer.network.backbone[1] = torch.nn.Identity()
        step = Step(trainer, optimizer, Runtime(opt), tiny.Sampler(), StepSettings(chunk_size=chunk_size))
        step.start_epoch(1)
        loss_name = {"s2sd": "teacher_loss"}.get(name, "distill_loss")
        losses = [step(tiny.batch(seed=seed)).losses[loss_name] for seed in (1, 2)]
        results.append((torch.stack(losses), trainer.state_dict()))
        assert teacher.calls == {0: 2, 2: 6}[chunk_size]
    assert_close(results[0][0], results[1][0])
    for key, value in results[0][1].items():
        if torch.is_tensor(value):
            assert_close(value, results[1][1][key], rtol=1e-5, atol=1e-7)


def without_draws(teacher):
    def forward(images):
        teacher.calls += 1
        return {EMBEDDINGS: teacher.layer(images.flatten(1).float() / 255)}

    torch.nn.init.constant_(teacher.layer.bias, 0.5)
    generator = torch.Generator().manual_seed(4)
    teacher.layer.weight.data = torch.randn(5, 48, generator=generator)
    return forward


# --- runs
def test_a_run_and_its_file_teach_the_same_and_a_run_goes_on(data, tmp_path):
    old = tiny.run(data, tmp_path, "--n_epochs 1 --savename Old --embed_dim 6 --augmentation none")
    flags = "--n_epochs 2 --embed_dim 4 --augmentation none --distill rkd_distance regression"
    new = tiny.run(data, tmp_path, "--teacher", old.folder, flags, "--savename New")
    paths = sorted(str(path) for path in data.rglob("*.*") if path.suffix in (".png", ".jpg"))
    np.savez(tmp_path / "old.npz", features=Embedder(old.folder)(paths), paths=paths)
    of_file = tiny.run(data, tmp_path, "--teacher", tmp_path / "old.npz", flags, "--savename File")
    values, expected = (tiny.values_of_training(run) for run in (of_file, new))
    for epoch in (1, 2):
        assert values[epoch, "distill_loss"] == pytest.approx(expected[epoch, "distill_loss"], rel=1e-3)
    parted = tiny.run(data, tmp_path, "--teacher", old.folder, flags, "--savename Parted --n_epochs 1")
    moved = shutil.move(old.folder, tmp_path / "Moved")
    run_main("--resume_from", parted.folder, "--n_epochs 2 --teacher", moved)
    tiny.assert_equal_runs(new.folder, parted.folder)
    with refused("its teacher had other weights"):
        run_main("--resume_from", parted.folder, "--n_epochs 3 --teacher", tmp_path / "old.npz")
    with refused("sees images of 16 x 16, the student of 24 x 24"):
        tiny.run(data, tmp_path, "--teacher", moved, flags, "--savename Small --crop_size 24 --resize_size 28")
    features = Embedder(moved)(paths)
    for message, arrays in (
        ("lacks 1 of", {"features": features[1:], "paths": paths[1:]}),
        ("holds NaN", {"features": features * np.nan, "paths": paths}),
        ("has no paths", {"features": features}),
        ("logits of 2 classes", {"features": features, "paths": paths, "logits": features[:, :2]}),
        ("has no logits", {"features": features, "paths": paths}),
    ):
        np.savez(tmp_path / "bad.npz", **arrays)
        words = "--trainer classifier --distill logits"
        with refused(message):
            tiny.run(data, tmp_path, "--teacher", tmp_path / "bad.npz", "--augmentation none", words)


def test_a_network_of_timm_gives_its_pooled_features(data, tmp_path):
    network = timm.create_model("test_resnet")
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    config = {"architecture": "test_resnet", "pretrained_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    source = f"timm:local-dir:{tmp_path}"
    opt = tiny.read(data, tmp_path, "--distill sp --freeze_backbone --not_pretrained --teacher", source)
    runtime = Runtime(opt)
    student = tiny.Network()
    draws = torch.get_rng_state()
    teacher = teachers.load(opt, student, {}, runtime)
    assert torch.equal(draws, torch.get_rng_state())
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    pixels = (images / 255 - 0.5) / 0.25
    expected = network.eval().forward_head(network.forward_features(pixels), pre_logits=True)
    assert_close(teacher.network(images)[EMBEDDINGS], expected, rtol=1e-4, atol=1e-5)
    assert teacher.width == expected.shape[1]


@pytest.mark.long
def test_the_logits_of_a_classifier_teach(data, tmp_path):
    old = tiny.run(data, tmp_path, "--n_epochs 1 --savename Old --trainer classifier")
    flags = "--n_epochs 1 --trainer classifier --distill logits rkd_angle --precision bfloat16"
    new = tiny.run(data, tmp_path, "--teacher", old.folder, flags)
    assert tiny.values_of_training(new)[1, "distill_loss"] > 0
    plain = tiny.run(data, tmp_path, "--n_epochs 1 --savename Plain")
    with refused("has no logits, training has 6 classes"):
        tiny.run(data, tmp_path, "--teacher", plain.folder, flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--teacher a.npz --distill sp", "its embeddings are of whole images"),
        ("--teacher run --distill sp --distill_weights pkt=2", "--distill_weights pkt: --distill has sp"),
        ("--teacher run --distill sp --distill_weights sp", "--distill_weights sp: expected NAME=W"),
        ("--teacher run --distill logits", "take --trainer classifier"),
        ("--teacher run --distill logits --trainer classifier --classifier_layer circle_softmax", "gives cosines"),
        ("--teacher run", "has no effect without --distill"),
        ("--distill sp", "has no effect without --teacher"),
        ("--teacher run --distill sp --distill_nearest 2", "--distill_nearest 2 has no effect"),
        (
            "--teacher run --distill sp --freeze_backbone --feature_cache --augmentation none",
            "a step has no images for it",
        ),
    ],
)
def test_what_cannot_act_is_refused(flags, message):
    with refused(message):
        tiny.resolve("--loss multisimilarity", flags)
