"""experiments/objects: components of simulated differences, runs that continue, the page of made runs."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import architectures
from experiments.objects import analysis, components, evidence, finetune, tables, training
from experiments.objects.evidence import LOSSES, STAGES, Stage
from results import planning
from utilities.errors import UserError
from utilities.files import write_csv, write_npz
from utilities.reading import read_records

TRUE = {"T": 0.3, "E": 0.8, "TE": 0.36, "S": 0.15, "r": 1.09}


def made_differences(rng, sets=8, seeds=3):
    shapes = {
        "T": (sets, 1, 1),
        "E": (1, sets, 1),
        "TE": (sets, sets, 1),
        "S": (sets, 1, seeds),
        "r": (sets, sets, seeds),
    }
    differences = sum(np.sqrt(TRUE[name]) * rng.normal(size=shape) for name, shape in shapes.items())
    differences[np.arange(sets), np.arange(sets)] = np.nan
    return differences


@pytest.mark.parametrize("missing", [0, 9])
def test_components_of_simulated_differences_are_unbiased(missing):
    rng = np.random.default_rng(missing)
    holes = rng.choice(64, missing, replace=False)
    estimates = []
    for _ in range(500):
        differences = made_differences(rng)
        differences.reshape(64, 3)[holes] = np.nan
        estimates.append(components.estimate(differences))
    for name, true in TRUE.items():
        assert np.mean([of_draw[name] for of_draw in estimates]) == pytest.approx(true, rel=0.1), name


def test_components_of_a_full_table_are_those_of_its_mean_squares():
    values = np.random.default_rng(0).normal(size=(5, 4, 3))
    cells = values.mean(2)
    residuals = cells - cells.mean(1, keepdims=True) - cells.mean(0) + cells.mean()
    # a mean square that is TE + r / J on average
    square = (residuals**2).sum() / 12
    inner = values - cells[..., None] - values.mean(1, keepdims=True) + values.mean((1, 2), keepdims=True)
    r = (inner**2).sum() / (5 * 3 * 2)
    s = values.mean(1).var(1, ddof=1).mean() - r / 4
    expected = {
        "T": cells.mean(1).var(ddof=1) - square / 4 - s / 3,
        "E": cells.mean(0).var(ddof=1) - square / 5,
        "TE": square - r / 3,
        "S": s,
        "r": r,
    }
    assert components.estimate(values) == pytest.approx(expected)


def test_the_interval_of_components_is_that_of_a_jackknife():
    differences = made_differences(np.random.default_rng(1), sets=5)
    centre = components.estimate(differences)["E"]
    estimates = []
    for index in range(5):
        remaining = [number for number in range(5) if number != index]
        estimates.append(components.estimate(differences[remaining][:, remaining])["E"])
    half = 2.7764 * np.sqrt(4 / 5 * np.sum((np.array(estimates) - np.mean(estimates)) ** 2))
    assert components.interval([differences])["E"] == pytest.approx((centre - half, centre + half), rel=1e-4)


def test_every_set_is_a_test_of_all_others_and_of_itself_never():
    stage = STAGES["main"]
    for train_set in stage.members():
        tests = dict(stage.tests(train_set))
        assert sorted([*tests, train_set]) == list(range(20))
        early = {test_set for test_set, steps in tests.items() if len(steps) > 1}
        assert early == {evidence.partner(train_set), evidence.third(train_set)} and len(early) == 2
    assert evidence.partner(7) == 6 and evidence.third(6) == evidence.third(7) == 8 and evidence.third(19) == 0


# ---------- runs
@pytest.fixture
def made_data(tmp_path, monkeypatch):
    """A folder of features of six sets of three classes; stages of four sets and two seeds, three steps each."""
    rng = np.random.default_rng(0)
    labels = [f"s/c{number:02}" for number in range(18)]
    features = np.abs(rng.normal(size=(18, 1, 16)) + 0.5 * rng.normal(size=(18, 12, 16))).reshape(-1, 16)
    write_npz(tmp_path / evidence.FEATURES, {"features": features.astype(np.float32), "labels": np.repeat(labels, 12)})
    (tmp_path / "objects_sets").mkdir()
    sets = [labels[start : start + 3] for start in range(0, 18, 3)]
    (tmp_path / "objects_sets" / "3.json").write_text(json.dumps(sets))
    small = Stage(classes=3, file_classes=3, sets=4, seeds=2, images=12)
    stages = {
        "tune": dataclasses.replace(small, first=4, sets=2, seeds=1),
        "main": dataclasses.replace(small, checkpoints=True),
    }
    monkeypatch.setattr(evidence, "STAGES", stages)
    for name, value in (("STEPS", 3), ("CHECKPOINTS", (1, 2)), ("RATES", (0.001, 0.01)), ("LOSSES", LOSSES[3:5])):
        monkeypatch.setattr(evidence, name, value)
    monkeypatch.setattr(training, "WORDS", training.WORDS.replace("112", "32"))
    return tmp_path


@pytest.fixture
def made_pictures(tmp_path, monkeypatch):
    """Six sets of three classes with four pictures each, and weights; the last two sets tune."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(18):
        folder = tmp_path / f"c{number:02}"
        folder.mkdir()
        for view in range(4):
            Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(folder / f"{view}.png")
            rows.append((folder.name, f"{folder.name}/{view}.png"))
    write_csv(tmp_path / "objects.csv", ("label", "path"), rows)
    (tmp_path / "objects_sets").mkdir()
    sets = [[f"c{number:02}" for number in range(start, start + 3)] for start in range(0, 18, 3)]
    (tmp_path / "objects_sets" / "100.json").write_text(json.dumps(sets))
    network = architectures.select(training.ARCH, not_pretrained=True)
    state = {key: value.contiguous() for key, value in network.backbone.state_dict().items()}
    safetensors.torch.save_file(state, str(tmp_path / "efficientnet_lite0.safetensors"))
    monkeypatch.setitem(STAGES, "tune", dataclasses.replace(STAGES["tune"], first=4))
    monkeypatch.setattr(training, "WORDS", training.WORDS.replace("112", "8"))
    return tmp_path


@pytest.mark.long
def test_features_are_those_of_the_frozen_network(made_pictures):
    arrays = np.load(evidence.extract(made_pictures))
    assert arrays["features"].shape == (72, 1280) and arrays["labels"].tolist() == sorted(arrays["labels"])
    weights = str(made_pictures / "efficientnet_lite0.safetensors")
    network = architectures.select(training.ARCH, weights=weights).eval()
    image = torch.from_numpy(np.array(Image.open(made_pictures / "c03/2.png"))).permute(2, 0, 1)
    with torch.no_grad():
        expected = network(image[None])[1]["pooled"][0]
    assert torch.allclose(torch.from_numpy(arrays["features"][14]), expected, atol=1e-4)


def run_stages(data, *stages):
    losses = ["--losses", *evidence.LOSSES]
    evidence.main(["--stages", *stages, "--data", str(data), "--rows", str(data / "rows"), *losses])


def test_runs_continue_where_they_were_stopped(made_data):
    run_stages(made_data, "tune", "main")
    folder = made_data / "rows" / "main"
    file = folder / "softmax.csv"
    lines = file.read_text().splitlines()
    # 4 sets x 2 seeds, each of 3 tests, of which two also after two earlier steps
    assert len(lines) == 1 + 4 * 2 * (3 + 2 * 2) and lines[0] == ",".join(evidence.HEAD)
    assert {line.split(",")[4] for line in lines[1:]} == {"1", "2", "3"}
    with np.load(folder / "softmax.npz") as arrays:
        by_class = {name: arrays[name] for name in arrays.files}
    assert {array.shape for array in by_class.values()} == {(3, 2, 3)} and len(by_class) == 8
    for line in lines[1:]:
        _, train_set, seed, test_set, step, r1, map_r, rate = line.split(",")
        if step == "3":
            place = [number for number in range(4) if number != int(train_set)].index(int(test_set))
            hits, precision = by_class[f"{train_set}_{seed}_{float(rate):g}"][place]
            assert float(r1) == pytest.approx(100 * hits.sum() / 36, abs=1e-3)
            assert float(map_r) == pytest.approx(100 * precision.mean() / 255, abs=0.2)
    # the last run is torn, another is lost: both are run again, to the same numbers
    kept_lines = [line for line in lines if not line.startswith("softmax,1,0,")]
    file.write_text("\n".join(kept_lines)[:-9])
    before = file.read_text().splitlines()[:3]
    run_stages(made_data, "main")
    assert sorted(file.read_text().splitlines()) == sorted(lines) and file.read_text().splitlines()[:3] == before


def test_rows_of_another_rate_and_missing_data_are_refused(made_data):
    with pytest.raises(UserError, match="run --stages tune first"):
        run_stages(made_data, "main")
    folder = made_data / "rows" / "main"
    folder.mkdir(parents=True)
    write_csv(folder / "softmax.csv", evidence.HEAD, [("softmax", 0, 0, 1, 3, 1, 1, 0.5)])
    with pytest.raises(UserError, match="has runs with the rate 0.5"):
        evidence.Rows(folder, evidence.STAGES["main"], "softmax", [0.01])
    with pytest.raises(UserError, match="set 5 has not 3 classes of 99 images"):
        stage = dataclasses.replace(evidence.STAGES["main"], images=99, first=5, sets=1)
        evidence.samples(made_data, stage)


def test_a_score_is_that_of_a_slow_count():
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(12, 4))
    labels = np.repeat(np.arange(3), 4)
    squares = ((embeddings[:, None] - embeddings) ** 2).sum(2)
    np.fill_diagonal(squares, np.inf)
    found_relevant = labels[squares.argsort(1)[:, :3]] == labels[:, None]
    precision = (found_relevant * found_relevant.cumsum(1) / np.arange(1, 4)).sum(1) / 3
    result = training.score(torch.tensor(embeddings), torch.tensor(labels))
    assert result.r1 == pytest.approx(100 * found_relevant[:, 0].mean())
    assert result.map_r == pytest.approx(100 * precision.mean())
    assert result.hits.tolist() == found_relevant[:, 0].reshape(3, 4).sum(1).tolist()
    assert result.precision == pytest.approx(255 * precision.reshape(3, 4).mean(1), abs=0.51)


@pytest.mark.long
def test_fine_tuning_times_itself_and_leaves_out_seeds(made_pictures, monkeypatch, capsys):
    data = made_pictures
    words = ["--data", str(data), "--rows", str(data), "--draws", "2", "--steps", "2", "--precision", "float32"]
    finetune.main([*words, "--minutes", "60"])
    rows = read_records(data / "finetune.csv")[1]
    cells = {(row["loss"], row["train_set"], row["test_set"], row["seed"]) for row in rows}
    assert len(cells) == len(rows) == 2 * 2 * 2 * 2 and {row["test_set"] for row in rows} == {"1", "3"}
    assert "2 seeds of 2" in capsys.readouterr().out
    with pytest.raises(UserError, match="--minutes 0.0001: one seed of all draws does not fit"):
        finetune.main([*words, "--minutes", "0.0001"])
    monkeypatch.setattr(tables, "LOSSES", finetune.LOSSES)
    scores = np.random.default_rng(0).normal(size=(2, 2, 4, 4, 2))
    runs = analysis.Runs(STAGES["main"], scores, None, 2, np.arange(4), 0)
    lines = [line for line in tables.finetuning(data, runs).splitlines() if line.startswith(("| R@1 |", "| MAP@R |"))]
    networks = [line.split(" | ")[1] for line in lines]
    assert networks == ["fine-tuned", "adapter"] * 2 and not any("| - " in line for line in lines)
    differences = scores[0, 0, :4:2, 1:4:2] - scores[0, 1, :4:2, 1:4:2]
    assert f"| {components.estimate(differences)['r']:.3f} |" in lines[1]


# ---------- the page
def made_rows(folder, seeds, sets=20):
    """Rows of all losses of `main`, with normal draws in place of runs."""
    rng = np.random.default_rng(0)
    base = rng.normal(50, 5, sets)
    for number, loss in enumerate(LOSSES):
        rows = []
        by_class = {}
        for seed in range(seeds):
            for train_set in range(sets):
                hits = []
                for test_set, steps in STAGES["main"].tests(train_set):
                    for step in steps:
                        value = base[test_set] + 0.4 * number + rng.normal() + step / 100
                        rows.append((loss, train_set, seed, test_set, step, f"{value:.3f}", f"{value / 2:.4f}", 0.001))
                    of_classes = rng.binomial(10, 0.5 + number / 100, 100)
                    hits.append((of_classes, 12 * of_classes))
                by_class[f"{train_set}_{seed}_0.001"] = np.array(hits, np.uint8)
        (folder / "main").mkdir(parents=True, exist_ok=True)
        write_csv(folder / "main" / f"{loss}.csv", evidence.HEAD, rows)
        write_npz(folder / "main" / f"{loss}.npz", by_class)
        tuning = []
        for rate in evidence.RATES:
            tuning += [
                (loss, train_set, seed, 41 - train_set, 240, 50, 20, rate) for train_set in (20, 21) for seed in (0, 1)
            ]
        (folder / "tune").mkdir(exist_ok=True)
        write_csv(folder / "tune" / f"{loss}.csv", evidence.HEAD, tuning)
    write_csv(folder / "frozen.csv", evidence.HEAD, [("frozen", "", "", number, 0, 40, 20, "") for number in range(22)])


@pytest.mark.long
def test_the_page_is_written_from_the_rows_alone(tmp_path, monkeypatch, capsys):
    made_rows(tmp_path / "rows", 2)
    monkeypatch.setattr(planning, "SHIPPED_FILE", tmp_path / "components.csv")
    tables.main(["--rows", str(tmp_path / "rows"), "--write", str(tmp_path)])
    page = (tmp_path / "evidence.md").read_text()
    assert "{" not in page and "nan" not in page
    assert "`main` 320 of 800 (2 seeds of 20 training sets are analysed)" in page
    assert "the rate is at an end" in page and "Not finished: no number is shown." in page
    assert "With 100 test classes and 2 seeds (20 training sets)" in page and page.count("**Result.**") == 1
    runs = analysis.read(tmp_path / "rows", "main")
    expected = components.mean_estimate(runs.differences(0))
    for of_metric in planning.read(planning.SHIPPED):
        assert of_metric.source == f"{analysis.SOURCE} (unfinished: 2 seeds of 20 training sets)"
    shipped = planning.read(planning.SHIPPED, ["e_recall@1"])[0].variances
    assert shipped == pytest.approx({name: max(value, 0) for name, value in expected.items()}, abs=1e-4)
    for name in ("design", "parts", "splits"):
        assert (tmp_path / f"evidence_{name}.png").stat().st_size > 5000


def test_no_number_is_shown_of_one_seed(tmp_path, monkeypatch, capsys):
    made_rows(tmp_path, 1)
    monkeypatch.setattr(planning, "SHIPPED_FILE", tmp_path / "components.csv")
    tables.main(["--rows", str(tmp_path), "--write", str(tmp_path)])
    page = (tmp_path / "evidence.md").read_text()
    assert "- **Result.** Not finished: `main` 160 of 800;" in page and "Not run yet" in page
    assert not any(text in page for text in ("{", "(80 % power)", "evidence_splits", "### Selection"))
    assert not planning.SHIPPED_FILE.exists() and "no components are written" in capsys.readouterr().out
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings[1:] == ["## Summary", "## Appendix", "### Fine-tuning", "### Protocol"]


def test_only_complete_training_sets_are_analysed(tmp_path):
    made_rows(tmp_path, 2)
    path = tmp_path / "main" / "softmax.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith(("softmax,3,1,", "softmax,9,"))) + "\n")
    runs = analysis.read(tmp_path, "main")
    assert runs.seeds == 2 and runs.finished == 320 - 1 - 2
    assert runs.trained.tolist() == [number for number in range(20) if number not in (3, 9)]
    first = runs.differences(1)[0]
    assert np.isnan(first[[3, 9]]).all() and np.isfinite(first[0, 1:]).all()
    for metric, percents in enumerate(analysis.by_class(tmp_path / "main", runs)):
        assert analysis.verdicts(runs, metric, percents).count == 18 * len(analysis.PAIRS)
    assert analysis.selection(runs, 0).by_test[0].low < analysis.selection(runs, 0).by_test[0].high


def test_selection_is_that_of_loops(tmp_path):
    made_rows(tmp_path, 2)
    runs = analysis.read(tmp_path, "main")
    expected = []
    for split in range(20):
        gains = []
        for seed in range(2):
            third, partner = runs.early[0, 3, split, :, :, seed]
            gains.append(partner.max() - partner[third.argmax()])
        expected.append(np.mean(gains))
    change = analysis.selection(runs, 0).by_test[3]
    assert change.value == pytest.approx(np.mean(expected)) and change.low < change.value < change.high
    bound = tables.largest_changes([analysis.selection(runs, 0)])[0]
    assert bound >= max(abs(pair.value) for pair in analysis.selection(runs, 0).of_difference)
