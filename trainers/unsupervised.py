"""Labels are not looked at: every image is its own class, its augmented views are its positives (Ye et al., arXiv
1904.03436).
"""

import inspect

from trainers._trainer import METRIC_LOSS
from trainers._trainer import Trainer as Base
from utilities.errors import UserError


def check(opt) -> None:
    """See `trainers.check`."""
    if opt.views < 2:
        raise UserError("--trainer unsupervised --views 1 leaves every image without a positive: 2 or more")
    if opt.data_sampler == "hierarchical":
        raise UserError(
            "--trainer unsupervised uses no labels, and --data_sampler hierarchical goes by super-classes: take shuffle"
        )


class Trainer(Base):
    """`metric_loss` = the criterion on the embeddings of all views, an image's number in the data set as its label.

    Samplers that draw by class get every image as a class of its own, `--samples_per_class` 1: a batch holds --bs
    images, and --views embeddings of each. Evaluation uses the true labels.
    """

    VIEWS = 2
    LABELS = False
    LOSSES = (METRIC_LOSS,)

    def __init__(self, opt, network, criterion):
        super().__init__(opt, network, criterion)
        # Flags resolved for another method have 1; a user's own 1 is refused in `check`.
        self.VIEWS = max(self.VIEWS, type(self).VIEWS)
        if learns_classes(criterion):
            hint = ": --loss_margin_beta_shared has one beta for all" if opt.loss == "margin" else ""
            raise UserError(
                f"--loss {opt.loss} learns something of each class, and --trainer unsupervised uses no labels: "
                f"take a loss that compares samples, such as ntxent{hint}"
            )
        if opt.loss_class_weights is not None:
            raise UserError(
                "--loss_class_weights are of classes, and --trainer unsupervised uses no labels: leave them out"
            )
        if opt.data_sampler == "class_groups" and opt.data_class_groups_draw:
            raise UserError(
                "--data_class_groups_draw draws how many images of a class stay together, and --trainer "
                "unsupervised uses no labels: leave it out"
            )

    def losses(self, outputs: dict, batch) -> dict:
        """See `trainers._trainer.Trainer.losses`."""
        return super().losses(outputs, batch._replace(labels=batch.indices.to(batch.labels.device)))


def learns_classes(criterion) -> bool:
    """Whether a criterion, or one inside it, learns something of each class.

    Then its labels have a bound, or the package's class takes `num_classes`.
    """
    for module in criterion.modules():
        if getattr(module, "classes_expected", None) is not None:
            return True
        if any("num_classes" in inspect.signature(base.__init__).parameters for base in type(module).__mro__):
            return True
    return False
