"""--compatible_with: the training images in the space of an old network, made once and kept in the run's `features/`.

The old network is that of a run, which embeds the images with its own transform, in float32; or a file holds what it
gave. A run that goes on reads what it kept, and needs neither.
"""

from pathlib import Path

import numpy as np
import torch

import datasets
import evaluation
from engine.loading import evaluation_loader
from engine.random_state import random_states, set_random_states
from engine.runtime import Runtime
from evaluation import file_arrays, same_images
from runs import Embedder
from runs.folder import run_folder
from trainers.compatible import FLAG
from utilities.errors import UserError
from utilities.evaltypes import of_type
from utilities.files import expanded, make_folder, write_npz
from utilities.provenance import sha256
from utilities.reading import read_arrays

# in the run's folder: `rows` as the loss reads them, `source`, `fingerprint`
FILE = Path("features") / "old.npz"


class OldEmbeddings:
    """What a trainer reads of an old network; does nothing for a trainer without `take_old`.

    Args:
        splits: what `datasets.select` gives.

    Raises UserError, before anything is trained, for an old network or a file that does not serve.
    """

    def __init__(self, trainer: torch.nn.Module, splits: dict, opt, runtime):
        self.trainer = trainer
        self.is_used = hasattr(trainer, "take_old")
        self.opt = opt
        self.runtime = runtime
        self.embedder = None
        self.features = None
        if not self.is_used:
            return
        self.images = splits["evaluation"]
        self.labels = torch.tensor([label for _, label in self.images.image_list])
        self.kept_rows = runtime.ranks.first(self._kept)
        if self.kept_rows is not None:
            self.width = self.kept_rows.shape[1]
            return
        source = expanded(opt.compatible_with)
        if source.is_dir():
            states = random_states()
            self.embedder = Embedder(source, device=runtime.device)
            set_random_states(states)
            self.width = self.embedder.dimensions
            self.fingerprint = self.embedder.fingerprint
        elif source.suffix == ".npz":
            self.features = of_file(str(source), self.images)["features"]
            self.width = self.features.shape[1]
            self.fingerprint = sha256(source)
        else:
            raise UserError(f"{FLAG} {opt.compatible_with}: neither the folder of a run nor an .npz file")
        trainer.check_width(self.width, opt.compatible_with)
        if opt.dry_run or opt.profile_steps:
            self._draw()

    def _kept(self) -> torch.Tensor | None:
        """The rows that a run which goes on has kept; None if there are none."""
        path = run_folder(self.opt) / FILE
        if self.opt.resume is None or not path.exists():
            return None
        way_out = f"delete it, and it is made anew from {FLAG}"
        return torch.from_numpy(read_arrays(path, ["rows"], way_out)["rows"])

    def _draw(self) -> None:
        """Give the trainer random rows in place of the old ones: a trial measures nothing."""
        rows = torch.randn(len(self.labels), self.width, generator=torch.Generator().manual_seed(self.opt.seed))
        self.trainer.take_old(self.trainer.rows_of(rows, self.labels))
        self.runtime.say_once(f"{FLAG} {self.opt.compatible_with}: a trial embeds nothing, its old vectors are random")

    def fill(self, folder: Path) -> None:
        """Give the trainer the old embeddings; the first process keeps them in the run's `folder`."""
        if not self.is_used:
            return
        rows = self.kept_rows
        if rows is None:
            rows = self.trainer.rows_of(self._embedded(), self.labels)
            arrays = {"rows": rows.numpy(), "source": self.opt.compatible_with, "fingerprint": self.fingerprint}
            if self.runtime.ranks.writes:
                make_folder(folder / FILE.parent, f"the folder of features {folder / FILE.parent}")
                write_npz(folder / FILE, arrays)
        self.trainer.take_old(rows)
        self.embedder = None
        self.features = None

    def _embedded(self) -> torch.Tensor:
        """The old embeddings `(N, d)` of the training images."""
        if self.embedder is None:
            return torch.from_numpy(self.features)
        images = datasets.prepared(self.images, self.embedder.preparation)
        runtime = Runtime(self.opt.but(precision="float32"))
        loader = evaluation_loader(images, self.opt, runtime.ranks)
        title = f"old embeddings of {len(images)} images"
        embedded = evaluation.embed(self.embedder.network, loader, runtime, title)
        rows = of_type(embedded.features, self.embedder.evaltype)
        if not np.isfinite(rows).all():
            raise UserError(f"{FLAG} {self.opt.compatible_with}: its network gives NaN or infinity on training images")
        self.runtime.say_once(
            f"{FLAG} {self.opt.compatible_with}: {len(images):,} training images in {embedded.seconds:.1f} s"
        )
        return torch.from_numpy(np.ascontiguousarray(rows))


def of_file(path: str, images, flag: str = FLAG, names: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The features `(N, d)` float32 of the training images in a file, in their order, and those of `names` it has.

    Arrays of `names`, such as logits, are `(N, C)` as the features are.
    Raises UserError for a file without paths, with NaN rows, or that lacks an image. `flag`: names the file.
    """
    arrays = file_arrays.read(path, ("paths", *names), needs_labels=False)
    if "paths" not in arrays:
        raise UserError(f"{flag} {path} has no paths (N,), by which its features are joined to the training images")
    of_images = {name: arrays[name] for name in ("features", *names) if name in arrays}
    for name, values in of_images.items():
        if values.ndim != 2 or arrays["paths"].shape != values.shape[:1]:
            raise UserError(
                f"{flag} {path}: {name} {values.shape} and paths {arrays['paths'].shape}: expected (N, d) and (N,)"
            )
    rows = same_images.rows_of(images.paths, arrays["paths"], images.root, f"{flag} {path}")
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        raise UserError(
            f"{flag} {path} lacks {len(missing):,} of {len(rows):,} training images, first {images.paths[missing[0]]}: "
            "--dump_embeddings with --splits_to_eval train writes all of them"
        )
    joined = {}
    for name, values in of_images.items():
        joined[name] = values[rows].astype(np.float32)
        damaged = np.flatnonzero(~np.isfinite(joined[name]).all(1))
        if len(damaged):
            raise UserError(f"{flag} {path}: row {rows[damaged[0]]} holds NaN or infinity")
    return joined
