"""Tiny data sets of real images, in the layouts that the pipeline reads. Tests of every folder build theirs here.

`make_…(path, layout=…, n_classes=…, n_images=…)` writes below `path` and returns the data set's own folder. `SMALL`,
`SHORT_RUN`, `run_words` and `dry_run` are what commands take on them; `values`, `weights` and `assert_same_run` compare
what runs leave behind.
"""

import contextlib
import re
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from utilities.errors import UserError

CUB_NAMES = (
    "Black_footed_Albatross",
    "Laysan_Albatross",
    "Sooty_Albatross",
    "Groove_billed_Ani",
    "Crested_Auklet",
    "Least_Auklet",
)
CAR_NAMES = (
    "AM General Hummer SUV 2000",
    "Acura RL Sedan 2012",
    "Acura TL Sedan 2012",
    "Acura TL Type-S 2008",
    "Acura TSX Sedan 2012",
    "Acura Integra Type R 2001",
    "Acura ZDX Hatchback 2012",
    "Aston Martin V8 Vantage Convertible 2012",
)
PRODUCTS = (
    "bicycle",
    "cabinet",
    "chair",
    "coffee_maker",
    "fan",
    "kettle",
    "lamp",
    "mug",
    "sofa",
    "stapler",
    "table",
    "toaster",
)

# What makes a published command run on such data: no weights, no counts, images of 32 x 32 pixels.
SMALL = ["--not_pretrained", "--allow_partial_dataset", "--resize_size", "36", "--crop_size", "32", "--kernels", "0"]

# The shortest training that selects an epoch: two batches each.
SHORT_RUN = [
    "--arch",
    "conv4_normalize",
    "--embed_dim",
    "8",
    "--bs",
    "8",
    "--kernels",
    "0",
    "--lr",
    "0.001",
    "--iterations_per_epoch",
    "2",
    "--resize_size",
    "18",
    "--crop_size",
    "16",
    "--evaluation_metrics",
    "e_recall@1",
    "map_r",
    "--storage_metrics",
    "map_r",
    "--no_records",
    "--plot_every",
    "0",
]


def run_words(data, save_path, *more):
    """The words of `SHORT_RUN` on a data set that is a folder a class."""
    return ["--dataset", "folder", "--dataset_folder_path", str(data), "--save_path", str(save_path), *SHORT_RUN, *more]


def values(folder):
    """The recorded values of a run but for times, by epoch, split and metric."""
    from runs import RunFolder

    rows = RunFolder(folder).metrics
    return rows[~rows.metric.str.contains("second")].set_index(["epoch", "split", "metric"]).value.sort_index()


def last(folder):
    """The content of a run's last checkpoint."""
    from runs import checkpoint

    return checkpoint.read(folder / checkpoint.LAST)


def equal(one, two):
    """Of nested dicts, lists and tensors, to the bit."""
    import torch

    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[name], two[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(equal, one, two))
    return torch.equal(one, two) if torch.is_tensor(one) else one == two


def assert_same_run(one, other):
    """Two runs' folders hold the same, to the bit: recorded values, and all that the last checkpoints hold but the
    run's own state.
    """
    a = values(one)
    b = values(other)
    assert a.equals(b), a[a != b] if a.index.equals(b.index) else a.index.symmetric_difference(b.index)
    a = last(one)
    b = last(other)
    assert [part for part in sorted(set(a) | set(b)) if part != "run" and not equal(a.get(part), b.get(part))] == []


def dry_run(words, capsys):
    """Watch a command of main.py pass its dry run on small images, which writes a picture of the batch alone. Returns
    what it printed.
    """
    import main
    import parameters

    with tempfile.TemporaryDirectory() as folder:
        main.main(parameters.read([*words, *SMALL, "--save_path", folder, "--dry_run"]))
        written = [path.name for path in Path(folder).rglob("*") if path.is_file()]
    said = capsys.readouterr().out
    assert "dry run: one batch of" in said and "loss nan" not in said, said
    assert len(written) == 1 and written[0].endswith("_batch.png"), written
    return said


def documented(line):
    """The source of the example in CONTRIBUTING.md that has this line."""
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return next(
        textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if line in block
    )


@contextlib.contextmanager
def refused(match, *words):
    """A UserError of one line that holds all `words`."""
    with pytest.raises(UserError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value) and all(str(word) in str(caught.value) for word in words), caught.value


def picture(seed, size=(40, 30)):
    """A smooth random RGB picture of `size` (width, height), so that JPEG keeps it nearly as it is."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def write_image(path, seed, size=(40, 30), mode="RGB"):
    """Write one picture to `path` (the suffix decides the format), making its folders. Returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed, size).convert(mode).save(
        path, **({"quality": 90} if path.suffix.lower() in (".jpg", ".jpeg") else {})
    )
    return path


def make_folder(path, n_classes=6, n_images=4, size=(40, 30), names=None):
    """`path/<class>/<images>`."""
    for c, name in enumerate(names or [f"class_{c}" for c in range(n_classes)]):
        for i in range(n_images):
            write_image(Path(path) / name / f"{i:03d}.jpg", (c, i), size)
    return Path(path)


def make_cub200(path, layout="official", n_classes=8, n_images=6, size=(40, 30)):
    """CUB200-2011 with `n_classes` of its classes. Layouts: official (`CUB_200_2011/` with its lists), icml
    (`cub200/images/`).
    """
    root = Path(path) / ("CUB_200_2011" if layout == "official" else "cub200")
    names = [f"{c:03d}.{CUB_NAMES[c - 1] if c <= len(CUB_NAMES) else f'Bird_{c}'}" for c in range(1, n_classes + 1)]
    images = []
    labels = []
    for c, name in enumerate(names, start=1):
        for i in range(n_images):
            file = f"{name}/{name[4:]}_{i:04d}_{c * 1000 + i}.jpg"
            write_image(root / "images" / file, (c, i), size)
            images.append(f"{len(images) + 1} {file}")
            labels.append(f"{len(images)} {c}")
    if layout == "official":
        (root / "images.txt").write_text("\n".join(images) + "\n")
        (root / "image_class_labels.txt").write_text("\n".join(labels) + "\n")
        (root / "classes.txt").write_text("".join(f"{c} {name}\n" for c, name in enumerate(names, start=1)))
    return root


def make_cars196(path, layout="icml", n_classes=8, n_images=6, size=(40, 30)):
    """Cars196 in small. Layouts: official (`car_ims`, `cars_annos.mat`), torchvision (halves, `devkit`), icml (folder a
    class), kaggle (halves).
    """
    root = Path(path) / ("stanford_cars" if layout == "torchvision" else "cars196")
    names = [CAR_NAMES[c] if c < len(CAR_NAMES) else f"Zebra {c:03d} Coupe 2012" for c in range(n_classes)]
    rows = {"train": [], "test": []}
    for c, name in enumerate(names):
        for i in range(n_images):
            # classes interleaved: the order of files says nothing
            half = "test" if i % 2 else "train"
            number = i * n_classes + c + 1
            file = {
                "official": f"car_ims/{number:06d}.jpg",
                "torchvision": f"cars_{half}/{number:05d}.jpg",
                "icml": f"images/{name}/{i:05d}.jpg",
                "kaggle": f"car_data/car_data/{half}/{name}/{i:05d}.jpg",
            }[layout]
            write_image(root / file, (c, i), size)
            rows[half].append((file if layout == "official" else Path(file).name, 1, 1, *size, c + 1))
    if layout == "official":
        _annotate_cars(root / "cars_annos.mat", "relative_im_path", rows["train"] + rows["test"], names)
    elif layout == "torchvision":
        _annotate_cars(root / "devkit/cars_train_annos.mat", "fname", rows["train"])
        _annotate_cars(root / "cars_test_annos_withlabels.mat", "fname", rows["test"])
        _annotate_cars(root / "devkit/cars_meta.mat", names=names)
    return root


def _annotate_cars(path, field="", rows=(), names=()):
    """A file of Matlab with Cars196's annotations, its class names or both."""
    from scipy.io import savemat

    content = {}
    if rows:
        fields = [(field, "O"), *((f"bbox_{k}", "O") for k in ("x1", "y1", "x2", "y2")), ("class", "O")]
        content["annotations"] = np.array(rows, dtype=fields)[None]
    if names:
        content["class_names"] = np.empty((1, len(names)), dtype=object)
        content["class_names"][0] = names
    path.parent.mkdir(exist_ok=True)
    savemat(path, content)


def make_online_products(path, layout="official", n_train=6, n_test=6, n_images=4, size=(40, 30)):
    """Stanford Online Products in small. Layouts: official (`Stanford_Online_Products/`), icml
    (`online_products/images`, `Info_Files`).
    """
    official = layout == "official"
    root = Path(path) / ("Stanford_Online_Products" if official else "online_products")
    lists, images = (root, root) if official else (root / "Info_Files", root / "images")
    lists.mkdir(parents=True, exist_ok=True)
    image_id = 0
    of_product = {}
    for name, classes in (
        ("Ebay_train", range(1, n_train + 1)),
        ("Ebay_test", range(n_train + 1, n_train + n_test + 1)),
    ):
        lines = ["image_id class_id super_class_id path"]
        first = classes[0]
        for c in classes:
            super_id = 1 + (c - first) * len(PRODUCTS) // len(classes)
            for i in range(n_images):
                image_id += 1
                file = f"{PRODUCTS[super_id - 1]}_final/{111000000000 + c}_{i}.JPG"
                write_image(images / file, (c, i), size)
                lines.append(f"{image_id} {c} {super_id} {file}")
                of_product.setdefault(PRODUCTS[super_id - 1], []).append(file)
        (lists / f"{name}.txt").write_text("\n".join(lines) + "\n")
    if not official:
        for product, files in of_product.items():
            (lists / f"{product}.txt").write_text("\n".join(files) + "\n")
    return root
