"""Names of metrics: parameters, variants, mistakes, the listing, a new file."""

import inspect

import numpy as np
import pytest

import metrics
from tests.metrics._plain import DISTS, random_space, ranked
from utilities.errors import UnknownName, UserError

ILL_FORMED = ["e_recall@0", "e_recall@x", "e_recall@", "e_recall", "e_recall@-1", "e_recall@1.5", "e_recall@01", "e_recall@1@2"]
ILL_FORMED += ["e_recall@k", "c_recall@0", "recall@1", "rho_spectrum@x", "rho_spectrum@", "rho_spectrum", "rho_spectrum@m"]
ILL_FORMED += ["rho_spectrum@1.0", "nmi@1", "nmi_macro", "c_nmi_macro", "dists@intra_macro", "dists@foo", "dists", "c_dists@intra"]
ILL_FORMED += [
    "fnmr@0",
    "fnmr@.0",
    "fnmr@1",
    "fnmr@1.5",
    "fnmr@-.1",
    "fnmr@fmr",
    "fnmr@.1e-3",
    "fnmr@.01_",
    "fnmr",
    "fnmr@.1_macro",
    "c_opis",
]
ILL_FORMED += ["e_recall@0_worst10", "e_recall@k_worst10", "e_recall@1_worst", "e_recall_worst10", "e_recall@1_worst10_macro", "fnmr@_low"]
ILL_FORMED += ["c_rho_spectrum@1", "c_e_recall@1", "mAP_1001", "map", "", "c_", "@1", "_macro", "e_recall_macro@1"]


@pytest.mark.parametrize("name", ILL_FORMED)
def test_ill_formed_names_are_refused_in_one_line(name):
    with pytest.raises(UserError) as error:
        metrics.check(name)
    assert "\n" not in str(error.value) and repr(name) in str(error.value)


def test_an_unknown_name_comes_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'map_r'"):
        metrics.check("mapr")


def test_every_listed_name_and_variant_is_accepted_and_within_its_range():
    features, labels = random_space(n=50)
    for name, caption in metrics.listing():
        assert caption and "is better" in caption
        variants = caption.rpartition("; also ")[2].split(", ") if "; also " in caption else []
        for variant in [name, *variants]:
            kind = name.partition("@")[2].partition("_")[0]
            for parameter in {"k": ["1", "5"], "m": ["0", "-1", "2"], "fmr": [".01", "0.25"]}.get(kind, [""]):
                asked = variant.replace(f"@{kind}", f"@{parameter}") if parameter else variant
                metrics.check(asked)
                value = metrics.compute([asked], features, labels, groups=labels % 2)[asked]
                assert isinstance(metrics.higher_is_better(asked), bool)
                assert metrics.is_array(asked) == isinstance(value, np.ndarray)
                assert metrics.is_array(asked) or isinstance(value, float)
                low, high = metrics._parse(asked).metric.range
                assert np.all(np.asarray(value) >= low) and np.all(np.asarray(value) <= high) and np.all(np.isfinite(value))


def test_names_of_the_defaults_and_their_groups():
    default = ["e_recall@1", "e_recall@2", "e_recall@4", "nmi", "f1", "mAP_1000", "mAP_lim", "mAP_c", *DISTS]
    default += [f"rho_spectrum@{m}" for m in (0, -1, 1, 2, 10)]
    measured = metrics.compute(default, *random_space(d=16))
    assert list(measured) == default and len(measured["rho_spectrum@0"]) == 16
    assert [metrics.group(name) for name in ("e_recall@1", "nmi", "dists@intra")] == ["e_recall", "nmi", "dists"]
    assert not metrics.higher_is_better("rho_spectrum@2") and metrics.higher_is_better("c_map_r_macro")


def test_parameters_and_suffixes():
    assert metrics._parse("fnmr@.01").metric.parameter == metrics._parse("c_fnmr@0.01_high").metric.parameter == 0.01
    assert metrics._parse("e_recall@4_worst10").metric.parameter == 4 and metrics._parse("c_recall@4_worst10").cosine
    assert [metrics.group(name) for name in ("fnmr@.01", "e_recall@1_worst10", "opis")] == ["fnmr", "e_recall", "opis"]
    lower = ["fnmr@.01", "opis", "alignment", "uniformity", "e_recall@1_group_gap"]
    assert not any(map(metrics.higher_is_better, lower)) and metrics.higher_is_better("e_recall@1_worst10")
    assert metrics.needs_groups("c_recall@1_group_gap") and not metrics.needs_groups("e_recall@1")
    assert metrics.searches("e_recall@1_worst10") and not metrics.searches("fnmr@.01")


def test_a_new_file_is_a_new_metric(monkeypatch, tmp_path):
    """One file, nothing else: found, listed, with its variants."""
    (tmp_path / "last_rank.py").write_text(
        inspect.cleandoc(
            """
            '''Rank of the farthest relevant sample.'''
            from metrics._metric import RetrievalMetric
            import numpy as np

            class Metric(RetrievalMetric):
                '''.'''
                NAMES = {"last_rank": "rank of the farthest same-class sample"}
                RANGE = (0, np.inf)
                HIGHER_IS_BETTER = False
                def depth(self, relevant, sizes):
                    return np.inf
                def score(self, hits):
                    return hits.sum(np.where(hits.orders == hits.relevant[hits.queries], hits.ranks, 0))
            """
        )
    )
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    monkeypatch.setattr(type(metrics.REGISTRY), "names", lambda self: ["e_recall", "last_rank"])
    features, labels = random_space(n=30, classes=4)
    same = [[j for j in range(30) if j != i and labels[j] == labels[i]] for i in range(30)]
    expected = [max(ranked(features[i], features, i).index(j) + 1 for j in same[i]) for i in range(30)]
    assert metrics.compute(["last_rank"], features, labels)["last_rank"] == pytest.approx(np.mean(expected))
    assert [name for name, _ in metrics.listing()] == ["e_recall@k", "last_rank"]
    metrics.check("c_last_rank_macro")
