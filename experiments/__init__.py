"""Published experiments to run again, and studies of our own."""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported
