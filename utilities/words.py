"""`key=value` words of the command line: arguments of a class, weights of losses."""

import ast
import math

from utilities.errors import UserError

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def parse_kwargs(words: list[str] | None) -> dict:
    """`["m=0.4", "name=x"]` -> `{"m": 0.4, "name": "x"}`: literals or texts.
    Raises UserError for a word that is no `key=value`.
    """
    parsed = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"{word!r} is not of the form key=value: write for example m=0.4 gamma=80")
        try:
            parsed[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed[key] = _WORDS.get(value.lower(), value)
    return parsed


def parse_weights(words: list[str], flag: str = "--loss_weights") -> dict[str, float]:
    """`["metric_loss=1", "classifier_loss=.5"]` -> name -> weight. Raises UserError for a word without a weight."""
    weights = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            weights[name] = float(text)
        except ValueError:
            weights[name] = math.nan
        if not name or not math.isfinite(weights[name]):
            raise UserError(f"{flag} {word}: expected NAME=W, such as metric_loss=0.5")
    return weights


def unless_none(word: str) -> str | None:
    """The type of a flag whose value of a saved run the word none switches off: the word, None for none."""
    return None if word == "none" else word
