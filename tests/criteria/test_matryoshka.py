"""Losses of prefixes: the pins of MRL-E, separate losses on prefixes for every criterion, references, own heads,
mistakes.
"""

import copy
import json
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import criteria
import metrics
import parameters
from criteria import _matryoshka
from tests.criteria.test_registry_wide import ADAPTERS, DIMENSIONS, LABELS, NAMES, build, points, run
from tests.kit import tiny
from tests.kit.refusals import refused
from utilities.parameter_groups import criterion_groups
from utilities.tensors import normalize

PREFIXES = [2, 5, DIMENSIONS]
WEIGHTS = [0.5, 2.0, 3.0]
STATEFUL = {"dynamic_softmargin", "hist"}  # keep statistics of one embedding


def nested(criterion, name="softmax", heads="prefix", rescales=True, prefixes=PREFIXES, weights=WEIGHTS, make=None):
    flags = Namespace(
        matryoshka=prefixes,
        matryoshka_weights=weights,
        matryoshka_heads=heads,
        embed_dim=prefixes[-1],
        loss=name,
        lr=1e-3,
        loss_decay=0.0,
    )
    return _matryoshka.nest(criterion, flags, rescales, make)


def test_mrl_e_by_the_pin():
    """Cross-entropy of the logits of the first two dimensions, and of all four; one head, whose columns are cut."""

    class CrossEntropy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]))

        def forward(self, batch, labels):
            return torch.nn.functional.cross_entropy(batch @ self.weight.T, labels)

    x = torch.tensor([[1.0, 2, 3, 4]])
    label = torch.tensor([1])
    criterion = nested(CrossEntropy(), rescales=False, prefixes=[2, 4], weights=None)
    value = criterion(x, label)
    assert value.item() == pytest.approx(0.407606 + 5.009174, abs=1e-5) and criterion.stats[
        "loss@d2"
    ].item() == pytest.approx(0.407606, abs=1e-5)
    value.backward()
    assert (criterion.weight.grad[:, :2].abs() > 0).any() and criterion.weight.grad.shape == (3, 4)


def separately(whole, leaf, labels, rescales):
    """The sum of the losses of the prefixes, by criteria whose matrices were cut by hand, and its gradients."""
    expected = torch.zeros(())
    embedding = torch.zeros_like(leaf)
    gradients = [torch.zeros_like(p) for p in whole.parameters()]
    torch.manual_seed(1)
    for width, weight in zip(PREFIXES, WEIGHTS, strict=True):
        part = copy.deepcopy(whole)
        for module in part.modules():
            for key, p in list(module._parameters.items()):
                if p is not None and p.ndim == 2 and p.shape[1] == DIMENSIONS:
                    module._parameters[key] = torch.nn.Parameter(p.detach()[:, :width].clone())
        x = leaf[:, :width]
        value = part(x / x.norm(dim=1, keepdim=True) if rescales and width < DIMENSIONS else x, labels)
        given = torch.autograd.grad(weight * value, [leaf, *part.parameters()], allow_unused=True)
        expected = expected + weight * value.detach()
        embedding = embedding + given[0]
        for total, gradient in zip(gradients, given[1:], strict=True):
            if gradient is not None:
                (total[:, : gradient.shape[1]] if gradient.ndim == 2 else total).add_(gradient)
    return expected, embedding, gradients


def test_the_loss_is_the_sum_of_separate_losses():
    """Embeddings of any length keep theirs in a prefix."""
    for name, rescales in [*((name, True) for name in NAMES), ("multisimilarity", False)]:
        if name in ADAPTERS | STATEFUL:
            continue
        labels = torch.tensor(LABELS["repeated"])
        whole = build(name)
        batch = normalize(points(len(labels))) if rescales else points(len(labels))
        expected, embedding, gradients = separately(whole, batch.clone().requires_grad_(), labels, rescales)
        value, of_batch, of_parameters = run(nested(whole, name, rescales=rescales), batch, labels)
        say = lambda text, name=name: f"{name}: {text}"  # noqa: E731
        torch.testing.assert_close(value, expected, msg=say)
        torch.testing.assert_close(of_batch, embedding, rtol=1e-4, atol=1e-6, msg=say)
        for mine, its in zip(of_parameters, gradients, strict=True):
            torch.testing.assert_close(
                torch.zeros_like(its) if mine is None else mine, its, rtol=1e-4, atol=1e-6, msg=say
            )
        assert {"loss@d2", "loss@d5"} <= set(whole.stats)


@pytest.mark.parametrize("name", ["softmax", "softtriplet", "margin", *sorted(STATEFUL)])
def test_own_heads_are_criteria_of_their_own(name):
    labels = torch.tensor(LABELS["repeated"])
    batch = normalize(points(len(labels)))
    criterion = nested(build(name), name, heads="own", make=lambda width: build(name, embed_dim=width))
    apart = [copy.deepcopy(criterion.of_prefixes[i]) for i in (0, 1)] + [build(name)]
    torch.manual_seed(1)
    expected = sum(
        w * part(normalize(batch[:, :d]) if d < DIMENSIONS else batch, labels)
        for part, w, d in zip(apart, WEIGHTS, PREFIXES, strict=True)
    )
    torch.testing.assert_close(run(criterion, batch, labels)[0], expected.detach())
    groups = criterion_groups(criterion, Namespace(lr=1e-3, loss_decay=0.0))
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(
        id(p) for p in criterion.parameters()
    ), "each parameter in one group"
    assert len({group["name"] for group in groups}) == len(groups)
    again = nested(build(name), name, heads="own", make=lambda width: build(name, embed_dim=width))
    again.load_state_dict(criterion.state_dict())
    state = again.state_dict()
    assert all((state[key] == value).all() for key, value in criterion.state_dict().items())


def test_a_reference_is_cut_too_and_the_class_stays_what_it_was():
    labels = torch.tensor(LABELS["repeated"])
    batch = normalize(points(8))
    others = normalize(points(20))
    of_others = torch.arange(20) % 3
    own = torch.full((8,), -1)
    plain = build("contrastive")
    criterion = nested(build("contrastive"), "contrastive")
    torch.manual_seed(1)
    expected = 0.0
    for width, weight in zip(PREFIXES, WEIGHTS, strict=True):
        expected += weight * plain(
            normalize(batch[:, :width]),
            labels,
            reference=normalize(others[:, :width]),
            reference_labels=of_others,
            own=own,
        )
    torch.manual_seed(1)
    torch.testing.assert_close(
        criterion(batch, labels, reference=others, reference_labels=of_others, own=own), expected
    )
    assert isinstance(criterion, type(plain)) and type(criterion).__module__ == "criteria.contrastive"
    half = criterion(batch.bfloat16(), labels)
    assert half.dtype == torch.float32


def test_learned_hyperparameters_are_shared_by_prefixes():
    criterion = nested(build("multisimilarity", loss_learn=["margin"]), "multisimilarity")
    run(criterion, normalize(points(8)), torch.tensor(LABELS["repeated"]))
    assert (
        "margin" in criterion.stats
        and len(list(criterion.parameters())) == 1
        and next(criterion.parameters()).grad is not None
    )


def test_mistakes_end_in_one_line():
    for flags, message in (
        ({"matryoshka": [64, 32, 128]}, "--matryoshka 64 32 128: the prefixes must ascend"),
        ({"matryoshka": [64, 64, 128]}, "must ascend"),
        ({"matryoshka": [64, 128, 256]}, "the embedding has 128 dimensions, 256 are more"),
        ({"matryoshka": [32, 64]}, "the dimensions above 64 would not be trained: add 128"),
        ({"matryoshka": [64, 128], "matryoshka_weights": [1.0]}, "2 prefixes, --matryoshka_weights 1 weights"),
        ({"matryoshka": [64, 128], "trainer": "cascaded"}, "--trainer cascaded"),
    ):
        opt = {
            "matryoshka": None,
            "matryoshka_weights": None,
            "matryoshka_heads": "prefix",
            "embed_dim": 128,
            "trainer": "metric_only",
        }
        with refused(message):
            criteria.check(SimpleNamespace(**{**opt, **flags}))
    with refused("--loss dynamic_softmargin keeps statistics .* --matryoshka_heads own"):
        nested(build("dynamic_softmargin"), "dynamic_softmargin")
    with refused("class vectors of --loss pml stand in columns, .* --matryoshka_heads own"):
        nested(build("pml", loss_pml_class="ArcFaceLoss"), "pml")


@pytest.mark.long
@pytest.mark.parametrize("heads", ["prefix", "own"])
def test_a_run_resumes(heads, data, tmp_path):
    tiny.assert_resumes(data, tmp_path, "--loss", "softmax", "--matryoshka", "2", "8", "--matryoshka_heads", heads)


def test_a_run_records_its_metrics_at_each_prefix(data, tmp_path):
    flags = [
        "--loss",
        "softmax",
        "--matryoshka",
        "2",
        "8",
        "--matryoshka_heads",
        "own",
        "--evaluation_metrics",
        "e_recall@1",
        "nmi",
        "--dump_embeddings",
    ]
    run = tiny.run(data, tmp_path, *flags, "--n_epochs", "1", "--storage_metrics", "e_recall@1@d2")
    assert run.opt.evaluation_metrics == ["e_recall@1", "nmi", "e_recall@1@d2", "nmi@d2"]
    summary = json.loads((run.folder / "summary.json").read_text())["selected"]
    values = summary["values"]["test"]
    assert {*values} == {*run.opt.evaluation_metrics} and "e_recall@1@d2" in summary["rule"]
    with np.load(run.folder / "embeddings_test.npz") as dumped:
        features = dumped["features"]
        labels = dumped["labels"]
    cut = features[:, :2] / np.linalg.norm(features[:, :2], axis=1, keepdims=True)
    assert metrics.compute(["e_recall@1"], cut, labels)["e_recall@1"] == pytest.approx(values["e_recall@1@d2"])
    assert tiny.measured(run)["test"] == pytest.approx(values)
    words = [
        "--dataset",
        "glyphs",
        "--embed_dim",
        "16",
        "--matryoshka",
        "4",
        "8",
        "16",
        "--evaluation_metrics",
        "e_recall@1",
        "c_map_r@d4",
    ]
    assert parameters.resolve(words).evaluation_metrics == [
        "e_recall@1",
        "c_map_r@d4",
        "e_recall@1@d4",
        "e_recall@1@d8",
    ]
