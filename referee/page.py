"""docs/referee.md from the results of all programs."""

import collections
import importlib

from referee import judge

# Themes of the page -> kinds of cases, in the order of cases.json.
THEMES = {
    "What a name means": (
        "recall@k",
        "precision@k",
        "k beyond the gallery",
        "map@k: divisor",
        "map@k beyond the gallery",
        "average precision",
        "average precision by trapezoids",
        "map_r, r_precision",
        "mrr",
        "inp",
        "mp@k, mmp@k",
        "ndcg: gain and ideal",
        "cmc@k",
        "tar@far",
        "gap",
        "nmi, ami",
    ),
    "Equally near items": (
        "ties at the first rank",
        "ties over a cut-off",
        "all items equally near",
        "ties behind the first rank",
        "ties over two blocks",
        "ties in 5,000 images",
    ),
    "The query itself, and copies": (
        "the query itself",
        "the query itself, among copies",
        "the query itself at another place of a gallery",
        "copies of queries in a gallery",
    ),
    "Nothing to find": (
        "a query without relevant items",
        "a query whose relevant items are junk",
        "no query has relevant items",
        "an empty gallery",
        "one class, one query",
    ),
    "Junk, cameras, distractors, lists": ("junk", "same camera", "same sequence", "lists of positives", "distractors"),
    "Labels": (
        "labels beyond 2^24",
        "labels beyond 2^31",
        "labels beyond 2^53",
        "labels below zero",
        "labels that are texts",
        "labels of two levels",
        "several labels an image",
    ),
    "Numbers": (
        "vectors of unequal length",
        "vectors of unequal length, by cosine",
        "a vector of zeros, by cosine",
        "scores below zero",
        "distances that float32 merges",
        "vectors far from the origin",
        "a vector with NaN",
    ),
    "What may change nothing": ("order of the gallery", "a gallery in two blocks", "5,000 images"),
}
HEAD = """# Who computes what

Programs that evaluate retrieval give different numbers under one name. This page shows which definition each program
follows, found by asking it {n_cases} small cases with exact answers. `make referee` installs the programs, asks them
and writes this page; a test holds it current. Another definition is no fault: it is named. Only a value that no named
definition gives is called *unexplained*.

To ask your own program, copy [judge.py](../referee/judge.py) and [cases.json](../referee/cases.json) into your tests;
they need NumPy alone:

```python
import numpy as np

import judge


def evaluate(case):
    order = np.argsort(-case["scores"], axis=1, kind="stable")
    hits = np.take_along_axis(case["relevant"], order, axis=1)
    return {{"recall@1": hits[:, :1].any(axis=1).mean()}}


print(judge.judge(evaluate))
```

The head of judge.py says what a case holds. A measure may claim its definition, `"map@3: of R"`; then only that is
right.

## Programs

| program | version | cases | what is called |
|-|-|-|-|
{programs}

This project is asked by four doors. The tables show `metrics.compute`; the others differ from it so:

{doors}

In the tables, `·` means the one answer there is, `–` that the program does not take such cases or has no such measure,
*error* that it raises. Several names: the cases do not tell these definitions apart. Where the measures of a program
differ, each is named.
"""
UNSTABLE = "Where items tie, a sort that is not stable leaves an order that no definition names."
STANDARD = "dmlkit_compute"


def text(results: dict, cases: list[dict]) -> str:
    """The page.

    Args:
        results: adapter -> `version` and `verdicts`, as results.json has them.
        cases: those of `judge.read`.
    """
    adapters = {name: importlib.import_module(f"referee.adapters.{name}") for name in results}
    order = sorted(adapters, key=lambda name: (not name.startswith("dmlkit"), adapters[name].PROGRAM.lower()))
    columns = {name: Column(adapters[name].PROGRAM, results[name], cases) for name in order}
    rows = []
    for name, column in columns.items():
        rows.append(f"| {column.title} | {results[name]['version']} | {len(column.cases)} | {calls(adapters[name])} |")
    tables = {name: column for name, column in columns.items() if name == STANDARD or not name.startswith("dmlkit")}
    parts = [HEAD.format(n_cases=len(cases), programs="\n".join(rows), doors=doors(columns))]
    for theme, kinds in THEMES.items():
        parts.append(f"## {theme}\n\n{table(kinds, list(tables.values()))}\n")
    parts.append(f"## Other definitions, and what to set\n\n{differences(tables, adapters, cases)}\n")
    parts.append(f"## Values that no definition gives\n\n{UNSTABLE}\n")
    parts.append(f"{unexplained(list(columns.values()), cases)}\n")
    names = "\n".join(f"- `{name}`: {sentence}" for name, sentence in judge.read(part="definitions").items())
    parts.append(f"## The definitions\n\n{names}\n")
    listed = "\n".join(f"{number}. `{case['name']}`: {case['text']}" for number, case in enumerate(cases, 1))
    parts.append(f"## The cases\n\n{listed}\n")
    return "\n".join(parts)


def calls(module) -> str:
    """What an adapter calls: its docstring's first paragraph without the program's name."""
    paragraph = " ".join(module.__doc__.strip().split("\n\n")[0].split())
    return (paragraph.partition(": ")[2] or paragraph).rstrip(".")


class Column:
    """The answers of one program.

    Attributes:
        definitions: (kind, measure without its k) -> definitions that agree with all answers.
        axes: kind -> the axis of its cases.
    """

    def __init__(self, title: str, result: dict, cases: list[dict]):
        self.title = title
        self.axes = {case["kind"]: case["axis"] for case in cases}
        kinds = {case["name"]: case["kind"] for case in cases}
        self.verdicts = []
        for case, measure, value, verdict, claim, names, note in result["verdicts"]:
            self.verdicts.append(judge.Verdict(case, kinds[case], measure, value, verdict, names, claim, note))
        self.cases = {verdict.case for verdict in self.verdicts}
        self.definitions = judge.Report(self.verdicts).definitions()

    def measures(self, kind: str) -> dict[str, list[str]]:
        """Measure -> definitions, of a kind."""
        return {measure: names for (of_kind, measure), names in self.definitions.items() if of_kind == kind}

    def shared(self, kind: str) -> list[str]:
        """The definitions that agree with all measures of a kind; of several those that hold for its axis too."""
        names = common(list(self.measures(kind).values()))
        of_axis = [names for (name, _), names in self.definitions.items() if self.axes[name] == self.axes[kind]]
        return [name for name in names if name in common(of_axis)] or names

    def cell(self, kind: str) -> str:
        """The definition of a kind; each measure's where they differ."""
        measures = self.measures(kind)
        if not measures:
            return "–"
        if self.shared(kind):
            return phrase(self.shared(kind))
        described = {measure: self._described(kind, measure, names) for measure, names in measures.items()}
        usual, count = collections.Counter(described.values()).most_common(1)[0]
        if count == len(described):
            return usual
        parts = [f"{measure} {words}" for measure, words in described.items() if count == 1 or words != usual]
        if count > 1:
            parts.append(f"else {usual}")
        return "; ".join(parts)

    def _described(self, kind: str, measure: str, names: list[str]) -> str:
        if names:
            return phrase(names)
        values = [v.value for v in self.verdicts if (v.kind, judge.head_of(v.measure)) == (kind, measure)]
        return "*error*" if judge.ERROR in values else "*unexplained*"


def phrase(names: list[str]) -> str:
    """Definitions as a cell names them."""
    return "·" if names == ["exact"] else " or ".join(names)


def common(lists: list[list[str]]) -> list[str]:
    """What is in all lists, in the order of the first."""
    shared = set.intersection(*map(set, lists))
    return [name for name in lists[0] if name in shared]


def all_kinds() -> list[str]:
    """The kinds of all themes."""
    return [kind for kinds in THEMES.values() for kind in kinds]


def table(kinds: tuple[str, ...], columns: list[Column]) -> str:
    """One row a kind, one column a program that answers any of them."""
    answering = [column for column in columns if any(map(column.measures, kinds))]
    titles = " | ".join(column.title for column in answering)
    lines = [f"| cases | {titles} |", f"|-|{'-|' * len(answering)}"]
    for kind in kinds:
        cells = " | ".join(column.cell(kind) for column in answering)
        lines.append(f"| {kind} | {cells} |")
    return "\n".join(lines)


def doors(columns: dict[str, Column]) -> str:
    """Where the other doors of this project follow another definition."""
    lines = []
    for name, column in columns.items():
        if name == STANDARD or not name.startswith("dmlkit"):
            continue
        kinds_of_cell = {}
        for kind in all_kinds():
            if column.measures(kind) and column.cell(kind) != columns[STANDARD].cell(kind):
                kinds_of_cell.setdefault(column.cell(kind), []).append(kind)
        parts = [f"{cell} ({', '.join(kinds)})" for cell, kinds in kinds_of_cell.items()]
        lines.append(f"- {column.title.removeprefix('dmlkit: ')}: {'; '.join(parts) or 'the same'}.")
    return "\n".join(lines)


def differences(columns: dict[str, Column], adapters: dict, cases: list[dict]) -> str:
    """For each kind the programs with another definition than this project's, and what to set in them."""
    numbers = {}
    for number, case in enumerate(cases, start=1):
        numbers.setdefault(case["kind"], []).append(str(number))
    standard = columns[STANDARD]
    lines = []
    for kind in all_kinds():
        parts = []
        for name, column in columns.items():
            agrees = set(column.shared(kind)) & set(standard.shared(kind)) if column.measures(kind) else True
            if agrees or column.cell(kind) == standard.cell(kind):
                continue
            advice = adapters[name].SETTINGS.get(kind)
            note = f" ({advice})" if advice else ""
            parts.append(f"{column.title} {column.cell(kind)}{note}")
        if parts:
            cases_of_kind = ", ".join(numbers[kind])
            lines.append(f"- **{kind}** (cases {cases_of_kind}), {standard.cell(kind)} here: {'; '.join(parts)}.")
    return "\n".join(lines)


def unexplained(columns: list[Column], cases: list[dict]) -> str:
    """One line for each value that no definition gives, and for each error that is no definition."""
    numbers = {case["name"]: number for number, case in enumerate(cases, start=1)}
    lines = []
    for column in columns:
        for verdict in column.verdicts:
            if not verdict.definitions:
                value = verdict.value if isinstance(verdict.value, str) else f"{verdict.value:.4g}"
                reason = verdict.note.removeprefix("error: ")
                note = "" if reason == "no named definition" else f" ({reason})"
                lines.append(f"- {column.title}, case {numbers[verdict.case]}: {verdict.measure} is {value}{note}")
    return "\n".join(lines)
