"""`python -m evaluation FEATURES.npy --labels LABELS.npy`: the numbers of the same arrays in .npz files, read through memory maps."""

import numpy as np
import pytest

import metrics
from evaluation import __main__ as command
from tests.builders import refused
from tests.metrics._plain import random_space

NAMES = ["e_recall@1", "map_r", "c_map_r", "mAP", "dists@intra", "rho_spectrum@1", "nmi"]


@pytest.fixture
def saved(tmp_path):
    """Writes features and labels as .npy and as .npz; returns what names the two on the command line."""

    def save(name, features, labels):
        np.save(tmp_path / f"{name}.npy", features), np.save(tmp_path / f"{name}_labels.npy", labels)
        np.savez(tmp_path / f"{name}.npz", features=features, labels=labels)
        return (str(tmp_path / f"{name}.npy"), str(tmp_path / f"{name}_labels.npy")), str(tmp_path / f"{name}.npz")

    return save


def same(one, other):
    assert list(one) == list(other) == NAMES
    for name in NAMES:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_one_file(saved, dtype, capsys, tmp_path):
    features, labels = random_space(n=90, classes=6, spread=0.4, seed=2)
    (file, file_labels), packed = saved("all", features.astype(dtype), np.array([f"class {label}" for label in labels]))
    found = command.main([file, "--labels", file_labels, "--evaluation_metrics", *NAMES, "--dump_query_results", str(tmp_path / "q.npz")])
    assert "90 embeddings of" in capsys.readouterr().out
    same(found, command.main([packed, "--evaluation_metrics", *NAMES]))
    assert np.load(tmp_path / "q.npz")["hit"].mean() == found["e_recall@1"]


@pytest.mark.parametrize("of_queries", ["npy", "npz"])
@pytest.mark.parametrize("of_gallery", ["npy", "npz"])
def test_a_gallery(saved, of_queries, of_gallery, capsys):
    features, labels = random_space(n=120, classes=6, spread=0.4, seed=2)
    (queries, query_labels), packed = saved("queries", features[:30], labels[:30])
    (gallery, gallery_labels), packed_gallery = saved("gallery", features[30:], labels[30:])
    argv = [queries, "--labels", query_labels] if of_queries == "npy" else [packed]
    argv += ["--gallery", gallery, "--gallery_labels", gallery_labels] if of_gallery == "npy" else ["--gallery", packed_gallery]
    found = command.main([*argv, "--evaluation_metrics", *NAMES])
    said = capsys.readouterr().out
    same(found, command.main([packed, "--gallery", packed_gallery, "--evaluation_metrics", *NAMES]))
    assert said.split("embeddings")[1] == capsys.readouterr().out.split("embeddings")[1]


def test_a_file_in_itself_as_gallery_finds_no_query_itself(saved):
    features, labels = random_space(n=60, classes=6, spread=0.4, seed=2)
    (file, file_labels), packed = saved("all", features, labels)
    argv = [file, "--labels", file_labels, "--gallery", file, "--gallery_labels", file_labels, "--evaluation_metrics", *NAMES]
    same(command.main(argv), metrics.compute(NAMES, features, labels, seed=1))


def test_what_is_refused(saved, tmp_path):
    features, labels = random_space(n=60, classes=6)
    (file, file_labels), packed = saved("all", features, labels)
    np.save(tmp_path / "short.npy", labels[:50])
    np.save(tmp_path / "objects.npy", np.array([1, None], dtype=object))
    for argv, words in (
        ([file], "one array, the features: name the .npy file of their labels by --labels"),
        ([file, "--labels", packed], f"by --labels, not {packed}"),
        ([file, "--labels", str(tmp_path / "absent.npy")], "absent.npy: no such file"),
        ([file, "--labels", str(tmp_path / "short.npy")], "labels have shape (50,)"),
        ([str(tmp_path / "objects.npy"), "--labels", file_labels], "nor an .npy file"),
        ([packed, "--labels", file_labels], "holds its labels itself, leave it out"),
        ([packed, "--gallery", file], "by --gallery_labels"),
        ([packed, "--gallery", packed, "--gallery_labels", file_labels], "--gallery_labels"),
        ([packed, "--gallery_labels", file_labels], "there is no --gallery"),
        ([str(tmp_path), "--outliers", "--labels", file_labels], "leave out --labels"),
    ):
        with refused(None, words):
            command.main(argv)
