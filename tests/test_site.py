"""The documentation site: every page has its place, every method its section, the build gives no warning and no link
leads nowhere.
"""

import importlib
import inspect
import json
import pkgutil
import re
import shutil
import subprocess
import types
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import criteria
import parameters
from benchmarks._method_settings import METHODS
from tests.kit.runs import program

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
    generated = {f"{name}.md" for name in ("readme", "contributing", "changelog", "experiments")}
    generated |= {f"methods/{kind}.md" for kind in reference.KINDS}
    listed = list(hooks._pages(CONFIG["nav"]))
    assert set(listed) <= pages | generated and len(listed) == len(set(listed))
    first = [entry for entry in CONFIG["nav"] if "Installation" not in entry]
    *_, last_entry = hooks.on_config({"nav": first})["nav"]
    assert CONFIG["strict"] is True and set(CONFIG["validation"]["links"].values()) == {"warn"}
    # built outside the repository
    assert f"{CONFIG['site_dir'].split('/')[0]}/" in (ROOT / ".gitignore").read_text().split()
    assert set(last_entry["More"]) == pages - set(listed) | {"installation.md"}, "a page that is not named yet"


def test_a_linked_page_outside_docs_is_a_page_of_the_site(hooks):
    pages = [*(f"docs/{page.relative_to(DOCS)}" for page in DOCS.rglob("*.md")), *hooks.OUTSIDE]
    linked = {target for page in pages for target in hooks._targets((ROOT / page).read_text(), page)}
    outside = {target for target in linked if target.endswith(".md") and not target.startswith("docs/")}
    assert outside <= set(hooks.OUTSIDE)


def test_a_block_of_code_shows_the_name_of_its_file(hooks):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="tutorials/page.md"))
    markdown = "Text\n\n```python criteria/mine.py\nx = 1\n```\n\n```sh\nls\n```\n"
    converted = hooks.on_page_markdown(markdown, page, None, None)
    assert '```python title="criteria/mine.py"\nx = 1\n```' in converted and "```sh\nls\n```" in converted


# ---------- methods, Python
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
            expected = [f"```text\n{formula}\n```"]
            group = groups.get(f"{reference._registry(kind).kind} {name}")
            if group:
                expected += [f"| `{action.option_strings[0]}`" for action in group._group_actions]
            numbers = re.findall(r"arXiv (\d{4}\.\d{4,5})", inspect.getdoc(module))
            expected += [f"(https://arxiv.org/abs/{number})" for number in numbers]
            lacking += [(name, text) for text in expected if text not in section]
            if caption not in section.replace("[", "").replace("]", "") and not plain.strip().startswith(caption):
                lacking.append((name, caption))
    assert not lacking


def test_every_method_has_its_results(reference, sections):
    """`python benchmarks/methods.py --only NAME`, `--miners`, `--samplers`, `--trainers` make them."""
    assert sorted(row[0].strip("`") for row in reference.of_losses()) == criteria.REGISTRY.names()
    rows = {row[0].strip("`"): row for row in reference.results() if len(row) == 5 and row[1].startswith("`")}
    with_results = set()
    for name, section in sections["losses"].items():
        if name in rows and f"e_recall@1 **{rows[name][2]}**" in section:
            with_results.add(name)
        else:
            assert "not run yet" in section, name
            assert (f"benchmarks/methods.py --only {name}`" in section) == (name in METHODS), name
    assert len(with_results) >= 27 and {"margin", "triplet", "supcon"} <= with_results
    for name, section in [*sections["miners"].items(), *sections["samplers"].items()]:
        assert re.search(r"\| \d\d\.\d\d(?: ± \d\.\d\d)? \|", section), name
    of_trainers = [row for row in reference.results() if "--trainer " in row[0] or "--memory_size" in row[0]]
    lines = ["| " + " | ".join(row) + " |" for row in of_trainers]
    text = reference.text("trainers")
    assert len(lines) >= 6 and all(line in text for line in lines)
    # a compatible network is measured on the index of an old one: python -m evaluation upgrade; pairs need grades
    for name in sections["trainers"].keys() - {"metric_only", "compatible", "pairs"}:
        assert any(f"--trainer {name}" in line for line in lines), name


def test_the_python_page_names_what_there_is():
    names = re.findall(r"^::: ([\w.]+)$", (DOCS / "python.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) > 20 and "runs.load_run" in names
    assert not [name for name in names if not inspect.getdoc(pkgutil.resolve_name(name))]


# ---------- formulas
PAGE_OF_FORMULAS = (DOCS / "formulas.md").read_text(encoding="utf-8")


def test_a_formula_is_of_a_method_names_its_flags_and_is_in_its_section(reference, sections):
    names = re.findall(r"^### `(\w+)`$", PAGE_OF_FORMULAS, re.MULTILINE)
    assert len(names) == len(set(names)) > 40
    flags = parameters.get_parser()._option_string_actions
    for name in names:
        formula = reference.typeset(name)
        (kind,) = [kind for kind in reference.WITH_FORMULAS if name in sections[kind]]
        assert formula.startswith("```math\n") and formula in sections[kind][name], name
        of_method = re.findall(r"--loss_\w+", formula)
        assert all(flag in flags and flag.startswith(f"--loss_{name}_") for flag in of_method), name
    assert reference.typeset("pml") == "" and "```math" not in sections["losses"]["pml"]


def test_katex_renders_every_formula():
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    blocks = re.findall(r"^```math\n(.*?)^```$", PAGE_OF_FORMULAS, re.MULTILINE | re.DOTALL)
    in_lines = re.findall(r"\$([^$\n]+)\$", re.sub(r"```.*?```|`[^`\n]*`", "", PAGE_OF_FORMULAS, flags=re.DOTALL))
    program = (
        "const katex = require(process.argv[1]);"
        "for (const formula of JSON.parse(process.argv[2])) katex.renderToString(formula, {strict: 'error'})"
    )
    katex = DOCS / "vendor" / "katex" / "katex.min.js"
    done = subprocess.run(
        ["node", "-e", program, katex, json.dumps(blocks + in_lines)], capture_output=True, text=True, check=False
    )
    assert len(blocks) > 40 and len(in_lines) > 100 and done.returncode == 0, done.stderr


# ---------- the hooks
def test_links_of_the_repository_become_those_of_the_site(hooks):
    link = "[a](../README.md#x) [b](../experiments/Rho_Sweep.sh)"
    tail = "\n\n```\n[d](../README.md)\n```\n[e](https://x.y/z) [f](#g)"
    assert hooks.relinked(link + tail, "docs/t.md") == "[a](readme.md#x) [b](files/experiments/Rho_Sweep.sh)" + tail
    picture = '<img src="../pictures/p.png">'
    assert hooks.relinked(f"[a](../../README.md) {picture}", "docs/tutorials/t.md") == f"[a](../readme.md) {picture}"
    of_readme = '[a](docs/data.md#b) <img src="docs/pictures/p.png">'
    assert hooks.relinked(of_readme, "README.md") == of_readme.replace("docs/", "")


def test_lists_are_lists_for_both_readers_and_docstrings_are_shown_as_they_are(hooks, reference):
    assert hooks.lists("**Not equal**\n- a\n- b\n  more\n") == "**Not equal**\n\n- a\n- b\n  more\n"
    listed = "1. a\n\n   ```python\n   x\n   ```\n\n"
    assert hooks.indented(f"{listed}text\n   y") == listed.replace("   ", "    ") + "text\n   y"
    assert hooks.unreferenced("`a[b][c]` d[e][f]") == r"`a[b][c]` d[e]\[f]"
    escaped = r"sum\_p \*x\* \[d - m\]+ &lt;a> `b_c` \|x\|\^2, [arXiv 2002.08473](https://arxiv.org/abs/2002.08473)."
    assert reference.plain("sum_p *x* [d - m]+ <a> `b_c` |x|^2, arXiv 2002.08473.") == escaped


def test_a_flag_stays_in_one_line(hooks):
    code = '<a href="#a--b">not--this</a><pre><code>main.py --lr</code></pre>'
    html = f"<td><code>{{}} 0.1 {{}} 2</code></td>{code} ({{}})"
    flags = ("--lr", "--n_epochs", "--bs")
    expected = html.format(*(f'<span class="flag">{name}</span>' for name in flags))
    assert hooks.on_page_content(html.format(*flags), None, None, None) == expected


def test_no_page_loses_a_placeholder_to_html():
    """`<name>` outside code is a tag to Markdown, and shows nothing."""
    tags = {"a", "b", "br", "details", "img", "p", "sub", "summary", "sup", "u"}
    lost = {}
    for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "experiments" / "README.md"]:
        code = re.compile(r"<!--.*?-->|^ *```.*?^ *```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
        text = code.sub("", path.read_text(encoding="utf-8"))
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
    file = types.SimpleNamespace(src_uri="python.md")
    site = hooks.on_page_markdown(page, types.SimpleNamespace(file=file), None, None)
    assert re.findall(r"^::: ([\w.]+)$", site, re.MULTILINE) == names and "### `" not in site and "<!--" not in site


def test_the_first_page_says_what_a_reader_can_do():
    first = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert "make docs" not in first and "build" not in first
    assert len(re.findall(r"\]\([\w/]+\.md\)", first)) >= 10


def test_a_report_begins_with_its_summary():
    (reports,) = [entry["Reports"] for entry in CONFIG["nav"] if "Reports" in entry]
    studies = [page for entry in reports for page in entry.values() if page not in ("ledger.md", "published/README.md")]
    assert len(studies) >= 8
    for page in studies:
        _, heading, text = (DOCS / page).read_text(encoding="utf-8").split("\n## ", 2)[1].partition("Summary\n")
        points = re.findall(r"^- \*\*(\w+)\.\*\* (.*?)(?=\n- \*\*|\n\n|\Z)", text.strip(), re.MULTILINE | re.DOTALL)
        assert heading and [title for title, _ in points] == ["Question", "Result", "Limits", "Command"], page
        assert min(len(point.split()) for _, point in points[:3]) >= 20, page
        assert "`" in points[3][1], page


# ---------- the build
KATEX = [str(path.relative_to(DOCS)) for path in (DOCS / "vendor" / "katex").rglob("*.*")]


@pytest.mark.long
def test_the_strict_build_gives_no_warning(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    done = program("-m", "mkdocs", "build", "--strict --site-dir", tmp_path, NO_MKDOCS_2_WARNING="1")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert not re.search("warning|error", output.replace("NO_MKDOCS_2_WARNING=1", ""), re.IGNORECASE), output
    assert not list(tmp_path.glob("*.py"))
    files = tmp_path.rglob("*.html")
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in files}
    address = r'="(?:https?:)?//[^"]*"'
    loading = rf"<(?:img|script|iframe)[^>]* src{address}|<link(?![^>]*canonical)[^>]* href{address}"
    for name, text in pages.items():
        assert not re.findall(loading, text), f"{name} loads from elsewhere"
    for name in ("search/search_index.js", "vendor/iframe-worker/shim.js", *KATEX):
        assert (tmp_path / name).is_file(), name
    assert 'src="vendor/iframe-worker/shim.js"' in pages["index.html"], "the search where pages are opened as files"
    for name in ("formulas.html", "methods/losses.html", "methods/metrics.html"):
        assert '<div class="arithmatex">' in pages[name] and "vendor/katex/katex.min.js" in pages[name]
    for name in criteria.REGISTRY.names():
        assert f'id="{name}"' in pages["methods/losses.html"], name
        assert f'href="methods/losses.html#{name}"' in pages["methods.html"], name
    assert 'id="runs.load_run"' in pages["python.html"] and "Unreleased" in pages["changelog.html"]
