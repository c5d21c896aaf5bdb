"""Names of groups, data sets and classes with characters that LaTeX, Markdown or CSV give a meaning."""

import re

import pytest

from results.formats import Cell, Table, to_markdown
from results.latex import to_tex
from results.tex_text import escaped
from tests.kit.run_folders import evaluated, lines, make_runs, rows_of

NAMES = [r"a\b_c%d&e#f{g}", "\\", "a\\\\b", "_a_ b_", "100%", "a & b &", "#1 of # 2", "{a}", "}{", r"\textbf{x}", "a|b"]


NAMES += [r"a\|b", "~/x^2$y$", "[0.3] a", "*b*", "<i>&amp;&lt;", '"q", r', "--lr", "`a`", "a~b", "[k](l)", "ab_" * 20]


COMMANDS = {
    r"\textbackslash{}": "\\",
    r"\^{}": "^",
    r"\~{}": "~",
    "$<$": "<",
    "$>$": ">",
    "$|$": "|",
    "-{}": "-",
    r"\allowbreak{}": "",
    **{"\\" + letter: letter for letter in "&%$#_{}"},
}
COMMAND = re.compile("|".join(map(re.escape, COMMANDS)))


def table_of(name):
    table = Table("n", f"of {name}", ["group", f"value {name}"])
    table.add([Cell(text=name), Cell(0.5, 0.1)], [f"remark {name}"], f"part {name}")
    table.add([Cell(text="other"), Cell(text=name)], [], "rest")
    table.notes = [f"note {name}"]
    return table


def read_latex(text):
    """What LaTeX prints of a text, read command by command."""
    assert not re.search(r"[\\&%$#_{}^~]", COMMAND.sub("", text)), f"unescaped: {text}"
    return COMMAND.sub(lambda command: COMMANDS[command[0]], text)


def read_markdown(text):
    """What Markdown prints of a text."""
    text = re.sub(r"\\(.)", lambda letter: f"&#{ord(letter[1])};", text)
    assert not re.search(r"[|`*]|(?<!\w)_|_(?!\w)|<(?=\w)|\]\(", text), f"unescaped: {text}"
    entities = {"&lt;": "<", "&amp;": "&"}
    return re.sub(r"&(#\d+|lt|amp);", lambda match: entities.get(match[0]) or chr(int(match[1][1:])), text)


@pytest.mark.parametrize("name", NAMES)
def test_latex_prints_the_name(name):
    assert read_latex(escaped(name)) == name
    lines = to_tex(table_of(name)).splitlines()
    row = next(line for line in lines if line.endswith(r"$0.50\pm0.10$ \\"))
    row = row.removeprefix(r"\raggedright\let\\\tabularnewline ").removeprefix("{}")
    assert read_latex(row.removesuffix(r"$^{a}$ & $0.50\pm0.10$ \\")) == name
    for begin, end, text in (
        (r"\caption{", "}", f"of {name}"),
        ("note ", r" \\", name),
        (r"$^{a}$~", ".", f"remark {name}"),
    ):
        line = next(line for line in lines if line.startswith(begin))
        assert read_latex(line.removeprefix(begin).removesuffix(end)) == text


@pytest.mark.parametrize("name", NAMES)
def test_markdown_prints_the_name(name):
    lines = to_markdown(table_of(name)).splitlines()
    row = next(line for line in lines if line.endswith(" | 0.50 ± 0.10 |"))
    cells = re.split(r"(?<!\\)(?:\\\\)*\|", row)
    assert len(cells) == 4, "a name is one cell"
    assert read_markdown(row.removeprefix("| ").removesuffix(" <sup>a</sup> | 0.50 ± 0.10 |")) == name
    note = next(line for line in lines if line.startswith("- note "))
    assert read_markdown(note.removeprefix("- note ")) == name


@pytest.mark.parametrize("name", NAMES)
def test_csv_holds_the_name(name):
    first, second = rows_of(table_of(name))
    assert first["group"] == second[f"value {name}"] == name and first[f"value {name}"] == "0.50"
    assert [first[column] for column in ("part", "remarks", "notes")] == [
        f"part {name}",
        f"remark {name}",
        f"note {name}",
    ]


def test_tables_of_runs_hold_such_names(tmp_path):
    group = NAMES[0]
    dataset = "cub_1%&#{x}"
    make_runs(tmp_path / "runs", [group, "B"], dataset=dataset)
    out = evaluated(tmp_path)
    files = {path.suffix: path for path in out.glob("*_selected.*") if not path.name.startswith("shared")}
    tex = files[".tex"].read_text()
    markdown = files[".md"].read_text()
    assert r"a\textbackslash{}b\_c\%d\&e\#f\{g\} & 2 & " in tex and r"cub\_1\%\&\#\{x\}" in tex
    assert f"| {group.replace(chr(92), chr(92) * 2)} | 2 |" in markdown and f"## {dataset}: " in markdown
    assert [row["group"] for row in lines(files[".csv"])] == ["B", group]
