"""`--resume` continues a run that exists, `--resume_or_start` also begins one.

A miner that a loss leaves no choice about is taken.
"""

import pytest

import criteria
import main
import parameters
from runs import checkpoint, start_up
from search import __main__ as searcher
from tests.kit.refusals import refused
from tests.kit.runs import resolve, run_words
from tests.search.test_search import RANGES, command


def test_resume_refuses_a_run_that_does_not_exist(trained_once, folder_data, tmp_path):
    words = ["--dataset", "folder", "--save_path", str(trained_once.parent.parent), "--resume", "--savename"]
    assert resolve(*words, trained_once.name).resume == "latest"
    misspelt = trained_once.name[:-1]
    with refused("there is no run", misspelt, f"Did you mean {trained_once.name!r}?", "--resume_or_start"):
        resolve(*words, misspelt)
    words = run_words(folder_data, tmp_path, "--savename Killed")
    assert resolve(*words, "--resume_or_start").resume == "latest"
    with refused("there is no run"):
        resolve(*words, "--resume best")
    (tmp_path / "folder" / "Killed").mkdir(parents=True)
    assert resolve(*words, "--resume").resume == "latest", "it was killed before it wrote anything"


def test_a_reproduction_that_does_not_exist_is_refused_too(resumed_once, tmp_path):
    words = f"--reproduce_results {resumed_once} --savename Again --save_path {tmp_path}"
    with refused("there is no run", "Again", "--resume_or_start"):
        resolve(words, "--resume")
    started = resolve(words, "--resume_or_start")
    assert started.resume == "latest" and len(started.later) == len(resolve(words).later) == 1


ONE_MINER = [name for name, loss in criteria.REGISTRY.modules().items() if len(loss.ALLOWED_MINING_OPS or []) == 1]


@pytest.mark.parametrize("loss", ONE_MINER)
def test_the_only_miner_of_a_loss_is_taken(loss, folder_data, tmp_path, capsys):
    (miner,) = criteria.REGISTRY.module(loss).ALLOWED_MINING_OPS
    words = run_words(folder_data, tmp_path, "--loss", loss)
    opt = resolve(*words)
    assert opt.batch_mining == miner and "batch_mining" in parameters.answer(opt.but(explain=True))
    (tmp_path / "asked.yaml").write_text("batch_mining: distance\n")
    for miner_flags in ("--batch_mining distance", f"--config {tmp_path}/asked.yaml"):
        with refused("--batch_mining distance does not go with", miner):
            resolve(*words, miner_flags)
    main.main(resolve(*words, "--dry_run"))
    assert f"--batch_mining {miner}, the only miner that --loss {loss} takes" in capsys.readouterr().out


def test_an_interrupted_search_names_its_own_command(folder_data, tmp_path, monkeypatch, capsys):
    words = command(folder_data, tmp_path, *RANGES, "--bayesian_optimization_n_iter", "1", "--wandb_key", "KEY")
    words += ["--study_storage", f"sqlite:///{tmp_path}/study.db?password=PASSWORD"]

    def stop(*arguments, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", stop)
        with pytest.raises(SystemExit):
            # stopped in a trial
            searcher.search(words[:-2])
    in_a_trial = capsys.readouterr().out
    monkeypatch.setattr(start_up, "report", stop)
    with pytest.raises(KeyboardInterrupt):
        # stopped before the first trial
        searcher.search(words[:-2])
    for output in (in_a_trial, capsys.readouterr().out):
        assert "continue with: python -m search --dataset folder" in output and "--resume_from" not in output
        assert "KEY" not in output
    printed = searcher.shown_command(words)
    assert "'***'" in printed and "PASSWORD" not in printed and f"sqlite:///{tmp_path}/study.db" in printed
