"""When images were taken: dates that users write, and the EXIF data of photographs.

A time is a number of seconds since 1970 by the clock that the camera or the table shows; one with a time zone is
converted to UTC. Only differences and order of times are used.
"""

import contextlib
import math
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from datasets import _content, _files, _images
from datasets._images import Image
from utilities.errors import UserError
from utilities.files import write_json
from utilities.reading import Unreadable, parsing, read_json

EXPECTED = "expected a date 2024-05-31, a date and time 2024-05-31 14:05:00, or a year 2024"
# seconds
DAY = 24 * 3600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXIF = 0x8769  # tag of the block of EXIF data on the photograph
DATE_TIME_ORIGINAL = 0x9003  # tag, in that block, of when it was taken
WRITTEN_BY_CAMERAS = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d):(\d\d):(\d\d)")
YEAR = re.compile(r"(\d{4})(\.0+)?", re.ASCII)  # with the .0 of a table in which years are missing
CACHED_FROM = 2_000  # number of files from which their times are cached
THREADS = 16


def seconds(text: str) -> float | None:
    """The time that a date, a date with a time (ISO 8601) or a year begins at; None for other texts."""
    year = YEAR.fullmatch(text)
    if year:
        text = f"{year[1]}-01-01"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH).total_seconds()


def end(text: str) -> float:
    """The time at which a date or a year is over, exclusive; of a date with a time that time and the next float."""
    begin = seconds(text)
    year = YEAR.fullmatch(text)
    if year:
        return seconds(f"{year[1]}-12-31") + DAY
    is_date = re.search(r"[T :]", text.strip()) is None
    return begin + DAY if is_date else math.nextafter(begin, math.inf)


def text_of(time: float) -> str:
    """A time as text: its date, with the time of day unless that is midnight."""
    moment = EPOCH + timedelta(seconds=time)
    return str(moment.date()) if time % DAY == 0 else f"{moment:%Y-%m-%d %H:%M:%S}"


def of_photograph(path: str) -> float | None:
    """When a photograph was taken, by its EXIF data (DateTimeOriginal); None if they do not say.

    A broken file has no time: it is reported when it is decoded.
    """
    import PIL.Image

    with contextlib.suppress(Exception), PIL.Image.open(_content.opened(path), formats=_images.formats()) as image:
        if image.format not in _images.WITH_EXIF_IN_FRONT:
            image.load()
        written = WRITTEN_BY_CAMERAS.match(str(image.getexif().get_ifd(EXIF)[DATE_TIME_ORIGINAL]))
        # zeros, which stand for an unknown time, are no date: ValueError
        moment = datetime(*map(int, written.groups()), tzinfo=UTC)
        return (moment - EPOCH).total_seconds()
    return None


def photographed(images: list[Image], root: Path) -> list[Image]:
    """The images with the times of their EXIF data.

    Those of many files are cached until a name, size or time of change differs.
    """
    files = _files.Files(images, root)
    if len(files.paths) < CACHED_FROM:
        times = _read(files.paths)
    else:
        times = _cached(files)
    time_of = dict(zip(files.paths, times, strict=True))
    return [image._replace(time=time_of[image.path]) for image in images]


def _cached(files: _files.Files) -> list[float | None]:
    """The times of the files, from the user's cache folder if they are there."""
    names = [files.name(path) for path in files.paths]
    cache = _files.cache_folder() / f"times-{files.digest(files.stats)[:32]}.json"
    try:
        with parsing(cache):
            time_of = read_json(cache)
            return [time_of[name] for name in names]
    except Unreadable:
        times = _read(files.paths)
    # the next run reads them again
    with contextlib.suppress(OSError, UserError, UnicodeEncodeError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, dict(zip(names, times, strict=True)), indent=None)
    return times


def _read(paths: list[str]) -> list[float | None]:
    from tqdm import tqdm

    with ThreadPoolExecutor(THREADS) as pool:
        times = pool.map(of_photograph, paths, chunksize=64)
        return list(tqdm(times, "EXIF times", len(paths), leave=False, unit="img", disable=None))
