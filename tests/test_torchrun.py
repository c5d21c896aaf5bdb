"""Several processes are the same experiment as one: batches, evaluation, who writes, what is lost with one of them.
Steps: test_torchrun_steps.py.
"""

import itertools
import shutil
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

from datasets import _cache, _image_set, _images, _transforms
from engine import runtime
from engine.loading import BatchesInOrder, training_loader
from runs import RunFolder
from tests.kit.images import random_picture, write_image
from tests.kit.processes import LoneRank
from tests.kit.runs import last_checkpoint, program, read, recorded_values, resolve, run_main, run_words
from utilities.errors import UserError
from utilities.locks import Lock

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_parts_are_the_batch_and_evaluation_cuts_between_batches():
    for size, total in itertools.product((2, 3, 5), (1, 4, 7, 30)):
        parts = [LoneRank(rank, size).part(total) for rank in range(size)]
        if total < size:
            assert parts == [slice(0, total)] * size and not LoneRank(0, size).cuts(total)
        else:
            lengths = [part.stop - part.start for part in parts]
            assert [i for part in parts for i in range(total)[part]] == list(range(total))
            assert max(lengths) - min(lengths) <= 1
    for count, size, n in ((10, 3, 2), (2, 3, 4), (12, 3, 4), (1, 1, 3), (11, 2, 5)):
        of_ranks = [list(BatchesInOrder(count, size, LoneRank(rank, n))) for rank in range(n)]
        expected = [list(range(start, min(start + size, count))) for start in range(0, count, size)]
        assert [batch for batches in of_ranks for batch in batches] == expected
        lengths = [len(BatchesInOrder(count, size, LoneRank(rank, n))) for rank in range(n)]
        assert lengths == [len(batches) for batches in of_ranks]
        assert of_ranks[0], "the first process learns what the network gives"


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Images of several sizes and formats, one of them turned by its EXIF data."""
    folder = tmp_path_factory.mktemp("photographs")
    paths = []
    for number, (width, height) in enumerate([(60, 40), (41, 55), (48, 48), (90, 30)]):
        for suffix in ("jpg", "png", "webp"):
            paths.append(str(write_image(folder / f"{number}.{suffix}", number, (width, height))))
    exif = Image.Exif()
    exif[0x0112] = 6
    for suffix in ("jpg", "png", "webp"):
        paths.append(str(folder / f"turned.{suffix}"))
        random_picture(9, (70, 30)).save(paths[-1], exif=exif)
    paths.append(str(write_image(folder / "grey.jpg", 5, (50, 61), "L")))
    return paths


class NoWordOfSizes(torch.utils.data.Dataset):
    """A user's data set, of which nothing is known."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


@pytest.mark.parametrize("wrap", [lambda dataset: dataset, NoWordOfSizes], ids=["ours", "a user's"])
def test_parts_of_batches_are_augmented_as_the_whole(photographs, wrap):
    images = [_images.Image(path, f"class {number % 4}") for number, path in enumerate(photographs)]
    batches = [list(range(7)), [9, 3, 3, 15, 0, 11, 12]]
    presets = ["adv"] if wrap is NoWordOfSizes else _transforms.PRESETS
    for preset in presets:
        opt = read("--dataset cub200 --augmentation", preset, "--resize_size 36 --crop_size 32 --kernels 0")
        dataset = wrap(_image_set.ImageSet(images, _transforms.build(opt)[0], read=_cache.Reader(_images.decode, 45)))

        def loaded(ranks):
            torch.manual_seed(4)
            return list(training_loader(dataset, batches, opt, 2, ranks))  # noqa: B023

        batches_of_whole = loaded(None)
        parts = [loaded(LoneRank(rank, 3)) for rank in range(3)]
        for batch, *shares in zip(batches_of_whole, *parts, strict=True):
            assert torch.equal(torch.cat([share.images for share in shares]), batch.images), preset
            assert torch.equal(torch.cat([share.labels for share in shares]), batch.labels), preset
            assert all(torch.equal(share.indices, batch.indices) for share in shares)


def words(data, tmp_path, *flags):
    """BatchNorm at rest depends on nothing, and sgd does not enlarge rounding, as adam does near 0."""
    words = "--loss margin --arch conv4_frozen_normalize --bs 14 --n_epochs 2 --optim sgd --storage_metrics e_recall@1"
    return run_words(data, tmp_path, words, *flags)


def assert_near_runs(first, second):
    """The values of two folders' runs and their last networks are equal to rounding."""
    expected = recorded_values(first)
    result = recorded_values(second)
    assert expected.index.equals(result.index)
    torch.testing.assert_close(torch.tensor(result.to_numpy()), torch.tensor(expected.to_numpy()), rtol=1e-5, atol=1e-5)
    for part in ("state_dict", "trained"):
        networks = [dict(last_checkpoint(folder).get(part, {})) for folder in (first, second)]
        torch.testing.assert_close(networks[1], networks[0], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_is_refused(monkeypatch):
    one_gpu = r"--gpu 0 1: a process trains on one GPU\. One run on all of them: .*torchrun --nproc_per_node 2 main.py"
    for flags, message in (("--gpu 0 1", one_gpu), ("--sync_bn --chunk_size 4", "--sync_bn --chunk_size 4")):
        with pytest.raises(UserError, match=message):
            resolve("--dataset glyphs", flags)
    monkeypatch.setattr(runtime, "Ranks", lambda: LoneRank(0, 4))
    with pytest.raises(UserError, match="--bs 2 is less than torchrun's 4 processes"):
        runtime.Runtime(resolve("--dataset glyphs --bs 2"))


def torchrun(n, *words, fail="-1:0:"):
    """main.py under torchrun, and how it ended; `fail`: see tests/kit/torchrun_main.py."""
    launcher = f"-m torch.distributed.run --standalone --nproc_per_node {n} -m tests.kit.torchrun_main".split()
    return program(*launcher, *words, PYTHONPATH=str(ROOT), FAIL=fail)


def succeed(n, *words):
    """main.py under torchrun, which ends well: its output."""
    done = torchrun(n, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def uninterrupted_run(data, tmp_path_factory):
    """A run of one process that nothing stops."""
    return run_main(*words(data, tmp_path_factory.mktemp("whole"), "--savename Whole --n_epochs 3")).folder


LOST = "another process of this run was killed or ended"
INTERRUPTED = "interrupted: epochs 1 to 1 are saved"


@pytest.mark.long
@pytest.mark.parametrize(
    "fail,message,processes",
    [
        ("1:4:kill", LOST, (2, 1)),
        ("*:4:kill", "", (1,)),
        ("0:4:torchrun", INTERRUPTED, (2,)),
        ("1:4:interrupt", INTERRUPTED, (1,)),
    ],
)
def test_what_was_killed_goes_on_with_any_number(data, tmp_path, uninterrupted_run, fail, message, processes):
    """kill -9 of one process, of all, of torchrun; Ctrl-C: all end, the folder is free, the next run is the whole."""
    done = torchrun(2, *words(data, tmp_path, "--savename Killed --n_epochs 3"), fail=fail)
    killed = tmp_path / "folder" / "Killed"
    deadline = time.monotonic() + 60
    while (lock := Lock(killed / ".lock")).holder() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert done.returncode and lock.holder() is None and RunFolder(killed).progress.epochs == 1
    if message:
        output = done.stdout + done.stderr
        counts = [output.count(ending) for ending in (LOST, INTERRUPTED)]
        assert 1 <= sum(counts) <= 2 and max(counts) == 1, output
        assert message == LOST or message in done.stdout, output
    for n in processes:
        folder = shutil.copytree(killed, killed.with_name(f"Again_{n}"))
        if n > 1:
            succeed(n, "--resume_from", folder)
        else:
            run_main("--resume_from", folder)
        assert_near_runs(uninterrupted_run, folder)
    assert len(list(killed.parent.iterdir())) == 1 + len(processes)


@pytest.mark.long
@pytest.mark.parametrize(
    "fail,flags,message",
    [
        ("1:2:user", "--savename Error", "main.py: error: this image is broken: restore it"),
        ("1:2:bug", "--savename Error", "ValueError: a bug"),
        ("-1:0:", "--no_such_flag", "unrecognized argument"),
    ],
)
def test_an_error_is_said_once(data, tmp_path, fail, flags, message):
    done = torchrun(2, *words(data, tmp_path, flags), fail=fail)
    output = done.stdout + done.stderr
    assert done.returncode and output.count(message) == 1 and "another process" not in output, output
    assert done.stdout.count("criterion  margin") == (flags != "--no_such_flag"), "one console"


@pytest.mark.long
def test_folds_under_torchrun_are_resumed_after_a_kill(data, tmp_path):
    """Killed in the second fold: the first one stays as it is, the others follow."""
    scheme = "--split_scheme class_disjoint --split_partitions 3 --split_sets 3"
    folds = f"{scheme} --savename Folds --final_test --iterations_per_epoch 2"
    run_of_one = run_main(*words(data, tmp_path / "one", folds))
    command = words(data, tmp_path / "many", folds)
    done = torchrun(2, *command, fail="1:6:kill")
    folder = tmp_path / "many" / "folder" / "Folds"
    assert done.returncode and RunFolder(folder / "fold_0").progress.epochs == 2, done.stderr
    assert succeed(2, *command, "--resume").count("fold 0 of 3 is finished") == 1
    for fold in range(3):
        assert_near_runs(run_of_one.folder / f"fold_{fold}", folder / f"fold_{fold}")
    assert (folder / "meta" / "concatenated.json").exists()


DEMO = (
    "--config demo_glyphs --arch conv4_frozen_normalize --splits_to_eval test --kernels 0 --no_records --plot_every 0"
)


@pytest.mark.long
@pytest.mark.parametrize(
    "method,of_one,gain,tolerance",
    [("", " --chunk_size 56", 0.3, 0.0), (" --freeze_backbone --augmentation none", "", 0.1, 5e-4)],
    ids=["the order of sums of two processes", "the last layer"],
)
def test_a_whole_run_on_glyphs_is_that_of_one_process_to_the_third_digit(tmp_path, method, of_one, gain, tolerance):
    """All six epochs of the demonstration, the whole table.

    Two processes add the gradients of two halves of the batch, as one does with --chunk_size 56: to the bit the same.
    The plain step adds in another order; where the network is trained, rounding grows in long trainings, as between one
    thread and two: docs/scale.md.
    """
    flags = f"{DEMO} --save_path {tmp_path}{method}"
    run_of_one = run_main(f"{flags}{of_one} --savename One").folder
    succeed(2, f"{flags} --savename Two")
    tables = [recorded_values(folder) for folder in (run_of_one, run_of_one.with_name("Two"))]
    epochs = read(flags).n_epochs
    assert tables[0].index.equals(tables[1].index) and len(tables[0]) > 6 * epochs
    assert tables[0][epochs, "test", "e_recall@1"] > tables[0][0, "test", "e_recall@1"] + gain, "it learns"
    torch.testing.assert_close(
        torch.tensor(tables[1].to_numpy()), torch.tensor(tables[0].to_numpy()), rtol=0, atol=tolerance
    )
