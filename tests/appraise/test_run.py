"""A whole appraisal: planted faults are on its page, its commands print its numbers, a stopped one continues."""

import contextlib
import html
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import evaluation.__main__ as evaluating
from appraise import __main__ as appraise
from appraise import page as page_pieces
from tests.appraise.conftest import SMALL
from tests.kit.photographs import make_photographs
from tests.kit.refusals import refused
from tests.kit.runs import ROOT, content_of, rows_of, words_of
from utilities.files import write_csv

RECORDS = [step.record or step.name for step in appraise.STEPS]
TIMES = re.compile(r'<span class="time">.*?</span>')


def page_of(folder):
    """The page without the speeds."""
    return TIMES.sub("", (folder / "index.html").read_text())


def result_of(folder, name):
    return content_of(folder / f"{name}.json")["result"]


def commands_of(page):
    """The commands on a page, as words."""
    blocks = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in html.unescape(block).splitlines()]


def test_each_fault_is_on_the_page(appraisal):
    page = html.unescape(page_of(appraisal))
    assert "1 pair of classes shares photographs; 1 file cannot be read" in page
    assert "class_002/broken.jpg cannot be decoded" in page
    assert "class_000/000.jpg = class_001/copy.jpg" in page
    assert "Classes of one photograph, which has nothing to find: 1" in page and "<li>alone</li>" in page
    assert "notes.txt: no image by its name" in page
    groups = result_of(appraisal, "groups")
    assert groups["bursts"] == 1 and groups["with_time"] == groups["images"] - 1
    assert groups["class_pairs"] == [["class_000", "class_001"]]
    assert "1 burst by the times of the photographs" in page and page_pieces.DATES_ALONE not in page
    # the copy and its original are the first pair that is shown
    assert page.index("data:image/jpeg") < page.index("1.000, two classes")


def test_dates_without_a_time_of_day_are_on_the_page(appraisal):
    results = {name: result_of(appraisal, name) for name in ("features", "groups")}
    results["groups"] |= {"dates_alone": True, "shown": []}
    section = page_pieces._near_duplicates(SimpleNamespace(results=results, folder=appraisal, command=["python"]))
    assert page_pieces.DATES_ALONE in section


def test_parts_share_no_class_and_no_group(appraisal):
    split = content_of(appraisal / "split.json")
    aside = content_of(appraisal / "set_aside.json")["classes"]
    parts = [split["train"], split["val"], split["test"], aside]
    names = [name for part in parts for name in part]
    assert len(names) == len(set(names)) == 21
    assert [len(part) for part in parts] == [9, 2, 5, 5]
    of_pair = [sum(name in part for name in ("class_000", "class_001")) for part in parts]
    assert sorted(of_pair) == [0, 0, 0, 2]
    part_of = {name: place for place, part in enumerate(parts) for name in part}
    parts_of_group = {}
    for row in rows_of(appraisal / "photographs.csv"):
        if row["sequence"]:
            parts_of_group.setdefault(row["sequence"], set()).add(part_of[row["label"]])
    assert len(parts_of_group) == 2 and all(len(places) == 1 for places in parts_of_group.values())


def test_the_page_needs_no_network(appraisal):
    page = (appraisal / "index.html").read_text()
    assert len(page) < 20e6
    assert "default-src 'none'" in page and "<script" not in page
    links = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert links and all(link.startswith("data:") for link in links)


def test_its_commands_print_its_numbers(appraisal):
    commands = commands_of((appraisal / "index.html").read_text())
    (models,) = [words[3:] for words in commands if words[:4] == ["python", "-m", "evaluation", "models"]]
    table = evaluating.main(models)
    rows = {row["name"]: row for row in result_of(appraisal, "frozen")["rows"]}
    recall = table.head.index("e_recall@1 in %")
    assert set(rows) == {"conv4", "conv4, linear adapter"}
    assert {cells[0].text for cells in table.rows} == set(rows)
    for cells in table.rows:
        assert cells[recall].value == pytest.approx(100 * rows[cells[0].text]["recall"][0])
    threshold = result_of(appraisal, "threshold")
    of_test = [words[3:] for words in commands if words[-1] == "--eval_skip_unmatched" and "test.npz" in words[3]]
    values = evaluating.main(of_test[0])
    assert values["e_recall@1"] == pytest.approx(threshold["test"][0])


def test_a_finished_appraisal_is_not_repeated(appraisal, photographs, capsys):
    before = {path: path.stat().st_mtime_ns for path in appraisal.glob("*")}
    appraise.main(words_of(photographs, "--out", appraisal, SMALL))
    assert capsys.readouterr().out.count(", done before: ") == 9
    changed = [path.name for path, time in before.items() if path.stat().st_mtime_ns != time]
    assert set(changed) <= {".lock", "appraisal.json"}


def test_a_changed_flag_repeats_what_reads_it(appraisal, photographs, capsys):
    page = page_of(appraisal)
    words = words_of(photographs, "--out", appraisal, SMALL)
    appraise.main([*words, "--rate", "0.2"])
    assert capsys.readouterr().out.count(", done before: ") == 7
    assert "20 % with 95 % confidence needs 14" in html.unescape(page_of(appraisal))
    assert not (appraisal / "decision.json").exists()
    appraise.main([*words, "--rate", "0.6"])
    (decide,) = [command[3:] for command in commands_of(page_of(appraisal)) if "decide" in command]
    decision = evaluating.main(decide)
    assert decision["threshold"] > 0
    assert decision["sentence"] in html.unescape(page_of(appraisal))
    appraise.main(words)
    assert page_of(appraisal) == page


def test_another_folder_is_refused(appraisal, photographs, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with refused("an appraisal of", photographs):
        appraise.main(words_of(elsewhere, "--out", appraisal, SMALL))


@pytest.mark.long
@pytest.mark.parametrize("stopped", range(len(appraise.STEPS)))
def test_stopped_in_any_step_and_continued(stopped, appraisal, photographs):
    """The step is done, and then stopped before its result is written."""
    page = page_of(appraisal)
    steps = list(appraise.STEPS)
    do = steps[stopped].do

    def stop(context):
        do(context)
        raise KeyboardInterrupt

    steps[stopped] = steps[stopped]._replace(do=stop)
    for name in RECORDS[stopped:]:
        (appraisal / f"{name}.json").unlink()
    (appraisal / "index.html").unlink()
    words = words_of(photographs, "--out", appraisal, SMALL)
    with mock.patch.object(appraise, "STEPS", steps), pytest.raises(KeyboardInterrupt):
        appraise.main(words)
    assert not (appraisal / f"{RECORDS[stopped]}.json").exists()
    appraise.main(words)
    assert page_of(appraisal) == page


@pytest.mark.long
def test_killed_after_each_step_and_continued(appraisal, photographs, tmp_path):
    """kill -9 as soon as the result of a step is there, and a second process meanwhile is refused."""
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "appraise", *words_of(photographs, "--out", folder, SMALL)]
    for name in RECORDS[:-1]:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and not (folder / f"{name}.json").exists():
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "[9/9] page" in process.stdout
    assert page_of(folder).replace(str(folder), str(appraisal)) == page_of(appraisal)


@pytest.mark.long
def test_a_second_process_is_refused(photographs, tmp_path):
    words = words_of(photographs, "--out", tmp_path / "out", SMALL)
    command = [sys.executable, "-m", "appraise", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as first:
        lock = tmp_path / "out" / ".lock"
        # it names its holder once it is locked
        while not lock.exists() or not lock.read_text():
            time.sleep(0.01)
        # it could end before the second one has started
        first.send_signal(signal.SIGSTOP)
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        first.kill()
    assert second.returncode == 2
    assert re.fullmatch(r"python -m appraise: error: --out .* works on it\n", second.stderr), second.stderr


@pytest.mark.long
def test_a_changed_photograph_repeats_everything(tmp_path, capsys):
    folder = make_photographs(tmp_path / "photographs", n_classes=16, n_images=3)
    words = words_of(folder, "--out", tmp_path / "out", SMALL)
    appraise.main(words)
    (folder / "class_003" / "000.jpg").unlink()
    capsys.readouterr()
    appraise.main(words)
    output = capsys.readouterr().out
    assert ", done before: " not in output and "47 photographs of 16 classes" in output
    assert "47 photographs of 16 classes" in page_of(tmp_path / "out")


@pytest.mark.long
def test_a_table_of_boxes_and_times(tmp_path):
    """Paths beside the table, boxes and super-classes stay, and images of one minute are a burst."""
    folder = make_photographs(tmp_path / "photographs", n_classes=16, n_images=4)
    rows = []
    for path in sorted(folder.rglob("*.jpg")):
        number = int(path.stem)
        # The first two images of a class are of one minute, a burst
        day = max(number, 1)
        time = f"2024-01-{day:02d} 10:00:{15 * number:02d}"
        split = "train" if path.parent.name < "class_008" else "validation"
        rows.append([path.parent.name, path.relative_to(tmp_path), split, 2, 2, 40, 40, "kind", time])
    head = ["label", "path", "split", "x_1", "y_1", "x_2", "y_2", "category", "time"]
    write_csv(tmp_path / "table.csv", head, rows)
    appraise.main(words_of(tmp_path / "table.csv", "--out", tmp_path / "out", SMALL))
    groups = result_of(tmp_path / "out", "groups")
    assert groups["bursts"] == 16 and groups["with_time"] == 64
    written = rows_of(tmp_path / "out" / "photographs.csv")
    assert {row["category"] for row in written} == {"kind"} and {row["x_2"] for row in written} == {"40.0"}
    assert sum(row["sequence"] != "" for row in written) >= 32


@pytest.mark.long
def test_trained_where_it_pays(tmp_path):
    """With 8 select classes the best network is trained, and is a row of the table."""
    folder = make_photographs(tmp_path / "photographs", n_classes=80, n_images=3)
    words = words_of(folder, "--out", tmp_path / "out", SMALL.replace("--tune no", "--tune yes --budget 0"))
    with mock.patch("appraise.plan.EPOCHS", 2):
        appraise.main(words)
    tuned = result_of(tmp_path / "out", "tuned")
    (row,) = tuned["rows"]
    assert row["kind"] == "tuned" and len(row["folders"]) == 1
    page = page_of(tmp_path / "out")
    assert "trained, 1 seed" in page and "python -m launch" in page
    (place,) = (tmp_path / "out" / "runs").glob("*/csv/tuned_s0/fold_0/summary.json")
    summary = content_of(place)
    assert np.isclose(summary["selected"]["values"]["val"]["e_recall@1"], row["recall"][0])
