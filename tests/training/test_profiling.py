"""--profile_steps: the time of a step by part, its trace, the first advice."""

import json

import pytest
import torch

import main
import parameters
from tests import builders
from training import profiling
from utilities import spans


def test_a_part_inside_another_counts_once(monkeypatch):
    """loss 0 to 10, the miner inside from 2 to 5; then 4 in no part; the device is waited for at every end."""
    times, waits = iter([0, 2, 5, 10, 14, 15]), []
    monkeypatch.setattr(spans.time, "perf_counter", lambda: next(times))
    with spans.running(spans.Clock(lambda: waits.append(1))) as clock:
        with spans.span("loss"), spans.span("miner"):
            pass
        with spans.span("copy"):
            pass
    assert clock.seconds == {"loss": 7, "miner": 3, "copy": 1} and len(waits) == 6
    with spans.span("loss"):  # no clock runs
        pass
    assert clock.seconds["loss"] == 7


def test_a_part_that_fails_is_closed():
    with spans.running(spans.Clock(lambda: None)) as clock:
        with pytest.raises(ValueError), spans.span("loss"):
            raise ValueError
        assert clock.open == []


@pytest.mark.parametrize("longest,words,device,said", [
    ("data", ["--kernels", "0"], "cpu", "most time: data. First: --kernels"),
    ("data", ["--kernels", "512"], "cpu", "First: --image_cache DIR"),
    ("backward", [], "cuda", "most time: network and backward. First: --precision bfloat16"),
    ("network", ["--precision", "bfloat16", "--channels_last", "--compile"], "cuda", "First: torchrun"),
    ("network", [], "cpu", "First: --freeze_backbone"), ("network", ["--freeze_backbone"], "cpu", "First: --feature_cache"),
    ("loss", ["--loss", "softmax"], "cuda", "First: --sample_classes .1"), ("loss", ["--loss", "softmax", "--sample_classes", ".1"], "cpu", "--bs"),
    ("loss", ["--loss", "contrastive", "--memory_size", "500"], "cpu", "a --memory_size below 500"),
    ("miner", [], "cpu", "--batch_mining"), ("optimiser", [], "cpu", "--freeze_blocks"), ("logging", [], "cpu", "--log_every"),
    ("copy", [], "cpu", "--crop_size"), ("other", [], "cpu", "--ema_decay"),
])  # fmt: skip
def test_the_first_advice_is_of_the_longest_part_and_not_yet_given(longest, words, device, said):
    milliseconds = {**dict.fromkeys(profiling.PARTS, 1.0), "other": 1.0, longest: 50.0}
    assert said in profiling.advice(parameters.read(["--dataset", "glyphs", *words]), milliseconds, torch.device(device))


def test_the_table_has_all_parts_and_shares():
    text = profiling.table({**dict.fromkeys(profiling.PARTS, 10.0), "other": 20.0})
    assert [line.split()[0] for line in text.splitlines()] == ["part", *profiling.PARTS, "other", "step"]
    assert text.splitlines()[-1].split() == ["step", "100.00", "100.0"] and text.splitlines()[1].split() == ["data", "10.00", "10.0"]


def test_a_profile_prints_a_table_and_writes_a_trace_alone(folder_data, tmp_path, capsys):
    main.main(parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(folder_data), "--save_path", str(tmp_path), *builders.SHORT_RUN, "--arch", "conv4_normalize",
        "--bs", "8", "--loss", "triplet", "--batch_mining", "semihard", "--profile_steps", "2",
    ]))  # fmt: skip
    out = capsys.readouterr().out
    rows = {words[0]: float(words[1]) for words in map(str.split, out.splitlines()) if len(words) == 3 and words[0] in (*profiling.PARTS, "other", "step")}
    assert set(rows) == {*profiling.PARTS, "other", "step"} and sum(rows.values()) == pytest.approx(2 * rows["step"], abs=0.1)
    assert min(rows["data"], rows["network"], rows["backward"], rows["miner"], rows["loss"], rows["optimiser"]) > 0 and "most time: " in out
    (trace,) = (tmp_path / "folder").iterdir()
    assert trace.name.endswith("_trace.json")
    names = [event.get("name") for event in json.loads(trace.read_text())["traceEvents"]]
    assert all(names.count(part) >= 2 for part in profiling.PARTS), "two steps"
