"""The recipes of CONTRIBUTING.md and README.md, word for word: the file is written, trained with, removed. And plug-ins
in a foreign program.
"""

import contextlib
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import parameters
from tests.kit.runs import on_folder, program, read, run_main

ROOT = Path(__file__).resolve().parent.parent
LOSS = "Add a loss in three steps"
MEMORY = "--loss mine --memory_size 16 --memory_start 0 --loss_learn margin"
METHOD = "Add a training method in three steps"
# what is added -> folder, heading, which of its Python blocks, flags that train with it
RECIPES = {
    "the README's": ("criteria", "Add a loss", 0, "--loss mine --batch_mining distance"),
    "a formula": ("criteria", LOSS, 2, "--loss mine --batch_mining distance"),
    "a formula on pairs": ("criteria", LOSS, 1, "--loss mine --batch_mining none"),
    "a formula with a memory": ("criteria", LOSS, 1, MEMORY),
    "a fusion": ("criteria", LOSS, 0, "--loss mine --batch_mining distance --loss_softmax_lr 0.25"),
    "a training method": ("trainers", METHOD, 0, "--trainer mine --loss multisimilarity --n_epochs 2"),
}
METRICS = "--evaluation_metrics e_recall@1 first_rank c_first_rank_macro"
# plug-ins that one run uses together
TOGETHER = {
    "a miner": ("batch_mining", "Add a miner in three steps", 0, "--batch_mining mine"),
    "a sampler": ("datasampler", "Add a sampler in three steps", 0, "--data_sampler mine"),
    "a data set": ("datasets", "Add a data set in three steps", 0, "--dataset mine"),
    "a metric": ("metrics", "Add a metric in three steps", 0, METRICS),
    "an architecture": ("architectures", "Add an architecture in three steps", 0, "--arch mine_frozen_normalize"),
}
ALL = RECIPES | TOGETHER
# the recipe that trains in the test in which the others are listed
QUICK = "a formula on pairs"
LISTED = {
    "a formula": "losses",
    "a miner": "miners",
    "a sampler": "samplers",
    "a training method": "trainers",
    "a data set": "datasets",
    "an architecture": "architectures",
}
PLAIN = """
import torch

REQUIRES_BATCHMINER = True
REQUIRES_OPTIM = False
ALLOWED_MINING_OPS = None


class Criterion(torch.nn.Module):
    def __init__(self, opt, batchminer):
        super().__init__()
        self.batchminer = batchminer

    def forward(self, batch, labels, **kwargs):
        anchors, positives, negatives = self.batchminer(batch, labels)
        return torch.relu((batch[anchors] * (batch[negatives] - batch[positives])).sum(1) + 0.2).mean()
"""


def code_of(title: str, number: int = 0) -> str:
    """A Python block under a heading of CONTRIBUTING.md, or of README.md."""
    pages = [(ROOT / page).read_text(encoding="utf-8") for page in ("CONTRIBUTING.md", "README.md")]
    section = "".join(pages).split(f"\n## {title}\n")[1].split("\n## ")[0]
    block = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]
    return "\n".join(line.removeprefix("   ") for line in block.splitlines()) + "\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the program, so that a plug-in in the making is seen by no other test."""
    copy = tmp_path_factory.mktemp("house")
    skip = shutil.ignore_patterns(".*", "__pycache__", "Training_Results", "tests", "docs", "Datasets")
    return shutil.copytree(ROOT, copy, ignore=skip, dirs_exist_ok=True)


def plug_in(house, recipe):
    """The recipe's file, written where it belongs."""
    folder, title, number, _ = ALL[recipe]
    file = house / folder / "mine.py"
    file.write_text(code_of(title, number), encoding="utf-8")
    return file


def training(folder_data, tmp_path, *words):
    """The words of a short training."""
    short = "--arch conv4_normalize --n_epochs 1 --bs 8 --kernels 0 --evaluation_metrics e_recall@1 --decay 0"
    return on_folder(folder_data, tmp_path, short, *words)


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains(house, recipe, folder_data, tmp_path):
    words = RECIPES[recipe][-1]
    recorded = recipe in ("a formula", "a fusion")
    if not recorded:
        words += " --no_records"
    file = plug_in(house, recipe)
    try:
        process = program("main.py", *training(folder_data, tmp_path, words), cwd=house)
        assert process.returncode == 0, process.stderr
        assert "rate 0.25" in process.stdout or recipe != "a fusion", "the inner loss keeps its own learning rate"
        if recorded:
            assert (tmp_path / "folder" / "Sample_Group_s1" / "CSV_Logs" / "Train_criterion.csv").exists()
    finally:
        file.unlink()


@pytest.mark.long
def test_the_other_recipes_train_together_with_a_plain_module_as_the_loss(house, folder_data, tmp_path):
    """The loss mines its triplets by the recipe's miner, which returns a list."""
    source = shutil.copytree(folder_data, tmp_path / "mine")
    images = sorted(path.relative_to(source) for path in source.rglob("*.jpg"))
    parts = {"class_1": "train", "class_6": "train"}
    lines = [f"{image.as_posix()} {image.parts[0]} {parts.get(image.parts[0], 'test')}\n" for image in images]
    (source / "images.txt").write_text("".join(lines))
    files = [*(plug_in(house, recipe) for recipe in TOGETHER), house / "criteria" / "mine.py"]
    files[-1].write_text(PLAIN, encoding="utf-8")
    words = [flags for *_, flags in TOGETHER.values()]
    small = "--loss mine --n_epochs 1 --bs 8 --resize_size 36 --crop_size 32 --kernels 0 --no_records"
    try:
        done = program("main.py", *words, small, "--source", tmp_path, "--save_path", tmp_path, cwd=house)
        assert done.returncode == 0, done.stderr
        assert "training: 12 images of 2 classes" in done.stdout and "testing: 36 images of 6 classes" in done.stdout
        assert done.stdout.count("c_first_rank_macro ") == 2, "of train and test"
    finally:
        for file in files:
            file.unlink()


def test_recipes_are_listed_with_their_flags_and_one_trains(folder_data, tmp_path, monkeypatch, capsys):
    """As if each folder held its recipe."""
    folders = {}
    for recipe in [*LISTED, QUICK]:
        (tmp_path / ALL[recipe][0]).mkdir(exist_ok=True)
        folders[ALL[recipe][0]] = plug_in(tmp_path, recipe).parent
    for package, folder in folders.items():
        monkeypatch.setattr(sys.modules[package], "__path__", [*sys.modules[package].__path__, str(folder)])
    listed = [parameters.answer(read("--list", kind)) for kind in LISTED.values()]
    words = training(folder_data, tmp_path, RECIPES["a formula with a memory"][-1])
    run_main(*words, "--no_records")
    assert "--loss_mine_scale" in parameters.get_parser().format_help()
    assert all("\nmine " in rows for rows in listed) and "epoch 1/1" in capsys.readouterr().out


def test_the_example_on_triplets_computes_its_formula(monkeypatch):
    module = ModuleType("criteria.mine")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code_of(LOSS, 2), vars(module))  # noqa: S102
    criterion = module.Criterion(SimpleNamespace(loss_mine_scale=4.0), lambda batch, labels: [(0, 1, 2), (3, 2, 0)])
    batch = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    distance = [[(a - b).norm() for b in batch] for a in batch]
    violations = [distance[a][p] - distance[a][n] for a, p, n in [(0, 1, 2), (3, 2, 0)]]
    expected = sum(torch.log(1 + torch.exp(4 * violation)) / 4 for violation in violations) / 2
    torch.testing.assert_close(criterion(batch, torch.tensor([0, 0, 1, 1])), expected)
    without_triplets = module.Criterion(SimpleNamespace(loss_mine_scale=4.0), lambda batch, labels: [])
    value = without_triplets(batch.requires_grad_(), torch.arange(4))
    value.backward()
    assert value == 0 and (batch.grad == 0).all()


FOREIGN = """
import datasets

assert datasets.FOREIGN and criterion.margin == 0.1 and embeddings.grad.abs().sum() > 0
import architectures, batch_mining, criteria, datasampler

miner = batch_mining.select("distance", miner_distance_lower_cutoff=0.4)
criterion = criteria.select("triplet", batchminer=miner, loss_triplet_margin=0.1)
assert criterion.margin == 0.1
batch, labels = torch.randn(8, 16, requires_grad=True), torch.arange(8) // 2
criterion(batch, labels).backward()
assert batch.grad is not None
proxies = criteria.select("proxynca", n_classes=4, embed_dim=16)
for loss in (criteria.select("triplet"), criteria.select("lifted"), proxies):
    assert loss(batch, labels).isfinite()
for name, words, message in (
    ("triplet", {"loss_triplet_distance": "foo"}, "squared"),
    ("margin", {"batchminer": batch_mining.select("distance")}, "n_classes"),
):
    try:
        criteria.select(name, **words)
    except Exception as error:
        assert message in str(error), error
    else:
        raise AssertionError(words)
assert architectures.select("conv4_normalize", embed_dim=8)(torch.zeros(2, 3, 48, 48))[0].shape == (2, 8)
images = [(f"{i}.png", i // 4) for i in range(16)]
by_class = {c: [[p, i] for i, (p, k) in enumerate(images) if k == c] for c in range(4)}
assert all(len(b) == 8 for b in datasampler.select("class_balanced", None, by_class, images, bs=8))
print("served")
"""


@contextlib.contextmanager
def without_modules(packages):
    """The program's modules are imported anew inside; others, such as torch's, cannot be imported twice."""

    def take_modules():
        names = [name for name in sys.modules if name.partition(".")[0] in packages]
        return {name: sys.modules.pop(name) for name in names}

    modules = take_modules()
    try:
        yield
    finally:
        take_modules()
        sys.modules.update(modules)


def test_plug_ins_serve_a_foreign_program_as_contributing_shows(tmp_path, monkeypatch, capsys):
    """With the clone's path put in; an installed package named `datasets` stays the program's own."""
    code = code_of("Use a loss in another program")
    assert "/path/to/the/clone" in code
    (tmp_path / "datasets.py").write_text("FOREIGN = True\n")
    (tmp_path / "program.py").write_text(code.replace("/path/to/the/clone", str(ROOT)) + FOREIGN)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(place for place in sys.path if Path(place).resolve() != ROOT)])
    ours = {path.stem for path in ROOT.iterdir()}
    with without_modules(ours):
        runpy.run_path(str(tmp_path / "program.py"), run_name="__main__")
    assert capsys.readouterr().out.strip().endswith("served")
