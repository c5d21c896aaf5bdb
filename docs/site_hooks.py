"""MkDocs hooks of `make docs`: pages from outside docs/ or made from the code, and links of the site.

The pages stay as GitHub shows them; the hooks convert what MkDocs reads differently. A link to a file that is not a
page leads to a copy.
"""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parent))

import generate_python
import generate_reference

ROOT = Path(__file__).resolve().parent.parent
# in the repository -> on the site
OUTSIDE = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "experiments/README.md": "experiments.md",
}
# folder of the pages made by generate_reference.py
METHODS = "methods"
FENCE = re.compile(r"(^ *```.*\n[\s\S]*?^ *```$)", re.MULTILINE)
# a block of code that names its file
TITLED = re.compile(r"\A( *```\w+) +(\S+)\n")
TARGET = re.compile(r'(\]\(|src="|href=")([^)\s"]+)([)"])')
TAG = re.compile(r"(<pre[\s\S]*?</pre>|<[^>]*>)")
FLAG = re.compile(r"(?<![\w-])--[A-Za-z]\w*")
NUMBERED = re.compile(r"\d+\. ")
LISTED = re.compile(r"(\d+\.|[-*]) ")


def on_config(config):
    """Pages that mkdocs.yml does not name yet come at the end of its navigation."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    further_pages = sorted(pages - set(_pages(config["nav"])))
    if further_pages:
        config["nav"].append({"More": further_pages})
    return config


def _pages(nav):
    for entry in nav:
        for value in entry.values():
            yield from _pages(value) if isinstance(value, list) else [value]


def on_files(files, config):
    """Add the pages outside docs/, those made from the code, and the files that pages link to."""
    for name, on_site in OUTSIDE.items():
        files.append(File.generated(config, on_site, abs_src_path=str(ROOT / name)))
    for kind in generate_reference.KINDS:
        # its links are relative to docs/
        content = re.sub(r"\]\((?=[\w-]+\.md)", "](../", generate_reference.text(kind))
        files.append(File.generated(config, f"{METHODS}/{kind}.md", content=content))
    linked = set()
    for file in files.documentation_pages():
        if file.generated_by is None or file.src_uri in OUTSIDE.values():
            linked |= set(_targets(file.content_string, source_of(file.src_uri)))
    for path in sorted(linked):
        if path not in OUTSIDE and not path.startswith("docs/") and (ROOT / path).is_file():
            files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Convert links for the site and lists for Python-Markdown; in methods.md each method links to its section."""
    uri = page.file.src_uri
    if uri == "methods.md":
        markdown = with_sections(markdown)
    if uri == "python.md":
        markdown = generate_python.for_site(markdown)
    if not uri.startswith(f"{METHODS}/"):
        markdown = relinked(markdown, source_of(uri))
    # The parts at odd places are blocks of code.
    parts = FENCE.split(indented(markdown))
    parts[::2] = [lists(unreferenced(part)) for part in parts[::2]]
    parts[1::2] = [TITLED.sub(r'\1 title="\2"\n', part) for part in parts[1::2]]
    return "".join(parts)


def on_page_content(html, page, config, files):
    """Mark flags in the text, blocks of code excepted: docs/site.css keeps each in one line."""
    parts = TAG.split(html)
    parts[::2] = [FLAG.sub(r'<span class="flag">\g<0></span>', part) for part in parts[::2]]
    return "".join(parts)


def source_of(uri: str) -> str:
    """Where a page lies in the repository."""
    for name, on_site in OUTSIDE.items():
        if on_site == uri:
            return name
    return f"docs/{uri}"


def site_path(path: str) -> str:
    """Where a file of the repository lies on the site."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"


def _targets(markdown: str, source: str):
    """The files of the repository that a page at `source` links to."""
    for part in FENCE.split(markdown)[::2]:
        for _, target, _ in TARGET.findall(part):
            if not re.match(r"\w+:|#", target):
                yield posixpath.normpath(posixpath.join(posixpath.dirname(source), target.partition("#")[0]))


def relinked(markdown: str, source: str) -> str:
    """The page with the links of the repository turned into those of the site."""
    folder = posixpath.dirname(site_path(source)) or "."

    def on_site(match):
        opening, target, closing = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or re.match(r"\w+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        return f"{opening}{posixpath.relpath(site_path(file), folder)}{hash_}{anchor}{closing}"

    parts = FENCE.split(markdown)
    parts[::2] = [TARGET.sub(on_site, part) for part in parts[::2]]
    return "".join(parts)


def with_sections(markdown: str) -> str:
    """docs/methods.md, every name a link to its section."""
    lines = []
    kind = None
    titles = {title: kind for kind, (title, _) in generate_reference.generate_methods.TITLES.items()}
    for line in markdown.splitlines():
        if line.startswith("## "):
            kind = titles.get(line.removeprefix("## "), kind)
        name = re.match(r"- `(\w+)`:", line)
        if name and kind and kind != "metrics" and name[1] in generate_reference.names(kind):
            line = re.sub(r"- `(\w+)`", rf"- [`\1`]({METHODS}/{kind}.md#\1)", line, count=1)
        lines.append(line)
    return "\n".join(lines)


def unreferenced(text: str) -> str:
    """Escape the brackets of `<name>[_frozen][_normalize]` outside code: Markdown would read a reference link."""
    # The parts at odd places are code.
    parts = re.split(r"(`[^`\n]*`)", text)
    parts[::2] = [part.replace("][", "]\\[") for part in parts[::2]]
    return "".join(parts)


def indented(markdown: str) -> str:
    """Indent the content of numbered items by four spaces, as Python-Markdown needs; GitHub needs three."""
    lines = []
    is_in_item = False
    for line in markdown.split("\n"):
        if line and not line.startswith(" "):
            is_in_item = bool(NUMBERED.match(line))
        if is_in_item and line.startswith("   "):
            line = f" {line}"
        lines.append(line)
    return "\n".join(lines)


def lists(text: str) -> str:
    """Insert an empty line between a paragraph and a list right after it, as Python-Markdown needs."""
    lines = []
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        is_paragraph = before.strip() and not before.startswith(" ") and not LISTED.match(before)
        if LISTED.match(line) and is_paragraph:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
