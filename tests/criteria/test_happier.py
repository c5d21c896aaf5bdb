"""HAPPIER: value and gradients against loops in float64, with levels, ties, a memory, parts; which data it takes."""

import json
import math

import numpy as np
import pytest
import torch

import criteria
import main
import parameters
from criteria import happier
from tests import builders
from tests.builders import refused
from utilities import levels
from utilities.errors import UserError

LEVELS = np.array([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1], [4, 2, 1], [5, 3, 1]])  # of six classes
DIMENSIONS = 5


def build(of_classes=LEVELS, **flags):
    torch.manual_seed(0)
    criterion = criteria.select("happier", n_classes=6, embed_dim=DIMENSIONS, **flags).double()
    if of_classes is not None:
        criterion.set_levels(of_classes)
    return criterion


def h_ap(criterion, similarities, shared, n_levels):
    """1 - the soft H-AP of one anchor, of the other samples' similarities and of how many levels they share; None without relatives."""
    related = [k for k, level in enumerate(shared) if level]
    if not related:
        return None
    relevance = [level / n_levels / shared.count(level) if level else 0.0 for level in shared]
    total = 0.0
    for k in related:
        hits, rank = relevance[k], 1.0
        for j in range(len(shared)):
            if j == k:
                continue
            t = similarities[j] - similarities[k]
            if t >= 0:
                hits += min(relevance[j], relevance[k])
            if shared[j] >= shared[k]:
                rank = rank + float(t >= 0)
            elif t > criterion.delta:
                rank = rank + criterion.rho * (t - criterion.delta) + criterion.offset
            else:
                rank = rank + 1 / (1 + torch.exp(-t / criterion.temperature)) + (criterion.start if t > 0 else 0)
        total = total + hits / rank
    return 1 - total / sum(relevance)


def slow(criterion, of_classes, x, labels, r=None, others=None, own=None):
    r, others, own = (x, labels, range(len(x))) if r is None else (r, others, own.tolist())
    terms, cluster = [], []
    for a, label in enumerate(labels.tolist()):
        rows = [j for j in range(len(r)) if j != own[a]]
        shared = [int((of_classes[label] == of_classes[int(others[j])]).sum()) for j in rows]
        term = h_ap(criterion, [x[a] @ r[j] for j in rows], shared, of_classes.shape[1])
        terms += [] if term is None else [term]
        weights = criterion.cluster.proxies
        logits = torch.stack([x[a] @ w / w.norm() / criterion.cluster.temperature for w in weights])
        cluster.append(torch.logsumexp(logits, 0) - logits[label])
    ranking = sum(terms) / len(terms) if terms else 0.0
    return (1 - criterion.weight) * ranking + criterion.weight * sum(cluster) / len(cluster)


def assert_as_slow(criterion, of_classes, x, labels, **form):
    inputs = [x, criterion.cluster.proxies, *([form["reference"]] if form else [])]
    value = criterion(x, labels, **form)
    expected = slow(criterion, of_classes, x, labels, *form.values())
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-12)
    for one, other in zip(*(torch.autograd.grad(found, inputs) for found in (value, expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def points(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, DIMENSIONS, dtype=torch.float64, generator=generator)).requires_grad_()


FLAGS = [{}, {"loss_happier_temperature": 0.2, "loss_happier_weight": 0.4, "loss_happier_cluster_temperature": 0.3}]
FLAGS += [{"loss_happier_offset": 1.0, "loss_happier_start": 0.0, "loss_happier_rho": 3.0, "loss_happier_delta": 0.4}]
LABELS = {
    "several": [0, 0, 1, 1, 2, 2, 3, 3, 4, 5], "singletons": [0, 1, 2, 3, 4, 5], "one class": [2, 2, 2, 2], "no relatives": [0, 3],
    "one sample": [4], "one without relatives": [0, 0, 1, 5],
}  # fmt: skip


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("chunk", [happier.CHUNK, 30])
def test_a_batch(flags, kind, chunk, monkeypatch):
    monkeypatch.setattr(happier, "CHUNK", chunk)
    labels = torch.tensor(LABELS[kind])
    assert_as_slow(build(**flags), LEVELS, points(len(labels)), labels)


def test_without_levels_it_is_average_precision():
    labels = torch.tensor(LABELS["several"])
    assert_as_slow(build(None), LEVELS[:, :1], points(10), labels)
    assert_as_slow(build(LEVELS[:, :2]), LEVELS[:, :2], points(10), labels)


def test_a_memory():
    x, r, labels = points(4), points(13, 1), torch.tensor([0, 2, 3, 5])
    form = {"reference": r, "reference_labels": torch.arange(13) % 6, "own": torch.tensor([0, -1, 3, 12])}
    assert_as_slow(build(), LEVELS, x, labels, **form)
    none = {"reference": r[:0], "reference_labels": torch.arange(0), "own": torch.full((4,), -1)}
    assert torch.isfinite(build()(x, labels, **none))


def test_equal_similarities_stand_before_each_other():
    """Similarities that are exact in binary: ties of relatives, of others, and with both."""
    x = torch.tensor([[1.0, 0.0], [0.5, 1.0], [0.5, -1.0], [0.5, 2.0], [0.25, 0.0], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    x = torch.nn.functional.pad(x, (0, DIMENSIONS - 2)).requires_grad_()
    assert_as_slow(build(), LEVELS, x, torch.tensor([0, 0, 1, 3, 0, 2, 5]))


def test_gradients_by_finite_differences_where_the_steps_are_flat():
    labels = torch.tensor(LABELS["several"])
    criterion = build(loss_happier_temperature=0.3, loss_happier_rho=2.0, loss_happier_cluster_temperature=0.5)
    found = (points(10, seed) for seed in range(20))
    x = next(x for x in found if _far_from_steps((x @ x.T).detach(), criterion.delta))
    assert torch.autograd.gradcheck(lambda x: criterion(x, labels), x, eps=1e-7, atol=1e-5)


def _far_from_steps(similarities, delta):
    differences = (similarities[:, :, None] - similarities[:, None, :])[:, ~torch.eye(10, dtype=torch.bool)].abs()
    return bool((differences > 1e-5).sum() > 0 and ((differences - delta).abs() > 1e-5).all() and (differences[differences > 0] > 1e-5).all())


def test_the_better_order_costs_less_and_worse_mistakes_more():
    """The class, its genus, another genus: a stranger in front costs more than a relative in front."""
    criterion, angles = build(np.array([[0, 0], [1, 0], [2, 1]] + [[3, 1]] * 3), loss_happier_weight=0.0), torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)

    def cost(order):
        found = torch.nn.functional.pad(torch.stack([angles[order].cos(), angles[order].sin()], 1), (0, DIMENSIONS - 2))
        anchor = torch.eye(DIMENSIONS, dtype=torch.float64)[:1]
        return float(criterion(anchor, torch.tensor([0]), reference=found, reference_labels=torch.tensor([0, 1, 2])).detach())

    right, relative_first, stranger_first = cost([0, 1, 2]), cost([1, 0, 2]), cost([2, 1, 0])
    assert right == pytest.approx(0, abs=1e-4) and right < relative_first < stranger_first


def test_class_weights_are_those_of_softmax_and_labels_are_checked():
    criterion = build(loss_happier_lr=10.0)
    (group,) = criterion.optim_dict_list
    assert group["lr"] == 10 and group["params"][0] is criterion.cluster.proxies and criterion.cluster.proxies.abs().max() <= 1 / math.sqrt(DIMENSIONS)
    with pytest.raises(ValueError, match="of 6 classes they go from 0 to 5"):
        criterion(points(2), torch.tensor([0, 6]))


class Trained:
    """What a criterion asks of a data set."""

    name, n_classes, class_names = "mine", 3, {0: "b", 1: "a", 2: "c"}

    def __init__(self, *lineages):
        self.lineages = set(lineages)
        self.super_labels = {label: next(names[1] for names in lineages if names[0] == name) for label, name in self.class_names.items()}


def test_levels_of_a_data_set_reach_the_criterion():
    criterion = build()
    with torch.no_grad():
        criteria.with_levels(torch.nn.ModuleList([criterion]), Trained(("a", "x", "z"), ("b", "y", "z"), ("c", "x", "z")))
    assert criterion.class_levels.tolist() == [[1, 1, 0], [0, 0, 0], [2, 0, 0]]
    assert not any("class_levels" in name for name in criterion.state_dict()), "they are the data's"
    for data, message in (
        (Trained(("a", None), ("b", None), ("c", None)), "--loss happier compares levels of classes, and --dataset mine knows no super-classes"),
        (Trained(("a", "x"), ("a", "y"), ("b", "y"), ("c", "x")), "--loss happier: --dataset mine: levels do not nest: a of level 0 is in x and y"),
        (Trained(("a", "x"), ("b", None), ("c", "x")), "b has no class of level 1"),
    ):
        with refused(None, message):
            criteria.with_levels(criterion, data)
    assert levels.n_levels(Trained(("a", "x", "z"), ("b", "y", "z"), ("c", "x", "z"))) == 3


def test_a_run_trains_and_is_measured_by_levels(tmp_path):
    root = builders.make_folder(tmp_path / "things", names=[f"{a}/{b}/{c}" for a in "xy" for b in "st" for c in "123"], size=(20, 20))
    words = ["--dataset", "folder", "--dataset_folder_path", str(root), "--arch", "conv4_normalize", "--resize_size", "18", "--crop_size", "16"]
    words += ["--loss", "happier", "--data_sampler", "hierarchical", "--bs", "8", "--samples_per_class", "2", "--n_epochs", "1", "--kernels", "0"]
    words += ["--evaluation_metrics", "e_recall@1", "h_ap", "asi_level0", "map_r_level1", "ndcg", "--storage_metrics", "h_ap", "--save_path", str(tmp_path)]
    run = main.main(parameters.read(words))
    values = json.loads((run.folder / "summary.json").read_text())["selected"]["values"]["test"]
    assert set(values) == {"e_recall@1", "h_ap", "asi_level0", "map_r_level1", "ndcg"} and 0 < values["h_ap"] < 1
    assert "h_ap" in next((run.folder / "CSV_Logs").glob("Test_*_h_ap.csv")).name


def test_a_run_on_data_without_levels_is_refused(tmp_path):
    builders.make_cub200(tmp_path, n_classes=4, n_images=2)
    words = ["--dataset", "cub200", "--source", str(tmp_path), "--allow_partial_dataset", "--arch", "conv4_normalize", "--loss", "happier", "--kernels", "0"]
    with pytest.raises(UserError, match="--loss happier compares levels of classes, and --dataset cub200 knows no super-classes"):
        main.main(parameters.read([*words, "--bs", "4", "--samples_per_class", "2", "--save_path", str(tmp_path / "runs")]))
