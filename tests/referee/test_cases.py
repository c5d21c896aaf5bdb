"""Every answer of referee/cases.json, by the plain loops of `tests/kit/referee_answers.py`; what the file holds."""

import json
from collections import Counter
from fractions import Fraction

import pytest

from referee import judge
from tests.kit import referee_answers as plain

CASES = judge.read()
DEFINITIONS = judge.read(part="definitions")
WITHOUT_AXIS = {"ap_trapezoid", "map_r", "r_precision", "mrr", "inp", "mp@k", "mmp@k"}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_answers_are_those_of_plain_loops(case):
    for measure, answers in case["answers"].items():
        for variant, text in answers.items():
            computed = plain.answer(case, measure, variant)
            if isinstance(computed, float):
                assert float(text) == pytest.approx(computed, abs=1e-12), (measure, variant)
            else:
                assert text == plain.as_text(computed), (measure, variant)


def test_the_file_holds_each_question_of_its_page():
    names = Counter(case["name"] for case in CASES)
    assert len(CASES) >= 48 and max(names.values()) == 1
    kinds = {case["kind"] for case in CASES}
    assert len(kinds) >= 40 and all(case["text"].endswith((".", ")")) for case in CASES)
    measures = {judge.head_of(measure) for case in CASES for measure in case["answers"]}
    assert {"recall@k", "precision@k", "map@k", "map", "ap_trapezoid", "map_r", "r_precision", "mrr"} <= measures
    assert {"ndcg", "ndcg@k", "cmc@k", "mp@k", "mmp@k", "inp", "gap", "nmi", "ami"} <= measures


def test_each_definition_has_a_sentence_and_is_told_apart_somewhere():
    names = set()
    distinguished = set()
    for case in CASES:
        for answers in case["answers"].values():
            for variant, text in answers.items():
                name = f"{case['axis']}: {variant}"
                names.add(name)
                if set(answers.values()) != {text}:
                    distinguished.add(name)
    assert names == set(DEFINITIONS) - WITHOUT_AXIS
    assert names - distinguished == {"exact: exact", "several labels: any shared"}


def test_two_answers_of_a_measure_are_equal_or_far_apart():
    """A value of a float32 program belongs to one of them."""
    for case in CASES:
        for measure, answers in case["answers"].items():
            numbers = sorted({Fraction(text) for text in answers.values() if text not in ("nan", "error")})
            gaps = [float(high - low) for low, high in zip(numbers, numbers[1:], strict=False)]
            assert all(gap > 5 * judge.TOLERANCE for gap in gaps), (case["name"], measure)


def test_the_file_is_plain_data():
    text = judge.FILE.read_text(encoding="utf-8")
    assert set(json.loads(text)) == {"definitions", "cases"} and "NaN," not in text


@pytest.mark.parametrize(
    ("hits", "ap", "trapezoids", "inp"),
    [([0, 1, 0, 1, 0], "1/2", "1/3", "1/2"), ([1, 1, 0, 0], "1", "1", "1"), ([0, 0, 1], "1/3", "1/6", "1/3")],
)
def test_the_plain_loops_by_hand(hits, ap, trapezoids, inp):
    """Market-1501's pin among them: hits at 2 and 4 of 5."""
    items = [plain.Item(row, "", Fraction(-row), hit) for row, hit in enumerate(hits)]
    assert plain.average_precision(items, None, plain.STANDARD) == Fraction(ap)
    assert plain.trapezoids(items, None, plain.STANDARD) == Fraction(trapezoids)
    assert plain.inverse_penalty(items, None, plain.STANDARD) == Fraction(inp)
