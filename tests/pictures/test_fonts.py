"""Names in Chinese, Japanese and Korean are drawn with a font that has them, or as numbers, and without a warning."""

import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.font_manager import fontManager

from pictures import fonts, neighbours, space, text
from tests.kit.refusals import refused

PICTURES = True
NAMES = {0: "東京 犬", 1: "부산 고양이", 2: "cat", 3: "北京"}


@pytest.fixture(autouse=True)
def without_other_fonts(monkeypatch):
    """Whatever fonts this machine has: those of matplotlib alone."""
    monkeypatch.setitem(matplotlib.rcParams, "font.family", ["sans-serif"])
    shipped = [font for font in fontManager.ttflist if font.name.startswith(("DejaVu", "Last"))]
    monkeypatch.setattr(fontManager, "ttflist", shipped)
    fonts._family_with.cache_clear()
    yield
    fonts._family_with.cache_clear()


@pytest.fixture
def cjk_font(tmp_path):
    """A font of squares for the characters of two of the names."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 700), (700, 700), (700, 0)):
        pen.lineTo(corner)
    pen.closePath()
    glyph = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(letter): "square" for letter in "東京犬北"})
    builder.setupGlyf({".notdef": glyph, "square": glyph})
    builder.setupHorizontalMetrics({".notdef": (800, 0), "square": (800, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(tmp_path / "squares.ttf")
    fontManager.addfont(tmp_path / "squares.ttf")
    return "Squares"


def draw(path, names=NAMES):
    """The texts of a map of classes and of a picture of neighbours."""
    labels = np.repeat(np.arange(4), 6)
    features = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert space.tsne(path, space.Points(features, labels, names), 24, 1, "Gruppe 北 ü")
    return neighbours._names({0, 1, 2, 3, -1}, names, "distractor")


def test_names_without_a_font_become_numbers(tmp_path):
    texts = draw(tmp_path / "a.png")
    assert [texts[label]["s"] for label in (-1, 0, 1, 2, 3)] == ["distractor", "class 0", "class 1", "cat", "class 3"]
    assert fonts.drawable("a北b ü") == "a□b ü" and text.printable("a\n北") == "a □"
    assert matplotlib.rcParams["font.family"] == ["sans-serif"] and (tmp_path / "a.png").stat().st_size > 5000


def test_a_font_that_has_the_names_draws_them(tmp_path, cjk_font):
    texts = draw(tmp_path / "a.png")
    assert [texts[label]["s"] for label in (0, 1, 2, 3)] == ["東京 犬", "class 1", "cat", "北京"]
    assert matplotlib.rcParams["font.family"] == ["sans-serif", cjk_font]
    assert text.text_width("東京", 10) == pytest.approx(16, rel=0.1), "two squares of .8 each"


def test_titles_labels_and_axes_of_any_figure_are_drawn_without_a_warning(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.plot([1, 2], label="東京")
    axis.set_title("부산")
    axis.set(xlabel="北京", xticks=[0, 1], xticklabels=["犬", "猫"])
    figure.legend()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fonts.save_figure(figure, tmp_path / "a.png")
        fonts.save_figure(figure, tmp_path / "a.pdf")
    assert axis.get_title() == "□□" and [label.get_text() for label in axis.get_xticklabels()] == ["□", "□"]


def test_numbers_of_axes_stay_as_matplotlib_places_them(tmp_path):
    """Their minus is no ASCII."""
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    axis.plot([-3, 2], [0.1, 1e4])
    axis.set_yscale("log")
    limits = axis.get_xlim(), axis.get_ylim()
    fonts.save_figure(axis.figure, tmp_path / "a.png")
    assert (axis.get_xlim(), axis.get_ylim()) == limits
    assert type(axis.xaxis.get_major_locator()).__name__ == "AutoLocator"


def test_no_picture_is_written_through_a_link(tmp_path):
    from matplotlib.figure import Figure

    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a.png").symlink_to(tmp_path / "mine")
    with refused("a.png is a link to .*mine"):
        fonts.save_figure(Figure(), tmp_path / "a.png")
    assert (tmp_path / "mine").read_text() == "mine"
