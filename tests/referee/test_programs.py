"""The programs that are installed: this project by its four doors, and the page of results."""

import importlib.metadata
import json
import sys

import pytest

from referee import __main__ as program
from referee import asking, judge, page

CASES = judge.read()
RESULTS = json.loads(program.RESULTS.read_text(encoding="utf-8"))


def ask(name: str) -> dict:
    answers = program.ask(name, CASES, asking.SECONDS)
    return json.loads(json.dumps(answers))


def is_installed(name: str) -> bool:
    """Whether a program is there at the version of the page."""
    packages = __import__(f"referee.adapters.{name}", fromlist=["PACKAGES"]).PACKAGES
    for package in packages:
        try:
            if importlib.metadata.version(package) == RESULTS[name]["version"]:
                return True
        except importlib.metadata.PackageNotFoundError:
            continue
    return not packages


@pytest.mark.parametrize(
    "name",
    [
        "dmlkit_compute",
        *(pytest.param(f"dmlkit_{door}", marks=pytest.mark.long) for door in ("file", "lists", "run")),
    ],
)
def test_this_project_passes_every_case_by_its_doors(name):
    answers = ask(name)
    assert [row for row in answers["verdicts"] if row[3] != "equal"] == []
    assert len({row[0] for row in answers["verdicts"]}) > 70
    assert answers == RESULTS[name], "docs/referee.md is old: python -m referee"


@pytest.mark.long
@pytest.mark.parametrize(
    "name", sorted(set(asking.adapters()) - {f"dmlkit_{x}" for x in "compute file lists run".split()})
)
def test_results_are_current_where_a_program_is_installed(name):
    if not is_installed(name):
        pytest.skip(f"{name} {RESULTS[name]['version']} is not installed: make referee")
    assert ask(name) == RESULTS[name], "docs/referee.md is old: python -m referee"


def test_the_page_is_that_of_the_results():
    assert program.PAGE.read_text(encoding="utf-8") == page.text(RESULTS, CASES), "python -m referee --page_alone"
    assert len(RESULTS) >= 14


def test_each_kind_of_case_has_a_place_on_the_page():
    kinds = [kind for kinds in page.THEMES.values() for kind in kinds]
    assert sorted(kinds) == sorted({case["kind"] for case in CASES})


def adapter(folder, monkeypatch, body: str):
    """An adapter `mine` in a copy of the folder, where workers find it."""
    import shutil

    copy = folder / "referee"
    shutil.copytree(asking.FOLDER, copy)
    text = f'"""Mine."""\nPROGRAM = "mine"\nPACKAGES = ()\nSETTINGS = {{}}\n\n\ndef measure(case):\n    {body}\n'
    (copy / "adapters/mine.py").write_text(text)
    monkeypatch.setattr(asking, "FOLDER", copy)


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("raise OSError('broken')", "OSError: broken"),
        ("import os; os._exit(3)", "its process ended"),
        ("import time; time.sleep(60)", "no answer within 0.9 s"),
        ("return {name: 'much' for name in case['measures']}", "much"),
        ("return {name: float('nan') for name in case['measures']}", "no named definition"),
        ("print('loud'); return {name: None for name in case['measures']}", "no number: NoneType"),
    ],
)
def test_an_adapter_that_fails_costs_a_cell(tmp_path, monkeypatch, body, note):
    adapter(tmp_path, monkeypatch, body)
    cases = [case for case in CASES if case["name"] == "map_of_three"]
    monkeypatch.setattr(judge, "read", lambda: cases)
    seconds = 0.3 if "sleep" in body else asking.SECONDS
    worker = asking.Worker("mine", python=sys.executable, seconds=seconds)
    number = [case["name"] for case in CASES].index("map_of_three")
    monkeypatch.setattr(worker, "ask", lambda _, cut, ask=worker.ask: ask(number, cut))
    (verdict,) = asking.verdicts_of(worker, cases)
    worker.close()
    assert verdict.verdict in ("error", "wrong") and note in verdict.note


def test_a_program_that_is_not_installed_is_named(capsys, monkeypatch, tmp_path):
    adapter(tmp_path, monkeypatch, "return {}")
    path = asking.FOLDER / "adapters/mine.py"
    path.write_text(path.read_text().replace("PACKAGES = ()", 'PACKAGES = ("no-such-package",)'))
    assert program.ask("mine", CASES, 1) is None
    assert capsys.readouterr().err == "mine: no-such-package is not installed\n"
