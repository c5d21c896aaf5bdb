"""Images a second of one worker process, against the classic pipeline, from 500 x 375 JPEG files. Prints a table.

`python benchmarks/input.py [--images 400] [--repeats 3]`: the files are made from scikit-learn's two sample photographs. Classic: Pillow
decodes, RandomResizedCrop 224 (or Resize 256, CenterCrop 224), flip, ToTensor, Normalize, float batches. Both sides run in turns, each
in a `DataLoader` with one worker on one thread. Scaling and normalising the network does here, on its own device.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import datasets
from utilities.errors import OneLineParser
from utilities.numbers import whole

SIZE, QUALITY = (500, 375), 90
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_files(folder: Path, n_images: int) -> None:
    """A folder data set of two classes: crops of the sample photographs, all different."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    for c, photograph in enumerate(load_sample_images().images):
        source = Image.fromarray(photograph)
        (folder / f"class_{c}").mkdir(parents=True)
        for i in range(n_images // 2):
            left, top = rng.integers(0, 60), rng.integers(0, 40)
            box = (left, top, left + source.width - 60, top + source.height - 40)
            source.resize(SIZE, Image.Resampling.BICUBIC, box=box).save(folder / f"class_{c}" / f"{i:04d}.jpg", quality=QUALITY)


class Classic(torch.utils.data.Dataset):
    """Pillow, torchvision's first transforms, float tensors."""

    def __init__(self, paths, steps):
        from torchvision import transforms

        self.paths, self.transform = paths, transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

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


def images_per_second(dataset, batch_size) -> float:
    """One pass in a loader with one worker; the clock starts at the first batch, when the worker is up."""
    loader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, num_workers=1, drop_last=True)
    batches = iter(loader)
    next(batches)
    start, count = time.perf_counter(), 0
    for _, images, _ in batches:
        count += len(images)
    return count / (time.perf_counter() - start)


def main():
    parser = OneLineParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=whole(100, 10**6), default=480)
    parser.add_argument("--repeats", type=whole(1), default=5)
    parser.add_argument("--bs", type=whole(1, 10**6), default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder) / "photographs", options.images)
        splits = datasets.select("folder", dataset_folder_path=str(Path(folder) / "photographs"), input_size=224)
        print(f"{'transform':<12}{'classic':>12}{'here':>12}{'ratio':>8}   images a second, one worker")
        for split in ("training", "testing"):
            dataset = splits[split]
            classic = Classic(dataset.paths, classic_steps(split))
            pairs = [(images_per_second(classic, options.bs), images_per_second(dataset, options.bs)) for _ in range(options.repeats)]
            classic_rate, rate = (statistics.median(rates) for rates in zip(*pairs, strict=True))
            ratio = statistics.median(ours / theirs for theirs, ours in pairs)
            print(f"{split:<12}{classic_rate:>12.0f}{rate:>12.0f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
