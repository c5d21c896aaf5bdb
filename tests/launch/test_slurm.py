"""Runs as jobs of Slurm, in two processes each."""

import pytest
import yaml

from launch import __main__ as launcher
from tests.kit.refusals import refused
from tests.test_run_script import runs_file


def test_refused_lines_are_told(tmp_path, capsys):
    script = tmp_path / "runs.sh"
    script.write_text("python main.py --group A --seed 0 --loss nothing\n")
    assert launcher.main([str(script), "--slurm", "cluster=local"]) == 1
    script.write_text("python main.py --group A --seed 0 --dataset glyphs\n")
    with refused("Slurm assigns GPUs"):
        launcher.main([str(script), "--slurm", "cluster=local", "--gpus", "0"])
    assert "line 1: " in (output := capsys.readouterr().out) and "nothing" in output


@pytest.mark.long
def test_slurm_by_the_local_executor(folder_data, tmp_path):
    script = runs_file(folder_data, tmp_path)
    settings = ["cluster=local", f"folder={tmp_path / 'jobs'}", "timeout_min=5"]
    assert launcher.main([str(script), "--nproc", "2", "--slurm", *settings]) == 1
    folder = tmp_path / "out" / "folder" / "Good_s0"
    assert (folder / "summary.json").exists()
    assert yaml.safe_load((folder / "environment.yaml").read_text())["processes"] == 2
