"""What a finished run is used for: search own images, export, explore, document. `python -m retrieval --help`."""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
