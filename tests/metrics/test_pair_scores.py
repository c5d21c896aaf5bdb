"""Re-ranking by the scores of a user's file: order, junk and sequences, mistakes, and what it is called with."""

import numpy as np
import pytest

import metrics
from metrics import Lists, PairReranking, SuperGlobal
from metrics.neighbours import pair_scores
from tests.kit.plain_metrics import ranked, unit
from tests.kit.refusals import refused
from tests.metrics.test_rerank import points

FILE = """
calls = []
def prepare(paths):
    assert len(set(paths)) == len(paths)
    calls.append(("prepare", paths))
def score(query_paths, gallery_paths):
    calls.append(("score", list(zip(query_paths, gallery_paths))))
    return [float(int(q[1:]) * int(g[1:]) % 5) for q, g in zip(query_paths, gallery_paths)]
"""


def written(folder, text=FILE):
    path = folder / "pairs.py"
    path.write_text(text)
    return str(path)


def score(query, image):
    return query * image % 5


def space_of(x, labels, **settings):
    return metrics.EmbeddingSpace(x, labels, paths=[f"i{i}" for i in range(len(x))], **settings)


def by_scores(in_order, query, top):
    # The sort is stable: images of equal scores keep their order
    first = sorted(in_order[:top], key=lambda image: -score(query, image))
    return first + in_order[top:]


@pytest.mark.parametrize("top", [1, 6, 100])
@pytest.mark.parametrize("first", [None, SuperGlobal(8, 2)])
def test_the_first_are_ordered_by_score_and_equal_ones_keep_their_order(tmp_path, top, first, monkeypatch):
    monkeypatch.setattr(pair_scores, "PAIRS", 7)
    x, labels = points(30, seed=1)
    space = space_of(x, labels)
    lists = [ranked(row, x, i) for i, row in enumerate(x)]
    if first is not None:
        space.search = first.search(space)
        lists = [row[:-1] for row in space.neighbours(30).tolist()]
    search = PairReranking(written(tmp_path), top, first).search(space_of(x, labels))
    space = space_of(x, labels)
    space.search = search
    assert space.neighbours(30).tolist() == [by_scores(row, i, top) + [-1] for i, row in enumerate(lists)]
    assert search.neighbours[:, : min(top, 29)].tolist() == [row[:top] for row in lists]
    for i, row in enumerate(lists):
        assert search.pair_scores[i, : min(top, 29)].tolist() == [score(i, image) for image in row[:top]]


def test_junk_and_the_own_sequence_go_before_the_cut(tmp_path):
    x, labels = points(24, seed=2, copies=False)
    rerank = PairReranking(written(tmp_path), 4)
    sequences = np.arange(24) // 4
    space = space_of(x, labels, query_sequences=sequences)
    space.search = rerank.search(space)
    for i, row in enumerate(space.neighbours(20).tolist()):
        in_order = [j for j in ranked(x[i], x, i) if sequences[j] != sequences[i]]
        assert row == by_scores(in_order, i, 4)
    junk = [ranked(query, unit(x[5:]), -1)[:3] for query in unit(x[:5])]
    positives = [sorted({*range(8)} - {*ignored}) for ignored in junk]
    lists = Lists.of(positives, junk)
    reference_paths = [f"i{i}" for i in range(19)]
    gallery = {"reference": unit(x[5:]), "reference_labels": labels[5:], "reference_paths": reference_paths}
    space = space_of(unit(x[:5]), labels[:5], lists=lists, **gallery)
    space.search = rerank.search(space)
    for i, row in enumerate(space.neighbours(16).tolist()):
        in_order = [j for j in ranked(unit(x[:5])[i], unit(x[5:]), -1) if j not in junk[i]]
        assert row == by_scores(in_order, i, 4)


def test_each_pair_is_scored_once_and_each_image_prepared_once(tmp_path):
    x, labels = points(20, seed=3)
    path = written(tmp_path)
    names = ["map_r", "c_map_r", "e_recall@1"]
    for _ in range(2):
        metrics.compute(names, x, labels, rerank=PairReranking(path, 5), paths=[f"i{i}" for i in range(20)])
    calls = pair_scores.scorer_of(path).score.__globals__["calls"]
    pairs = [pair for kind, call in calls if kind == "score" for pair in call]
    prepared = [image for kind, call in calls if kind == "prepare" for image in call]
    assert len(set(pairs)) == len(pairs) >= 100
    assert sorted(prepared) == sorted(f"i{i}" for i in range(20))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def score(q, g): return [float('nan') if b == 'i3' else 1 for b in g]", "score() gave nan for the pair i"),
        ("def score(q, g): return [1.0]", "score() gave (1,) for 60 pairs, the first i0 | i"),
        ("def score(q, g): return [1 / (b != 'i3') for b in g]", "score() raised ZeroDivisionError: division by zero"),
        ("def score(q, g): return 1 / (len(g) < 2)", "in a call of 60 pairs from i0 | i"),
        ("def score(q, g): exit(1)", "SystemExit: sys.exit(1) would end the program: leave it out, at the pair i0 | i"),
        ("def score(q, g): return ['far'] * len(g)", "score() raised ValueError"),
        ("def prepare(paths): 1 / 0\ndef score(q, g): return 1", "prepare() raised ZeroDivisionError"),
        ("score = 3", "it defines no function score(query_paths, gallery_paths)"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_file_and_pair(tmp_path, text, message):
    path = written(tmp_path, text)
    x, labels = points(12, seed=4)
    with refused(None, f"--rerank_pairs {path}: ", message):
        PairReranking(path, 5).search(space_of(x, labels))


def test_images_without_paths_and_a_missing_file(tmp_path):
    x, labels = points(12, seed=4)
    with refused(None, "the images have no paths"):
        metrics.compute("map_r", x, labels, rerank=PairReranking(written(tmp_path), 5))
    with refused(None, "--rerank_pairs nowhere.py: no such file"):
        metrics.compute("map_r", x, labels, rerank=PairReranking("nowhere.py", 5), paths=["i"] * 12)
    with refused(None, "paths have shape (11,): (12,) is expected"):
        metrics.compute("map_r", x, labels, paths=["i"] * 11)
