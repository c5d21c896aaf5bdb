"""Language guidance, ELG and PLG.

Roth et al., Integrating Language Guidance into Vision-based Deep Metric Learning, CVPR 2022, arXiv 2203.08543.
"""

import numpy as np
import torch

from options.flags import Flag
from trainers._added_losses import AddedLoss
from utilities.errors import UserError
from utilities.files import expanded
from utilities.numbers import number, whole
from utilities.reading import Unreadable, parsing, read_arrays
from utilities.tensors import normalize
from utilities.tuples import same_class

NAME = "language_loss"
FLAG = "--language_vectors"

FLAGS = {
    FLAG: Flag(
        str,
        None,
        "language_loss in addition to the criterion's: draw the similarities of the batch to those of its classes' "
        "vectors, such as a text model's of their names; an .npz file with names (N,) and vectors (N, E), or "
        "(N, K, E) for K vectors per class; python -m evaluation.pseudo_labels makes one",
        metavar="FILE",
    ),
    "--language_direction": Flag(
        str,
        "backward",
        "of the divergence KL(p || q): backward: p of the images, q of the vectors, as published; forward: the "
        "other way round",
        choices=["backward", "forward"],
        rules={"needs": "language_vectors"},
    ),
    "--language_shift": Flag(
        number(),
        1,
        "added to the cosines of the vectors; pairs of a class have 1 + this on both sides",
        rules={"needs": "language_vectors"},
    ),
    "--language_T": Flag(number(1e-6), 1, "temperature of both similarities", rules={"needs": "language_vectors"}),
    "--language_delay": Flag(
        whole(0),
        0,
        "language_loss begins with step N, counted from 1, as in the authors' code (0 and 1: with the first)",
        metavar="N",
        rules={"needs": "language_vectors"},
    ),
}


class Language(AddedLoss):
    """`language_loss` = T^2 / B sum_i KL(p_i || q_i), p = softmax of the rows of B / T, q of those of A / T.

    With `--language_direction forward` p and q are swapped.

    B_ij is the cosine of embeddings i and j, A_ij = L + shift, L the mean over r of the cosine of the r-th vectors of
    their classes: rank with rank, not all pairs. Where i and j are of one class, the diagonal too, both are 1 + shift.
    Only the training classes' vectors are read.
    """

    NAME, FLAG = NAME, FLAG

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        if not opt.class_names:
            raise UserError(
                f"{FLAG} is joined to the training classes by their names: select(…, class_names={{0: 'name', …}})"
            )
        names = [opt.class_names[label] for label in sorted(opt.class_names)]
        self.register_buffer("vectors", read(opt.language_vectors, names), persistent=False)
        self.backward_kl = opt.language_direction == "backward"
        self.shift = opt.language_shift
        self.temperature = opt.language_T
        self.delay = opt.language_delay
        self.steps = 0

    def loss(self, trainer, outputs: dict, batch) -> torch.Tensor | None:
        """See `trainers._added_losses.AddedLoss.loss`; None before step `--language_delay`, counted from 1."""
        if not trainer.LABELS:
            raise UserError(f"{FLAG}: this --trainer looks at no labels: leave it out")
        self.steps += 1
        if self.steps < self.delay:
            return None
        unit = normalize(outputs["embeddings"])
        of_classes = self.vectors.index_select(0, batch.labels).to(outputs["embeddings"])
        same_class_pairs = same_class(batch.labels)
        logs = []  # (B, B) each, of images and of language
        for cosines in (unit @ unit.T, of_classes @ of_classes.T + self.shift):
            similarities = torch.where(same_class_pairs, 1 + self.shift, cosines) / self.temperature
            logs.append(torch.log_softmax(similarities, 1))
        p, q = logs if self.backward_kl else reversed(logs)
        return self.temperature**2 / len(unit) * (p.exp() * (p - q)).sum()

    def get_extra_state(self) -> torch.Tensor:
        """The number of steps, for checkpoints."""
        return torch.tensor(self.steps)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """The counterpart of `get_extra_state`."""
        self.steps = int(state)


def read(path: str, names: list[str]) -> torch.Tensor:
    """The vectors `(C, K E)` of the classes `names`, whose products are the means over K of their cosines.

    Raises UserError for a file that is none of these, for a class without vectors
    or with a vector that has no direction.
    """
    try:
        with parsing(path):
            arrays = read_arrays(expanded(path), ["names", "vectors"])
            listed = [str(name) for name in arrays["names"]]
            vectors = arrays["vectors"].astype(np.float32)
    except Unreadable as error:
        expected = "not an .npz file with names (N,) and vectors (N, E) or (N, K, E)"
        raise UserError(f"{FLAG} {path}: {expected} ({error.reason})") from None
    if vectors.ndim not in (2, 3) or len(vectors) != len(listed) or not vectors.size:
        raise UserError(
            f"{FLAG} {path}: {len(listed)} names and vectors {vectors.shape}: expected (N, E) or (N, K, E) of N names"
        )
    _check_names(path, listed, names)
    rows = {name: row for row, name in enumerate(listed)}
    chosen = torch.from_numpy(vectors[[rows[name] for name in names]]).reshape(len(names), -1, vectors.shape[-1])
    lengths = chosen.norm(dim=2)
    has_direction = (lengths.isfinite() & (lengths > 0)).all(1)
    if not bool(has_direction.all()):
        name = names[int((~has_direction).nonzero()[0])]
        raise UserError(f"{FLAG} {path}: a vector of {name} is 0 or not finite, which has no direction")
    return (chosen / lengths[..., None] / chosen.shape[1] ** 0.5).flatten(1)


def _check_names(path: str, listed: list[str], names: list[str]) -> None:
    """Raise UserError unless a file lists each of the classes `names` once."""
    missing = [name for name in names if name not in listed]
    if missing:
        examples = ", ".join(missing[:5])
        if len(missing) > 5:
            examples += " …"
        raise UserError(f"{FLAG} {path} lacks {len(missing)} of {len(names)} training classes: {examples}")
    for name in names:
        if listed.count(name) > 1:
            raise UserError(f"{FLAG} {path} names {name} more than once: one row a class")
