"""Charts of an embedding space: singular values, distances of pairs, CMC, ROC, t-SNE.

Each function draws one file. Many samples are reduced first: rows of a spectrum (`spectrum`), pairs of a histogram
(`sample_pairs`), whole classes of a t-SNE (`sample_classes`), of which a few far from each other get a colour
(`coloured`). The seed makes these choices repeatable.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import metrics
from pictures.fonts import names_or_numbers, save_figure
from pictures.maps import tsne_places
from pictures.text import SPLIT_COLOURS, set_suptitle, shortened, title_that_fits
from utilities.counts import count_of
from utilities.intervals import share_interval

# points: of the names beside a t-SNE
LEGEND_SIZE = 9
LEGEND_WIDTH = 160
# times the largest singular value: smaller ones cannot be distinguished from 0 in float32
ZERO = 1e-6
SAME = "#2a9d3a"
DIFFERENT = "#d03030"
# limits of a spectrum: rows, and rows times D squared
SPECTRUM_ROWS = 8000
SPECTRUM_WORK = 4e9
CMC_RANKS = 50
# of histograms: most pairs of each kind, and most bars; fewer bars where few distances differ
PAIRS = 20_000
BINS = 80
# Classes, or super-classes, in colour in a t-SNE; the others are grey.
PALETTE = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#17becf",
    "#bcbd22",
    "#000000",
    "#1b3a8f",
    "#ff9da7",
)


def spectra(path: Path, features: dict, seed: int, title: str) -> Path:
    """Plot the singular values of each split's embeddings, scaled to sum to 1, on a log scale.

    Zeros are only counted. Returns `path`.

    Args:
        features: split -> `(N, D)`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    for split, rows in features.items():
        values = spectrum(rows, seed)
        positive = values[values > ZERO * values[0]]
        zeros = ""
        if len(positive) < len(values):
            zeros = f", {len(values) - len(positive)} of {len(values)} are 0"
        # one value makes no line
        marker = "o" if len(positive) == 1 else None
        axis.plot(
            np.arange(1, len(positive) + 1),
            positive,
            color=SPLIT_COLOURS.get(split),
            label=split + zeros,
            linewidth=1.8,
            marker=marker,
        )
    axis.set(yscale="log", xlabel="singular value, largest first", ylabel="share of their sum", xlim=(0, None))
    set_suptitle(figure, f"{title}: singular values of the embeddings")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path, dpi=110)
    return path


def spectrum(features: np.ndarray, seed: int) -> np.ndarray:
    """`rho_spectrum@0` of `features` `(N, D)`: singular values that sum to 1, descending; many rows are sampled."""
    n_rows = max(min(SPECTRUM_ROWS, int(SPECTRUM_WORK / features.shape[1] ** 2)), features.shape[1])
    if len(features) > n_rows:
        features = features[np.sort(np.random.default_rng(seed).choice(len(features), size=n_rows, replace=False))]
    return metrics.compute("rho_spectrum@0", features, np.zeros(len(features), dtype=np.int64))["rho_spectrum@0"]


def cmc(path: Path, ranks: np.ndarray, title: str) -> Path:
    """Plot the cumulative match characteristic to rank 50. Returns `path`.

    That is the share of queries with a match among the first k.

    Args:
        ranks: `(Q,)` of the queries' nearest matches, infinite for none.
    """
    shares = 100 * (ranks[:, None] <= np.arange(1, CMC_RANKS + 1)).mean(0)
    name = ", ".join(f"Rank-{k} {shares[k - 1]:.1f} %" for k in (1, 5, 10))
    how = {"xlabel": "rank k", "ylabel": "queries with a match among the first k, %", "xlim": (0, CMC_RANKS + 1)}
    label = f"{name}; {count_of(len(ranks), 'query', 'queries')}"
    return _curve(path, np.arange(1, CMC_RANKS + 1), shares, label, f"{title}: cumulative matches", marker=".", **how)


def roc(path: Path, far: np.ndarray, tar: np.ndarray, title: str) -> Path:
    """Plot the receiver operating characteristic: true against false accept rates (log scale). Returns `path`."""
    # the log scale begins at a single false accept
    least = far[far > 0].min()
    how = {
        "xlabel": "false accept rate",
        "ylabel": "true accept rate, %",
        "xscale": "log",
        "xlim": (least, 1),
        "ylim": (0, 101),
    }
    area = np.trapezoid(tar, far)
    return _curve(
        path,
        np.maximum(far, least),
        100 * tar,
        f"area {area:.4f}",
        f"{title}: verification",
        drawstyle="steps-post",
        **how,
    )


def reliability(
    path: Path, probabilities: np.ndarray, right: np.ndarray, weights: np.ndarray, bins: int, title: str
) -> Path:
    """Plot the share of right answers against the probability, in bins of equal width, above the number of answers in
    each. Bars are 95 % intervals (Wilson, of as many answers as the weights are worth). Returns `path`.

    Args:
        probabilities, right, weights: `(N,)` of answers, whether they are right, and what each counts.
    """
    from matplotlib.figure import Figure

    edges = np.linspace(0, 1, bins + 1)
    numbers = np.clip(np.searchsorted(edges, probabilities, "left") - 1, 0, bins - 1)
    counts = np.bincount(numbers, minlength=bins)
    filled = np.flatnonzero(counts)
    totals = np.bincount(numbers, weights, minlength=bins)[filled]
    shares = np.bincount(numbers, weights * right, minlength=bins)[filled] / totals
    means = np.bincount(numbers, weights * probabilities, minlength=bins)[filled] / totals
    worth = totals**2 / np.bincount(numbers, weights**2, minlength=bins)[filled]
    intervals = np.array([share_interval(share, count) for share, count in zip(shares, worth, strict=True)])
    figure = Figure(figsize=(6, 6.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=[4, 1], sharex=True)
    upper.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--", label="calibrated")
    lengths = np.abs(intervals.T - shares)
    upper.errorbar(means, shares, lengths, color=SAME, fmt="o", capsize=3, label="answers, with 95 % intervals")
    upper.set(ylabel="share of right answers", xlim=(0, 1), ylim=(0, 1.02))
    upper.legend(frameon=False, loc="upper left")
    lower.bar((edges[:-1] + edges[1:]) / 2, counts, width=0.9 / bins, color="#7f8a99")
    lower.set(xlabel="probability that the answer is right", ylabel="answers")
    for axis in (upper, lower):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    set_suptitle(figure, title)
    save_figure(figure, path, dpi=110)
    return path


def compression(path: Path, rows: list[dict], title: str) -> Path:
    """Plot e_recall@1 and map_r against bytes a vector, a line for each number of dimensions. Returns `path`.

    Args:
        rows: `code`, `dimensions`, `bytes_a_vector`, `e_recall@1`, `map_r`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 4.4), layout="constrained")
    for axis, metric in zip(figure.subplots(1, 2), ("e_recall@1", "map_r"), strict=True):
        for dimensions in sorted({row["dimensions"] for row in rows}):
            points = sorted(
                (row["bytes_a_vector"], row[metric], row["code"]) for row in rows if row["dimensions"] == dimensions
            )
            sizes, values, _ = zip(*points, strict=True)
            axis.plot(sizes, values, marker="o", linewidth=1.4, label=f"{dimensions} dimensions")
            for size, value, code in points:
                axis.annotate(code, (size, value), xytext=(3, 4), textcoords="offset points", fontsize=LEGEND_SIZE - 2)
        axis.set(xlabel="bytes per vector", ylabel=metric)
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axis.get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=6)
    set_suptitle(figure, f"{title}: quality against size")
    save_figure(figure, path, dpi=110)
    return path


def _curve(
    path: Path, x: np.ndarray, y: np.ndarray, label: str, title: str, marker=None, drawstyle="default", **axes
) -> Path:
    """Plot one curve with its label."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    axis.plot(x, y, marker=marker, drawstyle=drawstyle, linewidth=1.8, label=label)
    axis.set(**axes)
    set_suptitle(figure, title)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path, dpi=110)
    return path


def distances_of(features: np.ndarray, partners: np.ndarray, ball=None) -> np.ndarray:
    """Distances `(P,)` of the rows of `features` and `partners` `(P, D)`: Euclidean ones, or those of a `ball`."""
    if ball is None:
        return np.linalg.norm(features - partners, axis=1)
    return ball.paired(*(torch.from_numpy(rows.astype(np.float64)) for rows in (features, partners))).numpy()


def distances(path: Path, features: dict, labels: dict, parents: dict, seed: int, title: str, ball=None) -> Path:
    """Histograms of the distances of same-class and of different-class pairs, one panel a split. Returns `path`.

    Args:
        features: split -> `(N, D)`. labels: split -> `(N,)`.
        parents: split -> super-classes `(N,)`, inside which pairs are taken; None: anywhere.
        ball: gives the distances, see `distances_of`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(1.2 + 3.7 * len(features), 6.4), 3.6), layout="constrained")
    panels = figure.subplots(1, len(features), squeeze=False, sharex=True)[0]
    pairs = {split: sample_pairs(labels[split], seed, parents[split]) for split in features}
    lengths = {
        split: [distances_of(rows[a], rows[b], ball) for a, b in pairs[split]] for split, rows in features.items()
    }
    all_lengths = np.concatenate([length for of_kinds in lengths.values() for length in of_kinds])
    longest = all_lengths.max(initial=0.0) or 1.0
    space_name = "Euclidean" if ball is None else "hyperbolic"
    for panel, (split, of_kinds) in zip(panels, lengths.items(), strict=True):
        n_different = min((len(np.unique(length)) for length in of_kinds if len(length)), default=1)
        bins = int(np.clip(np.sqrt(n_different), 10, BINS))
        for length, colour, name in zip(of_kinds, (SAME, DIFFERENT), ("same class", "different classes"), strict=True):
            if len(length):
                heights, edges = np.histogram(length, bins=bins, range=(0, longest * 1.02), density=True)
                panel.stairs(heights, edges, fill=True, color=colour, alpha=0.5, label=name)
                panel.axvline(np.median(length), color=colour, linewidth=1.5)
        panel.set(title=split, xlabel=f"{space_name} distance", yticks=[])
        panel.spines[["top", "right", "left"]].set_visible(False)
    legends = [panel.get_legend_handles_labels() for panel in panels]
    handles, names = max(legends, key=lambda legend: len(legend[0]))
    titles = [f"{name} (line: median)" for name in names]
    figure.legend(handles, titles, loc="outside lower center", ncols=2, frameon=False)
    set_suptitle(figure, f"{title}: distances of pairs")
    save_figure(figure, path, dpi=110)
    return path


def sample_pairs(
    labels: np.ndarray, seed: int, parents: np.ndarray | None = None, count: int = PAIRS
) -> list[tuple[np.ndarray, np.ndarray]]:
    """`count` random same-class pairs and up to `count` of different classes: `[(a, b), (a, b)]` indices.

    All same-class pairs are equally likely.

    No same-class pair where no class has two images.
    With `parents` `(N,)` the different classes belong to one super-class.
    """
    generator = np.random.default_rng(seed)
    # class after class
    order = np.argsort(labels, kind="stable")
    sizes = np.unique(labels, return_counts=True)[1]
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    n_partners = np.repeat(sizes, sizes) - 1
    same_class = np.empty(0, np.int64), np.empty(0, np.int64)
    if n_partners.any():
        first = generator.choice(len(labels), size=count, p=n_partners / n_partners.sum())
        step = 1 + generator.integers(n_partners[first])
        same_class = order[first], order[starts[first] + (first - starts[first] + step) % (n_partners[first] + 1)]
    first, second = generator.integers(len(labels), size=(2, count))
    different = labels[first] != labels[second]
    if parents is not None:
        different &= parents[first] == parents[second]
    return [same_class, (first[different], second[different])]


class Points(NamedTuple):
    """The points of a t-SNE.

    Attributes:
        features: `(N, D)`.
        labels: `(N,)`.
        names: label -> name of the class; None: they have numbers.
        parents: `(N,)` names of super-classes, which are then coloured; None: classes are.
        ball: gives the distances; None: Euclidean ones.
    """

    features: np.ndarray
    labels: np.ndarray
    names: dict | None = None
    parents: np.ndarray | None = None
    ball: object = None


def tsne(path: Path, points: Points, size: int, seed: int, title: str) -> bool:
    """t-SNE of whole classes drawn at random, about `size` samples in all. Returns whether there were enough."""
    from matplotlib.figure import Figure

    chosen = sample_classes(points.labels, size, seed)
    if len(chosen) < 4:
        return False
    places = tsne_places(points.features[chosen], seed, points.ball)  # (n, 2)
    if points.parents is None:
        kind = "class"
        kinds, codes = np.unique(points.labels[chosen], return_inverse=True)
        texts = {label: f"class {label}" for label in kinds.tolist()}
        if points.names:
            texts = {label: points.names[label] for label in texts}
    else:
        kind = "super-class"
        kinds, codes = np.unique(points.parents[chosen], return_inverse=True)
        texts = dict(enumerate(kinds.tolist()))
    texts = list(names_or_numbers(texts, lambda label: f"{kind} {label}").values())
    coloured_codes = coloured(places, codes, len(PALETTE))
    short = shortened([texts[code] for code in coloured_codes], LEGEND_SIZE, LEGEND_WIDTH)
    figure = Figure(figsize=(9, 6), layout="constrained")
    axis = figure.subplots()
    for code, colour in zip(coloured_codes, PALETTE, strict=False):
        axis.scatter(
            *places[codes == code].T,
            s=22,
            color=colour,
            edgecolors="white",
            linewidths=0.4,
            label=f" {short[texts[code]]}",
        )
    is_grey = ~np.isin(codes, coloured_codes)
    if is_grey.any():
        n_others = len(kinds) - len(coloured_codes)
        label = f" {count_of(n_others, f'other {kind}', f'other {kind}es')}"
        axis.scatter(*places[is_grey].T, s=9, color="#c9c9c9", linewidths=0, zorder=0, label=label)
    axis.set(xticks=[], yticks=[])
    whole_title = f"{title}, {count_of(len(chosen), 'image')}, colours by {kind}"
    fitting = title_that_fits(whole_title, 72 * figure.get_figwidth() - LEGEND_WIDTH - 60)
    axis.set_title(fitting["text"], fontsize=fitting["fontsize"], parse_math=False)
    legend = figure.legend(loc="outside right upper", frameon=False, fontsize=LEGEND_SIZE, markerscale=1.5)
    for text in legend.get_texts():
        text.set_parse_math(False)
    save_figure(figure, path, dpi=110)
    return True


def coloured(places: np.ndarray, codes: np.ndarray, limit: int) -> np.ndarray:
    """Which of the groups `codes` `(n,)`, 0 to G-1, get a colour; ascending.

    These are up to `limit` of the largest, spread over the map.

    Of the groups at least half as large as the `limit`-th largest, each next one is the farthest from those chosen so
    far; the first is the largest. A group lies at the median of its `places` `(n, 2)`.
    """
    counts = np.bincount(codes)
    if len(counts) <= limit:
        return np.arange(len(counts))
    candidates = np.flatnonzero(2 * counts >= np.sort(counts)[-limit])
    centres = np.array([np.median(places[codes == code], axis=0) for code in candidates])  # (G', 2)
    chosen = [int(np.argmax(counts[candidates]))]
    distances = np.full(len(candidates), np.inf)
    while len(chosen) < limit:
        distances = np.minimum(distances, np.linalg.norm(centres - centres[chosen[-1]], axis=1))
        distances[chosen] = -1
        chosen.append(int(np.argmax(distances)))
    return np.sort(candidates[chosen])


def sample_classes(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Indices of all samples of randomly ordered classes, as many as reach `size`, the last class cut; ascending."""
    generator = np.random.default_rng(seed)
    codes = np.unique(labels, return_inverse=True)[1]
    # class after class, in random order
    order = np.argsort(generator.permutation(int(codes.max()) + 1)[codes], kind="stable")
    return np.sort(order[:size])
