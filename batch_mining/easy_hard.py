"""One positive and one negative an anchor, the easiest, hardest or a semihard one, or all (Xuan et al., arXiv
1904.04370).
"""

import torch

from batch_mining._miner import Miner, comparable_distances
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tuples import Pairs, pairs_of_masks

YIELDS = "pairs"
STRATEGIES = ["easy", "semihard", "hard", "all"]

FLAGS = {
    "pos": Flag(
        str,
        "easy",
        "positive of an anchor: its nearest (easy), its farthest (hard), the farthest that is nearer than the "
        "negative (semihard), all of them",
        choices=STRATEGIES,
    ),
    "neg": Flag(
        str,
        "semihard",
        "negative of an anchor: its farthest (easy), its nearest (hard), the nearest that is farther than the "
        "positive (semihard), all of them",
        choices=STRATEGIES,
    ),
    "pos_range": Flag(
        number(0),
        None,
        "distances among which the positive is chosen (unset: any)",
        nargs=2,
        metavar=("LOW", "HIGH"),
        rules={"idle_with": {"miner_easy_hard_pos": ["all"]}},
    ),
    "neg_range": Flag(
        number(0),
        None,
        "distances among which the negative is chosen (unset: any)",
        nargs=2,
        metavar=("LOW", "HIGH"),
        rules={"idle_with": {"miner_easy_hard_neg": ["all"]}},
    ),
}


class BatchMiner(Miner):
    """Pairs by two strategies, on distances of the given embeddings;
    the definitions of pytorch-metric-learning's BatchEasyHardMiner.

    An anchor for which one strategy finds no pair gives no pairs at all, unless a strategy is "all": then the two are
    independent. Raises UserError for two strategies that do not go together, and for an empty range.
    """

    def __init__(self, opt):
        super().__init__(opt)
        if "semihard" in (self.pos, self.neg) and (self.pos == self.neg or "all" in (self.pos, self.neg)):
            raise UserError(
                f"--miner_easy_hard_pos {self.pos} with --miner_easy_hard_neg {self.neg}: semihard is relative to one "
                "easy or hard pair, make the other easy or hard"
            )
        for kind, limits in (("pos", self.pos_range), ("neg", self.neg_range)):
            if limits is not None and limits[0] > limits[1]:
                raise UserError(
                    f"--miner_easy_hard_{kind}_range {limits[0]:g} {limits[1]:g}: from a distance to a larger one"
                )

    def mine(self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference) -> Pairs:
        """At most one pair of each kind per anchor, unless the strategy is "all"."""
        distances = comparable_distances(embeddings, reference)  # (B, M)
        positives, negatives = reference.masks(labels)
        if self.pos == "semihard":
            negatives = self._negatives(distances, negatives)
            positives = self._positives(distances, positives & (distances < _distance_of(negatives, distances)))
        else:
            positives = self._positives(distances, positives)
            if self.neg == "semihard":
                negatives = negatives & (distances > _distance_of(positives, distances))
            negatives = self._negatives(distances, negatives)
        if "all" not in (self.pos, self.neg):
            has_pairs = positives.any(1, keepdim=True) & negatives.any(1, keepdim=True)
            positives = positives & has_pairs
            negatives = negatives & has_pairs
        return pairs_of_masks(positives, negatives)

    def _positives(self, distances: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        return allowed if self.pos == "all" else _one(distances, allowed, self.pos_range, farthest=self.pos != "easy")

    def _negatives(self, distances: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        return allowed if self.neg == "all" else _one(distances, allowed, self.neg_range, farthest=self.neg == "easy")


def _one(distances: torch.Tensor, allowed: torch.Tensor, limits: list | None, farthest: bool) -> torch.Tensor:
    """Mask `(B, M)` of the nearest or farthest of the `allowed` `(B, M)` within the limits: at most one per row."""
    if limits is not None:
        allowed = allowed & (distances >= limits[0]) & (distances <= limits[1])
    if farthest:
        chosen = distances.masked_fill(~allowed, -torch.inf).argmax(1, keepdim=True)
    else:
        chosen = distances.masked_fill(~allowed, torch.inf).argmin(1, keepdim=True)
    return torch.zeros_like(allowed).scatter_(1, chosen, True) & allowed


def _distance_of(chosen: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
    """Distance `(B, 1)` of each row's chosen entry; 0 where none is chosen."""
    return torch.where(chosen, distances, 0.0).sum(1, keepdim=True)
