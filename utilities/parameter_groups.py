"""Optimiser groups of what plug-ins make: a criterion's parameters, and the rates of embedding layers."""

import argparse

import torch


def criterion_groups(criterion, opt, name: str = "criterion") -> list[dict]:
    """Optimiser groups of a criterion: its `optim_dict_list`; all other parameters train at its `lr`, else at `--lr`.

    The weight decay is `--loss_decay` unless a group says otherwise. Several groups are called `<name>_<number>`,
    unless they have names.
    """
    groups = [dict(group) for group in getattr(criterion, "optim_dict_list", None) or []]
    covered = set()
    for group in groups:
        parameters = group["params"]
        group["params"] = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        covered |= {id(parameter) for parameter in group["params"]}
    uncovered = [p for p in criterion.parameters() if id(p) not in covered and p.requires_grad]
    if uncovered:
        groups.append({"params": uncovered, "lr": getattr(criterion, "lr", opt.lr)})
    group_names = [f"{name}_{number}" for number in range(len(groups))]
    if len(groups) == 1:
        group_names = [name]
    for group, group_name in zip(groups, group_names, strict=True):
        group.setdefault("weight_decay", opt.loss_decay)
        group.setdefault("name", group_name)
    return groups


def embedding_rates(opt) -> dict:
    """`lr` and `weight_decay` of the embedding layers: --fc_lr and --fc_decay, by default those of the backbone.

    The options of another program may lack both flags.
    """
    opt = argparse.Namespace(**{"fc_lr": -1, "fc_decay": None, **vars(opt)})
    rates = {"lr": opt.lr, "weight_decay": opt.decay}
    if opt.fc_lr > 0:
        rates["lr"] = opt.fc_lr
    if opt.fc_decay is not None:
        rates["weight_decay"] = opt.fc_decay
    return rates
