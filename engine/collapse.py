"""Collapse by name: whether the embeddings of different images become alike, or the loss stays at its margin.

`spread` and `separation` are measured of the embeddings of each step, `excess` and `reach` by losses on triplets, on
the device without waiting for it. `Watch` judges their means after each epoch; a run keeps its state in checkpoints,
so that a condition that was named before is not named again after a resume.
"""

import math

import torch

from utilities.reference import share_label
from utilities.tensors import normalize
from utilities.tuples import same_class

# how many of the first embeddings of a batch the statistics are computed on
ROWS = 1024
SPREAD = "criterion/spread"
SEPARATION = "criterion/separation"
EXCESS = "criterion/excess"
REACH = "criterion/reach"
NAMES = (SPREAD, SEPARATION, EXCESS, REACH)
# Rounding to bfloat16 leaves a spread of 1e-6, a cone of mean cosine .99 has .01, an untrained small network .14.
ALIKE = 1e-4
NARROW = 0.02
# Of a triplet that keeps its margin the reach is at least half.
NEAR = 0.5
AT_MARGIN = 0.15
# epochs in a row until the loss counts as stuck
EPOCHS = 2
# distances of these embeddings are not those of unit vectors: their separation says nothing
OF_OTHER_SPACES = ("hyperbolic", "hier")


@torch.no_grad()
def statistics(
    embeddings: torch.Tensor, labels: torch.Tensor, images: torch.Tensor, relevance: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """Device scalars of unit vectors, NaN where there is no such pair: `spread` = 1 - mean cosine of different images,
    `separation` = (mean d^2 of other classes - that of the own) / mean d^2.

    Args:
        embeddings: `(B, D)`. labels, images: `(B,)` class and image of each; views of one image are no pair.
        relevance: `(B, L)`, the labels of images that have several: those that share one are of one class.
    """
    embeddings = normalize(embeddings[:ROWS].detach().float())
    labels = labels[:ROWS]
    images = images[:ROWS].to(embeddings.device, non_blocking=True)
    squares = 2 - 2 * embeddings @ embeddings.T
    of_different_images = images[:, None] != images
    are_of_a_class = same_class(labels)
    if relevance is not None:
        are_of_a_class = share_label(relevance[:ROWS], relevance[:ROWS])
    of_own_class = of_different_images & are_of_a_class
    of_other_classes = of_different_images & ~are_of_a_class
    mean_square = _mean(squares, of_different_images)
    separation = (_mean(squares, of_other_classes) - _mean(squares, of_own_class)) / mean_square
    return {SPREAD: mean_square / 2, SEPARATION: separation}


def _mean(values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Mean of the chosen entries of a matrix; NaN without any."""
    return torch.where(chosen, values, 0).sum() / chosen.sum()


class Watch:
    """The conditions of a run, epoch by epoch.

    Args:
        loss: the value of `--loss`.
        state: of the epochs before; changed in place: `separation` of the last epoch, `at_margin` epochs in a row,
        `named`: the conditions that hold and were named.
    """

    def __init__(self, loss: str, state: dict):
        self.by_separation = loss not in OF_OTHER_SPACES
        self.state = state

    def warnings(self, epoch: int, means: dict) -> list[str]:
        """A line for each condition that begins in this epoch. `means`: name -> epoch mean."""
        spread = means.get(SPREAD, math.nan)
        separation = means.get(SEPARATION, math.nan) if self.by_separation else math.nan
        texts = {}
        if spread < ALIKE or (spread < NARROW and separation < NARROW):
            texts["alike"] = self._alike(epoch, spread, separation)
        self.state["at_margin"] = self.state.get("at_margin", 0) + 1 if _is_at_margin(spread, means) else 0
        if self.state["at_margin"] >= EPOCHS:
            texts["stuck"] = self._stuck(epoch, separation)
        named_before = self.state.get("named", [])
        self.state["named"] = list(texts)
        self.state["separation"] = None if math.isnan(separation) else separation
        return [text for condition, text in texts.items() if condition not in named_before]

    def _alike(self, epoch: int, spread: float, separation: float) -> str:
        curves = f"{SPREAD} {spread:.2g}"
        if not math.isnan(separation):
            curves += f", {SEPARATION} {_short(separation)}"
        return (
            f"WARNING: epoch {epoch}: the embeddings of all images are alike ({curves}): lower --lr or add "
            "--warmup_epochs, or mine softer (--batch_mining semihard, distance)"
        )

    def _stuck(self, epoch: int, separation: float) -> str:
        begin = f"WARNING: epoch {epoch}: the loss stays at the margin"
        curves = f"; curves {EXCESS}, {REACH}, {SEPARATION}"
        before = self.state.get("separation")
        if before is not None and separation > before:
            return (
                f"{begin}, while classes stay apart (separation {_short(separation)}): it may still leave it; a "
                f"smaller margin or a lower --lr is safer{curves}"
            )
        values = ""
        if before is not None:
            values = f" (separation {_short(before)}, then {_short(separation)})"
        return (
            f"{begin} and classes run together{values}: lower --lr or add --warmup_epochs, or mine softer "
            f"(--batch_mining semihard, distance){curves}"
        )


def _is_at_margin(spread: float, means: dict) -> bool:
    """Whether triplets are as near as they can be and no nearer to being right; never without triplets."""
    reach = means.get(REACH, math.nan)
    return spread < NARROW and reach < NEAR and abs(means.get(EXCESS, math.nan)) < AT_MARGIN


def _short(value: float) -> str:
    """Two decimals, without the zero in front."""
    sign = "-" if value < 0 else ""
    return sign + f"{abs(value):.2f}".removeprefix("0")
