"""Every miner against the table: what it finds in any batch, alone or with a reference and own images; draws by their
probabilities.
"""

import argparse
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import batch_mining
import parameters
from batch_mining._miner import Miner
from tests.batch_mining._table import MINERS, Group, Scene, outcomes
from tests.kit.flags import another_value
from tests.kit.mining import as_lists, assert_drawn_with
from tests.kit.refusals import refused
from utilities import tuples
from utilities.errors import UserError
from utilities.reference import Reference
from utilities.tuples import Pairs, Sets, Triplets

NAMES = batch_mining.REGISTRY.names()
KINDS = {"triplets": Triplets, "pairs": Pairs, "sets": Sets}
# miners whose rules say what follows from equal distances, as points on a grid have them
EXACT_ON_A_GRID = {"semihard", "softhard", "tripletmargin"}
ACTIONS = {action.dest: action for action in parameters.get_parser()._actions}
# miners that do not always give an anchor positives and negatives
ABLATIONS = {"intra_random", "random_distance", "rho_distance"}


def draw(size, seed=0, dimensions=3, dtype=torch.float64):
    return torch.randn(size, dimensions, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


class Points(NamedTuple):
    """How a scene's points are drawn; kind: random, copies, or grid, with distances that are exact in binary."""

    seed: int = 0
    dtype: torch.dtype = torch.float64
    kind: str = "random"


def place(x, kind, scale):
    if kind == "grid":
        return (x * 4).round() / 4 * torch.tensor([1.0] + [0.0] * (x.shape[1] - 1))
    return scale * (x[torch.arange(len(x)) // 2] if kind == "copies" else x)


def scene_of(labels, reference, points, dimensions=3, scale=1.0):
    """A scene, and what its miner is given beside the batch. `reference`: labels and own rows; None: the batch."""
    seed, dtype, kind = points
    x = place(draw(len(labels), seed, dimensions), kind, scale).to(dtype)
    if reference is None:
        return Scene(x, labels, x, labels, list(range(len(labels)))), ()
    r = place(draw(len(reference[0]), seed + 1, dimensions), kind, scale).to(dtype)
    return Scene(x, labels, r, *reference), (r, *(torch.tensor(rows, dtype=torch.long) for rows in reference))


def check_candidates(mined, scene):
    """Positives and negatives, of triplets or pairs, are those of their anchors."""
    columns = []
    if isinstance(mined, Triplets):
        columns = [(mined.anchors, mined.positives, scene.positives), (mined.anchors, mined.negatives, scene.negatives)]
    elif len(mined) == 4:
        columns = [(*mined[:2], scene.positives), (*mined[2:], scene.negatives)]
    for anchors, rows, candidates in columns:
        assert all(row in candidates[a] for a, row in as_lists(anchors, rows))


def check(name, expected, mined, scene):
    """The mined tuples are those that the table expects."""
    tuples_mined = outcomes(mined)
    # of (i, j) and (j, i) at the border either may be kept
    if name == "hdc":
        mined_pairs, expected_pairs = (
            sorted((kind, round(float(scene.d[a, j]), 9)) for kind, a, j in pairs) for pairs in (tuples_mined, expected)
        )
        assert mined_pairs == expected_pairs
    elif not expected or not isinstance(expected[0], Group):
        assert sorted(tuples_mined) == sorted(expected)
    else:
        assert len(tuples_mined) == sum(group.draws for group in expected)
        for group in expected:
            assert sum(group.table.get(outcome, 0) > 0 for outcome in tuples_mined) == group.draws, group.table


LABELS = [0, 0, 1, 2, 2, 3, 0, 0, 1]
REFERENCE_LABELS = [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 0, 1, 4, 0, 2, 2]
OWN_ROWS = [-1, 4, 5, -1, 6, 10, 2, 0, 3]  # none, of the anchor's label, of another one
SCENES = [  # labels, those of a reference and own images, type, points
    (LABELS,),
    ([1, 1, 0, 1, 0, 2, 3], None, torch.float64, "grid"),
    (LABELS, None, torch.float64, "copies"),
    ([2, 0, 0, 1, 3, 2], ([0, 2, 1, 0, 4, 2, 0, 3], [1, 0, -1, 2, 4, -1])),
    ([0, 1, 1, 0], ([1, 0, 1, 1, 0, 2], [-1, 0, 3, 1]), torch.float64, "grid"),
    (LABELS[:7], (REFERENCE_LABELS[:9], OWN_ROWS[1:3] * 3 + [-1]), torch.float32),
    (LABELS, None, torch.bfloat16),
    ([2, 2, 2],),
    ([0, 1, 3],),
    ([1],),
    ([0, 1], ([4, 0], [-1, 1])),
    ([0, 0], ([], [-1, -1])),
]
each_miner = pytest.mark.parametrize("miner", MINERS, ids=[name for name, *_ in MINERS])


@each_miner
def test_a_miner_finds_what_the_table_says(miner):
    """From one seed the same, without a graph; the batch as its own reference is the plain form."""
    for seed, (labels, *scene) in enumerate(SCENES):
        reference, *points = scene or [None]
        check_scene(miner, labels, reference, Points(seed, *points))


@pytest.mark.long
@each_miner
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    reference_labels=st.none() | st.lists(st.integers(0, 4), max_size=11),
    dtype=st.sampled_from([torch.float64] * 6 + [torch.float32, torch.bfloat16]),
    kind=st.sampled_from(["random"] * 4 + ["copies", "grid"]),
    data=st.data(),
)
def test_it_finds_that_for_any_labels(miner, labels, reference_labels, dtype, kind, data):
    reference = None
    if reference_labels is not None:
        own_rows = [data.draw(st.integers(-1, len(reference_labels) - 1)) for _ in labels]
        reference = (reference_labels, own_rows)
    check_scene(miner, labels, reference, Points(data.draw(st.integers(0, 99)), dtype, kind))


def check_scene(miner, labels, reference, points):
    name, rule, flags, scenery = miner
    scene, form = scene_of(labels, reference, points, **scenery)
    miner = batch_mining.select(name, **flags)
    x = scene.x.clone().requires_grad_()
    y = torch.tensor(labels)

    def mine(*form):
        torch.manual_seed(7)
        return miner(x, y, *form)

    mined = mine(*form)
    is_exact = points.kind == "random" or points.kind == "grid" and name in EXACT_ON_A_GRID
    if is_exact and points.dtype == torch.float64:
        check(name, rule(scene), mined, scene)
    elif name not in ABLATIONS:
        check_candidates(mined, scene)
    assert type(mined) is KINDS[batch_mining.REGISTRY.module(name).YIELDS]
    assert not any(column.requires_grad for column in mined)
    assert torch.equal(scene.x, x) and all(value.isfinite() and value.shape == () for value in miner.stats.values())
    assert miner.stats["tuples"] == len(mined[0]) + (len(mined[2]) if isinstance(mined, Pairs) else 0)
    assert isinstance(mined, Sets) or all(column.dtype == torch.long for column in mined)
    rows = torch.arange(len(labels))
    repeated = [mine(*form)]
    if reference is None and points.kind != "copies" and points.dtype == torch.float64:
        repeated.append(mine(x.clone(), y.clone(), rows))
        repeated += [mine(Reference(x, y, rows, True)), mine(Reference(x.clone(), y, rows, False))]
    for mined_again in repeated:
        # angular finds (a, p) and (p, a) together within a batch: the order of its tuples may differ
        if name == "angular":
            assert sorted(outcomes(mined_again)) == sorted(outcomes(mined))
        else:
            assert all(map(torch.equal, mined_again, mined))


@each_miner
def test_draws_follow_their_probabilities(miner):
    """With a reference, of which the batch is a case."""
    name, rule, flags, scenery = miner
    scene, form = scene_of(LABELS, (REFERENCE_LABELS, OWN_ROWS), Points(seed=7), **scenery)
    expected = rule(scene)
    miner = batch_mining.select(name, **flags)
    draws = []
    groups = expected if isinstance(expected[0], Group) else []
    torch.manual_seed(3)
    n_draws = 200 if groups else 1
    for number in range(n_draws):
        mined = miner(scene.x, torch.tensor(LABELS), *form)
        if number < 5:
            check(name, expected, mined, scene)
        draws += outcomes(mined)
    for group in groups:
        assert_drawn_with(group.table, [outcome for outcome in draws if outcome in group.table])


def test_every_miner_is_in_the_table_or_has_tests_of_its_own():
    assert set(NAMES) - {name for name, *_ in MINERS} == {"packaged", "random_distance"}
    assert all(batch_mining.REGISTRY.caption(name) for name in NAMES)


def test_random_distance_gives_an_image_one_label_wherever_it_lies(monkeypatch):
    """Reversed lists instead of permuted ones: then it is the distance miner under labels that can be told."""
    x = draw(9, 6)
    r = draw(17, 7)
    mined = []
    turned = REFERENCE_LABELS[::-1]
    labels = [turned[row] if row >= 0 else LABELS[::-1][i] for i, row in enumerate(OWN_ROWS)]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "randperm", lambda size, device=None: torch.arange(size - 1, -1, -1))
        for name, y, z in (("random_distance", LABELS, REFERENCE_LABELS), ("distance", labels, turned)):
            torch.manual_seed(0)
            form = (torch.tensor(y), r, torch.tensor(z), torch.tensor(OWN_ROWS))
            mined.append(batch_mining.select(name)(x, *form))
    assert all(map(torch.equal, *mined)) and len(mined[0].anchors)
    n_classes = set()
    for _ in range(20):
        triplets = as_lists(*batch_mining.select("random_distance")(x, torch.tensor(LABELS)))
        n_classes |= {len({LABELS[i] for i in triplet}) for triplet in triplets}
    assert n_classes == {1, 2, 3}, "of any classes"


def test_identical_and_opposite_points_and_nan():
    x = torch.tensor([[1.0, 0, 0, 0, 0]] * 4 + [[-1.0, 0, 0, 0, 0]] * 2)
    miner = batch_mining.select("distance", miner_distance_lower_cutoff=0.0)
    negatives = miner(x, torch.tensor([0, 0, 1, 2, 3, 3])).negatives
    # at distance 0 the density is 0, its inverse beats all others
    assert all(n in (2, 3) for n in negatives[:2].tolist())
    broken, _ = scene_of(LABELS, None, Points())
    broken.x[0] = torch.nan
    for name in set(NAMES) - {"packaged"}:
        mined = batch_mining.select(name)(broken.x, torch.tensor(LABELS))
        if name not in ABLATIONS:
            check_candidates(mined, broken)


def test_the_margin_of_semihard_and_statistics():
    loss = {"loss": "triplet", "loss_triplet_margin": 0.6}
    for opt, margin in (({"loss": "softmax"}, 0.2), (loss, 0.6), ({**loss, "miner_semihard_margin": 0.3}, 0.3)):
        assert batch_mining.select("semihard", argparse.Namespace(**opt)).margin == margin
    miner = batch_mining.select("semihard", miner_semihard_margin=10.0)
    miner(torch.tensor([[0.0], [50.0], [1.0], [51.0]]), torch.tensor([0, 0, 1, 1]))
    # 0 -> 50 finds 51; from 50 nothing lies beyond its positive but within 10
    assert miner.stats["semihard_share"] == 0.5
    miner = batch_mining.select("batchhard")
    miner(torch.tensor([[0.0], [1.0], [3.0], [51.0]]), torch.tensor([0, 0, 1, 1]))
    # from 3 to 51 it is farther than to 1
    assert miner.stats["hard_share"] == 0.25
    for probability in (0.0, 1.0):
        miner = batch_mining.select("rho_distance", miner_rho_distance_cp=probability)
        miner(draw(9), torch.tensor(LABELS))
        assert miner.stats["switched_share"] == probability


def test_a_distribution_given_to_parametric():
    labels = [0, 0, *range(1, 40)]
    # The only positive of anchor 0 lies far away
    line = torch.cat([torch.tensor([0.0, 50.0]), torch.linspace(0.02, 1.6, 39)])[:, None]
    shares = torch.rand(29, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.05
    shares[2] = 0
    miner = batch_mining.select("parametric", miner_parametric_mode="hards")
    miner.set_distribution(shares)
    torch.manual_seed(0)
    draws = [int(miner(line, torch.tensor(labels)).negatives[0]) for _ in range(400)]
    bins = {n: (float(line[n]) - 0.1) / 1.3 * 29 for n in range(2, 41)}
    assert_drawn_with({n: float(shares[int(k)]) for n, k in bins.items() if 0 <= k < 29}, draws)
    for wrong in ([], [0.0, 0.0], [1.0, -1.0], [[1.0]], [float("nan")]):
        with pytest.raises(ValueError, match="distribution over bins"):
            miner.set_distribution(wrong)
    with refused("a larger one"):
        batch_mining.select("parametric", miner_parametric_support_lim=[1.0, 0.5])
    limits = "no distance of --miner_parametric_support_lim 0.6 1.4 is within its 0 to 0.5"
    with refused(f"--miner_parametric_mode hards: {limits}"):
        batch_mining.select("parametric", miner_parametric_mode="hards", miner_parametric_support_lim=[0.6, 1.4])


def test_packaged_takes_the_batch_as_it_lies():
    miner = batch_mining.select("packaged")
    assert as_lists(*miner(draw(9), torch.tensor([4, 4, 1, 1, 1, 4, 7, 7, 1]))) == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert miner.stats == {"tuples": torch.tensor(3.0)}
    assert as_lists(*miner(draw(0), torch.tensor([], dtype=torch.long))) == []
    reference_labels = torch.tensor([5, 0, 0, 1, 2, 3, 2, 0, 0, 1])
    own_rows = torch.tensor([1, 2, 3, 4, 6, -1, 7, 8, 3])
    mined = miner(draw(9), torch.tensor(LABELS), draw(10), reference_labels, own_rows)
    # The reference lacks the negative of the second triplet
    assert as_lists(*mined) == [(0, 2, 3), (6, 8, 3)]
    for labels in ([0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1, 2, 2, 2]):
        with refused(f"a batch of {len(labels)} images is not made of triplets.* fixed_triplets"):
            miner(draw(len(labels)), torch.tensor(labels))


class OfTheBatch(Miner):
    """A user's miner from before there were references."""

    def mine(self, embeddings, labels):
        return Triplets(*torch.tensor([[0], [1], [2]]))


class OfAll(Miner):
    """A user's miner with a reference."""

    def mine(self, embeddings, labels, reference):
        return Triplets(reference.own[-1:], reference.labels[:1], torch.tensor([len(reference) - 1]))


def test_a_users_miner_takes_a_reference_where_it_can():
    x = draw(3)
    y = torch.tensor([0, 0, 1])
    assert as_lists(*OfAll()(x, y, draw(7), torch.ones(7), torch.tensor([-1, -1, 2]))) == [(2, 1, 6)]
    for miner in (OfTheBatch(), lambda batch, labels: [(0, 1, 2)]):
        wrapped = tuples.TupleMiner(miner)
        assert as_lists(*wrapped(x, y)) == as_lists(*wrapped(x, y, Reference.build(x, y))) == [(0, 1, 2)]
        with refused("cannot be used with a memory"):
            wrapped(x, y, Reference.build(x, y, x, y))
        wrapped.stats = {"mined": 3}
        assert miner.stats == wrapped.stats == {"mined": 3}, "the criterion records what its miner counts"
    with pytest.raises(UserError, match="OfTheBatch cannot be used with a memory"):
        OfTheBatch()(x, y, x, y)


def test_references_that_do_not_fit_are_refused_by_all():
    x = draw(9)
    y = torch.tensor(LABELS)
    r = draw(5, 3)
    for name in NAMES:
        batch_mining.select(name)(x, y.int(), r, y[:5].int())
        for wrong in ((r, None), (r, y), (r[:, :2], y[:5]), (r, y[:5], y[:4]), (None, y)):
            with pytest.raises(ValueError, match="expected|belong"):
                batch_mining.select(name)(x, y, *wrong)


def test_large_batches_and_references():
    """100,000 in a moment, without a matrix; of 2,048 samples, what grows with the cube would take 34 GB. Left out:
    tuples without end.
    """
    x = draw(64, 1, 8, torch.float32)
    r = draw(100_000, 2, 8, torch.float32)
    y = torch.arange(64) % 20
    z = torch.arange(100_000) % 30
    mined = batch_mining.select("random")(x, y, r, z)
    assert (y[mined.anchors] == z[mined.positives]).all() and (y[mined.anchors] != z[mined.negatives]).all()
    for name in sorted(set(NAMES) - {"all", "none", "tripletmargin", "hdc", "pml", "angular", "packaged"}):
        assert len(batch_mining.select(name)(draw(2048, dtype=torch.float32), torch.arange(2048) // 2)[0]), name


def tuples_with(name, **flags):
    """What a miner finds in two batches, with the same draws."""
    miner = batch_mining.select(name, **flags)
    mined = []
    for scale in (0.3, 1.0):
        torch.manual_seed(0)
        batch = scale * draw(24, dimensions=3)
        mined.append(outcomes(miner(batch, torch.arange(24) // 6)))
    return mined


@pytest.mark.parametrize("name", [name for name in NAMES if batch_mining.REGISTRY.flags(name)])
def test_each_flag_alone_acts_or_is_refused(name):
    usual = tuples_with(name)
    # The bins of `parametric` are equal until a program sets their probabilities.
    for flag in batch_mining.REGISTRY.flags(name) - {"miner_parametric_n_support"}:
        value = another_value(ACTIONS[flag])
        try:
            changed = tuples_with(name, **{flag: value})
        except UserError as error:
            assert "\n" not in str(error)
            continue
        assert changed != usual, f"--{flag} {value} has no effect: declare a rule"
