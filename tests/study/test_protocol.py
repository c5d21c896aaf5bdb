"""Study_Runs.sh line by line: one protocol, twins differ in the miner alone, equal search, no line before the last stage sees test."""

import functools
import subprocess

import pytest
import safetensors.torch
import timm

import main
import parameters
from experiments.study import protocol
from launch import __main__ as launcher
from results import collect
from tests import builders
from tests.results.made import make_run
from utilities.errors import UserError

RATES = protocol.DATA[0].rates
OF_A_METHOD = {"loss", "group", "savename", "seed", "batch_mining", "miner_rho_distance_cp", "lr", "fc_lr", "classifier_lr"}  # two follow lr


@functools.cache
def flags_of(*words):
    return parameters.read(list(words)).saved()


class Lines(list):
    """The flags of lines, each read when it is asked for."""

    def __getitem__(self, number):
        return flags_of(*super().__getitem__(number))

    def __iter__(self):
        return (self[number] for number in range(len(self)))


def lines_of(script):
    """Group -> flags of its runs, in the order of the lines."""
    found = {}
    for line in launcher.read_lines(script, {}):
        found.setdefault(line.argv[line.argv.index("--group") + 1], Lines()).append(line.argv)
    return found


@pytest.fixture(scope="module")
def runs():
    return lines_of(protocol.SCRIPT)


def differing(a, b):
    return {name for name in a if a[name] != b[name]}


def test_the_files_are_what_the_protocol_writes():
    text = protocol.SCRIPT.read_text(encoding="utf-8")
    chosen = protocol.choices(text)
    assert protocol.script(chosen) == text and subprocess.run(["sh", "-n", str(protocol.SCRIPT)], check=False).returncode == 0
    for one in protocol.COMPARISONS:
        text = protocol.SCRIPT.with_name(one.script).read_text(encoding="utf-8")
        assert one.text(protocol.choices(text)) == text
    for name, text, count in (
        (protocol.SPLIT_SCRIPT, protocol.split_script(chosen), 2 * 6 * 6 * 3), (protocol.UNION_SCRIPT, protocol.union_script(), 1 + 3 * (2 + 4)),
    ):  # fmt: skip
        assert protocol.SCRIPT.with_name(name).read_text() == text
        assert len({line for line in text.splitlines() if line.startswith("python")}) == text.count("\npython") == count


@pytest.mark.long
@pytest.mark.parametrize("data", protocol.DATA, ids=lambda data: data.name)
def test_eight_losses_and_more_five_seeds_with_and_without_rho(runs, data):
    plain = [name for name in runs if name.startswith(f"{data.name}_")]
    regularised = [name for name in runs if name.startswith(f"{data.name}reg_")]
    assert len({runs[name][0]["loss"] for name in plain}) == len(plain) >= 8 and len(regularised) >= 5
    for name in plain + regularised:
        assert [flags["seed"] for flags in runs[name]] == list(protocol.SEEDS)
        assert all(differing(runs[name][0], flags) <= {"seed", "savename"} for flags in runs[name])
        told_apart = differing(runs[plain[0]][0], runs[name][0])
        assert all(flag in OF_A_METHOD or flag.startswith("loss_") for flag in told_apart), told_apart
        assert runs[name][0]["use_tv_split"] and not runs[name][0]["tv_split_by_samples"], "validation classes are no training classes"
        assert runs[name][0]["splits_to_eval"] == ["train", "val", "test"], "both selections can be told"
    for name in regularised:
        twin = runs[name.replace("reg_", "_", 1)][0]
        assert differing(twin, runs[name][0]) <= {"batch_mining", "group", "savename", "miner_rho_distance_cp"}
        assert (twin["batch_mining"], runs[name][0]["batch_mining"]) == ("distance", "rho_distance")


@pytest.mark.parametrize("data", protocol.DATA, ids=lambda data: data.name)
def test_the_search_is_equal_and_neither_it_nor_the_pilot_sees_test(runs, data):
    for method in protocol.METHODS:
        searched = {kind: [n for n in runs if n.startswith(f"{kind}_{data.name}_{method.name}_")] for kind in ("Rate", "Cp")}
        assert len({runs[name][0]["lr"] for name in searched["Rate"]}) == len(searched["Rate"]) == 3 and len(searched["Cp"]) == 3 * method.mined
        assert {runs[name][0]["miner_rho_distance_cp"] for name in searched["Cp"]} == ({0.1, 0.2, 0.4} if method.mined else set())
        for name in (name for names in searched.values() for name in names):
            (flags,) = runs[name]
            assert flags["splits_to_eval"] == ["val"] and flags["seed"] not in protocol.SEEDS
            if method.class_rate:
                assert flags[method.class_rate[2:]] == pytest.approx(50 * flags["lr"])
            told_apart = {flag for flag in differing(runs[f"{data.name}_{method.name}"][0], flags) if not flag.startswith("loss_")}
            assert told_apart <= {*OF_A_METHOD, "splits_to_eval"}, told_apart
    pilots = [flags for name in runs if name.startswith(f"Pilot_{data.name}") for flags in runs[name]]
    assert pilots and all("test" not in flags["splits_to_eval"] and flags["seed"] not in protocol.SEEDS for flags in pilots)


@pytest.mark.parametrize("one", protocol.COMPARISONS, ids=lambda one: one.name)
def test_compared_methods_have_one_protocol_and_as_many_trials(one):
    runs = lines_of(protocol.SCRIPT.with_name(one.script))
    common = ("n_epochs", "bs", "samples_per_class", "data_sampler", "embed_dim", "optim", "split_shuffle", "crop_size", "storage_metrics")
    shared = {name: runs[one.groups()[0]][0][name] for name in common}
    for method in one.methods:
        searched = [flags for group, (flags, *_) in runs.items() if group.startswith(f"{one.name}Rate_{method.name}_")]
        assert len(searched) == 3 and all(flags["splits_to_eval"] == ["val"] and flags["seed"] not in protocol.SEEDS for flags in searched)
        plain, *variants = ([flags for flags in runs[f"{one.name}_{method.name}{suffix}"]] for suffix in one.variants)
        for flags in (plain, *variants):
            assert [run["seed"] for run in flags] == list(protocol.SEEDS)
            assert differing(plain[0], flags[0]) <= {"group", "savename", "random_erasing", "random_erasing_area", "random_erasing_ratio", "random_erasing_value"}
        assert all(shared.items() <= flags.items() for flags in [*searched, *plain])


def searched(root, values, data="Emoji"):
    """Run folders of search runs: group -> R@1 on validation."""
    for group, value in values.items():
        found = [(1, "val", "e_recall@1", value - 0.1), (2, "val", "e_recall@1", value), (3, "val", "e_recall@1", value - 0.05)]
        make_run(root, group, protocol.SEARCH_SEED, found=found, epochs=3, splits=("val",), dataset=data)
    return collect.collect([str(root)], [])[0]


def test_the_best_on_validation_is_chosen_the_first_of_equal_ones_once_all_are_finished(tmp_path):
    values = {f"Rate_Emoji_Triplet_{rate}": value for rate, value in zip(RATES, (0.5, 0.7, 0.6), strict=True)}
    values |= {f"Cp_Emoji_Triplet_{cp}": value for cp, value in zip(protocol.CPS, (0.7, 0.7, 0.6), strict=True)}
    values |= {"Rate_Emoji_MS_0.00003": 0.9, "Rate_Emoji_MS_0.0001": 0.9}  # the third is missing
    chosen, missing = protocol.choose(searched(tmp_path, values))
    assert chosen == {"rate_emoji_triplet": "0.0001", "cp_emoji_triplet": "0.1"}
    assert "Rate_Emoji_MS_0.0003" in missing and "Rate_Emoji_MS_0.0001" not in missing and "Rate_Glyphs_MS_0.001" in missing
    flags = tmp_path / "Emoji" / f"Rate_Emoji_Triplet_0.0003_s{protocol.SEARCH_SEED}" / "parameters.yaml"
    flags.write_text(flags.read_text().replace("n_epochs: 3", "n_epochs: 9"))
    chosen, missing = protocol.choose(collect.collect([str(tmp_path)], [])[0])
    assert chosen == {"cp_emoji_triplet": "0.1"} and "Rate_Emoji_Triplet_0.0003" in missing


def test_choices_are_written_kept_and_not_changed(tmp_path, capsys):
    script, runs = tmp_path / "Runs.sh", tmp_path / "runs"
    protocol.main(["--script", str(script)])
    assert protocol.choices(script.read_text()) == {} and f"0 of {len(protocol.searches())} values are chosen" in capsys.readouterr().out
    searched(runs, {f"Rate_Emoji_ArcFace_{rate}": value for rate, value in zip(RATES, (0.5, 0.6, 0.7), strict=True)})
    protocol.main(["--script", str(script), "--choose", str(runs)])
    text = script.read_text()
    assert protocol.choices(text) == {"rate_emoji_arcface": "0.0003"} and 'rate_emoji_arcface="--lr 0.0003 --loss_arcface_lr 0.015"\n' in text
    finals = [line for line in launcher.read_lines(script, {}) if "Emoji_ArcFace" in line.argv]
    assert len(finals) == 5 and all(parameters.read(line.argv).lr == 0.0003 for line in finals)
    protocol.main(["--script", str(script)])
    searched(runs, {"Rate_Emoji_ArcFace_0.0001": 0.9})
    with pytest.raises(UserError, match=r"rate_emoji_arcface: Runs.sh holds another choice already"):
        protocol.main(["--script", str(script), "--choose", str(runs)])
    assert script.read_text() == text


@pytest.mark.long
def test_every_line_passes_a_dry_run(tmp_path, capsys):
    """On what `make study-data` makes, in small: 96 classes of four pictures, 32 of which train; weights from nowhere."""
    for c in range(96):
        for vendor in range(4):
            builders.write_image(tmp_path / "emoji_1008" / f"category_{c % 3}" / f"class_{c:02d}" / f"{vendor}.png", (c, vendor), (64, 64))
    state = timm.create_model("tf_efficientnet_lite0", num_classes=0).state_dict()
    safetensors.torch.save_file(state, str(tmp_path / "efficientnet_lite0.safetensors"))
    done = set()
    for line in launcher.read_lines(protocol.SCRIPT, {"datapath": str(tmp_path)}):
        opt = parameters.read([*line.argv, "--save_path", str(tmp_path / "runs"), "--dry_run"])
        if opt.group not in done:  # seeds alike
            done.add(opt.group)
            main.main(opt)
            said = capsys.readouterr().out
            assert "dry run: one batch of 112 images" in said and "loss nan" not in said and "weights: random" not in said, opt.group
    assert len(done) == 2 * (2 + 27 + 15 + 14)  # of both data sets: pilot, rates, probabilities, the study
