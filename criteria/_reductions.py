"""How the terms of tuples become one number: `--loss_reduction`, for the losses that say `REDUCES = True`."""

import torch

from criteria._pairs import anchors_of, positive_pairs
from criteria._ranking import sums_per_anchor
from criteria._tuples import mean_term
from utilities.errors import UserError
from utilities.reading import Unreadable, parsing, read_text
from utilities.tensors import take_pairs
from utilities.tuples import same_class

CHOICES = ["mean", "nonzero", "per_anchor", "sum", "class_weighted"]


def add_arguments(group) -> None:
    """Declare the reduction that all losses on tuples share."""
    group.add_argument(
        "--loss_reduction",
        default=None,
        choices=CHOICES,
        help="reduction of the terms of all pairs or triplets: their mean, the mean of those above 0, the mean over "
        "the batch of each anchor's mean (0 without a term), their sum, or their mean with the weights of the anchors' "
        "classes. Wins over --loss_triplet_reduction and --loss_contrastive_reduction (default: the reduction of "
        "the loss)",
    )
    group.add_argument(
        "--loss_class_weights",
        default=None,
        metavar="FILE",
        help="of --loss_reduction class_weighted: a text file with one number per class, at least 0, in the order of "
        "the labels (default: all classes that have terms in a batch count equally)",
    ).only_with = {"loss_reduction": ["class_weighted"]}


class Reduction:
    """The reduction of `opt.loss_reduction`; where it is unset, `own`: "mean" or "nonzero".

    Raises UserError where the class weights cannot be read, or their number is not that of the classes.
    """

    def __init__(self, opt, default: str = "mean"):
        self.is_own = opt.loss_reduction is None
        self.how = opt.loss_reduction or default
        self.weights = None
        if opt.loss_class_weights is not None:
            self.weights = read_weights(opt.loss_class_weights, getattr(opt, "n_classes", None))

    def __call__(self, terms: torch.Tensor, anchors: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scalar of non-negative `terms` `(T,)` of tuples with `anchors` `(T,)`, rows of a batch with `labels` `(B,)`;
        0 without terms.
        """
        if self.how in ("mean", "nonzero"):
            return mean_term(terms, self.how)
        if self.how == "sum":
            return terms.sum()
        if self.how == "class_weighted" and self.weights is not None:
            # kept on the device, as every copy to it waits
            self.weights = self.weights.to(terms.device)
            return mean_term(terms * self.weights.to(terms.dtype).index_select(0, labels.index_select(0, anchors)))
        sums = sums_per_anchor(terms, anchors, len(labels))  # (B,)
        counts = sums_per_anchor(torch.ones_like(terms), anchors, len(labels))
        if self.how == "per_anchor":
            return (sums / counts.clamp(min=1)).sum() / max(len(labels), 1)
        same_classes = same_class(labels).to(terms.dtype)  # (B, B)
        of_class = same_classes @ counts  # (B,), terms of the anchor's class
        n_classes = ((of_class > 0).to(terms.dtype) / same_classes.sum(1)).sum()
        return (sums / of_class.clamp(min=1)).sum() / n_classes.clamp(min=1)

    def of_pairs(self, kind: str, terms: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """For a `PairCriterion.formula`: what `join` needs of the non-negative `terms` `(b, M)` of pairs with `weights`
        0 and 1.

        That is their sum or, where it is not the loss's own reduction, every one, and the number of those above 0.
        `kind`: "positives" or "negatives".
        """
        chosen = terms * weights
        total = chosen.sum() if self.is_own else take_pairs(terms, *positive_pairs(weights))
        return {kind: total, f"active_{kind}": chosen.detach().count_nonzero().to(total.dtype)}

    def join(self, kind: str, results: dict[str, torch.Tensor]) -> torch.Tensor:
        """Scalar of what `of_pairs` found of all anchors."""
        counts = results[f"n_{kind}"]
        if not self.is_own:
            return self(results[kind], anchors_of(counts, results[kind]), results["labels"])
        number = results[f"active_{kind}"] if self.how == "nonzero" else counts.sum()
        return results[kind] / number.clamp(min=1)


def read_weights(path: str, n_classes: int | None) -> torch.Tensor:
    """Class weights `(C,)` from a text file. Raises UserError unless it holds `n_classes` finite numbers of at least
    0.
    """
    try:
        with parsing(path):
            weights = torch.tensor([float(word) for word in read_text(path).split()], dtype=torch.float64)
    except Unreadable as error:
        raise UserError(f"--loss_class_weights {path}: not a text file of numbers ({error.reason})") from error
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise UserError(f"--loss_class_weights {path}: every weight is a finite number of at least 0")
    if n_classes and len(weights) != n_classes:
        raise UserError(
            f"--loss_class_weights {path} has {len(weights)} numbers, the training data {n_classes} classes: "
            "give one number per class"
        )
    return weights
