"""Splits of made-up images whose pixels are their features, a network that reads them off, and metrics by plain loops."""

import numpy as np
import torch

import parameters
from training.runtime import Runtime


class Images(torch.utils.data.Dataset):
    """Images whose first pixels hold `points` `(N, 3)` (whole numbers up to 255). `names`: of each image's class; labels as sorted."""

    def __init__(self, points, names, parents=None):
        self.points = np.asarray(points, dtype=np.uint8)
        order = sorted(set(names))
        self.labels = np.array([order.index(name) for name in names])
        self.names = list(names)
        self.class_names = dict(enumerate(order))
        self.super_labels = {label: parents[name] if parents else None for label, name in self.class_names.items()}
        self.paths = [f"/images/{name}/{i}.png" for i, name in enumerate(names)]
        self.image_list = list(zip(self.paths, self.labels.tolist(), strict=True))
        self.name, self.n_classes = "made", len(order)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        image = torch.zeros(3, 2, 2, dtype=torch.uint8)
        image[:, 0, 0] = torch.from_numpy(self.points[index])
        return int(self.labels[index]), image, index


class Network(torch.nn.Module):
    """Pooled features: an image's first pixels. Embedding: a fixed linear map of them, at unit length where it `normalizes`."""

    def __init__(self, normalizes=True, heads=()):
        super().__init__()
        self.normalizes, self.heads = normalizes, heads
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
        normalize = self.normalizes if normalize is None else normalize
        return x / np.linalg.norm(x, axis=1, keepdims=True) if normalize else x


def options(*more):
    return parameters.read(
        ["--dataset", "glyphs", "--kernels", "0", "--bs", "4", "--evaluation_metrics", "e_recall@1", "map_r", "--use_tv_split", *more]
    )


def runtime(opt):
    return Runtime(opt)


def made_splits(seed=0, shared=False, parents=True):
    """What `datasets.select` gives: overlapping clouds of points. `shared`: validation has the training's classes."""
    generator = np.random.default_rng(seed)
    classes = {"evaluation": "abcd", "validation": "abcd" if shared else "efgh", "testing": "ijklm"}
    splits = {}
    for split, letters in classes.items():
        names = [letter for letter in letters for _ in range(5)] + [letters[0]]
        centres = {letter: generator.integers(60, 196, 3) for letter in letters}
        points = np.array([centres[name] + generator.integers(-45, 46, 3) for name in names])
        splits[split] = Images(
            points, names, {letter: "first" if k % 2 else "second" for k, letter in enumerate(letters)} if parents else None
        )
    splits["training"] = splits["evaluation"]
    return splits


def by_hand(queries, names, reference=None, reference_names=None, own=None):
    """e_recall@1 and map_r by loops in float64. `own`: index of each query in the reference, None: as in the queries."""
    if reference is None:
        reference, reference_names, own = queries, names, range(len(queries))
    recalls, precisions = [], []
    for i, query in enumerate(queries):
        others = [j for j in range(len(reference)) if j != own[i]]
        ranked = sorted(others, key=lambda j: (sum((a - b) ** 2 for a, b in zip(query, reference[j], strict=True)), j))
        right = [reference_names[j] == names[i] for j in ranked]
        recalls.append(float(right[0]))
        relevant = sum(right)
        if relevant:
            hits = [sum(right[: r + 1]) / (r + 1) for r in range(relevant) if right[r]]
            precisions.append(sum(hits) / relevant)
    return {"e_recall@1": np.mean(recalls), "map_r": np.mean(precisions) if precisions else 0.0}
