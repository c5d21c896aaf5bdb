"""Flags whose default depends on other flags, on the data set or on the trainer: unset ones take it here."""

import argparse

import architectures
import criteria
import datasets
import metrics
from options.options import Options
from options.registries import NAMED

# flag -> the one whose value it takes where it is unset
FOLLOWS = {
    "split_sets": "split_partitions",
    "fc_lr": "lr",
    "fc_decay": "decay",
    "eval_bs": "bs",
    "eval_kernels": "kernels",
}
DEFAULT_METRICS = [
    *("e_recall@1", "e_recall@2", "e_recall@4", "nmi", "f1", "mAP_1000", "mAP_lim", "mAP_c"),
    *("dists@intra", "dists@inter", "dists@intra_over_inter"),
    *("rho_spectrum@0", "rho_spectrum@-1", "rho_spectrum@1", "rho_spectrum@2", "rho_spectrum@10"),
]


def derived(opt: Options) -> Options:
    """The options with a value for each flag that is unset by default."""
    opt = opt.but(savename=savename(opt), **_of_data_set(opt))
    width = datasets.width(opt)
    if width is not None:
        opt = opt.but(arch=architectures.behind_name(opt.arch, width))
    opt = opt.but(evaluation_metrics=_evaluation_metrics(opt), fc_lr=_positive_or_unset(opt.fc_lr))
    opt = opt.but(**{flag: value for flag, value in defaults_of(opt).items() if getattr(opt, flag) is None})
    if opt.online_backend == "comet":
        opt = opt.but(online_backend="comet_ml")
    return opt.but(loss_weights=_loss_weights(opt), splits_to_eval=_splits_to_eval(opt))


def savename(opt) -> str:
    """The name of the run's folder; `group_plus_seed` stands for the group and the seed."""
    return f"{opt.group}_s{opt.seed}" if opt.savename == "group_plus_seed" else opt.savename


def defaults_of(opt) -> dict:
    """Flag -> the value that it has where it is unset, of the flags that follow other flags or a plug-in."""
    values = {flag: getattr(opt, source) for flag, source in FOLLOWS.items()}
    for flag, registry in NAMED.items():
        read = _as_mined(opt) if flag == "batch_mining" else opt
        values |= registry.derived(getattr(opt, flag), read)
    return values | metrics.derived(opt)


def _as_mined(opt) -> argparse.Namespace:
    """The options as a miner reads them: `loss` is the loss that mines, which may be inside another."""
    # A record may name a loss that is gone.
    is_known = opt.loss in criteria.REGISTRY.names()
    inner = "loss"
    if is_known:
        loss = criteria.REGISTRY.module(opt.loss)
        inner = getattr(loss, "INNER_LOSS", "loss")
    return argparse.Namespace(**{**vars(opt), "loss": getattr(opt, inner)})


def completed(defaults: dict, flags: dict) -> dict:
    """Recorded flags whose unset ones have the value that they stand for;
    `defaults`: flag -> default, of the parser.
    """
    values = defaults_of(argparse.Namespace(**{**defaults, **flags}))
    return {flag: values.get(flag) if value is None else value for flag, value in flags.items()}


def followers(defaults: dict, flags: dict) -> set[str]:
    """Recorded flags whose value is the one that other flags give them where they are unset.

    `defaults`: flag -> default, of the parser.
    """
    values = defaults_of(argparse.Namespace(**{**defaults, **flags}))
    return {flag for flag, value in values.items() if flag in flags and flags[flag] == value}


def derived_flags(defaults: dict) -> set[str]:
    """The flags whose default is derived; `defaults`: flag -> default, of the parser."""
    of_this_module = {"savename", "source_path", "augmentation", "evaluation_metrics", "splits_to_eval"}
    return of_this_module | defaults_of(argparse.Namespace(**defaults)).keys()


def _of_data_set(opt) -> dict:
    """`--source_path` and `--augmentation`, where they are unset those of the data set."""
    module = datasets.REGISTRY.module(opt.dataset)
    source_path = opt.source_path
    if source_path is None and hasattr(module, "default_source_path"):
        source_path = str(module.default_source_path())
    if source_path is None:
        source_path = "./Datasets"
    augmentation = opt.augmentation
    if augmentation is None:
        augmentation = getattr(module, "DEFAULT_AUGMENTATION", "base")
    return {"source_path": source_path, "augmentation": augmentation}


def _evaluation_metrics(opt) -> list[str]:
    """The metrics, if unset those published for the data set; each at the prefixes of `--matryoshka` too."""
    names = opt.evaluation_metrics
    if names is None:
        names = list(datasets.evaluation_metrics(opt) or DEFAULT_METRICS)
    return metrics.at_prefixes(names, (opt.matryoshka or [])[:-1])


def _positive_or_unset(rate: float | None) -> float | None:
    if rate is None or rate < 0:
        return None
    return rate


def _loss_weights(opt) -> list[str]:
    """`--loss_weights` with the weights that older versions gave by flags of their own."""
    words = list(opt.loss_weights)
    weighed = {word.partition("=")[0] for word in words}
    for flag, role in opt.roles.items():
        if role.weighs and getattr(opt, flag) not in (None, 1) and role.weighs not in weighed:
            words.append(f"{role.weighs}={getattr(opt, flag):g}")
    return words


def _splits_to_eval(opt) -> list[str]:
    splits = opt.splits_to_eval
    if splits is None:
        splits = _all_splits(opt)
    if opt.no_train_metrics:
        splits = [split for split in splits if split != "train"]
    return splits


def left_out(requested_splits: list[str] | None, opt) -> dict[str, str]:
    """Flag -> a line that says which of the requested splits is not evaluated; empty where all are."""
    if requested_splits is None or set(requested_splits) <= set(opt.splits_to_eval):
        return {}
    return {"splits_to_eval": f"--splits_to_eval {' '.join(requested_splits)}: --no_train_metrics leaves train out"}


def _all_splits(opt) -> list[str]:
    """The splits that are evaluated by default."""
    has_validation = datasets.has_validation(opt)
    if opt.is_cross_validation:
        return ["val"] if has_validation else ["test"]
    return ["train", "val", "test"] if has_validation else ["train", "test"]
