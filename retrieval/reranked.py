"""The answers of `python -m retrieval query --rerank …`: the whole index is searched exactly, and re-ranked as an
evaluation does it. Of an index in codes the vectors are the decoded ones.
"""

import argparse
import os

import numpy as np

import metrics
from options.flags import reranking, rules
from retrieval.vectors import decoded_blocks
from utilities import codes
from utilities.errors import UserError


def check(flags) -> list[str]:
    """The re-ranking flags, with their values. Raises UserError for flags that do not fit each other."""
    parser = argparse.ArgumentParser(add_help=False)
    reranking.add_arguments(parser)
    rules.refuse(parser._actions, flags, typed=rules.changed(parser._actions, flags))
    metrics.check_augmentation(flags)
    metrics.read_pair_scorer(flags)
    flags_of_query = metrics.reranked_by(flags)
    if flags_of_query and flags.threshold is not None:
        raise UserError(
            f"--threshold {flags.threshold} goes by distances, which {flags_of_query[0]} does not order: leave one of "
            "them out"
        )
    return flags_of_query


class RerankedIndex:
    """An index whose answers are re-ranked: `paths` and `search` as of `retrieval.index.Index`.

    Args:
        images: the files of the queries, in the order of their vectors. flags: of the command line.
    """

    def __init__(self, index, images: list[str], flags):
        self.index = index
        self.paths = index.paths
        self.images = images
        self.flags = flags

    def search(self, queries: np.ndarray, k: int, rescored: int = codes.RESCORED) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the `k` first images of each of `queries` `(Q, D)` and their Euclidean distances before, `(Q, k)`
        each; row -1 at infinity for none.
        """
        vectors = self.index.vectors
        if vectors is None:
            vectors = np.concatenate(list(decoded_blocks(self.index.faiss)))
        space = metrics.EmbeddingSpace(
            queries,
            np.zeros(len(queries), np.int64),
            vectors,
            np.zeros(len(vectors), np.int64),
            exclude=self._places(queries, k, rescored),
            progress=True,
            paths=np.array(self.images, dtype=object),
            reference_paths=np.array(self.paths, dtype=object),
        )
        space.search = metrics.reranking(self.flags).search(space, True)
        rows = space.neighbours(min(k, len(self.paths)))
        distances = np.full(rows.shape, np.inf)
        query, rank = np.nonzero(rows >= 0)
        distances[query, rank] = np.sqrt(space.squared_distances(query, rows[query, rank]))
        return distances, rows

    def _places(self, queries: np.ndarray, k: int, rescored: int) -> np.ndarray | None:
        """`(Q,)` row of each query in the index, -1 where it is not among its nearest; None without --exclude_self."""
        if not self.flags.exclude_self:
            return None
        places = np.full(len(queries), -1)
        nearest = self.index.search(queries, k, rescored)[1]
        for query, rows in enumerate(nearest.tolist()):
            path = os.path.realpath(self.images[query])
            for row in rows:
                if row >= 0 and os.path.realpath(self.paths[row]) == path:
                    places[query] = row
        return places
