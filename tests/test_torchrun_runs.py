"""Whole runs, folds and searches of two processes are those of one: values, folders, meta results, trials; but for one
run in `make test-long`.
"""

import json

import numpy as np
import pytest
from torch.utils._pytree import tree_flatten

from tests import test_torchrun
from tests.kit import processes
from tests.kit.processes import spawned
from tests.kit.runs import content_of, last_checkpoint, recorded_values, rows_of
from tests.test_torchrun import assert_near_runs, one_thread  # noqa: F401  a fixture

FOLDS = "--split_scheme class_disjoint --split_partitions 3 --split_sets 3"
APART = f"{FOLDS} --savename Apart"
AT_WORK = "--chunk_size 3 --ema_decay .5 --loss contrastive --memory_size 40 --memory_start 1 --memory_ema .5"
SEARCH = (
    "--use_tv_split --tv_split_perc 0.5 --group Found --lr~CHOICE~ [1e6,1e-3] --loss_margin_margin~BAYESIAN~ [0,1] "
    "--bayesian_optimization_n_iter 6 --reproductions 1"
)
FURTHER_RUNS = {
    "Rests": "--freeze_backbone --feature_cache --augmentation none --arch conv4_normalize",
    "Triplets": "--loss triplet --batch_mining packaged --data_sampler fixed_triplets --bs 15",
    "Subsets": "--subset_mining maximum_loss --subset_size 6 --batch_mining random",
    "Chosen": "--data_sampler greedy_coreset --data_batchmatch_bigbs 28",
    "Adversarial": "--trainer adversarial --chunk_size 4",
}


def common(data, folder, *flags):
    return test_torchrun.words(data, folder, "--n_epochs 1 --seed 3", *flags)


def runs(data, folder, flags_by_name):
    cache = f"--image_cache {folder}/cache --savename"
    return [("main.py", common(data, folder, flags, cache, name)) for name, flags in flags_by_name.items()]


def write_guide(data, folder):
    """Features of all images, for --guide."""
    paths = sorted(str(path) for path in data.rglob("*.*"))
    features = np.random.default_rng(5).random((len(paths), 3))
    np.savez(folder / "guide.npz", features=features, paths=paths)


def searched(data, folder):
    words = common(data, folder, SEARCH)
    del words[words.index("--lr") : words.index("--lr") + 2]
    return ("search", words)


def further_commands(data, folder):
    """Program and words of what is run, under `folder`."""
    jobs = [
        common(data, folder, FOLDS, "--savename Folds --final_test --dump_embeddings"),
        common(data, folder, APART, "--folds 2 0"),
        common(data, folder, APART, "--n_epochs 2 --resume --resume_allow_changes --check_untrained_accuracy"),
        f"--evaluate --resume_from {folder}/folder/Folds --splits_to_eval val --eval_kernels 0".split(),
        f"--reproduce_results {folder}/folder/Apart --savename Again".split(),
        f"--evaluate_ensemble --resume_from {folder}/folder/Again".split(),
    ]
    compatible = f"--trainer compatible --compatible_with {folder}/folder/Subsets --compatible_form points"
    taught = f"--teacher {folder}/folder/Subsets --distill rkd_angle regression"
    guided = f"--guide {folder}/guide.npz --guide_margin .1 --loss ntxent --memory_size 40 --memory_start 1"
    write_guide(data, folder)
    later_runs = {
        "Half": f"{AT_WORK} --precision bfloat16",
        "Compatible": compatible,
        "Taught": taught,
        "Guided": guided,
    }
    named_runs = runs(data, folder, FURTHER_RUNS | later_runs)
    return [*(("main.py", words) for words in jobs), *named_runs, searched(data, folder)]


def run_both(data, factory, jobs):
    first, second = (factory.mktemp(name) for name in ("one", "many"))
    processes.programs(0, jobs(data, first))
    spawned(2, processes.programs, jobs(data, second))
    return first / "folder", second / "folder"


@pytest.fixture(scope="module")
def run_pair(data, tmp_path_factory):
    """The folders of what takes longer, of one process and of two."""
    return run_both(data, tmp_path_factory, further_commands)


def assert_near(result, expected):
    """Two pieces of JSON but for paths in them, numbers to rounding."""
    leaves, spec = tree_flatten(result)
    expected_leaves, expected_spec = tree_flatten(expected)
    assert spec == expected_spec
    for first, second in zip(leaves, expected_leaves, strict=True):
        if isinstance(second, float):
            assert first == pytest.approx(second, rel=1e-4, abs=1e-5)
        else:
            assert first == second or "/" in str(second)


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def assert_same_folds(first, second):
    for fold in range(3):
        assert_near_runs(first / f"fold_{fold}", second / f"fold_{fold}")
        assert "processes: 2" in (second / f"fold_{fold}" / "environment.yaml").read_text()
    for file in (path.relative_to(first) for path in (first / "meta").glob("*.json")):
        assert_near(content_of(second / file), content_of(first / file))


@pytest.mark.long
def test_a_run_is_that_of_one_process(data, tmp_path_factory):
    """With chunks, memory, averages; one set of folders and files, one image cache in which each image is once."""
    folders = run_both(data, tmp_path_factory, lambda data, folder: runs(data, folder, {"Chunks": AT_WORK}))
    assert_near_runs(*(folder / "Chunks" for folder in folders))
    assert "trained" in last_checkpoint(folders[0] / "Chunks") and names(folders[0]) == names(folders[1])
    for folder in folders:
        (index,) = (folder.parent / "cache").glob("*/index.jsonl")
        images = [json.loads(line)[0] for line in index.read_text().splitlines()[1:]]
        assert len(images) == len(set(images)) == 60


@pytest.mark.long
def test_folds_are_those_of_one_process(run_pair):
    """Whole ones, and folds that were trained apart, changed and reproduced."""
    assert names(run_pair[0]) == names(run_pair[1]) >= {"Apart/configs", "Again/configs"}
    for name in ("Folds", "Apart", "Again"):
        assert_same_folds(*(folder / name for folder in run_pair))
    features = [np.load(folder / "Folds" / "meta" / "embeddings_test.npz")["features"] for folder in run_pair]
    assert features[0].shape == features[1].shape and np.abs(features[0] - features[1]).max() < 1e-5
    for name in ("Folds", "Again"):
        assert content_of(run_pair[1] / name / "meta" / "concatenated.json")["folds"] == [0, 1, 2]


@pytest.mark.long
def test_further_runs_are_those_of_one_process(run_pair):
    for name in [*FURTHER_RUNS, "Compatible", "Taught", "Guided"]:
        assert_near_runs(*(folder / name for folder in run_pair))
    # The runs in bfloat16 agree to its rounding
    first, second = (recorded_values(folder / "Half") for folder in run_pair)
    assert first.index.equals(second.index)
    losses = first.index.get_level_values("metric").str.endswith("loss")
    assert losses.sum() > 1 and np.allclose(first[losses], second[losses], rtol=0.02)


@pytest.mark.long
def test_a_search_is_that_of_one_process_with_its_reproduction(run_pair):
    """Trials that give no finite loss have failed in all processes alike, and the search went on."""
    folders = [folder / "Found_search" for folder in run_pair]
    tables = [rows_of(folder / "trials.csv") for folder in folders]
    assert [row["trial"] for row in tables[1]] == [f"trial_{i}" for i in range(6)]
    assert {row["state"] for row in tables[1]} == {"complete", "fail"}
    for a, b in zip(*tables, strict=True):
        assert all(a[name] == b[name] for name in ("state", "attempts", "reason", "lr", "loss_margin_margin"))
        assert not a["value"] or float(a["value"]) == pytest.approx(float(b["value"]), abs=1e-5)
        if a["value"]:
            assert_near_runs(*(folder / a["trial"] for folder in folders))
    assert_near(*(content_of(folder / "reproductions.yaml")["results"] for folder in folders))
