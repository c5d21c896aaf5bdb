"""From a folder of photographs to one page: what is wrong with them, which network to use, and what it can promise.

    python -m appraise PHOTOS --out FOLDER

PHOTOS is a folder with a folder for each class, or a table for --dataset csv. FOLDER gets `index.html`, and the files
behind each of its numbers. The same command continues after Ctrl-C or a crash. Flags of main.py that concern data,
images and networks (--crop_size, --kernels, --not_pretrained …) may follow.
"""

import argparse
import signal
from pathlib import Path

import architectures
import datasets
from appraise import decision, networks, page, photographs, plan
from appraise.steps import Appraisal, Step, run
from evaluation.promise import PROMISES
from tools import models
from tools._command import parser_of_page, refuse_torchrun, words_of
from utilities.console import propose_view, warn
from utilities.errors import UserError, one_line_errors
from utilities.files import expanded, make_folder, write_json
from utilities.locks import Lock
from utilities.numbers import number, whole
from utilities.reading import Unreadable, parsing, read_json

PROGRAM = "python -m appraise"
# in FOLDER: whose appraisal it is
RECORD = "appraisal.json"
ARCHS = ["resnet50", "timm:vit_small_patch14_dinov2.lvd142m"]
PARTS = [0.4, 0.1, 0.25, 0.25]
# flags of main.py that are allowed beside those of data and networks
LOADING = {"kernels", "eval_kernels", "gpu", "source_path"}
# flags of main.py that an appraisal sets itself
DECIDED = {"dataset", "dataset_folder_path", "dataset_csv", "evaluate_all", "use_tv_split", "fold"}
STEPS = [
    Step("data", photographs.find_faults, "reading and decoding every file", ("parts",)),
    Step("features", plan.embed, "speed, plan, features", ("archs", "budget", "tune", "parts", "seed")),
    Step("groups", networks.find_groups, "near-duplicates and bursts"),
    # its file is parts.json: split.json is the split for main.py
    Step("split", photographs.split, "parts that share no photograph", ("parts", "seed"), "parts"),
    Step("power", networks.power, "the differences that the test can show"),
    Step("frozen", networks.measure_frozen, "frozen networks and adapters on select classes"),
    Step("tuned", decision.tune, "training the best network, if it pays"),
    Step("threshold", decision.decide, "the choice, the test, a threshold", ("promise", "rate")),
    Step("page", page.write, "the page"),
]


def parser() -> argparse.ArgumentParser:
    """The command's own flags; all others are main.py's."""
    parser = parser_of_page(PROGRAM, __doc__)
    add = parser.add_argument
    add("photographs", metavar="PHOTOS", help="a folder of classes, PHOTOS/<class>/<images>, or a table")
    add("--out", required=True, metavar="FOLDER", help="where the page and all files go")
    help_budget = "minutes of computing that the plan may take (default: %(default)s)"
    add("--budget", type=number(least=0), default=60, metavar="MINUTES", help=help_budget)
    help_archs = 'names of networks, as --arch has them; "NAME --weights FILE" with flags of this one'
    add("--archs", nargs="+", default=ARCHS, metavar="NAME", help=f"{help_archs} (default: {' '.join(ARCHS)})")
    help_tune = "whether the best network is trained: auto if the budget allows it (default: %(default)s)"
    add("--tune", choices=("no", "auto", "yes"), default="auto", help=help_tune)
    help_promise = "what the threshold promises for new classes (default: %(default)s)"
    add("--promise", choices=PROMISES, default=PROMISES[0], help=help_promise)
    add("--rate", type=number(above=0, below=1), default=0.05, help="the share that it promises (default: %(default)s)")
    help_parts = f"shares of the classes: {', '.join(photographs.PARTS)} (default: {' '.join(map(str, PARTS))})"
    add("--parts", nargs=4, type=number(above=0), default=PARTS, metavar="SHARE", help=help_parts)
    add("--seed", type=whole(0), default=0, help="of the split and of training (default: %(default)s)")
    parser.exits = False
    return parser


def read(argv: list[str]) -> Appraisal:
    """The command line. Raises UserError."""
    flags, words = parser().parse_known_args(argv)
    allowed = architectures.REGISTRY.flags() | datasets.REGISTRY.flags() | models.OF_ONE | LOADING
    for word in words:
        name = word.partition("=")[0].removeprefix("--").removeprefix("no-")
        if word.startswith("--") and (name not in allowed - DECIDED or name.startswith("split_")):
            raise UserError(f"{word}: no flag of data, images or networks that an appraisal leaves open")
    place = expanded(flags.photographs).resolve()
    folder = expanded(flags.out).resolve()
    if not place.exists():
        raise UserError(f"{place}: no such folder or table; expected PHOTOS/<class>/<images>")
    if place == folder or folder in place.parents:
        raise UserError(f"--out {folder}: the photographs lie in it ({place}): choose another folder")
    if place in folder.parents:
        raise UserError(f"--out {folder}: it lies among the photographs ({place}): choose another folder")
    return Appraisal(place, folder, flags, words, ["python", "-m", "appraise", *argv])


def refuse_foreign(appraisal: Appraisal) -> None:
    """Raise UserError where the folder holds another appraisal, or other files."""
    record = appraisal.folder / RECORD
    try:
        with parsing(record):
            place = read_json(record)["photographs"]
    except Unreadable:
        names = sorted(path.name for path in appraisal.folder.glob("[!.]*"))
        if names:
            raise UserError(f"--out {appraisal.folder}: it holds {names[0]} and no appraisal: choose another") from None
        return
    if place != str(appraisal.photographs):
        raise UserError(f"--out {appraisal.folder}: an appraisal of {place}: choose another folder")


def main(argv: list[str] | None = None) -> Path:
    """Run the command. Returns the path of the page."""
    appraisal = read(words_of(argv))
    refuse_torchrun(PROGRAM)
    refuse_foreign(appraisal)
    photographs.refuse_few(appraisal.source.reading.images, appraisal.flags.parts)
    make_folder(appraisal.folder, f"--out {appraisal.folder}")
    lock = Lock(appraisal.folder / ".lock")
    if not lock.acquire(wait=False):
        raise UserError(f"--out {appraisal.folder}: {lock.holder() or 'another process'} works on it")
    with lock:
        refuse_foreign(appraisal)
        write_json(appraisal.folder / RECORD, {"photographs": str(appraisal.photographs)})
        try:
            run(appraisal, STEPS)
        except KeyboardInterrupt:
            warn("\nthe same command continues with the step that was interrupted")
            raise
    index = appraisal.folder / "index.html"
    propose_view(index)
    return index


if __name__ == "__main__":
    # a shell starts background programs with SIGINT ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with one_line_errors(PROGRAM):
        main()
