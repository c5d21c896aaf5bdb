"""Search over flags: ranges (space), the resolved command (plan), its comparison with an earlier start (settings).

The study that several processes share is in `study`, its trials in `trials`; `tables` and `report` write the files of a
search, `files` reads them. Imports neither the parser nor the main job: search/__main__.py passes both in.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
