"""Plug-in files of earlier versions, written with `add_arguments` and every constant, stay valid.

tests/earlier_plug_ins/ holds the examples of README, CONTRIBUTING and the tutorial as they were; each is loaded through
its registry. Where today's pages have the same example in its new form, its values are compared.
"""

import argparse
import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import batch_mining
import criteria
import datasampler
import datasets
import trainers
from engine.batches import EpochBatches
from options.flags import roles
from tests.kit.documents import documented_example
from utilities import registry

FILES = Path(__file__).parent / "earlier_plug_ins"
PACKAGES = {
    "criteria": criteria,
    "batch_mining": batch_mining,
    "datasampler": datasampler,
    "datasets": datasets,
    "trainers": trainers,
}
# file -> its flags with a value each, and a line of its successor in CONTRIBUTING.md
LOSSES = {
    "readme": ({}, None),
    "fusion": ({"loss_mine_weight": 0.7}, "triplet + weight * softmax"),
    "pairs": ({"loss_mine_margin": 0.3, "loss_mine_scale": 4.0}, "class Criterion(PairCriterion):"),
    "triplets": ({"loss_mine_scale": 3.0}, "Triplets by a smooth hinge"),
    "tutorial": ({"loss_mine_margin": 0.3, "loss_mine_scale": 4.0}, "class Criterion(PairCriterion):"),
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that adds a source text to a folder of plug-ins, as the file `mine.py` or another name."""
    added = {}

    def add(package: str, source: str, name: str = "mine"):
        folder = tmp_path / package / name
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(source)
        module = PACKAGES[package]
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
        added.setdefault(package, []).append(name)

    registry._declared.cache_clear()
    yield add
    registry._declared.cache_clear()
    for package, files in added.items():
        for name in files:
            sys.modules.pop(f"{package}.{name}", None)


def earlier(package: str, name: str) -> str:
    return (FILES / package / f"{name}.py").read_text(encoding="utf-8")


def value(name: str, flags: dict) -> tuple[float, torch.Tensor]:
    """A loss and its gradient, with the same draws of parameters and tuples for each file."""
    torch.manual_seed(0)
    embeddings = torch.nn.functional.normalize(torch.randn(12, 8)).requires_grad_()
    labels = torch.arange(12) // 3
    loss = criteria.select(name, n_classes=4, embed_dim=8, batch_mining="distance", **flags)(embeddings, labels)
    loss.backward()
    return loss.item(), embeddings.grad


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_earlier_versions_is_the_loss_of_today(install, name):
    flags, line = LOSSES[name]
    install("criteria", earlier("criteria", name))
    assert criteria.REGISTRY.flags("mine") == set(flags)
    loss, gradient = value("mine", flags)
    assert loss > 0 and gradient.isfinite().all() and gradient.abs().sum() > 0
    if line is None:
        return
    install("criteria", documented_example(line), "today")
    flags_of_today = {flag.replace("loss_mine_", "loss_today_"): number for flag, number in flags.items()}
    assert criteria.REGISTRY.flags("today") == set(flags_of_today)
    loss_of_today, gradient_of_today = value("today", flags_of_today)
    assert loss == loss_of_today and torch.equal(gradient, gradient_of_today)
    assert loss != value("mine", {})[0], "the flags have an effect"


def test_learned_numbers_of_an_earlier_file(install):
    install("criteria", earlier("criteria", "pairs"))
    criterion = criteria.select("mine", loss_learn=["margin", "scale"], loss_learn_per_class=True, n_classes=4)
    assert criterion.margin.shape == criterion.scale.shape == (4,)


def test_miner_sampler_and_trainer_of_earlier_versions(install):
    for package, name in (("batch_mining", "miner"), ("datasampler", "sampler"), ("trainers", "trainer")):
        install(package, earlier(package, name))
    embeddings = torch.randn(6, 4)
    assert batch_mining.select("mine")(embeddings, torch.tensor([0, 0, 1, 1, 2, 2]))[0] == (0, 1, 2)
    sampler = datasampler.select("mine", None, {0: [["a", 0]], 1: [["b", 1]]}, [("a", 0), ("b", 1)], bs=2)
    assert [len(batch) for batch in sampler] == [2]
    assert trainers.REGISTRY.flags("mine") == {"mine_hidden", "mine_head_epochs"}
    parser = argparse.ArgumentParser()
    trainers.REGISTRY.add_arguments(parser)
    assert parser.parse_args([]).mine_hidden == 32


class Dataset:
    """Four images of two classes."""

    image_dict = {0: [["a", 0], ["b", 1]], 1: [["c", 2], ["d", 3]]}
    image_list = [("a", 0), ("b", 0), ("c", 1), ("d", 1)]
    super_labels = {}


def test_a_users_sampler_keeps_its_calls_and_gets_those_that_it_lacks(install, monkeypatch):
    install("datasampler", earlier("datasampler", "sampler"))
    opt = datasampler.REGISTRY.options(data_sampler="mine", bs=2)
    torch.manual_seed(0)
    sampler = datasampler.for_training(opt, Dataset)
    batches = list(sampler)
    torch.manual_seed(0)
    assert batches == list(datasampler.select("mine", opt, Dataset.image_dict, Dataset.image_list))
    assert len(sampler) == 2 and sampler.state_dict() == {} and not sampler.requires_storage
    sampler.precompute_indices()
    sampler.replace_storage_entries(torch.zeros(2, 3), [0, 1])
    assert EpochBatches(sampler, 4)._name == "mine"
    kind = datasampler.REGISTRY.module("mine").Sampler
    monkeypatch.setattr(kind, "state_dict", lambda self: {"size": self.size}, raising=False)
    monkeypatch.setattr(kind, "precompute_indices", lambda self: setattr(self, "size", 3), raising=False)
    sampler = datasampler.for_training(opt, Dataset)
    sampler.precompute_indices()
    assert sampler.state_dict() == {"size": 3} and len(sampler) == 1
    assert sampler.size == 3 and not hasattr(sampler, "nothing")
    assert len(copy.deepcopy(sampler)) == 1


def test_a_data_set_of_earlier_versions(install, tmp_path):
    install("datasets", earlier("datasets", "dataset"))
    folder = tmp_path / "mine"
    folder.mkdir()
    rows = []
    for number in range(8):
        noise = np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
        part = "train" if number < 4 else "test"
        rows.append(f"{number}.png {number // 2} {part}")
    (folder / "images.txt").write_text("")
    (folder / "list.txt").write_text("\n".join(rows))
    splits = datasets.select("mine", None, tmp_path, mine_list="list.txt", allow_partial_dataset=True)
    assert (len(splits["training"]), len(splits["testing"])) == (4, 4)
    parser = argparse.ArgumentParser()
    datasets.REGISTRY.add_arguments(parser)
    actions = {action.dest: action for action in parser._actions}
    assert actions["mine_list"].role == roles.DATA and actions["mine_boxes"].needs == "mine_list"


def test_constants_that_a_file_leaves_out_have_their_default(install):
    install("criteria", '"""A loss."""\nMINES_PAIRS = True\n')
    module = criteria.REGISTRY.module("mine")
    constants = {name: getattr(module, name) for name in criteria.CONSTANTS}
    assert constants == {**criteria.CONSTANTS, "MINES_PAIRS": True}
