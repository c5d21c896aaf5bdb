"""The explorer's page: one HTML file with its data, style and script; it loads nothing from any address."""

import base64
import html as markup
import json
from pathlib import Path

import numpy as np

from utilities.files import json_safe

HERE = Path(__file__).parent
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
SCRIPTS = ("explore_map.js", "explore_marks.js", "explore_lists.js")
BODY = """
<header><h1></h1><p id="about"></p><ul id="notes"></ul></header>
<main>
<section id="map-part" aria-label="map">
  <div class="controls">
    <label>colours <select id="colours"><option value="class">class</option>\
<option value="query">the query's class</option></select></label>
    <label>class <input id="filter" type="search" list="class-names" placeholder="all classes"></label>\
<datalist id="class-names"></datalist>
    <button id="whole" type="button">whole map</button>
  </div>
  <p id="filtered" role="status"></p>
  <div id="stage"><canvas id="map" tabindex="0" aria-label="map of the images; a click chooses a query"></canvas>\
<div id="hover" hidden></div></div>
  <div id="legend"></div>
</section>
<section id="query-part" aria-label="neighbours">
  <h2>Neighbours</h2>
  <p id="hint">Click an image on the map or in a list: its nearest images appear here.</p>
  <div id="query"></div>
  <div id="marking" class="controls" role="group" aria-label="marks on this image">
    <button data-key="w" type="button">wrong label <kbd>W</kbd></button>
    <button data-key="d" type="button">duplicate <kbd>D</kbd></button>
    <button data-key="n" type="button" title="it shows none of the classes">no class <kbd>N</kbd></button>
    <label id="right-part">right label <kbd>R</kbd> <input id="right-label" list="right-labels" autocomplete="off" \
placeholder="its class"></label><datalist id="right-labels"></datalist>
    <button id="undo" type="button">undo <kbd>U</kbd></button>
    <button id="next" type="button">next query <kbd>J</kbd></button>
    <button id="previous" type="button">previous <kbd>K</kbd></button>
  </div>
  <p id="mark-status" role="status"></p>
  <div id="neighbours" class="grid"></div>
</section>
<section id="marks-part">
  <h2>Marks</h2>
  <div class="controls"><span id="marks" role="status"></span>\
<button id="save" type="button">save fixes.csv</button></div>
  <p id="keeping"></p>
  <div id="marked" class="grid small"></div>
</section>
<section id="worst-part">
  <h2>Queries</h2>
  <div class="controls"><label>sort <select id="sort">\
<option value="worst">worst average precision first</option>
  <option value="best">best average precision first</option>\
<option value="order">order of the data</option></select></label></div>
  <div id="worst" class="grid small"></div><button id="more" type="button">more</button>
</section>
<section id="confusions-part">
  <h2>Confusions</h2>
  <p>Images whose nearest image is of another class. A click shows both classes.</p>
  <div class="scroll"><table><thead><tr><th>class</th><th>nearest is of</th><th>images</th><th>share</th></tr></thead>
  <tbody id="confusions"></tbody></table></div><button id="more-confusions" type="button">more</button>
</section>
<section id="distances-part">
  <h2>Distances of pairs</h2>
  <p id="pairs"></p>
  <div class="controls"><label>false match rate <select id="rate"></select></label></div>
  <div id="histogram"></div><p id="threshold" role="status"></p>
</section>
</main>
"""


def packed(array: np.ndarray, kind) -> str:
    """The numbers of an array, row after row, in base64."""
    kind = np.dtype(kind).newbyteorder("<")
    array = np.rint(array) if kind.kind == "u" else array
    return base64.b64encode(np.ascontiguousarray(array).astype(kind).tobytes()).decode()


def html(content: dict) -> str:
    """The page of `explore.content`. Names and paths are data, which the script shows as text and never as markup."""
    inside = json.dumps(json_safe(content), allow_nan=False).replace("<", "\\u003c")
    style = (HERE / "explore.css").read_text(encoding="utf-8")
    script = "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{markup.escape(content['title'].encode('utf-8', 'replace').decode())}</title>"
        f"<style>\n{style}</style></head><body>{BODY}"
        f'<script id="content" type="application/json">{inside}</script>\n<script>\n"use '
        f'strict";\n{script}</script></body></html>\n'
    )
