"""`python -m evaluation` with lists of positives and junk: every form of file gives what metrics.compute gives."""

import numpy as np
import pytest

import metrics
from evaluation import __main__ as command
from metrics import Lists
from tests.metrics._plain import random_lists
from utilities.errors import UserError

NAMES = ["ap", "ap_trapezoid", "e_recall@1", "mp@5", "inp"]
RNG = np.random.default_rng(0)
QUERIES, GALLERY = RNG.standard_normal((12, 4)).astype(np.float32), RNG.standard_normal((30, 4)).astype(np.float32)
LISTS = Lists.of(*random_lists(1, len(GALLERY), len(QUERIES)))
EXPECTED = metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=LISTS)


def measured(folder, arrays, *words, names=NAMES):
    np.savez(folder / "queries.npz", **arrays)
    return command.main([str(folder / "queries.npz"), "--evaluation_metrics", *names, *words])


def test_a_reference_in_the_file(tmp_path, capsys):
    arrays = {"features": QUERIES, "reference_features": GALLERY, **LISTS._asdict()}
    assert measured(tmp_path, arrays, "--dump_query_results", str(tmp_path / "found.npz")) == pytest.approx(EXPECTED)
    said = capsys.readouterr().out
    lone = int((np.diff(LISTS.positive_indptr) == 0).sum())
    assert f"12 queries search in 30 images; lists: {len(LISTS.positive_indices)} positives, {len(LISTS.junk_indices)} junk" in said
    assert lone and f"{lone} of 12 queries have no positive: left out" in said and "classes" not in said
    found = np.load(tmp_path / "found.npz")
    assert "labels" not in found.files and np.isnan(found["ap_at_r"]).sum() == lone
    assert found["hit"][np.diff(LISTS.positive_indptr) > 0].mean() == pytest.approx(EXPECTED["e_recall@1"])


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_a_gallery_in_another_file_needs_no_labels(tmp_path, ending):
    gallery = tmp_path / f"gallery.{ending}"
    np.save(gallery, GALLERY) if ending == "npy" else np.savez(gallery, features=GALLERY, labels=["a"] * 30)
    assert measured(tmp_path, {"features": QUERIES, **LISTS._asdict()}, "--gallery", str(gallery)) == pytest.approx(EXPECTED)


@pytest.mark.parametrize("labelled", [False, True])
def test_queries_and_gallery_of_one_file(tmp_path, labelled):
    """Indices are positions among the gallery's rows; with labels class-wise numbers are measured too."""
    order = np.random.default_rng(2).permutation(42)
    is_query = order < 12
    lists = Lists.of(*[[positions_of(one, order) for one in of] for of in in_order(order)])
    arrays = {"features": np.concatenate([QUERIES, GALLERY])[order], "is_query": is_query, "is_gallery": ~is_query, **lists._asdict()}
    arrays |= {"labels": np.arange(42) % 5} if labelled else {}
    found = measured(tmp_path, arrays, names=[*NAMES, "nmi"] if labelled else NAMES)
    assert {name: found[name] for name in NAMES} == pytest.approx(EXPECTED)
    if not labelled:
        with pytest.raises(UserError, match="metric 'nmi' is of classes"):
            measured(tmp_path, arrays, names=["nmi"])


def in_order(order):
    """The positives and the junk of the queries, in the order in which a file has these."""
    queries = [row for row in order if row < 12]
    for indptr, indices in (LISTS[:2], LISTS[2:]):
        yield [indices[indptr[query] : indptr[query + 1]] for query in queries]


def positions_of(indices, order):
    places = [row - 12 for row in order if row >= 12]
    return [places.index(index) for index in indices]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"positive_indices": None}, "lists of positives are positive_indptr and positive_indices; it has positive_indptr"),
        ({"positive_indptr": None, "positive_indices": None}, "it has neither"),
        ({"junk_indptr": None}, "lists of junk are junk_indptr and junk_indices; it has junk_indices"),
        ({"sequence": np.arange(12)}, "it has lists and sequence"),
        ({"positive_indptr": np.zeros(12, int)}, "positive_indptr must be (13,)"),
        ({"positive_indices": LISTS.positive_indices + 100}, "outside the reference of 30"),
        ({"junk_indptr": LISTS.positive_indptr, "junk_indices": LISTS.positive_indices}, "among its positives and its junk"),
    ],
)
def test_what_cannot_be_lists_is_one_line_with_the_file(tmp_path, changed, told):
    arrays = {"features": QUERIES, "reference_features": GALLERY, **LISTS._asdict(), **changed}
    with pytest.raises(UserError) as error:
        measured(tmp_path, {name: array for name, array in arrays.items() if array is not None})
    assert told in str(error.value) and "queries.npz: " in str(error.value) and "\n" not in str(error.value)
