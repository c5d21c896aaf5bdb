"""README, CONTRIBUTING, CHANGELOG and docs/: links and anchors lead somewhere, every page is in the index, quoted
commands parse.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml

import appraise.__main__
import evaluation.__main__
import Result_Evaluations
import retrieval.__main__
import tools
from datasets import _mot_table
from launch import __main__ as launcher
from search import __main__ as searcher
from tests.kit.runs import read
from tools import measure, models, oodml, overlap, pseudo_labels

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.rglob("*.md"))
# test_migration.py and test_tutorials.py run their commands
RUN_ELSEWHERE = {DOCS / "migration.md", *(DOCS / "tutorials").glob("*.md")}
FENCE = re.compile(r"^ *```(\w*).*\n([\s\S]*?)^ *```", re.MULTILINE)
RUN_FOLDER = re.compile(r"(?<= )(FOLDER|RUN|<run>)(?=[/ ]|$)")
NEW_PLUG_IN = {
    "--loss mine": "--loss triplet",
    "--batch_mining mine": "--batch_mining random",
    "--data_sampler mine": "--data_sampler shuffle",
    "--trainer mine": "--trainer metric_only",
    "--dataset mine": "--dataset glyphs",
    "--arch mine_normalize": "--arch conv4_normalize",
    "e_recall@1 first_rank": "e_recall@1 mrr",
}


def named(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def targets(page):
    """What the page links to or shows, web addresses aside."""
    text = prose(page)
    addresses = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    return [target for target in addresses if not re.match(r"\w+:", target)]


def test_links_lead_somewhere_every_page_is_in_the_index_and_every_picture_is_shown():
    wrong = []
    linked = {}
    for page in PAGES:
        for target in targets(page):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            linked.setdefault(page, set()).add(file)
            if not (file.exists() and ROOT in file.parents and (not anchor or anchor in anchors(file))):
                wrong.append(f"{named(page)}: {target}")
    index = DOCS / "index.md"
    wrong += [named(page) for page in DOCS.rglob("*.md") if page not in linked[index] | {index}]
    assert not wrong + [
        named(picture) for picture in DOCS.rglob("*.png") if picture not in set().union(*linked.values())
    ]
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


# ---------- commands
def commands(page):
    """The command lines of a page that begin with `python`, from its blocks and from its sentences."""
    text = page.read_text(encoding="utf-8")
    scripts = [block.replace("\\\n", " ") for kind, block in FENCE.findall(text) if kind != "python"]
    lines = [line for script in scripts for line in script.splitlines()]
    lines += re.findall(r"`([^`]+)`", FENCE.sub("", text))
    for line in lines:
        words = [word for word in line.split() if not re.fullmatch(r"[A-Z_]+=\w+", word)]
        if words[:1] == ["python"] and not line.rstrip().endswith("…"):
            yield " ".join(words)


COMMANDS = sorted({(named(page), command) for page in PAGES if page not in RUN_ELSEWHERE for command in commands(page)})


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run's folder, as far as reading the flags of another command asks for it."""
    folder = tmp_path_factory.mktemp("run") / "glyphs" / "Demo_s1"
    folder.mkdir(parents=True)
    flags = read("--config demo_glyphs --group Demo").saved()
    (folder / "parameters.yaml").write_text(yaml.safe_dump(flags), encoding="utf-8")
    return folder


PROGRAMS = {
    "evaluation": measure,
    "evaluation.overlap": overlap,
    "evaluation.oodml": oodml,
    "evaluation.pseudo_labels": pseudo_labels,
    "retrieval": retrieval.__main__,
    "appraise": appraise.__main__,
    "datasets.mot": _mot_table,
}


def wrong_in(command, run_folder, tmp_path):
    """Parse a quoted command by its program's own parser. Returns what is wrong with it, None if nothing is."""
    text = RUN_FOLDER.sub(str(run_folder), command).replace("$datapath", "Datasets")
    for example, plug_in in NEW_PLUG_IN.items():
        text = text.replace(example, plug_in)
    program, *words = shlex.split(text, comments=True)[1:]
    if program == "-c":
        compile(words[0], command, "exec")
        return None
    if program == "-m":
        return wrong_in_module(*words[:1], words[1:], tmp_path)
    return wrong_in_file(program, words)


def wrong_in_module(program, words, tmp_path):
    """As `wrong_in`, of `python -m program words`."""
    # the package has the modules of the clone
    program = program.removeprefix("dmlkit.")
    # without words, or with an ellipsis, it is the program's name in a sentence
    if not words or "…" in words:
        file = ROOT / program.replace(".", "/")
        exists = (file / "__main__.py").is_file() or file.with_name(f"{file.name}.py").is_file()
        return None if exists else "no such program"
    if program == "search":
        return None if searcher.plan(words) else "no plan"
    if program == "launch":
        return None if (ROOT / launcher.read_options(words).script).is_file() else "no such script"
    if program == "evaluation" and words[0] in tools.COMMANDS:
        parse_tool(*words)
    elif program in PROGRAMS:
        PROGRAMS[program].parser().parse_args(words)
    else:
        return wrong_in_file(f"{program.replace('.', '/')}.py", words)
    return None


def parse_tool(name, *flags):
    """Parse `python -m evaluation name flags`; without flags it is a name in a sentence."""
    if not flags:
        return
    if name == "models":
        models.read(list(flags))
    else:
        evaluation.__main__.program(name).parser().parse_args(flags)


def wrong_in_file(program, words):
    """As `wrong_in`, of `python program words`."""
    if not (ROOT / program).is_file():
        return "no such file"
    if "--help" in words:
        return None
    if program == "main.py":
        read(*words)
    elif program == "Result_Evaluations.py":
        Result_Evaluations.read(words)
    else:
        # generators, benchmarks, toy experiments: their flags, as they are declared
        source = (ROOT / program).read_text(encoding="utf-8")
        for word in words:
            if word.startswith("--") and f'"{word}"' not in source:
                return f"no flag {word}"
    return None


def test_quoted_commands_parse(run_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert len(COMMANDS) >= 40
    assert {"README.md", "CONTRIBUTING.md", "docs/evaluation.md", "docs/speed.md"} <= {page for page, _ in COMMANDS}
    wrong = {}
    for page, command in COMMANDS:
        try:
            fault = wrong_in(command, run_folder, tmp_path)
        except (SystemExit, Exception) as error:
            fault = f"{error} {capsys.readouterr().err}"
        wrong |= {f"{page}: {command}": fault} if fault else {}
    assert not wrong
