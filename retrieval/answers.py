"""What a search found, as text, JSON, CSV, or a page with pictures."""

import csv
import html
import io
import json
import os
from pathlib import Path
from typing import NamedTuple

from utilities import codes
from utilities.errors import UserError
from utilities.files import write_file

ENDINGS = (".html", ".json", ".csv")
SIDE = 180  # pixels of a picture on the page
STYLE = """
:root { --ink: #1c2430; --soft: #5d6673; --line: #dfe3e8; --accent: #2b6ca3; }
* { box-sizing: border-box; }
body { margin: 0; padding: 12px 16px; color: var(--ink); font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 4px; } p { color: var(--soft); margin: 0 0 12px; }
section { border-top: 2px solid var(--line); padding: 12px 0; }
.found { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(46%, 180px), 1fr)); gap: 10px; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: 6px; } figure.query { border: 2px solid var(--accent); }
img, .gone { display: block; width: 100%; height: 140px; object-fit: contain; background: #f5f7f9; }
.gone { line-height: 140px; text-align: center; color: var(--soft); font-size: .8rem; }
figcaption { font-size: .78rem; overflow-wrap: anywhere; color: var(--soft); margin-top: 4px; } figcaption b { color: var(--ink); }
"""


class Found(NamedTuple):
    """One neighbour of a query."""

    query: str
    rank: int
    distance: float
    path: str


def answers(
    index, queries: list[str], vectors, k: int, exclude_self: bool = False, rescored: int = codes.RESCORED
) -> list[Found]:
    """The `k` nearest images of each query, nearest first. `vectors` `(Q, D)`: the queries' embeddings.

    `exclude_self`: a query that is in the index is not among its own. `rescored`: see `Index.search`.
    """
    distances, rows = index.search(vectors, k + exclude_self, rescored)
    found = []
    for query, *both in zip(queries, distances, rows, strict=True):
        own = os.path.realpath(query) if exclude_self else None
        near = [(float(distance), index.paths[row]) for distance, row in zip(*both, strict=True) if row >= 0]
        near = [(distance, path) for distance, path in near if own is None or os.path.realpath(path) != own][:k]
        found += [Found(query, rank, distance, path) for rank, (distance, path) in enumerate(near, start=1)]
    return found


def found_themselves(found: list[Found]) -> int:
    """How many queries are among their own neighbours."""
    return sum(os.path.realpath(one.query) == os.path.realpath(one.path) for one in found)


def text(found: list[Found]) -> str:
    """Rank, distance and path, a line each; the query above, where there are several."""
    lines = []
    queries = _by_query(found)
    for query, own in queries.items():
        if len(queries) > 1:
            lines.append(f"{query}:")
        lines += [f"{one.rank:>4}  {one.distance:.6f}  {one.path}" for one in own]
    return "\n".join(lines)


def _by_query(found: list[Found]) -> dict[str, list[Found]]:
    """Query -> its neighbours."""
    queries = {}
    for one in found:
        queries.setdefault(one.query, []).append(one)
    return queries


def check(out: str) -> None:
    """Raise UserError for a file name without one of the `ENDINGS`."""
    if Path(out).suffix.lower() not in ENDINGS:
        raise UserError(f"--out {out}: the name must end in {', '.join(ENDINGS)}, which selects the format")


def write(found: list[Found], out: str, preparation) -> None:
    """Write the neighbours to `out`, in the format of its ending. `preparation`: how pictures for the page are read."""
    ending = Path(out).suffix.lower()
    if ending == ".json":
        content = json.dumps([one._asdict() for one in found], indent=1).encode()
    elif ending == ".csv":
        rows = io.StringIO()
        csv.writer(rows, lineterminator="\n").writerows([Found._fields, *found])
        content = rows.getvalue().encode("utf-8", "surrogateescape")  # a name that is not UTF-8 keeps its bytes
    else:
        content = page(found, preparation).encode("utf-8", "replace")
    write_file(out, content)


def page(found: list[Found], preparation) -> str:
    """One self-contained HTML page: each query, then its neighbours."""
    sections = []
    for query, own in _by_query(found).items():
        figures = [_figure(query, "<b>query</b>", preparation, ' class="query"')]
        figures += [_figure(one.path, f"<b>{one.rank}</b> · distance {one.distance:.4f}", preparation) for one in own]
        sections.append(f'<section><div class="found">{"".join(figures)}</div></section>')
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" '
        'href="data:,"><title>Search</title>'
        f"<style>{STYLE}</style></head><body><h1>Nearest images</h1><p>Euclidean distances of embeddings, nearest "
        "first.</p>"
        f"{''.join(sections)}</body></html>\n"
    )


def _figure(path: str, caption: str, preparation, kind: str = "") -> str:
    from pictures import thumbnails

    try:
        source = thumbnails.address(thumbnails.small(preparation.original(path), SIDE))
        picture = f'<img alt="{html.escape(Path(path).name)}" src="{source}">'
    except UserError:  # removed since it was indexed
        picture = '<div class="gone">no longer there</div>'
    return f"<figure{kind}>{picture}<figcaption>{caption}<br>{html.escape(path)}</figcaption></figure>"
