"""Exact nearest neighbours of queries in a reference, without sorting all distances.

Every query gets a cut, a score below which nothing matters to its metrics: that of its farthest relevant sample, or of
the needed depth as a sample of the reference estimates it. One float32 matrix product per tile of queries x reference
gives all scores, and only those at or above the cut are kept and sorted. Neighbours whose scores lie within rounding of
each other are ordered by their float64 distances, so ranks are exact. A query whose cut was too high is searched again.

search.py     blocks, cuts, tiles, candidates; `Search.run` yields `Neighbours`
keys.py       a score and an index in one whole number, which sorts as neighbours do
ties.py       the exact order of near ties
triangle.py   a set searched in itself: the score of (i, j) is that of (j, i)
rerank.py     searches whose lists are re-ranked: k-reciprocal encodings, query expansion
dba.py        the search in a gallery whose images are joined with their neighbours
reordered.py  a search whose first neighbours are put into another order, by their scores:
              of refined features (superglobal.py), of a user's function of pairs (pair_scores.py)

The slow reference, a sort of all float64 distances of one query after the other, is `orders` of
tests/kit/plain_metrics.py, with which tests/metrics/test_search.py compares every limit and sequence.
"""

from metrics.neighbours.search import Limits, Need, Neighbours, Search

__all__ = ["Limits", "Need", "Neighbours", "Search"]
