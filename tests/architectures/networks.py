"""Networks, images and files of weights for the tests of architectures."""

import torch
import torchvision

import architectures

NORMS = torch.nn.modules.batchnorm._BatchNorm


def select(name, **flags):
    return architectures.select(name, **{"not_pretrained": True, "embed_dim": 8, **flags})


def images(size=64, count=2):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def saved(content, path):
    """The path of a file that holds it."""
    torch.save(content, path)
    return str(path)


def assert_same(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def without_classifier(network):
    """The state of a network of torchvision but for its last layer `fc`."""
    return {key: value for key, value in network.state_dict().items() if not key.startswith("fc.")}


def shufflenet(seed):
    """A small network of torchvision, its statistics drawn too."""
    torch.manual_seed(seed)
    network = torchvision.models.shufflenet_v2_x0_5()
    for buffer in network.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return network
