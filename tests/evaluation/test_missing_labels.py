"""Missing labels in files of embeddings: distractors in a gallery, refused where they would be queries or a class."""

import numpy as np
import pytest

import metrics
from evaluation import missing_labels
from retrieval import explore
from tests.kit import splits
from tests.kit.refusals import refused
from tools import whiten
from utilities.errors import UserError
from utilities.labels import are_missing, present

METRICS = ["e_recall@1", "map_r", "nmi", "dists@intra"]
ROWS = 24
MISSING = [7, 20]
IS_QUERY = np.arange(ROWS) < 6


ROLES = {"is_query": IS_QUERY, "is_gallery": ~IS_QUERY}


FEATURES = np.random.default_rng(3).normal(size=(ROWS, 4)).astype(np.float32)
LABELS = np.arange(ROWS) % 3
HAS_NONE = np.isin(np.arange(ROWS), MISSING)
TEXTS = np.array([f"class {label}" for label in LABELS])
FORMS = {
    "text": np.where(HAS_NONE, "NaN", TEXTS),
    "spaces": np.where(HAS_NONE, " null ", TEXTS),
    "empty": np.where(HAS_NONE, "", TEXTS),
    "bytes": np.where(HAS_NONE, "<NA>", TEXTS).astype("S"),
    "float": np.where(HAS_NONE, np.nan, LABELS),
    "levels": np.stack([np.where(HAS_NONE, "None", TEXTS), np.where(HAS_NONE, "None", "above")], 1),
}


def measured(folder, *words, names=METRICS, **arrays):
    return splits.measured(folder, *map(str, words), names=names, **arrays)


@pytest.mark.parametrize("form", FORMS)
def test_a_gallery_row_without_a_label_is_a_distractor(form, tmp_path):
    expected = measured(tmp_path, features=FEATURES, labels=LABELS, is_distractor=HAS_NONE, **ROLES)
    for marks in ({}, {"is_distractor": HAS_NONE}):
        results = measured(tmp_path, features=FEATURES, labels=FORMS[form], **marks, **ROLES)
        assert results == pytest.approx(expected), marks


def test_a_distractor_of_a_class_beside_a_row_without_a_label(tmp_path):
    marked = np.arange(ROWS) == 9
    expected = measured(tmp_path, features=FEATURES, labels=LABELS, is_distractor=HAS_NONE | marked, **ROLES)
    results = measured(tmp_path, features=FEATURES, labels=FORMS["text"], is_distractor=marked, **ROLES)
    assert results == pytest.approx(expected)


@pytest.mark.parametrize("form", FORMS)
def test_a_query_without_a_label_is_refused(form, tmp_path):
    with refused(rf"2 of {ROWS} labels are missing, such as .* in row 7: give each query a class"):
        measured(tmp_path, features=FEATURES, labels=FORMS[form])
    with refused("in row 20"):
        measured(tmp_path, features=FEATURES, labels=FORMS[form], is_distractor=np.arange(ROWS) == 7)


@pytest.mark.parametrize("form", ["text", "float"])
def test_references_and_galleries_without_labels(form, tmp_path):
    labels = FORMS[form]
    query = np.arange(6)
    gallery = np.arange(6, ROWS)
    labelled = [row for row in gallery if not HAS_NONE[row]]
    queries = {"features": FEATURES[query], "labels": labels[query]}
    with refused(
        "2 of 18 reference_labels are missing, such as .* in row 1: give distractors a label that no query has"
    ):
        measured(tmp_path, **queries, reference_features=FEATURES[gallery], reference_labels=labels[gallery])
    numbers = np.where(HAS_NONE, -5, LABELS)
    names = ["map_r", "e_recall@1"]
    slow = metrics.compute(names, FEATURES[query], numbers[query], FEATURES[gallery], numbers[gallery])
    np.savez(tmp_path / "named.npz", features=FEATURES[labelled], labels=labels[labelled])
    np.savez(tmp_path / "nameless.npz", features=FEATURES[MISSING], labels=labels[MISSING])
    files = [tmp_path / "named.npz", tmp_path / "nameless.npz"]
    assert measured(tmp_path, "--gallery", *files, names=names, **queries) == pytest.approx(slow)


def test_lists_need_no_labels(tmp_path):
    lists = {"positive_indptr": np.arange(ROWS + 1), "positive_indices": np.roll(np.arange(ROWS), 1)}
    unlabelled = measured(tmp_path, names=["ap", "mp@5"], features=FEATURES, **lists)
    assert measured(tmp_path, names=["ap", "mp@5"], features=FEATURES, labels=FORMS["text"], **lists) == unlabelled


def test_other_programs_refuse_or_mark_them(tmp_path):
    file = str(tmp_path / "file.npz")
    np.savez(file, features=FEATURES, labels=FORMS["text"])
    with refused("labels are missing"):
        whiten.main([file, "--learned", "--out", str(tmp_path / "w.npz")])
    with refused("labels are missing"):
        explore.of_file(file)
    np.savez(file, features=FEATURES, labels=FORMS["text"], **ROLES)
    assert np.array_equal(np.flatnonzero(explore.of_file(file).labels == -1), MISSING)


def test_a_class_needs_all_levels_and_roles_that_do_not_fit_are_left_to_others():
    levels = np.stack([TEXTS, np.where(HAS_NONE, "nan", "above")], 1)
    with pytest.raises(UserError, match="no class at level 1 in row 7, and class 1 at the finest"):
        missing_labels.of_queries("f.npz", {"features": FEATURES, "labels": levels})
    odd = {"features": FEATURES, "labels": FORMS["text"], "is_query": np.ones(3, bool)}
    assert missing_labels.of_queries("f.npz", odd) is odd


def test_arrays_and_tables_have_one_rule():
    texts = np.array(["", " ", "nan", "NaN", "None", "NULL", "<na>", " null ", "nano", "n/a", "0", "-1", "nan nan"])
    assert are_missing(texts).tolist() == [not present(text) for text in texts]
    assert are_missing(np.array([0.0, np.nan, -1.0])).tolist() == [False, True, False]
    assert not are_missing(np.array([0, -1])).any()
