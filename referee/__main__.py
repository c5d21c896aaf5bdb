"""`python -m referee`: asks the programs that are installed for the measures of all cases, and writes results.json
beside this file and docs/referee.md.

Programs that are not installed keep their results of before; `make referee` installs all into an environment of its
own, at the versions of requirements.txt beside this file.
"""

import argparse
import json
import sys
from collections import Counter

from referee import asking, judge, page

RESULTS = asking.FOLDER / "results.json"
PAGE = asking.FOLDER.parent / "docs/referee.md"


def main(argv: list[str] | None = None):
    """Ask and write."""
    parser = argparse.ArgumentParser(prog="python -m referee", description=__doc__)
    help_programs = "which to ask: " + " ".join(asking.adapters()) + " (default: all)"
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=help_programs)
    parser.add_argument("--seconds", type=float, default=asking.SECONDS, help="for one case (default: %(default)s)")
    parser.add_argument("--page_alone", action="store_true", help="write the page from results.json, ask nobody")
    flags = parser.parse_args(argv)
    unknown = sorted(set(flags.programs) - set(asking.adapters()))
    if unknown:
        parser.error(f"{' '.join(unknown)}: no adapter has this name")
    try:
        cases = judge.read()
    except ValueError as error:
        parser.error(str(error))
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if not flags.page_alone:
        for name in flags.programs or asking.adapters():
            answers = ask(name, cases, flags.seconds)
            if answers is not None:
                results[name] = answers
        RESULTS.write_text(as_text(results), encoding="utf-8")
    PAGE.write_text(page.text(results, cases), encoding="utf-8")
    print(f"written: {PAGE}")


def ask(name: str, cases: list[dict], seconds: float) -> dict | None:
    """The version and the verdicts of a program; None, and a printed line, if it cannot be asked."""
    worker = asking.Worker(name, seconds=seconds)
    try:
        if worker.failure:
            print(f"{name}: {worker.failure}", file=sys.stderr)
            return None
        verdicts = asking.verdicts_of(worker, cases)
    finally:
        worker.close()
    counts = Counter(verdict.verdict for verdict in verdicts)
    print(f"{name} {worker.version}: {dict(counts)}")
    return {"version": worker.version, "verdicts": [record(verdict) for verdict in verdicts]}


def as_text(results: dict) -> str:
    """results.json: a line a verdict, so that a change shows what changed."""
    programs = []
    for name, answers in sorted(results.items()):
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in answers["verdicts"])
        programs.append(f'"{name}": {{"version": {json.dumps(answers["version"])}, "verdicts": [\n{lines}\n]}}')
    return "{\n" + ",\n".join(programs) + "\n}\n"


def record(verdict: judge.Verdict) -> list:
    """A verdict as results.json holds it: case, measure, value, verdict, claim, definitions, note."""
    value = verdict.value if isinstance(verdict.value, str) else round(verdict.value, 6)
    # a message may name a temporary file
    note = "" if verdict.definitions else verdict.note
    details = [verdict.verdict, verdict.claim, verdict.definitions, note]
    return [verdict.case, verdict.measure, value, *details]


if __name__ == "__main__":
    main()
