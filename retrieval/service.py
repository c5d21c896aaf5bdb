"""What a server answers with: the nearest images of an index to an image in memory, and small pictures of its rows.

It embeds and searches in one thread alone, which `Worker.run` is called in; others hand it their jobs and wait.
"""

import contextlib
import functools
import queue
import threading
from concurrent.futures import Future
from typing import NamedTuple

import datasets
from retrieval import answers
from retrieval.uploads import Refusal
from utilities import codes
from utilities.errors import BrokenImage, UserError

SIDE = 320  # pixels of the longer side of a picture
PICTURES = 512  # that are remembered, some 15 KB each
WAKING = 0.2  # seconds until a waiting thread looks for an interrupt, which the system may give to another thread
QUERY = "of the request"  # how messages call its image


class Limits(NamedTuple):
    """What a server takes.

    count: neighbours without a `k`; most_count: the greatest `k`. most_bytes: of a body. most_pixels: of an image.
    waiting: requests that wait for the worker. seconds: for a request to arrive, and for a reply to be taken.
    """

    count: int = 10
    most_count: int = 100
    most_bytes: int = 10_000_000
    most_pixels: int = 50_000_000
    waiting: int = 8
    seconds: float = 20


class Worker:
    """Jobs one after another, in the thread that calls `run`; at most `waiting` of them wait."""

    def __init__(self, waiting: int):
        self.jobs = queue.Queue(waiting)
        self.adding = threading.Lock()
        self.has_ended = False

    def result(self, job):
        """What `job()` returns or raises, once its turn has come. Raises Refusal if too many wait."""
        future = Future()
        with self.adding:
            if self.has_ended:
                raise _ending()
            try:
                self.jobs.put_nowait((job, future))
            except queue.Full:
                waiting = self.jobs.maxsize
                raise Refusal(503, f"{waiting} requests wait already (--max_waiting): try again later") from None
        return future.result()

    def run(self) -> None:
        """Do the jobs, until `stop`."""
        while not self.has_ended:
            try:
                job, future = self.jobs.get(timeout=WAKING)
            except queue.Empty:
                continue
            try:
                future.set_result(job())
            except Exception as error:
                # the error is raised in the thread that waits for the result
                future.set_exception(error)
            except BaseException:
                # an interrupt ends the server
                future.set_exception(_ending())
                raise

    def stop(self) -> None:
        """End `run` after the job that it does; those that wait are refused."""
        with self.adding:
            self.has_ended = True
            with contextlib.suppress(queue.Empty):
                while True:
                    _, future = self.jobs.get_nowait()
                    future.set_exception(_ending())


def _ending() -> Refusal:
    return Refusal(503, "the server ends")


class Service:
    """The answers of one index.

    Args:
        index: `retrieval.index.Index`. embedder: of its run.
        classes: path -> name of the class, of the images where it is known.
        rescored: see `Index.search`.
        threshold: the distance from which on images are left out, and a query without any is unknown; None: none.
    """

    def __init__(
        self,
        index,
        embedder,
        classes: dict[str, str],
        rescored: int = codes.RESCORED,
        threshold: float | None = None,
    ):
        self.index = index
        self.embedder = embedder
        self.classes = classes
        self.rescored = rescored
        self.threshold = threshold
        self._row_of = {path: row for row, path in enumerate(index.paths)}
        self._drawing = threading.Lock()
        self.picture = functools.lru_cache(PICTURES)(self._picture)

    def answer(self, image: bytes, count: int) -> dict:
        """The `count` nearest images to an image file in memory, as `query` finds them to the file on its own.

        Raises BrokenImage for a file that cannot be decoded.
        """
        vectors = self.embedder([datasets.Encoded(image, QUERY)])
        neighbours = answers.answers(self.index, [QUERY], vectors, count, rescored=self.rescored)
        if self.threshold is not None:
            neighbours = answers.below(neighbours, [QUERY], self.threshold)
        content = answers.as_answer(neighbours, self.classes)
        for record in content["neighbours"]:
            # The record that says that a query is unknown has rank 0, and no image.
            if record["rank"]:
                record["image"] = f"/image/{self._row_of[record['path']]}"
        return content

    def _picture(self, row: int) -> bytes:
        """A small JPEG file of the image in a row of the index. Raises Refusal if there is none any more."""
        from pictures import thumbnails

        try:
            with self._drawing:
                original = self.embedder.preparation.original(self.index.paths[row])
                return thumbnails.jpeg(thumbnails.small(original, SIDE))
        except UserError:
            raise Refusal(404, f"image {row} is no longer there, or cannot be decoded any more") from None


def check_picture(image: bytes, most_pixels: int) -> None:
    """Raise Refusal for bytes that are no image, or one of too many pixels; only the header is read."""
    try:
        pixels = datasets.pixel_count(image)
    except BrokenImage as error:
        raise Refusal(415, str(error)) from None
    if pixels > most_pixels:
        raise Refusal(413, f"an image of {pixels:,} pixels, more than {most_pixels:,} (--max_image_pixels)")
