"""Triplets of random_distance: right under some permutation of the labels, and only under that."""

from itertools import permutations

import batch_mining
from tests.batch_mining._reference import all_triplets, as_lists, batch_of


def test_valid_under_permuted_labels():
    labels = [0, 0, 1, 1, 2]
    embeddings, y = batch_of(labels)
    valid = [set(all_triplets(permuted)) for permuted in set(permutations(labels))]
    miner, wrong = batch_mining.select("random_distance"), 0
    for _ in range(60):
        mined = as_lists(*miner(embeddings, y))
        assert len(mined) == 4
        assert any(set(mined) <= triplets for triplets in valid)
        wrong += not set(mined) <= set(all_triplets(labels))
    assert wrong > 20
