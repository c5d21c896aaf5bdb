"""Labels that never overlap, and figures of few or no groups."""

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from results import plots  # noqa: E402
from results.collect import Run, Series  # noqa: E402
from results.columns import column  # noqa: E402
from results.groups import build  # noqa: E402

R1, RHO = column("test", "e_recall@1"), column("train", "rho_spectrum@2")


@pytest.mark.parametrize("spread", [1.0, 0.02, 0.0])
def test_no_label_touches_another_or_a_point(spread):
    rng = np.random.default_rng(0)
    points = [tuple(p) for p in rng.random((23, 2)) * spread] + [(1.0, 1.0), (0.0, 0.0)]
    figure, axis = plt.subplots(figsize=(8.6, 6))
    axis.plot(*zip(*points, strict=True), "o", markersize=5)
    axis.margins(0.12)
    assert plots.place_labels(axis, points, [f"R-Quadruplet(D) {i}" for i in range(25)], ["black"] * 25)
    renderer = figure.canvas.get_renderer()
    boxes = []
    for text in axis.texts:
        text.update_positions(renderer)
        boxes.append(Text.get_window_extent(text, renderer))  # of the words, without the line to the point
    assert len(boxes) == 25
    room, centres = axis.get_window_extent(renderer), axis.transData.transform(points)
    for i, box in enumerate(boxes):
        assert room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1
        assert not any(box.contains(*centre) for centre in centres)
        assert not any(box.overlaps(other) for other in boxes[:i])
    plt.close(figure)


def groups_of(count):
    def run(i, seed):
        values = np.array([[0.5 + 0.01 * i + 0.001 * seed, 0.3 - 0.02 * i]])
        return Run(
            f"{i}_{seed}",
            "x",
            "cub200",
            f"g{i}",
            seed,
            flags={"n_epochs": 1},
            series=Series(np.array([1]), [("test", "e_recall@1"), ("train", "rho_spectrum@2")], values),
        )

    return build([run(i, seed) for i in range(count) for seed in (0, 1)])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_figures_of_few_groups(tmp_path, count):
    found = groups_of(count)
    assert plots.relations(found, R1, [RHO, column("train", "dists@intra")], tmp_path) == "cub200_relations"
    assert plots.ranked(found, R1, tmp_path) == "cub200_ranked"
    assert plots.rho(found, R1, [RHO], tmp_path) == "cub200_recall_against_rho"
    assert (plots.matrix(found, [R1, RHO], tmp_path) is None) == (count < 3), "two points always lie on a line"


def test_nothing_to_draw(tmp_path):
    found = groups_of(2)
    assert plots.relations(found, R1, [column("train", "dists@intra")], tmp_path) is None
    assert plots.ranked(found, column("test", "nmi"), tmp_path) is None and plots.rho(found, R1, [], tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_the_colours_of_the_ranked_bars_are_named_beside_the_title(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, folder, name: figures.append(figure))
    found = groups_of(3)
    for group in found:
        group.dataset = "online_products"
    plots.ranked(found, R1, tmp_path)
    assert figures[0].axes[0].get_legend() is None, "one colour needs no name"
    for run in found[1].runs:
        run.flags["batch_mining"] = "rho_distance"
    plots.ranked(found, R1, tmp_path)
    (axis,) = figures[1].axes
    renderer = figures[1].canvas.get_renderer()
    figures[1].draw_without_rendering()
    legend, title = axis.get_legend(), next(text for text in axis.findobj(Text) if text.get_text().startswith("online_products"))
    assert [text.get_text() for text in legend.get_texts()] == ["as it is", "with rho_distance"]
    box = legend.get_window_extent(renderer)
    assert not box.overlaps(title.get_window_extent(renderer)) and box.y0 >= axis.get_window_extent(renderer).y1 - 1
    assert box.x1 <= figures[1].bbox.x1 and box.y1 <= figures[1].bbox.y1


def test_of_a_matrix_the_first_column_is_on_top(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, folder, name: figures.append(figure))
    plots.matrix(groups_of(4), [R1, RHO], tmp_path)
    axis = figures[0].axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["R@1", "rho (train)"] and axis.get_ylim() == (1.5, -0.5)
    shown = {text.get_position(): text.get_text() for text in axis.texts}
    assert shown == {(0, 0): "1.00", (1, 0): "-1.00", (0, 1): "-1.00", (1, 1): "1.00"}
    assert np.abs(np.asarray(axis.collections[0].get_array()).ravel() - [1, -1, -1, 1]).max() < 0.005
