"""The steps of an appraisal: each is done once, and again when what it depends on has changed.

The result of a step is a JSON file that is written last. It holds the hash of all that the step depends on: flags, the
photographs, and the results of the steps before it. A step whose file is missing or has another hash is done, and so
are all after it.
"""

import copy
import functools
import re
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import datasets
import parameters
from datasets import _files, _reading
from datasets._images import Image
from datasets._layout import Reading
from evaluation.feature_store import digest
from tools import models
from utilities.console import say
from utilities.files import write_json
from utilities.reading import Unreadable, parsing, read_json

TABLES = {False: "folder", True: "csv"}  # whether PHOTOS is a file -> the data set that reads it
ADAPTER_BATCH = 128  # images of a batch of `evaluation.adapters.RECIPE`


class Source(NamedTuple):
    """The photographs as they lie on disk: the flags that read them, their folder, and what was read there."""

    opt: Namespace
    root: Path
    reading: Reading


@dataclass
class Appraisal:
    """What all steps share.

    photographs: the folder of classes, or the table of images.
    folder: of the results.
    flags: of the command.
    words: flags of main.py on data and images, which every command gets.
    command: the words of this command, as typed.
    results: step -> its result, of the steps that are done.
    memory: data sets that this process has read.
    """

    photographs: Path
    folder: Path
    flags: Namespace
    words: list[str]
    command: list[str]
    results: dict[str, dict] = field(default_factory=dict)
    memory: dict[tuple, dict] = field(default_factory=dict)

    @property
    def source_words(self) -> list[str]:
        """The flags of main.py that read the photographs."""
        dataset = TABLES[self.photographs.is_file()]
        flag = {"folder": "--dataset_folder_path", "csv": "--dataset_csv"}[dataset]
        return ["--dataset", dataset, flag, str(self.photographs), *self.words]

    @property
    def planned_words(self) -> list[str]:
        """The flags of main.py on data and images, with those of the plan."""
        return [*self.words, *self.results["features"]["plan"]["words"]]

    def table_words(self, name: str) -> list[str]:
        """The flags of main.py that read a table of this appraisal."""
        return ["--dataset", "csv", "--dataset_csv", str(self.folder / name)]

    @property
    def select_words(self) -> list[str]:
        """The flags of `python -m evaluation models` that measure the select classes."""
        words = [*self.table_words("select.csv"), *self.planned_words]
        n_training = self.results["split"]["parts"][0]["images"]
        if n_training < ADAPTER_BATCH:
            words += ["--bs", str(n_training)]
        return words

    @property
    def split_words(self) -> list[str]:
        """The flags of main.py that train on the parts of this appraisal."""
        split = ["--split_scheme", "predefined", "--split_file", str(self.folder / "split.json")]
        return [*self.table_words("photographs.csv"), *split, *self.planned_words]

    @functools.cached_property
    def source(self) -> Source:
        """The photographs, read from disk. Raises UserError as main.py does."""
        # the split of this appraisal is its own: no note on that by names
        words = [*self.source_words, "--split_shuffle", "0", "--evaluate_only", "--no_train_metrics"]
        opt = parameters.resolve(words)
        root = datasets.locate(opt)
        return Source(opt, root, _reading.read_labelled(datasets.REGISTRY.module(opt.dataset), opt, root))

    def images(self, name: str) -> list[Image]:
        """The images of a table of this appraisal, in order."""
        opt = parameters.resolve([*self.table_words(name), *self.words, "--evaluate_only", "--no_train_metrics"])
        return _reading.read_labelled(datasets.REGISTRY.module("csv"), opt, datasets.locate(opt)).images

    def splits(self, opt, shape: dict, **flags) -> dict:
        """`datasets.select` of a table, remembered: it reads every file for the fingerprint."""
        opt = opt.but(**flags)
        names = ("dataset_csv", "evaluate_all", *models.OF_ONE)
        key = tuple(str(getattr(opt, name)) for name in names), str(shape)
        if key not in self.memory:
            self.memory[key] = datasets.select("csv", opt, **shape)
        return {split: copy.copy(dataset) for split, dataset in self.memory[key].items()}

    @functools.cached_property
    def fingerprint(self) -> list:
        """What tells the photographs from others: their classes, names, sizes and times of change."""
        reading = self.source.reading
        facts = _files.Files(reading.images, self.source.root).fingerprint()
        return [facts["sha256"], facts["times"], digest({"classes": [image.class_name for image in reading.images]})]


class Step(NamedTuple):
    """A step: its name, the function that does it, its title, the flags of the command that it reads, and the name of
    its file, by default its own.
    """

    name: str
    do: Callable[[Appraisal], dict]
    title: str
    flags: tuple[str, ...] = ()
    record: str | None = None


def run(appraisal: Appraisal, steps: list[Step]) -> None:
    """Do the steps that are not done, in order, and print what is left after each."""
    began = time.monotonic()
    before = {"photographs": str(appraisal.photographs), "words": appraisal.words, "files": appraisal.fingerprint}
    for number, step in enumerate(steps, start=1):
        path = appraisal.folder / f"{step.record or step.name}.json"
        flags = {name: getattr(appraisal.flags, name) for name in step.flags}
        inputs = digest({"step": step.name, "flags": flags, "before": before})
        result = _done(path, inputs)
        if result is not None:
            say(f"[{number}/{len(steps)}] {step.name}, done before: {short(result['summary'])}")
        else:
            say(f"[{number}/{len(steps)}] {step.name}: {step.title} …")
            step_began = time.monotonic()
            result = step.do(appraisal)
            write_json(path, {"inputs": inputs, "result": result})
            # read back, so that it is what a later command reads
            result = _done(path, inputs)
            seconds = time.monotonic() - step_began
            say(f"      {short(result['summary'])} ({seconds:.1f} s{_remaining(step, steps, began)})")
        appraisal.results[step.name] = result
        before = {"inputs": inputs, "result": digest(result)}


def short(text: str) -> str:
    """A text with the names of files in place of their whole paths, as in names of networks with --weights."""
    return re.sub(r"(?<!\S)/\S*/(?=\S)", "", text)


def _done(path: Path, inputs: str) -> dict | None:
    """The result of a step with these inputs; None if it is to be done."""
    try:
        with parsing(path):
            content = read_json(path)
            return content["result"] if content["inputs"] == inputs else None
    except Unreadable:
        return None


def _remaining(step: Step, steps: list[Step], began: float) -> str:
    """What is left after a step, as text."""
    names = [later.name for later in steps[steps.index(step) + 1 :]]
    if not names:
        return f", {time.monotonic() - began:.0f} s in all"
    return f"; left: {', '.join(names)}"
