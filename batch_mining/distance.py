"""Distance-weighted negatives (Wu et al., Sampling Matters in Deep Embedding Learning, arXiv 1706.07567).

Distances are those of the normalised embeddings. The published runs declared an upper cutoff of 1.4 and never applied
it; here there is no cutoff by default, and one that is given is applied.
"""

from batch_mining._distance import DistanceMiner
from options.flags import Flag
from utilities.numbers import number

FLAGS = {
    "lower_cutoff": Flag(number(0, below=2), 0.5, "nearer negatives count as this far"),
    "upper_cutoff": Flag(number(0), None, "farther negatives are left out (unset: none)"),
}


class BatchMiner(DistanceMiner):
    """One triplet an anchor: a random positive, a negative drawn with the inverse density of its distance."""
