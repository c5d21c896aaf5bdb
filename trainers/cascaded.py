"""Hard-aware cascade: deeper stages learn from ever harder pairs (Yuan et al., Hard-Aware Deeply Cascaded Embedding, arXiv 1611.05720)."""

import math

import torch

import criteria
from trainers._heads import MAIN_EMBEDDING, Heads
from trainers._trainer import ADDED, METRIC_LOSS, features_for
from trainers._trainer import Trainer as Base
from utilities.criterion import with_tuples
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, share_of, whole
from utilities.parameter_groups import embedding_rates
from utilities.tensors import normalize, pair_distances, raise_half
from utilities.tuples import Pairs, pairs_of_masks, positive_mask, same_class


def add_arguments(group) -> None:
    """Declare the flags."""
    help_stages = (
        "stages of the backbone, one a level: layer2 of a ResNet, inception4e of a GoogLeNet, block2 of conv4 …, or any module of it "
        "(default: the last ones of the families that name theirs)"
    )
    group.add_argument("--cascade_stages", nargs="*", default=[], metavar="STAGE", help=help_stages)
    group.add_argument(
        "--cascade_sizes", type=whole(1, WIDEST), nargs="+", default=[64, 64, 64], help="dimensions of each level's embedding"
    )
    help_percents = "share of the pairs of the level before, for the first of all pairs, that a level learns from: its hardest"
    group.add_argument("--cascade_percents", type=number(above=0, most=1), nargs="+", default=[1.0, 0.5, 0.2], help=help_percents)


def check(opt) -> None:
    """See `trainers.check`."""
    if not criteria.takes_tuples(opt.loss):
        raise UserError(f"--trainer cascaded chooses pairs, and --loss {opt.loss} takes none: contrastive, triplet or margin do")
    if opt.neck != "none":
        raise UserError(f"--neck {opt.neck} has no effect with --trainer cascaded, whose embeddings are layers on the stages: leave it out")
    for flag in ADDED:
        if getattr(opt, flag):
            raise UserError(f"--{flag} has no effect with --trainer cascaded, whose losses do not call the base's: leave it out")
    levels = len(opt.cascade_sizes)
    for flag, values in (("cascade_percents", opt.cascade_percents), ("cascade_stages", opt.cascade_stages or opt.cascade_sizes)):
        if len(values) != levels:
            raise UserError(f"--{flag} names {len(values)} of the levels, --cascade_sizes {levels}: one of each a level")


class Levels(Heads):
    """A linear layer on each stage's pooled features. The main embedding concatenates the K levels and divides them by sqrt(K)."""

    CHANGES_MAIN = True

    def __init__(self, widths: list[int], sizes: list[int], normalizes: bool):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in zip(widths, sizes, strict=True))
        self.embed_dim, self.normalizes = sum(sizes), normalizes

    def forward(self, embeddings: dict, features: dict) -> dict:
        """`level_1` … `(B, size)`, of unit length where the network normalises, and the main embedding `(B, sum of sizes)`."""
        levels = [layer(stage) for layer, stage in zip(self.layers, features["stages"], strict=True)]
        levels = [normalize(raise_half(level)) for level in levels] if self.normalizes else levels
        joined = torch.cat(levels, 1) / math.sqrt(len(levels))
        return {MAIN_EMBEDDING: joined, **{f"level_{depth}": level for depth, level in enumerate(levels, start=1)}}


class Trainer(Base):
    """metric_loss_l = the criterion on the pairs of level l, which are chosen and compared in that level's embedding.

    Level 1 takes the hardest share of all pairs (all of them, by default), level l the hardest share of those that level l - 1 kept: of
    the positive pairs the farthest, of the negative pairs the nearest, the share rounded up. All levels have one criterion; its miner is
    not used. The network's own embedding layer is neither trained nor evaluated.
    """

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        check(opt)
        super().__init__(opt, network, criterion)
        self.shares = opt.cascade_percents
        self.LOSSES = tuple(f"{METRIC_LOSS}_{depth}" for depth in range(1, len(self.shares) + 1))

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> Levels:
        """See the base. Raises UserError for a network without these stages."""
        sizes, stages = opt.cascade_sizes, opt.cascade_stages
        if not hasattr(network, "give_stages"):
            raise UserError("--trainer cascaded needs a network that gives its stages (`give_stages`)")
        if not stages:
            stages = list(network.STAGES)[-len(sizes) :]
        if len(stages) < len(sizes):
            there = f"only {len(stages)} stages of {network.name}" if stages else f"no stages of {network.name}"
            raise UserError(f"--cascade_sizes names {len(sizes)} levels, and {there} are known: give modules of it by --cascade_stages")
        return Levels(network.give_stages(stages), sizes, network.normalizes)

    def outputs(self, images: torch.Tensor) -> dict:
        """`level_1` … and the main embedding, as `embeddings`."""
        embeddings, features = self.network(images)
        levels = self.evaluated_heads({MAIN_EMBEDDING: embeddings}, features)
        return {**self.named(levels.pop(MAIN_EMBEDDING), features), **levels}

    def losses(self, outputs: dict, batch) -> dict:
        """One scalar per level."""
        same, losses = same_class(batch.labels), {}
        pairs = pairs_of_masks(positive_mask(batch.labels), ~same)
        for depth, (name, share) in enumerate(zip(self.LOSSES, self.shares, strict=True), start=1):
            level = outputs[f"level_{depth}"]
            pairs = hardest(level.detach(), pairs, share)
            with with_tuples(self.criterion, pairs):
                losses[name] = self.criterion(batch=level, labels=batch.labels, **features_for(self.criterion, outputs))
        return losses

    def param_groups(self, opt) -> list[dict]:
        """The levels, at --fc_lr and --fc_decay as the network's own embedding layer."""
        return [{"params": self.own_parameters(), "name": "levels", **embedding_rates(opt)}]


def hardest(embeddings: torch.Tensor, pairs: Pairs, share: float) -> Pairs:
    """The farthest `share` of the positive and the nearest of the negative pairs, rounded up, by distances of `embeddings` `(B, D)`."""
    kept = []
    for rows, columns, sign in ((pairs.anchors_p, pairs.positives, 1), (pairs.anchors_n, pairs.negatives, -1)):
        count = share_of(share, len(rows))
        if count < len(rows):
            chosen = (sign * pair_distances(embeddings, rows, columns, squared=True)).topk(count, sorted=False).indices
            rows, columns = rows[chosen], columns[chosen]
        kept += [rows, columns]
    return Pairs(*kept)
