"""The studies' scripts line by line: one protocol, twins differ in the miner alone, equal searches without test."""

import re
import subprocess
from collections import Counter

import pytest

import main
from experiments.study import protocol, settings
from launch import __main__ as launcher
from tests.kit.images import write_image
from tests.kit.run_folders import collected, make_run
from tests.kit.runs import read
from utilities.errors import UserError

RATES = settings.DATA[0].rates
OF_A_METHOD = set("loss group savename seed batch_mining miner_rho_distance_cp lr fc_lr classifier_lr".split())
OF_A_TWIN = {"batch_mining", "group", "savename", "miner_rho_distance_cp"}


def lines_of(script):
    """Group -> words of its runs' flags, in the order of the lines."""
    words = {}
    for line in launcher.read_lines(script, {}):
        words.setdefault(line.argv[line.argv.index("--group") + 1], []).append(line.argv)
    return words


def differences(flags, twin):
    return {name for name in flags if flags[name] != twin[name]}


@pytest.mark.parametrize("name", ["Study", *(comparison.name for comparison in protocol.COMPARISONS)])
def test_one_protocol_equal_searches_that_see_no_test_class_and_twins_that_differ_in_the_miner_alone(name):
    script = protocol.SCRIPT.with_name(f"{name}_Runs.sh")
    runs = lines_of(script)
    flags = {group: read(*lines[0]).saved() for group, lines in runs.items()}
    trials = Counter()
    first = {}
    for group, values in flags.items():
        seeds = [int(words[words.index("--seed") + 1]) for words in runs[group]]
        if kind := re.match(r"\w*(Rate|Cp|Pilot)_", group):
            assert "test" not in values["splits_to_eval"] and not set(seeds) & set(settings.SEEDS), group
            trials[group.rpartition("_")[0]] += kind[1] != "Pilot"
        else:
            assert seeds == list(settings.SEEDS) and "test" in values["splits_to_eval"], group
            assert values["use_tv_split"] and not values["tv_split_by_samples"], group
            shared = first.setdefault(group.partition("_")[0].removesuffix("reg"), values)
            if name == "Study":
                changed = {flag for flag in differences(values, shared) if not flag.startswith("loss_")}
                assert changed <= OF_A_METHOD, (group, changed)
        if "reg_" in group:
            twin = flags[group.replace("reg_", "_", 1)]
            assert differences(values, twin) <= OF_A_TWIN
            assert (twin["batch_mining"], values["batch_mining"]) == ("distance", "rho_distance")
        if name == "Study":
            for method in settings.METHODS:
                if method.class_rate and method.name in group.split("_"):
                    assert values[method.class_rate[2:]] == pytest.approx(50 * values["lr"]), group
    assert set(trials.values()) - {0} == {3}, trials


def test_the_files_are_what_the_protocol_writes():
    text = protocol.SCRIPT.read_text(encoding="utf-8")
    chosen = protocol.choices(text)
    assert protocol.script(chosen) == text
    assert subprocess.run(["sh", "-n", str(protocol.SCRIPT)], check=False).returncode == 0
    for comparison in protocol.COMPARISONS:
        text = protocol.SCRIPT.with_name(comparison.script).read_text(encoding="utf-8")
        assert comparison.text(protocol.choices(text)) == text
    for name, text, count in (
        (protocol.SPLIT_SCRIPT, protocol.split_script(chosen), 2 * 6 * 6 * 3),
        (protocol.UNION_SCRIPT, protocol.union_script(), 1 + 3 * (2 + 4)),
    ):
        assert protocol.SCRIPT.with_name(name).read_text() == text
        assert len({line for line in text.splitlines() if line.startswith("python")}) == text.count("\npython") == count


def searched(root, values, data="Emoji"):
    """Run folders of search runs: group -> R@1 on validation."""
    for group, value in values.items():
        curve = (value - 0.1, value, value - 0.05)
        rows = [(epoch, "val", "e_recall@1", recall) for epoch, recall in enumerate(curve, start=1)]
        make_run(root, group, settings.SEARCH_SEED, records=rows, epochs=3, splits=("val",), dataset=data)
    return collected(root)


def test_the_best_on_validation_is_chosen_the_first_of_equal_ones_once_all_are_finished(tmp_path):
    values = {f"Rate_Emoji_Triplet_{rate}": value for rate, value in zip(RATES, (0.5, 0.7, 0.6), strict=True)}
    values |= {f"Cp_Emoji_Triplet_{cp}": value for cp, value in zip(settings.CPS, (0.7, 0.7, 0.6), strict=True)}
    # The third rate of MS is missing
    values |= {"Rate_Emoji_MS_0.00003": 0.9, "Rate_Emoji_MS_0.0001": 0.9}
    chosen, missing = protocol.choose(searched(tmp_path, values))
    assert chosen == {"rate_emoji_triplet": "0.0001", "cp_emoji_triplet": "0.1"}
    assert {"Rate_Emoji_MS_0.0003", "Rate_Glyphs_MS_0.001"} <= set(missing) and "Rate_Emoji_MS_0.0001" not in missing
    flags = tmp_path / "Emoji" / f"Rate_Emoji_Triplet_0.0003_s{settings.SEARCH_SEED}" / "parameters.yaml"
    flags.write_text(flags.read_text().replace("n_epochs: 3", "n_epochs: 9"))
    chosen, missing = protocol.choose(collected(tmp_path))
    assert chosen == {"cp_emoji_triplet": "0.1"} and "Rate_Emoji_Triplet_0.0003" in missing


def test_choices_are_written_kept_and_not_changed(tmp_path, capsys):
    script = tmp_path / "Runs.sh"
    runs = tmp_path / "runs"
    protocol.main(["--script", str(script)])
    assert protocol.choices(script.read_text()) == {}
    assert f"0 of {len(protocol.searches())} values are chosen" in capsys.readouterr().out
    searched(runs, {f"Rate_Emoji_ArcFace_{rate}": value for rate, value in zip(RATES, (0.5, 0.6, 0.7), strict=True)})
    protocol.main(["--script", str(script), "--choose", str(runs)])
    text = script.read_text()
    assert protocol.choices(text) == {"rate_emoji_arcface": "0.0003"}
    assert 'rate_emoji_arcface="--lr 0.0003 --loss_arcface_lr 0.015"\n' in text
    finals = [line for line in launcher.read_lines(script, {}) if "Emoji_ArcFace" in line.argv]
    assert len(finals) == 5 and all(read(*line.argv).lr == 0.0003 for line in finals)
    protocol.main(["--script", str(script)])
    searched(runs, {"Rate_Emoji_ArcFace_0.0001": 0.9})
    with pytest.raises(UserError, match=r"rate_emoji_arcface: Runs.sh holds another choice already"):
        protocol.main(["--script", str(script), "--choose", str(runs)])
    assert script.read_text() == text


@pytest.mark.long
def test_every_line_passes_a_dry_run(tmp_path, capsys):
    """On 96 small classes of four pictures, as `make study-data` makes them, and random weights."""
    import safetensors.torch
    import timm

    for c in range(96):
        folder = tmp_path / "emoji_1008" / f"category_{c % 3}" / f"class_{c:02d}"
        for vendor in range(4):
            write_image(folder / f"{vendor}.png", (c, vendor), (64, 64))
    state = timm.create_model("tf_efficientnet_lite0", num_classes=0).state_dict()
    safetensors.torch.save_file(state, str(tmp_path / "efficientnet_lite0.safetensors"))
    done = set()
    for line in launcher.read_lines(protocol.SCRIPT, {"datapath": str(tmp_path)}):
        opt = read(*line.argv, "--save_path", tmp_path / "runs", "--dry_run")
        # one seed of each group
        if opt.group not in done:
            done.add(opt.group)
            main.main(opt)
            output = capsys.readouterr().out
            assert "dry run: one batch of 112 images" in output and "loss nan" not in output, opt.group
            assert ("weights: random" in output) == (opt.dataset == "glyphs"), opt.group
    # groups of both data sets: pilot, rates, probabilities, the study
    assert len(done) == 2 * (2 + 27 + 15 + 14)
