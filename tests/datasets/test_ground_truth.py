"""Data sets with lists of ground truth: official layouts in small, protocols, tables, refused pickles."""

import contextlib
import os
import pickle
from argparse import Namespace

import numpy as np
import pytest
import torch
from PIL import Image

import datasets
import main
import parameters
from datasets import _lists, _transforms, roxford5k
from datasets._images import Image as ListedImage
from datasets._layout import Published
from datasets._lists import GroundTruth
from evaluation import __main__ as command
from evaluation import galleries
from evaluation import queries as queries_of
from retrieval import explore
from tests.datasets import layouts
from tests.datasets.layouts import partial
from tests.kit.documents import documented_example
from tests.kit.refusals import refused
from tools import models, overlap
from utilities import pickles
from utilities.errors import UserError


def stems(split, rows):
    return [split.paths[row].rpartition("/")[2].removesuffix(".jpg") for row in rows]


def listed(split, protocol):
    """Query -> names of its positives, and of its junk."""
    queries = stems(split, np.flatnonzero(split.is_query))
    return {
        query: (stems(split, positives), stems(split, junk))
        for query, positives, junk in zip(queries, *split.lists[protocol], strict=True)
    }


def test_revisited_oxford_and_paris(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(roxford5k, "published", lambda opt: Published((0, 0), (0, 12), (3, 0), (9, 0)))
    layouts.make_revisitop(tmp_path)
    cropped = datasets.select("roxford5k", None, tmp_path, eval_long_side=0, crop_size=[32])["testing"]
    assert cropped[0][1].shape == (3, 32, 32)
    splits = datasets.select("roxford5k", None, tmp_path, eval_long_side=45)
    testing = splits["testing"]
    assert not capsys.readouterr().err and splits["training"] is splits["validation"] is splits["evaluation"] is None
    assert testing.n_classes == 0 and testing.is_query.sum() == 3 and not (testing.is_query & testing.is_gallery).any()
    for query, (_, *kinds) in zip(("query_a", "query_b", "query_c"), layouts.REVISITED, strict=True):
        easy, hard, junk = ([f"all_souls_{i:06d}" for i in rows] for rows in kinds)
        assert listed(testing, "easy")[query] == (easy, junk + hard)
        assert listed(testing, "medium")[query] == (easy + hard, junk)
        assert listed(testing, "hard")[query] == (hard, junk + easy)
    # a query is shown at the scale of its whole image
    for row, path in enumerate(testing.paths):
        image = Image.open(path)
        long_side = max(image.size)
        if testing.is_query[row]:
            image = image.crop(tuple(map(int, testing.boxes[row])))
        image.thumbnail((45 * max(image.size) / long_side,) * 2, Image.Resampling.LANCZOS)
        assert testing.is_query[row] or max(image.size) == 45
        assert np.array_equal(testing[row][1].permute(1, 2, 0), np.asarray(image))
    assert _transforms.Limit(500)(torch.zeros(3, 20, 30, dtype=torch.uint8), 30).shape == (3, 20, 30), "never enlarged"
    layouts.make_revisitop(tmp_path, "rparis6k", distractors=3)
    testing = partial("rparis6k", tmp_path / "rparis6k", revisitop1m=True)["testing"]
    assert stems(testing, range(12, 15)) == ["d0", "d1", "d2"] and testing.is_gallery[12:].all()
    assert len(listed(testing, "hard")["query_b"][0]) == 2


def test_landmarks_and_objects(tmp_path):
    layouts.make_gldv2(tmp_path)
    layouts.make_ilias(tmp_path)
    splits = partial("gldv2", tmp_path)
    testing = splits["testing"]
    assert list(splits["training"].class_names.values()) == ["7", "12"] and len(splits["training"]) == 3
    assert testing.n_classes == 0 and stems(testing, np.flatnonzero(testing.is_query)) == ["d10", "d11"]
    assert testing.is_gallery.sum() == 5 and list(testing.lists) == ["private", "public"]
    pool = galleries.roles_of(testing, len(testing)).pool
    assert pool.tolist() == [*range(len(testing))], "without classes all are measured together"
    assert listed(testing, "private") == {"d10": (["a01", "b03"], []), "d11": ([], [])}
    assert listed(testing, "public")["d10"] == ([], [])
    assert parameters.read(["--dataset", "gldv2"]).eval_skip_unmatched == 1
    words = f"--dataset gldv2 --source {tmp_path} --save_path {tmp_path} --allow_partial_dataset --kernels 0"
    measured = "--evaluation_metrics ap --pca 2".split()
    table = models.main(["--archs", "conv4 --not_pretrained", *words.split(), *measured])
    assert len(table.rows) == 2
    assert table.head[-2:] == ["private/ap in %", "public/ap in %"], "lists say what is found: no k-NN"
    testing = partial("ilias", tmp_path)["testing"]
    assert list(testing.class_names.values()) == ["cup_001", "hat_002"] and testing.lists is None
    assert stems(testing, np.flatnonzero(testing.is_query)) == ["Q001_00", "Q001_01", "Q002_00"]
    assert stems(testing, np.flatnonzero(testing.is_gallery)) == ["P001_00", "P001_01", "P002_00"]


def test_the_benchmark_of_contributing_is_one_file(tmp_path, monkeypatch):
    """Its queries, its gallery with a distractor, positives and junk are those of its table."""
    folder = tmp_path / "plug_ins"
    folder.mkdir()
    (folder / "monuments.py").write_text(documented_example('FOLDERS = ("monuments",)'))
    monkeypatch.setattr(datasets, "__path__", [*datasets.__path__, str(folder)])
    root = tmp_path / "monuments"
    layouts.write_images(root, [f"images/{name}.jpg" for name in "abcd"])
    truth = ["images/a.jpg,positive,images/b.jpg", "images/a.jpg,junk,images/c.jpg"]
    layouts.write_lines(root / "relevance.csv", ["query,kind,path", *truth])
    testing = datasets.select("monuments", None, tmp_path, 8)["testing"]
    assert listed(testing, "") == {"a": (["b"], ["c"])} and testing.counts["images"] == 4
    assert stems(testing, np.flatnonzero(testing.is_gallery)) == ["b", "c", "d"]


def make_table(folder, labels=True):
    """A table of three training images and five of test: two queries, of which one is in the gallery too."""
    rows = [f"t,{i}.jpg,train,True,True" for i in range(3)]
    rows += [f"{f'c{i % 2}' * labels},{i}.jpg,validation,{i in (3, 4)},{i != 3}" for i in range(3, 8)]
    layouts.write_images(folder, [f"{i}.jpg" for i in range(8)])
    layouts.write_lines(folder / "images.csv", ["label,path,split,is_query,is_gallery", *rows])
    return {"dataset_csv": str(folder / "images.csv"), "dataset_csv_lists": str(folder / "lists.csv")}


LISTS = "query,kind,path\n3.jpg,positive,5.jpg\n3.jpg,positive,4.jpg\n4.jpg,positive,./7.jpg\n3.jpg,junk,6.jpg\n"


def test_lists_of_a_table(tmp_path):
    for labels, message in ((True, "5 images of 2 classes"), (False, "5 images without classes")):
        flags = make_table(tmp_path, labels)
        (tmp_path / "lists.csv").write_text(LISTS)
        splits = partial("csv", tmp_path, **flags)
        testing = splits["testing"]
        assert listed(testing, "") == {"3": (["5", "4"], ["6"]), "4": (["7"], [])} and testing.n_classes == 2 * labels
        assert message in datasets.describe(splits)
    with refused("--evaluate_all: lists say what the queries of --dataset csv find"):
        partial("csv", tmp_path, evaluate_all=True, **flags)
    for row, message in (
        ("3.jpg,maybe,7.jpg", "row 6: '3.jpg,maybe,7.jpg', expected a query, positive or junk"),
        ("3.jpg,junk,9.jpg", "row 6: 9.jpg: the data set's table has no"),
        ("5.jpg,junk,7.jpg", "5.jpg, which is not a query or not an image of the gallery here"),
        ("4.jpg,junk,3.jpg", "3.jpg, which is not a query or not an image"),
    ):
        (tmp_path / "lists.csv").write_text(LISTS + row + "\n")
        with refused("lists", message):
            datasets.select("csv", None, tmp_path, 8, **flags)


@pytest.mark.parametrize(("is_query", "is_gallery"), [(True, False), (False, True)])
def test_a_listed_name_that_two_images_have_is_refused(is_query, is_gallery):
    images = [ListedImage("a.jpg", None, is_gallery=False), ListedImage("b.jpg", None, is_query=False)]
    lists = {"": {"a.jpg": GroundTruth(["b.jpg"], [])}}
    assert _lists.rows(lists, images, partial=False) == {"": ([[1]], [[]])}
    path = "a.jpg" if is_query else "b.jpg"
    repeated = ListedImage(path, None, is_query=is_query, is_gallery=is_gallery)
    with refused(f"ground truth lists {path}, a name that two images have"):
        _lists.rows(lists, [*images, repeated], partial=False)


class Runs:
    """A pickle of it runs a function when it is read."""

    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


MALICIOUS = [
    pickle.dumps(Runs(os.system, "true")),
    pickle.dumps({"imlist": Runs(eval, "1")}),
    pickle.dumps([Runs(exec, "pass")], protocol=0),
    pickle.dumps(Runs(open, "/etc/hostname")),
    pickle.dumps(Runs(os.remove, "/tmp/none")),
    b"cnumpy\nload\n(S'x'\ntR.",  # a module's attribute
    b"cnumpy.testing._private.utils\nrunstring\n(S'1'\n(dtR.",  # numpy that runs code
    b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'tofile'\ntR.",
    # a name with a dot, which reaches into a class
    b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.",
    pickle.dumps(np.array([Runs(os.getcwd)], dtype=object)),
    # a persistent id, which refers to something outside of the file
    b"Pfile\n.",
    b"c_codecs\ndecode\n(S'x'\nS'zip'\ntR.",
    pickle.dumps(list(range(1000)))[:100],
    b"imlist",
    # arrays of objects from bytes, which would be taken for addresses
    b"cnumpy\nndarray\n((I1\ntcnumpy\ndtype\n(S'O8'\ntRS'aaaaaaaa'\ntR.",
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I1\ntcnumpy\ndtype\n(S'O8'\ntRI00\n"
    b"S'aaaaaaaa'\ntb.",
]


def test_pickles_that_are_refused(tmp_path):
    for content in MALICIOUS:
        (tmp_path / "gnd_roxford5k.pkl").write_bytes(content)
        with refused("refused, no pickle of plain lists", tmp_path / "gnd_roxford5k.pkl"):
            datasets.ground_truth(tmp_path / "gnd_roxford5k.pkl")


def test_plain_pickles_are_read_and_damaged_truth_is_named(tmp_path):
    path = tmp_path / "gnd_roxford5k.pkl"
    plain = ["x", 1, 2.5, None, True, b"\xe9"]
    empty = np.zeros((2, 0))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        content = [plain, np.float32(2), np.array(["x", "yy"]), np.arange(3), (empty,)]
        path.write_bytes(pickle.dumps(content, protocol))
        loaded = pickles.load(path, arrays=True)
        assert loaded[0] == plain and loaded[1] == 2 and list(loaded[2]) == ["x", "yy"]
        for array, expected in ((loaded[3], np.arange(3)), (loaded[4][0], empty)):
            np.testing.assert_array_equal(np.asarray(array), expected)
    (query,) = truth = [{"bbx": [1, 2, 3, 4], "easy": [0], "hard": [1], "junk": []}]
    for changed, message in (
        ({}, None),
        ({"imlist": None}, "expected imlist, qimlist and gnd"),
        ({"gnd": [{"bbx": [1, 2, 3, 4]}]}, "KeyError: 'easy'"),
        ({"qimlist": ["a", "b"]}, "2 queries, but 1 boxes"),
        ({"gnd": [{**query, "bbx": [1, 2, 3]}]}, "boxes of four numbers"),
        ({"gnd": [{**query, "easy": [2]}]}, "easy of a lists 2, which is no index of its 2 images"),
    ):
        path.write_bytes(pickle.dumps({"imlist": ["x", "y"], "qimlist": ["a"], "gnd": truth, **changed}))
        with refused(None, message) if message else contextlib.nullcontext():
            assert datasets.ground_truth(path)["medium"] == {"a": (["x", "y"], [])}


@pytest.mark.parametrize(
    "network",
    [
        "--arch conv4_normalize",
        pytest.param("--arch timm:test_vit_normalize --not_pretrained --crop_size 32", marks=pytest.mark.long),
    ],
)
def test_a_network_measured_on_revisited_oxford(network, tmp_path, monkeypatch, capsys, with_pictures):
    """The command's values are those of its dumped embeddings by the official definition; junk is shown grey."""
    pictures = []
    monkeypatch.setattr(roxford5k, "published", lambda opt: None)
    monkeypatch.setattr("evaluation.outputs.recoveries", lambda path, **arguments: pictures.append(arguments))
    layouts.make_revisitop(tmp_path)
    words = f"--dataset roxford5k --source {tmp_path} --save_path {tmp_path} --group A --eval_long_side 90".split()
    words += [*network.split(), "--embed_dim", "8"]
    options = "--evaluate_only --eval_scales 1 .7 --eval_whiten fit_gallery --eval_whiten_dims 4 --dump_embeddings"
    scores = main.main(parameters.read([*words, *options.split()]))["test"]
    assert "whitened by the images that are searched" in capsys.readouterr().out
    dumped = tmp_path / "roxford5k" / "A_s1" / "embeddings_test.npz"
    file = dict(np.load(dumped))
    assert file["features"].shape == (12, 4) and "labels" not in file
    queries, gallery = (file["features"][file[role]].astype(np.float64) for role in ("is_query", "is_gallery"))
    for protocol, (good, hidden) in {"easy": ((0,), (1, 2)), "medium": ((0, 1), (2,)), "hard": ((1,), (0, 2))}.items():
        values = []
        for query, (_, *kinds) in zip(queries, layouts.REVISITED, strict=True):
            positives, junk = ({int(i) for kind in part for i in kinds[kind]} for part in (good, hidden))
            order = [i for i in np.argsort(((gallery - query) ** 2).sum(1), kind="stable") if i not in junk]
            ranks = [rank for rank, i in enumerate(order) if i in positives]
            areas = []
            for hits, rank in enumerate(ranks):
                precision_before = hits / rank if rank else 1
                areas.append((precision_before + (hits + 1) / (rank + 1)) / 2)
            if areas:
                values.append(np.mean(areas))
        assert scores[f"{protocol}/ap_trapezoid"] == pytest.approx(np.mean(values))
    measured = command.main([str(dumped), "--evaluation_metrics", "ap_trapezoid", "mp@1", "mp@5", "mp@10"])
    assert measured == pytest.approx(scores)
    picture = pictures[0]
    second = int(np.flatnonzero(picture["rankings"].queries == 1)[0])
    assert picture["title"].endswith("in its gallery, medium") and picture["task"].relevance
    assert (picture["rankings"].judged[second] == queries_of.JUNK).sum() <= 1
    with pytest.raises(SystemExit):
        parameters.read(words)
    assert "roxford5k measures and does not train" in capsys.readouterr().err


def test_a_run_whose_test_has_lists(tmp_path, capsys):
    """A table with lists: values by them, class-wise ones by the labels; a function of the user's in their place."""
    flags = make_table(tmp_path)
    (tmp_path / "lists.csv").write_text(LISTS)
    (tmp_path / "relevance.py").write_text("def relevance(q, g):\n    return (q[:, None] + g[None]) % 2\n")
    words = f"--dataset csv --dataset_csv {flags['dataset_csv']} --save_path {tmp_path} --n_epochs 1 --bs 2".split()
    words += "--arch conv4_normalize --embed_dim 8 --samples_per_class 2 --storage_metrics ap".split()
    measured = ["--evaluation_metrics", "ap", "e_recall@1", "dists@intra"]
    by_function = ["--eval_relevance", str(tmp_path / "relevance.py")]
    for group, relevance, evaluation_flags in (
        ("B", by_function, by_function),
        ("A", ["--dataset_csv_lists", flags["dataset_csv_lists"]], []),
    ):
        run = main.main(parameters.read([*words, *measured, *relevance, "--dump_embeddings", "--group", group]))
        file = str(run.folder / "embeddings_test.npz")
        assert run.state["last"]["test"] == pytest.approx(command.main([file, *measured, *evaluation_flags]))
    assert "lists: 3 positives, 1 junk" in capsys.readouterr().out
    with pytest.raises(UserError, match="lists say what its queries are to find"):
        overlap.main([str(run.folder), "--kernels", "0"])
    options = {"checkpoint": "best", "device": "cpu", "batch_size": 4, "evaltype": None, "split": "test"}
    neighbours = np.array([np.delete(np.arange(5), row) for row in range(5)])
    of_run = explore.of_run(Namespace(source=str(run.folder), **options))
    of_file = explore.of_file(file)
    for explored in (of_run, of_file):
        kinds = explored.listed.judged(neighbours)
        # three positives, one junk image, and of both queries what else lies in the gallery
        assert sorted(kinds[kinds < 3].tolist()) == [0, 0, 0, 1, 1, 1, 2]
        notes = "\n".join(explored.notes)
        assert "Lists say" in notes and "are ignored here" not in notes
    np.testing.assert_allclose(of_run.listed.precision(5), of_file.listed.precision(5))
