"""The emoji of docs/study.md: read from the packages of four vendors, filtered, written as pictures and a list.

Of emoji that look alike one is kept (`without_near_duplicates`): variants of skin, gender, hair, age and direction are
recognised by their code, equal or nearly equal pictures by their pixels.
"""

import csv
import hashlib
import io
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from utilities.errors import UserError

VENDORS = ("apple", "facebook", "google", "twitter")
VERSION = "16.0.0"
# side of a picture in pixels
SIDE = 64
# classes of the study on two cores, and the seed that draws them
SUBSET = 1008
SEED = 0
# Below these root mean square differences, in units of a pixel's range, two pictures are equal, or nearly equal.
EQUAL = 1 / 255
NEARLY_EQUAL = 0.05
# code points of man and woman -> person, of boy and girl -> child, of old man and old woman -> old person
NEUTRAL = {
    "1F468": "1F9D1",
    "1F469": "1F9D1",
    "1F466": "1F9D2",
    "1F467": "1F9D2",
    "1F474": "1F9D3",
    "1F475": "1F9D3",
}
STYLE = "-FE0F"
# style, skin, gender, direction, hair
VARIANT = re.compile(rf"{STYLE}|-1F3F[B-F]|-200D-(?:2640|2642|27A1|1F9B[0-3])")


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
        """Whether it is not a variant: its code is the base, with or without a mark of style."""
        return self.code.replace(STYLE, "") == self.base


def read(folder: Path) -> list[Emoji]:
    """The emoji that all vendors draw, in the order of their codes, without skin tones and swatches (Component)."""
    from PIL import Image

    files = {}
    entries = None
    for vendor in VENDORS:
        start = f"package/img/{vendor}/{SIDE}/"
        with tarfile.open(folder / f"emoji-datasource-{vendor}-{VERSION}.tgz") as archive:
            # one pass: reading a member of a packed archive by its name reads the whole archive
            for member in archive:
                if member.name.startswith(start) and member.isfile():
                    files[vendor, member.name.removeprefix(start)] = archive.extractfile(member).read()
                elif member.name == "package/emoji.json" and entries is None:
                    entries = json.loads(archive.extractfile(member).read())
    if entries is None:
        raise UserError(f"the packages in {folder} have no package/emoji.json: delete them and run the same command")
    emoji = []
    for entry in sorted(entries, key=lambda entry: entry["unified"]):
        has_pictures = all(entry.get(f"has_img_{vendor}") and (vendor, entry["image"]) in files for vendor in VENDORS)
        if has_pictures and entry["category"] != "Component":
            pictures = [on_white(Image.open(io.BytesIO(files[vendor, entry["image"]]))) for vendor in VENDORS]
            emoji.append(Emoji(entry["unified"], entry["short_name"], entry["category"], pictures))
    return emoji


def on_white(image, size: tuple[int, int] = (SIDE, SIDE)) -> np.ndarray:
    """A picture `(H, W, 3)` uint8 of `size` (W, H), transparency on white."""
    from PIL import Image

    image = image.convert("RGBA")
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image)
    return np.asarray(white.convert("RGB"))


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
    # greedy: each candidate is compared with those already chosen
    for number in range(len(candidates)):
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
