"""Titles fit their picture, whatever the names of runs, data sets and metrics."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pictures import groups as pictures
from pictures import space, text
from pictures.groups import Dot, Panel, Value

LONG = "a_group_with_a_name_that_is_much_longer_than_any_picture_is_wide_" * 3


def assert_titles_fit(figure):
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    titles = [title for axis in figure.axes for title in (axis.title, axis._left_title)]
    titles += [figure._suptitle] if figure._suptitle is not None else []
    titles_shown = [title for title in titles if title.get_text()]
    assert titles_shown
    for title in titles_shown:
        box = title.get_window_extent(renderer)
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width, title.get_text()


def dots(count, with_twins=False):
    return [Dot(f"g{i}", with_twins and i % 2 == 0, False, (Value(i, 0.1), Value(i**0.5, 0.1))) for i in range(count)]


def figures():
    panel = Panel(dots(6, with_twins=True), "x", f"{LONG}: r = +0.5 over 6 groups", True)
    single = [dot._replace(values=dot.values[:1]) for dot in dots(4, with_twins=True)]
    triple = [dot._replace(values=(*dot.values, dot.values[0])) for dot in dots(3)]
    yield pictures.relations([panel], "y", LONG)
    yield pictures.labelled(panel, "y")
    yield pictures.ranked(single, 2, "x", LONG)
    yield pictures.optimism(triple, 2, "x", LONG)
    yield pictures.matrix(np.eye(2), ["a", "b"], LONG)
    yield pictures.by_split(np.ones((2, 2)), [[0.1, 0.1]] * 2, ["a", "b"], ["s", "t"], "y", LONG)
    yield pictures.progressed([("a", [1.0, 2.0], [Value(1, 0.1), Value(2, 0.1)])], "y", LONG)


def test_titles_of_figures_of_groups():
    for figure in figures():
        assert_titles_fit(figure)


def test_titles_of_a_run_s_pictures(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **options: saved.append(self))
    generator = np.random.default_rng(0)
    features = {"test": generator.normal(size=(40, 4)).astype(np.float32)}
    labels = {"test": np.arange(40) % 5}
    space.spectra(tmp_path / "a.png", features, 0, LONG)
    space.distances(tmp_path / "b.png", features, labels, {"test": None}, 0, LONG)
    space.tsne(tmp_path / "c.png", space.Points(features["test"], labels["test"]), 40, 0, LONG)
    space.cmc(tmp_path / "d.png", np.array([1.0, 2.0, np.inf]), LONG)
    assert len(saved) == 4
    for figure in saved:
        assert_titles_fit(figure)


@pytest.mark.parametrize("width", [40, 200, 400])
def test_a_long_title_is_smaller_then_cut(width):
    fitting = text.title_that_fits(LONG, width)
    assert text.text_width(fitting["text"], fitting["fontsize"]) <= width
    assert fitting["fontsize"] == text.LEAST_TITLE_SIZE
    assert text.title_that_fits("short", 200) == {"text": "short", "fontsize": text.TITLE_SIZE}
