"""The crops of films as a table: `python -m datasets.mot ROOT --out crops.csv [--write DIR]`.

The table has the columns of --dataset csv. With --write DIR the crops themselves are written, as PNG files to the bit,
so that training does not decode a whole frame for each; without it the table names frames and boxes.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from datasets import _images, mot
from datasets._images import Image
from datasets._layout import Reading
from options.flags import plug_ins, rules
from utilities.console import propose, say
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import expanded, write_csv

PROGRAM = "python -m datasets.mot"
SPLITS = {"train": "train", "test": "validation"}
BOX = ("x_1", "y_1", "x_2", "y_2")
COLUMNS = ("label", "path", "split", "is_query", "is_gallery", "sequence", "camera", "frame")
# compression level of PNG files: the fastest
COMPRESSION = 1


def parser() -> argparse.ArgumentParser:
    """The command's flags, with those of `--dataset mot`."""
    parser = OneLineParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("root", metavar="ROOT", help=mot.FLAGS["--dataset_mot"].help)
    parser.add_argument("--out", required=True, metavar="FILE", help="the table, a .csv file")
    parser.add_argument("--write", default=None, metavar="DIR", help="a new folder for the crops")
    parser.add_argument(
        "--allow_partial_dataset", action="store_true", help="leave out rows whose frame is not there, with a line"
    )
    for name, flag in mot.FLAGS.items():
        if name != "--dataset_mot":
            flag.add_to(parser, plug_ins.flag_name(mot.__name__, name))
    return parser


def main(argv: list[str] | None = None) -> Path:
    """Write the table, and the crops if requested. Returns the table's path. Raises UserError."""
    declared = parser()
    flags = declared.parse_args(argv)
    rules.refuse(declared._actions, flags, typed=rules.changed(declared._actions, flags))
    flags.dataset_mot = flags.root
    mot.check(flags)
    out = expanded(flags.out)
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist: make it")
    reading = mot.read(flags, mot.prepare(flags, out.parent))
    if "val" in reading.split_of:
        raise UserError(
            "a table of --dataset csv has no validation part of its own: leave out --mot_val_sequences and val/, or "
            "train with --dataset mot"
        )
    for note in reading.notes:
        say(f"note  {note}")
    if reading.missing:
        say(f"note  {len(reading.missing):,} rows of frames that are not there, the first {reading.missing[0]}")
    columns = (*COLUMNS, *BOX) if flags.write is None else COLUMNS
    places = _places(reading, out.parent, flags.write)
    rows = [
        _row(image, split, path, flags)
        for image, split, path in zip(reading.images, reading.split_of, places, strict=True)
    ]
    if flags.write is not None:
        _write_crops(expanded(flags.write), reading.images)
    write_csv(out, columns, rows)
    print(f"written  {out}, {len(rows):,} crops")
    measured_as = ("--eval_skip_unmatched", 1, "--evaluation_metrics", *mot.EVALUATION_METRICS)
    propose("python", "main.py", "--dataset", "csv", "--dataset_csv", out, *measured_as)
    return out


def _row(image: Image, split: str, path: str, flags) -> list:
    """A row of the table. Under --mot_split half a track has another label in each part, as it tests in its own."""
    label = image.class_name
    if flags.mot_split == "half" and split == "test":
        label = f"test_{label}"
    row = [label, path, SPLITS[split], image.is_query, True, image.sequence, image.camera, image.frame]
    if flags.write is None:
        row += image.box
    return row


def _places(reading: Reading, folder: Path, target: str | None) -> list[str]:
    """The path of each image or, with a `target`, of its crop; relative to the table's folder where it is below it."""
    prefix = f"{folder.resolve()}{os.sep}"
    paths = [image.path for image in reading.images]
    if target is not None:
        paths = [str(expanded(target) / _crop_name(image)) for image in reading.images]
    return [os.path.abspath(path).removeprefix(prefix) for path in paths]


def _crop_name(image: Image) -> str:
    return f"{image.class_name}/{image.frame:06d}.png"


def _write_crops(folder: Path, images: list[Image]) -> None:
    """Write each image's crop below a new folder, whole or not at all; each frame is decoded once."""
    import PIL.Image

    if folder.exists():
        raise UserError(f"--write {folder}: it exists already: name a new folder")
    if not folder.parent.is_dir():
        raise UserError(f"--write {folder}: the folder {folder.parent} does not exist: make it")
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    path = None
    try:
        for image in sorted(images, key=lambda image: image.path):
            if image.path != path:
                path = image.path
                frame = _images.decode(path)
            crop = _images.crop(frame, image.box, path)
            target = temporary / _crop_name(image)
            target.parent.mkdir(exist_ok=True)
            PIL.Image.fromarray(crop.permute(1, 2, 0).numpy()).save(target, compress_level=COMPRESSION)
        # mkdtemp makes folders that only the user can read
        os.chmod(temporary, 0o755)
        os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def run() -> None:
    """The command, a mistake in one line."""
    with one_line_errors(PROGRAM):
        main()
