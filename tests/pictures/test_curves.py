"""Curves show what metrics.csv holds: one colour a split, untrained states apart, the selected epoch marked."""

import json

import pytest

from pictures import curves, text
from runs.records import Row
from runs.records.local import LongFile
from tests.kit.runs import program


def made_run(folder, epochs=(-1, 0, 1, 2, 3), metrics=("e_recall@1", "e_recall@2", "e_recall@10")):
    folder.mkdir(parents=True)
    sink = LongFile(folder)
    for epoch in epochs:
        values = [(split, metric) for split in ("train", "val", "test") for metric in metrics]
        sink.write([Row(epoch, split, "g", metric, 0.1 * epoch + 0.01 * i) for i, (split, metric) in enumerate(values)])
    (folder / "summary.json").write_text(json.dumps({"selected": {"rule": "r", "epoch": 2, "values": {}}}))
    return folder


def test_curves_are_those_of_the_file(tmp_path, figures):
    assert curves.draw_curves(made_run(tmp_path / "Group_s1")) == [
        tmp_path / "Group_s1" / "Progression_Plots" / "e_recall.svg"
    ]
    figure = figures["e_recall"]
    assert figure.get_suptitle() == "Group_s1"
    # by number, not by letters
    assert [axis.get_title() for axis in figure.axes] == ["e_recall@1", "e_recall@2", "e_recall@10"]
    curves_drawn = figure.axes[0].lines
    lines = {line.get_label(): line for line in curves_drawn}
    for number, split in enumerate(("train", "val", "test")):
        assert lines[split].get_xdata().tolist() == [1, 2, 3]
        assert lines[split].get_ydata().tolist() == pytest.approx([0.1 * epoch + 0.03 * number for epoch in (1, 2, 3)])
        assert lines[split].get_color() == text.SPLIT_COLOURS[split]
    hollow = [line for line in curves_drawn if line.get_label() in ("untrained", "bare backbone")]
    assert len(hollow) == 6
    assert {(line.get_markerfacecolor(), line.get_xdata()[0]) for line in hollow} == {("none", -1), ("none", 0)}
    (legend,) = figure.legends
    texts = ["train", "val", "test", "bare backbone", "untrained", "selected epoch, 2"]
    assert [name.get_text() for name in legend.get_texts()] == texts
    assert [line.get_xdata()[0] for line in curves_drawn if line.get_marker() == "D"] == [2] * 3
    curves.draw_curves(made_run(tmp_path / "Cross_s1" / "fold_2", epochs=(1,)))
    assert figures["e_recall"].get_suptitle() == "Cross_s1/fold_2"
    assert "untrained" not in [text.get_text() for text in figures["e_recall"].legends[0].get_texts()]


@pytest.mark.long
def test_a_notebook_keeps_its_backend(tmp_path):
    code = (
        "import sys, matplotlib; matplotlib.use('svg'); from pathlib import Path; from pictures import curves;"
        "curves.draw_curves(Path(sys.argv[1])); assert matplotlib.get_backend() == 'svg';"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    folder = made_run(tmp_path / "Run", metrics=("loss",))
    done = program("-c", code, folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "Progression_Plots" / "loss.svg").is_file()


def test_without_a_selected_epoch_none_is_marked(tmp_path, figures):
    folder = made_run(tmp_path / "Run", metrics=("loss",))
    for summary in ("", "[]", '{"selected": null}', '{"selected": {"epoch": null}}', None):
        (folder / "summary.json").unlink() if summary is None else (folder / "summary.json").write_text(summary)
        curves.draw_curves(folder)
        assert not any("selected" in line.get_label() for line in figures["loss"].axes[0].lines), summary


def test_names_and_legend_stay_inside_and_apart(tmp_path, figures):
    for number, metrics in enumerate(
        (("loss",), ("e_recall@1", "e_recall@2", "e_recall@4", "e_recall@8"), ("fused/dists@intra_over_inter",))
    ):
        curves.draw_curves(made_run(tmp_path / f"Group_of_quite_a_long_name_s{number}", metrics=metrics))
    for figure in figures.values():
        renderer = figure._get_renderer()
        width, height = figure.bbox.size
        artists = [figure._suptitle, *(axis.title for axis in figure.axes if axis.get_visible()), figure.legends[0]]
        boxes = [extent.get_window_extent(renderer) for extent in artists]
        assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes)
        assert not any(extent.overlaps(earlier) for i, extent in enumerate(boxes) for earlier in boxes[:i])


@pytest.mark.parametrize("n_epochs", [1, 3, 150])
def test_the_axis_names_the_untrained_states(tmp_path, figures, n_epochs):
    curves.draw_curves(made_run(tmp_path / "Run", epochs=range(-1, n_epochs + 1), metrics=("loss",)))
    (axis,) = figures["loss"].axes
    renderer = figures["loss"]._get_renderer()
    names = axis.get_xticklabels(minor=True)
    assert [(label.get_position()[0], label.get_text()) for label in names] == [(-1, "backbone"), (0, "untrained")]
    first, last = axis.get_xlim()
    numbers = [label for label in axis.get_xticklabels() if label.get_text()]
    assert numbers and all(label.get_position()[0] > 0 for label in numbers)
    visible = names + [label for label in numbers if first <= label.get_position()[0] <= last]
    boxes = [label.get_window_extent(renderer) for label in visible]
    assert not any(box.overlaps(earlier) for i, box in enumerate(boxes) for earlier in boxes[:i])


def test_a_curve_of_epochs_alone_has_numbers(tmp_path, figures):
    curves.draw_curves(made_run(tmp_path / "Run", epochs=(1, 2), metrics=("loss",)))
    (axis,) = figures["loss"].axes
    assert not axis.get_xticklabels(minor=True)


def test_a_file_where_the_folder_should_be_is_set_aside(tmp_path, capsys):
    folder = made_run(tmp_path / "Run", metrics=("loss",))
    (folder / "Progression_Plots").write_text("no folder")
    (path,) = curves.draw_curves(folder)
    assert path.read_text().startswith("<?xml") and (folder / "Progression_Plots.damaged").read_text() == "no folder"
    assert capsys.readouterr().out.count("\n") == 1
    path.unlink()
    path.mkdir()
    assert curves.draw_curves(folder)[0].is_file()
