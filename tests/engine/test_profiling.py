"""--profile_steps: the time of a step by part, its trace, the first advice."""

import json
import re

import pytest
import torch

import parameters
from engine import profiling
from tests.kit.runs import run_main, run_words
from utilities import spans


def test_a_part_inside_another_counts_once_and_one_that_fails_is_closed(monkeypatch):
    """loss 0 to 10, the miner inside from 2 to 5; then 4 in no part; the device is waited for at every end."""
    times = iter([0, 2, 5, 10, 14, 15, 16])
    waits = []
    monkeypatch.setattr(spans.time, "perf_counter", lambda: next(times))
    with spans.running(spans.Clock(lambda: waits.append(1))) as clock:
        with spans.span("loss"), spans.span("miner"):
            pass
        with spans.span("copy"):
            pass
        with pytest.raises(ValueError), spans.span("network"):
            raise ValueError
    # Outside of the context no clock runs
    with spans.span("loss"):
        pass
    assert clock.seconds == {"loss": 7, "miner": 3, "copy": 1} and len(waits) == 7 and clock.open == []


@pytest.mark.parametrize(
    "longest,words,device,advice",
    [
        ("data", "--kernels 512", "cpu", "most time: data. First: --image_cache DIR"),
        ("backward", "", "cuda", "most time: network and backward. First: --precision bfloat16"),
        ("network", "--precision bfloat16 --compile", "cuda", "First: torchrun"),
        ("network", "--freeze_backbone", "cpu", "First: --feature_cache"),
        ("loss", "--loss softmax", "cuda", "First: --sample_classes .1"),
    ],
)
def test_the_first_advice_is_of_the_longest_part_and_not_yet_given(longest, words, device, advice):
    milliseconds = {**dict.fromkeys(profiling.PARTS, 1.0), "other": 1.0, longest: 50.0}
    opt = parameters.read(["--dataset", "glyphs", *words.split()])
    assert advice in profiling.advice(opt, milliseconds, torch.device(device))
    for part in milliseconds.keys() - {"backward"}:
        assert profiling.remedy(opt, part, torch.device(device))


def test_a_profile_prints_a_table_and_writes_a_trace_alone(folder_data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(profiling, "TRACED", 2)
    flags = "--loss triplet --batch_mining semihard --profile_steps 3".split()
    run_main(*run_words(folder_data, tmp_path, *flags))
    out = capsys.readouterr().out
    rows = {}
    for part, milliseconds, share in re.findall(r"^ *(\S+) +(\S+) +(\S+\.\d)$", out, flags=re.M):
        rows[part] = float(milliseconds), float(share)
    assert list(rows) == [*profiling.PARTS, "other", "step"] and "most time: " in out
    for column, tolerance in ((0, 0.1), (1, 1)):
        assert sum(row[column] for row in rows.values()) == pytest.approx(2 * rows["step"][column], abs=tolerance)
    assert min(rows[part][0] for part in ("data", "network", "backward", "miner", "loss", "optimiser")) > 0
    (trace,) = (tmp_path / "folder").iterdir()
    names = [event.get("name") for event in json.loads(trace.read_text())["traceEvents"]]
    assert trace.name.endswith("_trace.json") and all(names.count(part) >= 2 for part in profiling.PARTS)
    assert names.count("data") == 2, "two of the three steps"
