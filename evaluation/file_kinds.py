"""What a file is that holds no arrays of NumPy, by its first bytes, and how to make embeddings of it."""

import zipfile

from utilities.errors import UserError

HEAD = 4096  # bytes that are read
ARRAYS = (b"\x93NUMPY", b"PK")  # how .npy and .npz files begin
TORCH = "a file of torch.save"
PICKLE = "a pickle, perhaps of torch.save"
TEXT = "a text file"
# beginnings of other files -> what they are
BEGINNINGS = {
    b"\x80": PICKLE,
    b"\x89HDF": "an HDF5 file",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a gzip file",
    b"MATLAB": "a MATLAB file",
    b"SQLite": "an SQLite file",
    b"ARROW1": "an Arrow file",
}


def kind_of(path: str) -> str | None:
    """What a file is, as text; None for an .npy or .npz file and for unknown, empty or unreadable content."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
        if head.startswith(b"PK") and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return TORCH if any(name.rpartition("/")[2] == "data.pkl" for name in archive.namelist()) else None
    except Exception:
        # a damaged archive raises errors of any kind; the reader names the file
        return None
    if not head or head.startswith(ARRAYS):
        return None
    for beginning, kind in BEGINNINGS.items():
        if head.startswith(beginning):
            return kind
    if head[8:9] == b"{" and b'"dtype"' in head:
        return "a safetensors file"
    return TEXT if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    """Whether the first bytes of a file are text in UTF-8, the last letter perhaps cut."""
    text = head.decode("utf-8", "ignore")
    printable = sum(letter.isprintable() or letter in "\t\r\n\ufeff" for letter in text)
    return len(text.encode()) > len(head) - 4 and printable == len(text)


def refuse_others(path: str, names: tuple[str, ...] = ("features", "labels")) -> None:
    """Raise UserError, with the way out, for a file that is known to hold no arrays of NumPy.

    Args:
        names: of the expected arrays.
    """
    kind = kind_of(path)
    if kind is None:
        return
    problem = f"{path}: {kind}, not an .npz file of arrays, nor an .npy file"
    arguments = ", ".join(f"{name}={name}" for name in names)
    saved = f'numpy.savez("FILE.npz", {arguments})'
    if kind == TEXT:
        way_out = f"read its columns into arrays, as with pandas.read_csv, and write {saved}"
    elif kind in (TORCH, PICKLE):
        way_out = f"take .numpy() of its tensors and write {saved}; checkpoints of a run are measured by "
        way_out += "`python main.py --evaluate --resume_from RUN`"
    else:
        way_out = f"load its arrays and write {saved}"
    raise UserError(f"{problem}: {way_out}")
