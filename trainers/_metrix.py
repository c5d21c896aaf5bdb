"""Metrix, mixing for metric learning, of embeddings or of last maps.

Venkataramanan, Psomas et al., It Takes Two to Tango, ICLR 2022, arXiv 2106.04990.

Written from the paper's general form: an anchor's mixed points are all its positives, each with all its negatives, or
the anchor itself with all its negatives, each choice in half of the steps. The authors' code takes the first positive
for all, and the anchor itself only where it has no positive; their later file for multisimilarity weighs the clean loss
and leaves the mixed negatives out.
"""

import torch

from criteria._pairs import anchors_at_once, as_weights, few_at_a_time, joined, log_sum_exp, softplus
from options.flags import Flag
from options.flags.shared import rescaling_layer
from trainers._added_losses import AddedLoss
from utilities.errors import UserError
from utilities.numbers import number
from utilities.reference import Reference
from utilities.tensors import FLOOR, normalize, safe_sqrt
from utilities.tuples import same_class

NAME = "metrix_loss"
FLAG = "--metrix"
MAPS = "spatial"  # the last maps among a network's activations
ENTRIES = 1 << 17  # of a matrix of anchors and mixed points, and of mixed maps: 0.5 MB, which stays in a CPU's cache

FLAGS = {
    FLAG: Flag(
        number(0),
        0.0,
        "metrix_loss: this weight (published: 0.4) times the loss of mixed points of the batch, which are "
        "positives by a share drawn each step and negatives by the remaining share; with --loss contrastive, "
        "multisimilarity or proxyanchor; 0: none",
        metavar="WEIGHT",
    ),
    "--metrix_level": Flag(
        str,
        "embed",
        "what is mixed: unit embeddings, or the network's last maps, which are then pooled and embedded (the "
        "published figures of --metrix are of feature)",
        choices=["embed", "feature"],
        rules={"needs": "metrix"},
    ),
}


class Metrix(AddedLoss):
    """`metrix_loss` = weight * the criterion's formula on mixed points v = unit(share u + (1 - share) u').

    The share is drawn from Beta(2, 2) once per step. u' is a negative of the anchor, u one of its positives or, in half
    of the steps, the anchor itself. A point is a positive with weight `share` and a negative with weight 1 - `share`:

    - contrastive: mean share [d - pos_margin]+ + mean (1 - share) [neg_margin - d]+, by the criterion's reduction;
    - multisimilarity, proxyanchor: the sums inside the logarithms have these weights.

    Neither a miner nor multisimilarity's comparison chooses tuples; anchors of proxyanchor are the proxies.

    At the level `feature` u and u' are last maps, and v is the unit embedding of the mixed map; proxies, which have
    none, are never mixed.
    """

    NAME, FLAG = NAME, FLAG

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        kinds = {"contrastive": of_contrastive, "multisimilarity": of_multisimilarity, "proxyanchor": of_proxyanchor}
        if opt.loss not in kinds:
            raise UserError(f"{FLAG} mixes for --loss {', '.join(kinds)}, not for {opt.loss}")
        if opt.loss == "contrastive" and criterion.reduction.how not in ("mean", "nonzero"):
            raise UserError(
                f"{FLAG} --loss_reduction {criterion.reduction.how}: mixed points have the mean or that of what "
                "is active: mean or nonzero"
            )
        layer = rescaling_layer(opt)
        if layer is None and hasattr(network, "embed_dims"):
            layer = f"--arch {opt.arch} of several embeddings"
        if opt.metrix_level == "feature" and layer is not None:
            raise UserError(
                f"--metrix_level feature embeds mixed maps as the network does its own, which {layer} changes: "
                "take embed"
            )
        self.value = kinds[opt.loss]
        self.weight = opt.metrix
        self.level = opt.metrix_level

    def loss(self, trainer, outputs: dict, batch) -> torch.Tensor:
        """See `trainers._added_losses.AddedLoss.loss`."""
        embeddings = outputs["embeddings"]
        labels = batch.labels if trainer.LABELS else batch.indices.to(batch.labels.device)
        draws = torch.rand(4, dtype=torch.float32, device=embeddings.device)
        # the middle one of three uniform draws has the distribution Beta(2, 2)
        share = draws[:3].sort().values[1].to(embeddings.dtype)
        mixed = None
        if self.level == "feature":
            mixed = mixed_maps(trainer.network, outputs, share)
        of_positives, of_anchors = self.value(trainer.criterion, normalize(embeddings), labels, share, mixed)
        return self.weight * torch.where(draws[3] < 0.5, of_positives, of_anchors)


def mixed_maps(network: torch.nn.Module, outputs: dict, share: torch.Tensor) -> torch.Tensor:
    """The unit embeddings `(B, B, D)` of share map_i + (1 - share) map_j, of the last maps `(B, C, h, w)` in `outputs`.

    Only a few of the maps exist at a time. Raises UserError for a network that gives no last map.
    """
    maps = outputs.get(MAPS)
    if maps is None or not hasattr(network, "pool"):
        raise UserError(
            f"--metrix_level feature: {getattr(network, 'name', type(network).__name__)} gives no map before its "
            "pooling: take embed, or a ResNet"
        )

    def part(first_maps):
        mixed = share * first_maps[:, None] + (1 - share) * maps[None]
        return normalize(network.embed(network.pool(mixed.flatten(0, 1)))).unflatten(0, mixed.shape[:2])

    chunks = maps.split(max(ENTRIES // maps.numel(), 1))
    return joined(few_at_a_time(part, zip(chunks, strict=True)))


def of_contrastive(
    criterion, unit: torch.Tensor, labels: torch.Tensor, share: torch.Tensor, mixed: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """The values with mixed positives and with mixed anchors, of unit embeddings `(B, D)`.

    mixed: the mixed points `(B, B, D)`; None: those of the unit embeddings.
    """
    counts_active = criterion.reduction.how == "nonzero"

    def sums(cosines, weights, labels):
        """Sums over the anchors, which can be added over parts of them."""
        distances = safe_sqrt((2 - 2 * cosines).clamp(min=0))
        far = share * criterion.far(distances, labels)
        near = (1 - share) * criterion.near(distances, labels)
        return {
            "count": weights.sum(),
            "far": (far * weights).sum(),
            "active_far": (far.detach() * weights).count_nonzero().to(far.dtype),
            "near": (near * weights).sum(),
            "active_near": (near.detach() * weights).count_nonzero().to(near.dtype),
        }

    def mean(sums):
        value = 0
        for kind in ("far", "near"):
            count = sums[f"active_{kind}"] if counts_active else sums["count"]
            value = value + sums[kind] / count.clamp(min=1)
        return value

    return [mean(sums_of_points) for sums_of_points in of_pairs(sums, unit, labels, share, mixed)]


def of_multisimilarity(
    criterion, unit: torch.Tensor, labels: torch.Tensor, share: torch.Tensor, mixed: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """As `of_contrastive`."""

    def terms(cosines, weights, labels):
        excesses = cosines.flatten(1) - criterion.per_anchor("thresh", labels, 2)
        value = 0
        for name, sign, part in (("pos_weight", -1, share), ("neg_weight", 1, 1 - share)):
            scale = criterion.per_anchor(name, labels, 2)
            exponents = log_sum_exp(sign * scale * excesses, weights.flatten(1)) + part.log()
            value = value + softplus(exponents) / criterion.per_anchor(name, labels)
        return {"loss": value}

    return [terms_of_points["loss"].mean() for terms_of_points in of_pairs(terms, unit, labels, share, mixed)]


def of_pairs(
    formula, unit: torch.Tensor, labels: torch.Tensor, share: torch.Tensor, mixed: torch.Tensor | None
) -> tuple[dict, dict]:
    """A formula of all anchors: its values with mixed positives, with mixed anchors.

    It is called as `formula(cosines (b, F, B), weights (b, F, B), labels (b,))`.
    """
    cosines = unit @ unit.T
    positives, negatives = (as_weights(mask, unit) for mask in Reference.build(unit, labels).masks(labels))

    def part(anchors, cosines_of_part, positives, negatives, labels):
        to_mixed = cosines_to_mixed(anchors, cosines_of_part, cosines, share, mixed)
        return formula(to_mixed, positives[:, :, None] * negatives[:, None, :], labels)

    if mixed is None:
        from_anchors = mixed_cosines(cosines.diagonal()[:, None], cosines, cosines[:, None], share)
    else:
        from_anchors = torch.einsum("bd,bsd->bs", unit, mixed)[:, None]
    with_positives = in_parts(part, unit, cosines, positives, negatives, labels)
    return with_positives, formula(from_anchors, negatives[:, None], labels)


def of_proxyanchor(
    criterion, unit: torch.Tensor, labels: torch.Tensor, share: torch.Tensor, mixed: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """As `of_contrastive`; anchors are the proxies. Of a class that is not in the batch no image is a positive.

    With `mixed` points, which are of images, both values are that of mixed positives.
    """
    proxies = criterion.unit_proxies(unit)
    between = unit @ unit.T
    to_images = proxies @ unit.T
    classes = torch.arange(len(proxies), device=labels.device)
    # weight 1 for the first sample of each class, which stands for the class
    is_first = as_weights(torch.tril(same_class(labels), -1).any(1).logical_not(), unit)

    def terms(cosines, weights):
        weights = weights.flatten(1)
        cosines = cosines.flatten(1)
        of_positives = log_sum_exp(-criterion.alpha * (cosines - criterion.delta), weights)
        of_negatives = log_sum_exp(criterion.alpha * (cosines + criterion.delta), weights)
        return {
            "positive": softplus(of_positives + share.log()),
            "negative": softplus(of_negatives + (1 - share).log()),
            "has_any": weights.amax(1),
        }

    def part(anchors, cosines_of_part, positives, counts):
        weights = (positives * counts[:, None])[:, :, None] * (1 - positives)[:, None, :]
        return terms(cosines_to_mixed(anchors, cosines_of_part, between, share, mixed), weights)

    def value(terms):
        positive = terms["positive"].sum() / terms["has_any"].sum().clamp(min=1)
        return positive + terms["negative"].sum() / len(proxies)

    # The anchor of an image is the proxy of its class; each class counts once.
    proxies_of_images = proxies.index_select(0, labels)
    cosines_of_images = to_images.index_select(0, labels)
    positives = as_weights(same_class(labels), unit)
    with_positives = in_parts(part, proxies_of_images, cosines_of_images, positives, is_first)
    if mixed is not None:
        return [value(with_positives), value(with_positives)]
    negatives = as_weights(classes[:, None] != labels[None, :], unit)[:, None]
    from_anchors = mixed_cosines(torch.ones_like(to_images[:, :1]), to_images, to_images[:, None], share)
    return [value(with_positives), value(terms(from_anchors, negatives))]


def in_parts(part, *rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """`part(*rows)` of tensors with a row for each of B anchors.

    It is computed for a few anchors at a time where all meet too many of the B^2 points.
    """
    size = anchors_at_once(len(rows[0]) ** 2, ENTRIES)
    if size >= len(rows[0]):
        return part(*rows)
    chunks = zip(*(tensor.split(size) for tensor in rows), strict=True)
    parts = few_at_a_time(part, chunks)
    return {name: joined([part[name] for part in parts]) for name in parts[0]}


def cosines_to_mixed(
    anchors: torch.Tensor,
    cosines: torch.Tensor,
    between: torch.Tensor,
    share: torch.Tensor,
    mixed: torch.Tensor | None,
) -> torch.Tensor:
    """Cosines `(b, B, B)` of unit anchors `(b, D)` to the mixed points of each image with each.

    cosines: those of the anchors to the images `(b, B)`. between: those of the images to each other `(B, B)`.
    """
    if mixed is None:
        return mixed_cosines(cosines, cosines, between, share)
    return torch.einsum("bd,fsd->bfs", anchors, mixed)


def mixed_cosines(
    to_first: torch.Tensor, to_second: torch.Tensor, between: torch.Tensor, share: torch.Tensor
) -> torch.Tensor:
    """Cosines `(b, F, S)` of anchors to unit(share u + (1 - share) u'), without the mixed points themselves.

    `to_first` `(b, F)`, `to_second` `(b, S)`: the anchors' cosines to u and u'; `between` `(F, S)` or `(b, F, S)`:
    those of u to u'.
    """
    squared_lengths = share**2 + (1 - share) ** 2 + 2 * share * (1 - share) * between
    # halfway between opposite points the length is 0
    squared_lengths = squared_lengths.clamp(min=FLOOR)
    return (share * to_first[:, :, None] + (1 - share) * to_second[:, None, :]) * squared_lengths.rsqrt()
