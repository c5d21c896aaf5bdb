"""Four embeddings of one backbone that learn different things (Milbich et al., DiVA, ECCV 2020, arXiv 2004.13458)."""

import argparse

import torch
from torch.nn.functional import cross_entropy

import batch_mining
import criteria
from options.flags import Flag
from trainers._averaging import MovingAverage
from trainers._heads import Heads
from trainers._trainer import MAIN_EMBEDDING, METRIC_LOSS
from trainers._trainer import Trainer as Base
from utilities.criterion import with_tuples
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.parameter_groups import criterion_groups, embedding_rates
from utilities.tensors import normalize, raise_half
from utilities.tuples import Classes, Triplets

# embeddings beside the network's own
OTHERS = ("shared", "intra", "selfsimilarity")
EMBEDDINGS = (MAIN_EMBEDDING, *OTHERS)
DECORRELATION = "decorrelation_loss"
# bound of the distances of two points on the unit sphere; at 2 the density of distances is 0
FARTHEST = 2 - 1e-4

FLAGS = {
    "weights": Flag(
        number(0),
        [0.3, 0.3, 0.3],
        "weights of shared_loss, intra_loss and selfsimilarity_loss, unless --loss_weights names them",
        nargs=3,
    ),
    "decorrelation": Flag(
        str,
        ["100"],
        "rho of every ordered pair of embeddings, or of one: shared-discriminative=1500; 0: that pair is left "
        "alone. The published runs have 100 to 1500 for selfsimilarity, shared and intra, each with "
        "discriminative, and 0 for the others",
        nargs="+",
        metavar="RHO",
    ),
    "hidden": Flag(whole(1, WIDEST), 512, "units of the layer by which one embedding predicts another"),
    "momentum": Flag(number(0, 1), 0.9, "of the moving average of the network that gives keys"),
    "queue": Flag(whole(1, 10**5), 50, "batches whose keys are kept as negatives"),
    "temperature": Flag(number(1e-6), 0.1, "divides the similarities of selfsimilarity_loss"),
    "lower_cutoff": Flag(number(0, below=2), 0.5, "nearer keys are weighted as if at this distance"),
    "upper_cutoff": Flag(number(0), 1.4, "keys that are farther get the weight 0"),
    "fixed": Flag(
        bool,
        False,
        "the keys' weights sum to 1 over the keys of each query, as its authors call right since 2021, not over the "
        "queries",
    ),
    "sharing": Flag(
        str,
        "three_classes",
        "shared_loss on random triplets of three classes, or on those of the miner random_distance, as in the "
        "authors' sample runs",
        choices=("three_classes", "random"),
    ),
}


def check(opt) -> None:
    """See `trainers.check`."""
    rhos(opt.diva_decorrelation)
    if opt.views == 1:
        raise UserError("--trainer diva --views 1 leaves no other view of an image for its key: 2 or more")
    if not criteria.takes_tuples(opt.loss):
        raise UserError(
            f"--trainer diva hands its criterion triplets of its own, and --loss {opt.loss} takes none: triplet "
            "and margin do"
        )


def rhos(words: list[str]) -> dict[tuple[str, str], float]:
    """`["100", "shared-intra=0"]` -> (source, target) -> rho of each ordered pair that has one.

    Raises UserError for other words.
    """
    weights = {(source, target): 0.0 for source in EMBEDDINGS for target in EMBEDDINGS if source != target}
    limits = number(0)
    for word in words:
        pair, _, text = word.rpartition("=")
        pairs = [tuple(pair.split("-"))] if pair else list(weights)
        try:
            rho = limits(text)
        except argparse.ArgumentTypeError as error:
            raise UserError(f"--diva_decorrelation {word}: {error}") from None
        if not weights.keys() >= set(pairs):
            raise UserError(
                f"--diva_decorrelation {word}: expected RHO or SOURCE-TARGET=RHO, two of {', '.join(EMBEDDINGS)}"
            )
        weights.update(dict.fromkeys(pairs, rho))
    return {pair: rho for pair, rho in weights.items() if rho}


class Embeddings(Heads):
    """The other embeddings: linear layers on the pooled features, as wide as the network's embedding.

    They are of unit length if the network normalises.
    """

    def __init__(self, network: torch.nn.Module):
        super().__init__()
        self.layers = torch.nn.ModuleDict(
            {name: torch.nn.Linear(network.feature_dim, network.embed_dim) for name in OTHERS}
        )
        self.normalizes = getattr(network, "normalizes", False)

    def forward(self, embeddings: dict, features: dict) -> dict:
        """`shared`, `intra` and `selfsimilarity`, each `(B, D)`."""
        embeddings = {name: layer(features["pooled"]) for name, layer in self.layers.items()}
        if self.normalizes:
            embeddings = {name: normalize(raise_half(rows)) for name, rows in embeddings.items()}
        return embeddings


class Keys(torch.nn.Module):
    """Images -> unit keys `(B, D)`: the embedding `selfsimilarity`, by its `layer` on the network's pooled features."""

    def __init__(self, network: torch.nn.Module, layer: torch.nn.Module):
        super().__init__()
        self.network = network
        self.layer = layer

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The keys."""
        return normalize(raise_half(self.layer(self.network(images)[1]["pooled"])))


class Trainer(Base):
    """metric_loss = L on `discriminative`, the network's embedding; each of the others has a loss of its own.

    shared_loss: L on random triplets whose anchor, positive and negative are of three classes, or with `--diva_sharing
    random` on those of the miner random_distance; intra_loss: L on triplets of one class (miner intra_random); each
    with a criterion of its own. selfsimilarity_loss: cross-entropy of [q.k, w_j q.k_j] / T with target q.k. q and k are
    of unit length; k is the key of another view of q's image, from a moving average of the network; k_j are the keys of
    past batches. w_j is the inverse density of the distance of q and k_j, divided by its sum over all q, as in the
    authors' code, or with `--diva_fixed` by that over all k_j.
    decorrelation_loss: minus the sum over pairs of rho times the mean of (t p)^2, t a unit embedding, p its unit
    prediction from another embedding by two layers. These layers learn to predict; the embeddings, behind a gradient
    reversal, learn not to be predictable.

    As in every trainer all views of an image are trained on, and each view's key is used by another view; the authors
    embed one view and take the key from a second. The queue starts empty; theirs is filled before training.
    """

    VIEWS = 2
    GUIDES = False
    LOSSES = (METRIC_LOSS, *(f"{name}_loss" for name in OTHERS), DECORRELATION)

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        check(opt)
        super().__init__(opt, network, criterion)
        loss_names = [f"{name}_loss" for name in OTHERS]
        self.WEIGHTS = dict(zip(loss_names, opt.diva_weights, strict=True))
        miner = getattr(criterion, "batchminer", None)
        self.criteria = torch.nn.ModuleDict({name: criteria.select(opt.loss, opt, miner) for name in OTHERS[:2]})
        self.miners = {"shared": _sharing_miner(opt), "intra": batch_mining.select("intra_random", opt)}
        size = network.embed_dim
        self.rhos = rhos(opt.diva_decorrelation)
        self.predictors = torch.nn.ModuleDict({f"{s}-{t}": predictor(size, opt.diva_hidden) for s, t in self.rhos})
        self.average = MovingAverage(self._keys(), opt.diva_momentum)
        self.temperature = opt.diva_temperature
        self.fixed = opt.diva_fixed
        self.lower_cutoff = max(opt.diva_lower_cutoff, 1e-6)
        self.upper_cutoff = opt.diva_upper_cutoff
        self.register_buffer("queue", torch.zeros(opt.diva_queue * opt.bs * self.VIEWS, size))
        self.register_buffer("enqueued", torch.zeros((), dtype=torch.long))

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> Embeddings:
        """See the base. Raises UserError for a network without pooled features."""
        if not (hasattr(network, "feature_dim") and hasattr(network, "embed_dim")):
            raise UserError("--trainer diva needs a network with pooled features: a `feature_dim`, and an `embed_dim`")
        return Embeddings(network)

    def _keys(self) -> Keys:
        """The network that the moving average follows."""
        return Keys(self.network, self.evaluated_heads.layers["selfsimilarity"])

    def outputs(self, images: torch.Tensor) -> dict:
        """The four embeddings, `discriminative` as `embeddings`, and the `keys` `(B, D)` of the moving average."""
        outputs = super().outputs(images)
        with torch.no_grad():
            keys = self.once(lambda: self.average(images))
        return {**outputs, **self.evaluated_heads({}, outputs), "keys": keys}

    def losses(self, outputs: dict, batch) -> dict:
        """The five scalars."""
        losses = {}
        for name, criterion in self.criteria.items():
            rows = outputs[name]
            with with_tuples(criterion, self.miners[name](rows.detach(), batch.labels)):
                losses[f"{name}_loss"] = criterion(batch=rows, labels=batch.labels)
        self.keys = outputs["keys"].detach()
        of_other_views = self.keys.roll(-(len(self.keys) // self.VIEWS), 0)
        losses["selfsimilarity_loss"] = self.selfsimilarity_loss(normalize(outputs["selfsimilarity"]), of_other_views)
        embeddings = {MAIN_EMBEDDING: outputs["embeddings"]}
        embeddings |= {name: outputs[name] for name in OTHERS}
        losses[DECORRELATION] = self.decorrelation_loss(embeddings)
        return {**losses, **super().losses(outputs, batch)}

    def selfsimilarity_loss(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """InfoNCE of unit `queries` `(B, D)` and their `keys` `(B, D)` against the queue."""
        similarities = queries @ self.queue.T  # (B, N)
        filled = torch.arange(len(self.queue), device=queries.device) < self.enqueued
        weighted = (similarities * self.weights(similarities.detach(), filled)).masked_fill(~filled, -torch.inf)
        logits = torch.cat([(queries * keys).sum(1, keepdim=True), weighted], 1) / self.temperature
        return cross_entropy(logits, torch.zeros(len(queries), dtype=torch.long, device=queries.device))

    def weights(self, similarities: torch.Tensor, filled: torch.Tensor) -> torch.Tensor:
        """Inverse density `(B, N)` of the distances of cosines `(B, N)`.

        It sums to 1 over the queries for each key, or by `--diva_fixed` over the keys `filled` `(N,)` for each query.
        """
        size = self.queue.shape[1]
        squared = (2 - 2 * similarities).clamp(min=self.lower_cutoff**2, max=FARTHEST**2)
        # log w = (2 - D) log d - (D - 3)/2 log(1 - d^2/4), as the miner distance has it
        logs = (2 - size) / 2 * squared.log() - (size - 3) / 2 * (1 - squared / 4).log()
        near = squared <= self.upper_cutoff**2
        if self.fixed:
            near &= filled
            logs = torch.where(near, logs, -torch.inf)
            # equal weights, for a query that is too far from all keys
            equal = filled.to(logs) / filled.sum().clamp(min=1)
            return torch.where(near.any(1, keepdim=True), torch.softmax(logs, 1), equal)
        logs = torch.where(near | ~near.any(0), logs, -torch.inf)
        # a key that is too far from all queries has equal weights, as in the authors' code
        return torch.where(near.any(0), torch.softmax(logs, 0), 1 / len(similarities))

    def decorrelation_loss(self, embeddings: dict) -> torch.Tensor:
        """Minus rho times the mean squared product of each embedding and its prediction from another."""
        units = {name: normalize(Reversed.apply(rows)) for name, rows in embeddings.items()}
        total = units[MAIN_EMBEDDING].sum() * 0
        for (source, target), rho in self.rhos.items():
            predicted = normalize(self.predictors[f"{source}-{target}"](units[source]))
            total = total - rho * (units[target] * predicted).square().mean()
        return total

    @torch.no_grad()
    def after_step(self) -> None:
        """Update the moving average; the batch's keys replace the oldest ones."""
        self.average.update(self._keys())
        places = (self.enqueued + torch.arange(len(self.keys), device=self.queue.device)) % len(self.queue)
        self.queue.index_copy_(0, places, self.keys.to(self.queue.dtype))
        self.enqueued += len(self.keys)

    def param_groups(self, opt) -> list[dict]:
        """The embedding layers at the rates of the network's own, the criteria, the predictors at --lr without decay.

        So the authors' code has them.
        """
        groups = [{"params": list(self.evaluated_heads.parameters()), "name": "embeddings", **embedding_rates(opt)}]
        for name, criterion in self.criteria.items():
            groups += criterion_groups(criterion, opt, f"{name}_criterion")
        groups.append({"params": list(self.predictors.parameters()), "name": "decorrelation", "weight_decay": 0})
        return groups


class Reversed(torch.autograd.Function):
    """Gradient reversal: the identity, whose gradient is negated."""

    @staticmethod
    def forward(ctx, rows):
        """The rows."""
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx, gradient):
        """Minus the gradient."""
        return -gradient


def predictor(size: int, hidden: int) -> torch.nn.Sequential:
    """The two layers that predict one embedding from another."""
    return torch.nn.Sequential(torch.nn.Linear(size, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, size))


def three_classes(labels: torch.Tensor) -> Triplets:
    """For each sample one of a second and one of a third class, drawn uniformly; none with fewer than three classes."""
    classes = Classes(labels)
    anchors = (classes.n_negatives > 0).nonzero().squeeze(1)
    positives = classes.draw_negatives(anchors)
    negatives, has_third_class = classes.draw_strangers(anchors, positives)
    # one wait for the device; masking the three columns would be three
    rows = has_third_class.nonzero().squeeze(1)
    return Triplets(anchors[rows], positives[rows], negatives[rows])


def _sharing_miner(opt):
    """The miner of shared_loss: `--diva_sharing`."""
    if opt.diva_sharing == "three_classes":
        return lambda _, labels: three_classes(labels)
    return batch_mining.select("random_distance", opt)
