"""Splits of made-up images whose pixels are their features, a network that reads them off, and metrics by plain
loops.
"""

import numpy as np
import torch

import evaluation
import parameters
from engine.runtime import Runtime as runtime
from evaluation import __main__ as command
from tests.kit.plain_metrics import plain_value, unit
from utilities.splits import DATA_SETS as SPLITS


class Images(torch.utils.data.Dataset):
    """Images whose first pixels hold `points` `(N, 3)` (whole numbers up to 255). `names`: of each image's class;
    labels as sorted.

    `is_query`, `is_gallery`: which are queries and which the gallery. `sequences`: number of each, -1 for none.
    """

    def __init__(
        self,
        points,
        names,
        parents=None,
        is_query=None,
        is_gallery=None,
        sequences=None,
        sequence_names=None,
        higher=None,
    ):
        self.points = np.asarray(points, dtype=np.uint8)
        order = sorted(set(names))
        self.labels = np.array([order.index(name) for name in names])
        self.names = list(names)
        self.class_names = dict(enumerate(order))
        self.super_labels = {label: parents[name] if parents else None for label, name in self.class_names.items()}
        self.lineages = {
            (name, self.super_labels[label], *(higher or {}).get(name, ())) for label, name in self.class_names.items()
        }
        self.paths = [f"/images/{name}/{i}.png" for i, name in enumerate(names)]
        self.image_list = list(zip(self.paths, self.labels.tolist(), strict=True))
        self.name = "made"
        self.n_classes = len(order)
        if is_query is not None:
            self.is_query = np.array(is_query, dtype=bool)
            self.is_gallery = np.array(is_gallery, dtype=bool)
        self.sequences = sequences
        self.sequence_names = sequence_names

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        image = torch.zeros(3, 2, 2, dtype=torch.uint8)
        image[:, 0, 0] = torch.from_numpy(self.points[index])
        return int(self.labels[index]), image, index

    def parent(self, row):
        return self.super_labels[self.labels[row]]

    def rows_of(self, role):
        flags = getattr(self, role, None)
        return list(range(len(self))) if flags is None else np.flatnonzero(flags).tolist()

    def pool(self):
        return sorted({*self.rows_of("is_query"), *self.rows_of("is_gallery")})


class Network(torch.nn.Module):
    """Pooled features: an image's first pixels. Embedding: a linear map of them, of unit length if it `normalizes`."""

    def __init__(self, normalizes=True, heads=()):
        super().__init__()
        self.normalizes = normalizes
        self.heads = heads
        self.register_buffer("weight", torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0], [0.25, 0.0, 1.0]]))
        self.images = 0

    def forward(self, images):
        self.images += len(images)
        pooled = images[:, :, 0, 0].float()
        embeddings = pooled @ self.weight.T
        if self.normalizes:
            embeddings = torch.nn.functional.normalize(embeddings)
        if self.heads:
            return {name: embeddings * (k + 1) + k for k, name in enumerate(self.heads)}, {"pooled": pooled}
        return embeddings, {"pooled": pooled}

    def expected(self, points, normalize=None):
        x = np.asarray(points, dtype=np.float64) @ self.weight.numpy().T.astype(np.float64)
        if normalize is None:
            normalize = self.normalizes
        return unit(x) if normalize else x


def options(*flags):
    return parameters.read(
        [*"--dataset glyphs --kernels 0 --bs 4 --evaluation_metrics e_recall@1 map_r --use_tv_split".split(), *flags]
    )


def evaluated(splits, *flags, network=None):
    opt = options(*flags)
    network = network or Network()
    scores, embedded = evaluation.evaluate(network, evaluation.loaders(splits, opt), opt, runtime(opt))
    return scores, embedded, network


def save(folder, **files):
    """The paths of .npz files of these arrays, by name."""
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", **arrays)
    return [str(folder / f"{name}.npz") for name in files]


def measured(folder, *words, names=("e_recall@1", "map_r"), **arrays):
    """What `python -m evaluation` finds of a file of these arrays."""
    return command.main([*save(folder, file=arrays), "--evaluation_metrics", *names, *words])


def made_splits(seed=0, shared=False, parents=True):
    """What `datasets.select` gives: overlapping clouds of points. `shared`: validation has the training's classes."""
    generator = np.random.default_rng(seed)
    classes = {"evaluation": "abcd", "validation": "abcd" if shared else "efgh", "testing": "ijklm"}
    splits = {}
    for split, letters in classes.items():
        names = [letter for letter in letters for _ in range(5)] + [letters[0]]
        centres = {letter: generator.integers(60, 196, 3) for letter in letters}
        points = np.array([centres[name] + generator.integers(-45, 46, 3) for name in names])
        supers = None
        if parents:
            supers = {letter: "first" if k % 2 else "second" for k, letter in enumerate(letters)}
        splits[split] = Images(points, names, supers)
    splits["training"] = splits["evaluation"]
    return splits


def splits_with_roles(seed=0, sequences=True, everywhere=False, named=False):
    """Test, and with `everywhere` validation, has roles of all four kinds; all splits share their classes."""
    generator = np.random.default_rng(seed)
    centres = {letter: generator.integers(60, 196, 3) for letter in "abcdef"}
    parents = {letter: "first" if letter in "ace" else "second" for letter in "abcdef"}
    splits = {}
    for split in SPLITS.values():
        names = [letter for letter in "abcdef" for _ in range(6)]
        points = np.array([centres[name] + generator.integers(-55, 56, 3) for name in names])
        # duplicates of two classes, in several roles
        points[7] = points[3]
        kinds = generator.integers(0, 10, len(names))
        roles = (
            {"is_query": kinds < 6, "is_gallery": (kinds > 1) & (kinds < 9)} if split == "testing" or everywhere else {}
        )
        if "is_gallery" in roles:
            # no image of the class a in the gallery of test
            roles["is_gallery"][:6] &= split != "testing"
        numbers = (
            np.where(generator.random(len(names)) < 0.5, -1, generator.integers(0, 4, len(names)))
            if sequences
            else None
        )
        texts = {number: f"walk {number}" for number in range(8)} if named else None
        splits[split] = Images(points, names, parents, **roles, sequences=numbers, sequence_names=texts)
    splits["training"] = splits["evaluation"]
    return splits


def points_of(splits, network=None, **how):
    return {split: (network or Network()).expected(splits[name].points, **how) for split, name in SPLITS.items()}


def sequence_of(splits, split, row):
    """What two images share that must not find each other, or None. Numbers are a split's own, names are global."""
    dataset = splits[SPLITS[split]]
    if dataset.sequences is None or dataset.sequences[row] < 0:
        return None
    return (
        dataset.sequence_names[dataset.sequences[row]]
        if dataset.sequence_names
        else (split, int(dataset.sequences[row]))
    )


def by_loops(splits, split, sources, points, parent=None, level=0):
    """e_recall@1 and map_r of a split's queries in the galleries of `sources`, image by image; and what each query may
    find, nearest first.

    Of a `parent`: inside this super-class alone. `level` 1: super-classes are the classes.
    """

    def name_of(source, row):
        dataset = splits[SPLITS[source]]
        return dataset.parent(row) if level else dataset.names[row]

    def inside(source, row):
        return parent is None or splits[SPLITS[source]].parent(row) == parent

    recalls = []
    precisions = []
    orders = {}
    gallery = [
        (source, j) for source in sources for j in splits[SPLITS[source]].rows_of("is_gallery") if inside(source, j)
    ]
    for row in splits[SPLITS[split]].rows_of("is_query"):
        if not inside(split, row):
            continue
        sequence = sequence_of(splits, split, row)
        distances = {source: np.square(points[source] - points[split][row]).sum(1).tolist() for source in sources}
        keys = []
        for source, j in gallery:
            is_query = (source, j) == (split, row)
            if not is_query and (sequence is None or sequence_of(splits, source, j) != sequence):
                keys.append((distances[source][j], sources.index(source), j))
        orders[row] = [(sources[place], j) for _, place, j in sorted(keys)]
        relevance = [name_of(*image) == name_of(split, row) for image in orders[row]]
        recalls.append(plain_value("e_recall@1", relevance, sum(relevance), None))
        if any(relevance):
            precisions.append(plain_value("map_r", relevance, sum(relevance), None))
    return {"e_recall@1": np.mean(recalls), "map_r": np.mean(precisions) if precisions else np.nan}, orders


def pca(reference, components):
    mean = reference.mean(0)
    directions = np.linalg.svd(reference - mean, full_matrices=False)[2][:components]
    return lambda x: (x - mean) @ directions.T
