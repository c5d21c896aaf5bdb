"""Weights & Biases and Comet: the same rows, under the ICML pipeline's names and plain ones.

A failing or slow network never stops or slows a run: `Background` runs the service's sink on a thread of its own, and
the first failure of a sink turns it off, with one printed line.
"""

import contextlib
import functools
import importlib
import itertools
import os
import queue
import re
import secrets
import threading
import time
from pathlib import Path

from runs.records import SECTIONS, SPLIT_TITLES, BatchRow, Row, Sink, named_row
from runs.records.damaged import as_file, as_folder, set_aside
from utilities.console import say
from utilities.errors import UserError
from utilities.reading import read_yaml

# Seconds that a run waits for its service at the start; after that it trains while the service still starts.
OPEN_WITHIN = 10
GIVEN_UP_AFTER = 30  # seconds since the start after which an ending run gives up a service that has not opened
CLOSE_WITHIN = 60  # seconds that an ending run waits until an open service has everything
ARTIFACT_WITHIN = 1800  # the same with --log_artifacts, which sends a checkpoint at the end
MOST_WAITING = 10_000  # calls that wait for a service; more are dropped
_RUN_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")
# What Comet collects by default: the command line, which may hold a key, the code and its changes, the console, the
# machine.
COMET_COLLECTS_NOTHING = dict.fromkeys(
    (
        "log_code",
        "log_graph",
        "log_git_metadata",
        "log_git_patch",
        "parse_args",
        "auto_param_logging",
        "auto_metric_logging",
        "auto_output_logging",
        "auto_log_co2",
        "log_env_details",
        "log_env_gpu",
        "log_env_cpu",
        "log_env_host",
        "log_env_network",
        "log_env_disk",
    ),
    False,
)


def online_sink(opt, folder: Path) -> Sink:
    """The sink of `--log_online` with its `--online_backend`, or one that is off.

    Raises UserError where Comet is not installed.
    """
    if not opt.log_online:
        return Sink()
    if opt.online_backend == "comet_ml":
        try:
            importlib.import_module("comet_ml")
        except ImportError as error:
            raise UserError("--online_backend comet_ml needs the package: pip install comet_ml") from error
        return Background(lambda: Comet(opt, folder), close_within=_close_within(opt))
    # Imported here, so that no worker is forked during the import; `Wandb` reports where it is missing.
    with contextlib.suppress(ImportError):
        importlib.import_module("wandb")
    return Background(lambda: Wandb(opt, folder), close_within=_close_within(opt))


def _close_within(opt) -> float:
    return ARTIFACT_WITHIN if opt.log_artifacts else CLOSE_WITHIN


class Background:
    """Runs another sink, made by `open_sink`, on a thread of its own: training does not wait for the service.

    The constructor waits up to `open_within` seconds until the service is open. `close` gives up a service that
    is not open `given_up_after` seconds after the start; an open one gets `close_within` seconds for calls that
    are still waiting.
    """

    def __init__(
        self,
        open_sink,
        open_within: float = OPEN_WITHIN,
        given_up_after: float = GIVEN_UP_AFTER,
        close_within: float = CLOSE_WITHIN,
    ):
        self._given_up_after = given_up_after
        self._close_within = close_within
        self._began = time.monotonic()
        self._calls = queue.Queue(MOST_WAITING)
        self._opened = threading.Event()
        self._dropped = False
        self._thread = threading.Thread(target=self._work, args=(open_sink,), name="online records", daemon=True)
        self._thread.start()
        self._opened.wait(open_within)

    def _work(self, open_sink) -> None:
        sink = open_sink()
        self._opened.set()
        method = None
        while method != "close":
            method, arguments, named = self._calls.get()
            getattr(sink, method)(*arguments, **named)

    def _later(self, method: str, *arguments, **named) -> None:
        try:
            self._calls.put_nowait((method, arguments, named))
        except queue.Full:
            if not self._dropped:
                say(
                    f"the online service is too slow: what {MOST_WAITING} waiting calls leave no room for is "
                    "dropped; local records go on"
                )
            self._dropped = True

    def __getattr__(self, method: str):
        """A method of the other sink, which is called later, on its thread."""
        if method.startswith("_"):
            raise AttributeError(method)
        return functools.partial(self._later, method)

    def close(self) -> None:
        self._later("close")
        if not self._opened.wait(max(0, self._began + self._given_up_after - time.monotonic())):
            say(
                f"the online service did not open within {self._given_up_after} s: given up; local records are complete"
            )
            return
        self._thread.join(self._close_within)
        if self._thread.is_alive():
            say(
                f"the online service did not take everything within {self._close_within} s: given up; local records "
                "are complete"
            )


def _never_fatal(method):
    """Wrap a method: its first failure is printed in one line and turns the sink off.

    Local records are complete without it.
    """

    @functools.wraps(method)
    def guarded(self, *args, **kwargs):
        if self.run is None:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            say(
                f"{type(self).__name__} failed and is off from here on ({type(error).__name__}: {error}); local "
                "records go on"
            )
            self.run = None

    return guarded


class _Service(Sink):
    """The common part of the services: names of values, and the description of a run.

    HIDES: the service can keep a value without drawing it. If not, `--online_names both` means `icml`, so that nothing
    is drawn twice.
    """

    HIDES = False

    def __init__(self, opt, folder: Path):
        self.run = None
        self._opt = opt
        self._folder = folder

    def _names(self, row: Row) -> list[str]:
        """The names under which a value is logged."""
        names = {"icml": [row.title], "plain": [row.name], "both": [row.title, row.name]}[self._opt.online_names]
        return names if self.HIDES else names[:1]

    def _metric_names(self, split: str, metric: str) -> list[str]:
        return self._names(named_row(0, split, metric, 0.0, 0, self._opt.evaltypes))

    def _selection(self, rule: str, epoch: int, values: dict) -> dict:
        """`selected/rule`, `selected/epoch`, and for each value `selected/<its name>`."""
        selection = {"selected/rule": rule, "selected/epoch": epoch}
        for split, metrics in values.items():
            for metric, value in metrics.items():
                for name in self._metric_names(split, metric):
                    selection[f"selected/{name}"] = value
        return selection


def _configuration(opt, folder: Path) -> dict:
    """The flags and, under `environment`, the content of environment.yaml: commit, versions, weights, counts."""
    try:
        environment = read_yaml(folder / "environment.yaml")
    except Exception:
        # environment.yaml is missing or damaged: the flags alone are sent
        environment = None
    configuration = opt.saved()
    if isinstance(environment, dict):
        configuration["environment"] = environment
    return configuration


class Wandb(_Service):
    """A W&B run in `<run>/wandb`, offline if there are no credentials; the same run is continued on resume.

    W&B takes rows only in the order of its step, and drops rows that come again after a resume. Our step is the
    number of batches trained so far plus that of epochs, so that epochs and batches share one order and a resumed run
    goes on in it.

    The x axis of curves is the epoch, of `batch/` the batch; the two counters make no panels. With `--online_names
    both` the ICML pipeline's names make none either: the plain ones do, a section a split. A picture is sent once, as
    an image: its panel shows all runs of a group.
    """

    HIDES = True

    def __init__(self, opt, folder: Path):
        super().__init__(opt, folder)
        self._step = 0
        try:
            self.run = self._start(opt, folder)
        except Exception as error:
            say(f"W&B could not start ({type(error).__name__}: {error}); local records go on")

    @staticmethod
    def _start(opt, folder: Path):
        import wandb

        mode = os.environ.get("WANDB_MODE")
        if opt.wandb_key and mode in (None, "online"):
            # The key is in memory only: no setting and no file of W&B's holds it.
            os.environ["WANDB_API_KEY"] = opt.wandb_key
        if mode is None:
            logged_in = bool(os.environ.get("WANDB_API_KEY")) or wandb.login(prompt=False)
            mode = "online" if logged_in else "offline"
            if not logged_in:
                say(
                    "--log_online: no W&B credentials (wandb login, WANDB_API_KEY or --wandb_key): offline; "
                    f"later: wandb sync {folder}/wandb/offline-run-*"
                )
        identity = _identity(as_folder(folder / "wandb"))
        settings = {
            "save_code": False,
            "console": "off",
            "disable_git": True,
            "x_disable_meta": True,
            "silent": True,
        }
        # older versions of wandb do not have this setting
        if "finish_timeout" in wandb.Settings.model_fields:
            settings["finish_timeout"] = _close_within(opt)
        resume = "allow" if mode == "online" else None
        run = wandb.init(
            dir=str(folder),
            mode=mode,
            project=opt.project,
            group=opt.group,
            name=_title(opt, folder),
            id=identity,
            resume=resume,
            config=_configuration(opt, folder),
            settings=wandb.Settings(**settings),
        )
        _define_panels(run, opt.online_names)
        return run

    @_never_fatal
    def write(self, rows: list[Row]) -> None:
        self._step = rows[0].step + rows[0].epoch + 1
        values = {name: row.value for row in rows for name in self._names(row)}
        self.run.log(values | {"epoch": rows[0].epoch}, step=self._step)

    @_never_fatal
    def write_batches(self, rows: list[BatchRow]) -> None:
        for step, rows_of_step in itertools.groupby(rows, key=lambda row: row.step):
            rows_of_step = list(rows_of_step)
            epoch = rows_of_step[0].epoch
            values = {f"batch/{row.name}": row.value for row in rows_of_step}
            self.run.log(values | {"batch/step": step, "epoch": epoch}, step=step + epoch + 1)

    @_never_fatal
    def arrays(self, epoch: int, split: str, values: dict) -> None:
        import wandb

        histogram_of = {name: wandb.Histogram(value) for name, value in values.items()}
        histograms = {logged: histogram_of[name] for name in values for logged in self._metric_names(split, name)}
        self.run.log(histograms | {"epoch": epoch}, step=self._step)

    @_never_fatal
    def picture(self, epoch: int, name: str, path) -> None:
        import wandb

        self.run.log({f"pictures/{name}": wandb.Image(str(path)), "epoch": epoch}, step=self._step)

    @_never_fatal
    def selected(self, rule: str, epoch: int, values: dict) -> None:
        self.run.summary.update(self._selection(rule, epoch, values))

    @_never_fatal
    def best(self, selected: dict, files: dict) -> None:
        import wandb

        name = re.sub(r"[^\w.-]", "_", f"{_title(self._opt, self._folder)}_{self.run.id}", flags=re.ASCII)
        artifact = wandb.Artifact(
            name[-128:], type="model", description=selected["rule"], metadata=self._selection(**selected)
        )
        for name_in_run, path in files.items():
            artifact.add_file(str(path), name=name_in_run)
        self.run.log_artifact(artifact, aliases=["latest", "selected", f"epoch_{selected['epoch']}"])

    @_never_fatal
    def close(self) -> None:
        self.run.finish()


def _define_panels(run, names: str) -> None:
    """Tell W&B which values go by epoch, which by batch, and which make no panel.

    No two patterns match the same name: of several matches W&B takes any one.
    """
    if names != "plain":
        for section in SECTIONS:
            run.define_metric(f"{section}: *", step_metric="epoch", hidden=names == "both")
    if names != "icml":
        for split in SPLIT_TITLES:
            run.define_metric(f"{split}/*", step_metric="epoch")
    run.define_metric("pictures/*", step_metric="epoch")
    run.define_metric("batch/*", step_metric="batch/step")
    for counter in ("epoch", "batch/step"):
        run.define_metric(counter, hidden=True)


def _identity(folder: Path) -> str:
    """The id of the run at W&B, kept in `run_id.txt` of its folder."""
    path = as_file(folder / "run_id.txt")
    saved_id = path.read_bytes().strip() if path.exists() else None
    if saved_id is not None and not _RUN_ID.fullmatch(saved_id):
        set_aside(path, "no id of a run")
    if not path.exists():
        path.write_text(secrets.token_hex(4))
    return path.read_text().strip()


def _title(opt, folder: Path) -> str:
    """The run's name at the service; a fold's with its cross-validation's."""
    return folder.name if opt.fold is None else f"{folder.parent.name}/{folder.name}"


class Comet(_Service):
    """A Comet experiment, offline if there is no key.

    It holds what a run records, and nothing that Comet collects by itself.
    """

    def __init__(self, opt, folder: Path):
        super().__init__(opt, folder)
        import comet_ml

        key = opt.comet_api_key or os.environ.get("COMET_API_KEY")
        try:
            if key:
                self.run = comet_ml.Experiment(api_key=key, project_name=opt.project, **COMET_COLLECTS_NOTHING)
            else:
                say(f"--log_online: no COMET_API_KEY: offline; later: comet upload {folder}/comet/*.zip")
                offline_folder = str(folder / "comet")
                self.run = comet_ml.OfflineExperiment(
                    offline_directory=offline_folder, project_name=opt.project, **COMET_COLLECTS_NOTHING
                )
            self.run.set_name(_title(opt, folder))
            self.run.add_tag(opt.group)
            self.run.log_parameters(_configuration(opt, folder))
        except Exception as error:
            say(f"Comet could not start ({type(error).__name__}: {error}); local records go on")

    @_never_fatal
    def write(self, rows: list[Row]) -> None:
        for row in rows:
            for name in self._names(row):
                self.run.log_metric(name, row.value, step=row.step, epoch=row.epoch)

    @_never_fatal
    def write_batches(self, rows: list[BatchRow]) -> None:
        for row in rows:
            self.run.log_metric(f"batch/{row.name}", row.value, step=row.step, epoch=row.epoch)

    @_never_fatal
    def arrays(self, epoch: int, split: str, values: dict) -> None:
        for name, value in values.items():
            for logged in self._metric_names(split, name):
                self.run.log_histogram_3d(value, name=logged, step=epoch)

    @_never_fatal
    def picture(self, epoch: int, name: str, path) -> None:
        self.run.log_image(str(path), name=f"pictures/{name}", step=epoch)

    @_never_fatal
    def selected(self, rule: str, epoch: int, values: dict) -> None:
        self.run.log_others(self._selection(rule, epoch, values))

    @_never_fatal
    def best(self, selected: dict, files: dict) -> None:
        for name, path in files.items():
            self.run.log_model("selected", str(path), file_name=name, overwrite=True)

    @_never_fatal
    def close(self) -> None:
        self.run.end()
