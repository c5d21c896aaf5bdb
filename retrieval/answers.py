"""The neighbours that a search finds, as text, JSON, CSV, or a page with pictures."""

import csv
import html
import io
import json
import math
import os
from pathlib import Path
from typing import NamedTuple

from utilities import codes
from utilities.errors import UserError
from utilities.files import write_file

ENDINGS = (".html", ".json", ".csv")
UNKNOWN = "unknown"  # in place of the path of an answer, at rank 0
SIDE = 180  # pixels of a picture on the page
STYLE = """
:root { --ink: #1c2430; --soft: #5d6673; --line: #dfe3e8; --accent: #2b6ca3; }
* { box-sizing: border-box; }
body { margin: 0; padding: 12px 16px; color: var(--ink); font: 15px/1.45 system-ui, -apple-system, \
"Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 4px; } p { color: var(--soft); margin: 0 0 12px; }
section { border-top: 2px solid var(--line); padding: 12px 0; }
.found { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(46%, 180px), 1fr)); gap: 10px; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: 6px; } \
figure.query { border: 2px solid var(--accent); }
img, .gone { display: block; width: 100%; height: 140px; object-fit: contain; background: #f5f7f9; }
.gone { line-height: 140px; text-align: center; color: var(--soft); font-size: .8rem; }
figcaption { font-size: .78rem; overflow-wrap: anywhere; color: var(--soft); margin-top: 4px; } \
figcaption b { color: var(--ink); }
"""


class Neighbour(NamedTuple):
    """One neighbour of a query; at rank 0 the answer is `UNKNOWN`, at the distance of the nearest image."""

    query: str
    rank: int
    distance: float
    path: str


def answers(
    index, queries: list[str], vectors, k: int, exclude_self: bool = False, rescored: int = codes.RESCORED
) -> list[Neighbour]:
    """The `k` nearest images of each query, nearest first. `vectors` `(Q, D)`: the queries' embeddings.

    `exclude_self`: a query that is in the index is not among its own. `rescored`: see `Index.search`.
    """
    distances, rows = index.search(vectors, k + exclude_self, rescored)
    neighbours = []
    for query, query_distances, query_rows in zip(queries, distances, rows, strict=True):
        pairs = zip(query_distances, query_rows, strict=True)
        near = [(float(distance), index.paths[row]) for distance, row in pairs if row >= 0]
        if exclude_self:
            query_path = os.path.realpath(query)
            near = [(distance, path) for distance, path in near if os.path.realpath(path) != query_path]
        near = near[:k]
        neighbours += [Neighbour(query, rank, distance, path) for rank, (distance, path) in enumerate(near, start=1)]
    return neighbours


def below(neighbours: list[Neighbour], queries: list[str], threshold: float) -> list[Neighbour]:
    """The neighbours of each query that are nearer than the threshold, strictly; `UNKNOWN` where none is."""
    by_query = _by_query(neighbours)
    accepted = []
    for query in dict.fromkeys(queries):
        near = by_query.get(query, [])
        accepted_ones = [neighbour for neighbour in near if neighbour.distance < threshold]
        nearest = near[0].distance if near else math.inf
        accepted += accepted_ones or [Neighbour(query, 0, nearest, UNKNOWN)]
    return accepted


def as_answer(neighbours: list[Neighbour], classes: dict[str, str]) -> dict:
    """The neighbours of one query as content of JSON: rank, distance, path, and the class where it is known.

    Args:
        classes: path -> name of the class.
    """
    content = []
    for neighbour in neighbours:
        record = _record(neighbour)
        del record["query"]
        if neighbour.path in classes:
            record["class"] = classes[neighbour.path]
        content.append(record)
    return {"neighbours": content}


def count_self_neighbours(neighbours: list[Neighbour]) -> int:
    """How many queries are among their own neighbours."""
    paths = [(neighbour.query, neighbour.path) for neighbour in neighbours if neighbour.rank]
    return sum(os.path.realpath(query) == os.path.realpath(path) for query, path in paths)


def text(neighbours: list[Neighbour]) -> str:
    """Rank, distance and path, a line each; the query above, where there are several."""
    lines = []
    queries = _by_query(neighbours)
    for query, query_neighbours in queries.items():
        if len(queries) > 1:
            lines.append(f"{query}:")
        lines += [f"{neighbour.rank:>4}  {neighbour.distance:.6f}  {neighbour.path}" for neighbour in query_neighbours]
    return "\n".join(lines)


def _by_query(neighbours: list[Neighbour]) -> dict[str, list[Neighbour]]:
    """Query -> its neighbours."""
    queries = {}
    for neighbour in neighbours:
        queries.setdefault(neighbour.query, []).append(neighbour)
    return queries


def check(out: str) -> None:
    """Raise UserError for a file name without one of the `ENDINGS`."""
    if Path(out).suffix.lower() not in ENDINGS:
        raise UserError(f"--out {out}: the name must end in {', '.join(ENDINGS)}, which selects the format")


def write(neighbours: list[Neighbour], out: str, preparation) -> None:
    """Write the neighbours to `out`, in the format of its ending. `preparation`: how pictures for the page are read."""
    ending = Path(out).suffix.lower()
    if ending == ".json":
        content = json.dumps([_record(neighbour) for neighbour in neighbours], indent=1).encode()
    elif ending == ".csv":
        rows = io.StringIO()
        csv.writer(rows, lineterminator="\n").writerows([Neighbour._fields, *neighbours])
        # a name that is not UTF-8 keeps its bytes
        content = rows.getvalue().encode("utf-8", "surrogateescape")
    else:
        content = page(neighbours, preparation).encode("utf-8", "replace")
    write_file(out, content)


def _record(neighbour: Neighbour) -> dict:
    """A neighbour in JSON, which has no infinity: a distance of `UNKNOWN` without any image is null."""
    record = neighbour._asdict()
    if math.isinf(neighbour.distance):
        record["distance"] = None
    return record


def page(neighbours: list[Neighbour], preparation) -> str:
    """One self-contained HTML page: each query, then its neighbours."""
    sections = []
    for query, query_neighbours in _by_query(neighbours).items():
        figures = [_figure(query, "<b>query</b>", preparation, ' class="query"')]
        for neighbour in query_neighbours:
            if neighbour.rank:
                caption = f"<b>{neighbour.rank}</b> · distance {neighbour.distance:.4f}"
                figures.append(_figure(neighbour.path, caption, preparation))
            else:
                caption = f"<b>{UNKNOWN}</b> · the nearest image at {neighbour.distance:.4f}"
                figures.append(f'<figure><div class="gone">{UNKNOWN}</div><figcaption>{caption}</figcaption></figure>')
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
    except UserError:
        # removed since it was indexed
        picture = '<div class="gone">no longer there</div>'
    return f"<figure{kind}>{picture}<figcaption>{caption}<br>{html.escape(path)}</figcaption></figure>"
