"""Where data sets are found, in which layouts, in which order, how each is divided; and the published counts."""

import os
from argparse import Namespace
from collections import Counter

import pytest

import datasets
from datasets import _cars196_classes, _layout, cars196
from datasets._layout import Published
from tests.datasets.layouts import LAYOUTS, check_split, names
from tests.kit.data_sets import PRODUCTS, make_cars196, make_cub200, make_folder
from tests.kit.images import write_image
from tests.kit.refusals import refused


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """Data set -> its own folder in each of its layouts."""
    roots = {}
    for name, (make, layouts) in LAYOUTS.items():
        roots[name] = [make(tmp_path_factory.mktemp(f"{name}-{layout}"), layout) for layout in layouts]
    return roots


def read(name, source, **flags):
    return datasets.select(name, None, source, 64, allow_partial_dataset=True, **flags)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read_alike(roots, name):
    readings = []
    n_classes = 6 if name == "online_products" else 4
    for root in [*roots[name], *(root.parent for root in roots[name])]:
        splits = read(name, root)
        readings.append(splits)
        assert list(splits) == ["training", "validation", "testing", "evaluation"] and splits["validation"] is None
        for split in ("training", "testing", "evaluation"):
            check_split(splits[split], n_classes, 24)
            assert splits[split].partial
        training = splits["training"]
        testing = splits["testing"]
        assert not set(training.class_names.values()) & set(testing.class_names.values())
        assert training.class_names == splits["evaluation"].class_names
        assert training.paths == splits["evaluation"].paths and not set(training.paths) & set(testing.paths)
        if name == "online_products":
            assert {(name, name.partition(".")[2]) for name in testing.class_names.values()} == testing.lineages
            assert set(training.super_labels.values()) <= set(PRODUCTS)
    for split in ("training", "testing"):
        assert len({f"{splits[split].class_names} {splits[split].super_labels}" for splits in readings}) == 1
        assert len({str(Counter(label for _, label in splits[split].image_list)) for splits in readings}) == 1


# schemes in which a class has the same label in all splits
SHARED = ("closed_set", "index", "by samples")


@pytest.mark.parametrize("scheme", ["class_disjoint", "mlrc", "closed_set", "index", "by classes", "by samples"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_data_set_has_folds_and_a_validation_split(roots, name, scheme):
    root = roots[name][0]
    folded = not scheme.startswith("by ")
    flags = {"split_scheme": scheme, "split_partitions": 2, "split_sets": 2}
    if not folded:
        flags = {"use_tv_split": True, "tv_split_by_samples": scheme == "by samples", "tv_split_perc": 0.5}
    folds = [read(name, root, fold=i, **flags) for i in range(1 + folded)]
    assert folds[0]["testing"].paths == folds[-1]["testing"].paths
    assert not folded or not set(folds[0]["validation"].paths) & set(folds[1]["validation"].paths)
    for splits in folds:
        training, validation, testing = parts = [splits[split] for split in ("training", "validation", "testing")]
        assert sum(map(len, parts)) == len({path for part in parts for path in part.paths})
        assert splits["evaluation"].image_list == training.image_list
        transforms = [splits[split].transforms_as_resolved for split in ("evaluation", "validation", "training")]
        assert transforms[0] == transforms[1] != transforms[2]
        labels = {}
        for part in parts[: 3 if folded else 2]:
            assert scheme in SHARED or part.avail_classes == list(range(part.n_classes))
            for label, class_name in part.class_names.items():
                assert scheme not in SHARED or labels.setdefault(class_name, label) == label
    if not folded:
        unfolded = read(name, root)
        assert testing.image_list == unfolded["testing"].image_list
        assert sorted(training.paths + validation.paths) == sorted(unfolded["training"].paths)
    as_option = Namespace(**flags, fold=folded and 1, allow_partial_dataset=True)
    assert datasets.select(name, as_option, root)["validation"].paths == validation.paths


def test_classes_come_in_the_order_of_their_ids_not_of_their_names(tmp_path):
    root = make_cub200(tmp_path, layout="official", n_classes=12)
    assert [name[:3] for name in names(read("cub200", tmp_path))["training"]] == [f"{c:03d}" for c in range(1, 7)]
    # ids turned round: the lists decide, not the folders
    lists = root / "image_class_labels.txt"
    rows = map(str.split, lists.read_text().splitlines())
    lists.write_text("\n".join(f"{image} {13 - int(label)}" for image, label in rows))
    (root / "classes.txt").unlink()
    assert [name[:3] for name in names(read("cub200", tmp_path))["training"]] == [f"{c:03d}" for c in range(12, 6, -1)]
    all_cars = _cars196_classes.NAMES
    assert len(set(all_cars)) == 196 and set(all_cars[:98]) == set(sorted(all_cars)[:98])
    cars = ["Acura Integra Type R 2001", "Acura TSX Sedan 2012", "Ram C-V Cargo Van Minivan 2012", "Unheard Of 2030"]
    make_folder(tmp_path / "cars196" / "images", names=sorted(cars, reverse=True))
    # The Acura TSX has the id 5, the Acura Integra the id 6
    assert names(read("cars196", tmp_path)) == {"training": cars[1::-1], "testing": cars[2:]}


def test_images_below_a_folder_are_found_once_through_links(tmp_path):
    photos = make_folder(tmp_path / "photos", n_classes=2, n_images=1)
    elsewhere = make_folder(tmp_path / "elsewhere", n_classes=1, n_images=3)
    for link, to in (("again", photos / "class_0"), ("class_1/up", photos), ("more", elsewhere)):
        (photos / link).symlink_to(to)
    paths = list(_layout.below(photos))
    assert len(paths) == len({os.path.realpath(path) for path in paths}) == 5


def test_nested_halves_of_cars_and_labels_of_the_test_half(tmp_path):
    root = make_cars196(tmp_path, "torchvision")
    labels = cars196.TEST_LABELS
    before = read("cars196", tmp_path)
    (root / "cars_train").rename(root / "moved")
    (root / "cars_train").mkdir()
    (root / "moved").rename(root / "cars_train/cars_train")
    (root / labels).rename(root / "devkit" / labels)
    after = read("cars196", tmp_path)
    for split in ("training", "testing"):
        paths = [path.replace("cars_train/", "cars_train/cars_train/") for path in before[split].paths]
        assert after[split].paths == paths
        assert [label for _, label in after[split].image_list] == [label for _, label in before[split].image_list]
    # the flat release, with the development kit beside it
    (root / "devkit").rename(make_cars196(tmp_path / "flat", "official") / "devkit")
    assert len(read("cars196", tmp_path / "flat")["training"]) == 24
    (tmp_path / "flat/cars196/devkit").rename(root / "devkit")
    (root / "devkit" / labels).unlink()
    with refused(f"{labels} cannot be read"):
        read("cars196", tmp_path)


@pytest.mark.parametrize(("name", "layout"), [("cub200", "icml"), ("cub200", "official"), ("cars196", "kaggle")])
def test_stray_files_and_folders_do_not_shift_the_split(tmp_path, name, layout):
    root = LAYOUTS[name][0](tmp_path, layout)
    before = read(name, tmp_path)
    images = root / "images" if layout != "kaggle" else root / "car_data/car_data/train"
    folder = min(path for path in images.iterdir() if path.is_dir()).name
    (images / "000_notes").mkdir()
    for stray in (".DS_Store", "._x", "notes.txt", f"{folder}/._0.jpg", f"{folder}/Thumbs.db", "000_notes/a.txt"):
        (images / stray).write_bytes(b"x")
    write_image(images / "__MACOSX" / "a.jpg", 1)
    if name == "cub200":
        # a folder of images without an id
        write_image(images / "extra" / "a.jpg", 1)
    after = read(name, tmp_path)
    for split in ("training", "testing"):
        assert after[split].image_list == before[split].image_list
        assert after[split].class_names == before[split].class_names


def test_published_counts_are_those_of_the_papers():
    unknown = (None, None)
    published = {name: getattr(datasets.REGISTRY.module(name), "PUBLISHED", None) for name in datasets.REGISTRY.names()}
    expected = {
        "cub200": Published((100, 100), (5864, 5924)),
        "cars196": Published((98, 98), (8054, 8131)),
        "online_products": Published((11318, 11316), (59551, 60502)),
        "inaturalist2018": Published((5690, 2452), (325846, 136093)),
        "market1501": Published(unknown, (12936, None), (3368, None), unknown, (15913,)),
        "msmt17": Published(unknown, (32621, None), (11659, None), (82161, None)),
        "veri776": Published(unknown, (37778, None), (1678, None), (11579, None)),
    }
    assert {name: published[name] for name in expected} == expected
    assert str(published["inshop"]) == (
        "52,712 images of 7,982 classes (training 25,882 of 3,997, test 26,830 of 3,985, query 14,218 of 3,985, "
        "gallery 12,612 of 3,985)"
    )
    assert str(published["cuhk03"]["labeled"]) == (
        "images of classes (training 7,368 of 767, test unknown of 700, query 1,400 of 700, gallery 5,328 of 700)"
    )
    assert published["cuhk03"]["detected"].gallery == (5332, 700) and published["cuhk03"]["detected"].images[0] == 7365
    n_images = {number: counts.images for number, counts in published["vehicleid"].items()}
    assert n_images == {800: (113346, 6493), 1600: (113346, 13377), 2400: (113346, 19777)}
    # a count may be unknown
    counts = Published((2, 3), (20, 31), (10, 3), (21, 3))
    assert Published((2, None), (20, 31), (10, None), (21, 3)).fits(counts) and counts.fits(counts)
    assert not Published((2, None), (20, 30), (10, None), (21, 3)).fits(counts)
    assert str(Published((2, None), (20, 31))) == "images of classes (training 20 of 2, test 31 of unknown)"
