"""A linear classifier beside the criterion; with --loss_weights metric_loss=0 plain classification (Zhai & Wu, arXiv
1811.12649, train so).
"""

from trainers import _classifier
from trainers._classifier import CLASSIFIER_LOSS, LOGITS
from trainers._trainer import METRIC_LOSS
from utilities.domains import OwnDomain


def check(opt) -> None:
    """See `trainers.check`."""
    _classifier.check(opt)


class Trainer(_classifier.ClassifyingTrainer):
    """`metric_loss` = the criterion on the embeddings; `classifier_loss` = `--classifier_loss` of a linear layer's
    logits and the labels.

    The logits are an evaltype, `classifier_logits`.
    """

    LOSSES = (METRIC_LOSS, CLASSIFIER_LOSS)

    def __init__(self, opt, network, criterion):
        super().__init__(opt, network, criterion)
        self.classifier_loss = _classifier.loss_of(opt, opt.n_classes)
        self.own_domain = OwnDomain(opt.separate_classifiers)

    def losses(self, outputs: dict, batch) -> dict:
        """See `trainers._trainer.Trainer.losses`."""
        logits = self.own_domain(outputs[LOGITS], batch.labels)
        return {**super().losses(outputs, batch), CLASSIFIER_LOSS: self.classifier_loss(logits, batch.labels)}

    def param_groups(self, opt) -> list[dict]:
        """The classifier at `--classifier_lr` and `--decay`."""
        return [_classifier.param_group(self.evaluated_heads, opt)]
