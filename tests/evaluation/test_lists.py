"""`python -m evaluation` with lists of positives and junk: every form of file gives what metrics.compute gives."""

import numpy as np
import pytest

import metrics
from evaluation import relevance
from metrics import Lists
from tests.kit.plain_metrics import random_lists
from tests.kit.refusals import refused
from tests.kit.splits import measured, save

NAMES = ["ap", "ap_trapezoid", "e_recall@1", "mp@5", "inp"]
RNG = np.random.default_rng(0)
QUERIES = RNG.standard_normal((12, 4)).astype(np.float32)
GALLERY = RNG.standard_normal((30, 4)).astype(np.float32)
LISTS = Lists.of(*random_lists(1, len(GALLERY), len(QUERIES)))
ARRAYS = {"features": QUERIES, "reference_features": GALLERY}


def test_protocols_have_names(tmp_path):
    """Each further protocol's lists, and each metric once for each."""
    arrays = {}
    expected = {}
    for protocol, lists in (("easy", LISTS), ("hard", Lists.of(*random_lists(5, len(GALLERY), len(QUERIES))))):
        arrays |= {f"{name}_{protocol}": array for name, array in lists._asdict().items()}
        for name, value in metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=lists).items():
            expected[f"{protocol}/{name}"] = value
    assert measured(tmp_path, names=NAMES, **ARRAYS, **arrays) == pytest.approx(expected)


def relevant(folder, body):
    path = folder / "relevance.py"
    path.write_text(f"import numpy as np\ndef relevance(q, g):\n    {body}\n")
    return ["--eval_relevance", str(path)]


def test_a_function_of_the_users(tmp_path):
    words = relevant(tmp_path, "return (np.abs(q[:, None] - g[None]) <= 2) / 2")
    # rows of the file, whatever their role
    asks = np.arange(30) % 3 == 0
    is_near = abs(np.arange(30)[:, None] - np.arange(30)) <= 2
    near = [np.flatnonzero(row) for row in is_near]
    in_itself = [rows[rows != i] for i, rows in enumerate(near)]
    with_roles = [np.flatnonzero(row) for row in is_near[asks][:, ~asks]]
    for arrays, x, reference, lists in (
        (ARRAYS, QUERIES, GALLERY, near[:12]),
        ({"features": GALLERY}, GALLERY, None, in_itself),
        ({"features": GALLERY, "is_query": asks, "is_gallery": ~asks}, GALLERY[asks], GALLERY[~asks], with_roles),
    ):
        expected = metrics.compute(NAMES, x, reference=reference, lists=Lists.of(lists))
        assert measured(tmp_path, *words, names=NAMES, **arrays) == pytest.approx(expected)
    for body, message in (
        ("return np.zeros((len(g), len(q)))", r"relevance\(\) gave \(30, 12\)"),
        ("return np.full((len(q), len(g)), 1.5)", "from 1.5 to 1.5; expected"),
        ("return np.full((len(q), len(g)), np.nan)", "expected .* from 0 to 1"),
        ("raise KeyError('x')", "raised KeyError"),
        ("pass\nrelevance = 3", "defines no function relevance"),
    ):
        with refused(message):
            measured(tmp_path, *relevant(tmp_path, body), names=NAMES, **ARRAYS)


def test_a_function_is_asked_once_for_the_same_rows(tmp_path):
    calls = tmp_path / "calls"
    _, path = relevant(tmp_path, f"open({str(calls)!r}, 'a').write('x'); return np.ones((len(q), len(g)))")
    rows = np.arange(4)
    first, second = (relevance.lists(path, rows, rows, rows) for _ in range(2))
    assert calls.read_text() == "x" and first is second
    assert first.positive_indices.tolist() == [1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2]
    assert len(relevance.lists(path, rows[:2], rows, rows[:2])) == 2 and calls.read_text() == "xx"


POSITIVES, _ = random_lists(3, len(GALLERY), len(QUERIES))


ASKED = {"features": QUERIES, "paths": [f"/t/{i}.jpg" for i in range(12)]}


# rows of the gallery in each file
FILES = {"a": slice(11), "b": slice(11, 30)}


def gallery_files(folder, names, **columns):
    """The words of a gallery in two files, whose images have these names."""
    columns |= {"features": GALLERY, "paths": np.array([f"/i/{name}.jpg" for name in names])}
    parts = {file: {name: array[rows] for name, array in columns.items()} for file, rows in FILES.items()}
    return ["--gallery", *save(folder, **parts)]


def test_ids_of_google_landmarks(tmp_path):
    rows = ["id,images,Usage"]
    for i, relevant_ids in enumerate(POSITIVES):
        images = " ".join(f"x{j}" for j in relevant_ids)
        usage = "Private" if i < 8 else "Public"
        rows.append(f"{i},{images or 'None'},{usage}")
    solution = tmp_path / "retrieval_solution_v2.1.csv"
    solution.write_text("\n".join(rows) + "\n")
    gallery = gallery_files(tmp_path, [f"x{j}" for j in range(30)])
    results = measured(tmp_path, *gallery, "--ground_truth", str(solution), names=NAMES, **ASKED)
    for protocol, queries in (("private", range(8)), ("public", range(8, 12))):
        of_protocol = [POSITIVES[i] if i in queries else [] for i in range(12)]
        lists = Lists.of(of_protocol)
        expected = metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=lists)
        assert {name: results[f"{protocol}/{name}"] for name in NAMES} == pytest.approx(expected)


def test_a_table_of_paths_and_a_gallery_of_whose_distractors_some_are_kept(tmp_path):
    needed = sorted({j for relevant_ids in POSITIVES for j in relevant_ids})
    is_distractor = ~np.isin(np.arange(30), needed)
    rows = ["query,kind,path"]
    for i, relevant_ids in enumerate(POSITIVES):
        rows += [f"/t/{i}.jpg,positive,/i/x{j}.jpg" for j in relevant_ids]
    (tmp_path / "lists.csv").write_text("\n".join(rows) + "\n")
    names = [f"x{j}" for j in range(30)]
    spaced = next(j for j in range(29, 11, -2) if is_distractor[j])
    names[spaced] = f"my x{spaced}"
    gallery = gallery_files(tmp_path, names, is_distractor=is_distractor)
    (tmp_path / "keep.txt").write_text("".join(f"{name}\n" for name in names[1::2]))
    words = ["--ground_truth", str(tmp_path / "lists.csv"), "--gallery_keep", str(tmp_path / "keep.txt")]
    listed = [j for j in range(30) if j in needed or j % 2]
    lists = Lists.of([[listed.index(j) for j in relevant_ids] for relevant_ids in POSITIVES])
    expected = metrics.compute(NAMES, QUERIES, reference=GALLERY[listed], lists=lists)
    assert measured(tmp_path, *gallery, *words, names=NAMES, **ASKED) == pytest.approx(expected)


def test_ground_truth_of_queries_that_are_rows_of_a_file_with_roles(tmp_path):
    (tmp_path / "lists.csv").write_text("query,kind,path\nq,positive,g\nr,positive,h\n")
    roles = {"is_query": np.array([False, True, True, False]), "is_gallery": np.array([True, False, False, True])}
    file = {"features": GALLERY[:4], "labels": np.arange(4), "paths": ["g", "q", "r", "h"], **roles}
    words = ["--ground_truth", str(tmp_path / "lists.csv")]
    expected = metrics.compute(NAMES, GALLERY[1:3], reference=GALLERY[[0, 3]], lists=Lists.of([[0], [1]]))
    assert measured(tmp_path, *words, names=NAMES, **file) == pytest.approx(expected)


def test_a_query_of_lists_needs_no_class(tmp_path):
    is_query = np.arange(42) < 12
    file = {"features": np.concatenate([QUERIES, GALLERY]), "labels": np.arange(42) % 3, **LISTS._asdict()}
    file |= {"is_query": is_query, "is_gallery": ~is_query}
    expected = metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=LISTS)
    for is_distractor in (np.zeros(42, bool), np.arange(42) % 5 == 1):
        assert measured(tmp_path, names=NAMES, **file, is_distractor=is_distractor) == pytest.approx(expected)


def test_drawn_galleries_beside_a_function(tmp_path):
    """Its rows are those of one gallery; other draws would be measured by the labels."""
    words = relevant(tmp_path, "return np.ones((len(q), len(g)))")
    draws = np.stack([np.arange(12) < 6, np.arange(12) >= 6])
    with refused("it has role_draws, but --eval_relevance defines"):
        measured(tmp_path, *words, names=NAMES, features=QUERIES, labels=np.arange(12), role_draws=draws)


@pytest.mark.parametrize(
    ("rows", "gallery", "arrays", "message"),
    [
        ("a,positive,g\nb,positive,g", "g", {}, "has no paths"),
        ("a,positive,g\nb,positive,g", "g", {"paths": ["a", "a"]}, "a occurs there twice of the queries"),
        ("a,positive,g\nb,positive,g", "g", {"paths": ["a", "c"]}, "b is not among the paths of the queries"),
        (
            "a,positive,g\nb,positive,g",
            "g",
            {"paths": ["a", "b"], **LISTS._asdict()},
            "given twice, by --ground_truth and by lists",
        ),
        ("a,positive,b\nb,positive,a", "b", {"paths": ["a", "b"]}, "a is not among the paths of the gallery"),
    ],
)
def test_ground_truth_that_does_not_fit(rows, gallery, arrays, message, tmp_path):
    (tmp_path / "lists.csv").write_text(f"query,kind,path\n{rows}\n")
    words = ["--gallery", *save(tmp_path, gallery={"features": GALLERY[:1], "paths": [gallery]})]
    with refused(message):
        measured(tmp_path, *words, "--ground_truth", str(tmp_path / "lists.csv"), features=QUERIES[:2], **arrays)
