"""What both files look at."""

import pytest


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, by the stem of its file."""
    from matplotlib.figure import Figure

    saved, original = {}, Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **k: (saved.update({path.stem: self}), original(self, path, **k))[1])
    return saved
