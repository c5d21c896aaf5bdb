"""`python -m evaluation` with lists of positives and junk: every form of file gives what metrics.compute gives."""

import numpy as np
import pytest

import metrics
from evaluation import __main__ as command
from evaluation import relevance
from metrics import Lists
from tests.builders import refused
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
    ],
)
def test_what_cannot_be_lists_is_one_line_with_the_file(tmp_path, changed, told):
    arrays = {"features": QUERIES, "reference_features": GALLERY, **LISTS._asdict(), **changed}
    with refused(None, told, "queries.npz: "):
        measured(tmp_path, {name: array for name, array in arrays.items() if array is not None})


def test_protocols_have_names(tmp_path):
    """Each further protocol's lists, and each metric once for each."""
    arrays = {"features": QUERIES, "reference_features": GALLERY}
    other = Lists.of(*random_lists(5, len(GALLERY), len(QUERIES)))
    arrays |= {f"{name}_{protocol}": array for protocol, lists in (("easy", LISTS), ("hard", other)) for name, array in lists._asdict().items()}
    expected = {f"easy/{name}": value for name, value in EXPECTED.items()}
    expected |= {f"hard/{name}": value for name, value in metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=other).items()}
    assert measured(tmp_path, arrays) == pytest.approx(expected)


def relevant(folder, body):
    path = folder / "relevance.py"
    path.write_text(f"import numpy as np\ndef relevance(q, g):\n    {body}\n")
    return ["--eval_relevance", str(path)]


def test_a_function_of_the_users(tmp_path):
    words = relevant(tmp_path, "return (np.abs(q[:, None] - g[None]) <= 2) / 2")
    lists = Lists.of([[j for j in range(30) if abs(i - j) <= 2] for i in range(12)])
    expected = metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=lists)
    assert measured(tmp_path, {"features": QUERIES, "reference_features": GALLERY}, *words) == pytest.approx(expected)
    themselves = Lists.of([[j for j in range(30) if 0 < abs(i - j) <= 2] for i in range(30)])
    assert measured(tmp_path, {"features": GALLERY}, *words) == pytest.approx(metrics.compute(NAMES, GALLERY, lists=themselves))
    asks = np.arange(30) % 3 == 0  # rows of the file, whatever their role
    some = Lists.of([[j - 1 - j // 3 for j in range(30) if not asks[j] and abs(i - j) <= 2] for i in np.flatnonzero(asks)])
    expected = metrics.compute(NAMES, GALLERY[asks], reference=GALLERY[~asks], lists=some)
    assert measured(tmp_path, {"features": GALLERY, "is_query": asks, "is_gallery": ~asks}, *words) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return np.zeros((len(g), len(q)))", r"relevance\(\) gave \(30, 12\)"),
        ("return np.full((len(q), len(g)), 1.5)", "from 1.5 to 1.5; expected"),
        ("return np.full((len(q), len(g)), np.nan)", "expected .* from 0 to 1"),
        ("raise KeyError('x')", "raised KeyError"),
    ],
)
def test_what_is_no_relevance(tmp_path, body, told):
    with refused(told):
        measured(tmp_path, {"features": QUERIES, "reference_features": GALLERY}, *relevant(tmp_path, body))
    (tmp_path / "relevance.py").write_text("relevance = 3\n")
    with pytest.raises(UserError, match="defines no function relevance"):
        measured(tmp_path, {"features": QUERIES}, "--eval_relevance", str(tmp_path / "relevance.py"))


def test_published_ground_truth_by_names(tmp_path):
    """Ids of Google Landmarks v2, and a table of paths; the gallery in two files, of whose distractors some are kept."""
    asked, ids = np.array([f"/t/{i}.jpg" for i in range(12)]), np.array([f"/i/x{i}.jpg" for i in range(30)])
    positives, _ = random_lists(3, len(GALLERY), len(QUERIES))
    solution = tmp_path / "retrieval_solution_v2.1.csv"
    rows = [f"{i},{' '.join(f'x{j}' for j in of) or 'None'},{'Private' if i < 8 else 'Public'}" for i, of in enumerate(positives)]
    solution.write_text("\n".join(["id,images,Usage", *rows]) + "\n")
    for name, part in (("a", slice(0, 11)), ("b", slice(11, 30))):
        np.savez(tmp_path / f"{name}.npz", features=GALLERY[part], paths=ids[part])
    words = ["--gallery", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), "--ground_truth", str(solution)]
    found = measured(tmp_path, {"features": QUERIES, "paths": asked}, *words)
    for protocol, rows in (("private", range(8)), ("public", range(8, 12))):
        lists = Lists.of([positives[i] if i in rows else [] for i in range(12)])
        expected = metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=lists)
        assert {name: found[f"{protocol}/{name}"] for name in NAMES} == pytest.approx(expected)
    table = tmp_path / "lists.csv"
    table.write_text("query,kind,path\n" + "".join(f"/t/{i}.jpg,positive,/i/x{j}.jpg\n" for i, of in enumerate(positives) for j in of))
    needed = sorted({j for of in positives for j in of})
    for name, part in (("a", slice(0, 11)), ("b", slice(11, 30))):
        of_none = ~np.isin(np.arange(30), needed)
        np.savez(tmp_path / f"{name}.npz", features=GALLERY[part], paths=ids[part], is_distractor=of_none[part])
    listed = [j for j in range(30) if j in needed or j % 2]
    (tmp_path / "keep.txt").write_text("".join(f"x{j}\n" for j in range(30) if j % 2))
    words = [*words[:3], "--ground_truth", str(table), "--gallery_keep", str(tmp_path / "keep.txt")]
    lists = Lists.of([[listed.index(j) for j in of] for of in positives])
    assert measured(tmp_path, {"features": QUERIES, "paths": asked}, *words) == pytest.approx(metrics.compute(NAMES, QUERIES, reference=GALLERY[listed], lists=lists))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"paths": None}, "has no paths"),
        ({"paths": np.array(["a", "a"])}, "a stands there twice of the queries"),
        ({"paths": np.array(["a", "c"])}, "b is not among the paths of the queries"),
        ({**LISTS._asdict()}, "said twice, by --ground_truth and by lists"),
    ],
)
def test_ground_truth_that_does_not_fit(tmp_path, changed, told):
    (tmp_path / "lists.csv").write_text("query,kind,path\na,positive,g\nb,positive,g\n")
    np.savez(tmp_path / "gallery.npz", features=GALLERY[:1], paths=np.array(["g"]))
    arrays = {"features": QUERIES[:2], "paths": np.array(["a", "b"]), **changed}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    with pytest.raises(UserError, match=told):
        measured(tmp_path, arrays, "--gallery", str(tmp_path / "gallery.npz"), "--ground_truth", str(tmp_path / "lists.csv"))


def test_galleries_that_do_not_fit_each_other(tmp_path):
    np.savez(tmp_path / "a.npz", features=GALLERY, labels=np.zeros(30))
    np.savez(tmp_path / "b.npz", features=GALLERY, labels=np.zeros(30), paths=np.arange(30).astype(str))
    np.savez(tmp_path / "c.npz", features=GALLERY[:, :2], labels=np.zeros(30))
    for name, told in (("b", "differs from .*a.npz in paths"), ("c", "their width must agree")):
        with pytest.raises(UserError, match=told):
            measured(tmp_path, {"features": QUERIES, "labels": np.zeros(12)}, "--gallery", str(tmp_path / "a.npz"), str(tmp_path / f"{name}.npz"))


def test_a_function_is_asked_once_for_the_same_rows(tmp_path):
    (_, path), said = relevant(tmp_path, f"open({str(tmp_path / 'calls')!r}, 'a').write('x'); return np.ones((len(q), len(g)))"), tmp_path / "calls"
    rows = np.arange(4)
    first, again = (relevance.lists(path, rows, rows, rows) for _ in range(2))
    assert said.read_text() == "x" and first is again and first.positive_indices.tolist() == [1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2]
    assert len(relevance.lists(path, rows[:2], rows, rows[:2])) == 2 and said.read_text() == "xx"
