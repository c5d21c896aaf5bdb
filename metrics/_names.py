"""Names of metrics: what a name means, and what is true of the metric that it means.

`parse` finds the metric among those that the files of this folder declare. The other functions answer questions about a
name: its direction, its range, whether it searches, what labels it needs.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from metrics._metric import Metric, RetrievalMetric
from utilities.errors import UserError
from utilities.registry import Registry, unknown

REGISTRY = Registry("metrics", "metric")
LEVEL = re.compile(r"(.*)_level(0|[1-9][0-9]{0,8})")
# in place of a parameter of more than 18 digits: beyond any reference, within 64 bits
FARTHEST = 2**62


class Parameter(NamedTuple):
    """The parameter after the @ of a name declared as `<head>@<kind>`:
    pattern, rule as text, example, conversion to a number.
    """

    pattern: str
    rule: str
    example: str
    number: Callable = float


def _whole(text: str) -> int:
    if len(text) > 18:
        return int(math.copysign(FARTHEST, float(text)))
    return int(text)


PARAMETERS = {
    "k": Parameter(r"[1-9][0-9]*", "k is a whole number of at least 1", "1", _whole),
    "m": Parameter(r"0|-?[1-9][0-9]*", "m is a whole number", "2", _whole),
    "fmr": Parameter(r"0?\.[0-9]*[1-9][0-9]*", "fmr is a number above 0 and below 1", ".01"),
    "p": Parameter(r"0?\.[0-9]*[1-9][0-9]*|1", "p is a number above 0, at most 1", ".95"),
    "far": Parameter(r"0?\.[0-9]+|0|1", "far is a number from 0 to 1", ".01"),
}


class Parsed(NamedTuple):
    """A metric, on normalised features or not, averaged over classes or not, on a prefix of the features or all."""

    metric: Metric
    cosine: bool
    macro: bool
    # dimensions of the features that it sees; None: all
    prefix: int | None = None


def declared_classes() -> dict[str, type]:
    """Name -> class, of all files. Read anew each time, so that a new file is seen; modules are imported once."""
    classes = {}
    for module in REGISTRY.modules().values():
        classes.update(dict.fromkeys(module.Metric.NAMES, module.Metric))
    return classes


def _cosine_name(name: str) -> str:
    """The name of the c_ variant; of `e_recall` it is `c_recall`."""
    return "c_" + re.sub("^e_recall", "recall", name)


def _kind(name: str) -> tuple[str, str, str] | None:
    """(head, kind of parameter, suffix) of a declared name that takes a parameter, as `e_recall@k_worst10`;
    None of any other.
    """
    head, _, parameter = name.partition("@")
    kind, underscore, suffix = parameter.partition("_")
    if kind not in PARAMETERS:
        return None
    return head, kind, underscore + suffix


def parse(name: str) -> Parsed:
    """The metric that a name means. Raises UnknownName or UserError; see `check`."""
    of_prefix = re.fullmatch(r"([^@]+(?:@[^@d][^@]*)?)@d([1-9][0-9]{0,8})", str(name))
    if of_prefix:
        return parse(of_prefix[1])._replace(prefix=int(of_prefix[2]))
    declared = declared_classes()
    # name with or without c_ -> the declared name
    plain = {}
    for declared_name, metric_class in declared.items():
        if "cosine" in metric_class.VARIANTS:
            plain[_cosine_name(declared_name)] = declared_name
    plain |= {declared_name: declared_name for declared_name in declared}
    macro = str(name).endswith("_macro")
    base = str(name).removesuffix("_macro")
    of_level = LEVEL.fullmatch(base)
    level = None
    if of_level:
        base, level = of_level.groups()
    declared_name, number = _known(name, base, plain)
    metric_class = declared[plain[declared_name]]
    if macro and "macro" not in metric_class.VARIANTS:
        raise UserError(f"metric {name!r}: only retrieval metrics have a _macro variant; use {base!r}.")
    metric = metric_class(plain[declared_name], number)
    if level is not None:
        if "level" not in metric.VARIANTS:
            raise UserError(f"metric {name!r} has no variant for one level; use {base!r}.")
        metric.column = int(level)
    return Parsed(metric, declared_name not in declared, macro)


def _known(name: str, base: str, names: dict) -> tuple[str, float | None]:
    """Which of the names `base` is, and its parameter, None if it takes none.
    Raises UnknownName or UserError, which show `name`.
    """
    head, at, parameter = base.partition("@")
    if base in names and _kind(base) is None:
        return base, None
    declared_name = _taking(head, parameter, names)
    if declared_name is not None:
        return declared_name, _parameter_of(name, declared_name, parameter)
    if at and head in names:
        raise UserError(f"metric {name!r} is ill-formed: {head} has no parameter; use {head!r}.")
    raise unknown("metric", name, names)


def _taking(head: str, parameter: str, names) -> str | None:
    """Which of the names, as `e_recall@k_worst10`, a head with a parameter means: that of the longest suffix."""
    suffixes = {}
    for declared_name in names:
        kind = _kind(declared_name)
        if kind and kind[0] == head and parameter.endswith(kind[2]):
            suffixes[declared_name] = kind[2]
    return max(suffixes, key=lambda declared_name: len(suffixes[declared_name]), default=None)


def _parameter_of(name: str, declared_name: str, text: str):
    """The number that the text after the @ is to the name `known`. Raises UserError for anything else."""
    head, kind, suffix = _kind(declared_name)
    allowed = PARAMETERS[kind]
    text = text.removesuffix(suffix)
    if not re.fullmatch(allowed.pattern, text):
        example = f"{head}@{allowed.example}{suffix}"
        raise UserError(f"metric {name!r} is ill-formed: in {declared_name}, {allowed.rule}, for example {example}.")
    return allowed.number(text)


def check(name: str) -> None:
    """Raise UnknownName for a metric that does not exist (the nearest one is named),
    UserError for an ill-formed name.
    """
    parse(name)


def at_prefixes(names: list[str], prefixes) -> list[str]:
    """The names, and each of them on each of the prefixes, whole numbers of dimensions."""
    full_width = [name for name in names if parse(name).prefix is None]
    all_names = list(names)
    for width in prefixes:
        all_names += [f"{name}@d{width}" for name in full_width]
    return list(dict.fromkeys(all_names))


def check_width(names, width: int) -> None:
    """Raise UserError for the first of the names that is of more dimensions than features of `width` have."""
    for name in names:
        if (parse(name).prefix or 0) > width:
            raise UserError(f"metric {name!r}: the embeddings have {width} dimensions, take at most @d{width}")


def higher_is_better(name: str) -> bool:
    """Direction of a metric, which selects the best epoch."""
    return parse(name).metric.higher_is_better


def is_share(name: str) -> bool:
    """Whether all values of a metric lie between 0 and 1, so that it can be printed in percent."""
    low, high = parse(name).metric.range
    return low >= 0 and high <= 1


def is_array(name: str) -> bool:
    """Whether a metric is an array (`rho_spectrum@0`) and not one number."""
    return parse(name).metric.is_array


def searches(name: str) -> bool:
    """Whether a metric looks at neighbours in the reference; the others look at the queries alone."""
    return parse(name).metric.SEARCHES


def needs_unknown(name: str) -> bool:
    """Whether a metric is NaN unless some query has nothing to find."""
    return parse(name).metric.needs_unknown


def why_undefined(name: str) -> str:
    """Why a metric is NaN, where it is."""
    return parse(name).metric.UNDEFINED


def refuse_reranked(names, flag: str) -> None:
    """Raise UserError for the first of the names that goes by distances, which re-ranked lists do not have.
    `flag`: what re-ranks.
    """
    for name in names:
        if not parse(name).metric.TAKES_RERANKED:
            raise UserError(f"metric {name!r} goes by distances, which {flag} does not give: leave one of them out")


def is_mean_of_queries(name: str) -> bool:
    """Whether a metric is the mean over queries of values from 0 to 1, not over classes or a part of them."""
    parsed = parse(name)
    plain_mean = type(parsed.metric).value is RetrievalMetric.value and not parsed.macro
    return plain_mean and parsed.metric.range == (0.0, 1.0)


def needs_groups(name: str) -> bool:
    """Whether a metric compares super-classes, and so needs `groups`."""
    return parse(name).metric.NEEDS_GROUPS


def column_of(name: str) -> int | None:
    """The column of labels `(N, L)` by which a metric goes, 0 the finest; None: all of them."""
    return parse(name).metric.column


def needs_levels(name: str) -> bool:
    """Whether a metric needs labels `(N, L)`."""
    return parse(name).metric.needs_levels


def check_levels(names, n_levels: int, subject: str = "labels") -> None:
    """Raise UserError for the first of the names that needs more than `n_levels` levels.
    `subject`: what has these, in the message.
    """
    for name in filter(needs_levels, names):
        column = column_of(name)
        if n_levels < 2 or (column or 0) >= n_levels:
            levels = "a single level"
            if n_levels > 1:
                levels = f"the levels 0 to {n_levels - 1}"
            raise UserError(
                f"metric {name!r} compares levels of classes, and {subject} have {levels}: leave it out, or give "
                "labels of more"
            )


def refuse_class_wise(names) -> None:
    """Raise UserError for the first of the names that needs the classes of samples: there are lists of what queries are
    to find, and no labels.
    """
    for name in names:
        parsed = parse(name)
        if parsed.metric.CLASS_WISE or parsed.macro:
            raise UserError(
                f"metric {name!r} is of classes, and there are lists without labels: leave it out, or give labels."
            )


def group(name: str) -> str:
    """The group in which a metric is logged: its name before the `@`."""
    return name.partition("@")[0]


def listing() -> list[tuple[str, str]]:
    """(name, caption with range and direction) of all metrics, for `--list metrics`."""
    rows = []
    for name, metric_class in sorted(declared_classes().items()):
        parameter = 1 if _kind(name) else None
        metric = metric_class(name, parameter)
        low, high = metric.range
        direction = "higher is better" if metric.higher_is_better else "lower is better"
        caption = f"{metric.NAMES[name]} [{low:g}, {high:g}], {direction}"
        variants = []
        if "cosine" in metric.VARIANTS:
            variants.append(_cosine_name(name))
        if "macro" in metric.VARIANTS:
            variants.append(f"{name}_macro")
        if "level" in metric.VARIANTS:
            variants.append(f"{name}_level1")
        if variants:
            caption += f"; also {', '.join(variants)}"
        rows.append((name, caption))
    return rows
