"""An index of own images: exact and approximate search, adding, images that cannot be decoded, the commands."""

import csv
import json
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import metrics
from retrieval import __main__ as retrieval
from retrieval import answers, data, folders, index, sources
from retrieval.index import Index
from runs import Embedder
from runs.embedder import Batch
from tests.kit.images import write_image
from tests.kit.refusals import refused
from utilities.codes import Codes
from utilities.errors import UserError, one_line_errors

EDGE = np.eye(4, dtype=np.float32)


class StubEmbedder:
    """An embedder of images by their place in `names`: rows of `vectors`. Of `killed_after` it is killed."""

    folder = Path(".")
    evaltype = "discriminative"
    fingerprint = "made"

    def __init__(self, vectors, names=None, killed_after=None):
        self.vectors = np.asarray(vectors, dtype=np.float32)
        self.killed_after = killed_after
        self.place = {name: place for place, name in enumerate(names or numbers(len(vectors)))}
        self.dimensions = self.vectors.shape[1]

    def stream(self, paths, total=None):
        for start in range(0, len(paths), 1000):
            places = list(range(start, min(start + 1000, len(paths))))
            yield Batch(places, self.vectors[[self.place[paths[place]] for place in places]], [])
            if paths[start] == self.killed_after:
                raise KeyboardInterrupt


def random_vectors(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def build(vectors, names, out, *words, **settings):
    """An index of some of these vectors, by their numbers."""
    return index.build(StubEmbedder(vectors), names, out, *words, **settings)


def by_hand(vectors, query, k):
    """(distance, row) of the k nearest, in float64 loops; of equal ones the earlier first."""
    query = query.astype(np.float64)
    distances = [sum((query - row) ** 2) ** 0.5 for row in vectors.astype(np.float64)]
    return sorted((distance, row) for row, distance in enumerate(distances))[:k]


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def numbers(count):
    return [str(i) for i in range(count)]


@pytest.fixture
def images(tmp_path):
    """Five images in a folder and one below it, one that cannot be decoded, and what is no image."""
    for i in range(5):
        write_image(tmp_path / "images" / f"{i}.jpg", i)
    write_image(tmp_path / "images" / "below" / "deep.png", 9)
    (tmp_path / "images" / "bad.jpg").write_bytes(b"\xff\xd8 no")
    (tmp_path / "images" / "notes.txt").write_text("no image")
    (tmp_path / "images" / ".hidden.jpg").write_bytes(b"")
    return tmp_path / "images"


def test_exact_search_is_that_of_loops_ties_and_duplicates_included(tmp_path):
    # many equal ones
    vectors = np.random.default_rng(0).integers(0, 3, (60, 3)).astype(np.float32)
    content = build(vectors, numbers(60), tmp_path / "index")
    assert (content["images"], content["index"], content["recall"], content["left_out"]) == (60, "exact", None, {})
    searched = Index(tmp_path / "index")
    distances, rows = searched.search(vectors[:20], 7)
    for i in range(20):
        expected = by_hand(vectors, vectors[i], 60)
        np.testing.assert_allclose(distances[i], [d for d, _ in expected[:7]], atol=1e-12)
        nearer = {row for d, row in expected if d < expected[6][0]}
        assert distances[i][0] == 0 and set(rows[i][distances[i] < distances[i][-1]]) == nearer
    distances, rows = searched.search(vectors[:2], 100)
    assert rows.shape == (2, 60) and sorted(rows[0]) == list(range(60))
    assert [row for _, row in by_hand(vectors, vectors[0], 60)] == rows[0].tolist()


@pytest.mark.parametrize(("kind", "dimensions"), [("hnsw", 18), pytest.param("ivfpq", 9, marks=pytest.mark.long)])
def test_approximate_search_finds_nearly_all_and_says_how_much(kind, dimensions, tmp_path, monkeypatch):
    size = 1500
    monkeypatch.setattr(index, "LEAST_IVFPQ", size)
    generator = np.random.default_rng(1)
    centres = generator.normal(size=(60, dimensions))[generator.integers(60, size=size)]
    vectors = (centres + 0.3 * generator.normal(size=(size, dimensions))).astype(np.float32)
    recall = build(vectors, numbers(size), tmp_path / kind, kind)["recall"]
    # those of the recall
    queries = np.sort(np.random.default_rng(1).choice(size, size=index.RECALL_QUERIES, replace=False))
    distances, rows = Index(tmp_path / kind).search(vectors[queries], 11)
    exact = np.linalg.norm(vectors[queries, None].astype(np.float64) - vectors[None], axis=2)
    exact[np.arange(len(queries)), queries] = np.inf
    farthest = np.sort(exact)[:, 9] + 1e-9
    hits = sum((distances[i][rows[i] != query][:10] <= farthest[i]).sum() for i, query in enumerate(queries))
    assert (recall["at"], recall["queries"]) == (10, len(queries)) and recall["recall"] > 0.9
    assert recall["recall"] == pytest.approx(hits / (10 * len(queries)), abs=0.002)
    assert (np.diff(distances, axis=1) >= 0).all() and np.allclose(distances[:, 0], 0)


def test_a_bad_index_shows_in_the_recall_and_ivfpq_of_few_images_is_refused(tmp_path, monkeypatch):
    vectors = random_vectors(2, 3000, 16)
    monkeypatch.setattr(index, "_candidates", lambda *_: np.random.default_rng(0).integers(3000, size=(200, 11)))
    assert build(vectors, numbers(3000), tmp_path / "index", "hnsw")["recall"]["recall"] < 0.05
    with refused(r"10,000 images.*50.*exact"):
        build(np.eye(50), numbers(50), tmp_path / "none", "ivfpq")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def coded(name, vectors):
    if name is None:
        return None
    codes = Codes(name, vectors.shape[1])
    codes.calibrate(random_vectors(9, 1000, vectors.shape[1]))
    return codes


@pytest.mark.parametrize(("kind", "code"), [("exact", None), ("hnsw", None), ("exact", "int8"), ("exact", "binary")])
def test_adding_gives_the_index_of_all_and_keeps_the_code(kind, code, tmp_path):
    vectors = random_vectors(3, 50, 6)
    first = build(vectors, numbers(30), tmp_path / "grown", kind, coded=coded(code, vectors))
    content = build(vectors, numbers(50)[20:], tmp_path / "grown", kind, add=True)
    assert (content["images"], content["added"], content["code"]) == (50, 20, code or "float32")
    assert code is None or content["recall"] == first["recall"]
    assert content["copies"] == [] or code == "binary"
    build(vectors, numbers(50), tmp_path / "whole", kind, coded=coded(code, vectors))
    grown = Index(tmp_path / "grown")
    at_once = Index(tmp_path / "whole")
    assert grown.paths == at_once.paths and np.array_equal(grown.vectors, at_once.vectors)
    for results in zip(grown.search(vectors, 5), at_once.search(vectors, 5), strict=True):
        assert np.array_equal(*results)
    assert build(vectors, numbers(50), tmp_path / "grown", kind, add=True)["added"] == 0


@pytest.mark.parametrize("code", [None, "int8"])
def test_the_same_vectors_under_other_paths_are_told(code, tmp_path):
    grown = tmp_path / "grown"
    vectors = random_vectors(3, 40, 6)
    # vectors that differ as those of the same image in another batch do
    vectors[30:33] = vectors[3:6] * np.float32(1 + 1e-7)
    vectors[39] = vectors[38]
    assert build(vectors, numbers(30), grown, coded=coded(code, vectors))["copies"] == []
    assert "copies" not in json.loads((grown / index.ABOUT).read_text())
    copies = [("30", "3"), ("31", "4"), ("32", "5"), ("38", "39"), ("39", "38")]
    assert build(vectors, numbers(40), grown, add=True)["copies"] == copies
    assert build(vectors, numbers(40), grown, add=True)["copies"] == []


@pytest.mark.parametrize("name", ["int8", "binary"])
def test_an_index_of_codes_finds_what_the_codes_find_and_keeps_nothing_else(name, tmp_path):
    vectors = random_vectors(4, 80, 8)
    content = build(vectors, numbers(80), tmp_path / "index", coded=coded(name, vectors))
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == ["index.faiss", "index.json", "paths.csv"]
    expected = coded(name, vectors)
    expected.add(vectors)
    # the code is in the folder
    moved = Index(shutil.move(tmp_path / "index", tmp_path / "moved"))
    assert (moved.code, moved.vectors, content["code"], content["images"]) == (name, None, name, 80)
    for results in zip(*(i.search(vectors[:9], 5, rescored=3) for i in (moved, expected)), strict=True):
        assert np.array_equal(*results)
    hits = 0
    for i, rows in enumerate(expected.search(vectors, 11)[1].tolist()):
        exact = {row for _, row in by_hand(vectors, vectors[i], 11) if row != i}
        hits += len(exact & {*[row for row in rows if row != i][:10]})
    assert content["recall"] == {"at": 10, "queries": 80, "recall": pytest.approx(hits / 800), "images": 80}


def test_the_commands_of_codes_learn_from_training_images(run, images, tmp_path):
    words = ["index", str(run), str(images), "--code", "int8", "--out"]
    out = tmp_path / "index"
    assert retrieval.main([*words, str(out)])["code"] == "int8"
    embedder = Embedder(run)
    searched = Index(out)
    rows = np.arange(6)
    training = embedder(data.split(embedder, "train").paths)
    expected = Codes("int8", training.shape[1])
    expected.calibrate(training)
    expected.add(embedder(searched.paths))
    assert (searched.faiss.decoded(rows) == expected.decoded(rows)).all()
    assert len(retrieval.main(["query", str(out), str(images / "0.jpg"), "-k", "3", "--rescore_multiplier", "2"])) == 3
    retrieval.main([*words, str(tmp_path / "b"), "--calibration", str(images / "0.jpg"), str(images / "1.jpg")])
    assert not np.array_equal(Index(tmp_path / "b").faiss.decoded(rows), searched.faiss.decoded(rows))


def test_an_index_of_a_prefix_is_cut_brought_to_length_and_then_coded(run, images, tmp_path):
    out = tmp_path / "index"
    words = ["index", str(run), str(images), "--prefix", "3", "--out"]
    assert retrieval.main([*words, str(out)])["dimensions"] == 3
    searched = Index(out)
    cut = Embedder(run)(searched.paths).astype(np.float64)[:, :3]
    cut = np.array([[x / sum(y**2 for y in row) ** 0.5 for x in row] for row in cut])
    assert np.abs(searched.vectors - cut).max() < 1e-6
    results = retrieval.main(["query", str(out), str(images / "0.jpg"), "-k", "6"])
    query = cut[[Path(path).name for path in searched.paths].index("0.jpg")]
    expected = [distance for distance, _ in by_hand(cut, query, 6)]
    assert [answer.distance for answer in results] == pytest.approx(expected, abs=1e-6)
    retrieval.main([*words, str(tmp_path / "coded"), "--code", "binary"])
    assert ((Index(tmp_path / "coded").faiss.decoded(np.arange(6)) > 0) == (cut > 0)).all()
    assert retrieval.main([*words, str(out), "--add"])["added"] == 0


def test_what_is_killed_leaves_the_old_index_and_odd_paths_survive(tmp_path):
    place = tmp_path / "index"
    odd = ["a,b.jpg", 'quote".png', "line\nbreak.jpg", "é ü.jpg", "half\udcff.jpg", "<b>.jpg"]
    index.build(StubEmbedder(np.eye(6), odd), odd[:5], place)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        index.build(StubEmbedder(np.eye(6), odd, killed_after=odd[5]), odd[5:], place, add=True)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    index.build(StubEmbedder(np.eye(6), odd), odd[5:], place, add=True)
    assert Index(place).paths == odd


def replace(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def remove_vectors(place, donor):
    vectors = place / "vectors.npy"
    if not vectors.exists():
        vectors = place / "index.faiss"
    vectors.unlink()


DAMAGES = {
    "fewer paths": lambda place, donor: (place / "paths.csv").write_text("path\n0\n"),
    "another index of faiss": lambda place, donor: shutil.copy(donor / "index.faiss", place / "index.faiss"),
    "no vectors": remove_vectors,
    "emptied vectors": lambda place, donor: (place / "vectors.npy").write_bytes(b""),
    "broken faiss": lambda place, donor: (place / "index.faiss").write_bytes(b"no"),
    "a list": lambda place, donor: (place / "index.json").write_text("[]"),
    "an unknown code": lambda place, donor: replace(place / "index.json", '"code": "', '"code": "z'),
}


@pytest.mark.parametrize("code", [None, "int8"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_one_line(damage, code, tmp_path):
    # An index of codes has no file of vectors that could be emptied
    if (code, damage) == ("int8", "emptied vectors"):
        return
    place = tmp_path / "index"
    build(EDGE[:3], numbers(3), tmp_path / "other")
    build(EDGE, numbers(4), place, coded=coded(code, EDGE))
    DAMAGES[damage](place, tmp_path / "other")
    named_files = [place / "vectors.npy"] if damage == "emptied vectors" else []
    with refused("anew", *named_files):
        Index(place).search(EDGE[:1], 2)


def test_folders_files_and_tables_are_listed_once_in_order(images, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("label,path\nx,images/3.jpg\ny,images/missing.jpg\nx,images/0.jpg\n")
    listed = sources.listed([str(table), str(images), str(images / "1.jpg")])
    names = ["3.jpg", "missing.jpg", "0.jpg", "1.jpg", "2.jpg", "4.jpg", "bad.jpg", "below/deep.png"]
    assert [Path(path).relative_to(images).as_posix() for path in listed] == names
    table.write_text("name,label\na,b\n")
    (tmp_path / "empty").mkdir()
    for name, message in (("list.csv", "no column path"), ("none.jpg", "no such file"), ("empty", "no image")):
        with refused(message):
            sources.listed([str(tmp_path / name)])


def ranked(neighbours):
    return [(neighbour.rank, neighbour.path) for neighbour in neighbours]


def test_files_that_are_not_read_are_counted_and_dark_images_told(images, tmp_path):
    for name in ("1.heic", "below/2.heic", "notes"):
        (images / name).write_bytes(b"x")
    Image.fromarray(np.full((8, 8), 4095, dtype=np.uint16)).save(images / "dark.png")
    (images / "loop").symlink_to(images)
    paths, notes = sources.listed_with_notes([str(images)])
    assert len(paths) == 8
    text = "\n".join(notes)
    counts = "2 .heic, 1 without an ending, 1 .txt"
    assert f"note: 4 files are not read, as their endings are none of images: {counts}" in text
    dark = f"the highest value in 1 of them is 4,095 of 65,535, in {images / 'dark.png'}"
    assert f"note: 16-bit images are decoded almost black: {dark}" in text
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/1.heic").write_bytes(b"x")
    with refused("no image, of which.*; 1 files are not read"):
        sources.listed([str(tmp_path / "raw")])


def reranked_as_measured(out, paths, vectors, capsys):
    """Rows are those of `metrics` on the index's vectors; a note says what orders them."""
    in_index = {"reference": vectors, "reference_labels": np.zeros(len(vectors), int), "exclude": np.array([2])}
    for words, rerank in (
        ("--rerank superglobal --rerank_m 5 --rerank_k 2", metrics.SuperGlobal(5, 2)),
        ("--rerank_dba 2 1 --rerank alpha_qe", metrics.DatabaseAugmentation(2, 1.0, metrics.AlphaExpansion())),
    ):
        space = metrics.EmbeddingSpace(vectors[[2]], [0], **in_index)
        space.search = rerank.search(space)
        neighbours = retrieval.main(["query", out, paths[2], "-k", "4", "--exclude_self", *words.split()])
        assert [neighbour.path for neighbour in neighbours] == [paths[row] for row in space.neighbours(4)[0]]
        rows = [paths.index(neighbour.path) for neighbour in neighbours]
        expected = np.linalg.norm(vectors[rows].astype(float) - vectors[2], axis=1)
        np.testing.assert_allclose([neighbour.distance for neighbour in neighbours], expected, atol=1e-5)
        assert "distances are those of the embeddings" in capsys.readouterr().err
    file = Path(out).with_name("pairs.py")
    file.write_text("def score(queries, images):\n    return [image.count('1') for image in images]\n")
    words = ["--rerank_pairs", str(file), "--rerank_pairs_top", "3", "--exclude_self", "-k", "3"]
    plain = retrieval.main(["query", out, paths[2], "--exclude_self", "-k", "3"])
    neighbours = retrieval.main(["query", out, paths[2], *words])
    expected = sorted((neighbour.path for neighbour in plain), key=lambda path: -path.count("1"))
    assert [neighbour.path for neighbour in neighbours] == expected
    for wrong, message in (
        ("--rerank superglobal --threshold .4", "--threshold .4 goes by distances, which --rerank superglobal does"),
        ("--rerank_m 5", "--rerank_m 5 has no effect without --rerank superglobal"),
        ("--rerank_pairs none.py", "--rerank_pairs none.py: no such file"),
    ):
        with refused(None, message):
            retrieval.main(["query", out, paths[2], *wrong.split()])
    capsys.readouterr()


def test_the_commands_from_images_to_answers(run, images, tmp_path, capsys):
    out = str(tmp_path / "index")
    bad = str(images / "bad.jpg")
    content = retrieval.main(["index", str(run), str(images), "--out", out])
    output = capsys.readouterr()
    assert content["images"] == 6 and list(content["left_out"]) == [bad]
    assert "6 images, 8 dimensions, index exact" in output.out
    assert "bad.jpg" in output.err and "left_out.csv" in output.err
    assert [row["path"] for row in read_csv(Path(out) / "left_out.csv")] == [bad]
    paths = [str(images / name) for name in ("0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg", "below/deep.png")]
    vectors = Embedder(run)(paths)
    assert sorted(Index(out).paths) == sorted(paths)
    distances, rows = zip(*by_hand(vectors, vectors[2], 4), strict=True)
    expected = [(rank, paths[row]) for rank, row in enumerate(rows, 1)]
    for ending in (".html", ".json", ".csv"):
        neighbours = retrieval.main(["query", out, paths[2], "-k", "4", "--out", str(tmp_path / f"found{ending}")])
        assert ranked(neighbours) == expected
        np.testing.assert_allclose([neighbour.distance for neighbour in neighbours], distances, atol=1e-5)
    output = capsys.readouterr()
    rank, distance, path = output.out.splitlines()[-4].split()
    assert (rank, path) == ("1", paths[2]) and float(distance) < 1e-5
    assert "1 of the queries are in the index" in output.err
    of_json = json.loads((tmp_path / "found.json").read_text())
    for written in (of_json, read_csv(tmp_path / "found.csv")):
        assert [(int(row["rank"]), row["path"]) for row in written] == expected
    page = (tmp_path / "found.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 5 and "http://" not in page and "https://" not in page

    neighbours = retrieval.main(["query", out, paths[2], "-k", "3", "--exclude_self"])
    assert ranked(neighbours) == [(rank - 1, path) for rank, path in expected[1:]]
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 3, "answers alone, which other programs read"
    (line,) = output.err.splitlines()
    assert line.startswith("next: python -m retrieval query ") and line.endswith(" --exclude_self")
    proposed = shlex.split(line)[4:]
    place = proposed.index("--out") + 1
    page = tmp_path / proposed[place]
    proposed[place] = str(page)
    assert retrieval.main(proposed) == neighbours and page.exists()
    assert capsys.readouterr().err == f"next: python -m webbrowser {page.as_uri()}\n"
    reranked_as_measured(out, paths, vectors, capsys)
    odd = [neighbours[0]._replace(path=os.fsdecode(b"odd \xff.jpg"))]
    for ending in (".html", ".json", ".csv"):
        answers.write(odd, str(tmp_path / f"odd{ending}"), Embedder(run).preparation)
    assert b"odd \xff.jpg" in (tmp_path / "odd.csv").read_bytes()
    neighbours = retrieval.main(["query", out, paths[0], paths[1], "-k", "99"])
    assert len(neighbours) == 12 and f"{paths[1]}:" in capsys.readouterr().out


def test_images_added_under_another_path_are_told_with_the_way_out(run, images, tmp_path, capsys):
    out = str(tmp_path / "index")
    retrieval.main(["index", str(run), str(images), "--out", out])
    assert "same vector" not in capsys.readouterr().err
    shutil.copytree(images, tmp_path / "moved")
    retrieval.main(["index", str(run), str(tmp_path / "moved"), "--out", out, "--add"])
    output = capsys.readouterr().err
    pair = f"such as {tmp_path / 'moved/0.jpg'} and {images / '0.jpg'}"
    assert f"note: 6 of these images have the same vector as another image of the index, {pair}" in output
    assert "make the index anew without --add" in output


def test_a_page_escapes_names_and_says_what_is_gone():
    class Reader:
        def original(self, path):
            raise UserError("gone")

    name = '/x/<script>alert(1)</script>"&.jpg'
    page = answers.page([answers.Neighbour(name, 1, 0.5, name)], Reader())
    assert "<script" not in page and page.count("no longer there") == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;.jpg" in page


def test_a_folder_is_whole_or_as_it_was_and_what_a_kill_leaves_is_found_again_or_removed(tmp_path):
    def names(folder=tmp_path):
        return sorted(path.name for path in folder.iterdir())

    out = tmp_path / "index[1]"
    before = tmp_path / ".index[1].abcdefgh.before"
    staged = tmp_path / ".index[1].ijklmnop"
    for folder in (before, staged):
        folder.mkdir()
    (before / "one").touch()
    folders.found_again(out)
    assert (out / "one").exists() and names() == ["index[1]"]
    staged.mkdir()
    with folders.replacing_folder(out) as hidden:
        (hidden / "two").touch()
        assert names(out) == ["one"]
    with pytest.raises(RuntimeError), folders.replacing_folder(out) as hidden:
        (hidden / "three").touch()
        raise RuntimeError
    assert names() == ["index[1]"] and names(out) == ["two"]
    (tmp_path / "file").write_text("")
    with refused("cannot write"), folders.replacing_folder(tmp_path / "file" / "in"):
        pass


def test_a_run_that_moved_or_changed_is_noticed(run, images, tmp_path):
    moved = tmp_path / "moved"
    out = str(tmp_path / "index")
    copy = shutil.copytree(run, tmp_path / "copy")
    retrieval.main(["index", str(copy), str(images), "--out", out])
    copy.rename(moved)
    query = ["query", out, str(images / "0.jpg")]
    with refused("--run"):
        retrieval.main(query)
    assert len(retrieval.main([*query, "--run", str(moved)])) == 6
    replace(moved / "parameters.yaml", "crop_size: 16", "crop_size: 17")
    for words in ([*query, "--run", str(moved)], ["index", str(moved), str(images), "--out", out, "--add"]):
        with refused("other weights, or another transform.*python -m evaluation upgrade"):
            retrieval.main(words)


MISTAKES = [
    ("index {run} {images} --out {index}", "--add"),
    ("index {run} {images} --out {images}", "exists"),
    ("index {run} {images} --out {new} --add", "no index in"),
    ("index {run} {images} --out {index} --add --index hnsw", "is of exact"),
    ("index {run} {images}/bad.jpg --out {new}", "none of the 1 images can be decoded"),
    ("index {run} {images} --out {new} --code int8 --index hnsw", "leave out one of them"),
    ("index {run} {images} --out {new} --prefix 9999", "--prefix 9999: the embeddings of"),
    ("index {run} {images} --out {index} --add --prefix 2", "--prefix 2: the index in"),
    ("index {run} {images} --out {new} --code pq2", "39 x 256"),
    ("index {run} {images} --out {new} --code binary --calibration {images}", "learns nothing"),
    ("index {run} {images} --out {index} --add --code int8", "is of float32"),
    ("index {run} {images} --out {index} --add --checkpoint last", "--checkpoint last: the index in"),
    ("index {run} {images} --out {index} --add --calibration {images}", "stays as it is"),
    ("query {index} {images}/bad.jpg", "bad.jpg cannot be decoded"),
    ("query {index} {images}/0.jpg --out page.txt", ".html, .json, .csv"),
    ("query {images} {images}/0.jpg", "no index in"),
    ("", "required"),
]


def test_mistakes_are_one_line_and_status_2_and_there_is_help(run, images, tmp_path, capsys):
    place = {"run": run, "images": images, "index": tmp_path / "index", "new": tmp_path / "new"}
    retrieval.main(["index", str(run), str(images), "--out", str(place["index"])])
    capsys.readouterr()
    for words, message in MISTAKES:
        with pytest.raises(SystemExit) as stop, one_line_errors(retrieval.PROGRAM):
            retrieval.main([word.format(**place) for word in words.split()])
        line = capsys.readouterr().err
        assert stop.value.code == 2 and line.count("\n") == 1 and message in line, (words, line)
        assert not place["new"].exists() and not list(tmp_path.glob(".*")), words
    for command in ("index", "query", "serve", "export", "explore"):
        with pytest.raises(SystemExit) as stop:
            retrieval.main([command, "--help"])
        assert stop.value.code == 0
