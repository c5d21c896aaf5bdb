"""Re-ranked neighbour lists: k-reciprocal encodings, and query expansion.

A re-ranker replaces the search of a space, and so the lists of all retrieval metrics; clusterings, spectrum and dists
stay as they are.
"""

from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

from metrics._hyperbolic import HyperbolicSpace, space_of
from metrics._space import EmbeddingSpace
from metrics.neighbours.search import Need, Neighbours, Search

NUMBERS = 1 << 24  # float64 numbers of a matrix (queries, reference) that exist at once
ROWS = 64  # queries whose lists are handed on at once
DIGITS = 12  # decimals of a final distance, from 0 to 1: smaller differences are rounding, so ties


@dataclass(frozen=True)
class AlphaExpansion:
    """Alpha query expansion
    (Radenovic et al., Fine-tuning CNN Image Retrieval with No Human Annotation, TPAMI 2018, arXiv 1711.02512).

    A query becomes the mean of itself, with weight 1, and of its n nearest samples with the weights max(cosine,
    0)^alpha; the reference stays.
    """

    n: int = 50
    alpha: float = 3.0

    def search(self, space: EmbeddingSpace, progress: bool = False) -> Search:
        """The search of the expanded queries."""
        n = min(self.n, space.reference_size)
        nearest = space.view(type(space), truth=space.truth.unjudged()).neighbours(n)  # (N, n)
        expanded = np.empty((space.size, space.dimensions))
        step = max(NUMBERS // (n * space.dimensions), 1)
        for start in range(0, space.size, step):
            rows = slice(start, min(start + step, space.size))
            queries = space.queries(rows)
            columns = nearest[rows]
            # (R, n, D); any sample for a missing one, with weight 0
            neighbours = space.references(np.maximum(columns, 0).reshape(-1)).reshape(*columns.shape, -1)
            lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(neighbours, axis=2)
            cosines = np.einsum("rd,rnd->rn", queries, neighbours) / np.where(lengths > 0, lengths, 1.0)
            weights = np.where(columns >= 0, np.maximum(cosines, 0.0) ** self.alpha, 0.0)
            sums = queries + np.einsum("rn,rnd->rd", weights, neighbours)
            expanded[rows] = sums / (1 + weights.sum(1, keepdims=True))
        return space.view(type(space), features=expanded, norms=None, own_reference=False).search


@dataclass(frozen=True)
class KReciprocal:
    """k-reciprocal re-ranking
    (Zhong et al., Re-ranking Person Re-identification with k-reciprocal Encoding, CVPR 2017, arXiv 1701.08398).

    The final distance is (1 - weight) Jaccard distance of the encodings + weight d^2 / (largest d^2 of the query). All
    samples, queries and reference, are nodes, each once; a node comes first among its own k1 + 1 and k2 nearest, even
    before duplicates. As in the authors' code, a candidate's neighbours are added where more than (not at least) two
    thirds of them are shared.
    """

    k1: int = 20
    k2: int = 6
    weight: float = 0.3

    def search(self, space: EmbeddingSpace, progress: bool = False) -> "Reranked":
        """The search over re-ranked lists, with the sparse encodings of all nodes;
        lists are made when they are requested.
        """
        nodes, of_queries = _nodes(space)
        farthest = _farthest(nodes, progress)
        return Reranked(space, self._encodings(nodes, farthest), of_queries, farthest[of_queries], self.weight)

    def _encodings(self, nodes: EmbeddingSpace, farthest: np.ndarray):
        """Sparse `(T, T)`: row i holds the weights of the neighbours of node i, which sum to 1.

        Sets of neighbours are sparse matrices of 0 and 1, and set operations are products. `wide` holds the reciprocal
        neighbours of each node among k1, `narrow` those among half as many. (wide narrow^T)[i, j] counts the narrow
        neighbours of j that i has too; where these are more than two thirds, they all become neighbours of i. Weights
        fall with the distance, and with k2 > 1 an encoding is the mean of those of the k2 nearest nodes.
        """
        from scipy import sparse

        size = nodes.size
        depth = max(min(max(self.k1, self.k2 - 1), size - 1), 1)
        nearest = np.concatenate([np.arange(size)[:, None], nodes.neighbours(depth)], 1)  # (T, 1 + depth)
        wide = _reciprocal(nearest[:, : self.k1 + 1])
        narrow = _reciprocal(nearest[:, : int(np.around(self.k1 / 2)) + 1])
        # of a node and its neighbour: how many neighbours of the latter the node has too
        shared = wide.multiply(wide @ narrow.T).tocsr()
        shared.data = (3 * shared.data > 2 * narrow.sum(1).A1[shared.indices]).astype(np.int32)
        shared.eliminate_zeros()
        members = (wide + shared @ narrow).tocsr()
        members.sort_indices()
        rows = np.repeat(np.arange(size), np.diff(members.indptr))
        weights = np.exp(-nodes.squared_distances(rows, members.indices.astype(np.int64)) / farthest[rows])
        weights /= np.bincount(rows, weights=weights, minlength=size)[rows]
        encodings = sparse.csr_matrix((weights, members.indices, members.indptr), shape=(size, size))
        if self.k2 == 1:
            return encodings
        first = nearest[:, : self.k2]
        is_node = first >= 0
        nodes_of = np.nonzero(is_node)[0]
        means = sparse.csr_matrix((1.0 / is_node.sum(1)[nodes_of], (nodes_of, first[is_node])), shape=(size, size))
        return (means @ encodings).tocsr()


def _nodes(space: EmbeddingSpace) -> tuple[EmbeddingSpace, np.ndarray]:
    """The space of all samples, the reference first, then the queries that are not in it;
    and the node `(N,)` that each query is.
    """
    outside = np.flatnonzero(space.exclude < 0)
    of_queries = space.exclude.copy()
    of_queries[outside] = space.reference_size + np.arange(len(outside))
    if space.reference_norms is None:
        # `[:]` reads all rows of a memory-mapped reference
        parts = [space.reference[:], space.features[outside]]
    else:
        parts = [space.references(slice(None)), space.queries(outside)]
    features = parts[0]
    if len(outside):
        features = np.concatenate(parts)
    ball = space.ball if isinstance(space, HyperbolicSpace) else None
    settings = {"device": space.device, "progress": space.progress, "ranks": space.ranks}
    return space_of(ball, features, np.arange(len(features)), **settings), of_queries


def _reciprocal(nearest: np.ndarray):
    """Sparse `(T, T)` of 0 and 1: which of a node's nearest `(T, K)`, -1 for none, have it among theirs."""
    from scipy import sparse

    rows, slots = np.nonzero(nearest >= 0)
    units = np.ones(len(rows), dtype=np.int32)
    forward = sparse.csr_matrix((units, (rows, nearest[rows, slots])), shape=(len(nearest), len(nearest)))
    return forward.multiply(forward.T).tocsr()


def _squared_distances(space: EmbeddingSpace, rows: np.ndarray) -> np.ndarray:
    """Squared float64 distances `(R, M)` of queries to all of the reference, by matrix product."""
    device = torch.device(space.device)
    distances = np.empty((len(rows), space.reference_size))
    queries = torch.from_numpy(space.queries(rows)).to(device)
    for start, block in space.reference_blocks():
        reference = torch.from_numpy(block).to(device)
        if isinstance(space, HyperbolicSpace):
            squared = space.ball.squared_distances(queries, reference)
        else:
            # centred, so that products round least
            a = queries - queries.mean(0)
            b = reference - queries.mean(0)
            query_factors = torch.cat([-2 * a, a.square().sum(1, keepdim=True), torch.ones_like(a[:, :1])], 1)
            reference_factors = torch.cat([b, torch.ones_like(b[:, :1]), b.square().sum(1, keepdim=True)], 1)
            squared = query_factors @ reference_factors.T
        distances[:, start : start + len(block)] = squared.clamp_(min=0).cpu().numpy()
    return distances


def _step(width: int) -> int:
    """Rows of a matrix of `width` columns with at most `NUMBERS` numbers.
    Products round by which rows are computed together.
    """
    return max(NUMBERS // max(width, 1), 1)


def _row_blocks(rows: slice, width: int) -> list[np.ndarray]:
    """The rows, `_step` of them at a time."""
    starts = range(rows.start, rows.stop, _step(width))
    return [np.arange(start, min(start + _step(width), rows.stop)) for start in starts]


def _farthest(nodes: EmbeddingSpace, progress: bool) -> np.ndarray:
    """`(T,)` the largest squared distance of each node, 1 where all are 0."""
    parts = nodes.ranks.portions(nodes.size, _step(nodes.size))
    blocks = _row_blocks(parts[nodes.ranks.rank], nodes.size)
    largest = np.empty(nodes.size)
    # None hides the bar where there is no terminal
    hides = None if progress and nodes.size > 30_000 else True
    for rows in tqdm(blocks, desc="farthest", leave=False, disable=hides):
        largest[rows] = _squared_distances(nodes, rows).max(1)
    nodes.ranks.share_rows(largest, parts)
    return np.where(largest > 0, largest, 1.0)


class Reranked:
    """Lists by the final distance; equal ones in the order of their index. Called as a `Search` is.

    Args:
        space: the queries and the reference. encodings: sparse `(T, T)` of all nodes, those of the reference first.
        of_queries: `(N,)` nodes. farthest: `(N,)` by which a query's squared distances are divided. weight: of these.
    """

    def __init__(self, space: EmbeddingSpace, encodings, of_queries: np.ndarray, farthest: np.ndarray, weight: float):
        self.space = space
        self.weight = weight
        self.farthest = farthest
        self.unit = _step(space.reference_size)
        self.encodings = encodings[of_queries].tocsr()
        # by columns: for each node, the reference samples whose encodings it is in
        self.by_member = encodings[: space.reference_size].tocsc()

    def run(self, needs: list[Need], progress: bool = False, rows: slice | None = None):
        """Yield `Neighbours` in blocks, in which each query comes once;
        see `Search.run`. `rows` begin at a multiple of `unit`.
        """
        space = self.space
        requested = rows or slice(0, self.space.size)
        depths = np.maximum.reduce([need.depth for need in needs]).astype(np.int64)
        places = space.places
        copies = bool((places != np.arange(space.reference_size)).any())
        total = requested.stop - requested.start
        hides = None if progress and total > 5000 else True
        with tqdm(total=total, desc="re-ranking", unit=" queries", disable=hides) as bar:
            for rows in _row_blocks(requested, space.reference_size):
                squared = _squared_distances(space, rows)
                # equal samples have one distance, despite rounding
                if copies:
                    squared = squared[:, places]
                for part in np.array_split(np.arange(len(rows)), -(-len(rows) // ROWS)):
                    # the lists of different queries have different lengths
                    lists = [self._list(rows[i], squared[i], depths[rows[i]]) for i in part]
                    yield self._neighbours(rows[part], lists)
                    bar.update(len(part))

    def _list(self, query: int, squared: np.ndarray, depth: int) -> np.ndarray:
        """The first `depth` samples of the reference in the order of their final distance to one query."""
        final = (1 - self.weight) * self._jaccard(query) + self.weight * squared / self.farthest[query]
        final = np.round(final, DIGITS)
        final[self.space.truth.hidden_pairs(np.array([query]))[1]] = np.inf
        # sequences `(N,)` of the queries, `(M,)` of the reference: a query finds nothing of its own sequence
        sequences = self.space.truth.sequences
        if sequences is not None:
            final[sequences[1] == sequences[0][query]] = np.inf
        if depth < len(final) // 4:
            nearest = np.flatnonzero(final <= np.partition(final, depth)[depth])
            return nearest[np.argsort(final[nearest], kind="stable")][:depth]
        return np.argsort(final, kind="stable")[:depth]

    def _jaccard(self, query: int) -> np.ndarray:
        """Jaccard distances `(M,)` of a query's encoding and those of the reference:
        1 - sum of minima / sum of maxima.
        """
        bounds = self.encodings.indptr[query : query + 2]
        members = self.encodings.indices[slice(*bounds)]
        weights = self.encodings.data[slice(*bounds)]
        starts = self.by_member.indptr[members]
        counts = self.by_member.indptr[members + 1] - starts
        places = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        minima = np.minimum(self.by_member.data[places], np.repeat(weights, counts))
        shared = np.bincount(self.by_member.indices[places], weights=minima, minlength=self.space.reference_size)
        # two encodings sum to 1 each, so their maxima sum to 2 less the sum of their minima
        return 1 - shared / (2 - shared)

    def _neighbours(self, rows: np.ndarray, lists: list[np.ndarray]) -> Neighbours:
        counts = np.array(list(map(len, lists)), dtype=np.int64)
        filled = np.arange(counts.max(initial=0)) < counts[:, None]
        columns = np.zeros(filled.shape, dtype=np.int64)
        columns[filled] = np.concatenate(lists) if lists else []
        relevant = self.space.truth.are_relevant(rows, columns) * filled
        return Neighbours(rows, columns, relevant, counts)
