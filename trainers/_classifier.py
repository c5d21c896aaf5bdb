"""A linear classifier behind the network, for every trainer that has a `classifier_loss`."""

import inspect
import warnings
from collections.abc import Collection

import torch

from criteria import circle_softmax
from options.flags import Flag
from trainers import _heads
from trainers._heads import LOGITS
from trainers._trainer import Trainer
from utilities.errors import UserError
from utilities.numbers import number
from utilities.registry import unknown
from utilities.tensors import normalize
from utilities.words import parse_kwargs, parse_weights

CLASSIFIER_LOSS = "classifier_loss"
TAKES_MORE = {
    "NLLLoss": "log-probabilities: CrossEntropyLoss takes logits",
    "AdaptiveLogSoftmaxWithLoss": "features, and holds its own layer",
}

FLAGS = {
    "--classifier_input": Flag(
        str,
        "embeddings",
        "what the linear classifier sees: the embedding, or the backbone's pooled features",
        choices=["embeddings", "pooled"],
    ),
    "--classifier_loss": Flag(
        str, "CrossEntropyLoss", "class of torch.nn that takes logits (B, C) and labels (B,)", metavar="CLASS"
    ),
    "--classifier_kwargs": Flag(
        str,
        [],
        "arguments of --classifier_loss, e.g. label_smoothing=.1; a list becomes a tensor",
        nargs="*",
        metavar="KEY=VALUE",
    ),
    "--classifier_smoothing": Flag(
        number(0, below=1),
        0.0,
        "label smoothing of --classifier_loss CrossEntropyLoss: this much of the target goes to the classes of "
        "--classifier_smoothing_over",
        metavar="EPS",
    ),
    "--classifier_smoothing_over": Flag(
        str,
        "all",
        "all: EPS / C to each of the C classes, the own one too (torch; Szegedy et al., arXiv 1512.00567); "
        "others: EPS / (C - 1) to each other class (FastReID, dml_cross_entropy)",
        choices=["all", "others"],
        rules={"needs": "classifier_smoothing"},
    ),
    "--classifier_start": Flag(
        str,
        "torch",
        "initialisation of the classifier: that of torch.nn.Linear; normal with deviation .01 and a bias of 0 "
        "(FastReID); 0 (dml_cross_entropy)",
        choices=["torch", "normal", "zeros"],
    ),
    "--classifier_layer": Flag(
        str,
        "linear",
        "circle_softmax: cosines without a bias, weighted in the loss by --loss_circle_softmax_margin and _scale "
        "(FastReID's CircleSoftmax)",
        choices=["linear", "circle_softmax"],
    ),
    "--classifier_no_bias": Flag(bool, False, "a classifier without a bias (FastReID)"),
    "--classifier_dropout": Flag(number(0, below=1), 0.0, "dropout of what the classifier sees", metavar="P"),
    "--classifier_lr": Flag(number(0), None, "learning rate of the classifier (unset: --lr)"),
}


def derived(opt) -> dict:
    """The classifier's rate is that of the network."""
    return {"classifier_lr": opt.lr}


def classifies(opt) -> bool:
    """Whether `--loss_weights` gives `classifier_loss` a weight, for trainers that have a classifier only then."""
    return parse_weights(opt.loss_weights).get(CLASSIFIER_LOSS, 0) != 0


def without_effect(opt, module, flags: Collection[str]) -> list[str]:
    """A line on the first of `flags` that is of a classifier, where the trainer of `module` has none; else none.

    A trainer that has one only in some cases declares a function `classifies(opt)`; of others the names in `LOSSES`
    decide. A user's trainer that declares neither may read any flag.
    """
    optional = getattr(module, "classifies", None)
    if optional is not None:
        has_classifier = optional(opt)
    else:
        losses = getattr(module.Trainer, "LOSSES", None)
        has_classifier = losses is None or CLASSIFIER_LOSS in losses
    changed = changed_flags(opt, flags)
    if has_classifier or not changed:
        return []
    way_out = "add --loss_weights classifier_loss=1" if optional is not None else "take --trainer classifier"
    return [f"{changed[0]} has no effect: --trainer {opt.trainer} has no classifier here; {way_out}, or leave it out"]


def changed_flags(opt, flags: Collection[str]) -> list[str]:
    """Those of `flags`, with their values, that are of the classifier and differ from their defaults."""
    defaults = {name.removeprefix("--"): flag.default for name, flag in FLAGS.items()} | derived(opt)
    changed = []
    for flag, default in defaults.items():
        value = getattr(opt, flag)
        if flag not in flags or value is None or value == default:
            continue
        words = value if isinstance(value, list) else [value]
        if value is True:
            words = []
        changed.append(" ".join([f"--{flag}", *map(str, words)]))
    return changed


def check(opt) -> None:
    """Refuse a `--classifier_loss` that cannot be built or does not take logits and labels. Raises UserError."""
    if opt.classifier_smoothing and (
        opt.classifier_loss != "CrossEntropyLoss" or "label_smoothing" in parse_kwargs(opt.classifier_kwargs)
    ):
        raise UserError(
            "--classifier_smoothing is of --classifier_loss CrossEntropyLoss, and in place of its label_smoothing "
            "in --classifier_kwargs"
        )
    try:
        # whether it fits the data's number of classes is checked in the trainer
        loss_of(opt, 10**4)
    except UserError:
        if not any(word.startswith("weight=") for word in opt.classifier_kwargs or ()):
            # class weights are checked once the number of classes is known
            raise


class Classifier(_heads.Heads):
    """Logits of a linear layer on the embedding or on the pooled features: `classifier_logits` `(B, C)`.

    `embedding_width`: dimensions of the embedding where it is not the network's own.
    """

    def __init__(self, opt, network: torch.nn.Module, embedding_width: int | None = None):
        super().__init__()
        if not opt.n_classes:
            raise UserError("a classifier needs the number of classes: opt.n_classes")
        self.evaltypes = list(opt.evaltypes)
        self.on_pooled = opt.classifier_input == "pooled"
        if self.on_pooled:
            width = _heads.feature_width(network)
        else:
            width = embedding_width or _heads.embedding_width(network, opt)
        self.cosine = opt.classifier_layer == "circle_softmax"
        self.linear = torch.nn.Linear(width, opt.n_classes, bias=not (opt.classifier_no_bias or self.cosine))
        self.dropout = torch.nn.Dropout(opt.classifier_dropout)
        if opt.classifier_start != "torch":
            for parameter in self.linear.parameters():
                torch.nn.init.zeros_(parameter)
            if opt.classifier_start == "normal":
                torch.nn.init.normal_(self.linear.weight, std=0.01)

    def logits(self, outputs: dict) -> torch.Tensor:
        """Logits `(B, C)` of a trainer's `outputs`."""
        if self.on_pooled and "pooled" not in outputs:
            raise UserError(
                "--classifier_input pooled: the network gives no 'pooled' among its features. Take embeddings"
            )
        rows = outputs["pooled"] if self.on_pooled else outputs["evaluated"]
        rows = self.dropout(rows)
        if self.cosine:
            return normalize(rows) @ normalize(self.linear.weight).to(rows).T
        return self.linear(rows)

    def forward(self, embeddings: dict, features: dict) -> dict:
        """See `trainers.Heads`."""
        return {LOGITS: self.logits({**features, "evaluated": _heads.main_of(embeddings, self.evaltypes)})}


class ClassifyingTrainer(Trainer):
    """Base of trainers with a linear classifier, whose logits are an evaltype, `classifier_logits`."""

    @classmethod
    def build_heads(cls, opt, network: torch.nn.Module) -> Classifier:
        """See `trainers._trainer.Trainer.build_heads`."""
        return Classifier(opt, network)

    def outputs(self, images: torch.Tensor) -> dict:
        """The base's outputs and `classifier_logits` `(B, C)`."""
        outputs = super().outputs(images)
        return {**outputs, LOGITS: self.evaluated_heads.logits(outputs)}


def param_group(classifier: Classifier, opt) -> dict:
    """The classifier's optimiser group, at `--classifier_lr` and `--decay`."""
    # None where no command line was read
    lr = opt.lr if opt.classifier_lr is None else opt.classifier_lr
    return {"params": list(classifier.parameters()), "lr": lr, "name": "classifier"}


def loss_of(opt, n_classes: int) -> torch.nn.Module:
    """`--classifier_loss` with `--classifier_kwargs`, tried on logits of `n_classes` classes.

    Under circle_softmax it takes cosines.

    Raises:
        UserError: no such class, arguments that it does not take, or no finite scalar from logits and labels.
    """
    classes = _losses_of_torch()
    name = opt.classifier_loss
    if name not in classes:
        raise unknown("class of torch.nn", name, classes)
    if name in TAKES_MORE:
        raise UserError(f"--classifier_loss {name} takes {TAKES_MORE[name]}")
    arguments = parse_kwargs(opt.classifier_kwargs)
    for key, value in arguments.items():
        if isinstance(value, list | tuple):
            arguments[key] = torch.tensor(value, dtype=torch.get_default_dtype())
    if opt.classifier_smoothing:
        arguments["label_smoothing"] = torch_smoothing(
            opt.classifier_smoothing, opt.classifier_smoothing_over, n_classes
        )
    flags = f"--classifier_loss {name}"
    if opt.classifier_kwargs:
        flags = " ".join([flags, "--classifier_kwargs", *opt.classifier_kwargs])
    # Not the number of classes, so that a loss that takes (B, C) twice cannot broadcast the labels.
    rows = 3 if n_classes != 3 else 4
    try:
        with warnings.catch_warnings():
            # torch warns of some shapes that are refused here
            warnings.simplefilter("ignore")
            loss = classes[name](**arguments)
            value = loss(torch.zeros(rows, n_classes), torch.arange(rows) % n_classes)
        fits = isinstance(value, torch.Tensor) and value.ndim == 0 and bool(value.isfinite())
    except Exception as error:
        # classes of torch raise many kinds for arguments that they do not take
        raise UserError(
            f"{flags} cannot take logits (B, C) and labels (B,): {str(error).splitlines()[0][:160]}"
        ) from error
    if not fits:
        raise UserError(f"{flags} gives no finite scalar of logits (B, C) and labels (B,): CrossEntropyLoss does")
    return OfCircle(loss, opt) if opt.classifier_layer == "circle_softmax" else loss


def _losses_of_torch() -> dict[str, type]:
    """Name -> class, of the losses in torch.nn."""
    losses = {}
    for name, member in vars(torch.nn).items():
        if name.endswith("Loss") and inspect.isclass(member) and issubclass(member, torch.nn.Module):
            losses[name] = member
    return losses


class OfCircle(torch.nn.Module):
    """A loss of logits, given the cosines of `--classifier_layer circle_softmax`."""

    def __init__(self, loss: torch.nn.Module, opt):
        super().__init__()
        self.loss = loss
        self.margin = opt.loss_circle_softmax_margin
        self.scale = opt.loss_circle_softmax_scale

    def forward(self, cosines: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Scalar loss of `(B, C)` and `(B,)`."""
        return self.loss(self.scale * circle_softmax.weighted(cosines, labels, self.margin), labels)


def torch_smoothing(eps: float, over: str, n_classes: int) -> float:
    """torch's label_smoothing for `--classifier_smoothing` over `all` C classes, or over the C - 1 `others`.

    Over the others it is eps C / (C - 1). Raises UserError where that is above 1 (no other class, or eps near 1).
    """
    smoothing = eps if over == "all" else eps * n_classes / max(n_classes - 1, 1)
    if n_classes < 2 or smoothing > 1:
        raise UserError(
            f"--classifier_smoothing {eps:g} over the other classes of {n_classes} leaves the image's own class less "
            "than each of the others"
        )
    return smoothing
