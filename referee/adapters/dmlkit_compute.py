"""dmlkit, metrics.compute: `metrics.compute` of arrays of features, labels, sequences; lists where a case has lists."""

import numpy as np

from referee.adapters import _dmlkit

PROGRAM = "dmlkit"
PACKAGES = ()
SETTINGS = {}


def measure(case: dict) -> dict:
    """Distractors have a class that no query has."""
    import metrics

    names = _dmlkit.names_of(case)
    if not names:
        return {}
    settings = {}
    query_sequences, reference_sequences = _dmlkit.sequences_of(case)
    if _dmlkit.is_by_lists(case):
        settings["lists"] = metrics.Lists.of(*_dmlkit.lists_of(case))
        labels = reference_labels = None
    else:
        labels, reference_labels = _dmlkit.labels_of(case, distractor="no class")
    if "gallery" in case:
        settings |= {"reference": case["gallery_features"], "reference_labels": reference_labels}
        settings |= _dmlkit.own_rows_of(case)
    if query_sequences is not None:
        settings |= {"query_sequences": query_sequences, "reference_sequences": reference_sequences}
    if "clusters" in case:
        settings["clusters"] = np.array(case["clusters"])
    settings = {name: value for name, value in settings.items() if value is not None}
    values = metrics.compute(list(names.values()), case["query_features"], labels, **settings)
    return _dmlkit.results(case, names, values)
