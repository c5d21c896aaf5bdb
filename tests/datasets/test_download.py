"""Downloads from a host of the test's own: checked, resumed, refused."""

import concurrent.futures
import hashlib
import http.server
import io
import multiprocessing
import os
import tarfile
import threading
import zipfile

import pytest

import datasets
from datasets import _download, cars196, cub200, online_products
from tests import builders
from utilities.errors import UserError


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`, knows ranges, and breaks off after `server.at_most` bytes as often as `server.breaks` says."""

    def do_GET(self):  # noqa: N802
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        content = server.files.get(self.path)
        if server.redirect:
            self.send_response(302)
            self.send_header("Location", server.redirect)
            self.end_headers()
            return
        if content is None:
            self.send_error(404)
            return
        start = 0
        if self.headers.get("Range") and server.ranges:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Type", server.kind)
        self.send_header("Content-Length", server.length or str(len(content) - start))
        self.end_headers()
        end = len(content)
        if server.breaks:
            server.breaks -= 1
            end = min(end, start + server.at_most)
        self.wfile.write(content[start:end])
        self.wfile.flush()

    def log_message(self, *_):
        pass


@pytest.fixture
def host():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.requests, server.ranges, server.breaks, server.at_most = {}, [], True, 0, 0
    server.kind, server.redirect, server.length = "application/octet-stream", None, None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()


def tar_of(folder):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return buffer.getvalue()


def source(host, files, folder="CUB_200_2011", md5=None):
    """A source whose archives lie on the host."""
    host.files = {f"/{name}": content for name, content in files.items()}
    archives = [
        _download.Archive(name, md5 or hashlib.md5(content).hexdigest(), (f"{host.url}/{name}",)) for name, content in files.items()
    ]
    return _download.Source(folder, tuple(archives), "look at https://elsewhere.example")


@pytest.fixture
def cub(tmp_path, host, monkeypatch):
    """CUB200 on the host; returns its archive."""
    content = tar_of(builders.make_cub200(tmp_path / "made", layout="official"))
    monkeypatch.setattr(cub200, "DOWNLOAD", source(host, {"CUB_200_2011.tgz": content}))
    return content


def select(tmp_path, name="cub200"):
    return datasets.select(name, None, tmp_path / "data", download=True, allow_partial_dataset=True)


def test_fetched_unpacked_and_found(tmp_path, host, cub):
    splits = select(tmp_path)
    assert len(splits["training"]) == len(splits["testing"]) == 24 and splits["training"][0][1].shape == (3, 224, 224)
    assert os.listdir(tmp_path / "data") == ["CUB_200_2011"]
    select(tmp_path)
    assert len(host.requests) == 1  # what is there is not fetched again


def test_a_broken_connection_is_taken_up_where_it_ended(tmp_path, host, cub):
    host.breaks, host.at_most = 2, len(cub) // 3
    select(tmp_path)
    third = len(cub) // 3
    assert [asked for _, asked in host.requests] == [None, f"bytes={third}-", f"bytes={2 * third}-"]


def test_a_stopped_download_goes_on_with_the_next_command(tmp_path, host, cub, monkeypatch):
    host.breaks, host.at_most = 1, 1000
    monkeypatch.setattr(_download, "_resume", lambda url, part, label: _download._transfer(url, part, 0, label) and None)
    with pytest.raises(UserError):
        select(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(cub200, "DOWNLOAD", source(host, {"CUB_200_2011.tgz": cub}))
    part = tmp_path / "data" / "CUB_200_2011.tgz.part"
    part.write_bytes(cub[:1000])
    host.requests.clear()
    select(tmp_path)
    assert [asked for _, asked in host.requests] == ["bytes=1000-"] and os.listdir(tmp_path / "data") == ["CUB_200_2011"]


@pytest.mark.parametrize("kept", ["whole", "too long", "of another file"])
def test_what_an_earlier_download_left(tmp_path, host, cub, kept):
    (tmp_path / "data").mkdir()
    left = {"whole": cub, "too long": cub + b"x", "of another file": b"x" * 500}[kept]
    (tmp_path / "data" / "CUB_200_2011.tgz.part").write_bytes(left)
    select(tmp_path)
    assert os.listdir(tmp_path / "data") == ["CUB_200_2011"]


def test_a_host_without_ranges_starts_anew(tmp_path, host, cub):
    host.ranges, host.breaks, host.at_most = False, 1, 1000
    select(tmp_path)
    assert os.listdir(tmp_path / "data") == ["CUB_200_2011"]


def test_a_corrupt_download_is_not_unpacked(tmp_path, host, monkeypatch):
    monkeypatch.setattr(cub200, "DOWNLOAD", source(host, {"CUB_200_2011.tgz": b"something else"}, md5="0" * 32))
    with pytest.raises(UserError) as caught:
        select(tmp_path)
    assert "MD5" in str(caught.value) and "0" * 32 in str(caught.value) and "elsewhere" in str(caught.value)
    assert os.listdir(tmp_path / "data") == []


@pytest.mark.parametrize("fault", ["404", "nobody", "web page", "loop", "no address", "no number"])
def test_a_dead_host_names_the_alternatives(tmp_path, host, cub, monkeypatch, fault):
    if fault == "404":
        host.files.clear()
    elif fault == "web page":
        host.kind = "text/html; charset=utf-8"
    elif fault in ("loop", "no address"):
        host.redirect = {"loop": "/CUB_200_2011.tgz", "no address": "http://[::1/x"}[fault]
    elif fault == "no number":
        host.length = "many"
    else:
        dead = _download.Archive("CUB_200_2011.tgz", "0" * 32, ("http://127.0.0.1:9/CUB_200_2011.tgz",))
        monkeypatch.setattr(cub200, "DOWNLOAD", _download.Source("CUB_200_2011", (dead,), "look at https://elsewhere.example"))
    with pytest.raises(UserError) as caught:
        select(tmp_path)
    message = str(caught.value)
    assert "https://elsewhere.example" in message and "127.0.0.1" in message and "\n" not in message
    words = {"404": "404", "web page": "web page", "nobody": "refused", "loop": "infinite loop", "no address": "IPv6", "no number": "'many'"}
    assert words[fault] in message
    assert os.listdir(tmp_path / "data") == []


def test_the_second_source_is_tried(tmp_path, host, cub, monkeypatch):
    archive = cub200.DOWNLOAD.archives[0]
    both = _download.Archive(archive.file, archive.md5, (f"{host.url}/gone.tgz", *archive.urls))
    monkeypatch.setattr(cub200, "DOWNLOAD", _download.Source("CUB_200_2011", (both,), ""))
    select(tmp_path)
    assert [path for path, _ in host.requests] == ["/gone.tgz", "/CUB_200_2011.tgz"]


def test_several_files_of_which_one_is_no_archive(tmp_path, host, monkeypatch):
    made = builders.make_cars196(tmp_path / "made", layout="official")
    files = {"car_ims.tgz": tar_of(made / "car_ims"), "cars_annos.mat": (made / "cars_annos.mat").read_bytes()}
    monkeypatch.setattr(cars196, "DOWNLOAD", source(host, files, folder="cars196"))
    splits = select(tmp_path, "cars196")
    assert len(splits["training"]) == 24 and os.listdir(tmp_path / "data") == ["cars196"]
    assert sorted(os.listdir(tmp_path / "data" / "cars196")) == ["car_ims", "cars_annos.mat"]


def test_zip(tmp_path, host, monkeypatch):
    made = builders.make_online_products(tmp_path / "made", layout="official")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file in made.rglob("*"):
            archive.write(file, file.relative_to(made.parent))
    files = {"Stanford_Online_Products.zip": buffer.getvalue()}
    monkeypatch.setattr(online_products, "DOWNLOAD", source(host, files, folder="Stanford_Online_Products"))
    assert len(select(tmp_path, "online_products")["testing"]) == 24


def test_an_archive_that_reaches_out_of_its_folder_is_refused(tmp_path, host, monkeypatch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("../escaped.txt")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    monkeypatch.setattr(cub200, "DOWNLOAD", source(host, {"CUB_200_2011.tgz": buffer.getvalue()}))
    with pytest.raises(UserError, match="cannot be unpacked"):
        select(tmp_path)
    assert not (tmp_path / "data" / "escaped.txt").exists() and not (tmp_path / "data" / "CUB_200_2011").exists()


def encrypted():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", "b")
    content = bytearray(buffer.getvalue())
    content[6] |= 1  # the flag of an encrypted member, in its header and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def bomb(kind):
    """Zeros that unpack to 1,000 times the archive's bytes."""
    buffer, zeros = io.BytesIO(), bytes(10**6)
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a", zeros)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            entry = tarfile.TarInfo("a")
            entry.size = len(zeros)
            archive.addfile(entry, io.BytesIO(zeros))
    return buffer.getvalue()


CONTENTS = {"empty": b"", "unknown": b"no archive", "encrypted": encrypted(), "zip bomb": bomb("zip"), "tar bomb": bomb("tar")}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_archives_without_a_checksum_that_cannot_be_unpacked(tmp_path, host, monkeypatch, content):
    lacking = source(host, {"CUB_200_2011.tgz": content})
    archives = tuple(_download.Archive(archive.file, None, archive.urls) for archive in lacking.archives)
    monkeypatch.setattr(cub200, "DOWNLOAD", _download.Source("CUB_200_2011", archives, ""))
    monkeypatch.setattr(_download, "ALWAYS", 10**5)
    (tmp_path / "data" / ".CUB_200_2011-killed").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot be unpacked"):
        select(tmp_path)
    assert os.listdir(tmp_path / "data") == ["CUB_200_2011.tgz"]


def test_two_downloads_at_once_are_one(tmp_path, host, cub):
    host.breaks, host.at_most = 0, 0
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        for done in [pool.submit(_download.fetch, "cub200", cub200.DOWNLOAD, tmp_path / "data") for _ in range(2)]:
            assert done.result() == tmp_path / "data" / "CUB_200_2011"
    assert os.listdir(tmp_path / "data") == ["CUB_200_2011"] and len(host.requests) == 1


def test_what_stands_in_the_way_is_left_alone(tmp_path, host, cub):
    (tmp_path / "data" / "CUB_200_2011").mkdir(parents=True)
    (tmp_path / "data" / "CUB_200_2011" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="exists but does not hold"):
        select(tmp_path)
    assert (tmp_path / "data" / "CUB_200_2011" / "mine.txt").exists() and not host.requests


def test_a_place_that_cannot_be_written(tmp_path, host, cub):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(UserError, match="--download to"):
        select(tmp_path)


def test_sums_and_links():
    sums = {archive.file: archive.md5 for module in (cub200, cars196, online_products) for archive in module.DOWNLOAD.archives}
    assert sums == {
        "CUB_200_2011.tgz": "97eceeb196236b17998738112f37df78", "car_ims.tgz": "d5c8f0aa497503f355e17dc7886c3f14",
        "cars_annos.mat": "b407c6086d669747186bd1d764ff9dbc", "Stanford_Online_Products.zip": "7f73d41a2f44250d4779881525aea32e",
    }  # fmt: skip
    with pytest.raises(UserError, match="--download"):
        datasets.select("folder", dataset_folder_path=".", download=True)
