"""Commands and error lines as logs and screens may show them: without the keys and passwords in them.

A flag is secret by its role, `options.flags.roles.SECRET`. Its value is replaced;
of a URL the part that names no password stays.
"""

import argparse
import re
from collections.abc import Container, Iterable

from options.flags import roles

MASK = "***"
# greedy: a password may hold an @
_URL_WITH_LOGIN = re.compile(r"([A-Za-z][\w+.-]*://)[^\s/'\"]*@")
_PASSWORD_IN_QUERY = re.compile(r"([?&;][^=&;\s'\"]*(?:pass|pwd|token|secret)[^=&;\s'\"]*=)[^&;\s'\"]+", re.IGNORECASE)


def secret_options(*parsers: argparse.ArgumentParser) -> set[str]:
    """The names, such as `--wandb_key`, of all flags of `parsers` whose role is secret."""
    return {option for parser in parsers for option in roles.options_having(parser, secret=True)}


def mask_words(words: Iterable[str], secret: Container[str]) -> list[str]:
    """The `words` of a command, the values of the options `secret` masked: after the option, or in `--option=value`."""
    masked = []
    before = ""
    for word in words:
        option, equals, value = word.partition("=")
        if before in secret:
            word = mask_value(word)
        elif equals and option in secret:
            word = f"{option}={mask_value(value)}"
        masked.append(word)
        before = word
    return masked


def mask_value(value: str) -> str:
    """The value of a secret flag: `***`; of a URL its scheme and what follows the login, without the query."""
    scheme, separator, location = value.partition("://")
    if not separator:
        return MASK
    address, query, _ = location.partition("?")
    if "@" in address:
        address = f"{MASK}@{address.rpartition('@')[2]}"
    elif "@" in location:
        # a password with a ? in it, or an @ in the query
        address = MASK
    return f"{scheme}://{address}{query and query + MASK}"


def mask_urls(text: str) -> str:
    """A `text`, such as another package's error message, without the logins and passwords of the URLs in it."""
    return _PASSWORD_IN_QUERY.sub(rf"\1{MASK}", _URL_WITH_LOGIN.sub(rf"\1{MASK}@", text))
