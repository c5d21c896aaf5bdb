"""Options that cannot work are refused before anything is loaded:
each check yields value, rule and way out in one line.
"""

import importlib.util
from pathlib import Path

import architectures
import batch_mining
import criteria
import datasampler
import datasets
import metrics
import trainers
from options import arrays
from utilities.errors import UserError
from utilities.words import parse_weights


def check(opt) -> None:
    """Raise UserError, of one line, for options that cannot work."""
    for wrong in _wrong(opt):
        raise UserError(wrong)


def _wrong(opt):
    """Yield a line for each mistake in the options; modules that check their own flags raise instead."""
    yield from _numbers(opt)
    yield from _rates(opt)
    architectures.check(opt.arch)
    yield from arrays.wrong(opt)
    datasets.check(opt)
    yield from _features(opt)
    loss = criteria.REGISTRY.module(opt.loss)
    sampler = datasampler.REGISTRY.module(opt.data_sampler)
    trainers.check(opt)
    inner = trainers.inner_losses(opt)
    criteria.check(opt, inner)
    parse_weights(opt.loss_weights)
    yield from _mining(opt, inner)
    yield from _reduction(opt)
    if getattr(sampler, "USES_SAMPLES_PER_CLASS", False):
        yield from _classes_of_batches(opt, inner)
    for name in opt.evaluation_metrics + opt.storage_metrics:
        metrics.check(name)
    metrics.check_reranking(opt, opt.evaluation_metrics)
    yield from _triplets(opt, inner, sampler)
    yield from _subset(opt, inner, loss, sampler)
    yield from _evaluation(opt)
    yield from _jobs(opt)
    yield from _folds(opt)
    yield from _selection(opt)
    if opt.log_online and opt.online_backend == "comet_ml" and importlib.util.find_spec("comet_ml") is None:
        yield "--online_backend comet_ml needs the package: pip install comet_ml"


def _classes_of_batches(opt, inner: list[str]):
    """A sampler that groups by class fills its batches with whole classes, which have positives."""
    if opt.bs % _of_a_class(opt):
        yield (
            f"--bs {opt.bs} is not a multiple of --samples_per_class {opt.samples_per_class}, which "
            f"--data_sampler {opt.data_sampler} fills batches by"
        )
    if opt.samples_per_class > 1 or opt.views > 1:
        return
    for flag in ("loss", *inner):
        loss = getattr(opt, flag)
        if getattr(criteria.REGISTRY.module(loss), "REQUIRES_BATCHMINER", False):
            yield f"--samples_per_class 1 leaves --{flag} {loss} without positives: it needs 2 or more"


def _rates(opt):
    """Flags of optimiser and schedule that others leave without effect, or that say the same twice."""
    if opt.nesterov and opt.optim == "sgd" and not opt.momentum:
        yield "--nesterov --momentum 0: Nesterov needs a momentum: leave one out"
    if opt.min_lr > opt.lr:
        yield f"--min_lr {opt.min_lr:g} is above --lr {opt.lr:g}"
    warm_ups = _set_flags(opt, "warmup_epochs", "warmup_steps")
    if warm_ups and opt.scheduler == "onecycle":
        warm_up = f"--{warm_ups[0]} {getattr(opt, warm_ups[0])}"
        yield f"{warm_up} with --scheduler onecycle, which has its own warm-up (--onecycle_rise): leave one out"


def _selection(opt):
    """The metric that chooses the best epoch is evaluated and has one value;
    plateau and patience have validation data.
    """
    if opt.job != "train":
        return
    for name in opt.storage_metrics:
        if name not in opt.evaluation_metrics:
            yield (
                f"--storage_metrics {name} is not evaluated: add it to --evaluation_metrics "
                f"({' '.join(opt.evaluation_metrics)})"
            )
        if metrics.is_array(name):
            yield f"--storage_metrics {name} is an array: it has no best value"
    if opt.scheduler == "plateau" and not datasets.has_validation(opt):
        yield (
            "--scheduler plateau lowers the rate by what it sees in validation, and there is none but test: add "
            "--use_tv_split or another --split_scheme, or take another --scheduler"
        )
    if opt.patience is not None and not datasets.has_validation(opt):
        yield "--patience stops on validation data: add --use_tv_split or another --split_scheme"


def _needs_triplets(opt, inner: list[str]) -> bool:
    """Whether a loss takes a miner of whole triplets."""
    miner = batch_mining.REGISTRY.module(opt.batch_mining)
    if not getattr(miner, "NEEDS_TRIPLETS", False):
        return False
    losses = [getattr(opt, flag) for flag in ("loss", *inner)]
    return any(criteria.takes_miner(loss, opt) for loss in losses)


def _able(registry, constant: str) -> str:
    """The names of the plug-ins whose module sets `constant`."""
    names = [name for name, module in registry.modules().items() if getattr(module, constant, False)]
    return ", ".join(names)


def _triplets(opt, inner, sampler):
    """A sampler of triplets can fill its batches; a miner that needs triplets gets them."""
    gives = getattr(sampler, "GIVES_TRIPLETS", False)
    if gives and opt.bs % 3:
        yield (
            f"--bs {opt.bs} is not a multiple of 3, and --data_sampler {opt.data_sampler} fills batches with whole "
            "triplets"
        )
    if _needs_triplets(opt, inner) and not gives:
        able = _able(datasampler.REGISTRY, "GIVES_TRIPLETS")
        yield (
            f"--batch_mining {opt.batch_mining} takes batches made of triplets, which --data_sampler "
            f"{opt.data_sampler} does not give; these do: {able}"
        )


def _of_a_class(opt) -> int:
    """Images of a class side by side in a batch;
    one of each where the trainer looks at no labels, see `datasampler.for_training`.
    """
    trainer = trainers.REGISTRY.module(opt.trainer).Trainer
    looks_at_labels = getattr(trainer, "LABELS", True)
    return opt.samples_per_class if looks_at_labels else 1


def _subset(opt, inner, loss, sampler):
    """Subsets are smaller than the batch, and a whole number of its classes."""
    size = opt.subset_size
    subset = f"--subset_size {opt.subset_size}"
    if opt.subset_mining is None:
        return
    if size is None:
        yield (
            f"--subset_mining {opt.subset_mining} needs --subset_size, the images that are trained on of each batch "
            f"of --bs {opt.bs}"
        )
    if size >= opt.bs:
        yield f"{subset} is not below --bs {opt.bs}: a subset is a part of the batch"
    if _needs_triplets(opt, inner):
        yield (
            f"--subset_mining {opt.subset_mining} splits triplets, --batch_mining {opt.batch_mining} needs them "
            "whole: choose another miner"
        )
    if getattr(sampler, "USES_SAMPLES_PER_CLASS", False):
        if size % _of_a_class(opt):
            yield (
                f"{subset} is not a multiple of --samples_per_class {opt.samples_per_class}: classes of a batch have "
                "that many images"
            )
        if size == _of_a_class(opt) and getattr(loss, "REQUIRES_BATCHMINER", False):
            yield (
                f"{subset} is one class of --samples_per_class {opt.samples_per_class}: --loss {opt.loss} has no "
                "negatives there"
            )


def _features(opt):
    """Features can be computed once only if they stay the same; what a flag lets learn does not rest."""
    freezing = _set_flags(opt, "freeze_backbone", "lora_rank", "prompts", "train_biases")
    begins = opt.weights is None and opt.job == "train" and opt.resume is None
    if opt.pool == "gem_learned" and freezing and begins:
        yield f"--pool gem_learned: its power belongs to the backbone, which is frozen with --{freezing[0]}: use gem"
    if opt.feature_cache and not opt.freeze_backbone:
        yield "--feature_cache keeps the features of a frozen backbone: add --freeze_backbone"
    if opt.feature_cache and opt.augmentation != "none":
        augmented = f"--augmentation {opt.augmentation or 'base'}"
        yield (
            f"--feature_cache: {augmented} makes each image anew whenever it is loaded, and so its features: take "
            "--augmentation none"
        )
    if opt.feature_cache and opt.decode_once:
        yield "--feature_cache --decode_once: features are kept, and no image is cut again: leave one out"


def _evaluation(opt):
    """The splits to evaluate exist, with the one that chooses the best epoch; the flags of distances and result lists
    have an effect.
    """
    if opt.evaluate_all or datasets.is_test_only(opt):
        yield from _evaluation_of_all(opt)
    if opt.feature_cache and (opt.eval_scales != [1] or opt.eval_long_side):
        yield "--feature_cache keeps the features of images of one size: leave out --eval_scales and --eval_long_side"
    if not opt.splits_to_eval:
        yield "--no_train_metrics leaves nothing of --splits_to_eval train: name val or test"
    if "val" in opt.splits_to_eval and not datasets.has_validation(opt):
        yield "--splits_to_eval val: there is no validation data, add --use_tv_split or another --split_scheme"
    selecting_split = "val" if datasets.has_validation(opt) else "test"
    if selecting_split not in opt.splits_to_eval and opt.job == "train":
        requested = text_of(opt.splits_to_eval)
        yield f"--splits_to_eval {requested}: the best epoch is chosen on {selecting_split}, name it too"
    if opt.tester == "same_parent_label" and opt.label_hierarchy_level:
        yield (
            f"--tester same_parent_label with --label_hierarchy_level {opt.label_hierarchy_level}: super-classes have "
            "no parents, take level 0"
        )


def _evaluation_of_all(opt):
    """An evaluation of all images of a data set has one split, and trains nothing."""
    flag = f"--dataset {opt.dataset}"
    if opt.evaluate_all:
        flag = "--evaluate_all"
    if opt.job not in ("evaluate", "evaluate_only"):
        yield f"{flag} measures and does not train: add --evaluate_only, or --evaluate --resume_from RUN"
    if opt.splits_to_eval != ["test"] or opt.eval_reference_set == "compared_to_training_set":
        yield f"{flag} makes one split, test: there is no training set to compare with, and no other --splits_to_eval"


def _jobs(opt):
    """One job at a time, and its own flags."""
    jobs = _set_flags(opt, "evaluate", "evaluate_only", "evaluate_ensemble", "aggregate_only")
    rehearsals = _set_flags(opt, "dry_run", "profile_steps")
    if len(jobs) > 1:
        yield f"--{' and --'.join(jobs)} are jobs of their own: leave one out"
    if jobs and rehearsals:
        yield f"--{rehearsals[0]} tries a training, and --{jobs[0]} trains nothing: leave one out"
    if opt.evaluate_only and opt.resume_from is not None:
        yield "--evaluate_only measures a network as it starts: --evaluate --resume_from RUN measures that of a run"


def _folds(opt):
    """Flags for folds need a split scheme that has them."""
    if opt.evaluate_only and opt.is_cross_validation:
        yield f"--evaluate_only measures one split: leave out --split_scheme {opt.split_scheme}"
    for name in ("evaluate_ensemble", "aggregate_only"):
        if getattr(opt, name) and not opt.is_cross_validation:
            yield f"--{name} is for the folds of a cross-validation: --split_scheme {opt.split_scheme} has none"
    if opt.folds is None:
        return
    folds = "none"
    n_folds = 0
    if opt.is_cross_validation:
        n_folds = datasets.n_folds(opt)
        folds = f"folds 0 to {n_folds - 1}"
    if any(fold >= n_folds for fold in opt.folds):
        yield f"--folds {text_of(opt.folds)}: --split_scheme {opt.split_scheme} has {folds}"
    if len(set(opt.folds)) < len(opt.folds):
        yield f"--folds {text_of(opt.folds)}: name each fold once"


def _numbers(opt):
    """Rules on several flags, or on a list as a whole; the range of a single flag is declared in its type."""
    if opt.fc_lr == 0 and opt.lr > 0:
        yield "--fc_lr 0 would leave the last layer as it starts: give a rate above 0, or -1 for --lr"
    if opt.scheduler == "plateau" and opt.gamma >= 1:
        yield f"--gamma {opt.gamma:g} must be below 1 with --scheduler plateau, which would never lower the rate"
    uses_untrained_network = (
        opt.check_untrained_accuracy or opt.dump_embeddings or opt.dump_query_results or opt.evaluate
    )
    if opt.n_epochs == 0 and not uses_untrained_network:
        yield (
            "--n_epochs 0 trains nothing: add --check_untrained_accuracy to evaluate the untrained network, "
            "--dump_embeddings to write its embeddings, --dump_query_results what its queries find"
        )
    if opt.compile and opt.grad_checkpointing:
        yield (
            "--compile --grad_checkpointing: a compiled network decides itself what it keeps and what it computes "
            "again: leave one out"
        )
    if len(set(opt.evaltypes)) < len(opt.evaltypes):
        yield f"--evaltypes {text_of(opt.evaltypes)}: each one once"
    if len(opt.gpu) > 1:
        yield (
            f"--gpu {text_of(opt.gpu)}: a process trains on one GPU. One run on all of them: "
            f"CUDA_VISIBLE_DEVICES={','.join(map(str, opt.gpu))} torchrun --nproc_per_node {len(opt.gpu)} main.py …; a "
            f"run on each: python -m launch … --gpus {text_of(opt.gpu)}"
        )
    folder = Path(opt.savename)
    if opt.savename in ("", ".") or ".." in folder.parts or folder.is_absolute():
        yield (
            f"--savename {opt.savename!r} is no name of a folder below <save_path>/<dataset>: leave it out, or name one"
        )
    if opt.sync_bn and opt.chunk_size:
        yield (
            f"--sync_bn --chunk_size {opt.chunk_size}: BatchNorm would take its statistics from one chunk of each "
            "process: leave one out"
        )


def _mining(opt, inner: list[str]):
    """The pairing of each loss and the miner, by what the one allows and the other yields."""
    # first: a misspelt name is an error for losses without a miner, too
    miner = batch_mining.REGISTRY.module(opt.batch_mining)
    if opt.mine_pairs and not _any_loss_has(opt, "MINES_PAIRS"):
        yield (
            f"--mine_pairs: {_losses_as_text(opt)} does not work on all pairs of a batch; these do: "
            f"{_able(criteria.REGISTRY, 'MINES_PAIRS')}"
        )
    for flag in ("loss", *inner):
        name = getattr(opt, flag)
        if name == "triplet":
            yield from _miner_of_triplet_loss(opt)
        if not criteria.takes_miner(name, opt):
            continue
        allowed = getattr(criteria.REGISTRY.module(name), "ALLOWED_MINING_OPS", None)
        if allowed is None and getattr(miner, "YIELDS", "triplets") == "sets":
            yield (
                f"--batch_mining {opt.batch_mining} yields sets, which --{flag} {name} does not take: choose a miner "
                "of triplets or pairs, such as distance"
            )
        # A loss inside another takes a miner that it allows.
        if flag == "loss" and allowed is not None and opt.batch_mining not in allowed:
            yield f"--batch_mining {opt.batch_mining} does not go with --loss {name}; allowed: {', '.join(allowed)}"


def _miner_of_triplet_loss(opt):
    """The flags of the triplet loss that need a certain miner, or none."""
    if opt.loss_triplet_own_positive and opt.batch_mining != "batchhard":
        yield (
            f"--loss_triplet_own_positive completes the anchors of --batch_mining batchhard: {opt.batch_mining} "
            "does not give one triplet per anchor"
        )
    if opt.loss_triplet_per_anchor is not None and opt.batch_mining != "none":
        option = f"--loss_triplet_per_anchor {opt.loss_triplet_per_anchor}"
        yield (
            f"{option}: --batch_mining {opt.batch_mining} chooses the triplets; add --batch_mining none, or leave "
            "it out"
        )


def _any_loss_has(opt, constant: str) -> bool:
    """Whether the module of `--loss`, or of a loss inside it or the trainer, sets `constant`."""
    return any(getattr(criteria.REGISTRY.module(name), constant, False) for name in trainers.losses(opt))


def _losses_as_text(opt) -> str:
    """`--loss` with its value, and the losses inside it and the trainer."""
    _, *inner = trainers.losses(opt)
    return f"--loss {opt.loss}" + "".join(f", with {name} inside," for name in inner[:1])


def _reduction(opt):
    """A reduction goes with a loss that is a mean over tuples, perhaps inside another one."""
    if opt.loss_reduction is not None and not _any_loss_has(opt, "REDUCES"):
        able = _able(criteria.REGISTRY, "REDUCES")
        yield (
            f"--loss_reduction {opt.loss_reduction}: {_losses_as_text(opt)} is no mean over tuples that it could "
            f"change; these are: {able}"
        )


def _set_flags(opt, *names: str) -> list[str]:
    """Those of the flags that are on, or have a value that is not 0."""
    return [name for name in names if getattr(opt, name)]


def text_of(value) -> str:
    """A flag's value as the command line has it."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
