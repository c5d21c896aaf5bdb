"""Frozen networks in one table: `python -m evaluation models --dataset cub200 --archs NAME … --save_path DIR`.

NAME is that of --arch, `timm:vit_base_patch14_dinov2.lvd142m`; in quotes, flags of the network or its images may
follow, "NAME --pool token_avg --crop_size 224". All flags of main.py that concern data, images and evaluation apply.
The features are the backbone's pooled ones, at unit length unless
--eval_no_normalize is given. They are kept in <save_path>/features (feature_store.py); the table goes to
<save_path>/<dataset> (results/frozen_networks.py).
"""

import argparse
import itertools
import re
import shlex
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tqdm import tqdm

import architectures
import datasets
import evaluation
import metrics
import parameters
from engine.runtime import Runtime
from evaluation import adapters, ensemble, feature_store, from_splits, knn, outputs, whitening
from results import frozen_networks
from results.formats import Table, file_name, to_text
from results.frozen_networks import Measured, Row
from tools._command import parser_of_page, refuse_torchrun
from tools._frozen_model import Facts, Model, Unavailable
from utilities.console import propose, wrapped
from utilities.errors import NotFinite, UserError
from utilities.files import refuse_unwritable
from utilities.numbers import whole
from utilities.reading import read_text

PROGRAM = "python -m evaluation models"
DEFAULT_METRICS = ["e_recall@1", "e_recall@2", "e_recall@4", "map_r", "map@100"]
# flags of one model beside those of its network
OF_ONE = {
    "crop_size",
    "resize_size",
    "eval_resize_size",
    "resize_mode",
    "eval_bs",
    "precision",
}


def parser() -> argparse.ArgumentParser:
    """The command's own flags; all others are main.py's."""
    parser = parser_of_page(PROGRAM, __doc__)
    add = parser.add_argument
    add(
        "--archs",
        nargs="+",
        default=[],
        metavar="NAME",
        help='names of networks, as --arch has them; "NAME --pool token" with flags of this one',
    )
    add(
        "--archs_file",
        default=None,
        metavar="FILE",
        help="a text file with such a name in each line; what follows # is passed over",
    )
    add("--ensembles", action="store_true", help="further rows: the features of each two of the networks side by side")
    add(
        "--pca",
        type=whole(1),
        default=None,
        metavar="N",
        help="further rows: the first N principal components of the training images, at unit length",
    )
    add(
        "--whitened",
        type=whole(1),
        default=None,
        metavar="N",
        help="further rows: the same, each component divided by its deviation",
    )
    help_adapters = (
        "further rows: an embedding layer trained on the features of the training images, or that and a hidden layer, "
        "by flags of training or ILIAS's recipe"
    )
    add("--adapters", nargs="+", choices=adapters.KINDS, default=[], help=help_adapters)
    add(
        "--feature_type",
        choices=feature_store.TYPES,
        default=feature_store.TYPES[0],
        help="how features are kept on disk (default: %(default)s)",
    )
    return parser


def read(argv: list[str]) -> tuple[Namespace, dict]:
    """The command's own flags, and label -> the flags of each network.
    Raises UserError, for unknown names with the nearest.
    """
    command_parser = parser()
    command_parser.exits = False
    flags, shared_flags = command_parser.parse_known_args(argv)
    if any(word.partition("=")[0] == "--arch" for word in shared_flags):
        raise UserError("--arch: name the networks by --archs")
    lines = list(flags.archs)
    if flags.archs_file is not None:
        lines += read_text(flags.archs_file, "--archs_file takes a text file with a name in each line").splitlines()
    entries = {}
    for line in lines:
        words = shlex.split(line, comments=True)
        if words:
            entries[" ".join(words)] = words
    if not entries:
        raise UserError("there is no network: name some by --archs or --archs_file")
    flags.rest = shared_flags
    return flags, {label: _options(words, shared_flags) for label, words in entries.items()}


def _options(words: list[str], shared_flags: list[str]):
    name, *flags = words
    allowed = architectures.REGISTRY.flags() | OF_ONE
    for word in flags:
        if word.startswith("--") and word[2:].partition("=")[0].removeprefix("no-") not in allowed:
            raise UserError(f"--archs {' '.join(words)!r}: {word} is not a flag of one network: give it once, for all")
    opt = parameters.resolve([*shared_flags, "--evaluate_only", "--no_train_metrics", "--arch", name, *flags])
    if opt.set_by.get("evaluation_metrics") == "derived":
        names = datasets.evaluation_metrics(opt) or DEFAULT_METRICS
        prefixes = (opt.matryoshka or [])[:-1]
        opt = opt.but(evaluation_metrics=metrics.at_prefixes(names, prefixes))
    if opt.pool is None and re.match(r"timm:vit_\w+_dinov3", name):
        # the authors of DINOv3 take the class token as features, timm the mean of all tokens
        opt = opt.but(pool="token")
    return opt.but(evaltypes=[evaluation.MAIN_EVALTYPE])


def training_options(shared_flags: list[str], network_opt):
    """The flags of an adapter of a network with the flags `network_opt`: those of `shared_flags`, else of the
    recipe. Raises UserError.
    """
    recipe = adapters.RECIPE
    if any(word.partition("=")[0] == "--config" for word in shared_flags):
        recipe = []
    # no image is read: neither scales nor augmentation
    fixed = [
        "--arch",
        f"{architectures.without_traits(network_opt.arch)}_normalize",
        *adapters.FROZEN,
    ]
    opt = parameters.resolve([*recipe, "--dataset", network_opt.dataset, *shared_flags, *fixed])
    if opt.scheduler == "plateau":
        raise UserError("--scheduler plateau: an adapter is not measured before it is trained: choose another one")
    # no worker processes: a row of features is in memory already
    return opt.but(kernels=0, eval_kernels=0)


def splits_for(opt, facts: Facts, fits: bool) -> dict:
    """Split -> data set of the images to embed: those of --splits_to_eval, and training images where these are searched
    or, if it `fits`, learned from.
    """
    splits = datasets.select(opt.dataset, opt, opt.source_path, **datasets.shape_for(facts))
    chosen = {}
    for split, loader in evaluation.loaders(splits, opt).items():
        chosen[split] = evaluation.without_seeds(loader.dataset)
    training = splits["evaluation"]
    if fits and training is None:
        raise UserError(
            f"--pca, --whitened, --adapters: --dataset {opt.dataset} has no training images to learn from: leave "
            "them out"
        )
    if fits or (training and any(_shares_classes(dataset, training) for dataset in chosen.values())):
        chosen["train"] = training
    return chosen


def _shares_classes(dataset, training) -> bool:
    """Whether all classes of a data set are in training, so that its images are classified by k-NN."""
    return bool(dataset.class_names) and set(dataset.class_names.values()) <= set(training.class_names.values())


def scored(name: str, embedded: dict, opt, runtime) -> dict:
    """Split -> metric -> value; of splits whose classes are all in training with `k-NN@k`. With --dump_embeddings a
    folder of the row's name gets its files.
    """
    if opt.dump_embeddings:
        folder = Path(opt.save_path) / opt.dataset / file_name(name)
        folder.mkdir(parents=True, exist_ok=True)
        for path in outputs.dump(folder, embedded, opt):
            print(f"written  {path}")
    scores = evaluation.score(embedded, opt, runtime)
    of_classes = {split: features for split, features in embedded.items() if features.dataset.class_names}
    if "train" not in of_classes:
        return scores
    device = str(runtime.device) if opt.evaluate_on_gpu else "cpu"
    against_training = opt.but(eval_reference_set=from_splits.TRAINING)
    for split, task in from_splits.tasks(of_classes, against_training, opt.evaltypes[0]).items():
        if split in scores and task.lists is None and np.isin(task.queries.labels, task.searched.labels).all():
            accuracies = knn.accuracies(metrics.EmbeddingSpace(**task.arguments(), device=device, progress=True))
            for k, value in accuracies.items():
                scores[split][f"k-NN@{k}"] = value
    return scores


def _row(model: Model, embedded: dict, runtime) -> Row:
    facts = model.facts
    size = next(iter(embedded.values())).dataset.transform.size
    return Row(
        model.label,
        facts.pooling,
        " x ".join(map(str, size)),
        facts.width,
        facts.parameters,
        model.images / model.seconds,
        facts.licence,
        model.remarks(),
        scored(model.label, embedded, model.opt, runtime),
        model.source,
    )


def _projected(name: str, row: Row, embedded: dict, dims: int, whitens: bool, opt, runtime) -> Row:
    project = whitening.pca(embedded["train"].features[evaluation.MAIN_EVALTYPE], dims, whitens)
    projected = {}
    for split, images in embedded.items():
        features = project(images.features[evaluation.MAIN_EVALTYPE])
        projected[split] = images._replace(features={evaluation.MAIN_EVALTYPE: features})
    return row._replace(name=name, width=dims, scores=scored(name, projected, opt, runtime))


def _adapted(name: str, row: Row, kind: str, embedded: dict, model: Model, runtime) -> Row:
    adapted = adapters.adapted(kind, embedded, model.training)
    width = next(iter(adapted.embedded["train"].features.values())).shape[1]
    scores = scored(name, adapted.embedded, model.opt.but(evaltypes=model.training.evaltypes), runtime)
    source = feature_store.digest({"features": row.source, "training": model.training.saved()})
    return row._replace(
        name=name,
        width=width,
        parameters=row.parameters + adapted.parameters,
        remarks=[*row.remarks, adapted.remark],
        scores=scores,
        source=source,
    )


def _joined(name: str, rows: list[Row], members: list[dict], opt, runtime) -> Row:
    embedded = {}
    for split in members[0]:
        parts = [member[split] for member in members]
        embedded[split] = ensemble.join(parts)[ensemble.SPLIT]
    return Row(
        name,
        pooling=_distinct(row.pooling for row in rows),
        size=_distinct(row.size for row in rows),
        width=sum(row.width for row in rows),
        parameters=sum(row.parameters for row in rows),
        speed=1 / sum(1 / row.speed for row in rows),
        licence=_distinct(row.licence for row in rows),
        remarks=list(dict.fromkeys(itertools.chain.from_iterable(row.remarks for row in rows))),
        scores=scored(name, embedded, opt, runtime),
        source=feature_store.digest({"members": [row.source for row in rows]}),
    )


def _distinct(texts) -> str:
    """Texts joined, each once."""
    return ", ".join(dict.fromkeys(texts))


def _ensemble_pairs(measured: list[tuple]) -> list[tuple]:
    """Each two networks, the later one with all before it."""
    pairs = []
    for place, second in enumerate(measured):
        for first in measured[:place]:
            pairs.append((first, second))
    return pairs


class Measurements:
    """The rows of the table as they are measured.

    Attributes:
        rows: so far. missing: a line for each network or further row that cannot be had. networks: the networks that
        were measured, each with its row.
    """

    def __init__(self, commands, runtime):
        self.commands = commands
        self.runtime = runtime
        self.rows = []
        self.missing = []
        self.networks = []
        self._images = {}

    def images(self, model: Model) -> dict:
        """Split -> data set of the images as a network takes them; networks that take them alike share it."""
        settings = [model.facts.input_size, model.facts.interpolation]
        settings += [getattr(model.opt, flag) for flag in sorted(OF_ONE)]
        key = tuple(map(str, settings))
        if key not in self._images:
            fits = bool(self.commands.pca or self.commands.whitened or self.commands.adapters)
            self._images[key] = splits_for(model.opt, model.facts, fits)
        return self._images[key]

    @property
    def first_images(self) -> dict:
        """The images of the first network that was measured."""
        return next(iter(self._images.values()))

    def add(self, model: Model) -> None:
        """The row of a network, and its further rows."""
        try:
            embedded = model.embedded(self.images(model))
        except (Unavailable, NotFinite) as error:
            self.missing.append(f"{model.label}: {error}")
            tqdm.write(wrapped(f"left out  {self.missing[-1]}", 10))
            return
        finally:
            model.release()
        row = _row(model, embedded, self.runtime)
        self.rows.append(row)
        self.networks.append((model, row))
        for title, dims, whitens in (("PCA", self.commands.pca, False), ("whitened", self.commands.whitened, True)):
            if dims is not None:
                name = f"{model.label}, {title} to {dims}"
                self._add_further(name, _projected, row, embedded, dims, whitens, model.opt, self.runtime)
        for kind in self.commands.adapters:
            self._add_further(f"{model.label}, {kind} adapter", _adapted, row, kind, embedded, model, self.runtime)

    def add_ensembles(self) -> None:
        """A row for each two networks, side by side."""
        for (first, first_row), (second, second_row) in _ensemble_pairs(self.networks):
            members = [first.embedded(self.images(first)), second.embedded(self.images(second))]
            name = f"{first_row.name} + {second_row.name}"
            self._add_further(name, _joined, [first_row, second_row], members, first.opt, self.runtime)

    def _add_further(self, name: str, make: Callable, *arguments) -> None:
        try:
            self.rows.append(make(name, *arguments))
        except UserError as error:
            self.missing.append(f"{name}: {error}")


def measure(models: list[Model], commands, runtime) -> Measurements:
    """The rows of all networks. `commands`: the command's own flags. Raises UserError if there is no row."""
    measurements = Measurements(commands, runtime)
    for model in tqdm(models, desc="models", unit="model", leave=False, disable=None):
        measurements.add(model)
    if commands.ensembles:
        measurements.add_ensembles()
    if not measurements.rows:
        raise UserError("no network could be had: " + "; ".join(measurements.missing))
    return measurements


def main(argv: list[str]) -> Table:
    """Embed what is not there yet, measure, write and print the table. Returns it. Raises UserError."""
    commands, options = read(argv)
    opt = next(iter(options.values()))
    runtime = Runtime(opt).begin()
    refuse_torchrun(PROGRAM)
    datasets.locate(opt)
    folder = Path(opt.save_path)
    refuse_unwritable(folder)
    training = dict.fromkeys(options)
    if commands.adapters:
        training = {label: training_options(commands.rest, flags) for label, flags in options.items()}
    models = []
    for label, flags in options.items():
        model = Model(label, flags, folder / "features", commands.feature_type, Runtime(flags), training[label])
        models.append(model)
    measurements = measure(models, commands, runtime)
    rows = measurements.rows
    devices = sorted(set().union(*(model.devices for model in models)))
    conditions = frozen_networks.conditions(measurements.first_images, opt, list(rows[0].scores))
    measured = Measured(conditions, rows, devices)
    target = folder / opt.dataset
    target.mkdir(parents=True, exist_ok=True)
    name, measured = frozen_networks.joined(target, f"models_{opt.dataset}", measured)
    table = frozen_networks.table_of(name, measured, measurements.missing, opt)
    frozen_networks.write(target, table, measured)
    print(f"{to_text(table)}\nwritten  {target / name}.md, .tex, .csv, .json")
    propose("python", "main.py", *_training_words(best_of(models, rows), commands.rest))
    return table


def _training_words(model: Model, words: list[str]) -> list[str]:
    """The words of a command that trains a network on the same data; `words`: flags of all networks."""
    flags = shlex.split(model.label)[1:]
    return [*words, "--arch", f"{architectures.without_traits(model.opt.arch)}_normalize", *flags]


def best_of(models: list[Model], rows: list[Row]) -> Model:
    """The network whose own row is the best by the first metric on the first split."""
    scores = {row.name: next(iter(row.scores.values())) for row in rows}
    measured = [model for model in models if model.label in scores]
    metric = measured[0].opt.evaluation_metrics[0]
    sign = 1 if metrics.higher_is_better(metric) else -1
    return max(measured, key=lambda model: np.nan_to_num(sign * scores[model.label].get(metric, np.nan), nan=-np.inf))
