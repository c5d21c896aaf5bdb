"""--teacher: a run, a network of timm or a file of embeddings, as `distill_loss` takes it; --guide: such a file."""

import hashlib

import torch

import architectures
import datasets
from engine.random_state import random_states, set_random_states
from evaluation.old_embeddings import of_file
from runs import Embedder, RunFolder
from trainers import _guide
from trainers._distill import EMBEDDINGS, FLAG, OF_TEACHER, Teacher, is_file
from trainers._heads import LOGITS
from utilities.errors import UserError
from utilities.evaltypes import MAIN, of_type
from utilities.files import expanded
from utilities.provenance import sha256
from utilities.shapes import side_or_pair
from utilities.weights import add_to_hash

TIMM = "timm:"


class TeacherNetwork(torch.nn.Module):
    """A network that stays in evaluation mode: images `(B, 3, H, W)` -> `teacher_embeddings`, `teacher_logits`.

    evaltype: which of its embeddings.
    """

    def __init__(self, network: torch.nn.Module, evaltype: str = MAIN):
        super().__init__()
        self.network = network
        self.evaltype = evaltype
        self.eval()
        self.requires_grad_(False)

    def forward(self, images: torch.Tensor) -> dict:
        """Float32 rows by name; logits where the network has them."""
        embeddings = self.network(images)[0]
        if not isinstance(embeddings, dict):
            return {EMBEDDINGS: embeddings.float()}
        outputs = {EMBEDDINGS: of_type(embeddings, self.evaltype).float()}
        if LOGITS in embeddings:
            outputs[OF_TEACHER] = embeddings[LOGITS].float()
        return outputs


def of_flags(opt, network: torch.nn.Module, splits: dict, runtime) -> dict:
    """The `teacher` and the `guide` that the flags name, for `engine.assembly.build_training`; see the functions."""
    return {"teacher": load(opt, network, splits, runtime), "guide": load_guide(opt, splits)}


def load(opt, network: torch.nn.Module, splits: dict, runtime) -> Teacher | None:
    """The teacher that the flags name; None: there is none. Random states stay as they are.

    Args:
        network: the student. splits: what `datasets.select` gives.

    Raises UserError for a teacher that does not serve, such as one that sees images of another size.
    """
    if not opt.teacher:
        return None
    preparation = datasets.preparation(opt, network)
    states = random_states()
    try:
        if is_file(opt.teacher):
            return _of_file(opt.teacher, splits["evaluation"])
        if opt.teacher.startswith(TIMM):
            return _of_timm(opt.teacher, preparation, runtime.device)
        return _of_run(opt, preparation, runtime.device)
    finally:
        set_random_states(states)


def load_guide(opt, splits: dict) -> _guide.GuideFile | None:
    """The features of --guide for the training images; None: there is none. Raises UserError as `of_file` does."""
    if not opt.guide:
        return None
    path = expanded(opt.guide)
    if path.suffix != ".npz":
        raise UserError(f"{_guide.FLAG} {opt.guide}: not an .npz file")
    features = of_file(str(path), splits["evaluation"], _guide.FLAG)["features"]
    return _guide.GuideFile(opt.guide, sha256(path), torch.from_numpy(features))


def _of_file(source: str, images) -> Teacher:
    """What a file holds for the training `images`: features, and logits where it has them."""
    path = expanded(source)
    arrays = of_file(str(path), images, FLAG, ("logits",))
    rows = {EMBEDDINGS: torch.from_numpy(arrays["features"])}
    n_classes = None
    if "logits" in arrays:
        rows[OF_TEACHER] = torch.from_numpy(arrays["logits"])
        n_classes = arrays["logits"].shape[1]
    return Teacher(source, sha256(path), arrays["features"].shape[1], n_classes, rows=rows)


def _of_timm(source: str, preparation, device) -> Teacher:
    """The pooled features of a network of timm with its published weights, made for images of the student's size."""
    if len(preparation.size) == 1:
        raise UserError(
            f"{FLAG} {source} sees images, the student {_seen(preparation.size)}: give a run on these, or a file of "
            "embeddings"
        )
    network = architectures.select(source, crop_size=side_or_pair(preparation.size), embed_dim=0)
    return _teacher(source, TeacherNetwork(network), preparation, device)


def _seen(size: tuple[int, ...]) -> str:
    """What a network sees, by the size of its input."""
    return f"rows of {size[0]} features" if len(size) == 1 else f"images of {size[0]} x {size[1]}"


def _of_run(opt, preparation, device) -> Teacher:
    """The selected checkpoint of a run, with its classifier where its logits are compared."""
    folder = expanded(opt.teacher)
    if not folder.is_dir():
        raise UserError(f"{FLAG} {opt.teacher}: neither the folder of a run, {TIMM}NAME nor an .npz file")
    embedder = Embedder(folder, device=device)
    of_teacher = tuple(embedder.preparation.size)
    if of_teacher != tuple(preparation.size):
        size = " x ".join(map(str, preparation.size))
        raise UserError(
            f"{FLAG} {opt.teacher} sees {_seen(of_teacher)}, the student of {size}: both see the same images, of one "
            "--crop_size, or the same rows"
        )
    network = embedder.network
    if "logits" in opt.distill:
        network = RunFolder(folder).network(evaltypes=[embedder.evaltype, LOGITS])
    return _teacher(opt.teacher, TeacherNetwork(network, embedder.evaltype), preparation, device)


def _teacher(source: str, network: TeacherNetwork, preparation, device) -> Teacher:
    """A network on the device, tried on a blank image."""
    network = network.to(device)
    with torch.no_grad():
        outputs = network(preparation.blank(1).to(device))
    n_classes = None
    if OF_TEACHER in outputs:
        n_classes = outputs[OF_TEACHER].shape[1]
    return Teacher(source, _hash_of(network), outputs[EMBEDDINGS].shape[1], n_classes, network)


def _hash_of(network: TeacherNetwork) -> str:
    """SHA-256 of the weights and of the embedding's name."""
    digest = hashlib.sha256(network.evaltype.encode())
    add_to_hash(digest, network)
    return digest.hexdigest()
