"""Trials as runs: the loop over trials, a single trial, and its value as its run folder gives it."""

import gc
import math
from pathlib import Path

import torch

from engine.ranks import Lost
from runs.folder import RunFolder
from runs.meta import over_folds
from search import study as studies
from search.tables import write_tables
from utilities.errors import NotFinite, UserError
from utilities.locks import Lock
from utilities.reading import parsing, read_json


class TrialFailed(Exception):
    """A trial that has no value, with the reason; the search goes on."""


def scores(folder: Path) -> dict:
    """Split -> {metric: value at the selected epoch} of a run; of a cross-validation the mean over its folds.

    The folds' concatenated embeddings, where measured, are the split `test_concatenated`. Raises UserError where a
    summary is missing.
    """
    folds = sorted(folder.glob("fold_*/")) or [folder]
    joined = folder / "meta" / "concatenated.json"
    try:
        with parsing(folder):
            results = over_folds([RunFolder(fold).selected["values"] for fold in folds])
        with parsing(joined):
            if joined.exists():
                results["test_concatenated"] = read_json(joined)["values"]["test"]
    except UserError as error:
        raise UserError(f"{folder} holds no result: {error}") from error
    return {split: {metric: value["mean"] for metric, value in values.items()} for split, values in results.items()}


def objective_value(folder: Path, metric: str) -> float:
    """The best validation value of the metric that selects, mean over folds.

    Raises TrialFailed where it was never finite.
    """
    value = scores(folder).get("val", {}).get(metric)
    if value is None or not math.isfinite(value):
        raise TrialFailed(f"{metric} on validation was never finite")
    return value


class TrialLoop:
    """Works on a study until it has all its trials.

    Args:
        study: the open study.
        plan: the search's `Plan`.
        train: runs the options of one trial; the main job.
    """

    def __init__(self, study, plan, train):
        self.study = study
        self.plan = plan
        self.train = train
        self.lock = Lock(plan.folder / ".study.lock")
        # the number of the trial that this process works on, and that trial's lock
        self._current = self._alive = None

    def run(self) -> list[str]:
        """Run the requested number of trials, with new tables after each.

        Returns descriptions of those that run in other processes.
        """
        from optuna.trial import TrialState

        try:
            while True:
                self.lock.acquire()
                elsewhere = studies.collect_lost(self.study, self.plan.folder)
                waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
                if not waiting and len(studies.latest(self.study)) >= self.plan.trials:
                    write_tables(self.study, self.plan)
                    return elsewhere
                self.study.optimize(self._objective, n_trials=1, catch=(TrialFailed,))
                # The search's lock first: who holds it may have read that the trial runs, and would take it for lost.
                self.lock.acquire()
                self._alive.release()
                self._current = None
                # the trial's memory is freed before the next one begins
                gc.collect()
                torch.cuda.empty_cache()
                write_tables(self.study, self.plan)
        except BaseException as error:
            # A crash counts as a kill: the trial's own values may have caused it. So does the loss of one of several
            # processes.
            crashed = isinstance(error, Lost) or (isinstance(error, Exception) and not isinstance(error, UserError))
            # interrupted, crashed, or an error that another start can mend
            if self._current is not None:
                trial = self.study.get_trials(deepcopy=False)[self._current]
                if trial.state is not TrialState.COMPLETE:
                    studies.put_back(self.study, trial, killed=crashed)
            raise
        finally:
            if self._alive is not None:
                self._alive.release()
            self.lock.release()

    def _objective(self, trial) -> float:
        values = {flag: searched.suggest(trial) for flag, searched in self.plan.ranges.items()}
        name = studies.folder_name(self.study, trial)
        for attribute, value in {"folder": name, **studies.this_process()}.items():
            trial.set_user_attr(attribute, value)
        self._alive = studies.lock_of(self.plan.folder, name)
        self._alive.acquire()
        continues = "continues" in trial.user_attrs
        self._current = trial.number
        self.lock.release()
        flags = ", ".join(f"{flag} {_text(value)}" for flag, value in values.items())
        continued = ", continued" if continues else ""
        print(f"\n{name} of {self.plan.trials}{continued}: {flags}", flush=True)
        try:
            value = self._value(name, values, continues)
        except TrialFailed as error:
            trial.set_user_attr("reason", str(error))
            print(f"{name} failed: {error}", flush=True)
            raise
        print(f"{name}: {self.plan.metric} on validation {value:.4f}", flush=True)
        return value

    def _value(self, name: str, values: dict, continues: bool) -> float:
        folder = self.plan.folder / name
        if folder.exists() and not continues:
            raise TrialFailed(f"{folder} was made by somebody else, and is left alone")
        flags = [f"--group={self.plan.savename}"]
        if continues:
            # the earlier attempt may have been killed before it made its folder
            flags.append("--resume_or_start")
        try:
            opt = self.plan.read(values, name, *flags)
        except UserError as error:
            raise TrialFailed(str(error)) from error
        try:
            self.train(opt)
        except (NotFinite, torch.OutOfMemoryError) as error:
            raise TrialFailed(reason(error)) from error
        return objective_value(folder, self.plan.metric)


def reason(error: NotFinite | torch.OutOfMemoryError) -> str:
    """Why a run failed, in one line."""
    if isinstance(error, NotFinite):
        return str(error).partition(": the run stops")[0]
    return f"out of memory: {str(error).splitlines()[0]}"


def _text(value) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
