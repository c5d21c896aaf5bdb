"""Whether the metric that selects the epoch can vary on its data: a constant would select any epoch."""

import numpy as np

import metrics
from evaluation import galleries, spaces
from evaluation.space import Space
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.flags import has_folds


def check(datasets: dict, opt) -> None:
    """Raise UserError, before anything is trained, where the metric is the same in all epochs. `datasets`: of all
    embedded splits.

    A query's value can vary where it can find an image of its class and enough images of others to come before it; the
    metric can vary where one query's value can. Metrics that do not search (k-means, mean distances) are judged on the
    queries among themselves.
    """
    if opt.evaluate or opt.evaluate_only or opt.evaluate_ensemble or opt.n_epochs == 0:
        return  # no epoch is chosen
    split = "val" if "val" in datasets else "test"
    metric = opt.storage_metrics[0]
    least = _least_others(metric)
    if split not in spaces.scored(datasets, opt) or least is None:
        return
    if protocols := [protocol for protocol in getattr(datasets[split], "lists", None) or () if protocol]:
        raise UserError(
            f"{split} is measured by {len(protocols)} protocols ({', '.join(protocols)}), none of which chooses "
            "the epoch: cut validation by --use_tv_split"
        )
    images = galleries.images_of(datasets)
    plan = spaces.plans(images, opt)[split]
    searches = metrics.searches(metric)
    space, sources = (
        (_by_column(plan.space, metrics.column_of(metric)), plan.sources)
        if searches
        else (_in_itself(plan.space.whole()), [split])
    )
    hits, seen = space.findable()
    if np.any((hits > 0) & (seen - hits >= least)):
        return
    if any(galleries.roles_of_all(images)[source].restrict for source in {split, *sources}):
        why = (
            f"a query finds at most {max(seen - hits)} images of other classes, {least} or more are needed"
            if hits.any()
            else (
                "no query has another image of its class"
                + " to find: in the gallery, and not of its sequence" * searches
            )
        )
        way_out = (
            "Make more images queries and gallery (is_query, is_gallery), or choose another metric by --storage_metrics"
        )
    else:
        why = f"{'validation' if split == 'val' else 'test, without validation data,'} has "
        if hits.any():
            n = len(np.unique(space.gallery()[1]))
            why += (
                f"{count_of(n, 'class', 'classes')}, and a query at most {max(seen - hits)} images of others: {least} "
                "or more are needed"
            )
        elif split not in sources:
            why += f"no image of a class that is in the reference, --eval_reference_set {opt.eval_reference_set}"
        else:
            why += f"a single image of each of its {len(np.unique(space.labels)):,} classes"
        way_out = _way_out(split, split in sources, opt)
    raise UserError(f"{metric} on {split} selects the epoch and would have the same value in all: {why}. {way_out}")


def _by_column(space: Space, column: int) -> Space:
    """The space with the labels of one level."""
    if column == 0:
        return space
    return space._replace(
        labels=space.above[:, column - 1],
        reference_labels=None if space.reference_above is None else space.reference_above[:, column - 1],
    )


def _in_itself(space: Space) -> Space:
    """The images of a space among themselves, as a clustering sees them."""
    return Space(None, space.labels, parents=space.parents, reference_parents=space.parents)


def _least_others(metric: str) -> int | None:
    """How many images of other classes a query needs for its value to vary; None for a metric that varies without
    classes, or within them.
    """
    if metrics.column_of(metric) is None:
        return None
    metric = metric.partition("@d")[0]  # of a prefix of the features
    head, _, parameter = metric.removesuffix("_macro").partition("@")
    if head in ("e_recall", "c_recall"):
        return int(parameter.partition("_")[0])  # with fewer a hit is among the first k wherever it lies
    if metric == "alignment":
        return 0
    described = head.removeprefix("c_") in ("nmi", "ami", "f1", "fnmr", "opis") or metric in (
        "dists@intra",
        "dists@intra_over_inter",
    )
    return 1 if metrics.searches(metric) or described else None


def _way_out(split: str, within: bool, opt) -> str:
    """What to change so that the metric can vary on the split, in words."""
    if not within:
        same = "--use_tv_split --tv_split_by_samples" if not has_folds(vars(opt)) else "--split_scheme closed_set"
        return f"Take --eval_reference_set compared_to_self, or validate on the classes that train: {same}"
    if split == "test":
        return (
            "Cut validation with two classes of two images by --use_tv_split, or choose another metric by "
            "--storage_metrics"
        )
    if not has_folds(vars(opt)) and opt.use_tv_split:
        by_classes = "" if not opt.tv_split_by_samples else ", or leave out --tv_split_by_samples"
        return f"Lower --tv_split_perc {opt.tv_split_perc:g} so that two classes keep two images or more{by_classes}"
    if not has_folds(vars(opt)) or opt.split_scheme == "predefined":
        return "Give validation two classes of two images or more"
    return f"Lower --split_partitions {opt.split_partitions} so that validation has two classes of two images or more"
