"""The embedding learns from wider ones of the same backbone: simultaneous similarity-based self-distillation (Roth et
al., arXiv 2009.08348).

It differs from the authors' code in one point: similarities are those of the embedding as the network gives it, so that
a network without `_normalize` is distilled as it is evaluated; their code brings it to unit length first. With
`_normalize` the two are the same.
"""

import torch
from torch.nn.functional import kl_div

import criteria
from options.flags import Flag
from trainers import _heads
from trainers._trainer import METRIC_LOSS, features_for
from trainers._trainer import Trainer as Base
from utilities.errors import UserError
from utilities.numbers import WIDEST, number, whole
from utilities.parameter_groups import criterion_groups
from utilities.shapes import pair
from utilities.tensors import normalize

TARGET_LOSS = "target_loss"
DISTILL_LOSS = "distill_loss"
FEATURE_LOSS = "feature_loss"
# followed by a number: the name of a head's output, before it is brought to unit length
HEAD = "s2sd_head_"
FEATURES = "s2sd_features"
# flag of the loss inside this trainer, see criteria/__init__.py
INNER_LOSS = "s2sd_target"

FLAGS = {
    "dims": Flag(
        whole(1, WIDEST), [512, 1024, 1536, 2048], "dimensions of the target embeddings", nargs="+", metavar="D"
    ),
    "pool_both": Flag(
        bool, False, "target embeddings see average plus maximum of the map before pooling, not the pooled features"
    ),
    "target": Flag(
        str,
        None,
        "criterion of the target embeddings, each with its own parameters and miner of --batch_mining, or the "
        "miner it needs (unset: --loss)",
        metavar="LOSS",
    ),
    "T": Flag(number(1e-6), 1, "temperature of the similarities that are distilled"),
    "features": Flag(bool, False, "distil the similarities of the pooled features too: feature_loss"),
    "features_after": Flag(whole(0), 1000, "steps after which feature_loss begins", rules={"needs": "s2sd_features"}),
}


def derived(opt) -> dict:
    """The criterion of the target embeddings is that of the embeddings; and its flags."""
    return {"s2sd_target": opt.loss, **criteria.REGISTRY.derived(opt.s2sd_target or opt.loss, opt)}


def check(opt) -> None:
    """See `trainers.check`."""
    criteria.REGISTRY.module(opt.s2sd_target)


class Trainer(Base):
    """`metric_loss` = L(x, y); `target_loss` = mean_i L_i(h_i, y) of the heads h_i,
    each a unit vector of an MLP on the pooled features;

    `distill_loss` = mean_i KL_i, KL_i = T^2 / B sum over rows of KL(softmax(S_i / T) || softmax(S / T)), S = x x^T, S_i
    = h_i h_i^T without gradient; `feature_loss` likewise with the unit pooled features in place of h_i. By default
    their sum is weighted as (metric_loss + target_loss) / 2 + 50 distill_loss + 50 feature_loss.
    """

    GUIDES = False
    WEIGHTS = {METRIC_LOSS: 0.5, TARGET_LOSS: 0.5, DISTILL_LOSS: 50.0}
    LOSSES = (METRIC_LOSS, TARGET_LOSS, DISTILL_LOSS)

    def __init__(self, opt, network, criterion):
        super().__init__(opt, network, criterion)
        self.temperature = opt.s2sd_T
        self.pools_both = opt.s2sd_pool_both
        self.features_after = None
        if opt.s2sd_features:
            self.features_after = opt.s2sd_features_after
            self.LOSSES = (*self.LOSSES, FEATURE_LOSS)
            self.WEIGHTS = {**self.WEIGHTS, FEATURE_LOSS: 50.0}
        self.steps = 0
        width = self._map_width(opt) if self.pools_both else _heads.feature_width(network)
        self.heads = torch.nn.ModuleList(_mlp(width, dimension) for dimension in opt.s2sd_dims)
        target = opt.s2sd_target
        learned = opt.loss_learn if target == opt.loss else []
        self.targets = torch.nn.ModuleList()
        for dimension in opt.s2sd_dims:
            self.targets.append(criteria.select(target, opt, embed_dim=dimension, loss_learn=learned))

    def _map_width(self, opt) -> int:
        """Channels of the map before pooling, measured by embedding one blank image.

        Raises UserError where the network gives no map.
        """
        parameter = next(self.network.parameters())
        was_training = self.network.training
        height, width = pair(opt.crop_size or self.network.input_size)
        self.network.eval()
        with torch.no_grad():
            features = self.network(torch.zeros(1, 3, height, width, dtype=torch.uint8, device=parameter.device))[1]
        self.network.train(was_training)
        if getattr(features.get("spatial"), "ndim", 0) != 4:
            name = getattr(self.network, "name", type(self.network).__name__)
            raise UserError(
                f"--s2sd_pool_both: {name} gives no map before its pooling. Leave it out, or take resnet50, "
                "googlenet, bninception, conv4"
            )
        return features["spatial"].shape[1]

    def outputs(self, images: torch.Tensor) -> dict:
        """The base's outputs, the heads' input and the heads' outputs.

        The input is `s2sd_features` `(B, F)`, the outputs are `s2sd_head_<i>` `(B, D_i)`.
        """
        embeddings, activations = self.network(images)
        outputs = {**self.named(embeddings, activations), **self.added_outputs(images)}
        if self.pools_both:
            features = activations["spatial"].mean((2, 3)) + activations["spatial"].amax((2, 3))
        elif "pooled" in outputs:
            features = outputs["pooled"]
        else:
            raise UserError(
                "--trainer s2sd: the network gives no 'pooled' among its features, which the target embeddings see"
            )
        outputs[FEATURES] = features
        for i, head in enumerate(self.heads):
            outputs[f"{HEAD}{i}"] = head(features)
        return outputs

    def losses(self, outputs: dict, batch) -> dict:
        """See `trainers._trainer.Trainer.losses`."""
        similarities = _similarities(outputs["embeddings"])
        targets = [normalize(outputs[f"{HEAD}{i}"]) for i in range(len(self.heads))]
        layer = getattr(self.network, "last_linear", None)
        values = []
        for loss, head in zip(self.targets, targets, strict=True):
            values.append(loss(batch=head, labels=batch.labels, f_embed=layer, **features_for(loss, outputs)))
        losses = {
            **super().losses(outputs, batch),
            TARGET_LOSS: torch.stack(values).mean(),
            DISTILL_LOSS: torch.stack([self._distilled(similarities, head) for head in targets]).mean(),
        }
        if self.features_after is not None and self.steps >= self.features_after:
            losses[FEATURE_LOSS] = self._distilled(similarities, normalize(outputs[FEATURES]))
        return losses

    def _distilled(self, similarities: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """T^2 / B times the sum over rows of KL(teacher's || the embedding's) similarities `(B, B)`.

        The teacher gets no gradient.
        """
        teacher_shares = torch.softmax(_similarities(teacher.detach()) / self.temperature, dim=1)
        log_shares = torch.log_softmax(similarities / self.temperature, dim=1)
        return self.temperature**2 / len(similarities) * kl_div(log_shares, teacher_shares, reduction="sum")

    def param_groups(self, opt) -> list[dict]:
        """The heads at `--lr` without decay, as in the authors' code; each target criterion like that of --loss."""
        groups = [{"params": list(self.heads.parameters()), "name": "s2sd_heads", "weight_decay": 0}]
        for i, target in enumerate(self.targets):
            groups += criterion_groups(target, opt, f"s2sd_target_{i}")
        return groups

    def after_step(self) -> None:
        """Count the steps, which delay feature_loss."""
        self.steps += 1

    def get_extra_state(self) -> torch.Tensor:
        """The number of steps, for checkpoints. Not a buffer, as reading one on a GPU would wait for the device."""
        return torch.tensor(self.steps)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """The counterpart of `get_extra_state`."""
        self.steps = int(state)


def _mlp(width: int, dimension: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Linear(width, dimension), torch.nn.ReLU(), torch.nn.Linear(dimension, dimension)
    )


def _similarities(x: torch.Tensor) -> torch.Tensor:
    return x @ x.T  # (B, B)
