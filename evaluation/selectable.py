"""Whether the metric that selects the epoch can vary on its data: a constant would select any epoch."""

from dataclasses import replace

import numpy as np

import metrics
from evaluation import from_splits, galleries
from evaluation.task import Rows, Task
from options.flags.shared import has_folds
from utilities.counts import count_of
from utilities.errors import UserError


def check(datasets: dict, opt) -> None:
    """Raise UserError, before anything is trained, where the metric is the same in all epochs.
    `datasets`: of all embedded splits.

    A query's value can vary where it can find an image of its class and enough images of others to come before it; the
    metric can vary where one query's value can. Metrics that do not search (k-means, mean distances) are judged on the
    queries among themselves.
    """
    if opt.evaluate or opt.evaluate_only or opt.evaluate_ensemble or opt.n_epochs == 0:
        # no epoch is chosen
        return
    split = "val" if "val" in datasets else "test"
    metric = opt.storage_metrics[0]
    least = _least_others(metric)
    if split not in from_splits.scored(datasets, opt) or least is None:
        return
    if protocols := [protocol for protocol in getattr(datasets[split], "lists", None) or () if protocol]:
        raise UserError(
            f"{split} is measured by {len(protocols)} protocols ({', '.join(protocols)}), none of which chooses "
            "the epoch: cut validation by --use_tv_split"
        )
    images = from_splits.images_of(datasets)
    task = from_splits.tasks(images, opt)[split]
    if metrics.searches(metric):
        task = _by_column(task, metrics.column_of(metric))
        sources = from_splits.sources_of(split, from_splits.scored(images, opt), opt)
    else:
        # the images among themselves, as a clustering sees them
        task = Task(Rows(None, task.classified.labels, parents=task.classified.parents))
        sources = [split]
    relevant, ranked = task.findable()
    if metrics.needs_unknown(metric) and (relevant > 0).all():
        raise UserError(
            f"{metric} on {split} selects the epoch and needs queries of classes that the gallery does not hold: all "
            f"{len(relevant):,} have an image to find. Make roles (is_query, is_gallery) so that some have none, or "
            "choose another metric by --storage_metrics"
        )
    if np.any((relevant > 0) & (ranked - relevant >= least)):
        return
    roles = galleries.roles_of_all(images)
    if any(roles[source].restrict for source in {split, *sources}):
        reason = f"a query finds at most {max(ranked - relevant)} images of other classes, {least} or more are needed"
        if not relevant.any():
            reason = "no query has another image of its class"
            if metrics.searches(metric):
                reason += " to find: in the gallery, and not of its sequence"
        way_out = (
            "Make more images queries and gallery (is_query, is_gallery), or choose another metric by --storage_metrics"
        )
    else:
        subject = "validation" if split == "val" else "test, without validation data,"
        reason = f"{subject} has {_what_it_has(task, relevant, ranked, least, split in sources, opt)}"
        way_out = _way_out(split, split in sources, opt)
    raise UserError(f"{metric} on {split} selects the epoch and would have the same value in all: {reason}. {way_out}")


def _what_it_has(task: Task, relevant: np.ndarray, ranked: np.ndarray, least: int, within: bool, opt) -> str:
    """Why no query's value can vary, where every image is query and gallery;
    `within`: whether the split searches itself.
    """
    if relevant.any():
        n_classes = len(np.unique(task.searched.labels))
        return (
            f"{count_of(n_classes, 'class', 'classes')}, and for a query at most {max(ranked - relevant)} images of "
            f"other classes: at least {least} are needed"
        )
    if not within:
        return f"no image of a class that is in the reference, --eval_reference_set {opt.eval_reference_set}"
    return f"a single image of each of its {len(np.unique(task.queries.labels)):,} classes"


def _by_column(task: Task, column: int) -> Task:
    """The task with the labels of one level."""
    if column == 0:
        return task
    queries = replace(task.queries, labels=task.queries.levels[:, column - 1])
    gallery = task.gallery
    if gallery is not None:
        gallery = replace(gallery, labels=gallery.levels[:, column - 1])
    return replace(task, queries=queries, gallery=gallery)


def _least_others(metric: str) -> int | None:
    """How many images of other classes a query needs for its value to vary; None for a metric that varies without
    classes, or within them.
    """
    if metrics.column_of(metric) is None:
        return None
    # the name without the ending `@d…` of a metric on a prefix of the features
    metric = metric.partition("@d")[0]
    head, _, parameter = metric.removesuffix("_macro").partition("@")
    if head in ("e_recall", "c_recall"):
        # with fewer a hit is among the first k wherever it lies
        return int(parameter.partition("_")[0])
    if metric == "alignment":
        return 0
    compares_classes = head.removeprefix("c_") in ("nmi", "ami", "f1", "fnmr", "opis")
    if compares_classes or metric in ("dists@intra", "dists@intra_over_inter") or metrics.searches(metric):
        return 1
    return None


def _way_out(split: str, within: bool, opt) -> str:
    """What to change so that the metric can vary on the split, as text."""
    if not within:
        split_flags = "--use_tv_split --tv_split_by_samples"
        if has_folds(vars(opt)):
            split_flags = "--split_scheme closed_set"
        return f"Take --eval_reference_set compared_to_self, or validate on the classes that train: {split_flags}"
    if split == "test":
        return (
            "Cut validation with two classes of two images by --use_tv_split, or choose another metric by "
            "--storage_metrics"
        )
    if not has_folds(vars(opt)) and opt.use_tv_split:
        way_out = f"Lower --tv_split_perc {opt.tv_split_perc:g} so that two classes keep two images or more"
        if opt.tv_split_by_samples:
            way_out += ", or leave out --tv_split_by_samples"
        return way_out
    if not has_folds(vars(opt)) or opt.split_scheme == "predefined":
        return "Give validation two classes of two images or more"
    return f"Lower --split_partitions {opt.split_partitions} so that validation has two classes of two images or more"
