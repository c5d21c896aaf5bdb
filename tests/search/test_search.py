"""A search on tiny data, in this process: what it leaves, how it fails, how it goes on."""

import contextlib
import csv
import importlib
import itertools
import json
import math
import sqlite3
import statistics
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import main
import metrics
import parameters
from engine.runtime import NonFiniteLoss
from runs.folder import RunFolder, run_folder
from search import __main__ as searcher
from search import report, settings, tables
from search import study as studies
from tests.kit.processes import lock_holder
from tests.kit.refusals import refused
from tests.kit.runs import on_folder
from utilities.errors import UserError


def command(data, tmp_path, *flags, group="Tiny"):
    words = (
        "--arch conv4_normalize --embed_dim 8 --loss triplet --batch_mining semihard --bs 8 --n_epochs 1 --kernels 0 "
        "--evaluation_metrics e_recall@1 map_r --storage_metrics map_r --use_tv_split --tv_split_perc 0.5 --no_records "
        f"--plot_every 0 --group {group} --seed 3"
    )
    return on_folder(data, tmp_path / "runs", words, *flags)


def counts(trials, reproductions=None):
    """The flags of how many trials and reproductions a search has."""
    words = f"--bayesian_optimization_n_iter {trials}"
    return words if reproductions is None else f"{words} --reproductions {reproductions}"


RANGES = "--lr~LOG_BAYESIAN~ [1e-4,1e-2] --loss_triplet_margin~BAYESIAN~ 0,1".split()


def trials_of(folder):
    with open(folder / "trials.csv", newline="") as file:
        return list(csv.DictReader(file))


def value_of(folder):
    return RunFolder(folder).selected["values"]["val"]["map_r"]


def without_training(patch):
    """In place of training: a summary whose value the flags decide; no plots. The runs: (savename, --resume, --lr)."""
    runs = []

    def train(opt):
        runs.append((opt.savename, opt.resume, opt.lr))
        folder = run_folder(opt)
        folder.mkdir(parents=True, exist_ok=True)
        value = 0.9 - abs(math.log10(opt.lr) + 3) / 10 - (opt.loss_triplet_margin - 0.3) ** 2
        values = {split: {"map_r": value} for split in opt.splits_to_eval}
        (folder / "summary.json").write_text(json.dumps({"selected": {"values": values}}))

    patch.setattr(main, "main", train)
    patch.setattr(report, "draw", lambda *_: [])
    return runs


@pytest.fixture
def trained(monkeypatch):
    return without_training(monkeypatch)


@pytest.mark.long
def test_a_search_leaves_everything(folder_data, tmp_path, monkeypatch):
    pictures = []
    monkeypatch.setattr(report, "draw", lambda study, *place: pictures.append((len(study.trials), *place)))
    folder = searcher.search(command(folder_data, tmp_path, *RANGES, counts(2, 2)))
    assert folder == tmp_path / "runs" / "folder" / "Tiny_search"
    rows = trials_of(folder)
    assert [row["trial"] for row in rows] == ["trial_0", "trial_1"] and {row["state"] for row in rows} == {"complete"}
    for row in rows:
        run = folder / row["trial"]
        assert float(row["value"]) == value_of(run)
        flags = RunFolder(run).flags
        assert 1e-4 <= flags["lr"] == float(row["lr"]) <= 1e-2
        assert 0 <= flags["loss_triplet_margin"] == float(row["loss_triplet_margin"]) <= 1
        assert list(json.loads((run / "summary.json").read_text())["best"]) == ["val"], "a search never looks at test"
    best = max(rows, key=lambda row: float(row["value"]))
    saved = yaml.safe_load((folder / "best_parameters.yaml").read_text())
    opt = parameters.read(["--config", str(folder / "best_parameters.yaml")])
    expected = float(best["lr"]), float(best["loss_triplet_margin"])
    assert (opt.lr, opt.loss_triplet_margin) == (saved["lr"], saved["loss_triplet_margin"]) == expected
    assert (opt.arch, opt.bs, opt.seed, opt.use_tv_split, opt.group) == ("conv4_normalize", 8, 3, True, "Sample_Group")
    assert pictures == [(2, folder, "map_r")]

    reproductions = yaml.safe_load((folder / "reproductions.yaml").read_text())
    runs = [folder / f"{best['trial']}_reproduction_{i}" for i in (1, 2)]
    flags = [RunFolder(run).flags for run in runs]
    for seeds in ([run["seed"] for run in flags], [run["seed"] for run in reproductions["runs"].values()]):
        assert seeds == [4, 5], "the winning run's seed is not among them"
    results = reproductions["results"]["val"]["map_r"]
    assert results["values"] == [value_of(run) for run in runs]
    assert results["mean"] == pytest.approx(statistics.fmean(results["values"]))
    # t of 1 degree of freedom
    half = 12.7062047 * statistics.stdev(results["values"]) / math.sqrt(2)
    assert results["interval_95"] == pytest.approx([results["mean"] - half, results["mean"] + half])
    assert "map_r" in reproductions["results"]["test"], "the selected epoch of a reproduction is measured on test"
    assert {run["group"] for run in flags} == {"Tiny_best"}


def test_a_search_goes_on(folder_data, tmp_path, trained):
    def search(n, *words, ranges=RANGES):
        return searcher.search(command(folder_data, tmp_path, *ranges, counts(n), *words))

    folder = search(2, "--reproductions 2")
    rows = trials_of(folder)
    assert len(trained) == 4
    trained.clear()
    search(2, "--reproductions 2")
    assert trained == [], "all is done already"
    wider = ["--lr~LOG_BAYESIAN~ [1e-5,1e-1]", *RANGES[2:]]
    search(4, "--reproductions 0 --resume", ranges=wider)
    assert [name for name, *_ in trained] == [f"Tiny_search/trial_{i}" for i in (2, 3)]
    assert [row["value"] for row in trials_of(folder)[:2]] == [row["value"] for row in rows]
    diff = yaml.safe_load((folder / "configs" / "resume_training_config_diffs_2" / "search.yaml").read_text())
    assert diff == {"lr": {"before": ["LOG_BAYESIAN", 1e-4, 1e-2], "now": ["LOG_BAYESIAN", 1e-5, 1e-1]}}

    for words, ranges, message in [
        ("", RANGES, "bounds may only be widened"),
        ("", ["--lr~BAYESIAN~ [1e-5,1e-1]", *RANGES[2:]], "must stay"),
        ("", wider[:1], "searches other flags"),
        ("--bs 6", wider, "--bs 6 .before: 8."),
        ("--tv_split_perc 0.4 --resume_allow_changes", wider, "measured in different ways"),
    ]:
        with refused(message):
            search(4, words, ranges=ranges)
    search(4, "--bs 6 --resume_allow_changes --reproductions 0", ranges=wider)


@pytest.mark.parametrize(
    ("old", "new", "is_within"),
    [
        (["BAYESIAN", 0.1, 1.0], ["BAYESIAN", 0.1, 1.0], True),
        (["BAYESIAN", 0.1, 1.0], ["BAYESIAN", 0.0, 2.0], True),
        (["BAYESIAN", 0.1, 1.0], ["BAYESIAN", 0.2, 2.0], False),
        (["BAYESIAN", 0.1, 1.0], ["BAYESIAN", 0.0, 0.9], False),
        (["BAYESIAN", 0.1, 1.0], ["LOG_BAYESIAN", 0.1, 1.0], False),
        (["CHOICE", "adam", "sgd"], ["CHOICE", "adam", "sgd"], True),
        (["CHOICE", "adam", "sgd"], ["CHOICE", "adam", "sgd", "rmsprop"], False),
    ],
)
def test_a_range_may_be_widened_at_each_end(old, new, is_within):
    assert settings._is_within(old, new) == is_within


@pytest.mark.parametrize(("direction", "value"), [("maximize", 3.0), ("minimize", 1.0)])
def test_the_best_trial_is_that_of_the_direction(direction, value):
    import optuna

    studies.quiet()
    study = optuna.create_study(direction=direction)
    values = iter((2.0, 1.0, 3.0))
    study.optimize(lambda trial: next(values), n_trials=3)
    assert tables.best_of(study).value == value


@pytest.mark.long
def test_a_trial_fails_with_its_reason_and_the_search_goes_on(folder_data, tmp_path, monkeypatch, trained):
    somebody_elses = tmp_path / "runs" / "folder" / "Tiny_search" / "trial_3"

    def train(opt, real=main.main):
        # Somebody else makes the folder of a later trial meanwhile
        somebody_elses.mkdir(exist_ok=True)
        if opt.savename.endswith(("trial_1", "reproduction_1")):
            raise NonFiniteLoss("the loss is nan at epoch 1, step 2: the run stops, its last checkpoint is from before")
        if opt.savename.endswith("trial_2"):
            metrics.compute(["e_recall@1"], np.full((3, 2), np.nan), [0, 0, 1])
        return real(opt)

    monkeypatch.setattr(main, "main", train)
    argv = command(folder_data, tmp_path, *RANGES[:2], counts(5, 2))
    folder = searcher.search(argv)
    reproductions = yaml.safe_load((folder / "reproductions.yaml").read_text())
    failures = [run.get("failed") for run in reproductions["runs"].values()]
    assert failures == ["the loss is nan at epoch 1, step 2", None], "the others are run all the same"
    assert len(reproductions["results"]["val"]["map_r"]["values"]) == 1
    rows = trials_of(folder)
    assert [row["state"] for row in rows] == ["complete", "fail", "fail", "fail", "complete"]
    assert rows[1]["reason"] == "the loss is nan at epoch 1, step 2" and rows[1]["value"] == ""
    assert "NaN or infinity" in rows[2]["reason"] and "somebody else" in rows[3]["reason"]
    searcher.search(argv)
    assert not list(somebody_elses.iterdir()), "left alone"


def test_a_real_non_finite_loss_fails_the_trial(folder_data, tmp_path, monkeypatch):
    nan_loss = lambda trainer, outputs, batch: outputs["embeddings"].sum() * float("nan")  # noqa: E731
    monkeypatch.setattr("trainers._trainer.Trainer.metric_loss", nan_loss)
    with refused("no trial .* succeeded"):
        searcher.search(command(folder_data, tmp_path, "--lr~BAYESIAN~ [0.1,0.5]", counts(1)))
    (row,) = trials_of(tmp_path / "runs" / "folder" / "Tiny_search")
    assert row["state"] == "fail" and "the loss is" in row["reason"]


STOPS = {"ctrl-c": KeyboardInterrupt(), "exit": SystemExit(130), "disk": UserError("the disk is full")}


@pytest.mark.parametrize("stop", ["ctrl-c", *(pytest.param(stop, marks=pytest.mark.long) for stop in ("exit", "disk"))])
def test_a_stopped_trial_is_continued(folder_data, tmp_path, monkeypatch, trained, stop):
    def train(opt, real=main.main):
        real(opt)
        if len(trained) == 2:
            raise STOPS[stop]

    monkeypatch.setattr(main, "main", train)
    argv = command(folder_data, tmp_path, *RANGES[:2], counts(3, 0))
    with pytest.raises(type(STOPS[stop])):
        searcher.search(argv)
    folder = searcher.search(argv)
    runs = [(name.removeprefix("Tiny_search/trial_"), resume) for name, resume, _ in trained]
    assert runs == [("0", None), ("1", None), ("1", "latest"), ("2", None)]
    assert trained[1][2] == trained[2][2], "with the same values"
    assert [(row["trial"], row["state"]) for row in trials_of(folder)] == [(f"trial_{i}", "complete") for i in range(3)]


@pytest.mark.long
@pytest.mark.parametrize("ending", ["killed", "killed, url", "error"])
def test_a_trial_that_never_ends_well_is_not_tried_for_ever(folder_data, tmp_path, monkeypatch, trained, ending):
    storage = f"--study_storage sqlite:///{tmp_path / 'study.db'}" if ending == "killed, url" else ""
    argv = command(folder_data, tmp_path, *RANGES[:2], counts(2, 0), storage)
    monkeypatch.setattr(studies, "ATTEMPTS", 2)
    real = studies.put_back
    ends = RuntimeError if ending == "error" else KeyboardInterrupt

    def train(opt, train=main.main):
        if opt.savename.endswith("_0"):
            raise ends("value cannot be converted")
        return train(opt)

    monkeypatch.setattr(main, "main", train)
    if ending != "error":
        # as if the process had died: nobody puts the trial back, and who asks later finds its process gone
        monkeypatch.setattr(studies, "put_back", lambda study, trial, killed=True: real(study, trial, killed=True))
    for _ in range(studies.ATTEMPTS):
        with pytest.raises(ends):
            searcher.search(argv)
    rows = trials_of(searcher.search(argv))
    outcomes = [(row["trial"], row["state"], row["attempts"]) for row in rows]
    assert outcomes == [("trial_0", "fail", str(studies.ATTEMPTS)), ("trial_1", "complete", "1")]
    assert ending == "error" or rows[0]["reason"] == "its process was killed"


def test_choices_and_a_database(folder_data, tmp_path, trained):
    ranges = "--optim~CHOICE~ [adam,sgd] --momentum~BAYESIAN~ [0.1,0.9]"
    storage = f"--study_storage sqlite:///{tmp_path / 'study.db'}"
    argv = command(folder_data, tmp_path, ranges, counts(2, 0), storage)
    folder = searcher.search(argv)
    rows = trials_of(folder)
    assert len(rows) == 2 and {row["optim"] for row in rows} <= {"adam", "sgd"}
    assert all(0.1 <= float(row["momentum"]) <= 0.9 for row in rows)
    assert not (folder / studies.DATABASE).exists()
    with refused("--study_storage"):
        searcher.search([*argv[:-1], "nosuch://nowhere"])


def test_what_cannot_be_searched(folder_data, tmp_path):
    words = command(folder_data, tmp_path, *RANGES)
    for flags, message in (
        (counts(0), "at least 1"),
        ("--n_epochs 0", "--n_epochs 0 trains nothing"),
        ("--splits_to_eval test", "val"),
        ("--resume_from somewhere", "somewhere"),
        ("--list losses", "--list"),
        ("--final_test", "no trial may see the test set"),
        ("--explain", "--explain is main.py's alone"),
        ("--check_data", "--check_data is main.py's alone"),
        ("--profile_steps 2", "--profile_steps is main.py's alone"),
        ("--evaluate_only", "--evaluate_only is main.py's alone"),
        ("--find lr", "--find is main.py's alone"),
    ):
        with pytest.raises(UserError, match=message):
            searcher.search([*words, *flags.split()])
    for word in ("--use_tv_split", "--tv_split_perc", "0.5"):
        words.remove(word)
    with refused("validation"):
        searcher.search(words)
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_writes_a_picture_alone(folder_data, tmp_path, capsys):
    assert searcher.search(command(folder_data, tmp_path, *RANGES, "--dry_run")) is None
    assert "dry run" in capsys.readouterr().out
    assert [path.name[-10:] for path in (tmp_path / "runs").rglob("*") if path.is_file()] == ["_batch.png"]


@pytest.mark.long
def test_folds(folder_data, tmp_path):
    folds = "--split_scheme class_disjoint --split_partitions 2 --split_sets 2"
    argv = command(folder_data, tmp_path, *RANGES[:2], counts(1, 1), folds)
    for word in ("--use_tv_split", "--tv_split_perc", "0.5"):
        argv.remove(word)
    folder = searcher.search(argv)
    (row,) = trials_of(folder)
    mean = statistics.fmean(value_of(folder / "trial_0" / f"fold_{i}") for i in range(2))
    assert float(row["value"]) == pytest.approx(mean)
    results = yaml.safe_load((folder / "reproductions.yaml").read_text())["results"]
    assert set(results) == {"val", "test", "test_concatenated"}
    assert results["test"]["map_r"]["interval_95"] is None, "one run"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["Tiny_search"]


def test_a_short_search_is_not_reproduced_unless_asked(folder_data, tmp_path, trained, capsys):
    argv = command(folder_data, tmp_path, *RANGES, counts(1))
    plan = searcher.plan(argv)
    for trials, reproductions, count in ((19, None, 0), (20, None, 10), (4, 1, 1), (50, 0, 0)):
        options = SimpleNamespace(bayesian_optimization_n_iter=trials, reproductions=reproductions)
        assert plan._replace(options=options).reproductions == count
    folder = searcher.search(argv)
    assert len(trained) == 1 and not (folder / "reproductions.yaml").exists()
    line = "0 reproductions, the default for 1 trial: --reproductions N makes more"
    assert line in capsys.readouterr().out.splitlines()


def test_reproductions_of_an_earlier_best_trial_do_not_count(tmp_path):
    content = {"trial": "trial_0", "results": {}, "runs": {"trial_0_reproduction_1": {"failed": "no memory"}}}
    (tmp_path / report.REPRODUCTIONS).write_text(yaml.safe_dump(content))
    for best, progress in (
        ("trial_0", (True, "0 trials and 1 of 1 reproductions")),
        ("trial_1", (False, "after 0 of 0 trials and 0 of 1 reproductions")),
    ):
        (tmp_path / report.BEST).write_text(f"# {best}: map_r 0.5\n")
        assert report.how_far(tmp_path, 0, 1) == progress


def test_pictures_have_whole_trial_numbers_and_ticks_apart(tmp_path, monkeypatch):
    import optuna
    from matplotlib.figure import Figure

    studies.quiet()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))

    def value(trial):
        margin = trial.suggest_float("loss_multisimilarity_margin", 1e-4, 3e-4, log=True)
        bins = trial.suggest_int("loss_fastap_num_bins", 2, 5)
        return (trial.suggest_categorical("optim", ["adam", "sgd"]) == "sgd") - margin - bins

    study.optimize(value, n_trials=4)
    # The first trial was killed and continued: there is an attempt more than there are trials
    first = study.trials[0]
    attempt = {"params": first.params, "distributions": first.distributions, "value": 1.5}
    study.add_trial(optuna.trial.create_trial(**attempt, user_attrs={"continues": 0, "folder": "trial_0"}))
    labels = {}
    save = Figure.savefig

    def save_and_read(figure, path, **options):
        save(figure, path, **options)
        for axes, coordinate in itertools.product(figure.axes, (0, 1)):
            axis = (axes.xaxis, axes.yaxis)[coordinate]
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_ticklabels() if low <= tick.get_position()[coordinate] <= high]
            ticks = [tick for tick in ticks if tick.get_text()]
            boxes = [tick.get_window_extent() for tick in ticks if tick.get_visible()]
            assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes)), (path, axis.get_label_text())
            labels[path.stem, axis.get_label_text().replace("\n", "")] = [tick.get_text() for tick in ticks]

    monkeypatch.setattr(Figure, "savefig", save_and_read)
    pictures = report.draw(study, tmp_path, "map_r")
    assert pictures == [tmp_path / "plots" / f"{name}.png" for name in KINDS_OF_PLOTS]
    assert all(map(Path.is_file, pictures))
    assert labels["history", "Trial"] == labels["slice", "Trial"] == ["0", "1", "2", "3"]
    assert set(labels["slice", "loss_fastap_num_bins"]) <= set("123456")


def drawn_study(folder):
    """Draw a study of three trials over two flags. Returns the names in `plots/`."""
    import optuna

    studies.quiet()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))
    value = lambda trial: trial.suggest_float("lr", 1e-4, 1e-2, log=True) + trial.suggest_int("bs", 2, 5)  # noqa: E731
    study.optimize(value, n_trials=3)
    report.draw(study, folder, "map_r")
    return {path.name for path in (folder / "plots").iterdir()}


KINDS_OF_PLOTS = ("history", "slice", "contour", "importance")


def test_plots_are_pages_too_which_need_no_network(tmp_path):
    pytest.importorskip("plotly")
    files = {f"{kind}.{ending}" for kind in KINDS_OF_PLOTS for ending in ("png", "html")}
    assert drawn_study(tmp_path) == files | {"plotly.min.js"}
    for kind in KINDS_OF_PLOTS:
        page = (tmp_path / "plots" / f"{kind}.html").read_text()
        assert 'src="plotly.min.js"' in page and "map_r" in page and '<script src="http' not in page


def test_without_plotly_there_are_pictures_and_one_line(tmp_path, capsys, monkeypatch):
    # optuna loads the module on demand: until then the name stands for another object
    visualization = importlib.import_module("optuna.visualization")
    monkeypatch.setattr(visualization, "is_available", lambda: False)
    assert drawn_study(tmp_path) == {f"{kind}.png" for kind in KINDS_OF_PLOTS}
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "pip install plotly" in out and not err


def test_means_over_folds(tmp_path):
    from search.trials import TrialFailed, objective_value, scores

    for fold, value in enumerate([0.25, 0.5, 0.75]):
        (tmp_path / f"fold_{fold}").mkdir()
        values = {"val": {"map_r": value, "nmi": 1.0} if fold else {"map_r": value}}
        (tmp_path / f"fold_{fold}" / "summary.json").write_text(json.dumps({"selected": {"values": values}}))
    assert scores(tmp_path) == {"val": {"map_r": 0.5}}, "only what every fold has"
    assert objective_value(tmp_path, "map_r") == 0.5
    with pytest.raises(TrialFailed, match="never finite"):
        objective_value(tmp_path, "nmi")
    (tmp_path / "diverged").mkdir()
    (tmp_path / "diverged" / "summary.json").write_text('{"selected": {"values": {"val": {"map_r": null}}}}')
    with pytest.raises(TrialFailed, match="never finite"):
        objective_value(tmp_path / "diverged", "map_r")
    with refused("no result"):
        scores(tmp_path / "elsewhere")


@pytest.mark.parametrize("host", ["here", pytest.param("elsewhere", marks=pytest.mark.long)])
def test_who_is_lost(tmp_path, capsys, host):
    """Here the system knows whether a trial's process lives, of another machine the heartbeat."""
    from search.space import Range

    studies.quiet()
    ranges = {"lr": Range("lr", "BAYESIAN", (0.0, 1.0))}
    options = SimpleNamespace(study_storage=None, heartbeat=1)
    opt = SimpleNamespace(dataset="glyphs", group="Tiny", seed=0)
    plan = SimpleNamespace(options=options, opt=opt, ranges=ranges, folder=tmp_path / "100% {a}?b#c")
    plan.folder.mkdir()
    study = studies.open_study(plan, "maximize")
    trial = study.ask()
    value = ranges["lr"].suggest(trial)
    study._storage.record_heartbeat(trial._trial_id)
    for name, value_of_name in studies.this_process().items():
        trial.set_user_attr(name, value_of_name)
    if host == "elsewhere":
        trial.set_user_attr("host", host)
    with lock_holder(plan.folder / ".trial_0.lock"):
        (elsewhere,) = studies.collect_lost(study, plan.folder)
        assert elsewhere == f"trial_0 (host {trial.user_attrs['host']}, process {trial.user_attrs['process']})"
    if host == "elsewhere":
        assert studies.collect_lost(study, plan.folder) == [elsewhere]
        deadline = time.monotonic() + 60
        while studies.collect_lost(study, plan.folder) and time.monotonic() < deadline:
            time.sleep(0.2)
    assert studies.collect_lost(study, plan.folder) == []
    assert capsys.readouterr().out.count("trial_0: its process was killed; it is continued") == 1
    continuation = study.ask()
    assert ranges["lr"].suggest(continuation) == value and studies.folder_name(study, study.trials[1]) == "trial_0"
    assert [studies.folder_name(study, t) for t in studies.latest(study)] == ["trial_0"]
    unborn = study.ask()
    assert studies.folder_name(study, study.trials[2]) == "trial_1", "attempts do not count"
    unborn.suggest_float("lr", 0, 1)
    assert studies.collect_lost(study, plan.folder) == [], "a process that died before it said who it was"


def test_a_study_of_the_other_direction_is_refused(folder_data, tmp_path, monkeypatch, trained):
    words = command(folder_data, tmp_path, *RANGES, counts(2))
    folder = searcher.search(words)
    before = (folder / "study.db").read_bytes()
    monkeypatch.setattr(metrics, "higher_is_better", lambda metric: False)
    with refused("study.db holds a search that is to maximize its value, and map_r is to minimize", "another --group"):
        searcher.search(words)
    assert (folder / "study.db").read_bytes() == before


def test_a_locked_study_is_locked_and_a_damaged_one_damaged(folder_data, tmp_path, monkeypatch, trained):
    words = command(folder_data, tmp_path, *RANGES, counts(2))
    folder = searcher.search(words)
    monkeypatch.setattr(studies, "PATIENCE", 0.05)
    for storage in ([], ["--study_storage", f"sqlite:///{folder / 'study.db'}?timeout=0.05"]):
        with contextlib.closing(sqlite3.connect(folder / "study.db")) as connection:
            connection.execute("begin exclusive")
            with refused("is locked by another program for more than 0.05 seconds. Nothing is damaged"):
                searcher.search([*words[:-1], "3", *storage])
    with contextlib.closing(sqlite3.connect(folder / "study.db")) as connection:
        (root,) = connection.execute("select rootpage from sqlite_master where name = 'trial_params'").fetchone()
        (size,) = connection.execute("pragma page_size").fetchone()
    content = bytearray((folder / "study.db").read_bytes())
    content[(root - 1) * size : root * size] = bytes(size)
    (folder / "study.db").write_bytes(content)
    with refused("study.db is damaged, or of another search", "put a copy of it back"):
        searcher.search([*words[:-1], "3"])


def test_a_continued_attempt_is_no_further_trial():
    attempts = [
        SimpleNamespace(user_attrs={"folder": "trial_0"}, value=None),
        SimpleNamespace(user_attrs={"folder": "trial_0", "continues": 0}, value=0.5),
    ]
    studies._check("study.db", attempts, {"trial_0": 0.5})
    with refused("does not know trial_1"):
        studies._check("study.db", attempts, {"trial_0": 0.5, "trial_1": None})


@pytest.mark.parametrize("name", ["../../thesis", "/tmp/thesis", "trial_1/../..", "trial_x", "trial_1\n", 7])
def test_a_study_from_someone_else_names_no_folder_outside_of_the_search(name):
    import optuna

    study = optuna.create_study()
    study.enqueue_trial({}, user_attrs={"folder": name})
    with refused(r"the study is damaged, or of another search: it names the folder .* expected trial_<number>"):
        studies.folder_name(study, study.get_trials()[0])


def test_a_widened_range_stays_in_the_model():
    import optuna

    studies.quiet()
    study = optuna.create_study(direction="maximize")
    for high, trials in ((1, 5), (4, 7)):
        study.sampler = studies.sampler_of({"x": optuna.distributions.FloatDistribution(0, high)}, seed=0)
        study.optimize(lambda trial: -((trial.suggest_float("x", 0, high) - 3) ** 2), n_trials=trials)  # noqa: B023
    assert study.best_value > -0.01, "the Gaussian process leaves the old bounds and finds the top"


def test_what_failed_is_not_proposed_again_and_again():
    import optuna

    studies.quiet()

    def value(trial):
        x = trial.suggest_float("x", 0, 1)
        if x > 0.7:
            raise MemoryError
        return x

    sampler = studies.sampler_of({"x": optuna.distributions.FloatDistribution(0, 1)}, seed=2**32 + 1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(value, n_trials=16, catch=MemoryError)
    failed = [trial.params["x"] for trial in study.trials[5:] if trial.value is None]
    assert study.best_value > 0.68 and len(failed) < 8 and min(failed) > 0.7, "it learns where the bound lies"
