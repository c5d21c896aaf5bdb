"""Its formula, flags, gradients and peer are in test_sphereface.py, beside the loss that differs in one factor."""

import torch

from tests.criteria._oracles import batch_of, build


def test_a_margin_of_one_is_the_plain_softmax():
    batch, labels = batch_of("ragged", unit=False)
    criterion = build("largemargin_softmax", loss_largemargin_softmax_margin=1)
    expected = torch.nn.functional.cross_entropy(batch @ criterion.proxies.T, labels)
    torch.testing.assert_close(criterion(batch, labels), expected)


def test_lengths_of_the_class_weights_count():
    batch, labels = batch_of("ragged", unit=False)
    plain, longer = build("largemargin_softmax"), build("largemargin_softmax", loss_largemargin_softmax_scale=3)
    with torch.no_grad():
        plain.proxies.mul_(3)
    torch.testing.assert_close(plain(batch, labels), longer(batch, labels))
