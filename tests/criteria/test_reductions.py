"""--loss_reduction against loops and the reducers of pytorch-metric-learning; who takes it; unset it changes no bit."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers

import criteria
import parameters
from criteria._reductions import CHOICES, Reduction
from tests.criteria.test_table import DIMENSIONS, MIXED, criterion_of, mined, points
from tests.kit.refusals import refused

WEIGHTS = [0.5, 2.0, 0.0, 1.0, 3.0]
every_choice = pytest.mark.parametrize("how", CHOICES)


@pytest.fixture
def weights_file(tmp_path):
    path = tmp_path / "weights.txt"
    path.write_text(" ".join(map(str, WEIGHTS[:2])) + "\n" + "\n".join(map(str, WEIGHTS[2:])) + "\n")
    return str(path)


def loops(terms, anchors, labels, how, weights=None):
    values = terms.tolist()
    if how == "mean":
        return sum(values) / max(len(values), 1)
    if how == "nonzero":
        return sum(values) / max(sum(v > 0 for v in values), 1)
    if how == "sum":
        return sum(values)
    of = [[v for v, a in zip(values, anchors, strict=True) if a == i] for i in range(len(labels))]
    if how == "per_anchor":
        return sum(sum(own) / len(own) for own in of if own) / len(labels)
    if weights is not None:
        return sum(weights[labels[a]] * v for v, a in zip(values, anchors, strict=True)) / max(len(values), 1)
    by_class = [[v for v, a in zip(values, anchors, strict=True) if labels[a] == c] for c in sorted(set(labels))]
    return sum(sum(own) / len(own) for own in by_class if own) / max(sum(bool(own) for own in by_class), 1)


@every_choice
def test_against_loops(how, weights_file):
    labels = [0, 0, 0, 1, 1, 2, 3, 3, 4]
    generator = torch.Generator().manual_seed(0)
    for size in (0, 1, 40):
        terms = torch.rand(size, dtype=torch.float64, generator=generator).sub(0.3).clamp(min=0).requires_grad_()
        anchors = torch.randint(7, (size,), generator=generator)  # of nine: two have no term
        for path, weights in ((None, None), (weights_file, WEIGHTS)):
            flags = {"loss_reduction": how, "loss_class_weights": path if how == "class_weighted" else None}
            value = Reduction(criteria.REGISTRY.options(None, **flags))(terms, anchors, torch.tensor(labels))
            assert float(value.detach()) == pytest.approx(
                loops(terms, anchors.tolist(), labels, how, weights), abs=1e-12
            )
            value.backward()  # of no terms, too


PLAIN = distances.LpDistance(normalize_embeddings=False)
SNR = distances.SNRDistance(normalize_embeddings=False)
# loss, the package's, our flags, the miner whose tuples both take, what the package has not
PEERS = [
    (
        "contrastive",
        lambda r: losses.ContrastiveLoss(0.5, 3.0, distance=PLAIN, reducer=r),
        {"loss_contrastive_pos_margin": 0.5, "loss_contrastive_neg_margin": 3.0},
        "none",
        (),
    ),
    (
        "triplet",
        lambda r: losses.TripletMarginLoss(0.2, distance=PLAIN, reducer=r),
        {"loss_triplet_distance": "euclidean"},
        "all",
        ("per_anchor",),
    ),
    ("margin", lambda r: losses.MarginLoss(0.2, nu=0, beta=1.2, distance=PLAIN, reducer=r), {}, "all", ("per_anchor",)),
    (
        "snr_contrastive",
        lambda r: losses.ContrastiveLoss(0.1, 1.5, distance=SNR, reducer=r),
        {"loss_snr_contrastive_pos_margin": 0.1, "loss_snr_contrastive_neg_margin": 1.5},
        "none",
        (),
    ),
    (
        "tupletmargin",
        lambda r: losses.TupletMarginLoss(margin=5.729577951308233, reducer=r),
        {},
        "none",
        ("per_anchor", "class_weighted"),
    ),
    ("intrapair_variance", lambda r: losses.IntraPairVarianceLoss(reducer=r), {}, "none", ()),
    (
        "lifted_original",
        lambda r: losses.LiftedStructureLoss(distance=PLAIN, reducer=r),
        {},
        "none",
        ("per_anchor", "class_weighted"),
    ),
]
REDUCERS = {
    "mean": reducers.MeanReducer,
    "nonzero": reducers.AvgNonZeroReducer,
    "sum": reducers.SumReducer,
    "per_anchor": reducers.PerAnchorReducer,
    "class_weighted": lambda: reducers.ClassWeightedReducer(torch.tensor(WEIGHTS, dtype=torch.float64)),
}


@every_choice
def test_losses_agree_with_pytorch_metric_learning(how, weights_file):
    for name, peer, flags, miner, lacks in PEERS:
        if how in lacks:
            continue
        x = points(9, 0, False)
        y = torch.tensor(MIXED)
        tuples = mined(miner, x)
        given = {
            **flags,
            "loss_reduction": how,
            "loss_class_weights": weights_file if how == "class_weighted" else None,
        }
        ours = criterion_of(name, tuples, **given)(x, y)
        theirs = peer(REDUCERS[how]())(x, y, tuple(tuples))
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")
        torch.testing.assert_close(*(torch.autograd.grad(value, x)[0] for value in (ours, theirs)))


def test_each_one_that_says_so_reads_it():
    """Set to mean, it is what the loss does by itself, where that is a mean; a sum is another value. It wins over the
    loss's own flag.
    """
    x = points(9, 0, False)
    y = torch.tensor(MIXED)
    tuples = mined("all", points(9, 0, False))
    for name in [name for name, module in criteria.REGISTRY.modules().items() if getattr(module, "REDUCES", False)]:
        values = []
        for how in (None, "mean", "sum"):
            torch.manual_seed(0)  # quadruplet draws its fourth samples
            values.append(criterion_of(name, tuples, loss_reduction=how)(x, y))
        assert values[0] > 0 and values[2] > values[1], name
        if name not in ("snr", "snr_contrastive", "margin"):  # the mean of their active terms
            torch.testing.assert_close(values[0], values[1])
    for name in ("triplet", "contrastive"):
        flags = {f"loss_{name}_reduction": "nonzero"}
        own, won = (criterion_of(name, tuples, **flags, **more)(x, y) for more in ({}, {"loss_reduction": "mean"}))
        assert own > won and won == criterion_of(name, tuples)(x, y)


def test_what_does_not_go_together_is_refused_in_one_line(tmp_path):
    for words, told in (
        (["arcface", "--loss_reduction", "sum"], "--loss_reduction sum: --loss arcface is no mean over tuples"),
        (
            ["triplet", "--loss_class_weights", "w.txt"],
            "--loss_class_weights w.txt has no effect without --loss_reduction class_weighted",
        ),
    ):
        with refused(told):
            parameters.resolve(["--dataset", "glyphs", "--loss", *words])
    path = tmp_path / "weights.txt"
    flags = {"loss_reduction": "class_weighted", "loss_class_weights": str(tmp_path / "weights.txt")}
    for text, told in (
        (None, "not a"),
        ("1 2 x", "not a text file of numbers"),
        ("1 2 -1", "at least 0"),
        ("1 nan 1", "at least 0"),
        ("1 2", "has 2 numbers, .* 3 classes"),
    ):
        path.write_text(text) if text is not None else None
        with refused(f"--loss_class_weights .*weights.txt.*{told}"):
            criteria.select("triplet", n_classes=3, embed_dim=DIMENSIONS, **flags)
