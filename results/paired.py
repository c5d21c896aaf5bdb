"""Two methods compared query by query: runs with `--dump_query_results` (or `--dump_embeddings`), by the bootstrap of
bootstrap.py.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

import metrics
from evaluation import from_splits
from evaluation.galleries import ROLES
from evaluation.judgements import LISTS
from results import bootstrap, columns, groups, inference, roles
from results.columns import SELECTED
from results.formats import Cell, Table
from results.groups import Group
from results.recorded import RecordedRun, in_one_line
from results.tables import notes
from results.tables.notes import text
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.reading import parsing
from utilities.registry import unknown

SPLIT = "test"
WRITTEN = "query_results"
EMBEDDED = "embeddings"
MEASURED = {"hit": "R@1", "ap_at_r": "MAP@R"}
PLAIN = (
    from_splits.OF_SEARCH | from_splits.OF_DISTANCES
)  # settings under which the test embeddings alone give the query results
DIGITS = 2


class Queries(NamedTuple):
    """Query results of one run: class and file of each query `(N,)` (`files` None if unknown), values by name,
    measurement's flags.
    """

    classes: np.ndarray
    files: np.ndarray | None
    values: dict[str, np.ndarray]
    flags: dict

    def same(self, other: "Queries") -> bool:
        """Whether the queries are the same images, in whatever folder."""
        files = self.files is None or other.files is None or np.array_equal(self.files, other.files)
        return files and np.array_equal(self.classes, other.classes)


class Method(NamedTuple):
    """A group's runs that have query results: `outcomes` by name of value, and the queries of one of the runs."""

    group: Group
    outcomes: dict[str, bootstrap.Outcomes]
    queries: Queries


def add(parts: dict[str, list[Table]], of: dict[str, list[Group]], asked: list[list[str]]) -> list[str]:
    """Append to each data set's tables one of the pairs `asked` (names of groups), else of each group and the best one.
    Returns notes.

    Raises UserError where a requested pair is missing or cannot be compared.
    """
    lines = []
    left = {tuple(pair) for pair in asked}
    for dataset, found in of.items():
        names = {group.name for group in found}
        here = [pair for pair in asked if set(pair) <= names]
        left -= {tuple(pair) for pair in here}
        if asked and not here:
            continue
        wanted = [group for group in found if not asked or any(group.name in pair for pair in here)]
        methods, why = of_groups(wanted)
        lines += [f"{dataset}: {line}" for line in why]
        pairs = (
            [tuple(_asked(methods, name, why) for name in pair) for pair in here]
            if asked
            else _beside_best(found, methods)
        )
        if pairs:
            parts[dataset].append(table(dataset, pairs, must=bool(asked)))
    for pair in left:
        known = sorted({group.name for found in of.values() for group in found})
        missing = [name for name in pair if name not in known]
        if missing:
            raise unknown("group", missing[0], known)
        raise UserError(f"--paired {' '.join(pair)}: no data set has runs of both groups")
    return lines


def _asked(methods: dict[str, Method], name: str, why: list[str]) -> Method:
    if name not in methods:
        reason = next(
            (line for line in why if line.startswith(f"{name} ")), f"{name} has no run that counts and has such a file"
        )
        raise UserError(
            f"--paired: {reason}; main.py --evaluate --resume_from RUN --dump_query_results writes "
            "query_results_test.npz"
        )
    return methods[name]


def _beside_best(found: list[Group], methods: dict[str, Method]) -> list[tuple[Method, Method]]:
    """Each group paired with that of the highest R@1 among those it may be ranked with; groups of several seeds go
    before those of one.
    """
    pairs = []
    for members in groups.pools(found, SELECTED).values():
        there = sorted((methods[g.name] for g in members if g.name in methods), key=_rank)
        pairs += [(there[0], other) for other in there[1:] if there[0].queries.same(other.queries)]
    return pairs


def _rank(method: Method) -> tuple:
    means = method.outcomes["hit"].means
    return len(means) < 2, -means.mean()


def of_groups(found: list[Group]) -> tuple[dict[str, Method], list[str]]:
    """Group -> the query results of its runs, where these have files of them; and notes on seeds that cannot be
    compared.
    """
    methods = {}
    notes = []
    for group in found:
        seeds = []
        for seed, runs in group.seeds.items():
            try:
                with parsing(f"{group.name}, seed {seed}"):
                    read = [one for one in map(of_run, runs) if one is not None]
                    if read and (
                        len(read) < len(runs)
                        or not all(read[0].same(one) for one in (*read, *(other[0] for other in seeds)))
                    ):
                        raise ValueError(
                            "its queries are not those of the other runs"
                            if len(read) == len(runs)
                            else "a fold has no such file"
                        )
            except UserError as error:
                why = getattr(error, "reason", None) or in_one_line(error, 200)
                notes.append(f"{group.name} is not compared query by query with seed {seed}: {why}")
                continue
            seeds += [read] if read else []
        if seeds:
            methods[group.name] = _method(group, seeds)
    return methods, notes


def _method(group: Group, seeds: list[list[Queries]]) -> Method:
    """The outcomes of a group; a seed's values are the means over its folds."""
    first = seeds[0][0]
    classes = np.unique(first.classes, return_inverse=True)[1].reshape(-1)
    values = {name: [np.mean([fold.values[name] for fold in folds], axis=0) for folds in seeds] for name in MEASURED}
    return Method(
        group, {name: bootstrap.class_outcomes(of_seeds, classes) for name, of_seeds in values.items()}, first
    )


def of_run(run: RecordedRun) -> Queries | None:
    """The query results of a run on test; None where it has no file of them.

    Raises ValueError where the file is of another epoch than the selected one, or has embeddings that do not suffice.
    """
    evaltypes = run.flags.get("evaltypes") or ["discriminative"]
    ending = f"_{SPLIT}.npz" if len(evaltypes) == 1 else f"_{SPLIT}_{evaltypes[0]}.npz"
    path = next(
        (
            p
            for kind in (WRITTEN, EMBEDDED)
            if "://" not in run.where and (p := Path(run.where) / (kind + ending)).exists()
        ),
        None,
    )
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as file:
        names = set(file.files)
        flags = json.loads(str(file["flags"])) if "flags" in names else {}
        epoch = int(file["epoch"]) if "epoch" in names else None
        selected = columns.epoch(run, SELECTED)
        if epoch is not None and np.isfinite(selected) and epoch != selected:
            raise ValueError(f"{run.name}/{path.name} is of epoch {epoch}, the selected one is {selected:g}")
        if set(MEASURED) <= names:
            values = {name: file[name].astype(np.float64) for name in MEASURED}
        else:
            unlike = [f"--{flag} {flags[flag]}" for flag, value in PLAIN.items() if flags.get(flag, value) != value]
            unlike += [f"images with {name}" for name in (*ROLES, *LISTS) if name in names]
            if unlike:
                raise ValueError(
                    f"{run.name}/{path.name} is of {', '.join(unlike)}: --dump_query_results knows what its "
                    "queries found there"
                )
            found = metrics.query_results(metrics.EmbeddingSpace(file["features"], file["labels"]))
            values = {name: found[name].astype(np.float64) for name in MEASURED}
        if flags.get("eval_skip_unmatched"):  # files hold no hit for queries without a match
            values["hit"][np.isnan(values["ap_at_r"])] = np.nan
        files = np.array([Path(one).name for one in file["paths"].tolist()]) if "paths" in names else None
        classes = next(
            (file[name] for name in ("class_names", "labels") if name in names), np.arange(len(values["hit"]))
        )  # without classes, each its own
        return Queries(classes, files, values, flags)


def table(dataset: str, pairs: list[tuple[Method, Method]], must: bool = False) -> Table:
    """Differences of pairs of methods with the paired interval and Welch's. `must`: the user asked for these pairs.

    Raises UserError for a pair whose queries differ.
    """
    ends = [f"{title} paired {end}" for title in MEASURED.values() for end in ("low", "high")]
    heads = [
        head
        for title in MEASURED.values()
        for head in (f"{title} difference [%]", f"{title} paired 95 %", f"{title} Welch 95 %")
    ]
    made = Table(
        f"{dataset}_paired",
        f"{dataset}: differences, query by query",
        ["group", "minus", "seeds", *heads, *ends],
        apart=set(ends),
    )
    drawn = _drawn([method for pair in pairs for method in pair])
    for first, second in pairs:
        if not first.queries.same(second.queries):
            raise UserError(
                f"--paired {first.group.name} {second.group.name}: their test images differ, they have no queries "
                "in common"
            )
        shown = []
        bounds = []
        for name in MEASURED:
            ours = first.outcomes[name]
            theirs = second.outcomes[name]
            found = bootstrap.difference(ours, theirs, (drawn[first.group.name, name], drawn[second.group.name, name]))
            estimates = [inference.estimate(100 * one.means) for one in (ours, theirs)]
            welch = inference.difference(*estimates)
            interval = (100 * found.low, 100 * found.high)
            shown += [Cell(100 * found.value, digits=DIGITS, sign=True), text(_bounds(interval)), text(_bounds(welch))]
            bounds += [Cell(bound, digits=DIGITS, sign=True) for bound in interval]
        counts = [len(method.outcomes["hit"].sums) for method in (first, second)]
        made.add(
            [text(first.group.name), text(second.group.name), text(" / ".join(map(str, counts))), *shown, *bounds],
            _remarks(first, second),
        )
    found = list({method.group.name: method.group for pair in pairs for method in pair}.values())
    by_part = any(
        one.queries.flags.get("tester") == "same_parent_label" or any(columns.recorded(one.group.counted).values())
        for pair in pairs
        for one in pair
    )
    made.notes = [
        *["R@1 and MAP@R here are means over all queries, in the other tables over super-classes or domains."]
        * by_part,
        f"Paired 95 %: interval of the difference by {bootstrap.DRAWS:,} draws of classes, the same for both methods, "
        "and of each method's seeds inside "
        "them; what the seeds add is their variance without that of classes and queries, with Student's t for few of "
        "them (results/bootstrap.py). "
        "It speaks of further classes like these and of further seeds. Welch 95 %: of further seeds on these very "
        "queries, both methods by themselves.",
        "An interval on one side of 0 is a difference at 5 % for one pair alone: of many pairs some are so by chance.",
        *[
            (
                "Of each part that may be ranked, the group with the highest R@1 beside each other one. --paired "
                "GROUP_A GROUP_B: these two."
            )
        ]
        * (not must),
        f"Epochs: selected epoch; {notes.rules(found)}.",
        *notes.shared_settings(found),
    ]
    return made


def _drawn(methods: list[Method]) -> dict[tuple[str, str], np.ndarray]:
    """(group, value) -> `bootstrap.drawn_means`; methods with the same queries share the draws."""
    drawn = {}
    left = list({method.group.name: method for method in methods}.values())
    while left:
        alike = [method for method in left if method.queries.same(left[0].queries)]
        left = [method for method in left if not any(method is one for one in alike)]
        for name in MEASURED:  # values share the draws, too: same random seed, same classes except those of one image
            found = bootstrap.drawn_means([method.outcomes[name] for method in alike])
            drawn |= {(method.group.name, name): means for method, means in zip(alike, found, strict=True)}
    return drawn


def _bounds(interval: tuple[float, float] | None) -> str:
    return f"[{', '.join(f'{bound:+.{DIGITS}f}' for bound in interval)}]" if interval else "-"


def _remarks(first: Method, second: Method) -> list[str]:
    """Remarks on a pair: a method has one seed only, or the two were measured with different flags."""
    alone = [method.group.name for method in (first, second) if len(method.outcomes["hit"].sums) < 2]
    ours, theirs = (roles.measured(method.queries.flags) for method in (first, second))
    differing = [
        f"--{flag} {ours[flag]} and {theirs[flag]}"
        for flag in sorted(set(ours) & set(theirs))
        if ours[flag] != theirs[flag]
    ]
    counts = {method.group: len(method.outcomes["hit"].sums) for method in (first, second)}
    remarks = [
        f"{group.name}: {count} of {count_of(len(group.seeds), 'seed')} have query results"
        for group, count in counts.items()
        if count < len(group.seeds)
    ]
    remarks += (
        [f"of {' and '.join(alone)} there is one seed: the interval does not hold what another seed would change"]
        if alone
        else []
    )
    remarks += [f"measured differently: {', '.join(differing)}"] if differing else []
    chosen = [columns.selection_split(method.group.counted[0]) for method in (first, second)]
    remarks += [f"epochs chosen on {' and on '.join(chosen)}: not to be ranked with each other"] * (
        chosen[0] != chosen[1]
    )
    return remarks + [
        f"{method.group.name}: {remark}" for method in (first, second) for remark in method.group.own_remarks
    ]
