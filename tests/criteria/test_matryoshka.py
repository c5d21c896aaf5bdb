"""Losses of prefixes: MRL-E's pin, separate losses on prefixes for every criterion, references, own heads, mistakes."""

import copy
from argparse import Namespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import criteria
import metrics
from criteria import _matryoshka
from runs import RunFolder
from tests.criteria.test_registry_wide import ADAPTERS, DIMENSIONS, LABELS, NAMES, build, points, run
from tests.kit import tiny
from tests.kit.refusals import refused
from utilities.parameter_groups import criterion_groups
from utilities.tensors import normalize

PREFIXES = [2, 5, DIMENSIONS]
WEIGHTS = [0.5, 2.0, 3.0]
HALVING = {"angle"}  # takes no prefix of an odd length
STATEFUL = {"adaface", "curricularface", "dynamic_softmargin", "hist"}  # keep statistics of one embedding
REPEATED = torch.tensor(LABELS["repeated"])


def nested(criterion, name="softmax", heads="prefix", rescales=True, prefixes=PREFIXES, weights=WEIGHTS, make=None):
    flags = {"matryoshka": prefixes, "matryoshka_weights": weights, "matryoshka_heads": heads, "loss": name}
    opt = Namespace(**flags, embed_dim=prefixes[-1], lr=1e-3, loss_decay=0.0)
    return _matryoshka.nest(criterion, opt, rescales, make)


def prefix(x, width, rescales=True):
    return normalize(x[:, :width]) if rescales and width < DIMENSIONS else x[:, :width]


def test_mrl_e_by_the_pin():
    """Cross-entropy of the logits of the first two dimensions, and of all four; one head, whose columns are cut."""

    class CrossEntropy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]))

        def forward(self, batch, labels):
            return cross_entropy(batch @ self.weight.T, labels)

    criterion = nested(CrossEntropy(), rescales=False, prefixes=[2, 4], weights=None)
    value = criterion(torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([1]))
    assert value.item() == pytest.approx(0.407606 + 5.009174, abs=1e-5)
    assert criterion.stats["loss@d2"].item() == pytest.approx(0.407606, abs=1e-5)
    value.backward()
    assert (criterion.weight.grad[:, :2].abs() > 0).any() and criterion.weight.grad.shape == (3, 4)


def separately(criterion, leaf, labels, rescales):
    """The sum of the losses of the prefixes, by criteria whose matrices were cut by hand, and its gradients."""
    total = torch.zeros(())
    gradients = [torch.zeros_like(tensor) for tensor in (leaf, *criterion.parameters())]
    torch.manual_seed(1)
    for width, weight in zip(PREFIXES, WEIGHTS, strict=True):
        part = copy.deepcopy(criterion)
        for module in part.modules():
            for key, p in list(module._parameters.items()):
                if p is not None and p.ndim == 2 and p.shape[1] == DIMENSIONS:
                    module._parameters[key] = torch.nn.Parameter(p.detach()[:, :width].clone())
        value = weight * part(prefix(leaf, width, rescales), labels)
        total = total + value.detach()
        slopes = torch.autograd.grad(value, [leaf, *part.parameters()], allow_unused=True)
        for gradient, slope in zip(gradients, slopes, strict=True):
            if slope is not None:
                columns = gradient[:, : slope.shape[1]] if slope.ndim == 2 else gradient
                columns.add_(slope)
    return total, gradients


def test_the_loss_is_the_sum_of_separate_losses():
    """Embeddings of any length keep theirs in a prefix."""
    for name, rescales in [*((name, True) for name in NAMES), ("multisimilarity", False)]:
        if name in ADAPTERS | STATEFUL | HALVING:
            continue
        batch = points(len(REPEATED))
        if rescales:
            batch = normalize(batch)
        criterion = build(name)
        expected, gradients = separately(criterion, batch.clone().requires_grad_(), REPEATED, rescales)
        value, of_batch, of_parameters = run(nested(criterion, name, rescales=rescales), batch, REPEATED)
        say = lambda text, name=name: f"{name}: {text}"  # noqa: E731
        assert_close(value, expected, msg=say)
        for ours, theirs in zip((of_batch, *of_parameters), gradients, strict=True):
            ours = torch.zeros_like(theirs) if ours is None else ours
            assert_close(ours, theirs, rtol=1e-4, atol=1e-6, msg=say)
        assert {"loss@d2", "loss@d5"} <= set(criterion.stats)


@pytest.mark.parametrize("name", ["softmax", "softtriplet", "margin", *sorted(STATEFUL)])
def test_own_heads_are_criteria_of_their_own(name):
    batch = normalize(points(len(REPEATED)))

    def with_own_heads():
        return nested(build(name), name, heads="own", make=lambda width: build(name, embed_dim=width))

    criterion = with_own_heads()
    parts = [*map(copy.deepcopy, criterion.of_prefixes[:2]), build(name)]
    torch.manual_seed(1)
    expected = 0.0
    for part, weight, width in zip(parts, WEIGHTS, PREFIXES, strict=True):
        expected += weight * part(prefix(batch, width), REPEATED)
    assert_close(run(criterion, batch, REPEATED)[0], expected.detach())
    groups = criterion_groups(criterion, Namespace(lr=1e-3, loss_decay=0.0))
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(map(id, criterion.parameters())), "each parameter in one group"
    assert len({group["name"] for group in groups}) == len(groups)
    restored = with_own_heads()
    restored.load_state_dict(criterion.state_dict())
    assert all(torch.equal(restored.state_dict()[key], value) for key, value in criterion.state_dict().items())


def test_a_reference_is_cut_too_and_the_class_stays_what_it_was():
    batch = normalize(points(8))
    reference = normalize(points(20))
    rows = {"reference_labels": torch.arange(20) % 3, "own": torch.full((8,), -1)}
    plain = build("contrastive")
    criterion = nested(build("contrastive"), "contrastive")
    expected = 0.0
    torch.manual_seed(1)
    for width, weight in zip(PREFIXES, WEIGHTS, strict=True):
        expected += weight * plain(prefix(batch, width), REPEATED, reference=prefix(reference, width), **rows)
    torch.manual_seed(1)
    assert_close(criterion(batch, REPEATED, reference=reference, **rows), expected)
    assert isinstance(criterion, type(plain)) and type(criterion).__module__ == "criteria.contrastive"
    assert criterion(batch.bfloat16(), REPEATED).dtype == torch.float32


def test_learned_hyperparameters_are_shared_by_prefixes():
    criterion = nested(build("multisimilarity", loss_learn=["margin"]), "multisimilarity")
    run(criterion, normalize(points(8)), REPEATED)
    (parameter,) = criterion.parameters()
    assert "margin" in criterion.stats and parameter.grad is not None


def test_mistakes_end_in_one_line():
    for prefixes, flags, message in (
        ([64, 32, 128], {}, "--matryoshka 64 32 128: the prefixes must ascend"),
        ([64, 64, 128], {}, "must ascend"),
        ([64, 128, 256], {}, "the embedding has 128 dimensions, 256 are more"),
        ([32, 64], {}, "the dimensions above 64 would not be trained: add 128"),
        ([64, 128], {"matryoshka_weights": [1.0]}, "2 prefixes, --matryoshka_weights 1 weights"),
        ([64, 128], {"trainer": "cascaded"}, "--trainer cascaded"),
    ):
        defaults = {"matryoshka_weights": None, "matryoshka_heads": "prefix", "trainer": "metric_only"}
        with refused(message):
            criteria.check(Namespace(embed_dim=128, matryoshka=prefixes, **{**defaults, **flags}))
    with refused("--loss dynamic_softmargin keeps statistics .* --matryoshka_heads own"):
        nested(build("dynamic_softmargin"), "dynamic_softmargin")
    with refused("class vectors of --loss pml stand in columns, .* --matryoshka_heads own"):
        nested(build("pml", loss_pml_class="ArcFaceLoss"), "pml")


@pytest.mark.long
@pytest.mark.parametrize("heads", ["prefix", "own"])
def test_a_run_resumes(heads, data, tmp_path):
    tiny.assert_resumes(data, tmp_path, "--loss softmax --matryoshka 2 8 --matryoshka_heads", heads)


def test_a_run_records_its_metrics_at_each_prefix(data, tmp_path):
    flags = "--loss softmax --matryoshka 2 8 --matryoshka_heads own --n_epochs 1 --storage_metrics e_recall@1@d2"
    run = tiny.run(data, tmp_path, *flags.split(), "--evaluation_metrics e_recall@1 nmi --dump_embeddings")
    assert run.opt.evaluation_metrics == ["e_recall@1", "nmi", "e_recall@1@d2", "nmi@d2"]
    summary = RunFolder(run.folder).selected
    values = summary["values"]["test"]
    assert {*values} == {*run.opt.evaluation_metrics} and "e_recall@1@d2" in summary["rule"]
    with np.load(run.folder / "embeddings_test.npz") as dumped:
        cut = dumped["features"][:, :2] / np.linalg.norm(dumped["features"][:, :2], axis=1, keepdims=True)
        recall = metrics.compute(["e_recall@1"], cut, dumped["labels"])["e_recall@1"]
    assert recall == pytest.approx(values["e_recall@1@d2"])
    assert tiny.measured(run)["test"] == pytest.approx(values)
    words = "--embed_dim 16 --matryoshka 4 8 16 --evaluation_metrics e_recall@1 c_map_r@d4"
    named = tiny.resolve(*words.split()).evaluation_metrics
    assert named == ["e_recall@1", "c_map_r@d4", "e_recall@1@d4", "e_recall@1@d8"]
