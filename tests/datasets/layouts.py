"""The official layouts of data sets with roles or lists, in small. Each maker writes below `path` and returns the data set's own folder."""

import io
import json
import tarfile

from tests import builders

SIZE = (12, 10)


def make_inshop(path, layout="plain", n_train=3, n_test=3):
    """Two images of each training item, two queries and one in the gallery of each test item. Layouts: plain, eval (as unpacked), highres."""
    root = path / "inshop"
    images = root / {"plain": "img", "eval": "Img/img", "highres": "img_highres"}[layout]
    lines = []
    for item in range(1, n_train + n_test + 1):
        place = f"{'WOMEN' if item % 2 else 'MEN'}/{'Dresses' if item < 4 else 'Denim'}/id_{item * 7:08d}"
        for number, status in enumerate(("train", "train") if item <= n_train else ("query", "gallery", "query"), start=1):
            builders.write_image(images / place / f"0{number}_1_front.jpg", (item, number), SIZE)
            lines.append(f"img/{place}/0{number}_1_front.jpg           id_{item * 7:08d} {status}")
    lists = root / "Eval" if layout == "eval" else root
    lists.mkdir(parents=True, exist_ok=True)
    lines = lines[::-1]  # the order of the list is not that of the ids
    (lists / "list_eval_partition.txt").write_text("\n".join([str(len(lines)), "image_name item_id evaluation_status", *lines]) + "\n")
    return root


def make_inaturalist2018(path, layout="folder"):
    """Five species that train, three that test, three images each. Layouts: folder (`Inat_dataset_splits/`), plain (lists at the root)."""
    root = path / "inaturalist2018"
    lists = root / "Inat_dataset_splits" if layout == "folder" else root
    lists.mkdir(parents=True)
    for part, species in (("train", (3, 10, 2, 7, 5)), ("test", (11, 4, 9))):
        lines = []
        for number in species:
            for i in range(3):
                file = f"{'Aves' if number < 8 else 'Plantae'}/{number}/{number:02d}{i}.jpg"
                builders.write_image(root / "train_val2018" / file, (number, i), SIZE)
                lines.append(f"train_val2018/{file}")
        (lists / f"Inaturalist_{part}_set1.txt").write_text("\n".join(lines) + "\n")
    return root


def make_vehicleid(path, folder="VehicleID_V1.0"):
    """Four vehicles that train; lists of three, four and five that test, the larger ones with those of the smaller."""
    root = path / folder
    lists = root / "train_test_split"
    lists.mkdir(parents=True)
    image, lines = 0, {}
    for vehicle in (9, 12, 3, 40, 100, 77, 61, 80, 75):
        for _ in range(2 + vehicle % 3):
            image += 1
            builders.write_image(root / "image" / f"{image:07d}.jpg", image, SIZE)
            lines.setdefault(vehicle, []).append(f"{image:07d} {vehicle}")
    for file, vehicles in (
        ("train_list", (9, 12, 3, 40)), ("test_list_800", (100, 77, 61)), ("test_list_1600", (100, 77, 61, 80)),
        ("test_list_2400", (75, 100, 77, 61, 80)),
    ):  # fmt: skip
        (lists / f"{file}.txt").write_text("".join(f"{line}\n" for vehicle in vehicles for line in lines[vehicle]))
    return root


def make_shard(path, samples):
    """A WebDataset tar. `samples`: key -> what stands beside its image: text of a .cls, a dictionary of a .json, or None."""
    with tarfile.open(path, "w") as archive:
        for seed, (key, label) in enumerate(samples.items()):
            image = io.BytesIO()
            builders.picture((len(key), seed), SIZE).save(image, "PNG")
            files = {"png": image.getvalue()}
            if label is not None:
                ending, text = ("json", json.dumps(label)) if isinstance(label, dict) else ("cls", label)
                files[ending] = text.encode()
            for ending, data in sorted(files.items()):  # the label first
                member = tarfile.TarInfo(f"{key}.{ending}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path
