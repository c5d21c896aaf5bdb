"""Domains in files of embeddings: `python -m evaluation FILE` gives the numbers of the evaluation that wrote it."""

import numpy as np
import pytest

import datasets
import evaluation
import parameters
from engine.runtime import Runtime
from evaluation import __main__ as program
from evaluation import from_splits, outputs
from tests.datasets.test_domains import embedded_of, make_union, small_uned  # noqa: F401
from tests.kit.refusals import refused

NAMES = ["e_recall@1", "map@5", "nmi"]


@pytest.mark.parametrize("dataset", ["union", "uned"])
def test_a_file_gives_the_numbers_of_its_evaluation(tmp_path, small_uned, dataset):  # noqa: F811
    flags = {}
    words = []
    if dataset == "union":
        flags["union"] = make_union(tmp_path)
        words = ["--union", *flags["union"]]
    testing = datasets.select(dataset, None, small_uned.parent, 8, allow_partial_dataset=True, **flags)["testing"]
    if dataset == "uned":
        # a file's labels are one a row
        testing.further_labels = {}
    opt = parameters.read(["--dataset", dataset, *words, "--evaluation_metrics", *NAMES])
    embedded = embedded_of(testing)
    expected = evaluation.score({"test": embedded}, opt, Runtime(opt))["test"]
    (path,) = outputs.dump(tmp_path, {"test": embedded}, opt)
    results = program.main([str(path), "--evaluation_metrics", *NAMES])
    assert results == pytest.approx(expected) and len(results) > len(NAMES) * 3
    halves = [dict(np.load(path)) for _ in range(2)]
    keep = from_splits.domains_of(embedded) != ""
    for name, arrays in zip(("queries", "index"), halves, strict=True):
        arrays = {key: array[keep] if array.shape[:1] == keep.shape else array for key, array in arrays.items()}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    searched = program.main(
        [str(tmp_path / "queries.npz"), "--gallery", str(tmp_path / "index.npz"), "--evaluation_metrics", *NAMES[:2]]
    )
    assert searched == pytest.approx({name: value for name, value in expected.items() if not name.endswith("nmi")})
    np.savez(path, **{**np.load(path), "domains": np.array(["a"])})
    with refused("domains has shape .1,.: "):
        program.main([str(path)])
