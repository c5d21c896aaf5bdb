"""How much better the best super-class fares than the worst: recall at k, by super-class."""

from metrics._metric import part_means
from metrics.e_recall import Metric as Recall
from utilities.errors import UserError


class Metric(Recall):
    """Recall of the super-class where it is highest, minus that of the super-class where it is lowest.

    A super-class's recall is the mean over its queries, which search in the whole reference.
    Refused without two super-classes.
    """

    NAMES = {"e_recall@k_group_gap": "highest minus lowest recall at k of a super-class; needs two super-classes"}
    HIGHER_IS_BETTER = False
    NEEDS_GROUPS = True
    VARIANTS = ("cosine",)

    def value(self, space) -> float:
        """The gap. Raises UserError where the queries have fewer than two super-classes."""
        if space.groups is None or space.groups.max() == 0:
            present = "a single super-class" if space.groups is not None else "no super-classes"
            name = self.name.replace("@k", f"@{self.parameter}")
            raise UserError(
                f"metric {name!r} compares super-classes, and the data have {present}: leave it out, or give groups"
            )
        scores, groups = self.counted(space, space.groups)
        if not len(scores):
            return float("nan")
        recalls = part_means(scores, groups)
        return float(recalls.max() - recalls.min())
