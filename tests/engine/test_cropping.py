"""--decode_once: torchvision's distributions and pixels; the same batches for every process, resume and cache."""

import math
import shutil
import tarfile
import time
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import scipy.stats
import torch
import torchvision
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

import datasets
import parameters
from benchmarks.input import make_files
from datasets import _cache_files, _images
from engine import cropping
from engine.loading import CutBatches, training_loader
from engine.meter import EpochMeter
from engine.runtime import Runtime
from engine.step import StepResult
from runs import reports
from tests.kit.data_sets import make_folder
from tests.kit.images import random_picture, write_image
from tests.kit.processes import LoneRank
from tests.kit.refusals import refused
from tests.kit.runs import assert_same_run, run_main, run_words, words_of
from utilities import spans

JITTER = "--color_jitter .4 .3 .2 .1 --color_jitter_p .6"
SIZES = torch.tensor([[48, 64], [64, 20], [10, 64], [33, 33]])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Twelve images of several sizes in six classes, one of them turned by its EXIF data."""
    root = tmp_path_factory.mktemp("photographs")
    for number, size in enumerate([(50, 40), (40, 50), (61, 32)] * 4):
        write_image(root / f"class_{number // 2}" / f"{number}.jpg", number, size)
    turned = random_picture(0, (50, 40))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(root / "class_0" / "0.jpg", exif=exif)
    return root


def words(root, cache, *flags):
    decoding = "--not_pretrained --kernels 0 --crop_size 36 28 --decode_once --image_cache_side 48 --image_cache"
    return words_of(*["--dataset folder --dataset_folder_path", root, decoding, cache, *flags])


def options_and_images(argv):
    opt = parameters.read(argv)
    return opt, datasets.select(opt.dataset, opt)["training"]


def transform(tmp_path, root, *flags):
    return options_and_images(words(root, tmp_path / "cache", *flags))[1].transform


# The p-values of Kolmogorov and Smirnov's test have to exceed this
LIKELY = 1e-3


BOX = ("top", "left", "height", "width")


@pytest.mark.parametrize("flags", ["", "--crop_scale .9 1 --crop_ratio 2 3"], ids=["plain", "often none fits"])
def test_boxes_have_the_distribution_of_torchvisions(root, tmp_path, flags):
    drawing = transform(tmp_path, root, flags)
    count = 600
    for size in SIZES:
        boxes = drawing.draw(size.expand(count, 2), torch.Generator().manual_seed(1))["boxes"]
        assert (boxes[:, 2:] >= 1).all() and (boxes[:, :2] >= 0).all() and (boxes[:, :2] + boxes[:, 2:] <= size).all()
        torch.manual_seed(1)
        image = torch.empty(3, *size.tolist(), device="meta")
        their_boxes = [drawing.crop.make_params([image]) for _ in range(count)]
        theirs = torch.tensor([[box[name] for name in BOX] for box in their_boxes])
        columns, their_columns = ([*rows.T, rows[:, 2] * rows[:, 3]] for rows in (boxes, theirs))
        for first, second in zip(columns, their_columns, strict=True):
            assert scipy.stats.ks_2samp(first, second, method="asymp").pvalue > LIKELY, size


def test_where_no_draw_fits_the_largest_centre_is_torchvisions(root, tmp_path):
    drawing = transform(tmp_path, root, "--crop_scale 1 1 --crop_ratio .8 .9")
    sizes = torch.tensor([[40, 10], [10, 40], [3, 100], [100, 3], [1, 1], [37, 40], [41, 40]])
    boxes = drawing.draw(sizes, torch.Generator().manual_seed(0))["boxes"].tolist()
    for box, size in zip(boxes[:4], sizes.tolist(), strict=False):
        expected_box = drawing.crop.make_params([torch.empty(3, *size, device="meta")])
        assert box == [expected_box[name] for name in BOX]


def test_flips_grey_and_jitter_are_drawn_as_by_torchvision(root, tmp_path):
    drawing = transform(tmp_path, root, f"--augmentation adv {JITTER}")
    draws = drawing.draw(SIZES.repeat(1500, 1), torch.Generator().manual_seed(2))
    jittered = draws["order"][:, 0] >= 0
    for chosen, share in ((draws["flip"], 0.5), (draws["grey"], 0.2), (jittered, 0.6)):
        assert abs(chosen.double().mean() - share) < 4 * math.sqrt(share * (1 - share) / 6000)
    assert (draws["order"][~jittered] == -1).all()
    orders, counts = draws["order"][jittered].unique(dim=0, return_counts=True)
    assert len(orders) == 24 and (orders.sort(1)[0] == torch.arange(4)).all()
    assert (counts - jittered.sum() / 24).abs().max() < 4 * math.sqrt(150)
    for column, (low, high) in enumerate(((0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (-0.1, 0.1))):
        assert scipy.stats.kstest(draws["factors"][:, column], "uniform", (low, high - low)).pvalue > LIKELY
    columns = torch.stack([draws["flip"], draws["grey"], jittered, *draws["factors"].unbind(1)])
    assert (torch.corrcoef(columns.double()) - torch.eye(7)).abs().max() < 0.06, "each is drawn by itself"


def per_image(image, box, flip, size, mode):
    expected = functional.resized_crop(image, *box, size, interpolation=v2.InterpolationMode(mode), antialias=True)
    return functional.horizontal_flip(expected) if flip else expected


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(36, 28), (224, 224), (5, 7)])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_crops_are_torchvisions_image_by_image(mode, size, device):
    """To the bit on a CPU; as matrix products to rounding, whatever lies beside the crops."""
    torch.manual_seed(3)
    sizes = ((48, 64), (64, 20), (9, 64), (33, 33), (1, 1), (36, 28))
    whole_batch = [torch.randint(0, 256, (3, *size_of_image), dtype=torch.uint8) for size_of_image in sizes]
    boxes = torch.tensor([[3, 5, 40, 50], [0, 0, 64, 20], [8, 3, 1, 61], [1, 1, 30, 7], [0, 0, 1, 1], [0, 0, 36, 28]])
    flips = torch.tensor([True, False, True, True, False, False])
    pixels = torch.randint(0, 256, (6, 64, 64, 3), dtype=torch.uint8)
    for place, image, (top, _, height, _) in zip(pixels, whole_batch, boxes.tolist(), strict=True):
        place[:height, : image.shape[2]] = image[:, top : top + height].permute(1, 2, 0)
    crops = []
    for image, box, flip in zip(whole_batch, boxes.tolist(), flips.tolist(), strict=True):
        crops.append(per_image(image.permute(1, 2, 0).contiguous().permute(2, 0, 1), box, flip, size, mode))
    expected = torch.stack(crops)
    arguments = pixels, boxes, flips, size, mode
    assert torch.equal(cropping.resized(*arguments), expected)
    difference = (cropping.resized_at_once(pixels.to(device), *arguments[1:]).cpu().int() - expected.int()).abs()
    assert difference.max() <= 2 and difference.float().mean() < 0.06


class Drawing:
    """A transform with jitter alone."""

    size = (6, 6)
    interpolation = "bilinear"
    jitter = ((0.0, 2.0), (0.0, 2.0), (0.0, 2.0), (-0.5, 0.5))


def test_colours_are_torchvisions_image_by_image():
    torch.manual_seed(4)
    count = 60
    pixels = torch.randint(0, 256, (count, 6, 6, 3), dtype=torch.uint8)
    pixels[:5] = torch.arange(5, dtype=torch.uint8)[:, None, None, None] * 60
    pixels[5:9, :, :, 1] = 255
    draws = {
        "boxes": torch.tensor([[0, 0, 6, 6]] * count),
        "flip": torch.zeros(count, dtype=torch.bool),
        "grey": torch.rand(count) < 0.3,
        "order": torch.rand(count, 4).argsort(1),
        "factors": torch.rand(count, 4) * torch.tensor([2.0, 2, 2, 1]) - torch.tensor([0, 0, 0, 0.5]),
    }
    draws["order"][::7] = -1
    draws["factors"][10:13] = torch.tensor([[1.0, 1, 1, 0.5], [0, 0, 0, -0.5], [2, 2, 2, 0]])
    kernels = [getattr(functional, f"adjust_{name}") for name in ("brightness", "contrast", "saturation", "hue")]
    images = cropping.Cut(pixels, draws, Drawing()).on(torch.device("cpu"))
    differences = []
    for i in range(count):
        image = pixels[i].permute(2, 0, 1)
        image = functional.rgb_to_grayscale(image, 3) if draws["grey"][i] else image
        for number in draws["order"][i].tolist():
            image = kernels[number](image, draws["factors"][i, number].item()) if number >= 0 else image
        differences.append((images[i].int() - image.int()).abs())
    # a last bit before a floor, turned by later steps
    assert torch.stack(differences).float().mean() < 0.05 and torch.stack(differences).max() <= 4
    # an image does not depend on the others
    rows = torch.tensor([12, 3, 40])
    assert torch.equal(cropping.Cut(pixels, draws, Drawing())[rows].on(torch.device("cpu")), images[rows])


def test_a_turned_hue_is_rounded_as_by_torchvision():
    torch.manual_seed(4)
    images = torch.randint(0, 256, (60, 3, 6, 6), dtype=torch.uint8)
    turns = torch.rand(60) - 0.5
    expected = torch.stack(
        [functional.adjust_hue(image, turn.item()) for image, turn in zip(images, turns, strict=True)]
    )
    differences = (cropping.JITTER[3](images.float(), turns[:, None, None, None]) - expected).abs()
    assert differences.mean() < 0.005 and differences.max() <= 1


BATCHES = [[0, 1, 2, 3, 4, 5, 1], [3, 5, 2, 1, 0, 0, 4], [1, 1, 4]]
ALL = f"--augmentation adv {JITTER} --random_erasing .6"


def loaded(argv, ranks=None):
    """The batches, their images on the CPU."""
    opt, dataset = options_and_images(argv)
    torch.manual_seed(4)
    loader = training_loader(dataset, BATCHES, opt, 2, ranks)
    runtime = Runtime(opt)
    batches = []
    for batch in loader:
        if opt.random_erasing:
            batch.images.pixel = torch.zeros(1, 3, 1, 1)
        batches.append(batch._replace(images=runtime.to_device(batch.images)))
    return batches


def test_batches_are_the_drawn_crops_of_the_decoded_images(root, tmp_path):
    opt, dataset = options_and_images(words(root, tmp_path / "cache"))
    assert dataset.transforms_as_resolved.startswith("LongSide(48); on the device, drawn by batch: RandomResizedCrop")
    assert not np.shares_memory(dataset.original(0).numpy(), dataset.view(0))
    torch.manual_seed(4)
    loader = training_loader(dataset, BATCHES, opt, 2)
    torch.manual_seed(4)
    seeds = torch.randint(2**62, (3,)).tolist()
    torch.manual_seed(4)
    assert isinstance(loader, CutBatches) and len(loader) == 3
    for batch, indices, seed in zip(loader, BATCHES, seeds, strict=True):
        indices = indices * 2
        assert batch.indices.tolist() == indices
        assert batch.labels.tolist() == [dataset.image_list[i][1] for i in indices]
        originals = [dataset.original(i) for i in indices]
        sizes = torch.tensor([image.shape[1:] for image in originals])
        draws = dataset.transform.draw(sizes, torch.Generator().manual_seed(seed))
        images = batch.images.on(torch.device("cpu"))
        assert images.shape == (len(indices), 3, 36, 28) and images.dtype == torch.uint8
        chosen = zip(images, originals, draws["boxes"].tolist(), draws["flip"].tolist(), strict=True)
        for image, original, box, flip in chosen:
            expected = per_image(original, box, flip, (36, 28), "bilinear")
            # An image that its EXIF data turn lies in memory in another order, which may change the rounding
            assert (image.int() - expected.int()).abs().max() <= 1
    assert loader.seconds > 0


def test_parts_of_processes_are_the_batch_of_one(root, tmp_path):
    argv = words(root, tmp_path / "cache", ALL)
    whole_batches = loaded(argv)
    parts = [loaded(argv, LoneRank(rank, 3)) for rank in range(3)]
    for number, batch in enumerate(whole_batches):
        assert torch.equal(torch.cat([part[number].images for part in parts]), batch.images)
        assert torch.equal(torch.cat([part[number].labels for part in parts]), batch.labels)
        assert all(torch.equal(part[number].indices, batch.indices) for part in parts)
    assert (whole_batches[0].images == 0).all(1).any(), "erased"
    plain = loaded(argv[: argv.index("--random_erasing")])
    is_kept = (whole_batches[1].images != 0).any(1, keepdim=True)
    images = (whole_batches[1].images * 255).round().byte()
    assert torch.equal(images * is_kept, plain[1].images * is_kept), "erasing changes no other draw"


def test_shards_feed_the_cache(root, tmp_path):
    argv = words(root, tmp_path / "cache")
    label = tmp_path / "label"
    with tarfile.open(tmp_path / "data-0.tar", "w") as shard:
        for path in sorted(root.glob("*/*.jpg"), key=lambda path: int(path.stem)):
            label.write_text(path.parent.name)
            shard.add(path, f"{int(path.stem):02d}.jpg")
            shard.add(label, f"{int(path.stem):02d}.cls")
    shards = ["--dataset", "shards", "--dataset_shards", str(tmp_path / "data-{0..0}.tar"), *argv[4:]]
    for batch, shard_batch in zip(loaded(argv), loaded(shards), strict=True):
        assert torch.equal(shard_batch.images, batch.images)


def test_a_gpu_decodes_what_the_cache_is_filled_with(root, tmp_path, monkeypatch):
    """A stand-in for nvJPEG, whose images are negatives, fills another cache; it leaves PNG and turned files alone."""
    (tmp_path / "here" / "class_0").mkdir(parents=True)
    random_picture(9, (40, 50)).save(tmp_path / "here" / "class_0" / "99.png")
    shutil.copytree(root, tmp_path / "here", dirs_exist_ok=True)
    argv = words(tmp_path / "here", tmp_path / "cache", "--image_cache_side 61 --gpu 1")
    devices = []
    plain = options_and_images(argv)[1]
    decode_jpeg = torchvision.io.decode_jpeg

    def negative(data, mode, device):
        devices.append(str(device))
        image = decode_jpeg(data, mode)
        if image.shape[2] == 32:
            raise RuntimeError("not of a kind that the device reads")
        return 255 - image.contiguous()

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torchvision.io, "decode_jpeg", negative)
        opt = parameters.read(argv)
        images = datasets.select("folder", opt)["training"]
        plain_decoder = datasets.select("folder", opt.but(decode_once=False))["training"].transforms_as_resolved
    assert plain_decoder.startswith("LongSide(61); Random")
    assert set(devices) == {"cuda:1"} and len(list((tmp_path / "cache").iterdir())) == 2
    assert images.transforms_as_resolved == f"nvJPEG(CUDA {torch.version.cuda}); {plain.transforms_as_resolved}"
    kinds = set()
    for index, path in enumerate(plain.paths):
        turned = path.endswith("class_0/0.jpg")
        image = plain.original(index)
        is_equal = turned or path.endswith(".png") or image.shape[2] == 32
        kinds.add((turned, is_equal))
        expected = image if is_equal else 255 - image
        assert torch.equal(images.original(index), expected)
        assert images.view(index).shape == plain.view(index).shape
        assert images.original(index).permute(1, 2, 0).is_contiguous() or turned
        assert torch.equal(images.read.fresh(path), plain.read.fresh(path)), "what the cache lacks"
    assert len(kinds) == 3


@pytest.mark.gpu
def test_nvjpeg_is_near_the_other_decoder(tmp_path):
    """On an H100 .96 of 255 in the mean, 37 at most."""
    make_files(tmp_path, 32)
    for path in (tmp_path / "class_0").iterdir():
        data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
        image = _images.on_gpu(torch.device("cuda", 0))(data)
        expected = _images.decode(str(path))
        assert image.shape == expected.shape and image.stride() == expected.stride()
        difference = (image.int() - expected.int()).abs()
        assert difference.float().mean() < 1.5 and difference.max() < 64


def test_what_does_not_go_with_it_is_refused(root, tmp_path, monkeypatch, capsys):
    argv = words(root, tmp_path / "cache")
    for flags, message in (
        ("--augmentation red", "RandomResizedCrop"),
        ("--resize_size 40", "RandomResizedCrop"),
        ("--randaugment 2 9", "image by image"),
        ("--auto_augment .1", "image by image"),
        ("--freeze_backbone --augmentation none --feature_cache", "decode_once"),
        ("without a cache", "--image_cache DIR"),
        ("of glyphs", "shown whole"),
    ):
        wrong = [*argv, *flags.split()]
        if flags == "without a cache":
            wrong = [word for word in argv if word not in ("--image_cache", str(tmp_path / "cache"))]
        if flags == "of glyphs":
            wrong = [*"--dataset glyphs --decode_once --image_cache".split(), str(tmp_path)]
        with pytest.raises(SystemExit):
            parameters.read(wrong)
        line = capsys.readouterr().err
        assert message in line and "--decode_once" in line and line.count("\n") == 1, line
    with refused("several sizes need --image_cache_side"):
        loaded(words(root, tmp_path / "cache", "--image_cache_side 0"))
    broken = make_folder(tmp_path / "broken", n_classes=2, n_images=3)
    (broken / "class_0" / "000.jpg").write_bytes(b"no image")
    with refused("class_0/000.jpg cannot be decoded"):
        loaded(words(broken, tmp_path / "cache"))
    monkeypatch.setattr(_cache_files.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with refused("6 of 6 training images are not in --image_cache"):
        loaded(words(root, tmp_path / "full"))


class Slow(torch.utils.data.Dataset):
    """Each of eight items takes 20 ms by `clock`."""

    image_list = [(str(index), 0) for index in range(8)]

    def __init__(self, clock):
        self.clock = clock

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.clock[0] += 0.02
        return 0, torch.zeros(3, 4, 4, dtype=torch.uint8), index


@pytest.mark.parametrize(
    ("kernels", "seconds", "line"),
    [
        (0, 0.005, "input 50 images/s, network 400 images/s; the input is the bottleneck: --kernels"),
        (1, 0.2, "input 50 images/s, network 10 images/s; the network is the bottleneck"),
    ],
)
def test_the_pace_of_every_loader_is_told_after_the_first_epoch(kernels, seconds, line, capsys, monkeypatch):
    """Four batches of two images of 20 ms each; the first step, which loads libraries, does not count."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    opt = parameters.read(f"--dataset glyphs --kernels {kernels}".split())
    loader = training_loader(Slow(clock), [[0, 1], [2, 3], [4, 5], [6, 7]], opt)
    meter = EpochMeter(None)
    for epoch in (1, 2):
        for number, batch in enumerate(reports.progress(loader, epoch, opt, meter)):
            clock[0] += seconds if number else 7
            meter.add(StepResult(torch.zeros(()), {}, torch.zeros(()), len(batch.labels)))
    assert capsys.readouterr().out.count(f"throughput per process: {line}") == 1


def test_a_gpus_steps_are_timed_by_its_own_clock_and_waited_for_at_the_end(monkeypatch):
    event = mock.Mock(**{"elapsed_time.return_value": 30})
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    moments = [(spans.moment(torch.device("cuda", 1)), spans.moment(torch.device("cuda", 1))) for _ in range(3)]
    event.record.assert_called_with("stream of cuda:1")
    event.synchronize.assert_not_called()
    assert spans.seconds_between(moments) == pytest.approx(0.09), "milliseconds on a GPU"
    event.synchronize.assert_called_once()
    assert spans.seconds_between([(1.0, 2.5), (4.0, 4.25)]) == 1.75


def test_a_run_resumed_is_the_run_and_says_its_pace(root, tmp_path, capsys):
    argv = [*run_words(root, tmp_path / "runs"), *words(root, tmp_path / "cache", ALL)]
    del argv[argv.index("--resize_size") : argv.index("--resize_size") + 2]
    argv += "--bs 4 --loss triplet --batch_mining semihard --arch conv4_frozen_normalize --chunk_size 3".split()
    whole_run = run_main(*argv, "--savename whole --n_epochs 2").folder
    assert capsys.readouterr().out.count("throughput per process: input") == 1
    cut = run_main(*argv, "--savename cut --n_epochs 1").folder
    run_main("--resume_from", cut, "--n_epochs 2")
    assert_same_run(whole_run, cut)
