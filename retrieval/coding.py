"""The code of an index or an export, learned from training images."""

from pathlib import Path

import numpy as np

from retrieval import data, sources
from utilities import codes
from utilities.codes import Codes
from utilities.errors import UserError

# a file of an export: the index without vectors, which holds what was learned
FILE = "code.faiss"


def check(flags) -> None:
    """Raise UserError for calibration images from which nothing learns."""
    if flags.calibration is not None and not codes.is_learned(flags.code or codes.FLOAT32):
        raise UserError(
            f"--calibration: --code {flags.code or codes.FLOAT32} learns nothing: leave it out, or take int8, "
            "pq<M>, opq<M>"
        )


def learned(embedder, flags) -> Codes:
    """An empty index in `--code`, which has learned from `--calibration`, else from training images of the run.

    Of more than `codes.MOST` images a random sample is embedded. Raises UserError for too few.
    """
    index = Codes(flags.code, embedder.dimensions)
    if not codes.is_learned(flags.code):
        return index
    try:
        if flags.calibration is None:
            paths = data.inputs(data.split(embedder, "train"))
        else:
            embedder.check_images("leave out --calibration")
            paths = sources.listed(flags.calibration)
    except UserError as error:
        if flags.calibration is not None:
            raise
        raise UserError(
            f"--code {flags.code} learns from the run's training images ({error}); give other images with --calibration"
        ) from error
    if len(paths) > codes.MOST:
        chosen = np.sort(np.random.default_rng(0).choice(len(paths), size=codes.MOST, replace=False))
        paths = [paths[place] for place in chosen]
    batches = [batch.vectors for batch in embedder.stream(paths, total=len(paths))]
    index.calibrate(np.concatenate(batches))
    return index


def write(index: Codes, folder: Path) -> dict:
    """Write what a code has learned into a folder. Returns how other programs code embeddings: name, bytes, steps."""
    if codes.is_learned(index.name):
        index.write(folder / FILE)
        how = f'faiss.read_index("{FILE}") codes, decodes, adds and searches (sa_encode, sa_decode, add, search)'
    elif index.name == codes.BINARY:
        how = (
            "a bit is 1 where x > 0, the first dimension is the highest bit of the first byte, the last byte is padded "
            "with 0; candidates are found by Hamming distance, several times as many as are needed, and ordered by the "
            "product of the float query and +-1"
        )
    else:
        how = f"numbers of type {index.name}"
    return {"name": index.name, "bytes_a_vector": index.bytes_a_vector, "how": how}
