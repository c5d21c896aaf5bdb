"""The weighted k-nearest-neighbour classifier of frozen features, as DINO's eval_knn.py (Caron et al., arXiv
2104.14294).
"""

import numpy as np

import metrics

# DINO's
TEMPERATURE = 0.07
COUNTS = (10, 20, 100, 200)
# queries at once
BLOCK = 1024


def votes(similarities: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    """Votes `(Q, n_classes)` of neighbours: the sum of exp(similarity / .07) over those of each class.

    Args:
        similarities: `(Q, k)` cosines; -inf where there are fewer neighbours. classes: `(Q, k)`, from 0.
    """
    sums = np.zeros((len(classes), n_classes))
    queries = np.arange(len(classes))[:, None]
    np.add.at(sums, (queries, classes), np.exp(similarities / TEMPERATURE))
    return sums


def accuracies(space: metrics.EmbeddingSpace, counts=COUNTS) -> dict[int, float]:
    """k -> share of the queries whose class gets the most votes of the k nearest references; of equal votes the class
    of the lower number.

    Features are brought to unit length; neighbours are exact, of equally near ones the lower index comes first. Where
    there are fewer than k, all vote.
    """
    space = space.normalised()
    nearest = space.neighbours(max(counts))
    n_classes = int(space.reference_labels.max()) + 1
    right = dict.fromkeys(counts, 0)
    for start in range(0, space.size, BLOCK):
        rows = slice(start, start + BLOCK)
        is_neighbour = nearest[rows] >= 0
        columns = np.where(is_neighbour, nearest[rows], 0)
        cosines = []
        for neighbours, query in zip(columns, space.queries(rows), strict=True):
            cosines.append(space.references(neighbours) @ query)
        cosines = np.where(is_neighbour, np.stack(cosines), -np.inf)
        for k in counts:
            classes = space.reference_labels[columns[:, :k]]
            predicted = votes(cosines[:, :k], classes, n_classes).argmax(1)
            right[k] += int((predicted == space.labels[rows]).sum())
    return {k: number / space.size for k, number in right.items()}
