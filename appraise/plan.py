"""What the budget allows, by the measured speed of the networks; then the features of all photographs."""

import math
import shlex
from argparse import Namespace
from typing import NamedTuple

import numpy as np

import evaluation
import metrics
from appraise import photographs
from appraise.networks import METRICS, Bench
from appraise.steps import Appraisal, short
from datasets._image_set import ImageSet
from engine.loading import evaluation_loader
from evaluation import scales
from tools._frozen_model import Model, Part, Unavailable
from utilities.console import say
from utilities.counts import count_of
from utilities.errors import NotFinite, UserError
from utilities.shapes import pair

FIRST_IMAGES = 64  # by which the speed is measured
WARM_UP = 16  # images before them
SMALL_CROP = 128  # pixels, if the budget is too small for the network's own size
MOST_OF_CLASS = 50  # images, if it is still too small
EPOCHS = 30
SEEDS = 3
# a training step takes as long as embedding its images three times: forward, and twice that backward
TRAINING_COST = 3


class Plan(NamedTuple):
    """What the budget allows.

    archs: the networks. words: flags of main.py that make images smaller. images_of_class: at most, None for all.
    seeds: runs of the training, 0 for none. seconds: what embedding will take. notes: what the budget excludes.
    """

    archs: list[str]
    words: list[str]
    images_of_class: int | None
    seeds: int
    seconds: float
    notes: list[str]


def embed(appraisal: Appraisal) -> dict:
    """Measure the networks' speed, plan by the budget, and embed all photographs."""
    sizes = appraisal.results["data"]["sizes"]
    bench = Bench(appraisal, appraisal.flags.archs, [*appraisal.table_words(photographs.IMAGES), *appraisal.words])
    rates = {}
    missing = []
    for label, model in bench.models.items():
        try:
            rates[label] = _rate(model, bench.photographs(model, photographs.IMAGES))
        except (Unavailable, NotFinite) as error:
            missing.append(f"{label}: {error}")
            say(f"      left out  {missing[-1]}")
        finally:
            model.release()
    if not rates:
        raise UserError(f"--archs {shlex.join(bench.models)}: no network could be had ({missing[0]}); name others")
    input_side = min(max(pair(bench.models[label].facts.input_size)) for label in rates)
    plan = plan_of(sizes, rates, input_side, appraisal.flags)
    table = photographs.IMAGES
    if plan.images_of_class is not None:
        table = "fewer_images.csv"
        images = photographs.fewer_of_each_class(appraisal.images(photographs.IMAGES), plan.images_of_class)
        photographs.write_table(appraisal.folder / table, images)
    if plan.words:
        bench = Bench(appraisal, plan.archs, [*appraisal.table_words(table), *appraisal.words, *plan.words])
    say(short(f"      about {plan.seconds / 60:.1f} minutes to embed by {', '.join(plan.archs)}"))
    for note in plan.notes:
        say(f"      {note}")
    rows = []
    for label in plan.archs:
        rows.append(_first_number(bench, bench.models[label], table))
        bench.models[label].release()
    return {
        "summary": ", ".join(f"{row['label']} R@1 {100 * row['recall']:.1f} %" for row in rows) + " of all photographs",
        "networks": rows,
        "rates": rates,
        "plan": plan._asdict(),
        "table": table,
        "missing": missing,
    }


def _rate(model: Model, dataset: ImageSet) -> float:
    """Images per second of a network, by the first images; before them a few start the workers."""
    start = min(WARM_UP, len(dataset) // 2)
    parts = [slice(0, start), slice(start, min(start + FIRST_IMAGES, len(dataset)))]
    batches = iter(evaluation_loader(dataset, model.opt, parts=parts))
    power = scales.power_of(model.network, model.opt, bare=True)
    settings = evaluation.EmbedSettings(True, False, model.opt.eval_scales, power)
    for part in parts:
        embedded = evaluation.embed(model.network, Part(batches, part), model.runtime, settings=settings)
    return len(embedded.labels) / embedded.seconds


def plan_of(sizes: dict[str, int], rates: dict[str, float], input_side: int, flags: Namespace) -> Plan:
    """What fits the budget. If it is too small: no training, one network, smaller images, fewer images of a class.

    Args:
        sizes: class -> number of images. rates: network -> images per second. input_side: pixels.
    """
    budget = 60 * flags.budget
    count = sum(sizes.values())
    archs = list(rates)
    seconds = sum(count / rate for rate in rates.values())
    slowest = min(rates.values())
    run = TRAINING_COST * EPOCHS * count * flags.parts[0] / sum(flags.parts) / slowest
    notes = []
    seeds = {"no": 0, "yes": 1, "auto": 0}[flags.tune]
    for number in (SEEDS, 1):
        if flags.tune != "no" and seconds + number * run <= budget:
            seeds = max(seeds, number)
    if flags.tune == "auto" and not seeds:
        notes.append(
            f"no training: {count_of(SEEDS, 'run')} of {EPOCHS} epochs would take about {SEEDS * run / 60:.0f} minutes "
            f"here; --budget {math.ceil((seconds + SEEDS * run) / 60)} allows it, or --tune yes"
        )
    if seconds > budget and len(archs) > 1:
        notes.append(f"one network, {archs[0]}: all would take {seconds / 60:.1f} minutes")
        archs = archs[:1]
        seconds = count / rates[archs[0]]
    words = []
    if seconds > budget and input_side > SMALL_CROP:
        notes.append(f"images of {SMALL_CROP} pixels: {input_side} would take {seconds / 60:.1f} minutes")
        words = ["--crop_size", str(SMALL_CROP)]
        seconds *= (SMALL_CROP / input_side) ** 2
    images_of_class = None
    if seconds > budget and max(sizes.values()) > MOST_OF_CLASS:
        images_of_class = MOST_OF_CLASS
        fewer = sum(min(size, MOST_OF_CLASS) for size in sizes.values())
        notes.append(f"{fewer:,} of {count:,} images, at most {MOST_OF_CLASS} of a class")
        seconds *= fewer / count
    return Plan(archs, words, images_of_class, seeds, seconds, notes)


def _first_number(bench: Bench, model: Model, table: str) -> dict:
    """R@1 among all photographs, before near-duplicates are known; printed, as it is the first that is useful."""
    rows, _, _ = bench.features(model, table)
    labels = np.array([label for _, label in bench.photographs(model, table).image_list])
    space = metrics.EmbeddingSpace(rows, labels, skip_unmatched=True)
    recall = float(np.nanmean(metrics.per_query(METRICS[:1], space)[METRICS[0]]))
    share = f"{100 * recall:.1f} % of {len(rows):,} photographs"
    say(short(f"      {model.label}, frozen: the nearest one is of the class for {share}"))
    facts = model.facts
    return {"label": model.label, "recall": recall, "width": facts.width, "parameters": facts.parameters}
