"""CoSENT (Su, github.com/bojone/CoSENT, 2022): the cosines of pairs in the order of their grades."""

from criteria._graded import GradedCriterion
from options.flags import Flag
from utilities.numbers import number

MINES_PAIRS = True
TAKES_GRADES = True

FLAGS = {
    "scale": Flag(number(above=0), 20.0, "multiplies the cosines"),
}


class Criterion(GradedCriterion):
    """log(1 + sum over pairs i, j with grade_j < grade_i of exp(scale (cos_j - cos_i)))."""
