"""Google Landmarks v2, retrieval of 1,129 queries in 761,757 images (Weyand et al., CVPR 2020, arXiv 2004.01804).

Training is on the clean part. Public and Private queries are measured separately. Landmarks of training and of the
index are numbered differently: only training images have a class, and a published list says which images of the index
are relevant to a query.
"""

from pathlib import Path

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading
from datasets._lists import GroundTruth, Lists
from utilities.errors import UserError
from utilities.reading import read_records

FOLDERS = ("gldv2", "google-landmarks-dataset-v2", "google_landmarks_v2")
TRAINING = "train_clean.csv"
INDEX = "index.csv"
SOLUTION = "retrieval_solution_v2.1.csv"
# protocols; the first of them is the one that pictures show
USAGES = ("Private", "Public")
UNUSED = "Ignored"
EXPECTED = f"{TRAINING}, {INDEX}, {SOLUTION}, and images like train/0/1/2/012….jpg, index/…, test/…"
PUBLISHED = Published(classes=(None, 0), images=(1_580_470, None), query=(1129, 0), gallery=(761_757, 0))
DOWNLOAD = _download.Source(
    folder="gldv2",
    archives=(),
    alternatives="images and tables as https://github.com/cvdfoundation/google-landmark says",
)
EVALUATION_METRICS = ["map@100", "e_recall@1"]


def derived(opt) -> dict:
    """Values of unset flags: queries without a listed positive are left out of every metric."""
    return {"eval_skip_unmatched": 1}


def recognises(root: Path) -> bool:
    """Whether `root` holds the table of the clean training images."""
    return (root / TRAINING).is_file()


def read(opt, root: Path) -> Reading:
    """Training images by landmark, the index, and the queries with their relevant images of the index, by usage."""
    training = []
    for row in _table(root / TRAINING, "landmark_id", "images"):
        for image_id in row["images"].split():
            training.append(Image(_path("train", image_id), row["landmark_id"]))
    images = [training[i] for i in _layout.by_label([image.class_name for image in training])]
    relevant_ids = _solution(root / SOLUTION)
    for ids_of_query in relevant_ids.values():
        for query_id in ids_of_query:
            images.append(Image(_path("test", query_id), None, is_gallery=False))
    for row in _table(root / INDEX, "id"):
        images.append(Image(_path("index", row["id"]), None, is_query=False))

    reading = _layout.listed(root, images)
    reading.split_of = ["test" if image.class_name is None else "train" for image in reading.images]
    reading.lists = {}
    for usage, ids_of_query in relevant_ids.items():
        truths = {}
        for query_id, ids in ids_of_query.items():
            positives = [f"{root}/{_path('index', image_id)}" for image_id in ids]
            truths[f"{root}/{_path('test', query_id)}"] = GroundTruth(positives, junk=[])
        reading.lists[usage.lower()] = truths
    return reading


def lists(path: Path) -> Lists:
    """The positives of the queries, by usage and by the images' ids, from the published solution."""
    protocols = {}
    for usage, ids_of_query in _solution(path).items():
        protocols[usage.lower()] = {query_id: GroundTruth(ids, junk=[]) for query_id, ids in ids_of_query.items()}
    return protocols


def _path(part: str, image_id: str) -> str:
    return f"{part}/{'/'.join(image_id[:3])}/{image_id}.jpg"


def _solution(path: Path) -> dict[str, dict[str, list[str]]]:
    """Usage -> id of a query -> ids of the index images that show its landmark."""
    relevant_ids = {usage: {} for usage in USAGES}
    for number, row in enumerate(_table(path, "id", "images", "Usage"), start=2):
        usage = row["Usage"]
        if usage not in (*USAGES, UNUSED):
            raise UserError(f"{path}, row {number}: Usage {usage!r}, expected {', '.join((*USAGES, UNUSED))}")
        if usage != UNUSED:
            relevant_ids[usage][row["id"]] = [] if row["images"] == "None" else row["images"].split()
    return relevant_ids


def _table(path: Path, *needed: str) -> list[dict[str, str]]:
    """The rows of a published table. Raises UserError if it is missing or lacks a column."""
    columns, rows = read_records(path, "the data set needs it")
    lacking = [name for name in needed if name not in columns]
    if lacking:
        raise UserError(f"{path}: no {', '.join(lacking)} in each row; its columns are {', '.join(columns) or 'none'}")
    return rows
