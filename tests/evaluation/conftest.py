"""One finished run for all tests of this folder: with pictures, embeddings, query results, two centres per class."""

import shutil

import pytest

import main
import parameters
from evaluation import outputs
from tests.kit.runs import on_folder


@pytest.fixture(scope="session")
def finished(folder_data, tmp_path_factory, drawing):
    """The original of `run`: to be read only."""
    words = (
        "--arch conv4_normalize --embed_dim 16 --loss subcenter_arcface --loss_subcenter_arcface_n_centers 2 "
        "--bs 8 --n_epochs 1 --kernels 0 --evaluation_metrics e_recall@1 map_r nmi rho_spectrum@0 --lr 0.001 "
        "--group Again --seed 3 --dump_embeddings --dump_query_results --eval_size_of_tsne 12"
    ).split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "draw_pictures", drawing[outputs, "draw_pictures"])
        patch.setattr(outputs, "draw_curves", lambda *arguments: None)
        # each tile takes time
        patch.setattr(outputs, "NEIGHBOURS", 2)
        return main.main(parameters.read(on_folder(folder_data, tmp_path_factory.mktemp("runs"), *words))).folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy of the run's folder, which evaluations add files to."""
    return shutil.copytree(finished, tmp_path / "runs" / finished.parent.name / finished.name)
