"""Pictures of an embedding space: what the nearest neighbours of sample queries are."""

from pathlib import Path

import numpy as np

QUERIES, NEIGHBOURS = 8, 7
RIGHT, WRONG, QUERY = "#2a9d3a", "#d03030", "#333333"


def of_run(run, splits: dict, embedded: dict) -> None:
    """Draw the pictures of the epoch just evaluated, on the split that chooses the best epoch."""
    from evaluation import of_type

    split = run.selection.split
    dataset = {"val": splits["validation"], "test": splits["testing"]}[split]
    features = of_type(embedded[split].features, run.opt.evaltypes[0])
    path = run.folder / "sample_recoveries.png"
    queries = sample_queries(len(features), run.opt.seed)
    recoveries(path, dataset, features, queries, f"{run.opt.group}, epoch {run.epoch}: nearest neighbours on {split}")
    run.add_picture(path)


def sample_queries(count: int, seed: int) -> np.ndarray:
    """Indices of the queries shown: the same in every epoch."""
    return np.sort(np.random.default_rng(seed).choice(count, size=min(QUERIES, count), replace=False))


def nearest(features: np.ndarray, query: int, count: int) -> np.ndarray:
    """The `count` nearest other samples of `query`, nearest first, by Euclidean distance."""
    distances = np.square(features - features[query]).sum(1)
    distances[query] = np.inf
    return np.argsort(distances, kind="stable")[: min(count, len(features) - 1)]


def recoveries(path: Path, dataset, features: np.ndarray, queries: np.ndarray, title: str) -> None:
    """One row a query: the query, then its nearest neighbours, right ones framed green, wrong ones red.

    Args:
        dataset: gives `(label, image (3, H, W), index)` by index.
        features: `(N, D)` in the data set's order.
        queries: `(Q,)` indices.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(NEIGHBOURS, len(features) - 1) + 1
    figure, axes = plt.subplots(
        len(queries), columns, figsize=(1.35 * columns, 1.55 * len(queries) + 0.5), squeeze=False, layout="constrained"
    )
    figure.suptitle(title, fontsize=11)
    names = getattr(dataset, "class_names", None)
    for row, query in zip(axes, queries, strict=True):
        query_label = dataset[int(query)][0]
        for position, (axis, index) in enumerate(zip(row, [query, *nearest(features, query, columns - 1)], strict=True)):
            label, image, _ = dataset[int(index)]
            axis.imshow(np.asarray(image).transpose(1, 2, 0), interpolation="nearest")
            colour = QUERY if position == 0 else RIGHT if label == query_label else WRONG
            for spine in axis.spines.values():
                spine.set(edgecolor=colour, linewidth=3)
            axis.set(xticks=[], yticks=[])
            axis.set_title(_short(names[label] if names else f"class {label}"), fontsize=7, color=colour, pad=3)
        row[0].set_ylabel("query", fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _short(name, length: int = 16) -> str:
    name = str(name)
    return name if len(name) <= length else name[: length - 1] + "…"
