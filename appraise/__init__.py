"""From a folder of photographs to one page: `python -m appraise PHOTOS --out FOLDER`.

Nine steps, each with its result in `FOLDER/<step>.json` (`steps.py`): the same command continues after the last step
that is whole. `photographs.py` looks at the files, finds near-duplicates and splits the classes, `networks.py` measures
frozen, adapted and trained networks, `decision.py` chooses one and finds a threshold, `page.py` writes `index.html`.
Metrics, intervals, adapters and training are those of the other folders; nothing is computed a second way.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
