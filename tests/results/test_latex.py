"""LaTeX of tables: it fits the page's width, part titles span all columns, `--plain`; the console's aligned tables."""

import re
import shutil
import subprocess

import pytest

from results import formats, latex
from results.formats import Cell, Table
from tests.kit.run_folders import ENVIRONMENT, curve, evaluated, lines, make_run, make_runs, rows, values_of

LONG_NAME = "A_group_with_a_name_that_is_longer_than_a_third_of_any_page_Margin_b12_Distance"
PART = (
    "selected on validation; images: training 5864 of 100 classes, testing 5924 of 100 classes; split_file "
    "/abs/place/split_file.json; " * 4
)


def number(value, mark="", deviation=0.25, interval=None):
    return Cell(value, deviation, mark, interval=interval)


@pytest.fixture
def wide():
    """A table of two parts with 14 columns of numbers, one of them of long texts."""
    heads = ["group", "seeds", *(f"metric {i} [%]" for i in range(14)), "why"]
    table = Table("wide", "a wide table", heads, wide={"why"}, noisy={"metric 3 [%]"})
    reason = Cell(text="because of /abs/place/weights.pth " * 4)
    for part in (PART, "selected on test"):
        for name, mark in (("A", "best"), (LONG_NAME, "close"), ("B_C", "close")):
            numbers = [number(10.5 * i, mark, interval=(-1.25, 0.5)) for i in range(14)]
            table.add([Cell(text=name), Cell(text="3"), *numbers, reason], ["left out: x", "/abs/y/z.pth"], part)
    table.notes = ["Epochs: values.", f"{formats.SETTINGS_NOTE}x) of all groups: data: dataset x.", "a" * 300]
    return table


def tabulars(text):
    """The column forms and the rows, lists of cells, of each tabular."""
    for form, body in re.findall(r"\\begin\{tabular\}\{((?:[lc]|p\{[^}]*\})+)\}(.*?)\\end\{tabular\}", text, re.DOTALL):
        columns = re.findall(r"[lc]|p\{[^}]*\}", form)
        body = re.sub(r"\\(?:top|mid|bottom)rule\n", "", body)
        yield columns, [re.split(r"(?<!\\)&", row) for row in filter(str.strip, body.split("\\\\\n"))]


def test_a_wide_table_is_divided_into_blocks_that_fit(wide):
    text = formats.to_tex(wide)
    drawn_blocks = list(tabulars(text))
    assert len(drawn_blocks) > 2
    for columns, rows_of_block in drawn_blocks:
        for row in rows_of_block:
            title = re.match(r"\s*\\multicolumn\{(\d+)\}", row[0])
            assert len(row) == len(columns) or (len(row) == 1 and int(title[1]) == len(columns))
    layout = latex.Layout(wide.in_latex(plain=False), plain=False)
    blocks = layout.blocks()
    assert all(layout.block_width(block) <= latex.TEXT_WIDTH for block in blocks)
    assert all(block[:2] == [0, 1] for block in blocks), "each block repeats the names of the rows"
    assert [column for block in blocks for column in block[2:]] == list(range(2, 17))
    unbroken = text.replace(r"\allowbreak{}", "")
    assert "/abs" not in unbroken and "weights.pth" in unbroken and "Settings (" not in unbroken
    assert text.count(r"\multicolumn") == 2 * len(blocks), "each block has the titles of both parts"


def test_the_plain_form_has_rows_means_deviations_and_the_best(wide):
    text = formats.to_tex(wide, plain=True)
    assert r"$\mathbf{10.50}\pm0.25$" in text and r"$10.50\pm0.25$" in text
    for absent in ("underline", "Epochs", "left out", "-1.25", "footnotesize\\raggedright", "seeds", "dagger", "^{a}"):
        assert absent not in text, absent
    assert text.count(r"\caption") == text.count(r"\begin{table*}") and text.count(r"\label") == 1


def test_a_long_table_goes_on_in_further_floats():
    table = Table("long", "long", ["group", "seeds", "R@1 [%]"], notes=["note"])
    for i in range(130):
        table.add([Cell(text=f"group {i}"), Cell(text="3"), number(float(i))], [f"remark {i}"])
    text = formats.to_tex(table)
    floats = text.split(r"\begin{table*}")[1:]
    assert len(floats) > 3 and all("(continued)" in page for page in floats[1:])
    assert [int(name) for name in re.findall(r"^group (\d+)", text, re.MULTILINE)] == list(range(130))
    assert all(f"remark {i}." in text for i in range(130))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("options", ["", "12pt", "twocolumn"])
def test_latex_compiles_without_an_overfull_box(wide, options, tmp_path):
    body = "\n\\clearpage\n".join(formats.to_tex(wide, plain) for plain in (False, True))
    document = rf"\documentclass[{options}]{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "all.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    log = (tmp_path / "all.log").read_text(errors="replace")
    assert "Overfull" not in log and "Float too large" not in log


def test_plain_tables_of_runs_have_the_requested_columns_alone(tmp_path, capsys):
    splits = ("train", "val", "test")
    make_runs(tmp_path / "runs", {"A": {"quality": 0.5}, "B": {"quality": 0.6}}, 2, epochs=3, splits=splits)
    broken = make_run(tmp_path / "runs", "B", 2, epochs=3, splits=splits)
    (broken / "CSV_Logs" / "metrics.csv").unlink()
    out = evaluated(tmp_path, "--plain", "--metrics", "nmi", "e_recall@1")
    text = (out / "cub200_selected.tex").read_text()
    (head,) = re.findall(r"\\toprule\n(.*) \\\\\n", text)
    assert head == r"group & NMI [\%] & R@1 [\%]" and "Epochs" not in text and r"\mathbf" in text
    markdown = (out / "cub200_selected.md").read_text()
    assert markdown.splitlines()[2] == "| group | seeds | NMI [%] † | R@1 [%] | epoch |"
    assert "In brackets" not in markdown, "two seeds have no intervals"
    printed = capsys.readouterr().out
    assert "5 runs in 2 groups; 1 run is excluded from the means" in printed
    (named,) = [line for line in printed.splitlines() if line.startswith("group ")]
    (of_a,) = [line for line in printed.splitlines() if line.startswith("A ")]
    assert re.fullmatch(r"group +seeds +NMI \[%\] † +R@1 \[%\] +epoch", named) and len(named) == len(of_a)
    assert "|" not in named and "**" not in printed and "* best" in printed


RECALLS = curve(0.5, 0.5, 0.5)


def test_recorded_weights_and_derived_flags_are_no_differences(tmp_path):
    environment = {**ENVIRONMENT, "weights": "random"}
    for group, lr in {"A": 1e-5, "B": 1e-5, "C": 1e-4}.items():
        flags = {"lr": lr, "fc_lr": lr, "classifier_lr": lr, "trainer": "classifier", "weights": None}
        make_runs(tmp_path / "runs", [group], epochs=3, records=RECALLS, environment=environment, **flags)
    out = evaluated(tmp_path)
    assert values_of(lines(out / "cub200_selected.csv"), "unlike others", "remarks") == {
        **dict.fromkeys("AB", ("", "")),
        "C": ("lr 0.0001", "unlike the others: lr 0.0001 (others: 1e-05)"),
    }
    differing = values_of(lines(out / "cub200_settings.csv"), "groups that differ", key="setting")
    assert [differing[name] for name in ("weights", "fc_lr", "classifier_lr")] == ["none"] * 3
    assert differing["lr"] == "0.0001: C"
    in_latex = (out / "cub200_settings.tex").read_text().splitlines()
    (weights,) = [line for line in in_latex if line.lstrip("{}").startswith("weights &")]
    # no cell is empty
    assert weights.rstrip().endswith(r"none \\") and not any("& &" in line for line in in_latex)


def test_a_derived_flag_that_was_set_is_a_difference(tmp_path):
    for group, fc_lr in {"A": 1e-5, "B": 1e-5, "C": 1e-3}.items():
        make_run(tmp_path / "runs", group, 0, epochs=3, fc_lr=fc_lr, records=RECALLS)
    out = evaluated(tmp_path)
    assert [line["unlike others"] for line in lines(out / "cub200_selected.csv")] == ["", "", "fc_lr 0.001"]


def test_paths_and_transforms_are_brief_in_remarks(tmp_path):
    for group, size, place in (("A", 224, "here"), ("B", 224, "here"), ("C", 256, "else")):
        transforms = {split: f"Compose(Resize({size}))" for split in ("training", "testing")}
        environment = {**ENVIRONMENT, "data": {**ENVIRONMENT["data"], "transforms": transforms}}
        flags = {"environment": environment, "language_vectors": f"/somewhere/{place}/vectors.npz"}
        make_run(tmp_path / "runs", group, 0, epochs=3, records=RECALLS, **flags)
    out = evaluated(tmp_path)
    for path in out.glob("*.tex"):
        assert "/somewhere" not in path.read_text() and "Compose" not in path.read_text(), path.name
    (remark,) = [line["remarks"] for line in lines(out / "cub200_selected.csv") if line["remarks"]]
    assert remark == (
        "unlike the others: language_vectors …/else/vectors.npz (others: …/here/vectors.npz); transforms (see the "
        "table of settings)"
    )
    assert "Compose(Resize(256))" in (out / "cub200_settings.csv").read_text()


def test_tables_of_domains_have_the_requested_metrics_alone(tmp_path):
    names = [f"{domain}{metric}" for metric in ("e_recall@1", "map_r", "nmi") for domain in ("", "birds/", "cars/")]
    make_runs(tmp_path / "runs", ["A"], epochs=3, records=rows(0.5, 3, 0, metrics=names, training=()))
    out = evaluated(tmp_path, "--metrics", "nmi", "map_r")
    heads = (out / "cub200_birds.md").read_text().splitlines()[2]
    assert heads == "| group | seeds | NMI [birds] [%] † | MAP@R [birds] [%] | epoch |"
    heads = (evaluated(tmp_path) / "cub200_selected.md").read_text().splitlines()[2]
    assert heads == "| group | seeds | R@1 [%] | MAP@R [%] | NMI [%] † | epoch |", "by default the means over domains"
