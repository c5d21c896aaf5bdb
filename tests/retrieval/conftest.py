"""Small finished runs, made once."""

import pytest

import main
import parameters
from tests import builders


def train(data, place, *more):
    """A run of one short epoch on images resized to 40, cropped to 36 pixels. Returns the `Run`."""
    words = [
        "--dataset", "folder", "--dataset_folder_path", str(data), *builders.SHORT_RUN, "--resize_size", "40", "--crop_size", "36",
        "--n_epochs", "1", "--save_path", str(place), "--group", "Tiny", *more,
    ]  # fmt: skip
    return main.main(parameters.read(words))


@pytest.fixture(scope="session")
def run(folder_data, tmp_path_factory):
    """The folder of a run on `folder_data`."""
    patch = pytest.MonkeyPatch()
    patch.setattr(main.outputs, "of_best_epoch", lambda run, embedded: None)
    try:
        return train(folder_data, tmp_path_factory.mktemp("runs"), "--seed", "0").folder
    finally:
        patch.undo()
