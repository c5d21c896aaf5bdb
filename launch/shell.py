"""The part of the shell's language that a file of runs is written in: words, quotes, variables, comments.

Read as `sh` reads it: a comment begins where a word could; '…' is literal; "…" and backslashes; a backslash at the end of a line joins it
with the next; $name, ${name}, ${name:-default}, which are split at blanks unless they are quoted; a leading ~/. What else means something
to a shell (several commands a line, pipes, redirections, command substitution) is refused. Patterns such as [0,1] are no file names here.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from utilities.errors import UserError

BLANKS, OPERATORS = " \t", "|&;<>()"
PLAIN = re.compile(r"[\w.,:=/@%+-]+")  # characters that mean nothing to a shell wherever they stand
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OTHER_VARIABLES = "@*#?$!-0123456789"  # a script's arguments, its process and the like


class Text(NamedTuple):
    """A part of a word, as it is written; `quoted` by quotes or a backslash."""

    text: str
    quoted: bool


class Variable(NamedTuple):
    """A part of a word: the value of a variable, or `default` where there is one and the value is unset or empty."""

    name: str
    default: "Word | None"
    quoted: bool


Word = list[Text | Variable]


class Reader:
    """Reads a script.

    Args:
        text: the script.
        name: how messages call it.
    """

    def __init__(self, text: str, name: str):
        self._text, self._name, self._place, self._number = text, name, 0, 1

    def commands(self) -> Iterator[tuple[int, list[Word]]]:
        """The number of its last line, and the words, of each command. Raises UserError for what is not understood, with its line."""
        words = []
        while char := self._look():
            if char == "\n" and words:
                yield self._number, words
                words = []
            if char in BLANKS + "\n":
                self._take()
            elif char == "#":
                self._place += len(self._text[self._place :].partition("\n")[0])
            elif char in OPERATORS:
                self._refuse(
                    f"{char} means something to a shell that is not understood here: one run a line, and quotes around a literal {char}"
                )
            else:
                words.append(self._word(BLANKS + "\n" + OPERATORS))
        if words:
            yield self._number, words

    def _word(self, ends: str) -> Word:
        """The word that begins here and goes on to one of `ends` outside quotes."""
        word = []
        while (char := self._look()) and char not in ends:
            if char == "'":
                word.append(self._literal())
            elif char == '"':
                word += [Text("", True), *self._double_quoted()]
            elif char == "\\":
                self._take()
                word.append(Text(self._take(), True))
            elif char in "$`":
                word.append(self._variable(quoted=False))
            else:
                plain = PLAIN.match(self._text, self._place)
                text = "".join(self._take() for _ in range(len(plain[0]) if plain else 1))
                if word and isinstance(word[-1], Text) and not word[-1].quoted:
                    text = word.pop().text + text
                word.append(Text(text, False))
        return word

    def _literal(self) -> Text:
        """What stands between two single quotes."""
        opened = self._number
        self._take()
        end = self._text.find("'", self._place)
        if end < 0:
            self._refuse("a ' is not closed", opened)
        text = "".join(self._take() for _ in range(end - self._place))
        self._take()
        return Text(text, True)

    def _double_quoted(self) -> Word:
        """What stands between two double quotes."""
        opened = self._number
        self._take()
        word = self._quoted('"', opened)
        self._take()
        return word

    def _quoted(self, end: str, opened: int) -> Word:
        """What stands within double quotes up to `end`: these, or the bracket of a default."""
        word = []
        while (char := self._look()) != end:
            if not char or char == '"':
                self._refuse(f"a {'{' if end == '}' else end} is not closed", opened)
            if char in "$`":
                word.append(self._variable(quoted=True))
                continue
            text = self._take()
            if char == "\\" and self._text[self._place : self._place + 1] in ("$", "`", '"', "\\", end):
                text = self._take()
            word.append(Text(text, True))
        return word

    def _variable(self, quoted: bool) -> Text | Variable:
        """What begins with a $; a $ that nothing follows is one."""
        opened = self._number
        if self._take() == "`" or self._look() == "(":
            self._refuse("the output of a command is no part of a run: write it out")
        if self._look() in tuple(OTHER_VARIABLES if quoted else OTHER_VARIABLES + "'\""):
            self._refuse(f"${self._look()} is not understood: $name, ${{name}} and ${{name:-default}} are")
        if self._look() != "{":
            name = self._name_here()
            return Variable(name, None, quoted) if name else Text("$", quoted)
        self._take()
        name, default = self._name_here(), None
        if name and self._look() == ":" and self._text[self._place + 1 : self._place + 2] == "-":
            self._take()
            self._take()
            default = self._quoted("}", opened) if quoted else self._word("}")
        if not name or self._look() != "}":
            self._refuse(f"${{{name}… is not understood: ${{name}} and ${{name:-default}} are", opened)
        self._take()
        return Variable(name, default, quoted)

    def _name_here(self) -> str:
        name = ""
        while (char := self._look()) and NAME.fullmatch(name + char):
            name += self._take()
        return name

    def _look(self) -> str:
        """The next character, past the ends of lines that a backslash joins; empty at the end of the script."""
        while self._text.startswith("\\", self._place):
            after = self._text[self._place + 1 : self._place + 2]
            if not after or self._place + 2 == len(self._text) and after == "\n":
                self._refuse("the file ends in the middle of a command (a backslash at the end of the line)")
            if after != "\n":
                break
            self._place += 2
            self._number += 1
        return self._text[self._place : self._place + 1]

    def _take(self) -> str:
        char = self._text[self._place]
        self._place += 1
        self._number += char == "\n"
        return char

    def _refuse(self, what: str, number: int | None = None) -> None:
        raise UserError(f"{self._name}, line {number or self._number}: {what}")


def assignment(word: Word) -> tuple[str, Word] | None:
    """The name and the value of `name=value`; None of another word."""
    first = word[0]
    found = NAME.match(first.text) if isinstance(first, Text) and not first.quoted else None
    if found is None or first.text[found.end() : found.end() + 1] != "=":
        return None
    rest = first.text[found.end() + 1 :]
    return found[0], [*([Text(rest, False)] if rest else []), *word[1:]]


def value(word: Word, known: dict[str, str]) -> str:
    """A word as a variable's value. Raises KeyError for a variable that is not `known`."""
    return "".join(text for text, _ in _expanded(word, known))


def fields(word: Word, known: dict[str, str], whole: set[str]) -> list[str]:
    """What a program gets of a word: none, one or several arguments. Raises KeyError for a variable that is not `known`.

    Args:
        whole: variables whose values are not split at blanks.
    """
    found, current = [], None
    for text, splits in _expanded(word, known, whole):
        first, *others = re.split(r"[ \t\n]+", text) if splits else [text]
        if first or not splits:
            current = (current or "") + first
        for other in others:
            found += [] if current is None else [current]
            current = other or None
    return found if current is None else [*found, current]


def _expanded(word: Word, known: dict[str, str], whole: set[str] = frozenset(), splits: bool = False) -> Iterator[tuple[str, bool]]:
    """(text, whether it is split at blanks) of each part. `splits`: unquoted text is."""
    for part in _at_home(word):
        if isinstance(part, Text):
            yield part.text, splits and not part.quoted
        elif part.default is not None and not known.get(part.name):
            yield from _expanded(part.default, known, whole, splits=True)
        else:
            yield known[part.name], not part.quoted and part.name not in whole


def _at_home(word: Word) -> Word:
    """The word with the home folder in the place of a leading ~."""
    first = word[0] if word else None
    if isinstance(first, Text) and not first.quoted and (first.text.startswith("~/") or word == [Text("~", False)]):
        return [Variable("HOME", None, True), Text(first.text[1:], False), *word[1:]]
    return word
