"""Re-association in films: `python -m evaluation tracks FILE.npz --gap 30 --stride 60`, as roboflow's reid measures it.

FILE holds `features` `(N, D)`, `sequence_names` (the film), `track` and `frame` `(N,)` of crops, as `--dump_embeddings`
writes them for `--dataset mot`. A query is a crop whose frame is divisible by the stride; its candidates are all crops
of its film exactly `gap` frames later, as a tracker sees them after an occlusion. It is scored if its own track is
among at least two candidates, which are ranked by cosine, equal ones in the order of the file.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from evaluation import file_arrays, from_files, outputs
from tools._command import check_output, parser_of_page, refuse_torchrun, words_of
from utilities.console import say
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import write_json
from utilities.numbers import whole

PROGRAM = "python -m evaluation tracks"
ARRAYS = ("sequence_names", "track", "frame")
GAP = 30
STRIDE = 60


class Films(NamedTuple):
    """Where crops are from: their film, track and frame `(N,)`. The track is one within its film."""

    sequences: np.ndarray
    tracks: np.ndarray
    frames: np.ndarray


class Query(NamedTuple):
    """A query that is scored: its row, the rows of its candidates, and the place of its own track among them."""

    row: int
    candidates: list[int]
    match: int


def films_of(path: str, arrays: dict) -> Films:
    """The films of a file. Raises UserError if it lacks an array, and for a track that a frame has twice."""
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise UserError(
            f"{path} has no {' and no '.join(missing)} (N,), which --dump_embeddings writes of --dataset mot"
        )
    size = len(arrays["features"])
    for name in ARRAYS:
        if arrays[name].shape != (size,):
            raise UserError(
                f"{path}: {name} has shape {arrays[name].shape}: ({size},) is expected, a row for each image"
            )
    frames = arrays["frame"]
    if frames.dtype.kind not in "iu":
        raise UserError(f"{path}: frame holds values of the type {frames.dtype.name}: whole numbers are expected")
    films = Films(*(arrays[name] for name in ARRAYS))
    seen = set()
    for sequence, track, frame in zip(*(values.tolist() for values in films), strict=True):
        if frame >= 0 and (sequence, track, frame) in seen:
            raise UserError(f"{path}: frame {frame} of {sequence} has track {track} twice")
        seen.add((sequence, track, frame))
    return films


def scored(films: Films, gap: int, stride: int, skipped: Counter) -> Iterator[Query]:
    """The queries that are scored, in the order of the file; counts the others by their reason."""
    rows_of_frame = {}
    for row, place in enumerate(zip(films.sequences.tolist(), films.frames.tolist(), strict=True)):
        rows_of_frame.setdefault(place, []).append(row)
    for row, (sequence, frame) in enumerate(zip(films.sequences.tolist(), films.frames.tolist(), strict=True)):
        if frame < 0 or frame % stride:
            continue
        candidates = rows_of_frame.get((sequence, frame + gap), [])
        match = np.flatnonzero(films.tracks[candidates] == films.tracks[row]) if candidates else []
        if not candidates:
            skipped[f"without a crop {gap} frames later"] += 1
        elif not len(match):
            skipped[f"whose track is not there {gap} frames later"] += 1
        elif len(candidates) < 2:
            skipped["with a single candidate"] += 1
        else:
            yield Query(row, candidates, int(match[0]))


def rank(cosines: np.ndarray, match: int) -> int:
    """The rank from 1 of the candidate `match` by falling cosines `(m,)`; of equal ones the first is first."""
    return int((cosines > cosines[match]).sum() + (cosines[:match] == cosines[match]).sum()) + 1


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    flags = parser_of_page(PROGRAM, __doc__)
    flags.add_argument("file", metavar="FILE.npz", help="features, sequence_names, track and frame of crops")
    flags.add_argument(
        "--gap", type=whole(1), default=GAP, help="frames between a query and its candidates (default: %(default)s)"
    )
    help_stride = "frames whose numbers are divisible by it have the queries (default: %(default)s)"
    flags.add_argument("--stride", type=whole(1), default=STRIDE, help=help_stride)
    flags.add_argument("--out", default=None, metavar="FILE", help="also write the values to this JSON file")
    return flags


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Print and return `track_rank1` and `track_mrr`, the mean of 1 / rank, by name. Raises UserError."""
    flags = parser().parse_args(words_of(argv))
    refuse_torchrun(PROGRAM)
    check_output("--out", flags.out)
    arrays = file_arrays.read(flags.file, ARRAYS, needs_labels=False)
    films = films_of(flags.file, arrays)
    space = from_files.plain_space(flags.file, {"features": arrays["features"]}).normalised()
    skipped = Counter()
    ranks = []
    n_candidates = []
    for query in scored(films, flags.gap, flags.stride, skipped):
        # row by row, not as a matrix product, so that equal candidates have equal cosines
        cosines = (space.references(query.candidates) * space.queries([query.row])).sum(1)
        ranks.append(rank(cosines, query.match))
        n_candidates.append(len(query.candidates))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items()) or "none"
    n_queries = len(ranks) + skipped.total()
    counts = f"{n_queries:,} crops at frames divisible by {flags.stride}, {len(ranks):,} scored; skipped: {reasons}"
    if not ranks:
        raise UserError(
            f"{flags.file}: {counts}. Crops of every frame are needed: --mot_stride 1; or lower --stride, --gap"
        )
    n_films = count_of(len(set(films.sequences.tolist())), "film")
    say(f"{flags.file}: {len(films.frames):,} crops of {n_films}; {counts}")
    say(f"candidates of a query: {np.mean(n_candidates):.1f} on average")
    reciprocal = 1 / np.array(ranks)
    values = {"track_rank1": float((reciprocal == 1).mean()), "track_mrr": float(reciprocal.mean())}
    print(f"\n{outputs.table({'tracks': values})}")
    if flags.out is not None:
        write_json(flags.out, values)
    return values
