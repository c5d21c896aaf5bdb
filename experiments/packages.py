"""Packages of Debian: fetched with apt-get, compared with their SHA-256, read without unpacking them to the disk."""

import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from utilities.errors import UserError

# of an archive of `ar`, the format of Debian's packages: a magic word, then members of a head and a content that is
# filled up to an even number of bytes
AR_MAGIC = 8
AR_HEAD = 60


def fetch_package(command: list[str], name: str, folder: Path | None = None) -> None:
    """Have a package manager fetch the package `name` into `folder`. Raises UserError with its reason if it cannot."""
    print(f"fetching {name}", flush=True)
    process = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if process.returncode:
        output = process.stderr.strip() or process.stdout.strip() or f"status {process.returncode}"
        reason = output.splitlines()[-1][:200]
        raise UserError(
            f"{name} cannot be fetched ({reason}): solve this and run the same command again; it continues from there"
        )


def fetch_debian(folder: Path, packages: dict[str, str]) -> None:
    """Have apt-get put the missing packages (file name -> `NAME=VERSION`) into `folder`. Raises UserError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in packages.items():
        if not (folder / name).exists():
            if shutil.which("apt-get") is None:
                raise UserError(f"apt-get is not installed: install it, or put {name} into {folder}")
            fetch_package(["apt-get", "download", package], name, folder)


def verify(folder: Path, digests: dict[str, str], remedy: str) -> None:
    """Raises UserError for a package that is not, byte for byte, the published one: file name -> SHA-256.

    Args:
        remedy: what the user can do if a package is missing.
    """
    for name, expected in digests.items():
        path = folder / name
        if not path.exists():
            raise UserError(f"{path} is missing: {remedy}")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise UserError(
                    f"{path} is not the published package (SHA-256 differs): delete it and run the same command"
                )


def debian_files(path: Path) -> Iterator[tuple[str, tarfile.ExFileObject]]:
    """Path below the root and open file of each file that a `.deb` installs, in the order of the package.

    A file is read while it is the current one: the archive is a stream that is never held as a whole.
    """
    with path.open("rb") as package:
        package.seek(AR_MAGIC)
        while True:
            head = package.read(AR_HEAD)
            if len(head) < AR_HEAD:
                raise UserError(f"{path} is no package of Debian: it has no data.tar.xz")
            if head[:16].decode().strip().rstrip("/") == "data.tar.xz":
                break
            size = int(head[48:58])
            package.seek(size + size % 2, 1)
        with tarfile.open(fileobj=package, mode="r|xz") as archive:
            for member in archive:
                if member.isfile():
                    yield member.name.removeprefix("./"), archive.extractfile(member)
