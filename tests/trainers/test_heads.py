"""What a trainer puts behind its network is evaluated by name: in training, --evaluate, load_run, the final test."""

import shutil

import numpy as np
import pytest
import torch

import datasets
import trainers
from evaluation import _unnormalised
from runs import RunFolder, load_run
from tests.kit import tiny
from tests.kit.refusals import refused
from tests.kit.runs import run_main
from trainers import _heads


def evaluated_again(run, *flags):
    return run_main("--evaluate --resume_from", run.folder, *flags)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """One whose evaluation was of the network's embedding alone."""
    flags = "--trainer classifier --classifier_input pooled --n_epochs 1"
    return tiny.run(data, tmp_path_factory.mktemp("heads"), flags)


def test_an_evaluation_may_ask_for_what_the_training_did_not(run):
    """What is measured and dumped is what the heads give of the network's features."""
    network, _ = load_run(run.folder)
    assert not isinstance(network, _heads.Evaluated) and isinstance(network(torch.zeros(1, 3, 48, 48))[0], torch.Tensor)
    evaltypes = ["discriminative", "classifier_logits", "Combined_classifier_logits_discriminative-1-2"]
    scores = evaluated_again(run, "--evaltypes", *evaltypes, "--dump_embeddings")
    assert set(scores["test"]) == {f"{name}/{metric}" for name in evaltypes for metric in ("e_recall@1", "map_r")}
    dumped = {name: np.load(run.folder / f"embeddings_test_{name}.npz")["features"] for name in evaltypes}
    network = RunFolder(run.folder).network(evaltypes=evaltypes)
    assert not any(module.training for module in network.modules())
    images = datasets.select("folder", run.opt, None, network.input_size)["testing"]
    with torch.no_grad():
        embeddings, features = network(torch.stack([image for _, image, _ in images]))
    assert torch.equal(embeddings["classifier_logits"], network.heads.linear(features["pooled"]))
    assert dumped[evaltypes[2]].shape[1] == 6 + 8
    for name in evaltypes[:2]:
        assert np.allclose(dumped[name], embeddings[name].numpy(), atol=1e-5), name
    with refused("--evaltypes clases: the network gives discriminative, classifier_logits"):
        evaluated_again(run, "--evaltypes discriminative clases")


def test_heads_may_change_the_main_embedding(data, tmp_path):
    split = "--use_tv_split --tv_split_perc 0.5 --splits_to_eval val --final_test"
    run = tiny.run(data, tmp_path, "--trainer cascaded --cascade_sizes 4 3 --cascade_percents 1 1 --n_epochs 1", split)
    network, _ = load_run(run.folder)
    embeddings = network(torch.randint(0, 256, (3, 3, 48, 48), dtype=torch.uint8))[0]
    assert embeddings.shape == (3, 7) and network.embed_dim == 7 and network.input_size == 48
    assert torch.allclose(embeddings.norm(dim=1), torch.ones(3))
    values = RunFolder(run.folder).selected["values"]
    measured = evaluated_again(run, "--splits_to_eval val test")
    assert {split: pytest.approx(scores) for split, scores in measured.items()} == values
    for flag, is_unit in (("", True), ("--eval_no_normalize", False)):
        evaluated_again(run, "--splits_to_eval test --dump_embeddings", flag)
        (path,) = run.folder.rglob("embeddings_test.npz")
        features = np.load(path)["features"]
        assert features.shape[1] == 7 and np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-2) == is_unit
        path.unlink()


class Unit(torch.nn.Module):
    """A network that normalises where it is told to."""

    normalizes = True
    embed_dim = 3

    def forward(self, images):
        return torch.nn.functional.normalize(images) if self.normalizes else images, {"pooled": images}


class Doubled(trainers.Heads):
    """Twice the embedding."""

    def forward(self, embeddings, features):
        return {"doubled": 2 * embeddings["discriminative"]}


def test_heads_are_given_unit_vectors_when_the_embedding_is_measured_without_length():
    model = _heads.evaluated(Unit(), Doubled(), ["discriminative", "doubled"])
    images = torch.tensor([[3.0, 0.0, 4.0]])
    unit = images / 5
    with _unnormalised(model):
        embeddings, _ = model(images)
        assert torch.equal(embeddings["discriminative"], images) and torch.allclose(embeddings["doubled"], 2 * unit)
    embeddings, _ = model(images)
    assert torch.allclose(embeddings["discriminative"], unit) and torch.allclose(embeddings["doubled"], 2 * unit)
    assert model.embed_dim == 3
    with pytest.raises(AttributeError):
        _ = model.input_size
    network = Unit()
    assert _heads.evaluated(network, Doubled(), ["discriminative"]) is network
    assert _heads.evaluated(network, None, ["x"]) is network
    assert trainers.select("metric_only", tiny.resolve(), network, torch.nn.Module()).evaluated() is network


def test_heads_that_a_checkpoint_does_not_hold_are_one_line(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "damaged")
    for path in folder.glob("checkpoint_*"):
        content = torch.load(path, weights_only=True)
        content["trainer"]["evaluated_heads.linear.weight"] = torch.zeros(5, 8)
        torch.save(content, path)
    with refused("damaged.* the heads of its trainer do not fit"):
        RunFolder(folder).network(evaltypes=["discriminative", "classifier_logits"])
