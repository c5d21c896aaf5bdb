"""The recipes of CONTRIBUTING.md and README.md, word for word: the file is written, trained with, removed. And plug-ins in a foreign program."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RECIPES = {  # page and heading -> folder, flags
    ("CONTRIBUTING.md", "Add a loss in three steps"): ("criteria", ["--loss", "mine", "--batch_mining", "distance"]),
    ("README.md", "Add a loss"): ("criteria", ["--loss", "mine", "--batch_mining", "distance"]),
    ("CONTRIBUTING.md", "Add a miner in three steps"): ("batch_mining", ["--loss", "triplet", "--batch_mining", "mine"]),
    ("CONTRIBUTING.md", "Add a sampler in three steps"): ("datasampler", ["--loss", "multisimilarity", "--data_sampler", "mine"]),
}


def code_of(page: str, title: str) -> str:
    """The Python block under a heading of a page."""
    section = (ROOT / page).read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL).group(1)
    return "\n".join(line.removeprefix("   ") for line in block.splitlines()) + "\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the program, so that a plug-in in the making is seen by no other test."""
    copy = tmp_path_factory.mktemp("house")
    skip = shutil.ignore_patterns(".*", "__pycache__", "Training_Results", "tests", "docs", "Datasets")
    return shutil.copytree(ROOT, copy, ignore=skip, dirs_exist_ok=True)


def run(house, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "main.py", *map(str, words)], cwd=house, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(("page", "title"), RECIPES)
def test_a_recipe_trains(house, page, title, folder_data, tmp_path):
    folder, words = RECIPES[page, title]
    code = code_of(page, title)
    plug_in = house / folder / "mine.py"
    plug_in.write_text(code, encoding="utf-8")
    try:
        common = ["--dataset", "folder", "--dataset_folder_path", folder_data, "--arch", "conv4_normalize", "--n_epochs", "1", "--bs", "8"]
        more = [
            "--kernels",
            "0",
            "--evaluation_metrics",
            "e_recall@1",
            "--save_path",
            tmp_path,
            "--loss_softmax_lr",
            "0.25",
            "--decay",
            "0",
        ]
        told = run(house, *common, *more, *words)
        assert told.returncode == 0, told.stderr
        if "loss_mine_weight" in code:
            assert "rate 0.25" in told.stdout, "the inner loss keeps its own learning rate"
            assert "--loss_mine_weight" in run(house, "--help").stdout
            assert (tmp_path / "folder" / "Sample_Group_s1" / "CSV_Logs" / "Train_criterion.csv").exists()
        kind = {"criteria": "losses", "batch_mining": "miners", "datasampler": "samplers"}[folder]
        assert "\nmine " in "\n" + run(house, "--list", kind).stdout
    finally:
        plug_in.unlink()
    assert "unknown" in run(house, *words).stderr


def test_the_program_that_uses_a_loss_runs(tmp_path):
    """As CONTRIBUTING shows it, with the clone's path put in; an installed package named `datasets` stays the program's own."""
    code = code_of("CONTRIBUTING.md", "Use a loss in another program")
    assert "/path/to/the/clone" in code
    (tmp_path / "datasets.py").write_text("FOREIGN = True\n")
    program = code.replace("/path/to/the/clone", str(ROOT))
    program += "\nimport datasets\n\nassert datasets.FOREIGN and criterion.margin == 0.1 and embeddings.grad.abs().sum() > 0\nprint('served')\n"
    (tmp_path / "program.py").write_text(program)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert told.stdout.strip() == "served", told.stderr


def test_plug_ins_serve_a_foreign_program(tmp_path):
    program = """
import torch
import architectures, batch_mining, criteria, datasampler

torch.manual_seed(0)
criterion = criteria.select("triplet", batchminer=batch_mining.select("distance", miner_distance_lower_cutoff=0.4), loss_triplet_margin=0.1)
assert criterion.margin == 0.1
batch = torch.randn(8, 16, requires_grad=True)
labels = torch.arange(8) // 2
criterion(batch, labels).backward()
assert batch.grad is not None
assert criteria.select("triplet", loss_triplet_margin=0.1)(batch, labels).isfinite()
assert criteria.select("lifted")(batch, labels).isfinite()
try:
    criteria.select("triplet", loss_triplet_distance="foo")
except Exception as error:
    assert "squared" in str(error), error
else:
    raise AssertionError("a value that is no choice was taken")
proxies = criteria.select("proxynca", n_classes=4, embed_dim=16)
assert proxies(batch, labels).isfinite()
network = architectures.select("conv4_normalize", embed_dim=8)
assert network(torch.zeros(2, 3, 48, 48))[0].shape == (2, 8)
images = [(f"{i}.png", i // 4) for i in range(16)]
by_class = {c: [[p, i] for i, (p, k) in enumerate(images) if k == c] for c in range(4)}
sampler = datasampler.select("class_balanced", None, by_class, images, bs=8)
assert all(len(b) == 8 for b in sampler)
try:
    criteria.select("margin", batchminer=batch_mining.select("distance"))
except Exception as error:
    assert "n_classes" in str(error), error
print("served")
"""
    (tmp_path / "foreign.py").write_text(program)
    told = subprocess.run(
        [sys.executable, "foreign.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert told.stdout.strip().endswith("served"), told.stderr
