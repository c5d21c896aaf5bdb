"""Any images in one folder a class: --dataset_folder_path X, X/<class>/<images>; the first half of the sorted classes trains."""

from pathlib import Path

from datasets import _layout
from datasets._layout import Reading
from utilities.errors import UserError
from utilities.roles import DATA


def add_arguments(group) -> None:
    """Declare the flag of this data set."""
    path = group.add_argument("--dataset_folder_path", default=None, help="the folder X of X/<class>/<images>")
    path.role = DATA.but(fixed=None)  # a folder may move


def check(opt) -> None:
    """The path is needed. Raises UserError."""
    if opt.dataset_folder_path is None:
        raise UserError("--dataset folder needs --dataset_folder_path X, where images lie in X/<class>/")


def prepare(opt, source: Path) -> Path:
    """The folder that the flag names. Raises UserError where there is none."""
    root = Path(opt.dataset_folder_path).expanduser()
    if not root.is_dir():
        raise UserError(f"--dataset_folder_path {root}: no such folder. Expected: {root}/<class>/<images>")
    return root


def read(opt, root: Path) -> Reading:
    """The images of each subfolder, subfolders sorted by name."""
    return _layout.class_folders([root], opt)
