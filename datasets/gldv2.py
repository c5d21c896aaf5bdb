"""Google Landmarks v2: training on the clean part, retrieval of 1,129 queries in 761,757 images (Weyand et al., CVPR
2020, arXiv 2004.01804).

Public and Private queries are measured apart. Landmark ids of training and of the index are different numberings: only
training images have a class.
"""

from pathlib import Path

from datasets import _download, _layout, _lists
from datasets._layout import Published, Reading
from utilities.errors import UserError
from utilities.reading import read_records

FOLDERS = ("gldv2", "google-landmarks-dataset-v2", "google_landmarks_v2")
TRAINING = "train_clean.csv"
INDEX = "index.csv"
SOLUTION = "retrieval_solution_v2.1.csv"
EXPECTED = f"{TRAINING}, {INDEX}, {SOLUTION}, and images like train/0/1/2/012….jpg, index/…, test/…"
PUBLISHED = Published(classes=(None, 0), images=(1_580_470, None), query=(1129, 0), gallery=(761_757, 0))
EVALUATION_METRICS = ["map@100", "e_recall@1"]
DOWNLOAD = _download.Source(
    folder="gldv2",
    archives=(),
    alternatives="images and tables as https://github.com/cvdfoundation/google-landmark says",
)
# protocols; the first of them is the one that pictures show
USAGES = ("Private", "Public")
UNUSED = "Ignored"


def recognises(root: Path) -> bool:
    """Whether `root` holds the table of the clean training images."""
    return (root / TRAINING).is_file()


def derived(opt) -> dict:
    """Flags that are unset: what the lists leave out is left out of every value of a query, too."""
    return {"eval_skip_unmatched": 1}


def read(opt, root: Path) -> Reading:
    """Training images by landmark; the index and the queries without a class, and what each query is to find, by usage."""
    training = [
        (name, row["landmark_id"])
        for row in _table(root / TRAINING, "landmark_id", "images")
        for name in row["images"].split()
    ]
    rows = [
        (_place("train", training[i][0]), training[i][1])
        for i in _layout.by_label([landmark for _, landmark in training])
    ]
    solution = _solution(root / SOLUTION)
    index = [row["id"] for row in _table(root / INDEX, "id")]
    queries = [name for of in solution.values() for name in of]
    rows += [(_place("test", name), None, None, True, False) for name in queries] + [
        (_place("index", name), None, None, False, True) for name in index
    ]
    reading = _layout.listed(root, rows)
    reading.split_of = ["train" if image.class_name is not None else "test" for image in reading.images]
    reading.lists = {
        usage.lower(): {
            f"{root}/{_place('test', name)}": ([f"{root}/{_place('index', one)}" for one in found], [])
            for name, found in of.items()
        }
        for usage, of in solution.items()
    }
    return reading


def lists(path: Path) -> _lists.Lists:
    """The positives of the queries, by usage and by the images' ids, from the published solution."""
    return {usage.lower(): {name: (found, []) for name, found in of.items()} for usage, of in _solution(path).items()}


def _place(part: str, name: str) -> str:
    return f"{part}/{'/'.join(name[:3])}/{name}.jpg"


def _solution(path: Path) -> dict[str, dict[str, list[str]]]:
    """Usage -> id of a query -> ids of the index images that show its landmark."""
    found = {usage: {} for usage in USAGES}
    for number, row in enumerate(_table(path, "id", "images", "Usage"), start=2):
        if row["Usage"] not in (*USAGES, UNUSED):
            raise UserError(f"{path}, row {number}: Usage {row['Usage']!r}, expected {', '.join((*USAGES, UNUSED))}")
        if row["Usage"] != UNUSED:
            found[row["Usage"]][row["id"]] = [] if row["images"] == "None" else row["images"].split()
    return found


def _table(path: Path, *needed: str) -> list[dict[str, str]]:
    """The rows of a published table. Raises UserError where it is missing or lacks a column."""
    columns, rows = read_records(path, "the data set needs it")
    lacking = [name for name in needed if name not in columns]
    if lacking:
        raise UserError(f"{path}: no {', '.join(lacking)} in each row; its columns are {', '.join(columns) or 'none'}")
    return rows
