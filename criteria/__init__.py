"""Losses: one file a criterion, the file name is the value of `--loss`.

A file is a docstring, constants where it differs from `CONSTANTS` below, its flags (`FLAGS`, see `options.flags`),
and a class: `Criterion(opt)`, or `Criterion(opt, batchminer)` where it takes a miner. `INNER_LOSS` is the flag that
names a loss inside it.
"""

from collections.abc import Callable
from typing import Any

import torch

import batch_mining
from criteria import _matryoshka
from criteria._learn import make_learnable
from criteria._proxies import ProxyCriterion
from criteria._sets import is_normalized
from criteria._shards import ShardedCriterion, requested
from utilities import levels
from utilities.criterion import MetricCriterion, check_inputs
from utilities.domains import OwnDomain
from utilities.errors import UserError
from utilities.registry import Registry
from utilities.tuples import TupleMiner
from utilities.words import parse_weights

CONSTANTS = {  # of a file that leaves them out
    "REQUIRES_BATCHMINER": False,  # it takes a miner
    "ALLOWED_MINING_OPS": None,  # the names of the miners that it works with; None: any of triplets or pairs
    "MINES_PAIRS": False,  # it works on all pairs of the batch, and under --mine_pairs on a miner's
    "TAKES_TRIPLETS": False,  # it works on a miner's sets, and on a trainer's triplets: sets with a single negative
    "REQUIRES_OPTIM": False,  # it has parameters
    "COMPARES_SAMPLES": True,  # with each other; False: with class vectors alone
    "TAKES_GUIDE": True,  # single negatives of an anchor may be left out, as --guide does
    "TAKES_GRADES": False,  # of pairs of images, as --trainer pairs has them
    "REDUCES": False,  # it is a mean over tuples, and obeys --loss_reduction
    "PER_CLASS": (),  # flags whose numbers may be learned one a class
    "READS_LENGTHS": False,  # of embeddings, and so cannot work on unit vectors
    "FIXED": (),  # flags whose numbers cannot be learned: the formula has no true derivative by them
}
REGISTRY = Registry("criteria", "loss", constants=CONSTANTS)


def takes_miner(name: str, opt) -> bool:
    """Whether the criterion is given a miner: because it requires one, or under `--mine_pairs`."""
    module = REGISTRY.module(name)
    return getattr(module, "REQUIRES_BATCHMINER", False) or (getattr(module, "MINES_PAIRS", False) and opt.mine_pairs)


def only_miner(opt) -> str | None:
    """The miner of `--loss` where it takes a single one; None where there is a choice, or no such loss."""
    if opt.loss not in REGISTRY.names() or not takes_miner(opt.loss, opt):
        return None
    allowed = getattr(REGISTRY.module(opt.loss), "ALLOWED_MINING_OPS", None) or []
    return allowed[0] if len(allowed) == 1 else None


def takes_tuples(name: str) -> bool:
    """Whether the criterion works on the triplets or pairs of any miner, required or of `--mine_pairs`."""
    module = REGISTRY.module(name)
    takes_any = getattr(module, "REQUIRES_BATCHMINER", False) and getattr(module, "ALLOWED_MINING_OPS", None) is None
    return takes_any or getattr(module, "MINES_PAIRS", False)


def takes_given_triplets(name: str) -> bool:
    """Whether the criterion works on triplets of a trainer: `takes_tuples`, or sets with a single negative."""
    return takes_tuples(name) or getattr(REGISTRY.module(name), "TAKES_TRIPLETS", False)


def of_run(opt, batchminer, network: torch.nn.Module) -> torch.nn.Module:
    """The criterion of a run, `--loss` on `opt.embed_dim` dimensions of the network's embedding, and under
    `--matryoshka` on its prefixes.
    """
    criterion = select(opt.loss, opt, batchminer)
    if opt.matryoshka is None:
        return criterion
    rescales = bool(getattr(network, "normalizes", False))
    return _matryoshka.nest(criterion, opt, rescales, lambda width: select(opt.loss, opt, batchminer, embed_dim=width))


def has_class_vectors(name: str) -> bool:
    """Whether the criterion trains class vectors, by its class or by those that its file names."""
    for member in vars(REGISTRY.module(name)).values():
        kind = getattr(member, "Criterion", member)
        if isinstance(kind, type) and issubclass(kind, ProxyCriterion):
            return True
    return False


def divisible() -> list[str]:
    """The criteria whose class vectors may be sharded, drawn in part, and compared in some coordinates."""
    return [name for name, module in REGISTRY.modules().items() if issubclass(module.Criterion, ShardedCriterion)]


def check(opt, inner=()) -> None:
    """Refuse flags of many class vectors that `--loss` cannot honour,
    and flags that do not fit each other. Raises UserError.

    Args:
        inner: the flags of further losses inside the loss or the trainer, see `INNER_LOSS`.
    """
    _matryoshka.check(opt)
    check_lengths(opt, inner)
    if (flag := requested(opt)) and opt.loss not in (able := divisible()):
        raise UserError(
            f"{flag}: --loss {opt.loss} cannot use a part of its class vectors; these can: {', '.join(able)}"
        )
    if flag and opt.matryoshka is not None:
        raise UserError(f"{flag}: --matryoshka compares prefixes of all class vectors: leave one out")
    if flag and opt.weight_regularizer and not flag.startswith("--loss_dims"):
        raise UserError(
            f"{flag}: --weight_regularizer {opt.weight_regularizer} needs all class vectors in each step: leave one out"
        )
    if flag and opt.metrix:
        raise UserError(
            f"{flag}: --metrix compares mixed points with whole class vectors of all classes: leave one out"
        )
    if opt.separate_classifiers:
        check_separate(opt, inner)


def check_lengths(opt, inner) -> None:
    """Refuse losses that read the lengths of embeddings where all have length 1. Raises UserError."""
    if not is_normalized(opt.arch):
        return
    for flag in ("loss", *inner):
        name = getattr(opt, flag)
        if REGISTRY.module(name).READS_LENGTHS:
            raise UserError(
                f"--{flag} {name} reads the lengths of embeddings, which --arch {opt.arch} sets to 1: leave "
                "_normalize out, and measure by cosines (--evaluation_metrics c_recall@1 …)"
            )


def check_separate(opt, inner) -> None:
    """Refuse `--separate_classifiers` where nothing obeys it, or what cannot. Raises UserError."""
    module = REGISTRY.module(opt.loss)
    classifies = opt.trainer == "classifier"
    for flag in ("loss", *inner):
        if issubclass(REGISTRY.module(getattr(opt, flag)).Criterion, ProxyCriterion) and getattr(opt, flag) not in (
            able := divisible()
        ):
            raise UserError(
                f"--separate_classifiers: --{flag} {getattr(opt, flag)} compares with the vectors of all classes; "
                f"these can leave some out: {', '.join(able)}"
            )
    if opt.weight_regularizer == "regular_face":
        raise UserError(
            "--separate_classifiers: --weight_regularizer regular_face repels the vectors of all domains from each "
            "other: leave one out"
        )
    if not (classifies or issubclass(module.Criterion, ShardedCriterion)):
        raise UserError(
            f"--separate_classifiers: neither --loss {opt.loss} nor --trainer {opt.trainer} has class vectors of "
            "domains: leave it out"
        )
    if (flag := requested(opt)) is not None:
        raise UserError(
            f"--separate_classifiers {flag}: separated class vectors are compared with all samples: leave one out"
        )
    if opt.label_level_train:
        raise UserError(
            f"--separate_classifiers --label_level_train {opt.label_level_train}: the classes of training are the "
            "domains: leave one out"
        )
    if opt.metrix and issubclass(module.Criterion, ShardedCriterion):
        raise UserError(
            f"--separate_classifiers --metrix: mixed points of --loss {opt.loss} are compared with the vectors of "
            "all domains: leave one out"
        )
    if (
        opt.trainer == "intrabatch"
        or opt.trainer == "adversarial"
        and parse_weights(opt.loss_weights).get("classifier_loss")
    ):
        raise UserError(
            f"--separate_classifiers: --trainer {opt.trainer} has a classifier of all domains: leave one out"
        )
    if classifies and (
        opt.classifier_loss != "CrossEntropyLoss"
        or opt.classifier_layer != "linear"
        or opt.classifier_smoothing
        or "label_smoothing" in " ".join(opt.classifier_kwargs or ())
    ):
        raise UserError(
            "--separate_classifiers: classes of other domains get no probability, which only the cross-entropy of a "
            "linear layer without smoothing supports: leave --classifier_loss, --classifier_layer and smoothing out"
        )


def shard(module: torch.nn.Module, opt, ranks) -> torch.nn.Module:
    """`module`, a criterion or a trainer with some; under `--shard_classes` each process of `ranks` keeps its part of
    their class vectors.
    """
    if opt.shard_classes:
        for part in module.modules():
            if isinstance(part, ShardedCriterion):
                part.shard_over(ranks)
    return module


def select(name: str, opt: Any = None, batchminer: Callable | None = None, **flags: Any) -> torch.nn.Module:
    """The criterion `name`.

    Args:
        opt: the shared namespace; what it lacks takes its declared default.
        batchminer: the miner, where the criterion requires or takes one; default: `opt.batch_mining`, or the first
        miner that the
            criterion allows.
        flags: single flags that override `opt`, e.g. `loss_triplet_margin=.1`, `n_classes=100`, `embed_dim=128`.

    Raises:
        UnknownName: no such loss. UserError: an unknown flag, or a value that the flag does not allow.
    """
    module = REGISTRY.module(name)
    named = hasattr(opt, "batch_mining") or "batch_mining" in flags
    opt = REGISTRY.options(opt, name, **flags)
    if batchminer is not None and not named:
        # the default name need not be that of the miner passed
        opt.batch_mining = None
    with_miner = takes_miner(name, opt)
    if with_miner and batchminer is None:
        allowed = getattr(module, "ALLOWED_MINING_OPS", None)
        miner = opt.batch_mining if allowed is None or opt.batch_mining in allowed else allowed[0]
        batchminer = batch_mining.select(miner, opt)
    if with_miner and not issubclass(module.Criterion, MetricCriterion):
        # a plain module calls the miner itself, and a user's miner may return lists
        batchminer = TupleMiner(batchminer)
    criterion = module.Criterion(opt, batchminer) if with_miner else module.Criterion(opt)
    if check_inputs not in criterion._forward_pre_hooks.values():
        criterion.register_forward_pre_hook(check_inputs, with_kwargs=True)
    if opt.loss_learn:
        make_learnable(name, module, criterion, opt)
    return criterion


def with_levels(trainer: torch.nn.Module, dataset) -> torch.nn.Module:
    """A trainer whose criteria that compare levels (`set_levels`) or domains
    (`OwnDomain`) know those of the training classes.

    Raises UserError for data without them.
    """
    for module in trainer.modules():
        if isinstance(module, OwnDomain) and module.separate:
            module.set_domains(
                levels.domains_of(dataset, "--separate_classifiers").to(next(trainer.parameters()).device)
            )
        if hasattr(module, "set_levels"):
            module.set_levels(levels.of_classes(dataset, f"--loss {type(module).__module__.rpartition('.')[2]}"))
    return trainer
