"""OSNet and IBN-a: names and counts of torchreid's weights, and their formulas written out with the state dict."""

import pytest
import torch
from torch.nn.functional import avg_pool2d, batch_norm, conv2d, instance_norm, linear, max_pool2d
from torch.testing import assert_close

from architectures import _osnet
from tests.architectures.networks import images, saved, select
from tests.kit.refusals import refused

# parameters without the classifier, to conv5, and tensors, of torchreid at commit f8cd150
COUNTS = {
    "osnet_x1_0": (2_169_508, 1_905_828, 565),
    "osnet_x0_75": (1_285_754, 1_087_610, 565),
    "osnet_x0_5": (630_034, 497_426, 565),
    "osnet_x0_25": (201_864, 134_792, 565),
    "osnet_ibn_x1_0": (2_170_532, 1_906_852, 566),
    "osnet_ain_x1_0": (2_169_508, 1_905_828, 550),
    "osnet_ain_x0_75": (1_285_754, 1_087_610, 550),
    "osnet_ain_x0_5": (630_034, 497_426, 550),
    "osnet_ain_x0_25": (201_864, 134_792, 550),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_and_names_are_torchreids(name):
    with torch.device("meta"):
        network = select(name, embed_dim=0)
    state = network.backbone.state_dict()
    parameters = dict(network.backbone.named_parameters())
    to_conv5 = sum(value.numel() for key, value in parameters.items() if not key.startswith("fc."))
    assert (sum(value.numel() for value in parameters.values()), to_conv5, len(state)) == COUNTS[name]
    keys = {"conv2.0.conv2b.1.conv1.weight", "conv2.2.0.conv.weight", "conv3.0.downsample.bn.weight"}
    if "ain" in name:
        keys = {"conv2.0.conv2.1.layers.1.conv1.weight", "pool2.0.conv.weight", "conv3.1.IN.bias", "conv2.1.IN.weight"}
        assert not {"conv2.0.conv3.bn.weight", "conv3.0.IN.weight", "conv4.1.IN.weight"} & state.keys()
    assert keys <= state.keys() and ("conv2.1.IN.weight" in state) == ("ain" in name or "ibn" in name)
    assert set(COUNTS) == set(_osnet.names()) and (network.feature_dim, network.embed_dim) == (512, 512)
    assert len(network.blocks()) == 6


def stirred(network, seed=0):
    """The network in evaluation, weights and statistics of its norms drawn."""
    torch.manual_seed(seed)
    for key, value in network.backbone.state_dict().items():
        if key.endswith("running_var"):
            value.uniform_(0.5, 2)
        elif value.ndim == 1:
            value.copy_(torch.randn(len(value)) * 0.3 + (key.endswith("weight")))
    return network.double().eval()


class Written:
    """The layers of a state dict by their keys, in float64."""

    def __init__(self, state):
        self.state = state

    def norm(self, maps, path):
        """The BatchNorm at `path`, or an instance norm where it has no statistics."""
        affine = [self.state[f"{path}.{name}"] for name in ("weight", "bias")]
        if f"{path}.running_mean" not in self.state:
            return instance_norm(maps, None, None, *affine)
        statistics = [self.state[f"{path}.{name}"] for name in ("running_mean", "running_var")]
        return batch_norm(maps, *statistics, *affine)

    def layer(self, maps, path, **how):
        """Convolution and norm, if there is one."""
        maps = conv2d(maps, self.state[f"{path}.conv.weight"], **how)
        return self.norm(maps, f"{path}.bn") if f"{path}.bn.weight" in self.state else maps

    def light(self, maps, path):
        maps = conv2d(maps, self.state[f"{path}.conv1.weight"])
        depthwise = self.state[f"{path}.conv2.weight"]
        return self.norm(conv2d(maps, depthwise, padding=1, groups=len(depthwise)), f"{path}.bn").relu()

    def gate(self, maps, path):
        hidden = conv2d(
            maps.mean((2, 3), keepdim=True), *(self.state[f"{path}.fc1.{key}"] for key in ("weight", "bias"))
        )
        logits = conv2d(hidden.relu(), *(self.state[f"{path}.fc2.{key}"] for key in ("weight", "bias")))
        return maps * torch.sigmoid(logits)

    def block(self, maps, path, norm_is_last):
        reduced = self.layer(maps, f"{path}.conv1").relu()
        total = 0
        for depth in range(1, 5):
            stream = reduced
            for i in range(depth):
                name = f"conv2.{depth - 1}.layers.{i}"
                if f"{path}.conv2a.conv1.weight" in self.state:
                    name = "conv2a" if depth == 1 else f"conv2{'abcd'[depth - 1]}.{i}"
                stream = self.light(stream, f"{path}.{name}")
            total = total + self.gate(stream, f"{path}.gate")
        branch = self.layer(total, f"{path}.conv3")
        has_norm = f"{path}.IN.weight" in self.state
        if has_norm and not norm_is_last:
            branch = self.norm(branch, f"{path}.IN")
        if f"{path}.downsample.conv.weight" in self.state:
            maps = self.layer(maps, f"{path}.downsample")
        total = branch + maps
        if has_norm and norm_is_last:
            total = self.norm(total, f"{path}.IN")
        return total.relu()


@torch.no_grad()
@pytest.mark.parametrize("name", ["osnet_x0_25", "osnet_ibn_x1_0", "osnet_ain_x0_25"])
def test_the_network_is_its_formula(name):
    network = stirred(select(name, embed_dim=0))
    raw = images(64, 3)
    written = Written(network.backbone.state_dict())
    mean, std = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (network.mean, network.std))
    maps = written.layer((raw / 255.0 - mean) / std, "conv1", stride=2, padding=3).relu()
    maps = max_pool2d(maps, 3, 2, 1)
    for stage in (2, 3, 4):
        for i in range(2):
            maps = written.block(maps, f"conv{stage}.{i}", norm_is_last="ibn" in name)
        if stage < 4:
            transition = f"pool{stage}.0" if "ain" in name else f"conv{stage}.2.0"
            maps = avg_pool2d(written.layer(maps, transition).relu(), 2)
    maps = written.layer(maps, "conv5").relu()
    state = written.state
    features = linear(maps.mean((2, 3)), state["fc.0.weight"], state["fc.0.bias"])
    features = written.norm(features, "fc.1").relu()
    embeddings, activations = network(raw)
    assert_close(activations["spatial"], maps, rtol=1e-5, atol=1e-6)
    assert_close(embeddings, features, rtol=1e-5, atol=1e-6)
    assert embeddings.shape == (3, 512) and (embeddings >= 0).all() and (embeddings == 0).any()


@torch.no_grad()
def test_ibn_a_normalises_half_the_channels_by_image():
    network = stirred(select("resnet50_ibn_a", embed_dim=0), 1)
    backbone = network.backbone
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 23_508_032
    paths = [path for path, module in backbone.named_modules() if type(module).__name__ == "InstanceBatchNorm"]
    assert len(paths) == 13 and all(path.endswith(".bn1") and not path.startswith("layer4") for path in paths)
    assert {"layer1.0.bn1.IN.weight", "layer3.5.bn1.BN.running_var"} <= backbone.state_dict().keys()
    norm = backbone.layer2[1].bn1
    maps = torch.randn(2, 128, 5, 3, dtype=torch.float64)
    first = (maps[:, :64] - maps[:, :64].mean((2, 3), keepdim=True)) / (
        maps[:, :64].var((2, 3), keepdim=True, correction=0) + 1e-5
    ).sqrt()
    first = first * norm.IN.weight.view(-1, 1, 1) + norm.IN.bias.view(-1, 1, 1)
    second = (maps[:, 64:] - norm.BN.running_mean.view(-1, 1, 1)) / (norm.BN.running_var.view(-1, 1, 1) + 1e-5).sqrt()
    second = second * norm.BN.weight.view(-1, 1, 1) + norm.BN.bias.view(-1, 1, 1)
    assert_close(norm(maps), torch.cat([first, second], 1))
    assert network(images())[1]["spatial"].shape == (2, 2048, 2, 2)


@pytest.mark.parametrize("name", ["osnet_x0_25", "osnet_ain_x0_25"])
def test_a_checkpoint_of_torchreid_is_loaded_and_a_single_image_in_training_is_refused(name, tmp_path):
    torch.manual_seed(3)
    source = select(name).backbone.state_dict()
    classifier = {"classifier.weight": torch.ones(7, 512), "classifier.bias": torch.ones(7)}
    content = {"state_dict": {f"module.{key}": value for key, value in {**source, **classifier}.items()}, "epoch": 9}
    network = select(name, weights=saved(content, tmp_path / "model.pth.tar-9"))
    assert all(torch.equal(value, source[key]) for key, value in network.backbone.state_dict().items())
    with refused("a part of one image has no batch statistics".replace("a part", ".*part")):
        network(images(64, 1))
    assert network.eval()(images(64, 1))[0].shape == (1, 8)
    with refused("missing .*does not fit|does not fit"):
        select("osnet_x0_5", weights=str(tmp_path / "model.pth.tar-9"))


def test_the_start_has_the_deviations_of_torchreid():
    torch.manual_seed(0)
    state = select("osnet_x1_0").backbone.state_dict()
    assert state["fc.0.weight"].std().item() == pytest.approx(0.01, rel=0.02) and not state["fc.0.bias"].any()
    for key in ("conv1.conv.weight", "conv4.0.conv1.conv.weight", "conv3.0.conv2d.2.conv2.weight"):
        weight = state[key]
        fan_out = weight.shape[0] * weight.shape[2] * weight.shape[3]
        assert weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1), key
    assert not state["conv2.0.gate.fc1.bias"].any()
