"""The explorer's page: its numbers by loops, its data within bounds, and what a click does in a real browser."""

import base64
import io
import json
import math
import re
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
from tests.kit.runs import SHORT_RUN
from tests.retrieval import _browser
from utilities.errors import one_line_errors

NASTY = '</script><b id="injected">&"\u2028'


def explored(source, page, *words):
    """What the page of a file or a run holds."""
    retrieval.main(["explore", str(source), "--out", str(page), *words])
    return written(page)


def written(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="content" type="application/json">(.*?)</script>', text, re.DOTALL)[1])


def unpacked(text, kind, rows=None):
    values = np.frombuffer(base64.b64decode(text), dtype=kind)
    return values if rows is None else values.reshape(rows, -1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Thirty embeddings of six classes in two super-classes, with pictures of which one is missing; names that are
    markup.
    """
    folder = tmp_path_factory.mktemp("explored")
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 5)
    features = (generator.normal(size=(6, 7))[labels] + 0.6 * generator.normal(size=(30, 7))).astype(np.float32)
    paths = [str(write_image(folder / f"{i}.png", i)) for i in range(29)] + [str(folder / f"gone {NASTY[2:5]}.png")]
    names = np.array([f"class {label} {NASTY}" for label in labels])
    np.savez(
        folder / "e.npz",
        features=features,
        labels=labels * 3 + 2,
        class_names=names,
        super_names=np.array(["even", "odd"])[labels % 2],
        paths=np.array(paths),
    )
    return folder / "e.npz"


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
    x = arrays["features"].astype(np.float64)
    labels = (arrays["labels"] - 2) // 3
    measured = pairwise_distances(x)
    np.fill_diagonal(measured, np.inf)
    neighbours = unpacked(content["neighbours"], "<u4", 30)
    distances = unpacked(content["distances"], "<f4", 30)
    wrong = {}
    for i in range(30):
        order = sorted(range(30), key=lambda j: (measured[i, j], j))[:29]
        assert neighbours[i].tolist() == order[:6]
        np.testing.assert_allclose(distances[i], measured[i][order[:6]], rtol=1e-5)
        hits = [labels[j] == labels[i] for j in order]
        expected = sum(sum(hits[: r + 1]) / (r + 1) for r in range(4) if hits[r]) / 4
        assert unpacked(content["precision"], "<f4")[i] == pytest.approx(expected, abs=1e-6)
        if not hits[0]:
            wrong[labels[i], labels[order[0]]] = wrong.get((labels[i], labels[order[0]]), 0) + 1
    assert {(a, b): count for a, b, count, _ in content["confusions"]} == wrong and wrong
    assert [row[2] for row in content["confusions"]] == sorted(wrong.values(), reverse=True)
    # the last has no other image
    of_sizes = explore.confusions(np.array([0, 0, 0, 1, 2, 2]), np.array([3, 3, 4, 0, 3, -1]))
    assert of_sizes == [[0, 1, 2, 2 / 3], [1, 0, 1, 1.0], [2, 1, 1, 1 / 2], [0, 2, 1, 1 / 3]]
    assert content["classes"] == [f"class {label} {NASTY}" for label in range(6)] and content["superOf"] == [0, 1] * 3
    upper = [(measured[i, j], labels[i] == labels[j]) for i in range(30) for j in range(i)]
    same_class = [distance for distance, alike in upper if alike]
    different_class = [distance for distance, alike in upper if not alike]
    assert content["histogram"]["counts"] == [len(same_class), len(different_class)] == [60, 375]
    for threshold in content["histogram"]["thresholds"]:
        assert sum(d < threshold["distance"] - 1e-6 for d in different_class) == math.floor(threshold["fmr"] * 375)
        assert threshold["fnmr"] == pytest.approx(
            sum(d >= threshold["distance"] - 1e-6 for d in same_class) / 60, abs=1e-9
        )
        name = f"fnmr@{threshold['fmr']:g}".replace("@0.", "@.")
        assert threshold["fnmr"] == metrics.compute(name, arrays["features"], labels)[name]
    np.testing.assert_allclose(
        content["histogram"]["same"],
        np.histogram(same_class, bins=100, range=(0, content["histogram"]["most"]))[0] / 60,
        atol=2 / 60,
    )


@pytest.mark.parametrize(
    ("different", "rate", "at"),
    [([3, 5, 9, 17], 0.5, 8), ([2, 2, 2, 2], 0.5, 1), ([*range(2, 14)], 0.29, 3), ([0.5], 0.99, 0.5)],
)
def test_no_more_than_the_rate_match_at_the_threshold(different, rate, at):
    x = np.array([0, 1, *different], dtype=np.float64)[:, None]  # a class of two, each of the others a class of its own
    labels = np.array([0, 0, *range(1, len(different) + 1)])
    threshold, missed = fnmr.operating_point(metrics.EmbeddingSpace(x, labels), rate)
    different_distances = sorted(
        float(abs(x[i, 0] - x[j, 0])) for i in range(len(x)) for j in range(i) if labels[i] != labels[j]
    )
    assert threshold == pytest.approx(at) == pytest.approx(
        different_distances[math.floor(rate * len(different_distances) + 1e-9)]
    ) and missed == float(threshold - 1e-6 <= 1)
    assert all(
        math.isnan(value) for value in fnmr.operating_point(metrics.EmbeddingSpace(x, np.zeros(len(x), int)), rate)
    )


def test_what_the_page_does_not_heed_is_said(file, content, tmp_path):
    flags = np.array(
        json.dumps(
            {"eval_space": "hyperbolic", "rerank": "alpha_qe", "eval_reference_set": "compared_to_self", "eval_pca": 2}
        )
    )
    np.savez(
        tmp_path / "e.npz",
        **np.load(file),
        is_query=np.arange(30) < 9,
        is_gallery=np.arange(30) > 5,
        role_draws=np.ones((2, 30), bool),
        flags=flags,
    )
    notes = " ".join(explored(tmp_path / "e.npz", tmp_path / "p.html", "--no_thumbnails")["notes"])
    assert (
        "Roles and sequences of the images are ignored" in notes
        and "--eval_space hyperbolic, --rerank alpha_qe of" in notes
    )
    assert "--eval_pca" not in notes, "the rows of a file are after it"
    assert "heeded" not in " ".join(content["notes"])


def test_sampled_pairs_are_of_the_kinds_that_they_are_said_to_be(monkeypatch):
    monkeypatch.setattr(pairs, "ALL_UP_TO", 5)
    labels = np.array([0, 1, 1, 2, 2, 2, 3, 0])
    same_class, different_class, pairs_text = pairs.distances(
        (labels * 100 + np.arange(8)).astype(np.float32)[:, None], labels, 0
    )
    assert {*same_class.tolist()} == {1, 2, 7} and (different_class > 90).all() and "random pairs" in pairs_text
    assert len(pairs.distances(np.zeros((6, 1), np.float32), np.arange(6), 0)[0]) == 0


def test_maps_keep_neighbours_together_and_stand_what_is_degenerate():
    generator = np.random.default_rng(0)
    labels = generator.integers(4, size=120)
    features = (8 * generator.normal(size=(4, 20))[labels] + generator.normal(size=(120, 20))).astype(np.float32)
    planes = {}
    for how, size in (("tsne", 5000), ("tsne", 60), ("pca", 5000)):
        plane, map_text = planes[how, size] = maps.places(features, how, size, 0)
        nearest = np.argsort(pairwise_distances(plane), axis=1)[:, 1]
        assert plane.shape == (120, 2) and np.isfinite(plane).all() and (labels[nearest] == labels).mean() > 0.95, (
            how,
            size,
        )
        assert ("60 random images; each of the other 60" in map_text) == (size == 60)
    assert np.array_equal(planes["tsne", 60][0], maps.places(features, "tsne", 60, 0)[0])
    for odd in (np.zeros((9, 3)), np.ones((1, 5)), np.ones((6, 1)) * np.arange(6)[:, None], np.repeat(np.eye(2), 4, 0)):
        assert np.isfinite(maps.places(odd.astype(np.float32), "tsne", 5000, 2**32 + 1)[0]).all()


def test_spaces_of_one_class_singletons_and_one_image(tmp_path):
    for labels in ([0] * 6, [0, 1, 2, 3, 4, 5], [0, 0, 1, 2, 2, 2], [0]):
        np.savez(
            tmp_path / "e.npz", features=np.random.default_rng(0).normal(size=(len(labels), 3)), labels=np.array(labels)
        )
        content = explored(tmp_path / "e.npz", tmp_path / "p.html", "--neighbours", "50")
        is_singleton = np.bincount(labels)[labels] == 1
        assert np.isnan(unpacked(content["precision"], "<f4")).tolist() == is_singleton.tolist(), labels
        assert (content["meanPrecision"] is None) == is_singleton.all(), labels
        assert content["size"] == len(labels) and content["sheets"] is None, labels


def test_names_are_data_and_nothing_is_asked_of_any_address(page):
    text = page.read_text(encoding="utf-8")
    assert NASTY not in text and "default-src 'none'" in text
    code = re.sub(r'<script id="content".*?</script>', "", text, flags=re.DOTALL)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", code) and "innerHTML" not in code


def test_thumbnails_lie_where_the_page_looks_and_within_their_bytes():
    sheets = thumbnails.Sheets(300)
    for i in range(300):
        sheets.put(i, torch.full((3, 20, 40), i % 256, dtype=torch.uint8))
    sheets_of = [
        np.array(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))) for address in sheets.addresses()
    ]
    assert len(sheets_of) == 2 and sheets.side == 64 and sheets_of[0].shape == (1024, 1024, 3)
    for i in (0, 17, 255, 256, 299):
        tile = i % 256
        middle = sheets_of[i // 256][tile // 16 * 64 + 32, tile % 16 * 64 + 32]
        assert np.abs(middle.astype(int) - i % 256).max() <= 4
    noise = thumbnails.Sheets(256)
    noise.pixels[:] = np.random.default_rng(0).integers(0, 256, noise.pixels.shape)
    full = sum(map(len, noise.addresses()))
    tight = thumbnails.Sheets(256)
    tight.pixels[:] = noise.pixels
    small = tight.addresses(60_000)
    assert sum(map(len, small)) <= 60_000 * 4 / 3 + 100 < full and tight.side < 64
    assert thumbnails.MOST_BYTES * 4 / 3 < 25e6  # with the rest of 5,000 images below 30 MB


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
    labels = unpacked(content["labels"], "<u4")
    assert tiles(browser) == [] and len(tiles(browser, "#worst")) == 30
    spots = browser.run(
        "(() => { const box = map.getBoundingClientRect(); return [...Array(30).keys()].map(i => [box.left + "
        "x(i), box.top + y(i)]) })()"
    )
    lonely = max(range(30), key=lambda i: min(math.dist(spots[i], spots[j]) for j in range(30) if j != i))
    for chosen in (lonely, max(set(range(30)) - {lonely}, key=lambda i: math.dist(spots[i], spots[lonely]))):
        browser.click(*spots[chosen])
        query = browser.run("+document.querySelector('#query').dataset.image")
        assert math.dist(spots[query], spots[chosen]) < 15 and tiles(browser) == neighbours[query].tolist()
        marks = browser.run(
            "[...document.querySelectorAll('#neighbours .tile')].map(tile => tile.classList.contains('right'))"
        )
        assert marks == [bool(labels[j] == labels[query]) for j in neighbours[query]]
        texts = browser.run("[...document.querySelectorAll('#neighbours .tile b')].map(b => b.textContent)")
        distances = unpacked(content["distances"], "<f4", 30)[query]
        assert [float(text.split("·")[1]) for text in texts] == pytest.approx(distances.tolist(), abs=6e-5)
    browser.run("document.querySelector('#neighbours .tile').scrollIntoView()")
    box = browser.run(
        "(() => { const b = document.querySelectorAll('#neighbours .tile')[1].getBoundingClientRect(); return "
        "[b.left + 20, b.top + 20] })()"
    )
    before = tiles(browser)
    browser.click(*box)
    assert tiles(browser) == neighbours[before[1]].tolist() != before


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
    legends = []
    for value in ("class", "super", "query"):
        set_to(browser, "colours", value)
        legends.append(browser.run("[...document.querySelectorAll('#legend button')].map(one => one.textContent)"))
    near = labels[[7, *unpacked(content["neighbours"], "<u4", 30)[7]]]
    assert legends == [
        content["classes"],
        ["even", "odd"],
        [content["classes"][label] for label in dict.fromkeys(near.tolist())],
    ]
    browser.run("window.scrollTo(0, 0)")
    browser.hover(
        *browser.run("(() => { const box = map.getBoundingClientRect(); return [box.left + x(7), box.top + y(7)] })()")
    )
    assert browser.run(
        "!$('hover').hidden && $('hover').querySelector('canvas') !== null && "
        "$('hover').textContent.startsWith('class ')"
    )
    assert "fnmr@0.2" in browser.run("$('threshold').textContent")
    set_to(browser, "rate", 1)
    assert f"{content['histogram']['thresholds'][1]['distance']:.4f}" in browser.run("$('threshold').textContent")


def test_thumbnails_are_drawn_names_are_text_and_nothing_is_loaded(browser, page):
    browser.run("choose(3)")
    browser.wait("sheets[0] !== null && sheets[0].complete")
    pixel = browser.run(
        "(() => { const one = document.querySelector('#query canvas'); return "
        "[...one.getContext('2d').getImageData(one.width / 2, one.height / 2, 1, 1).data] })()"
    )
    assert np.abs(np.array(pixel[:3]) - np.asarray(random_picture(3))[15, 20]).max() < 25 and pixel[3] == 255
    assert browser.run("document.getElementById('injected')") is None
    assert NASTY.split("\u2028")[0] in browser.run("document.querySelector('#query b').textContent")
    assert "1 of 30 images cannot be shown" in browser.run("$('notes').textContent")
    for width in (1280, 400):
        browser.resize(width, 900)
        assert browser.run("document.documentElement.scrollWidth") <= width
    assert [
        complaint for complaint in browser.complaints if not str(complaint).startswith(("data:", page.as_uri()))
    ] == []


def test_a_run_is_explored_with_its_own_embeddings(run, tmp_path, capsys):
    content = explored(run, tmp_path / "run.html", "--map", "pca", "--neighbours", "3")
    measured = pairwise_distances(Embedder(run)(content["paths"]).astype(np.float64))
    np.fill_diagonal(measured, np.inf)
    assert (
        content["size"] == 24
        and len(content["classes"]) == 4
        and content["supers"] is None
        and content["sheets"]["side"] == 64
    )
    np.testing.assert_allclose(unpacked(content["distances"], "<f4", 24)[:, 0], measured.min(1), atol=1e-5)
    assert "24 images of 4 classes" in capsys.readouterr().out
    content = explored(run, tmp_path / "run.html", "--split", "train", "--no_thumbnails", "--map", "pca")
    assert content["sheets"] is None and "class_0" in content["classes"]


def test_mistakes_are_one_line_and_status_2(run, tmp_path, capsys):
    np.savez(tmp_path / "odd.npz", features=np.eye(3), labels=np.arange(3), class_names=np.array(["a"]))
    np.savez(tmp_path / "nan.npz", features=np.full((3, 3), np.nan), labels=np.arange(3))
    for words, message in {
        "{run} --out {tmp}/page.txt": ".html",
        "{run} --out {tmp}/none/page.html": "no folder",
        "{run} --out {tmp}/p.html --split val": "no split val",
        "{tmp}/none.npz --out {tmp}/p.html": "no such file",
        "{tmp}/odd.npz --out {tmp}/p.html": "class_names have shape",
        "{tmp}/nan.npz --out {tmp}/p.html": "NaN",
        "{tmp}/odd.npz --out {tmp}/p.html --split val": "--split val: {tmp}/odd.npz is a file",
        "{run} --out {tmp}/p.html --fmr 0": "--fmr 0 must be",
    }.items():
        with pytest.raises(SystemExit) as stop, one_line_errors(retrieval.PROGRAM):
            retrieval.main(["explore", *words.format(run=run, tmp=tmp_path).split()])
        line = capsys.readouterr().err
        assert stop.value.code == 2 and line.count("\n") == 1 and message.format(tmp=tmp_path) in line, line


def test_boxes_are_embedded_as_in_the_runs_own_evaluation(tmp_path):
    rows = ["label,path,split,x_1,y_1,x_2,y_2"]
    for place in range(16):
        write_image(tmp_path / f"{place // 2}.png", place, (60, 50))
        split = "train" if place < 8 else "validation"
        x_1 = place % 2 * 20
        x_2 = 30 + place % 2 * 25
        rows.append(f"{place // 4},{place // 2}.png,{split},{x_1},5,{x_2},45")
    (tmp_path / "df.csv").write_text("\n".join(rows))
    words = [
        "--dataset",
        "csv",
        "--dataset_csv",
        str(tmp_path / "df.csv"),
        *SHORT_RUN,
        *"--resize_size 40 --crop_size 36".split(),
    ]
    run = main.main(
        parameters.read(
            [
                *words,
                *"--image_cache_side 44 --n_epochs 1 --dump_embeddings --save_path".split(),
                str(tmp_path / "runs"),
            ]
        )
    )
    images = explore.of_run(
        SimpleNamespace(source=run.folder, checkpoint="best", device="cpu", batch_size=3, evaltype=None, split="test")
    )
    run_features = np.load(next(run.folder.glob("embeddings_test*.npz")))["features"]
    assert np.allclose(images.features, run_features, atol=1e-5)
    assert np.abs(np.diff(run_features.reshape(-1, 2, run_features.shape[1]), axis=1)).max() > 1e-3, (
        "two boxes of one file"
    )


def test_distractors_are_of_no_class(tmp_path):
    x = np.random.default_rng(5).normal(size=(20, 3))
    is_distractor = np.arange(20) >= 14
    labels = np.arange(20) % 3
    np.savez(tmp_path / "file.npz", features=x, labels=labels, is_distractor=is_distractor)
    content = explored(tmp_path / "file.npz", tmp_path / "page.html")
    expected = metrics.per_query(
        ["map_r"], metrics.EmbeddingSpace(x, np.where(is_distractor, 10 + np.arange(20), labels))
    )["map_r"]
    assert np.isnan(expected[is_distractor]).all()
    np.testing.assert_allclose(unpacked(content["precision"], "f4"), expected, rtol=1e-6)
    assert content["classes"][0] == "no class" and unpacked(content["labels"], "u4")[is_distractor].tolist() == [0] * 6
    assert content["histogram"]["counts"][0] == sum(
        n * (n - 1) // 2 for n in np.bincount(labels[~is_distractor])
    ) and all(class_index for class_index, *_ in content["confusions"])


def test_distractors_beside_lists_are_of_no_class(tmp_path):
    asks = np.arange(20) % 10 == 3
    is_distractor = np.arange(20) > 13
    labels = np.arange(20) % 3
    arrays = {
        "labels": labels,
        "is_distractor": is_distractor,
        "is_query": asks,
        "is_gallery": ~asks,
        **metrics.Lists.of([[0, 4], [1]], [[], [2]])._asdict(),
    }
    np.savez(tmp_path / "file.npz", features=np.random.default_rng(5).normal(size=(20, 3)), **arrays)
    counts = explored(tmp_path / "file.npz", tmp_path / "page.html")["histogram"]["counts"]
    assert counts[0] == sum(n * (n - 1) // 2 for n in np.bincount(labels[~is_distractor]))


def listed_file(folder, labels=True):
    """A page of twenty embeddings, four of which ask the other sixteen by lists."""
    asks = np.arange(20) % 5 == 2
    lists = metrics.Lists.of([[0, 4, 9], [], [1, 15], [3]], [[1], [2], [5, 6], []])
    arrays = {"features": np.random.default_rng(3).normal(size=(20, 3)), "is_query": asks, "is_gallery": ~asks}
    arrays |= {f"{name}_hard": array for name, array in lists._asdict().items()} | (
        {"labels": np.arange(20) % 3} if labels else {}
    )
    np.savez(folder / "listed.npz", **arrays)
    content = explored(folder / "listed.npz", folder / "listed.html", "--neighbours", "7")
    return (
        content,
        arrays["features"],
        np.flatnonzero(asks),
        np.flatnonzero(~asks),
        lists,
        unpacked(content["judged"], "u1", 20),
    )


@pytest.mark.parametrize("labels", [True, False], ids=["with labels", "without"])
def test_lists_say_what_is_right(tmp_path, labels):
    content, x, asks, gallery, lists, judged = listed_file(tmp_path, labels)
    expected_kind = {}  # (query, neighbour): 0 right, 1 wrong, 2 junk; 3, not judged, for all others
    for row, positives, junk in zip(asks, lists.each("positive"), lists.each("junk"), strict=True):
        expected_kind |= {(row, image): 1 for image in gallery}
        expected_kind |= {(row, image): 2 for image in gallery[junk]}
        expected_kind |= {(row, image): 0 for image in gallery[positives]}
    for row, near in enumerate(unpacked(content["neighbours"], "<u4", 20)):
        for neighbour, kind in zip(near, judged[row], strict=True):
            assert kind == expected_kind.get((row, neighbour), 3)
    assert {*judged.flatten().tolist()} == {0, 1, 2, 3}
    expected = metrics.per_query(["map_r"], metrics.EmbeddingSpace(x[asks], None, x[gallery], lists=lists))["map_r"]
    precision = unpacked(content["precision"], "<f4")
    assert np.isnan(np.delete(precision, asks)).all() and precision[asks] == pytest.approx(expected, nan_ok=True)
    assert any("Lists of hard say" in note for note in content["notes"])


def test_junk_is_grey_in_the_browser(tmp_path):
    needs_browser()
    _, _, asks, *_, judged = listed_file(tmp_path)
    with _browser.opened((tmp_path / "listed.html").as_uri()) as browser:
        for row in asks:
            browser.run(f"choose({row})")
            kinds = browser.run(
                "[...document.querySelectorAll('#neighbours .tile')].map(tile => tile.className.replace('tile ', ''))"
            )
            assert kinds == [("right", "wrong", "junk", "junk")[kind] for kind in judged[row]]
