"""Pictures of an embedding space: what sample queries find, and which queries find the wrong things. Charts: charts.py."""

from pathlib import Path

import numpy as np
import torch

from evaluation import charts
from evaluation.spaces import of_type

QUERIES, NEIGHBOURS = 8, 7
CANDIDATES = 750  # queries among which the worst are looked for
DEEPEST = 100  # neighbours that count in a query's average precision
BLOCK = 125  # queries at once: (BLOCK, N) distances are held
RIGHT, WRONG, QUERY = "#2a9d3a", "#d03030", "#333333"
NAME_LENGTH = 19  # characters that fit under a tile


def draw(folder: Path, embedded: dict, split: str, opt, title: str) -> list[Path]:
    """Draw all pictures of one epoch into `folder`, in about two seconds whatever the number of images (t-SNE excepted).

    Args:
        embedded: split -> `evaluation.Embedded`.
        split: the one whose queries are shown.
        title: run and epoch.

    Returns:
        The paths of what was drawn.
    """
    features = {name: of_type(e.features, opt.evaltypes[0]) for name, e in embedded.items()}
    labels = {name: e.labels for name, e in embedded.items()}
    dataset = embedded[split].dataset
    queries = sample_queries(len(features[split]), opt.seed)
    paths = [folder / "sample_recoveries.png"]
    recoveries(paths[0], dataset, features[split], queries, f"{title}: nearest neighbours on {split}")
    worst, notes = worst_queries(features[split], labels[split], opt.seed)
    if len(worst):
        paths.append(folder / "worst_queries.png")
        recoveries(paths[-1], dataset, features[split], worst, f"{title}: worst queries on {split}", notes)
    paths.append(charts.spectra(folder / "spectrum.png", features, opt.seed, title))
    paths.append(charts.distances(folder / "distances.png", features, labels, opt.seed, title))
    if opt.eval_size_of_tsne:
        for name, e in embedded.items():
            path = folder / f"tsne_{name}.png"
            names = getattr(e.dataset, "class_names", None)
            drawn = charts.tsne(path, features[name], labels[name], opt.eval_size_of_tsne, opt.seed, f"{title}: t-SNE of {name}", names)
            paths += [path] if drawn else []
    return paths


def sample_queries(count: int, seed: int) -> np.ndarray:
    """Indices of the queries shown: the same in every epoch."""
    return np.sort(np.random.default_rng(seed).choice(count, size=min(QUERIES, count), replace=False))


def worst_queries(features: np.ndarray, labels: np.ndarray, seed: int) -> tuple[np.ndarray, list[str]]:
    """Queries with the lowest average precision, at most one a class, and a note on each; none where no class has two images.

    Looked for among `CANDIDATES` queries. Average precision counts the first R neighbours, R the others of the query's class, at
    most `DEEPEST`; of equal ones the query whose first right neighbour is the farther down is the worse. The note tells its rank.

    Args:
        features: `(N, D)`. labels: `(N,)`.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    others = np.bincount(labels)[labels] - 1  # (N,)
    candidates = np.flatnonzero(others)
    if len(candidates) > CANDIDATES:
        candidates = np.sort(np.random.default_rng(seed).choice(candidates, size=CANDIDATES, replace=False))
    if not len(candidates):
        return candidates, []
    everything, classes = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32)), torch.from_numpy(labels)
    norms = everything.square().sum(1)  # (N,)

    def distances(rows):
        """Squared distances (b, N) of queries to all, less the query's own norm; infinite to itself."""
        squared = torch.addmm(norms[None, :], everything[rows], everything.T, alpha=-2)
        return squared.scatter_(1, rows[:, None], torch.inf)

    precisions = []
    for rows in torch.from_numpy(candidates).split(BLOCK):
        depth = torch.from_numpy(others)[rows].clamp(max=DEEPEST)[:, None]  # (b, 1)
        found = distances(rows).topk(int(depth.max()), largest=False).indices  # (b, deepest)
        ranks = torch.arange(1, found.shape[1] + 1)
        hits = (classes[found] == classes[rows][:, None]) & (ranks <= depth)
        precisions.append((hits * hits.cumsum(1) / ranks).sum(1) / depth[:, 0])
    precisions = torch.cat(precisions).numpy()
    last = np.argsort(precisions, kind="stable")[:BLOCK]
    candidates, precisions = candidates[last], precisions[last]
    rows = torch.from_numpy(candidates)
    squared = distances(rows)
    best = squared.masked_fill(classes[rows][:, None] != classes[None, :], torch.inf).amin(1, keepdim=True)
    firsts = ((squared < best).sum(1) + 1).numpy()
    order = np.lexsort((-firsts, precisions))
    order = order[np.sort(np.unique(labels[candidates[order]], return_index=True)[1])][:QUERIES]  # the worst of each class
    return candidates[order], [f"AP {precisions[i]:.2f}\nfirst hit at {firsts[i]:,}" for i in order]


def nearest(features: np.ndarray, queries: np.ndarray, count: int) -> list[np.ndarray]:
    """For each of `queries` the indices of its `count` nearest other samples, nearest first, by Euclidean distance."""
    count = min(count, len(features) - 1)
    rows = features[queries]
    rough = np.einsum("nd,nd->n", features, features) - 2 * rows @ features.T  # (Q, N), which leaves a few to look at in full
    rough[np.arange(len(queries)), queries] = np.inf
    kept = np.sort(np.argpartition(rough, min(count + 8, len(features) - 1), axis=1)[:, : count + 8], axis=1)
    found = []
    for query, row, few in zip(queries, rows, kept, strict=True):
        exact = np.where(few == query, np.inf, np.square(features[few] - row).sum(1))
        found.append(few[np.argsort(exact, kind="stable")[:count]])
    return found


def recoveries(path: Path, dataset, features: np.ndarray, queries: np.ndarray, title: str, notes: list[str] | None = None) -> None:
    """One row a query: the query, then its nearest neighbours, right ones framed green, wrong ones red.

    Args:
        dataset: gives `(label, image (3, H, W), index)` by index.
        features: `(N, D)` in the data set's order.
        queries: `(Q,)` indices.
        notes: what is said beside each query, two short lines.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    columns = min(NEIGHBOURS, len(features) - 1)
    left, width, height = 1.0 if notes else 0.15, 1.1, 1.36  # in tiles: margin, and what a tile takes with its name
    size = (left + 1.35 + columns * width, len(queries) * height + 0.45)
    figure = Figure(figsize=(1.2 * size[0], 1.2 * size[1]))
    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, size[0]), ylim=(size[1], 0), aspect="equal")
    axis.axis("off")  # one axis for all: sixty of them take seconds
    axis.text(0.15, 0.22, title, fontsize=12, va="center", parse_math=False)
    axis.text(size[0] - 0.15, 0.22, "same class", color=RIGHT, fontsize=10, ha="right", va="center")
    axis.text(size[0] - 1.05, 0.22, "other class", color=WRONG, fontsize=10, ha="right", va="center")
    names = getattr(dataset, "class_names", None)
    for row, (query, found) in enumerate(zip(queries, nearest(features, queries, columns), strict=True)):
        query_label = dataset[int(query)][0]
        top = 0.5 + row * height
        if notes:
            axis.text(left - 0.08, top + 0.5, notes[row], fontsize=8, ha="right", va="center", linespacing=1.5)
        for position, index in enumerate([query, *found]):
            label, image, _ = dataset[int(index)]
            start = left + position * width + (0.2 if position else 0)
            colour = QUERY if position == 0 else RIGHT if label == query_label else WRONG
            smooth = "nearest" if image.shape[-1] < 100 else "antialiased"
            axis.imshow(np.asarray(image).transpose(1, 2, 0), extent=(start, start + 1, top + 1, top), interpolation=smooth)
            axis.add_patch(Rectangle((start, top), 1, 1, fill=False, edgecolor=colour, linewidth=3))
            name = names[label] if names else f"class {label}"
            text = {"s": _short(name), "fontsize": 7 if len(str(name)) > 8 else 10}
            axis.text(start + 0.5, top + 1.15, **text, ha="center", va="center", color=colour, parse_math=False)
    axis.set(xlim=(0, size[0]), ylim=(size[1], 0))
    figure.savefig(path, dpi=100, pil_kwargs={"compress_level": 3})


def _short(name) -> str:
    name = str(name)
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
