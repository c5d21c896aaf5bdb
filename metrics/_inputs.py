"""The arguments of an embedding space: its settings, and the checks of features, labels and seeds."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch

from metrics import _hidden, _mapped
from metrics._truth import Lists
from utilities.errors import NotFinite, UserError
from utilities.labels import are_missing
from utilities.levels import refuse_unnested

# rows turned to float64 at once
BLOCK = 65536


@dataclass(frozen=True)
class SpaceSettings:
    """What `metrics.compute` and `metrics.EmbeddingSpace` take by name, beside features, labels and clusters.

    Attributes:
        exclude: `(N,)` index of each query in the reference, -1 where it is not there. Default: its own, or none in a
            reference.
        seed: of k-means; a list of seeds makes nmi, ami and f1 the mean over as many clusterings.
        device: of the search and of k-means; `compute` replaces a missing GPU by the CPU, with one printed line.
        progress: show a bar on long searches.
        groups: `(N,)` super-class of each query, integers or names; for metrics that compare super-classes.
        query_sequences: `(N,)` whole numbers, -1 for none, or names: a query does not find the samples of its own
            sequence. With a reference, `reference_sequences` `(M,)` beside it.
        ranks: an `engine.ranks.Ranks` whose processes all call this with the same arguments: each searches and clusters
            its part of the queries on its own device, and all return the values that one process would.
        skip_unmatched: leave queries with nothing to find out of every retrieval metric, also of `e_recall` and `mAP`,
            where they count as 0.
        lists: the positives and the junk of each query, in place of classes and sequences. Junk is ignored, and
            queries without positives are left out as under `skip_unmatched`.
        certainty: `(N,)` of each query's answer, any real numbers; by default the negative distance.
        paths: `(N,)` image files of the queries, for a re-ranking of pairs. With a reference, `reference_paths` `(M,)`
            beside it.
    """

    exclude: np.ndarray | None = None
    seed: int | list[int] = 0
    device: str = "cpu"
    progress: bool = False
    groups: np.ndarray | None = None
    query_sequences: np.ndarray | None = None
    reference_sequences: np.ndarray | None = None
    ranks: object = None
    skip_unmatched: bool = False
    lists: Lists | None = None
    certainty: np.ndarray | None = None
    paths: np.ndarray | None = None
    reference_paths: np.ndarray | None = None


def as_paths(paths, size: int, name: str) -> np.ndarray | None:
    """`(N,)` of paths; None without any. Raises UserError for another number of them."""
    if paths is None:
        return None
    paths = np.asarray(paths)
    if paths.shape != (size,):
        raise UserError(f"{name} have shape {paths.shape}: ({size},) is expected, one for each image.")
    return paths


def as_array(values, name: str) -> np.ndarray:
    """numpy `(N, D)` of a tensor or array of real numbers; half types become float32, whole numbers float64. Memory
    maps are not copied.

    Raises UserError for another shape, other types, NaN and infinity.
    """
    if isinstance(values, torch.Tensor):
        is_half = values.dtype in (torch.float16, torch.bfloat16)
        values = values.detach()
        if is_half:
            values = values.float()
        values = values.cpu().numpy()
    mapped = _mapped.is_mapped(values)
    if not isinstance(values, _mapped.Stacked):
        values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise UserError(f"{name} are of type {values.dtype}, expected numbers.")
    if values.ndim != 2:
        raise UserError(f"{name} have shape {values.shape}: (N, D) is expected.")
    if values.dtype != np.float64 and not mapped:
        precision = np.float32 if values.dtype in (np.float16, np.float32) else np.float64
        values = values.astype(precision, copy=False)
    if not len(values) or not values.shape[1]:
        raise UserError(f"{name} have shape {values.shape}: there is nothing to measure.")
    n_bad = 0
    for start in range(0, len(values), BLOCK):
        is_finite = np.isfinite(values[start : start + BLOCK]).all(1)
        n_bad += int((~is_finite).sum())
    if n_bad:
        raise NotFinite(f"{name} hold NaN or infinity in {n_bad} of {len(values)} rows: no metric can be computed.")
    return values


def as_labels(labels, size: int, name: str, levels: bool = False) -> np.ndarray:
    """numpy `(N,)` of labels of any integer type, as int64: mixed integer types would be compared as floats. Raises
    UserError for NaN.

    levels: also `(N, L)`, of L levels.
    """
    labels = _hidden.as_numpy(labels)
    if labels.dtype.kind in "iub":
        labels = labels.astype(np.int64)
    if labels.size == size:
        labels = labels.reshape(-1)
    if labels.shape != (size,) and not (levels and labels.ndim == 2 and len(labels) == size and labels.size):
        of_levels = f", or ({size}, L) for L levels" if levels else ""
        raise UserError(
            f"{name} have shape {labels.shape}: ({size},) is expected, one for each row of features{of_levels}."
        )
    # numpy would take NaN for a class
    if labels.dtype.kind in "fcO" and (labels != labels).any():
        rows = (labels != labels).reshape(size, -1).any(1).sum()
        raise UserError(f"{name} hold NaN in {rows} of {size} rows: it is no class.")
    return labels


def as_certainty(certainty, size: int) -> np.ndarray | None:
    """`(N,)` float64. Raises UserError for another shape, and for what is no number."""
    if certainty is None:
        return None
    certainty = _hidden.as_numpy(certainty)
    if certainty.shape != (size,) or certainty.dtype.kind not in "fiub":
        raise UserError(
            f"certainty must be ({size},) numbers, one for each query; it is {certainty.shape} of {certainty.dtype}."
        )
    if np.isnan(certainty).any():
        raise UserError(f"certainty holds NaN in {int(np.isnan(certainty).sum())} of {size} rows.")
    return certainty.astype(np.float64)


def classless(labels: np.ndarray, reference_labels: np.ndarray) -> np.ndarray:
    """`(M,)` reference samples of no class, by labels of one column: a negative number or a missing name that no query
    has.
    """
    if reference_labels.dtype.kind == "i":
        is_missing = reference_labels < 0
    else:
        is_missing = are_missing(reference_labels)
    if is_missing.any():
        is_missing &= ~np.isin(reference_labels, labels)
    return is_missing


def as_sides(features, reference) -> tuple[np.ndarray, np.ndarray]:
    """The features of queries and reference, which are the queries if `reference` is None. Raises UserError."""
    features = as_array(features, "features")
    if reference is None:
        return features, features
    reference = as_array(reference, "reference features")
    if reference.shape[1] != features.shape[1]:
        raise UserError(
            f"the reference has {reference.shape[1]} dimensions, the queries {features.shape[1]}: they must agree."
        )
    return features, reference


def check_comparable(labels: np.ndarray, reference_labels: np.ndarray) -> None:
    """Raise UserError where the labels of queries and reference are of other kinds, numbers and names, or levels."""
    if (labels.dtype.kind in "USO") != (reference_labels.dtype.kind in "USO"):
        raise UserError(
            f"labels are of type {labels.dtype}, reference_labels of type {reference_labels.dtype}: give "
            "numbers, or names."
        )
    if labels.shape[1:] != reference_labels.shape[1:]:
        raise UserError(
            f"labels have shape {labels.shape}, reference_labels {reference_labels.shape}: both need the same levels."
        )


def numbered_levels(labels: np.ndarray, reference_labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels of queries `(N, L)` and reference `(M, L)`; each column is numbered from 0, both sides together.

    Raises UserError.
    """
    all_labels = np.concatenate([labels, reference_labels])
    columns = []
    try:
        for column in all_labels.reshape(len(all_labels), -1).T:
            columns.append(np.unique(column, return_inverse=True)[1].reshape(-1))
    except TypeError as error:
        raise UserError("labels of several types cannot be compared: give numbers alone, or names alone.") from error
    levels = np.stack(columns, 1)
    return levels[: len(labels)], levels[len(labels) :]


def check_nested(labels: np.ndarray, reference_labels: np.ndarray) -> None:
    """Raise UserError where a class of one level is in two classes of the next."""
    all_labels = np.concatenate([labels, reference_labels])
    if all_labels.dtype.kind in "OS":
        all_labels = all_labels.astype(str)
    refuse_unnested(all_labels, "labels")


def as_seeds(seed) -> list:
    """The seeds of k-means, of one number or several. Raises UserError for anything else."""
    seeds = []
    if isinstance(seed, Integral):
        seeds = [seed]
    elif isinstance(seed, list | tuple | range):
        seeds = list(seed)
    if not seeds or not all(isinstance(number, Integral) and abs(number) < 2**62 for number in seeds):
        raise UserError(f"seed {seed!r} is no whole number below 2^62, and no list of them.")
    return seeds
