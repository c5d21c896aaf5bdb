"""Reading a file of runs: comments, variables, quotes, what is no run, which lines are chosen."""

import os
import shlex
from pathlib import Path

import pytest

from launch import __main__ as launcher
from launch.lines import Line, read_lines, select_lines
from tests.kit.refusals import refused
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parent.parent.parent


def read(folder, text, **variables):
    path = folder / "runs.sh"
    path.write_text(text)
    return read_lines(path, variables)


def test_reading_a_file_of_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("datapath", raising=False)
    # Set here, the variables that the file exports are put back after the test
    monkeypatch.setenv("more", "as before")
    monkeypatch.setenv("other", "")
    text = """#!/bin/sh
datapath=${datapath:-/some/data}  # where
export more=$datapath/more other='a b'

python main.py --source $datapath --group "A B" --seed 0   # the first, it's said
python3 ../main.py --source ${more} \\
  --group="$other" $other
# a comment \\
python main.py --group 'lit$HOME' "\\$x '$other'" a#b '' "x # y" --lr~BAYESIAN~ [0,1] \\$x
common="--lr 1 --bs 2" empty=
python main.py $common $empty "$empty"
"""
    assert read(tmp_path, text) == [
        (5, ["--source", "/some/data", "--group", "A B", "--seed", "0"]),
        (7, ["--source", "/some/data/more", "--group=a b", "a", "b"]),
        (9, ["--group", "lit$HOME", "$x 'a b'", "a#b", "", "x # y", "--lr~BAYESIAN~", "[0,1]", "$x"]),
        (11, ["--lr", "1", "--bs", "2", ""]),
    ]
    assert {"more": "/some/data/more", "other": "a b"}.items() <= os.environ.items(), "runs inherit what is exported"
    assert read(tmp_path, text, datapath="/with space")[0].argv[:2] == ["--source", "/with space"]
    monkeypatch.setenv("datapath", "/from outside")
    assert read(tmp_path, text)[0].argv[1:3] == ["/from", "outside"], "as a shell splits it"


@pytest.mark.parametrize("path", ["/with space", "/it's", '/a"b\\c', "/$HOME `x` ; #"])
def test_a_given_value_stays_one_word(tmp_path, path):
    text = (
        'datapath=${datapath:-.}\npython main.py --a $datapath --b="$datapath/x" --c=${datapath}/y '
        '${extra:-}\nmore=$datapath/z\npython main.py "$more"\n'
    )
    lines = read(tmp_path, text, datapath=path)
    assert [line.argv for line in lines] == [["--a", path, f"--b={path}/x", f"--c={path}/y"], [f"{path}/z"]]


def test_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/the home")
    lines = read(tmp_path, "data=~/data\npython main.py ~/x --source=~/y '~' \"$data\"\n")
    assert lines == [(2, ["/the home/x", "--source=~/y", "~", "/the home/data"])]


SHELL = [("; python main.py", ";"), ("&& echo done", "&"), ("| tee log", r"\|"), ("> log", ">"), ("2>&1", ">")]
SHELL += [("(x)", r"\("), ("`date`", "`"), ('"$(date)"', r"\$")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rm -rf x", "line 1: expected a comment"),
        ("x=1\npython other.py", "line 2"),
        ("python main.py --seed $nothing", r"\$nothing has no value"),
        ("python main.py 'x\n", "line 1: No closing quotation"),
        ('python main.py --group "open', "line 1: No closing"),
        ("x=${y:-open", r"line 1: \$ is not"),
        ("x=${y%.sh}", r"line 1: \$ is not"),
        ("x=$1", r"line 1: \$ is not"),
        ("X=1 python main.py", "line 1: expected"),
        ("x=1\ny=${z:-$x}", r"line 2: \$ is not"),
        ("x=${y:-'a b'}", r"line 1: \$ is not"),
        ("export A_=1\nA_=2", "line 2: A_ is exported, and has two values"),
        *((f"x=1\npython main.py --seed 1 {words}", f"line 2: {sign} is not understood") for words, sign in SHELL),
    ],
)
def test_what_is_no_run_is_refused_with_its_line(tmp_path, text, message):
    with refused(message):
        read(tmp_path, text)
    with pytest.raises(UserError, match="no file of runs"):
        read_lines(tmp_path / "absent.sh", {})


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Revisit_Runs.sh", 335),
        ("experiments/MLRC_Runs.sh", 56),
        ("experiments/MLRC_Searches.sh", 56),
        ("experiments/Rho_Sweep.sh", 48),
    ],
)
def test_the_shipped_scripts_are_read_as_a_shell_reads_them(name, count):
    """Every line, against Python's own reading of it, which knows no variables: the scripts have one."""
    expected = [
        (number, shlex.split(line.replace("$datapath", "'/the data'"))[1:])
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if line.startswith("python ")
    ]
    lines = read_lines(ROOT / name, {"datapath": "/the data"})
    assert [(line.number, [*line.program, *line.argv]) for line in lines] == expected and len(lines) == count


def chosen(*argv):
    words = ["--group A --seed 0", "--group A --seed 1", "--group B --seed 0"]
    lines = [Line(number, text.split()) for number, text in enumerate(words, 1)]
    return [(line.number, line.argv) for line in select_lines(lines, launcher.read_options(["runs.sh", *argv]))]


def test_keys_are_shown_nowhere():
    line = Line(1, "--wandb_key SECRET --comet_api_key=SECRET --group A".split())
    assert line.command == "python main.py --wandb_key '***' '--comet_api_key=***' --group A"


def test_choosing_lines():
    assert [number for number, _ in chosen()] == [1, 2, 3]
    assert [number for number, _ in chosen("--filter", "group A")] == [1, 2]
    assert [number for number, _ in chosen("--filter", "A.*seed 1", "B")] == [2, 3]
    assert [number for number, _ in chosen("--lines", "3", "1")] == [1, 3]
    of_seeds = [(1, f"--group A --seed {seed}".split()) for seed in (5, 6)]
    assert chosen("--seeds", "5", "6", "--filter", "A") == of_seeds
    assert chosen("--lines", "3", "--", "--log_online") == [(3, "--group B --seed 0 --log_online".split())]


def test_headings_of_the_icml_scripts_are_skipped(tmp_path):
    """As in their Revisit_Runs.sh, also over several lines; line numbers stay."""
    script = tmp_path / "runs.sh"
    headings = ('"""============ Baseline Runs --- CUB200-2011 ==="""', '"""\na "second" one:\n"""')
    script.write_text("".join(f"{text}\npython main.py --seed {seed}\n" for seed, text in enumerate(headings)))
    assert [(line.number, line.argv) for line in read_lines(script, {})] == [(2, ["--seed", "0"]), (6, ["--seed", "1"])]
