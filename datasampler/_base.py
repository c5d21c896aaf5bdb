"""Base of the batch samplers: the data as index arrays, draws within classes,
the calls of the training loop as no-ops.
"""

import argparse
from collections.abc import Iterator

import torch

from options.flags import plug_ins
from utilities.console import say
from utilities.errors import UserError
from utilities.tuples import spread

# entries of the largest tensor while an epoch is chosen: bounds the memory, and is faster than larger ones
CHUNK = 2**22


def add_arguments(group) -> None:
    """Declare the flags of the published pipeline that have no effect."""
    # old scripts have these flags
    group.add_argument("--data_sim_measure", default="euclidean", help=argparse.SUPPRESS)
    group.add_argument("--data_idx_full_prec", action="store_true", help=argparse.SUPPRESS)


def random_below(bounds: torch.Tensor) -> torch.Tensor:
    """Integers drawn uniformly from 0 to `bounds` - 1, shape of `bounds` (long, positive)."""
    # The remainder of 62 random bits, as a float in [0, 1) times a bound can round up to the bound.
    return torch.randint(1 << 62, bounds.shape) % bounds


def draw_within(sizes: torch.Tensor, count: int) -> torch.Tensor:
    """`count` positions `(R, count)` below each of `sizes` `(R,)`: distinct where the size allows.

    A size below `count` gives each of its positions once, then repeats. Floyd's algorithm on all rows at once: the loop
    runs over `count`, the few images of a class in a batch.
    """
    filled = sizes.clamp(min=count)
    positions = torch.empty(len(sizes), count, dtype=torch.long)
    for column in range(count):
        last = filled - count + column
        position = random_below(last + 1)
        is_taken = (positions[:, :column] == position[:, None]).any(1)
        positions[:, column] = torch.where(is_taken, last, position)
    return torch.where(positions < sizes[:, None], positions, random_below(sizes[:, None].expand(-1, count)))


class BatchSampler(torch.utils.data.Sampler):
    """Base of the samplers here: a subclass defines `draw_epoch`.

    Args:
        opt: reads `bs`, and `samples_per_class` where the subclass calls `split_batch`.
        image_dict: class -> list of `[path, index]`. Classes without images are left out.
        image_list: list of `(path, class)`; its length is the number of images.

    Attributes (beside the flags of the file's table `FLAGS`):
        classes: the classes' names, C of them.
        images: indices of all images, class after class, `(N,)`.
        class_starts, class_sizes: class c owns `images[start : start + size]`, `(C,)` each.

    Raises UserError for a `--bs` that the data cannot fill.
    """

    requires_storage = False
    # of several processes the first alone fills the storage
    shares_state = True

    def __init__(self, opt, image_dict: dict, image_list: list):
        super().__init__()
        plug_ins.set_flags(self, opt)
        self.batch_size = opt.bs
        self.n_images = len(image_list)
        if not 1 <= opt.bs <= self.n_images:
            raise UserError(
                f"--bs {opt.bs} does not fit the {self.n_images} training images: choose 1 to {self.n_images}."
            )
        self.classes = [name for name, entries in image_dict.items() if len(entries)]
        self.class_sizes = torch.tensor([len(image_dict[name]) for name in self.classes], dtype=torch.long)
        self.class_starts = self.class_sizes.cumsum(0) - self.class_sizes
        self.images = torch.tensor([entry[1] for name in self.classes for entry in image_dict[name]], dtype=torch.long)
        if len(self.images) == 0 or self.images.min() < 0 or self.images.max() >= self.n_images:
            raise ValueError(f"image_dict holds no images, or indices outside of image_list (0 to {self.n_images - 1})")
        if opt.data_sim_measure != "euclidean" or opt.data_idx_full_prec:
            say(
                "--data_sim_measure and --data_idx_full_prec steer nothing: samplers use Euclidean distances in "
                "full precision."
            )

    def split_batch(self, opt) -> None:
        """Set `samples_per_class` (m) and `classes_per_batch` (bs / m); UserError where m does not divide bs."""
        self.samples_per_class = opt.samples_per_class
        if self.samples_per_class < 1 or opt.bs % self.samples_per_class:
            raise UserError(
                f"--bs {opt.bs} is not a multiple of --samples_per_class {opt.samples_per_class}: change one of them."
            )
        self.classes_per_batch = opt.bs // self.samples_per_class

    def require_classes(self) -> None:
        """UserError where the data hold fewer classes than a batch takes."""
        if len(self.classes) < self.classes_per_batch:
            raise UserError(
                f"--bs {self.batch_size} with --samples_per_class {self.samples_per_class} takes "
                f"{self.classes_per_batch} distinct classes, the training data hold {len(self.classes)}: lower --bs, "
                "raise --samples_per_class or use --data_sampler class_random."
            )

    def images_of(self, classes: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Indices of the images at `places` of `classes` (positions in `self.classes`), both of one shape."""
        return self.images[self.class_starts[classes] + places]

    def groups_of(self, classes: torch.Tensor) -> torch.Tensor:
        """m images of each class, distinct where it has them:
        `classes` `(batches, bs / m)` -> indices `(batches, bs)`.
        """
        rows = classes.flatten()
        places = draw_within(self.class_sizes[rows], self.samples_per_class)  # (rows, m)
        return self.images_of(rows[:, None], places).view(len(classes), -1)

    def cut_into_groups(self, m: int) -> tuple[torch.Tensor, torch.Tensor]:
        """All images in groups of m of a class, `(G, m)`, and the class of each, `(G,)`, class after class.

        Each class comes in random order; its last group is filled from its first images.
        A smaller class than m repeats its images.
        """
        owners = torch.arange(len(self.classes)).repeat_interleave(self.class_sizes)
        order = torch.randperm(len(owners))
        # class after class, in random order within each
        order = order[owners[order].argsort(stable=True)]
        owners, places = spread(-(-self.class_sizes // m) * m)
        groups = self.images[order[self.class_starts[owners] + places % self.class_sizes[owners]]].view(-1, m)
        return groups, owners[::m]

    def draw_epoch(self) -> torch.Tensor:
        """The indices of one epoch, `(batches, bs)`, drawn from torch's global generator."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[int]]:
        # A generator on purpose: a data loader with workers calls this twice, one without workers once. The epoch is
        # drawn with the first batch, so once in either case.
        for batch in self.draw_epoch():
            yield batch.tolist()

    def __len__(self) -> int:
        return self.n_images // self.batch_size

    def set_super_labels(self, super_labels: dict | None) -> None:
        """Class -> super-class; only the hierarchical sampler needs it."""

    def create_storage(self, loader, model, device) -> None:
        """Embed the training set; only samplers with `requires_storage` do."""

    def precompute_indices(self) -> None:
        """Choose the batches of the next epoch from the storage; only samplers with `requires_storage` do."""

    def replace_storage_entries(self, embeddings: torch.Tensor, indices: torch.Tensor) -> None:
        """Store the embeddings of a training step; only samplers with `requires_storage` do."""

    def state_dict(self) -> dict:
        """State for a checkpoint: tensors by name, empty for samplers without state."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """The counterpart of `state_dict`."""
