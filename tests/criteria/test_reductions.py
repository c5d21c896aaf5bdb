"""--loss_reduction against loops and the reducers of pytorch-metric-learning; who takes it; unset it changes no bit."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers
from torch.testing import assert_close

import criteria
from criteria._reductions import CHOICES, Reduction
from tests.criteria._table import mean
from tests.criteria.test_table import DIMENSIONS, MIXED, criterion_of, mined, points
from tests.kit import tiny
from tests.kit.refusals import refused

WEIGHTS = [0.5, 2.0, 0.0, 1.0, 3.0]
Y = torch.tensor(MIXED)
every_choice = pytest.mark.parametrize("how", CHOICES)


@pytest.fixture
def weights_file(tmp_path):
    path = tmp_path / "weights.txt"
    path.write_text(" ".join(map(str, WEIGHTS[:2])) + "\n" + "\n".join(map(str, WEIGHTS[2:])) + "\n")
    return str(path)


def means_by(keys, values):
    """The mean of the values of each key."""
    groups = {}
    for key, value in zip(keys, values, strict=True):
        groups.setdefault(key, []).append(value)
    return [mean(group) for group in groups.values()]


def loops(terms, anchors, labels, how, weights=None):
    values = terms.tolist()
    if how in ("mean", "sum", "nonzero"):
        counts = {"mean": len(values), "sum": 1, "nonzero": sum(v > 0 for v in values)}
        return sum(values) / max(counts[how], 1)
    if how == "per_anchor":
        return sum(means_by(anchors, values)) / len(labels)
    classes = [labels[a] for a in anchors]
    if weights is not None:
        return mean([weights[y] * v for v, y in zip(values, classes, strict=True)])
    return mean(means_by(classes, values))


@every_choice
def test_against_loops(how, weights_file):
    labels = [0, 0, 0, 1, 1, 2, 3, 3, 4]
    generator = torch.Generator().manual_seed(0)
    for size in (0, 1, 40):
        terms = torch.rand(size, dtype=torch.float64, generator=generator).sub(0.3).clamp(min=0).requires_grad_()
        # Of the nine anchors the last two have no term
        anchors = torch.randint(7, (size,), generator=generator)
        for path, weights in ((None, None), (weights_file, WEIGHTS)):
            file = path if how == "class_weighted" else None
            opt = criteria.REGISTRY.options(None, loss_reduction=how, loss_class_weights=file)
            value = Reduction(opt)(terms, anchors, torch.tensor(labels))
            expected = loops(terms, anchors.tolist(), labels, how, weights)
            assert float(value.detach()) == pytest.approx(expected, abs=1e-12)
            # A value of no terms has a gradient, too
            value.backward()


PLAIN = distances.LpDistance(normalize_embeddings=False)
SNR = distances.SNRDistance(normalize_embeddings=False)
# loss -> the package's, our flags, the miner whose tuples both take, what the package has not
PEERS = {
    "contrastive": (
        lambda r: losses.ContrastiveLoss(0.5, 3.0, distance=PLAIN, reducer=r),
        {"pos_margin": 0.5, "neg_margin": 3.0},
        "none",
        (),
    ),
    "triplet": (
        lambda r: losses.TripletMarginLoss(0.2, distance=PLAIN, reducer=r),
        {"distance": "euclidean"},
        "all",
        ("per_anchor",),
    ),
    "margin": (lambda r: losses.MarginLoss(0.2, nu=0, beta=1.2, distance=PLAIN, reducer=r), {}, "all", ("per_anchor",)),
    "snr_contrastive": (
        lambda r: losses.ContrastiveLoss(0.1, 1.5, distance=SNR, reducer=r),
        {"pos_margin": 0.1, "neg_margin": 1.5},
        "none",
        (),
    ),
    "tupletmargin": (
        lambda r: losses.TupletMarginLoss(margin=5.729577951308233, reducer=r),
        {},
        "none",
        ("per_anchor", "class_weighted"),
    ),
    "intrapair_variance": (lambda r: losses.IntraPairVarianceLoss(reducer=r), {}, "none", ()),
    "lifted_original": (
        lambda r: losses.LiftedStructureLoss(distance=PLAIN, reducer=r),
        {},
        "none",
        ("per_anchor", "class_weighted"),
    ),
}
REDUCERS = {
    "mean": reducers.MeanReducer,
    "nonzero": reducers.AvgNonZeroReducer,
    "sum": reducers.SumReducer,
    "per_anchor": reducers.PerAnchorReducer,
    "class_weighted": lambda: reducers.ClassWeightedReducer(torch.tensor(WEIGHTS, dtype=torch.float64)),
}


@every_choice
def test_losses_agree_with_pytorch_metric_learning(how, weights_file):
    for name, (peer, flags, miner, lacks) in PEERS.items():
        if how in lacks:
            continue
        x = points(9, 0, False)
        tuples = mined(miner, x)
        file = weights_file if how == "class_weighted" else None
        ours = criterion_of(name, tuples, **flags, loss_reduction=how, loss_class_weights=file)(x, Y)
        theirs = peer(REDUCERS[how]())(x, Y, tuple(tuples))
        assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")
        assert_close(*(torch.autograd.grad(value, x)[0] for value in (ours, theirs)))


def test_each_one_that_says_so_reads_it():
    """`mean` is what the loss does by itself, where that is a mean; it wins over the loss's own flag."""
    x = points(9, 0, False)
    tuples = mined("all", x)
    for name in [name for name, module in criteria.REGISTRY.modules().items() if getattr(module, "REDUCES", False)]:
        values = []
        for how in (None, "mean", "sum"):
            # quadruplet draws its fourth samples
            torch.manual_seed(0)
            values.append(criterion_of(name, tuples, loss_reduction=how)(x, Y))
        assert values[0] > 0 and values[2] > values[1], name
        # By themselves these three take the mean of their active terms
        if name not in ("snr", "snr_contrastive", "margin"):
            assert_close(values[0], values[1])
    for name in ("triplet", "contrastive"):
        nonzero, mean_after_all, plain = (
            criterion_of(name, tuples, **flags)(x, Y)
            for flags in ({"reduction": "nonzero"}, {"reduction": "nonzero", "loss_reduction": "mean"}, {})
        )
        assert nonzero > plain == mean_after_all


def test_a_loss_inside_another_reads_it():
    values = []
    for how in ("mean", "sum"):
        opt = tiny.resolve("--loss hier --loss_hier_base contrastive --batch_mining all --loss_reduction", how)
        torch.manual_seed(0)
        criterion = criteria.select("hier", opt, n_classes=3, embed_dim=DIMENSIONS, loss_hier_weight=0.0)
        values.append(criterion(points(9, 0, False), Y).item())
    assert values[1] > 2 * values[0] > 0
    assert (
        tiny.resolve("--loss softmax --trainer s2sd --s2sd_target triplet --loss_reduction sum").loss_reduction == "sum"
    )
    with refused("--loss_reduction sum: --loss hier, with proxyanchor inside, is no mean over tuples"):
        tiny.resolve("--loss hier --loss_reduction sum")


def test_what_does_not_go_together_is_refused_in_one_line(tmp_path):
    path = tmp_path / "weights.txt"
    for words, message in (
        ("arcface --loss_reduction sum", "--loss_reduction sum: --loss arcface is no mean over tuples"),
        (
            "triplet --loss_class_weights w.txt",
            "--loss_class_weights w.txt has no effect without --loss_reduction class_weighted",
        ),
    ):
        with refused(message):
            tiny.resolve("--loss", *words.split())
    flags = {"loss_reduction": "class_weighted", "loss_class_weights": str(path)}
    for text, message in (
        (None, "not a"),
        ("1 2 x", "not a text file of numbers"),
        ("1 2 -1", "at least 0"),
        ("1 nan 1", "at least 0"),
        ("1 2", "has 2 numbers, .* 3 classes"),
    ):
        if text is not None:
            path.write_text(text)
        with refused(f"--loss_class_weights .*weights.txt.*{message}"):
            criteria.select("triplet", n_classes=3, embed_dim=DIMENSIONS, **flags)
