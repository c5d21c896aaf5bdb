"""What tests of several files start."""

from tests.kit.launches import stand_in  # noqa: F401  a fixture
