"""The official layouts of data sets with roles or lists, in small, and what the tests of data sets share.

Each maker writes below `path` and returns the data set's own folder.
"""

import io
import json
import pickle
import tarfile

import numpy as np

import datasets
from tests.kit.data_sets import make_cars196, make_cub200, make_online_products
from tests.kit.images import random_picture, write_image

SIZE = (12, 10)
# data set -> its maker, its layouts
LAYOUTS = {
    "cub200": (make_cub200, ("official", "icml")),
    "cars196": (make_cars196, ("official", "torchvision", "icml", "kaggle")),
    "online_products": (make_online_products, ("official", "icml")),
}


def read_folder(root, **flags):
    """The splits of a folder."""
    return datasets.select("folder", dataset_folder_path=str(root), **flags)


def partial(name, source, **flags):
    """The splits of a small copy."""
    return datasets.select(name, None, source, 8, allow_partial_dataset=True, **flags)


def names(splits):
    """Split -> names of its classes, of the splits that there are."""
    present = [split for split in ("training", "validation", "testing") if splits[split] is not None]
    return {split: list(splits[split].class_names.values()) for split in present}


def check_split(split, n_classes, n_images):
    """The contract of one split, whatever the data set."""
    assert split.n_classes == n_classes == len(split.avail_classes) and split.avail_classes == list(range(n_classes))
    assert len(split) == len(split.image_list) == len(split.paths) == n_images == split.counts["images"]
    assert sorted(split.image_dict) == list(range(n_classes)) == sorted(split.class_names) == sorted(split.super_labels)
    for label, entries in split.image_dict.items():
        assert all(split.image_list[index] == (path, label) and split.paths[index] == path for path, index in entries)
    assert sum(map(len, split.image_dict.values())) == n_images
    label, image, index = split[n_images - 1]
    assert (label, index) == (split.image_list[-1][1], n_images - 1)
    assert image.dtype.is_floating_point is False and image.shape == (3, 64, 64)


def write_images(folder, files):
    """A picture for each of the files, drawn from its name."""
    for file in files:
        write_image(folder / file, tuple(map(ord, file)), SIZE)


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def make_inshop(path, layout="plain", n_train=3, n_test=3):
    """Two images of each training item, two queries and one gallery image of each test item.

    Layouts: plain, eval (as unpacked), highres.
    """
    root = path / "inshop"
    lines = []
    for item in range(1, n_train + n_test + 1):
        place = f"{'WOMEN' if item % 2 else 'MEN'}/{'Dresses' if item < 4 else 'Denim'}/id_{item * 7:08d}"
        statuses = ("train", "train") if item <= n_train else ("query", "gallery", "query")
        files = [f"{place}/0{number}_1_front.jpg" for number in range(1, len(statuses) + 1)]
        write_images(root / {"plain": "img", "eval": "Img/img", "highres": "img_highres"}[layout], files)
        for file, status in zip(files, statuses, strict=True):
            lines.append(f"img/{file}           id_{item * 7:08d} {status}")
    lists = root / "Eval" if layout == "eval" else root
    head = [len(lines), "image_name item_id evaluation_status"]
    # its order is not that of the ids
    write_lines(lists / "list_eval_partition.txt", [*head, *lines[::-1]])
    return root


def make_inaturalist2018(path, layout="folder"):
    """Five species that train, three that test, three images each.

    Layouts: folder (`Inat_dataset_splits/`), plain (lists at the root).
    """
    root = path / "inaturalist2018"
    lists = root / "Inat_dataset_splits" if layout == "folder" else root
    for part, species in (("train", (3, 10, 2, 7, 5)), ("test", (11, 4, 9))):
        files = []
        for number in species:
            folder = f"train_val2018/{'Aves' if number < 8 else 'Plantae'}/{number}"
            files += [f"{folder}/{number:02d}{i}.jpg" for i in range(3)]
        write_images(root, files)
        write_lines(lists / f"Inaturalist_{part}_set1.txt", files)
    return root


def make_vehicleid(path, folder="VehicleID_V1.0"):
    """Four vehicles that train; lists of three, four and five that test, the larger ones with those of the smaller."""
    root = path / folder
    image = 0
    lines = {}
    for vehicle in (9, 12, 3, 40, 100, 77, 61, 80, 75):
        for _ in range(2 + vehicle % 3):
            image += 1
            lines.setdefault(vehicle, []).append(f"{image:07d} {vehicle}")
    write_images(root / "image", [f"{number:07d}.jpg" for number in range(1, image + 1)])
    for file, vehicles in (
        ("train_list", (9, 12, 3, 40)),
        ("test_list_800", (100, 77, 61)),
        ("test_list_1600", (100, 77, 61, 80)),
        ("test_list_2400", (75, 100, 77, 61, 80)),
    ):
        rows = [line for vehicle in vehicles for line in lines[vehicle]]
        write_lines(root / "train_test_split" / f"{file}.txt", rows)
    return root


MARKET = {
    "bounding_box_train": (
        "0002_c1s1_000451_03 0002_c2s1_000301_01 0007_c1s6_028546_01 0007_c3s3_077419_03 -1_c1s1_000401_03"
    ).split(),
    "query": "0001_c1s1_001051_00 0001_c2s3_000151_00 0003_c3s1_001051_00".split(),
    "bounding_box_test": (
        "0001_c1s1_002301_02 0001_c2s1_000051_03 0001_c4s6_017541_03 0003_c5s1_001051_04 0000_c1s1_000151_01 "
        "0000_c6s3_095000_05 -1_c2s1_000401_03 -1_c4s2_000401_03"
    ).split(),
}


def make_market1501(path, distractors=0):
    """Two training persons, two test persons with three queries, background and junk in the gallery."""
    root = path / "Market-1501-v15.09.15"
    files = dict(MARKET)
    if distractors:
        files["images"] = [f"d{i:07d}" for i in range(distractors)]
    for folder, names in files.items():
        write_images(root / folder, [f"{name}.jpg" for name in names])
        (root / folder / "Thumbs.db").write_bytes(b"x")
    return root


def make_veri776(path):
    """Two training vehicles and two of test, whose queries lie in the gallery too, one of them not."""
    root = path / "VeRi"
    for folder, names in {
        "image_train": "0002_c002_00030600_0 0002_c003_00030640_1 0001_c001_00016450_0 0001_c002_00016460_0",
        "image_query": "0005_c001_00016450_0 0005_c003_00013960_0 0009_c004_00019200_0",
        "image_test": "0005_c001_00016450_0 0005_c003_00013960_0 0005_c003_00013970_0 0009_c001_00019000_0 "
        "0009_c020_00019100_0",
    }.items():
        write_images(root / folder, [f"{name}.jpg" for name in names.split()])
    return root


CUHK03 = "1_001_1_01 1_001_2_06 1_002_1_01 1_002_2_07 2_001_1_01 2_001_1_02 2_001_2_06 2_001_2_07 3_001_1_01 3_001_2_06"


def make_cuhk03(path):
    """Two persons that train, two of test with two queries each; the lists of detected boxes alone."""
    from scipy.io import savemat

    root = path / "cuhk03"
    files = [f"{name}.png" for name in CUHK03.split()]
    write_images(root / "images_detected", files)
    content = {
        "filelist": np.array([[file] for file in files], dtype=object),
        "labels": np.array([1, 1, 2, 2, 844, 844, 844, 844, 1284, 1284])[:, None],
        "train_idx": np.array([1, 2, 3, 4])[:, None],
        "query_idx": np.array([5, 7, 9])[:, None],
        "gallery_idx": np.array([6, 8, 10])[:, None],
    }
    savemat(root / "cuhk03_new_protocol_config_detected.mat", content)
    return root


# width and height of the frames of films
FRAME = (64, 48)


def make_film(folder, rows, n_frames=8, digits=6, settings=""):
    """A sequence of the MOT Challenge with these rows of gt.txt, each a text or a tuple."""
    for number in range(1, n_frames + 1):
        write_image(folder / "img1" / f"{number:0{digits}d}.jpg", (len(folder.name), number), FRAME)
    lines = [row if isinstance(row, str) else ",".join(map(str, row)) for row in rows]
    write_lines(folder / "gt" / "gt.txt", lines)
    write_lines(folder / "seqinfo.ini", ["[Sequence]", f"name={folder.name}", f"seqLength={n_frames}", settings])
    return folder


def film_rows(n_frames=8, ids=(1, 2), columns=(1, 1, 1), first=1):
    """A row for each id and frame: 20 x 20 pixels that move to the right."""
    frames = range(first, n_frames + 1)
    return [
        (frame, number, frame + 20 * place, 5, 20, 20, *columns) for place, number in enumerate(ids) for frame in frames
    ]


def make_mot(path, layout="dancetrack"):
    """Films in small as the benchmarks have them."""
    root = path / layout
    if layout == "mot17":
        ignored_rows = [
            (1, 7, 40, 20, 20, 20, 0, 1, 1),
            (2, 8, 40, 20, 20, 20, 1, 7, 1),
            (3, 9, 40, 20, 20, 20, 1, 1, 0.1),
        ]
        for name in ("MOT17-02", "MOT17-04"):
            for detector in ("DPM", "FRCNN", "SDP"):
                make_film(root / "train" / f"{name}-{detector}", [*film_rows(), *ignored_rows])
        write_image(root / "test" / "MOT17-01-DPM" / "img1" / "000001.jpg", 1, FRAME)
    elif layout == "dancetrack":
        for part, name in (("train", "dancetrack0001"), ("train", "dancetrack0002"), ("val", "dancetrack0004")):
            make_film(root / part / name, film_rows(), digits=8)
    elif layout == "sportsmot":
        for part, name in (("train", "v_1LwtoLPw2TU_c006"), ("val", "v_00HRwkvvjtQ_c001")):
            make_film(root / "dataset" / part / name, film_rows(ids=(0, 1)))
        write_lines(root / "splits_txt" / "train.txt", ["v_1LwtoLPw2TU_c006"])
    elif layout == "soccernet":
        for part, name in (("train", "SNMOT-060"), ("test", "SNMOT-116")):
            folder = make_film(root / part / name, film_rows(columns=(1, -1, -1, -1), ids=(1, 2, 3)))
            lines = ["[Sequence]", "trackletID_1= player team left;10", "trackletID_3= ball;1"]
            write_lines(folder / "gameinfo.ini", lines)
    return root


# of three queries: box, easy, hard, junk, as indices into the images of the gallery
REVISITED = [
    ([5.0, 6.0, 50.0, 55.0], np.array([0, 1]), np.array([2]), np.array([3])),
    ([0.0, 0.0, 40.0, 30.0], [], [4, 5], [6]),
    ([10.0, 0.0, 40.0, 30.0], [7], [], []),
]


def make_revisitop(path, name="roxford5k", distractors=0):
    """Nine images of a gallery and three queries; beside it distractors."""
    gallery = [f"all_souls_{i:06d}" for i in range(9)]
    queries = ["query_a", "query_b", "query_c"]
    for number, image in enumerate(gallery + queries):
        write_image(path / name / "jpg" / f"{image}.jpg", (number, 7), (60 + 3 * number, 90))
    truth = [dict(zip(("bbx", "easy", "hard", "junk"), query, strict=True)) for query in REVISITED]
    content = {"imlist": gallery, "qimlist": queries, "gnd": truth}
    (path / name / f"gnd_{name}.pkl").write_bytes(pickle.dumps(content, protocol=2))
    if distractors:
        files = [f"{i % 2}/d{i}.jpg" for i in range(distractors)]
        write_images(path / "revisitop1m" / "jpg", files)
        write_lines(path / "revisitop1m" / "revisitop1m.txt", files)
    return path / name


def make_gldv2(path):
    """Two landmarks of training, five images of the index, and three queries.

    One query is private, one public without positives, one is not used.
    """
    root = path / "gldv2"
    for part, names in (("train", "0a1 1b2 2c3"), ("index", "a00 a01 b02 b03 c04"), ("test", "d10 d11 d12")):
        write_images(root / part, [f"{'/'.join(name)}/{name}.jpg" for name in names.split()])
    write_lines(root / "train_clean.csv", ["landmark_id,images", "7,0a1 1b2", "12,2c3"])
    write_lines(root / "index.csv", ["id", "a00", "a01", "b02", "b03", "c04"])
    solution = ["id,images,Usage", "d10,a01 b03,Private", "d11,None,Public", "d12,None,Ignored"]
    write_lines(root / "retrieval_solution_v2.1.csv", solution)
    return root


def make_ilias(path):
    """Two objects with three queries and three positives, and files that are no images."""
    root = path / "ilias" / "ilias_core"
    for folder, files in {
        "cup_001": ["query/Q001_00", "query/Q001_01", "pos/P001_00", "pos/P001_01"],
        "hat_002": ["query/Q002_00", "pos/P002_00"],
    }.items():
        write_images(root / folder, [f"{file}.jpg" for file in files])
        for file in files:
            (root / folder / f"{file}_bbox.txt").write_text("1 2 3 4\n")
    return root.parent


def make_msmt17(path, version="V1"):
    """Three persons in training, of which two validate too; two in test, numbered from 0 again."""
    root = path / f"MSMT17_{version}"
    train, test = {"V1": ("train", "test"), "V2": ("mask_train_v2", "mask_test_v2")}[version]
    for name, folder, shots in (
        ("train", train, [(2, 1), (2, 3), (0, 1), (0, 2), (1, 5), (1, 6)]),
        ("val", train, [(0, 4), (0, 7), (2, 9), (2, 15)]),
        ("query", test, [(0, 1), (1, 2)]),
        ("gallery", test, [(0, 1), (0, 3), (1, 2), (1, 14)]),
    ):
        lines = []
        for i, (person, camera) in enumerate(shots):
            lines.append(f"{person:04d}/{person:04d}_{i:03d}_{camera:02d}_0303{name}_{i:04d}_0.jpg {person}")
        write_images(root / folder, [line.split()[0] for line in lines])
        write_lines(root / f"list_{name}.txt", lines)
    return root


def add_file(archive, name, data):
    """Add bytes as a file to an open tar archive."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def make_shard(path, samples):
    """A WebDataset tar.

    `samples`: key -> the label beside its image: text of a .cls, a dictionary of a .json, or None.
    """
    with tarfile.open(path, "w") as archive:
        for seed, (key, label) in enumerate(samples.items()):
            image = io.BytesIO()
            random_picture((len(key), seed), SIZE).save(image, "PNG")
            files = {"png": image.getvalue()}
            if label is not None:
                ending, text = ("json", json.dumps(label)) if isinstance(label, dict) else ("cls", label)
                files[ending] = text.encode()
            # the label first
            for ending, data in sorted(files.items()):
                add_file(archive, f"{key}.{ending}", data)
    return path
