"""The criterion of --loss on the embeddings, nothing else."""

from trainers._trainer import METRIC_LOSS
from trainers._trainer import Trainer as Base


class Trainer(Base):
    """One scalar, `metric_loss`: the criterion on the batch."""

    LOSSES = (METRIC_LOSS,)
