"""Labels that never overlap, and figures of few or no groups."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text

import Result_Evaluations
from pictures import labels
from results import plots
from results.columns import column
from results.groups import build
from results.recorded import RecordedRun, Series
from tests.kit.run_folders import flag_roles

R1 = column("test", "e_recall@1")
RHO = column("train", "rho_spectrum@2")


@pytest.fixture
def figures(monkeypatch):
    """What would be saved."""
    saved = []
    monkeypatch.setattr(plots, "save", lambda figure, folder, name: saved.append(figure) or name)
    return saved


def texts_of(figure):
    return {text.get_text() for text in figure.findobj(Text)}


def with_rho(group):
    """The group's miner is rho_distance."""
    for run in group.runs:
        run.flags["batch_mining"] = "rho_distance"


@pytest.mark.parametrize(
    ("seed", "spread", "centre"),
    [
        (0, 1.0, 0),
        (0, 0.0, 0),
        (1, 0.1, 0.5),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((0, 0.02, 0), (1, 1.0, 0.5), (1, 0.3, 0.5))),
    ],
)
def test_no_label_touches_another_or_a_point_and_none_is_nearer_to_another_than_its_own(seed, spread, centre):
    rng = np.random.default_rng(seed)
    places = 0.5 + spread * rng.standard_normal((23, 2)) * 0.2 if centre else rng.random((23, 2)) * spread
    points = [tuple(p) for p in places] + [(1.0, 1.0), (0.0, 0.0)]
    figure, axis = plt.subplots(figsize=(8.6, 6))
    axis.plot(*zip(*points, strict=True), "o", markersize=5)
    axis.margins(0.12)
    assert labels.place_labels(axis, points, [f"R-Quadruplet(D) {i}" for i in range(25)], ["black"] * 25)
    renderer = figure.canvas.get_renderer()
    room = axis.get_window_extent(renderer)
    centres = axis.transData.transform(points)
    joined = {tuple(line.get_xydata()[0]) for line in axis.lines[1:]}
    boxes = []
    for text in axis.texts:
        text.update_positions(renderer)
        # the extent of the words, without the line to the point
        box = Text.get_window_extent(text, renderer)
        assert room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1
        assert not any(box.contains(*centre) for centre in centres)
        assert not any(box.overlaps(label_box) for label_box in boxes)
        boxes.append(box)
        gaps = np.linalg.norm(np.maximum(np.maximum(box.p0 - centres, centres - box.p1), 0), axis=1)
        index = int(text.get_text().split()[-1])
        # a label without a line is nearest to its own point
        assert not spread or points[index] in joined or gaps.argmin() == index
    assert len(boxes) == 25
    plt.close(figure)


def groups_of(count):
    keys = [("test", "e_recall@1"), ("train", "rho_spectrum@2")]

    def run(i, seed):
        series = Series(np.array([1]), keys, np.array([[0.5 + 0.01 * i + 0.001 * seed, 0.3 - 0.02 * i]]))
        flags = {"n_epochs": 1}
        return RecordedRun(f"{i}_{seed}", "x", "cub200", f"g{i}", seed, flag_roles(), flags=flags, series=series)

    return build([run(i, seed) for i in range(count) for seed in (0, 1)])


def test_of_one_group_there_is_no_relation(tmp_path, figures):
    group = groups_of(1)
    assert plots.relations(group, R1, [RHO], tmp_path) is plots.rho(group, R1, [RHO], tmp_path) is None
    assert plots.ranked(group, R1, tmp_path) == "cub200_ranked"


@pytest.mark.parametrize(("count", "title"), [(4, "4 groups: too few for r"), (5, "r = -1.00 over 5 groups")])
def test_figures_of_few_groups_give_no_r_and_no_line(count, title, tmp_path, figures):
    # a metric that no run recorded
    distances = column("train", "dists@intra")
    few_groups = groups_of(count)
    assert plots.relations(few_groups, R1, [RHO, distances], tmp_path) == "cub200_relations"
    assert plots.rho(few_groups, R1, [RHO], tmp_path) == "cub200_recall_against_rho"
    for figure in figures:
        assert any(title in text for text in texts_of(figure))
        lines = [line for axis in figure.axes for line in axis.lines if line.get_linestyle() == "--"]
        assert len(lines) == (count == 5)
    assert plots.ranked(few_groups, R1, tmp_path) == "cub200_ranked"
    # chance alone gives values near 1
    assert (plots.matrix(few_groups, [R1, RHO], tmp_path) is None) == (count < 5)
    n_figures = len(figures)
    assert plots.relations(few_groups, R1, [distances], tmp_path) is None
    assert plots.ranked(few_groups, column("test", "nmi"), tmp_path) is None
    assert plots.rho(few_groups, R1, [], tmp_path) is None and len(figures) == n_figures


def test_twins_count_once_in_a_figure(tmp_path, figures):
    few_groups = groups_of(6)
    with_rho(few_groups[5])
    for i, group in enumerate(few_groups):
        for run in group.runs:
            run.flags["loss"] = str(min(i, 4))
            run.flags.setdefault("batch_mining", "distance")
    plots.relations(few_groups, R1, [RHO], tmp_path)
    assert any("r = -1.00 over 5 groups" in text for text in texts_of(figures[-1]))


def test_the_colours_of_the_ranked_bars_are_named_beside_the_title(tmp_path, figures):
    all_groups = groups_of(3)
    for group in all_groups:
        group.dataset = "online_products"
    plots.ranked(all_groups, R1, tmp_path)
    assert figures[0].axes[0].get_legend() is None, "one colour needs no name"
    with_rho(all_groups[1])
    plots.ranked(all_groups, R1, tmp_path)
    (axis,) = figures[1].axes
    renderer = figures[1].canvas.get_renderer()
    figures[1].draw_without_rendering()
    legend = axis.get_legend()
    title = next(text for text in axis.findobj(Text) if text.get_text().startswith("online_products"))
    assert [text.get_text() for text in legend.get_texts()] == ["as it is", "with rho_distance"]
    box = legend.get_window_extent(renderer)
    assert not box.overlaps(title.get_window_extent(renderer)) and box.y0 >= axis.get_window_extent(renderer).y1 - 1
    assert box.x1 <= figures[1].bbox.x1 and box.y1 <= figures[1].bbox.y1


def test_of_a_matrix_the_first_column_is_on_top(tmp_path, figures):
    plots.matrix(groups_of(5), [R1, RHO], tmp_path)
    axis = figures[0].axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["R@1", "rho (train)"]
    assert axis.get_ylim() == (1.5, -0.5)
    text_at = {text.get_position(): text.get_text() for text in axis.texts}
    assert text_at == {(0, 0): "1.00", (1, 0): "-1.00", (0, 1): "-1.00", (1, 1): "1.00"}
    assert np.abs(np.asarray(axis.collections[0].get_array()).ravel() - [1, -1, -1, 1]).max() < 0.005


def test_no_text_of_a_figure_is_a_formula_and_groups_without_a_run_are_named_below(tmp_path, figures):
    all_groups = groups_of(6)
    for group in all_groups:
        group.dataset = "$data_$set"
        group.name = f"{group.name}$_$"
    all_groups[5].seeds.clear()
    captions = dict(Result_Evaluations._figures(all_groups, [R1], [(R1, RHO)], tmp_path))
    caption = "Groups ranked by R@1; without a run that counts, and so not here: g5$_$"
    assert captions.pop("$data_$set_ranked") == caption and len(figures) == len(captions) + 1 == 5
    assert not any(text.get_parse_math() for figure in figures for text in figure.findobj(Text))


def test_means_of_fewer_seeds_than_were_run_are_marked_in_figures(tmp_path, figures):
    all_groups = groups_of(3)
    # one of its two seeds failed
    all_groups[0].seeds.pop(1)
    plots.ranked(all_groups, R1, tmp_path)
    plots.rho(all_groups, R1, [RHO], tmp_path)
    for figure in figures:
        texts = texts_of(figure)
        assert {"g0*", "g1", "g2", "* fewer seeds than were run"} <= texts and not {"g0", "g1*"} & texts
    plots.ranked(all_groups[1:], R1, tmp_path)
    assert "* fewer seeds than were run" not in texts_of(figures[-1])


def test_the_colours_of_the_relations_are_named_outside_of_all_panels(tmp_path, figures):
    all_groups = groups_of(4)
    with_rho(all_groups[1])
    for panels in ([RHO], [RHO, R1, RHO]):
        plots.relations(all_groups, R1, panels, tmp_path)
        figure = figures[-1]
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()
        (legend,) = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
        box = legend.get_window_extent(renderer)
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0
        assert not any(box.overlaps(axis.get_window_extent(renderer)) for axis in figure.axes)
        panel_texts = [text for text in figure.findobj(Text) if text.get_text() and text not in legend.findobj(Text)]
        assert not any(box.overlaps(text.get_window_extent(renderer)) for text in panel_texts if text.get_visible())


def test_ranked_groups_are_dots_with_deviations_best_on_top_in_parts(tmp_path, figures):
    all_groups = groups_of(4)
    for run in (run for group in all_groups[:2] for run in group.runs):
        keys = [*run.series.keys, ("val", "e_recall@1")]
        run.series = Series(run.series.epochs, keys, np.hstack([run.series.values, [[0.5]]]))
    plots.ranked(all_groups, R1, tmp_path)
    (axis,) = figures[0].axes
    assert not axis.patches, "no bars: their axis would have to begin at 0"
    assert [label.get_text() for label in axis.get_yticklabels()] == ["g2", "g3", "g0", "g1"], "from below"
    assert axis.get_ylim()[0] < axis.get_ylim()[1]
    printed = {"selected on val", "selected on test", "50.05", "51.05", "52.05"}
    assert printed <= {text.get_text() for text in axis.texts}
