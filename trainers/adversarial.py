"""Synthetic hard negatives by a generator that learns against the metric (Duan et al., Deep Adversarial Metric Learning, CVPR 2018)."""

import contextlib

import torch
from torch.nn.functional import linear, mse_loss

import criteria
from trainers import _classifier
from trainers._classifier import CLASSIFIER_LOSS
from trainers._trainer import METRIC_LOSS
from trainers._trainer import Trainer as Base
from utilities.batchnorm import kept_buffers, resting_statistics
from utilities.criterion import check_reference, with_tuples
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.tensors import normalize, safe_sqrt
from utilities.tuples import Classes, Triplets, below, spread
from utilities.words import parse_weights

GENERATOR_LOSSES = ("g_hard_loss", "g_reg_loss", "g_adv_loss")
SYNTH_LOSS = "synth_loss"


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument(
        "--adversarial_hidden", type=whole(1, WIDEST), nargs="*", default=[512, 512], help="widths of the generator's hidden layers"
    )
    group.add_argument(
        "--adversarial_triplets_per_anchor", type=whole(1, 10**6), default=100,
        help="random triplets of an anchor, at most, of which the generator makes negatives",
    )  # fmt: skip
    help_margin = "g_adv_loss is above 0 only where a synthetic negative is farther from the anchor than the positive by more than this"
    group.add_argument("--adversarial_margin", type=number(), default=0.2, help=help_margin)
    group.add_argument("--adversarial_metric_epochs", type=whole(0), default=0, help="first epochs, without the generator")
    help_generator = "epochs after those in which the generator learns alone; network and criterion rest"
    group.add_argument("--adversarial_generator_epochs", type=whole(0), default=0, help=help_generator)


def check(opt) -> None:
    """See `trainers.check`."""
    if not criteria.takes_tuples(opt.loss) and getattr(criteria.REGISTRY.module(opt.loss), "COMPARES_SAMPLES", True):
        raise UserError(
            f"--trainer adversarial: --loss {opt.loss} takes neither triplets as they are nor class vectors; triplet and margin do"
        )
    if classifies(opt):
        _classifier.check(opt)


def classifies(opt) -> bool:
    """Whether a weight asks for a classifier."""
    return parse_weights(opt.loss_weights).get(CLASSIFIER_LOSS, 0) != 0


class Trainer(Base):
    """Random triplets (a, p, n) of a batch; n~ = G(f_a, f_p, f_n) of their pooled features is embedded by the network's own last layers.

    metric_loss = L(x, y); synth_loss = L on all the triplets (a, p, n~). Losses of the generator, with d Euclidean and v^ of unit length:
    g_hard_loss = mean squared error of n~^ and f_a^, g_reg_loss of n~^ and f_n^, g_adv_loss = mean [d(x_a, x_n~) - d(x_a, x_p) - margin]+.
    classifier_loss, if its weight is given, is that of the trainer classifier, with its flags.

    The generator's losses train only the generator; synth_loss and the others train only the network and the criterion, as in the paper,
    whose two minimisations are over different parameters. In pytorch-metric-learning each loss trains all of them.
    """

    WEIGHTS = {SYNTH_LOSS: 0.1, **dict.fromkeys(GENERATOR_LOSSES, 0.1)}
    LOSSES = (METRIC_LOSS, SYNTH_LOSS, *GENERATOR_LOSSES, CLASSIFIER_LOSS)

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        check(opt)
        super().__init__(opt, network, criterion)
        if not (hasattr(network, "embed") and hasattr(network, "feature_dim")):
            raise UserError("--trainer adversarial needs a network with pooled features: an `embed(pooled)` and a `feature_dim`")
        self.takes_tuples = criteria.takes_tuples(opt.loss)
        if self.takes_tuples:
            check_reference(type(criterion))  # the synthetic negatives are in one
        features = network.feature_dim
        widths = [3 * features, *opt.adversarial_hidden, features]
        layers = [[torch.nn.Linear(*pair), torch.nn.ReLU()] for pair in zip(widths, widths[1:], strict=False)]
        self.generator = torch.nn.Sequential(*[layer for pair in layers for layer in pair][:-1])
        self.classifier_loss = _classifier.loss_of(opt, opt.n_classes) if classifies(opt) else None
        self.at_most, self.margin = opt.adversarial_triplets_per_anchor, opt.adversarial_margin
        self.metric_epochs, self.generator_epochs = opt.adversarial_metric_epochs, opt.adversarial_generator_epochs
        self.start_epoch(1)

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> "_classifier.Classifier | None":
        """A classifier where its loss has a weight."""
        return _classifier.Classifier(opt, network) if classifies(opt) else None

    def start_epoch(self, epoch: int) -> None:
        """Set the phase: without the generator, the generator alone, or both. A frozen network's BatchNorm averages stay too."""
        self.generates = epoch > self.metric_epochs
        self.rests = self.generates and epoch <= self.metric_epochs + self.generator_epochs
        if self.rests:
            self.network.eval()
            for part in (self.criterion, getattr(self.criterion, "batchminer", None)):
                if hasattr(part, "stats"):
                    part.stats = {}  # else those of the last epoch would be recorded for this one

    def outputs(self, images: torch.Tensor) -> dict:
        """See the base; without a graph where the network is frozen."""
        with torch.no_grad() if self.rests else contextlib.nullcontext():
            outputs = super().outputs(images)
            return outputs if self.classifier_loss is None else {**outputs, _classifier.LOGITS: self.evaluated_heads.logits(outputs)}

    def losses(self, outputs: dict, batch) -> dict:
        """The losses of the phase."""
        if not self.generates:
            return self._network_losses(outputs, batch)
        triplets = random_triplets(batch.labels, self.at_most)
        negatives = self._negatives(outputs["pooled"].detach(), triplets)
        losses = self._generator_losses({name: value.detach() for name, value in outputs.items()}, triplets, negatives)
        if self.rests:
            return losses
        with kept_buffers(self.criterion):  # those of dynamic_softmargin are of real images
            losses[SYNTH_LOSS] = self._synth_loss(outputs["embeddings"], batch.labels, triplets, self._embedded(negatives.detach()))
        return {**losses, **self._network_losses(outputs, batch)}

    def _network_losses(self, outputs: dict, batch) -> dict:
        losses = {}
        if self.classifier_loss is not None:
            losses[CLASSIFIER_LOSS] = self.classifier_loss(outputs[_classifier.LOGITS], batch.labels)
        return {**losses, **super().losses(outputs, batch)}  # last, so that the criterion's statistics are those of the real images

    def _negatives(self, pooled: torch.Tensor, triplets: Triplets) -> torch.Tensor:
        """G of the triplets' pooled features: `(T, F)`."""
        first, *others = self.generator
        parts = zip(first.weight.chunk(3, dim=1), triplets, strict=True)
        # [f_a, f_p, f_n] W^T; each image is multiplied by each part of W once, however many triplets it is in
        hidden = first.bias + sum(linear(pooled, weight).index_select(0, rows) for weight, rows in parts)
        for layer in others:
            hidden = layer(hidden)
        return hidden

    def _embedded(self, pooled: torch.Tensor) -> torch.Tensor:
        """The embeddings `(T, D)`, as losses see them, of pooled features `(T, F)`."""
        features = {}
        seen = [features] if self.compares_before_neck else []
        with resting_statistics(self.network):  # those of --neck bn are of real images
            return self.named(self.network.embed(pooled, *seen), features)["embeddings"]

    def _generator_losses(self, outputs: dict, triplets: Triplets, negatives: torch.Tensor) -> dict:
        anchors, positives, real = triplets
        unit, synthetic = normalize(outputs["pooled"]), normalize(negatives)
        with resting(self.network):
            embedded = self._embedded(negatives)  # (T, D)
        embeddings = outputs["embeddings"]
        own = embeddings.index_select(0, anchors)
        violations = torch.relu(_distances(own, embedded) - _distances(own, embeddings.index_select(0, positives)) - self.margin)  # (T,)
        count = max(len(anchors), 1)  # not mean(), which is NaN without triplets
        return {
            "g_hard_loss": mse_loss(synthetic, unit.index_select(0, anchors), reduction="sum") / (count * unit.shape[1]),
            "g_reg_loss": mse_loss(synthetic, unit.index_select(0, real), reduction="sum") / (count * unit.shape[1]),
            "g_adv_loss": violations.sum() / count,
        }

    def _synth_loss(self, embeddings: torch.Tensor, labels: torch.Tensor, triplets: Triplets, synthetic: torch.Tensor) -> torch.Tensor:
        """L on the triplets (a, p, n~), whose n~ have the labels of n."""
        anchors, positives, negatives = triplets
        if not len(anchors):
            return embeddings.sum() * 0
        if not self.takes_tuples:  # class vectors: each sample of each triplet counts
            rows = torch.cat([anchors, positives])
            return self.criterion(
                batch=torch.cat([embeddings.index_select(0, rows), synthetic]), labels=labels[torch.cat([rows, negatives])]
            )
        mined = Triplets(anchors, positives, len(labels) + torch.arange(len(anchors), device=labels.device))
        with with_tuples(self.criterion, mined):  # n~ in a reference, not in the batch: avoids a T x T matrix
            return self.criterion(
                batch=embeddings, labels=labels, reference=torch.cat([embeddings, synthetic]),
                reference_labels=torch.cat([labels, labels[negatives]]), own=torch.arange(len(labels), device=labels.device),
            )  # fmt: skip

    def param_groups(self, opt) -> list[dict]:
        """The generator at --lr, and the classifier where there is one."""
        heads = [] if self.evaluated_heads is None else [_classifier.param_group(self.evaluated_heads, opt)]
        return [{"params": list(self.generator.parameters()), "name": "generator"}, *heads]


def random_triplets(labels: torch.Tensor, at_most: int) -> Triplets:
    """All of an anchor's triplets if they are at most `at_most`, else that many, drawn uniformly with replacement."""
    classes = Classes(labels)
    possible = torch.where(classes.complete, classes.n_positives * classes.n_negatives, 0)  # (B,)
    anchors, numbers = spread(possible.clamp(max=at_most))
    numbers = torch.where(possible[anchors] > at_most, below(possible[anchors]), numbers)
    others = classes.n_negatives[anchors]
    return Triplets(
        anchors,
        classes.positives(anchors, torch.div(numbers, others, rounding_mode="floor")),
        classes.negatives(anchors, numbers % others),
    )


@contextlib.contextmanager
def resting(module: torch.nn.Module):
    """Context in which the module's parameters get no gradient."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Euclidean distances `(T,)` of rows."""
    return safe_sqrt((x - y).square().sum(1))
