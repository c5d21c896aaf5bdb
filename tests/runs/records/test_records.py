"""Names of rows."""

from runs.records import Row, metric_group
from tests.runs.records._made import rows


def test_titles_are_those_of_the_icml_pipeline():
    assert rows(1)[1].title == "Test: discriminative_e_recall: e_recall@1"
    assert Row(1, "val", "fused_nmi", "fused/nmi", 0.0).title == "Val: fused_nmi: nmi"


def test_plain_names_are_split_and_metric():
    assert [row.name for row in rows(1)] == ["train/loss", "test/e_recall@1", "test/e_recall@2", "test/nmi"]
    assert Row(1, "val", "fused_nmi", "fused/nmi", 0.0).name == "val/fused/nmi"


def test_groups_are_those_of_the_icml_pipeline():
    assert metric_group("e_recall@1", ["discriminative"]) == "discriminative_e_recall"
    assert metric_group("fused/nmi", ["discriminative", "fused"]) == "fused_nmi"
