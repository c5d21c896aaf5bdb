import pytest
import torch
from pytorch_metric_learning.losses import VICRegLoss

from tests.criteria._oracles import DIMENSIONS, build, compare, gradcheck

LABELS = {"four, three, one": [2, 5, 2, 2, 7, 5, 2, 5], "none twice": [0, 1, 2], "no sample": [], "in turn": [0, 0, 1, 1, 2, 2, 3, 3], "views one after the other": [5, 1, 7, 2, 5, 1, 7, 2], "mixed": [3, 1, 1, 9, 3, 9]}


def slow(labels, invariance=25.0, variance=25.0, covariance=1.0, eps=1e-4):
    places = {label: [i for i, other in enumerate(labels) if other == label] for label in labels}
    first, second = ([i for of_label in places.values() for i in of_label[: len(of_label) // 2 * 2][k::2]] for k in (0, 1))

    def loss(x):
        n, dimensions = len(first), x.shape[1]
        if not n:
            return 0 * x.sum()
        total = invariance * sum(((x[i] - x[j]) ** 2).mean() for i, j in zip(first, second, strict=True)) / n
        for view in (first, second):
            mean = sum(x[i] for i in view) / n
            for k in range(dimensions):
                for m in range(dimensions):
                    entry = sum((x[i, k] - mean[k]) * (x[i, m] - mean[m]) for i in view) / max(n - 1, 1)
                    if k == m:
                        total = total + variance * (1 - (entry + eps).sqrt()).clamp(min=0) / dimensions / 2
                    else:
                        total = total + covariance * entry**2 / dimensions
        return total

    return loss


def batch_of(labels, scale=1.0):
    return scale * torch.randn(len(labels), DIMENSIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize("kind", LABELS)
def test_formula(kind, scale):
    labels = LABELS[kind]
    compare(build("vicreg"), slow(labels), batch_of(labels, scale), torch.tensor(labels))


def test_one_image_has_no_variance():
    compare(build("vicreg"), slow([4, 4]), batch_of([4, 4]), torch.tensor([4, 4]))


def test_flags():
    labels = LABELS["mixed"]
    flags = {"loss_vicreg_invariance": 2.0, "loss_vicreg_variance": 3.0, "loss_vicreg_covariance": 0.7, "loss_vicreg_eps": 0.1}
    compare(build("vicreg", **flags), slow(labels, 2.0, 3.0, 0.7, 0.1), batch_of(labels), torch.tensor(labels))


def test_gradient():
    labels = LABELS["mixed"]
    gradcheck(build("vicreg"), batch_of(labels), torch.tensor(labels))


def test_against_pytorch_metric_learning():
    labels = LABELS["views one after the other"]
    ours_in, theirs_in = (batch_of(labels).requires_grad_() for _ in range(2))
    ours = build("vicreg")(ours_in, torch.tensor(labels))
    theirs = VICRegLoss()(theirs_in[:4], ref_emb=theirs_in[4:])
    torch.testing.assert_close(ours, theirs)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours_in.grad, theirs_in.grad)
