"""Refusals of evaluation flags that the data cannot serve, before anything is trained."""

import metrics
from evaluation import galleries
from evaluation.from_splits import (
    INSIDE_PARENTS,
    SELF,
    TRAINING,
    comparing_levels,
    grouping,
    names_at,
    scored,
    sources_of,
)
from utilities.console import say
from utilities.errors import UserError
from utilities.levels import n_levels, names_of, refuse_unnested


def check(datasets: dict, opt) -> None:
    """Raise UserError, before anything is trained, for a level without names
    or a super-class with nothing to search in.

    Print a line where no query can find its class.
    """
    measured = scored(datasets, opt)
    deepest = opt.label_hierarchy_level + (opt.tester == INSIDE_PARENTS)
    flag = f"--label_hierarchy_level {opt.label_hierarchy_level}"
    if opt.tester == INSIDE_PARENTS:
        flag = f"--tester {INSIDE_PARENTS}"
    for dataset in datasets.values():
        if deepest and None in names_at(dataset, deepest).values():
            raise UserError(
                f"{flag}: --dataset {dataset.name} has no super-classes; online_products, glyphs and a folder "
                "X/<super>/<class>/ do"
            )
    galleries.check(datasets, measured)
    of_measured = {split: datasets[split] for split in measured}
    _check_lists(of_measured, opt)
    _check_domains(of_measured, opt)
    if opt.tester == INSIDE_PARENTS:
        _check_parents(datasets, measured, deepest, opt)
    level_flag = flag if deepest else None
    _check_groups(datasets, measured, opt, level_flag)
    _check_levels(datasets, opt, level_flag)
    if opt.eval_reference_set == TRAINING:
        names = _names_of(datasets["train"], opt.label_hierarchy_level, "gallery")
        for split in measured:
            if names.isdisjoint(_names_of(datasets[split], opt.label_hierarchy_level, "queries")):
                say(
                    f"--eval_reference_set {TRAINING}: no query of {split} has a counterpart in the reference, so "
                    "no query can find its class"
                )


def _check_parents(datasets: dict, measured: list[str], level: int, opt) -> None:
    """Raise UserError for distractors, and for queries whose super-class, at `level`, has no image to search."""
    flag = f"--tester {INSIDE_PARENTS}"
    for split in measured:
        if "distractors" in getattr(datasets[split], "counts", {}):
            raise UserError(
                f"{flag}: the distractors of {split} have no super-class, so no query would search them: take global"
            )
        searched = set()
        for source in sources_of(split, measured, opt):
            searched |= _names_of(datasets[source], level, "gallery")
        unsearched = _names_of(datasets[split], level, "queries") - searched
        if unsearched:
            raise UserError(
                f"{flag}: the super-class {min(unsearched)!r} of {split} has no image in the reference, "
                f"--eval_reference_set {opt.eval_reference_set}"
            )


def _check_lists(datasets: dict, opt) -> None:
    """Raise UserError for flags that do not go with lists of what queries are to find."""
    by_function = opt.eval_relevance is not None
    for split, dataset in datasets.items():
        if getattr(dataset, "lists", None) is None and not by_function:
            continue
        if by_function and getattr(dataset, "sequences", None) is not None:
            raise UserError(
                f"--eval_relevance {opt.eval_relevance}: {split} of --dataset {dataset.name} has sequences, which "
                "also define what is relevant: leave one out"
            )
        for flag, needed in (("eval_reference_set", SELF), ("tester", "global"), ("label_hierarchy_level", 0)):
            value = getattr(opt, flag)
            if value != needed:
                raise UserError(
                    f"--{flag} {value}: lists, or --eval_relevance, define the relevant images of --dataset "
                    f"{dataset.name}, in its gallery: use {needed}"
                )
        if not dataset.n_classes:
            metrics.refuse_class_wise(opt.evaluation_metrics)


def _check_domains(datasets: dict, opt) -> None:
    """Raise UserError for flags that do not go with results one a domain."""
    for split, dataset in datasets.items():
        if not getattr(dataset, "by_domain", False):
            continue
        of_dataset = f"--dataset {dataset.name} is measured domain by domain"
        if (name := grouping(opt)) is not None:
            raise UserError(
                f"--evaluation_metrics {name}: {of_dataset}, and one has a single super-class: leave it out"
            )
        if dataset.further_labels and (name := comparing_levels(opt)) is not None:
            raise UserError(
                f"--evaluation_metrics {name}: {of_dataset}, and queries of {split} show several classes, whose "
                "levels are not compared: leave it out"
            )
        shows_several = f"queries of {split} show several classes"
        rules = [("eval_relevance", None, "its classes define what is relevant")]
        if dataset.further_labels:
            rules += [("eval_reference_set", SELF, shows_several), ("label_hierarchy_level", 0, shows_several)]
        for flag, needed, reason in rules:
            value = getattr(opt, flag)
            if value != needed:
                raise UserError(f"--{flag} {value}: {of_dataset}, and {reason}: leave it out")


def _check_groups(datasets: dict, measured: list[str], opt, flag: str | None) -> None:
    """Raise UserError for a metric that compares super-classes where there are not two,
    or where `flag` uses super-classes already.
    """
    name = grouping(opt)
    if name is None:
        return
    if flag is not None:
        raise UserError(
            f"--evaluation_metrics {name} compares super-classes by a search in all images: leave out {flag}"
        )
    for split in measured:
        names = set(names_at(datasets[split], 1).values())
        if len(names) < 2 or None in names:
            present = "no super-classes" if None in names else f"only the super-class {min(names)!r}"
            raise UserError(
                f"--evaluation_metrics {name}: {split} of --dataset {datasets[split].name} has {present}, two or "
                "more are needed: leave it out"
            )


def _check_levels(datasets: dict, opt, flag: str | None) -> None:
    """Raise UserError for a metric that compares levels where there are too few, where they do not nest, or where
    `flag` chooses one.
    """
    name = comparing_levels(opt)
    if name is None:
        return
    if flag is not None:
        raise UserError(f"--evaluation_metrics {name} compares levels by a search in all images: leave out {flag}")
    for dataset in datasets.values():
        metrics.check_levels(opt.evaluation_metrics, n_levels(dataset), f"the classes of --dataset {dataset.name}")
    refuse_unnested(
        names_of(datasets.values()), f"--evaluation_metrics {name}: --dataset {next(iter(datasets.values())).name}"
    )


def _names_of(dataset, level: int, role: str) -> set:
    """The names at a level of a data set's `queries` or `gallery`."""
    table = names_at(dataset, level)
    rows = getattr(galleries.roles_of(dataset, len(dataset)), role)
    if rows is None:
        return set(table.values())
    return {table.get(dataset.image_list[row][1]) for row in rows.tolist()}
