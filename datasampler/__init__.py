"""Batch samplers: one file a sampler, the file name is the value of `--data_sampler`.

A module's class is `Sampler(opt, image_dict, image_list)`; it yields lists of `opt.bs` indices.
"""

from utilities.registry import Registry

REGISTRY = Registry("datasampler", "sampler")


def select(name: str, opt, image_dict: dict, image_list: list, **flags):
    """The batch sampler `name`.

    Args:
        image_dict: class -> list of `[path, index]`.
        image_list: list of `(path, class)`.
    """
    return REGISTRY.module(name).Sampler(REGISTRY.options(opt, **flags), image_dict, image_list)
