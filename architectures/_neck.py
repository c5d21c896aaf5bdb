"""The layers of --neck: name -> a function of the embeddings' width. Another kind is an entry, and words in the help."""

import functools

import torch

NECKS = {
    "none": lambda width: torch.nn.Identity(),
    "bn": torch.nn.BatchNorm1d,
    "layernorm": functools.partial(torch.nn.LayerNorm, elementwise_affine=False),
}
