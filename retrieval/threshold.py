"""The distance beyond which a query is of no class of the index: a number, or a file that `decide --out` wrote.

A decision holds for the network and the kind of answer that it was made of. Both are checked: by the dimensions, by the
distance, and by a few gallery images whose vectors the file holds.
"""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from evaluation import promise
from utilities import codes
from utilities.errors import UserError
from utilities.reading import parsing, read_json

PROGRAM = "python -m evaluation decide"
# share of a vector's length: another precision moves the vector by less, another network by far more
SAME = 0.05


@dataclass(frozen=True)
class Threshold:
    """An answer is accepted if its distance is below `value`, strictly.

    path: the file of the decision; None: a number was typed. content: of that file.
    """

    value: float
    path: str | None = None
    content: dict = field(default_factory=dict)

    def check(self, index, embedder) -> list[str]:
        """Raise UserError where the decision is of another answer, code or network than the index; else what to know.

        index: `retrieval.index.Index`. embedder: of its run.
        """
        if self.path is None:
            return []
        network = self.content.get("network") or {}
        if index.code != codes.FLOAT32:
            raise UserError(
                f"--threshold {self.path}: it is of exact distances, and the index is in code {index.code}: make the "
                f"index in {codes.FLOAT32}"
            )
        dimensions = network.get("dimensions", index.about["dimensions"])
        if dimensions != index.about["dimensions"]:
            raise UserError(
                f"--threshold {self.path}: another network: it is of embeddings of {dimensions} dimensions, the index "
                f"has {index.about['dimensions']}"
            )
        eval_space = network.get("eval_space", "euclidean")
        if eval_space != "euclidean":
            raise UserError(
                f"--threshold {self.path}: it is of {eval_space} distances, those of an index are Euclidean"
            )
        n_same = 0
        for probe in network.get("probes", []):
            vector = _vector_of(probe["path"], index, embedder)
            if vector is None:
                continue
            expected = np.asarray(probe["vector"], dtype=np.float64)
            if np.linalg.norm(vector - expected) > SAME * np.linalg.norm(expected):
                raise UserError(
                    f"--threshold {self.path}: another network: the vector of {probe['path']} differs from that of the "
                    f"index: decide on embeddings of {embedder.folder}"
                )
            n_same += 1
        notes = [self.content["sentence"], *self.growth(len(index))]
        if not n_same:
            notes.append(f"note: nothing in {self.path} shows whether it is of this index's network")
        return notes

    def growth(self, images: int) -> list[str]:
        """A line on an index of more images than the gallery of the decision; none if it has no more."""
        enrolled = self.content["gallery"]["images"]
        factor = promise.growth(enrolled, images)
        if factor == 1:
            return []
        line = (
            f"the index holds {images:,} images, the gallery of {self.path} {enrolled:,}: the rate of new ones can be "
            f"{factor:.2f} times as high"
        )
        if self.content.get("promise"):
            rate = self.content["a"]
            bound = promise.percent_above(min(factor * rate, 1.0))
            line += f", at most {bound} % in place of {promise.percent(rate)} %"
        return [line]


def read(text: str) -> Threshold:
    """The threshold that `text` names: a distance, or the file of a decision. Raises UserError for what is neither."""
    try:
        value = float(text)
    except ValueError:
        return _of_file(text)
    if math.isnan(value) or value < 0:
        raise UserError(f"--threshold {text}: a distance of at least 0, or a file of `{PROGRAM} … --out`, is expected")
    return Threshold(value)


def _of_file(path: str) -> Threshold:
    expected = f"a distance, or a file that `{PROGRAM} FILE --out {path}` writes, is expected"
    if not Path(path).exists():
        raise UserError(f"--threshold {path}: no such file: {expected}")
    content = read_json(path, f"{PROGRAM} writes it")
    if not isinstance(content, dict) or "threshold" not in content:
        raise UserError(f"--threshold {path}: it holds no threshold: {expected}")
    with parsing(path, expected):
        value = float(content["threshold"])
        answer = str(content["answer"])
        is_complete = math.isfinite(content["a"]) and content["gallery"]["images"] >= 0 and content["sentence"]
        for probe in (content.get("network") or {}).get("probes", []):
            is_complete = is_complete and probe["path"] and np.isfinite(np.asarray(probe["vector"], dtype=float)).all()
        if not is_complete or not value >= 0:
            raise ValueError("a threshold, rate, gallery or probe is no number")
    if answer != "nearest":
        raise UserError(
            f"--threshold {path}: it is of --answer {answer}, and query answers by the nearest image: decide with "
            "--answer nearest"
        )
    return Threshold(value, path, content)


def _vector_of(path: str, index, embedder) -> np.ndarray | None:
    """The vector of an image: that of the index if this holds it, else made anew; None without the image."""
    real = os.path.realpath(path)
    for row, indexed in enumerate(index.paths):
        if os.path.basename(indexed) == os.path.basename(path) and os.path.realpath(indexed) == real:
            return np.asarray(index.vectors[row], dtype=np.float64)
    if not os.path.isfile(path):
        return None
    return embedder([path])[0].astype(np.float64)
