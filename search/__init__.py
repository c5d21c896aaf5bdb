"""Search over flags: ranges (space), the resolved command (plan), its comparison with an earlier start (settings), the
study that several processes share (study), trials, what a search writes (tables, report) and reads (files).

Imports neither the parser nor the main job: search/__main__.py passes both in.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
