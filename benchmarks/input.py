"""Images a second of one worker process, against the classic pipeline, from 500 x 375 JPEG files. Prints a table.

`python benchmarks/input.py [--images 960] [--repeats 5]`: the files are made from scikit-learn's two sample
photographs. Classic: Pillow decodes, RandomResizedCrop 224 (or Resize 256, CenterCrop 224), flip, ToTensor, Normalize,
float batches. Both sides run in turns, each in a `DataLoader` with one worker on one thread. Scaling and normalising,
which the network does here on its own device, are measured too. Here: decoded from the files, from --image_cache, and
from it with --image_cache_side; and the cost of reading and transforming an image in each. `--once`: --decode_once in
this process, with its crops made on the CPU and without them, against the program's loader with one worker, and against
copying the cached images whole, one after the other; and its copies of rows without the draws. `--additions`: what
--color_jitter, --randaugment, --auto_augment and --random_erasing cost beside crop and flip. Both in place of all this.
"""

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import datasets
import parameters
from engine import loading, memory
from utilities.errors import OneLineParser
from utilities.numbers import whole

SIZE = (500, 375)
QUALITY = 90
# beside crop and flip; the recipes' values
ADDITIONS = {
    "crop and flip": {},
    "jitter .25 .25 .25 0, of half": {"color_jitter": [0.25, 0.25, 0.25, 0.0], "color_jitter_p": 0.5},
    "jitter .3 .3 .3 .1": {"color_jitter": [0.3, 0.3, 0.3, 0.1]},
    "randaugment 2 9": {"randaugment": [2, 9]},
    "auto_augment .1": {"auto_augment": 0.1},
    "random_erasing .5": {"random_erasing": 0.5},
}
LOADER_FLAGS = "--dataset glyphs --kernels 1 --seed 0".split()
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def photographs() -> list:
    """Two pictures: scikit-learn's sample photographs; where it is missing, noise with the spectrum of photographs, of
    which JPEG files are as large.
    """
    import numpy as np
    from PIL import Image

    try:
        from sklearn.datasets import load_sample_images
    except ModuleNotFoundError:
        rng = np.random.default_rng(0)
        return [Image.fromarray(_noise(rng, height=427, width=640)) for _ in range(2)]
    return list(map(Image.fromarray, load_sample_images().images))


def _noise(rng, height: int, width: int):
    """A picture `(height, width, 3)`, uint8, whose amplitudes fall with the frequency."""
    import numpy as np

    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequencies[0, 0] = 1
    layers = []
    for _ in range(4):
        spectrum = rng.standard_normal(frequencies.shape) + 1j * rng.standard_normal(frequencies.shape)
        layers.append(np.fft.irfft2(spectrum / frequencies**1.5, s=(height, width)))
    # what the colours share, and a part of each one's own
    colours = np.stack([layers[0] + 0.3 * own_part for own_part in layers[1:]], -1)
    colours = (colours - colours.mean((0, 1))) / colours.std((0, 1))
    return np.clip(128 + 50 * colours, 0, 255).astype(np.uint8)


def make_files(folder: Path, n_images: int, n_classes: int = 2) -> None:
    """A folder data set: crops of two photographs, all different, in classes of equal size."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    sources = photographs()
    files = []
    for c in range(n_classes):
        source = sources[c % len(sources)]
        (folder / f"class_{c}").mkdir(parents=True)
        for i in range(n_images // n_classes):
            x = rng.integers(0, 60)
            y = rng.integers(0, 40)
            box = (x, y, x + source.width - 60, y + source.height - 40)
            files.append((source, box, folder / f"class_{c}" / f"{i:04d}.jpg"))

    def write(file):
        source, box, path = file
        source.resize(SIZE, Image.Resampling.BICUBIC, box=box).save(path, quality=QUALITY)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, files))


class Classic(torch.utils.data.Dataset):
    """Pillow, torchvision's first transforms, float tensors."""

    def __init__(self, paths, steps, normalise=True):
        from torchvision import transforms

        last = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)] if normalise else [transforms.PILToTensor()]
        self.paths = paths
        self.transform = transforms.Compose([*steps, *last])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        from PIL import Image

        with open(self.paths[index], "rb") as file:
            return 0, self.transform(Image.open(file).convert("RGB")), index


def classic_steps(split):
    """The classic pipeline's geometry."""
    from torchvision import transforms

    if split == "training":
        return [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    return [transforms.Resize(256), transforms.CenterCrop(224)]


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far; NaN on systems without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # user and system
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return float("nan")


def loader_of(dataset, batch_size: int) -> torch.utils.data.DataLoader:
    """A loader of whole batches with one worker that lives on."""
    return torch.utils.data.DataLoader(
        dataset, batch_size=batch_size, num_workers=1, drop_last=True, persistent_workers=True
    )


def images_per_second(loader, batch_size: int) -> tuple[float, float]:
    """(images per second of the clock, images per second of the worker's processor time)
    of `loader_of` or of the program's own loader.

    Measured in the second epoch, from its second batch: in the first epoch the worker touches the cache's pages for the
    first time. Other work on the machine hardly changes the processor time.
    """
    for _ in loader:
        pass
    batches = iter(loader)
    worker = loader._iterator._workers[0].pid
    next(batches)
    start = time.perf_counter()
    processor = processor_seconds(worker)
    count = sum(len(next(batches)[1]) for _ in range(len(loader) - 1))
    # these were loaded before the clock began; at the epoch's end none are loaded ahead
    ahead = loader.prefetch_factor * batch_size
    return count / (time.perf_counter() - start), (count - ahead) / max(processor_seconds(worker) - processor, 1e-9)


def pixel_difference(dataset, classic, n_images) -> float:
    """Mean absolute difference to the classic pipeline's pixels under the same seeds, of 255."""
    differences = []
    for index in range(n_images):
        torch.manual_seed(index)
        ours = dataset[index][1].float()
        torch.manual_seed(index)
        differences.append((ours - classic[index][1].float()).abs().mean().item())
    return statistics.mean(differences)


def variants(root: Path, cache: Path, side: int) -> dict:
    """Name -> splits: decoded from the files, from the cache, from the cache with a limited side."""
    flags = {
        "here": {},
        "cache": {"image_cache": str(cache)},
        f"cache {side}": {"image_cache": str(cache), "image_cache_side": side},
    }
    data = {"dataset_folder_path": str(root), "input_size": 224}
    return {name: datasets.select("folder", **data, **cache_flags) for name, cache_flags in flags.items()}


def rates(split: str, splits: dict, options) -> None:
    """Print images per second of each variant and its ratio to the classic pipeline's, all in turns."""
    plain = splits["here"][split]
    sources = {
        "classic": Classic(plain.paths, classic_steps(split)),
        **{name: variant[split] for name, variant in splits.items()},
    }
    rounds = [
        {name: images_per_second(loader_of(source, options.bs), options.bs) for name, source in sources.items()}
        for _ in range(options.repeats)
    ]
    for name in sources:
        columns = []
        for clock in (0, 1):
            ratio = statistics.median(measured[name][clock] / measured["classic"][clock] for measured in rounds)
            columns += [statistics.median(measured[name][clock] for measured in rounds), ratio]
        print(
            f"{split:<12}{name:<12}"
            + "".join(f"{rate:>12.0f}{ratio:>8.2f}" for rate, ratio in zip(columns[::2], columns[1::2], strict=True))
        )
    difference = pixel_difference(plain, Classic(plain.paths, classic_steps(split), normalise=False), 50)
    print(f"{split:<12}pixels of `here` differ from the classic ones by {difference:.4f} of 255 in the mean")


def steps(split: str, splits: dict) -> None:
    """Print the cost of one image in this process: decoding it or copying it from the cache, and its transform."""

    def microseconds(function, items) -> float:
        start = time.process_time()
        for item in items:
            function(item)
        return (time.process_time() - start) / len(items) * 1e6

    for name, variant in splits.items():
        dataset = variant[split]
        indices = range(0, len(dataset), 2)
        images = [dataset.original(i) for i in indices]
        reading = min(microseconds(dataset.original, indices) for _ in range(5))
        transform = min(microseconds(dataset.transform, images) for _ in range(5))
        print(
            f"{split:<12}{name:<12}{reading:>12.0f}{transform:>12.0f}   microseconds of processor time an image: "
            "reading, transform"
        )


def additions(root: Path, options) -> None:
    """Print images per second of the training loader with each of ADDITIONS, and the ratio to crop and flip alone."""
    opt = parameters.read(LOADER_FLAGS)
    loaders = {}
    for name, flags in ADDITIONS.items():
        images = datasets.select("folder", dataset_folder_path=str(root), input_size=224, **flags)["training"]
        batches = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(images), options.bs, drop_last=True)
        loaders[name] = loading.training_loader(images, batches, opt)
    rounds = [
        {name: images_per_second(loader, options.bs) for name, loader in loaders.items()}
        for _ in range(options.repeats)
    ]
    print(f"{'one worker':<32}{'a second':>10}{'ratio':>8}{'CPU second':>12}{'ratio':>8}")
    for name in loaders:
        medians = []
        for clock in (0, 1):
            medians.append(statistics.median(measured[name][clock] for measured in rounds))
            medians.append(
                statistics.median(measured[name][clock] / measured["crop and flip"][clock] for measured in rounds)
            )
        print(f"{name:<32}{medians[0]:>10.0f}{medians[1]:>8.2f}{medians[2]:>12.0f}{medians[3]:>8.2f}")


def timed(batches) -> tuple[float, float]:
    """Images a second by the clock, and by this process's processor time, of an iterable of batches' lengths."""
    start = time.perf_counter()
    processor = time.process_time()
    count = sum(batches)
    return count / (time.perf_counter() - start), count / (time.process_time() - processor)


def copied(images, batches):
    """Copy the cached images whole, each into its place in a new batch, and yield the batches' lengths."""
    for batch in batches:
        views = [images.view(index).reshape(-1) for index in batch]
        rows = torch.empty(len(batch), max(map(len, views)), dtype=torch.uint8).numpy()
        for row, view in zip(rows, views, strict=True):
            row[: len(view)] = view
        yield len(batch)


def decoded_once(root: Path, options) -> None:
    """Print images per second of --decode_once, of the loader with a worker and of a bare copy, and their ratios."""
    # A run on a CPU keeps freed memory, too.
    memory.keep_freed()
    opt = parameters.read(LOADER_FLAGS)
    cached = {"image_cache": str(root.parent / "cache"), "image_cache_side": options.side}
    loaders = {}
    images = None
    for name, flags in {
        "one worker, files": {},
        "one worker, cache": cached,
        "decode_once": {**cached, "decode_once": True},
    }.items():
        images = datasets.select("folder", dataset_folder_path=str(root), input_size=224, **flags)["training"]
        batches = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(images), options.bs, drop_last=True)
        loaders[name] = loading.training_loader(images, batches, opt.but(decode_once="decode_once" in flags))
    cuts = loaders.pop("decode_once")
    rounds = []
    generator = torch.Generator().manual_seed(0)
    views = [[images.view(index) for index in batch] for batch in batches]
    boxes = []
    for batch_views in views:
        shapes = torch.tensor([view.shape[:2] for view in batch_views])
        boxes.append(images.transform.draw(shapes, generator)["boxes"])
    for _ in range(options.repeats + 1):
        measured = {name: images_per_second(loader, options.bs) for name, loader in loaders.items()}
        measured["once, with its crops"] = timed(len(batch.images.on(torch.device("cpu"))) for batch in cuts)
        measured["once, cutting alone"] = timed(len(batch.images) for batch in cuts)
        measured["copying drawn rows"] = timed(len(cuts._rows(*rows)) for rows in zip(views, boxes, strict=True))
        measured["copying whole images"] = timed(copied(images, batches))
        rounds.append(measured)
    print(f"{'':<24}{'a second':>10}{'/ files':>9}{'/ copy':>9}{'CPU second':>12}{'/ files':>9}{'/ copy':>9}")
    for name in rounds[0]:
        columns = ""
        for clock, width in ((0, 10), (1, 12)):
            rate = statistics.median(measured[name][clock] for measured in rounds[1:])
            columns += f"{rate:>{width},.0f}"
            for base in ("one worker, files", "copying whole images"):
                ratio = statistics.median(measured[name][clock] / measured[base][clock] for measured in rounds[1:])
                columns += f"{ratio:>9.2f}"
        print(f"{name:<24}{columns}")


def main():
    """Make the images, and print the rates that the flags select."""
    parser = OneLineParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--images", type=whole(100, 10**6), default=960)
    parser.add_argument("--repeats", type=whole(1), default=5)
    parser.add_argument("--bs", type=whole(1, 10**6), default=32)
    parser.add_argument("--side", type=whole(1, 10**4), default=256)
    parser.add_argument(
        "--additions", action="store_true", help="the further augmentations beside crop and flip, alone"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="--decode_once against the loader with a worker and against a bare copy, alone",
    )
    options = parser.parse_args()
    if options.images < 8 * options.bs:
        parser.error(
            f"--images {options.images}: at least {8 * options.bs}, four batches of --bs {options.bs} in each of "
            "two splits, as two are loaded ahead"
        )
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "photographs"
        make_files(root, options.images)
        if options.additions:
            return additions(root, options)
        if options.once:
            return decoded_once(root, options)
        splits = variants(root, Path(folder) / "cache", options.side)
        print(
            f"{'images of':<24}{'a second':>12}{'ratio':>8}{'CPU second':>12}{'ratio':>8}   one worker; against classic"
        )
        for split in ("training", "testing"):
            rates(split, splits, options)
        steps("training", splits)
        batch = torch.stack([splits["here"]["testing"][i][1] for i in range(32)])
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        start = time.perf_counter()
        for _ in range(10):
            ((batch.float() / 255) - mean) / std
        print(
            f"scaling and normalising a batch, which the network does: {320 / (time.perf_counter() - start):.0f} "
            "images per second"
        )


if __name__ == "__main__":
    main()
