"""Errors of a user, each of one line."""

import contextlib

import pytest

from utilities.errors import UserError


@contextlib.contextmanager
def refused(match, *words):
    """A UserError of one line that holds all `words`."""
    with pytest.raises(UserError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value) and all(str(word) in str(caught.value) for word in words), caught.value
