"""Rho_Sweep.sh line by line: the two of a pair differ in the miner alone, all else is one protocol."""

from pathlib import Path

import pytest

import main
import parameters
from launch import __main__ as launcher

SCRIPT = Path(__file__).resolve().parent.parent / "experiments/Rho_Sweep.sh"
SEEDS = [0, 1, 2]
MINERS = {"Glyphs": "distance", "Glyphsreg": "rho_distance"}
OF_A_METHOD = {"loss", "group", "savename", "seed", "batch_mining"}


@pytest.fixture(scope="module")
def runs():
    """(method, `Glyphs` or `Glyphsreg`) -> flags of its runs in the order of seeds."""
    found = {}
    for line in launcher.read_lines(SCRIPT, {}):
        opt = parameters.read(line.argv)
        kind, _, method = opt.group.partition("_")
        found.setdefault((method, kind), []).append(opt.saved())
    return found


def differing(a, b):
    return {name for name in a if a[name] != b[name]}


def test_eight_methods_with_and_without_rho_three_seeds_each(runs):
    methods = {method for method, _ in runs}
    assert len(methods) >= 8 and set(runs) == {(method, kind) for method in methods for kind in MINERS}
    for (method, kind), of_seeds in runs.items():
        assert [flags["seed"] for flags in of_seeds] == SEEDS, method
        assert all(differing(of_seeds[0], flags) <= {"seed", "savename"} for flags in of_seeds)
        assert of_seeds[0]["batch_mining"] == MINERS[kind] and of_seeds[0]["miner_rho_distance_cp"] == 0.2


def test_the_two_of_a_pair_differ_in_the_miner_alone(runs):
    for method in {method for method, _ in runs}:
        plain, regularised = runs[method, "Glyphs"][0], runs[method, "Glyphsreg"][0]
        assert differing(plain, regularised) == {"batch_mining", "group", "savename"}
    cutoffs = runs["Triplet", "Glyphsreg"][0]
    for bound in ("lower", "upper"):
        assert cutoffs[f"miner_rho_distance_{bound}_cutoff"] == cutoffs[f"miner_distance_{bound}_cutoff"]
    assert runs["SNR", "Glyphs"][0]["loss_snr_reg_lambda"] == 0, "the distance miner alone would take it as 0"


def test_methods_are_all_different_and_share_the_protocol(runs):
    first = [of_seeds[0] for (_, kind), of_seeds in runs.items() if kind == "Glyphs"]
    for number, one in enumerate(first):
        for other in first[:number]:
            told_apart = differing(one, other) - {"group", "savename"}
            assert told_apart and all(name in OF_A_METHOD or name.startswith("loss_") for name in told_apart), told_apart
    flags = first[0]
    assert flags["dataset"] == "glyphs" and not flags["no_train_metrics"] and flags["splits_to_eval"] == ["train", "test"]
    wanted = {"e_recall@1", "map_r", "nmi", "dists@intra", "dists@inter", "dists@intra_over_inter", "rho_spectrum@1", "rho_spectrum@2"}
    assert wanted == set(flags["evaluation_metrics"])


@pytest.mark.parametrize("kind", MINERS)
def test_a_line_passes_a_dry_run(kind, capsys):
    line = next(line for line in launcher.read_lines(SCRIPT, {}) if f"{kind}_SNR" in line.argv)
    main.main(parameters.read([*line.argv, "--dry_run", "--kernels", "0"]))
    said = capsys.readouterr().out
    assert "dry run: one batch of 112 images" in said and "loss nan" not in said
