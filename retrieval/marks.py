"""What the explorer's page needs for its marks on wrong images, which it saves as a table for `--dataset_fixes`."""

import hashlib
from typing import NamedTuple


class Marking(NamedTuple):
    """The data set whose images are marked.

    Attributes:
        root: its folder, below which paths of the table lie; None: paths stand in full.
        class_names: of all its classes; None if it has no names, so that no image gets a right label.
        fixes: the corrections that it has already, which the saved table repeats (`datasets._fixes.Fix`).
    """

    root: str | None = None
    class_names: list[str] | None = None
    fixes: tuple = ()


def content(marking: Marking, paths: list[str] | None, names: list[str | None]) -> dict | None:
    """What the page holds for marks, as JSON values; None without paths, by which the table names images.

    names: of the class of each image, None of an image without one.
    """
    if paths is None:
        return None
    pairs = zip(paths, names, strict=True)
    images = "".join(f"{path}\0{name}\n" for path, name in pairs)
    return {
        # by which the browser finds the marks again
        "id": hashlib.sha256(images.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        "root": marking.root,
        "classes": marking.class_names,
        "fixes": [list(fix) for fix in marking.fixes],
    }
