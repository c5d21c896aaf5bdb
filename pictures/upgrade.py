"""What a new network finds in the index of an old one, while a growing share of it is embedded anew."""

from pathlib import Path

from pictures.fonts import save_figure
from pictures.text import set_suptitle

# value -> its label, colour and line
LEVELS = {
    "self_old": ("old network in its own index", "#555555", "--"),
    "self_new": ("new network in its own index", "#1f77b4", ":"),
    "self_free": ("free network in its own index", "#2ca02c", "-."),
}


def draw(path: Path, values: dict, title: str) -> Path:
    """Draw e_recall@1 above negative flips against the share of the gallery that is new; bars are 95 % intervals.

    Args:
        values: what `tools.upgrade.compared` gives.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=[3, 1], sharex=True)
    for name, (label, colour, line) in LEVELS.items():
        if name in values:
            level = 100 * values[name]["e_recall@1"]["value"]
            upper.axhline(level, color=colour, linestyle=line, linewidth=1.2, label=label)
    rows = values["curve"]
    for row in rows:
        upper.plot([row["share"]] * len(row["draws"]), [100 * value for value in row["draws"]], "x", color="#d9a300")
    upper.plot([], [], "x", color="#d9a300", label="draws of the rows")
    _bars(upper, rows, "e_recall@1", "new queries in the mixed index, 95 % over classes", "#1f77b4")
    _bars(lower, rows, "negative_flips", "", "#c0392b")
    upper.set(ylabel="e_recall@1, %")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    lower.set(xlabel="share of the gallery that the new network has embedded", ylabel="negative flips, %")
    lower.set_ylim(bottom=0)
    for axis in (upper, lower):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    set_suptitle(figure, title)
    save_figure(figure, path, dpi=110)
    return path


def _bars(axis, rows: list[dict], name: str, label: str, colour: str) -> None:
    """The values of the curve with their intervals, where there are some."""
    shares = [row["share"] for row in rows]
    heights = [100 * row[name]["value"] for row in rows]
    lengths = None
    if rows[0][name]["low"] is not None:
        lengths = [[], []]
        for row in rows:
            lengths[0].append(100 * (row[name]["value"] - row[name]["low"]))
            lengths[1].append(100 * (row[name]["high"] - row[name]["value"]))
    axis.errorbar(shares, heights, lengths, color=colour, fmt="o-", markersize=4, capsize=3, label=label)
