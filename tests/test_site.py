"""The documentation site: every page has its place, every method its section, the build gives no warning and no link
leads nowhere.
"""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

import criteria
import parameters
from benchmarks._method_settings import METHODS

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
    generated = {
        "readme.md",
        "contributing.md",
        "changelog.md",
        "experiments.md",
        *(f"methods/{kind}.md" for kind in reference.KINDS),
    }
    listed = list(hooks._pages(CONFIG["nav"]))
    assert set(listed) <= pages | generated and len(listed) == len(set(listed))
    first = [entry for entry in CONFIG["nav"] if "Installation" not in entry]
    *_, further = hooks.on_config({"nav": first})["nav"]
    assert CONFIG["strict"] is True and set(CONFIG["validation"]["links"].values()) == {"warn"}
    assert f"{CONFIG['site_dir'].split('/')[0]}/" in (ROOT / ".gitignore").read_text().split(), (
        "built outside the repository"
    )
    assert set(further["More"]) == pages - set(listed) | {"installation.md"}, "a page that is not named yet"


def test_a_linked_page_outside_docs_is_a_page_of_the_site(hooks):
    pages = [*(f"docs/{page.relative_to(DOCS)}" for page in DOCS.rglob("*.md")), *hooks.OUTSIDE]
    linked = {
        target for page in pages for target in hooks._targets((ROOT / page).read_text(), page) if target.endswith(".md")
    }
    assert {target for target in linked if not target.startswith("docs/")} <= set(hooks.OUTSIDE)


# --------------------------------------------------------------------------------------------------------- methods,
# Python
@pytest.fixture(scope="module")
def sections(reference):
    """Kind -> method -> its section of the kind's page."""
    section = re.compile(r"^## `(\w+)` .*\n([\s\S]*?)(?=^## |\Z)", re.MULTILINE)
    return {kind: dict(section.findall(reference.text(kind))) for kind in reference.KINDS}


def test_every_method_has_a_section_with_caption_formula_and_flags(reference, sections):
    groups = {group.title: group for group in parameters.get_parser()._action_groups}
    lacking = []
    for kind, of_kind in sections.items():
        assert list(of_kind) == reference.names(kind)
        for name, section in of_kind.items():
            module = importlib.import_module(f"{reference._registry(kind).package}.{name}")
            caption = " ".join(inspect.getdoc(module).partition("\n\n")[0].split()).rstrip(".")
            plain = re.sub(r"\[(arXiv [\d.]+)\]\([^)]*\)", r"\1", section)
            formula = inspect.getdoc(getattr(module, reference.CLASSES[kind])).partition("\n\n")[0]
            group = groups.get(f"{reference._registry(kind).kind} {name}")
            expected = [
                f"```text\n{formula}\n```",
                *(f"| `{action.option_strings[0]}`" for action in (group._group_actions if group else ())),
            ]
            expected += [
                f"(https://arxiv.org/abs/{number})"
                for number in re.findall(r"arXiv (\d{4}\.\d{4,5})", inspect.getdoc(module))
            ]
            lacking += [(name, text) for text in expected if text not in section]
            if caption not in section.replace("[", "").replace("]", "") and not plain.strip().startswith(caption):
                lacking.append((name, caption))
    assert not lacking


def test_every_method_has_its_results(reference, sections):
    """`python benchmarks/methods.py --only NAME`, `--miners`, `--samplers`, `--trainers` make them, for
    docs/methods_on_glyphs.md.
    """
    assert sorted(row[0].strip("`") for row in reference.of_losses()) == criteria.REGISTRY.names()
    rows = {row[0].strip("`"): row for row in reference.results() if len(row) == 5 and row[1].startswith("`")}
    with_results = [
        name
        for name, section in sections["losses"].items()
        if f"e_recall@1 **{rows.get(name, [''] * 5)[2]}**" in section
    ]
    assert len(with_results) >= 27 and {"margin", "triplet", "supcon"} <= set(with_results)
    for name in set(sections["losses"]) - set(with_results):
        section = sections["losses"][name]
        assert "not run yet" in section and (f"benchmarks/methods.py --only {name}`" in section) == (name in METHODS), (
            name
        )
    result = re.compile(r"\| \d\d\.\d\d(?: ± \d\.\d\d)? \|")
    assert not [
        name
        for kind in ("miners", "samplers")
        for name, section in sections[kind].items()
        if not result.search(section)
    ]
    rows = [
        "| " + " | ".join(row) + " |"
        for row in reference.results()
        if "--trainer " in row[0] or "--memory_size" in row[0]
    ]
    text = reference.text("trainers")
    assert len(rows) >= 6 and all(row in text for row in rows)
    assert not [
        name
        for name in sections["trainers"]
        if name != "metric_only" and not any(f"--trainer {name}" in row for row in rows)
    ]


def test_the_python_page_names_what_there_is():
    names = re.findall(r"^::: ([\w.]+)$", (DOCS / "python.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) > 20 and "runs.load_run" in names
    assert not [name for name in names if not inspect.getdoc(pkgutil.resolve_name(name))]


# --------------------------------------------------------------------------------------------------------------- the
# hooks
def test_links_of_the_repository_become_those_of_the_site(hooks):
    text = (
        "[a](../README.md#x) [b](../experiments/Rho_Sweep.sh)\n\n```\n[d](../README.md)\n```\n[e](https://x.y/z) "
        "[f](#g)"
    )
    turned = text.replace("[a](../README.md#x) [b](../experiments", "[a](readme.md#x) [b](files/experiments")
    for page, before, after in (
        ("docs/t.md", text, turned),
        (
            "docs/tutorials/t.md",
            '[a](../../README.md) <img src="../pictures/p.png">',
            '[a](../readme.md) <img src="../pictures/p.png">',
        ),
        (
            "README.md",
            '[a](docs/data.md#b) <img src="docs/pictures/p.png">',
            '[a](data.md#b) <img src="pictures/p.png">',
        ),
    ):
        assert hooks.relinked(before, page) == after


def test_lists_are_lists_for_both_readers_and_docstrings_are_shown_as_they_are(hooks, reference):
    assert hooks.lists("**Not equal**\n- a\n- b\n  more\n") == "**Not equal**\n\n- a\n- b\n  more\n"
    assert (
        hooks.indented("1. a\n\n   ```python\n   x\n   ```\n\ntext\n   y")
        == "1. a\n\n    ```python\n    x\n    ```\n\ntext\n   y"
    )
    assert hooks.unreferenced("`a[b][c]` d[e][f]") == r"`a[b][c]` d[e]\[f]"
    escaped = reference.plain("sum_p *x* [d - m]+ <a> `b_c` |x|^2, arXiv 2002.08473.")
    assert (
        escaped
        == r"sum\_p \*x\* \[d - m\]+ &lt;a> `b_c` \|x\|\^2, [arXiv 2002.08473](https://arxiv.org/abs/2002.08473)."
    )


def test_a_flag_stays_in_one_line(hooks):
    html = (
        '<td><code>--lr 0.1 --n_epochs 2</code></td><a href="#a--b">not--this</a><pre><code>main.py --lr</code></pre> '
        "(--bs)"
    )
    flags = [html.index(word) for word in ("--lr 0.1", "--n_epochs", "--bs")]
    expected = html
    for place in reversed(flags):
        name = re.match(r"--\w+", html[place:])[0]
        expected = f'{expected[:place]}<span class="flag">{name}</span>{expected[place + len(name) :]}'
    assert hooks.on_page_content(html, None, None, None) == expected


def test_no_page_loses_a_placeholder_to_html():
    """`<name>` outside code is a tag to Markdown, and shows nothing."""
    tags = {"a", "b", "br", "details", "img", "p", "sub", "summary", "sup", "u"}
    lost = {}
    for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "experiments" / "README.md"]:
        text = re.sub(
            r"<!--.*?-->|^ *```.*?^ *```$|`[^`\n]*`",
            "",
            path.read_text(encoding="utf-8"),
            flags=re.DOTALL | re.MULTILINE,
        )
        names = set(re.findall(r"</?([A-Za-z][\w-]*)[^<>\n]*>", text)) - tags
        lost |= {path.name: names} if names else {}
    assert not lost


def test_the_python_page_tells_a_reader_of_the_file_what_there_is(hooks):
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    visible = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    names = re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)
    for name in names:
        section = visible.partition(f"### `{name}`\n")[2].partition("\n### ")[0]
        documented = inspect.getdoc(pkgutil.resolve_name(name)).split()[0].strip("`*_")
        assert documented in section, name
    assert "load_run(folder" in visible and ":::" not in visible
    site = hooks.on_page_markdown(
        page, types.SimpleNamespace(file=types.SimpleNamespace(src_uri="python.md")), None, None
    )
    assert re.findall(r"^::: ([\w.]+)$", site, re.MULTILINE) == names and "### `" not in site and "<!--" not in site


def test_the_first_page_says_what_a_reader_can_do():
    first = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert "make docs" not in first and "build" not in first
    assert len(re.findall(r"\]\([\w/]+\.md\)", first)) >= 10


# --------------------------------------------------------------------------------------------------------------- the
# build
@pytest.mark.long
def test_the_strict_build_gives_no_warning(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0 and not re.search(
        "warning|error", output.replace("NO_MKDOCS_2_WARNING=1", ""), re.IGNORECASE
    ), output
    assert not list(tmp_path.glob("*.py"))
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    loading = (
        r'<(?:img|script|iframe)[^>]* src="((?:https?:)?//[^"]*)"|<link(?![^>]*canonical)[^>]* '
        r'href="((?:https?:)?//[^"]*)"'
    )
    assert not {name: addresses for name, text in pages.items() if (addresses := re.findall(loading, text))}, (
        "pages load nothing from elsewhere"
    )
    lacking = [name for name in criteria.REGISTRY.names() if f'id="{name}"' not in pages["methods/losses.html"]]
    lacking += [
        name for name in criteria.REGISTRY.names() if f'href="methods/losses.html#{name}"' not in pages["methods.html"]
    ]
    assert not lacking and 'id="runs.load_run"' in pages["python.html"] and "Unreleased" in pages["changelog.html"]
