"""dmlkit, a run: `main.py` on images with a table of roles and lists; its network embeds them as the case says."""

import contextlib
import csv
import io
import os
import tempfile
from pathlib import Path

import numpy as np

from referee.adapters import _dmlkit
from referee.adapters._inputs import gallery_labels

PROGRAM = "dmlkit: a run"
PACKAGES = ()
# embeddings are float32, and the images of a run are sorted by their class
CLAIMS = {"numbers": "rounded to float32", "ties": "class order"}
SETTINGS = {}
# epoch of the untrained network's rows in metrics.csv
UNTRAINED = "0"
PLUG_INS = Path(__file__).with_name("plug_ins")
FLAGS = (
    "--dataset csv --arch referee_table --not_pretrained --embed_dim 0 --resize_size 4 --crop_size 4 --kernels 0 "
    "--n_epochs 0 --check_untrained_accuracy --no_train_metrics --no_records --plot_every 0 --bs 4"
)


def measure(case: dict) -> dict:
    """In this process: the metrics of the network as it is, before any training; nmi and ami of its own k-means."""
    import main
    import parameters

    names = _dmlkit.names_of(case)
    if not names or _dmlkit.needs_given_clusters(case):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        words = [*FLAGS.split(), *write(case, Path(folder)), "--plugins", str(PLUG_INS), "--save_path", folder]
        words += ["--storage_metrics", next(iter(names.values()))]
        with contextlib.redirect_stdout(io.StringIO()):
            run = main.main(parameters.resolve([*words, "--evaluation_metrics", *names.values()]))
        with open(run.folder / "CSV_Logs/metrics.csv", newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["split"] == "test" and row["epoch"] == UNTRAINED]
    values = {row["metric"]: float(row["value"]) for row in rows}
    results = _dmlkit.results(case, names, values)
    claim = CLAIMS.get(case["axis"])
    if claim is None:
        return results
    return {f"{name.partition(': ')[0]}: {claim}": value for name, value in results.items()}


def write(case: dict, folder: Path) -> list[str]:
    """Images, the table of features and the table of images. Returns flags.

    The rows of the gallery come first, in their order; a query that is one of them is that row.
    """
    gallery = gallery_labels(case)
    n_gallery = len(gallery)
    rows = [{"label": label, "is_query": False, "is_gallery": True} for label in gallery]
    query_rows = []
    for label, own_row in zip(case["queries"]["labels"], case["own_row"], strict=True):
        if own_row < 0:
            rows.append({"label": label, "is_query": True, "is_gallery": False})
            own_row = len(rows) - 1
        rows[own_row]["is_query"] = True
        query_rows.append(own_row)
    features = [*case["gallery_features"], *case["query_features"][case["own_row"] < 0]]
    np.save(folder / "features.npy", np.array(features))
    os.environ["REFEREE_TABLE"] = str(folder / "features.npy")
    query_sequences, gallery_sequences = _dmlkit.sequences_of(case)
    if query_sequences is not None:
        for row, sequence in zip([*range(n_gallery), *query_rows], [*gallery_sequences, *query_sequences], strict=True):
            rows[row]["sequence"] = sequence
    for number, row in enumerate(rows):
        row |= {"path": save_image(folder, number), "split": "validation", **levels_of(row["label"])}
    training = {"path": rows[0]["path"], "split": "train", "is_query": "", "is_gallery": ""}
    rows += [{**training, "label": f"of training {name}"} for name in "aabb"]
    write_table(folder / "images.csv", rows)
    flags = ["--dataset_csv", str(folder / "images.csv")]
    if not _dmlkit.is_by_lists(case):
        return flags
    listed = []
    for query, (positives, junk) in zip(query_rows, zip(*_dmlkit.lists_of(case), strict=True), strict=True):
        for kind, items in (("positive", positives), ("junk", junk)):
            listed += [{"query": rows[query]["path"], "kind": kind, "path": rows[row]["path"]} for row in items]
    write_table(folder / "lists.csv", listed)
    return [*flags, "--dataset_csv_lists", str(folder / "lists.csv")]


def levels_of(label) -> dict:
    """The columns of a label: of several levels, or a distractor's empty one."""
    if isinstance(label, list):
        return {"label": label[0], "category": label[1] if len(label) > 1 else ""}
    return {"label": "" if label is None else label}


def save_image(folder: Path, row: int) -> str:
    """An image whose colour is the number of its row."""
    from PIL import Image

    path = folder / f"{row:05d}.png"
    Image.new("RGB", (4, 4), (row % 256, row // 256, 0)).save(path)
    return str(path)


def write_table(path: Path, rows: list[dict]) -> None:
    """A CSV with the columns that any row has."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
