"""A search whose files are damaged: one clear line, and nothing is changed or lost."""

import json

import pytest
import yaml

import Bayesian_Optimization
import Run_Script
from search import report
from search.journal import JOURNAL
from tests.search.test_search import RANGES, command, trained, trials_of  # noqa: F401  `trained` is a fixture
from utilities.errors import UserError


@pytest.fixture
def searched(folder_data, tmp_path, trained, monkeypatch):  # noqa: F811
    """The command of a search with three trials and a reproduction, its folder, and its runs, emptied."""
    monkeypatch.setattr(report, "draw", lambda *_: [])  # takes longer than all else
    argv = command(folder_data, tmp_path, *RANGES, "--bayesian_optimization_n_iter", "3", "--reproductions", "1")
    folder = Bayesian_Optimization.search(argv)
    trained.clear()
    return argv, folder, trained


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(argv, folder, said):
    """A search is refused in one line, and not a byte of its folder is changed."""
    before = everything(folder)
    with pytest.raises(UserError, match=said) as error:
        Bayesian_Optimization.search(argv)
    assert everything(folder) == before and "\n" not in str(error.value)
    return str(error.value)


def first(lines, op_code, more=lambda record: True):
    """The place of the first record of a kind."""
    return next(place for place, line in enumerate(lines) if (record := json.loads(line))["op_code"] == op_code and more(record))


def without(lines, place):
    return b"".join([*lines[:place], *lines[place + 1 :]])


CREATE_STUDY, CREATE_TRIAL, SET_PARAM, SET_STATE = 0, 4, 5, 6
DAMAGES = {
    "the first half": (lambda data, lines: data[: len(data) // 2], "is in trials.csv|has a folder|not in it"),
    "nothing": (lambda data, lines: b"", "trial_0 has a folder, and is not in it"),
    "junk": (lambda data, lines: b"junk", "line 1 is not the beginning of a record"),
    "a damaged line": (lambda data, lines: data.replace(b'{"op_code":4', b'{"op_c', 1), "line [0-9]+ cannot be read"),
    "other records": (lambda data, lines: b'{"op_code": 77}\n' + data, "it is not a journal"),
    "no first line": (lambda data, lines: without(lines, first(lines, CREATE_STUDY)), "the beginning of the study folder/Tiny is missing"),
    "no first trial": (lambda data, lines: without(lines, first(lines, CREATE_TRIAL)), "damaged"),
    "no last trial": (lambda data, lines: without(lines, len(lines) - 1 - first(lines[::-1], CREATE_TRIAL)), "trial_2 has a folder, and is not"),
    "no value of a flag": (lambda data, lines: without(lines, first(lines, SET_PARAM, lambda r: r["param_name"] == "lr")), "lacks its value of lr"),
    "no end of a trial": (lambda data, lines: without(lines, first(lines, SET_STATE)), "trial_0 is complete in trials.csv, and not in it"),
    "another value": (lambda data, lines: data.replace(b'"values":[0.', b'"values":[0.1', 1), "another value"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_a_journal_that_lost_something_is_refused(searched, what):
    argv, folder, runs = searched
    path = folder / JOURNAL
    data = path.read_bytes()
    damage, said = DAMAGES[what]
    path.write_bytes(damage(data, data.splitlines(keepends=True)))
    assert path.read_bytes() != data
    message = refused(argv, folder, said)
    assert f"{path} is damaged: " in message and "Nothing was changed" in message and "--group" in message
    path.write_bytes(data)
    Bayesian_Optimization.search(argv)
    assert not runs, "with the copy put back all is as it was"


def test_a_journal_that_is_gone_is_refused(searched):
    argv, folder, _ = searched
    (folder / JOURNAL).unlink()
    refused(argv, folder, "is not there, and trials are: was this search kept in a --study_storage")
    assert not (folder / JOURNAL).exists()


def test_a_finished_trial_without_a_value_in_the_table_is_damage(searched):
    argv, folder, _ = searched
    header, *rows = (folder / "trials.csv").read_text().splitlines(keepends=True)
    cells = rows[0].split(",")
    cells[2] = ""
    (folder / "trials.csv").write_text("".join([header, ",".join(cells), *rows[1:]]))
    refused(argv, folder, "trials.csv is damaged")


def test_another_database_is_refused(searched, tmp_path):
    argv, folder, _ = searched
    refused(
        [*argv, "--study_storage", f"sqlite:///{tmp_path / 'study.db'}"],
        folder,
        "the study in --study_storage is damaged: trial_0 has a folder",
    )


@pytest.mark.parametrize("lost", ["a folder", "a table"])
def test_the_journal_is_compared_with_what_is_left(searched, lost):
    """Each of the two tells by itself; folders and rows that are gone are no damage."""
    argv, folder, _ = searched
    journal = (folder / JOURNAL).read_bytes()
    lines = journal.splitlines(keepends=True)
    last = max(place for place, line in enumerate(lines) if json.loads(line)["op_code"] == CREATE_TRIAL)
    if lost == "a table":
        (folder / "trials.csv").unlink()
        said = "trial_2 has a folder"
    else:
        for path in folder.glob("trial_2*"):
            path.rename(folder / f"moved_{path.name}")
        said = "trial_2 is in trials.csv"
    (folder / JOURNAL).write_bytes(b"".join(lines[:last]))
    refused(argv, folder, said)
    (folder / JOURNAL).write_bytes(journal)
    Bayesian_Optimization.search([*argv, "--reproductions", "0"])
    assert [row["state"] for row in trials_of(folder)] == ["complete"] * 3


def test_a_torn_last_line_is_set_aside_only_if_nothing_is_lost_with_it(searched):
    argv, folder, runs = searched
    path = folder / JOURNAL
    journal = path.read_bytes()
    path.write_bytes(journal[:-5])  # the end of trial_2, which trials.csv knows
    refused(argv, folder, "trial_2 is complete in trials.csv, and not in it")
    path.write_bytes(journal + b'{"op_code":4,"wor')
    Bayesian_Optimization.search(argv)
    assert not runs and path.read_bytes().startswith(journal)
    assert [aside.read_bytes() for aside in folder.glob("journal.log.torn_*")] == [b'{"op_code":4,"wor']


def test_a_folder_that_somebody_else_makes_meanwhile_is_left_alone(folder_data, tmp_path, trained, monkeypatch):  # noqa: F811
    import main

    def train(opt, real=main.main):
        real(opt)
        (tmp_path / "runs" / "folder" / "Tiny_search" / "trial_1").mkdir(exist_ok=True)

    monkeypatch.setattr(main, "main", train)
    argv = command(folder_data, tmp_path, *RANGES, "--bayesian_optimization_n_iter", "3", "--reproductions", "0")
    folder = Bayesian_Optimization.search(argv)
    assert [(row["state"], "somebody else" in row["reason"]) for row in trials_of(folder)] == [
        ("complete", False),
        ("fail", True),
        ("complete", False),
    ]
    Bayesian_Optimization.search(argv)
    assert not list((folder / "trial_1").iterdir())


def cut_ranges(text):
    """As a full disk leaves it: in the middle of the last range."""
    return text[: text.rindex("- ")]


@pytest.mark.parametrize(
    "damage",
    [lambda text: "", lambda text: "flags: [1", lambda text: "- 1", lambda text: "\0", lambda text: "flags: {}\nranges:\n", cut_ranges],
)
def test_damaged_settings(searched, damage):
    argv, folder, _ = searched
    path = folder / "search.yaml"
    path.write_text(damage(path.read_text()))
    assert f"{path} is damaged (" in refused(argv, folder, "move it away")
    with pytest.raises(UserError, match="search.yaml is damaged"):
        Run_Script.SearchTask(Run_Script.SearchLine(1, argv)).standing()
    path.unlink()
    Bayesian_Optimization.search(argv)
    assert set(yaml.safe_load(path.read_text())["ranges"]) == {"lr", "loss_triplet_margin"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "trial: [1",
        lambda text: "- 1",
        lambda text: "trial: trial_0\n",
        lambda text: text[: text.rindex("values:") + 7],
    ],
)
def test_damaged_reproductions(searched, damage):
    argv, folder, runs = searched
    path = folder / "reproductions.yaml"
    whole = yaml.safe_load(path.read_text())
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match="move it away") as error:
        Bayesian_Optimization.search(argv)
    assert f"{path} is damaged (" in str(error.value) and "\n" not in str(error.value) and not runs
    with pytest.raises(UserError, match="reproductions.yaml is damaged"):
        report.progress(folder)
    path.unlink()
    Bayesian_Optimization.search(argv)
    assert yaml.safe_load(path.read_text())["runs"].keys() == whole["runs"].keys()


@pytest.mark.parametrize(
    "damage", [lambda text: "\0\n\0", lambda text: "trial,value\ntrial_0,1\n", lambda text: text.replace("complete,0.", "complete,x", 1)]
)
def test_a_damaged_table(searched, damage):
    argv, folder, _ = searched
    path = folder / "trials.csv"
    whole = path.read_text()
    path.write_text(damage(whole))
    assert path.read_text() != whole
    assert f"{path} is damaged (" in refused(argv, folder, "move it away")
    path.unlink()
    Bayesian_Optimization.search(argv)
    assert path.read_text() == whole
