"""A loss of several prefixes of the embedding: Matryoshka representations (Kusupati et al., NeurIPS 2022, arXiv
2205.13147).

The paper's MRL has a classifier of its own for each prefix (`--matryoshka_heads own`), its MRL-E one classifier whose
weights are cut as the embedding is (`prefix`). Here every loss may be nested, and a prefix is brought to unit length
again where the network normalises, as in sentence-transformers' MatryoshkaLoss; the paper compares it as it is.
"""

from typing import NamedTuple

import torch

from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.parameter_groups import criterion_groups
from utilities.tensors import normalize, raise_half


def add_arguments(group) -> None:
    """Declare the flags."""
    group.add_argument(
        "--matryoshka",
        type=whole(1, WIDEST),
        nargs="+",
        default=None,
        metavar="D",
        help="train the loss also on the first D dimensions of the embedding, for each D; ascending, the last is "
        "--embed_dim. The metrics of the run are "
        "measured on each, named e_recall@1@d64",
    )
    group.add_argument(
        "--matryoshka_weights",
        type=number(0),
        nargs="+",
        default=None,
        metavar="W",
        help="weights of the losses of --matryoshka, one each (unset: 1 each)",
    )
    group.add_argument(
        "--matryoshka_heads",
        default="prefix",
        choices=["prefix", "own"],
        help="the class vectors of a prefix of --matryoshka: their own prefix (MRL-E), or others of its own (MRL)",
    )


def check(opt) -> None:
    """Raise UserError for flags that do not fit each other."""
    if opt.matryoshka is None:
        for name, default in (("matryoshka_weights", None), ("matryoshka_heads", "prefix")):
            if getattr(opt, name) != default:
                raise UserError(f"--{name} has no effect: add --matryoshka")
        return
    shown = f"--matryoshka {' '.join(map(str, opt.matryoshka))}"
    if any(one >= other for one, other in zip(opt.matryoshka, opt.matryoshka[1:], strict=False)):
        raise UserError(f"{shown}: the prefixes must ascend")
    if opt.matryoshka_weights is not None and len(opt.matryoshka_weights) != len(opt.matryoshka):
        raise UserError(
            f"{shown} has {len(opt.matryoshka)} prefixes, --matryoshka_weights {len(opt.matryoshka_weights)} "
            "weights: give one each"
        )
    if opt.trainer == "cascaded":
        raise UserError(
            f"{shown}: --trainer cascaded compares embeddings of several stages, none of which has prefixes: "
            "leave one of them out"
        )
    if opt.embed_dim:
        check_width(opt)


def check_width(opt) -> None:
    """Raise UserError where the last prefix is not the whole embedding."""
    shown = f"--matryoshka {' '.join(map(str, opt.matryoshka))}"
    last = opt.matryoshka[-1]
    if above := [one for one in opt.matryoshka if one > opt.embed_dim]:
        raise UserError(f"{shown}: the embedding has {opt.embed_dim} dimensions, {above[0]} are more: leave it out")
    if last < opt.embed_dim:
        raise UserError(
            f"{shown}: the dimensions above {last} would not be trained: add {opt.embed_dim}, the whole embedding"
        )


class Nesting(NamedTuple):
    """Prefixes `(P,)`, ascending, the last being the whole embedding, their weights, and whether they are brought to
    unit length.
    """

    prefixes: tuple[int, ...]
    weights: tuple[float, ...]
    rescales: bool


class Nested:
    """A criterion's class stands behind this one: sum_d w_d L(x_d, y), x_d the first d dimensions of the embeddings x.

    In the loss of a prefix, trained matrices of as many columns as the embedding, such as class vectors, are cut as it
    is; or a criterion of its own takes it. So are the rows of a `reference`. The whole embedding comes last: statistics
    are its own, with the loss of each prefix beside them.
    """

    def __call__(
        self, batch: torch.Tensor, labels: torch.Tensor, reference: torch.Tensor | None = None, **kwargs
    ) -> torch.Tensor:
        """See the criterion. A batch that is a prefix itself gets the criterion's loss."""
        (*prefixes, whole_width), (*weights, last), _ = self.nesting
        given = kwargs if reference is None else {"reference": reference, **kwargs}
        if batch.shape[1] != whole_width:
            return super().__call__(batch, labels, **given)
        values = []
        for place, width in enumerate(prefixes):
            cut = kwargs if reference is None else {"reference": self.cut(reference, width), **kwargs}
            if self.of_prefixes is not None:
                values.append(self.of_prefixes[place](self.cut(batch, width), labels, **cut))
            else:
                matrices = {
                    name: p[:, :width]
                    for name, p in self.named_parameters()
                    if p.ndim == 2 and p.shape[1] == whole_width
                }
                values.append(torch.func.functional_call(self, matrices, (self.cut(batch, width), labels), cut))
        total = last * super().__call__(batch, labels, **given)
        self.stats = {
            **getattr(self, "stats", {}),
            **{f"loss@d{width}": value.detach() for width, value in zip(prefixes, values, strict=True)},
        }
        return total + sum(weight * value for weight, value in zip(weights, values, strict=True))

    def cut(self, rows: torch.Tensor, width: int) -> torch.Tensor:
        """The first dimensions `(N, width)` of rows `(N, D)`."""
        return normalize(raise_half(rows[:, :width])) if self.nesting.rescales else rows[:, :width]


def nest(criterion: torch.nn.Module, opt, rescales: bool, make) -> torch.nn.Module:
    """Turn a criterion into the sum of `--matryoshka`. Returns it.

    Args:
        opt: with `embed_dim` as the criterion was made with. rescales: the network normalises. make: width -> a
        criterion of its own.

    Raises UserError where the last prefix is not the whole embedding, or the criterion keeps a state that prefixes
    cannot share.
    """
    check_width(opt)
    own = opt.matryoshka_heads == "own"
    if not own and any(buffer.is_floating_point() for buffer in criterion.buffers()):
        raise UserError(
            f"--matryoshka: --loss {opt.loss} keeps statistics of one embedding, which prefixes cannot share: add "
            "--matryoshka_heads own"
        )
    if not own and opt.loss == "pml" and any(p.ndim == 2 for p in criterion.parameters()):
        raise UserError(
            "--matryoshka: class vectors of --loss pml stand in columns, which prefixes cannot cut: add "
            "--matryoshka_heads own"
        )
    criterion.nesting = Nesting(
        tuple(opt.matryoshka), tuple(opt.matryoshka_weights or [1.0] * len(opt.matryoshka)), rescales
    )
    others = {width: make(width) for width in opt.matryoshka[:-1]} if own else {}
    of_others = [
        {**group, "name": f"{group['name']}_d{width}"}
        for width, other in others.items()
        for group in criterion_groups(other, opt)
    ]
    if of_others:
        criterion.optim_dict_list = [*criterion_groups(criterion, opt), *of_others]
    criterion.of_prefixes = torch.nn.ModuleList(others.values()) if own else None
    kind = type(criterion)
    criterion.__class__ = type(kind.__name__, (Nested, kind), {"__module__": kind.__module__})
    return criterion
