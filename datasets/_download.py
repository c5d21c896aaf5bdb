"""Fetching a data set: resumable, MD5-checked, unpacked to a temporary folder that is then renamed.

A data set's module names its archives in `DOWNLOAD`, a `Source`. `fetch` downloads each to `<file>.part` beside the
data set's future folder, checks the MD5, unpacks all of them to a hidden folder and renames it, so that the folder is
complete whenever it exists. A lock lets a second program wait for the first.
"""

import contextlib
import glob
import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from utilities.errors import UserError
from utilities.locks import Lock
from utilities.numbers import is_whole

ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
CHUNK = 1 << 20  # bytes
STAGING = re.compile(r"[a-z0-9_]{8}")  # how tempfile ends the name of a folder
RATIO = 200  # the largest ratio of an archive's files to its own size
ALWAYS = 10**9  # bytes that any archive may hold
TIMEOUT = 30  # seconds without an answer


@dataclass(frozen=True)
class Archive:
    """One file to fetch: its name, MD5 (None if none is published) and URLs, tried in turn.

    A file that is not an archive is kept as it is.
    """

    file: str
    md5: str | None
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Source of a data set: the folder it is unpacked to, its archives, and other places to get it from, as text."""

    folder: str
    archives: tuple[Archive, ...]
    alternatives: str


def fetch(name: str, source: Source, into: Path) -> Path:
    """Fetch and unpack the data set to `into/<source.folder>`. Returns that folder.

    When the connection breaks or the program is stopped, the fetched part of a file stays as `<file>.part`, and the
    next call resumes there. Of two programs at once the second waits for the first, and takes its result. Raises
    UserError if no source answers, the MD5 differs, an archive cannot be unpacked, or `into` cannot be written.
    """
    target = into / source.folder
    staging = None
    if target.exists():
        raise UserError(
            f"--download: {target} exists but does not hold {name}. Move it away, or fetch it by hand: "
            f"{source.alternatives}"
        )
    lock = Lock(into / f".{source.folder}.lock")
    try:
        into.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        # fetched by another program meanwhile
        if target.exists():
            return target
        # folders that a killed program has left
        for folder in into.glob(f".{glob.escape(source.folder)}-*"):
            if STAGING.fullmatch(folder.name.removeprefix(f".{source.folder}-")):
                shutil.rmtree(folder, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{source.folder}-", dir=into))
        files = [_fetch_file(name, archive, source, into) for archive in source.archives]
        for file in files:
            _unpack(file, staging)
        _payload(staging, source.folder).rename(target)
        for file in files:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"--download to {into} failed: {error.strerror or error}. Mend it and run the same command: it goes on "
            "from there"
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
        with contextlib.suppress(OSError):
            lock.path.unlink()
        lock.release()
    return target


def _payload(staging: Path, folder: str) -> Path:
    """The data set's folder among the unpacked files: the one of its name if the archives hold it, else the whole."""
    # mkdtemp makes folders that only the user can read
    os.chmod(staging, 0o755)
    return staging / folder if (staging / folder).is_dir() else staging


def _fetch_file(name: str, archive: Archive, source: Source, into: Path) -> Path:
    """Path of the archive, complete and with the right MD5."""
    file = into / archive.file
    part = into / f"{archive.file}.part"
    if file.exists() and archive.md5 in (None, _md5(file)):
        return file
    failures = []
    for url in archive.urls:
        begun = part.exists()
        try:
            _resume(url, part, archive.file)
            # the earlier part may be of another file
            if begun and archive.md5 not in (None, _md5(part)):
                part.unlink()
                _resume(url, part, archive.file)
        except _NoAnswerError as error:
            failures.append(f"{url}: {error}")
            continue
        md5 = _md5(part)
        if archive.md5 in (None, md5):
            os.replace(part, file)
            return file
        part.unlink()
        failures.append(f"{url}: MD5 {md5}, expected {archive.md5}; what was fetched is removed")
    resumable = ""
    if part.exists():
        resumable = f" {part.stat().st_size:,} bytes are kept in {part}: the same command goes on from there."
    raise UserError(
        f"--download of {name}: no source gave {archive.file} ({'; '.join(failures)}).{resumable} By hand: "
        f"{source.alternatives}"
    )


class _NoAnswerError(Exception):
    """A failure of the host, not of the disk: it cannot be reached, refuses, or the connection broke."""


def _resume(url: str, part: Path, label: str) -> None:
    """Fetch `url` to `part`, from the end of `part` on.

    After a broken connection it tries again as long as it gets further bytes.
    """
    while True:
        before = _size(part)
        error = _NoAnswerError("the connection broke")
        try:
            if _transfer(url, part, before, label):
                return
        except _NoAnswerError as no_answer:
            error = no_answer
        if _size(part) <= before:
            raise error


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _transfer(url: str, part: Path, start: int, label: str) -> bool:
    """One request for the bytes from `start` on. Returns whether the file is complete. Raises _NoAnswerError."""
    from tqdm import tqdm

    response = _open(url, start)
    if response is None:
        return True
    with response:
        # With another status (ftp, or a host without ranges) the file starts anew.
        resumes = getattr(response, "status", None) == 206
        length = response.headers.get("Content-Length")
        if length is not None and not is_whole(length):
            raise _NoAnswerError(f"its Content-Length {length[:20]!r} is not a number")
        position = start if resumes else 0
        total = position + int(length) if length is not None else None
        bar = tqdm(total=total, initial=position, unit="B", unit_scale=True, desc=label, disable=None)
        mode = "ab" if resumes else "wb"
        with open(part, mode) as file, bar:
            while chunk := _read(response):
                file.write(chunk)
                position += len(chunk)
                bar.update(len(chunk))
    return total is None or position >= total


def _open(url: str, start: int):
    """The response to a request for the bytes from `start` on; None if there are none. Raises _NoAnswerError."""
    import http.client
    import urllib.error
    import urllib.request

    headers = {"User-Agent": "python"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        # the file is complete, or too long: the MD5 decides
        if error.code == 416 and start:
            return None
        raise _NoAnswerError(" ".join(f"HTTP {error.code} {error.reason}".split())) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        # ValueError: a redirect to no address
        raise _NoAnswerError(" ".join(str(getattr(error, "reason", None) or error).split())) from error
    if response.headers.get_content_type() == "text/html":
        response.close()
        raise _NoAnswerError("the host answers with a web page, not with the file")
    return response


def _read(response) -> bytes:
    """The next chunk, empty at the end. Raises _NoAnswerError."""
    import http.client

    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _NoAnswerError(f"the connection broke ({error})") from error


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _refuse_bomb(file: Path, unpacked: int) -> None:
    """Raise ValueError where an archive's files have more than `RATIO` times its bytes, and more than `ALWAYS`."""
    if unpacked > max(RATIO * file.stat().st_size, ALWAYS):
        raise ValueError(f"its files are more than {RATIO} times as large as it is: no archive of images is")


def _unpack(file: Path, folder: Path) -> None:
    """Unpack a tar or zip archive to `folder`; copy any other file there. Raises UserError for a broken archive."""
    import tarfile
    import zipfile

    try:
        if tarfile.is_tarfile(file):
            unpacked = 0

            def counted(member, path):
                nonlocal unpacked
                unpacked += member.size
                _refuse_bomb(file, unpacked)
                return tarfile.data_filter(member, path)

            with tarfile.open(file) as archive:
                archive.extractall(folder, filter=counted)
        elif zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                _refuse_bomb(file, sum(member.file_size for member in archive.infolist()))
                archive.extractall(folder)
        elif file.name.lower().endswith(ARCHIVES) or not file.stat().st_size:
            raise zipfile.BadZipFile(f"{file.stat().st_size:,} bytes that are no archive")
        else:
            shutil.copy2(file, folder / file.name)
    except Exception as error:
        # An error with an errno, such as a full disk, is no fault of the archive. Without one the archive is damaged,
        # encrypted, or of a version or compression that Python does not know.
        if getattr(error, "errno", None) is not None:
            raise
        raise UserError(f"{file} cannot be unpacked ({error}): remove it and run the same command") from error
