"""Synthetic hard negatives by a generator that learns against the metric (Duan et al., Deep Adversarial Metric
Learning, CVPR 2018).
"""

import contextlib

import torch
from torch.nn.functional import linear, mse_loss

import criteria
from options.flags import Flag
from trainers import _classifier
from trainers._classifier import CLASSIFIER_LOSS, classifies
from trainers._heads import width
from trainers._trainer import METRIC_LOSS
from trainers._trainer import Trainer as Base
from utilities.batchnorm import kept_buffers, resting_statistics
from utilities.criterion import check_reference, with_tuples
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.parameter_groups import criterion_groups
from utilities.reference import Reference
from utilities.tensors import normalize, safe_sqrt
from utilities.tuples import Classes, Triplets, below, spread

GENERATOR_LOSSES = ("g_hard_loss", "g_reg_loss", "g_adv_loss")
SYNTH_LOSS = "synth_loss"
ADVERSARY_LOSS = "g_adv_loss"
LOSS_KEYS = (SYNTH_LOSS, ADVERSARY_LOSS)
DEFAULT_ADVERSARY = "triplet"
DEFAULT_MARGIN = 0.2

FLAGS = {
    "hidden": Flag(whole(1, WIDEST), [512, 512], "widths of the generator's hidden layers", nargs="*"),
    "triplets_per_anchor": Flag(
        whole(1, 10**6), 100, "random triplets of an anchor, at most, of which the generator makes negatives"
    ),
    "losses": Flag(
        str,
        [],
        "losses on the synthetic triplets, such as synth_loss=angular g_adv_loss=angular, each a criterion of its "
        "own with that loss's flags (unset: synth_loss is --loss itself, g_adv_loss is triplet with "
        "--adversarial_margin)",
        nargs="*",
        metavar="KEY=LOSS",
    ),
    "margin": Flag(
        number(),
        DEFAULT_MARGIN,
        "g_adv_loss is above 0 only where a synthetic negative is farther from the anchor than the positive by more "
        "than this",
    ),
    "metric_epochs": Flag(whole(0), 0, "first epochs, without the generator"),
    "generator_epochs": Flag(
        whole(0), 0, "epochs after those in which only the generator is trained; network and criterion are frozen"
    ),
}


def derived(opt) -> dict:
    """The flags of the losses on synthetic triplets whose default depends on others."""
    flags = {}
    for name in named_losses(opt).values():
        flags |= criteria.REGISTRY.derived(name, opt)
    return flags


def named_losses(opt) -> dict[str, str]:
    """Key -> loss of `--adversarial_losses`. Raises UserError for a word that is no KEY=LOSS."""
    losses = {}
    for word in opt.adversarial_losses or ():
        key, _, name = word.partition("=")
        if key not in LOSS_KEYS or not name:
            raise UserError(
                f"--adversarial_losses {word}: expected KEY=LOSS with one of the keys {' and '.join(LOSS_KEYS)}; "
                "metric_loss is --loss"
            )
        if key in losses:
            raise UserError(f"--adversarial_losses names {key} twice: leave one out")
        losses[key] = name
    return losses


def check(opt) -> None:
    """See `trainers.check`."""
    losses = named_losses(opt)
    if SYNTH_LOSS in losses:
        check_synth(losses[SYNTH_LOSS], f"--adversarial_losses {SYNTH_LOSS}={losses[SYNTH_LOSS]}")
    else:
        check_synth(opt.loss, f"--loss {opt.loss}")
    adversary = losses.get(ADVERSARY_LOSS, DEFAULT_ADVERSARY)
    module = criteria.REGISTRY.module(adversary)
    if not criteria.takes_given_triplets(adversary) or getattr(module, "REQUIRES_OPTIM", False):
        raise UserError(
            f"--adversarial_losses {ADVERSARY_LOSS}={adversary}: the generator learns from a loss on triplets without "
            "parameters; triplet and angular are"
        )
    if adversary != DEFAULT_ADVERSARY and opt.adversarial_margin != DEFAULT_MARGIN:
        raise UserError(
            f"--adversarial_margin {opt.adversarial_margin:g} has no effect with --adversarial_losses "
            f"{ADVERSARY_LOSS}={adversary}: leave it out"
        )
    if classifies(opt):
        _classifier.check(opt)


def check_synth(name: str, flag: str) -> None:
    """Refuse a loss that neither takes triplets nor compares with class vectors alone. Raises UserError."""
    if not criteria.takes_given_triplets(name) and getattr(criteria.REGISTRY.module(name), "COMPARES_SAMPLES", True):
        raise UserError(
            f"--trainer adversarial: {flag} takes neither triplets as they are nor class vectors; triplet, margin and "
            "angular do"
        )


class Trainer(Base):
    """Random triplets (a, p, n) of a batch; n~ = G(f_a, f_p, f_n) of their pooled features is embedded by the network's
    own last layers.

    metric_loss = L(x, y); synth_loss = L on all the triplets (a, p, n~). Losses of the generator, with d Euclidean and
    v^ of unit length: g_hard_loss = mean squared error of n~^ and f_a^, g_reg_loss of n~^ and f_n^, g_adv_loss = mean
    [d(x_a, x_n~) - d(x_a, x_p) - margin]+. classifier_loss, if its weight is given, is that of the trainer classifier,
    with its flags.

    `--adversarial_losses` replaces the criterion of synth_loss by another one, and g_adv_loss by the opposite
    of another one: the terms log(1 + exp(-e)) in place of log(1 + exp(e)) of angular and npair, minus the loss
    of any other.

    The generator's losses train only the generator; synth_loss and the others train only the network and the criterion,
    as in the paper, whose two minimisations are over different parameters. In pytorch-metric-learning each loss trains
    all of them.
    """

    GUIDES = False
    WEIGHTS = {SYNTH_LOSS: 0.1, **dict.fromkeys(GENERATOR_LOSSES, 0.1)}
    LOSSES = (METRIC_LOSS, SYNTH_LOSS, *GENERATOR_LOSSES, CLASSIFIER_LOSS)

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        check(opt)
        super().__init__(opt, network, criterion)
        if not (hasattr(network, "embed") and hasattr(network, "feature_dim")):
            raise UserError(
                "--trainer adversarial needs a network with pooled features: an `embed(pooled)` and a `feature_dim`"
            )
        losses = named_losses(opt)
        self.synth_criterion = self._criterion(SYNTH_LOSS, opt)
        self.adversary = self._criterion(ADVERSARY_LOSS, opt)
        self.takes_tuples = criteria.takes_given_triplets(losses.get(SYNTH_LOSS, opt.loss))
        if self.takes_tuples:
            # the synthetic negatives are in a reference, which the criterion has to take
            check_reference(type(self.synth_criterion or criterion))
        self.generator = _generator(network.feature_dim, opt.adversarial_hidden)
        self.classifier_loss = _classifier.loss_of(opt, opt.n_classes) if classifies(opt) else None
        self.at_most = opt.adversarial_triplets_per_anchor
        self.margin = opt.adversarial_margin
        self.metric_epochs = opt.adversarial_metric_epochs
        self.generator_epochs = opt.adversarial_generator_epochs
        self.start_epoch(1)

    def _criterion(self, key: str, opt) -> "torch.nn.Module | None":
        """The criterion that `--adversarial_losses` names for a key, which gets triplets in place of its miner's.

        None without one.
        """
        name = named_losses(opt).get(key)
        if name is None or (key, name) == (ADVERSARY_LOSS, DEFAULT_ADVERSARY):
            return None
        learned = opt.loss_learn if name == opt.loss and key == SYNTH_LOSS else []
        return criteria.select(name, opt, embed_dim=width(self.network, opt), loss_learn=learned)

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> "_classifier.Classifier | None":
        """A classifier where its loss has a weight."""
        return _classifier.Classifier(opt, network) if classifies(opt) else None

    def start_epoch(self, epoch: int) -> None:
        """Set the phase: without the generator, the generator alone, or both.

        A frozen network's BatchNorm averages stay too.
        """
        self.generates = epoch > self.metric_epochs
        self.rests = self.generates and epoch <= self.metric_epochs + self.generator_epochs
        if self.rests:
            self.network.eval()
            for part in (self.criterion, getattr(self.criterion, "batchminer", None)):
                if hasattr(part, "stats"):
                    # statistics of the last epoch would otherwise be recorded for this one
                    part.stats = {}

    def outputs(self, images: torch.Tensor) -> dict:
        """See the base; without a graph where the network is frozen."""
        graph = torch.no_grad() if self.rests else contextlib.nullcontext()
        with graph:
            outputs = super().outputs(images)
            if self.classifier_loss is None:
                return outputs
            return {**outputs, _classifier.LOGITS: self.evaluated_heads.logits(outputs)}

    def losses(self, outputs: dict, batch) -> dict:
        """The losses of the phase."""
        if not self.generates:
            return self._network_losses(outputs, batch)
        triplets = random_triplets(batch.labels, self.at_most)
        negatives = self._negatives(outputs["pooled"].detach(), triplets)
        detached = {name: value.detach() for name, value in outputs.items()}
        losses = self._generator_losses(detached, batch.labels, triplets, negatives)
        if self.rests:
            return losses
        # the buffers of a loss such as dynamic_softmargin are of real images alone
        with kept_buffers(self.synth_criterion or self.criterion):
            synthetic = self._embedded(negatives.detach())
            losses[SYNTH_LOSS] = self._synth_loss(outputs["embeddings"], batch.labels, triplets, synthetic)
        return {**losses, **self._network_losses(outputs, batch)}

    def _network_losses(self, outputs: dict, batch) -> dict:
        losses = {}
        if self.classifier_loss is not None:
            losses[CLASSIFIER_LOSS] = self.classifier_loss(outputs[_classifier.LOGITS], batch.labels)
        # Last, so that the criterion's statistics are those of the real images.
        return {**losses, **super().losses(outputs, batch)}

    def _negatives(self, pooled: torch.Tensor, triplets: Triplets) -> torch.Tensor:
        """G of the triplets' pooled features: `(T, F)`."""
        first, *later_layers = self.generator
        parts = zip(first.weight.chunk(3, dim=1), triplets, strict=True)
        # [f_a, f_p, f_n] W^T; each image is multiplied by each part of W once, however many triplets it is in
        hidden = first.bias + sum(linear(pooled, weight).index_select(0, rows) for weight, rows in parts)
        for layer in later_layers:
            hidden = layer(hidden)
        return hidden

    def _embedded(self, pooled: torch.Tensor) -> torch.Tensor:
        """The embeddings `(T, D)`, as losses see them, of pooled features `(T, F)`."""
        features = {}
        seen = [features] if self.compares_before_neck else []
        # the statistics of --neck bn are of real images alone
        with resting_statistics(self.network):
            return self.named(self.network.embed(pooled, *seen), features)["embeddings"]

    def _generator_losses(
        self, outputs: dict, labels: torch.Tensor, triplets: Triplets, negatives: torch.Tensor
    ) -> dict:
        anchors, _, real = triplets
        unit = normalize(outputs["pooled"])
        synthetic = normalize(negatives)
        with resting(self.network):
            embedded = self._embedded(negatives)  # (T, D)
        embeddings = outputs["embeddings"]
        # not mean(), which is NaN without triplets
        count = max(len(anchors), 1) * unit.shape[1]
        hard_loss = mse_loss(synthetic, unit.index_select(0, anchors), reduction="sum") / count
        reg_loss = mse_loss(synthetic, unit.index_select(0, real), reduction="sum") / count
        adversary_loss = self._adversary_loss(embeddings, labels, triplets, embedded)
        return {"g_hard_loss": hard_loss, "g_reg_loss": reg_loss, ADVERSARY_LOSS: adversary_loss}

    def _adversary_loss(
        self, embeddings: torch.Tensor, labels: torch.Tensor, triplets: Triplets, synthetic: torch.Tensor
    ) -> torch.Tensor:
        """The opposite of a loss on triplets (a, p, n~); `embeddings` `(B, D)` have no graph, `synthetic` `(T, D)`."""
        anchors, positives, _ = triplets
        if not len(anchors):
            return synthetic.sum() * 0
        if self.adversary is None:
            rows = embeddings.index_select(0, anchors)
            partners = embeddings.index_select(0, positives)
            violations = _distances(rows, synthetic) - _distances(rows, partners) - self.margin  # (T,)
            return torch.relu(violations).sum() / len(anchors)
        if hasattr(self.adversary, "of_triplets"):
            columns, mined = self._with_synthetic(embeddings, labels, triplets, synthetic)
            reference = Reference.build(embeddings, labels, **columns)
            return self.adversary.of_triplets(embeddings, reference, mined, opposite=True).mean()
        return -self._of_synthetic(self.adversary, embeddings, labels, triplets, synthetic)

    @staticmethod
    def _with_synthetic(embeddings, labels, triplets: Triplets, synthetic) -> tuple[dict, Triplets]:
        """A reference of the batch and n~, as a criterion's arguments, and the triplets (a, p, n~) of its rows.

        n~ is in a reference and not in the batch: avoids a T x T matrix.
        """
        anchors, positives, negatives = triplets
        columns = {
            "reference": torch.cat([embeddings, synthetic]),
            "reference_labels": torch.cat([labels, labels[negatives]]),
            "own": torch.arange(len(labels), device=labels.device),
        }
        places = len(labels) + torch.arange(len(anchors), device=labels.device)
        return columns, Triplets(anchors, positives, places)

    def _of_synthetic(self, criterion, embeddings, labels, triplets: Triplets, synthetic) -> torch.Tensor:
        """A criterion on the triplets (a, p, n~) as they are, whose n~ have the labels of n."""
        columns, mined = self._with_synthetic(embeddings, labels, triplets, synthetic)
        with with_tuples(criterion, mined):
            return criterion(batch=embeddings, labels=labels, **columns)

    def _synth_loss(
        self, embeddings: torch.Tensor, labels: torch.Tensor, triplets: Triplets, synthetic: torch.Tensor
    ) -> torch.Tensor:
        """L on the triplets (a, p, n~), whose n~ have the labels of n."""
        anchors, positives, negatives = triplets
        if not len(anchors):
            return embeddings.sum() * 0
        criterion = self.synth_criterion or self.criterion
        if self.takes_tuples:
            return self._of_synthetic(criterion, embeddings, labels, triplets, synthetic)
        # a loss with class vectors: each sample of each triplet counts
        rows = torch.cat([anchors, positives])
        batch = torch.cat([embeddings.index_select(0, rows), synthetic])
        return criterion(batch=batch, labels=labels[torch.cat([rows, negatives])])

    def param_groups(self, opt) -> list[dict]:
        """The generator at --lr, and the classifier and the criterion of synth_loss where there is one."""
        groups = [{"params": list(self.generator.parameters()), "name": "generator"}]
        if self.evaluated_heads is not None:
            groups.append(_classifier.param_group(self.evaluated_heads, opt))
        if self.synth_criterion is not None:
            groups += criterion_groups(self.synth_criterion, opt, SYNTH_LOSS)
        return groups


def _generator(n_features: int, hidden: list[int]) -> torch.nn.Sequential:
    """Linear layers with ReLUs between them, from three images' features to one's."""
    layers = []
    width = 3 * n_features
    for next_width in [*hidden, n_features]:
        layers += [torch.nn.Linear(width, next_width), torch.nn.ReLU()]
        width = next_width
    return torch.nn.Sequential(*layers[:-1])


def random_triplets(labels: torch.Tensor, at_most: int) -> Triplets:
    """All of an anchor's triplets if they are at most `at_most`, else that many, drawn uniformly with replacement."""
    classes = Classes(labels)
    possible = torch.where(classes.complete, classes.n_positives * classes.n_negatives, 0)  # (B,)
    anchors, numbers = spread(possible.clamp(max=at_most))
    numbers = torch.where(possible[anchors] > at_most, below(possible[anchors]), numbers)
    n_negatives = classes.n_negatives[anchors]
    return Triplets(
        anchors,
        classes.positives(anchors, torch.div(numbers, n_negatives, rounding_mode="floor")),
        classes.negatives(anchors, numbers % n_negatives),
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
