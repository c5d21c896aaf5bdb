"""Every program limits the spinning of OpenMP's threads before torch is imported, unless the user decided about it."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from utilities import openmp

SCRIPTS = [
    "main.py",
    "Result_Evaluations.py",
    "toy_experiments/diagonal_lines.py",
    "toy_experiments/reality_check_spaces.py",
]
MODULES = ["appraise", "launch", "search", "retrieval", "evaluation", "evaluation.overlap", "experiments.study.tables"]
# Runs a program and prints the spin count that OpenMP reads at the first import of torch, or that is set at the end
# where torch was not needed.

PROBE = """
import importlib.abc, os, runpy, sys

def report():
    print("spin count", os.environ.get("GOMP_SPINCOUNT"))
    sys.stdout.flush()
    os._exit(0)

class Probe(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            report()

sys.meta_path.insert(0, Probe())
sys.path.insert(0, os.getcwd())
name = sys.argv.pop(1)
try:
    if name.endswith(".py"):
        runpy.run_path(name, run_name="__main__")
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
finally:
    report()
"""


def spin_count_of(program: str, **variables: str) -> str:
    """What OpenMP reads when `program` imports torch."""
    environment = {
        name: value for name, value in os.environ.items() if name not in (openmp.SPIN_COUNT, openmp.WAIT_POLICY)
    }
    command = [sys.executable, "-c", PROBE, program, "--help"]
    finished = subprocess.run(
        command, cwd=ROOT, env=environment | variables, capture_output=True, text=True, check=True
    )
    return finished.stdout.split()[-1]


@pytest.mark.parametrize("program", SCRIPTS + MODULES)
def test_every_program_limits_spinning_before_torch_is_imported(program):
    assert spin_count_of(program) == str(openmp.SPINS)


def test_the_users_environment_is_kept():
    assert spin_count_of("main.py", GOMP_SPINCOUNT="7") == "7"
    assert spin_count_of("main.py", OMP_WAIT_POLICY="passive") == "None"


@pytest.mark.long
def test_nothing_is_set_after_torch_was_imported():
    environment = {name: value for name, value in os.environ.items() if name != openmp.SPIN_COUNT}
    program = "import os, torch, utilities.openmp; print(os.environ.get('GOMP_SPINCOUNT'))"
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "None"
