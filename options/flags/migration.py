"""What to type here for a name of powerful-benchmarker or pytorch-metric-learning.

The tables of docs/migration.md are the data: the names in the first column of a row, in backticks, are answered by its
second column. They are read only when a command is refused.
"""

import functools
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
# endings of names of classes, which the names of plug-ins lack
ENDINGS = ("loss", "miner", "sampler")
_ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_KEY = re.compile(r"[-{]*([a-z]\w*)")
_CLASS = re.compile(r"(?<!~)\b(?!True\b|False\b)[A-Z]\w*")
_LINK = re.compile(r"\[([^]]+)]\([^)]+\)")
_OLD_SUFFIX = re.compile(r"~(OVERRIDE|APPLY|SWAP|DELETE|MERGE)~")
_RANGE = re.compile(r"~\w*(BAYESIAN|CHOICE)~")
RANGES = "python -m search takes ranges, behind the name of a flag: --lr~LOG_BAYESIAN~ 1e-6,1e-3"
NESTED = (
    "Each flag takes a value without braces and ~OVERRIDE~; many flags go into a flat file for --config "
    "(docs/migration.md)"
)
# kind of plug-in -> flag
FLAGS = {
    "loss": "loss",
    "miner": "batch_mining",
    "sampler": "data_sampler",
    "trainer": "trainer",
    "dataset": "dataset",
}


def bare(name: str) -> str:
    """A name without case, underscores and the ending of a class.

    `MultiSimilarityMiner` and `multi_similarity` give `multisimilarity`.
    """
    letters = re.sub(r"[\W_]", "", name.lower())
    ending = next((ending for ending in ENDINGS if letters.endswith(ending)), "")
    return letters.removesuffix(ending) or letters


@functools.cache
def answers() -> dict[str, str]:
    """Old name -> what takes its place here: keys and flags without dashes, and names of classes.

    Empty where the program was copied without its docs.
    """
    if not PAGE.is_file():
        return {}
    answer_of = {}
    for old, replacement in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        text = _LINK.sub(r"\1", replacement).replace("`", "").replace("\\|", "|")
        codes = _CODE.findall(old)
        # If the row is of a class, the other names in it are arguments of the class.
        is_of_class = bool(codes) and codes[0][0].isupper()
        for code in codes:
            key = _KEY.match(code)
            names = _CLASS.findall(code) if "{" in code or ":" in code or key is None else []
            if key is not None and not is_of_class:
                names.append(key[1])
            for name in names:
                answer_of.setdefault(name, text)
    return answer_of


def answer(name: str) -> str | None:
    """What takes the place of a flag, key or class here; None for a name that is not in the tables.

    Classes are found in any case.
    """
    key = name.lstrip("-").partition("=")[0]
    answer_of = answers()
    if key.startswith("config_"):
        key = "config_general"
    classes = {name.lower(): name for name in answer_of if name[0].isupper()}
    return answer_of.get(key) or answer_of.get(classes.get(key.lower()))


def plug_in(name: str, flag: str, available: list[str]) -> str | None:
    """The one of the plug-ins `available` that a class, or a name in another case, means.

    None where none fits, or the page names another one.
    """
    alike = [plug_in_name for plug_in_name in available if bare(plug_in_name) == bare(name)]
    if len(alike) != 1:
        return None
    named = re.findall(rf"--{flag} (\w+)", answer(name) or "")
    return None if named and alike[0] not in named else alike[0]


def answer_to_class(name: str, flag: str, available: list[str]) -> str | None:
    """What to type for a class that `flag` does not take; None for other names."""
    text = answer(name)
    if text is not None:
        return text
    plug_in_name = plug_in(name, flag, available)
    if plug_in_name is not None:
        return f"--{flag} {plug_in_name}"
    prefix = {"loss": "loss", "batch_mining": "miner"}.get(flag)
    is_class = prefix is not None and re.fullmatch(rf"[A-Z]\w+{prefix}", name, re.IGNORECASE) and not name.islower()
    if not is_class:
        return None
    return f"--{flag} pml --{prefix}_pml_class {name}, if pytorch-metric-learning has it"


def refusal(words: list[str], options, registries: dict, searches: bool = False) -> str | None:
    """The error for a command that is written as powerful-benchmarker takes it; None where nothing is.

    Args:
        words: the command line.
        options: the flags that there are, with dashes.
        registries: flag -> the registry of its plug-ins.
        searches: the command is a search, which takes ranges.
    """
    # text -> the flags that it answers
    flags_of = {}
    closing = []
    for place, word in enumerate(words):
        option = word.partition("=")[0]
        if not option.startswith("--"):
            continue
        key = option.strip("-").partition("~")[0]
        values = _values(words, place)
        if key.startswith("config_") and option not in options:
            text = f"here {_shipped_files(answer(key), values)}"
        elif _OLD_SUFFIX.search(option) or _is_mapping(values):
            replacement = answer(key) or f"--{key} VALUE"
            text = f"here {replacement}{_classes(values, registries, replacement)}"
            option = option.rstrip(":")
            if any(map(_RANGE.search, values)):
                closing.append(RANGES)
            closing.append(NESTED)
        elif _RANGE.search(option) and not searches:
            text = f"a range is searched: python -m search {' '.join([option, *values])}"
        elif "~" not in option and option not in options and answer(key) is not None:
            text = f"here {answer(key)}"
        else:
            continue
        flags_of.setdefault(text, []).append(option)
    if not flags_of:
        return None
    lines = [f"{', '.join(dict.fromkeys(flags))}: {text}" for text, flags in flags_of.items()]
    return ". ".join(["; ".join(lines), *dict.fromkeys(closing)])


def _is_mapping(values: list[str]) -> bool:
    """Whether values are a mapping in braces, such as `{lr: 1e-6}`."""
    has_brace = any(value.startswith("{") for value in values)
    return has_brace and (values == ["{}"] or ":" in " ".join(values))


def _shipped_files(general: str, values: list[str]) -> str:
    """What the shipped config files among the values are here,
    after the `general` answer unless all of them are known.
    """
    names = dict.fromkeys(re.findall(r"[\w.]+", " ".join(values)))
    texts = {name: answer(name.removesuffix(".yaml")) for name in names}
    answered = [f"for {name} {text}" for name, text in texts.items() if text is not None]
    if answered and len(answered) == len(texts):
        return "; ".join(answered)
    return "; ".join([general, *answered])


def _values(words: list[str], place: int) -> list[str]:
    """The values of the flag at `place`: after an = in it, and the words up to the next flag."""
    _, equals, value = words[place].partition("=")
    values = [value] if equals else []
    for word in words[place + 1 :]:
        if word.startswith("--"):
            break
        values.append(word)
    return values


def _classes(values: list[str], registries: dict, replacement: str) -> str:
    """What the classes among the values are here, in brackets, where `replacement` does not say it; empty for none."""
    texts = []
    for name in _CLASS.findall(" ".join(values)):
        flag = next((FLAGS[kind] for kind in FLAGS if name.lower().endswith(kind)), "dataset")
        text = answer_to_class(name, flag, registries[flag].names())
        if text is not None and text != replacement:
            texts.append(f"{name}: {text}")
    return f" ({'; '.join(texts)})" if texts else ""
