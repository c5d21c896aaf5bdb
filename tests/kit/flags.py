"""Another value of a flag than its default."""

import argparse

from utilities.numbers import Range


def other_value(action) -> str:
    """A value that the flag takes and that is not its default."""
    default = action.default if isinstance(action.default, list) else [action.default]
    if action.choices is not None:
        return next(str(choice) for choice in action.choices if choice not in default)
    if not isinstance(action.type, Range):
        return "x"
    for text in ("0.5", "2", "0.25", "3", "1", "1000", "0.001"):
        try:
            if action.type(text) not in default:
                return text
        except argparse.ArgumentTypeError:
            continue
    raise AssertionError(f"--{action.dest}: no value found")


def words_of(action) -> list[str]:
    """The words of a command line that give the flag another value."""
    if action.nargs == 0:
        return [f"--{action.dest}"]
    count = action.nargs if isinstance(action.nargs, int) else 1
    return [f"--{action.dest}", *[other_value(action)] * count]


def another_value(action):
    """The other value as a parsed command line has it."""
    parser = argparse.ArgumentParser()
    parser._add_action(action)
    return getattr(parser.parse_args(words_of(action)), action.dest)
