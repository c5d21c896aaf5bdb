"""The tables go by the roles that Result_Evaluations.py hands in; tests that call them by themselves too."""

import pytest

import parameters
import Result_Evaluations
from results import roles


@pytest.fixture(scope="session", autouse=True)
def known_roles():
    """The flags of the program as it is."""
    roles.use(parameters.declared_roles())


@pytest.fixture(scope="module", autouse=True)
def without_figures(request):
    """Figures take longer than all else. A module whose tests look at them says `FIGURES = True`."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "FIGURES", False):
            patch.setattr(Result_Evaluations, "_figures", lambda *about: [])
        yield
