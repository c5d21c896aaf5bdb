"""Names of metrics in files: `e_recall@1`, with several evaltypes `<evaltype>/e_recall@1`.

A domain or a protocol that has a value
of its own stands before the metric: `<domain>/e_recall@1`, `<evaltype>/<domain>/e_recall@1`.
"""


def named(evaltype: str, metric: str, evaltypes: list[str]) -> str:
    """The metric's name in files: plain with one evaltype, `<evaltype>/<metric>` with several."""
    return metric if len(evaltypes) == 1 else f"{evaltype}/{metric}"


def split_name(name: str) -> tuple[str, str]:
    """The part before the metric's own name, without its slash, and that name."""
    prefix, _, metric = name.rpartition("/")
    return prefix, metric


def plain(name: str) -> str:
    """The metric's own name."""
    return split_name(name)[1]


def domain_of(name: str) -> str | None:
    """The domain of a metric that may come one a domain: the part of its name before the metric's own."""
    return plain(split_name(name)[0]) or None


def mean_of(name: str) -> str | None:
    """The name of the mean over domains, where `name` is of one: without the domain; None if it has none."""
    prefix, metric = split_name(name)
    if not prefix:
        return None
    evaltype = split_name(prefix)[0]
    return f"{evaltype}/{metric}" if evaltype else metric
