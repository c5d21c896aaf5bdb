"""The base of criteria: checks and raises inputs to full precision,
asks the miner for tuples, keeps statistics for the logger.
"""

import contextlib
import dataclasses
import functools
import inspect

import torch
from torch.nn.utils import parametrize

from options.flags import plug_ins
from utilities import tuples
from utilities.errors import UserError
from utilities.programs import name_in_clone
from utilities.reference import Reference
from utilities.tensors import raise_half

# what a `Reference` is built of, beside the batch
FORM = ("reference", "reference_labels", "own", "relevance", "reference_relevance")


@functools.cache
def _keywords(kind: type) -> tuple[bool, bool]:
    """Of a criterion's class: does its `forward` name `reference`, and does it take keywords that it does not name?"""
    parameters = inspect.signature(kind.forward).parameters
    return "reference" in parameters, any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def takes_reference(kind: type) -> bool:
    """Whether criteria of class `kind` can be compared with a reference: their `forward` names it."""
    return _keywords(kind)[0]


def check_reference(kind: type) -> None:
    """Raises UserError where criteria of class `kind` take no reference."""
    if not takes_reference(kind):
        raise UserError(
            f"the criterion {_name_of(kind)} cannot be used with a memory: its forward() has no argument `reference`; "
            "choose another loss"
        )


def _name_of(kind: type) -> str:
    """The name of a criterion's file, or of its class where that is in no file of the criteria."""
    # Learned hyperparameters put a class of torch's parametrize in front.
    kind = next(base for base in kind.__mro__ if base.__module__ != parametrize.__name__)
    package, _, name = name_in_clone(kind.__module__).rpartition(".")
    return name if package == "criteria" else kind.__name__


def check_memory(criterion: torch.nn.Module) -> None:
    """Raises UserError where a criterion, its miner or the class that it was given takes no reference,
    such as a memory.
    """
    check_reference(type(criterion))
    if getattr(criterion, "batchminer", None) is not None:
        tuples.check_reference(criterion.batchminer)
    if hasattr(criterion, "try_reference"):
        criterion.try_reference()


def check_relevance(criterion: torch.nn.Module) -> None:
    """Raises UserError where a criterion, one inside it or its miner compares images by a single label each."""
    for part in criterion.modules():
        weighs_classes = getattr(vars(part).get("reduction"), "how", None) == "class_weighted"
        if weighs_classes or not getattr(part, "several_labels", part is not criterion):
            raise UserError(
                f"the criterion {_name_of(type(part))} takes one label per image, and these have several: choose a "
                "loss on pairs or triplets, or softmax with all class vectors, and nothing weighed or learned per class"
            )
    if getattr(criterion, "batchminer", None) is not None:
        tuples.check_relevance(criterion.batchminer)


def check_inputs(criterion: torch.nn.Module, args: tuple, kwargs: dict):
    """Forward pre-hook of every criterion: half precision becomes float32,
    shapes are checked, a `MetricCriterion` gets one `Reference`.

    Raises ValueError where `batch` is not `(B, D)`, `labels` are not `(B,)` whole numbers, or a reference does not fit;
    UserError for a reference, or for several labels an image (`relevance`), that the criterion does not take.
    """
    named = {**dict(zip(("batch", "labels", *FORM), args, strict=False)), **kwargs}
    batch = named["batch"]
    labels = named["labels"]
    if batch.ndim != 2 or labels.shape != batch.shape[:1]:
        raise ValueError(f"batch is {tuple(batch.shape)}, labels {tuple(labels.shape)}: expected (B, D) and (B,)")
    if labels.is_floating_point() and not bool((labels.isfinite() & (labels == labels.trunc())).all()):
        raise ValueError(f"labels {labels.flatten().tolist()[:5]} …: whole numbers are expected, one per class")
    named["batch"] = raise_half(batch)
    named["labels"] = labels.to(device=batch.device, dtype=torch.long)
    if named.get("reference") is not None and not getattr(named["reference"], "plain", False):
        check_reference(type(criterion))
    if named.get("relevance") is not None:
        check_relevance(criterion)
    if isinstance(criterion, MetricCriterion):
        form = [named.pop(name, None) for name in FORM]
        guide = named.pop("guide", None)
        if any(_keywords(type(criterion))):
            named["reference"] = Reference.build(named["batch"], named["labels"], *form)
            if guide is not None:
                guide = dataclasses.replace(guide, is_of_pairs=criterion.GUIDES_PAIRS)
                named["reference"] = dataclasses.replace(named["reference"], guide=guide)
    return (), named


def check_labels(criterion: "MetricCriterion", args: tuple, kwargs: dict) -> None:
    """Forward pre-hook of `expect_classes`."""
    labels = kwargs["labels"]
    if len(labels) and (labels.device.type == "cpu" or not criterion.looked_at_labels):
        criterion.looked_at_labels = True
        lowest, highest = (int(label) for label in labels.aminmax())
        if lowest < 0 or highest >= criterion.classes_expected:
            raise ValueError(
                f"labels from {lowest} to {highest}: of {criterion.classes_expected} classes they go from 0 to "
                f"{criterion.classes_expected - 1}. Map them, or change n_classes"
            )


def guide_of(reference: Reference | None):
    """The guide of a reference; None: there is none."""
    return None if reference is None else reference.guide


class FixedMiner:
    """A miner that returns the tuples it was made with, whatever the batch."""

    several_labels = True

    def __init__(self, mined):
        self.mined = mined
        self.stats = {}

    def __call__(self, batch, labels, reference=None, reference_labels=None, own=None, **relevance):
        """The tuples."""
        return self.mined


_NOT_SET = object()


@contextlib.contextmanager
def with_tuples(criterion: torch.nn.Module, mined):
    """Inside, a criterion and the criteria inside it use these `Triplets` or `Pairs` instead of their miner's."""
    modules = [module for module in criterion.modules() if hasattr(module, "batchminer")]
    # A miner that is a module itself is among `_modules`, and not among a criterion's own attributes, which precede.
    miners = [(vars(module), vars(module).get("batchminer", _NOT_SET)) for module in modules]
    # not by `setattr`: torch refuses a plain object in place of a module
    for attributes, _ in miners:
        attributes["batchminer"] = FixedMiner(mined)
    try:
        yield
    finally:
        for attributes, miner in miners:
            del attributes["batchminer"]
            if miner is not _NOT_SET:
                attributes["batchminer"] = miner


class MetricCriterion(torch.nn.Module):
    """Base of the criteria here. `stats`: name -> detached device scalar, averaged over an epoch by the logger.

    The flags of the file's table `FLAGS` are attributes once this `__init__` has run: `self.margin`. A user's criterion
    may be a plain `torch.nn.Module` instead: `criteria.select` registers the same hook on it. `several_labels`: whether
    it compares images that have several labels, as one does that asks `Reference` or a miner which are of a class.

    Args:
        opt: the namespace of all flags. A file without `FLAGS` may leave it out, and pass the miner alone.
        batchminer: the miner, of a criterion that takes one.
    """

    # its terms are those of positive pairs, and it asks the guide for the negatives of each
    GUIDES_PAIRS = False
    several_labels = False

    def __init__(self, opt=None, batchminer=None):
        super().__init__()
        # the only argument is the miner
        if callable(opt):
            batchminer = opt
        elif opt is not None:
            plug_ins.set_flags(self, opt)
        self.batchminer = batchminer
        self.stats = {}
        self.register_forward_pre_hook(check_inputs, with_kwargs=True)

    def __call__(self, *args, **kwargs):
        """As of any module, but in full precision also inside a program's `torch.autocast`."""
        tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        with torch.autocast(next(tensors).device.type, enabled=False):
            return super().__call__(*args, **kwargs)

    def expect_classes(self, n_classes: int) -> None:
        """From now on a label outside 0 ... n_classes - 1 raises ValueError; on a GPU, where checks stall the step,
        only in the first.
        """
        self.classes_expected = n_classes
        self.looked_at_labels = False
        self.register_forward_pre_hook(check_labels, with_kwargs=True)

    def per_anchor(self, name: str, labels: torch.Tensor, dimensions: int = 1):
        """The hyperparameter `name` for anchors with `labels` `(T,)`: one number, or `(T,)`, `(T, 1)` … where each
        class has its own.
        """
        value = getattr(self, name)
        if not isinstance(value, torch.Tensor) or value.ndim == 0:
            return value
        return value.index_select(0, labels).view(-1, *[1] * (dimensions - 1))

    def mine(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference | None = None):
        """The miner's tuples of the batch: `Triplets`, `Pairs`, or the sets of a set miner, which a guide filters."""
        mined = tuples.TupleMiner(self.batchminer)(batch, labels, reference)
        if guide_of(reference) is not None and isinstance(mined, tuples.Sets):
            return reference.guide.sets(mined)
        return mined

    def triplets(
        self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference | None = None
    ) -> tuples.Triplets:
        """The mined tuples as triplets, under a guide those whose negative it keeps."""
        triplets = tuples.as_triplets(self.mine(batch, labels, reference))
        return triplets if guide_of(reference) is None else reference.guide.triplets(triplets)

    def pairs(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference | None = None) -> tuples.Pairs:
        """The mined tuples as pairs, without the negative ones that a guide drops."""
        pairs = tuples.as_pairs(self.mine(batch, labels, reference))
        if guide_of(reference) is None:
            return pairs
        positives, _ = dataclasses.replace(reference, guide=None).masks(labels)
        return reference.guide.pairs(pairs, positives)

    def pair_masks(self, batch: torch.Tensor, labels: torch.Tensor, reference: Reference | None = None) -> tuple:
        """Masks `(B, M)` of positive and negative pairs: all with the reference,
        or, under `--mine_pairs`, the miner's distinct ones.
        """
        reference = Reference.build(batch, labels) if reference is None else reference
        if self.batchminer is None:
            return reference.masks(labels)
        return tuples.pair_masks(self.pairs(batch, labels, reference), len(labels), len(reference))
