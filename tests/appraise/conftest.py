"""An appraisal of made photographs with planted faults, by a small network without training."""

import pytest

from appraise import __main__ as appraise
from tests.kit.photographs import make_photographs, plant_faults
from tests.kit.runs import words_of

SMALL = "--archs conv4 --resize_size 32 --crop_size 32 --kernels 0 --eval_kernels 0 --budget 100 --tune no"


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """A folder of 21 classes."""
    folder = make_photographs(tmp_path_factory.mktemp("faulty") / "photographs", n_classes=20, n_images=3)
    plant_faults(folder)
    return folder


@pytest.fixture(scope="session")
def appraisal(photographs, tmp_path_factory):
    """The folder of a finished appraisal."""
    folder = tmp_path_factory.mktemp("appraised") / "out"
    appraise.main(words_of(photographs, "--out", folder, SMALL))
    return folder
