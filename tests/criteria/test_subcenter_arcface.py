import math

import torch
from pytorch_metric_learning.losses import SubCenterArcFaceLoss

from tests.criteria._oracles import build, check_formula, check_gradient, check_peer, every_batch


def reference(margin, scale, n_centers):
    def loss(batch, labels, centres):
        total = 0.0
        for x, y in zip(batch, labels, strict=True):
            cosines = []
            for c in range(len(centres) // n_centers):
                own = [x @ centres[c * n_centers + k] / x.norm() / centres[c * n_centers + k].norm() for k in range(n_centers)]
                cosines.append(max(own))
            angle = torch.acos(cosines[y])
            cosines[y] = torch.cos(angle + margin) if angle + margin <= math.pi else cosines[y] - margin * math.sin(margin)
            logits = scale * torch.stack(cosines)
            total = total - (logits[y] - torch.logsumexp(logits, 0))
        return total / len(labels)

    return loss


@every_batch
def test_formula(kind, unit):
    check_formula("subcenter_arcface", reference(0.5, 64, 3), kind, unit)


def test_another_number_of_centres():
    flags = {"loss_subcenter_arcface_n_centers": 2, "loss_subcenter_arcface_feature_scale": 10.0}
    check_formula("subcenter_arcface", reference(0.5, 10, 2), "ragged", True, **flags)


def test_gradient():
    check_gradient("subcenter_arcface", loss_subcenter_arcface_feature_scale=8.0)


def test_against_pytorch_metric_learning():
    peer = SubCenterArcFaceLoss(num_classes=5, embedding_size=6, margin=math.degrees(0.5), scale=64, sub_centers=3)
    check_peer("subcenter_arcface", peer, "W")


def test_shape():
    assert build("subcenter_arcface").proxies.shape == (15, 6)
