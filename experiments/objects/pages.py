"""What docs/data.md shows of the objects: a sheet of their pictures, and their numbers.

    python -m experiments.objects.pages --sheet Datasets
    python -m experiments.objects.pages --frozen Training_Results/objects_frozen

The first draws docs/pictures/objects.png from the data that `make objects-data` has written. The second writes the
tables of docs/data.md: of the frozen networks from the results of `python -m evaluation models`, which are copied to
frozen_networks.csv (without --frozen: from this file), and of the losses from data_runs.csv, the runs of
experiments/Objects_Runs.sh that `python -m experiments.study.raw` has added.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np

from experiments.study import raw
from experiments.study.page import MAP_R, R_AT_1, markdown, put
from results import columns
from results.columns import LAST
from results.formats import Table
from results.tables.notes import text
from utilities.errors import OneLineParser, UserError, one_line_errors
from utilities.files import write_csv
from utilities.reading import read_json, read_records

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/data.md"
SCRIPT = ROOT / "experiments/Objects_Runs.sh"
SHEET = ROOT / "docs/pictures/objects.png"
RUNS = Path(__file__).with_name("data_runs.csv")
FROZEN = Path(__file__).with_name("frozen_networks.csv")
MARKS = (
    "<!-- results of {}: written by experiments/objects/pages.py -->",
    "<!-- end of the results of {} -->",
)
# of the sheet: a column of parts and one of furniture
CLASSES = (
    (
        "led_tht/LED_D5.0mm",
        "connector_jst/JST_PH_B11B-PH-K_1x11_P2.00mm_Vertical",
        "capacitor_tht/CP_Radial_D5.0mm_P2.00mm",
        "package_to_sot_tht/TO-220-2_Horizontal_TabDown",
        "crystal/Crystal_HC49-4H_Vertical",
        "connector_usb/USB_Micro-B_Molex_47346-0001",
    ),
    (
        "furniture_exterior/blendswap-cc-0_deckchair",
        "furniture_kitchen/blendswap-cc-by_microwave",
        "furniture_miscellaneous/blendswap-cc-0_pooltable",
        "furniture_lights/blendswap-cc-0_desklamp",
        "furniture_characters/blendswap-cc-0_horse2",
        "furniture_office/blendswap-cc-0_armchair",
    ),
)
TILE = 96
GAP = 4
TEXT = 18
N_VIEWS = 5
INK = (60, 60, 60)


def sheet(data: Path, path: Path) -> None:
    """Draw rows of classes, each with its first pictures and its name below them, in two columns."""
    from PIL import Image, ImageDraw, ImageFont

    width = N_VIEWS * TILE + (N_VIEWS - 1) * GAP
    row_height = TILE + TEXT + 2 * GAP
    size = 2 * width + 5 * GAP, max(map(len, CLASSES)) * row_height + 2 * GAP
    picture = Image.new("RGB", size, "white")
    drawing = ImageDraw.Draw(picture)
    font = ImageFont.load_default(12)
    for number, labels in enumerate(CLASSES):
        x = GAP + number * (width + 3 * GAP)
        for row, label in enumerate(labels):
            top = GAP + row * row_height
            for view in range(N_VIEWS):
                tile = Image.open(data / "objects" / label / f"{view:02}.png").resize(
                    (TILE, TILE), Image.Resampling.LANCZOS
                )
                picture.paste(tile, (x + view * (TILE + GAP), top))
            drawing.text((x, top + TILE + 1), label.replace("/", "  /  "), INK, font)
    path.parent.mkdir(exist_ok=True)
    picture.quantize(255, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def keep_frozen(folder: Path) -> None:
    """Copy the rows of `python -m evaluation models` in a folder to frozen_networks.csv. Raises UserError."""
    files = sorted(folder.glob("*/*.json"))
    if len(files) != 1:
        raise UserError(f"--frozen {folder}: expected one table of python -m evaluation models, found {len(files)}")
    rows = []
    for row in read_json(files[0])["rows"]:
        scores = row["scores"]["test"]
        network, _, adapter = row["name"].partition(", ")
        # without flags, of which some name files of this machine
        name = ", ".join(filter(None, (network.split()[0], adapter)))
        rows.append((name, row["size"], row["width"], f"{scores['e_recall@1']:.6f}", f"{scores['map_r']:.6f}"))
    write_csv(FROZEN, ("network", "input", "width", "e_recall@1", "map_r"), rows)


def frozen_table() -> Table:
    """The frozen networks on the official test classes."""
    table = Table(
        "objects_frozen",
        "Frozen networks on the 1,136 test classes",
        ["network", "input", "width", "R@1 [%]", "MAP@R [%]"],
    )
    for row in read_records(FROZEN)[1]:
        scores = [f"{100 * float(row[metric]):.1f}" for metric in ("e_recall@1", "map_r")]
        table.add(list(map(text, (row["network"], row["input"], row["width"], *scores))))
    return table


def loss_table(runs: list) -> Table:
    """Mean and standard deviation over the seeds of each loss, in the order of R@1."""
    by_group = defaultdict(list)
    for run in runs:
        by_group[run.group.removeprefix("Objects_")].append(run)
    table = Table("objects_losses", "Losses on the 1,136 test classes", ["loss", "seeds", "R@1 [%]", "MAP@R [%]"])
    values = {}
    for name, members in by_group.items():
        scores = [[columns.value(run, column, LAST) for column in (R_AT_1, MAP_R)] for run in members]
        values[name] = 100 * np.array(scores)
    for name, scores in sorted(values.items(), key=lambda item: -item[1][:, 0].mean()):
        table.add([text(name), text(str(len(scores))), *(text(_with_deviation(column)) for column in scores.T)])
    n_lines = SCRIPT.read_text(encoding="utf-8").count("\npython main.py")
    if len(runs) < n_lines:
        table.notes = [f"Not finished: {len(runs)} of {n_lines} runs."]
    return table


def _with_deviation(values: np.ndarray) -> str:
    mean = f"{values.mean():.2f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {values.std(ddof=1):.2f}"


def write_numbers() -> None:
    """Write the tables between their marks in docs/data.md."""
    tables = [frozen_table()]
    if RUNS.exists():
        tables.append(loss_table(raw.read(RUNS)))
    put(PAGE, "the objects", "\n\n".join(map(markdown, tables)), MARKS)


def main(argv=None) -> None:
    """Draw the sheet if the data are named; else write the tables."""
    parser = OneLineParser(
        prog="experiments.objects.pages", allow_abbrev=False, description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--sheet", type=Path, default=None, metavar="FOLDER", help="draw the sheet of the data there")
    parser.add_argument(
        "--frozen", type=Path, default=None, metavar="FOLDER", help="first copy the results of evaluation models there"
    )
    options = parser.parse_args(argv)
    if options.sheet is not None:
        sheet(options.sheet, SHEET)
        print(f"{SHEET.relative_to(ROOT)} written")
    if options.frozen is not None:
        keep_frozen(options.frozen)
    if options.sheet is None or options.frozen is not None:
        write_numbers()
        print(f"{PAGE.relative_to(ROOT)}: numbers of the objects written")


if __name__ == "__main__":
    with one_line_errors("experiments.objects.pages"):
        main()
