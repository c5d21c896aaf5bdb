"""Two methods compared query by query, by the bootstrap of bootstrap.py.

The runs need `--dump_query_results` (or `--dump_embeddings`).

`add` appends a table to each data set: of the pairs that --paired names, else of each group beside the best one. It
reads the query results of the groups (`of_groups`), refuses runs whose queries are not the same images, and draws the
same classes for all methods with the same queries.
"""

import itertools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

import metrics
from evaluation import from_splits
from evaluation.galleries import ROLES
from evaluation.judgements import LISTS
from evaluation.queries import file_name
from results import bootstrap, columns, groups, inference
from results.columns import SELECTED
from results.formats import Cell, Table
from results.groups import Group
from results.recorded import RecordedRun, in_one_line
from results.tables import notes
from results.tables.notes import text
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.evaltypes import MAIN
from utilities.reading import parsing
from utilities.registry import unknown

SPLIT = "test"
WRITTEN = "query_results"
EMBEDDED = "embeddings"
MEASURED = {"hit": "R@1", "ap_at_r": "MAP@R"}
# settings under which the test embeddings alone give the query results
PLAIN = from_splits.OF_SEARCH | from_splits.OF_DISTANCES
DIGITS = 2


class Queries(NamedTuple):
    """Query results of one run.

    Attributes:
        classes: of each query `(N,)`.
        files: names of the queries' images `(N,)`, None if unknown.
        values: `(N,)` by name.
        flags: those of the measurement.
    """

    classes: np.ndarray
    files: np.ndarray | None
    values: dict[str, np.ndarray]
    flags: dict

    def same_images(self, queries: "Queries") -> bool:
        """Whether the queries are the same images, in whatever folder."""
        if self.files is not None and queries.files is not None and not np.array_equal(self.files, queries.files):
            return False
        return np.array_equal(self.classes, queries.classes)


class Method(NamedTuple):
    """A group's runs that have query results: `outcomes` by name of value, and the queries of one of the runs."""

    group: Group
    outcomes: dict[str, bootstrap.Outcomes]
    queries: Queries

    @property
    def n_seeds(self) -> int:
        """How many seeds have query results."""
        return len(self.outcomes["hit"].sums)


def add(
    parts: dict[str, list[Table]], groups_by_dataset: dict[str, list[Group]], requested: list[list[str]]
) -> list[str]:
    """Append a table of pairs to each data set's tables. Returns notes.

    The pairs are those `requested` (names of groups), else each group and the best one.

    Raises UserError if a requested pair is missing or cannot be compared.
    """
    lines = []
    unmatched = {tuple(pair) for pair in requested}
    for dataset, dataset_groups in groups_by_dataset.items():
        names = {group.name for group in dataset_groups}
        name_pairs = [tuple(pair) for pair in requested if set(pair) <= names]
        unmatched -= set(name_pairs)
        compared_groups = dataset_groups
        if requested:
            in_pairs = set(itertools.chain.from_iterable(name_pairs))
            compared_groups = [group for group in dataset_groups if group.name in in_pairs]
        if not compared_groups:
            continue
        methods, reading_notes = of_groups(compared_groups)
        lines += [f"{dataset}: {line}" for line in reading_notes]
        if requested:
            pairs = []
            for first, second in name_pairs:
                pairs.append((_method_of(methods, first, reading_notes), _method_of(methods, second, reading_notes)))
        else:
            pairs = _beside_best(dataset_groups, methods)
        if pairs:
            parts[dataset].append(paired_table(dataset, pairs, is_requested=bool(requested)))
    if unmatched:
        _refuse(next(iter(unmatched)), groups_by_dataset)
    return lines


def _refuse(pair: tuple[str, str], groups_by_dataset: dict[str, list[Group]]) -> None:
    """Raise UserError for a requested pair that no data set has."""
    all_groups = itertools.chain.from_iterable(groups_by_dataset.values())
    names = sorted({group.name for group in all_groups})
    for name in pair:
        if name not in names:
            raise unknown("group", name, names)
    raise UserError(f"--paired {' '.join(pair)}: no data set has runs of both groups")


def _method_of(methods: dict[str, Method], name: str, reading_notes: list[str]) -> Method:
    """The method of a requested group. Raises UserError with the reason if there is none."""
    if name in methods:
        return methods[name]
    reason = f"{name} has no run that counts and has such a file"
    for line in reading_notes:
        if line.startswith(f"{name} "):
            reason = line
            break
    raise UserError(
        f"--paired: {reason}; main.py --evaluate --resume_from RUN --dump_query_results writes query_results_test.npz"
    )


def _beside_best(dataset_groups: list[Group], methods: dict[str, Method]) -> list[tuple[Method, Method]]:
    """Each group paired with that of the highest R@1 among those it may be ranked with.

    Groups of several seeds go before those of one.
    """
    pairs = []
    for members in groups.pools(dataset_groups, SELECTED).values():
        ranked = sorted((methods[group.name] for group in members if group.name in methods), key=_rank)
        for method in ranked[1:]:
            if ranked[0].queries.same_images(method.queries):
                pairs.append((ranked[0], method))
    return pairs


def _rank(method: Method) -> tuple:
    return method.n_seeds < 2, -method.outcomes["hit"].means.mean()


def of_groups(dataset_groups: list[Group]) -> tuple[dict[str, Method], list[str]]:
    """Group -> the query results of its runs that have files of them; and notes on seeds that cannot be compared."""
    methods = {}
    notes = []
    for group in dataset_groups:
        seeds = []
        for seed, runs in group.seeds.items():
            try:
                with parsing(f"{group.name}, seed {seed}"):
                    queries = _of_folds(runs, [earlier[0] for earlier in seeds])
            except UserError as error:
                reason = getattr(error, "reason", None) or in_one_line(error, 200)
                notes.append(f"{group.name} is not compared query by query with seed {seed}: {reason}")
                continue
            if queries:
                seeds.append(queries)
        if seeds:
            methods[group.name] = _method(group, seeds)
    return methods, notes


def _of_folds(runs: list[RecordedRun], earlier: list[Queries]) -> list[Queries]:
    """The query results of a seed's runs, one per fold; empty if none has a file of them.

    Args:
        earlier: of other seeds, whose queries must be the same.

    Raises ValueError if some folds lack a file, or queries differ.
    """
    results = [queries for queries in map(of_run, runs) if queries is not None]
    if not results:
        return []
    if len(results) < len(runs):
        raise ValueError("a fold has no such file")
    if not all(map(results[0].same_images, results + earlier)):
        raise ValueError("its queries are not those of the other runs")
    return results


def _method(group: Group, seeds: list[list[Queries]]) -> Method:
    """The outcomes of a group; a seed's values are the means over its folds."""
    first = seeds[0][0]
    classes = np.unique(first.classes, return_inverse=True)[1].reshape(-1)
    outcomes = {}
    for name in MEASURED:
        values = [np.mean([fold.values[name] for fold in folds], axis=0) for folds in seeds]
        outcomes[name] = bootstrap.class_outcomes(values, classes)
    return Method(group, outcomes, first)


def of_run(run: RecordedRun) -> Queries | None:
    """The query results of a run on test; None if it has no file of them.

    Raises ValueError if the file is of another epoch than the selected one, or has embeddings that do not suffice.
    """
    path = _file_of(run)
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as file:
        names = set(file.files)
        flags = {}
        if "flags" in names:
            flags = json.loads(str(file["flags"]))
        selected = columns.epoch(run, SELECTED)
        epoch = int(file["epoch"]) if "epoch" in names else selected
        if np.isfinite(selected) and epoch != selected:
            raise ValueError(f"{run.name}/{path.name} is of epoch {epoch}, the selected one is {selected:g}")
        if set(MEASURED) <= names:
            values = {name: file[name].astype(np.float64) for name in MEASURED}
        else:
            values = _measured(file, flags, f"{run.name}/{path.name}")
        # files hold no hit for queries without a match
        if flags.get("eval_skip_unmatched"):
            values["hit"][np.isnan(values["ap_at_r"])] = np.nan
        files = None
        if "paths" in names:
            files = np.array([Path(image).name for image in file["paths"].tolist()])
        if "class_names" in names:
            classes = file["class_names"]
        elif "labels" in names:
            classes = file["labels"]
        else:
            # without classes, each query is a class of its own
            classes = np.arange(len(values["hit"]))
        return Queries(classes, files, values, flags)


def _file_of(run: RecordedRun) -> Path | None:
    """The run's file of query results, else of embeddings; None if it has neither, or is a run of W&B."""
    if "://" in run.location:
        return None
    evaltypes = run.flags.get("evaltypes") or [MAIN]
    for kind in (WRITTEN, EMBEDDED):
        path = Path(run.location) / file_name(SPLIT, evaltypes[0], evaltypes, kind)
        if path.exists():
            return path
    return None


def _measured(file, flags: dict, title: str) -> dict[str, np.ndarray]:
    """The query results of embeddings. Raises ValueError if the run's own were not of plain distances.

    Args:
        file: the .npz file of embeddings.
        title: its name in the message.
    """
    unlike = from_splits.changed_flags(flags, PLAIN)
    unlike += [f"images with {name}" for name in (*ROLES, *LISTS) if name in file.files]
    if unlike:
        raise ValueError(f"{title} is of {', '.join(unlike)}: --dump_query_results knows what its queries found there")
    results = metrics.query_results(metrics.EmbeddingSpace(file["features"], file["labels"]))
    return {name: results[name].astype(np.float64) for name in MEASURED}


def paired_table(dataset: str, pairs: list[tuple[Method, Method]], is_requested: bool = False) -> Table:
    """Differences of pairs of methods with the paired interval and Welch's.

    Args:
        is_requested: whether the user named these pairs.

    Raises UserError for a pair whose queries differ.
    """
    heads = []
    ends = []
    for title in MEASURED.values():
        heads += [f"{title} difference [%]", f"{title} paired 95 %", f"{title} Welch 95 %"]
        ends += [f"{title} paired low", f"{title} paired high"]
    table = Table(
        f"{dataset}_paired",
        f"{dataset}: differences, query by query",
        ["group", "minus", "seeds", *heads, *ends],
        page_only=set(ends),
    )
    methods = list(itertools.chain.from_iterable(pairs))
    draws = _draws(methods)
    for first, second in pairs:
        if not first.queries.same_images(second.queries):
            raise UserError(
                f"--paired {first.group.name} {second.group.name}: their test images differ, they have no queries "
                "in common"
            )
        cells = [text(first.group.name), text(second.group.name), text(f"{first.n_seeds} / {second.n_seeds}")]
        bounds = []
        for name in MEASURED:
            drawn_means = (draws[first.group.name, name], draws[second.group.name, name])
            difference = bootstrap.difference(first.outcomes[name], second.outcomes[name], drawn_means)
            interval = (100 * difference.low, 100 * difference.high)
            ours = inference.estimate(100 * first.outcomes[name].means)
            theirs = inference.estimate(100 * second.outcomes[name].means)
            welch = inference.difference(ours, theirs)
            cells += [Cell(100 * difference.value, digits=DIGITS, sign=True), text(_bounds(interval))]
            cells.append(text(_bounds(welch)))
            bounds += [Cell(bound, digits=DIGITS, sign=True) for bound in interval]
        table.add([*cells, *bounds], _remarks(first, second))
    table.notes = _notes(methods, is_requested)
    return table


def _notes(methods: list[Method], is_requested: bool) -> list[str]:
    compared_groups = list({method.group.name: method.group for method in methods}.values())
    sentences = []
    if any(map(_is_by_part, methods)):
        sentences.append(
            "R@1 and MAP@R here are means over all queries, in the other tables over super-classes or domains."
        )
    sentences += [
        f"Paired 95 %: interval of the difference by {bootstrap.DRAWS:,} draws of classes, the same for both methods, "
        "and of seeds (results/bootstrap.py); valid for further classes like these and further seeds. Welch 95 %: for "
        "further seeds on these queries.",
        "An interval that excludes 0 is a difference at 5 % for a single pair; of many pairs some exclude 0 by chance.",
    ]
    if not is_requested:
        sentences.append(
            "Each group is compared with that of the highest R@1 in its part; --paired GROUP_A GROUP_B compares two "
            "groups of your choice."
        )
    epochs = f"Epochs: selected epoch; {notes.rules(compared_groups)}."
    return [*sentences, epochs, *notes.shared_settings(compared_groups)]


def _is_by_part(method: Method) -> bool:
    """Whether the run's own R@1 is a mean over super-classes or domains."""
    has_domains = any(columns.recorded(method.group.counted).values())
    return has_domains or method.queries.flags.get("tester") == "same_parent_label"


def _draws(methods: list[Method]) -> dict[tuple[str, str], np.ndarray]:
    """(group, value) -> `bootstrap.drawn_means`; methods with the same queries share the draws."""
    draws = {}
    remaining = list({method.group.name: method for method in methods}.values())
    while remaining:
        same_queries = [method for method in remaining if method.queries.same_images(remaining[0].queries)]
        names = {method.group.name for method in same_queries}
        remaining = [method for method in remaining if method.group.name not in names]
        # Values share the draws, too: same random seed, same classes except those of one image.
        for name in MEASURED:
            means_of_methods = bootstrap.drawn_means([method.outcomes[name] for method in same_queries])
            for method, means in zip(same_queries, means_of_methods, strict=True):
                draws[method.group.name, name] = means
    return draws


def _bounds(interval: tuple[float, float] | None) -> str:
    if not interval:
        return "-"
    low, high = interval
    return f"[{low:+.{DIGITS}f}, {high:+.{DIGITS}f}]"


def _remarks(first: Method, second: Method) -> list[str]:
    """Remarks on a pair: a method has one seed only, or the two were measured with different flags."""
    remarks = []
    for method in {first.group: first, second.group: second}.values():
        n_seeds = len(method.group.seeds)
        if method.n_seeds < n_seeds:
            remarks.append(f"{method.group.name}: {method.n_seeds} of {count_of(n_seeds, 'seed')} have query results")
    single_seed = [method.group.name for method in (first, second) if method.n_seeds < 2]
    if single_seed:
        remarks.append(
            f"a single seed of {' and '.join(single_seed)}: the interval does not cover the variation over seeds"
        )
    roles = first.group.roles
    ours = roles.measured(first.queries.flags)
    theirs = roles.measured(second.queries.flags)
    differing = []
    for flag in sorted(set(ours) & set(theirs)):
        if ours[flag] != theirs[flag]:
            differing.append(f"--{flag} {ours[flag]} and {theirs[flag]}")
    if differing:
        remarks.append(f"measured differently: {', '.join(differing)}")
    splits = [columns.selection_split(method.group.counted[0]) for method in (first, second)]
    if splits[0] != splits[1]:
        remarks.append(f"epochs chosen on {' and on '.join(splits)}: not to be ranked with each other")
    for method in (first, second):
        remarks += [f"{method.group.name}: {remark}" for remark in method.group.own_remarks]
    return remarks
