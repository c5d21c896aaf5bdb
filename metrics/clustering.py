"""Agreement of k-means clusters with the classes: NMI, AMI and pairwise F1
(Manning et al. 2008; Vinh et al., JMLR 11, 2010).
"""

from statistics import fmean
from typing import NamedTuple

import numpy as np

from metrics._metric import Metric as Base


class Contingency(NamedTuple):
    """Non-empty cells of the table classes x clusters: counts `(M,)`, their class and cluster; and both margins."""

    counts: np.ndarray
    class_of_cell: np.ndarray
    cluster_of_cell: np.ndarray
    classes: np.ndarray  # (C,) sizes, none empty
    clusters: np.ndarray  # (K,) sizes, none empty


def contingency(labels: np.ndarray, clusters: np.ndarray) -> Contingency:
    """The table of two partitions `(N,)` of the same samples, without its empty cells."""
    _, labels, class_sizes = np.unique(labels, return_inverse=True, return_counts=True)
    _, clusters, cluster_sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    cells, counts = np.unique(labels.astype(np.int64) * len(cluster_sizes) + clusters, return_counts=True)
    return Contingency(counts, *np.divmod(cells, len(cluster_sizes)), class_sizes, cluster_sizes)


def entropy(sizes: np.ndarray) -> float:
    """Entropy, in nats, of a partition whose parts have these sizes."""
    shares = sizes / sizes.sum()
    return float(-(shares * np.log(shares)).sum())


def mutual_information(table: Contingency) -> float:
    """Mutual information of the two partitions, in nats."""
    if len(table.classes) == 1 or len(table.clusters) == 1:
        return 0.0
    n = table.classes.sum()
    # the counts that independent partitions would have
    independent = table.classes[table.class_of_cell] / n * table.clusters[table.cluster_of_cell]
    return max(0.0, float((table.counts / n * np.log(table.counts / independent)).sum()))


def expected_mutual_information(table: Contingency) -> float:
    """Mutual information that two partitions with these part sizes have by chance (hypergeometric model), in nats.

    It depends on the sizes alone: one term for each pair of distinct sizes, which are few.
    """
    from scipy.special import gammaln

    n = int(table.classes.sum())
    total = 0.0
    b, b_times = np.unique(table.clusters, return_counts=True)
    # classes have only a few dozen distinct sizes, so the loop is over these
    for a, a_times in zip(*np.unique(table.classes, return_counts=True), strict=True):
        first = np.maximum(1, a + b - n)
        lengths = np.minimum(a, b) - first + 1
        pair = np.repeat(np.arange(len(b)), lengths)
        overlap = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + first[pair]
        logarithm = (
            gammaln(a + 1)
            + gammaln(b[pair] + 1)
            + gammaln(n - a + 1)
            + gammaln(n - b[pair] + 1)
            - gammaln(n + 1)
            - gammaln(overlap + 1)
            - gammaln(a - overlap + 1)
            - gammaln(b[pair] - overlap + 1)
            - gammaln(n - a - b[pair] + overlap + 1)
        )
        terms = overlap / n * (np.log(overlap) + np.log(n) - np.log(a) - np.log(b[pair])) * np.exp(logarithm)
        total += a_times * float((terms * b_times[pair]).sum())
    return total


def clusters_are_classes(table: Contingency) -> bool:
    """Whether the clusters are the classes."""
    return len(table.counts) == len(table.classes) == len(table.clusters)


def nmi(table: Contingency) -> float:
    """Mutual information / arithmetic mean of the entropies; exactly 1.0 where the clusters are the classes."""
    if clusters_are_classes(table):
        return 1.0
    return mutual_information(table) / (0.5 * (entropy(table.classes) + entropy(table.clusters)))


def ami(table: Contingency) -> float:
    """(MI - expected MI) / (arithmetic mean of the entropies - expected MI), in [-1, 1], 0 for a partition by chance.

    Limits as in scikit-learn: 1.0 where the clusters are the classes,
    else 0.0 where either partition has one part; 0/0 is 1.
    """
    if clusters_are_classes(table):
        return 1.0
    if len(table.classes) == 1 or len(table.clusters) == 1:
        return 0.0
    chance = expected_mutual_information(table)
    above = mutual_information(table) - chance
    possible = 0.5 * (entropy(table.classes) + entropy(table.clusters)) - chance
    tiny = np.finfo(np.float64).eps
    quotient = (np.sign(above) or 1.0) * max(abs(above), tiny) / ((np.sign(possible) or 1.0) * max(abs(possible), tiny))
    # where chance explains everything, `above` and `possible` are rounding errors, and their quotient may be any number
    return float(np.clip(quotient, -1.0, 1.0))


def f1(table: Contingency) -> float:
    """Harmonic mean of precision and recall over pairs of samples put in one cluster;
    1.0 if there is no pair at all.
    """
    together, clustered, true = (
        float((sizes * (sizes - 1.0)).sum()) for sizes in (table.counts, table.clusters, table.classes)
    )
    if not clustered + true:
        return 1.0
    return 2.0 * together / (clustered + true)


class Metric(Base):
    """Agreement of the classes with k-means clusters, as many as there are classes,
    or with the `clusters` that were given.

    k-means depends on its start. main.py seeds one start with the run's --seed, as published, so that deviations over
    seeds include the chance of the start; with --eval_kmeans_starts N the value is the mean over the starts 0 to N-1,
    the same in every run.
    """

    NAMES = {
        "nmi": "normalised mutual information of classes and k-means clusters, arithmetic mean of the entropies",
        "ami": "mutual information of classes and k-means clusters, adjusted for chance",
        "f1": "harmonic mean of pairwise precision and recall of k-means clusters",
    }
    VARIANTS = ("cosine",)

    @property
    def range(self) -> tuple[float, float]:
        lowest = -1.0 if self.name == "ami" else 0.0
        return lowest, 1.0

    def value(self, space) -> float:
        tables = space.remember(
            "contingency", lambda: [contingency(space.labels, clusters) for clusters in space.clusterings]
        )
        measure = {"nmi": nmi, "ami": ami, "f1": f1}[self.name]
        return fmean(map(measure, tables))
