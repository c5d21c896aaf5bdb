"""The server's page: one HTML file with its style and script, which loads nothing but answers and pictures."""

import base64
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
BODY = """
<header><h1>Search by photograph</h1><p id="about"></p></header>
<main>
<form id="form">
  <label id="drop" for="file">
    <img id="photo" alt="your photograph" hidden>
    <span id="hint"><b>Choose a photograph</b> or drop it here</span>
    <input id="file" type="file" accept="image/*">
  </label>
  <label class="count">neighbours <input id="count" type="number" min="1" step="1"></label>
</form>
<p id="status" role="status"></p>
<div id="neighbours"></div>
</main>
"""


class Page(NamedTuple):
    """The bytes of the page, and the policy that browsers keep for it."""

    body: bytes
    policy: str


def page(limits, images: int) -> Page:
    """The page for an index of so many images. limits: `retrieval.service.Limits`."""
    style = (HERE / "serve.css").read_text(encoding="utf-8")
    script = (HERE / "serve.js").read_text(encoding="utf-8")
    settings = {
        "images": images,
        "count": limits.count,
        "most_count": limits.most_count,
        "most_bytes": limits.most_bytes,
    }
    text = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>Search by photograph</title><style>{style}</style></head><body>{BODY}"
        f'<script id="settings" type="application/json">{json.dumps(settings)}</script>'
        f"<script>{script}</script></body></html>\n"
    )
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src 'self' blob: data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
    return Page(text.encode(), policy)


def _hash(text: str) -> str:
    """How a policy allows a style or script by its content."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
