"""An index over HTTP: answers are those of `query`, what is no question is one line of JSON, and the server goes on."""

import contextlib
import http.client
import io
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import datasets
from retrieval import __main__ as retrieval
from retrieval import data, serve, service, uploads
from retrieval.index import Index
from retrieval.service import Limits, Service, Worker
from runs import Embedder
from tests.kit.images import random_picture, write_image
from tests.kit.refusals import refused
from tests.retrieval import _browser
from utilities.errors import one_line_errors

ROOT = Path(__file__).resolve().parents[2]


def encoded(image, kind="JPEG", **options):
    """The bytes of a Pillow image's file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def bomb(side):
    """A PNG file whose header promises `side` x `side` pixels."""
    content = b"\x89PNG\r\n\x1a\n"
    for chunk in (b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(bytes(99))):
        content += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return content


def form(*parts):
    """Content type and body of a form; a part is (field, file name or None, content)."""
    body = b""
    for name, file, content in parts:
        named = "" if file is None else f'; filename="{file}"'
        body += f'--XX\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + content + b"\r\n"
    return {"Content-Type": "multipart/form-data; boundary=XX"}, body + b"--XX--\r\n"


@pytest.fixture(scope="module")
def index(run, tmp_path_factory):
    """An index of the run's test images, the first one twice, and one image that is not of its data."""
    folder = tmp_path_factory.mktemp("served")
    stranger = write_image(folder / "stranger.png", 99)
    (folder / "list.csv").write_text("path\n" + "\n".join(data.split(Embedder(run), "test").paths[:9]))
    retrieval.main(["index", str(run), str(folder / "list.csv"), str(stranger), "--out", str(folder / "index")])
    return Index(folder / "index")


@pytest.fixture(scope="module")
def answering(index):
    """The `Service` of that index."""
    embedder = index.embedder(device="cpu")
    return Service(index, embedder, data.class_names(embedder))


@contextlib.contextmanager
def serving(answering, **limits):
    """A server on a free port, its worker in a thread."""
    server = serve.Server(answering, limits=Limits(**limits))
    server.start()
    worker = threading.Thread(target=server.worker.run)
    worker.start()
    try:
        yield server
    finally:
        server.close()
        worker.join(10)
        assert not worker.is_alive()


@pytest.fixture(scope="module")
def server(answering):
    with serving(answering, most_bytes=300_000, most_pixels=10**6) as server:
        yield server


def replied(server, method, path, body=None, headers=()):
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    try:
        connection.request(method, path, body, dict(headers))
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


def posted(server, body, path="/query", headers=()):
    """The neighbours of an image."""
    status, _, content = replied(server, "POST", path, body, headers)
    assert status == 200, content
    return json.loads(content)["neighbours"]


def raw(server, *pieces, pause=0.0):
    """All that the server sends after these bytes, sent as they are."""
    with socket.create_connection(server.server_address, timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
        received = b""
        while block := connection.recv(1 << 16):
            received += block
        return received


def photographs(folder):
    """Files of several formats and pixel types."""
    picture = random_picture(5, (90, 61))
    turned = Image.Exif()
    turned[0x112] = 6
    contents = {
        "plain.jpg": encoded(picture),
        "progressive.jpg": encoded(picture, progressive=True, subsampling=2, quality=60),
        "turned.jpg": encoded(picture, exif=turned),
        "grey.jpg": encoded(picture.convert("L")),
        "cmyk.jpg": encoded(picture.convert("CMYK")),
        "palette.png": encoded(picture.quantize(7), "PNG", transparency=2),
        "a.webp": encoded(picture, "WEBP"),
        "a.gif": encoded(picture, "GIF"),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def test_answers_are_those_of_query_to_the_last_bit(server, index, tmp_path, capsys):
    class_of = data.class_names(index.embedder(device="cpu"))
    for path in [*photographs(tmp_path), *map(Path, index.paths[:2])]:
        expected = retrieval.main(["query", str(index.folder), str(path), "-k", "10", "--device", "cpu"])
        answers = posted(server, path.read_bytes())
        assert [(row["rank"], row["distance"], row["path"]) for row in answers] == [row[1:] for row in expected]
        for row in answers:
            assert row.get("class") == class_of.get(row["path"])
            assert index.paths[int(row["image"].removeprefix("/image/"))] == row["path"]
    assert len(answers) == 10 and sum("class" not in row for row in answers) == 1


def test_beyond_a_threshold_the_answer_is_unknown_as_that_of_query(index, answering, tmp_path):
    path = write_image(tmp_path / "new.jpg", 50)
    plain = answering.answer(path.read_bytes(), 10)["neighbours"]
    for threshold in (plain[3]["distance"], plain[0]["distance"]):
        words = ["--threshold", str(threshold), "-k", "10", "--device", "cpu"]
        expected = retrieval.main(["query", str(index.folder), str(path), *words])
        service = Service(index, answering.embedder, answering.classes, threshold=threshold)
        answer = service.answer(path.read_bytes(), 10)["neighbours"]
        assert [(row["rank"], row["distance"], row["path"]) for row in answer] == [row[1:] for row in expected]
    assert answer == [{"rank": 0, "distance": plain[0]["distance"], "path": "unknown"}]


def test_bytes_of_a_file_are_embedded_as_the_file(run, tmp_path):
    embedder = Embedder(run, device="cpu")
    for path in photographs(tmp_path):
        image = datasets.Encoded(path.read_bytes(), "it")
        assert np.array_equal(embedder(image), embedder(path))
    with refused("image it cannot be decoded .*4 bytes"):
        embedder([datasets.Encoded(b"none", "it")])


def test_an_image_comes_raw_or_in_a_form_and_k_in_the_address_or_the_form(server):
    image = encoded(random_picture(3))
    expected = posted(server, image, "/query?k=3")
    assert len(expected) == 3 and len(posted(server, image)) == 10
    image_part = ("photo", "../../etc/passwd", image)
    for path, parts in (
        ("/query?k=3", [image_part]),
        ("/query", [image_part, ("k", None, b"3")]),
        ("/", [("k", None, b"3"), ("image", None, image), ("more", "", b"")]),
    ):
        headers, body = form(*parts)
        assert posted(server, body, path, headers) == expected
    assert posted(server, image, "/?k=3", {"Content-Type": "application/x-www-form-urlencoded"}) == expected


JPEG = encoded(random_picture(1), quality=95)
REFUSALS = [
    ("POST", "/query", {}, b"no image", 415, "no image"),
    ("POST", "/query", {}, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "no image"),
    ("POST", "/query", {}, JPEG[:800], 400, "cannot be decoded"),
    ("POST", "/query", {}, bytes(400_000), 413, "400,000 bytes, more than 300,000"),
    ("POST", "/query", {"Content-Length": "100000000"}, b"", 413, "100,000,000 bytes"),
    ("POST", "/query", {}, bomb(1001), 413, "1,002,001 pixels, more than 1,000,000"),
    ("POST", "/query", {}, bomb(2**16), 413, "pixels, more than"),
    ("POST", "/query", {}, b"", 400, "an empty body"),
    ("POST", "/query", {"Content-Length": "x"}, b"", 400, "one whole number"),
    ("POST", "/query", {"Content-Length": "-1"}, b"", 400, "one whole number"),
    ("POST", "/query", {"Transfer-Encoding": "chunked"}, None, 411, "in chunks"),
    ("POST", "/query?k=0", {}, JPEG, 400, "k is '0'"),
    ("POST", "/query?k=101", {}, JPEG, 400, "from 1 to 100"),
    ("POST", "/query?k=" + "9" * 500, {}, JPEG, 400, "from 1 to 100"),
    ("POST", "/query?k=", {}, JPEG, 400, "k is ''"),
    ("POST", "/query?k=3&k=4", {}, JPEG, 400, "k is '3 and 4'"),
    ("POST", "/query?K=3", {}, JPEG, 400, "field 'K'"),
    ("POST", "/query?" + "a&" * 50, {}, JPEG, 400, "more than 8 fields"),
    ("POST", "/query?k=3", *form(("i", "a", JPEG), ("k", None, b"4")), 400, "k is '3 and 4'"),
    ("POST", "/query", *form(("i", "a", JPEG), ("j", "b", JPEG)), 400, "2 images"),
    ("POST", "/query", *form(("i", "", b"")), 400, "0 images"),
    ("POST", "/query", *form(("i", "a", JPEG), ("path", None, b"/etc/passwd")), 400, "field 'path'"),
    ("POST", "/query", *form(*[("i", "a", b"")] * 30), 400, "more than 16 parts"),
    ("POST", "/query", {"Content-Type": "multipart/form-data"}, JPEG, 400, "without a boundary"),
    ("POST", "/query", {"Content-Type": "multipart/form-data; boundary=Y"}, JPEG, 400, "does not end"),
    ("GET", "/query", {}, None, 405, "expected POST"),
    ("POST", "/image/0", {}, JPEG, 405, "expected GET"),
    ("PUT", "/query", {}, JPEG, 405, "PUT"),
    ("OPTIONS", "/query", {}, None, 405, "OPTIONS"),
    ("GET", "/index.json", {}, None, 404, "no such address"),
    ("GET", "/image/../../../../etc/passwd", {}, None, 404, "no such address"),
    ("GET", "/image/%2e%2e/x", {}, None, 404, "no such address"),
    ("GET", "/image/10", {}, None, 404, "no image 10: the index has 10"),
    ("GET", "/image/-1", {}, None, 404, "no such address"),
    ("GET", "/image/" + "9" * 40, {}, None, 404, "no such address"),
    ("GET", "/", {"Host": "evil.example"}, None, 403, "evil.example"),
    ("GET", "/", {"Host": "localhost.evil.example:80"}, None, 403, "localhost.evil.example"),
    ("POST", "/query", {"Origin": "http://evil.example"}, JPEG, 403, "evil.example"),
    ("POST", "/query", {"Origin": "null"}, JPEG, 403, "null"),
    ("POST", "/query", {"Origin": "http://["}, JPEG, 400, "no address"),
    ("GET", "/" + "a" * 70_000, {}, None, 414, "error"),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "status", "words"), REFUSALS)
def test_what_is_no_question_is_one_line(method, path, headers, body, status, words, server):
    body = iter([JPEG]) if "Transfer-Encoding" in headers else body
    reply_status, reply_headers, content = replied(server, method, path, body, headers)
    kinds = (reply_headers["Content-Type"], reply_headers["X-Content-Type-Options"])
    assert (reply_status, *kinds) == (status, "application/json", "nosniff"), content
    assert content.count(b"\n") == 1 and content.endswith(b"\n") and words in content.decode()
    assert list(json.loads(content)) == ["error"]
    assert status != 405 or reply_headers["Allow"]


def test_a_body_is_refused_by_its_headers_and_a_server_goes_on(server):
    head = b"POST /query HTTP/1.1\r\nHost: localhost:9\r\n"
    assert b"413" in raw(server, head + b"Content-Length: 100000000\r\n\r\n").partition(b"\r\n")[0]
    assert b"411" in raw(server, head + b"\r\n").partition(b"\r\n")[0]
    assert b"400" in raw(server, head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345").partition(b"\r\n")[0]
    assert b"403" in raw(server, b"GET / HTTP/1.0\r\n\r\n").partition(b"\r\n")[0]
    expecting = head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    continued = raw(server, expecting % len(JPEG), JPEG, pause=0.02)
    assert continued.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert raw(server, expecting % 10**8).startswith(b"HTTP/1.1 413")
    assert raw(server, b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert raw(server, b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert raw(server, b"BREW http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 405")
    assert len(posted(server, JPEG)) == 10


def test_slow_senders_are_ended_and_hold_up_nobody(answering):
    with serving(answering, seconds=0.2) as server:
        head = b"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
        replies = []
        slow = threading.Thread(target=lambda: replies.append(raw(server, head, *[b"x"] * 6, pause=0.05)))
        slow.start()
        assert len(posted(server, JPEG)) == 10 and slow.is_alive()
        slow.join(10)
        (reply,) = replies
        assert reply.startswith(b"HTTP/1.1 408") and b"more than 0.2 seconds" in reply
        assert raw(server, b"GET / HT") == b""


def test_few_requests_wait_and_the_end_is_told_to_those(answering, monkeypatch):
    begun = threading.Semaphore(0)
    goes_on = threading.Event()

    def answer(image, count):
        begun.release()
        goes_on.wait(10)
        return {"neighbours": []}

    monkeypatch.setattr(answering, "answer", answer)
    statuses = []
    with serving(answering, waiting=1) as server:

        def post():
            statuses.append(replied(server, "POST", "/query", JPEG)[0])

        def start():
            thread = threading.Thread(target=post)
            thread.start()
            return thread

        first = start()
        assert begun.acquire(timeout=10)
        second = start()
        while server.worker.jobs.empty():
            time.sleep(0.001)
        post()
        assert statuses == [503]
        closing = threading.Thread(target=server.worker.stop)
        closing.start()
        second.join(10)
        assert statuses == [503, 503]
        goes_on.set()
        first.join(10)
        assert statuses == [503, 503, 200]
        with pytest.raises(uploads.Refusal, match="the server ends"):
            server.worker.result(post)


def test_an_interrupt_ends_the_worker_and_its_request():
    worker = Worker(1)
    outcomes = []

    def interrupted():
        raise KeyboardInterrupt

    def wait():
        with pytest.raises(uploads.Refusal) as caught:
            worker.result(interrupted)
        outcomes.append(caught.value.status)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    waiting.join(10)
    assert outcomes == [503]


def test_too_many_connections_are_refused_at_once(server, monkeypatch):
    monkeypatch.setattr(server, "slots", threading.BoundedSemaphore(1))
    with socket.create_connection(server.server_address), contextlib.suppress(ConnectionError):
        while server.slots._value:
            time.sleep(0.001)
        assert replied(server, "GET", "/")[0] == 503
    while not server.slots._value:
        time.sleep(0.001)
    assert replied(server, "GET", "/")[0] == 200


def test_a_fault_of_the_program_is_one_line_and_ends_nothing(server, answering, monkeypatch, capsys):
    def fail(image, count):
        raise ZeroDivisionError("a\nfault")

    with monkeypatch.context() as patch:
        patch.setattr(answering, "answer", fail)
        status, _, content = replied(server, "POST", "/query", JPEG)
    assert status == 500 and "ZeroDivisionError" in content.decode()
    assert "error: ZeroDivisionError: a" in capsys.readouterr().err
    assert len(posted(server, JPEG)) == 10


def test_pictures_are_those_of_the_rows_and_nothing_else_is_read(server, index, answering, monkeypatch):
    answering.picture.cache_clear()
    paths = []
    original = answering.embedder.preparation.original
    monkeypatch.setattr(answering.embedder.preparation, "original", lambda path: paths.append(path) or original(path))
    for row in (0, 9, 0):
        status, headers, content = replied(server, "GET", f"/image/{row}")
        assert (status, headers["Content-Type"]) == (200, "image/jpeg")
        with Image.open(io.BytesIO(content)) as picture, Image.open(index.paths[row]) as source:
            assert picture.size == source.size and max(picture.size) <= service.SIDE
    assert paths == [index.paths[0], index.paths[9]]
    monkeypatch.setattr(index, "paths", [*index.paths[:8], "/gone.jpg", index.paths[9]])
    status, _, content = replied(server, "GET", "/image/8")
    assert status == 404 and "no longer there" in content.decode() and "gone.jpg" not in content.decode()
    assert replied(server, "HEAD", "/image/0")[0] == 200


def test_the_page_and_every_reply_carry_the_policy(server):
    status, headers, content = replied(server, "GET", "/")
    assert status == 200 and b"<title>Search" in content and b"http" not in content
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    for path in ("/", "/image/0", "/none"):
        _, headers, _ = replied(server, "HEAD", path)
        assert {name: headers[name] for name in serve.HEADERS} == serve.HEADERS
        assert headers["Content-Security-Policy"] == policy and headers["Server"] == "retrieval"


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_names_of_this_machine_are_taken(host, server):
    assert replied(server, "GET", "/", headers={"Host": host})[0] == 200


def test_other_hosts_are_taken_where_all_may_come(answering):
    server = serve.Server(answering, "0.0.0.0")
    assert not server.is_loopback
    server.start()
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/", headers={"Host": "museum.example"})
    assert connection.getresponse().status == 200
    connection.close()
    server.close()


def started(words, monkeypatch, capsys):
    """What the command prints, interrupted as soon as it serves."""

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "run", interrupted)
    with pytest.raises(SystemExit) as stop, one_line_errors(retrieval.PROGRAM):
        retrieval.main(["serve", *map(str, words), "--device", "cpu"])
    output = capsys.readouterr()
    return stop.value.code, output.out, output.err


def test_the_command_serves_until_an_interrupt(index, monkeypatch, capsys):
    code, out, err = started([index.folder, "--port", 0], monkeypatch, capsys)
    address, proposed = out.splitlines()
    assert code == 130 and err == f"\n{retrieval.PROGRAM}: interrupted\n"
    assert address.startswith(f"{index.folder}: 10 images at http://127.0.0.1:")
    assert proposed.startswith(f"next: curl --data-binary @{index.paths[0]} 'http://127.0.0.1:")
    monkeypatch.setattr(data, "class_names", lambda embedder: datasets.select("none"))
    _, _, err = started([index.folder, "--port", 0, "--host", "0.0.0.0"], monkeypatch, capsys)
    assert "note: answers have no classes" in err and "note: --host 0.0.0.0: whoever" in err


def test_what_cannot_be_served_is_one_line(run, index, tmp_path, monkeypatch, capsys):
    changed = shutil.copytree(run, tmp_path / "changed")
    parameters = changed / "parameters.yaml"
    parameters.write_text(parameters.read_text().replace("crop_size: 16", "crop_size: 17"))
    with socket.create_server(("127.0.0.1", 0)) as busy:
        mistakes = [
            ([index.folder, "--run", changed], "other weights, or another transform"),
            ([tmp_path], "no index in"),
            ([index.folder, "--port", busy.getsockname()[1]], "cannot listen there"),
            ([index.folder, "--host", "no.such.host.invalid"], "no such host"),
            ([index.folder, "-k", 200], "more than --max_k 100"),
            ([index.folder, "--threshold", "far"], "--threshold far: no such file"),
            ([index.folder, "--port", 99999], "--port 99999 must be"),
            ([index.folder, "--max_megabytes", 0], "--max_megabytes 0 must be"),
        ]
        for words, message in mistakes:
            code, _, err = started(words, monkeypatch, capsys)
            assert (code, err.count("\n")) == (2, 1) and message in err, err


def heed_interrupts():
    """In the new process: they are ignored where the tests themselves run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.long
def test_ctrl_c_ends_the_program_with_one_line(index):
    words = ["-u", "-m", "retrieval", "serve", str(index.folder), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )
    try:
        line = process.stdout.readline()
        assert "http:" in line, line
        address = line.partition("http://")[2].partition("/")[0].split(":")
        # a sender who says nothing holds up no end
        with socket.create_connection((address[0], int(address[1]))):
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and err == "\npython -m retrieval: interrupted\n"


def choose_file(page, path):
    """Choose a file as the user's dialogue does."""
    page.ask("DOM.enable")
    root = page.ask("DOM.getDocument")["root"]["nodeId"]
    node = page.ask("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.ask("DOM.setFileInputFiles", nodeId=node, files=[os.fspath(path)])


@pytest.mark.long
def test_the_page_shows_the_answers_of_a_photograph_on_every_width(server, index, tmp_path):
    if _browser.program() is None:
        pytest.skip("no browser")
    photograph = write_image(tmp_path / "photograph.jpg", 4)
    expected = posted(server, photograph.read_bytes())
    with _browser.opened(server.url, 1280, 900) as page:
        choose_file(page, photograph)
        page.wait("document.querySelectorAll('figure').length === 10")
        for width in (1280, 390):
            page.resize(width, 800)
            assert page.run("document.documentElement.scrollWidth") <= width
        page.wait("[...document.querySelectorAll('figure img')].every(i => i.complete && i.naturalWidth)")
        texts = page.run("[...document.querySelectorAll('figcaption')].map(caption => caption.textContent)")
        for row, text in zip(expected, texts, strict=True):
            assert f"{row['rank']} · distance {row['distance']:.4f}" in text and row["path"] in text
        page.run("document.querySelector('#count').value = 3")
        page.run("document.querySelector('#count').dispatchEvent(new Event('change'))")
        page.wait("document.querySelectorAll('figure').length === 3")
        for content, message in ((b"none", "no image"), (bytes(300_001), "300,001 bytes, more than 300,000")):
            bad = tmp_path / f"{len(content)}.jpg"
            bad.write_bytes(content)
            choose_file(page, bad)
            page.wait(f"document.querySelector('#status.wrong')?.textContent.includes({message!r})")
        assert page.run("document.querySelectorAll('figure').length") == 0
        local = (server.url, "blob:", "data:")
        messages = [complaint for complaint in page.complaints if not complaint.startswith(local)]
        assert len(page.complaints) > 10 and all("status of 415" in text for text in messages), messages
