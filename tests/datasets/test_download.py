"""Downloads from a host of the test's own: checked, resumed, refused."""

import concurrent.futures
import hashlib
import http.server
import io
import multiprocessing
import os
import shutil
import tarfile
import threading
import zipfile

import pytest

import datasets
from datasets import _download, cars196, cub200, online_products
from tests.datasets.layouts import add_file
from tests.kit.data_sets import make_cars196, make_cub200, make_online_products
from tests.kit.refusals import refused


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`, knows ranges, and breaks off after `server.at_most` bytes, `server.breaks` times."""

    def do_GET(self):  # noqa: N802
        server = self.server
        byte_range = self.headers.get("Range")
        start = 0
        server.requests.append((self.path, byte_range))
        content = server.files.get(self.path)
        if byte_range and server.ranges:
            start = int(byte_range.removeprefix("bytes=").removesuffix("-"))
        if server.redirect:
            self.answer(302, Location=server.redirect)
        elif content is None:
            self.send_error(404)
        elif start and start >= len(content):
            self.send_error(416)
        else:
            headers = {"Content-Type": server.kind, "Content-Length": str(len(content) - start)}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            status = 206 if start else 200
            self.answer(status, **headers)
            end = start + server.at_most if server.breaks else None
            self.wfile.write(content[start:end])
            self.wfile.flush()
            server.breaks -= server.breaks > 0

    def answer(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def host():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    vars(server).update(files={}, requests=[], ranges=True, breaks=0, at_most=0, redirect=None)
    server.kind = "application/octet-stream"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()


def archived(content, kind="tar:gz"):
    """An archive of files, name -> bytes, or of a folder."""
    if isinstance(content, os.PathLike):
        files = [path for path in content.rglob("*") if path.is_file()]
        content = {str(file.relative_to(content.parent)): file.read_bytes() for file in files}
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in content.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, data in content.items():
                add_file(archive, name, data)
    return buffer.getvalue()


def offer(monkeypatch, host, files, module=cub200, folder="CUB_200_2011", **changed):
    """Let a data set's archives lie on the host, with `changed` entries of `_download.Archive`."""
    host.files = {f"/{name}": content for name, content in files.items()}
    archives = []
    for name, content in files.items():
        entries = {"md5": hashlib.md5(content).hexdigest(), "urls": (f"{host.url}/{name}",), **changed}
        archives.append(_download.Archive(name, **entries))
    source = _download.Source(folder, tuple(archives), "look at https://elsewhere.example")
    monkeypatch.setattr(module, "DOWNLOAD", source)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return archived(make_cub200(tmp_path_factory.mktemp("made")))


@pytest.fixture
def cub(archive, host, monkeypatch):
    """CUB200 on the host; its archive."""
    offer(monkeypatch, host, {"CUB_200_2011.tgz": archive})
    return archive


def select(tmp_path, name="cub200"):
    return datasets.select(name, None, tmp_path / "data", download=True, allow_partial_dataset=True)


def test_fetched_unpacked_and_found(tmp_path, host, cub, monkeypatch):
    splits = select(tmp_path)
    assert len(splits["training"]) == len(splits["testing"]) == 24 and splits["training"][0][1].shape == (3, 224, 224)
    assert os.listdir(tmp_path / "data") == ["CUB_200_2011"]
    select(tmp_path)
    # what is there is not fetched again
    assert len(host.requests) == 1
    shutil.rmtree(tmp_path / "data")
    offer(monkeypatch, host, {"CUB_200_2011.tgz": cub}, urls=(f"{host.url}/gone.tgz", f"{host.url}/CUB_200_2011.tgz"))
    select(tmp_path)
    assert [path for path, _ in host.requests[1:]] == ["/gone.tgz", "/CUB_200_2011.tgz"], "the second source is tried"
    # several files, one of which is no archive; zip
    root = make_cars196(tmp_path / "made", layout="official")
    files = {"car_ims.tgz": archived(root / "car_ims"), "cars_annos.mat": (root / "cars_annos.mat").read_bytes()}
    offer(monkeypatch, host, files, cars196, "cars196")
    assert len(select(tmp_path, "cars196")["training"]) == 24
    assert sorted(os.listdir(tmp_path / "data" / "cars196")) == ["car_ims", "cars_annos.mat"]
    root = archived(make_online_products(tmp_path / "made", layout="official"), "zip")
    offer(monkeypatch, host, {"Stanford_Online_Products.zip": root}, online_products, "Stanford_Online_Products")
    assert len(select(tmp_path, "online_products")["testing"]) == 24


@pytest.mark.parametrize(
    ("ranges", "breaks", "requested"),
    [(True, 2, [None, "bytes=1000-", "bytes=2000-"]), (False, 1, [None, "bytes=1000-"])],
)
def test_a_broken_connection_is_taken_up_where_it_ended_or_starts_anew(tmp_path, host, cub, ranges, breaks, requested):
    vars(host).update(ranges=ranges, breaks=breaks, at_most=1000)
    select(tmp_path)
    assert [ranged for _, ranged in host.requests] == requested and os.listdir(tmp_path / "data") == ["CUB_200_2011"]


def test_what_an_earlier_download_left(tmp_path, host, cub):
    contents = {"a part": cub[:1000], "whole": cub, "too long": cub + b"x", "of another file": b"x" * 500}
    for case, content in contents.items():
        place = tmp_path / case / "data"
        place.mkdir(parents=True)
        (place / "CUB_200_2011.tgz.part").write_bytes(content)
        host.requests.clear()
        select(tmp_path / case)
        assert os.listdir(place) == ["CUB_200_2011"] and host.requests[0][1] == f"bytes={len(content)}-"
        assert case != "a part" or len(host.requests) == 1


@pytest.mark.parametrize("fault", ["404", "refused", "web page", "infinite loop", "MD5"])
def test_a_dead_host_or_a_corrupt_file_names_the_alternatives(tmp_path, host, cub, monkeypatch, fault):
    if fault == "404":
        host.files.clear()
    elif fault == "web page":
        host.kind = "text/html; charset=utf-8"
    elif fault == "infinite loop":
        host.redirect = "/CUB_200_2011.tgz"
    else:
        port = host.server_port if fault == "MD5" else 9
        urls = (f"http://127.0.0.1:{port}/CUB_200_2011.tgz",)
        offer(monkeypatch, host, {"CUB_200_2011.tgz": cub}, md5="0" * 32, urls=urls)
    expected_md5 = ["0" * 32] if fault == "MD5" else []
    with refused(fault, "https://elsewhere.example", "127.0.0.1", *expected_md5):
        select(tmp_path)
    assert os.listdir(tmp_path / "data") == []


CONTENTS = {
    "empty": b"",
    "unknown": b"no archive",
    "zip bomb": archived({"a": bytes(10**6)}, "zip"),
    "tar bomb": archived({"a": bytes(10**6)}),
    "reaches out of its folder": archived({"../escaped.txt": b"x"}),
    "zip of version 9.8": archived({"a": b"x"}, "zip").replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\x62"),
}


def test_archives_that_cannot_be_unpacked(tmp_path, host, monkeypatch):
    """None has a checksum."""
    monkeypatch.setattr(_download, "ALWAYS", 10**5)
    for name, content in CONTENTS.items():
        offer(monkeypatch, host, {"CUB_200_2011.tgz": content}, md5=None)
        (tmp_path / name / "data" / ".CUB_200_2011-a1b2c3_4").mkdir(parents=True)
        with refused("cannot be unpacked"):
            select(tmp_path / name)
        assert os.listdir(tmp_path / name / "data") == ["CUB_200_2011.tgz"], name


def test_two_downloads_at_once_are_one(tmp_path, host, cub):
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        for done in [pool.submit(_download.fetch, "cub200", cub200.DOWNLOAD, tmp_path / "data") for _ in range(2)]:
            assert done.result() == tmp_path / "data" / "CUB_200_2011"
    assert os.listdir(tmp_path / "data") == ["CUB_200_2011"] and len(host.requests) == 1


def test_what_stands_in_the_way_is_left_alone(tmp_path, host, cub):
    mine = tmp_path / "data" / "CUB_200_2011" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with refused("exists but does not hold"):
        select(tmp_path)
    assert mine.exists() and not host.requests


def test_sums():
    sources = [module.DOWNLOAD for module in (cub200, cars196, online_products)]
    assert {archive.file: archive.md5 for source in sources for archive in source.archives} == {
        "CUB_200_2011.tgz": "97eceeb196236b17998738112f37df78",
        "car_ims.tgz": "d5c8f0aa497503f355e17dc7886c3f14",
        "cars_annos.mat": "b407c6086d669747186bd1d764ff9dbc",
        "Stanford_Online_Products.zip": "7f73d41a2f44250d4779881525aea32e",
    }
