"""The page: one HTML file with all results, pictures inside, that needs no network."""

import html
import shlex
from pathlib import Path

import datasets
from appraise import decision, networks, photographs
from appraise.steps import Appraisal, short
from pictures import thumbnails
from retrieval.answers import STYLE
from utilities.counts import count_of
from utilities.errors import UserError
from utilities.files import write_file
from utilities.programs import as_typed

SIDE = 150  # pixels of a picture
MOST_LINES = 12  # of a list of files
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
DATES_ALONE = (
    "The times are dates without a time of day: a burst is all photographs of a class and a date, and a class of one "
    "date has nothing to find."
)
OWN_STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")


def write(appraisal: Appraisal) -> dict:
    """Write `index.html`."""
    sections = [
        _recommendation(appraisal),
        _files(appraisal),
        _near_duplicates(appraisal),
        _parts(appraisal),
        _power(appraisal),
        _networks(appraisal),
        _threshold(appraisal),
        _worst(appraisal),
        _unknown(appraisal),
    ]
    title = f"Appraisal of {appraisal.photographs.name}"
    summary = appraisal.results["data"]["summary"]
    content = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{POLICY}"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{html.escape(title)}</title><style>{STYLE}{OWN_STYLE}</style></head>'
        f"<body><main><h1>{html.escape(title)}</h1>"
        f"<p>{html.escape(summary)}. Each section names the commands that print its numbers.</p>"
        f"{''.join(sections)}</main></body></html>\n"
    )
    write_file(appraisal.folder / "index.html", content.encode("utf-8", "replace"))
    return {"summary": f"{appraisal.folder / 'index.html'}"}


# ------------------------------------------------------------------------------------------------------------- elements
def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def _text(text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{html.escape(short(text))}</p>"


def _list(lines: list[str]) -> str:
    """The first lines as a list, and how many more there are."""
    items = [f"<li>{html.escape(line)}</li>" for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        items.append(f"<li>and {len(lines) - MOST_LINES:,} more</li>")
    return f"<ul>{''.join(items)}</ul>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _commands(*commands: list[str]) -> str:
    """The commands that print the numbers of a section."""
    lines = [html.escape(as_typed(shlex.join(command))) for command in commands]
    return f"<details><summary>commands</summary><pre>{chr(10).join(lines)}</pre></details>"


def _figure(path: str, caption: str, kind: str = "") -> str:
    try:
        address = thumbnails.address(thumbnails.small(datasets.decode(path), SIDE), quality=80)
        picture = f'<img alt="{html.escape(Path(path).name)}" src="{address}">'
    except UserError:
        picture = '<div class="gone">no longer there</div>'
    return f'<figure class="{kind}">{picture}<figcaption>{caption}</figcaption></figure>'


def _pair(first: tuple[str, str], second: tuple[str, str], note: str = "") -> str:
    """Two pictures side by side: path and class of each."""
    figures = []
    for path, name in (first, second):
        figures.append(_figure(path, f"<b>{html.escape(name)}</b><br>{html.escape(Path(path).name)}"))
    caption = f"<p>{html.escape(note)}</p>" if note else ""
    return f'<div class="pair">{"".join(figures)}{caption}</div>'


def _percent(values: list[float]) -> str:
    """`78.1 [71.0, 84.2]` of a share and its interval."""
    value, low, high = (100 * number for number in values)
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def _bar(values: list[float]) -> str:
    """The interval from 0 to 100 % as a bar, the value as a line in it."""
    value, low, high = (100 * min(max(number, 0), 1) for number in values)
    interval = f'<i style="left:{low:.1f}%;width:{high - low:.1f}%"></i>'
    return f'<div class="bar">{interval}<b style="left:{value:.1f}%"></b></div>'


# ------------------------------------------------------------------------------------------------------------- sections
def _recommendation(appraisal: Appraisal) -> str:
    headline, *sentences = decision.recommendation(appraisal.results)
    return _section("Recommendation", _text(headline, "headline"), *map(_text, sentences))


def _files(appraisal: Appraisal) -> str:
    data = appraisal.results["data"]
    parts = []
    copies = [" = ".join(f"{name}/{Path(path).name}" for path, name in group) for group in data["copies_across"]]
    lists = {
        "Files that cannot be read, and are left out": data["broken"],
        "Equal files in several classes": copies,
        "Files that the table names and that are missing": data["missing"],
        "Classes of one photograph, which has nothing to find": data["single"],
        "Files that are no photographs, or lie where none is expected": data["strays"],
    }
    for fault, lines in lists.items():
        if lines:
            parts += [_text(f"{fault}: {len(lines):,}", "fault"), _list(lines)]
    if not parts:
        parts.append(_text("Every file can be read; no file is in two classes; no class has a single photograph."))
    if data["copies_within"]:
        parts.append(_text(f"{count_of(data['copies_within'], 'group')} of equal files within a class."))
    if data["notes"]:
        parts.append(_list(data["notes"]))
    return _section("Files", *parts, _commands(["python", "main.py", *appraisal.source_words, "--check_data"]))


def _near_duplicates(appraisal: Appraisal) -> str:
    groups = appraisal.results["groups"]
    label = appraisal.results["features"]["plan"]["archs"][0]
    parts = [
        _text(
            f"{count_of(groups['pairs'], 'pair')} of photographs have a similarity from {groups['similarity']:g} on "
            f"(cosine of the features of {label}, less their mean); {groups['pairs_across']:,} of them between two "
            f"classes. {count_of(groups['bursts'], 'burst')} by the times of the photographs (at most a minute between "
            f"neighbours; {groups['with_time']:,} of {groups['images']:,} have a time). "
            f"{groups['grouped_images']:,} photographs are in {count_of(groups['groups'], 'group')} that stay together "
            "in the split and never find each other in a measurement."
        )
    ]
    if groups["similarity"] > photographs.SIMILARITIES[0]:
        parts.append(
            _text(
                f"From {photographs.SIMILARITIES[0]:g} on, more than a tenth of the photographs would have a "
                "near-duplicate of another class: this network finds too many photographs alike to judge them."
            )
        )
    if groups["dates_alone"]:
        parts.append(_text(DATES_ALONE))
    if groups["single_groups"]:
        count = count_of(groups["single_groups"], "class", "classes")
        parts.append(_text(f"{count} of a single photograph or group: it has nothing to find, and is not measured."))
    tiles = []
    for row in groups["shown"]:
        is_across = row["classes"][0] != row["classes"][1]
        note = f"{row['similarity']:.3f}, {'two classes' if is_across else 'same class'}"
        tiles.append(_pair((row["paths"][0], row["classes"][0]), (row["paths"][1], row["classes"][1]), note))
    if tiles:
        parts.append(f'<div class="tiles">{"".join(tiles)}</div>')
    if groups["pairs"] > len(tiles):
        parts.append(_text(f"All pairs: {appraisal.folder / photographs.PAIRS}"))
    return _section("Near-duplicates and bursts", *parts, _commands(appraisal.command))


def _parts(appraisal: Appraisal) -> str:
    split = appraisal.results["split"]
    uses = {
        "train": "adapters and training learn from them",
        "select": "networks are chosen by them",
        "set aside": "new classes, from which the threshold is found",
        "test": "measured once, at the end",
    }
    rows = []
    for part in split["parts"]:
        rows.append([part["part"], f"{part['classes']:,}", f"{part['images']:,}", uses[part["part"]]])
    text = "No class, and no group of photographs, is in two parts."
    if split["joined"]:
        text += f" {split['joined']:,} classes share photographs with others, and went to the same part."
    text += f" Classes of each part: {appraisal.folder / 'split.json'}, {appraisal.folder / 'set_aside.json'}"
    table = _table(["part", "classes", "photographs", "use"], rows)
    return _section("Split", table, _text(text), _commands(appraisal.command))


def _power(appraisal: Appraisal) -> str:
    sentences = decision.power_sentences(appraisal.results["power"])
    return _section("What can be shown", *map(_text, sentences), _commands(appraisal.command))


def _networks(appraisal: Appraisal) -> str:
    results = appraisal.results
    text = (
        "R@1: share of photographs whose nearest one, of another group, is of their class. On select classes, with "
        "95 % intervals over classes. The row is chosen that costs least (frozen, components, adapter, trained) among "
        "those whose paired difference to the best contains 0."
    )
    notes = [*results["features"]["missing"], *results["frozen"]["missing"], *results["features"]["plan"]["notes"]]
    if results["tuned"]["note"]:
        notes.append(results["tuned"]["note"])
    parts = [_text(text), _rows(appraisal), _text(decision.test_sentence(results["threshold"]))]
    if notes:
        parts.append(_list(list(dict.fromkeys(notes))))
    return _section("Networks", *parts, _commands(*_commands_of_networks(appraisal)))


def _rows(appraisal: Appraisal) -> str:
    """The table of networks."""
    results = appraisal.results
    head = ["network", "R@1 in %", "", "MAP@R in %", "width", "parameters in M", "images/s"]
    rows = []
    for row in decision.all_rows(appraisal):
        name = html.escape(short(row["name"]))
        if row["name"] == results["threshold"]["chosen"]:
            name = f"<b>{name}</b> (chosen)"
        speed = f'<span class="time">{results["features"]["rates"][row["label"]]:,.0f}</span>'
        facts = [str(row["width"]), f"{row['parameters'] / 1e6:,.1f}", speed]
        rows.append([name, _percent(row["recall"]), _bar(row["recall"]), _percent(row["map_r"]), *facts])
    return _table(head, rows)


def _commands_of_networks(appraisal: Appraisal) -> list[list[str]]:
    """The commands that print the numbers of the table, and of the test."""
    results = appraisal.results
    words = ["python", "-m", "evaluation", "models", *appraisal.select_words]
    words += ["--archs", *results["features"]["plan"]["archs"], "--pca", str(networks.COMPONENTS)]
    words += ["--adapters", "linear", "--seed", str(appraisal.flags.seed), *networks.MEASURED_BY]
    commands = [[*words, "--save_path", str(appraisal.folder)]]
    if results["tuned"]["rows"]:
        commands.append(["python", "-m", "launch", str(appraisal.folder / decision.RUNS)])
    chosen = decision.row_named(appraisal, results["threshold"]["chosen"])
    for folder in chosen.get("folders", [chosen["folder"]]):
        file = appraisal.folder / folder / "embeddings_test.npz"
        commands.append(["python", "-m", "evaluation", str(file), *networks.MEASURED_BY])
    return commands


def _threshold(appraisal: Appraisal) -> str:
    promised = appraisal.results["threshold"]["promise"]
    text = (
        "Is a photograph one of the known classes at all? Its nearest photograph in the gallery names it if the "
        "distance is below the threshold; else it is new. The gallery is the train and select classes and half of each "
        "test class, the new classes are those set aside."
    )
    commands = [["python", "-m", "evaluation", *decision.promise_words(appraisal)]]
    row = decision.row_named(appraisal, appraisal.results["threshold"]["chosen"])
    if row["kind"] == "tuned" and promised["threshold"] is not None:
        index = str(appraisal.folder / "index")
        threshold = str(appraisal.folder / decision.DECISION)
        program = ["python", "-m", "retrieval"]
        commands.append([*program, "index", row["run"], str(appraisal.photographs), "--out", index])
        commands.append([*program, "query", index, "PHOTOGRAPH", "--threshold", threshold])
    return _section(
        "Threshold for new classes", _text(promised["sentence"], "fault"), _text(text), _commands(*commands)
    )


def _worst(appraisal: Appraisal) -> str:
    worst = appraisal.results["threshold"]["worst"]
    if not worst:
        return _section("Worst classes", _text("Every photograph of the test classes finds its class."))
    tiles = []
    for entry in worst:
        count = count_of(entry["images"], "photograph")
        tiles.append(f"<h3>{html.escape(entry['class'])}: {100 * entry['share']:.0f} % of {count}</h3>")
        pairs = [_pair((query, entry["class"]), (nearest, name)) for query, nearest, name in entry["wrong"]]
        tiles.append(f'<div class="tiles">{"".join(pairs)}</div>')
    text = "Test classes that are found least: left a photograph, right the nearest one, of another class."
    return _section("Worst classes", _text(text), *tiles)


def _unknown(appraisal: Appraisal) -> str:
    groups = appraisal.results["groups"]
    lines = [
        "Other cameras, places and seasons than those of these photographs: nothing here speaks of them.",
        "Wrong labels, but for near-duplicates between classes: the folders are taken as the truth.",
        "Near-duplicates that the first network does not see as such.",
        f"Another split: all numbers are of one, --seed {appraisal.flags.seed}; intervals are over its classes.",
    ]
    without_time = groups["images"] - groups["with_time"]
    if without_time:
        lines.append(f"Bursts among the {without_time:,} photographs without a time.")
    if not appraisal.results["tuned"]["rows"]:
        lines.append("Whether training would help: none was done.")
    return _section("What this page does not know", _list(lines))
