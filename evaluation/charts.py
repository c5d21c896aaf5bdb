"""Charts of an embedding space: singular values, distances of pairs, t-SNE."""

from pathlib import Path

import numpy as np

import metrics

COLOURS = {"train": "#4c72b0", "val": "#dd8452", "test": "#2f2f2f"}
TITLE_SIZE = 11  # points
LEGEND_SIZE, LEGEND_WIDTH = 8, 125  # points: of the names beside a t-SNE
SAME, DIFFERENT = "#2a9d3a", "#d03030"
SPECTRUM_ROWS, SPECTRUM_WORK = 8000, 4e9  # the most rows of a spectrum, and of rows times D squared
PAIRS = 20_000  # of each kind, in the histograms
# Classes in colour in a t-SNE; the others are grey.
PALETTE = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#000000")


def text_width(text: str, size: float) -> float:
    """Width in points of one line of `size` points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]


def printable(text) -> str:
    """`text` on one line: what cannot be printed is a space."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def fitted(text, size: float, width: float) -> str:
    """`text` on one line of `size` points, cut to `width` points."""
    text = printable(text)
    if text_width(text, size) <= width:
        return text
    kept = next((n for n in range(len(text) - 1, 0, -1) if text_width(text[:n] + "…", size) <= width), 0)
    return text[:kept] + "…"


def spectra(path: Path, features: dict, seed: int, title: str) -> Path:
    """Singular values of each split's embeddings, made to sum to 1, on a logarithmic scale. Returns `path`.

    Args:
        features: split -> `(N, D)`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    for split, rows in features.items():
        values = spectrum(rows, seed)
        marker = "o" if len(values) == 1 else None  # one value makes no line
        axis.plot(np.arange(1, len(values) + 1), values, color=COLOURS.get(split), label=split, linewidth=1.8, marker=marker)
    axis.set(yscale="log", xlabel="singular value, largest first", ylabel="share of their sum", xlim=(0, None))
    figure.suptitle(f"{title}: singular values of the embeddings", fontsize=TITLE_SIZE, parse_math=False)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return path


def spectrum(features: np.ndarray, seed: int) -> np.ndarray:
    """The metric `rho_spectrum@0` of `features` `(N, D)`: singular values that sum to 1, descending; of a sample of many rows."""
    most = max(min(SPECTRUM_ROWS, int(SPECTRUM_WORK / features.shape[1] ** 2)), features.shape[1])
    if len(features) > most:
        features = features[np.sort(np.random.default_rng(seed).choice(len(features), size=most, replace=False))]
    return metrics.compute("rho_spectrum@0", features, np.zeros(len(features), dtype=np.int64))["rho_spectrum@0"]


def distances(path: Path, features: dict, labels: dict, parents: dict, seed: int, title: str) -> Path:
    """Histograms of the distances of pairs of one class and of two, one panel a split. Returns `path`.

    Args:
        features: split -> `(N, D)`. labels: split -> `(N,)`.
        parents: split -> super-classes `(N,)`, inside which pairs are taken; None: anywhere.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(1.2 + 3.7 * len(features), 6.4), 3.6), layout="constrained")
    panels = figure.subplots(1, len(features), squeeze=False, sharex=True)[0]
    pairs = {split: sample_pairs(labels[split], seed, parents[split]) for split in features}
    lengths = {split: [np.linalg.norm(rows[a] - rows[b], axis=1) for a, b in pairs[split]] for split, rows in features.items()}
    longest = max((length.max() for both in lengths.values() for length in both if len(length)), default=1.0) or 1.0
    for panel, (split, both) in zip(panels, lengths.items(), strict=True):
        for length, colour, name in zip(both, (SAME, DIFFERENT), ("same class", "different classes"), strict=True):
            if len(length):
                heights, edges = np.histogram(length, bins=80, range=(0, longest * 1.02), density=True)
                panel.stairs(heights, edges, fill=True, color=colour, alpha=0.5, label=name)
                panel.axvline(np.median(length), color=colour, linewidth=1.5)
        panel.set(title=split, xlabel="Euclidean distance", yticks=[])
        panel.spines[["top", "right", "left"]].set_visible(False)
    handles, names = max((panel.get_legend_handles_labels() for panel in panels), key=lambda both: len(both[0]))
    figure.legend(handles, [f"{name} (line: median)" for name in names], loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"{title}: distances of pairs", fontsize=TITLE_SIZE, parse_math=False)
    figure.savefig(path, dpi=110)
    return path


def sample_pairs(labels: np.ndarray, seed: int, parents: np.ndarray | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Up to `PAIRS` random pairs of one class, each such pair as likely as any other, and of two; `[(a, b), (a, b)]` indices.

    Those of two classes are of one super-class where `parents` `(N,)` are given.
    """
    generator = np.random.default_rng(seed)
    order = np.argsort(labels, kind="stable")  # class after class
    sizes = np.unique(labels, return_counts=True)[1]
    starts, places = np.repeat(np.cumsum(sizes) - sizes, sizes), np.arange(len(labels))
    others = np.repeat(sizes, sizes) - 1  # of each sample's class, in the order of `order`
    same = (np.empty(0, np.int64),) * 2
    if others.sum():
        first = generator.choice(places, size=PAIRS, p=others / others.sum())
        step = 1 + generator.integers(others[first])
        same = order[first], order[starts[first] + (first - starts[first] + step) % (others[first] + 1)]
    first, second = generator.integers(len(labels), size=(2, PAIRS))
    different = (labels[first] != labels[second]) & (True if parents is None else parents[first] == parents[second])
    return [same, (first[different], second[different])]


def tsne(path: Path, features: np.ndarray, labels: np.ndarray, size: int, seed: int, title: str, names=None) -> bool:
    """t-SNE of whole classes drawn at random, about `size` samples in all. Returns whether there were enough to draw.

    Args:
        features: `(N, D)`. labels: `(N,)`.
        names: label -> name of the class.
    """
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    chosen = sample_classes(labels, size, seed)
    if len(chosen) < 4:
        return False
    perplexity = min(30.0, (len(chosen) - 1) / 3)
    # Not from the principal components: where all embeddings are equal they are NaN, on which scikit-learn's tree crashes.
    places = TSNE(perplexity=perplexity, init="random", random_state=seed).fit_transform(features[chosen])  # (n, 2)
    classes, counts = np.unique(labels[chosen], return_counts=True)
    shown = np.sort(classes[np.argsort(-counts, kind="stable")[: len(PALETTE)]])
    figure = Figure(figsize=(8.2, 6), layout="constrained")
    axis = figure.subplots()
    for label, colour in zip(shown, PALETTE, strict=False):
        name = fitted(names[label] if names else f"class {label}", LEGEND_SIZE, LEGEND_WIDTH)
        axis.scatter(*places[labels[chosen] == label].T, s=22, color=colour, edgecolors="white", linewidths=0.4, label=f" {name}")
    rest = ~np.isin(labels[chosen], shown)
    if rest.any():
        others = f" {len(classes) - len(shown):,} other classes"
        axis.scatter(*places[rest].T, s=7, color="#c9c9c9", linewidths=0, zorder=0, label=others)
    axis.set(xticks=[], yticks=[])
    axis.set_title(f"{title}, {len(chosen):,} images", fontsize=TITLE_SIZE, parse_math=False)
    legend = figure.legend(loc="outside right upper", frameon=False, fontsize=LEGEND_SIZE)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.savefig(path, dpi=110)
    return True


def sample_classes(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Indices of all samples of randomly ordered classes, as many as reach `size`, the last class cut; ascending."""
    generator = np.random.default_rng(seed)
    codes = np.unique(labels, return_inverse=True)[1]
    order = np.argsort(generator.permutation(int(codes.max()) + 1)[codes], kind="stable")  # class after class, in random order
    return np.sort(order[:size])
