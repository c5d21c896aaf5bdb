"""Hard-aware cascade: deeper stages learn from ever harder pairs
(Yuan et al., Hard-Aware Deeply Cascaded Embedding, arXiv 1611.05720).
"""

import math

import torch

import criteria
from options.flags import Flag
from options.flags.shared import rescaling_layer
from trainers import _classifier
from trainers._classifier import CLASSIFIER_LOSS, LOGITS, classifies
from trainers._heads import MAIN_EMBEDDING, Heads
from trainers._trainer import ADDED, METRIC_LOSS, features_for
from trainers._trainer import Trainer as Base
from utilities.criterion import with_tuples
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, share_of, whole
from utilities.parameter_groups import embedding_rates
from utilities.tensors import normalize, pair_distances, raise_half
from utilities.tuples import Pairs, pairs_of_masks, positive_mask, same_class
from utilities.words import parse_weights

# default of --cascade_percents
PERCENTS = (1.0, 0.5, 0.2)

FLAGS = {
    "--cascade_stages": Flag(
        str,
        [],
        "stages of the backbone, one per level: layer2 of a ResNet, inception4e of a GoogLeNet, block2 of conv4 …, or "
        "any module of it (default: the last ones of the families that name theirs)",
        nargs="*",
        metavar="STAGE",
    ),
    "--cascade_sizes": Flag(whole(1, WIDEST), [64, 64, 64], "dimensions of each level's embedding", nargs="+"),
    "--cascade_percents": Flag(
        number(above=0, most=1),
        list(PERCENTS),
        "share of the pairs of the level before, for the first of all pairs, that a level learns from: its hardest",
        nargs="+",
    ),
    "--cascade_mining": Flag(
        str,
        None,
        "pairs of a level: hardest: those of --cascade_percents; miner: those that --batch_mining mines in the level's "
        "own embedding (unset: miner under --mine_pairs, else hardest)",
        choices=["hardest", "miner"],
        before=lambda saved: "hardest" if saved.get("trainer") == "cascaded" else None,
    ),
}


def derived(opt) -> dict:
    """A miner that `--mine_pairs` asks for mines at each level."""
    mining = "miner" if opt.mine_pairs else "hardest"
    return {"cascade_mining": mining}


def check(opt) -> None:
    """See `trainers.check`."""
    if not criteria.takes_tuples(opt.loss):
        raise UserError(
            f"--trainer cascaded chooses pairs, and --loss {opt.loss} takes none: contrastive, triplet or margin do"
        )
    layer = rescaling_layer(opt)
    if layer is not None:
        raise UserError(
            f"{layer} has no effect with --trainer cascaded, whose embeddings are layers on the stages: leave it out"
        )
    for flag in ADDED:
        if getattr(opt, flag):
            raise UserError(
                f"--{flag} has no effect with --trainer cascaded, whose losses do not call the base's: leave it out"
            )
    levels = len(opt.cascade_sizes)
    per_level = {"cascade_stages": opt.cascade_stages or opt.cascade_sizes}
    if opt.cascade_mining == "miner":
        check_miner(opt)
    else:
        per_level["cascade_percents"] = opt.cascade_percents
        if opt.mine_pairs and not opt.repeats:
            raise UserError("--mine_pairs has no effect with --cascade_mining hardest: leave one of them out")
    for flag, values in per_level.items():
        if len(values) != levels:
            raise UserError(
                f"--{flag} names {len(values)} of the levels, --cascade_sizes {levels}: one of each a level"
            )
    if classifies(opt):
        _classifier.check(opt)


def check_miner(opt) -> None:
    """Refuse `--cascade_mining miner` where the loss takes none or the miner gets shares of pairs. Raises UserError."""
    if not criteria.takes_miner(opt.loss, opt):
        raise UserError(f"--cascade_mining miner: --loss {opt.loss} takes a miner's pairs under --mine_pairs: add it")
    if opt.cascade_percents != list(PERCENTS):
        percents = " ".join(f"{share:g}" for share in opt.cascade_percents)
        raise UserError(
            f"--cascade_percents {percents} has no effect with --cascade_mining miner, where --batch_mining chooses "
            "the pairs: leave it out"
        )


class Levels(Heads):
    """A linear layer on each stage's pooled features.

    The main embedding concatenates the K levels and divides them by sqrt(K).

    Attributes:
        classifier: a `_classifier.Classifier` of the main embedding, or None.
    """

    CHANGES_MAIN = True

    def __init__(self, widths: list[int], sizes: list[int], normalizes: bool):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in zip(widths, sizes, strict=True))
        self.embed_dim = sum(sizes)
        self.normalizes = normalizes
        self.trained_normalized = normalizes
        self.classifier = None

    def forward(self, embeddings: dict, features: dict) -> dict:
        """`level_1` … `(B, size)`, of unit length if the network's is, and the main embedding `(B, sum of sizes)`.

        With a classifier also its logits `(B, C)`.
        """
        raw = [layer(stage) for layer, stage in zip(self.layers, features["stages"], strict=True)]
        levels = _of_unit_length(raw) if self.normalizes else raw
        outputs = {MAIN_EMBEDDING: _joined(levels)}
        outputs |= {f"level_{depth}": level for depth, level in enumerate(levels, start=1)}
        if self.classifier is not None:
            # As in training, also where --eval_no_normalize leaves the levels as they are
            seen = outputs[MAIN_EMBEDDING]
            if self.trained_normalized:
                seen = _joined(_of_unit_length(raw))
            outputs[LOGITS] = self.classifier.logits({**features, "evaluated": seen})
        return outputs


def _of_unit_length(levels: list[torch.Tensor]) -> list[torch.Tensor]:
    return [normalize(raise_half(level)) for level in levels]


def _joined(levels: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(levels, 1) / math.sqrt(len(levels))


class Trainer(Base):
    """metric_loss_l = the criterion on the pairs of level l, which are chosen and compared in that level's embedding.

    Level 1 takes the hardest share of all pairs (all of them, by default), level l the hardest share of those that
    level l - 1 kept: of the positive pairs the farthest, of the negative pairs the nearest, the share rounded up; the
    criterion's miner is not used. Under `--cascade_mining miner` it mines in each level's embedding instead, as in
    pytorch-metric-learning's CascadedEmbeddings. All levels have one criterion. The network's own embedding layer is
    neither trained nor evaluated.

    classifier_loss, if its weight is given, is that of the trainer classifier on the main embedding, with its flags.
    """

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        check(opt)
        super().__init__(opt, network, criterion)
        self.mines = opt.cascade_mining == "miner"
        self.shares = opt.cascade_percents
        self.level_losses = tuple(f"{METRIC_LOSS}_{depth}" for depth in range(1, len(opt.cascade_sizes) + 1))
        self.LOSSES = self.level_losses
        self.classifier_loss = None
        if CLASSIFIER_LOSS in parse_weights(opt.loss_weights):
            self.LOSSES = (*self.level_losses, CLASSIFIER_LOSS)
        if classifies(opt):
            self.classifier_loss = _classifier.loss_of(opt, opt.n_classes)
        if hasattr(network, "leave_out_embedding"):
            network.leave_out_embedding()

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> Levels:
        """See the base. Raises UserError for a network without these stages."""
        sizes = opt.cascade_sizes
        stages = opt.cascade_stages
        if not hasattr(network, "give_stages"):
            raise UserError("--trainer cascaded needs a network that gives its stages (`give_stages`)")
        if not stages:
            stages = list(network.STAGES)[-len(sizes) :]
        if len(stages) < len(sizes):
            n_stages = f"only {len(stages)}" if stages else "no"
            raise UserError(
                f"--cascade_sizes names {len(sizes)} levels, and {n_stages} stages of {network.name} are known: give "
                "modules of it by --cascade_stages"
            )
        levels = Levels(network.give_stages(stages), sizes, network.normalizes)
        if classifies(opt):
            levels.classifier = _classifier.Classifier(opt, network, levels.embed_dim)
        return levels

    def outputs(self, images: torch.Tensor) -> dict:
        """`level_1` …, the main embedding as `embeddings`, and with a classifier its logits."""
        embeddings, features = self.network(images)
        levels = self.evaluated_heads({MAIN_EMBEDDING: embeddings}, features)
        return {**self.named(levels.pop(MAIN_EMBEDDING), features), **levels}

    def losses(self, outputs: dict, batch) -> dict:
        """One scalar per level, and that of the classifier."""
        level_losses = self._mined_losses if self.mines else self._hardest_losses
        losses = level_losses(outputs, batch.labels)
        if self.classifier_loss is not None:
            losses[CLASSIFIER_LOSS] = self.classifier_loss(outputs[LOGITS], batch.labels)
        return losses

    def _mined_losses(self, outputs: dict, labels: torch.Tensor) -> dict:
        names = enumerate(self.level_losses, start=1)
        return {name: self._level_loss(outputs, depth, labels) for depth, name in names}

    def _hardest_losses(self, outputs: dict, labels: torch.Tensor) -> dict:
        losses = {}
        pairs = pairs_of_masks(positive_mask(labels), ~same_class(labels))
        for depth, (name, share) in enumerate(zip(self.level_losses, self.shares, strict=True), start=1):
            pairs = hardest(outputs[f"level_{depth}"].detach(), pairs, share)
            with with_tuples(self.criterion, pairs):
                losses[name] = self._level_loss(outputs, depth, labels)
        return losses

    def _level_loss(self, outputs: dict, depth: int, labels: torch.Tensor) -> torch.Tensor:
        features = features_for(self.criterion, outputs)
        return self.criterion(batch=outputs[f"level_{depth}"], labels=labels, **features)

    def param_groups(self, opt) -> list[dict]:
        """The levels, at --fc_lr and --fc_decay as an embedding layer of the network, and a classifier, if any."""
        heads = self.evaluated_heads
        groups = [{"params": list(heads.layers.parameters()), "name": "levels", **embedding_rates(opt)}]
        if heads.classifier is not None:
            groups.append(_classifier.param_group(heads.classifier, opt))
        return groups


def hardest(embeddings: torch.Tensor, pairs: Pairs, share: float) -> Pairs:
    """The farthest `share` of the positive and the nearest of the negative pairs, rounded up.

    Distances are those of `embeddings` `(B, D)`.
    """
    positive_pairs = _hardest(embeddings, pairs.anchors_p, pairs.positives, share, 1)
    negative_pairs = _hardest(embeddings, pairs.anchors_n, pairs.negatives, share, -1)
    return Pairs(*positive_pairs, *negative_pairs)


def _hardest(embeddings, rows: torch.Tensor, columns: torch.Tensor, share: float, sign: int) -> tuple:
    """The `share` of the pairs (rows, columns) with the largest `sign` times distance."""
    count = share_of(share, len(rows))
    if count >= len(rows):
        return rows, columns
    hardness = sign * pair_distances(embeddings, rows, columns, squared=True)
    chosen = hardness.topk(count, sorted=False).indices
    return rows[chosen], columns[chosen]
