"""What a trainer puts behind its network is evaluated by name: in training, by --evaluate, load_run, the final test, in dumped embeddings."""

import json

import numpy as np
import pytest
import torch

import main
import parameters
import trainers
from runs import RunFolder, checkpoint, load_run
from tests import builders
from trainers import _heads
from utilities.errors import UserError

ADDING = '''"""A head that is evaluated beside the embedding."""

import torch

from trainers import Base, Heads


class Two(Heads):
    """Half of it, and class by class."""

    def __init__(self, opt, network):
        super().__init__()
        self.narrow = torch.nn.Linear(network.embed_dim, 4)
        self.classes = torch.nn.Linear(network.feature_dim, opt.n_classes)

    def forward(self, embeddings, features):
        return {"narrow": self.narrow(embeddings["discriminative"]), "classes": self.classes(features["pooled"])}


class Trainer(Base):
    """The criterion on the embedding, and something for the heads to learn."""

    @classmethod
    def build_heads(cls, opt, network):
        return Two(opt, network)

    def losses(self, outputs, batch):
        given = self.evaluated_heads({"discriminative": outputs["embeddings"]}, outputs)
        return {"metric_loss": self.metric_loss(outputs, batch), "head_loss": sum(x.square().mean() for x in given.values())}
'''

CHANGING = '''"""A head whose output is the embedding."""

import torch

from trainers import Base, Heads


class Narrow(Heads):
    """Half as wide."""

    CHANGES_MAIN = True

    def __init__(self, opt, network):
        super().__init__()
        self.narrow = torch.nn.Linear(network.embed_dim, 4)
        self.embed_dim, self.normalizes = 4, network.normalizes

    def forward(self, embeddings, features):
        narrow = self.narrow(embeddings["discriminative"])
        return {"discriminative": torch.nn.functional.normalize(narrow) if self.normalizes else narrow, "whole": embeddings["discriminative"]}


class Trainer(Base):
    """The criterion on the narrow one."""

    @classmethod
    def build_heads(cls, opt, network):
        return Narrow(opt, network)

    def outputs(self, images):
        outputs = super().outputs(images)
        return {**outputs, "embeddings": self.evaluated_heads({"discriminative": outputs["embeddings"]}, outputs)["discriminative"]}

    def losses(self, outputs, batch):
        return self.metric_losses(outputs, batch)
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Two trainers of a user, `adding` and `changing`."""
    folder = tmp_path / "plug_ins"
    folder.mkdir()
    (folder / "adding.py").write_text(ADDING)
    (folder / "changing.py").write_text(CHANGING)
    monkeypatch.setattr("evaluation.pictures.draw", lambda *arguments: [])  # which takes longer than all else
    monkeypatch.setattr(trainers, "__path__", [*trainers.__path__, str(folder)])
    names = type(trainers.REGISTRY).names
    found = lambda self: sorted([*names(self), "adding", "changing"]) if self.package == "trainers" else names(self)  # noqa: E731
    monkeypatch.setattr(type(trainers.REGISTRY), "names", found)


def train(data, tmp_path, name, *more):
    return main.main(parameters.read([
        "--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(tmp_path / "runs"), *builders.SHORT_RUN,
        "--loss", "triplet", "--group", name, "--trainer", name, "--n_epochs", "1", *more,
    ]))  # fmt: skip


def test_what_is_measured_is_what_the_heads_give(own, data, tmp_path):
    evaltypes = ["narrow", "discriminative", "classes", "Combined_narrow_discriminative-1-2"]
    run = train(data, tmp_path, "adding", "--evaltypes", *evaltypes, "--dump_embeddings")
    assert {"evaluated_heads.narrow.weight", "evaluated_heads.classes.bias"} <= set(
        checkpoint.read(run.folder / checkpoint.LAST)["trainer"]
    )
    network, _ = load_run(run.folder)
    assert not network.training and not network.heads.training and not any(m.training for m in network.modules())
    dumped = {name: np.load(run.folder / f"embeddings_test_{name}.npz") for name in evaltypes}
    from datasets import select

    images = select("folder", run.opt, None, network.input_size)["testing"]
    with torch.no_grad():
        embeddings, features = network(torch.stack([image for _, image, _ in images]))
    heads = network.heads
    assert torch.equal(embeddings["narrow"], heads.narrow(embeddings["discriminative"])) and embeddings["classes"].shape[1] == 6
    assert torch.equal(embeddings["classes"], heads.classes(features["pooled"]))
    for name in evaltypes[:3]:
        assert np.allclose(dumped[name]["features"], embeddings[name].numpy(), atol=1e-5), name
    assert dumped[evaltypes[3]]["features"].shape[1] == 4 + 8
    values = json.loads((run.folder / "summary.json").read_text())["selected"]["values"]
    assert set(values["test"]) == {f"{name}/{metric}" for name in evaltypes for metric in ("e_recall@1", "map_r")}
    again = main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder)]))
    assert {split: pytest.approx(scores) for split, scores in again.items()} == values


def test_an_evaluation_may_ask_for_what_the_training_did_not(own, data, tmp_path):
    run = train(data, tmp_path, "adding")
    network, _ = load_run(run.folder)
    assert not isinstance(network, _heads.Evaluated) and isinstance(network(torch.zeros(1, 3, 48, 48))[0], torch.Tensor)
    asked = ["--evaltypes", "discriminative", "classes", "--dump_embeddings"]
    scores = main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), *asked]))
    assert set(scores["test"]) == {f"{name}/{metric}" for name in ("discriminative", "classes") for metric in ("e_recall@1", "map_r")}
    assert np.load(run.folder / "embeddings_test_classes.npz")["features"].shape[1] == 6
    with pytest.raises(UserError, match="--evaltypes clases: the network gives discriminative, narrow, classes"):
        main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), "--evaltypes", "discriminative", "clases"]))


def test_heads_may_change_the_main_embedding(own, data, tmp_path):
    split = ["--use_tv_split", "--tv_split_perc", "0.5", "--splits_to_eval", "val", "--final_test"]
    run = train(data, tmp_path, "changing", *split)
    network, _ = load_run(run.folder)
    embeddings = network(torch.randint(0, 256, (3, 3, 48, 48), dtype=torch.uint8))[0]
    assert embeddings.shape == (3, 4) and network.embed_dim == 4 and network.input_size == 48
    assert torch.allclose(embeddings.norm(dim=1), torch.ones(3))
    values = json.loads((run.folder / "summary.json").read_text())["selected"]["values"]
    again = main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), "--splits_to_eval", "val", "test"]))
    assert {split: pytest.approx(scores) for split, scores in again.items()} == values
    both = main.main(parameters.read(["--evaluate", "--resume_from", str(run.folder), "--evaltypes", "discriminative", "whole"]))
    assert set(both["val"]) == {f"{name}/{metric}" for name in ("discriminative", "whole") for metric in ("e_recall@1", "map_r")}


class Unit(torch.nn.Module):
    """A network that normalises where it is told to."""

    normalizes, embed_dim = True, 3

    def forward(self, images):
        return torch.nn.functional.normalize(images) if self.normalizes else images, {"pooled": images}


class Doubled(trainers.Heads):
    """Twice the embedding."""

    def forward(self, embeddings, features):
        return {"doubled": 2 * embeddings["discriminative"]}


def test_heads_are_given_unit_vectors_when_the_embedding_is_measured_without_length():
    from evaluation import _unnormalised

    model = _heads.evaluated(Unit(), Doubled(), ["discriminative", "doubled"])
    images = torch.tensor([[3.0, 0.0, 4.0]])
    unit = torch.tensor([[0.6, 0.0, 0.8]])
    with _unnormalised(model):
        embeddings, _ = model(images)
        assert torch.equal(embeddings["discriminative"], images) and torch.allclose(embeddings["doubled"], 2 * unit)
    embeddings, _ = model(images)
    assert torch.allclose(embeddings["discriminative"], unit) and torch.allclose(embeddings["doubled"], 2 * unit)
    assert model.embed_dim == 3
    with pytest.raises(AttributeError):
        _ = model.input_size


def test_who_asks_for_the_main_embedding_alone_gets_the_bare_network():
    network = Unit()
    assert _heads.evaluated(network, Doubled(), ["discriminative"]) is network and _heads.evaluated(network, None, ["x"]) is network
    trainer = trainers.select("metric_only", parameters.read(["--dataset", "glyphs"]), network, torch.nn.Module())
    assert trainer.evaluated() is network


def test_heads_that_a_checkpoint_does_not_hold_are_one_line(own, data, tmp_path):
    run = train(data, tmp_path, "adding", "--evaltypes", "discriminative", "narrow")
    for path in run.folder.glob("checkpoint_*"):
        content = torch.load(path, weights_only=True)
        content["trainer"]["evaluated_heads.narrow.weight"] = torch.zeros(5, 8)
        torch.save(content, path)
    with pytest.raises(UserError, match="damaged: the heads of its trainer do not fit"):
        RunFolder(run.folder).network()
