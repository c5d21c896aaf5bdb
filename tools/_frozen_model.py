"""A frozen network of `python -m evaluation models`: its facts, and the features that it gives of data sets.

`Facts` are what is known of a network without building it. They are kept beside the features (feature_store.py), so
that a second table builds only the networks whose features are missing.
"""

import contextlib
import functools
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import architectures
import evaluation
from engine.loading import evaluation_loader
from engine.random_state import seed_everything
from evaluation import ensemble, feature_store, scales
from utilities.errors import UserError
from utilities.evaltypes import BARE
from utilities.files import expanded, write_json
from utilities.reading import Unreadable, parsing, read_json

# a package states the licence of its own weights alone
NO_LICENCE = "not stated"
# names of weights that learned from ImageNet
CLOSED = re.compile(r"(^|[._])(in1k|in12k|in21k|in22k|dino|mae|fcmae|imagenet\w*)($|[._])", re.IGNORECASE)
# … from other images too
OPEN = re.compile(
    r"laion|openai|clip|webli|datacomp|dfn|lvd|sat493m|jft|ig1b|ig-|swag|swsl|ssl|yfcc|cc12m|merged|dinov|\.fb$",
    re.IGNORECASE,
)
WEB = "pretraining may have seen images of this data set: its images come from the web, or are not known here"
IMAGENET_HOLDS = {"cub200": "ImageNet, of the pretraining, holds images of CUB200, as its authors warn"}


class Part:
    """The batches of some images out of a loader that runs on: its workers do not start anew for each part."""

    def __init__(self, batches, rows: slice):
        self.batches = batches
        self.dataset = range(rows.start, rows.stop)

    def __iter__(self):
        count = 0
        while count < len(self.dataset):
            batch = next(self.batches)
            # an earlier batch is of a part that another process has written meanwhile
            if batch.indices[0] >= self.dataset.start:
                count += len(batch.labels)
                yield batch


class Unavailable(UserError):
    """A network, or its weights, that cannot be had."""


class Facts(NamedTuple):
    """What is known of a network without building it. weights: hash of its backbone's;
    parameters: number of the backbone's. native_shapes: whether it takes images of many shapes;
    patch: what their sides are multiples of.
    """

    weights: str
    weights_name: str
    input_size: int | tuple[int, int]
    interpolation: str
    prepared: list
    width: int
    parameters: int
    pooling: str
    licence: str
    native_shapes: bool = True
    patch: tuple[int, int] = (1, 1)


def facts_of(network, opt) -> Facts:
    """The facts of a network that has been built."""
    prepared = [list(network.mean), list(network.std), network.input_space, network.input_range]
    is_published = network.weights_name != "random" and not opt.weights
    licence = NO_LICENCE
    if is_published:
        licence = getattr(network, "data_config", {}).get("license", NO_LICENCE)
    return Facts(
        feature_store.hash_of(network.backbone.state_dict()),
        str(network.weights_name),
        network.input_size,
        network.interpolation,
        prepared,
        network.feature_dim,
        sum(parameter.numel() for parameter in network.backbone.parameters()),
        opt.pool or _pooling_of(network.backbone),
        licence,
        getattr(network, "native_shapes", True),
        getattr(network, "patch", (1, 1)),
    )


def _pooling_of(backbone) -> str:
    """The name of a backbone's pooling, as timm gives it; "its own" if it has no name."""
    for module in (backbone, getattr(backbone, "head", None)):
        pooling = getattr(module, "global_pool", None)
        if pooling:
            name = getattr(pooling, "pool_type", pooling)
            return name if isinstance(name, str) else "its own"
    return "its own"


class Model:
    """One network with its flags `opt`; it is built only where features are missing. `store`: the folder of features;
    `training`: flags of adapters.
    """

    def __init__(self, label: str, opt, store: Path, dtype: str, runtime, training=None):
        self.label = label
        self.opt = opt
        self.store = store
        self.dtype = dtype
        self.runtime = runtime
        self.training = training
        self.seconds = 0.0
        self.images = 0
        self.devices = set()

    @functools.cached_property
    def network(self):
        """The network, on the runtime's device. Raises Unavailable."""
        # random weights do not depend on what was built before
        seed_everything(self.opt.seed)
        try:
            network = architectures.select(self.opt.arch, self.opt)
        except UserError as error:
            raise Unavailable(str(error)) from error
        self.facts = facts_of(network, self.opt)
        if self.facts.weights_name != "random":
            self._remembered.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._remembered, self.facts._asdict())
        return self.runtime.place(network)

    @functools.cached_property
    def facts(self) -> Facts:
        """The network's facts, from an earlier command where the weights are the same file
        or published ones. Raises Unavailable.
        """
        if self.opt.weights or not self.opt.not_pretrained:
            with contextlib.suppress(Unreadable), parsing(self._remembered):
                return Facts(**read_json(self._remembered))
        self.network  # noqa: B018  building it sets them
        return self.__dict__["facts"]

    @property
    def _remembered(self) -> Path:
        flags = {flag: getattr(self.opt, flag) for flag in sorted(architectures.REGISTRY.flags() - {"weights_cache"})}
        if self.opt.weights and expanded(self.opt.weights).is_file():
            stamp = feature_store.stamp_of(expanded(self.opt.weights))
        else:
            stamp = architectures.published_weights(self.opt.arch)
        flags |= {flag: getattr(self.opt, flag) for flag in architectures.OF_IMAGES}
        content = {"arch": self.opt.arch, "stamp": stamp, "code": self._code, **flags}
        return self.store / "networks" / f"{feature_store.digest(content)}.json"

    @functools.cached_property
    def _code(self) -> dict[str, str]:
        return architectures.code_of(self.opt.arch)

    @property
    def source(self) -> str:
        """Hash of what the features come from, beside the images: weights and code."""
        return feature_store.digest({"weights": self.facts.weights, "code": self._code})

    def shards(self, dataset) -> feature_store.Store:
        """The features of a data set on disk, whether they are there or not."""
        flags = {
            flag: getattr(self.opt, flag)
            for flag in ("pool", "last_stride", "precision", "tf32", "eval_scales", "eval_scales_join")
        }
        if self.opt.stem_pool != "padded":
            flags["stem_pool"] = self.opt.stem_pool
        key = {
            "name": architectures.without_traits(self.opt.arch),
            "code": self._code,
            "weights": self.facts.weights,
            "prepared": self.facts.prepared,
            # networks of relative positions and of windows have one state dict for all sizes
            "input": self.facts.input_size,
            "native": self.facts.native_shapes,
            **flags,
            "transform": dataset.transforms_as_resolved,
            "images": feature_store.images_of(dataset),
        }
        return feature_store.Store(self.store, key, len(dataset), self.dtype)

    def embedded(self, chosen: dict) -> dict:
        """Split -> `evaluation.Embedded` of the pooled features of `chosen`, split -> data set; from disk, where they
        are. Raises UserError.
        """
        embedded_splits = {}
        self.seconds = 0.0
        self.images = 0
        self.devices = set()
        for split, dataset in chosen.items():
            if (content := self.shards(dataset).read()) is None:
                self.network  # noqa: B018  published weights may have changed since: its facts are taken anew
                self._fill(self.shards(dataset), split, dataset)
                content = self.shards(dataset).read()
            rows, seconds, devices = content
            rows = rows if self.opt.eval_no_normalize else ensemble.unit(rows).astype(np.float32)
            self.seconds = self.seconds + seconds
            self.images = self.images + len(rows)
            self.devices = self.devices | devices
            labels = np.array([label for _, label in dataset.image_list], dtype=np.int64)
            embedded_splits[split] = evaluation.Embedded({evaluation.MAIN_EVALTYPE: rows}, labels, seconds, dataset)
        return embedded_splits

    def _fill(self, shards: feature_store.Store, split: str, dataset) -> None:
        power = scales.power_of(self.network, self.opt, bare=True)
        settings = evaluation.EmbedSettings(True, False, self.opt.eval_scales, power)
        batches = iter(
            evaluation_loader(dataset, self.opt, parts=[part for part in shards.parts if shards.shard(part) is None])
        )

        def embed(part: slice) -> tuple[np.ndarray, float]:
            title = f"from image {part.start:,}"
            embedded = evaluation.embed(self.network, Part(batches, part), self.runtime, title, settings)
            return embedded.features[BARE], embedded.seconds

        with tqdm(total=len(dataset), desc=f"{self.label}: {split}", unit="img", leave=False, disable=None) as bar:
            shards.fill(embed, self.runtime.device.type, bar.update)

    def release(self) -> None:
        """Free the network."""
        self.__dict__.pop("network", None)

    def remarks(self) -> list[str]:
        """What readers must know of its weights."""
        name = self.facts.weights_name
        if name == "random":
            return ["random weights"]
        if self.opt.weights or OPEN.search(name) or not (CLOSED.search(name) or not self.opt.arch.startswith("timm:")):
            return [WEB]
        return [IMAGENET_HOLDS[self.opt.dataset]] if self.opt.dataset in IMAGENET_HOLDS else []
