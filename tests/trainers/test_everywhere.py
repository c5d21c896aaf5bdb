"""Every trainer wherever a run goes: resumed, evaluated again, loaded, reproduced, searched, in folds; with memory,
chunks, subsets.
"""

import csv
import json

import pytest
import torch
import yaml

import main
import parameters
import trainers
from runs import RunFolder, checkpoint, load_run
from search import __main__ as searcher
from tests.kit import tiny

MEMORY = ["--memory_size", "48", "--memory_start", "2"]
EVERY = {  # name -> its flags, the widths of what is evaluated, a flag to search
    "metric_only": (
        ["--embed_regularizer", "zero_mean", "--subset_mining", "maximum_loss", "--subset_size", "4"],
        {},
        ("views~INT_BAYESIAN~", "[1,2]"),
    ),
    "classifier": (
        ["--classifier_input", "pooled", *MEMORY, "--memory_ema", ".9"],
        {"classifier_logits": 6},
        ("classifier_lr~LOG_BAYESIAN~", "[1e-4,1e-2]"),
    ),
    "cascaded": (
        ["--cascade_sizes", "6", "4", "--cascade_percents", "1", ".5", "--loss_weights", "classifier_loss=.5"],
        {"discriminative": 10, "level_1": 6, "level_2": 4, "classifier_logits": 6},
        ("loss_margin_margin~BAYESIAN~", "[0.1,0.3]"),
    ),
    "adversarial": (
        [
            "--adversarial_metric_epochs",
            "1",
            "--adversarial_triplets_per_anchor",
            "3",
            "--loss_weights",
            "classifier_loss=.5",
            "metric_loss=2",
            *MEMORY,
            "--chunk_size",
            "3",
        ],
        {"classifier_logits": 6},
        ("adversarial_margin~BAYESIAN~", "[-1,1]"),
    ),
    "intrabatch": (
        [
            "--intrabatch_layers",
            "2",
            "--intrabatch_join",
            "--loss_weights",
            "metric_loss=.5",
            *MEMORY,
            "--chunk_size",
            "3",
        ],
        {"classifier_logits": 6},
        ("intrabatch_temperature~LOG_BAYESIAN~", "[0.1,2]"),
    ),
    "unsupervised": (
        ["--loss_margin_beta_shared", "--views", "3", *MEMORY],
        {},
        ("loss_margin_margin~BAYESIAN~", "[0.1,0.3]"),
    ),
    "s2sd": (
        [
            "--s2sd_dims",
            "5",
            "9",
            "--s2sd_features",
            "--s2sd_features_after",
            "2",
            "--loss_margin_beta_lr",
            ".01",
            *MEMORY,
            "--chunk_size",
            "3",
        ],
        {},
        ("s2sd_T~LOG_BAYESIAN~", "[0.1,2]"),
    ),
    "diva": (
        ["--diva_queue", "3", *MEMORY, "--memory_ema", ".9", "--chunk_size", "5"],
        {"shared": 8, "intra": 8, "selfsimilarity": 8},
        ("diva_temperature~LOG_BAYESIAN~", "[0.05,1]"),
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
    "s2sd": {"metric_loss": 0.5, "target_loss": 0.5, "distill_loss": 50, "feature_loss": 50},
    "diva": dict.fromkeys(("shared_loss", "intra_loss", "selfsimilarity_loss"), 0.3),
}


def flags_of(name):
    own_flags, heads, _ = EVERY[name]
    joined = ["Combined_intra_selfsimilarity"] if name == "diva" else []
    evaluated = list(dict.fromkeys(["discriminative", *heads, *joined]))
    return ["--trainer", name, "--loss", "margin", "--batch_mining", "distance", *own_flags, "--evaltypes", *evaluated]


LONG = {"adversarial", "intrabatch", "unsupervised"}  # which keep nothing of their own but layers, as classifier does


def param(name):
    """A trainer as a parameter of a test."""
    marks = pytest.mark.long if name in LONG else ()
    return pytest.param(name, marks=marks)


@pytest.fixture(scope="module", params=[param(name) for name in trainers.REGISTRY.names()])
def trained(request, data, tmp_path_factory):
    """A finished run of each trainer, which is to the bit the one that stopped after an epoch and went on."""
    return tiny.assert_resumes(data, tmp_path_factory.mktemp(request.param), *flags_of(request.param), epochs=2)


def test_its_losses_are_recorded_and_summed_by_their_weights(trained):
    frame = RunFolder(trained.folder).metrics
    rows = {(row.epoch, row.metric): row.value for row in frame.itertuples() if row.split == "train"}
    weights = WEIGHTS.get(trained.opt.trainer, {})
    for epoch in (1, 2):
        parts = {
            name: value
            for (at, name), value in rows.items()
            if at == epoch and ("_loss" in name or name == "embed_regularizer")
        }
        parts = parts or {"metric_loss": rows[epoch, "loss"]}  # one alone has no row of its own
        assert rows[epoch, "loss"] == pytest.approx(
            sum(weights.get(name, 1) * part for name, part in parts.items()), rel=1e-3
        )
        assert ("memory_loss" in parts) == (trained.opt.memory_size > 0 and epoch == 2)


def test_it_is_measured_again(trained):
    expected = json.loads((trained.folder / "summary.json").read_text())["selected"]["values"]
    assert tiny.measured(trained) == {split: pytest.approx(scores) for split, scores in expected.items()}
    assert len(expected["test"]) == 2 * len(trained.opt.evaltypes) > 0


def test_it_is_loaded_and_embeds_as_it_was_trained(trained):
    network, opt = load_run(trained.folder)
    images = torch.randint(0, 256, (3, 3, 48, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        embeddings = network(images)[0]
    embeddings = embeddings if isinstance(embeddings, dict) else {"discriminative": embeddings}
    widths = {"discriminative": 8, **EVERY[opt.trainer][1]}
    assert {name: tuple(rows.shape) for name, rows in embeddings.items()} == {
        name: (3, width) for name, width in widths.items()
    }
    assert (
        opt.trainer == trained.opt.trainer
        and not network.training
        and all(bool(rows.isfinite().all()) for rows in embeddings.values())
    )
    state = checkpoint.read(trained.folder / checkpoint.LAST).get("trainer", {})
    if opt.trainer == "s2sd":
        betas = [
            checkpoint.read(trained.folder / checkpoint.LAST)["criterion"]["beta"],
            state["targets.0.beta"],
            state["targets.1.beta"],
        ]
        assert int(state["_extra_state"]) == 4 and len({tuple(beta.tolist()) for beta in betas}) == 3, (
            "each learned a beta of its own"
        )
    if opt.trainer == "diva":
        assert state["queue"].shape == (3 * 8 * 2, 8) and state["enqueued"] == 2 * 2 * 16


@pytest.mark.long
def test_a_memory_of_an_earlier_version_is_restored(data, tmp_path):
    """Checkpoints until version 0.2.1 hold it as `further`."""
    flags = ["--loss", "contrastive", *MEMORY, "--memory_ema", ".9"]
    whole_run = tiny.run(data, tmp_path, *flags, "--n_epochs", "2", "--savename", "Whole")
    old = tiny.run(data, tmp_path, *flags, "--n_epochs", "1", "--savename", "Old")
    for path in old.folder.glob("checkpoint_*"):
        content = torch.load(path, weights_only=True)
        if "trainer" in content:
            content["trainer"] = {
                name.replace("added_losses.", "further."): value for name, value in content["trainer"].items()
            }
            torch.save(content, path)
    main.main(parameters.read(["--resume_from", str(old.folder), "--n_epochs", "2"]))
    tiny.assert_equal_runs(whole_run.folder, old.folder)


@pytest.mark.long
def test_it_is_reproduced_to_the_bit(trained, tmp_path):
    reproduced = main.main(parameters.read(["--reproduce_results", str(trained.folder), "--save_path", str(tmp_path)]))
    assert reproduced.folder != trained.folder
    tiny.assert_equal_runs(reproduced.folder, trained.folder)


@pytest.mark.long
@pytest.mark.parametrize("name", trainers.REGISTRY.names())
def test_a_flag_of_it_is_searched(name, data, tmp_path, monkeypatch):
    monkeypatch.setattr("search.report.draw", lambda *arguments: None)
    flag, values = EVERY[name][2]
    words = [*flags_of(name), "--n_epochs", "1", "--use_tv_split", "--tv_split_perc", ".5", "--seed", "3"]
    words += [f"--{flag}", values, "--bayesian_optimization_n_iter", "2", "--reproductions", "0"]
    folder = searcher.search(tiny.words(data, tmp_path, *words))
    searched = flag.partition("~")[0]
    with open(folder / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["complete"] * 2
    low, high = json.loads(values)
    for row in rows:
        saved = yaml.safe_load((folder / row["trial"] / "parameters.yaml").read_text())
        assert low <= float(row[searched]) == saved[searched] <= high and saved["trainer"] == name


@pytest.mark.long
@pytest.mark.parametrize("name", trainers.REGISTRY.names())
def test_its_folds_and_their_ensemble(name, data, tmp_path):
    flags = [
        *flags_of(name),
        "--n_epochs",
        "1",
        "--split_scheme",
        "class_disjoint",
        "--split_partitions",
        "2",
        "--split_sets",
        "2",
    ]
    cross = tiny.run(data, tmp_path, *flags)
    main.main(parameters.read(["--evaluate_ensemble", "--resume_from", str(cross.folder)]))
    together = json.loads((cross.folder / "meta" / "concatenated.json").read_text())["values"]["test"]
    evaltypes = cross.opt.evaltypes
    assert {f"{evaltype}/map_r" if len(evaltypes) > 1 else "map_r" for evaltype in evaltypes} <= set(together)
