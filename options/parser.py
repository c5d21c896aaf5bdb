"""The program's parser: argparse with switches that can be switched off, values in brackets, and answers to flags of
other programs.
"""

import argparse
import difflib
import re
import sys

from options.flags import migration
from utilities.errors import OneLineParser

# before a switch's name: switches it off
NEGATION = "--no-"


class Switch(argparse._StoreTrueAction):
    """A flag without a value: `--NAME` switches it on, `--no-NAME` off, also one of a --config file or a saved run."""

    def __call__(self, parser, namespace, values, option_string=None):
        """See argparse."""
        setattr(namespace, self.dest, not option_string.startswith(NEGATION))


class Parser(OneLineParser):
    """A parser whose switches can be switched off, and that reads values in brackets, `[val, test]`.

    It says what takes the place of a flag that it does not know.

    Args:
        registries: flag -> the registry of its values.
    """

    def __init__(self, registries: dict, **arguments):
        super().__init__(**arguments)
        self.registries = registries
        self.register("action", "store_true", Switch)

    def add_negations(self) -> None:
        """Let `--no-NAME` switch off each switch declared so far; help and docs list its name alone."""
        for action in self._actions:
            if isinstance(action, Switch):
                names = [option.removeprefix("--") for option in action.option_strings]
                self._option_string_actions |= {f"{NEGATION}{name}": action for name in names}

    def parse_args(self, args=None, namespace=None):
        """The namespace of a command line; ends with one line for a word that is no flag or is refused."""
        words = sys.argv[1:] if args is None else list(args)
        if (refusal := self.refusal(words)) is not None:
            self.error(refusal)
        namespace, unknown_words = self.parse_known_args(words, namespace)
        if unknown_words:
            self.error(self._unrecognized(words, unknown_words[0]))
        return namespace

    @property
    def options(self) -> list[str]:
        """All flags, with dashes, older and other names included."""
        return list(self._option_string_actions)

    def refusal(self, words: list[str], searches: bool = False) -> str | None:
        """The error for words as powerful-benchmarker takes them, see `migration.refusal`; None for none."""
        return migration.refusal(words, self._option_string_actions, self.registries, searches)

    def _unrecognized(self, words: list[str], word: str) -> str:
        """The error for the first of `words` that nothing takes."""
        before = ""
        if word in words[1:]:
            before = words[words.index(word) - 1]
        is_switch = before in self.options and self._option_string_actions[before].nargs == 0
        if is_switch and word.lower() == "true":
            return f"{before} {word}: {before} is a switch: give it without a value"
        if is_switch and word.lower() == "false":
            negation = f"{NEGATION}{before.removeprefix('--')}"
            return f"{before} {word}: {before} is a switch: leave it out, or switch it off by {negation}"
        # the flag's name alone is printed: its value may be a key or a password
        option = word.partition("=")[0]
        hint = f"--find {option.strip('-')} searches."
        if option.startswith("-"):
            nearest = difflib.get_close_matches(option, self.options, n=1, cutoff=0.75)
            if nearest:
                hint = f"Did you mean {nearest[0]}?"
        return f"unrecognized argument {option}. {hint}"

    def _check_value(self, action, value):
        """As argparse does; a name of another program gets what takes its place."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            equivalent = migration.answer(str(value))
            if equivalent is not None:
                error.message = f"{value}: here {equivalent}"
            raise

    def _get_values(self, action, arg_strings):
        """The values of a flag that takes several, also as `[a, b]`."""
        joined = " ".join(arg_strings)
        if action.nargs in ("+", "*") and joined.startswith("[") and joined.endswith("]"):
            words = re.split(r"[,\s]+", joined[1:-1])
            arg_strings = [word.strip("'\"") for word in words if word]
            if action.nargs == "+" and not arg_strings:
                raise argparse.ArgumentError(action, "expected at least one value")
        return super()._get_values(action, arg_strings)
