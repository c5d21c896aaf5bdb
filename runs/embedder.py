"""A run as a function: `Embedder(folder)(images or paths) -> (N, D)`.

It has the transform and the network that the run was measured with.
"""

import hashlib
import itertools
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

import datasets
from runs.folder import RunFolder
from utilities import weights
from utilities.errors import UserError
from utilities.evaltypes import MAIN, of_type
from utilities.processes import kernels
from utilities.tensors import normalize

BATCHES = {"cpu": 16}  # images per batch, elsewhere 128: on a CPU larger batches are not faster, and take more memory
THREADS = 16  # threads that decode images, at most one per CPU


class Embeddings(torch.nn.Module):
    """A run's network as one function: images `(B, 3, H, W)` -> float32 embeddings `(B, D)` of one `--evaltypes` name.

    prefix: how many of their first dimensions, at unit length again where the network normalises; None: all.
    """

    def __init__(self, network: torch.nn.Module, evaltype: str, prefix: int | None = None):
        super().__init__()
        self.network = network
        self.evaltype = evaltype
        self.prefix = prefix

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings `(B, D)`."""
        embeddings = self.network(images)[0]
        if isinstance(embeddings, dict):
            embeddings = of_type(embeddings, self.evaltype)
        embeddings = embeddings.float()
        if self.prefix in (None, embeddings.shape[1]):
            return embeddings
        embeddings = embeddings[:, : self.prefix]
        return normalize(embeddings) if getattr(self.network, "normalizes", False) else embeddings


class Batch(NamedTuple):
    """A batch of a stream.

    Positions of its images in the stream, embeddings `(B, D)`, and (position, reason) of undecodable images.
    """

    places: list[int]
    vectors: np.ndarray
    refused: list[tuple[int, str]]


class Embedder:
    """Embeds images with a finished run: `Embedder(folder)(images)` gives float32 `(N, D)`.

    Images are paths, Pillow images, uint8 arrays `(H, W, 3)` or `(H, W)`, tensors `(3, H, W)`, uint8 or float in [0,
    1], bytes of files (`datasets.Encoded`); one, several in a list, or a batch `(N, …)`. They are resized and cropped
    as the run's test images, and normalised by its network.

    Args:
        folder: of the run, or of a fold of a cross-validation.
        which: `best` (the selected epoch) or `last`.
        device: where the network runs; None: the first GPU, else the CPU.
        batch_size: images per batch; None: 16 on a CPU, else 128.
        evaltype: which embedding of a network that has several; None: the first of the run's `--evaltypes`.
        prefix: give the first so many dimensions alone, at unit length again where the network normalises; None: all.

    Attributes:
        module: images uint8 or float in [0, 1] `(B, 3, H, W)` -> embeddings, as `torch.nn.Module`.
        network: the run's own. takes_features: F, if it takes rows `(N, F)` of features in place of images; else None.
        opt: the run's flags. preparation: `datasets.preparation` of the run. dimensions: D.

    Raises UserError if there is no such checkpoint, and for a prefix of more dimensions than there are.
    """

    def __init__(
        self,
        folder,
        which: str = "best",
        device=None,
        batch_size: int | None = None,
        evaltype: str | None = None,
        prefix: int | None = None,
    ):
        run = RunFolder(folder)
        # the flags do not tell a cross-validation from its folds, but a fold has a checkpoint
        if run.is_cross_validation and not run.has_checkpoint:
            raise UserError(
                f"{folder} is a cross-validation, a network a fold: name one of them, as {run.fold(0).path}"
            )
        self.folder = run.path
        self.opt = Namespace(**run.flags)
        evaltypes = run.flags.get("evaltypes") or [MAIN]
        self.evaltype = evaltype or evaltypes[0]
        self.device = _device(device)
        self.batch_size = batch_size or BATCHES.get(self.device.type, 128)
        requested = None if evaltype is None else [evaltype]
        self.network = run.network(which, requested).to(self.device)
        self.takes_features = getattr(self.network, "takes_features", None)
        self.module = Embeddings(self.network, self.evaltype, prefix).eval()
        self.preparation = datasets.preparation(self.opt, self.network)
        with torch.no_grad():
            self.dimensions = self.module(self.preparation.blank(1).to(self.device)).shape[1]
        if prefix is not None and self.dimensions < prefix:
            raise UserError(f"--prefix {prefix}: the embeddings of {folder} have {self.dimensions} dimensions")

    def __call__(self, images, progress: bool = False) -> np.ndarray:
        """float32 `(N, D)` of `images`, in their order.

        Raises UserError, naming the file, for one that cannot be decoded.
        """
        images = _as_list(images) if self.takes_features is None else list(images)
        return self.embed(images, len(images), progress)

    def embed(self, images, count: int, progress: bool = False) -> np.ndarray:
        """As a call, of any iterable of `count` images, two batches of which are in memory at most."""
        vectors = np.empty((count, self.dimensions), dtype=np.float32)
        total = count if progress else None
        for batch in self.stream(images, total=total):
            if batch.refused:
                raise UserError(batch.refused[0][1])
            vectors[batch.places] = batch.vectors
        return vectors

    def stream(self, images, total: int | None = None):
        """Yield a `Batch` at a time, of any iterable of images, in its order; at most two batches are in memory.

        `total`: how many there are, for a progress bar; None: without one.
        """
        source = enumerate(images)
        pieces = iter(lambda: list(itertools.islice(source, self.batch_size)), [])
        # None hides the bar where there is no terminal
        is_hidden = True if total is None else None
        bar = tqdm(total=total, desc="embedding", unit="img", leave=False, disable=is_hidden)
        with ThreadPoolExecutor(max(kernels(THREADS), 1)) as pool, bar:
            decoding = None
            # while one batch is embedded, the next is decoded
            for piece in itertools.chain(pieces, [None]):
                following = None
                if piece is not None:
                    following = (piece, pool.map(self._prepared, [image for _, image in piece]))
                if decoding is not None:
                    yield self._embedded(*decoding)
                    bar.update(len(decoding[0]))
                decoding = following

    def _prepared(self, image):
        """The image as the network takes it, or the reason why it cannot be decoded."""
        try:
            return self.preparation(image)
        except UserError as error:
            return str(error)

    def _embedded(self, piece: list, prepared) -> Batch:
        places = []
        images = []
        refused = []
        for (place, _), image in zip(piece, prepared, strict=True):
            # a text says why the image cannot be decoded
            if isinstance(image, str):
                refused.append((place, image))
            else:
                places.append(place)
                images.append(image)
        vectors = np.empty((len(images), self.dimensions), dtype=np.float32)
        # images of one shape are embedded at once; with --eval_long_side their shapes differ
        rows_of_shape = {}
        for row, image in enumerate(images):
            rows_of_shape.setdefault(image.shape, []).append(row)
        for rows in rows_of_shape.values():
            stacked = torch.stack([images[row] for row in rows]).to(self.device)
            with torch.no_grad():
                vectors[rows] = self.module(stacked).cpu().numpy()
        return Batch(places, vectors, refused)

    def check_images(self, way_out: str) -> None:
        """Raise UserError for a run on rows of features, which reads no images."""
        if self.takes_features is not None:
            raise UserError(
                f"{self.folder} takes rows of {self.takes_features} features (--dataset arrays), not images: {way_out}"
            )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the weights, the transform and the embedding's name: runs with equal ones give equal vectors."""
        digest = hashlib.sha256(f"{self.preparation.text}\n{self.evaltype}\n{self.opt.arch}\n".encode())
        weights.add_to_hash(digest, self.network)
        return digest.hexdigest()


def _device(device) -> torch.device:
    """The requested device. Raises UserError where this machine does not have it."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(device)
    try:
        device = torch.device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0][:120]
        raise UserError(f"device {str(device)!r} is not here ({reason}): cpu, or cuda:0 where there is one") from None
    return device


def _as_list(images) -> list:
    """One image, a list of images, or a batch, as a list."""
    if isinstance(images, str | datasets.Encoded) or hasattr(images, "__fspath__") or hasattr(images, "getexif"):
        # a path, the bytes of a file, or an image of Pillow's
        return [images]
    if torch.is_tensor(images):
        return [images] if images.ndim < 4 else list(images)
    # arrays of objects and of texts hold paths, not pixels
    if isinstance(images, np.ndarray) and images.dtype.kind not in "OUS":
        return [images] if images.ndim < 3 or (images.ndim == 3 and images.shape[2] == 3) else list(images)
    return list(images)
