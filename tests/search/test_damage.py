"""A search whose files are damaged: one clear line, and nothing is changed or lost."""

import contextlib
import shutil
import sqlite3

import pytest
import yaml

from launch import __main__ as launcher
from search import __main__ as searcher
from search import report
from search.study import DATABASE
from tests.search.test_search import RANGES, command, trained, trials_of  # noqa: F401  `trained` is a fixture
from utilities.errors import UserError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Where the first search of this file is kept for the other tests."""
    return tmp_path_factory.mktemp("search") / "finished"


@pytest.fixture
def searched(folder_data, tmp_path, trained, finished):  # noqa: F811
    """The command of a search with three trials and a reproduction, its folder, and its runs, emptied."""
    argv = command(folder_data, tmp_path, *RANGES, "--bayesian_optimization_n_iter", "3", "--reproductions", "1")
    folder = tmp_path / "runs" / "folder" / "Tiny_search"
    if not finished.exists():
        searcher.search(argv)
        shutil.copytree(folder, finished)
        trained.clear()
    else:
        shutil.copytree(finished, folder)
    return argv, folder, trained


def refused(argv, folder, said, what=""):
    """A search is refused in one line, and not a byte of its folder is changed."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=said) as error:
        searcher.search(argv)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert before == after and "\n" not in str(error.value), what
    return str(error.value)


def changed(path, *statements):
    """The bytes of a database after SQL statements."""
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    data = copy.read_bytes()
    copy.unlink()
    return data


LAST = "(select max(trial_id) from trials)"
NO_LAST_TRIAL = [f"delete from {table} where trial_id = {LAST}" for table in ("trial_values", "trial_user_attributes", "trial_params", "trials")]


def damages(path):
    """What -> (bytes, the message)."""
    data = path.read_bytes()
    return {
        "the first half": (data[: len(data) // 2], "is damaged"),
        "nothing": (b"", "does not know trial_0, which has a folder"),
        "junk": (b"junk" * 1000, "not a database"),
        "no study": (changed(path, "delete from studies"), "does not know trial_0"),
        "no last trial": (changed(path, *NO_LAST_TRIAL), "does not know trial_2"),
        "no end of the last trial": (changed(path, f"delete from trial_values where trial_id = {LAST}"), "does not know the value of trial_2"),
        "another value": (changed(path, "update trial_values set value = value + 1"), "does not know the value of trial_0"),
    }


def test_a_study_that_lost_something_is_refused(searched):
    argv, folder, runs = searched
    path = folder / DATABASE
    data = path.read_bytes()
    for what, (damage, said) in damages(path).items():
        path.write_bytes(damage)
        message = refused(argv, folder, said, what)
        assert f"{path} is damaged" in message and "Nothing was changed" in message and "--group" in message
    path.unlink()
    assert "--study_storage" in refused(argv, folder, "does not know trial_0")
    (folder / "journal.log").write_bytes(b"{}")
    refused(argv, folder, "of an earlier version")
    path.write_bytes(data)
    searcher.search(argv)
    assert not runs


def test_another_database_is_refused(searched, tmp_path):
    argv, folder, _ = searched
    refused(
        [*argv, "--study_storage", f"sqlite:///{tmp_path / 'study.db'}"], folder, "the study in --study_storage is damaged, or of another"
    )


@pytest.mark.parametrize("gone", ["trial_2", "trials.csv"])
def test_the_study_is_compared_with_folders_and_table(searched, gone):
    """Each of the two tells by itself; folders and rows that are gone are no damage."""
    argv, folder, _ = searched
    path = folder / DATABASE
    data = path.read_bytes()
    (folder / gone).rename(folder / f"moved_{gone}")
    path.write_bytes(changed(path, *NO_LAST_TRIAL))
    refused(argv, folder, "does not know trial_2")
    path.write_bytes(data)
    searcher.search([*argv, "--reproductions", "0"])
    assert [row["state"] for row in trials_of(folder)] == ["complete"] * 3


@pytest.mark.long
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
    searcher.search(argv)  # its paths are those of this test
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
