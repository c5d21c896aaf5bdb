"""Distance-weighted negatives (Wu et al., Sampling Matters in Deep Embedding Learning, arXiv 1706.07567).

Distances are those of the normalised embeddings. The published runs declared an upper cutoff of 1.4 and never applied
it; here there is no cutoff by default, and one that is given is applied.
"""

from batch_mining._distance import DistanceMiner
from utilities.numbers import number

YIELDS = "triplets"


def add_arguments(group) -> None:
    """Declare the flags of the distance miner."""
    group.add_argument(
        "--miner_distance_lower_cutoff", type=number(0, below=2), default=0.5, help="nearer negatives count as this far"
    )
    group.add_argument(
        "--miner_distance_upper_cutoff",
        type=number(0),
        default=None,
        help="farther negatives are left out (unset: none)",
    )


class BatchMiner(DistanceMiner):
    """One triplet an anchor: a random positive, a negative drawn with the inverse density of its distance."""

    def __init__(self, opt):
        super().__init__(opt.miner_distance_lower_cutoff, opt.miner_distance_upper_cutoff)
