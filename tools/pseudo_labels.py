"""The labels that an ImageNet classifier predicts for the training classes,
as vectors for --language_vectors (PLG; arXiv 2203.08543).

`python -m evaluation.pseudo_labels --dataset cub200 --classifier tv:resnet50 --vectors names.npz --out cub200.npz`
gives each training class the `--top` labels of the largest mean logits over its images. names.npz holds `vectors` (L,
E), a text model's for the classifier's L labels in their order, such as CLIP's for "a photo of a {}" with a label's
first synonym. Without --vectors the rows of the classifier's own last layer stand in: that needs no text model and is
not the paper's method. Takes the data set's flags that main.py takes.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import datasets
from architectures import _timm, _torchvision
from architectures._checkpoints import content_of
from engine.loading import evaluation_loader
from engine.runtime import Runtime
from tools._command import add_data_flags, parser_of_page, words_of
from utilities.console import propose, say, without_flags
from utilities.errors import UserError
from utilities.files import expanded, write_npz
from utilities.numbers import whole
from utilities.reading import Unreadable, parsing, read_arrays, reason_of
from utilities.weights import refuse_faults

PROGRAM = "python -m evaluation.pseudo_labels"
# flags that main.py does not have, or that mean another network there -> number of values
OWN_FLAGS = {"--out": 1, "--classifier": 1, "--weights": 1, "--vectors": 1, "--top": 1}


class Classifier(NamedTuple):
    """A network with its classifier, in evaluation mode, and how its images are prepared: side, mean and standard
    deviation of the input, interpolation of the resize.
    """

    network: torch.nn.Module
    size: int
    mean: tuple
    std: tuple
    interpolation: str


def parser() -> argparse.ArgumentParser:
    """The command's own flags, and those of the data set."""
    parser = parser_of_page(PROGRAM, __doc__)
    add = parser.add_argument
    help_out = "the .npz file to write: names (C,), indices and scores (C, K), vectors (C, K, E)"
    add("--out", required=True, metavar="FILE", help=help_out)
    help_classifier = "a network of torchvision (tv:) or timm (timm:) with its classifier (default: tv:resnet50)"
    add("--classifier", default="tv:resnet50", metavar="NAME", help=help_classifier)
    help_weights = "a local state dict of the whole classifier (default: the published one)"
    add("--weights", default=None, metavar="FILE", help=help_weights)
    help_vectors = "an .npz file with vectors (L, E) of the classifier's L labels (default: rows of its last layer)"
    add("--vectors", default=None, metavar="FILE", help=help_vectors)
    add("--top", type=whole(1, 1000), default=5, metavar="K", help="pseudo-labels of a class (default: 5)")
    add_data_flags(parser)
    return parser


def classifier(name: str, weights: str | None) -> Classifier:
    """The classifier `name` with published weights, or those of a file.

    Raises UserError for an unknown name, and if the weights cannot be had.
    """
    package, _, constructor = name.partition(":")
    names = {"tv": _torchvision.names, "timm": _timm.names}
    if package not in names or constructor not in names[package]():
        raise UserError(
            f"--classifier {name}: expected tv:NAME of torchvision or timm:NAME of timm, such as tv:resnet50"
        )
    build = _of_timm if package == "timm" else _of_torchvision
    try:
        built = build(constructor, weights)
        if weights:
            _load(built.network, weights)
    except Exception as error:
        # hosts and files of weights fail in all kinds of ways
        reason = error.reason if isinstance(error, Unreadable) else reason_of(error)
        raise UserError(
            f"--classifier {name}: its weights cannot be had ({reason}): --weights FILE names a local state dict"
        ) from None
    built.network.eval()
    return built


def _of_timm(constructor: str, weights: str | None) -> Classifier:
    config = _timm.data_config(constructor)
    network = _timm.package().create_model(constructor, pretrained=weights is None)
    return Classifier(network, config.input_size[-1], config.mean, config.std, config.interpolation)


def _of_torchvision(constructor: str, weights: str | None) -> Classifier:
    import torchvision

    published = _torchvision.published(constructor)
    arguments = {"weights": None if weights else published}
    if weights and constructor in ("googlenet", "inception_v3"):
        # torchvision sets this by itself only with the published weights
        arguments["transform_input"] = True
    network = torchvision.models.get_model(constructor, **arguments)
    transforms = published.transforms()
    size = transforms.crop_size[0]
    return Classifier(network, size, transforms.mean, transforms.std, transforms.interpolation.value)


def _load(network: torch.nn.Module, weights: str) -> None:
    """Load the whole classifier from a file."""
    state = content_of(weights)
    if "_conv_stem.weight" in state:
        state = _timm.renamed_efficientnet(state, network)
    network.load_state_dict(state)
    refuse_faults(state, network, f"--weights {weights}")


@torch.no_grad()
def mean_logits(classifier: Classifier, split, opt, runtime) -> torch.Tensor:
    """Mean logits `(C, L)` of the classes of a split, float64."""
    network = classifier.network
    dtype = next(network.parameters()).dtype
    mean = torch.tensor(classifier.mean, dtype=dtype, device=runtime.device).view(3, 1, 1)
    std = torch.tensor(classifier.std, dtype=dtype, device=runtime.device).view(3, 1, 1)
    sums = None
    counts = torch.zeros(split.n_classes, 1, dtype=torch.float64)
    for batch in evaluation_loader(split, opt):
        images = runtime.to_device(batch.images).to(dtype) / 255
        logits = network((images - mean) / std).double().cpu()
        if sums is None:
            sums = torch.zeros(split.n_classes, logits.shape[1], dtype=torch.float64)
        sums.index_add_(0, batch.labels, logits)
        counts.index_add_(0, batch.labels, torch.ones(len(logits), 1, dtype=torch.float64))
    return sums / counts


def label_vectors(path: str | None, network: torch.nn.Module, n_labels: int) -> np.ndarray:
    """Vectors `(L, E)` of the classifier's labels: the file's, else the rows of its last linear layer.
    Raises UserError without any.
    """
    return rows_of_last_layer(network, n_labels) if path is None else read_vectors(path, n_labels)


def rows_of_last_layer(network: torch.nn.Module, n_labels: int) -> np.ndarray:
    """The weights `(L, E)` of the last linear layer with `n_labels` outputs. Raises UserError without such a layer."""
    rows = None
    for layer in network.modules():
        if isinstance(layer, torch.nn.Linear) and layer.out_features == n_labels:
            rows = layer.weight
    if rows is None:
        raise UserError("the classifier has no last linear layer whose rows could stand in: give --vectors")
    return rows.detach().cpu().numpy()


def read_vectors(path: str, n_labels: int) -> np.ndarray:
    """The vectors `(L, E)` of `--vectors`. Raises UserError for a file of another form."""
    try:
        with parsing(path):
            vectors = read_arrays(path, ["vectors"])["vectors"].astype(np.float32)
    except Unreadable as error:
        raise UserError(f"--vectors {path}: not an .npz file with vectors (L, E) ({error.reason})") from None
    if vectors.ndim != 2 or len(vectors) != n_labels:
        raise UserError(
            f"--vectors {path}: vectors {vectors.shape}: expected a row for each of the classifier's {n_labels} labels"
        )
    return vectors


def make(opt) -> Path:
    """Write the file of `--out`. Returns its path."""
    runtime = Runtime(opt).begin()
    if opt.evaluate_all or datasets.is_test_only(opt):
        raise UserError(
            "pseudo-labels are of training classes, and there are none: take another data set, or leave out "
            "--evaluate_all"
        )
    datasets.locate(opt)
    chosen = classifier(opt.classifier, opt.weights)
    shape = {"input_size": chosen.size, "interpolation": chosen.interpolation}
    split = datasets.select(opt.dataset, opt, opt.source_path, **shape)["evaluation"]
    chosen.network.to(runtime.device)
    logits = mean_logits(chosen, split, opt, runtime)
    n_labels = logits.shape[1]
    if opt.top > n_labels:
        raise UserError(f"--top {opt.top}: the classifier has {n_labels} labels")
    vectors = label_vectors(opt.vectors, chosen.network, n_labels)
    scores, indices = logits.topk(opt.top)
    names = np.array([split.class_names[label] for label in range(split.n_classes)])
    arrays = {
        "names": names,
        "indices": indices.numpy(),
        "scores": scores.numpy(),
        "vectors": vectors[indices.numpy()],
        "classifier": opt.classifier,
    }
    path = expanded(opt.out)
    write_npz(path, arrays)
    source = f"vectors of {opt.vectors}"
    if opt.vectors is None:
        source = "the classifier's own rows, which are not the paper's text vectors"
    say(f"written to {path}: {opt.top} pseudo-labels of {len(names)} training classes, with {source}")
    return path


def main(argv: list[str] | None = None) -> Path:
    """Run the command. Returns the file."""
    words = words_of(argv)
    path = make(parser().parse_args(words))
    propose("python", "main.py", *without_flags(words, OWN_FLAGS), "--language_vectors", path)
    return path
