import pytest
from pytorch_metric_learning.losses import FastAPLoss

from tests.criteria._oracles import ListMiner, build, check_formula, check_gradient, check_peer, every_batch, mined_partners, partners
from utilities.errors import UserError


def reference(num_bins, find=partners):
    def loss(batch, labels):
        positives, negatives = find(labels)
        unit = [x / x.norm() for x in batch]
        width, precisions = 4 / num_bins, []
        for i in range(len(labels)):
            if not positives[i]:
                continue
            h_pos, h_all = [0.0] * (num_bins + 1), [0.0] * (num_bins + 1)
            for j in sorted({*positives[i], *negatives[i]}):
                squared = (unit[i] - unit[j]).square().sum()
                for node in range(num_bins + 1):
                    share = 1 - abs(squared - node * width) / width
                    if share > 0:
                        h_all[node] = h_all[node] + share
                        h_pos[node] = h_pos[node] + share * (j in positives[i])
            value = 0.0
            for node in range(num_bins + 1):
                cumulative = sum(h_all[: node + 1])
                if cumulative > 0:
                    value = value + h_pos[node] * sum(h_pos[: node + 1]) / cumulative
            precisions.append(value / len(positives[i]))
        return 1 - sum(precisions) / len(precisions) if precisions else 0.0

    return loss


@pytest.mark.parametrize("num_bins", [10, 1, 25])
@every_batch
def test_formula(kind, unit, num_bins):
    check_formula("fastap", reference(num_bins), kind, unit, loss_fastap_num_bins=num_bins)


@every_batch
def test_mined_pairs(kind, unit):
    check_formula("fastap", reference(10, mined_partners), kind, unit, batchminer=ListMiner(), mine_pairs=True)


def test_gradient():
    check_gradient("fastap")


def test_against_pytorch_metric_learning():
    check_peer("fastap", FastAPLoss(num_bins=10))


def test_no_bins_are_refused():
    with pytest.raises(UserError, match="num_bins 0"):
        build("fastap", loss_fastap_num_bins=0)
