"""The npair miner: its positives are drawn uniformly, its masks hold all other classes."""

from tests.batch_mining._reference import assert_drawn_with, batch_of, mine_often

LABELS = [0, 1, 0, 1, 0, 2]


def test_positives_are_uniform():
    mined = mine_often("npair", *batch_of(LABELS), times=1500)
    for anchor in range(5):
        positives = [p for p in range(6) if p != anchor and LABELS[p] == LABELS[anchor]]
        assert_drawn_with({p: 1 / len(positives) for p in positives}, mined.positives[mined.anchors == anchor].tolist())
    for a, row in zip(mined.anchors[:5].tolist(), mined.negatives[:5].tolist(), strict=True):
        assert row == [label != LABELS[a] for label in LABELS]
