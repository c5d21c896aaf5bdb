"""Shared by the losses whose margins depend on the length of an embedding."""

import torch

from criteria._proxies import in_columns
from criteria._shards import SoftmaxCriterion
from utilities.errors import UserError
from utilities.tensors import safe_sqrt


def lengths(batch: torch.Tensor) -> torch.Tensor:
    """`(B, 1)` of embeddings `(B, D)`; the gradient of a zero row is 0."""
    return safe_sqrt(batch.square().sum(1, keepdim=True))


class LengthCriterion(SoftmaxCriterion):
    """A `SoftmaxCriterion` that reads the lengths of embeddings; its class vectors start uniform, at unit length.

    Raises UserError where `--loss_dims` leaves coordinates out.
    """

    def __init__(self, opt):
        super().__init__(opt, start=lambda vectors: in_columns(_unit_columns, vectors))
        if (opt.loss_dims or opt.embed_dim) < opt.embed_dim:
            raise UserError(
                f"--loss_dims {opt.loss_dims}: the loss reads the length of the whole embedding: leave it out"
            )


def _unit_columns(columns: torch.Tensor) -> None:
    columns.uniform_(-1, 1).renorm_(2, 1, 1e-5).mul_(1e5)
