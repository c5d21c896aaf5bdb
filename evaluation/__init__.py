"""Evaluation: embed a split once, then compute every metric of every embedding type on it."""

import time
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

import metrics
from utilities.errors import UserError
from utilities.run import named

__all__ = ["Embedded", "embed", "evaluate", "score"]

MAIN_EVALTYPE = "discriminative"  # the name of a network's one embedding


class Embedded(NamedTuple):
    """A split after the network: `features` evaltype -> `(N, D)` float32 array, `labels` `(N,)`, images in the data set's order."""

    features: dict
    labels: np.ndarray
    seconds: float


def embed(model: torch.nn.Module, loader, runtime, title: str = "", bare: bool = False) -> Embedded:
    """Embed all images of `loader`, in its order, into preallocated arrays.

    Args:
        title: what the progress bar says.
        bare: take the backbone's pooled features instead of the embedding.
    """
    began = time.monotonic()
    was_training = model.training
    model.eval()
    count = len(loader.dataset)
    features, labels, start = {}, np.empty(count, dtype=np.int64), 0
    with torch.no_grad(), tqdm(total=count, desc=title, unit="img", leave=False, disable=None) as bar:
        for batch_labels, images, _ in loader:
            with runtime.autocast():
                embeddings, activations = model(runtime.to_device(images))
            stop = start + len(batch_labels)
            outputs = activations["pooled"] if bare else embeddings
            for name, output in (outputs if isinstance(outputs, dict) else {MAIN_EVALTYPE: outputs}).items():
                if name not in features:
                    features[name] = np.empty((count, output.shape[1]), dtype=np.float32)
                features[name][start:stop] = output.float().cpu().numpy()
            labels[start:stop] = batch_labels.numpy()
            bar.update(len(batch_labels))
            start = stop
    model.train(was_training)
    return Embedded(features, labels, time.monotonic() - began)


def of_type(features: dict, evaltype: str) -> np.ndarray:
    """The embedding of one `--evaltypes` name: one of the network's, or `Combined_<a>_<b>-<w>-<w>`, weighted parts joined.

    Each part of a combination is L2-normalised, weighted (1 unless given), and the parts are concatenated. Raises UserError for a
    name that the network does not give.
    """
    if evaltype in features:
        return features[evaltype]
    if evaltype.startswith("Combined_"):
        names, *weights = evaltype.removeprefix("Combined_").split("-")
        parts = names.split("_")
        weights = [float(weight) for weight in weights] or [1.0] * len(parts)
        if all(part in features for part in parts) and len(weights) == len(parts):
            units = (features[part] / np.maximum(np.linalg.norm(features[part], axis=1, keepdims=True), 1e-12) for part in parts)
            return np.concatenate([weight * unit for weight, unit in zip(weights, units, strict=True)], axis=1)
    raise UserError(f"--evaltypes {evaltype}: the network gives {', '.join(features)}, alone or as Combined_<a>_<b>-<weight>-<weight>")


def score(embedded: Embedded, opt, runtime) -> dict:
    """Every `--evaluation_metrics` of every `--evaltypes`: metric name -> value (names as in metrics.csv)."""
    device = runtime.device if opt.evaluate_on_gpu else torch.device("cpu")
    scores = {}
    for evaltype in opt.evaltypes:
        values = metrics.compute(
            opt.evaluation_metrics, of_type(embedded.features, evaltype), embedded.labels, seed=opt.seed, device=device, progress=True
        )
        scores.update({named(evaltype, name, opt.evaltypes): value for name, value in values.items()})
    return scores


def evaluate(model, loaders: dict, opt, runtime, bare: bool = False) -> tuple[dict, dict]:
    """Embed and score each split.

    Args:
        loaders: split (`train`, `val`, `test`) -> loader.

    Returns:
        split -> {metric: value}, and split -> Embedded.
    """
    scores, embedded = {}, {}
    for split, loader in loaders.items():
        embedded[split] = embed(model, loader, runtime, f"embedding {split}", bare)
        scores[split] = score(embedded[split], opt, runtime)
    return scores, embedded
