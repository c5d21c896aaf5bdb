"""Judges a program that evaluates retrieval: exact cases, and which definition its numbers follow.

Copy this file and `cases.json` into your tests; NumPy is all they need:

    import judge, numpy as np

    def evaluate(case):
        order = np.argsort(-case["scores"], axis=1, kind="stable")
        hits = np.take_along_axis(case["relevant"], order, axis=1)
        return {"recall@1": hits[:, :1].any(axis=1).mean()}

    def test_evaluation():
        report = judge.judge(evaluate)
        assert not report.wrong, report

The function gets a case, a dict:

- `queries`, `gallery`: as in `cases.json`; a case without `gallery` has queries that search each other;
- `query_features` (Q, D), `gallery_features` (M, D), the nearest by Euclidean distance, or by `similarity`;
- `scores` (Q, M): the same order, higher is nearer; rows that are ignored, as the query itself is, have -inf;
- `relevant`, `ignored` (Q, M): true or false; `own_row` (Q,): the row that shows the query itself, or -1;
- `name`, `kind`, `text`, `axis`: the question; `measures`: those with an answer; `given`: `scores` or `features`.

It returns measure -> value. A measure may carry the definition that is claimed, `"map@3: of R"`; else the report says
which definitions the value agrees with. It may raise: some cases have `error` among their definitions.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("cases.json")
# covers rounding in float32; the values of two definitions of a case differ by more
TOLERANCE = 1e-5
ERROR = "error"
NAN = "nan"


@dataclass
class Verdict:
    """What one value of one case says.

    verdict: `equal` to the claimed definition, or without a claim to a named one; `other`: to another one, or one of
    another measure; `wrong`: to none; `error`: the function raised, which is no definition here. definitions: those of
    this measure that the value equals.
    """

    case: str
    kind: str
    measure: str
    value: float | str
    verdict: str
    definitions: list[str]
    claim: str | None = None
    note: str = ""

    def __str__(self):
        names = " or ".join(self.definitions) or self.note
        claim = f", claimed: {self.claim}" if self.claim else ""
        return f"{self.verdict:6} {self.case}: {self.measure} = {self.value} ({names}{claim})"


class Report:
    """All verdicts, and `wrong`: those that no definition, or not the claimed one, explains."""

    def __init__(self, verdicts: list[Verdict]):
        self.verdicts = verdicts
        self.wrong = [verdict for verdict in verdicts if verdict.verdict != "equal"]

    def definitions(self) -> dict[tuple[str, str], list[str]]:
        """(kind of case, measure without its k) -> the definitions that agree with all such cases; [] if none does."""
        agreeing = {}
        for verdict in self.verdicts:
            key = (verdict.kind, head_of(verdict.measure))
            names = agreeing.setdefault(key, verdict.definitions)
            agreeing[key] = [name for name in names if name in verdict.definitions]
        return agreeing

    def __str__(self):
        lines = [str(dict(Counter(verdict.verdict for verdict in self.verdicts))), *map(str, self.wrong)]
        for (kind, head), names in self.definitions().items():
            lines.append(f"{kind}, {head}: {' or '.join(names) or 'none'}")
        return "\n".join(lines)


def judge(function, cases=None) -> Report:
    """Call `function` with each case, those of `read()` if None, and compare what it returns."""
    verdicts = []
    cases = read() if cases is None else cases
    for case in cases:
        verdicts += judge_case(function, case)
    return Report(verdicts)


def read(path=FILE, part="cases"):
    """The cases of a file, or its definitions, name -> sentence. Raises ValueError if it is no such file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))[part]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a whole file of cases ({type(error).__name__}: {error})") from error


def judge_case(function, case: dict) -> list[Verdict]:
    """The verdicts of one case; of a case with `cuts`, asked once for each place at which the gallery may be cut into
    two blocks (`case["cut"]`), the first that is not equal.
    """
    verdicts = {}
    for cut in case.get("cuts", [None]):
        question = prepared(case)
        if cut is not None:
            question["cut"] = cut
        for verdict in _verdicts(function, case, question):
            earlier = verdicts.setdefault(verdict.measure, verdict)
            if earlier.verdict == "equal":
                verdicts[verdict.measure] = verdict
    return list(verdicts.values())


def _verdicts(function, case: dict, question: dict) -> list[Verdict]:
    try:
        values = function(question)
    except Exception as error:
        note = f"{type(error).__name__}: {error}"
        return [compare(case, measure, ERROR, note=note) for measure in case["answers"]]
    verdicts = []
    for name, value in values.items():
        measure, _, claim = name.partition(": ")
        if measure in case["answers"]:
            note = value if isinstance(value, str) else ""
            verdicts.append(compare(case, measure, value, claim or None, note))
    return verdicts


def compare(case: dict, measure: str, value, claim: str | None = None, note: str = "") -> Verdict:
    """The verdict on one value of a measure."""
    value = _as_value(value)
    definitions = [name for name, answer in case["answers"][measure].items() if agrees(value, answer)]
    if definitions:
        verdict = "equal" if claim is None or claim in definitions else "other"
    elif value == ERROR:
        verdict = ERROR
    else:
        elsewhere = _elsewhere(case, measure, value)
        verdict = "other" if elsewhere else "wrong"
        note = elsewhere or note or "no named definition"
    return Verdict(case["name"], case["kind"], measure, value, verdict, definitions, claim, note)


def _as_value(value) -> float | str:
    """A number, "nan" or "error"; a text is "error": it is no value of a measure."""
    if isinstance(value, str):
        return ERROR
    try:
        number = float(value)
    except (TypeError, ValueError):
        return ERROR
    return NAN if math.isnan(number) else number


def agrees(value, answer: str) -> bool:
    """Whether a value is an answer of `cases.json`: `error`, `nan`, a fraction or a decimal number."""
    if ERROR in (value, answer) or NAN in (value, answer):
        return value == answer
    return abs(value - float(Fraction(answer))) <= TOLERANCE


def _elsewhere(case: dict, measure: str, value) -> str:
    """The first definition of another measure of the case that the value equals; 0 and 1 are met by chance."""
    for head, answers in case["answers"].items():
        for name, answer in answers.items():
            if head != measure and value not in (0, 1) and agrees(value, answer):
                return f"{head}: {name}"
    return ""


def head_of(measure: str) -> str:
    """`map@3` -> `map@k`."""
    name, at, _ = measure.partition("@")
    return f"{name}@k" if at and name != "tar" else measure


def prepared(case: dict) -> dict:
    """The case as the function gets it: without answers, with arrays."""
    question = {key: value for key, value in case.items() if key not in ("answers", "cuts")}
    queries = case["queries"]
    gallery = case.get("gallery", queries)
    shape = (len(queries["labels"]), len(gallery["labels"]))
    question["measures"] = list(case["answers"])
    question["own_row"] = np.array(case.get("self", [-1] * shape[0]))
    if "gallery" not in case:
        question["own_row"] = np.arange(shape[0])
    if "scores" in case:
        question["given"] = "scores"
        # vectors whose inner products, and so their distances to unit vectors, are in the order of the scores
        question["query_features"] = np.array(case["scores"], np.float64).reshape(shape)
        question["gallery_features"] = np.eye(shape[1])
    else:
        question["given"] = "features"
        question["query_features"] = np.array(queries["features"], np.float64)
        width = question["query_features"].shape[1]
        question["gallery_features"] = np.array(gallery["features"], np.float64).reshape(shape[1], width)
    question["ignored"] = np.arange(shape[1]) == question["own_row"][:, None]
    question["relevant"] = np.zeros(shape, bool)
    for query, row in np.ndindex(*shape):
        question["ignored"][query, row] |= is_ignored(case, query, row)
        question["relevant"][query, row] = is_relevant(case, query, row)
    question["relevant"] &= ~question["ignored"]
    question["scores"] = np.where(question["ignored"], -np.inf, scores_of(case, question))
    return question


def scores_of(case: dict, question: dict) -> np.ndarray:
    """(Q, M) similarities: those of the case, cosines, or minus the squared Euclidean distances."""
    queries = question["query_features"]
    gallery = question["gallery_features"]
    if "scores" in case:
        return queries
    if case.get("similarity") == "cosine":
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(gallery, axis=1)[None]
        return queries @ gallery.T / np.where(lengths > 0, lengths, 1)
    return -((queries[:, None] - gallery[None]) ** 2).sum(axis=2)


def is_ignored(case: dict, query: int, row: int) -> bool:
    """Whether a gallery row is junk for a query: listed, of its class and camera, or of its sequence."""
    queries = case["queries"]
    gallery = case.get("gallery", queries)
    if row in case.get("junk", {}).get(str(query), []):
        return True
    if "cameras" in queries and queries["labels"][query] == gallery["labels"][row]:
        return queries["cameras"][query] == gallery["cameras"][row]
    return "sequences" in queries and queries["sequences"][query] == gallery["sequences"][row]


def is_relevant(case: dict, query: int, row: int) -> bool:
    """Whether a gallery row is to be found: listed, or of the query's class, of several levels the finest."""
    if "positives" in case:
        return row in case["positives"][query]
    query_label = case["queries"]["labels"][query]
    label = case.get("gallery", case["queries"])["labels"][row]
    if label is None or not isinstance(query_label, list):
        return label is not None and query_label == label
    if case["axis"] == "several labels":
        return not set(query_label).isdisjoint(label)
    return query_label[0] == label[0]
