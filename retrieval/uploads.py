"""The image of a POST: its length by the headers, before anything is read, then raw or as a form of a browser.

The body is never written anywhere, and no name in it is used: not the file's, not that of a field.
"""

import email
import email.message
import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from utilities.reading import printable

FORM = "multipart/form-data"
IMAGE = "image"  # the field of a form that holds the image, where it is sent without a file name
COUNT = "k"  # the only other field, and the only one of an address
MOST_PARTS = 16  # of a form
MOST_FIELDS = 8  # of an address


class Refusal(Exception):
    """A request that is not answered: its HTTP status, and one line that says why."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Upload(NamedTuple):
    """What a body holds: the bytes of the image file, and the value of `k`, None if it has none."""

    image: bytes
    count: str | None = None


def length(headers, most_bytes: int) -> int:
    """The bytes of a body, by the headers of its request. Raises Refusal, also for more than `most_bytes`."""
    if headers.get("Transfer-Encoding") is not None:
        raise Refusal(411, "a body in chunks: send it whole, with a Content-Length")
    lengths = set(headers.get_all("Content-Length", []))
    if not lengths:
        raise Refusal(411, "no body: send the bytes of an image, with a Content-Length")
    text = lengths.pop().strip()
    if lengths or not re.fullmatch(r"[0-9]{1,18}", text):
        raise Refusal(400, "Content-Length must be one whole number")
    if int(text) == 0:
        raise Refusal(400, "an empty body: send the bytes of an image")
    if int(text) > most_bytes:
        raise Refusal(413, f"a body of {int(text):,} bytes, more than {most_bytes:,} (--max_megabytes)")
    return int(text)


def parsed(content_type: str, body: bytes) -> Upload:
    """The image of a body: that of a form, of any other content type the body itself. Raises Refusal."""
    header = email.message.Message()
    header["Content-Type"] = content_type
    if header.get_content_type() != FORM:
        return Upload(body)
    boundary = header.get_boundary()
    if not boundary:
        raise Refusal(400, f"{FORM} without a boundary")
    return _of_parts(_parts(boundary.encode("latin-1", "replace"), body))


def _parts(boundary: bytes, body: bytes) -> list[bytes]:
    """The parts of a form, each with its headers (RFC 2046, 5.1.1)."""
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MOST_PARTS + 1)
    if not parts or not parts[-1].startswith(b"--"):
        raise Refusal(400, f"a form that does not end with its boundary, or has more than {MOST_PARTS} parts")
    return parts[:-1]


def _of_parts(parts: list[bytes]) -> Upload:
    """The image and the count of a form's parts."""
    images = []
    counts = []
    for part in parts:
        head, _, content = part.partition(b"\r\n\r\n")
        headers = email.message_from_bytes(head.lstrip() + b"\r\n\r\n")
        name = str(headers.get_param("name", "", header="Content-Disposition"))
        if headers.get_filename() is not None or name == IMAGE:
            images.append(content)
        elif name == COUNT:
            counts.append(content[:20].decode("latin-1"))
        else:
            raise Refusal(400, f"a form with a field {printable(name)[:40]!r}: expected one file, and perhaps {COUNT}")
    # a browser sends an empty image where none was chosen
    images = [image for image in images if image]
    if len(images) != 1 or len(counts) > 1:
        raise Refusal(400, f"a form with {len(images)} images: expected one, and perhaps {COUNT}")
    return Upload(images[0], *counts)


def count(query: str, in_form: str | None, default: int, greatest: int) -> int:
    """How many neighbours a request wants, by its address or its form. Raises Refusal.

    Args:
        query: of the address, `k=5`, or empty. in_form: the form's value, or None.
    """
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Refusal(400, f"an address with more than {MOST_FIELDS} fields") from None
    for name, _ in fields:
        if name != COUNT:
            raise Refusal(400, f"an address with a field {printable(name)[:40]!r}: only {COUNT} is known")
    values = [value for _, value in fields]
    if in_form is not None:
        values.append(in_form)
    if not values:
        return default
    text = values[0]
    if len(values) > 1 or not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= greatest:
        written = " and ".join(printable(value)[:20] for value in values)
        raise Refusal(400, f"{COUNT} is {written!r}: expected one whole number from 1 to {greatest} (--max_k)")
    return int(text)
