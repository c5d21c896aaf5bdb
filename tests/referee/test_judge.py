"""The judge: verdicts on right, other, wrong and failing programs; the two files alone in an empty folder."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from referee import judge

EXAMPLE = """
import numpy as np

import judge


def evaluate(case):
    order = np.argsort(-case["scores"], axis=1, kind="stable")
    hits = np.take_along_axis(case["relevant"], order, axis=1)
    precisions = hits.cumsum(axis=1) / np.arange(1, hits.shape[1] + 1)
    counted = hits.any(axis=1)
    ap = (precisions * hits).sum(axis=1)[counted] / hits.sum(axis=1)[counted]
    return {"recall@1": hits[:, :1].any(axis=1).mean(), "map: index": ap.mean() if counted.any() else np.nan}


def test_it():
    report = judge.judge(evaluate, [case for case in judge.read() if case["axis"] == "ties"])
    assert not report.wrong, report
"""


def evaluate(case: dict, measure: str, value) -> dict:
    """What a program of one measure returns."""
    return {measure: value} if measure.partition(": ")[0] in case["measures"] else {}


def case_of(name: str) -> list[dict]:
    return [case for case in judge.read() if case["name"] == name]


def verdict(name: str, measure: str, value) -> judge.Verdict:
    report = judge.judge(lambda case: evaluate(case, measure, value), case_of(name))
    return report.verdicts[0]


@pytest.mark.parametrize(
    ("measure", "value", "expected", "definitions"),
    [
        ("map@3", 1 / 4, "equal", ["of R", "of min(k, R)"]),
        ("map@3: of R", np.float32(1 / 4), "equal", ["of R", "of min(k, R)"]),
        ("map@3: of k", 1 / 4, "other", ["of R", "of min(k, R)"]),
        ("map@3", 0.3, "wrong", []),
        ("map@3", float("nan"), "wrong", []),
        ("map@3", "text", "error", []),
        ("map@3", None, "error", []),
    ],
)
def test_verdicts_on_one_value(measure, value, expected, definitions):
    result = verdict("map_at_k_of_few", measure, value)
    assert (result.verdict, result.definitions) == (expected, definitions)


def test_a_value_of_another_measure_is_named():
    result = verdict("map_r_of_two_queries", "map_r", 2 / 3)
    assert result.verdict == "other" and result.note == "r_precision: exact"


def test_a_program_that_raises_fails_each_measure_with_its_reason():
    def fails(case):
        raise KeyError("features")

    report = judge.judge(fails, case_of("map_of_three"))
    assert [verdict.verdict for verdict in report.verdicts] == ["error"] and "KeyError" in str(report)
    assert judge.judge(fails, case_of("empty_gallery")).wrong == [], "an error is a definition there"


def test_each_cut_of_a_gallery_is_asked_for_and_the_worst_counts():
    cuts = []

    def wrong_at_three(case):
        cuts.append(case["cut"])
        return {"recall@1": 0.9 if case["cut"] == 3 else 1 / 3}

    report = judge.judge(wrong_at_three, case_of("blocks"))
    assert cuts == [1, 2, 3, 4, 5, 6] and [verdict.value for verdict in report.wrong] == [0.9]


def test_the_definitions_that_all_cases_of_a_kind_agree_with():
    divisors = {"map_at_k_of_few": 1 / 4, "map_at_k_of_many": 5 / 12}
    cases = [case for case in judge.read() if case["name"] in divisors]
    report = judge.judge(lambda case: {"map@3": divisors[case["name"]]}, cases)
    assert report.definitions() == {("map@k: divisor", "map@k"): ["of R"]}


def test_a_case_has_no_answers_in_it_and_arrays():
    (case,) = case_of("junk_of_its_class")
    question = judge.prepared(case)
    assert "answers" not in question and question["given"] == "scores"
    assert question["ignored"].tolist() == [[True, False, False, False, False]]
    assert question["relevant"].tolist() == [[False, False, True, False, True]]
    assert question["scores"].tolist() == [[-np.inf, 4, 3, 2, 1]]


@pytest.mark.parametrize("text", ["", '{"cases": [', "[]", '{"definitions": {}}'])
def test_a_file_that_is_cut_is_named_in_one_line(tmp_path, text):
    path = tmp_path / "cases.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: not a whole file of cases"):
        judge.read(path)


def test_the_two_files_alone_judge_a_program_of_ten_lines(tmp_path):
    for name in ("judge.py", "cases.json"):
        shutil.copy(judge.FILE.with_name(name), tmp_path)
    (tmp_path / "test_mine.py").write_text(EXAMPLE)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_mine.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_the_judge_is_short_and_needs_numpy_alone():
    source = judge.FILE.with_name("judge.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 250 and "referee" not in source.partition('"""')[2].partition('"""')[2]
