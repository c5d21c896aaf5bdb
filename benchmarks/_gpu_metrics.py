"""Metrics at SOP's size on a GPU, beside a search and a k-means of torch or faiss: the parts `metrics` and `faiss` of
benchmarks/gpu.py.
"""

import time

import numpy as np
import torch

import metrics
from benchmarks._common import medians
from benchmarks._gpu_records import table
from benchmarks.metrics import ICML_LIST, data
from metrics import _kmeans

SECONDS_GOAL = 0.6
METRICS_GOAL = 1.5


def points_of(features: np.ndarray) -> torch.Tensor:
    """The features as a tensor, on the GPU if there is one."""
    points = torch.from_numpy(features)
    if torch.cuda.is_available():
        points = points.cuda()
    return points


def torch_search(features, labels) -> None:
    """The twelve nearest of each, by products and topk."""
    points = points_of(features)
    depth = min(13, len(points))
    torch.cat([(part @ points.T).topk(depth, dim=1).indices for part in points.split(4096)]).cpu()


def torch_kmeans(features, labels) -> None:
    """Twenty iterations of Lloyd's algorithm."""
    points = points_of(features)
    n_clusters = len(np.unique(labels))
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    centroids = points[order[:n_clusters].to(points.device)]
    weights = torch.ones(len(points), device=points.device)
    for _ in range(20):
        norms = centroids.square().sum(1)
        assigned = torch.cat([torch.addmm(norms, part, centroids.T, alpha=-2).argmin(1) for part in points.split(4096)])
        counts = torch.zeros(n_clusters, device=points.device).index_add_(0, assigned, weights)
        sums = torch.zeros_like(centroids).index_add_(0, assigned, points)
        centroids = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), centroids)
    assigned.cpu()


def faiss_search(features, labels) -> None:
    """The twelve nearest of each, by faiss on the GPU."""
    import faiss

    faiss.knn_gpu(faiss.StandardGpuResources(), features, features, 13)


def faiss_kmeans(features, labels) -> None:
    """Twenty iterations of k-means by faiss on the GPU."""
    import faiss

    every_sample = {"min_points_per_centroid": 1, "max_points_per_centroid": 2**31 - 1}
    faiss.Kmeans(features.shape[1], len(np.unique(labels)), niter=20, seed=0, gpu=True, **every_sample).train(features)


# package -> its search and its k-means
BASELINES = {"torch": (torch_search, torch_kmeans), "faiss": (faiss_search, faiss_kmeans)}


def has_faiss_gpu() -> bool:
    """Whether faiss is installed, was built for GPUs and sees one."""
    try:
        import faiss
    except ImportError:
        return False
    return hasattr(faiss, "StandardGpuResources") and torch.cuda.is_available() and faiss.get_num_gpus() > 0


def faiss(options) -> None:
    """Search and k-means of faiss on a GPU beside torch's, and the clusters that both give. Raises ModuleNotFoundError
    where faiss cannot use a GPU.
    """
    if not has_faiss_gpu():
        raise ModuleNotFoundError("faiss for GPUs is not installed, or sees none")
    features, labels = data("sop", options.scale.n_rows, options.dimensions)
    works = {}
    for package, (search, kmeans) in BASELINES.items():
        works[f"{package}, search"] = lambda search=search: search(features, labels)
        works[f"{package}, k-means"] = lambda kmeans=kmeans: kmeans(features, labels)
    rows = [*medians(works, 1, options.scale.metric_repeats).items()]
    n_classes = len(np.unique(labels))
    clusters = _kmeans.kmeans(features, n_classes, device="cuda")
    by_torch = _kmeans.of_tensor(points_of(features), n_classes, 0).cpu().numpy()
    rows.append(("images in the same cluster by both, share", float((clusters == by_torch).mean())))
    table("Faiss on the GPU", ("work", "seconds"), rows, options.csv)


def metric_list(options) -> None:
    """The ICML list beside a search and a k-means."""
    features, labels = data("sop", options.scale.n_rows, options.dimensions)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    package = "faiss" if has_faiss_gpu() else "torch"
    search, kmeans = BASELINES[package]
    works = {
        "list": lambda: metrics.compute([*ICML_LIST, "map_r"], features, labels, device=device),
        "search": lambda: search(features, labels),
        "k-means": lambda: kmeans(features, labels),
    }
    seconds = medians(works, 1, options.scale.metric_repeats)
    ratio = seconds["list"] / (seconds["search"] + seconds["k-means"])
    goals = seconds["list"] <= SECONDS_GOAL, ratio <= METRICS_GOAL
    row = (len(features), options.dimensions, *seconds.values(), ratio, *goals)
    heads = ("images", "dimensions", "ICML list, s", f"{package} search, s", f"{package} k-means, s", "ratio")
    heads = (*heads, f"at most {SECONDS_GOAL:g} s", f"at most {METRICS_GOAL} times")
    table("Metrics", heads, [row], options.csv)
    rows = [*metric_parts(features, labels, device).items()]
    table("Metrics by part", ("part", "seconds"), rows, options.csv)


def metric_parts(features: np.ndarray, labels: np.ndarray, device: str) -> dict[str, float]:
    """Seconds of each part of the list, one after the other, each waited for."""
    space = metrics.EmbeddingSpace(features, labels, device=device)
    measured = {name: metrics.parse(name).metric for name in [*ICML_LIST, "map_r"]}

    def values(*heads):
        return [metric.value(space) for name, metric in measured.items() if name.startswith(heads)]

    works = {
        "checks of the input": lambda: metrics.EmbeddingSpace(features, labels, device=device),
        "copies to the device": lambda: space.tensors,
        "search, made ready": lambda: space.search,
        "ranks": lambda: metrics.per_query([name for name in measured if name.startswith(("e_recall", "m"))], space),
        "means of the retrieval metrics": lambda: values("e_recall", "m"),
        "k-means": lambda: space.clusterings,
        "nmi, f1": lambda: values("nmi", "f1"),
        "dists": lambda: values("dists"),
        "rho_spectrum": lambda: values("rho_spectrum"),
    }
    seconds = {}
    for name, work in works.items():
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - began
    return seconds
