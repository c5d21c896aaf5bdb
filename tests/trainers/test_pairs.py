"""Graded pairs: cosent and angle by loops and the published code, the table, the batches, runs."""

import math

import pytest
import torch

import criteria
from tests.datasets.test_csv import read, write
from tests.datasets.test_several_labels import table
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import run_main

X = torch.tensor([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0.6, 0.8]], dtype=torch.float64)
HALVES = torch.tensor([[1, 0, 0.2, 0], [0.8, 0.6, 0, 0.1], [0, 1, 0.3, 0], [0.1, 0.6, 0.8, 0]], dtype=torch.float64)
CHAIN = [[0, 1], [1, 2], [2, 3]]
LABELS = torch.zeros(4, dtype=torch.long)


def ranked(values, grades, scale):
    """log(1 + sum over grade_j < grade_i of exp(scale (s_j - s_i))) by loops."""
    total = 1.0
    for i, higher in enumerate(grades):
        for j, lower in enumerate(grades):
            if lower < higher:
                total += math.exp(scale * (values[j] - values[i]))
    return math.log(total)


def published_angle(first, second):
    """The similarity as in the authors' `angle_loss`: both norms, sums of both parts of a division."""
    a, b = first.chunk(2)
    c, d = second.chunk(2)
    z = (c**2 + d**2).sum()
    parts = torch.cat([(a * c + b * d) / z, (b * c - a * d) / z])
    lengths = (a**2 + b**2).sum().sqrt() / z.sqrt()
    return (parts / lengths).sum().abs()


def test_pinned_values():
    grades = [0.9, 0.5, 0.1]
    cosent = criteria.select("cosent", loss_cosent_scale=1.0)
    assert cosent(X, LABELS, grades=grades, pairs=CHAIN).item() == pytest.approx(1.2912860, abs=5e-8)
    angle = criteria.select("angle")
    assert angle.scale == 1 and criteria.select("cosent").scale == 20
    assert angle(HALVES, LABELS, grades=grades, pairs=CHAIN).item() == pytest.approx(1.3822232, abs=5e-8)
    similarities = [published_angle(HALVES[i], HALVES[j]).item() for i, j in CHAIN]
    assert similarities == pytest.approx([0.9366857, 0.4384135, 0.8291733], abs=5e-8)


@pytest.mark.parametrize("name", ["cosent", "angle"])
@pytest.mark.parametrize("grades", [[3, 1, 2, 2, 1, 0.5], [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0]])
def test_a_batch_of_pairs_is_that_of_loops(name, grades):
    """Ties count nowhere; all of one grade give 0 with a graph."""
    points = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    criterion = criteria.select(name, **{f"loss_{name}_scale": 3.0})
    value = criterion(points, torch.arange(12), grades=torch.tensor(grades))
    similarity = published_angle if name == "angle" else lambda a, b: a @ b / a.norm() / b.norm()
    values = [similarity(*pair).item() for pair in points.view(6, 2, 4)]
    assert value.item() == pytest.approx(ranked(values, grades, 3.0), abs=1e-12)
    assert torch.isfinite(torch.autograd.grad(value, points)[0]).all()
    if len(set(grades)) > 1:
        assert torch.autograd.gradcheck(lambda x: criterion(x, torch.arange(12), grades=torch.tensor(grades)), points)
        assert 0 <= criterion.stats["misordered_share"] <= 1


def test_odd_widths_zero_rows_and_half_precision():
    with refused("--loss angle halves embeddings of 3 dimensions"):
        criteria.select("angle")(X, LABELS)
    for name in ("cosent", "angle"):
        rows = torch.zeros(4, 4, requires_grad=True)
        value = criteria.select(name)(rows, LABELS, grades=[1, 0])
        assert value.item() == pytest.approx(math.log(2))
        assert torch.isfinite(torch.autograd.grad(value, rows)[0]).all()
        assert criteria.select(name)(HALVES.bfloat16(), LABELS, grades=[1, 0]).dtype == torch.float32


def pair_rows(*rows):
    """Rows of a table of pairs of training images, by number."""
    names = ("path_1", "path_2", "grade")
    paths = [(f"images/train_{i}.png", f"images/train_{j}.png", grade) for i, j, grade in rows]
    return [dict(zip(names, row, strict=True)) for row in paths]


GOOD = [(0, 1, 1), (2, 3, 0.5), (4, 5, 0), (0, 5, 0.25), (1, 3, 2), (3, 1, -1)]


def splits_of(folder, rows):
    path = write(folder / "p.csv", rows)
    return read(folder / "t.csv", table(folder), dataset_csv_pairs=str(path), trainer="pairs")


def test_pairs_are_joined_by_paths(tmp_path):
    training = splits_of(tmp_path, pair_rows(*GOOD))["training"]
    names = [path.rpartition("/")[2] for path in training.paths]
    assert training.graded_pairs.grades.tolist() == [grade for _, _, grade in GOOD]
    for (i, j, _), rows in zip(GOOD, training.graded_pairs.rows.tolist(), strict=True):
        assert [names[row] for row in rows] == [f"train_{i}.png", f"train_{j}.png"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pair_rows(*GOOD, (0, 99, 1)), r"row 8: path_2 'images/train_99.png' is no image of the data set"),
        (pair_rows(*GOOD, (0, 2, "nan")), "row 8: grade 'nan', expected a finite number"),
        (pair_rows(*GOOD, (0, 2, "")), "row 8: grade '', expected a finite number"),
        (pair_rows(*GOOD, (0, 2, "inf")), "row 8: grade 'inf', expected a finite number"),
        (pair_rows(*GOOD, (2, 2, 1)), "row 8: a pair of an image with itself"),
        (pair_rows(*GOOD, (0, 1, 0.5)), "row 8: grade 0.5, and the pair has grade 1 above"),
        (pair_rows((0, 1, 1), (2, 3, 1)), "2 pairs of training images of 1 grades: it needs two"),
        ([{"path_1": "a", "grade": 1}], "no column path_2 among path_1, grade"),
    ],
)
def test_bad_tables_are_refused(tmp_path, rows, message):
    with refused(message):
        splits_of(tmp_path, rows)


def test_pairs_of_other_images_are_left_out(tmp_path):
    rows = pair_rows(*GOOD)
    rows[0]["path_2"] = "images/validation_1.png"
    training = splits_of(tmp_path, rows)["training"]
    assert len(training.graded_pairs.rows) == len(GOOD) - 1
    assert any("1 pairs are left out" in note for note in training.notes)


def words(folder, *flags):
    pairs = write(folder / "p.csv", pair_rows(*GOOD))
    path = write(folder / "t.csv", table(folder))
    start = f"--dataset csv --dataset_csv {path} --dataset_csv_pairs {pairs} --trainer pairs --arch conv4"
    return (start, f"--bs 4 --kernels 0 --evaluation_metrics e_recall@1 --save_path {folder / 'runs'}", *flags)


def test_steps_get_the_grades_of_their_pairs(tmp_path, monkeypatch):
    """bs / 2 pairs a batch, each pair once an epoch, with the grade of the table."""
    seen = []
    trainer_class = type(tiny.trainer("metric_only")[0])
    metric_loss = trainer_class.metric_loss

    def recorded(self, outputs, batch, **arguments):
        seen.append((batch.indices.view(-1, 2).tolist(), arguments["grades"].tolist()))
        return metric_loss(self, outputs, batch, **arguments)

    monkeypatch.setattr("trainers._trainer.Trainer.metric_loss", recorded)
    run_main(*words(tmp_path, "--loss cosent --n_epochs 2"))
    training = splits_of(tmp_path, pair_rows(*GOOD))["training"]
    grade_of = dict(zip(map(tuple, training.graded_pairs.rows.tolist()), training.graded_pairs.grades, strict=True))
    assert len(seen) == 6 and all(len(grades) == 2 for _, grades in seen)
    for epoch in (seen[:3], seen[3:]):
        pairs = [tuple(pair) for rows, _ in epoch for pair in rows]
        assert sorted(pairs) == sorted(grade_of)
        assert [grade_of[pair] for pair in pairs] == [grade for _, grades in epoch for grade in grades]


@pytest.mark.parametrize("size", [5, 14])
def test_batches_that_pairs_do_not_fill(tmp_path, size):
    with refused(f"--bs {size}[: ]"):
        run_main(*words(tmp_path, f"--loss angle --dry_run --bs {size}"))


@pytest.mark.long
def test_a_run_resumes_exactly(tmp_path):
    straight = run_main(*words(tmp_path, "--loss angle --n_epochs 2 --savename straight --views 2 --chunk_size 3"))
    run_main(*words(tmp_path, "--loss angle --n_epochs 1 --savename part --views 2 --chunk_size 3"))
    part = run_main(*words(tmp_path, "--loss angle --n_epochs 2 --savename part --views 2 --chunk_size 3 --resume"))
    tiny.assert_equal_runs(straight.folder, part.folder)
