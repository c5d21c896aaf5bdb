"""--splits: variance against its analysis, tau against scipy, reversals against a loop, the tables."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import kendalltau

from results import bootstrap, columns, groups, inference, paired, splits, tables
from results.tables.splits import chosen_on_test
from tests.kit.refusals import refused
from tests.kit.run_folders import built, evaluated, lines, make_run, rows

COLUMN = columns.column("test", "e_recall@1")


class Grid(splits.Splits):
    """Splits whose values are given."""

    def __init__(self, honest, best=None, outcomes=None):
        methods = [f"m{i}" for i in range(len(honest))]
        super().__init__("d", methods, [f"s{i}" for i in range(len(honest[0]))], [], outcomes, [])
        gains = best and [[b - a for a, b in zip(*row, strict=True)] for row in zip(honest, best, strict=True)]
        self.by_rule = dict.fromkeys((columns.SELECTED, columns.ON_VALIDATION), honest)
        self.by_rule |= {columns.BEST_ON_TEST: best, columns.OPTIMISM: gains}

    def values(self, column, how):
        return self.by_rule[column.how or how]


class Directed(Grid):
    """The same of every metric, but negative where less is better."""

    def values(self, column, how):
        return [[seeds if column.higher else -seeds for seeds in row] for row in super().values(column, how)]


@pytest.fixture
def samples():
    rng = np.random.default_rng(3)
    parts = rng.normal(0, 2, (6, 1, 1)) + rng.normal(0, 3, (1, 5, 1)) + rng.normal(0, 0.8, (6, 5, 1))
    return parts + rng.normal(0, 0.4, (6, 5, 4))


def test_the_parts_of_a_balanced_table_are_those_of_the_analysis_of_variance(samples):
    parts = splits.components([list(row) for row in samples])
    assert [parts[name] for name in splits.COMPONENTS] == pytest.approx(slow_mean_squares(samples.tolist()), rel=2e-3)
    values = [[np.array([m + 1, m - 1]) for _ in range(4)] for m in (0.0, 10.0, 20.0)]
    parts = splits.components(values)
    # a part that is not there is zero
    assert parts["split"] == pytest.approx(0, abs=0.2) and parts["method"] == pytest.approx(10, rel=0.01)


def slow_mean_squares(table):
    """The variances of a balanced table, by plain loops over its values."""
    methods = range(len(table))
    splits = range(len(table[0]))
    seeds = range(len(table[0][0]))

    def mean(values):
        values = list(values)
        return math.fsum(values) / len(values)

    cells = [[mean(table[m][k]) for k in splits] for m in methods]
    of_methods = [mean(row) for row in cells]
    of_splits = [mean(row[k] for row in cells) for k in splits]
    grand = mean(of_methods)
    n_m = len(methods)
    n_k = len(splits)
    n_s = len(seeds)
    pairs = list(itertools.product(methods, splits))
    method = n_k * n_s * math.fsum((value - grand) ** 2 for value in of_methods) / (n_m - 1)
    split = n_m * n_s * math.fsum((value - grand) ** 2 for value in of_splits) / (n_k - 1)
    interaction = n_s * math.fsum((cells[m][k] - of_methods[m] - of_splits[k] + grand) ** 2 for m, k in pairs)
    interaction /= (n_m - 1) * (n_k - 1)
    seed = math.fsum((table[m][k][s] - cells[m][k]) ** 2 for m, k in pairs for s in seeds)
    seed /= n_m * n_k * (n_s - 1)
    variances = (method - interaction) / (n_k * n_s), (split - interaction) / (n_m * n_s), (interaction - seed) / n_s
    return [math.sqrt(max(variance, 0.0)) for variance in (*variances, seed)]


@pytest.mark.parametrize("shape", [(2, 2, 2), (5, 2, 4), (3, 4, 3), (2, 6, 2)])
def test_mean_squares_are_those_of_plain_loops(shape):
    rng = np.random.default_rng(7)
    for scale in (0.0, 0.1, 5.0):
        table = scale * rng.normal(size=(shape[0], 1, 1)) + rng.normal(size=(1, shape[1], 1)) + rng.normal(size=shape)
        parts = splits.by_mean_squares(table)
        assert [parts[name] for name in splits.COMPONENTS] == pytest.approx(slow_mean_squares(table.tolist()), abs=1e-9)


def test_mean_squares_and_the_mixed_model_agree_where_that_converges(samples):
    parts = splits._by_mixed_model([list(row) for row in samples])
    assert parts == pytest.approx(splits.by_mean_squares(samples), rel=2e-3)


def test_a_balanced_table_on_which_the_mixed_model_fails_has_mean_squares():
    table = np.array([[[0.1, -0.1], [0.6, 0.1]], [[-0.5, 0.4], [1.3, 0.9]]])
    parts = splits.components([list(row) for row in table])
    assert [parts[name] for name in splits.COMPONENTS] == pytest.approx(slow_mean_squares(table.tolist()))
    constant = splits.components([[np.full(2, 3.0)] * 2] * 3)
    assert constant == dict.fromkeys(splits.COMPONENTS, 0.0)


def test_the_estimates_of_a_model_that_does_not_converge_are_not_taken(samples, monkeypatch):
    monkeypatch.setattr(splits, "_by_mixed_model", lambda values: None)
    assert splits.components([list(row) for row in samples]) == splits.by_mean_squares(samples)


def test_parts_that_cannot_be_told_apart_are_nan(monkeypatch):
    monkeypatch.setattr(splits, "_by_mixed_model", lambda values: None)
    single = splits.components([[np.array([1.0])] * 2, [np.array([2.0]), np.array([2.5])]])
    assert math.isnan(single["seed"]) and math.isnan(single["method x split"])
    assert single["method"] > 0 and single["split"] >= 0
    unbalanced = splits.components([[np.array([1.0, 2.0])] * 2, [np.array([2.0]), np.array([2.5, math.nan])]])
    assert all(math.isnan(part) for part in unbalanced.values())


def test_tau_is_that_of_scipy_with_ties_and_its_interval_holds_the_mean(samples):
    def taus(table):
        return np.array([[kendalltau(a, b).statistic for b in table.T] for a in table.T])

    def pairs_of(table):
        return taus(table)[np.triu_indices(table.shape[1], 1)]

    table = samples.mean(2).round()
    np.testing.assert_allclose(splits.taus(table), taus(table), atol=1e-12)
    agreement = splits.agreement([list(row) for row in samples])
    pairs = pairs_of(samples.mean(2))
    assert agreement.mean == pytest.approx(np.mean(pairs))
    assert agreement.extremes == pytest.approx((min(pairs), max(pairs)))
    assert agreement.interval[0] < agreement.mean < agreement.interval[1] + 1e-9
    assert agreement.of_seeds == pytest.approx(np.mean([pairs_of(samples[:, k]) for k in range(5)]))


def test_reversals_are_counted_as_in_a_plain_loop(samples):
    # Three methods gain on the first split, so that some differences turn
    samples[:3, 0] += 6
    result = splits.reversals(Grid([list(row) for row in samples]), COLUMN, by_classes=False)
    significant = followed = turned = against = within = 0
    pairs = list(itertools.combinations(range(6), 2))

    def compared(i, j, k):
        low, high = inference.difference(inference.estimate(samples[i, k]), inference.estimate(samples[j, k]))
        return samples[i, k].mean() - samples[j, k].mean(), low, high

    for (i, j), a in itertools.product(pairs, range(5)):
        value, low, high = compared(i, j, a)
        is_significant = low > 0 or high < 0
        significant += is_significant
        for b in set(range(5)) - {a}:
            other_value, down, up = compared(i, j, b)
            followed += is_significant
            turned += is_significant and other_value * value < 0
            against += is_significant and (up < 0 if value > 0 else down > 0)
            below = math.hypot(value - low, up - other_value)
            above = math.hypot(high - value, other_value - down)
            within += value - below <= other_value <= value + above
    share = pytest.approx(within / len(pairs) / 20)
    assert result == (len(pairs) * 5, significant, followed, turned, followed, against, share)
    assert turned > against > 0
    # single seeds have no interval
    result = splits.reversals(Grid([[row[0], *(seeds[:1] for seeds in row[1:])] for row in samples]), COLUMN, False)
    assert (result.tried, result.followed, result.met) == (15, 4 * result.significant, 0)
    assert math.isnan(result.predicted)


@pytest.fixture
def over_splits(tmp_path):
    """Runs of two methods on two splits, of which one has a single seed on the second."""

    def make(group, seed, split, quality, metrics=("e_recall@1", "map_r"), measured=("train", "val", "test")):
        records = rows(quality, 4, seed, measured, metrics, ())
        flags = {"split_shuffle": split, "use_tv_split": True}
        make_run(tmp_path / "runs", group, seed, epochs=4, records=records, **flags)

    for split, (loss, quality), seed in itertools.product(range(2), (("A", 0.6), ("B", 0.7)), range(2)):
        if (split, loss, seed) != (1, "B", 1):
            make(f"Split{split}_{loss}", seed, split, quality + 0.02 * split + 0.001 * seed)
    return make


def test_paired_intervals_and_the_draw_of_classes():
    rng = np.random.default_rng(1)
    sizes = np.full(30, 4.0)
    outcomes = [
        [bootstrap.Outcomes(rng.binomial(4, p, (3, 30)).astype(float), sizes) for _ in range(2)] for p in (0.3, 0.8)
    ]
    result = splits.reversals(Grid([[np.zeros(3)] * 2] * 2, outcomes=outcomes), COLUMN, by_classes=True)
    assert (result.tried, result.significant, result.followed, result.turned, result.predicted) == (2, 2, 2, 0, 1.0)
    errors = [(outcome.sums[s] / 4).var(ddof=1) / 30 for row in outcomes for outcome in row for s in range(3)]
    assert splits.of_queries(outcomes) == pytest.approx(100 * math.sqrt(np.mean(errors)))
    assert math.isnan(splits.of_queries([[None]]))


def test_the_share_within_the_prediction_of_intervals_that_are_not_symmetric(monkeypatch):
    # difference, low, high of the pair on each split
    intervals = iter([[(1.0, 0.5, 3.0)], [(0.4, 0.1, 0.8)]])
    monkeypatch.setattr(splits, "_intervals_by_classes", lambda outcomes: next(intervals))
    grid = Grid([[np.zeros(1)] * 2] * 2, outcomes=[[None] * 2] * 2)
    # .4 from 1 - hypot(.5, .4) on; 1 up to .4 + hypot(.4, .5)
    assert splits.reversals(grid, COLUMN, by_classes=True).predicted == 1.0


def test_optimism_and_reordered_pairs():
    honest = [[np.array([1.0, 2.0])] * 2, [np.array([2.0, 3.0])] * 2]
    best = [[np.array([3.0, 4.0])] * 2, [np.array([2.5, 3.0])] * 2]
    optimism = splits.optimism(Grid(honest, best), COLUMN)
    gains = [2, 2, 2, 2, 0.5, 0, 0.5, 0]
    assert (optimism.mean, optimism.deviation) == (pytest.approx(np.mean(gains)), pytest.approx(np.std(gains, ddof=1)))
    assert (optimism.extremes, optimism.reordered, optimism.pairs) == ((0.0, 2.0), 2, 2)
    assert optimism.of_means == pytest.approx(np.std([2, 2, 0.25, 0.25], ddof=1))
    same_order = chosen_on_test(Directed(honest, best), [COLUMN, columns.column("test", "opis")]).notes[0]
    assert "order 0 of 2 pairs of methods" in same_order, "though less is better of the second"


def test_the_tables_of_runs_over_splits(over_splits, tmp_path):
    out = evaluated(tmp_path, "--splits", r"Split\d+_")
    values = lines(out / "cub200_splits_e_recall1.csv")
    assert "Seeds: Split0 2, Split1 1/2." in values[0]["notes"]
    assert [line["method"] for line in values] == ["A", "B"] and {"Split0", "Split1", "all splits"} < set(values[0])
    for name in ("variance", "survival", "differences", "optimism", "map_r"):
        assert lines(out / f"cub200_splits_{name}.csv")
    assert (out / "cub200_splits_e_recall-1.png").stat().st_size > 5000
    assert "With a single seed on a split" in "".join(path.read_text() for path in out.glob("*.md"))
    differences = lines(out / "cub200_splits_differences.csv")[0]
    # no interval on the other split, so nothing is significant there
    assert differences["significant"] == "1 of 1" and not differences["significantly reversed"]


def test_which_splits_and_methods_are_in_the_tables(over_splits, tmp_path):
    # the split has no other method yet
    over_splits("Split10_B", 0, 10, 0.5)
    for group, quality in (("Split2_A", 0.5), ("Split2_B", 0.6)):
        over_splits(group, 0, 2, quality, ("e_recall@1",), ("val", "test"))

    def of_datasets():
        return groups.of_datasets(list(built(tmp_path / "runs").values()))

    by_dataset = of_datasets()
    for pattern, names in (
        (r"Split\d+_", ["Split0", "Split1", "Split2"]),
        (r"Split(\d+)_", ["0", "1", "2"]),
        (r"(Fold\d+)_|(Split\d+)_", ["Split0", "Split1", "Split2"]),
    ):
        (grid,) = splits.find(by_dataset, pattern, paired.of_groups)
        assert (grid.methods, grid.splits) == (["A", "B"], names) and "10 does not have all 2 methods" in grid.notes[0]
    written = {table.name for table in tables.of_splits(grid, [COLUMN, columns.column("test", "map_r")])}
    # Split2 has no map_r
    names = ("e_recall1", "variance", "survival", "differences", "optimism")
    assert written == {f"cub200_splits_{name}" for name in names}
    plain = Grid([[np.array([1.0])] * 3, [np.array([2.0])] * 3])
    grid.values = lambda column, how: plain.values(column, columns.SELECTED)
    # Neither direction of rho_spectrum is better
    table = tables.of_splits(grid, [columns.column("test", "rho_spectrum@2")])[0]
    assert not any(cell.mark for row in table.rows for cell in row) and "Ranks" not in table.notes[0]
    over_splits("Split0_C", 0, None, 0.5, ("e_recall@1",), ("test",))
    (grid,) = splits.find(of_datasets(), r"Split\d+", paired.of_groups)
    assert grid.methods == ["A", "B"]
    assert any("Split0_C is not selected on val as most are" in note for note in grid.notes)
    for pattern, message in (
        (r"(Split)\d+", "are both 'B' on 'Split'"),
        ("Fold", "no data set has two methods"),
        ("(", "no regular expression"),
    ):
        with refused(message):
            splits.find(by_dataset, pattern, paired.of_groups)
