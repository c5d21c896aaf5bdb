"""What an ImageNet classifier takes the training classes for, as vectors for --language_vectors (PLG; arXiv
2203.08543).

`python -m evaluation.pseudo_labels --dataset cub200 --classifier tv:resnet50 --vectors names.npz --out cub200.npz`
gives each training class the `--top` labels of the largest mean logits over its images. names.npz holds `vectors` (L,
E), a text model's for the classifier's L labels in their order, such as CLIP's for "a photo of a {}" with a label's
first synonym. Without --vectors the rows of the classifier's own last layer stand in: that needs no text model and is
not the paper's method. Takes the data set's flags that main.py takes.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

import datasets
from architectures import _timm, _torchvision
from architectures._checkpoints import content_of
from engine.loading import evaluation_loader
from engine.runtime import Runtime
from tools.oodml import SETTINGS
from utilities import flags
from utilities.console import propose, say, without_flags
from utilities.errors import OneLineParser, UserError
from utilities.files import expanded, write_npz
from utilities.numbers import whole
from utilities.reading import Unreadable, parsing, read_arrays, reason_of
from utilities.weights import refuse_faults

PROGRAM = "python -m evaluation.pseudo_labels"
# Flags that main.py does not have, or that mean another network there -> number of values.
OWN_FLAGS = {"--out": 1, "--classifier": 1, "--weights": 1, "--vectors": 1, "--top": 1}


def parser() -> argparse.ArgumentParser:
    """The command's own flags, and those of the data set."""
    parser = OneLineParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--out",
        required=True,
        metavar="FILE",
        help="the .npz file to write: names (C,), indices and scores (C, K), vectors (C, K, E)",
    )
    add(
        "--classifier",
        default="tv:resnet50",
        metavar="NAME",
        help="a network of torchvision (tv:) or timm (timm:) with its classifier (default: tv:resnet50)",
    )
    add(
        "--weights",
        default=None,
        metavar="FILE",
        help="a local state dict of the whole classifier (default: the published one)",
    )
    add(
        "--vectors",
        default=None,
        metavar="FILE",
        help="an .npz file with vectors (L, E) of the classifier's L labels (default: rows of its last layer)",
    )
    add("--top", type=whole(1, 1000), default=5, metavar="K", help="pseudo-labels of a class (default: 5)")
    add("--eval_bs", type=whole(1, 10**6), default=64, help="images a batch (default: 64)")
    add("--eval_kernels", type=whole(0), default=4, help="worker processes that load images (default: 4)")
    add("--gpu", type=whole(0), nargs=1, default=[0], help="which GPU, where there is one (default: 0)")
    flags.add_arguments(parser)
    datasets.REGISTRY.add_arguments(parser)
    return parser


def classifier(name: str, weights: str | None) -> tuple[torch.nn.Module, int, tuple, tuple, str]:
    """The network with its classifier, in evaluation mode; side of its images, mean and standard deviation of its
    input, interpolation of a resize.

    Raises UserError for an unknown name, or weights that cannot be had.
    """
    package, _, constructor = name.partition(":")
    known = {"tv": _torchvision.names, "timm": _timm.names}
    if package not in known or constructor not in known[package]():
        raise UserError(
            f"--classifier {name}: expected tv:NAME of torchvision or timm:NAME of timm, such as tv:resnet50"
        )
    try:
        found = _loaded(package, constructor, weights)
    except Exception as error:  # hosts and files of weights fail in all kinds of ways
        reason = error.reason if isinstance(error, Unreadable) else reason_of(error)
        raise UserError(
            f"--classifier {name}: its weights cannot be had ({reason}): --weights FILE names a local state dict"
        ) from None
    network, *others = found
    return network.eval(), *others


def _loaded(package: str, constructor: str, weights: str | None) -> tuple:
    """See `classifier`. Raises errors of all kinds where the weights cannot be had."""
    if package == "timm":
        config = _timm.data_config(constructor)
        network = _timm.package().create_model(constructor, pretrained=weights is None)
        size = config.input_size[-1]
        mean = config.mean
        std = config.std
        interpolation = config.interpolation
    else:
        import torchvision

        record = _torchvision.published(constructor)
        own_input = (
            {"transform_input": True} if weights and constructor in ("googlenet", "inception_v3") else {}
        )  # as with their own weights
        network = torchvision.models.get_model(constructor, weights=None if weights else record, **own_input)
        transforms = record.transforms()
        size = transforms.crop_size[0]
        mean = transforms.mean
        std = transforms.std
        interpolation = transforms.interpolation.value
    if weights:
        state = content_of(weights)
        state = _timm.renamed_efficientnet(state, network) if "_conv_stem.weight" in state else state
        network.load_state_dict(state)
        refuse_faults(state, network, f"--weights {weights}")
    return network, size, mean, std, interpolation


@torch.no_grad()
def mean_logits(network, mean, std, split, opt, runtime) -> torch.Tensor:
    """Mean logits `(C, L)` of the classes of a split, float64."""
    sums = None
    counts = torch.zeros(split.n_classes, 1, dtype=torch.float64)
    shape = (3, 1, 1)
    dtype = next(network.parameters()).dtype
    mean, std = (torch.tensor(values, dtype=dtype, device=runtime.device).view(shape) for values in (mean, std))
    for batch in evaluation_loader(split, opt):
        logits = network((runtime.to_device(batch.images).to(dtype) / 255 - mean) / std).double().cpu()
        sums = torch.zeros(split.n_classes, logits.shape[1], dtype=torch.float64) if sums is None else sums
        sums.index_add_(0, batch.labels, logits)
        counts.index_add_(0, batch.labels, torch.ones(len(logits), 1, dtype=torch.float64))
    return sums / counts


def label_vectors(path: str | None, network: torch.nn.Module, n_labels: int) -> np.ndarray:
    """Vectors `(L, E)` of the classifier's labels: the file's, else the rows of its last linear layer. Raises UserError
    without any.
    """
    if path is None:
        layers = [
            layer
            for layer in network.modules()
            if isinstance(layer, torch.nn.Linear) and layer.out_features == n_labels
        ]
        if not layers:
            raise UserError("the classifier has no last linear layer whose rows could stand in: give --vectors")
        return layers[-1].weight.detach().cpu().numpy()
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


def make(asked, opt) -> Path:
    """Write the file. `asked`: the command's own flags; `opt`: those of data and runtime."""
    runtime = Runtime(opt).begin()
    if opt.evaluate_all or datasets.is_test_only(opt):
        raise UserError(
            "pseudo-labels are of training classes, and there are none: take another data set, or leave out "
            "--evaluate_all"
        )
    datasets.locate(opt)
    network, size, mean, std, interpolation = classifier(asked.classifier, asked.weights)
    split = datasets.select(opt.dataset, opt, opt.source_path, input_size=size, interpolation=interpolation)[
        "evaluation"
    ]
    logits = mean_logits(network.to(runtime.device), mean, std, split, opt, runtime)
    if asked.top > logits.shape[1]:
        raise UserError(f"--top {asked.top}: the classifier has {logits.shape[1]} labels")
    vectors, (scores, indices) = label_vectors(asked.vectors, network, logits.shape[1]), logits.topk(asked.top)
    path = expanded(asked.out)
    names = np.array([split.class_names[label] for label in range(split.n_classes)])
    write_npz(
        path,
        dict(
            names=names,
            indices=indices.numpy(),
            scores=scores.numpy(),
            vectors=vectors[indices.numpy()],
            classifier=asked.classifier,
        ),
    )
    of = (
        "the classifier's own rows, which are not the paper's text vectors"
        if asked.vectors is None
        else f"vectors of {asked.vectors}"
    )
    say(f"written to {path}: {asked.top} pseudo-labels of {len(names)} training classes, with {of}")
    return path


def main(argv: list[str] | None = None) -> Path:
    """Run the command. Returns the file."""
    argv = sys.argv[1:] if argv is None else argv
    asked = parser().parse_args(argv)
    path = make(asked, argparse.Namespace(**SETTINGS, **vars(asked)))
    propose("python", "main.py", *without_flags(argv, OWN_FLAGS), "--language_vectors", path)
    return path
