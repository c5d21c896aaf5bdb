"""Every trainer wherever a run goes: evaluated again, loaded, reproduced, searched, in folds; and trainers with what goes with them."""

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
from tests.trainers import tiny

CASCADE = ["--cascade_sizes", "6", "--cascade_percents", ".5"]
EVERY = {  # name -> its flags, what of it is evaluated, a flag to search, its own where it has one of one value
    "metric_only": ([], [], ("views~INT_BAYESIAN~", "[1,2]")),
    "classifier": (["--classifier_input", "pooled"], ["classifier_logits"], ("classifier_lr~LOG_BAYESIAN~", "[1e-4,1e-2]")),
    "cascaded": (CASCADE, ["level_1"], ("loss_margin_margin~BAYESIAN~", "[0.1,0.3]")),  # its own flags take several values each
    "adversarial": (
        ["--adversarial_metric_epochs", "1", "--adversarial_triplets_per_anchor", "3", "--loss_weights", "classifier_loss=.5"],
        ["classifier_logits"],
        ("adversarial_margin~BAYESIAN~", "[-1,1]"),
    ),
    "unsupervised": (["--loss_margin_beta_shared"], [], ("views~INT_BAYESIAN~", "[2,3]")),
    "s2sd": (["--s2sd_dims", "5", "9", "--s2sd_features", "--s2sd_features_after", "1"], [], ("s2sd_T~LOG_BAYESIAN~", "[0.1,2]")),
    "diva": (["--diva_queue", "3"], ["shared", "Combined_intra_selfsimilarity"], ("diva_temperature~LOG_BAYESIAN~", "[0.05,1]")),
}


def flags_of(name):
    own, heads, _ = EVERY[name]
    return ["--trainer", name, "--loss", "margin", "--batch_mining", "distance", *own, "--evaltypes", "discriminative", *heads]


@pytest.fixture(scope="module", params=trainers.REGISTRY.names())
def trained(request, data, tmp_path_factory):
    """A finished run of each trainer."""
    return tiny.run(data, tmp_path_factory.mktemp(request.param), *flags_of(request.param), "--n_epochs", "2")


def selected_of(run):
    return json.loads((run.folder / "summary.json").read_text())["selected"]


def test_it_is_measured_again(trained):
    expected = selected_of(trained)["values"]
    assert tiny.measured(trained) == {split: pytest.approx(scores) for split, scores in expected.items()}
    assert len(expected["test"]) == 2 * len(trained.opt.evaltypes) > 0


def test_it_is_loaded_and_embeds_as_it_was_trained(trained):
    network, opt = load_run(trained.folder)
    assert opt.trainer == trained.opt.trainer and not network.training
    images = torch.randint(0, 256, (3, 3, 48, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        embeddings = network(images)[0]
    embeddings = embeddings if isinstance(embeddings, dict) else {"discriminative": embeddings}
    assert all(len(rows) == 3 and bool(rows.isfinite().all()) for rows in embeddings.values())
    assert embeddings["discriminative"].shape == (3, 6 if opt.trainer == "cascaded" else 8)
    asked = (
        {part for name in opt.evaltypes for part in name.removeprefix("Combined_").split("_")}
        if opt.trainer == "diva"
        else {*opt.evaltypes}
    )
    assert asked <= set(embeddings)


@pytest.mark.long
def test_it_is_reproduced_to_the_bit(trained, tmp_path):
    again = main.main(parameters.read(["--reproduce_results", str(trained.folder), "--save_path", str(tmp_path)]))
    assert again.folder != trained.folder
    tiny.assert_equal_runs(again.folder, trained.folder)


@pytest.mark.long
def test_it_resumes_after_an_epoch_to_the_bit(trained, tmp_path):
    one = main.main(parameters.read(["--reproduce_results", str(trained.folder), "--save_path", str(tmp_path), "--n_epochs", "1"]))
    main.main(parameters.read(["--resume_from", str(one.folder), "--n_epochs", "2"]))
    tiny.assert_equal_runs(one.folder, trained.folder)


@pytest.mark.long
@pytest.mark.parametrize("name", trainers.REGISTRY.names())
def test_a_flag_of_it_is_searched(name, data, tmp_path, monkeypatch):
    monkeypatch.setattr("search.report.draw", lambda *arguments: None)
    flag, values = EVERY[name][2]
    words = [*flags_of(name), "--n_epochs", "1", "--use_tv_split", "--tv_split_perc", ".5", "--seed", "3"]
    searched = flag.partition("~")[0]
    words += [f"--{flag}", values, "--bayesian_optimization_n_iter", "2", "--reproductions", "0"]
    folder = searcher.search(tiny.words(data, tmp_path, *words))
    with open(folder / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == ["complete"] * 2
    low, high = json.loads(values)
    for row in rows:
        saved = yaml.safe_load((folder / row["trial"] / "parameters.yaml").read_text())
        assert low <= float(row[searched]) == saved[searched] <= high and saved["trainer"] == name
    best = parameters.read(["--config", str(folder / "best_parameters.yaml")])
    assert best.trainer == name and rows[0][searched] != "" != rows[0]["value"]


@pytest.mark.long
@pytest.mark.parametrize("name", trainers.REGISTRY.names())
def test_its_folds_and_their_ensemble(name, data, tmp_path):
    flags = [*flags_of(name), "--n_epochs", "1", "--split_scheme", "class_disjoint", "--split_partitions", "2", "--split_sets", "2"]
    cross = tiny.run(data, tmp_path, *flags)
    main.main(parameters.read(["--evaluate_ensemble", "--resume_from", str(cross.folder)]))
    together = json.loads((cross.folder / "meta" / "concatenated.json").read_text())["values"]["test"]
    wanted = [part for part in flags[flags.index("--evaltypes") + 1 :] if not part.startswith("--")]
    wanted = wanted[: len(EVERY[name][1]) + 1]
    assert {f"{one}/map_r" if len(wanted) > 1 else "map_r" for one in wanted} <= set(together)


@pytest.mark.parametrize(("name", "flags", "losses"), [
    ("classifier", ["--memory_size", "24", "--memory_start", "1", "--memory_ema", ".9"], {"memory_loss", "metric_loss", "classifier_loss"}),
    ("adversarial", ["--memory_size", "24", "--memory_start", "1", "--chunk_size", "3"], {"memory_loss", "synth_loss", "classifier_loss"}),
    ("s2sd", ["--memory_size", "24", "--memory_start", "1", "--chunk_size", "3"], {"memory_loss", "target_loss", "feature_loss"}),
    ("diva", ["--memory_size", "48", "--memory_start", "0", "--memory_ema", ".9", "--chunk_size", "5"], {"memory_loss", "intra_loss"}),
    ("unsupervised", ["--memory_size", "24", "--memory_start", "1"], {"memory_loss", "metric_loss"}),
], ids=lambda part: part if isinstance(part, str) else "")  # fmt: skip
def test_what_goes_together_trains_and_resumes_to_the_bit(name, flags, losses, data, tmp_path):
    run = tiny.assert_resumes(data, tmp_path, *flags_of(name), *flags, epochs=2)
    rows = RunFolder(run.folder).metrics
    assert losses <= set(rows[(rows.split == "train") & (rows.epoch == 2)].metric)


def test_every_target_of_s2sd_has_learned_a_beta_of_its_own(data, tmp_path):
    flags = [*flags_of("s2sd"), "--n_epochs", "2", "--loss_margin_beta_lr", ".01"]
    state = checkpoint.read(tiny.run(data, tmp_path, *flags).folder / checkpoint.LAST)
    betas = [state["criterion"]["beta"], state["trainer"]["targets.0.beta"], state["trainer"]["targets.1.beta"]]
    for number, beta in enumerate(betas):
        assert beta.shape == (6,) and not torch.equal(beta, torch.full((6,), 1.2))
        assert not any(torch.equal(beta, other) for other in betas[:number])
