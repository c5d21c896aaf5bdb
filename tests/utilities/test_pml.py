"""Building classes of pytorch-metric-learning from words of the command line."""

import sys

from tests.kit.refusals import refused
from utilities import pml


def test_words_become_values():
    words = {
        "3": 3,
        "0.4": 0.4,
        "1e-3": 1e-3,
        "-2": -2,
        "True": True,
        "false": False,
        "none": None,
        "semihard": "semihard",
        "[1, 2]": [1, 2],
        "(0.1, 0.5)": (0.1, 0.5),
        "'a b'": "a b",
        "a=b": "a=b",
    }
    for word, value in words.items():
        parsed = pml.parse_kwargs([f"key={word}"])["key"]
        assert parsed == value and type(parsed) is type(value), word
    assert pml.parse_kwargs(None) == pml.parse_kwargs([]) == {}
    for word in ("m", "=3", "m-x=3", "1=2"):
        with refused("key=value"):
            pml.parse_kwargs([word])


def test_defaults_reach_only_those_that_take_them():
    # hands both on to its base
    arcface = pml.build("losses", "ArcFaceLoss", ["scale=8"], num_classes=5, embedding_size=3)
    assert arcface.W.shape == (3, 5)
    assert arcface.scale == 8
    circle = pml.build("losses", "CircleLoss", ["m=0.3", "gamma=60"], num_classes=5, embedding_size=3)
    assert (circle.m, circle.gamma) == (0.3, 60)
    assert pml.build("losses", "ArcFaceLoss", ["num_classes=2"], num_classes=5, embedding_size=3).W.shape == (3, 2)


def test_mistakes(monkeypatch):
    for package, name, kwargs, message in (
        ("losses", "CircelLoss", [], "Did you mean 'CircleLoss'"),
        ("losses", None, [], "--loss_pml_class"),
        ("miners", None, [], "--miner_pml_class"),
        ("losses", "CircleLoss", ["k=3"], "it takes m, gamma"),
        ("losses", "P2SGradLoss", [], "descriptors_dim"),
        ("losses", "BaseMetricLossFunction", [], "unknown class"),
    ):
        with refused(message):
            pml.build(package, name, kwargs, num_classes=4)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)
    with refused("pip install pytorch-metric-learning"):
        pml.build("losses", "CircleLoss", [])
