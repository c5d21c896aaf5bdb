"""The embedding types of a network: one of its outputs by name, or several, weighted and joined."""

import numpy as np
import torch

from utilities.errors import UserError

MAIN = "discriminative"  # the name of a network's only embedding
BARE = "pooled"  # the backbone's features; where they alone are evaluated, they replace every embedding type
LEAST = 1e-12  # floor of norms in denominators


def of_type(features: dict, evaltype: str):
    """The embedding of one `--evaltypes` name: one of the network's outputs, or `Combined_<a>_<b>-<w>-<w>`.

    Each part of a combination is L2-normalised and weighted (1 unless given), and the parts are concatenated. Where
    `features` holds the backbone's alone, every name gives these. `features`: name -> `(N, D)`, arrays or tensors, and
    so is the result. Raises UserError for an unknown name.
    """
    if evaltype in features:
        return features[evaltype]
    if set(features) == {BARE}:
        return features[BARE]
    weighted = []
    for name, weight in _parts(evaltype, features):
        part = features[name]
        if torch.is_tensor(part):
            weighted.append(weight * torch.nn.functional.normalize(part, eps=LEAST))
        else:
            lengths = np.maximum(np.linalg.norm(part, axis=1, keepdims=True), LEAST)
            weighted.append(np.float32(weight) * (part / lengths))
    if torch.is_tensor(weighted[0]):
        return torch.cat(weighted, dim=1)
    return np.concatenate(weighted, axis=1)


def _parts(evaltype: str, names) -> list[tuple[str, float]]:
    """(name, weight) of each part of a combination.
    Raises UserError for anything but a combination of `names`.
    """
    if evaltype.startswith("Combined_"):
        joined, *weights = evaltype.removeprefix("Combined_").split("-")
        parts = _split_names(joined, names)
        weights = _weights(weights)
        if parts and weights is not None and len(weights) in (0, len(parts)):
            return list(zip(parts, weights or [1.0] * len(parts), strict=True))
    raise UserError(
        f"--evaltypes {evaltype}: the network gives {', '.join(names)}, alone or as Combined_<a>_<b>-<weight>-<weight>"
    )


def _split_names(text: str, names) -> list[str] | None:
    """`text` split into `names`, which may hold underscores, joined by underscores;
    None where it cannot be split.
    """
    for name in names:
        if text == name:
            return [name]
        if text.startswith(f"{name}_"):
            further_names = _split_names(text[len(name) + 1 :], names)
            if further_names:
                return [name, *further_names]
    return None


def _weights(texts: list[str]) -> list[float] | None:
    """`texts` as weights; None unless all are above 0 and finite, in float32 too."""
    try:
        weights = [float(text) for text in texts]
    except ValueError:
        return None
    smallest = float(np.finfo(np.float32).tiny)
    largest = float(np.finfo(np.float32).max)
    if all(smallest <= weight <= largest for weight in weights):
        return weights
    return None
