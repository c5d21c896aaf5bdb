"""A teacher beside any trainer: `distill_loss` draws the batch's embeddings to those of a network that is not trained.

The losses are in `trainers/_likeness.py`. A program gives the teacher as `opt.loaded_teacher` (`evaluation.teachers`).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from options.flags import Flag, roles
from trainers import _likeness
from trainers._added_losses import AddedLoss
from trainers._heads import LOGITS, width
from utilities.errors import UserError
from utilities.numbers import whole
from utilities.registry import Registry
from utilities.words import parse_weights

NAME = "distill_loss"
# the name in place of NAME beside a trainer that has a distill_loss of its own, as s2sd
NAME_BESIDE = "teacher_loss"
FLAG = "--teacher"
# names among a trainer's outputs
EMBEDDINGS = "teacher_embeddings"
OF_TEACHER = "teacher_logits"

# weights in the sum, those of the authors where they give one
WEIGHTS = {
    "rkd_distance": 1.0,
    "rkd_angle": 2.0,
    "darkrank": 1.0,
    "pkt": 1.0,
    "sp": 3000.0,
    "regression": 1.0,
    "logits": 1.0,
}

FLAGS = {
    FLAG: Flag(
        str,
        None,
        "distill_loss (beside s2sd: teacher_loss) in addition to the criterion's: draw the embeddings to those of a "
        "teacher, which sees the same images: the folder of a run; timm:NAME with its published weights; or an .npz "
        "file with features (N, E) and paths (N,) of the training images, for --augmentation none",
        metavar="RUN|timm:NAME|FILE.npz",
        role=roles.METHOD.but(moves=True),
        rules={"needs": "distill"},
    ),
    "--distill": Flag(
        str,
        [],
        "what of the teacher: the batch's distances or angles (RKD, for an --arch without _normalize), the order of "
        "the nearest images (darkrank), neighbours' probabilities (pkt), Gram matrices (sp), its embeddings behind a "
        "trained linear map (regression), its classifier's logits (logits)",
        choices=list(WEIGHTS),
        nargs="*",
        rules={"needs": "teacher"},
    ),
    "--distill_weights": Flag(
        str,
        [],
        "weights of the losses of --distill in distill_loss (default: rkd_angle 2, sp 3000, others 1)",
        nargs="*",
        metavar="NAME=W",
        rules={"needs": "teacher"},
    ),
    "--distill_nearest": Flag(
        whole(1, 10**6),
        4,
        "how many of the teacher's nearest images darkrank puts in order",
        metavar="L",
        rules={"only_with": {"distill": ["darkrank"]}},
    ),
}


class Teacher(NamedTuple):
    """A loaded teacher: a network, or what one gave for the training images.

    Attributes:
        source: its name on the command line. fingerprint: SHA-256 of its weights, or of the file.
        width: dimensions E of its embeddings. n_classes: C of its logits `(B, C)`; None: it has none.
        network: images `(B, 3, H, W)` -> dict of `teacher_embeddings` `(B, E)` and, where it has them,
        `teacher_logits`, in evaluation mode; None: `rows` has them.
        rows: name -> tensor with a row for each training image, in the order of their indices, on the CPU.
    """

    source: str
    fingerprint: str
    width: int
    n_classes: int | None = None
    network: Callable | None = None
    rows: dict | None = None


def is_file(source: str) -> bool:
    """Whether `--teacher` names a file of embeddings."""
    return source.endswith(".npz")


def check(opt, has_logits: bool) -> None:
    """Refuse a teacher that would see other images, and losses that cannot act. Raises UserError.

    has_logits: whether the trainer has a classifier's logits among its outputs.
    """
    if not opt.teacher:
        return
    weights_of(opt)
    if is_file(opt.teacher):
        if opt.augmentation != "none":
            raise UserError(
                f"{FLAG} {opt.teacher}: its embeddings are of whole images, not of augmented ones: add "
                "--augmentation none"
            )
    elif opt.feature_cache:
        raise UserError(
            f"{FLAG} {opt.teacher}: under --feature_cache a step has no images for it: give a file of its embeddings"
        )
    if "logits" not in opt.distill:
        return
    if not has_logits:
        raise UserError("--distill logits compares the logits of a classifier: take --trainer classifier")
    if opt.classifier_layer == "circle_softmax":
        raise UserError("--distill logits: --classifier_layer circle_softmax gives cosines, not logits: take linear")


def weights_of(opt) -> dict[str, float]:
    """Name -> weight of each of `--distill`. Raises UserError for the weight of another."""
    weights = {name: WEIGHTS[name] for name in opt.distill}
    for name, weight in parse_weights(opt.distill_weights, "--distill_weights").items():
        if name not in weights:
            raise UserError(f"--distill_weights {name}: --distill has {', '.join(weights)}")
        weights[name] = weight
    return weights


class Distill(AddedLoss):
    """`distill_loss`: the weighted sum of the losses of `--distill`, of the step's embeddings and the teacher's.

    Beside a trainer that has a `distill_loss` it is called `teacher_loss`. The teacher's weights are not in
    checkpoints; its hash is, and a run does not go on with another one.
    """

    NAME = NAME
    FLAG = FLAG

    def __init__(self, opt, network: torch.nn.Module, criterion: torch.nn.Module):
        super().__init__()
        kind = Registry("trainers", "trainer").module(opt.trainer).Trainer
        if NAME in (getattr(kind, "LOSSES", None) or ()):
            self.NAME = NAME_BESIDE
        self.teacher = opt.loaded_teacher
        if self.teacher is None:
            raise UserError(f"{FLAG} {opt.teacher}: this program loads no teacher: take main.py")
        self.weights = weights_of(opt)
        self.nearest = opt.distill_nearest
        self.map = None
        if "regression" in self.weights:
            self.map = torch.nn.Linear(width(network, opt), self.teacher.width, bias=False)
        if "logits" in self.weights and self.teacher.n_classes != opt.n_classes:
            has = "no logits" if self.teacher.n_classes is None else f"logits of {self.teacher.n_classes} classes"
            raise UserError(f"--distill logits: {FLAG} {opt.teacher} has {has}, training has {opt.n_classes} classes")

    def outputs(self, images: torch.Tensor, named) -> dict:
        """What the teacher gives for the images; nothing where a file has it."""
        network = self.teacher.network
        if network is None:
            return {}
        with torch.no_grad():
            return network.to(images.device)(images)

    def loss(self, trainer, outputs: dict, batch) -> torch.Tensor:
        """See `trainers._added_losses.AddedLoss.loss`."""
        teacher = self._of_teacher(outputs, batch)
        embeddings = outputs["embeddings"]
        rows = teacher[EMBEDDINGS].to(embeddings)
        total = 0.0
        for name, weight in self.weights.items():
            if name == "regression":
                value = _likeness.regression(self.map(embeddings), rows)
            elif name == "darkrank":
                value = _likeness.darkrank(embeddings, rows, self.nearest)
            elif name == "logits":
                value = _likeness.logits(outputs[LOGITS], teacher[OF_TEACHER].to(outputs[LOGITS]))
            else:
                value = getattr(_likeness, name)(embeddings, rows)
            total = total + weight * value
        return total

    def _of_teacher(self, outputs: dict, batch) -> dict:
        """Name -> rows of the teacher for the images of the batch."""
        if self.teacher.network is None:
            indices = batch.indices.cpu()
            device = outputs["embeddings"].device
            return {
                name: rows.index_select(0, indices).to(device, non_blocking=True)
                for name, rows in self.teacher.rows.items()
            }
        if EMBEDDINGS not in outputs:
            raise UserError(
                f"{FLAG}: this --trainer calls the network itself and does not add `added_outputs(images)`: leave it "
                "out"
            )
        return outputs

    def get_extra_state(self) -> dict:
        """The teacher's hash, for checkpoints."""
        return {"teacher": self.teacher.fingerprint}

    def set_extra_state(self, state: dict) -> None:
        """Raises UserError where a checkpoint's teacher was another."""
        if state["teacher"] != self.teacher.fingerprint:
            raise UserError(f"its teacher had other weights than {FLAG} {self.teacher.source}")
