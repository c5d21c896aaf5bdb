"""Made photographs: classes that a network without training can tell apart, with times, and with planted faults."""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

EXIF = 0x8769
TAKEN = 0x9003


def photograph(class_number, number, noise=70):
    """A smooth picture whose colours are those of its class, more or less."""
    colours = np.random.default_rng(class_number).integers(0, 256, (4, 4, 3))
    changes = np.random.default_rng((class_number, number)).normal(0, noise, (4, 4, 3))
    coarse = (colours + changes).clip(0, 255).astype(np.uint8)
    return Image.fromarray(coarse).resize((48, 48), Image.Resampling.BICUBIC)


def write_photograph(path, picture, time=None):
    """Write a JPEG, with the time `YYYY:MM:DD HH:MM:SS` at which it was taken."""
    exif = Image.Exif()
    if time is not None:
        exif.get_ifd(EXIF)[TAKEN] = time
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=92, exif=exif)


def make_photographs(folder, n_classes=30, n_images=4):
    """`folder/class_<c>/<i>.jpg`, the photographs of a class three minutes apart. Returns the folder."""
    for c in range(n_classes):
        for i in range(n_images):
            path = Path(folder) / f"class_{c:03d}" / f"{i:03d}.jpg"
            write_photograph(path, photograph(c, i), f"2024:01:{1 + c % 28:02d} 10:{3 * i:02d}:00")
    return Path(folder)


def plant_faults(folder):
    """Faults that an appraisal has to find: a copy in another class, a broken file, a class of one photograph, a text,
    and a burst of three pictures that do not look alike.
    """
    shutil.copy(folder / "class_000" / "000.jpg", folder / "class_001" / "copy.jpg")
    content = (folder / "class_002" / "000.jpg").read_bytes()
    (folder / "class_002" / "broken.jpg").write_bytes(content[:300])
    write_photograph(folder / "alone" / "only.jpg", photograph(900, 0))
    (folder / "class_003" / "notes.txt").write_text("seen in the harbour")
    for number in range(3):
        path = folder / "class_004" / f"burst_{number}.jpg"
        write_photograph(path, photograph(950 + number, 0), f"2024:02:01 10:00:{20 * number:02d}")
