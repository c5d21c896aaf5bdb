"""Marks on the explorer's page: by keys and mouse, kept, undone, saved as a table that --dataset_fixes takes."""

import csv
import io
import json

import numpy as np
import pytest

from datasets import _fixes
from retrieval import __main__ as retrieval
from retrieval import marks
from tests.conftest import train
from tests.datasets.layouts import read_folder
from tests.kit.data_sets import make_folder
from tests.kit.images import write_image
from tests.kit.splits import save
from tests.retrieval import _browser
from tests.retrieval.test_explore import needs_browser, written

CLASSES = ["=1+1", "mug", "-nut", "'pan"]
NO_STORAGE = "Object.defineProperty(window, 'localStorage', {get() { throw new Error() }})"


def test_a_page_names_images_below_the_folder_and_knows_all_classes(run, tmp_path):
    retrieval.main(["explore", str(run), "--out", str(tmp_path / "run.html"), "--no_thumbnails", "--map", "pca"])
    content = written(tmp_path / "run.html")["marks"]
    assert content["classes"] == [f"class_{number}" for number in range(8)] and content["fixes"] == []
    assert content["root"].endswith("things")
    first = marks.content(marks.Marking(), ["a", "b"], ["x", None])
    assert first["id"] != marks.content(marks.Marking(), ["a", "b"], ["x", "y"])["id"]
    assert marks.content(marks.Marking(), ["\udcff"], ["x"])["root"] is None
    assert marks.content(marks.Marking(), None, ["x"]) is None


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Four classes of four images, and one whose name a spreadsheet would compute."""
    root = make_folder(tmp_path_factory.mktemp("marked") / "things", names=CLASSES, n_images=6)
    write_image(root / "mug" / '=a,"b.jpg', 77, (40, 30))
    return root


@pytest.fixture(scope="module")
def opened_page(root, tmp_path_factory):
    """A page of all images of the folder."""
    needs_browser()
    folder = tmp_path_factory.mktemp("page")
    paths = sorted(map(str, root.rglob("*.jpg")))
    names = [path.split("/")[-2] for path in paths]
    _, labels = np.unique(names, return_inverse=True)
    arrays = {"features": np.random.default_rng(0).normal(size=(len(paths), 4)), "labels": labels, "paths": paths}
    (file,) = save(folder, file={**arrays, "class_names": names})
    retrieval.main(["explore", file, "--out", str(folder / "page.html"), "--no_thumbnails", "--map", "pca"])
    with _browser.opened((folder / "page.html").as_uri()) as opened:
        yield opened


@pytest.fixture
def page(opened_page):
    """That page without a mark."""
    opened_page.run("localStorage.clear()")
    opened_page.reload()
    return opened_page


def choose(page, name):
    page.run(f"choose(content.paths.findIndex(path => path.endsWith({json.dumps(name)})))")


def marked(page):
    """Name of a marked image -> its mark."""
    entries = page.run("[...marks].map(([i, mark]) => [content.paths[i].split('/').slice(-2).join('/'), textOf(mark)])")
    return dict(entries)


def give_right_label(page, text):
    page.press("r")
    page.write(text)
    page.press("Enter")


def click_on(page, selector):
    box = f"document.querySelector({selector!r}).getBoundingClientRect()"
    page.run(f"document.querySelector({selector!r}).scrollIntoView()")
    page.click(*page.run(f"(box => [box.left + 9, box.top + 9])({box})"))


def test_keys_and_the_mouse_mark_undo_and_step(page):
    worst = page.run("sorted.slice(0, 3)")
    visited = [page.run("state.query")]
    for key in "jjkk":
        page.press(key)
        visited.append(page.run("state.query"))
    assert visited == [worst[0], worst[1], worst[2], worst[1], worst[0]]
    choose(page, "mug/000.jpg")
    page.press("w")
    assert marked(page) == {"mug/000.jpg": "wrong label"}
    page.press("d")
    assert page.run("document.querySelector('#marking [aria-pressed=true]').textContent") == "duplicate D"
    choose(page, "mug/001.jpg")
    click_on(page, "[data-key=n]")
    assert marked(page) == {"mug/000.jpg": "duplicate", "mug/001.jpg": "no class"}
    click_on(page, "[data-key=n]")
    assert marked(page) == {"mug/000.jpg": "duplicate"}, "the same mark again takes it away"
    page.press("u")
    assert marked(page) == {"mug/000.jpg": "duplicate", "mug/001.jpg": "no class"}
    for _ in range(5):
        page.press("u")
    assert marked(page) == {} and "Nothing to undo" in page.run("$('mark-status').textContent")
    assert page.run("$('save').disabled") and not page.run("document.querySelector('.badge')")


def test_a_right_label_is_one_of_the_classes(page):
    choose(page, "mug/000.jpg")
    give_right_label(page, "mgu")
    assert marked(page) == {} and page.run("$('mark-status').textContent") == "There is no class mgu."
    give_right_label(page, "mug")
    assert marked(page) == {} and "It is of class mug already" in page.run("$('mark-status').textContent")
    give_right_label(page, "'PAN ")
    assert marked(page) == {"mug/000.jpg": "wrong label → 'pan"}
    badges = page.run("[...document.querySelectorAll('#marked .badge')].map(badge => badge.textContent)")
    assert badges == ["wrong label → 'pan"] and page.run("document.activeElement.tagName") == "BODY"
    give_right_label(page, "")
    assert marked(page) == {"mug/000.jpg": "wrong label"}
    nearest = page.run("nameOf(neighbours[state.query * K])")
    options = page.run("[...$('right-labels').children].map(option => option.value)")
    assert sorted(options) == sorted(set(CLASSES) - {"mug"}) and (nearest in options[:1] or nearest == "mug")


def test_the_saved_table_is_taken_by_dataset_fixes(page, root, tmp_path):
    page.ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
    choose(page, '/=a,"b.jpg')
    page.press("d")
    for name, label in (("=1+1/000.jpg", "-nut"), ("-nut/001.jpg", "'pan"), ("'pan/002.jpg", "=1+1")):
        choose(page, name)
        give_right_label(page, label)
    click_on(page, "#save")
    file = tmp_path / "saved" / "fixes.csv"
    page.wait("!$('marks').textContent.includes('Not saved')")
    for _ in range(200):
        if file.exists():
            break
        page.run("new Promise(done => setTimeout(done, 50))")
    cells = [text for row in csv.reader(io.StringIO(file.read_text())) for text in row]
    assert not [text for text in cells if text.startswith(("=", "+", "-", "@", "\t"))]
    fixes = {fix.path.removeprefix(f"{root}/"): fix[1:] for fix in _fixes.read(file)}
    assert fixes == {
        'mug/=a,"b.jpg': ("duplicate", "mug", ""),
        "=1+1/000.jpg": ("wrong label", "=1+1", "-nut"),
        "-nut/001.jpg": ("wrong label", "-nut", "'pan"),
        "'pan/002.jpg": ("wrong label", "'pan", "=1+1"),
    }
    splits = read_folder(root, dataset_fixes=str(file))
    assert "3 images relabelled, 1 left out (1 duplicate)" in str(splits["training"].notes)
    assert splits["training"].counts["images"] + splits["testing"].counts["images"] == 24


def test_marks_stay_when_the_page_is_loaded_anew_and_pages_work_without_storage(page):
    choose(page, "mug/000.jpg")
    page.press("d")
    choose(page, "mug/001.jpg")
    give_right_label(page, "-nut")
    page.reload()
    assert marked(page) == {"mug/000.jpg": "duplicate", "mug/001.jpg": "wrong label → -nut"}
    assert "keeps the marks" in page.run("$('keeping').textContent")
    page.run('localStorage.setItem(STORE, \'[[0, "odd", ""], [99, "duplicate", ""], [1, "no class", ""]]\')')
    page.reload()
    assert list(marked(page).values()) == ["no class"]
    page.run("localStorage.setItem(STORE, '{')")
    page.reload()
    assert marked(page) == {}
    page.reload(NO_STORAGE)
    assert "keeps no marks of this page: save them" in page.run("$('keeping').textContent")
    page.press("w")
    assert list(marked(page).values()) == ["wrong label"] and "wrong label" in page.run("table()")
    page.press("u")


@pytest.mark.long
def test_the_page_of_a_corrected_run_repeats_its_fixes(root, tmp_path):
    needs_browser()
    fixes = tmp_path / "fixes.csv"
    fixes.write_text("path,problem,right_label\n'=1+1/000.jpg,wrong label,mug\n'-nut/001.jpg,duplicate,\n")
    run = train(root, tmp_path / "runs", "--n_epochs 1 --dataset_fixes", fixes)
    retrieval.main(["explore", str(run), "--out", str(tmp_path / "run.html"), "--no_thumbnails", "--map", "pca"])
    before = ['"-nut/001.jpg","duplicate","-nut",""', '"=1+1/000.jpg","wrong label","=1+1","mug"']
    before = [line.replace('"-nut', "\"'-nut").replace('"=', "\"'=") for line in before]
    with _browser.opened((tmp_path / "run.html").as_uri()) as page:
        assert page.run("table()").splitlines()[1:] == before
        assert "repeats the corrections that the data have already (2)" in page.run("$('keeping').textContent")
        choose(page, "mug/001.jpg")
        page.press("n")
        choose(page, "=1+1/000.jpg")
        give_right_label(page, "'pan")
        rows = [before[0], before[1].replace("mug", "'pan"), '"mug/001.jpg","no class","mug",""']
        assert page.run("table()").splitlines()[1:] == rows
        give_right_label(page, "=1+1")
        assert page.run("table()").splitlines()[1:] == [rows[0], rows[2]], "the label of before, which needs no row"


@pytest.mark.long
def test_boxes_of_one_file_and_images_without_paths_or_class_names(tmp_path):
    needs_browser()
    arrays = {"features": np.eye(4), "labels": [0, 0, 1, 1]}
    for name, path_arrays in (("boxes", {"paths": ["a", "a", "b", "c"]}), ("none", {})):
        (file,) = save(tmp_path, **{name: {**arrays, **path_arrays}})
        retrieval.main(["explore", file, "--out", str(tmp_path / f"{name}.html"), "--no_thumbnails", "--map", "pca"])
    with _browser.opened((tmp_path / "boxes.html").as_uri()) as page:
        page.run("choose(1)")
        page.press("d")
        assert page.run("marks.size") == 0 and "boxes of this file" in page.run("$('mark-status').textContent")
        page.run("choose(2)")
        page.press("r")
        page.press("w")
        assert page.run("table()").splitlines()[1:] == ['"b","wrong label","",""'], "class 1 is no name of the data's"
        assert page.run("$('right-part').hidden")
    with _browser.opened((tmp_path / "none.html").as_uri()) as page:
        page.press("w")
        assert page.run("$('marking').hidden && marks.size === 0") and "by their paths" in page.run(
            "$('marks').textContent"
        )
