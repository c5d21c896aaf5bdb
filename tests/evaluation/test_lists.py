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
    protocols = {"easy": LISTS, "hard": Lists.of(*random_lists(5, len(GALLERY), len(QUERIES)))}
    arrays = {
        f"{name}_{protocol}": array for protocol, lists in protocols.items() for name, array in lists._asdict().items()
    }
    expected = {}
    for protocol, lists in protocols.items():
        expected |= {
            f"{protocol}/{name}": value
            for name, value in metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=lists).items()
        }
    assert measured(tmp_path, names=NAMES, **ARRAYS, **arrays) == pytest.approx(expected)


def relevant(folder, body):
    path = folder / "relevance.py"
    path.write_text(f"import numpy as np\ndef relevance(q, g):\n    {body}\n")
    return ["--eval_relevance", str(path)]


def test_a_function_of_the_users(tmp_path):
    words = relevant(tmp_path, "return (np.abs(q[:, None] - g[None]) <= 2) / 2")
    rows = range(30)
    asks = np.arange(30) % 3 == 0  # rows of the file, whatever their role
    in_gallery = []
    in_itself = []
    with_roles = []
    for i in rows:
        near = [j for j in rows if abs(i - j) <= 2]
        in_itself.append([j for j in near if j != i])
        if i < 12:
            in_gallery.append(near)
        if asks[i]:
            with_roles.append([j - 1 - j // 3 for j in near if not asks[j]])
    for arrays, x, reference, lists in (
        (ARRAYS, QUERIES, GALLERY, in_gallery),
        ({"features": GALLERY}, GALLERY, None, in_itself),
        (
            {"features": GALLERY, "is_query": asks, "is_gallery": ~asks},
            GALLERY[asks],
            GALLERY[~asks],
            with_roles,
        ),
    ):
        assert measured(tmp_path, *words, names=NAMES, **arrays) == pytest.approx(
            metrics.compute(NAMES, x, reference=reference, lists=Lists.of(lists))
        )
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
    printed = tmp_path / "calls"
    _, path = relevant(tmp_path, f"open({str(printed)!r}, 'a').write('x'); return np.ones((len(q), len(g)))")
    rows = np.arange(4)
    first, second = (relevance.lists(path, rows, rows, rows) for _ in range(2))
    assert (
        printed.read_text() == "x"
        and first is second
        and first.positive_indices.tolist() == [1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2]
    )
    assert len(relevance.lists(path, rows[:2], rows, rows[:2])) == 2 and printed.read_text() == "xx"


def test_published_ground_truth_by_names(tmp_path):
    """Ids of Google Landmarks v2, and a table of paths; the gallery in two files, of whose distractors some are
    kept.
    """
    requested = np.array([f"/t/{i}.jpg" for i in range(12)])
    ids = np.array([f"/i/x{i}.jpg" for i in range(30)])
    positives, _ = random_lists(3, len(GALLERY), len(QUERIES))
    needed = sorted({j for relevant_ids in positives for j in relevant_ids})
    of_none = ~np.isin(np.arange(30), needed)
    parts = {
        name: {"features": GALLERY[part], "paths": ids[part]}
        for name, part in (("a", slice(0, 11)), ("b", slice(11, 30)))
    }
    solution = tmp_path / "retrieval_solution_v2.1.csv"
    table = tmp_path / "lists.csv"
    rows = []
    for i, relevant_ids in enumerate(positives):
        images = " ".join(f"x{j}" for j in relevant_ids)
        usage = "Private" if i < 8 else "Public"
        rows.append(f"{i},{images or 'None'},{usage}")
    solution.write_text("\n".join(["id,images,Usage", *rows]) + "\n")
    gallery = ["--gallery", *save(tmp_path, **parts)]
    results = measured(
        tmp_path, *gallery, "--ground_truth", str(solution), names=NAMES, features=QUERIES, paths=requested
    )
    for protocol, rows in (("private", range(8)), ("public", range(8, 12))):
        of_protocol = [positives[i] if i in rows else [] for i in range(12)]
        lists = Lists.of(of_protocol)
        expected = metrics.compute(NAMES, QUERIES, reference=GALLERY, lists=lists)
        assert {name: results[f"{protocol}/{name}"] for name in NAMES} == pytest.approx(expected)
    table.write_text(
        "query,kind,path\n"
        + "".join(
            f"/t/{i}.jpg,positive,/i/x{j}.jpg\n" for i, relevant_ids in enumerate(positives) for j in relevant_ids
        )
    )
    for name, part in (("a", slice(0, 11)), ("b", slice(11, 30))):
        parts[name]["is_distractor"] = of_none[part]
    save(tmp_path, **parts)
    listed = [j for j in range(30) if j in needed or j % 2]
    spaced = next(j for j in range(29, 11, -2) if of_none[j])
    names = [f"x{j}" for j in range(30)]
    names[spaced] = f"my x{spaced}"
    parts["b"]["paths"] = np.array([f"/i/{name}.jpg" for name in names[11:]])
    save(tmp_path, **parts)
    (tmp_path / "keep.txt").write_text("".join(f"{name}\n" for name in names[1::2]))
    words = [*gallery, "--ground_truth", str(table), "--gallery_keep", str(tmp_path / "keep.txt")]
    lists = Lists.of([[listed.index(j) for j in relevant_ids] for relevant_ids in positives])
    expected = metrics.compute(NAMES, QUERIES, reference=GALLERY[listed], lists=lists)
    assert measured(tmp_path, *words, names=NAMES, features=QUERIES, paths=requested) == pytest.approx(expected)


def test_drawn_galleries_beside_a_function(tmp_path):
    """Its rows are those of one gallery; other draws would be measured by the labels."""
    words = relevant(tmp_path, "return np.ones((len(q), len(g)))")
    draws = np.stack([np.arange(12) < 6, np.arange(12) >= 6])
    with refused("it has role_draws, but --eval_relevance defines"):
        measured(tmp_path, *words, names=NAMES, features=QUERIES, labels=np.arange(12), role_draws=draws)


def test_ground_truth_that_does_not_fit(tmp_path):
    (tmp_path / "lists.csv").write_text("query,kind,path\na,positive,g\nb,positive,g\n")
    (gallery,) = save(tmp_path, gallery={"features": GALLERY[:1], "paths": np.array(["g"])})
    for arrays, message in (
        ({}, "has no paths"),
        ({"paths": ["a", "a"]}, "a occurs there twice of the queries"),
        ({"paths": ["a", "c"]}, "b is not among the paths of the queries"),
        ({"paths": ["a", "b"], **LISTS._asdict()}, "given twice, by --ground_truth and by lists"),
    ):
        with refused(message):
            measured(
                tmp_path,
                "--gallery",
                gallery,
                "--ground_truth",
                str(tmp_path / "lists.csv"),
                features=QUERIES[:2],
                **arrays,
            )
    (tmp_path / "lists.csv").write_text("query,kind,path\na,positive,b\nb,positive,a\n")
    (gallery,) = save(tmp_path, gallery={"features": GALLERY[:1], "paths": np.array(["b"])})
    with refused("a is not among the paths of the gallery"):
        measured(
            tmp_path,
            "--gallery",
            gallery,
            "--ground_truth",
            str(tmp_path / "lists.csv"),
            features=QUERIES[:2],
            paths=["a", "b"],
        )
