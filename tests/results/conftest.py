"""The tables go by the roles that Result_Evaluations.py hands in; tests that call them by themselves too."""

import pytest

import parameters
from results import roles


@pytest.fixture(scope="session")
def declared_roles():
    """Those of the program as it is: finding them takes longer than most tests."""
    return parameters.declared_roles()


@pytest.fixture(autouse=True)
def known_roles(declared_roles):
    roles.use(declared_roles)
