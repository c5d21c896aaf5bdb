"""A split as a torch `Dataset`: images, labels, counts, roles.

`_splits.build` makes one for each split of a data set. A sampler reads its classes, a loader its items, evaluation its
roles (query, gallery, distractor), sequences and lists of ground truth.
"""

import math
from typing import NamedTuple

import numpy as np
import torch

from datasets._images import Image, crop, decode, size, uncollected, window


class Origin(NamedTuple):
    """Where a split is from: the data set's name, which of its splits it is, the folder where it was found."""

    name: str = ""
    split: str = ""
    root: str = ""


# the origin of images that are no split of a data set
NOWHERE = Origin()


class ImageSet(torch.utils.data.Dataset):
    """One split. Item: `(label, image uint8 (3, H, W), index)`.

    Args:
        images: the split's images, those of a class together, classes in order: they get the labels 0..C-1, unless
            `labels` gives others. Those without a class come last, with the label -1.
        transform: from uint8 `(3, H, W)` to the same.
        pixels: the decoded images, uint8 `(N, 1 or 3, H, W)`; None: each is decoded whenever it is loaded.
        labels: class name -> label, of all classes that occur; for splits that share their classes.
        read: path -> image before the transform, uint8 `(3, H, W)`. Its steps beside decoding are its `text`.
        origin: the `Origin`, for messages and records.

    Attributes of the images:
        image_list: list of `(path, class)`, in the order of the indices.
        image_dict: class -> list of `[path, index]`.
        paths: of all images.
        boxes: float32 `(N, 4)` of `Image.box`, NaN for a whole image; None if no image has a box.
        sequences: int64 `(N,)`, the number of an image's sequence, -1 for none. sequence_names: number -> name. Both
            None if no image has a sequence.
        groups, times: `(N,)` of `Image.group`, "" for none, and `Image.time`, NaN for none; None if no image has one.
        cameras, frames: `(N,)` of `Image.camera`, "" for none, and `Image.frame`, -1 for none; None if no image has a
            frame.
        features: None, or `(N, F)`: items then hold an image's row of these in place of the image.
        width: F of a data set that has rows `(F,)` of features in place of images (`_rows.py`); else None.

    Attributes of the classes:
        avail_classes, n_classes: the labels, 0..C-1 in training and if `labels` is None, and their number C.
        class_names, super_labels: label -> name of the class, and of its super-class (None if that is not known).
        lineages: set of the names (class, super-class, further levels …) that images have; a class in two super-classes
            has two.
        further_labels: row -> labels of `Image.further_names`, of classes that occur; empty if no image has any.
        label_numbers: for each row all labels of a training image, of which `n_classes` then counts those too that are
            no image's first; None if each image has one.
        graded_pairs: None, or the `_pairs.GradedPairs` of a training set.
        by_domain: whether super-classes are domains, so that there are results for each domain.

    Attributes of the roles:
        is_query, is_gallery: bool `(N,)`, the images' roles.
        is_distractor: bool `(N,)`, images without a class; None if every image has a class.
        role_draws: bool `(D, N)`, the gallery of each of D random draws; the other images are queries. Metrics are
            means over the draws; `is_query` and `is_gallery` are those of the first. None if the roles are not drawn.
        lists: protocol -> rows of the positives, and of the junk, of each query (`_lists.rows`); None if the images of
            a query's class are relevant.

    Attributes of the data set:
        name, split, root: as in `Origin`.
        counts: numbers of images of a class, classes, and classes with a single image; of `distractors` if there are
            some.
        partial: None, or a text on how the data set differs from the published one. notes: further notes to print at
            the start.
        fingerprint: `sha256` of all names and sizes of the data set, of names and `times`, number of `files` and
            `bytes`, `by_content`, and of `fixes` if it has some.
        class_lists: split -> its classes in lines, see `datasets._files.Files.class_lists`.
        fixes: the corrections of `--dataset_fixes`, each a `datasets._fixes.Fix`.
    """

    @uncollected()
    def __init__(
        self,
        images: list[Image],
        transform,
        pixels: torch.Tensor | None = None,
        *,
        labels: dict[str, int] | None = None,
        read=decode,
        origin: Origin = NOWHERE,
    ):
        self.transform = transform
        self.pixels = pixels
        self.read = read
        self.name, self.split, self.root = origin
        self.root = str(origin.root)
        self.partial = None
        self.notes = []
        self.fingerprint = {}
        self.class_lists = {}
        self.fixes = ()
        self.features = None
        self.width = None
        self.lists = None
        self.label_numbers = None
        self.graded_pairs = None
        self.by_domain = False
        self.role_draws = None
        self._set_classes(images, labels)
        self.paths = [path for path, _ in self.image_list]
        self.is_query = np.fromiter((image.is_query for image in images), bool, len(images))
        self.is_gallery = np.fromiter((image.is_gallery for image in images), bool, len(images))
        self.sequences, self.sequence_names = _sequences(images)
        self.groups = None
        self.times = None
        if any(image.group for image in images):
            self.groups = np.array([image.group or "" for image in images])
        if any(image.time is not None for image in images):
            self.times = np.array([image.time for image in images], dtype=np.float64)
        self.cameras = None
        self.frames = None
        if any(image.frame >= 0 for image in images):
            self.cameras = np.array([image.camera or "" for image in images])
            self.frames = np.array([image.frame for image in images])
        self.boxes = _boxes(images)

    def _set_classes(self, images: list[Image], given_labels: dict[str, int] | None) -> None:
        """Set what depends on the images' classes; without given labels these are numbered as they appear."""
        # in order of appearance
        labels = {}
        self.image_list = []
        self.image_dict = {}
        self.super_labels = {}
        self.lineages = set()
        n_labelled = 0
        for index, image in enumerate(images):
            # Images without a class come last.
            if image.class_name is None:
                self.image_list.append((image.path, -1))
                continue
            if image.class_name not in labels:
                label = len(labels)
                if given_labels is not None:
                    label = given_labels[image.class_name]
                labels[image.class_name] = label
            label = labels[image.class_name]
            self.image_list.append((image.path, label))
            self.image_dict.setdefault(label, []).append([image.path, index])
            self.super_labels[label] = image.super_name
            self.lineages.add((image.class_name, image.super_name, *image.higher_names))
            n_labelled += 1
        self.avail_classes = list(self.image_dict)
        self.n_classes = len(self.avail_classes)
        self.class_names = {label: class_name for class_name, label in labels.items()}
        self.further_labels = {}
        for row, image in enumerate(images):
            if image.further_names:
                self.further_labels[row] = [labels[name] for name in image.further_names if name in labels]
        self._count(n_labelled)

    def _count(self, n_labelled: int) -> None:
        """Set the counts, and which images are distractors: those behind the labelled ones."""
        n_classless = len(self.image_list) - n_labelled
        n_singletons = sum(len(entries) == 1 for entries in self.image_dict.values())
        self.counts = {"images": n_labelled, "classes": self.n_classes, "single_image_classes": n_singletons}
        self.is_distractor = None
        if n_classless:
            self.is_distractor = np.arange(len(self.image_list)) >= n_labelled
            self.counts["distractors" if n_labelled else "images"] = n_classless

    def draw_roles(self, draws: np.ndarray) -> None:
        """Set the roles from random galleries, bool `(D, N)`, one row a draw; the other images are queries."""
        self.role_draws = draws
        self.is_gallery = draws[0]
        self.is_query = ~draws[0]

    @property
    def roles(self) -> dict[str, int]:
        """Numbers of queries and of gallery images; empty if all images are both."""
        if self.is_query.all() and self.is_gallery.all():
            return {}
        counts = {"query_images": int(self.is_query.sum()), "gallery_images": int(self.is_gallery.sum())}
        if self.role_draws is not None:
            counts["draws"] = len(self.role_draws)
        return counts

    @property
    def transforms_as_resolved(self) -> str:
        """The transform's steps with their values."""
        before = getattr(self.read, "text", "")
        if self.boxes is not None:
            before += "Box; "
        return before + self.transform.text

    def __len__(self):
        return len(self.image_list)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, int]:
        """`(label, image, index)`; the image uint8 `(3, H, W)`, transformed, or its features `(F,)`."""
        image = self._transformed(index) if self.features is None else self.features[index]
        return self.image_list[index][1], image, index

    def label_rows(self, indices) -> torch.Tensor | None:
        """Which of the `n_classes` labels L images have, bool `(B, L)`; None if each image has one."""
        if self.label_numbers is None:
            return None
        rows = torch.zeros(len(indices), self.n_classes, dtype=torch.bool)
        for place, index in enumerate(indices):
            rows[place, self.label_numbers[index]] = True
        return rows

    def _transformed(self, index: int) -> torch.Tensor:
        long_side = None
        if self.transform.limit is not None and self._box(index) is not None:
            long_side = max(self._whole_size(index))
        return self.transform(self.original(index), long_side)

    def pass_over(self, index: int) -> None:
        """Make the random draws of `[index]` without loading it, as under torchrun another process loads it.

        The transform runs on an image without pixels, as its draws may depend on the image's size, and on nothing else.
        """
        if self.features is None and self.width is None:
            self.transform(torch.empty(3, *self._size(index), dtype=torch.uint8, device="meta"))

    def _size(self, index: int) -> tuple[int, int]:
        """(height, width) of `original(index)`."""
        shape = self._whole_size(index)
        path = self.image_list[index][0]
        box = self._box(index)
        if box is None:
            return shape
        rows, columns = window(box, shape, path, self._scale(path, shape))
        return rows.stop - rows.start, columns.stop - columns.start

    def _whole_size(self, index: int) -> tuple[int, int]:
        """(height, width) of the image as read, before it is cropped to its box."""
        if self.pixels is not None:
            return tuple(self.pixels[index].shape[1:])
        path = self.image_list[index][0]
        if self.read is decode:
            return size(path)
        if hasattr(self.read, "size"):
            return self.read.size(path)
        return tuple(self.read(path).shape[1:])

    def _box(self, index: int) -> np.ndarray | None:
        """The image's box `(4,)`; None if it is shown whole."""
        if self.boxes is None or math.isnan(self.boxes[index, 0]):
            return None
        return self.boxes[index]

    def _scale(self, path: str, shape) -> tuple[float, float]:
        """Height and width of an image as read, divided by those of its file."""
        # no limit of the long side: not resized
        if not getattr(self.read, "side", 0):
            return 1.0, 1.0
        return tuple(length / of_file for length, of_file in zip(shape, size(path), strict=True))

    def view(self, index: int) -> np.ndarray:
        """`original(index)` on the memory map of the image cache, uint8 `(H, W, 3)`, to be read only.

        Raises KeyError if the cache does not hold it.
        """
        path = self.image_list[index][0]
        box = self._box(index)
        image = self.read.cache.view(path)
        if box is None:
            return image
        rows, columns = window(box, image.shape[:2], path, self._scale(path, image.shape[:2]))
        return image[rows, columns]

    def original(self, index: int) -> torch.Tensor:
        """The image before the transform, uint8 `(3, H, W)`, cropped to its box."""
        if self.pixels is None:
            path = self.image_list[index][0]
            box = self._box(index)
            image = self.read(path)
            if box is None:
                return image
            return crop(image, box, path, self._scale(path, image.shape[1:]))
        image = self.pixels[index]
        return image.repeat(3, 1, 1) if len(image) == 1 else image.clone()


def _sequences(images: list[Image]) -> tuple[np.ndarray, dict[int, str]] | tuple[None, None]:
    """Each image's sequence as a number, int64 `(N,)`, in order of appearance, -1 for none; number -> name.

    Both None without sequences.
    """
    numbers = {None: -1}
    for image in images:
        numbers.setdefault(image.sequence, len(numbers) - 1)
    if len(numbers) == 1:
        return None, None
    sequences = np.fromiter((numbers[image.sequence] for image in images), np.int64, len(images))
    del numbers[None]
    return sequences, {number: name for name, number in numbers.items()}


def _boxes(images: list[Image]) -> np.ndarray | None:
    """The boxes, float32 `(N, 4)`, NaN for a whole image; None if no image has one."""
    if all(image.box is None for image in images):
        return None
    boxes = np.full((len(images), 4), math.nan, dtype=np.float32)
    for row, image in enumerate(images):
        if image.box is not None:
            boxes[row] = image.box
    return boxes
