"""Re-ranking by a file of the user's: `--rerank_pairs FILE`, a Python file that defines

    score(query_paths, gallery_paths) -> array (n,), higher is nearer

of n pairs of image files, and may define `prepare(paths)`, which is called with images before their first pair is
scored. The first neighbours of each query are put in order by score; equal ones keep their order.
"""

import functools
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from metrics._hidden import as_numpy
from metrics._space import EmbeddingSpace
from metrics.neighbours.reordered import Reordered
from utilities.errors import UserError, reason_of

# pairs of one call of the user's `score`
PAIRS = 1024


class PairScorer:
    """The functions of a user's file, and the scores that they have given so far.

    Raises UserError where the file raises, or defines no `score`.
    """

    def __init__(self, path: str):
        self.flag = f"--rerank_pairs {path}"
        try:
            functions = runpy.run_path(path)
        except (Exception, SystemExit) as error:
            # the file may raise anything; sys.exit() must not end the program
            raise UserError(f"{self.flag}: {reason_of(error)}") from error
        self.score = functions.get("score")
        self.prepare = functions.get("prepare")
        self.prepared = set()
        # query path -> {gallery path: score}
        self.known_scores = {}
        if not callable(self.score):
            raise UserError(f"{self.flag}: it defines no function score(query_paths, gallery_paths)")

    def scored(self, pairs: list[tuple[str, str]], progress: bool = False) -> np.ndarray:
        """`(P,)` scores of pairs of a query and a gallery image; a pair that has a score is not scored again."""
        missing = [pair for pair in dict.fromkeys(pairs) if pair[1] not in self.known_scores.get(pair[0], {})]
        # None hides the bar where there is no terminal
        hides = None if progress and len(missing) > PAIRS else True
        with tqdm(total=len(missing), desc="scoring", unit=" pairs", disable=hides) as bar:
            for start in range(0, len(missing), PAIRS):
                part = missing[start : start + PAIRS]
                self._prepare(part)
                self.remember(part, self._of_part(part))
                bar.update(len(part))
        return np.array([self.known_scores[query][image] for query, image in pairs], dtype=np.float64)

    def remember(self, pairs: list[tuple[str, str]], scores: np.ndarray) -> None:
        """Keep the scores `(P,)` of pairs."""
        for (query, image), score in zip(pairs, scores.tolist(), strict=True):
            self.known_scores.setdefault(query, {})[image] = score

    def _prepare(self, pairs: list[tuple[str, str]]) -> None:
        if self.prepare is None:
            return
        paths = [path for path in dict.fromkeys(sum(pairs, ())) if path not in self.prepared]
        if not paths:
            return
        try:
            self.prepare(paths)
        except (Exception, SystemExit) as error:
            raise UserError(
                f"{self.flag}: prepare() raised {reason_of(error)}, of {paths[0]} and what follows"
            ) from error
        self.prepared.update(paths)

    def _of_part(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """`(n,)` finite scores of n pairs. Raises UserError, which names a pair, for anything else."""
        try:
            values = self._called(pairs)
        except (Exception, SystemExit) as error:
            raise UserError(f"{self.flag}: score() raised {reason_of(error)}{self._failing(pairs)}") from error
        if values.shape != (len(pairs),):
            raise UserError(
                f"{self.flag}: score() gave {values.shape} for {len(pairs)} pairs, the first {_text(pairs[0])}; "
                f"({len(pairs)},) numbers are expected"
            )
        if not np.isfinite(values).all():
            place = int(np.isfinite(values).argmin())
            raise UserError(
                f"{self.flag}: score() gave {values[place]:g} for the pair {_text(pairs[place])}; a finite number is "
                "expected"
            )
        return values

    def _called(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        queries, images = zip(*pairs, strict=True)
        return as_numpy(self.score(list(queries), list(images))).astype(np.float64)

    def _failing(self, pairs: list[tuple[str, str]]) -> str:
        """The first pair at which `score` raises by itself; the first of the call where each passes alone."""
        for pair in pairs:
            try:
                self._called([pair])
            except (Exception, SystemExit):
                return f", at the pair {_text(pair)}"
        return f", in a call of {len(pairs)} pairs from {_text(pairs[0])} on"


def _text(pair: tuple[str, str]) -> str:
    return " | ".join(pair)


@functools.lru_cache(maxsize=1)
def _scorer(path: str, changed: int) -> PairScorer:
    return PairScorer(path)


def scorer_of(path: str) -> PairScorer:
    """The scorer of a file, which is executed once as long as it does not change. Raises UserError without the file."""
    if not Path(path).is_file():
        raise UserError(f"--rerank_pairs {path}: no such file")
    return _scorer(str(path), Path(path).stat().st_mtime_ns)


@dataclass(frozen=True)
class PairReranking:
    """The first `top` neighbours of each query by the scores of the user's file; junk and the query's own sequence are
    gone before. `first`: the re-ranking that gives the lists, None for none.

    The space names the image files: `paths` `(N,)` and `reference_paths` `(M,)`.
    """

    path: str
    top: int = 100
    first: Any = None

    def search(self, space: EmbeddingSpace, progress: bool = False) -> "ScoredPairs":
        """The search whose first neighbours are re-ranked. Raises UserError without the images' paths."""
        scorer = scorer_of(self.path)
        if space.paths is None or space.reference_paths is None:
            raise UserError(f"--rerank_pairs {self.path}: the images have no paths, by which pairs are scored")
        search = space.search
        if self.first is not None:
            search = self.first.search(space, progress)
        listed = space.view(type(space))
        listed.search = search
        neighbours = listed.neighbours(min(self.top, space.reference_size))
        return ScoredPairs(space, search, neighbours, scorer, progress)


class ScoredPairs(Reordered):
    """A search whose first neighbours are ordered by the scores of pairs.

    Attributes:
        neighbours: `(N, T)` the first of each query before, -1 for none. pair_scores: `(N, T)` their scores, NaN for
        none.
    """

    def __init__(self, space: EmbeddingSpace, search, neighbours: np.ndarray, scorer: PairScorer, progress: bool):
        super().__init__(space, search, neighbours.shape[1], self._of_rows)
        self.neighbours = neighbours
        self.pair_scores = np.full(neighbours.shape, np.nan)
        parts = space.ranks.portions(space.size, 1)
        mine = parts[space.ranks.rank]
        is_listed = neighbours[mine] >= 0
        self.pair_scores[mine][is_listed] = scorer.scored(self._pairs(mine), progress)
        space.ranks.share_rows(self.pair_scores, parts)
        scorer.remember(self._pairs(slice(None)), self.pair_scores[neighbours >= 0])

    def _pairs(self, rows: slice) -> list[tuple[str, str]]:
        """The paths of the pairs of some queries, query after query."""
        first, columns = np.nonzero(self.neighbours[rows] >= 0)
        queries = self.space.paths[rows][first]
        images = self.space.reference_paths[self.neighbours[rows][first, columns]]
        return list(zip(map(str, queries), map(str, images), strict=True))

    def _of_rows(self, rows: np.ndarray, columns: np.ndarray, filled: np.ndarray) -> np.ndarray:
        return self.pair_scores[rows, : columns.shape[1]]
