"""Every trainer wherever a run goes: resumed, evaluated again, loaded, reproduced, searched, in folds."""

import csv
import json

import numpy as np
import pytest
import torch
import yaml

import trainers
from runs import RunFolder, checkpoint, load_run
from search import __main__ as searcher
from tests.kit import tiny
from tests.kit.runs import run_main

MEMORY = "--memory_size 48 --memory_start 2"
OLD = "old.npz"  # in the folder of the images
EVERY = {  # name -> its flags, the widths of what is evaluated, a flag to search
    "metric_only": (
        "--embed_regularizer zero_mean --subset_mining maximum_loss --subset_size 4",
        {},
        "--views~INT_BAYESIAN~ [1,2]",
    ),
    "classifier": (
        f"--classifier_input pooled {MEMORY} --memory_ema .9",
        {"classifier_logits": 6},
        "--classifier_lr~LOG_BAYESIAN~ [1e-4,1e-2]",
    ),
    "cascaded": (
        "--cascade_sizes 6 4 --cascade_percents 1 .5 --loss_weights classifier_loss=.5",
        {"discriminative": 10, "level_1": 6, "level_2": 4, "classifier_logits": 6},
        "--loss_margin_margin~BAYESIAN~ [0.1,0.3]",
    ),
    "adversarial": (
        "--adversarial_metric_epochs 1 --adversarial_triplets_per_anchor 3 "
        f"--loss_weights classifier_loss=.5 metric_loss=2 {MEMORY} --chunk_size 3",
        {"classifier_logits": 6},
        "--adversarial_margin~BAYESIAN~ [-1,1]",
    ),
    "intrabatch": (
        f"--intrabatch_layers 2 --intrabatch_join --loss_weights metric_loss=.5 {MEMORY} --chunk_size 3",
        {"classifier_logits": 6},
        "--intrabatch_temperature~LOG_BAYESIAN~ [0.1,2]",
    ),
    "compatible": (
        f"--compatible_with {OLD} --compatible_form points --loss_weights compatible_loss=.5 {MEMORY} --chunk_size 3",
        {},
        "--compatible_T~LOG_BAYESIAN~ [0.02,1]",
    ),
    "unsupervised": (
        f"--loss_margin_beta_shared --views 3 {MEMORY}",
        {},
        "--loss_margin_margin~BAYESIAN~ [0.1,0.3]",
    ),
    "s2sd": (
        f"--s2sd_dims 5 9 --s2sd_features --s2sd_features_after 2 --loss_margin_beta_lr .01 {MEMORY} --chunk_size 3",
        {},
        "--s2sd_T~LOG_BAYESIAN~ [0.1,2]",
    ),
    "diva": (
        f"--diva_queue 3 {MEMORY} --memory_ema .9 --chunk_size 5",
        {"shared": 8, "intra": 8, "selfsimilarity": 8},
        "--diva_temperature~LOG_BAYESIAN~ [0.05,1]",
    ),
}
WEIGHTS = {
    "cascaded": {"classifier_loss": 0.5},
    "intrabatch": {"metric_loss": 0.5},
    "adversarial": {
        "classifier_loss": 0.5,
        "metric_loss": 2,
        **dict.fromkeys(("synth_loss", "g_hard_loss", "g_reg_loss", "g_adv_loss"), 0.1),
    },
    "compatible": {"compatible_loss": 0.5},
    "s2sd": {"metric_loss": 0.5, "target_loss": 0.5, "distill_loss": 50, "feature_loss": 50},
    "diva": dict.fromkeys(("shared_loss", "intra_loss", "selfsimilarity_loss"), 0.3),
}


def flags_of(name, data):
    own_flags, heads, _ = EVERY[name]
    if OLD in own_flags:
        own_flags = own_flags.replace(OLD, old_embeddings(data))
    evaltypes = dict.fromkeys(["discriminative", *heads])
    if name == "diva":
        evaltypes["Combined_intra_selfsimilarity"] = None
    return f"--trainer {name} --loss margin --batch_mining distance {own_flags} --evaltypes {' '.join(evaltypes)}"


def old_embeddings(data):
    """A file of random embeddings, of fewer dimensions than the new ones, of all images of a folder."""
    paths = sorted(str(path) for path in data.rglob("*.*"))
    file = data.parent / OLD
    np.savez(file, features=np.random.default_rng(0).normal(size=(len(paths), 5)), paths=paths)
    return str(file)


OF_TABLES = {"pairs"}  # tests/trainers/test_pairs.py has a table of pairs
LONG = {"adversarial", "intrabatch", "unsupervised"}  # which keep nothing of their own but layers, as classifier does


def param(name):
    """A trainer as a parameter of a test."""
    marks = pytest.mark.long if name in LONG else ()
    return pytest.param(name, marks=marks)


@pytest.fixture(scope="module", params=[param(name) for name in EVERY])
def trained(request, data, tmp_path_factory):
    """A finished run of each trainer, which is to the bit the one that stopped after an epoch and went on."""
    return tiny.assert_resumes(data, tmp_path_factory.mktemp(request.param), flags_of(request.param, data), epochs=2)


def test_every_trainer_is_here():
    assert EVERY.keys() | OF_TABLES == set(trainers.REGISTRY.names())


def test_its_losses_are_recorded_and_summed_by_their_weights(trained):
    rows = tiny.values_of_training(trained)
    weights = WEIGHTS.get(trained.opt.trainer, {})
    for epoch in (1, 2):
        of_epoch = {name: value for (at, name), value in rows.items() if at == epoch}
        parts = {name: value for name, value in of_epoch.items() if "_loss" in name or name == "embed_regularizer"}
        # A loss that is the only one has no row of its own
        parts = parts or {"metric_loss": of_epoch["loss"]}
        total = sum(weights.get(name, 1) * part for name, part in parts.items())
        assert of_epoch["loss"] == pytest.approx(total, rel=1e-3)
        assert ("memory_loss" in parts) == (trained.opt.memory_size > 0 and epoch == 2)


def test_it_is_measured_again(trained):
    expected = RunFolder(trained.folder).selected["values"]
    assert tiny.measured(trained) == {split: pytest.approx(scores) for split, scores in expected.items()}
    assert len(expected["test"]) == 2 * len(trained.opt.evaltypes) > 0


def test_it_is_loaded_and_embeds_as_it_was_trained(trained):
    network, opt = load_run(trained.folder)
    images = torch.randint(0, 256, (3, 3, 48, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        embeddings = network(images)[0]
    embeddings = embeddings if isinstance(embeddings, dict) else {"discriminative": embeddings}
    assert {name: len(rows.T) for name, rows in embeddings.items()} == {"discriminative": 8, **EVERY[opt.trainer][1]}
    assert opt.trainer == trained.opt.trainer and not network.training
    assert all(len(rows) == 3 and bool(rows.isfinite().all()) for rows in embeddings.values())
    content = checkpoint.read(trained.folder / checkpoint.LAST)
    state = content.get("trainer", {})
    # The criterion and both targets learned a beta of their own each
    if opt.trainer == "s2sd":
        betas = content["criterion"]["beta"], state["targets.0.beta"], state["targets.1.beta"]
        assert int(state["_extra_state"]) == 4 and len({tuple(beta.tolist()) for beta in betas}) == 3
    if opt.trainer == "diva":
        assert state["queue"].shape == (3 * 8 * 2, 8) and state["enqueued"] == 2 * 2 * 16


@pytest.mark.long
def test_a_memory_of_an_earlier_version_is_restored(data, tmp_path):
    """Checkpoints until version 0.2.1 hold it as `further`."""
    flags = f"--loss contrastive {MEMORY} --memory_ema .9"
    whole_run = tiny.run(data, tmp_path, flags, "--n_epochs 2 --savename Whole")
    old = tiny.run(data, tmp_path, flags, "--n_epochs 1 --savename Old")
    for path in old.folder.glob("checkpoint_*"):
        content = torch.load(path, weights_only=True)
        if "trainer" in content:
            state = content["trainer"]
            content["trainer"] = {name.replace("added_losses.", "further."): state[name] for name in state}
            torch.save(content, path)
    run_main("--resume_from", old.folder, "--n_epochs 2")
    tiny.assert_equal_runs(whole_run.folder, old.folder)


@pytest.mark.long
def test_it_is_reproduced_to_the_bit(trained, tmp_path):
    reproduced = run_main("--reproduce_results", trained.folder, "--save_path", tmp_path)
    assert reproduced.folder != trained.folder
    tiny.assert_equal_runs(reproduced.folder, trained.folder)


@pytest.mark.long
@pytest.mark.parametrize("name", EVERY)
def test_a_flag_of_it_is_searched(name, data, tmp_path, monkeypatch):
    monkeypatch.setattr("search.report.draw", lambda *arguments: None)
    search = EVERY[name][2]
    words = "--n_epochs 1 --use_tv_split --tv_split_perc .5 --seed 3 --bayesian_optimization_n_iter 2 --reproductions 0"
    folder = searcher.search(tiny.words(data, tmp_path, flags_of(name, data), words, search))
    flag, values = search.split()
    searched = flag.strip("-").partition("~")[0]
    with open(folder / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["complete"] * 2
    low, high = json.loads(values)
    for row in rows:
        saved = yaml.safe_load((folder / row["trial"] / "parameters.yaml").read_text())
        assert low <= float(row[searched]) == saved[searched] <= high and saved["trainer"] == name


@pytest.mark.long
@pytest.mark.parametrize("name", EVERY)
def test_its_folds_and_their_ensemble(name, data, tmp_path):
    folds = "--n_epochs 1 --split_scheme class_disjoint --split_partitions 2 --split_sets 2"
    cross = tiny.run(data, tmp_path, flags_of(name, data), folds)
    run_main("--evaluate_ensemble --resume_from", cross.folder)
    together = json.loads((cross.folder / "meta" / "concatenated.json").read_text())["values"]["test"]
    evaltypes = cross.opt.evaltypes
    expected = {f"{evaltype}/map_r" for evaltype in evaltypes} if len(evaltypes) > 1 else {"map_r"}
    assert expected <= set(together)
