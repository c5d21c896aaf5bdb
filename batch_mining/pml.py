"""Any miner of pytorch-metric-learning (Musgrave et al., arXiv 2008.09164), by its class name."""

import torch

from batch_mining._miner import Miner
from options.flags import Flag
from utilities import pml, tuples
from utilities.reference import Reference

FLAGS = {
    "class": Flag(str, "TripletMarginMiner", "class of pytorch_metric_learning.miners", attribute="class_name"),
    "kwargs": Flag(
        str,
        [],
        "arguments of its constructor, e.g. margin=0.1 type_of_triplets=semihard",
        nargs="*",
        metavar="KEY=VALUE",
    ),
}


class BatchMiner(Miner):
    """Tuples of the package's miner, as `Triplets` or `Pairs`.

    The package does not know an anchor's own image in a reference: tuples that contain it are removed.
    """

    several_labels = False

    def __init__(self, opt):
        super().__init__(opt)
        self.miner = pml.build("miners", self.class_name, self.kwargs)

    def mine(
        self, embeddings: torch.Tensor, labels: torch.Tensor, reference: Reference
    ) -> tuples.Triplets | tuples.Pairs:
        """Tuples by the rules of that package, on the device of `embeddings`."""
        # a copy: where both labels are one tensor, the package takes row i of the reference for anchor i itself
        compared = () if reference.plain else (reference.embeddings, reference.labels.clone())
        mined = tuple(torch.as_tensor(part, dtype=torch.long) for part in self.miner(embeddings, labels, *compared))
        mined = tuples.from_user(mined, embeddings.device)
        return mined if reference.plain else _without_own(mined, reference.own)


def _without_own(mined: tuples.Triplets | tuples.Pairs, own_rows: torch.Tensor) -> tuples.Triplets | tuples.Pairs:
    """The tuples that do not contain the anchor's own image, row `own_rows` `(B,)` of the reference."""
    if isinstance(mined, tuples.Triplets):
        own_of_anchors = own_rows[mined.anchors]
        rows = ((own_of_anchors != mined.positives) & (own_of_anchors != mined.negatives)).nonzero().squeeze(1)
        return tuples.Triplets(*(column[rows] for column in mined))
    columns = ()
    for anchors, partners in (mined[:2], mined[2:]):
        rows = (own_rows[anchors] != partners).nonzero().squeeze(1)
        columns += (anchors[rows], partners[rows])
    return tuples.Pairs(*columns)
