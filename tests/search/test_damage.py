"""A search whose files are damaged: one clear line, and nothing is changed or lost."""

import json

import pytest
import yaml

from launch import __main__ as launcher
from search import __main__ as searcher
from search import report
from search.journal import JOURNAL
from tests.search.test_search import RANGES, command, trained, trials_of  # noqa: F401  `trained` is a fixture
from utilities.errors import UserError


@pytest.fixture
def searched(folder_data, tmp_path, trained, monkeypatch):  # noqa: F811
    """The command of a search with three trials and a reproduction, its folder, and its runs, emptied."""
    monkeypatch.setattr(report, "draw", lambda *_: [])  # takes longer than all else
    argv = command(folder_data, tmp_path, *RANGES, "--bayesian_optimization_n_iter", "3", "--reproductions", "1")
    folder = searcher.search(argv)
    trained.clear()
    return argv, folder, trained


def refused(argv, folder, said, what=""):
    """A search is refused in one line, and not a byte of its folder is changed."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=said) as error:
        searcher.search(argv)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert before == after and "\n" not in str(error.value), what
    return str(error.value)


def place(lines, op_code):
    """The places of all records of a kind."""
    return [number for number, line in enumerate(lines) if json.loads(line)["op_code"] == op_code]


CREATE_STUDY, CREATE_TRIAL = 0, 4
DAMAGES = {
    "the first half": (lambda lines: b"".join(lines)[: len(b"".join(lines)) // 2], "does not know"),
    "nothing": (lambda lines: b"", "does not know trial_0, which has a folder"),
    "junk": (lambda lines: b"junk", "does not know trial_0"),
    "a damaged line": (lambda lines: b"".join(lines).replace(b'{"op_code":4', b'{"op_c', 1), "it is not a journal"),
    "other records": (lambda lines: b'{"op_code": 77}\n' + b"".join(lines), "it is not a journal"),
    "no first line": (lambda lines: b"".join(lines[place(lines, CREATE_STUDY)[0] + 1 :]), "does not know trial_0"),
    "no last trial": (lambda lines: b"".join(lines[: place(lines, CREATE_TRIAL)[-1]]), "does not know trial_2"),
    "no end of the last trial": (lambda lines: b"".join(lines)[:-5], "does not know the value of trial_2"),
    "another value": (lambda lines: b"".join(lines).replace(b'"values":[0.', b'"values":[0.1', 1), "the value of trial_0"),
}  # fmt: skip


def test_a_journal_that_lost_something_is_refused(searched, capsys):
    argv, folder, runs = searched
    path = folder / JOURNAL
    data = path.read_bytes()
    for what, (damage, said) in DAMAGES.items():
        path.write_bytes(damage(data.splitlines(keepends=True)))
        assert path.read_bytes() != data
        message = refused(argv, folder, said, what)
        assert f"{path} is damaged" in message and "Nothing was changed" in message and "--group" in message
    path.unlink()
    assert "--study_storage" in refused(argv, folder, "does not know trial_0")
    path.write_bytes(data + b'{"op_code":4,"torn')  # a process was killed as it wrote: nothing is lost with that
    searcher.search(argv)
    assert not runs and path.read_bytes().startswith(data) and b'"torn' not in path.read_bytes()
    assert "its last line was cut off" in capsys.readouterr().out


def test_another_database_is_refused(searched, tmp_path):
    argv, folder, _ = searched
    refused(
        [*argv, "--study_storage", f"sqlite:///{tmp_path / 'study.db'}"], folder, "the study in --study_storage is damaged, or of another"
    )


@pytest.mark.parametrize("gone", ["trial_2*", "trials.csv"])
def test_the_journal_is_compared_with_folders_and_table(searched, gone):
    """Each of the two tells by itself; folders and rows that are gone are no damage."""
    argv, folder, _ = searched
    journal = (folder / JOURNAL).read_bytes()
    lines = journal.splitlines(keepends=True)
    for path in folder.glob(gone):
        path.rename(folder / f"moved_{path.name}")
    (folder / JOURNAL).write_bytes(b"".join(lines[: place(lines, CREATE_TRIAL)[-1]]))
    refused(argv, folder, "does not know trial_2")
    (folder / JOURNAL).write_bytes(journal)
    searcher.search([*argv, "--reproductions", "0"])
    assert [row["state"] for row in trials_of(folder)] == ["complete"] * 3


def test_a_folder_that_somebody_else_makes_meanwhile_is_left_alone(folder_data, tmp_path, trained, monkeypatch):  # noqa: F811
    import main

    def train(opt, real=main.main):
        real(opt)
        (tmp_path / "runs" / "folder" / "Tiny_search" / "trial_1").mkdir(exist_ok=True)

    monkeypatch.setattr(main, "main", train)
    argv = command(folder_data, tmp_path, *RANGES, "--bayesian_optimization_n_iter", "3")
    folder = searcher.search(argv)
    found = [(row["state"], "somebody else" in row["reason"]) for row in trials_of(folder)]
    assert found == [("complete", False), ("fail", True), ("complete", False)]
    searcher.search(argv)
    assert not list((folder / "trial_1").iterdir())


def tried(path, damages, look):
    """`look()` gives one line that names the file and the way out for each damage."""
    whole = path.read_text()
    for damage in damages:
        path.write_text(damage(whole))
        assert path.read_text() != whole
        with pytest.raises(UserError, match="move it away") as error:
            look()
        assert f"{path} is damaged (" in str(error.value) and "\n" not in str(error.value)
    path.unlink()


JUNK = [lambda text: "", lambda text: "flags: [1", lambda text: "- 1", lambda text: "\0"]


def test_damaged_settings(searched):
    argv, folder, _ = searched
    path = folder / "search.yaml"
    more = [lambda text: "flags: {}\nranges:\n", lambda text: text[: text.rindex("- ")]]  # as a full disk leaves it
    whole = path.read_text()
    tried(path, JUNK + more, lambda: searcher.search(argv))
    path.write_text("")
    with pytest.raises(UserError, match="search.yaml is damaged"):
        launcher.SearchTask(launcher.SearchLine(1, argv)).standing()
    path.unlink()
    searcher.search(argv)
    assert path.read_text() == whole


def test_damaged_reproductions(searched):
    argv, folder, runs = searched
    path = folder / "reproductions.yaml"
    whole = yaml.safe_load(path.read_text())
    more = [lambda text: "trial: trial_0\n", lambda text: text[: text.rindex("values:") + 7]]
    tried(path, JUNK + more, lambda: report.how_far(folder, 3, 1))
    path.write_text("")
    with pytest.raises(UserError, match="reproductions.yaml is damaged"):
        searcher.search(argv)
    assert not runs
    path.unlink()
    searcher.search(argv)
    assert yaml.safe_load(path.read_text())["runs"].keys() == whole["runs"].keys()


def test_a_damaged_table(searched):
    argv, folder, _ = searched
    path = folder / "trials.csv"
    whole = path.read_text()
    damages = [lambda text: "\0\n\0", lambda text: "trial,value\ntrial_0,1\n", lambda text: text.replace("complete,0.", "complete,x", 1)]
    tried(path, damages, lambda: searcher.search(argv))
    searcher.search(argv)
    assert path.read_text() == whole
