"""AnglE (Li & Li, arXiv 2309.12871): CoSENT on the difference of angles in complex space."""

import torch

from criteria._graded import GradedCriterion
from options.flags import Flag
from utilities.errors import UserError
from utilities.numbers import number

MINES_PAIRS = True
TAKES_GRADES = True

FLAGS = {
    "scale": Flag(number(above=0), 1.0, "multiplies the similarities; the authors' 1, sentence-transformers has 20"),
}


class Criterion(GradedCriterion):
    """log(1 + sum over pairs i, j with grade_j < grade_i of exp(scale (s_j - s_i))), s = |sum of the real and of the
    imaginary parts of a conj(b)| / (|a| |b|).

    The first half of an embedding are real parts, the second half imaginary ones. As published, s of a pair (a, b) is
    not that of (b, a), and opposite vectors are as similar as equal ones.
    """

    def turned(self, points: torch.Tensor) -> torch.Tensor:
        """(re + im, im - re): its product with b is the sum of both parts of a conj(b)."""
        if points.shape[1] % 2:
            raise UserError(f"--loss angle halves embeddings of {points.shape[1]} dimensions: take an even --embed_dim")
        real, imaginary = points.chunk(2, 1)
        return torch.cat([real + imaginary, imaginary - real], 1)

    def similarity(self, products: torch.Tensor) -> torch.Tensor:
        """The absolute value."""
        return products.abs()
