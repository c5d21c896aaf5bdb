"""A new network on the index of an old one: `python -m evaluation upgrade OLD NEW [--free FREE]`.

OLD and NEW are embeddings of the same images by two networks, FREE by a third that was trained as NEW but without
--trainer compatible: `features` `(N, D)`, `paths` and labels, as --dump_embeddings writes them. Reported are e_recall@1
and map_r by cosines, with 95 % intervals over classes:

  self     each network's queries in its own gallery
  cross    the new network's queries in the old gallery; at or below the old network's self it is not compatible
  gain     (cross - self of OLD) / (self of FREE - self of OLD): the part of a better index that comes without one
  curve    the new network's queries where a share of the gallery's rows is embedded anew, the mean of five random draws
  flips    share of queries that are right at rank 1 in the old network's self, and wrong after the change

If NEW has more dimensions than OLD, its first ones are compared with OLD's, as --trainer compatible trains them.
"""

import argparse
import math
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

import metrics
from evaluation import file_arrays, from_files, same_images
from pictures import upgrade as picture
from tools._command import PICTURES, check_output, parser_of_page, refuse_torchrun, words_of
from utilities.console import propose, propose_view, say
from utilities.errors import UserError
from utilities.files import write_json
from utilities.intervals import class_interval
from utilities.numbers import whole

PROGRAM = "python -m evaluation upgrade"
METRICS = ("e_recall@1", "map_r")
# shares of the gallery's rows that the new network has embedded
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
DRAWS = 5


class Images(NamedTuple):
    """The images of OLD: its path, its arrays but the features, and which of its rows are the gallery."""

    path: str
    arrays: dict
    gallery: np.ndarray


def gain(cross: float, old: float, free: float) -> float:
    """Part of what a new index brings that the new network brings on the old one; NaN if the free one brings none."""
    return (cross - old) / (free - old) if free > old else math.nan


def read(path: str) -> dict:
    """The arrays of a file. Raises UserError if it is not one of dumped embeddings: no paths, NaN, a reference."""
    arrays = file_arrays.read_queries(path, has_gallery=True)
    features = arrays["features"]
    if "paths" not in arrays:
        raise UserError(f"{path} has no paths (N,), by which the images of two networks are joined: --dump_embeddings")
    if "reference_features" in arrays:
        raise UserError(f"{path}: it has reference_features: give the embeddings of one split, --dump_embeddings")
    if file_arrays.written_flags(arrays).get("eval_space") == "hyperbolic":
        raise UserError(f"{path}: embeddings of a hyperbolic space, which are not compared by cosines")
    if features.ndim != 2 or arrays["paths"].shape != features.shape[:1]:
        raise UserError(
            f"{path}: features {features.shape} and paths {arrays['paths'].shape}: expected (N, D) and (N,)"
        )
    damaged = np.flatnonzero(~np.isfinite(features).all(1))
    if len(damaged):
        raise UserError(f"{path}: row {damaged[0]} of features holds NaN or infinity")
    return arrays


def features_as(old_path: str, old: dict, path: str) -> np.ndarray:
    """The features of another file in the order of OLD's images. Raises UserError if its images or classes differ."""
    arrays = read(path)
    root = os.path.commonpath([os.path.dirname(name) for name in old["paths"].tolist()])
    rows = same_images.rows_of(old["paths"], arrays["paths"], root, path)
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        raise UserError(
            f"{path}: it has other images than {old_path}: {len(missing):,} of {len(rows):,} are missing, first "
            f"{old['paths'][missing[0]]}"
        )
    if len(arrays["paths"]) != len(rows):
        raise UserError(
            f"{path}: it has other images than {old_path}: {len(arrays['paths']):,}, not {len(rows):,}; "
            "embed the same split"
        )
    for name in ("class_names", "labels", "is_query", "is_gallery", "is_distractor"):
        if name == "labels" and "class_names" in old and "class_names" in arrays:
            # the same classes may be numbered otherwise
            continue
        if (name in old) != (name in arrays) or (name in old and not np.array_equal(old[name], arrays[name][rows])):
            raise UserError(
                f"{path}: its {name} differ from those of {old_path}: the images have other classes or roles"
            )
    return arrays["features"][rows]


def unit(features: np.ndarray) -> np.ndarray:
    """Rows at unit length, float32; zeros stay zeros."""
    rows = np.asarray(features, dtype=np.float64)
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def images_of(path: str, arrays: dict) -> Images:
    """The images of OLD."""
    described = {name: values for name, values in arrays.items() if name not in ("features", "exclude", "flags")}
    # a query is the same row of the gallery
    described["exclude"] = np.arange(len(arrays["features"]))
    task = _task(Images(path, described, np.empty(0)), arrays["features"], arrays["features"])
    return Images(path, described, task.searched.positions)


def _task(images: Images, queries: np.ndarray, gallery: np.ndarray):
    """The task of all queries, embedded by one network, in the gallery, embedded by another."""
    searched = {name: values for name, values in images.arrays.items() if name != "exclude"}
    return from_files.task_of(
        images.path,
        {**images.arrays, "features": queries},
        images.path,
        {**searched, "features": gallery},
    )


class Outcome(NamedTuple):
    """Metric -> value `(Q,)` of each query, and the queries' classes `(Q,)`, numbered from 0."""

    values: dict
    classes: np.ndarray

    def interval(self, metric: str) -> dict:
        """The mean of a metric with its interval over classes."""
        return class_interval(self.values[metric], 1, self.classes)


def outcome(images: Images, queries: np.ndarray, gallery: np.ndarray) -> Outcome:
    """What queries find in a gallery; features `(N, D)` of all images at unit length, on each side."""
    task = _task(images, queries, gallery)
    values = metrics.per_query(list(METRICS), metrics.EmbeddingSpace(**task.arguments()))
    return Outcome(values, np.unique(task.queries.labels, return_inverse=True)[1].reshape(-1))


def curve(images: Images, old: np.ndarray, new: np.ndarray, before: Outcome, seed: int) -> list[dict]:
    """A row for each of `SHARES`: `share`, METRICS with their intervals, `draws` of e_recall@1, `negative_flips`.

    Args:
        old, new: `(N, d)` at unit length. before: the old network's self.
    """
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(images.gallery) for _ in range(DRAWS)]
    rows = []
    for share in SHARES:
        count = round(share * len(images.gallery))
        # all draws are equal at both ends
        n_draws = DRAWS if 0 < count < len(images.gallery) else 1
        outcomes = []
        for order in orders[:n_draws]:
            gallery = old.copy()
            gallery[order[:count]] = new[order[:count]]
            outcomes.append(outcome(images, new, gallery))
        joined = {name: np.mean([result.values[name] for result in outcomes], axis=0) for name in METRICS}
        flips = np.mean([flipped(before, after) for after in outcomes], axis=0)
        after = Outcome({**joined, "flips": flips}, before.classes)
        row = {"share": share, "rows": count, **{name: after.interval(name) for name in METRICS}}
        row["draws"] = [float(result.values[METRICS[0]].mean()) for result in outcomes]
        rows.append({**row, "negative_flips": after.interval("flips")})
    return rows


def flipped(before: Outcome, after: Outcome) -> np.ndarray:
    """1 for each query `(Q,)` that was right at rank 1 and is wrong, else 0."""
    return before.values[METRICS[0]] * (1 - after.values[METRICS[0]])


def compared(images: Images, old: np.ndarray, new: np.ndarray, free: np.ndarray | None, seed: int) -> dict:
    """All values of the page's table, by name.

    Args:
        old, new, free: features `(N, d)`, `(N, D)` and `(N, F)` of the same images.
    """
    width = old.shape[1]
    old = unit(old)
    first = unit(new[:, :width])
    before = outcome(images, old, old)
    rows = curve(images, old, first, before, seed)
    of_new = unit(new)
    after = outcome(images, of_new, of_new)
    cross = outcome(images, first, old)
    named = {"self_old": before, "self_new": after, "cross": cross}
    if free is not None:
        free = unit(free)
        named["self_free"] = outcome(images, free, free)
    values = {}
    for name, result in named.items():
        values[name] = {metric: result.interval(metric) for metric in METRICS}
    values["compatible"] = values["cross"][METRICS[0]]["value"] > values["self_old"][METRICS[0]]["value"]
    if free is not None:
        values["gain"] = {metric: _gain(named, metric) for metric in METRICS}
    flips = Outcome({"flips": flipped(before, after)}, before.classes)
    values["negative_flips"] = {"cross": rows[0]["negative_flips"], "self_new": flips.interval("flips")}
    values["curve"] = rows
    return values


def _gain(named: dict, metric: str) -> dict:
    """The gain with its interval over classes."""
    old, cross, free = (named[name].values[metric] for name in ("self_old", "cross", "self_free"))
    value = gain(cross.mean(), old.mean(), free.mean())
    if math.isnan(value):
        return {"value": None, "low": None, "high": None}
    return class_interval(cross - old, free - old, named["cross"].classes)


def lines(values: dict, n_rows: int) -> list[str]:
    """The table of `compared`."""
    titles = {
        "self_old": "self, old network",
        "cross": "cross: new queries, old gallery",
        "self_new": "self, new network",
        "self_free": "self, free network",
        "gain": "gain",
    }
    head = f"{'':33}{METRICS[0]:>10}  {'over classes':16}{METRICS[1]:>10}  over classes"
    text = [head]
    for name, title in titles.items():
        if name in values:
            text.append(f"{title:33}" + "".join(_cell(values[name][metric]) for metric in METRICS).rstrip())
    text += ["", f"{'share of the gallery anew':33}{METRICS[0]:>10}  {'over classes':16}{'flips':>10}  over classes"]
    for row in values["curve"]:
        title = f"{row['share']:.2f}  ({row['rows']:,} of {n_rows:,} rows)"
        text.append(f"{title:33}" + (_cell(row[METRICS[0]]) + _cell(row["negative_flips"])).rstrip())
    return text


def _cell(interval: dict) -> str:
    """A value and its interval in columns."""
    if interval["value"] is None:
        return f"{'-':>10}  {'':16}"
    bounds = ""
    if interval["low"] is not None:
        bounds = f"{interval['low']:.4f} {interval['high']:.4f}"
    return f"{interval['value']:10.4f}  {bounds:16}"


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    flags = parser_of_page(PROGRAM, __doc__)
    flags.add_argument("old", metavar="OLD", help="embeddings by the old network, .npz")
    flags.add_argument("new", metavar="NEW", help="embeddings of the same images by the new network")
    flags.add_argument("--free", default=None, metavar="FREE", help="those by a network that was trained freely")
    flags.add_argument("--seed", type=whole(0), default=0, help="of the draws of rows (default: %(default)s)")
    flags.add_argument("--plot", default=None, metavar="FILE", help="draw the curve to this file, .png or .svg")
    flags.add_argument("--out", default=None, metavar="FILE", help="also write the values to this JSON file")
    return flags


def _name(path: str) -> str:
    """A file's name with that of its folder, which in run folders tells files apart."""
    return "/".join(Path(path).absolute().with_suffix("").parts[-2:])


def main(argv: list[str] | None = None) -> dict:
    """Print and return what `compared` gives. Raises UserError for files that do not serve."""
    argv = words_of(argv)
    flags = parser().parse_args(argv)
    refuse_torchrun(PROGRAM)
    check_output("--out", flags.out)
    check_output("--plot", flags.plot, *PICTURES)
    old = read(flags.old)
    new = features_as(flags.old, old, flags.new)
    free = None
    if flags.free is not None:
        free = features_as(flags.old, old, flags.free)
    widths = old["features"].shape[1], new.shape[1]
    if widths[1] < widths[0]:
        raise UserError(
            f"{flags.new}: embeddings of {widths[1]} dimensions cannot search an index of {widths[0]} ({flags.old})"
        )
    if widths[1] > widths[0]:
        say(f"{flags.new}: of its {widths[1]} dimensions the first {widths[0]} are compared with the old ones")
    images = images_of(flags.old, old)
    values = compared(images, old["features"], new, free, flags.seed)
    print("\n" + "\n".join(lines(values, len(images.gallery))) + "\n")
    cross = values["cross"][METRICS[0]]["value"]
    before = values["self_old"][METRICS[0]]["value"]
    if not values["compatible"]:
        say(
            f"not compatible: cross {cross:.4f} is not above the old network's {before:.4f}: keep it, or embed all anew"
        )
    if "gain" in values and values["gain"][METRICS[0]]["value"] is None:
        say("no gain: the free network is not better than the old one")
    if flags.out is not None:
        write_json(flags.out, values)
    if flags.plot is None:
        place = Path(flags.new)
        propose(*PROGRAM.split(), *argv, "--plot", place.with_name(f"{place.stem}_upgrade.png"))
    else:
        title = f"{_name(flags.new)} on the index of {_name(flags.old)}"
        print(f"written  {picture.draw(Path(flags.plot), values, title)}")
        propose_view(Path(flags.plot))
    return values
