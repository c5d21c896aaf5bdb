"""The finished run that is searched, exported and explored."""

import pytest


@pytest.fixture(scope="session")
def run(trained_once):
    """Its folder, to be read only."""
    return trained_once
