"""Whether the metric that selects the epoch can vary on its data: a constant would select any epoch."""

from collections import Counter

import numpy as np

import metrics
from evaluation import galleries, spaces
from utilities.errors import UserError
from utilities.flags import has_folds


def check(datasets: dict, opt) -> None:
    """Refuse, before anything is trained, a selection that cannot tell one epoch from another. `datasets`: of all splits that are embedded.

    A query can vary where its reference holds, itself left out, an image of its class and so many of others that they can come first;
    the metric, where one query can. Metrics without a reference (k-means, mean distances) are judged on the queries.
    Raises UserError where no query can vary, with the way out.
    """
    if opt.evaluate or opt.evaluate_ensemble or opt.n_epochs == 0:
        return  # no epoch is chosen
    split, metric = "val" if "val" in datasets else "test", opt.storage_metrics[0]
    least = _least_others(metric)
    if split not in spaces.scored(datasets, opt) or least is None or not all(hasattr(d, "image_list") for d in datasets.values()):
        return
    sources = spaces.sources_of(split, spaces.scored(datasets, opt), opt) if metrics.searches(metric) else [split]
    if galleries.there({source: datasets[source] for source in {split, *sources}}):
        _check_roles(datasets, split, metric, least, opt)
        return
    names = {split: _codes(dataset, opt) for split, dataset in datasets.items()}
    hits, others = _counts(names[split], [name for source in sources for name in names[source]], split in sources)
    if np.any((hits > 0) & (others >= least)):
        return
    what = {"val": "validation", "test": "test, without validation data"}[split]
    if hits.any():
        n = len({name for source in sources for name in names[source]})
        why = f"{what}, has {n} class{'es' * (n != 1)}, and a query at most {max(others)} images of others: {least} or more are needed"
    elif split not in sources:
        why = f"{what}, has no image of a class that is in the reference, --eval_reference_set {opt.eval_reference_set}"
    else:
        why = f"{what}, has a single image of each of its {len(set(names[split])):,} classes"
    raise UserError(f"{metric} on {split} chooses the epoch and would be the same in all: {why}. {_way_out(split, split in sources, opt)}")


def _check_roles(datasets: dict, split: str, metric: str, least: int, opt) -> None:
    """The same where queries and gallery differ, or images have sequences: of them who can find whom; of a clustering, of both together."""
    plan = spaces.plans(galleries.images_of(datasets), opt)[split]
    if metrics.searches(metric):
        hits, seen = plan.findable()
    else:
        labels, parents = (plan.labels, plan.parents) if plan.pool is None else (plan.pool_labels, plan.pool_parents)
        hits, seen = spaces.findable(labels, labels, np.arange(len(labels)), (None, None), parents, parents)
    if np.any((hits > 0) & (seen - hits >= least)):
        return
    why = f"a query finds at most {max(seen - hits)} images of other classes, {least} or more are needed" if hits.any() else (
        "no query has another image of its class" + " to find: in the gallery, and not of its sequence" * metrics.searches(metric)
    )  # fmt: skip
    way_out = "Make more images queries and gallery (is_query, is_gallery), or choose another metric by --storage_metrics"
    raise UserError(f"{metric} on {split} chooses the epoch and would be the same in all: {why}. {way_out}")


def _least_others(metric: str) -> int | None:
    """How many images of other classes a query needs to vary; None for a metric that varies without classes."""
    head, _, parameter = metric.removesuffix("_macro").partition("@")
    if head in ("e_recall", "c_recall"):
        return int(parameter.partition("_")[0])  # with fewer a hit is among the first k wherever it lies
    if metric == "alignment":
        return 0
    described = head.removeprefix("c_") in ("nmi", "ami", "f1", "fnmr", "opis") or metric in ("dists@intra", "dists@intra_over_inter")
    return 1 if metrics.searches(metric) or described else None


def _codes(dataset, opt) -> list[tuple]:
    """Of each image what must be equal for a hit, and before it the super-class inside which is searched, where that is asked for."""
    names = spaces.names_at(dataset, opt.label_hierarchy_level)
    parents = spaces.names_at(dataset, opt.label_hierarchy_level + 1) if opt.tester == spaces.INSIDE_PARENTS else {}
    return [(parents.get(label), str(names[label])) for _, label in dataset.image_list]


def _counts(queries: list[tuple], reference: list[tuple], within: bool) -> tuple[np.ndarray, np.ndarray]:
    """Of each query how many images of its class, and how many of others, it can find. `within`: it lies in the reference itself."""
    of_class, of_parent = Counter(reference), Counter(parent for parent, _ in reference)
    same = np.array([of_class[name] for name in queries])
    others = np.array([of_parent[parent] for parent, _ in queries]) - same
    return same - within, others


def _way_out(split: str, within: bool, opt) -> str:
    """What would give the split something to tell apart."""
    if not within:
        same = "--use_tv_split --tv_split_by_samples" if not has_folds(vars(opt)) else "--split_scheme closed_set"
        return f"Take --eval_reference_set compared_to_self, or validate on the classes that train: {same}"
    if split == "test":
        return "Cut validation with two classes of two images by --use_tv_split, or choose another metric by --storage_metrics"
    if not has_folds(vars(opt)) and opt.use_tv_split:
        by_classes = "" if not opt.tv_split_by_samples else ", or leave out --tv_split_by_samples"
        return f"Lower --tv_split_perc {opt.tv_split_perc:g} so that two classes keep two images or more{by_classes}"
    if not has_folds(vars(opt)) or opt.split_scheme == "predefined":
        return "Give validation two classes of two images or more"
    return f"Lower --split_partitions {opt.split_partitions} so that validation has two classes of two images or more"
