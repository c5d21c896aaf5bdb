"""The documentation site: every page has its place, every method its section, the build gives no warning and no link leads nowhere."""

import html
import importlib
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

import criteria
import parameters
from benchmarks.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """mkdocs.yml names a function, which stays a name here."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
CONFIG = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)  # noqa: S506, a SafeLoader


@pytest.fixture(scope="module")
def reference():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("generate_reference")


@pytest.fixture(scope="module")
def hooks(reference):
    pytest.importorskip("mkdocs")
    return importlib.import_module("site_hooks")


def test_every_page_has_one_place_in_the_navigation(reference, hooks):
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    made = {"readme.md", "contributing.md", "changelog.md", *(f"methods/{kind}.md" for kind in reference.KINDS)}
    listed = list(hooks._pages(CONFIG["nav"]))
    assert set(listed) <= pages | made and len(listed) == len(set(listed))
    first = [entry for entry in CONFIG["nav"] if "Installation" not in entry]
    *_, more = hooks.on_config({"nav": first})["nav"]
    assert set(more["More"]) == pages - set(listed) | {"installation.md"}, "a page that is not named yet"


def test_the_site_is_strict_and_built_outside_the_repository():
    assert CONFIG["strict"] is True and set(CONFIG["validation"]["links"].values()) == {"warn"}
    assert f"{CONFIG['site_dir'].split('/')[0]}/" in (ROOT / ".gitignore").read_text().split()


# --------------------------------------------------------------------------------------------------------- methods, Python
@pytest.mark.parametrize("kind", ["losses", "miners", "samplers", "trainers", "architectures", "metrics"])
def test_every_method_has_a_section_with_caption_formula_and_flags(reference, kind):
    text = reference.text(kind)
    sections = dict(re.findall(r"^## `(\w+)` .*\n([\s\S]*?)(?=^## |\Z)", text, re.MULTILINE))
    assert list(sections) == reference.names(kind)
    groups = {group.title: group for group in parameters.get_parser()._action_groups}
    for name, section in sections.items():
        module = importlib.import_module(f"{reference._registry(kind).package}.{name}")
        caption = inspect.getdoc(module).partition("\n")[0].rstrip(".")
        assert caption in section.replace("[", "").replace("]", "") or re.sub(
            r"\[(arXiv [\d.]+)\]\([^)]*\)", r"\1", section
        ).strip().startswith(caption)
        formula = inspect.getdoc(getattr(module, reference.CLASSES[kind])).partition("\n\n")[0]
        assert f"```text\n{formula}\n```" in section, name
        for number in re.findall(r"arXiv (\d{4}\.\d{4,5})", inspect.getdoc(module)):
            assert f"(https://arxiv.org/abs/{number})" in section, name
        group = groups.get(f"{reference._registry(kind).kind} {name}")
        for action in group._group_actions if group else ():
            assert f"| `{action.option_strings[0]}`" in section, name


def test_every_loss_has_its_result_or_the_command_for_it(reference):
    rows = {row[0].strip("`"): row for row in reference.results() if len(row) == 5 and row[1].startswith("`")}
    text = reference.text("losses")
    sections = dict(re.findall(r"^## `(\w+)` .*\n([\s\S]*?)(?=^## |\Z)", text, re.MULTILINE))
    with_numbers = [name for name, section in sections.items() if f"e_recall@1 **{rows.get(name, [''] * 5)[2]}**" in section]
    assert len(with_numbers) >= 27 and {"margin", "triplet", "supcon"} <= set(with_numbers)
    others = set(sections) - set(with_numbers)
    for name in others:
        assert "not run yet" in sections[name] and (f"benchmarks/methods.py --only {name}`" in sections[name]) == (name in METHODS), name
    assert set(sections) == set(criteria.REGISTRY.names())


def test_every_loss_has_a_row_in_the_table_of_results(reference):
    rows = [row[0].strip("`") for row in reference.of_losses()]
    assert sorted(rows) == sorted(criteria.REGISTRY.names()), "benchmarks/methods.py --only NAME makes one, for docs/methods_on_glyphs.md"


@pytest.mark.parametrize("kind", ["miners", "samplers"])
def test_every_miner_and_every_sampler_has_its_results(reference, kind):
    sections = dict(re.findall(r"^## `(\w+)` .*\n([\s\S]*?)(?=^## |\Z)", reference.text(kind), re.MULTILINE))
    lacking = [name for name in reference.names(kind) if not re.search(r"\| \d\d\.\d\d(?: ± \d\.\d\d)? \|", sections[name])]
    assert not lacking, f"benchmarks/methods.py --{kind} makes them, for docs/methods_on_glyphs.md"


def test_results_of_trainers_miners_and_the_memory_are_on_their_pages(reference):
    found = reference.results()
    pages = {kind: reference.text(kind) for kind in ("trainers", "miners")}
    sections = {kind: dict(re.findall(r"^## `(\w+)` .*\n([\s\S]*?)(?=^## |\Z)", text, re.MULTILINE)) for kind, text in pages.items()}
    for name in reference.names("trainers"):
        rows = [row for row in found if f"--trainer {name}" in row[0]]
        assert rows or name == "metric_only", "it is the base of every other"
        assert all(f"| {' | '.join(row)} |" in sections["trainers"][name] for row in rows)
    memory = pages["trainers"].partition("{ #memory }")[2]
    rows = [row for row in found if "--memory_size" in row[0]]
    assert len(rows) >= 6 and all(f"| {' | '.join(row)} |" in memory for row in rows)
    distance = [row for row in reference.of_losses() if "--batch_mining distance" in row[1]]
    assert len(distance) >= 5 and sections["miners"]["distance"].count("| `--loss ") == len(distance) + 1, "and the row among the miners"
    assert f"| {distance[0][2]} | {distance[0][3]} |" in sections["miners"]["distance"]


def test_a_docstring_is_shown_as_it_is(reference):
    shown = reference.plain("sum_p *x* [d - m]+ <a> `b_c` |x|^2, arXiv 2002.08473.")
    assert shown == r"sum\_p \*x\* \[d - m\]+ &lt;a> `b_c` \|x\|\^2, [arXiv 2002.08473](https://arxiv.org/abs/2002.08473)."


def test_the_python_page_names_what_there_is():
    names = re.findall(r"^::: ([\w.]+)$", (DOCS / "python.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) > 20 and "runs.load_run" in names
    for name in names:
        holder, _, last = name.rpartition(".")
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError:
            found = getattr(importlib.import_module(holder), last)
        assert inspect.getdoc(found), name


# --------------------------------------------------------------------------------------------------------------- the hooks
def test_links_of_the_repository_become_those_of_the_site(hooks):
    text = '[a](../README.md#x) [b](../experiments/Rho_Sweep.sh) `[c](../README.md)`\n\n```\n[d](../README.md)\n```\n[e](https://x.y/z) [f](#g) <img src="../pictures/p.png">'
    turned = hooks.relinked(text, "docs/tutorials/t.md".replace("tutorials/", ""))
    assert "[a](readme.md#x) [b](files/experiments/Rho_Sweep.sh)" in turned and "```\n[d](../README.md)\n```" in turned
    assert "[e](https://x.y/z) [f](#g)" in turned
    deeper = hooks.relinked('[a](../../README.md) [b](../data.md) <img src="../pictures/p.png">', "docs/tutorials/t.md")
    assert deeper == '[a](../readme.md) [b](../data.md) <img src="../pictures/p.png">'
    assert hooks.relinked('[a](docs/data.md#b) <img src="docs/pictures/p.png">', "README.md") == '[a](data.md#b) <img src="pictures/p.png">'


def test_lists_are_lists_for_both_readers(hooks):
    assert hooks.lists("**Not equal**\n- a\n- b\n  more\n") == "**Not equal**\n\n- a\n- b\n  more\n"
    assert hooks.indented("1. a\n\n   ```python\n   x\n   ```\n\ntext\n   y") == "1. a\n\n    ```python\n    x\n    ```\n\ntext\n   y"
    assert hooks.unreferenced("`a[b][c]` d[e][f]") == r"`a[b][c]` d[e]\[f]"


# --------------------------------------------------------------------------------------------------------------- the build
class Page(HTMLParser):
    """What a page links to, what it loads, and the places that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.places = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        self.places |= {of[name] for name in ("id", "name") if of.get(name)}
        if tag == "a" and of.get("href"):
            self.links.append(html.unescape(of["href"]))
        if tag in ("img", "script", "link", "iframe") and (of.get("src") or (of.get("href") and of.get("rel") != "canonical")):
            self.loads.append(of.get("src") or of["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built once: folder, what was said."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


def test_the_build_gives_no_warning(site):
    folder, said = site
    assert not re.search("warning|error", re.sub("NO_MKDOCS_2_WARNING=1", "", said), re.IGNORECASE), said
    assert (folder / "index.html").is_file() and not [path for path in folder.glob("*.py")]


def test_no_link_of_the_site_leads_nowhere(site):
    folder, _ = site
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 30
    checked = 0
    for path, page in pages.items():
        for link in page.links + page.loads:
            if re.match(r"(https?|mailto|data|javascript):", link):
                continue
            target, _, anchor = link.partition("#")
            there = (path.parent / unquote(target)).resolve() if target else path
            there = there / "index.html" if there.is_dir() else there
            assert there.is_file(), f"{path.name}: {link}"
            assert not anchor or there not in pages or anchor in pages[there].places, f"{path.name}: {link}"
            checked += 1
        assert not [load for load in page.loads if load.startswith(("http", "//"))], path
    assert checked > 2000


def test_the_site_holds_methods_signatures_and_changes(site):
    folder, _ = site
    losses = Page((folder / "methods" / "losses.html").read_text(encoding="utf-8"))
    assert set(criteria.REGISTRY.names()) <= losses.places
    listed = Page((folder / "methods.html").read_text(encoding="utf-8"))
    assert {f"methods/losses.html#{name}" for name in criteria.REGISTRY.names()} <= set(listed.links)
    assert "runs.load_run" in Page((folder / "python.html").read_text(encoding="utf-8")).places
    assert "Unreleased" in (folder / "changelog.html").read_text(encoding="utf-8")
