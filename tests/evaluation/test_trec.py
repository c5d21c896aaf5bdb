"""Run and qrels of TREC: read back they give the numbers of metrics.compute exactly, and pytrec_eval's."""

import json
from urllib.parse import unquote

import numpy as np
import pytest

import main
import metrics
import parameters
from evaluation import __main__ as command
from evaluation import trec
from tests.kit.plain_metrics import random_lists, random_space
from tests.kit.refusals import refused
from tests.kit.splits import Network, evaluated, made_splits, options, save
from tools import rankings

NAMES = ["e_recall@1", "e_recall@4", "precision@5", "r_precision", "map_r", "map@3", "mrr", "ap", "ap_trapezoid", "inp"]
NAMES += ["mp@5", "mmp@5", "oracle@9"]
LEVELED = [
    "e_recall@1",
    "h_ap_others",
    "asi",
    "asi_level1",
    "ndcg",
    "ap",
    "e_recall@1_level1",
    "map_r_level2",
    "inp_level1",
]
X, Y = random_space(n=70, d=3, classes=30, spread=0.8, seed=3)  # some classes of one image
X = np.round(X)  # equal distances
SEQUENCES = np.arange(70) % 9 - 1
QUERIES = slice(20)
GALLERY = slice(20, None)
SPLIT = {"is_query": np.arange(70) < 20, "is_gallery": np.arange(70) >= 20}
REFERENCE = {"reference": X[GALLERY], "reference_labels": Y[GALLERY]}
PATHS = np.array([f"a b/{number}%20\u3000.jpg" for number in range(70)])
LISTS = random_lists(5, 50, 20)


def written(folder, *words, **arrays):
    """Paths of run and qrels of a file of these arrays."""
    words = ["--dump_query_results", str(folder / "lists.run"), "--query_results_format", "trec", *words]
    command.main([*save(folder, file=arrays), *words])
    return [str(folder / f"lists{suffix}") for suffix in trec.SUFFIXES]


def read_back(files, names):
    return command.main(["--trec", *files, "--evaluation_metrics", *names])


@pytest.mark.parametrize(
    "names, words, arrays, compared",
    [
        (NAMES, [], {"features": X, "labels": Y}, {"labels": Y}),
        (
            NAMES,
            [],
            {"features": X, "labels": Y, "sequence": SEQUENCES, "paths": PATHS},
            {"query_sequences": SEQUENCES},
        ),
        (NAMES, [], {"features": X, "labels": Y, **SPLIT, "paths": PATHS}, REFERENCE),
        (NAMES, ["--rerank", "k_reciprocal"], {"features": X, "labels": Y}, {"rerank": metrics.KReciprocal()}),
        (NAMES, ["--eval_space", "hyperbolic"], {"features": X, "labels": Y}, {"ball": metrics.Ball(0.1, 2.3)}),
        (LEVELED, [], {"features": X, "labels": np.stack([Y, Y // 3, Y // 9], 1)}, {}),
    ],
)
def test_read_back_it_gives_the_same_numbers(tmp_path, names, words, arrays, compared):
    size = 20 if "reference" in compared else 70
    labels = arrays["labels"][:size]
    expected = metrics.compute(names, X[:size], **{"labels": labels, "skip_unmatched": True, **compared})
    files = written(tmp_path, *words, "--evaluation_metrics", *names, **arrays)
    assert read_back(files, names) == expected


def test_of_lists_a_pair_for_each_protocol_without_junk(tmp_path, capsys):
    half = [row[:2] for row in LISTS[0]], LISTS[1]
    arrays = {"features": X, **SPLIT}
    for ending, lists in (("", LISTS), ("_a", half)):
        of_protocol = metrics.Lists.of(*lists)._asdict()
        arrays |= {f"{name}{ending or '_b'}": array for name, array in of_protocol.items()}
    written(tmp_path, "--evaluation_metrics", "ap", **arrays)
    line = capsys.readouterr().out
    for ending, lists in (("b", LISTS), ("a", half)):
        files = [str(tmp_path / f"lists_{ending}{suffix}") for suffix in trec.SUFFIXES]
        expected = metrics.compute(NAMES, X[QUERIES], reference=X[GALLERY], lists=metrics.Lists.of(*lists))
        assert read_back(files, NAMES) == expected
        n_unmatched = sum(not positives for positives in lists[0])
        assert f"lists_{ending}.run: 20 queries" in line and f"{n_unmatched} queries without a relevant item" in line
    for query, items in rankings.read_run(files[0]).items.items():
        junk = {str(20 + item).encode() for item in LISTS[1][int(query)]}
        assert len(items) == 50 - len(junk) and junk.isdisjoint(items)


def test_names_are_paths_where_these_are_distinct(tmp_path, capsys):
    run, qrels = written(tmp_path, features=X, labels=Y, paths=PATHS)
    items = rankings.read_run(run).items
    assert {unquote(query.decode()) for query in items} == set(PATHS)
    assert {unquote(item.decode()) for items in rankings.read_qrels(qrels).values() for item in items} <= set(PATHS)
    assert unquote(trec.escaped("\udcff\n"), errors="surrogateescape") == "\udcff\n"
    written(tmp_path, features=X, labels=Y, paths=np.array(["twice", *PATHS[1:-1], "twice"]))
    assert set(rankings.read_run(run).items) == {str(row).encode() for row in range(70)}
    assert "paths that are empty or occur twice" in capsys.readouterr().out
    queries, gallery = save(tmp_path, q={"features": X[:5], "labels": Y[:5]}, g={"features": X, "labels": Y})
    np.savez(gallery, features=X, labels=Y, paths=PATHS)
    words = ["--gallery", gallery, "--dump_query_results", str(tmp_path / "x"), "--query_results_format", "trec"]
    command.main([queries, *words])
    items = rankings.read_run(str(tmp_path / "x.run")).items
    assert set(items) == {b"0", b"1", b"2", b"3", b"4"} and len(items[b"0"]) == 70
    assert all(unquote(item.decode()) in PATHS for item in items[b"0"])


def test_beyond_the_depth_items_are_not_found(tmp_path, capsys):
    files = written(tmp_path, "--query_results_depth", "4", features=X, labels=Y)
    expected = metrics.compute(NAMES[:2] + ["map@3"], X, Y, skip_unmatched=True)
    assert read_back(files, NAMES[:2] + ["map@3"]) == expected
    relevant = metrics.findable(Y)[0]
    unmatched = int((relevant == 0).sum())
    out = capsys.readouterr().out
    assert f"of {relevant.sum()} relevant items lie deeper" in out and "are not in the run" in out
    assert f"{unmatched} of 70 queries of the run have no relevant item" in out
    with refused("'inp' is of the last relevant item, and the run lacks"):
        read_back(files, ["inp"])


def test_scores_decide_as_in_trec_eval(tmp_path, capsys):
    """By hand: equal scores as float32, ranks against the scores, a query of one file alone, relevance below 1."""
    (tmp_path / "run").write_text(
        "1 Q0 a 1 16777217 t\n1 Q0 c 2 16777217 t\n1 Q0 b 3 16777216 t\n\n2 Q0 a 1 .1 t\n2 Q0 b 2 .2 t\n3 Q0 a 1 1 t\n"
    )
    (tmp_path / "qrels").write_text("1 0 a 1\n1 0 b 0\n2 0 b 1\n2 0 c -1\n4 0 a 1\n5 0 a 0\n")
    files = [str(tmp_path / "run"), str(tmp_path / "qrels")]
    values = command.main(["--trec", *files, "--evaluation_metrics", "mrr", "--out", str(tmp_path / "values.json")])
    assert values == {"mrr": pytest.approx((1 / 3 + 1 + 0) / 3)} == json.loads((tmp_path / "values.json").read_text())
    out = capsys.readouterr().out
    for line in (
        "1 of 3 queries of the run have no relevant item in the qrels: left out",
        "1 of 3 queries of the qrels are not in the run: they found nothing",
        "1 queries have equal scores",
        "2 queries have ranks that do not follow the scores",
    ):
        assert line in out
    pytrec_eval = pytest.importorskip("pytrec_eval")
    judged = {"1": {"a": 1, "b": 0}, "2": {"b": 1, "c": -1}}
    scores = {"1": {"a": 16777217.0, "c": 16777217.0, "b": 16777216.0}, "2": {"a": 0.1, "b": 0.2}}
    per_query = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(scores)
    assert [per_query[query]["recip_rank"] for query in "12"] == pytest.approx([1 / 3, 1])


@pytest.mark.parametrize("kind", ["alone", "gallery", "lists", "levels"])
def test_pytrec_eval_finds_the_same(tmp_path, kind):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    arrays = {"features": X, "labels": Y}
    ending = ""
    if kind == "gallery":
        arrays |= {**SPLIT, "sequence": SEQUENCES}
    elif kind == "levels":
        arrays["labels"] = np.stack([Y, Y // 3], 1)
        ending = "_level1"
    elif kind == "lists":
        arrays = {"features": X, **SPLIT, **metrics.Lists.of(*LISTS)._asdict()}
    pairs = {"map": "ap", "P_5": "precision@5", "recip_rank": "mrr", "Rprec": "r_precision", "success_1": "e_recall@1"}
    names = [f"{name}{ending}" for name in pairs.values()]
    files = written(tmp_path, "--evaluation_metrics", *names, **arrays)
    with open(files[0]) as run, open(files[1]) as qrels:
        evaluator = pytrec_eval.RelevanceEvaluator(
            pytrec_eval.parse_qrel(qrels), {"map", "P.5", "recip_rank", "Rprec", "success.1"}
        )
        per_query = evaluator.evaluate(pytrec_eval.parse_run(run)).values()
    measured = read_back(files, names)
    for name, ours in zip(pairs, names, strict=True):
        assert measured[ours] == pytest.approx(np.mean([values[name] for values in per_query]), abs=1e-12)


def test_what_cannot_be_measured_is_one_line(tmp_path):
    run, qrels = written(tmp_path, features=X, labels=Y)
    for words, message in (
        ([run, qrels, "--rerank", "alpha_qe"], "as they are: leave out --rerank"),
        ([run, qrels, "--evaluation_metrics", "nmi"], "'nmi' needs features or classes"),
        ([run, qrels, "--evaluation_metrics", "map_r_macro"], "needs features or classes"),
        ([run, qrels, "--evaluation_metrics", "c_map_r"], "needs features or classes"),
        ([run, qrels, "--evaluation_metrics", "e_recall@1@d8"], "needs features or classes"),
        ([run, qrels, "--evaluation_metrics", "r_auroc"], "needs features or classes"),
        ([run, qrels, "--evaluation_metrics", "mAP_c"], "counts the query into its class"),
        ([run, qrels, "--evaluation_metrics", "map_r_level1"], "relevances have a single level"),
        ([str(tmp_path / "absent"), qrels], "absent: no such file"),
        ([qrels, qrels], ":1: 4 columns; expected query Q0 item rank score tag"),
    ):
        with refused(None, message):
            command.main(["--trec", *words])
    with refused("leave out FILE"):
        command.main(["file.npz", "--trec", run, qrels])
    with refused("name the file of embeddings, or --trec RUN QRELS"):
        command.main([])
    good_run = "1 Q0 a 1 2 t\n"
    good_qrels = "1 0 a 1\n"
    for of_run, of_qrels, message in (
        (good_run + "1 Q0 b 2 nan t\n", good_qrels, "run:2: score nan is not a number"),
        (good_run + "1 Q0 b x 1 t\n", good_qrels, "run:2: rank x is not a whole number"),
        (good_run + "1 Q0 a 2 1 t\n", good_qrels, "run:2: query 1 lists a twice"),
        ("\n", good_qrels, "run: the file is empty"),
        (good_run, good_qrels + "1 0 a 1\n", "qrels:2: query 1 judges a twice"),
        (good_run, good_qrels + "1 0 b .5\n", "qrels:2: relevance .5 is not a whole number"),
        (good_run, good_qrels + "1 0 b 1000000000\n", "qrels:2: relevance 1000000000 is above 100"),
        (good_run, "2 0 a 1\n", "no query of the run has a relevant item"),
        (good_run, "1 0 a 0\n", "no query of the run has a relevant item"),
    ):
        (tmp_path / "run").write_text(of_run)
        (tmp_path / "qrels").write_text(of_qrels)
        with refused(None, message):
            command.main(["--trec", str(tmp_path / "run"), str(tmp_path / "qrels")])


@pytest.mark.parametrize("flags", ["", "--eval_reference_set compared_to_sets_combined"])
def test_of_a_run(run, flags):
    words = ["--evaluate", "--resume_from", str(run), "--dump_query_results", "--query_results_format", "trec"]
    words += ["--evaluation_metrics", "e_recall@1", "map_r", *flags.split()]
    scores = main.main(parameters.read(words))
    for split, values in scores.items():
        files = [str(run / f"query_results_{split}{suffix}") for suffix in trec.SUFFIXES]
        assert read_back(files, ["e_recall@1", "map_r"]) == pytest.approx(values)
        with np.load(run / f"query_results_{split}.npz") as file:
            assert set(rankings.read_run(files[0]).items) == {trec.escaped(path).encode() for path in file["paths"]}
    main.main(parameters.read(words))
    assert len(list(run.rglob("query_results_test.run"))) == 2, "the first pair stays"
    assert parameters.read(words[:3]).query_results_format == "npz", "no habit of the run's"


def test_inside_super_classes_and_of_several_embeddings(tmp_path):
    flags = ["--tester", "same_parent_label", "--evaltypes", "a", "b", "--splits_to_eval", "val"]
    _, embedded, _ = evaluated(made_splits(), *flags, network=Network(heads=("a", "b")))
    files = trec.dump(tmp_path, embedded, options(*flags))
    names = [f"query_results_val_{head}{suffix}" for head in "ab" for suffix in trec.SUFFIXES]
    assert [file.name for file in files] == names
    dataset = embedded["val"].dataset
    parents = {path.encode(): dataset.parent(row) for row, path in enumerate(map(str, dataset.paths))}
    for query, items in rankings.read_run(str(files[0])).items.items():
        assert {parents[item] for item in items} == {parents[query]}
        assert len(items) == list(parents.values()).count(parents[query]) - 1
    labels = dict(zip(parents, dataset.labels.tolist(), strict=True))
    for query, items in rankings.read_qrels(str(files[1])).items():
        assert items.keys() == {path for path, label in labels.items() if label == labels[query] and path != query}
