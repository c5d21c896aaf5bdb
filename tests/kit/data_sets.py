"""Tiny data sets of real images, in the layouts that the pipeline reads.

`make_…(path, layout=…, n_classes=…, n_images=…)` writes below `path` and returns the data set's own folder.
"""

import json
from pathlib import Path

import numpy as np

from tests.kit.images import write_image

CUB_NAMES = (
    "Black_footed_Albatross Laysan_Albatross Sooty_Albatross Groove_billed_Ani Crested_Auklet Least_Auklet"
).split()
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


PRODUCTS = "bicycle cabinet chair coffee_maker fan kettle lamp mug sofa stapler table toaster".split()


def make_folder(path, n_classes=6, n_images=4, size=(40, 30), names=None):
    """`path/<class>/<images>`. An image's colours go by the position of its class, not by its name."""
    for c, name in enumerate(names or [f"class_{c}" for c in range(n_classes)]):
        for i in range(n_images):
            write_image(Path(path) / name / f"{i:03d}.jpg", (c, i), size)
    return Path(path)


def write_split_file(path, **parts):
    """A --split_file of the classes of `make_folder` with these numbers: `train=range(5)`. Returns its path."""
    path.write_text(json.dumps({part: [f"class_{c}" for c in classes] for part, classes in parts.items()}))
    return path


def make_cub200(path, layout="official", n_classes=8, n_images=6, size=(40, 30)):
    """CUB200-2011 in small. Layouts: official (`CUB_200_2011/` with its lists), icml (`cub200/images/`)."""
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
    """Cars196 in small. Layouts: official (`car_ims`), torchvision (halves), icml (classes), kaggle (halves)."""
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
            name_in_list = file if layout == "official" else Path(file).name
            rows[half].append((name_in_list, 1, 1, *size, c + 1))
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
    """Stanford Online Products in small. Layouts: official, icml (`online_products/images`, `Info_Files`)."""
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
