"""Groups of images stay on one side of every split; splits by time and with unknown classes against plain ones."""

import datetime
import math
from argparse import Namespace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import datasets
from datasets import _groups, _held_out, _schemes, _splits, _times
from datasets._images import Image
from datasets._layout import Reading
from datasets._reading import by_class, images_of
from tests.kit.refusals import refused
from utilities.errors import UserError
from utilities.files import write_csv

DAY = 24 * 3600
DEFAULTS = vars(datasets.REGISTRY.options(None, dataset="folder", dataset_folder_path="X"))
SCHEMES = ("class_disjoint", "mlrc", "closed_set", "index", "half", *_held_out.SCHEMES)


def options(**changes):
    """The flags of a split as `datasets.select` gets them."""
    return Namespace(**{**DEFAULTS, **changes})


def random_images(rng):
    """Images of 4 to 12 classes, some with a time and a group that reaches over classes."""
    images = []
    n_groups = int(rng.integers(3, 60))
    for c in range(int(rng.integers(4, 12))):
        for i in range(int(rng.integers(1, 12))):
            group = f"g{rng.integers(n_groups)}" if rng.random() < 0.3 else None
            time = float(rng.integers(0, 40 * DAY)) if rng.random() < 0.97 else None
            images.append(Image(f"/data/c{c:02d}/{i:02d}.jpg", f"c{c:02d}", time=time, group=group))
    return images


def parts_of(images, opt, fold=0):
    """The training, validation and test images of a scheme, without a data set on disk."""
    classes = by_class(images)
    if opt.split_scheme != "half":
        training, validation, testing = _schemes.divide(classes, opt, fold, "/data")
        if opt.split_scheme in _held_out.SCHEMES:
            training, validation = map(images_of, _splits.cut_by_samples(by_class(training), opt))
        return training, validation, testing
    training = _groups.follow(set(list(classes)[: len(classes) // 2]), classes)
    testing = {name: rows for name, rows in classes.items() if name not in training}
    training, validation = _splits.cut_by_classes({name: classes[name] for name in classes if name in training}, opt)
    return images_of(training), images_of(validation), images_of(testing)


def resolved(images, opt):
    """The images with the names of their groups by --split_groups."""
    reading = Reading(images)
    _groups.resolve(reading, opt, Path("/data"))
    return reading.images


def test_no_group_is_on_two_sides_in_any_scheme():
    rng = np.random.default_rng(5)
    n_divided = 0
    for table in range(200):
        images = random_images(rng)
        changes = {
            "split_groups": [["sequence"], ["sequence", "burst"]][table % 2],
            "burst_seconds": 3600.0 * (table % 9),
        }
        scheme = SCHEMES[table % len(SCHEMES)]
        seed = None if table % 3 else table
        opt = options(split_scheme=scheme, split_shuffle=seed, split_time="1970-01-20", split_partitions=2, **changes)
        try:
            grouped = resolved(images, opt)
            folds = [parts_of(grouped, opt, fold) for fold in range(datasets.n_folds(opt))]
        except UserError:
            # too few groups for this scheme
            continue
        n_divided += 1
        for parts in folds:
            sides = [{image.group for image in part or ()} - {None} for part in parts]
            assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2], (scheme, table)
            named = [(image.path, image.box) for part in parts for image in part or ()]
            assert len(set(named)) == len(named)
    assert n_divided > 120


def obvious_groups(images, links):
    """Connected components by spreading the lowest number along the links."""
    numbers = list(range(len(images)))
    for _ in images:
        for first, second in links:
            numbers[first] = numbers[second] = min(numbers[first], numbers[second])
    return numbers


@pytest.mark.parametrize("seed", range(20))
def test_components_and_bursts_against_slow_ones(seed):
    rng = np.random.default_rng(seed)
    images = [
        Image(f"{i}.jpg", f"c{rng.integers(2)}", time=float(rng.integers(0, 300)), camera=["a", None][rng.integers(2)])
        for i in range(25)
    ]
    links = []
    for i, first in enumerate(images):
        for j, second in enumerate(images):
            alike = first.class_name == second.class_name and first.camera == second.camera
            if i < j and alike and abs(first.time - second.time) <= 20:
                links.append((i, j))
    expected = obvious_groups(images, links)
    computed = _groups.join(images, burst_seconds=20).groups.tolist()
    assert len(set(zip(expected, computed, strict=True))) == len(set(expected)) == len(set(computed))


def test_pinned_values():
    share = _held_out.known_share(100, 10, 0.8)
    assert share == pytest.approx(0.888889, abs=1e-6)
    assert [_held_out.known_training(size, share) for size in (10, 1)] == [9, 1]
    images = [Image(f"{time}.jpg", "c", time=float(time)) for time in (0, 50, 100, 300)]
    assert _groups.join(images).groups.tolist() == [0, 0, 0, 1]
    assert _groups.join(images, burst_seconds=None).groups.tolist() == [0, 1, 2, 3]
    images = [Image(f"{i}.jpg", "c", time=float(day * DAY)) for i, day in enumerate((1, 1, 2, 3))]
    training, _, testing = _schemes.divide({"c": images}, options(split_scheme="time_proportion"), 0, "")
    assert (len(training), len(testing)) == (3, 1)
    for n_dates, expected in enumerate((1, 1, 2, 2, 3, 3, 4), start=1):
        dates = [Image(f"{i}.jpg", "c", time=float(i * DAY + 7)) for i in range(n_dates)]
        two_dates = [Image(f"d{i}.jpg", "d", time=float(i * DAY)) for i in range(2)]
        training, _, _ = _schemes.divide({"c": dates, "d": two_dates}, options(split_scheme="time_proportion"), 0, "")
        assert sum(image.class_name == "c" for image in training) == expected


def obvious_proportion(images, share):
    """The training images of time_proportion, class by class; halves are rounded up."""
    training = set()
    for name in {image.class_name for image in images}:
        dates = sorted({image.time // DAY for image in images if image.class_name == name and image.time is not None})
        count = 1 if len(dates) == 1 else min(len(dates) - 1, math.floor(share * len(dates) + 0.5 + 1e-9))
        for image in images:
            if image.class_name == name and image.time is not None and image.time // DAY in dates[:count]:
                training.add(image.path)
    return training


@pytest.mark.parametrize("seed", range(30))
def test_schemes_of_time_against_plain_references(seed):
    images = random_images(np.random.default_rng(seed))
    timed = [image for image in images if image.time is not None]
    share = 0.1 + 0.03 * seed
    try:
        opt = options(split_scheme="time_proportion", split_test_size=1 - share)
        training, validation, testing = _schemes.divide(by_class(resolved(images, opt)), opt, 0, "")
    except UserError as error:
        assert len(timed) < 0.9 * len(images), error
        return
    expected = obvious_proportion(images, share)
    assert {image.path for image in training} == expected and validation is None
    assert {image.path for image in testing} == {image.path for image in timed} - expected
    opt = options(split_scheme="time_cutoff", split_time="1970-01-11", split_time_end="1970-01-30")
    training, _, testing = _schemes.divide(by_class(resolved(images, opt)), opt, 0, "")
    assert {image.path for image in training} == {image.path for image in timed if image.time < 10 * DAY}
    assert {image.path for image in testing} == {image.path for image in timed if 10 * DAY <= image.time < 30 * DAY}


@pytest.mark.parametrize("seed", range(30))
def test_open_set_has_unknown_classes_and_the_wanted_share(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, 15).tolist()
    images = [Image(f"/data/{c}/{i}.jpg", f"c{c:02d}") for c, n in enumerate(sizes) for i in range(n)]
    opt = options(split_scheme="open_set", split_unknown=0.2, split_test_size=0.3, split_shuffle=seed)
    training, _, testing = _schemes.divide(by_class(images), opt, 0, "")
    trained = {image.class_name for image in training}
    order = [f"c{c:02d}" for c in _schemes.mixed([f"c{c:02d}" for c in range(15)], seed)]
    unknown = []
    while sum(sizes[int(name[1:])] for name in unknown) < 0.2 * len(images):
        unknown.append(order[len(unknown)])
    assert trained == set(order) - set(unknown)
    share = 0.7 * len(images) / (len(images) - sum(sizes[int(name[1:])] for name in unknown))
    for name in trained:
        size = sizes[int(name[1:])]
        count = max(1, min(math.floor(share * size + 0.5 + 1e-9), size - 1))
        assert sum(image.class_name == name for image in training) == count
    assert len(training) + len(testing) == len(images)


def test_closed_set_trains_the_first_group_and_comes_near_its_target():
    names = ["a", "b", "b", "c", "d", "d", "e"]
    images = [Image(f"/data/c/{i}.jpg", "c", group=name) for i, name in enumerate(names)]
    images += [Image(f"/data/d/{i}.jpg", "d", group="z") for i in range(4)]
    opt = options(split_scheme="closed_set", split_groups=["sequence"], split_test_size=0.5, split_partitions=2)
    training, validation, testing = _schemes.divide(by_class(resolved(images, opt)), opt, 0, "")
    # 3.5 images are wanted: with the next group of two the count would be no nearer
    assert [image.path[8:] for image in testing] == ["1.jpg", "2.jpg", "3.jpg"]
    assert {image.class_name for image in training} == {"c", "d"}
    assert [image.path[8:] for image in validation] == ["4.jpg", "5.jpg"]


def photograph(path, time, quality=80):
    """A small picture with an EXIF time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = PIL.Image.effect_noise((32, 32), 60).convert("RGB")
    exif = PIL.Image.Exif()
    exif[0x010F] = "camera"
    if time is not None:
        exif.get_ifd(0x8769)[0x9003] = time if isinstance(time, str) else f"{time:%Y:%m:%d %H:%M:%S}"
    picture.save(path, exif=exif)


def folder_of_bursts(path, n_classes=6, per_class=4):
    """Classes of bursts of two photographs, a day between bursts."""
    for c in range(n_classes):
        for i in range(per_class):
            moment = datetime.datetime(2021, 3, 1 + i // 2, 12, c) + datetime.timedelta(seconds=20 * (i % 2))
            photograph(path / f"c{c}" / f"{i}.jpg", moment)
    return path


def test_exif_times_are_read_and_broken_ones_are_none(tmp_path):
    cases = {
        "a": "2021:03:01 12:00:30",
        "b": "0000:00:00 00:00:00",
        "c": "    :  :     :  :  ",
        "d": None,
        "e": "2021:13:01 12:00:00",
    }
    for name, time in cases.items():
        photograph(tmp_path / f"{name}.jpg", time)
    photograph(tmp_path / "f.png", "2021:03:01 12:00:30")
    (tmp_path / "g.jpg").write_bytes(b"no image")
    images = [Image(str(path), "c") for path in sorted(tmp_path.iterdir())]
    times = [image.time for image in _times.photographed(images, tmp_path)]
    expected = datetime.datetime(2021, 3, 1, 12, 0, 30, tzinfo=datetime.UTC).timestamp()
    assert times == [expected, None, None, None, None, expected, None]


def test_times_of_many_files_are_cached_until_one_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_times, "CACHED_FROM", 2)
    for i in range(3):
        photograph(tmp_path / "data" / f"{i}.jpg", f"2021:03:0{i + 1} 12:00:00")
    images = [Image(str(path), "c") for path in sorted((tmp_path / "data").iterdir())]
    first = _times.photographed(images, tmp_path / "data")
    reads = []
    of_photograph = _times.of_photograph
    monkeypatch.setattr(_times, "of_photograph", lambda path: reads.append(path) or of_photograph(path))
    assert _times.photographed(images, tmp_path / "data") == first and not reads
    photograph(tmp_path / "data" / "1.jpg", "2022:03:02 12:00:00")
    (tmp_path / "data" / "1.jpg").touch()
    changed = _times.photographed(images, tmp_path / "data")
    assert len(reads) == 3 and [image.time != old.time for image, old in zip(changed, first, strict=True)] == [0, 1, 0]


def test_a_folder_of_bursts(tmp_path):
    folder = folder_of_bursts(tmp_path / "X")
    flags = {"dataset_folder_path": str(folder), "split_groups": ["burst"]}
    splits = datasets.select("folder", **flags, split_scheme="open_set", split_unknown=0.2, split_test_size=0.6)
    names = {split: {Path(path).stem for path in splits[split].paths} for split in ("training", "testing")}
    assert names == {"training": {"0", "1"}, "testing": {"0", "1", "2", "3"}}
    assert any("24 images in 12 groups" in note for note in splits["training"].notes)
    assert any("open set" in note and "in test alone 2" in note for note in splits["training"].notes)
    with refused("is too many: 0 groups of images left"):
        datasets.select("folder", **flags, split_scheme="closed_set", split_partitions=2)


def table(path, **columns):
    """A table of twelve images of three classes, with these columns of twelve values."""
    names = [f"c{i // 4}/{i % 4}.jpg" for i in range(12)]
    for name in names:
        photograph(path / name, None)
    rows = [[name, name.partition("/")[0], *values] for name, *values in zip(names, *columns.values(), strict=True)]
    write_csv(path / "t.csv", ["path", "label", *columns], rows)
    return {"dataset_csv": str(path / "t.csv"), "source_path": str(path)}


def test_a_table_with_times_groups_and_no_column_split(tmp_path):
    years = [2020, 2021, 2022, ""] * 3
    place = table(tmp_path, time=years, group=["", "", "", "g", "", "", "", "", "", "", "", ""])
    with refused("75%.*90%"):
        datasets.select("csv", **place, split_scheme="time_cutoff", split_time="2021")
    place = table(tmp_path, time=["2020", "2021", "2021-05-01", "2022-07-01T10:00:00"] * 3)
    flags = {"split_scheme": "time_cutoff", "split_time": "2021", "split_time_end": "2021"}
    splits = datasets.select("csv", **place, **flags)
    assert splits["training"].counts["images"] == 3 and splits["testing"].counts["images"] == 6
    assert splits["training"].class_names == {0: "c0", 1: "c1", 2: "c2"} == splits["testing"].class_names
    assert any("closed set" in note and "left out 3 images" in note for note in splits["training"].notes)


def test_the_split_of_a_table_is_not_used_by_a_scheme_that_divides_anew(tmp_path):
    place = table(tmp_path, time=["2020", "2020", "2021", "2021"] * 3, split=["train"] * 4 + ["validation"] * 8)
    splits = datasets.select("csv", **place, split_scheme="time_cutoff", split_time="2021")
    assert splits["training"].counts == {"images": 6, "classes": 3, "single_image_classes": 0}
    assert any("the data set's own split is not used" in note for note in splits["training"].notes)
    half = datasets.select("csv", **place)
    assert half["training"].counts["images"] == 4 and not any("anew" in note for note in half["training"].notes)


def test_bad_times_are_named_by_row(tmp_path):
    place = table(tmp_path, time=["2020"] * 6 + ["yesterday"] + ["2021"] * 5)
    assert datasets.select("csv", **place, split_scheme="open_set")["training"].counts["classes"] == 2
    with refused("row 8: time 'yesterday'"):
        datasets.select("csv", **place, split_scheme="time_cutoff", split_time="2021")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"split_scheme": "time_cutoff"}, "needs --split_time"),
        ({"split_scheme": "time_cutoff", "split_time": "soon"}, "--split_time soon: expected a date"),
        ({"split_scheme": "time_cutoff", "split_time": "2021", "split_time_end": "2020"}, "is before --split_time"),
        ({"split_groups": ["none", "burst"]}, "none joins no images"),
        ({"split_groups": ["burst", "burst"]}, "named twice"),
        ({"split_groups": ["bursts"]}, "bursts is no file and none of none, sequence, burst. Did you mean 'burst'"),
        ({"split_scheme": "closed_set", "split_groups": ["burst"], "split_test_start": 0.2}, "has no effect"),
    ],
)
def test_impossible_flags_are_refused_before_anything_is_read(flags, reason):
    with refused(reason):
        datasets.check(options(**flags))


def test_files_of_pairs_and_of_groups(tmp_path):
    place = table(tmp_path, time=["2020"] * 12)
    pairs = tmp_path / "near_duplicates.csv"
    header = ["similarity", "test_image", "test_class", "split", "image", "class"]
    rows = [["0.99", str(tmp_path / "c0/3.jpg"), "c0", "train", str(tmp_path / "c1/0.jpg"), "c1"]]
    write_csv(pairs, header, rows)
    flags = {"split_scheme": "open_set", "split_unknown": 0.3}
    splits = datasets.select("csv", **place, **flags, split_groups=[str(pairs)])
    assert splits["training"].class_names == {0: "c2"}, "two classes that share an image are one unit"
    assert any("is a label wrong?" in note for note in splits["training"].notes)
    groups = tmp_path / "groups.csv"
    write_csv(groups, ["path", "group"], [["c0/0.jpg", "x"], ["c2/1.jpg", "x"], ["c9/1.jpg", "x"]])
    splits = datasets.select("csv", **place, **flags, split_groups=[str(groups)])
    assert splits["training"].class_names == {0: "c1"}
    assert any("1 path in it, such as c9/1.jpg" in note for note in splits["training"].notes)
    write_csv(pairs, header, [["0.9", "a", "a", "train", "b", "b"]])
    with refused("0 of its columns"):
        datasets.select("csv", **place, **flags, split_groups=[str(pairs)])
    with refused("--split_groups .*nowhere.csv: no such file"):
        datasets.select("csv", **place, **flags, split_groups=[str(tmp_path / "nowhere.csv")])


@pytest.mark.parametrize("scheme", ["half", "class_disjoint"])
def test_classes_of_one_group_follow_the_first(tmp_path, scheme):
    folder = folder_of_bursts(tmp_path / "X")
    groups = tmp_path / "groups.csv"
    # the second path as Windows writes it
    write_csv(groups, ["path", "group"], [["c0/0.jpg", "x"], ["c5\\1.jpg", "x"]])
    flags = {} if scheme == "half" else {"split_scheme": scheme, "split_partitions": 2}
    splits = datasets.select("folder", dataset_folder_path=str(folder), split_groups=[str(groups)], **flags)
    assert set(splits["testing"].class_names.values()) == {"c3", "c4"}


def test_another_content_of_a_group_file_is_a_change_of_the_data(tmp_path):
    place = table(tmp_path, time=["2020"] * 12)
    groups = tmp_path / "groups.csv"
    records = []
    for partner in ("c1/0.jpg", "c2/0.jpg"):
        write_csv(groups, ["path", "group"], [["c0/0.jpg", "x"], [partner, "x"]])
        splits = datasets.select("csv", **place, split_scheme="open_set", split_unknown=0.3, split_groups=[str(groups)])
        records.append(datasets.record(splits))
    assert datasets.differences(records[0], records[0]) == []
    assert any("class c1" in line for line in datasets.differences(*records))


def test_a_fixed_split_through_a_group_is_refused(tmp_path):
    folder = folder_of_bursts(tmp_path / "X")
    names = tmp_path / "split.json"
    names.write_text('{"train": ["c0/0.jpg", "c1", "c2"], "test": ["c0/1.jpg", "c3", "c4"]}')
    flags = {"split_scheme": "predefined", "split_file": str(names)}
    place = {"dataset_folder_path": str(folder)}
    assert datasets.select("folder", **place, **flags)["training"].counts["images"] == 9
    with refused("1 group in two parts"):
        datasets.select("folder", **place, **flags, split_groups=["burst"])


def test_joined_classes_are_units():
    images = [Image(f"{i}.jpg", name) for i, name in enumerate("aabbccdd")]
    joined = datasets.join(images, np.array([[1, 6], [7, 4]]))
    assert joined.groups.tolist() == [0, 1, 2, 3, 4, 5, 1, 4]
    assert joined.leader_of == {"a": "a", "b": "b", "c": "a", "d": "a"}


def test_dates_as_users_write_them():
    assert _times.seconds("2020") == _times.seconds("2020.0") == _times.seconds("2020-01-01")
    assert [_times.seconds(text) for text in ("20", "x", "2020-13-01", "")] == [None] * 4
    assert _times.end("2020") == _times.seconds("2021") and _times.end("2020-02-28") == _times.seconds("2020-02-29")
    assert _times.end("2020-02-28 10:00") > _times.seconds("2020-02-28 10:00")
