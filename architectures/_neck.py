"""Layers of --neck: name -> a function of the width of the embeddings. Another kind is an entry and words of help."""

import functools

import torch

NECKS = {
    "none": lambda width: torch.nn.Identity(),
    "bn": torch.nn.BatchNorm1d,
    "layernorm": functools.partial(torch.nn.LayerNorm, elementwise_affine=False),
}
