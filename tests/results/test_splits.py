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
        super().__init__(
            "d", [f"m{i}" for i in range(len(honest))], [f"s{i}" for i in range(len(honest[0]))], [], outcomes, []
        )
        gains = best and [[b - a for a, b in zip(*row, strict=True)] for row in zip(honest, best, strict=True)]
        self.given = {
            columns.SELECTED: honest,
            columns.ON_VALIDATION: honest,
            columns.BEST_ON_TEST: best,
            columns.OPTIMISM: gains,
        }

    def values(self, column, how):
        return self.given[column.how or how]


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
    m, k, s = samples.shape
    cells = samples.mean(2)
    within = samples.var(2, ddof=1).mean()
    interaction = (
        s * ((cells - cells.mean(1, keepdims=True) - cells.mean(0) + cells.mean()) ** 2).sum() / ((m - 1) * (k - 1))
    )
    methods = k * s * cells.mean(1).var(ddof=1)
    of_splits = m * s * cells.mean(0).var(ddof=1)
    expected = {
        "method": (methods - interaction) / (k * s),
        "split": (of_splits - interaction) / (m * s),
        "method x split": (interaction - within) / s,
        "seed": within,
    }
    parts = splits.components([list(row) for row in samples])
    assert parts == pytest.approx({name: math.sqrt(part) for name, part in expected.items()}, rel=2e-3)
    values = [[np.array([m + seed, m - seed]) for _ in range(4)] for m, seed in ((0.0, 1.0), (10.0, 1.0), (20.0, 1.0))]
    parts = splits.components(values)
    assert parts["split"] == pytest.approx(0, abs=0.2) and parts["method"] == pytest.approx(10, rel=0.01), (
        "a part that is not there is zero"
    )


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
    method = n_k * n_s * math.fsum((of_methods[m] - grand) ** 2 for m in methods) / (n_m - 1)
    split = n_m * n_s * math.fsum((of_splits[k] - grand) ** 2 for k in splits) / (n_k - 1)
    interaction = n_s * math.fsum(
        (cells[m][k] - of_methods[m] - of_splits[k] + grand) ** 2 for m in methods for k in splits
    )
    interaction /= (n_m - 1) * (n_k - 1)
    seed = math.fsum((table[m][k][s] - cells[m][k]) ** 2 for m in methods for k in splits for s in seeds)
    seed /= n_m * n_k * (n_s - 1)
    variances = (
        (method - interaction) / (n_k * n_s),
        (split - interaction) / (n_m * n_s),
        (interaction - seed) / n_s,
        seed,
    )
    return [math.sqrt(max(variance, 0.0)) for variance in variances]


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
    table = samples.mean(2).round()
    expected = [[kendalltau(table[:, a], table[:, b]).statistic for b in range(5)] for a in range(5)]
    np.testing.assert_allclose(splits.taus(table), expected, atol=1e-12)
    agreement = splits.agreement([list(row) for row in samples])
    pairs = [
        kendalltau(samples.mean(2)[:, a], samples.mean(2)[:, b]).statistic
        for a, b in itertools.combinations(range(5), 2)
    ]
    assert agreement.mean == pytest.approx(np.mean(pairs)) and agreement.extremes == pytest.approx(
        (min(pairs), max(pairs))
    )
    assert agreement.interval[0] < agreement.mean < agreement.interval[1] + 1e-9
    singles = [
        kendalltau(samples[:, k, a], samples[:, k, b]).statistic
        for k in range(5)
        for a, b in itertools.combinations(range(4), 2)
    ]
    assert agreement.of_seeds == pytest.approx(np.mean(singles))


def test_reversals_are_counted_as_in_a_plain_loop(samples):
    samples[:3, 0] += 6  # some turn
    result = splits.reversals(Grid([list(row) for row in samples]), COLUMN, by_classes=False)
    significant = followed = turned = against = within = 0
    pairs = list(itertools.combinations(range(6), 2))

    def compared(i, j, k):
        low, high = inference.difference(inference.estimate(samples[i, k]), inference.estimate(samples[j, k]))
        return samples[i, k].mean() - samples[j, k].mean(), low, high

    for i, j in pairs:
        for a in range(5):
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
    assert result == (
        len(pairs) * 5,
        significant,
        followed,
        turned,
        followed,
        against,
        pytest.approx(within / len(pairs) / 20),
    )
    assert turned > against > 0
    result = splits.reversals(
        Grid([[row[0], *(seeds[:1] for seeds in row[1:])] for row in samples]), COLUMN, by_classes=False
    )
    assert (result.tried, result.followed, result.met) == (15, 4 * result.significant, 0) and math.isnan(
        result.predicted
    ), "single seeds have no interval"


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


def test_the_tables_of_runs_over_splits(tmp_path):
    cells = set(itertools.product(range(2), (("A", 0.6), ("B", 0.7)), range(2))) - {(1, ("B", 0.7), 1)}
    for split, (loss, quality), seed in sorted(cells):
        grid = rows(
            quality + 0.02 * split + 0.001 * seed, 4, seed, ("train", "val", "test"), ("e_recall@1", "map_r"), ()
        )
        make_run(
            tmp_path / "runs",
            f"Split{split}_{loss}",
            seed,
            epochs=4,
            records=grid,
            split_shuffle=split,
            use_tv_split=True,
        )
    out = evaluated(tmp_path, "--splits", r"Split\d+_")
    values = lines(out / "cub200_splits_e_recall1.csv")
    assert "Seeds: Split0 2, Split1 1/2." in values[0]["notes"]
    assert [line["method"] for line in values] == ["A", "B"] and {"Split0", "Split1", "all splits"} < set(values[0])
    for name in ("variance", "survival", "optimism", "map_r"):
        assert lines(out / f"cub200_splits_{name}.csv")
    assert (out / "cub200_splits_e_recall-1.png").stat().st_size > 5000
    assert "With a single seed on a split" in "".join(path.read_text() for path in out.glob("*.md"))
    survival = lines(out / "cub200_splits_survival.csv")
    assert survival[0]["shown"] == "1 of 1" and not survival[0]["turned and shown"], (
        "no interval on the other split, so nothing could be shown there"
    )
    begun = rows(0.5, 4, 0, ("val", "test"), ("e_recall@1", "map_r"), ())
    # the split has no other method yet
    make_run(tmp_path / "runs", "Split10_B", 0, epochs=4, split_shuffle=10, use_tv_split=True, records=begun)
    make_run(
        tmp_path / "runs",
        "Split2_A",
        0,
        epochs=4,
        split_shuffle=2,
        use_tv_split=True,
        records=rows(0.5, 4, 0, ("val", "test"), ("e_recall@1",), ()),
    )
    make_run(
        tmp_path / "runs",
        "Split2_B",
        0,
        epochs=4,
        split_shuffle=2,
        use_tv_split=True,
        records=rows(0.6, 4, 0, ("val", "test"), ("e_recall@1",), ()),
    )
    by_dataset = groups.of_datasets(list(built(tmp_path / "runs").values()))
    for pattern, names in (
        (r"Split\d+_", ["Split0", "Split1", "Split2"]),
        (r"Split(\d+)_", ["0", "1", "2"]),
        (r"(Fold\d+)_|(Split\d+)_", ["Split0", "Split1", "Split2"]),
    ):
        (grid,) = splits.find(by_dataset, pattern, paired.of_groups)
        assert (grid.methods, grid.splits) == (["A", "B"], names) and "10 does not have all 2 methods" in grid.notes[0]
    table_of = {table.name: table for table in tables.of_splits(grid, [COLUMN, columns.column("test", "map_r")])}
    assert table_of.keys() == {f"cub200_splits_{name}" for name in ("e_recall1", "variance", "survival", "optimism")}, (
        "Split2 has no map_r"
    )
    undirected = columns.column("test", "rho_spectrum@2")
    grid.values = lambda column, how: Grid([[np.array([1.0])] * 3, [np.array([2.0])] * 3]).values(
        column, columns.SELECTED
    )
    table = tables.of_splits(grid, [undirected])[0]
    assert not any(cell.mark for row in table.rows for cell in row) and "Ranks" not in table.notes[0]
    make_run(tmp_path / "runs", "Split0_C", 0, epochs=4, records=rows(0.5, 4, 0, ("test",), ("e_recall@1",), ()))
    (grid,) = splits.find(groups.of_datasets(list(built(tmp_path / "runs").values())), r"Split\d+", paired.of_groups)
    assert grid.methods == ["A", "B"] and any(
        "Split0_C is not selected on val as most are" in note for note in grid.notes
    )
    with refused("are both 'B' on 'Split'"):
        splits.find(by_dataset, r"(Split)\d+", paired.of_groups)
    for pattern, message in (("Fold", "no data set has two methods"), ("(", "no regular expression")):
        with refused(message):
            splits.find(by_dataset, pattern, paired.of_groups)
