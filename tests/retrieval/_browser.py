"""A headless Chromium that tests drive, over two pipes in the DevTools protocol."""

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 120  # seconds
COMPLAINTS = {  # method of an event -> where its parameters hold the error, or the address of the request
    "Runtime.exceptionThrown": ("exceptionDetails", None),
    "Network.requestWillBeSent": ("request", "url"),
    "Log.entryAdded": ("entry", "text"),
}


def program():
    """Where a browser lies, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """One page: `run` evaluates JavaScript in it, `click` presses the mouse, `press` and `write` the keyboard."""

    def __init__(self, ask, width, height):
        self.ask = ask
        self.resize(width, height)

    def resize(self, width, height, mobile=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def run(self, code):
        reply = self.ask("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, code):
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(code):
            assert time.monotonic() < end, code
            time.sleep(0.05)

    def click(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def press(self, key):
        """Press a key, a letter or Enter, and let it go."""
        text = "\r" if key == "Enter" else key
        for kind, sent in (("keyDown", text), ("keyUp", "")):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, text=sent, windowsVirtualKeyCode=ord(text.upper()))

    def write(self, text):
        """Write in the field that has the focus, in place of what it holds."""
        self.run("document.activeElement.select()")
        self.ask("Input.insertText", text=text)

    def reload(self, code=""):
        """Load the page anew, after a script that runs before those of the page."""
        script = self.ask("Page.addScriptToEvaluateOnNewDocument", source=f"window.isNew = true; {code}")
        self.ask("Page.navigate", url=self.run("location.href"))
        self.wait("window.isNew && document.readyState === 'complete'")
        self.ask("Page.removeScriptToEvaluateOnNewDocument", **script)

    def hover(self, x, y):
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def session_of(session):
    """The part of a message that names its session."""
    return {} if session is None else {"sessionId": session}


def complaint_of(event):
    """The error, or the address of the request, that an event is about."""
    part, field = COMPLAINTS[event["method"]]
    content = event["params"][part]
    return content if field is None else content[field]


@contextlib.contextmanager
def opened(address, width=1280, height=900):
    """Open an address; gives a `Page`, and its `complaints`: errors of scripts, and requests that were made."""
    to_browser = os.pipe()
    from_browser = os.pipe()
    profile = tempfile.mkdtemp(prefix="browser-")

    def pipes():
        # first away from 3 and 4, which they may be themselves
        reads = os.dup(to_browser[0])
        writes = os.dup(from_browser[1])
        os.dup2(reads, 3)
        os.dup2(writes, 4)

    flags = [
        *"--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe".split(),
        f"--user-data-dir={profile}",
        *(
            "--hide-scrollbars --no-first-run --disable-background-networking --disable-component-update "
            "--disable-dev-shm-usage about:blank"
        ).split(),
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([program(), *flags], preexec_fn=pipes, pass_fds=(3, 4), **quiet)  # noqa: PLW1509
    os.close(to_browser[0])
    os.close(from_browser[1])
    numbers = itertools.count(1)
    unread = bytearray()
    complaints = []

    def message():
        end = time.monotonic() + PATIENCE
        while b"\0" not in unread:
            # the browser says nothing
            assert select.select([from_browser[0]], [], [], max(end - time.monotonic(), 0))[0]
            read = os.read(from_browser[0], 1 << 20)
            assert read, "the browser has ended"
            unread.extend(read)
        text, _, later = bytes(unread).partition(b"\0")
        unread[:] = later
        return json.loads(text)

    def ask(method, session=None, **params):
        number = next(numbers)
        os.write(
            to_browser[1],
            json.dumps({"id": number, "method": method, "params": params, **session_of(session)}).encode() + b"\0",
        )
        while True:
            reply = message()
            if reply.get("id") == number:
                assert "error" not in reply, reply
                return reply["result"]
            if reply.get("method") in COMPLAINTS:
                complaints.append(complaint_of(reply))

    try:
        target = ask("Target.createTarget", url="about:blank")["targetId"]
        session = ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(lambda method, **params: ask(method, session, **params), width, height)
        page.complaints = complaints
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.ask(f"{domain}.enable")
        page.ask("Page.navigate", url=address)
        page.wait(f"document.readyState === 'complete' && location.href === {json.dumps(address)}")
        yield page
    finally:
        process.terminate()
        process.wait(PATIENCE)
        for end in (to_browser[1], from_browser[0]):
            os.close(end)
        shutil.rmtree(profile, ignore_errors=True)
