"""From distances to decisions: is a query one of the gallery's classes at all? `python -m evaluation decide FILE`.

FILE is a file of embeddings as `python -m evaluation` reads it. A query is known if the gallery holds its class, else
new. `is_query` and `is_gallery` say what the gallery is, or `--open_set SEED` divides the classes. An answer whose
distance is not below the threshold T is "unknown". `--threshold_by promise` chooses T with a promise for classes never
seen, from classes that are set aside (evaluation/promise.py); the other rules (evaluation/thresholds.py) promise
nothing. Several files are embeddings of the same images by several networks, whose calibrated probabilities are
averaged.
"""

import argparse
from pathlib import Path

import numpy as np

from evaluation import enrolment, file_arrays, naming, promise, thresholds
from evaluation.promise import Promise
from options.flags import rules
from pictures import space as charts
from tools import _calibration, _decision, _queries
from tools._command import PICTURES, check_output, new_parser, refuse_torchrun, words_of
from tools._decision import Decision
from tools._queries import Gallery, Queries, is_verification
from utilities.console import propose, propose_view, say
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import write_json
from utilities.numbers import number, whole

PROGRAM = "python -m evaluation decide"
RULES = ("promise", "far", "eer", "f1", "balanced")
NO_NEW = "--open_set SEED makes half of the classes new, is_query and is_gallery (N,) say what the gallery is"
NEEDS_KNOWN = ("eer", "f1", "balanced")


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = new_parser(PROGRAM, "Thresholds for known and new classes, with a promise for classes never seen.")
    add = parser.add_argument
    help_files = (
        "an .npz file with features (N, D), labels, perhaps is_query, is_gallery, paths, class_names, sequence, group, "
        "time; several: embeddings of the same images by several networks"
    )
    add("files", nargs="+", metavar="FILE", help=help_files)
    help_by = "how the threshold is chosen; promise: with a promise for classes never seen (default: promise)"
    add("--threshold_by", default="promise", choices=RULES, help=help_by)
    help_rate = "share of images of new classes that may get a name, or of what --promise counts (default: .05)"
    add("--rate", type=number(above=0, below=1), default=0.05, metavar="A", help=help_rate)
    help_promise = (
        "what is promised: confident: at most a share A of images of new classes gets a name, with the confidence; "
        "average: on average over repetitions; whole: at most a share A of new classes has any image that gets a name; "
        "pairs: at most a share A of image pairs of two new classes match (default: confident)"
    )
    of_promise = add("--promise", default="confident", choices=promise.PROMISES, help=help_promise)
    of_promise.only_with = {"threshold_by": ["promise"]}
    help_confidence = "confidence of the promise (default: .95)"
    confidence = add("--confidence", type=number(above=0, below=1), default=0.95, metavar="C", help=help_confidence)
    confidence.only_with = {"threshold_by": ["promise"], "promise": ["confident", "whole", "pairs"]}
    help_answer = (
        "the name of a query: of the nearest image, the nearest class mean, or the most of k (default: nearest)"
    )
    add("--answer", default="nearest", metavar="nearest|mean|vote@K", help=help_answer)
    help_verify = "judge pairs of images, of one class or of two, in place of answers; as --promise pairs does"
    add("--verify", action="store_true", help=help_verify)
    help_open = (
        "make the roles: half of the classes, shuffled by SEED, are known; half of the groups or sequences of each, "
        "else of its images, is gallery"
    )
    add("--open_set", type=whole(0), default=None, metavar="SEED", help=help_open)
    help_aside = (
        "classes on which the threshold is chosen, and reported on the others: a share of them, newest (the later half "
        "by first time), a list of names (.json, .txt), or an .npz file with their embeddings (default: all new ones)"
    )
    add("--set_aside", default=None, metavar="SHARE|newest|FILE", help=help_aside)
    add("--unit", default="class", choices=["class", "super"], help="what counts as one draw (default: class)")
    help_calibrate = "also turn distances into probabilities that an answer is right"
    add("--calibrate", default=None, choices=["logistic", "isotonic"], help=help_calibrate)
    help_prior = "share of right answers in use, where it differs from that of the set-aside classes"
    prior = add("--prior", type=number(above=0, below=1), default=None, metavar="P", help=help_prior)
    prior.needs = "calibrate"
    bins = add("--bins", type=whole(1, 1000), default=15, help="bins of the calibration error (default: 15)")
    bins.needs = "calibrate"
    help_diagram = "draw the reliability of the probabilities to this file, .png or .svg"
    add("--reliability", default=None, metavar="FILE", help=help_diagram).needs = "calibrate"
    help_weight = "weight of known images in the normalized accuracy (default: .5)"
    add("--known_weight", type=number(0, 1), default=0.5, metavar="MU", help=help_weight)
    help_out = "also write the decision to this JSON file, for `python -m retrieval query --threshold FILE`"
    add("--out", default=None, metavar="FILE", help=help_out)
    return parser


def check(flags) -> None:
    """Raise UserError for flags that do not fit each other; a share of `--set_aside` becomes a number."""
    actions = parser()._actions
    rules.refuse(actions, flags, typed=rules.changed(actions, flags))
    naming.check(flags.answer)
    check_output("--out", flags.out)
    check_output("--reliability", flags.reliability, *PICTURES)
    if len(flags.files) > 1:
        if flags.calibrate is None:
            raise UserError("several files are fused by their probabilities: add --calibrate logistic or isotonic")
        if flags.answer != "nearest" or is_verification(flags):
            raise UserError("several files are fused image by image: leave out --answer, --verify and --promise pairs")
        if flags.set_aside is not None and flags.set_aside.endswith(".npz"):
            raise UserError(
                f"--set_aside {flags.set_aside}: embeddings of one network, and {len(flags.files)} are fused"
            )
    if is_verification(flags) and flags.answer != "nearest":
        raise UserError(f"--answer {flags.answer}: pairs of images have no answer: leave it out")
    rule = flags.set_aside
    if rule is None or rule == enrolment.NEWEST or Path(rule).suffix in (".json", ".txt", ".npz"):
        return
    try:
        flags.set_aside = number(above=0, below=1)(rule)
    except (argparse.ArgumentTypeError, ValueError):
        raise UserError(
            f"--set_aside {rule}: a share between 0 and 1, {enrolment.NEWEST}, or a .json, .txt or .npz file is "
            "expected"
        ) from None


def refuse_selected(flags, gallery: Gallery) -> None:
    """Raise UserError if the flags in the file of the set-aside classes show that they trained the network, or selected
    its epoch; a rule without a promise says so in a line.
    """
    path = gallery.path
    arrays = gallery.arrays
    if isinstance(flags.set_aside, str) and flags.set_aside.endswith(".npz"):
        path = flags.set_aside
        arrays = _queries.read(path)
    written = file_arrays.written_flags(arrays)
    split = written.get("split")
    use = None
    if split == "train":
        use = "trained the network"
    elif split is not None and split == written.get("selected_on"):
        use = "selected the epoch"
    if use is None:
        return
    reason = f"{path}: its classes {use} ({split}), so they say nothing of new ones"
    if flags.threshold_by == "promise":
        raise UserError(
            f"{reason}: 0 classes are set aside, and {promise.needed(flags.promise, flags.rate, 1 - flags.confidence)} "
            "are needed: take classes of another split, such as test of a run with --use_tv_split"
        )
    say(f"note: {reason}: expect worse rates")


def promised(flags, chosen: Queries) -> tuple[Promise, float]:
    """The promise of `--promise` and its threshold, from the queries of set-aside classes. Raises UserError, with the
    number of classes needed, if these are too few.
    """
    images = chosen.images
    noun = "individual" if flags.unit == "class" else "super-class"
    units = np.unique(images.units)
    pledge = Promise(flags.promise, flags.rate, 1 - flags.confidence, len(units), noun)
    if not len(units):
        raise UserError(f"{pledge.impossible()} {NO_NEW}")
    distances = chosen.answers.distance
    if flags.promise == "average":
        threshold = promise.on_average(distances, images.units, flags.rate)
    else:
        if flags.promise == "whole":
            drawn_distances = promise.smallest_by_class(distances, images.units)
        else:
            rows = promise.one_per_unit(images.units, images.classes, images.files, images.bursts)
            drawn_distances = distances[rows]
            if flags.promise == "pairs":
                pairs = rows[promise.disjoint_pairs(units.tolist())]
                drawn_distances = _queries.distances_between(chosen, pairs[:, 0], pairs[:, 1])
        threshold = promise.kth_smallest(drawn_distances, flags.rate, 1 - flags.confidence)
    if threshold is None:
        raise UserError(pledge.impossible())
    return pledge, threshold


def chosen_threshold(flags, new: Queries, aside: Queries) -> tuple[float, str]:
    """The threshold of a rule without a promise, and what it does to the set-aside classes."""
    if flags.threshold_by == "far":
        if not len(new):
            raise UserError(f"--threshold_by far: no query is of a new class, and at least 1 is needed. {NO_NEW}")
        threshold = thresholds.far(new.answers.distance, flags.rate)
        share = (new.answers.distance < threshold).mean()
        return threshold, f"false accepts {100 * share:.1f} %"
    try:
        threshold, value = getattr(thresholds, flags.threshold_by)(aside.answers.distance, aside.answers.right)
    except UserError as error:
        raise UserError(f"--threshold_by {flags.threshold_by}: {error}") from None
    name = {"eer": "equal error rate", "f1": "F1", "balanced": "balanced accuracy"}[flags.threshold_by]
    return threshold, f"{name} {100 * value:.1f} %"


def sentence_of(flags, pledge: Promise | None, threshold: float, effect: str, gallery: Gallery, named: str) -> str:
    """The decision in words.

    Args:
        pledge: the promise; None: another rule chose the threshold. effect: what that rule did to set-aside classes.
        named: share of images of known classes that are named rightly; may be empty.
    """
    if pledge is not None:
        return pledge.sentence(threshold, gallery.n_units, len(gallery.classes), named)
    farther = "farther is different" if is_verification(flags) else "farther is new"
    text = (
        f"T = {promise.digits_below(threshold)} (distance; {farther}). {flags.threshold_by}: {effect} on the set-aside "
    )
    text += "classes; no promise for others."
    if flags.threshold_by == "far":
        text = text[:-1] + ": new ones exceed the rate in half of all cases."
    if named:
        text += f" {named} of images of known individuals are named rightly."
    return text


def calibrated(flags, aside: Queries) -> tuple[list, dict]:
    """The calibrations, one for each network, and what the JSON says of them; prints their error."""
    listed = _calibration.answers_of_each(aside)
    units = aside.images.units
    calibrations = _calibration.fitted(flags.calibrate, listed, units)
    described = []
    for path, calibration in zip(flags.files, calibrations, strict=True):
        parameters = {name: np.asarray(value).tolist() for name, value in vars(calibration).items()}
        described.append({"file": path, **parameters})
        if flags.calibrate == "logistic":
            say(f"{path}: p = 1 / (1 + exp({-calibration.slope:.6g} d {-calibration.intercept:+.6g}))")
        if not calibration.is_decreasing:
            say(f"note: {path}: farther answers are right more often: its distances do not fit a threshold")
    content = {"kind": flags.calibrate, "prior": flags.prior, "networks": described, "bins": flags.bins, "folds": None}
    try:
        of_classes = _calibration.held_out(flags.calibrate, aside, listed)
    except UserError as error:
        say(f"no calibration error: {error}")
        return calibrations, content
    content["folds"] = _calibration.FOLDS
    for name, adaptive in (("ece", False), ("ece_adaptive", True)):
        error = _calibration.error_of(of_classes, flags.bins, adaptive)
        content[name] = error._asdict()
        kind = "equal counts" if adaptive else "equal width"
        interval = f"{error.value:.4f} [{error.low:.4f}, {error.high:.4f}]"
        say(f"{name} {interval}, {flags.bins} bins of {kind}, on held-out classes")
    if flags.reliability is not None:
        place = Path(flags.reliability)
        title = f"{flags.calibrate.capitalize()} probabilities on held-out classes, ECE {content['ece']['value']:.3f}"
        weights = thresholds.class_weights(of_classes.units)
        charts.reliability(place, of_classes.probabilities, of_classes.right, weights, flags.bins, title)
        print(f"written  {place}")
    return calibrations, content


def describe(flags, queries: Queries, gallery: Gallery, notes: list[str]) -> None:
    """Print what the file holds, and what of it is left out or not told apart."""
    n_known = int(queries.answers.known.sum())
    n_new = int(queries.is_new.sum())
    noun = "class" if flags.unit == "class" else "super-class"
    known_units = count_of(len(queries.units(new=False)), f"known {noun}", f"known {noun}es")
    new_units = count_of(len(queries.units(new=True)), f"new {noun}", f"new {noun}es")
    kinds = f"{count_of(n_known, 'query', 'queries')} of {known_units}, {n_new:,} of {new_units}"
    say(f"{', '.join(flags.files)}: gallery of {gallery}; {kinds}")
    for note in notes:
        say(note)
    n_unclear = len(queries) - n_known - n_new
    if n_unclear:
        unclear = count_of(n_unclear, "query", "queries")
        say(f"{unclear} left out: neither of a class in the gallery nor of a new {noun}")
    if "paths" not in gallery.arrays and flags.threshold_by == "promise":
        say(f"{flags.files[0]} has no paths: the image of each class is chosen by row number")
    if len(queries.units(new=True)) == 1:
        say("all new queries are of one class: BAUS is a share of images")


def main(argv: list[str] | None = None) -> dict:
    """Print the decision, and return what `--out` writes."""
    argv = words_of(argv)
    flags = parser().parse_args(argv)
    refuse_torchrun(PROGRAM)
    check(flags)
    queries, gallery, notes = _queries.gather(flags)
    refuse_selected(flags, gallery)
    describe(flags, queries, gallery, notes)
    verify = is_verification(flags)
    new, aside, reported = _queries.divided(queries, gallery, flags)
    images = aside
    if verify:
        aside = _queries.as_pairs(aside)
        reported = _queries.as_pairs(reported)
        new = aside.take(aside.is_new)
    calibrations = []
    calibration = None
    if flags.calibrate is not None:
        calibrations, calibration = calibrated(flags, aside)
        if len(flags.files) > 1:
            new, aside, reported = _queries.divided(_queries.fused(queries, calibrations), gallery, flags)
    reported = reported.take(reported.answers.known | reported.is_new)
    pledge = None
    effect = ""
    choosing = aside
    if flags.threshold_by == "promise":
        choosing = images if verify else new
        pledge, threshold = promised(flags, choosing)
    else:
        threshold, effect = chosen_threshold(flags, new, aside)
        if flags.threshold_by == "far":
            choosing = new
    sizes = np.unique(choosing.images.units, return_counts=True)[1]
    rates = _decision.rates(reported, threshold, flags, verify)
    named = "" if verify else _decision.named_text(rates["named"])
    sentence = sentence_of(flags, pledge, threshold, effect, gallery, named)
    class_limits = _decision.class_limits(new, flags.rate)
    paired = _decision.inconsistency(images)
    set_aside = len(sizes), int(sizes.min())
    decision = Decision(threshold, pledge, *set_aside, sentence, gallery, rates, class_limits, paired)
    say(f"\n{sentence}\n")
    if calibration is not None:
        calibration["probability_at_threshold"] = probability_at(threshold, calibrations, flags.prior)
        say(f"at T an answer is right with probability {calibration['probability_at_threshold']:.4f}")
    if flags.set_aside is None:
        say(same_classes(flags, verify))
    print("\n".join(_decision.lines(decision, flags, len(flags.files))))
    content = _decision.content(decision, flags, calibration, queries)
    if flags.out is not None:
        write_json(flags.out, content)
        print(f"written  {flags.out}")
    propose_next(flags, argv)
    return content


def probability_at(threshold: float, calibrations: list, prior: float | None) -> float:
    """The probability of an answer at the threshold, of fused networks 1 less it; see `thresholds.with_prior`."""
    probability = 1 - threshold
    if len(calibrations) == 1:
        probability = float(calibrations[0](np.array(threshold)))
    odds = float(np.mean([calibration.odds for calibration in calibrations]))
    return float(thresholds.with_prior(np.array(probability), odds, prior))


def same_classes(flags, verify: bool) -> str:
    """Which rates are of the classes that chose the threshold, as nothing was set aside by a flag."""
    if verify or flags.threshold_by in NEEDS_KNOWN:
        return "note: the rates are of the classes on which T was chosen; --set_aside .5 reports them on others"
    return "note: FPIR and BAUS are of the classes on which T was chosen; --set_aside .5 reports them on others"


def propose_next(flags, argv: list[str]) -> None:
    """Print the command after a decision: how queries are answered with it, or how it is kept."""
    if flags.out is None:
        file = Path(flags.files[0])
        propose(*PROGRAM.split(), *argv, "--out", file.with_name(f"{file.stem}_decision.json"))
    elif flags.reliability is not None:
        propose_view(Path(flags.reliability))
