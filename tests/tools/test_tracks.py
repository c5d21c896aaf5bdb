"""Re-association in films: the pin, plain loops, what is skipped and said of it, files that do not serve."""

import json

import numpy as np
import pytest

from evaluation import __main__ as command
from tests.kit.plain_metrics import unit
from tests.kit.refusals import refused
from tests.kit.splits import save
from tools import tracks

PIN = {
    "features": np.array([(1, 0, 0), (0.8, 0.6, 0), (0, 1, 0), (0.6, 0.8, 0), (0, 1, 0), (1, 0, 0)]),
    "sequence_names": np.array(["film"] * 6),
    "track": np.array(list("abcabd")),
    "frame": np.array([2, 2, 2, 4, 4, 4]),
}


def measured(folder, arrays, *words):
    """What `python -m evaluation tracks` finds."""
    (file,) = save(folder, crops=arrays)
    return command.main(["tracks", file, *map(str, words)])


def test_the_pin(tmp_path, capsys):
    values = measured(tmp_path, PIN, "--gap", 2, "--stride", 2, "--out", tmp_path / "values.json")
    assert values == {"track_rank1": 0, "track_mrr": pytest.approx(0.4166667, abs=1e-7)}
    assert json.loads((tmp_path / "values.json").read_text()) == values
    output = " ".join(capsys.readouterr().out.split())
    assert "6 crops at frames divisible by 2, 2 scored" in output
    assert "1 whose track is not there 2 frames later" in output and "3 without a crop 2 frames later" in output


def test_random_films_by_loops(tmp_path):
    draw = np.random.default_rng(3)
    rows = []
    for film in range(3):
        for frame in range(1, 41):
            rows += [(film, track, frame) for track in range(5) if draw.random() < 0.5]
    # some are equal
    features = draw.normal(size=(20, 3))[draw.integers(20, size=len(rows))]
    order = draw.permutation(len(rows))
    rows = [rows[i] for i in order]
    films, numbers, frames = (np.array(column) for column in zip(*rows, strict=True))
    x = unit(features)
    reciprocals = []
    for q, (film, track, frame) in enumerate(rows):
        if frame % 4:
            continue
        later = [i for i, row in enumerate(rows) if (row[0], row[2]) == (film, frame + 3)]
        match = [i for i in later if rows[i][1] == track]
        if len(later) >= 2 and match:
            ranking = sorted(later, key=lambda i: (-float((x[i] * x[q]).sum()), i))  # noqa: B023
            reciprocals.append(1 / (1 + ranking.index(match[0])))
    arrays = {"features": features, "sequence_names": films, "track": numbers, "frame": frames}
    values = measured(tmp_path, arrays, "--gap", 3, "--stride", 4)
    assert len(reciprocals) > 20 and values["track_rank1"] == np.mean(np.array(reciprocals) == 1)
    assert values["track_mrr"] == pytest.approx(np.mean(reciprocals), abs=1e-12)


def test_of_equal_candidates_the_first_is_first():
    cosines = np.array([0.5, 0.9, 0.5, 0.5])
    assert [tracks.rank(cosines, match) for match in range(4)] == [2, 1, 3, 4]


def test_a_single_candidate_and_images_of_no_film_are_not_scored(tmp_path, capsys):
    arrays = {**PIN, "frame": np.array([2, 2, 2, 4, -1, -1])}
    with refused("2 scored|0 scored; skipped: .*1 with a single candidate.*--mot_stride 1"):
        measured(tmp_path, arrays, "--gap", 2, "--stride", 2)
    assert not capsys.readouterr().out


def test_files_that_do_not_serve(tmp_path):
    with refused("has no track and no frame"):
        measured(tmp_path, {name: PIN[name] for name in ("features", "sequence_names")})
    with refused("track has shape .*is expected"):
        measured(tmp_path, {**PIN, "track": np.arange(5)})
    with refused("frame holds values of the type float64"):
        measured(tmp_path, {**PIN, "frame": PIN["frame"] / 1})
    with refused("frame 2 of film has track a twice"):
        measured(tmp_path, {**PIN, "track": np.array(list("aacabd"))})
    with refused("0 scored"):
        measured(tmp_path, PIN)
    with refused("NaN|not finite|nan"):
        measured(tmp_path, {**PIN, "features": PIN["features"] * np.nan})
