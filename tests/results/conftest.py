"""The tables go by the roles that Result_Evaluations.py hands in; tests that call them by themselves too."""

import pytest

import parameters
from results import roles


@pytest.fixture(autouse=True)
def known_roles():
    """The flags of the program as it is."""
    roles.use(parameters.declared_roles())
