"""The explorer's page: its numbers by loops, its data within bounds, and what a click does in a real browser."""

import base64
import collections
import io
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import pairwise_distances

import main
import metrics
import parameters
from metrics import fnmr
from pictures import maps, thumbnails
from retrieval import __main__ as retrieval
from retrieval import explore, pairs
from runs import Embedder
from tests.kit.images import random_picture, write_image
from tests.kit.plain_metrics import plain_value
from tests.kit.runs import SHORT_RUN
from tests.kit.splits import save
from tests.retrieval import _browser
from utilities.errors import one_line_errors

PLAIN_TILES = "[...document.querySelectorAll('#neighbours .tile')]"


NASTY = '</script><b id="injected">&"\u2028'


def explored(source, page, *words):
    """What the page of a file or a run holds."""
    retrieval.main(["explore", str(source), "--out", str(page), *words])
    return written(page)


def explored_arrays(folder, *words, **arrays):
    """What the page of a file of these arrays holds."""
    return explored(*save(folder, file=arrays), folder / "file.html", *words)


def written(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="content" type="application/json">(.*?)</script>', text, re.DOTALL)[1])


def unpacked(text, kind, rows=None):
    values = np.frombuffer(base64.b64decode(text), dtype=kind)
    return values if rows is None else values.reshape(rows, -1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Thirty embeddings of six classes in two super-classes, with pictures but for one; names that are markup."""
    folder = tmp_path_factory.mktemp("explored")
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 5)
    features = (generator.normal(size=(6, 7))[labels] + 0.6 * generator.normal(size=(30, 7))).astype(np.float32)
    paths = [str(write_image(folder / f"{i}.png", i)) for i in range(29)] + [str(folder / f"gone {NASTY[2:5]}.png")]
    names = {"class_names": [f"class {label} {NASTY}" for label in labels]}
    names["super_names"] = np.array(["even", "odd"])[labels % 2]
    return Path(*save(folder, e={"features": features, "labels": labels * 3 + 2, "paths": paths, **names}))


@pytest.fixture(scope="module")
def page(file):
    """The page of that file."""
    out = file.with_suffix(".html")
    explored(file, out, "--neighbours", "6", "--fmr", ".2", ".05")
    return out


@pytest.fixture
def content(page):
    return written(page)


def test_numbers_are_those_of_loops(file, content):
    arrays = np.load(file)
    labels = (arrays["labels"] - 2) // 3
    measured = pairwise_distances(arrays["features"].astype(np.float64))
    np.fill_diagonal(measured, np.inf)
    neighbours = unpacked(content["neighbours"], "<u4", 30)
    distances = unpacked(content["distances"], "<f4", 30)
    wrong = collections.Counter()
    for i in range(30):
        order = sorted(range(30), key=lambda j: (measured[i, j], j))[:29]
        assert neighbours[i].tolist() == order[:6]
        np.testing.assert_allclose(distances[i], measured[i][order[:6]], rtol=1e-5)
        hits = [labels[j] == labels[i] for j in order]
        expected = plain_value("map_r", hits, 4, None)
        assert unpacked(content["precision"], "<f4")[i] == pytest.approx(expected, abs=1e-6)
        if not hits[0]:
            wrong[labels[i], labels[order[0]]] += 1
    assert {(a, b): count for a, b, count, _ in content["confusions"]} == wrong and wrong
    assert [row[2] for row in content["confusions"]] == sorted(wrong.values(), reverse=True)
    # the last has no other image
    of_sizes = explore.confusions(np.array([0, 0, 0, 1, 2, 2]), np.array([3, 3, 4, 0, 3, -1]))
    assert of_sizes == [[0, 1, 2, 2 / 3], [1, 0, 1, 1.0], [2, 1, 1, 1 / 2], [0, 2, 1, 1 / 3]]
    assert content["classes"] == [f"class {label} {NASTY}" for label in range(6)] and content["superOf"] == [0, 1] * 3
    upper = [(measured[i, j], labels[i] == labels[j]) for i in range(30) for j in range(i)]
    same_class = np.array([distance for distance, alike in upper if alike])
    different_class = np.array([distance for distance, alike in upper if not alike])
    histogram = content["histogram"]
    assert histogram["counts"] == [len(same_class), len(different_class)] == [60, 375]
    for threshold in histogram["thresholds"]:
        limit = threshold["distance"] - 1e-6
        assert sum(different_class < limit) == math.floor(threshold["fmr"] * 375)
        assert threshold["fnmr"] == pytest.approx(sum(same_class >= limit) / 60, abs=1e-9)
        name = f"fnmr@{threshold['fmr']:g}".replace("@0.", "@.")
        assert threshold["fnmr"] == metrics.compute(name, arrays["features"], labels)[name]
    counts = np.histogram(same_class, bins=100, range=(0, histogram["most"]))[0]
    np.testing.assert_allclose(histogram["same"], counts / 60, atol=2 / 60)


@pytest.mark.parametrize(
    ("different", "rate", "at"),
    [([3, 5, 9, 17], 0.5, 8), ([2, 2, 2, 2], 0.5, 1), ([*range(2, 14)], 0.29, 3), ([0.5], 0.99, 0.5)],
)
def test_no_more_than_the_rate_match_at_the_threshold(different, rate, at):
    # a class of two, each of the others a class of its own
    x = np.array([0, 1, *different], dtype=np.float64)[:, None]
    labels = np.array([0, 0, *range(1, len(different) + 1)])
    threshold, missed = fnmr.operating_point(metrics.EmbeddingSpace(x, labels), rate)
    pairs_of_two = [(i, j) for i in range(len(x)) for j in range(i) if labels[i] != labels[j]]
    distances = sorted(float(abs(x[i, 0] - x[j, 0])) for i, j in pairs_of_two)
    assert threshold == pytest.approx(at) == pytest.approx(distances[math.floor(rate * len(distances) + 1e-9)])
    assert missed == float(threshold - 1e-6 <= 1)
    assert np.isnan(fnmr.operating_point(metrics.EmbeddingSpace(x, np.zeros(len(x), int)), rate)).all()


def test_what_the_page_does_not_heed_is_said(file, content, tmp_path):
    flags = {"eval_space": "hyperbolic", "rerank": "alpha_qe", "eval_reference_set": "compared_to_self", "eval_pca": 2}
    arrays = {**np.load(file), "is_query": np.arange(30) < 9, "is_gallery": np.arange(30) > 5}
    arrays |= {"role_draws": np.ones((2, 30), bool), "flags": np.array(json.dumps(flags))}
    notes = " ".join(explored_arrays(tmp_path, "--no_thumbnails", **arrays)["notes"])
    assert "Roles and sequences of the images are ignored" in notes
    assert "--eval_space hyperbolic, --rerank alpha_qe of" in notes
    assert "--eval_pca" not in notes, "the rows of a file are after it"
    assert "heeded" not in " ".join(content["notes"])


def test_sampled_pairs_are_of_the_kinds_that_they_are_said_to_be(monkeypatch):
    monkeypatch.setattr(pairs, "ALL_UP_TO", 5)
    labels = np.array([0, 1, 1, 2, 2, 2, 3, 0])
    points = (labels * 100 + np.arange(8)).astype(np.float32)[:, None]
    same_class, different_class, text = pairs.distances(points, labels, 0)
    assert {*same_class.tolist()} == {1, 2, 7} and (different_class > 90).all() and "random pairs" in text
    assert len(pairs.distances(np.zeros((6, 1), np.float32), np.arange(6), 0)[0]) == 0


def test_maps_keep_neighbours_together_and_stand_what_is_degenerate():
    generator = np.random.default_rng(0)
    labels = generator.integers(4, size=120)
    features = (8 * generator.normal(size=(4, 20))[labels] + generator.normal(size=(120, 20))).astype(np.float32)
    for how, size in (("pca", 5000), ("tsne", 5000), ("tsne", 60)):
        plane, text = maps.places(features, how, size, 0)
        nearest = np.argsort(pairwise_distances(plane), axis=1)[:, 1]
        assert plane.shape == (120, 2) and np.isfinite(plane).all()
        assert (labels[nearest] == labels).mean() > 0.95, (how, size)
        assert ("60 random images; each of the other 60" in text) == (size == 60)
    assert np.array_equal(plane, maps.places(features, "tsne", 60, 0)[0])
    for odd in (np.zeros((9, 3)), np.ones((1, 5)), np.ones((6, 1)) * np.arange(6)[:, None], np.repeat(np.eye(2), 4, 0)):
        assert np.isfinite(maps.places(odd.astype(np.float32), "tsne", 5000, 2**32 + 1)[0]).all()


@pytest.mark.parametrize("labels", [[0] * 6, [0, 1, 2, 3, 4, 5], [0, 0, 1, 2, 2, 2], [0]])
def test_spaces_of_one_class_singletons_and_one_image(labels, tmp_path):
    features = np.random.default_rng(0).normal(size=(len(labels), 3))
    content = explored_arrays(tmp_path, "--neighbours", "50", features=features, labels=labels)
    is_singleton = np.bincount(labels)[labels] == 1
    assert np.isnan(unpacked(content["precision"], "<f4")).tolist() == is_singleton.tolist()
    assert (content["meanPrecision"] is None) == is_singleton.all()
    assert content["size"] == len(labels) and content["sheets"] is None


def image_of(address):
    """The pixels of a picture in a page."""
    return np.array(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_names_are_data_and_nothing_is_asked_of_any_address(page):
    text = page.read_text(encoding="utf-8")
    assert NASTY not in text and "default-src 'none'" in text
    code = re.sub(r'<script id="content".*?</script>', "", text, flags=re.DOTALL)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", code) and "innerHTML" not in code


def test_thumbnails_lie_where_the_page_looks_and_within_their_bytes():
    sheets = thumbnails.Sheets(300)
    for i in range(300):
        sheets.put(i, torch.full((3, 20, 40), i % 256, dtype=torch.uint8))
    images = list(map(image_of, sheets.addresses()))
    assert len(images) == 2 and sheets.side == 64 and images[0].shape == (1024, 1024, 3)
    for i in (0, 17, 255, 256, 299):
        tile = i % 256
        middle = images[i // 256][tile // 16 * 64 + 32, tile % 16 * 64 + 32]
        assert np.abs(middle.astype(int) - i % 256).max() <= 4
    noise, tight = (thumbnails.Sheets(256) for _ in range(2))
    noise.pixels[:] = np.random.default_rng(0).integers(0, 256, noise.pixels.shape)
    tight.pixels[:] = noise.pixels
    full = sum(map(len, noise.addresses()))
    small = tight.addresses(60_000)
    assert sum(map(len, small)) <= 60_000 * 4 / 3 + 100 < full and tight.side < 64
    # With all the rest, a page of 5,000 images stays below 30 MB
    assert thumbnails.MOST_BYTES * 4 / 3 < 25e6


def needs_browser():
    if _browser.program() is None:
        pytest.skip("no browser here: chromium or google-chrome")


@pytest.fixture
def browser(page):
    needs_browser()
    with _browser.opened(page.as_uri()) as opened:
        yield opened


def tiles(browser, place="#neighbours"):
    return browser.run(f"[...document.querySelectorAll('{place} .tile')].map(tile => +tile.dataset.image)")


def set_to(browser, name, value, event="change"):
    browser.run(f"$('{name}').value = '{value}'; $('{name}').dispatchEvent(new Event('{event}'))")


def test_a_click_changes_the_neighbours(browser, content):
    neighbours = unpacked(content["neighbours"], "<u4", 30)
    distances = unpacked(content["distances"], "<f4", 30)
    labels = unpacked(content["labels"], "<u4")
    worst = np.argmin(unpacked(content["precision"], "<f4"))
    assert browser.run("state.query") == worst and tiles(browser) == neighbours[worst].tolist()
    assert browser.run("document.querySelector('#query canvas') !== null && scrollY === 0")
    assert len(tiles(browser, "#worst")) == 30
    spots = browser.run(f"[...Array(30).keys()].map(i => {SPOT})")
    lonely = max(range(30), key=lambda i: min(math.dist(spots[i], spots[j]) for j in range(30) if j != i))
    for chosen in (lonely, max(set(range(30)) - {lonely}, key=lambda i: math.dist(spots[i], spots[lonely]))):
        browser.click(*spots[chosen])
        query = browser.run("+document.querySelector('#query').dataset.image")
        assert math.dist(spots[query], spots[chosen]) < 15 and tiles(browser) == neighbours[query].tolist()
        marks = browser.run(f"{PLAIN_TILES}.map(tile => tile.classList.contains('right'))")
        assert marks == [bool(labels[j] == labels[query]) for j in neighbours[query]]
        texts = browser.run("[...document.querySelectorAll('#neighbours .tile b')].map(b => b.textContent)")
        printed = [float(text.split("·")[1]) for text in texts]
        assert printed == pytest.approx(distances[query].tolist(), abs=6e-5)
    browser.run("document.querySelector('#neighbours .tile').scrollIntoView()")
    box = browser.run(f"(b => [b.left + 20, b.top + 20])({PLAIN_TILES}[1].getBoundingClientRect())")
    before = tiles(browser)
    browser.click(*box)
    assert tiles(browser) == neighbours[before[1]].tolist() != before


# of image i on the map
SPOT = "(box => [box.left + x(i), box.top + y(i)])(map.getBoundingClientRect())"


def test_lists_filter_hover_and_histogram_in_the_browser(browser, content):
    precision = unpacked(content["precision"], "<f4")
    labels = unpacked(content["labels"], "<u4")
    assert tiles(browser, "#worst") == sorted(range(30), key=lambda i: (precision[i], i))
    set_to(browser, "sort", "best")
    assert tiles(browser, "#worst") == sorted(range(30), key=lambda i: (-precision[i], i))
    set_to(browser, "filter", "CLASS 3", "input")
    assert sorted(tiles(browser, "#worst")) == list(range(15, 20))
    browser.run("document.querySelector('#confusions tr').click()")
    a, b = content["confusions"][0][:2]
    assert sorted(tiles(browser, "#worst")) == sorted([*range(5 * a, 5 * a + 5), *range(5 * b, 5 * b + 5)])
    browser.run("keep(null); choose(7)")
    near = labels[[7, *unpacked(content["neighbours"], "<u4", 30)[7]]]
    near_classes = [content["classes"][label] for label in dict.fromkeys(near.tolist())]
    for value, legend in (("class", content["classes"]), ("super", ["even", "odd"]), ("query", near_classes)):
        set_to(browser, "colours", value)
        assert browser.run("[...document.querySelectorAll('#legend button')].map(b => b.textContent)") == legend
    browser.run("window.scrollTo(0, 0)")
    browser.hover(*browser.run(f"(i => {SPOT})(7)"))
    assert browser.run("!$('hover').hidden && $('hover').querySelector('canvas') !== null")
    assert browser.run("$('hover').textContent").startswith("class ")
    assert "fnmr@0.2" in browser.run("$('threshold').textContent")
    set_to(browser, "rate", 1)
    assert f"{content['histogram']['thresholds'][1]['distance']:.4f}" in browser.run("$('threshold').textContent")


def test_thumbnails_are_drawn_names_are_text_and_nothing_is_loaded(browser, page):
    browser.run("choose(3)")
    browser.wait("sheets[0] !== null && sheets[0].complete")
    canvas = "document.querySelector('#query canvas')"
    pixel = browser.run(f"(c => [...c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data])({canvas})")
    assert np.abs(np.array(pixel[:3]) - np.asarray(random_picture(3))[15, 20]).max() < 25 and pixel[3] == 255
    assert browser.run("document.getElementById('injected')") is None
    assert NASTY.split("\u2028")[0] in browser.run("document.querySelector('#query b').textContent")
    assert "1 of 30 images cannot be shown" in browser.run("$('notes').textContent")
    for width in (1280, 400):
        browser.resize(width, 900)
        assert browser.run("document.documentElement.scrollWidth") <= width
    assert not [text for text in browser.complaints if not str(text).startswith(("data:", page.as_uri()))]


def test_a_run_is_explored_with_its_own_embeddings(run, tmp_path, capsys):
    content = explored(run, tmp_path / "run.html", "--map", "pca", "--neighbours", "3")
    measured = pairwise_distances(Embedder(run)(content["paths"]).astype(np.float64))
    np.fill_diagonal(measured, np.inf)
    assert content["size"] == 24 and len(content["classes"]) == 4 and content["supers"] is None
    assert content["sheets"]["side"] == 64
    np.testing.assert_allclose(unpacked(content["distances"], "<f4", 24)[:, 0], measured.min(1), atol=1e-5)
    assert "24 images of 4 classes" in capsys.readouterr().out
    content = explored(run, tmp_path / "run.html", "--split", "train", "--no_thumbnails", "--map", "pca")
    assert content["sheets"] is None and "class_0" in content["classes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{run} --out {tmp}/page.txt", ".html"),
        ("{run} --out {tmp}/none/page.html", "no folder"),
        ("{run} --out {tmp}/p.html --split val", "no split val"),
        ("{tmp}/none.npz --out {tmp}/p.html", "no such file"),
        ("{tmp}/odd.npz --out {tmp}/p.html", "class_names have shape"),
        ("{tmp}/nan.npz --out {tmp}/p.html", "NaN"),
        ("{tmp}/odd.npz --out {tmp}/p.html --split val", "--split val: {tmp}/odd.npz is a file"),
        ("{run} --out {tmp}/p.html --fmr 0", "--fmr 0 must be"),
    ],
)
def test_mistakes_are_one_line_and_status_2(words, message, run, tmp_path, capsys):
    odd = {"features": np.eye(3), "labels": np.arange(3), "class_names": ["a"]}
    save(tmp_path, odd=odd, nan={"features": np.full((3, 3), np.nan), "labels": np.arange(3)})
    with pytest.raises(SystemExit) as stop, one_line_errors(retrieval.PROGRAM):
        retrieval.main(["explore", *words.format(run=run, tmp=tmp_path).split()])
    line = capsys.readouterr().err
    assert stop.value.code == 2 and line.count("\n") == 1 and message.format(tmp=tmp_path) in line, line


def test_boxes_are_embedded_as_in_the_runs_own_evaluation(tmp_path):
    rows = ["label,path,split,x_1,y_1,x_2,y_2"]
    for place in range(16):
        write_image(tmp_path / f"{place // 2}.png", place, (60, 50))
        split = "train" if place < 8 else "validation"
        box = f"{place % 2 * 20},5,{30 + place % 2 * 25},45"
        rows.append(f"{place // 4},{place // 2}.png,{split},{box}")
    (tmp_path / "df.csv").write_text("\n".join(rows))
    words = ["--dataset", "csv", "--dataset_csv", str(tmp_path / "df.csv"), "--save_path", str(tmp_path / "runs")]
    words += [*SHORT_RUN, *"--resize_size 40 --crop_size 36 --image_cache_side 44 --n_epochs 1".split()]
    folder = main.main(parameters.read([*words, "--dump_embeddings"])).folder
    settings = {"checkpoint": "best", "device": "cpu", "batch_size": 3, "evaltype": None, "split": "test"}
    images = explore.of_run(SimpleNamespace(source=folder, **settings))
    run_features = np.load(next(folder.glob("embeddings_test*.npz")))["features"]
    assert np.allclose(images.features, run_features, atol=1e-5)
    two_of_a_file = run_features.reshape(-1, 2, run_features.shape[1])
    assert np.abs(np.diff(two_of_a_file, axis=1)).max() > 1e-3


X = np.random.default_rng(5).normal(size=(20, 3))


LABELS = np.arange(20) % 3


IS_DISTRACTOR = np.arange(20) >= 14


DISTRACTING = {"features": X, "labels": LABELS, "is_distractor": IS_DISTRACTOR}


N_PAIRS = sum(n * (n - 1) // 2 for n in np.bincount(LABELS[~IS_DISTRACTOR]))


def test_distractors_are_of_no_class(tmp_path):
    content = explored_arrays(tmp_path, **DISTRACTING)
    apart_labels = np.where(IS_DISTRACTOR, 10 + np.arange(20), LABELS)
    expected = metrics.per_query(["map_r"], metrics.EmbeddingSpace(X, apart_labels))["map_r"]
    assert np.isnan(expected[IS_DISTRACTOR]).all()
    np.testing.assert_allclose(unpacked(content["precision"], "f4"), expected, rtol=1e-6)
    assert content["classes"][0] == "no class" and not unpacked(content["labels"], "u4")[IS_DISTRACTOR].any()
    assert content["histogram"]["counts"][0] == N_PAIRS
    assert all(class_index for class_index, *_ in content["confusions"])


def test_distractors_beside_lists_are_of_no_class(tmp_path):
    is_query = np.arange(20) % 10 == 3
    lists = metrics.Lists.of([[0, 4], [1]], [[], [2]])._asdict()
    content = explored_arrays(tmp_path, **DISTRACTING, **lists, is_query=is_query, is_gallery=~is_query)
    assert content["histogram"]["counts"][0] == N_PAIRS


IS_QUERY = np.arange(20) % 5 == 2


QUERIES = np.flatnonzero(IS_QUERY)


GALLERY = np.flatnonzero(~IS_QUERY)


LISTS = metrics.Lists.of([[0, 4, 9], [], [1, 15], [3]], [[1], [2], [5, 6], []])


def listed_file(folder, labels=True):
    """A page of twenty embeddings, four of which ask the other sixteen by lists, and how it judges neighbours."""
    arrays = {f"{name}_hard": array for name, array in LISTS._asdict().items()}
    if labels:
        arrays["labels"] = LABELS
    content = explored_arrays(
        folder, "--neighbours", "7", features=X, is_query=IS_QUERY, is_gallery=~IS_QUERY, **arrays
    )
    return content, unpacked(content["judged"], "u1", 20)


@pytest.mark.parametrize("labels", [True, False], ids=["with labels", "without"])
def test_lists_say_what_is_right(tmp_path, labels):
    content, judged = listed_file(tmp_path, labels)
    expected_kind = {}  # (query, neighbour): 0 right, 1 wrong, 2 junk; 3, not judged, for all others
    for row, positives, junk in zip(QUERIES, LISTS.each("positive"), LISTS.each("junk"), strict=True):
        for kind, images in ((1, GALLERY), (2, GALLERY[junk]), (0, GALLERY[positives])):
            expected_kind |= dict.fromkeys(((row, image) for image in images), kind)
    for row, near in enumerate(unpacked(content["neighbours"], "<u4", 20)):
        assert judged[row].tolist() == [expected_kind.get((row, neighbour), 3) for neighbour in near]
    assert {*judged.flatten().tolist()} == {0, 1, 2, 3}
    expected = metrics.per_query(["map_r"], metrics.EmbeddingSpace(X[QUERIES], None, X[GALLERY], lists=LISTS))["map_r"]
    precision = unpacked(content["precision"], "<f4")
    assert np.isnan(np.delete(precision, QUERIES)).all() and precision[QUERIES] == pytest.approx(expected, nan_ok=True)
    assert any("Lists of hard say" in note for note in content["notes"])


def test_junk_is_grey_in_the_browser(tmp_path):
    needs_browser()
    _, judged = listed_file(tmp_path)
    with _browser.opened((tmp_path / "file.html").as_uri()) as browser:
        for row in QUERIES:
            browser.run(f"choose({row})")
            kinds = browser.run(f"{PLAIN_TILES}.map(tile => tile.className.replace('tile ', ''))")
            assert kinds == [("right", "wrong", "junk", "junk")[kind] for kind in judged[row]]
