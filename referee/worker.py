"""A process that asks one program: `python -m referee.worker ADAPTER`. It reads the number of a case and a cut a line,
and answers each with a line of JSON; what the program prints goes to standard error.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import warnings

from referee import judge


def main():
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    adapter = importlib.import_module(f"referee.adapters.{sys.argv[1]}")
    print(json.dumps(installed(adapter)), file=answers, flush=True)
    cases = judge.read()
    for line in sys.stdin:
        number, cut = json.loads(line)
        case = judge.prepared(cases[number])
        if cut is not None:
            case["cut"] = cut
        print(json.dumps(answer(adapter, case)), file=answers, flush=True)


def installed(adapter) -> dict:
    """The version of an adapter's program, and why it cannot be asked, if it cannot.

    `PACKAGES`: names of distributions, of which one is enough; none for this project, which is asked as it lies here.
    """
    if not adapter.PACKAGES:
        return {"version": "this tree", "failure": None}
    for name in adapter.PACKAGES:
        try:
            return {"version": importlib.metadata.version(name), "failure": None}
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"version": None, "failure": f"{' or '.join(adapter.PACKAGES)} is not installed"}


def answer(adapter, case: dict) -> dict:
    """Measure -> its value, or `error: ` and what the program raised.

    Each measure is asked for alone, as one may fail, but of this project, whose runs take a second each.
    """
    groups = [[measure] for measure in case["measures"]] if adapter.PACKAGES else [case["measures"]]
    values = {}
    for measures in groups:
        try:
            answers = adapter.measure({**case, "measures": measures})
        except Exception as error:
            first_line = str(error).strip().partition("\n")[0]
            answers = dict.fromkeys(measures, f"error: {type(error).__name__}: {first_line}"[:200])
        values |= {name: as_number(value) for name, value in answers.items()}
    return values


def as_number(value) -> float | str:
    """A float; a text and whatever else is no number: what it is."""
    try:
        return value if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        return f"no number: {type(value).__name__}"


if __name__ == "__main__":
    main()
