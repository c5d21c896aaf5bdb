"""`python -m retrieval serve INDEX`: an index that answers photographs over HTTP, with a page for a browser.

Each connection has a thread, which reads one request within the limits and hands the image to the worker of
`retrieval.service` in the main thread. No path from a request touches the disk: pictures are sent by the number of a
row of the index. On loopback other host names are refused, so that no page of another site reaches the server through
a name that leads here (DNS rebinding); pages of other origins are refused everywhere.
"""

import contextlib
import io
import ipaddress
import json
import re
import socket
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import numpy as np

from retrieval import serve_page, uploads
from retrieval.service import Limits, Service, Worker, check_picture
from retrieval.uploads import Refusal
from utilities.console import propose, warn
from utilities.errors import UserError
from utilities.reading import printable

CONNECTIONS = 64  # at one time; each holds a thread, and at most one body
LINGERING = 2.0  # seconds in which the rest of a refused body is thrown away, so that its sender reads the reply
BLOCK = 1 << 16
ROW = re.compile(r"/image/([0-9]{1,12})")
LOOPBACK_NAMES = {"localhost", "127.0.0.1", "[::1]"}
PAGE = "/"
QUERY = "/query"
# path -> methods that it takes; all other paths are of pictures, and take GET and HEAD
METHODS = {PAGE: ("GET", "HEAD", "POST"), QUERY: ("POST",)}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class Reply(NamedTuple):
    """What is sent: status, content type and body."""

    status: int
    content_type: str
    body: bytes


class _InTime(io.RawIOBase):
    """What a connection receives; TimeoutError when `seconds` have passed, however often a byte has come."""

    def __init__(self, connection: socket.socket, seconds: float):
        self.connection = connection
        self.end = time.monotonic() + seconds

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer) -> int:
        """Receive bytes into `buffer`; their number."""
        remaining = self.end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self.connection.settimeout(remaining)
        return self.connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One request of one connection."""

    protocol_version = "HTTP/1.1"

    def version_string(self) -> str:
        """The name of the server, without versions."""
        return "retrieval"

    def setup(self) -> None:
        """Bound the time in which the request arrives."""
        super().setup()
        self.rfile = io.BufferedReader(_InTime(self.connection, self.server.limits.seconds))
        self.has_whole_body = False

    def handle(self) -> None:
        """Answer one request; the connection is closed after it."""
        # the other side has gone
        with contextlib.suppress(ConnectionError, TimeoutError):
            self.handle_one_request()

    def handle_expect_100(self) -> bool:
        """Nothing yet: a body is asked for when its headers have been checked."""
        return True

    def log_request(self, code="-", size="-") -> None:
        """Nothing: `_respond` prints queries."""

    def log_error(self, *arguments) -> None:
        """Nothing: the reply says what is wrong."""

    def send_error(self, code, message=None, explain=None) -> None:
        """Reply to a request that the base class refuses, such as one with an unknown method, with a line of JSON."""
        status = 405 if code == 501 else int(code)
        if not hasattr(self, "path"):
            self.path = ""
        self._send(_refused(Refusal(status, printable(message or "not a request of HTTP"))))

    def do_GET(self) -> None:
        """Answer GET."""
        self._respond()

    do_HEAD = do_GET
    do_POST = do_GET

    def _respond(self) -> None:
        start = time.monotonic()
        try:
            reply = self._reply()
        except Refusal as refusal:
            reply = _refused(refusal)
        except UserError as error:
            # an image that cannot be decoded
            reply = _refused(Refusal(400, str(error)))
        except TimeoutError:
            reply = _refused(Refusal(408, f"the request took more than {self.server.limits.seconds:g} seconds"))
        except ConnectionError:
            raise
        except Exception as error:
            # a fault of the program, or of the machine, ends no server
            warn(f"error: {type(error).__name__}: {printable(error)}")
            reply = _refused(Refusal(500, f"{type(error).__name__}: the server's own output says more"))
        if self.command == "POST":
            warn(f"{self.client_address[0]}  {reply.status}  {time.monotonic() - start:.3f} s")
        self._send(reply)

    def _reply(self) -> Reply:
        self._check_origin()
        address = _parts_of(self.path)
        row = ROW.fullmatch(address.path)
        methods = ("GET", "HEAD") if row else METHODS.get(address.path)
        if methods is None:
            raise Refusal(404, f"no such address: {PAGE} is the page, POST an image to {QUERY}")
        if self.command not in methods:
            raise Refusal(405, f"{self.command} {printable(address.path)}: expected {' or '.join(methods)}")
        if self.command == "POST":
            return self._answer(address.query)
        if row is None:
            return Reply(200, "text/html; charset=utf-8", self.server.page.body)
        return self._picture(row[1])

    def _check_origin(self) -> None:
        """Raise Refusal for a request to another host name, on loopback, or from a page of another origin."""
        host = self.headers.get("Host", "").strip().lower()
        name = re.sub(r":[0-9]*$", "", host)
        if self.server.is_loopback and name not in self.server.host_names:
            raise Refusal(403, f"Host {printable(host)[:80]!r}: expected localhost or 127.0.0.1")
        origin = self.headers.get("Origin")
        if origin is not None and _parts_of(origin).netloc.lower() != host:
            raise Refusal(403, f"a page of {printable(origin)[:80]!r} may not send requests here")

    def _answer(self, query: str) -> Reply:
        limits = self.server.limits
        body = self._body()
        upload = uploads.parsed(self.headers.get("Content-Type", ""), body)
        count = uploads.count(query, upload.count, limits.count, limits.most_count)
        check_picture(upload.image, limits.most_pixels)
        answer = self.server.worker.result(lambda: self.server.service.answer(upload.image, count))
        return _json(200, answer)

    def _body(self) -> bytes:
        """The body, of the length in the headers. Raises Refusal before anything of it is read, TimeoutError."""
        length = uploads.length(self.headers, self.server.limits.most_bytes)
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        body = self.rfile.read(length)
        if len(body) < length:
            raise Refusal(400, f"the body ends after {len(body):,} of {length:,} bytes")
        self.has_whole_body = True
        return body

    def _picture(self, digits: str) -> Reply:
        row = int(digits)
        if row >= len(self.server.service.index):
            raise Refusal(404, f"no image {row}: the index has {len(self.server.service.index):,}, from 0")
        return Reply(200, "image/jpeg", self.server.service.picture(row))

    def _send(self, reply: Reply) -> None:
        self.connection.settimeout(self.server.limits.seconds)
        self.send_response(reply.status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", self.server.page.policy)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        if reply.status == 405:
            self.send_header("Allow", ", ".join(METHODS.get(self.path.partition("?")[0], ("GET", "HEAD"))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        self.wfile.flush()
        self.close_connection = True
        if reply.status >= 400 and not self.has_whole_body:
            self._throw_away()

    def _throw_away(self) -> None:
        """Receive what is still sent, into nothing: closed at once, the connection would lose the reply."""
        end = time.monotonic() + LINGERING
        # the other side has gone, or is too slow
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while (remaining := end - time.monotonic()) > 0:
                self.connection.settimeout(remaining)
                if not self.connection.recv(BLOCK):
                    return


def _parts_of(address: str) -> SplitResult:
    """The parts of an address. Raises Refusal for what is none."""
    try:
        return urlsplit(address)
    except ValueError as error:
        raise Refusal(400, f"{printable(address)[:80]!r} is no address ({error})") from None


def _json(status: int, content: dict) -> Reply:
    """A reply of one line of JSON."""
    return Reply(status, "application/json", json.dumps(content, allow_nan=False).encode() + b"\n")


def _refused(refusal: Refusal) -> Reply:
    return _json(refusal.status, {"error": " ".join(str(refusal).split())})


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The HTTP server of a `Service`, at `host` and `port` (0: any free one).

    `start()` accepts connections in a thread, `worker.run()` answers them in the thread that calls it, `close()` ends
    both.

    Raises UserError where it cannot listen.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = CONNECTIONS

    def __init__(self, service: Service, host: str = "127.0.0.1", port: int = 0, limits: Limits | None = None):
        self.service = service
        self.limits = limits or Limits()
        self.worker = Worker(self.limits.waiting)
        self.page = serve_page.page(self.limits, len(service.index))
        self.slots = threading.BoundedSemaphore(CONNECTIONS)
        self.address_family, address = _address(host, port)
        try:
            super().__init__(address, Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"--host {host} --port {port}: cannot listen there ({reason}): choose others") from error
        self.is_loopback = ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
        self.host_names = LOOPBACK_NAMES | {_in_address(host.lower())}
        self.url = f"http://{_in_address(host)}:{self.server_address[1]}/"

    def start(self) -> None:
        """Accept connections from now on."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Accept no more, and end the worker after the requests that wait."""
        self.worker.stop()
        self.shutdown()
        self.server_close()

    def process_request(self, request, client_address) -> None:
        """Answer in a thread; refuse a connection while there are too many."""
        if self.slots.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        body = _refused(Refusal(503, f"{CONNECTIONS} connections are open: try again later")).body
        head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        with contextlib.suppress(OSError):
            request.settimeout(1)
            request.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        self.shutdown_request(request)

    def process_request_thread(self, request, client_address) -> None:
        """Answer, in a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request, client_address) -> None:
        """One line for a fault outside of `Handler._respond`."""
        error = sys.exc_info()[1]
        warn(f"error: {type(error).__name__}: {printable(error)}")


def _address(host: str, port: int) -> tuple:
    """The family and the address of a host's name. Raises UserError for an unknown one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host}: no such host ({getattr(error, 'strerror', None) or error})") from error
    return family, address


def _in_address(host: str) -> str:
    """A host as an address has it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def serve(flags) -> None:
    """Serve an index until Ctrl-C. Raises UserError, before anything is served, for what `query` refuses."""
    from retrieval import data, threshold
    from retrieval.index import Index

    if flags.k > flags.max_k:
        raise UserError(f"-k {flags.k}: more than --max_k {flags.max_k}, the most that a request may ask for")
    limit = None
    if flags.threshold is not None:
        limit = threshold.read(flags.threshold)
    index = Index(flags.index_folder)
    embedder = index.embedder(flags.run_folder, device=flags.device)
    if limit is not None:
        for note in limit.check(index, embedder):
            warn(note)
    # a first search now, so that what is read only once is in memory before the first request
    index.search(embedder(np.zeros((1, 32, 32, 3), np.uint8)), 1)
    classes = {}
    try:
        classes = data.class_names(embedder)
    except UserError as error:
        warn(f"note: answers have no classes: {error}")
    most_bytes = int(flags.max_megabytes * 10**6)
    limits = Limits(flags.k, flags.max_k, most_bytes, flags.max_image_pixels, flags.max_waiting, flags.timeout)
    distance = None if limit is None else limit.value
    service = Service(index, embedder, classes, flags.rescore_multiplier, distance)
    server = Server(service, flags.host, flags.port, limits)
    if not server.is_loopback:
        warn(
            f"note: --host {flags.host}: whoever reaches this machine can search the index, read its paths and see its "
            "images; there is no password and no encryption"
        )
    server.start()
    print(f"{flags.index_folder}: {len(index):,} images at {server.url}, until Ctrl-C", flush=True)
    propose("curl", "--data-binary", f"@{index.paths[0]}", f"{server.url}query?k={flags.k}")
    try:
        server.worker.run()
    finally:
        server.close()
