"""What the tests of records share."""

import sys
import types

import pytest


@pytest.fixture
def comet(monkeypatch):
    """The calls `(name, args, kwargs)` of a comet_ml that keeps nothing else; the first, of an experiment, is
    `("start", its class, settings)`.
    """
    calls = []

    class Experiment:
        def __init__(self, **settings):
            calls.append(("start", type(self).__name__, settings))

        def __getattr__(self, name):
            return lambda *args, **kwargs: calls.append((name, args, kwargs))

    fake = types.SimpleNamespace(Experiment=Experiment, OfflineExperiment=type("OfflineExperiment", (Experiment,), {}))
    monkeypatch.setitem(sys.modules, "comet_ml", fake)
    return calls
