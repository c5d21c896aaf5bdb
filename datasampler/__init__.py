"""Batch samplers: one file a sampler, the file name is the value of `--data_sampler`.

A file is a docstring, constants where it differs from `CONSTANTS` below, its flags (`FLAGS`, see `options.flags`),
and a class `Sampler(opt, image_dict, image_list)`, a `torch.utils.data.Sampler`: `__iter__` yields lists of `opt.bs`
indices, `__len__` is the number of batches an epoch.

If a sampler has them, training calls `set_super_labels(mapping)` and `create_storage(loader, model, device)` once
before the first epoch (the latter where `requires_storage`), `precompute_indices()` at the start of each epoch,
`replace_storage_entries(embeddings, indices)` after each step, and `state_dict()` / `load_state_dict(state)` for
checkpoints. The samplers here have all of them (`_base.py`); a user's sampler needs none.
"""

import torch

from datasampler._adapter import adapted
from datasampler._graded import PairSampler
from utilities.registry import Registry

CONSTANTS = {  # of a file that leaves them out
    "USES_SAMPLES_PER_CLASS": False,  # --bs has to be a multiple of --samples_per_class
    "GIVES_TRIPLETS": False,  # its batches are consecutive triplets
}
REGISTRY = Registry("datasampler", "sampler", constants=CONSTANTS)


def select(name: str, opt, image_dict: dict, image_list: list, **flags):
    """The batch sampler `name`.

    Args:
        opt: the shared namespace (None: all defaults); what it lacks takes its declared default.
        image_dict: class -> list of `[path, index]`.
        image_list: list of `(path, class)`.
        flags: single flags that override `opt`, e.g. `bs=32`.

    Raises:
        UnknownName: no such sampler. UserError: an unknown flag, or data and flags that do not go together.
    """
    return REGISTRY.module(name).Sampler(REGISTRY.options(opt, **flags), image_dict, image_list)


def for_training(opt, dataset, by_class: bool = True):
    """The sampler of `--data_sampler` over a training set, with all the calls of the training loop.

    A data set with `graded_pairs` gives batches of these, whatever the flag.

    Without `by_class` the sampler sees no labels: each image is a class of its own, and a batch takes one image per
    class. A user's sampler that lacks calls is wrapped (`_adapter.py`), so that the loop needs no branches.
    """
    classes = dataset.image_dict
    super_labels = dataset.super_labels
    if not by_class:
        opt = REGISTRY.options(opt, samples_per_class=1)
        classes = {index: [[path, index]] for index, (path, _) in enumerate(dataset.image_list)}
        super_labels = {}
    if getattr(dataset, "graded_pairs", None) is not None:
        return PairSampler(opt, classes, dataset.image_list, dataset.graded_pairs.rows)
    sampler = adapted(select(opt.data_sampler, opt, classes, dataset.image_list))
    sampler.set_super_labels(super_labels)
    return sampler


def fill_storage(sampler, loader, model, runtime, restored: bool = False) -> None:
    """Call `create_storage`. Of several processes the first alone embeds the training set, where the sampler has a
    state to share.

    Does nothing where the storage is `restored` from a checkpoint.
    """
    if restored:
        return
    if runtime.ranks.size == 1 or not getattr(sampler, "shares_state", True):
        sampler.create_storage(loader, model, runtime.device)
        return
    runtime.ranks.first(lambda: sampler.create_storage(loader, model, runtime.device))
    state = {
        name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in sampler.state_dict().items()
    }
    sampler.load_state_dict(runtime.ranks.share(state))
