"""Films of moving characters in the format of the MOT Challenge: `python experiments/moving_glyphs.py --out films`.

A stand-in for films of persons, which need a download: the embedded characters (--dataset glyphs) cross a noisy
background, each with its own speed, size and brightness, and change their type face every half second, as persons
change their pose. Sequences share no character. Each has gt/gt.txt, det/det.txt (the boxes moved by a few pixels, some
missing), seqinfo.ini and img1/, below train/ and val/.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import datasets
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import expanded, write_file
from utilities.numbers import whole

# width and height of a frame in pixels
WIDTH = 320
HEIGHT = 240
RATE = 30  # frames per second
POSE = 15  # frames that a character keeps its face
MISSED = 0.1  # share of boxes that the detector misses
SHIFT = 2.0  # pixels by which it moves the edges of the others, standard deviation
QUALITY = 90  # of JPEG files


class Track:
    """A character that crosses the frame.

    Args:
        faces: its images, uint8 `(n, 48, 48)`. length: frames of the film. draw: the generator of random numbers.
    """

    def __init__(self, faces: np.ndarray, length: int, draw: np.random.Generator):
        self.side = int(draw.integers(32, 64))
        self.brightness = draw.uniform(0.5, 1)
        self.first = int(draw.integers(0, length // 4))
        self.last = length - int(draw.integers(0, length // 4))
        self.faces = faces[draw.integers(len(faces), size=length // POSE + 1)]
        self.start = draw.uniform((0, 0), (WIDTH - self.side, HEIGHT - self.side))
        # velocity in x and y, in pixels per frame
        self.speed = draw.uniform(-1, 1, 2)

    def corner(self, frame: int) -> np.ndarray:
        """x, y of the upper left corner; tracks turn round at the borders."""
        room = np.array([WIDTH, HEIGHT]) - self.side
        return room - np.abs((self.start + self.speed * frame) % (2 * room) - room)

    def paint(self, canvas: np.ndarray, frame: int) -> tuple[int, int]:
        """Paint the character over `canvas`, float `(H, W)`. Returns x, y of its corner."""
        x, y = self.corner(frame).round().astype(int)
        rows = np.arange(self.side) * self.faces.shape[1] // self.side
        face = self.faces[frame // POSE][np.ix_(rows, rows)] / 255
        part = canvas[y : y + self.side, x : x + self.side]
        part += face * (self.brightness * 255 - part)
        return x, y


def write_sequence(folder: Path, characters: list[np.ndarray], length: int, seed: int) -> None:
    """Write a sequence of `length` frames in which these characters move."""
    import PIL.Image

    draw = np.random.default_rng(seed)
    tracks = [Track(faces, length, draw) for faces in characters]
    background = np.kron(draw.uniform(0, 120, (HEIGHT // 20, WIDTH // 20)), np.ones((20, 20)))
    for name in ("img1", "gt", "det"):
        (folder / name).mkdir(parents=True)
    truth = []
    detections = []
    for frame in range(length):
        canvas = background + draw.normal(0, 4, background.shape)
        for number, track in enumerate(tracks, start=1):
            if not track.first <= frame < track.last:
                continue
            box = np.array([*track.paint(canvas, frame), track.side, track.side])
            truth.append((frame + 1, number, *(box + (1, 1, 0, 0)), 1, 1, 1))
            if draw.random() >= MISSED:
                shifted = (box + draw.normal(0, SHIFT, 4)).round(1) + (1, 1, 0, 0)
                detections.append((frame + 1, -1, *shifted, 1, -1, -1, -1))
        image = PIL.Image.fromarray(canvas.clip(0, 255).astype(np.uint8)).convert("RGB")
        image.save(folder / "img1" / f"{frame + 1:06d}.jpg", quality=QUALITY)
    write_file(folder / "gt" / "gt.txt", _lines(truth))
    write_file(folder / "det" / "det.txt", _lines(detections))
    settings = {"name": folder.name, "imDir": "img1", "frameRate": RATE, "seqLength": length}
    settings |= {"imWidth": WIDTH, "imHeight": HEIGHT, "imExt": ".jpg"}
    write_file(
        folder / "seqinfo.ini", "\n".join(["[Sequence]", *(f"{key}={value}" for key, value in settings.items())])
    )


def _lines(rows: list[tuple]) -> str:
    return "".join(",".join(f"{value:g}" for value in row) + "\n" for row in rows)


def parser() -> argparse.ArgumentParser:
    """The script's flags."""
    flags = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    flags.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    flags.add_argument("--train", type=whole(1, 100), default=8, help="sequences in train/ (default: %(default)s)")
    flags.add_argument("--val", type=whole(1, 100), default=4, help="sequences in val/ (default: %(default)s)")
    flags.add_argument("--frames", type=whole(60, 10**5), default=240, help="of a sequence (default: %(default)s)")
    flags.add_argument("--tracks", type=whole(2, 100), default=12, help="of a sequence (default: %(default)s)")
    flags.add_argument("--seed", type=whole(0), default=0, help="of all random numbers (default: %(default)s)")
    return flags


def main(argv: list[str] | None = None) -> Path:
    """Write the films. Returns their folder. Raises UserError if it exists, or the characters do not suffice."""
    flags = parser().parse_args(argv)
    folder = expanded(flags.out)
    if folder.exists():
        raise UserError(f"--out {folder}: it exists already: name a new folder")
    splits = datasets.select("glyphs")
    characters = []
    for split in ("training", "testing"):
        entries = splits[split].image_dict.values()
        characters += [splits[split].pixels[[row for _, row in images]][:, 0].numpy() for images in entries]
    n_sequences = flags.train + flags.val
    if n_sequences * flags.tracks > len(characters):
        raise UserError(
            f"{n_sequences} sequences of {flags.tracks} tracks need {n_sequences * flags.tracks:,} characters, of "
            f"{len(characters)}: lower --train, --val or --tracks"
        )
    order = np.random.default_rng(flags.seed).permutation(len(characters))
    for number in range(n_sequences):
        part = "train" if number < flags.train else "val"
        rows = order[number * flags.tracks : (number + 1) * flags.tracks]
        sequence_folder = folder / part / f"FILM-{number + 1:02d}"
        write_sequence(sequence_folder, [characters[row] for row in rows], flags.frames, flags.seed + number)
    print(f"written  {folder}: {n_sequences} sequences of {flags.frames} frames")
    return folder


if __name__ == "__main__":
    with one_line_errors("moving_glyphs.py"):
        main()
