"""Optimiser groups of what plug-ins make: a criterion's parameters, and the rates of embedding layers."""

import torch


def criterion_groups(criterion, opt, name: str = "criterion") -> list[dict]:
    """Optimiser groups of a criterion: its `optim_dict_list`; all other parameters train at its `lr`, else at `--lr`.

    The weight decay is `--loss_decay` unless a group says otherwise. Several groups are called `<name>_<number>`,
    unless they have names.
    """
    groups = [dict(group) for group in getattr(criterion, "optim_dict_list", None) or []]
    for group in groups:
        group["params"] = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
    covered = {id(p) for group in groups for p in group["params"]}
    uncovered = [p for p in criterion.parameters() if id(p) not in covered and p.requires_grad]
    if uncovered:
        groups.append({"params": uncovered, "lr": getattr(criterion, "lr", opt.lr)})
    for number, group in enumerate(groups):
        group.setdefault("weight_decay", opt.loss_decay)
        group_name = name if len(groups) == 1 else f"{name}_{number}"
        group.setdefault("name", group_name)
    return groups


def embedding_rates(opt) -> dict:
    """`lr` and `weight_decay` of the embedding layers: --fc_lr and --fc_decay, by default those of the backbone."""
    fc_lr = getattr(opt, "fc_lr", -1)
    fc_decay = getattr(opt, "fc_decay", None)
    return {"lr": fc_lr if fc_lr > 0 else opt.lr, "weight_decay": opt.decay if fc_decay is None else fc_decay}
