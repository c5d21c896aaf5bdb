"""Online services: what they are told, under which names, and that they never hold a run up."""

import re
import sys
import threading
import time
import types
import zipfile

import numpy as np
import pytest
import yaml

from options.flags.roles import CONTROL, METHOD, Roles
from options.options import Options
from runs.records import Sink, online
from runs.records.tensorboard import EventFiles
from tests.runs.records._made import BATCHES, batch_rows, rows
from tests.runs.records._wandb import read_back


def test_a_failing_service_is_reported_once_and_stops_nothing(capsys):
    class Broken:
        def log(self, *args, **kwargs):
            raise ConnectionError("no route to host")

    sink = online.Wandb.__new__(online.Wandb)
    sink.run = Broken()
    sink._opt = offline_options()
    sink.write(rows(1))
    sink.write(rows(2))
    assert capsys.readouterr().out.count("no route to host") == 1


def offline_options(**changes):
    names = {"project": "P", "group": "G", "online_names": "icml", "evaltypes": ["discriminative"]}
    keys = {"wandb_key": None, "comet_api_key": None, "log_artifacts": False}
    flags = {**names, **keys, "lr": 0.1, "seed": 0, **changes}
    return Options(flags, Roles(lr=METHOD, seed=METHOD, wandb_key=CONTROL, comet_api_key=CONTROL, weights=METHOD))


def comet_sink(folder, **flags):
    return online.online_sink(offline_options(log_online=True, online_backend="comet_ml", **flags), folder)


@pytest.fixture
def offline(monkeypatch):
    """W&B without network; `wandb.teardown` waits for its service, which writes the file in a process of its own."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    import wandb

    return wandb


@pytest.mark.parametrize("key", [None, "secret-key"])
def test_comet_takes_the_same_rows(tmp_path, monkeypatch, capsys, comet, key):
    monkeypatch.delenv("COMET_API_KEY", raising=False)
    sink = comet_sink(tmp_path, comet_api_key=key)
    sink.write(rows(1))
    sink.write_batches(batch_rows(1, (1, 2)))
    sink.arrays(1, "test", {"rho_spectrum@0": np.arange(3.0)})
    sink.picture(1, "sample_recoveries", tmp_path / "sample_recoveries.png")
    sink.close()
    start = comet[0]
    assert start[1] == ("Experiment" if key else "OfflineExperiment") and start[2]["project_name"] == "P"
    collects = "parse_args log_env_details log_env_host log_git_metadata log_git_patch log_code auto_output_logging"
    assert not any(start[2][name] for name in collects.split()), "the command line may hold a key"
    assert start[2].get("api_key") == key and ("offline" in capsys.readouterr().out) == (key is None)
    calls = {}
    for name, args, kwargs in comet:
        calls.setdefault(name, []).append((args, kwargs))
    assert calls["log_parameters"] == [(({"lr": 0.1, "seed": 0},), {})], "the flags, and no key"
    assert calls["set_name"] == [((tmp_path.name,), {})] and calls["add_tag"] == [(("G",), {})]
    metrics = {(args[0], kwargs["step"]): (args[1], kwargs["epoch"]) for args, kwargs in calls["log_metric"]}
    assert metrics["Test: discriminative_e_recall: e_recall@2", 0] == (0.2, 1)
    assert metrics["batch/miner/tuples", 2] == (1 / 3, 1) and len(metrics) == 8
    assert calls["log_histogram_3d"][0][1]["name"] == "Test: discriminative_rho_spectrum: rho_spectrum@0"
    assert len(calls["log_image"]) == len(calls["end"]) == 1


def test_an_offline_comet_experiment_holds_no_key(tmp_path, monkeypatch):
    pytest.importorskip("comet_ml")
    monkeypatch.delenv("COMET_API_KEY", raising=False)
    monkeypatch.setattr(sys, "argv", ["main.py", "--wandb_key", "SECRET-OF-WANDB"])
    sink = comet_sink(tmp_path, wandb_key="SECRET-OF-WANDB")
    sink.write(rows(1))
    sink.close()
    (path,) = tmp_path.glob("comet/*.zip")
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert b"e_recall@1" in content["messages.json"]
    assert not any(b"SECRET-OF-WANDB" in data for data in content.values())


class Service(Sink):
    """It takes the epochs of rows, after `wait(place)` at the start, at each row and at the end."""

    def __init__(self, wait):
        self.wait = wait
        self.taken = []
        wait("start", self)

    def write(self, rows):
        self.wait("write", self)
        self.taken.append(rows[0].epoch)

    def close(self):
        self.wait("close", self)


@pytest.mark.parametrize("stuck_in", ["start", "write", "close"])
def test_a_service_that_hangs_keeps_nobody_waiting(capsys, stuck_in):
    released = threading.Event()
    services = set()

    def wait(place, service):
        services.add(service)
        if place == stuck_in:
            released.wait(30)

    began = time.monotonic()
    sink = online.Background(lambda: Service(wait), open_within=0.1, given_up_after=0.2, close_within=0.1)
    for epoch in range(1, 51):
        sink.write(rows(epoch))
    sink.close()
    assert time.monotonic() - began < 5 and "given up" in capsys.readouterr().out
    # the service comes back: what waited is taken, in order
    released.set()
    sink._thread.join(10)
    (service,) = services
    assert service.taken == list(range(1, 51)) and not sink._thread.is_alive()


@pytest.mark.parametrize("trained", [29.9, 500], ids=["a short run", "a run longer than the service may take"])
def test_a_service_that_never_opens_is_waited_for_from_its_start(monkeypatch, capsys, trained):
    clock = [0.0]
    # real time is only what is waited
    monkeypatch.setattr(online, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    sink = online.Background(threading.Event().wait, open_within=0, given_up_after=30, close_within=60)
    clock[0] = trained
    closing = time.monotonic()
    sink.close()
    waited = time.monotonic() - closing
    assert (waited >= 0.09 or trained > 30) and waited < 15, "what is left of its time, not as long as one that opened"
    output = capsys.readouterr().out
    assert output.count("\n") == 1 and "did not open within 30 s: given up" in output


@pytest.mark.parametrize("opens", ["at once", "while the run closes"])
def test_a_service_that_opened_has_time_to_take_everything(monkeypatch, capsys, opens):
    waits = []
    closing = threading.Event()
    services = []

    def clock():
        """The time of the start, then of the closing; once opened, later than the service may take to open."""
        waits.append(True)
        if len(waits) == 2:
            closing.set()
        return 1000.0 if opens == "at once" and len(waits) > 1 else 0.0

    def wait(place, service):
        services.append(service)
        if place == "start" and opens != "at once":
            closing.wait(30)
        time.sleep(0.3 * (place == "write"))

    monkeypatch.setattr(online, "time", types.SimpleNamespace(monotonic=clock))
    open_within = 30 if opens == "at once" else 0
    sink = online.Background(lambda: Service(wait), open_within=open_within, given_up_after=20, close_within=30)
    sink.write(rows(1))
    sink.close()
    assert services[0].taken == [1] and capsys.readouterr().out == ""


def test_a_queue_that_is_full_drops_and_says_so_once(monkeypatch, capsys):
    monkeypatch.setattr(online, "MOST_WAITING", 3)
    released = threading.Event()
    services = []

    def wait(place, service):
        services.append(service)
        if place == "start":
            released.wait(30)

    sink = online.Background(lambda: Service(wait), open_within=0, given_up_after=10, close_within=10)
    for epoch in range(1, 10):
        sink.write(rows(epoch))
    assert capsys.readouterr().out.count("too slow") == 1
    released.set()
    while not sink._calls.empty():
        time.sleep(0.01)
    sink.close()
    assert not sink._thread.is_alive() and services[0].taken == [1, 2, 3]


@pytest.mark.parametrize("names", ["both", *(pytest.param(name, marks=pytest.mark.long) for name in ("icml", "plain"))])
def test_wandb_holds_rows_batches_spectra_and_what_is_selected_under_the_names_asked_for(tmp_path, offline, names):
    environment = {"git_commit": "abc", "weights": "IMAGENET1K_V1", "data": {"counts": {"test": {"images": 9}}}}
    (tmp_path / "environment.yaml").write_text(yaml.safe_dump(environment))
    sink = online.Wandb(offline_options(online_names=names, weights="mine.pth"), tmp_path)
    for epoch in (1, 2):
        sink.write_batches(batch_rows(epoch, BATCHES[epoch]))
        sink.write([row._replace(step=3 * epoch) for row in rows(epoch)])
        if epoch == 1:
            sink.arrays(1, "test", {"rho_spectrum@0": np.linspace(0, 1, 8)})
            sink.selected("epoch with the highest e_recall@1 on test", 1, {"test": {"e_recall@1": 0.1}})
    sink.close()
    offline.teardown()
    ((_, config, history, summary),) = read_back(tmp_path)
    assert config["environment"] == environment and config["lr"] == 0.1 and "wandb_key" not in config
    assert {step: row["epoch"] for step, row in history.items()} == {3: 1, 4: 1, 5: 1, 7: 2, 8: 2, 9: 2}
    assert list(history) == sorted(history), "one order of steps"
    losses = [(row["batch/step"], row["batch/loss"]) for row in history.values()]
    assert losses == [(step, 1 / step) for step in (*BATCHES[1], *BATCHES[2])]
    icml = {"Test: discriminative_e_recall: e_recall@1", "Test: discriminative_rho_spectrum: rho_spectrum@0"}
    plain = {"test/e_recall@1", "test/rho_spectrum@0"}
    if names == "plain":
        icml = set()
    if names == "icml":
        plain = set()
    assert summary["selected/rule"] == "epoch with the highest e_recall@1 on test" and summary["selected/epoch"] == 1
    for name in icml | plain:
        # nested or not, as versions of W&B write it
        if "spectrum" in name:
            kind = history[5].get(f"{name}/_type") or history[5][name]["_type"]
            assert kind == "histogram"
        else:
            assert summary[f"selected/{name}"] == 0.1 and summary[name] == 0.2, "the selected value beside the last"
    logged = {re.sub("(/(_type|bins|values|packedBins.*))$", "", key) for row in history.values() for key in row}
    logged -= {"epoch", "_step", "_timestamp", "_runtime"} | {name for name in logged if name.startswith("batch/")}
    plain_names = {name for name in logged if ": " not in name}
    assert logged - plain_names >= icml and {": " in name for name in logged} == {bool(icml), not plain}
    assert not plain or plain_names == tensorboard_names(tmp_path)


@pytest.mark.parametrize("names", ["both", "icml", "plain"])
def test_no_two_patterns_fit_one_name(names):
    """W&B goes through its patterns in any order: a batch's value would go by epoch now and then."""
    defined = {}
    run = types.SimpleNamespace(define_metric=lambda name, **options: defined.update({name: options}))
    online._define_panels(run, names)
    assert all("*" not in name[:-1] for name in defined)
    patterns = [name[:-1] for name in defined if name.endswith("*")]
    assert not any(a != b and a.startswith(b) for a in patterns for b in patterns) and "" not in patterns
    hidden = {name for name, options in defined.items() if options.get("hidden")} - {"epoch", "batch/step"}
    assert hidden == ({"Train: *", "Val: *", "Test: *", "Model Grad: *"} if names == "both" else set())


def test_comet_which_hides_nothing_takes_each_value_once(tmp_path, comet):
    settings = {}
    for names in ("both", "icml", "plain"):
        comet.clear()
        sink = comet_sink(tmp_path, online_names=names)
        sink.write(rows(1))
        sink.arrays(1, "test", {"rho_spectrum@0": np.arange(3.0)})
        sink.close()
        settings[names] = [args[0] for name, args, _ in comet if name == "log_metric"]
        settings[names] += [kwargs["name"] for name, _, kwargs in comet if name == "log_histogram_3d"]
    assert settings["both"] == settings["icml"] and all(": " in name for name in settings["icml"])
    assert len(settings["plain"]) == len(settings["icml"])
    assert all("/" in name and ": " not in name for name in settings["plain"])


def tensorboard_names(folder):
    """The names under which event files hold the same values."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = EventFiles(folder)
    sink.write(rows(1))
    sink.arrays(1, "test", {"rho_spectrum@0": np.linspace(0, 1, 8)})
    sink.close()
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {*events.Tags()["scalars"], *events.Tags()["histograms"]}


def test_a_damaged_folder_of_wandb_takes_a_new_run(tmp_path, offline, capsys):
    (tmp_path / "wandb").write_text("no folder")
    for content in (None, b"\xff\xfe not an id", b""):
        if content is not None:
            (tmp_path / "wandb" / "run_id.txt").write_bytes(content)
        sink = online.Wandb(offline_options(), tmp_path)
        assert sink.run is not None
        sink.close()
    offline.teardown()
    assert capsys.readouterr().out.count("the run goes on") == 3
    (tmp_path / "environment.yaml").write_bytes(b"\xff: [")
    sink = online.Wandb(offline_options(), tmp_path)
    assert sink.run is not None and "environment" not in sink.run.config
    sink.close()
    offline.teardown()
