"""Text for a terminal of some width, and for files."""

import pytest

from utilities import console

SENTENCE = (
    "  note  --some_flag has no effect without --another_flag: leave it out, or give both of them on one command line"
)


@pytest.fixture(params=[40, 72, 100])
def columns(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def test_lines_break_between_words_and_keep_their_indent(columns):
    lines = console.wrapped(f"short\n{SENTENCE}", 8).splitlines()
    assert lines[0] == "short" and len(lines) > 2 and max(map(len, lines)) <= columns
    assert lines[1].startswith("  note  --some_flag") and all(
        line.startswith(" " * 8) and line[8] != " " for line in lines[2:]
    )
    assert " ".join(line.strip() for line in lines[1:]).split() == SENTENCE.split()


def test_a_word_that_is_too_long_stays_whole(columns):
    path = "/" + "a-very-long/" * 12
    assert path in console.wrapped(f"written to {path} in a moment").splitlines()


def test_without_a_terminal_lines_stay_whole(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console.width() is None and console.wrapped(SENTENCE * 3) == SENTENCE * 3
    assert console.joined(["a" * 200, "b"]) == "a" * 200 + "  b"


def test_tables_are_aligned_and_fit(columns):
    rows = [
        ["model", *(f"metric@{i}" for i in range(12))],
        *([f"model {n}", *(f"{n * i / 7:.2f}" for i in range(12))] for n in (1, 100)),
    ]
    table_lines = console.aligned(rows)
    assert len(table_lines) == 4 and set(table_lines[1]) == {"-", " "} and len({len(line) for line in table_lines}) == 1
    fitted = console.aligned(rows, fitted=True)
    assert max(map(len, fitted)) <= columns
    blocks = "\n".join(fitted).split("\n\n")
    cells = [line.split() for block in blocks for line in (block.splitlines()[2:3])]
    assert (
        all(row[:2] == ["model", "1"] for row in cells) and [value for row in cells for value in row[2:]] == rows[1][1:]
    )


def test_flags_are_taken_out_of_a_command_with_their_values():
    words = "--lr 1 --dry_run --profile_steps 5 --profile_steps=7 --name --last".split()
    n_values = {"--dry_run": 0, "--profile_steps": 1, "--nothing": 2}
    assert console.without_flags(words, n_values) == "--lr 1 --name --last".split()
