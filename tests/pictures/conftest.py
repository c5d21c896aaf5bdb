"""What both files look at."""

import pytest


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, by the stem of its file; it is laid out, and no file is written."""
    from matplotlib.figure import Figure

    saved = {}
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **k: (saved.update({path.stem: self}), self.draw_without_rendering())[1]
    )
    return saved
