"""Runs as jobs of Slurm."""

import pytest

from launch import __main__ as launcher
from tests.test_run_script import runs_file


@pytest.mark.long
def test_slurm_by_the_local_executor(folder_data, tmp_path):
    script = runs_file(folder_data, tmp_path)
    assert launcher.main([str(script), "--slurm", "cluster=local", f"folder={tmp_path / 'jobs'}", "timeout_min=5"]) == 1
    assert (tmp_path / "out" / "folder" / "Good_s0" / "summary.json").exists()
