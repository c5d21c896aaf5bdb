"""Distance of test classes from training classes, and progressions of ever harder splits (ooDML, arXiv 2107.09562).

The distance is the Fréchet distance (FID) of a network's features. A progression swaps classes between training and
test, and then leaves classes out, as long as the distance grows; `evenly` chooses some of its splits, equally spaced in
FID. `tools/oodml.py` writes them to a file for --split_scheme oodml.
"""

import numpy as np

# rows whose differences from the mean are in memory at once
ROWS = 4096
# number of the last swapped classes that are not swapped back, as in the authors' code
KEPT_OUT = 5
# the same number for easier splits
KEPT_OUT_EASIER = 30


def fid(training: np.ndarray, testing: np.ndarray) -> float:
    """Fréchet distance in float64 of Gaussians with the means and covariances of features `(N, D)` and `(M, D)`.

    |m - m'|^2 + tr(C) + tr(C') - 2 tr((C C')^(1/2)), where the last trace is the sum of the singular values of F F'^T,
    with C = F^T F.
    """
    mean, factor = _gaussian(training)
    test_mean, test_factor = _gaussian(testing)
    common = np.linalg.svd(factor @ test_factor.T, compute_uv=False).sum()
    value = ((mean - test_mean) ** 2).sum() + (factor**2).sum() + (test_factor**2).sum() - 2 * common
    return max(float(value), 0.0)


def _gaussian(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean `(D,)` of features `(N, D)`, and `F` with `F^T F` their covariance, zero for a single row."""
    count, width = features.shape
    mean = features.mean(axis=0, dtype=np.float64)
    if count <= width:
        return mean, (features - mean) / np.sqrt(max(count - 1, 1))
    scatter = np.zeros((width, width))
    for start in range(0, count, ROWS):
        centred = features[start : start + ROWS] - mean
        scatter += centred.T @ centred
    values, vectors = np.linalg.eigh(scatter / (count - 1))
    return mean, np.sqrt(values.clip(min=0))[:, None] * vectors.T


def class_means(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean features `(C, D)` of each class, float64; `labels` `(N,)` are 0..C-1."""
    means = np.zeros((labels.max() + 1, features.shape[1]))
    np.add.at(means, labels, features)
    return means / np.bincount(labels)[:, None]


def progression(training: np.ndarray, testing: np.ndarray, swaps: int, removed: float = 0.0) -> list[dict]:
    """Ever harder splits, the given one first, made from class means as in the paper.

    Each step swaps the training classes that are nearest to the mean of test, relative to that of training, with the
    test classes that are nearest to the mean of training. Once a swap no longer raises the FID of the class means, the
    steps leave such classes out instead.

    Args:
        training, testing: means `(C, D)`, `(C', D)` of the classes, which are numbered 0..C-1 and C..C+C'-1.
        swaps: number of classes of each side that a step moves. removed: greatest share of either side's classes left
            out in the end.

    Returns:
        Each split's `train` and `test` (ascending class numbers), `fid`, and `swapped` and `removed` (numbers of
        classes of each side).
    """
    means = np.concatenate([training, testing]).astype(np.float64)
    sides = [list(range(len(training))), list(range(len(training), len(means)))]
    steps = [_step(means, sides, 0, 0)]
    recent = ([], [])
    while True:
        swapped_sides = _swapped(sides, swaps, recent, _orders(means, sides), KEPT_OUT)
        if swapped_sides is None:
            break
        step = _step(means, swapped_sides, steps[-1]["swapped"] + swaps, 0)
        if step["fid"] <= steps[-1]["fid"]:
            break
        sides = swapped_sides
        steps.append(step)
    least = [max(round(len(side) * (1 - removed)), 2) for side in sides]
    while all(len(side) - swaps >= limit for side, limit in zip(sides, least, strict=True)):
        sides = [_without(side, order[:swaps]) for side, order in zip(sides, _orders(means, sides), strict=True)]
        step = _step(means, sides, steps[-1]["swapped"], steps[-1]["removed"] + swaps)
        if step["fid"] <= steps[-1]["fid"]:
            break
        steps.append(step)
    return steps


def _without(side: list[int], positions: list[int]) -> list[int]:
    """The classes of a side but those at `positions`."""
    left_out = set(positions)
    return [class_ for position, class_ in enumerate(side) if position not in left_out]


def easier(training: np.ndarray, testing: np.ndarray, swaps: int) -> list[dict]:
    """Splits that are easier than the given one, the easiest first.

    They reverse the swaps of `progression`, as long as the FID falls. Arguments and result are those of `progression`,
    without the given split; `swapped` is negative.
    """
    means = np.concatenate([training, testing]).astype(np.float64)
    sides = [list(range(len(training))), list(range(len(training), len(means)))]
    steps = [_step(means, sides, 0, 0)]
    recent = ([], [])
    while True:
        orders = [order[::-1] for order in _orders(means, sides)]
        swapped_sides = _swapped(sides, swaps, recent, orders, KEPT_OUT_EASIER)
        if swapped_sides is None:
            break
        step = _step(means, swapped_sides, steps[-1]["swapped"] - swaps, 0)
        if step["fid"] >= steps[-1]["fid"]:
            break
        sides = swapped_sides
        steps.append(step)
    return steps[:0:-1]


def _step(means: np.ndarray, sides: list[list[int]], swapped: int, removed: int) -> dict:
    value = fid(means[sides[0]], means[sides[1]])
    return {"train": sorted(sides[0]), "test": sorted(sides[1]), "fid": value, "swapped": swapped, "removed": removed}


def _orders(means: np.ndarray, sides: list[list[int]]) -> list[list[int]]:
    """Positions in each side, sorted by the distance to the other side's mean less that to their own."""
    centres = [means[side].mean(axis=0) for side in sides]
    orders = []
    for side, centre, other_centre in zip(sides, centres, reversed(centres), strict=True):
        to_other = np.linalg.norm(means[side] - other_centre, axis=1)
        to_own = np.linalg.norm(means[side] - centre, axis=1)
        orders.append(np.argsort(to_other - to_own, kind="stable").tolist())
    return orders


def _swapped(
    sides: list[list[int]], swaps: int, recent: tuple[list, list], orders: list[list[int]], kept_out: int
) -> list[list[int]] | None:
    """The sides after `swaps` pairs of classes have been swapped; None if too few may be.

    Args:
        orders: positions in each side, in the order in which they are swapped. recent: positions swapped so far, per
            side; appended to.
    """
    moved = [list(side) for side in sides]
    for k in range(swaps):
        positions = []
        for order, recent_positions in zip(orders, recent, strict=True):
            blocked = recent_positions[-kept_out:]
            position = next((position for position in order[k:] if position not in blocked), None)
            if position is None:
                return None
            positions.append(position)
        for position, recent_positions in zip(positions, recent, strict=True):
            recent_positions.append(position)
        train_position, test_position = positions
        train_class = moved[0][train_position]
        moved[0][train_position] = moved[1][test_position]
        moved[1][test_position] = train_class
    return moved


def evenly(steps: list[dict], count: int) -> list[dict]:
    """`count` of the splits, as evenly spaced in FID as possible, first and last included; all if there are no more."""
    if len(steps) <= count:
        return steps
    values = np.array([step["fid"] for step in steps])
    chosen = []
    for place, target in enumerate(np.linspace(values[0], values[-1], count)):
        # leaves enough for the remaining choices
        free = np.arange(len(steps) - (count - 1 - place))
        if chosen:
            free = free[free > chosen[-1]]
        chosen.append(int(free[np.abs(values[free] - target).argmin()]))
    return [steps[i] for i in chosen]
