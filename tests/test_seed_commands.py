"""The published command lines of the ICML pipeline, word for word, on a tiny CUB200; only paths and weights are changed."""

import pytest

from tests import builders

BASIC = """--loss margin --batch_mining distance --log_online
              --project DML_Project --group Margin_with_Distance --seed 0
              --gpu 0 --bs 112 --data_sampler class_random --samples_per_class 2
              --arch resnet50_frozen_normalize --source $datapath --n_epochs 150
              --lr 0.00001 --embed_dim 128 --evaluate_on_gpu"""
ADVANCED = "--loss margin --batch_mining distance --loss_margin_beta 0.6 --miner_distance_lower_cutoff 0.5 --source $datapath"
SPECTRAL = "--loss margin --batch_mining rho_distance --miner_rho_distance_cp 0.2 --source $datapath --use_tv_split --tv_split_perc 0.8 --no_train_metrics"


@pytest.mark.parametrize("layout", ["official", "icml"])
@pytest.mark.parametrize(
    "line",
    [pytest.param(BASIC, id="basic"), pytest.param(ADVANCED, id="advanced", marks=pytest.mark.long), pytest.param(SPECTRAL, id="spectral")],
)
def test_published_commands_pass_a_dry_run(tmp_path, line, layout, capsys):
    if layout == "icml" and line is not BASIC:
        pytest.skip("the layout is read alike for every command")
    builders.make_cub200(tmp_path, layout=layout, n_classes=20, n_images=14)
    words = line.replace("$datapath", str(tmp_path)).split()
    said = builders.dry_run([*words, "--save_path", str(tmp_path / "runs")], capsys)
    assert "dry run: one batch of 112 images" in said
    assert not (tmp_path / "runs").exists()
