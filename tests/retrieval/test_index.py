"""An index of own images: exact and approximate search, adding, images that cannot be decoded, what the commands print and write."""

import csv
import json
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from retrieval import __main__ as retrieval
from retrieval import answers, folders, index, sources
from retrieval.index import Index
from runs import Embedder
from tests import builders
from utilities.codes import Codes
from utilities.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


class Made:
    """An embedder whose images are numbers, and embeddings rows of `vectors`; those in `bad` cannot be decoded."""

    def __init__(self, vectors, bad=(), fingerprint="made"):
        self.vectors, self.bad, self.fingerprint = np.asarray(vectors, dtype=np.float32), bad, fingerprint
        self.dimensions, self.folder, self.evaltype = self.vectors.shape[1], Path("."), "discriminative"

    def stream(self, paths, total=None):
        from runs.embedder import Batch

        for start in range(0, len(paths), 1000):
            places = range(start, min(start + 1000, len(paths)))
            good = [place for place in places if paths[place] not in self.bad]
            rows = self.vectors[[int(paths[place]) for place in good]] if good else np.empty((0, self.dimensions), np.float32)
            yield Batch(good, rows, [(place, f"image {paths[place]} cannot be decoded") for place in places if paths[place] in self.bad])


def by_hand(vectors, query, k):
    """(distance, row) of the k nearest, in float64 loops; of equal ones the earlier first."""
    measured = [(sum((float(a) - float(b)) ** 2 for a, b in zip(query, row, strict=True)) ** 0.5, i) for i, row in enumerate(vectors)]
    return sorted(measured)[:k]


def numbers(count):
    return [str(i) for i in range(count)]


@pytest.fixture
def images(tmp_path):
    """Five images in a folder and one below it, one that cannot be decoded, and what is no image."""
    for i in range(5):
        builders.write_image(tmp_path / "images" / f"{i}.jpg", i)
    builders.write_image(tmp_path / "images" / "below" / "deep.png", 9)
    (tmp_path / "images" / "bad.jpg").write_bytes(b"\xff\xd8 no")
    (tmp_path / "images" / "notes.txt").write_text("no image")
    (tmp_path / "images" / ".hidden.jpg").write_bytes(b"")
    return tmp_path / "images"


def test_exact_search_is_that_of_loops_ties_and_duplicates_included(tmp_path):
    vectors = np.random.default_rng(0).integers(0, 3, (60, 3)).astype(np.float32)  # many equal ones
    about = index.build(Made(vectors), numbers(60), tmp_path / "index")
    assert (about["images"], about["index"], about["recall"], about["left_out"]) == (60, "exact", None, {})
    found = Index(tmp_path / "index")
    distances, rows = found.search(vectors[:20], 7)
    for i in range(20):
        expected = by_hand(vectors, vectors[i], 60)
        np.testing.assert_allclose(distances[i], [d for d, _ in expected[:7]], atol=1e-12)
        assert distances[i][0] == 0 and set(rows[i][distances[i] < distances[i][-1]]) == {row for d, row in expected if d < expected[6][0]}
    distances, rows = found.search(vectors[:2], 100)
    assert rows.shape == (2, 60) and sorted(rows[0]) == list(range(60))
    assert [row for _, row in by_hand(vectors, vectors[0], 60)] == rows[0].tolist()


@pytest.mark.parametrize(
    ("kind", "size", "dimensions"), [("hnsw", 1500, 18), pytest.param("ivfpq", 1500, 9, marks=pytest.mark.long), pytest.param("ivfpq", 10_500, 18, marks=pytest.mark.long)]
)
def test_approximate_search_finds_nearly_all_and_says_how_much(kind, size, dimensions, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "LEAST_IVFPQ", 1500)
    generator = np.random.default_rng(1)
    centres = generator.normal(size=(60, dimensions))
    vectors = (centres[generator.integers(60, size=size)] + 0.3 * generator.normal(size=(size, dimensions))).astype(np.float32)
    about = index.build(Made(vectors), numbers(size), tmp_path / kind, kind)
    found = Index(tmp_path / kind)
    queries = np.sort(np.random.default_rng(1).choice(size, size=index.RECALL_QUERIES, replace=False))  # those of the recall
    distances, rows = found.search(vectors[queries], 11)
    hits = 0
    for i, query in enumerate(queries):
        exact = np.sqrt(np.square(vectors.astype(np.float64) - vectors[query]).sum(1))
        exact[query] = np.inf
        mine = [d for d, row in zip(distances[i], rows[i], strict=True) if row != query][:10]
        hits += sum(d <= np.sort(exact)[9] + 1e-9 for d in mine)
    assert about["recall"]["at"] == 10 and about["recall"]["queries"] == len(queries)
    assert about["recall"]["recall"] == pytest.approx(hits / (10 * len(queries)), abs=0.002) and about["recall"]["recall"] > 0.9
    assert (np.diff(distances, axis=1) >= 0).all() and np.allclose(distances[:, 0], 0)


def test_a_bad_index_would_show_in_the_recall(tmp_path, monkeypatch):
    vectors = np.random.default_rng(2).normal(size=(3000, 16)).astype(np.float32)
    monkeypatch.setattr(index, "_candidates", lambda *_: np.random.default_rng(0).integers(3000, size=(200, 11)))
    assert index.build(Made(vectors), numbers(3000), tmp_path / "index", "hnsw")["recall"]["recall"] < 0.05


def test_ivfpq_of_few_images_is_refused_and_nothing_is_left(tmp_path):
    with pytest.raises(UserError, match=r"10,000 images.*50.*exact"):
        index.build(Made(np.eye(50)), numbers(50), tmp_path / "index", "ivfpq")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_adding_gives_the_index_of_all(kind, tmp_path):
    vectors = np.random.default_rng(3).normal(size=(50, 6)).astype(np.float32)
    index.build(Made(vectors), numbers(30), tmp_path / "grown", kind)
    about = index.build(Made(vectors), numbers(50)[20:], tmp_path / "grown", kind, add=True)
    assert (about["images"], about["added"]) == (50, 20)
    index.build(Made(vectors), numbers(50), tmp_path / "whole", kind)
    grown, whole = Index(tmp_path / "grown"), Index(tmp_path / "whole")
    assert grown.paths == whole.paths and np.array_equal(grown.vectors, whole.vectors)
    assert all(np.array_equal(*both) for both in zip(grown.search(vectors, 5), whole.search(vectors, 5), strict=True))
    about = index.build(Made(vectors), numbers(50), tmp_path / "grown", kind, add=True)
    assert (about["images"], about["added"]) == (50, 0)


def coded(name, vectors):
    found = Codes(name, vectors.shape[1])
    found.calibrate(np.random.default_rng(9).normal(size=(1000, vectors.shape[1])).astype(np.float32))
    return found


@pytest.mark.parametrize("name", ["float16", "int8", "binary"])
def test_an_index_of_codes_finds_what_the_codes_find_and_keeps_nothing_else(name, tmp_path):
    vectors = np.random.default_rng(4).normal(size=(80, 8)).astype(np.float32)
    about = index.build(Made(vectors), numbers(80), tmp_path / "index", coded=coded(name, vectors))
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == ["index.faiss", "index.json", "paths.csv"]
    apart = coded(name, vectors)
    apart.add(vectors)
    moved = shutil.move(tmp_path / "index", tmp_path / "moved")  # the code is in the folder
    found = Index(moved)
    assert (found.code, found.vectors, about["code"], about["images"]) == (name, None, name, 80)
    distances, rows = found.search(vectors[:9], 5, rescored=3)
    decoded = apart.decoded(np.arange(80))
    for i in range(9):
        expected = by_hand(decoded, vectors[i], 80)
        if name == "binary":
            near = sorted((int(((row > 0) != (vectors[i] > 0)).sum()), place) for place, row in enumerate(vectors))[:15]
            expected = [one for one in expected if one[1] in {place for _, place in near}]
        assert rows[i].tolist() == [row for _, row in expected[:5]]
        np.testing.assert_allclose(distances[i], [d for d, _ in expected[:5]], atol=1e-6)
    hits = 0
    for i in range(80):
        exact = {row for _, row in by_hand(vectors, vectors[i], 11) if row != i}
        hits += len(exact & {*[row for row in apart.search(vectors[i : i + 1], 11)[1][0].tolist() if row != i][:10]})
    assert about["recall"] == {"at": 10, "queries": 80, "recall": pytest.approx(hits / 800), "images": 80}


@pytest.mark.parametrize("name", ["int8", "binary"])
def test_adding_to_codes_keeps_the_code(name, tmp_path):
    vectors = np.random.default_rng(5).normal(size=(50, 6)).astype(np.float32)
    first = index.build(Made(vectors), numbers(30), tmp_path / "grown", coded=coded(name, vectors))
    about = index.build(Made(vectors), numbers(50)[20:], tmp_path / "grown", add=True)
    assert (about["images"], about["added"], about["code"], about["recall"]) == (50, 20, name, first["recall"])
    index.build(Made(vectors), numbers(50), tmp_path / "whole", coded=coded(name, vectors))
    one, other = Index(tmp_path / "grown"), Index(tmp_path / "whole")
    assert one.paths == other.paths
    for mine, its in zip(one.search(vectors, 4), other.search(vectors, 4), strict=True):
        assert (mine == its).all()
    assert index.build(Made(vectors), numbers(50), tmp_path / "grown", add=True)["added"] == 0


def test_a_damaged_index_of_codes_is_one_line(tmp_path):
    vectors = np.random.default_rng(6).normal(size=(20, 4)).astype(np.float32)
    index.build(Made(vectors), numbers(20), tmp_path / "index", coded=coded("int8", vectors))
    about = json.loads((tmp_path / "index" / "index.json").read_text())
    (tmp_path / "index" / "index.json").write_text(json.dumps({**about, "code": "int3"}))
    with pytest.raises(UserError, match="is damaged"):
        Index(tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text(json.dumps(about))
    (tmp_path / "index" / "index.faiss").write_bytes(b"no")
    with pytest.raises(UserError, match="cannot be read"):
        Index(tmp_path / "index").search(vectors, 1)


def test_the_commands_of_codes_learn_from_training_images(run, images, tmp_path, capsys):
    from retrieval import data

    out = tmp_path / "index"
    about = retrieval.main(["index", str(run), str(images), "--out", str(out), "--code", "int8"])
    assert "code int8" in capsys.readouterr().out and about["code"] == "int8"
    embedder = Embedder(run)
    training = embedder(data.split(embedder, "train").paths)
    expected = Codes("int8", training.shape[1])
    expected.calibrate(training)
    found = Index(out)
    expected.add(embedder(found.paths))
    assert (found.faiss.decoded(np.arange(len(found))) == expected.decoded(np.arange(len(found)))).all()
    assert len(retrieval.main(["query", str(out), str(images / "0.jpg"), "-k", "3", "--rescore_multiplier", "2"])) == 3
    other = retrieval.main(["index", str(run), str(images), "--out", str(tmp_path / "other"), "--code", "int8", "--calibration", str(images / "0.jpg"), str(images / "1.jpg")])
    assert other["recall"]["recall"] <= 1 and not np.array_equal(Index(tmp_path / "other").faiss.decoded(np.arange(1)), found.faiss.decoded(np.arange(1)))


def test_an_index_of_a_prefix_is_cut_brought_to_length_and_then_coded(run, images, tmp_path):
    out = tmp_path / "index"
    whole = retrieval.main(["index", str(run), str(images), "--out", str(tmp_path / "whole")])["dimensions"]
    about = retrieval.main(["index", str(run), str(images), "--out", str(out), "--prefix", "3"])
    vectors, found = Embedder(run)(Index(out).paths).astype(np.float64), Index(out)
    lengths = [sum(x**2 for x in row[:3]) ** 0.5 for row in vectors]
    cut = np.array([[x / length for x in row[:3]] for row, length in zip(vectors, lengths, strict=True)])
    assert whole > about["dimensions"] == 3 and np.abs(found.vectors - cut).max() < 1e-6 and np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5
    answers_of = retrieval.main(["query", str(out), str(images / "0.jpg"), "-k", "6"])
    query = cut[[Path(path).name for path in found.paths].index("0.jpg")]
    assert [one.distance for one in answers_of] == pytest.approx([distance for distance, _ in by_hand(cut, query, 6)], abs=1e-6)
    retrieval.main(["index", str(run), str(images), "--out", str(tmp_path / "coded"), "--prefix", "3", "--code", "binary"])
    assert ((Index(tmp_path / "coded").faiss.decoded(np.arange(6)) > 0) == (cut > 0)).all()
    assert retrieval.main(["index", str(run), str(images), "--out", str(out), "--prefix", "3", "--add"])["added"] == 0


def test_what_is_killed_leaves_the_old_index(tmp_path):
    index.build(Made(np.eye(4)), numbers(3), tmp_path / "index")
    before = {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()}

    class Broken(Made):
        def stream(self, paths, total=None):
            yield from super().stream(paths[:1])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.build(Broken(np.eye(4)), ["3"], tmp_path / "index", add=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_odd_paths_survive(tmp_path):
    class Named(Made):
        def stream(self, paths, total=None):
            from runs.embedder import Batch

            yield Batch(list(range(len(paths))), self.vectors[: len(paths)], [])

    odd = ["a,b.jpg", 'quote".png', "line\nbreak.jpg", "é ü.jpg", "half\udcff.jpg", "<b>.jpg"]
    index.build(Named(np.eye(6)), odd, tmp_path / "index")
    assert Index(tmp_path / "index").paths == odd


@pytest.mark.parametrize("damage", ["shorter", "other", "gone", "garbled"])
def test_a_damaged_index_is_one_line(damage, tmp_path):
    place = tmp_path / "index"
    index.build(Made(np.eye(4)), numbers(4), place)
    if damage == "shorter":
        (place / "paths.csv").write_text("path\n0\n")
    elif damage == "other":
        index.build(Made(np.eye(3)), numbers(3), tmp_path / "three")
        shutil.copy(tmp_path / "three" / "index.faiss", place / "index.faiss")
    elif damage == "gone":
        (place / "vectors.npy").unlink()
    else:
        (place / "index.json").write_text("[]")
    with pytest.raises(UserError, match="anew") as error:
        Index(place).search(np.eye(4, dtype=np.float32)[:1], 2)
    assert "\n" not in str(error.value)


def test_folders_files_and_tables_are_listed_once_in_order(images, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("label,path\nx,images/3.jpg\ny,images/missing.jpg\nx,images/0.jpg\n")
    found = [Path(path).relative_to(tmp_path).as_posix() for path in sources.listed([str(table), str(images), str(images / "1.jpg")])]
    assert found[:3] == ["images/3.jpg", "images/missing.jpg", "images/0.jpg"]
    assert sorted(found[3:]) == ["images/1.jpg", "images/2.jpg", "images/4.jpg", "images/bad.jpg", "images/below/deep.png"]
    table.write_text("name,label\na,b\n")
    (tmp_path / "empty").mkdir()
    for wrong, told in ((table, "no column path"), (tmp_path / "none.jpg", "no such file"), (tmp_path / "empty", "no image")):
        with pytest.raises(UserError, match=told):
            sources.listed([str(wrong)])


def test_the_commands_from_images_to_answers(run, images, tmp_path, capsys):
    out = str(tmp_path / "index")
    about = retrieval.main(["index", str(run), str(images), "--out", out])
    told = capsys.readouterr()
    assert about["images"] == 6 and list(about["left_out"]) == [str(images / "bad.jpg")]
    assert "6 images, 8 dimensions, index exact" in told.out and "bad.jpg" in told.err and "left_out.csv" in told.err
    with open(Path(out) / "left_out.csv", newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == [str(images / "bad.jpg")]
    paths = [str(images / name) for name in ("0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg", "below/deep.png")]
    vectors = Embedder(run)(paths)
    assert sorted(Index(out).paths) == sorted(paths)
    expected = by_hand(vectors, vectors[2], 4)
    for ending in (".html", ".json", ".csv"):
        found = retrieval.main(["query", out, paths[2], "-k", "4", "--out", str(tmp_path / f"found{ending}")])
        assert [one.path for one in found] == [paths[i] for _, i in expected] and [one.rank for one in found] == [1, 2, 3, 4]
        np.testing.assert_allclose([one.distance for one in found], [d for d, _ in expected], atol=1e-5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4].split() == ["1", lines[-4].split()[1], paths[2]] and float(lines[-4].split()[1]) < 1e-5
    assert [one["path"] for one in json.loads((tmp_path / "found.json").read_text())] == [one.path for one in found]
    with open(tmp_path / "found.csv", newline="") as file:
        assert [(int(row["rank"]), row["path"]) for row in csv.DictReader(file)] == [(one.rank, one.path) for one in found]
    page = (tmp_path / "found.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 5 and "http://" not in page and "https://" not in page
    retrieval.main(["query", out, paths[2]])
    assert "1 of the queries are in the index" in capsys.readouterr().err
    found = retrieval.main(["query", out, paths[2], "-k", "3", "--exclude_self"])
    assert [one.path for one in found] == [paths[i] for _, i in expected[1:4]] and [one.rank for one in found] == [1, 2, 3]
    assert "--exclude_self" not in capsys.readouterr().err
    odd = [found[0]._replace(path=os.fsdecode(b"odd \xff.jpg"))]
    for ending in (".html", ".json", ".csv"):
        answers.write(odd, str(tmp_path / f"odd{ending}"), Embedder(run).preparation)
    assert b"odd \xff.jpg" in (tmp_path / "odd.csv").read_bytes()
    found = retrieval.main(["query", out, paths[0], paths[1], "-k", "99"])
    assert len(found) == 12 and f"{paths[1]}:" in capsys.readouterr().out


def test_a_page_escapes_names_and_says_what_is_gone():
    class Reader:
        def original(self, path):
            raise UserError("gone")

    name = '/x/<script>alert(1)</script>"&.jpg'
    page = answers.page([answers.Found(name, 1, 0.5, name)], Reader())

    class Tags(HTMLParser):
        seen = []

        def handle_starttag(self, tag, attributes):
            self.seen.append(tag)

    Tags().feed(page)
    assert "script" not in Tags.seen and page.count("no longer there") == 2 and "&lt;script&gt;" in page


def test_a_run_that_moved_or_changed_is_noticed(run, images, tmp_path):
    copy, out = tmp_path / "copy", str(tmp_path / "index")
    shutil.copytree(run, copy)
    retrieval.main(["index", str(copy), str(images), "--out", out])
    copy.rename(tmp_path / "moved")
    query = ["query", out, str(images / "0.jpg")]
    with pytest.raises(UserError, match="--run"):
        retrieval.main(query)
    assert len(retrieval.main([*query, "--run", str(tmp_path / "moved")])) == 6
    parameters = tmp_path / "moved" / "parameters.yaml"
    parameters.write_text(parameters.read_text().replace("crop_size: 36", "crop_size: 35"))
    for words in ([*query, "--run", str(tmp_path / "moved")], ["index", str(tmp_path / "moved"), str(images), "--out", out, "--add"]):
        with pytest.raises(UserError, match="other weights, or another transform"):
            retrieval.main(words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["index", "{run}", "{images}", "--out", "{index}"], "--add"),
        (["index", "{run}", "{images}", "--out", "{images}"], "exists"),
        (["index", "{run}", "{images}", "--out", "{new}", "--add"], "no index in"),
        (["index", "{run}", "{images}", "--out", "{index}", "--add", "--index", "hnsw"], "is of exact"),
        (["index", "{images}", "{images}", "--out", "{new}"], "parameters.yaml is missing"),
        (["index", "{run}", "{images}/bad.jpg", "--out", "{new}"], "none of the 1 images can be decoded"),
        (["index", "{run}", "{images}", "--out", "{new}", "--batch_size", "0"], "--batch_size 0 must be"),
        (["index", "{run}", "{images}", "--out", "{new}", "--index", "flat"], "invalid choice"),
        (["index", "{run}", "{images}", "--out", "{new}", "--code", "int9"], "is no code"),
        (["index", "{run}", "{images}", "--out", "{new}", "--code", "int8", "--index", "hnsw"], "leave out one of them"),
        (["index", "{run}", "{images}", "--out", "{new}", "--prefix", "9999"], "--prefix 9999: the embeddings of"),
        (["index", "{run}", "{images}", "--out", "{index}", "--add", "--prefix", "2"], "--prefix 2: the index in"),
        (["index", "{run}", "{images}", "--out", "{new}", "--code", "pq2"], "39 x 256"),
        (["index", "{run}", "{images}", "--out", "{new}", "--code", "pq3"], "does not divide"),
        (["index", "{run}", "{images}", "--out", "{new}", "--code", "binary", "--calibration", "{images}"], "learns nothing"),
        (["index", "{run}", "{images}", "--out", "{index}", "--add", "--code", "int8"], "is of float32"),
        (["index", "{run}", "{images}", "--out", "{index}", "--add", "--calibration", "{images}"], "stays as it is"),
        (["query", "{index}", "{images}/bad.jpg"], "bad.jpg cannot be decoded"),
        (["query", "{index}", "{images}/0.jpg", "-k", "0"], "-k 0 must be"),
        (["query", "{index}", "{images}/0.jpg", "--out", "page.txt"], ".html, .json, .csv"),
        (["query", "{images}", "{images}/0.jpg"], "no index in"),
        (["search"], "invalid choice"),
        ([], "required"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_status_2(words, told, run, images, tmp_path, capsys):
    from utilities.errors import one_line_errors

    place = {"run": run, "images": images, "index": tmp_path / "index", "new": tmp_path / "new"}
    if any("{index}" in word for word in words):
        retrieval.main(["index", str(run), str(images), "--out", str(place["index"])])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop, one_line_errors(retrieval.PROGRAM):
        retrieval.main([word.format(**place) for word in words])
    line = capsys.readouterr().err
    assert stop.value.code == 2 and line.count("\n") == 1 and told in line, line
    assert not place["new"].exists() and not list(tmp_path.glob(".*"))


def test_help_is_there_and_loads_no_heavy_package():
    code = (
        "import sys\nfrom retrieval.__main__ import parser\nparser()\n"
        "print([name for name in ('faiss', 'torchvision', 'sklearn', 'onnxruntime', 'timm') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"
    for command in ("index", "query", "export", "explore"):
        with pytest.raises(SystemExit) as stop:
            retrieval.main([command, "--help"])
        assert stop.value.code == 0


def test_what_a_kill_leaves_beside_a_folder_is_found_again_or_removed(tmp_path):
    out, before, staged = tmp_path / "index[1]", tmp_path / ".index[1].abc.before", tmp_path / ".index[1].def"
    before.mkdir()
    (before / "one").touch()
    staged.mkdir()
    folders.found_again(out)
    assert (out / "one").exists() and sorted(path.name for path in tmp_path.iterdir()) == ["index[1]"]
    staged.mkdir()
    with folders.replacing_folder(out) as hidden:
        (hidden / "two").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index[1]"] and [path.name for path in out.iterdir()] == ["two"]


def test_a_folder_is_whole_or_as_it_was(tmp_path):
    with folders.replacing_folder(tmp_path / "new") as hidden:
        (hidden / "a").write_text("1")
        assert not (tmp_path / "new").exists()
    with pytest.raises(RuntimeError), folders.replacing_folder(tmp_path / "new") as hidden:
        (hidden / "a").write_text("2")
        raise RuntimeError
    assert (tmp_path / "new" / "a").read_text() == "1" and [path.name for path in tmp_path.iterdir()] == ["new"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"), folders.replacing_folder(tmp_path / "file" / "in"):
        pass
