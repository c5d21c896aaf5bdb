"""dmlkit, lists: `metrics.compute` by what is relevant and what is junk for each query, no labels."""

from referee.adapters import _dmlkit
from referee.adapters._inputs import searches_itself

PROGRAM = "dmlkit: lists"
PACKAGES = ()
SETTINGS = {}
BY_LABELS = ("ndcg", "tar", "gap", "nmi", "ami")


def measure(case: dict) -> dict:
    """Not for measures of pairs, levels and clusterings, which need labels."""
    import metrics

    names = _dmlkit.names_of(case)
    for measure in case["measures"]:
        if measure.partition("@")[0] in BY_LABELS:
            names.pop(measure, None)
    if not names or case["axis"] in ("labels", "levels"):
        return {}
    settings = {"lists": metrics.Lists.of(*_dmlkit.lists_of(case))}
    if not searches_itself(case):
        settings |= _dmlkit.own_rows_of(case) | {"reference": case["gallery_features"]}
    values = metrics.compute(list(names.values()), case["query_features"], **settings)
    return _dmlkit.results(case, names, values, True)
