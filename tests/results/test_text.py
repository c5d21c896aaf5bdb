"""Tables of results on a terminal: aligned, fitted to its width, with the same cells as the Markdown in the files."""

import re

from results.formats import Cell, Table, to_text


def wide_table():
    heads = ["group", "seeds", *(f"metric@{i} [%]" for i in range(9)), "arch"]
    table = Table("glyphs", "glyphs: values", heads, noisy={"metric@3 [%]"})
    for number, name in enumerate(["Triplet", "MultiSimilarity_with_a_name"]):
        values = [Cell(10.5 * i + number, 0.25) for i in range(9)]
        values[1].mark = ("close", "best")[number]
        remarks = ["fewer than 3 seeds"] * number
        table.add([Cell(text=name), Cell(5, digits=0), *values, Cell(text="conv4")], remarks, part="distance")
    table.notes = ["Bold: as the files say it.", "A note of many words, which a terminal cannot show in one line. " * 2]
    return table


def test_a_table_fits_the_terminal_and_its_columns_stand_below_each_other(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = to_text(wide_table())
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100 and "|" not in text and "**" not in text
    heads = [number for number, line in enumerate(lines) if line.startswith("group ")]
    assert len(heads) > 1, "in several blocks"
    for number in heads:
        block = lines[number : number + 5]
        starts = [match.start() for match in re.finditer("(?<= )-|^-", block[1])]
        # no cell reaches into the next column
        assert all(line.ljust(100)[start - 1] == " " for line in block for start in starts[1:])
        assert block[4].startswith("MultiSimilarity_with_a_name [a]")
    for printed in ("11.50 ± 0.25*", "10.50 ± 0.25~", "* best; ~ not shown to be worse than the best"):
        assert printed in text
    assert "Bold" not in text and "[a] fewer than 3 seeds" in text and "metric@3 [%] †" in text
    assert "\n  " in text.partition("A note")[2]


def test_in_a_file_a_table_is_one_block():
    lines = to_text(wide_table()).splitlines()
    assert sum(line.startswith("group ") for line in lines) == 1 and lines[2].rstrip().endswith("arch")
