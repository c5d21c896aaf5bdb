"""Evaluation by several processes: each searches and clusters its part of the queries, and all have, to the bit, what
one process has.
"""

import functools
import itertools
from unittest import mock

import numpy as np
import pytest
import torch

import evaluation
import metrics
from engine.ranks import Ranks
from engine.runtime import Runtime
from metrics import _inputs, _kmeans
from metrics.neighbours import rerank as reranking
from metrics.neighbours import search as searching
from metrics.neighbours.search import Limits
from tests.kit.plain_metrics import every_name, random_lists, random_space
from tests.kit.processes import LoneRank, one_process, spawned
from tests.kit.runs import content_of, words_of
from tests.kit.splits import Network, made_splits, options
from tools import measure as command
from utilities.errors import NotFinite
from utilities.hyperbolic import Ball
from utilities.processes import SingleProcess

NAMES = every_name()
NAMES += ["c_recall@1", "c_map_r", "map_r_macro", "c_nmi"]
SEARCHED = ["e_recall@1", "e_recall@4", "map_r", "r_precision", "mrr"]
LEVELS = ["h_ap", "asi", "ndcg", "e_recall@1_level1", "map_r_level2_macro", "map_r"]
# several tiles: one process computes each score of a pair once
SMALL = Limits(rows=8, columns=32, sample=9)


def test_portions_are_all_rows_cut_between_units():
    totals = ((0, 1), (1, 1), (4, 1), (17, 1), (17, 4), (3, 4), (4096 * 3 + 7, 4096), (8, 4))
    for size, (total, unit) in itertools.product((1, 2, 3, 5), totals):
        parts = LoneRank(0, size).portions(total, unit)
        assert len(parts) == size and [i for part in parts for i in range(total)[part]] == list(range(total))
        assert all(part.start % unit == 0 for part in parts if part.stop > part.start)
        lengths = [part.stop - part.start for part in parts]
        # what is left over goes with a whole unit
        assert all(length == 0 or length >= min(unit, total) for length in lengths)
        assert max(lengths) - min(lengths) < 2 * unit


def features_and_labels(n, classes, **how):
    features, labels = random_space(n=n, classes=classes, **how)
    return {"features": features.astype(np.float32), "labels": labels}


QUICK = ("all metrics", "ties in several tiles", "queries and gallery", "levels of a gallery", "lists")
QUICK += ("one query", "one class")


def cases(folder, full):
    """Name -> (metrics, arguments of `metrics.compute`, limits of the search); if not `full`, those of `QUICK`."""
    plain = features_and_labels(150, 11, spread=1.5, seed=3)
    tied = features_and_labels(120, 7, spread=1.0, seed=9)
    tied["features"] = np.round(tied["features"])
    groups = plain["labels"] % 3
    levels = np.stack([plain["labels"], plain["labels"] % 4, plain["labels"] % 2], 1)
    gallery = {"reference": plain["features"][60:], "reference_labels": plain["labels"][60:]}
    queries = {"features": plain["features"][:90], "labels": plain["labels"][:90]}
    places = np.where(np.arange(90) < 60, -1, np.arange(90) - 60)
    rerank = {"rerank": metrics.KReciprocal(k1=8, k2=3)}
    mapped = {"features": np.load(folder / "features.npy", mmap_mode="r"), "labels": np.arange(2500) % 40}
    one_class = {n: {"features": plain["features"][:n], "labels": np.zeros(n, dtype=int)} for n in (1, 2, 30)}
    nested = {"labels": np.stack([plain["labels"], groups], 1), "groups": groups, "seed": [0, 1]}
    nested_levels = {"labels": levels[:90], "reference_labels": levels[60:], **rerank}
    in_itself = metrics.Lists.of(*random_lists(0, 150, 150, range(150)))
    half = torch.from_numpy(plain["features"]).bfloat16()
    sequences = {"query_sequences": np.arange(90) % 9, "reference_sequences": np.arange(90) % 9}
    all_cases = {
        "all metrics": (NAMES, {**plain, **nested}, None),
        "several tiles": (SEARCHED, plain, SMALL),
        "ties": (SEARCHED, tied, None),
        "ties in several tiles": (SEARCHED, tied, SMALL),
        "all samples equal": (SEARCHED, {"features": np.ones((40, 3)), "labels": np.arange(40) % 4}, SMALL),
        "queries and gallery": (SEARCHED, {**queries, **gallery, "exclude": places}, SMALL),
        "levels": (LEVELS, {**plain, "labels": levels}, SMALL),
        "levels of a gallery": (LEVELS, {**queries, **gallery, **nested_levels}, None),
        "nothing excluded": (SEARCHED, {**queries, **gallery}, None),
        "sequences": (SEARCHED, {**plain, "query_sequences": np.arange(150) % 40 - 1}, SMALL),
        "sequences of a gallery": (SEARCHED, {**queries, **gallery, **sequences}, None),
        "lists": (SEARCHED, {**queries, **gallery, "lists": metrics.Lists.of(*random_lists(0, 90, 90))}, SMALL),
        "lists of a set in itself": (SEARCHED, {**plain, "lists": in_itself}, SMALL),
        "one query": (SEARCHED, one_class[1], None),
        "two queries": (SEARCHED, one_class[2], None),
        "one query in a gallery": (SEARCHED, {**one_class[1], **gallery}, None),
        "one class": ([*SEARCHED, "nmi"], one_class[30], None),
        "each alone": ([*SEARCHED, "nmi"], {**one_class[30], "labels": np.arange(30)}, None),
        "half precision": (SEARCHED, {**plain, "features": half}, None),
        "a file": (["e_recall@1", "map_r", "nmi", "rho_spectrum@1"], mapped, Limits(rows=512, columns=1024)),
        "hyperbolic": ([*SEARCHED, "nmi"], {**plain, "ball": Ball(0.1, 2.3)}, None),
        "k-reciprocal": (SEARCHED, {**plain, **rerank}, None),
        "k-reciprocal, queries and gallery": (SEARCHED, {**queries, **gallery, "exclude": places, **rerank}, None),
        "expansion": (SEARCHED, {**plain, "rerank": metrics.AlphaExpansion(n=5)}, SMALL),
    }
    return {name: case for name, case in all_cases.items() if full or name in QUICK}


def are_equal(first, second) -> bool:
    names = list(first)
    return names == list(second) and all(np.array_equal(first[name], second[name], equal_nan=True) for name in names)


def limited(limits):
    return mock.patch.object(searching, "Limits", lambda: limits or Limits())


def same_values(rank, folder, full):
    """Values, neighbours and each query's numbers are those of one process; each process has searched for a part."""
    ranks = Ranks()
    assert ranks.size > 1
    for name, (names, arrays, limits) in cases(folder, full).items():
        with limited(limits), mock.patch.object(reranking, "NUMBERS", 1000):
            assert are_equal(metrics.compute(names, **arrays, ranks=ranks), metrics.compute(names, **arrays)), name
            space_arguments = {key: value for key, value in arrays.items() if key not in ("rerank", "ball")}
            build = functools.partial(metrics.space_of, arrays.get("ball"), **space_arguments)
            spaces = [build(ranks=ranks), build(ranks=SingleProcess())]
            assert np.array_equal(*(space.neighbours(7) for space in spaces)), name
            assert are_equal(*(metrics.per_query(SEARCHED, space) for space in spaces)), name
        if len(space_arguments["labels"]) > 30 and limits is None:
            shared_work, whole_work = (space.search.work.scores for space in spaces)
            assert shared_work < 0.7 * whole_work, f"{name}: each process does its part"
    with pytest.raises(NotFinite):
        metrics.compute(["e_recall@1"], np.full((4, 2), np.nan), [0, 0, 1, 1], ranks=ranks)


def same_clusters(rank, folder, full):
    """faiss and torch cut the rows as one process does: rounding, and with it every later iteration, is the same."""
    ranks = Ranks()
    calls = []
    plain = _kmeans.of_parts
    sizes = [(2 * 4096 + 7, 60, 8), (500, 499, 4), (3, 3, 2), (1, 1, 2)]
    if full:
        sizes.append((3 * 4096, 300, 16))
    for n, k, d in sizes:
        features = features_and_labels(n, max(k // 8, 1), d=d, spread=1.5, seed=19)["features"]
        assert (_kmeans.kmeans(features, k, 5, "cpu", ranks) == _kmeans.kmeans(features, k, 5)).all(), (n, k)
    features = features_and_labels(700, 10, d=8, spread=1.5, seed=2)["features"]
    read = mock.patch.object(_inputs, "BLOCK", 1024)
    torch_searches = mock.patch.object(
        _kmeans, "searcher", lambda device: (_kmeans.on_torch(device), _kmeans.tile_rows)
    )
    with torch_searches, mock.patch.object(_kmeans, "TILE", 4000), read:
        with mock.patch.object(_kmeans, "of_parts", lambda *arguments: calls.append(arguments) or plain(*arguments)):
            clusters = _kmeans.kmeans(features, 40, 3, "cpu", ranks)
        assert (clusters == _kmeans.kmeans(features, 40, 3)).all() and calls
    places = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    assert (_kmeans.kmeans(places, 12, 0, "cpu", ranks) == _kmeans.kmeans(places, 12)).all(), "clusters that are empty"


def same_command(rank, folder, full):
    """The command on a file: the first process writes."""

    def measure(out, queries):
        files = f"--out {folder}/{out}.json --dump_query_results {folder}/{queries}.npz"
        names = "--evaluation_metrics e_recall@1 map_r nmi --eval_kmeans_starts 2"
        return command.main(words_of(folder / "file.npz", names, files))

    scores = measure(f"out_{rank}", f"queries_{rank}")
    with mock.patch.object(command, "Ranks", SingleProcess):
        assert are_equal(scores, measure(f"out_alone_{rank}", f"queries_alone_{rank}"))
    assert content_of(folder / f"out_alone_{rank}.json") == {name: float(value) for name, value in scores.items()}
    torch.distributed.barrier()
    assert [path.name for path in sorted(folder.glob("out_?.json"))] == ["out_0.json"]
    assert [path.name for path in sorted(folder.glob("queries_?.npz"))] == ["queries_0.npz"]
    assert are_equal(*(dict(np.load(folder / f"queries_{name}.npz")) for name in (f"alone_{rank}", "0")))


def same_evaluation(rank, folder, full):
    """Of a network's splits: whole, by super-classes, and in the training images after a projection."""
    searched = []
    plain = searching.Search.run

    def run(search, needs, progress=False, rows=None):
        searched.append(rows)
        return plain(search, needs, progress, rows)

    names = "--evaluation_metrics e_recall@1 map_r nmi rho_spectrum@0"
    cases = [names]
    if full:
        cases = [f"{names} --tester same_parent_label", names]
        cases.insert(1, f"{names} --eval_reference_set compared_to_training_set --eval_pca 2")
    for flags in cases:
        opt = options(*flags.split())
        splits = made_splits(shared=True)
        network = Network()
        runtime = Runtime(opt)
        with mock.patch.object(searching.Search, "run", run):
            loaders = evaluation.loaders(splits, opt, runtime.ranks)
            scores, embedded = evaluation.evaluate(network, loaders, opt, runtime)
        with one_process():
            expected = evaluation.score(embedded, opt, Runtime(opt))
        assert list(scores) == list(expected), flags
        assert all(are_equal(scores[split], expected[split]) for split in scores), flags
    first = [rows.start == 0 for rows in searched]
    assert first and all(first) == (rank == 0) == any(first), "each its own part"
    network.weight.fill_(float("nan"))
    with pytest.raises(NotFinite, match="hold NaN"):
        evaluation.evaluate(network, evaluation.loaders(splits, opt, runtime.ranks), opt, runtime)


def all_of_it(rank, folder, full):
    for work in (same_values, same_clusters, same_evaluation, same_command):
        work(rank, folder, full)


@pytest.mark.parametrize("n,full", [(2, False), *(pytest.param(n, True, marks=pytest.mark.long) for n in (2, 3))])
def test_what_several_processes_find_is_what_one_finds(n, full, tmp_path):
    np.savez(tmp_path / "file.npz", **features_and_labels(200, 9, spread=1.5, seed=4))
    np.save(tmp_path / "features.npy", features_and_labels(2500, 40, d=4, seed=5)["features"])
    spawned(n, all_of_it, tmp_path, full)
