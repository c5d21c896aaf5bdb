"""Whitened embeddings (`--eval_whiten`): by principal components, or learned from pairs of images that match."""

from typing import NamedTuple

import numpy as np

from options.flags.roles import EVALUATION
from utilities.errors import NotFinite, UserError
from utilities.numbers import whole
from utilities.reading import Unreadable, parsing, read_arrays
from utilities.words import unless_none

PROGRAM = "python -m evaluation whiten"
# value of the flag -> learned
ON_TRAINING = {"fit": False, "fit_learned": True}
ON_GALLERY = "fit_gallery"
# added to lengths, as in the published code
LEAST = 1e-6


class Whitening(NamedTuple):
    """`P (x - m)` at unit length, up to `LEAST`. mean `(D,)`, projection `(D', D)`, float64."""

    mean: np.ndarray
    projection: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Features `(N, D)` -> `(N, D')` float32."""
        projected = (features[:].astype(np.float64) - self.mean) @ self.projection.T
        return (projected / (np.linalg.norm(projected, axis=1, keepdims=True) + LEAST)).astype(np.float32)


def pca(features: np.ndarray, dims: int | None = None, whitens: bool = True) -> Whitening:
    """The first `dims` principal components of features `(N, D)` (None: all),
    each divided by its deviation if it `whitens`.

    Raises UserError where there are fewer components of any spread.
    """
    features = _finite(features[:])
    mean = features.mean(0)
    values, vectors = np.linalg.eigh((features - mean).T @ (features - mean) / (2 * len(features)))
    spread = np.sqrt(_spread(values[::-1], dims))[:, None]
    directions = vectors.T[::-1]
    if whitens:
        directions = directions / spread
    return Whitening(mean, directions[:dims])


def learned(features: np.ndarray, pairs: tuple[np.ndarray, np.ndarray], dims: int | None = None) -> Whitening:
    """Whitening by pairs that match (Mikolajczyk and Matas, ICCV 2007; Radenovic et al., arXiv 1711.02512, section
    3.2).

    The differences of pairs are brought to unit covariance, then the features turned to their principal components.

    Args:
        features: `(N, D)`. pairs: rows of the queries and of what each matches, `(P,)` each.

    Raises UserError for more dimensions than there are.
    """
    features = _finite(features[:])
    mean = features[pairs[0]].mean(0)
    differences = features[pairs[0]] - features[pairs[1]]
    covariance = differences.T @ differences / len(differences)
    added = 1e-10
    # The covariance of few pairs is singular: its diagonal is raised until it has a Cholesky root.
    while True:
        try:
            whitens = np.linalg.inv(np.linalg.cholesky(covariance))
            break
        except np.linalg.LinAlgError:
            covariance = covariance + added * np.eye(len(covariance))
            added = added * 10
    centred = (features - mean) @ whitens.T
    values, vectors = np.linalg.eigh(centred.T @ centred)
    _spread(values[::-1], dims)
    return Whitening(mean, (vectors.T[::-1] @ whitens)[:dims])


def _finite(features: np.ndarray) -> np.ndarray:
    """The features in float64. Raises NotFinite where they hold NaN or infinity."""
    if not np.isfinite(features).all():
        raise NotFinite("whitening: the embeddings hold NaN or infinity, so nothing can be fitted on them")
    return features.astype(np.float64)


def _spread(values: np.ndarray, dims: int | None) -> np.ndarray:
    """Eigenvalues `(D,)`, the largest first. Raises UserError where fewer than `dims` differ from 0."""
    rank = int((values > values[0] * np.finfo(np.float64).eps * len(values)).sum())
    requested = len(values) if dims is None else dims
    if requested > rank:
        raise UserError(
            f"whitening: the embeddings spread in {rank} dimensions of {len(values)}: request at most {rank}"
        )
    return np.where(np.arange(len(values)) < requested, values, 1.0)


def pairs_of_classes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of pairs of one class, `(P,)` each: each image and the next of its class.
    Raises UserError where no class has two.
    """
    order = np.argsort(labels, kind="stable")
    are_pairs = labels[order[1:]] == labels[order[:-1]]
    if not are_pairs.any():
        raise UserError("whitening: no class has two images, so there are no pairs to learn from")
    return order[:-1][are_pairs], order[1:][are_pairs]


def add_arguments(group) -> None:
    """Declare the flags of whitening."""
    group.add_argument(
        "--eval_whiten",
        type=unless_none,
        default=None,
        metavar="FILE|fit|fit_learned|fit_gallery",
        help=f"whiten embeddings before they are measured: by a FILE of `{PROGRAM}`; fit: by the principal components "
        "of the training images; fit_learned: learned from pairs of their classes; fit_gallery: by the components of "
        "the images that are searched, which no published protocol does; none: not that of the saved run",
    ).role = EVALUATION
    dims = group.add_argument(
        "--eval_whiten_dims",
        type=whole(1),
        default=None,
        metavar="N",
        help="keep the first N dimensions of --eval_whiten (unset: all)",
    )
    dims.role = EVALUATION
    dims.needs = "eval_whiten"


def mark(opt) -> list[str]:
    """One line where whitening is fitted on what it is judged on; else none."""
    if opt.eval_whiten != ON_GALLERY:
        return []
    return [
        f"--eval_whiten {ON_GALLERY}: embeddings are whitened by the images that are searched, as no published "
        "protocol allows"
    ]


def needs_training(opt) -> bool:
    """Whether the training images are embedded to fit on them."""
    return opt.eval_whiten in ON_TRAINING


def of_flags(opt, training: tuple[np.ndarray, np.ndarray] | None, gallery: np.ndarray) -> Whitening:
    """The whitening that the flags ask for. `training`: features `(N, D)` and labels `(N,)` of the training images;
    `gallery` `(M, D)`. Raises UserError.
    """
    if opt.eval_whiten == ON_GALLERY:
        return pca(gallery, opt.eval_whiten_dims)
    if opt.eval_whiten not in ON_TRAINING:
        return read(opt.eval_whiten, gallery.shape[1], opt.eval_whiten_dims)
    features, labels = training
    if ON_TRAINING[opt.eval_whiten]:
        return learned(features, pairs_of_classes(labels), opt.eval_whiten_dims)
    return pca(features, opt.eval_whiten_dims)


def check(opt, width: int) -> int:
    """How many of `width` dimensions the flags leave. Raises UserError for a file that is none, and for more dimensions
    than there are.
    """
    if opt.eval_whiten is None:
        return width
    if opt.eval_whiten not in (*ON_TRAINING, ON_GALLERY):
        return len(read(opt.eval_whiten, width, opt.eval_whiten_dims).projection)
    if (opt.eval_whiten_dims or 0) > width:
        raise UserError(f"--eval_whiten_dims {opt.eval_whiten_dims}: the embeddings have {width} dimensions")
    return opt.eval_whiten_dims or width


def read(path: str, width: int, dims: int | None) -> Whitening:
    """The whitening in a file. Raises UserError where it is none, or of another width."""
    problem = None
    try:
        with parsing(path):
            arrays = read_arrays(path, Whitening._fields).values()
            mean, projection = (array.astype(np.float64) for array in arrays)
    except Unreadable as error:
        problem = f"cannot be read ({error.reason})"
    else:
        if mean.ndim != 1 or projection.ndim != 2 or projection.shape[1] != len(mean):
            problem = f"holds mean {mean.shape} and projection {projection.shape}"
    if problem is not None:
        raise UserError(
            f"--eval_whiten {path}: {problem}; expected mean (D,) and projection (D', D), as `{PROGRAM}` writes them, "
            f"or {', '.join([*ON_TRAINING, ON_GALLERY])}"
        )
    if len(mean) != width or (dims or 0) > len(projection):
        raise UserError(
            f"--eval_whiten {path}: takes {len(mean)} dimensions to {len(projection)}; there are {width}, and "
            f"{dims or 'all'} are requested"
        )
    return Whitening(mean, projection[:dims])
