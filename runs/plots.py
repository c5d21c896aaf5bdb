"""Progression curves of a run, one SVG a group of metrics, drawn from metrics.csv."""

from pathlib import Path


def draw_curves(folder: Path) -> list[Path]:
    """Draw `Progression_Plots/<group>.svg` of the run in `folder`; every split is a line. Returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    rows = pd.read_csv(folder / "CSV_Logs" / "metrics.csv")
    target = folder / "Progression_Plots"
    target.mkdir(exist_ok=True)
    files = []
    for group, part in rows.groupby(rows["metric"].map(_group)):
        metrics = sorted(part["metric"].unique())
        columns = min(len(metrics), 3)
        lines = -(-len(metrics) // columns)
        figure, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 3.1 * lines), squeeze=False, layout="constrained")
        for axis, metric in zip(axes.flat, metrics, strict=False):
            for split, curve in part[part["metric"] == metric].groupby("split"):
                curve = curve.sort_values("epoch")
                axis.plot(curve["epoch"], curve["value"], marker=".", label=split)
            axis.set_title(metric, fontsize=10)
            axis.set_xlabel("epoch")
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
            axis.xaxis.get_major_locator().set_params(integer=True)
        for axis in axes.flat[len(metrics) :]:
            axis.set_visible(False)
        files.append(target / f"{group.replace('/', '_')}.svg")
        figure.savefig(files[-1])
        plt.close(figure)
    return files


def _group(metric: str) -> str:
    """Curves that belong on one sheet: `e_recall@1` and `e_recall@2`, all of `criterion/…`."""
    head, _, tail = metric.rpartition("/")
    return head if head in ("criterion", "miner", "rate") else (f"{head}/" if head else "") + tail.partition("@")[0]
