"""What is said of official data sets that are missing, incomplete or damaged: one line, which names the place."""

import pytest

import datasets
from datasets._layout import Published
from tests.datasets import layouts
from tests.kit.data_sets import make_cars196, make_cub200, make_online_products
from tests.kit.refusals import refused

NONE = (None, None)
# name -> its maker and its counts in small
SETS = {
    "cub200": (make_cub200, Published((4, 4), (24, 24))),
    "cars196": (lambda path: make_cars196(path, "official"), Published((4, 4), (24, 24))),
    "online_products": (make_online_products, Published((6, 6), (24, 24))),
    "inshop": (layouts.make_inshop, Published((3, 3), (6, 9), (6, 3), (3, 3))),
    "inaturalist2018": (layouts.make_inaturalist2018, Published((5, 3), (15, 9))),
    "vehicleid": (layouts.make_vehicleid, {800: Published((4, 3), (9, 10))}),
    "market1501": (layouts.make_market1501, Published(NONE, (4, None), (3, None), NONE, (6,))),
    "cuhk03": (
        layouts.make_cuhk03,
        {"detected": Published((2, 2), (4, 6), (3, 2), (3, 2))},
    ),
    "msmt17": (layouts.make_msmt17, Published(NONE, (10, None), (2, None), (4, None))),
    "gldv2": (layouts.make_gldv2, Published((2, 0), (3, None), (2, 0), (5, 0))),
    "veri776": (layouts.make_veri776, Published(NONE, (4, None), (3, None), (5, None))),
}


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_missing_whole_or_partial(tmp_path, monkeypatch, capsys, name):
    maker, published = SETS[name]
    monkeypatch.setattr(datasets.REGISTRY.module(name), "PUBLISHED", published)
    with refused(f"--dataset {name}: not found .*https://"):
        datasets.select(name, None, tmp_path)
    maker(tmp_path)
    splits = datasets.select(name, None, tmp_path)
    assert splits["training"].partial is None and not capsys.readouterr().err
    before = splits["testing"]
    (tmp_path / before.paths[-1]).unlink()
    with refused("listed files are missing|published are", tmp_path):
        datasets.select(name, None, tmp_path)
    splits = datasets.select(name, None, tmp_path, allow_partial_dataset=True)
    assert len(splits["testing"]) == len(before) - 1 and splits["testing"].partial
    assert "WARNING" in capsys.readouterr().err
    assert "PARTIAL" in datasets.describe(splits) and datasets.record(splits)["partial"]


GONE = object()
BOXES = {"cub_boxes": True}
ITEM = " id_00000007 train"
FULL = {"inaturalist2018_levels": "full"}
SPECIES = "train_val2018/Aves/3/030.jpg"
# (name, file) -> its content, GONE or (what is replaced, by what); words of the message; flags
DAMAGES = {
    ("cub200", "images.txt"): [
        ("1 a/b.jpg\n2\n", "row 2"),
        ("x 001.A/0.jpg\n", "row 1: 'x 001.A/0.jpg', expected image, file"),
    ],
    ("cub200", "image_class_labels.txt"): [
        ("1 1\n2 x\n", "row 2: '2 x', expected image, label: the file is damaged"),
    ],
    ("cub200", "classes.txt"): [
        ("1 001.A\n\udcff 002.B\n", r"classes.txt cannot be read \(byte 8 is no text in UTF-8"),
    ],
    ("cub200", "bounding_boxes.txt"): [
        ("1 5.0 2.0 8.0 9.0\n", "has no box of image 2", BOXES),
        ("1 x 2.0 8.0 9.0\n", "bounding_boxes.txt, row 1", BOXES),
    ],
    ("online_products", "Ebay_train.txt"): [
        ("image_id class_id super_class_id path\n1 x 1 bicycle_final/1.JPG\n", "row 2: '1 x 1 bicycle_final"),
    ],
    ("online_products", "Ebay_test.txt"): [(GONE, "Ebay_test.txt")],
    ("cars196", "cars_annos.mat"): [("nothing", "cars_annos.mat")],
    ("inshop", "list_eval_partition.txt"): [
        (("15\n", "16\n"), "lists 15 images, but its first line says 16"),
        (("15\n", ""), "expected the count in the first line"),
        ((ITEM, " id_00000007"), "row 16: 2 fields"),
        ((ITEM, " id_x train"), "row 16"),
        ((ITEM, " id_00000007 test"), "row 16"),
        ((ITEM, " id_00000028 train"), "item id_00000028 is in train"),
    ],
    ("inaturalist2018", "Inat_dataset_splits/Inaturalist_train_set1.txt"): [
        ((SPECIES, "030.jpg"), "row 1: '030.jpg'"),
        ((SPECIES, "Plantae/11/110.jpg"), "species Plantae/11 is in train and in test"),
        ((SPECIES, SPECIES), "train2018.json cannot be read .*train2018.json.tar.gz", FULL),
    ],
    ("inaturalist2018", "train2018.json"): [
        ('{"categories": []}', "no id", FULL),
        ('{"categories": [{"id": 2}]}', "expected JSON with categories of id, kingdom", FULL),
    ],
    ("vehicleid", "train_test_split/test_list_800.txt"): [
        ("0000001 x\n", "expected the numbers of an image and of its vehicle"),
        ("0000011 9\n", "vehicle 9 is in train_list.txt too"),
    ],
    ("market1501", "query/0003s1.jpg"): [
        ("", "0003s1.jpg: no identity and camera in its name, expected one like 0002_c1s1"),
    ],
    ("market1501", "bounding_box_test/0003_c5s1_001051_04.jpg"): [
        (GONE, "1 identities of queries have no image in the gallery, the first is 0003"),
    ],
    ("msmt17", "list_query.txt"): [(GONE, "list_query.txt cannot be read")],
    ("msmt17", "list_gallery.txt"): [("0000/0000_000.jpg 0\n", "expected a path with its camera")],
    ("gldv2", "retrieval_solution_v2.1.csv"): [
        (("b03", "zzz"), "ground truth lists .*zzz.jpg, which is not a query or not an image of the gallery"),
        ("id,images\nd10,a01\n", "no Usage in each row; its columns are id, images"),
    ],
}


@pytest.mark.parametrize(("name", "file"), DAMAGES)
def test_what_is_damaged_is_named(tmp_path, monkeypatch, name, file):
    maker, published = SETS[name]
    monkeypatch.setattr(datasets.REGISTRY.module(name), "PUBLISHED", published)
    path = maker(tmp_path) / file
    before = path.read_bytes() if path.exists() else b""
    for content, words, *flags in DAMAGES[name, file]:
        if content is GONE:
            path.unlink()
        elif isinstance(content, tuple):
            old, new = (part.encode() for part in content)
            assert old in before
            path.write_bytes(before.replace(old, new, 1))
        else:
            path.write_text(content, errors="surrogateescape")
        with refused(words, path.parents[file.count("/")]):
            datasets.select(name, None, tmp_path, **dict(*flags))
