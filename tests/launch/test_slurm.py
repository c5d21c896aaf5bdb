"""Runs as jobs of Slurm."""

import sys

import pytest

from launch import __main__ as launcher
from tests.test_run_script import runs_file
from utilities.errors import UserError


def test_slurm_without_its_package_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    script = tmp_path / "runs.sh"
    script.write_text("python main.py --dataset glyphs\n")
    with pytest.raises(UserError, match="pip install submitit"):
        launcher.main([str(script), "--slurm"])


def test_slurm_by_the_local_executor(folder_data, tmp_path):
    pytest.importorskip("submitit")
    script = runs_file(folder_data, tmp_path)
    assert launcher.main([str(script), "--slurm", "cluster=local", f"folder={tmp_path / 'jobs'}", "timeout_min=5"]) == 1
    assert (tmp_path / "out" / "folder" / "Good_s0" / "summary.json").exists()
