"""`key=value` words of the command line as arguments of a class."""

import ast

from utilities.errors import UserError

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def parse_value(text: str):
    """The value that `text` spells: an int, float, bool, None, list, tuple or dict as Python writes it; else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _WORDS.get(text.lower(), text)


def parse_kwargs(words: list[str] | None) -> dict:
    """`["m=0.4", "gamma=80"]` -> `{"m": 0.4, "gamma": 80}`. Raises UserError for a word that is no `key=value`."""
    parsed = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"{word!r} is not of the form key=value: write for example m=0.4 gamma=80")
        parsed[key] = parse_value(value)
    return parsed
