"""Evaluation: embed a split once, then compute every metric of every embedding type on it.

`embed` runs the network over a split and gives an `Embedded`. `score` makes tasks of the embedded splits, queries that
search a gallery (task.py, from_splits.py), and averages their metrics (averages.py). Files and pictures of the best
epoch, and `--evaluate`, are in outputs.py.
"""

import utilities.openmp  # noqa: F401  # isort: skip, before torch is imported

import contextlib
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tqdm import tqdm

import datasets
import metrics
from engine.loading import SeededItems, evaluation_loader
from evaluation import checks, from_splits, galleries, scales, selectable, whitening
from evaluation.averages import divided, over_draws
from evaluation.task import Embedded
from runs.names import named
from utilities.console import say
from utilities.errors import UserError
from utilities.evaltypes import BARE, of_type
from utilities.evaltypes import MAIN as MAIN_EVALTYPE
from utilities.splits import evaluated
from utilities.tensors import normalize as normalize_rows
from utilities.tensors import raise_half

__all__ = [
    "EmbedSettings",
    "Embedded",
    "embed",
    "embed_all",
    "evaluate",
    "loaders",
    "of_type",
    "over_draws",
    "roles",
    "score",
    "without_seeds",
]


def loaders(splits: dict, opt, ranks=None) -> dict:
    """Loaders of the splits to embed: those of `--splits_to_eval`, and training where it is the reference.

    `splits`: as `datasets.select` gives them. `ranks`: the processes, each of which embeds a part. Raises UserError
    where a split does not exist, or lacks the names or roles that the flags compare by.
    """
    of_names = evaluated(splits)
    missing = [split for split in opt.splits_to_eval if of_names[split] is None]
    if missing:
        raise UserError(
            f"--splits_to_eval {missing[0]}: there is no such data in this run (--use_tv_split cuts validation "
            "from training)"
        )
    embedded_names = {*opt.splits_to_eval}
    if opt.eval_reference_set == from_splits.TRAINING or whitening.needs_training(opt):
        embedded_names.add("train")
    if whitening.needs_training(opt) and of_names["train"] is None:
        raise UserError(
            f"--eval_whiten {opt.eval_whiten}: there are no training images to fit on: fit on other embeddings by "
            f"`{whitening.PROGRAM}`"
        )
    chosen = {split: of_names[split] for split in of_names if split in embedded_names}
    checks.check(chosen, opt)
    return {split: evaluation_loader(dataset, opt, ranks) for split, dataset in chosen.items()}


def check_folds(folds: list) -> None:
    """Raise UserError, before the first fold trains, where the data of one cannot choose its epoch.
    `folds`: the flags of each.
    """
    for opt in folds:
        chosen = _datasets(loaders(datasets.select(opt.dataset, opt, opt.source_path), opt))
        try:
            selectable.check(chosen, opt)
        except UserError as error:
            raise UserError(f"fold {opt.fold}, counted from 0: {error}") from error


def check(model, loaders: dict, opt, runtime) -> None:
    """Raise UserError, before anything is trained or measured, where network,
    data and evaluation flags do not fit each other.
    """
    if not loaders:
        return
    metrics.read_pair_scorer(opt)
    chosen = _datasets(loaders)
    selectable.check(chosen, opt)
    _check_dimensions(_widths(model, next(iter(loaders.values())).dataset, opt, runtime), chosen, opt)
    _say_roles(roles(loaders, opt), runtime)


def _widths(model, dataset, opt, runtime) -> set[int]:
    """The dimensions of the embeddings that are measured, by one image."""
    image = dataset[0][1][None]
    was_training = model.training
    model.eval()
    with torch.no_grad(), runtime.autocast():
        embeddings, activations = model(runtime.to_device(image))
    model.train(was_training)
    rows = {}
    for name, output in _outputs(embeddings, activations, bare=False).items():
        rows[name] = output.float().cpu().numpy()
    widths = {of_type(rows, evaltype).shape[1] for evaltype in opt.evaltypes}
    if opt.eval_use_trunk_output:
        widths = set()
    if opt.eval_use_trunk_output or opt.check_untrained_accuracy:
        (trunk,) = _outputs(embeddings, activations, bare=True).values()
        widths.add(trunk.shape[1])
    return widths


def _check_dimensions(widths: set[int], datasets: dict, opt) -> None:
    """Raise UserError for more principal components, or dimensions of a metric, than there are;
    warn about few samples.
    """
    roles_of = {}
    sizes = {}
    for split, dataset in datasets.items():
        roles_of[split] = galleries.roles_of(dataset, len(dataset))
        sizes[split] = len(roles_of[split].rows("gallery"))
    for size in from_splits.reference_sizes(sizes, opt):
        for width in widths:
            from_splits.check_components(opt.eval_pca, size, width)
            metrics.check_width(opt.evaluation_metrics, opt.eval_pca or whitening.check(opt, width))
    for split in from_splits.scored(sizes, opt):
        pool = roles_of[split].pool
        size = roles_of[split].size
        if pool is not None:
            size = len(pool)
        say_few_samples(split, _requested(opt), size, opt.eval_pca or max(widths))


def roles(loaders: dict, opt) -> dict[str, str]:
    """Split -> one line on its queries, its gallery and the images of class-wise numbers;
    without the splits that have no roles.
    """
    return from_splits.roles(from_splits.images_of(_datasets(loaders)), opt)


def _datasets(loaders: dict) -> dict:
    return {split: without_seeds(loader.dataset) for split, loader in loaders.items()}


def _say_roles(texts: dict, runtime) -> None:
    for split, text in texts.items():
        runtime.say_once(f"{split}: {text}")


def _requested(opt) -> list[str]:
    """The metrics that the command line or a file names; none where --evaluation_metrics has its default."""
    # A namespace that another program made has no record of where its values were set.
    place = getattr(opt, "set_by", {}).get("evaluation_metrics", "")
    return [] if place.startswith("derived") else opt.evaluation_metrics


def say_few_samples(name: str, metric_names: list[str], size: int, width: int) -> None:
    """Warn where a spectrum is to be measured on fewer samples than dimensions, `size` x `width`."""
    spectra = [metric for metric in metric_names if metric.startswith("rho_spectrum@")]
    if spectra and size < width:
        say(
            f"{spectra[0]} of {name}: only {size} samples for {width} dimensions, so at most {size} singular values; "
            "compare this value only with sets of the same size"
        )


def _outputs(embeddings, activations: dict, bare: bool, unit_length: bool = False) -> dict:
    """Name -> `(B, D)` of a network's output: its embeddings, or if `bare` its backbone's features.

    Raises UserError without those.

    `unit_length`: whether the backbone's features are brought to unit length;
    the network itself does so with its embeddings.
    """
    if not bare and isinstance(embeddings, dict):
        return embeddings
    if not bare:
        return {MAIN_EVALTYPE: embeddings}
    if BARE not in activations:
        raise UserError(f"--eval_use_trunk_output: the network gives no {BARE!r} among its features")
    pooled = activations[BARE]
    if unit_length:
        pooled = normalize_rows(raise_half(pooled))
    return {BARE: pooled}


@dataclass(frozen=True)
class EmbedSettings:
    """Which features of an image are measured.

    bare: the backbone's pooled features instead of the embedding, at unit length if the network's embeddings are.
    normalize: False: neither is brought to unit length.
    sizes, power: the scales of --eval_scales, and the power with which they are joined (`scales.joined`).
    """

    bare: bool = False
    normalize: bool = True
    sizes: Sequence[float] = (1,)
    power: float = 1.0

    @classmethod
    def of_flags(cls, model, opt, bare: bool = False) -> "EmbedSettings":
        """As the flags request; `bare`: the backbone's features in any case."""
        bare = bare or opt.eval_use_trunk_output
        return cls(bare, not opt.eval_no_normalize, opt.eval_scales, scales.power_of(model, opt, bare))


def embed(model: torch.nn.Module, loader, runtime, title: str = "", settings: EmbedSettings | None = None) -> Embedded:
    """Embed all images of `loader`, in its order, into preallocated arrays. Several processes embed a part each; all
    get all rows.

    `title`: of the progress bar. `settings`: by default the embedding of one scale. Raises UserError if the network has
    no such output.
    """
    settings = settings or EmbedSettings()
    began = time.monotonic()
    was_training = model.training
    model.eval()
    # one process's loader has no parts
    count = len(loader.dataset)
    parts = getattr(getattr(loader, "batch_sampler", None), "rows", None)
    mine = slice(0, count)
    if parts is not None:
        mine = loader.batch_sampler.mine
    features = {}
    labels = np.empty(count, dtype=np.int64)
    start = mine.start
    length = contextlib.nullcontext() if settings.normalize or settings.bare else _unnormalised(model)
    unit_length = settings.normalize and getattr(model, "normalizes", False)
    outputs = functools.partial(_outputs, bare=settings.bare, unit_length=unit_length)
    with (
        torch.no_grad(),
        length,
        tqdm(total=mine.stop - mine.start, desc=title, unit="img", leave=False, disable=None) as bar,
    ):
        for batch_labels, images, _ in loader:
            with runtime.autocast():
                embeddings = scales.outputs_at(
                    model, runtime.to_device(images), settings.sizes, settings.power, outputs
                )
            stop = start + len(batch_labels)
            for name, output in embeddings.items():
                if name not in features:
                    features[name] = np.empty((count, output.shape[1]), dtype=np.float32)
                features[name][start:stop] = output.float().cpu().numpy()
            labels[start:stop] = batch_labels.numpy()
            bar.update(len(batch_labels))
            start = stop
    assert start == mine.stop, f"the loader gave {start - mine.start} of {mine.stop - mine.start} images"
    if parts is not None:
        _join(features, labels, parts, runtime.ranks)
    model.train(was_training)
    return Embedded(features, labels, time.monotonic() - began, without_seeds(loader.dataset))


def _join(features: dict, labels: np.ndarray, parts: list[slice], ranks) -> None:
    """Fill in what the other processes have embedded; a process without images gets names and widths from the first."""
    widths = {name: rows.shape[1] for name, rows in features.items()}
    for name, width in ranks.share(widths).items():
        features.setdefault(name, np.empty((len(labels), width), dtype=np.float32))
        ranks.share_rows(features[name], parts)
    ranks.share_rows(labels, parts)


def without_seeds(dataset):
    """The data set that `SeededItems` wraps."""
    return dataset.dataset if isinstance(dataset, SeededItems) else dataset


@contextlib.contextmanager
def _unnormalised(model: torch.nn.Module):
    """Inside, a network that brings its embeddings to unit length (`_normalize`) leaves them as they are."""
    if not hasattr(model, "normalizes"):
        raise UserError(
            "--eval_no_normalize: the network does not declare whether it normalises (attribute `normalizes`)"
        )
    before = model.normalizes
    model.normalizes = False
    try:
        yield
    finally:
        model.normalizes = before


def _device(opt, runtime) -> torch.device:
    """The device on which metrics are computed."""
    if opt.evaluate_on_gpu and runtime.device.type != "cuda":
        runtime.say_once("--evaluate_on_gpu: there is no CUDA device, the CPU searches and clusters")
    return runtime.device if opt.evaluate_on_gpu else torch.device("cpu")


def score(embedded: dict, opt, runtime) -> dict:
    """All `--evaluation_metrics` of all `--evaltypes` of `embedded`, split -> Embedded,
    against `--eval_reference_set`, by `--tester`.

    Returns split -> {metric: value}, names as in metrics.csv. A value is NaN where the metric is not defined (`map_r`
    needs a class of two images); means over super-classes, domains and draws leave such values out, which is printed
    once. Of several processes each searches and clusters for its part of the queries; all return the first one's
    values, which are those of one process.
    """
    return runtime.ranks.share(_score(embedded, opt, runtime))


def _score(embedded: dict, opt, runtime) -> dict:
    measured = from_splits.scored(embedded, opt)
    settings = _settings(opt, runtime)
    _say_roles(from_splits.roles(embedded, opt), runtime)
    scores = {split: {} for split in measured}
    for line in (*unaffected_metrics(opt.evaluation_metrics, opt), *whitening.mark(opt)):
        runtime.say_once(line)
    if not measured:
        return scores
    for evaltype in opt.evaltypes:
        tasks = from_splits.tasks(embedded, opt, evaltype)
        bar = tqdm(measured, unit="split", leave=False, disable=None)
        for split in bar:
            bar.set_description(f"neighbours and clusters of {split}")
            notes = []
            draws = _draws(tasks[split], embedded, split, evaltype, opt)
            means = over_draws(draws, opt.evaluation_metrics, settings, notes)
            for note in notes:
                runtime.say_once(f"{split}: {named(evaltype, note, opt.evaltypes)}")
            for name, value in means.items():
                scores[split][named(evaltype, name, opt.evaltypes)] = value
    return scores


def _settings(opt, runtime) -> dict:
    """The arguments of `metrics.compute` that are the same for all tasks."""
    settings = {"seed": opt.seed, "device": _device(opt, runtime), "progress": True, "ranks": runtime.ranks}
    if opt.eval_kmeans_starts:
        settings["seed"] = range(opt.eval_kmeans_starts)
    return settings | metrics.measured_by(opt)


def _draws(task, embedded: dict, split: str, evaltype: str, opt):
    """Yield the tasks of each draw, of which a value is the mean: one draw, unless the gallery of the split, or of a
    split that it searches, is drawn at random. `task`: of the first draw.
    """
    yield divided(task)
    sources = from_splits.sources_of(split, from_splits.scored(embedded, opt), opt)
    draws = {}
    for name in embedded:
        if name == split or name in sources:
            draws[name] = galleries.draws(embedded[name].dataset)
    for number in range(1, max(map(len, draws.values()))):
        of_draw = dict(embedded)
        for name, datasets_of_draws in draws.items():
            dataset = datasets_of_draws[number % len(datasets_of_draws)]
            of_draw[name] = embedded[name]._replace(dataset=dataset)
        yield divided(from_splits.tasks(of_draw, opt, evaltype)[split])


def unaffected_metrics(metric_names: list[str], opt) -> list[str]:
    """One line that names the requested metrics that `--eval_space hyperbolic` and re-ranking do not change; none if
    there are none.
    """
    unaffected = [name for name in metric_names if not metrics.searches(name)]
    flags = []
    values = "as without it"
    if metrics.ball(opt) is not None:
        flags.append("--eval_space hyperbolic")
        values = "Euclidean, of the tangent vectors"
    flags += metrics.reranked_by(opt)
    if not flags or not unaffected:
        return []
    return [f"{' '.join(flags)}: changes what queries find; {', '.join(unaffected)}: {values}"]


def evaluate(model, loaders: dict, opt, runtime, bare: bool = False) -> tuple[dict, dict]:
    """Embed each split once, then score it; `bare`: by the backbone's features. Returns split -> {metric: value}, and
    split -> Embedded.
    """
    embedded = embed_all(model, loaders, opt, runtime, bare)
    return score(embedded, opt, runtime), embedded


def embed_all(model, loaders: dict, opt, runtime, bare: bool = False) -> dict:
    """Embed each split as the flags ask. Returns split -> Embedded."""
    settings = EmbedSettings.of_flags(model, opt, bare)
    embedded = {}
    for split, loader in loaders.items():
        embedded[split] = embed(model, loader, runtime, f"embedding {split}", settings)
    return embedded
