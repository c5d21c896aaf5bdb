"""--loss_reduction against loops and the reducers of pytorch-metric-learning; who takes it; unset it changes no bit."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, reducers

import criteria
import parameters
from criteria._reductions import CHOICES, Reduction
from tests.criteria._oracles import DIMENSIONS, MIXED, criterion_of, embeddings_of, mined
from utilities.errors import UserError

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


@pytest.mark.parametrize("size", [0, 1, 40])
@every_choice
def test_against_loops(how, size, weights_file):
    generator = torch.Generator().manual_seed(size)
    terms = torch.rand(size, dtype=torch.float64, generator=generator).sub(0.3).clamp(min=0).requires_grad_()
    anchors = torch.randint(7, (size,), generator=generator)  # of nine: two have no term
    labels = [0, 0, 0, 1, 1, 2, 3, 3, 4]
    for path, weights in ((None, None), (weights_file, WEIGHTS)):
        flags = {"loss_reduction": how, "loss_class_weights": path if how == "class_weighted" else None}
        value = Reduction(criteria.REGISTRY.options(None, **flags))(terms, anchors, torch.tensor(labels))
        assert float(value.detach()) == pytest.approx(loops(terms, anchors.tolist(), labels, how, weights), abs=1e-12)
        value.backward()  # of no terms, too


@every_choice
def test_gradient(how):
    terms, anchors = torch.rand(12, dtype=torch.float64).add(0.1).requires_grad_(), torch.arange(12) % 5
    reduction = Reduction(criteria.REGISTRY.options(None, loss_reduction=how))
    assert torch.autograd.gradcheck(lambda x: reduction(x, anchors, torch.tensor([0, 0, 1, 1, 2])), [terms])


def reducer_of(how):
    if how == "per_anchor":
        return reducers.PerAnchorReducer()
    if how == "class_weighted":
        return reducers.ClassWeightedReducer(torch.tensor(WEIGHTS, dtype=torch.float64))
    return {"mean": reducers.MeanReducer, "nonzero": reducers.AvgNonZeroReducer, "sum": reducers.SumReducer}[how]()


def check_peer(name, peer, tuples, how, weights_file, **flags):
    x, y = embeddings_of(), torch.tensor(MIXED)
    flags |= {"loss_reduction": how, "loss_class_weights": weights_file if how == "class_weighted" else None}
    ours = criterion_of(name, tuples, **flags).double()(x, y)
    theirs = peer(x, y, tuple(tuples))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(value, x)[0] for value in (ours, theirs)))


PLAIN = distances.LpDistance(normalize_embeddings=False)


@every_choice
def test_contrastive_agrees_with_pytorch_metric_learning(how, weights_file):
    peer = losses.ContrastiveLoss(0.5, 3.0, distance=PLAIN, reducer=reducer_of(how))
    flags = {"loss_contrastive_pos_margin": 0.5, "loss_contrastive_neg_margin": 3.0}
    check_peer("contrastive", peer, mined("none", embeddings_of()), how, weights_file, **flags)


@pytest.mark.parametrize("how", [how for how in CHOICES if how != "per_anchor"])  # of triplets the package has none
def test_triplet_agrees_with_pytorch_metric_learning(how, weights_file):
    peer = losses.TripletMarginLoss(0.2, distance=PLAIN, reducer=reducer_of(how))
    check_peer("triplet", peer, mined("all", embeddings_of()), how, weights_file, loss_triplet_distance="euclidean")


@pytest.mark.parametrize("how", [how for how in CHOICES if how != "per_anchor"])
def test_margin_agrees_with_pytorch_metric_learning(how, weights_file):
    peer = losses.MarginLoss(0.2, nu=0, beta=1.2, distance=PLAIN, reducer=reducer_of(how))
    check_peer("margin", peer, mined("all", embeddings_of()), how, weights_file)


@every_choice
def test_snr_contrastive_agrees_with_pytorch_metric_learning(how, weights_file):
    peer = losses.ContrastiveLoss(0.1, 1.5, distance=distances.SNRDistance(normalize_embeddings=False), reducer=reducer_of(how))
    flags = {"loss_snr_contrastive_pos_margin": 0.1, "loss_snr_contrastive_neg_margin": 1.5}
    check_peer("snr_contrastive", peer, mined("none", embeddings_of()), how, weights_file, **flags)


@every_choice
def test_snr_and_quadruplet_reduce_the_terms_of_triplets(how, weights_file):
    x, y, triplets = embeddings_of(), torch.tensor(MIXED), mined("all", embeddings_of())
    flags = {"loss_reduction": how, "loss_class_weights": weights_file if how == "class_weighted" else None}

    def ratio(a, b):
        return (x[a] - x[b]).var(1) / x[a].var(1)

    anchors, positives, negatives = triplets
    terms = torch.relu(ratio(anchors, positives) - ratio(anchors, negatives) + 0.2)
    weights = WEIGHTS if how == "class_weighted" else None
    expected = loops(terms, anchors.tolist(), y.tolist(), how, weights)
    assert float(criterion_of("snr", triplets, loss_snr_reg_lambda=0, **flags).double()(x, y).detach()) == pytest.approx(expected)

    near = torch.relu((x[anchors] - x[positives]).norm(dim=1) - (x[anchors] - x[negatives]).norm(dim=1) + 0.2)
    expected = loops(near, anchors.tolist(), y.tolist(), how, weights)
    never = {"loss_quadruplet_margin_alpha_2": -100}  # the second hinge is never active
    assert float(criterion_of("quadruplet", triplets, **never, **flags).double()(x, y).detach()) == pytest.approx(expected)


PAIRS = {
    "tupletmargin": lambda reducer: losses.TupletMarginLoss(margin=5.729577951308233, reducer=reducer),
    "intrapair_variance": lambda reducer: losses.IntraPairVarianceLoss(reducer=reducer),
    "lifted_original": lambda reducer: losses.LiftedStructureLoss(distance=PLAIN, reducer=reducer),
}


@every_choice
@pytest.mark.parametrize("name", PAIRS)
def test_losses_on_all_pairs_agree_with_pytorch_metric_learning(name, how, weights_file):
    if name != "intrapair_variance" and how in ("per_anchor", "class_weighted"):
        pytest.skip("the package's terms are a column (P, 1) there, which these reducers multiply out to (P, P)")
    check_peer(name, PAIRS[name](reducer_of(how)), mined("none", embeddings_of()), how, weights_file)


@pytest.mark.parametrize("name", ["triplet", "contrastive"])
def test_it_wins_over_the_losss_own_flag(name):
    x, y, tuples = embeddings_of(), torch.tensor(MIXED), mined("all", embeddings_of())
    flags = {f"loss_{name}_reduction": "nonzero"}
    own, won = (criterion_of(name, tuples, **flags, **more)(x, y) for more in ({}, {"loss_reduction": "mean"}))
    assert own > won and won == criterion_of(name, tuples)(x, y)


@pytest.mark.parametrize("name", [name for name, module in criteria.REGISTRY.modules().items() if getattr(module, "REDUCES", False)])
def test_each_one_that_says_so_reads_it(name):
    """Set to mean, it is what the loss does by itself, where that is a mean; a sum is another value."""
    x, y, tuples = embeddings_of(), torch.tensor(MIXED), mined("all", embeddings_of())

    def value(how):
        torch.manual_seed(0)  # quadruplet draws its fourth samples
        return criterion_of(name, tuples, loss_reduction=how).double()(x, y)

    unset, mean, total = value(None), value("mean"), value("sum")
    assert unset > 0 and total > mean
    if name not in ("snr", "snr_contrastive", "margin"):  # the mean of their active terms
        torch.testing.assert_close(unset, mean)


@pytest.mark.parametrize(
    "words, told",
    [
        (["arcface", "--loss_reduction", "sum"], "--loss_reduction sum: --loss arcface is no mean over tuples"),
        (["triplet", "--loss_class_weights", "w.txt"], "--loss_class_weights w.txt is read under --loss_reduction class_weighted"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(words, told, capsys):
    with pytest.raises(SystemExit) as stop:
        parameters.read(["--dataset", "glyphs", "--loss", *words])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2 and told in line


@pytest.mark.parametrize(
    "text, told",
    [
        ("1 2 x", "not a text file of numbers"),
        ("1 2 -1", "at least 0"),
        ("1 nan 1", "at least 0"),
        ("1 2", "has 2 numbers, .* 3 classes"),
        (None, "not a"),
    ],
)
def test_weights_that_cannot_be_are_refused_in_one_line(tmp_path, text, told):
    path = tmp_path / "weights.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=f"--loss_class_weights .*weights.txt.*{told}") as refused:
        criteria.select("triplet", n_classes=3, embed_dim=DIMENSIONS, loss_reduction="class_weighted", loss_class_weights=str(path))
    assert "\n" not in str(refused.value)
