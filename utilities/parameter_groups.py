"""Optimiser groups of what plug-ins make: a criterion's parameters, and the rates of embedding layers."""

import torch


def criterion_groups(criterion, opt, name: str = "criterion") -> list[dict]:
    """Optimiser groups of a criterion: its `optim_dict_list`; all other parameters train at its `lr`, else at `--lr`.

    The weight decay is `--loss_decay` unless a group says otherwise. Several groups are called `<name>_<number>`,
    unless they have names.
    """
    own = [dict(group) for group in getattr(criterion, "optim_dict_list", None) or []]
    for group in own:
        group["params"] = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
    covered = {id(p) for group in own for p in group["params"]}
    rest = [p for p in criterion.parameters() if id(p) not in covered and p.requires_grad]
    if rest:
        own.append({"params": rest, "lr": getattr(criterion, "lr", opt.lr)})
    for number, group in enumerate(own):
        group.setdefault("weight_decay", opt.loss_decay)
        group.setdefault("name", name if len(own) == 1 else f"{name}_{number}")
    return own


def embedding_rates(opt) -> dict:
    """`lr` and `weight_decay` of the embedding layers: --fc_lr and --fc_decay, by default those of the backbone."""
    fc_lr = getattr(opt, "fc_lr", -1)
    fc_decay = getattr(opt, "fc_decay", None)
    return {"lr": fc_lr if fc_lr > 0 else opt.lr, "weight_decay": opt.decay if fc_decay is None else fc_decay}
