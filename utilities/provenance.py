"""What a run was made with: the code as it was on disk, the packages, the file of weights."""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from utilities import plug_in_folders
from utilities.files import expanded
from utilities.programs import IS_PACKAGE

PROJECT = Path(__file__).resolve().parent.parent
# Recorded wherever they are installed, imported or not; any other package only if it is imported when the run begins.
PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "pretrainedmodels",
    "faiss-gpu",
    "faiss-cpu",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "pillow",
    "wandb",
    "dmlkit",
)
# new files that can change a run; others may be runs and data
OURS = (
    ":(glob)*.py",
    *(f":(glob){folder}/*.py" for folder in plug_in_folders.PACKAGES),
)


def describe(weights: str | None = None, project: Path = PROJECT) -> dict:
    """Code, packages and weights, as environment.yaml records them.

    Returns:
        packages: name -> version. git_commit: with `-dirty` where a tracked file is changed; None if there is no
        git. changed_files, untracked_files: name -> SHA-256 (None: deleted) of the files that differ from the commit;
        untracked ones are listed only if they are Python files in the root or a plug-in folder. weights_sha256: of the
        file that the network began with; None without one. plug_in_files: `criteria/mine.py` -> SHA-256 of the files in
        the folders of --plugins; only if there are any.
    """
    record = {
        "packages": packages(),
        "git_commit": (_git(project, "describe", "--always", "--dirty", "--abbrev=40") or "").strip() or None,
        "changed_files": _hashes(project, _git(project, "diff", "--name-only", "--relative", "-z", "HEAD")),
        "untracked_files": _hashes(
            project, _git(project, "ls-files", "--others", "--exclude-standard", "-z", "--", *OURS)
        ),
        "weights_sha256": None if weights is None else sha256(expanded(weights)),
    }
    plug_ins = {name: sha256(file) for name, file in plug_in_folders.files().items()}
    if plug_ins:
        record["plug_in_files"] = plug_ins
    return record


def packages() -> dict[str, str]:
    """Name -> version of every installed package of `PACKAGES`, and of all others that are imported."""
    imported = {name.partition(".")[0] for name in list(sys.modules)}
    imported_packages = set()
    for name, names_of_packages in _distributions().items():
        if name in imported:
            imported_packages.update(names_of_packages)
    versions = {}
    for package in (*PACKAGES, *sorted(imported_packages - set(PACKAGES), key=str.lower)):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = _version(package)
    return versions


# versions are read once in a process, however many runs it makes
_version = functools.cache(importlib.metadata.version)


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """Name of an importable module -> the packages that it comes from."""
    return dict(importlib.metadata.packages_distributions())


def sha256(path: Path) -> str | None:
    """The hash of a file's content; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _hashes(project: Path, listed: str | None) -> dict | None:
    """Name -> hash of the files that git lists, separated by NUL; None if there is no git."""
    if listed is None:
        return None
    return {name: sha256(project / name) for name in sorted(filter(None, listed.split("\0")))}


def _git(project: Path, *words: str) -> str | None:
    """The output of a git command; None where it fails, and for the package, which may lie in another repository."""
    if IS_PACKAGE:
        return None
    try:
        done = subprocess.run(["git", "-C", project, *words], capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return os.fsdecode(done.stdout).encode("utf-8", "replace").decode()
