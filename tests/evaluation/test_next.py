"""Commands of evaluation end with the next one to type, which works as it is printed."""

import shlex

import numpy as np
import pytest

from evaluation import __main__ as command
from retrieval import __main__ as retrieval


@pytest.fixture
def files(tmp_path):
    """A folder, with a blank in its name, of embeddings and pairs."""
    folder = tmp_path / "my files"
    folder.mkdir()
    generator = np.random.default_rng(0)
    labels = np.arange(24) // 4
    for split in ("train", "test"):
        features = np.eye(8)[labels] + generator.normal(size=(24, 8)) / 9
        np.savez(folder / f"embeddings_{split}.npz", features=features, labels=labels)
    np.savez(folder / "levels.npz", features=features, labels=np.stack([labels, labels // 2], 1))
    np.save(folder / "features.npy", features)
    np.save(folder / "labels.npy", labels)
    np.savez(folder / "pairs.npz", first=np.arange(23), second=np.arange(1, 24), same=labels[:-1] == labels[1:])
    return folder


@pytest.fixture
def next_of(capsys):
    """Run a command and return the words that its last line proposes."""

    def proposed(main, *words):
        main([str(word) for word in words])
        beginning, separator, line = capsys.readouterr().out.splitlines()[-1].partition("next: ")
        assert not beginning and separator
        return shlex.split(line)

    return proposed


def test_a_file_of_embeddings_is_explored_next(files, next_of):
    python, *words = next_of(command.main, files / "embeddings_test.npz", "--evaluation_metrics", "map_r")
    assert [python, *words[:2]] == ["python", "-m", "retrieval"]
    assert retrieval.main(words[2:]) == files / "embeddings_test.html"


@pytest.mark.parametrize("words", [["levels.npz"], ["features.npy", "--labels", "labels.npy"]])
def test_a_file_without_a_page_says_what_its_queries_find(files, next_of, words):
    paths = [files / word if "." in word else word for word in words]
    words = next_of(command.main, *paths, "--evaluation_metrics", "map_r")
    assert words[:3] == ["python", "-m", "evaluation"] and words[-2] == "--dump_query_results"
    next_words = next_of(command.main, *words[3:])
    assert next_words[:-2] == words and next_words[-2] == "--out"
    command.main(next_words[3:])
    assert all(list(files.glob(pattern)) for pattern in ("*_queries.npz", "*_metrics.json"))


def test_tables_are_drawn_and_pictures_opened(files, next_of):
    embeddings = files / "embeddings_test.npz"
    drawings = (
        (["compress", embeddings, "--codes", "float32"], files / "embeddings_test_codes" / "compression.png"),
        (["pairs", embeddings, files / "pairs.npz"], files / "embeddings_test_roc.png"),
    )
    for words, picture in drawings:
        drawing = next_of(command.main, *words)
        assert drawing[:3] == ["python", "-m", "evaluation"]
        assert next_of(command.main, *drawing[3:]) == ["python", "-m", "webbrowser", picture.as_uri()]
        assert picture.exists()


def test_a_whitening_serves_the_embeddings_of_test(files, next_of):
    out = files / "white.npz"
    words = next_of(command.main, "whiten", files / "embeddings_train.npz", "--out", out)
    assert words == ["python", "-m", "evaluation", str(files / "embeddings_test.npz"), "--eval_whiten", str(out)]
    command.main([*words[3:], "--evaluation_metrics", "map_r"])
    words = next_of(command.main, "whiten", files / "levels.npz", "--out", out)
    # no other embeddings are known: those of itself prove nothing
    assert words[3:] == ["FILE.npz", "--eval_whiten", str(out)]


def test_notes_break_between_words_and_proposals_stay_whole(files, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    command.main(["pairs", *map(str, (files / "embeddings_test.npz", files / "pairs.npz")), "--far", ".001"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("next: ") and len(lines[-1]) > 100
    words = [line.strip() for line in lines[:-1] if len(line) > 100]
    assert not [line for line in words if " " in line]
