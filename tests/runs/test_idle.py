"""The start of a run says which flags of the user have no effect: of plug-ins that are not used, a miner, --tau."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import batch_mining
import criteria
import parameters
from runs import idle
from tests.kit.runs import run_main, run_words


def notes(*words):
    return idle.idle(parameters.resolve(["--dataset", "glyphs", *words]))


UNUSED = "which this run does not use"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            "--loss softmax --loss_triplet_margin .3 --loss_triplet_swap",
            [f"--loss_triplet_margin, --loss_triplet_swap have no effect: of --loss triplet, {UNUSED}"],
        ),
        (
            "--loss margin --batch_mining semihard --miner_distance_lower_cutoff .5",
            [f"--miner_distance_lower_cutoff has no effect: of --batch_mining distance, {UNUSED}"],
        ),
        (
            "--loss softmax --batch_mining distance",
            ["--batch_mining distance has no effect: --loss softmax has no miner"],
        ),
        (
            "--loss multisimilarity --batch_mining distance",
            [
                "--batch_mining distance has no effect: --loss multisimilarity compares all pairs of a batch, and "
                "those of a miner with --mine_pairs"
            ],
        ),
        (
            "--adversarial_triplets_per_anchor 3 --data_mb_lr .5",
            [
                f"--adversarial_triplets_per_anchor has no effect: of --trainer adversarial, {UNUSED}",
                "--data_mb_lr has no effect with --data_sampler class_random",
            ],
        ),
        ("--n_epochs 100 --tau 50 100 200", ["--tau 100 200 has no effect: --n_epochs 100 is the last epoch"]),
        ("--cub_boxes", [f"--cub_boxes has no effect: of --dataset cub200, {UNUSED}"]),
    ],
)
def test_what_has_no_effect_is_said(words, lines):
    texts = notes(*words.split())
    for line in lines:
        assert sum(text.startswith(line) for text in texts) == 1, (line, texts)
    assert len(texts) == len(lines), texts


@pytest.mark.parametrize(
    "words",
    [
        "--loss margin --loss_margin_nu 1 --miner_distance_lower_cutoff .4 --batch_mining distance",
        "--loss multisimilarity --mine_pairs --batch_mining semihard",
        "--loss happier --loss_softmax_temperature .1",
        "--loss triplet --batch_mining random_distance --miner_distance_lower_cutoff .4",
        "--n_epochs 100 --tau 50 99",
        "--loss hier --loss_hier_base triplet --loss_triplet_margin .3 --batch_mining semihard",
        "--trainer classifier --classifier_layer circle_softmax --loss_circle_softmax_scale 3",
        "--trainer s2sd --s2sd_target npair --loss softmax --loss_npair_l2 .1 --batch_mining distance",
        "--loss npair",
        "--n_epochs 100",
        "",
        "--split_partitions 3 --split_scheme class_disjoint",
        "--dataset union --union cub200 folder:birds --cub_boxes",
        "--lora_alpha 4 --lora_rank 2 --arch timm:vit_small_patch16_224",
    ],
)
def test_what_is_read_is_not_said(words):
    assert not notes(*words.split())


@pytest.mark.parametrize(
    ("has_gpu", "rank", "reason"), [(False, None, "this machine has no CUDA"), (True, 1, "torchrun"), (True, None, "")]
)
def test_a_choice_of_device_that_chooses_none_is_noted(monkeypatch, has_gpu, rank, reason):
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    monkeypatch.setattr(idle, "local_rank", lambda: rank)
    lines = idle.of_device(SimpleNamespace(gpu=[1]), {"gpu"})
    assert len(lines) == bool(reason) and all(line.startswith("--gpu 1 has no effect") for line in lines)
    assert all(reason in line for line in lines)
    assert not idle.of_device(SimpleNamespace(gpu=[0]), set())


def test_a_file_of_the_users_may_read_any_flag(monkeypatch, tmp_path):
    """A loss that selects another by name, and one that reads another's flag."""
    source = idle._source
    for text in ('self.inner = criteria.select("triplet", opt, batchminer)', "self.margin = opt.loss_triplet_margin"):
        read = lambda package, name, text=text: text if name == "softmax" else source(package, name)  # noqa: E731
        monkeypatch.setattr(idle, "_source", read)
        assert not notes("--loss", "softmax", "--loss_triplet_margin", ".3")


def test_a_file_in_another_encoding_than_utf_8(monkeypatch, tmp_path):
    text = "# -*- coding: latin-1 -*-\nname = 'Größe'\nmargin = opt.loss_triplet_margin\n"
    (tmp_path / "mine.py").write_bytes(text.encode("latin-1"))
    monkeypatch.setitem(idle.REGISTRIES, "criteria", SimpleNamespace(files={"mine": tmp_path / "mine.py"}))
    assert "Größe" in idle._source.__wrapped__("criteria", "mine")


def test_flags_of_a_class_that_another_is_derived_from_have_an_effect(monkeypatch):
    """A user's loss whose class is derived from triplet's, whose flags it has."""
    softmax = criteria.REGISTRY.module("softmax")
    assert notes("--loss", "softmax", "--loss_triplet_margin", ".3")
    derived = type("Criterion", (criteria.REGISTRY.module("triplet").Criterion,), {"__module__": "criteria.softmax"})
    monkeypatch.setattr(softmax, "Criterion", derived)
    assert not notes("--loss", "softmax", "--loss_triplet_margin", ".3")
    assert notes("--loss", "softmax", "--loss_margin_nu", "1")
    words = "--loss triplet --batch_mining semihard --miner_distance_lower_cutoff .4".split()
    assert notes(*words)
    miner = type(
        "BatchMiner", (batch_mining.REGISTRY.module("distance").BatchMiner,), {"__module__": "batch_mining.semihard"}
    )
    monkeypatch.setattr(batch_mining.REGISTRY.module("semihard"), "BatchMiner", miner)
    assert not notes(*words)


def test_a_file_with_flags_of_a_classifier_that_the_trainer_lacks_is_noted(tmp_path):
    (tmp_path / "a.yaml").write_text("classifier_lr: 0.1\n")
    (line,) = notes("--config", str(tmp_path / "a.yaml"))
    assert line.startswith("--classifier_lr 0.1 has no effect: --trainer metric_only has no classifier here")


def test_files_count_saved_runs_do_not(trained_once, tmp_path):
    text = "loss: softmax\nbatch_mining: semihard\nloss_triplet_margin: 0.3\nn_epochs: 5\ntau: [7]\n"
    (tmp_path / "a.yaml").write_text(text)
    assert len(notes("--config", str(tmp_path / "a.yaml"))) == 3
    opt = parameters.resolve(["--resume_from", str(trained_once), "--n_epochs", "9"])
    assert not idle.idle(opt) and opt.typed == {"resume_from", "n_epochs"}


def test_flags_of_files_without_effect_are_noted_once(tmp_path):
    idle_flags = {"lora_alpha": 4, "prompt_depth": 2, "cub_boxes": True, "metrix_level": "feature"}
    idle_flags |= {
        "loss_learn_per_class": True,
        "embed_regularizer_p": 1.0,
        "tv_split_perc": 0.5,
        "split_partitions": 3,
    }
    idle_flags |= {"language_T": 2, "language_direction": "forward", "language_delay": 3, "s2sd_features_after": 7}
    file = tmp_path / "flags.yaml"
    file.write_text(yaml.safe_dump({**idle_flags, "dataset": "cars196", "image_cache_side": 64}))
    lines = idle.idle(parameters.read(["--config", str(file)]))
    assert sorted(line.split(" ")[0] for line in lines) == sorted(f"--{flag}" for flag in idle_flags)


def test_every_flag_of_a_plug_in_has_one_owner():
    flags = []
    for registry in idle.REGISTRIES.values():
        flags += [flag for name in registry.names() for flag in registry.flags(name)]
    assert len(flags) == len(set(flags)) == sum(name is not None for _, name in idle.owners().values())
    assert {"loss", "batch_mining"} <= set(idle.FLAG_OF.values())
    assert set(parameters.REGISTRIES["losses"].names()) == set(criteria.REGISTRY.names())


def test_the_start_of_a_run_says_it(folder_data, tmp_path, capsys):
    run_main(*run_words(folder_data, tmp_path, "--loss softmax --batch_mining semihard --dry_run"))
    assert "--batch_mining semihard has no effect: --loss softmax has no miner" in capsys.readouterr().out


def test_a_split_that_another_flag_leaves_out_is_named():
    line = "--splits_to_eval train test: --no_train_metrics leaves train out"
    assert notes("--splits_to_eval", "train", "test", "--no_train_metrics") == [line]
    assert not notes("--splits_to_eval", "train", "test")
    assert not notes("--no_train_metrics")


def test_the_folders_whose_files_read_flags_exist():
    root = Path(idle.__file__).parent.parent
    assert all(list((root / room).glob("*.py")) for room in idle.ROOMS)
