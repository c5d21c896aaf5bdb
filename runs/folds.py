"""A cross-validation on disk: folds and the results over them.

`<savename>/fold_0 …` are complete run folders, `<savename>/meta/` holds the results over all folds.

Processes with `--folds` train their own folds of one folder. The process that finishes the last fold writes the
results; `--aggregate_only` does so too.
"""

import contextlib
import shutil
from pathlib import Path

from runs.changes import record_changes, write_plan
from runs.folder import RunFolder, describe, run_folder
from runs.meta import Meta
from utilities.console import say
from utilities.errors import UserError
from utilities.files import alternatives, new_folder


class CrossValidation:
    """The folds of one cross-validation: `n_folds` of the split scheme that the flags `opt` name."""

    def __init__(self, opt, n_folds: int):
        self.opt = opt
        self.n_folds = n_folds
        self.requested = list(range(n_folds)) if opt.folds is None else sorted(opt.folds)
        self.folder = run_folder(opt)
        self.meta = Meta(self.folder, opt, n_folds)
        # epochs of each fold before this process trains; None once the flags are written
        self._epochs = None

    @property
    def results(self) -> dict:
        """Name -> what this process wrote to meta/."""
        return self.meta.results

    def fold(self, number: int) -> RunFolder:
        """The folder of one fold, with the flags that it goes on with."""
        return RunFolder(self.folder, self.opt).fold(number)

    @contextlib.contextmanager
    def started(self):
        """Make the folder, or share it with other processes' folds. Inside, the folds are trained.

        The flags of a new cross-validation are written at once, those of a resumed one by `fold_started`. A new folder
        in which no fold begins is removed.
        """
        is_new = self.opt.resume is None or not self.folder.is_dir()
        # with --folds, other processes may be about to train their folds in the same folder
        is_own = is_new and self.opt.folds is None
        if is_new:
            self.folder = new_folder(self.folder) if is_own else self._shared(self.folder)
            self.opt = self.opt.but(savename=str(Path(self.opt.savename).with_name(self.folder.name)))
            self.meta = Meta(self.folder, self.opt, self.n_folds)
        self._epochs = [self._epochs_of(fold) for fold in range(self.n_folds)]
        if is_new:
            self.fold_started()
        self._say_what_one_fold_lacks()
        try:
            yield
        except UserError:
            if is_own and not any(self.folder.glob("fold_*")):
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def fold_started(self) -> None:
        """Write the flags, once.

        It is called when the first fold has accepted them: flags that do not fit change nothing on disk.
        """
        if self._epochs is None:
            return
        record_changes(self.folder, self._epochs, self.opt)
        # before the flags, as a run does
        write_plan(self.folder, self.opt)
        describe(self.folder, self.opt)
        self._epochs = None

    def _say_what_one_fold_lacks(self) -> None:
        """Say, before it trains, that one fold has no deviation, and whether its test images are not measured."""
        if self.n_folds > 1:
            return
        note = f"--split_scheme {self.opt.split_scheme} makes one fold: its results have no deviation and no interval"
        if "test" not in self.opt.splits_to_eval and not self.opt.final_test:
            note += "; nothing is measured on test: --final_test does so at the end, also with --resume"
        say(note)

    def _epochs_of(self, fold: int) -> int:
        """The epochs after which a fold goes on: all trained ones, or with `--resume best` those of its checkpoint."""
        run = self.fold(fold)
        if self.opt.resume == "best" and fold in self.requested and run.has_checkpoint:
            # the last checkpoint may be the damaged one
            return run.selected["epoch"] or 0
        return run.progress.epochs

    def _shared(self, named_folder: Path) -> Path:
        """The first of `named_folder`, `named_folder_1` … with the same flags and none of the requested folds.

        It is made if it is new.
        """
        for folder in alternatives(named_folder):
            if not folder.exists():
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise UserError(
                        f"cannot make the run folder {folder}: {error.strerror}. Choose another --save_path"
                    ) from error
                return folder
            if not any((folder / f"fold_{fold}").exists() for fold in self.requested) and self._is_ours(folder):
                return folder

    def _is_ours(self, folder: Path) -> bool:
        try:
            saved = RunFolder(folder).flags
        except UserError:
            # Another process may have just made it.
            return folder.is_dir() and all(path.name.startswith(".") for path in folder.iterdir())
        names = self.opt.roles.having(change=True) - {"savename"}
        return all(getattr(self.opt, name) == saved.get(name) for name in names)

    def options(self, folds=None) -> list:
        """The flags of each of `folds`, with its number; default: the folds that `--folds` asks for."""
        if folds is None:
            folds = self.requested
        return [self.opt.of_fold(fold) for fold in folds]

    def to_train(self):
        """The flags of each fold that still has something to do, one after the other."""
        for opt in self.options():
            if opt.last_epoch == 0 and opt.until is not None:
                # a reproduction: the fold had not begun in this stage
                continue
            if self.opt.resume == "latest" and opt.fold in self.done():
                say(f"fold {opt.fold} of {self.n_folds} is finished")
                continue
            say(f"\nfold {opt.fold} of {self.n_folds}, counted from 0")
            yield opt

    def finished(self) -> list[int]:
        """The folds whose epochs are all trained, or whose patience ran out."""
        return [fold for fold in range(self.n_folds) if self.fold(fold).finished]

    def done(self) -> list[int]:
        """The folds with nothing left to do.

        They are finished, and with `--final_test` measured on test if an epoch was selected.
        """
        return [fold for fold in self.finished() if not self.fold(fold).needs_test]

    @property
    def complete(self) -> bool:
        """Whether every fold is finished."""
        return len(self.finished()) == self.n_folds

    @property
    def joins_folds(self) -> bool:
        """Whether `--final_test` also evaluates the folds' networks as one ensemble.

        Not against the training set (`compared_to_training_set`): the folds have none in common.
        """
        comparable = self.opt.eval_reference_set != "compared_to_training_set"
        return self.opt.final_test and self.n_folds > 1 and self.opt.n_epochs > 0 and comparable

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do.

        The requested folds are done, and once all folds are done, the meta results are those of all.
        """
        done = self.done()
        if len(done) < self.n_folds:
            return set(self.requested) <= set(done)
        return self.meta.is_current(done, self.joins_folds)

    def refuse_untrained(self) -> None:
        """Raise UserError where `--evaluate_ensemble` would join networks that are unfinished or untrained."""
        finished = self.finished()
        unfinished = [f"fold_{fold}" for fold in range(self.n_folds) if fold not in finished]
        if unfinished:
            raise UserError(
                f"--evaluate_ensemble joins all folds of {self.folder}; not finished: {', '.join(unfinished)}. "
                "--resume first"
            )
        untrained = [f"fold_{fold}" for fold in finished if self.fold(fold).selected["epoch"] is None]
        if untrained:
            raise UserError(
                f"--evaluate_ensemble joins trained networks: of {', '.join(untrained)} in {self.folder} no epoch "
                "was selected"
            )

    def aggregate(self) -> dict:
        """Write the results over the finished folds. Returns `results`. Raises UserError where no fold is finished."""
        folds = self.finished()
        if not folds:
            raise UserError(f"--aggregate_only: no fold in {self.folder} is finished")
        missing = sorted(set(range(self.n_folds)) - set(folds))
        if missing:
            say(f"folds {' '.join(map(str, missing))} are not finished: the meta results cover only the other folds")
        self.meta.aggregate(folds)
        return self.results
