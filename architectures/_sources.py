"""Where timm's networks come from: its registry, a repository of the hub, or a local folder.

`hf-hub:OWNER/NAME[@REVISION]` and `local-dir:PATH` hold a `config.json`: the architecture, arguments of its
constructor, the data config, and for exports of this program the key `pipeline`. What such a file says is data:
arguments that would make timm load further files are refused. `origin` reads it; the rest of the program takes the
network's name, data config and weights from there, whichever the place.
"""

import contextlib
import dataclasses
import functools
import urllib.error
import urllib.request
from pathlib import Path

from architectures import _checkpoints, _weights
from architectures._weights import Pretrained
from utilities.errors import UserError
from utilities.extras import way_out
from utilities.files import expanded
from utilities.provenance import sha256
from utilities.reading import Unreadable, read_json
from utilities.shapes import pair

HUB = "hf-hub"
FOLDER = "local-dir"
CONFIG = "config.json"
OPEN_CLIP = "open_clip_config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# the key of this program's exports: traits, head, grid
PIPELINE = "pipeline"
# of the architecture where the file does not name them
STRUCTURE = ("fixed_input_size", "classifier", "first_conv", "pool_size", "interpolation")
NORMALISATION = ("mean", "std")
# arguments of timm.create_model that choose files, or what kind of network it makes
REFUSED = (
    *("checkpoint_path", "cache_dir", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay"),
    *("pretrained_model_args", "features_only", "scriptable", "exportable", "no_jit"),
)
CLIP_WIDTHS = {384: "small", 768: "base", 1024: "large", 1280: "huge"}


def package():
    """timm. Raises UserError if it is not installed."""
    try:
        import timm
    except ImportError as error:
        raise UserError(f"--arch timm:… needs a package that is not there ({error}): {way_out('timm')}") from None
    return timm


def data_config(constructor: str):
    """timm's record of a network and the weights of its tag, else the default ones (`PretrainedCfg`).

    None if timm has none.
    """
    return package().get_pretrained_cfg(constructor, allow_unregistered=True)


def is_place(constructor: str) -> bool:
    """Whether a name is a repository of the hub or a local folder, not one of timm's registry."""
    kind, _, address = constructor.partition(":")
    return kind in (HUB, FOLDER) and address != ""


def origin(constructor: str, cache: str | None = None) -> "Registered | Place":
    """Where a network's architecture, data config and weights come from. Raises UserError if its config cannot be had.

    cache: folder of --weights_cache, None: the hub's own.
    """
    return Place(constructor, cache) if is_place(constructor) else Registered(constructor)


def source(constructor: str, cache: str | None = None) -> tuple:
    """Architecture, data config, further arguments of its constructor, and `fetch(cache) -> state dict` or None."""
    place = origin(constructor, cache)
    fetch_weights = None
    if place.published is not None:
        fetch_weights = place.published.fetch
    return place.architecture, place.config, place.arguments, fetch_weights


class Registered:
    """A network of timm's registry.

    Attributes: `architecture`, `config` (timm's data config), `arguments` of the constructor, `published` weights or
    None, `pipeline` (what an export of this program says), `record` for environment.yaml.
    """

    pipeline = {}
    remarks = ()
    weights_file = None

    def __init__(self, constructor: str):
        self.architecture = constructor
        self.config = data_config(constructor)
        self.arguments = {}
        self.record = {}

    @property
    def published(self) -> Pretrained | None:
        """Source of the weights; None without any."""
        config = self.config
        if config is None:
            return None
        name = config.architecture
        if config.tag:
            name += f".{config.tag}"
        if config.hf_hub_id:
            return Pretrained(name, f"hf-hub:{config.hf_hub_id}", hashed=False, fetch=functools.partial(fetch, config))
        if config.url and not config.url.endswith(".npz"):
            return Pretrained(name, config.url, hashed=False)
        return None


class Place(Registered):
    """A network of a repository of the hub, or of a local folder. Attributes as `Registered`."""

    def __init__(self, constructor: str, cache: str | None):
        self.constructor = constructor
        self.cache = expanded(cache) if cache else None
        self.kind, _, self.address = constructor.partition(":")
        content = self._content()
        # a tag would name other weights
        self.architecture = content["architecture"].partition(".")[0]
        if not package().is_model(self.architecture):
            raise self._wrong(f"names the architecture {self.architecture!r}, which this timm does not have")
        self.pipeline = _dict_of(content, PIPELINE)
        self.arguments = _dict_of(content, "model_args")
        refused = [name for name in REFUSED if name in self.arguments]
        if refused:
            raise self._wrong(f"gives {refused[0]} among its model_args, which may not choose files")
        self.arguments.pop("num_classes", None)
        # of a file of old, all keys lie at the top
        fields = _dict_of(content, "pretrained_cfg") or content
        self.remarks = []
        if not all(fields.get(name) for name in NORMALISATION):
            self.remarks.append(f"timm:{constructor}: its {CONFIG} names no mean and std: ImageNet's are taken")
        try:
            self.config = self._data_config(fields)
        except (TypeError, ValueError) as error:
            raise self._wrong(f"has a data config that is none ({error})") from None

    @property
    def record(self) -> dict:
        """The revision, for environment.yaml, beside the hash of the file of weights."""
        return {"architecture": self.architecture, "revision": self.revision}

    @property
    def revision(self) -> str | None:
        """The commit of a repository; None of a folder."""
        if self.kind == FOLDER:
            return None
        cached = self._cached(CONFIG)
        return cached.parent.name if cached else None

    @property
    def weights_file(self) -> str | None:
        """The path of the weights: of a folder, or in the hub's cache. None if there are none yet."""
        for name in _files(self.config.hf_hub_filename):
            path = self._cached(name)
            if path is not None:
                return str(path)
        return None

    @property
    def published(self) -> Pretrained:
        """Source of the weights. Its name tells the revision; of a folder, the weights' hash."""
        name = self.constructor
        if self.kind == HUB:
            name = f"{name.partition('@')[0]}@{self.revision}"
        elif self.weights_file is not None:
            name = f"{name}@{sha256(self.weights_file)[:16]}"
        return Pretrained(name, self.constructor, hashed=False, fetch=self._fetch)

    def _fetch(self, cache: str | None) -> dict:
        """The weights; those of an export of this program as a whole network's. Raises OSError, Unreadable."""
        if self.kind == HUB:
            state = fetch(self.config, cache)
        elif self.weights_file is None:
            raise UserError(f"timm:{self.constructor}: no {' or '.join(WEIGHTS)} in it")
        else:
            state = _checkpoints.content_of(self.weights_file)
        head = self.pipeline.get("head")
        if not isinstance(head, str) or not any(key.startswith(f"{head}.") for key in state):
            return state
        return _checkpoints.with_grid(_whole_network(state, head), _checkpoints.grid_of(self.pipeline))

    def _content(self) -> dict:
        path = self._cached(CONFIG) or self._fetched_config()
        try:
            content = read_json(path)
        except Unreadable as error:
            raise UserError(f"timm:{self.constructor}: its {CONFIG} cannot be read ({error.reason})") from None
        if not isinstance(content, dict) or not isinstance(content.get("architecture"), str):
            raise self._wrong("names no architecture of timm")
        return content

    def _cached(self, file: str) -> Path | None:
        """The path of a file in the folder, or in the hub's cache; None if it is not there."""
        if self.kind == FOLDER:
            path = expanded(self.address) / file
            return path if path.is_file() else None
        import huggingface_hub

        repository, _, revision = self.address.partition("@")
        # ValueError: no repository can have this name, which the hub's client says when the file is fetched
        with contextlib.suppress(ValueError):
            path = huggingface_hub.try_to_load_from_cache(
                repository, file, cache_dir=self.cache, revision=revision or None
            )
            if isinstance(path, str):
                return Path(path)
        return None

    def _fetched_config(self) -> Path:
        """Fetch the config from the hub. Raises UserError if it cannot be had."""
        reason = None
        if self.kind == HUB:
            try:
                return self._downloaded(CONFIG)
            except Exception as error:
                # the hub's client and its transport raise many kinds
                reason = _weights.first_line(error)
        path = self._cached(OPEN_CLIP)
        if path is None and self.kind == HUB and "404" in reason:
            # Where this fails as well, the first reason is reported.
            with contextlib.suppress(Exception):
                path = self._downloaded(OPEN_CLIP)
        if path is not None:
            raise UserError(
                f"timm:{self.constructor}: it has only {OPEN_CLIP}: take --arch timm:{_clip(path)} --weights "
                "open_clip_pytorch_model.bin"
            )
        if self.kind == FOLDER:
            raise UserError(f"timm:{self.constructor}: no {CONFIG} in it")
        raise UserError(
            f"timm:{self.constructor}: its {CONFIG} is not in the cache and cannot be had ({reason}): fetch it once "
            f"with a connection, or give its folder as timm:{FOLDER}:PATH"
        )

    def _downloaded(self, file: str) -> Path:
        import huggingface_hub

        repository, _, revision = self.address.partition("@")
        with _weights.patience(_weights.TIMEOUT):
            if not huggingface_hub.constants.HF_HUB_OFFLINE:
                _reach(huggingface_hub.constants.ENDPOINT)
            return Path(
                huggingface_hub.hf_hub_download(repository, file, revision=revision or None, cache_dir=self.cache)
            )

    def _data_config(self, fields: dict):
        """timm's data config of the file, with the architecture's own structure. Raises TypeError, ValueError."""
        kind = package().models.PretrainedCfg
        base = data_config(self.architecture) or kind()
        values = {name: getattr(base, name) for name in STRUCTURE}
        values["input_size"] = base.input_size
        field_names = {field.name for field in dataclasses.fields(kind)}
        for name, value in fields.items():
            if name in field_names and value is not None:
                values[name] = tuple(value) if isinstance(value, list) else value
        if self.arguments.get("img_size"):
            values["input_size"] = (3, *pair(self.arguments["img_size"]))
        if self.arguments.get("dynamic_img_size") or self.arguments.get("strict_img_size") is False:
            values["fixed_input_size"] = False
        # where weights lie is not for the file to say
        places = dict.fromkeys(("url", "file", "state_dict", "hf_hub_id", "hf_hub_filename", "custom_load"))
        if self.kind == HUB:
            places["hf_hub_id"] = self.address
        return kind(**{**values, **places, "architecture": self.architecture, "tag": None})

    def _wrong(self, fault: str) -> UserError:
        return UserError(f"timm:{self.constructor}: its {CONFIG} {fault}")


def _dict_of(content: dict, key: str) -> dict:
    value = content.get(key)
    return dict(value) if isinstance(value, dict) else {}


def _whole_network(state: dict, head: str) -> dict:
    """The weights of an export as those of a network of this program: backbone and embedding layer."""
    network = {}
    for key, value in state.items():
        below = key.removeprefix(f"{head}.")
        network[f"backbone.{key}" if below == key else f"last_linear.{below}"] = value
    return network


def _clip(path: Path) -> str:
    """timm's name of the image network that a config of open_clip describes."""
    vision = {}
    with contextlib.suppress(Unreadable, AttributeError, TypeError):
        vision = read_json(path).get("model_cfg", {}).get("vision_cfg", {})
    size = CLIP_WIDTHS.get(vision.get("width"), "base")
    return f"vit_{size}_patch{vision.get('patch_size', 16)}_clip_{vision.get('image_size', 224)}"


def fetch(config, cache: str | None) -> dict:
    """The state dict on the hub, from the cache or the network. Raises OSError if neither has it."""
    import huggingface_hub
    from timm.models import load_state_dict_from_hf

    repository, _, revision = config.hf_hub_id.partition("@")
    for file in _files(config.hf_hub_filename):
        path = huggingface_hub.try_to_load_from_cache(repository, file, cache_dir=cache, revision=revision or None)
        if isinstance(path, str):
            return _checkpoints.content_of(path)
    arguments = {"cache_dir": cache, "weights_only": True}
    if config.hf_hub_filename:
        arguments["filename"] = config.hf_hub_filename
    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        _reach(huggingface_hub.constants.ENDPOINT)
    try:
        return load_state_dict_from_hf(config.hf_hub_id, **arguments)
    except Exception as error:
        # the hub's client and its transport raise many kinds, which change with its versions
        raise OSError(str(error).strip() or type(error).__name__) from error


def _files(named: str | None) -> list[str]:
    """Possible file names of a network's weights on the hub."""
    if not named:
        return list(WEIGHTS)
    return [named.replace("pytorch_model", "model").rpartition(".")[0] + _checkpoints.SAFE, named]


def _reach(host: str) -> None:
    """Raise OSError if the host does not answer: the hub's client would retry for most of a minute."""
    # An HTTP error is an answer, too.
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(host, method="HEAD"), timeout=_weights.TIMEOUT).close()
