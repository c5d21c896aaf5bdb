"""A loss of several prefixes of the embedding: Matryoshka representations (Kusupati et al., NeurIPS 2022, arXiv
2205.13147).

The paper's MRL has a classifier of its own for each prefix (`--matryoshka_heads own`), its MRL-E one classifier whose
weights are cut as the embedding is (`prefix`). Here every loss may be nested, and a prefix is brought to unit length
again where the network normalises, as in sentence-transformers' MatryoshkaLoss; the paper compares it as it is.
"""

import itertools
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
        "--embed_dim. The metrics of the run are measured on each, named e_recall@1@d64",
    )
    group.add_argument(
        "--matryoshka_weights",
        type=number(0),
        nargs="+",
        default=None,
        metavar="W",
        help="weights of the losses of --matryoshka, one each (unset: 1 each)",
    ).needs = "matryoshka"
    group.add_argument(
        "--matryoshka_heads",
        default="prefix",
        choices=["prefix", "own"],
        help="the class vectors of a prefix of --matryoshka: their own prefix (MRL-E), or others of its own (MRL)",
    ).needs = "matryoshka"


def check(opt) -> None:
    """Raise UserError for flags that do not fit each other."""
    if opt.matryoshka is None:
        return
    flag = f"--matryoshka {' '.join(map(str, opt.matryoshka))}"
    if any(width >= next_width for width, next_width in itertools.pairwise(opt.matryoshka)):
        raise UserError(f"{flag}: the prefixes must ascend")
    if opt.matryoshka_weights is not None and len(opt.matryoshka_weights) != len(opt.matryoshka):
        raise UserError(
            f"{flag} has {len(opt.matryoshka)} prefixes, --matryoshka_weights {len(opt.matryoshka_weights)} "
            "weights: give one each"
        )
    if opt.trainer == "cascaded":
        raise UserError(
            f"{flag}: --trainer cascaded compares embeddings of several stages, none of which has prefixes: "
            "leave one of them out"
        )
    if opt.embed_dim:
        check_width(opt)


def check_width(opt) -> None:
    """Raise UserError where the last prefix is not the whole embedding."""
    flag = f"--matryoshka {' '.join(map(str, opt.matryoshka))}"
    last = opt.matryoshka[-1]
    if too_wide := [width for width in opt.matryoshka if width > opt.embed_dim]:
        raise UserError(f"{flag}: the embedding has {opt.embed_dim} dimensions, {too_wide[0]} are more: leave it out")
    if last < opt.embed_dim:
        raise UserError(
            f"{flag}: the dimensions above {last} would not be trained: add {opt.embed_dim}, the whole embedding"
        )


class Nesting(NamedTuple):
    """Prefixes `(P,)`, ascending, the last being the whole embedding,
    their weights, and whether they are brought to unit length.
    """

    prefixes: tuple[int, ...]
    weights: tuple[float, ...]
    rescales: bool

    def cut(self, rows: torch.Tensor, width: int) -> torch.Tensor:
        """The first dimensions `(N, width)` of rows `(N, D)`."""
        return normalize(raise_half(rows[:, :width])) if self.rescales else rows[:, :width]


def compute_prefixes(criterion: torch.nn.Module, args: tuple, kwargs: dict) -> None:
    """Forward pre-hook of a nested criterion, before its other hooks: the losses of the prefixes.

    A prefix's loss is the criterion itself, called with embeddings, reference and all trained matrices of as many
    columns (such as class vectors) cut; or, under `--matryoshka_heads own`, another criterion. A batch that is a prefix
    itself is left alone.
    """
    named = {**dict(zip(("batch", "labels", "reference", "reference_labels", "own"), args, strict=False)), **kwargs}
    batch = named.pop("batch")
    labels = named.pop("labels")
    *prefixes, whole_width = criterion.nesting.prefixes
    if batch.shape[1] != whole_width:
        return
    matrices = {
        name: parameter
        for name, parameter in criterion.named_parameters()
        if parameter.ndim == 2 and parameter.shape[1] == whole_width
    }
    losses = []
    for head, width in enumerate(prefixes):
        cut_batch = criterion.nesting.cut(batch, width)
        reference_form = dict(named)
        if reference_form.get("reference") is not None:
            reference_form["reference"] = criterion.nesting.cut(reference_form["reference"], width)
        if criterion.of_prefixes is not None:
            losses.append(criterion.of_prefixes[head](cut_batch, labels, **reference_form))
        else:
            cut_matrices = {name: matrix[:, :width] for name, matrix in matrices.items()}
            losses.append(torch.func.functional_call(criterion, cut_matrices, (cut_batch, labels), reference_form))
    criterion.prefix_losses = losses


def add_prefixes(criterion: torch.nn.Module, args: tuple, loss: torch.Tensor) -> torch.Tensor | None:
    """Forward hook of a nested criterion: the weighted sum of its loss and those that `compute_prefixes` left.

    Statistics are those of the whole embedding, with the loss of each prefix beside them.
    """
    losses = vars(criterion).pop("prefix_losses", None)
    # `compute_prefixes` leaves no losses for a batch that is a prefix itself
    if losses is None:
        return None
    *prefixes, _ = criterion.nesting.prefixes
    *weights, whole_weight = criterion.nesting.weights
    of_prefixes = {f"loss@d{width}": value.detach() for width, value in zip(prefixes, losses, strict=True)}
    criterion.stats = {**getattr(criterion, "stats", {}), **of_prefixes}
    return whole_weight * loss + sum(weight * value for weight, value in zip(weights, losses, strict=True))


def nest(criterion: torch.nn.Module, opt, rescales: bool, make) -> torch.nn.Module:
    """Turn a criterion into sum_d w_d L(x_d, y), x_d the first d dimensions of the embeddings x. Returns it.

    Args:
        opt: with `embed_dim` as the criterion was made with.
        rescales: the network normalises.
        make: width -> a criterion of its own.

    Raises UserError where the last prefix is not the whole embedding,
    or the criterion keeps a state that prefixes cannot share.
    """
    check_width(opt)
    has_own_heads = opt.matryoshka_heads == "own"
    if not has_own_heads:
        check_shared(criterion, opt)
    weights = opt.matryoshka_weights or [1.0] * len(opt.matryoshka)
    criterion.nesting = Nesting(tuple(opt.matryoshka), tuple(weights), rescales)
    criterion.of_prefixes = None
    if has_own_heads:
        add_heads(criterion, opt, {width: make(width) for width in opt.matryoshka[:-1]})
    criterion.register_forward_pre_hook(compute_prefixes, prepend=True, with_kwargs=True)
    criterion.register_forward_hook(add_prefixes)
    return criterion


def check_shared(criterion: torch.nn.Module, opt) -> None:
    """Raise UserError where prefixes cannot share a criterion's state."""
    if any(buffer.is_floating_point() for buffer in criterion.buffers()):
        raise UserError(
            f"--matryoshka: --loss {opt.loss} keeps statistics of one embedding, which prefixes cannot share: add "
            "--matryoshka_heads own"
        )
    if opt.loss == "pml" and any(parameter.ndim == 2 for parameter in criterion.parameters()):
        raise UserError(
            "--matryoshka: class vectors of --loss pml stand in columns, which prefixes cannot cut: add "
            "--matryoshka_heads own"
        )


def add_heads(criterion: torch.nn.Module, opt, heads: dict[int, torch.nn.Module]) -> None:
    """Give a criterion those of its prefixes, width -> criterion, and their optimiser groups."""
    head_groups = [
        {**group, "name": f"{group['name']}_d{width}"}
        for width, head in heads.items()
        for group in criterion_groups(head, opt)
    ]
    if head_groups:
        criterion.optim_dict_list = [*criterion_groups(criterion, opt), *head_groups]
    criterion.of_prefixes = torch.nn.ModuleList(heads.values())
