"""The floors of the house (docs/architecture.md): an import points down, never up."""

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLUG_INS = ["criteria", "batch_mining", "datasampler", "architectures", "datasets", "metrics", "trainers"]
# from the ground up: each uses itself and those below it
FLOORS = [
    ["utilities", "options.flags"],
    PLUG_INS,
    ["engine"],
    ["runs"],
    ["pictures"],
    ["evaluation", "options"],
    ["parameters"],
    ["main"],
    ["results", "search", "retrieval"],
    ["launch", "tools"],
    ["appraise"],
    ["Result_Evaluations", "dmlkit"],
    ["experiments"],
]
# what they use of their own floor
NEIGHBOURS = {"utilities": {"options.flags"}, "options.flags": {"utilities"}}
NEIGHBOURS |= {"criteria": {"batch_mining"}, "trainers": {"criteria", "batch_mining"}}
ALLOWED = {
    name: {name, *(below for lower in FLOORS[:floor] for below in lower), *NEIGHBOURS.get(name, ())}
    for floor, names in enumerate(FLOORS)
    for name in names
}
HOUSE = {*ALLOWED, "toy_experiments", "benchmarks", "referee", "tests"}
# The registry imports the plug-ins of the folder that it is given; `from utilities import load_run` is an old name that
# users know; `python -m evaluation …` are the commands of tools/.
EXCEPTIONS = {"utilities/registry.py": {"*"}, "utilities/__init__.py": {"runs"}}
EXCEPTIONS |= {"evaluation/__main__.py": {"*", "tools"}, "dmlkit/__init__.py": {"*"}}


def sources() -> list[Path]:
    """The Python files that git knows."""
    done = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in map(ROOT.joinpath, done.stdout.split()) if path.exists()]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room(module: str) -> str:
    """The top-level name of a module; `options.flags` is a room of its own."""
    if module.startswith("options.flags"):
        return "options.flags"
    return module.partition(".")[0]


def statements(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Top-level names of all that a file imports, in functions and by importlib too; `*`: a name that is computed."""
    names = set()
    text = path.read_text(encoding="utf-8")
    has_calls = "import_module" in text or "__import__" in text
    walk = ast.walk if has_calls else statements
    for node in walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {room(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(room(node.module))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            start = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            name = room(start.value) if isinstance(start, ast.Constant) else "*"
            names.add(name)
    return frozenset(names)


def test_imports_point_down_only(tmp_path):
    upward = {}
    for folder in ALLOWED:
        files = [
            path for path in (ROOT / f"{folder}.py", *(ROOT / folder.replace(".", "/")).rglob("*.py")) if path.is_file()
        ]
        assert files, folder
        for path in files:
            name = path.relative_to(ROOT).as_posix()
            upward[name] = imported(path) & {*HOUSE, "*"} - ALLOWED[folder] - EXCEPTIONS.get(name, set())
    assert not {name: names for name, names in upward.items() if names}
    # a folder without a floor
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} <= {*ALLOWED, "toy_experiments", "referee"}
    path = tmp_path / "module.py"
    computed = tmp_path / "computed.py"
    calls = ('"criteria.margin"', 'f"metrics.{1}"')
    path.write_text("import importlib\n" + "".join(f"importlib.import_module({name})\n" for name in calls))
    assert imported(path) == {"importlib", "criteria", "metrics"}
    computed.write_text("import importlib\nimportlib.import_module(name)\n")
    assert "*" in imported(computed)


def test_one_room_draws():
    """`datasets/glyphs.py` reads matplotlib's typefaces, of which its images are made."""
    files = [path for path in sources() if path.relative_to(ROOT).parts[0] != "tests"]
    drawing = {path.relative_to(ROOT).as_posix() for path in files if "matplotlib" in imported(path)}
    assert "pictures/groups.py" in drawing
    assert {name for name in drawing if not name.startswith("pictures/")} == {"datasets/glyphs.py"}


def test_main_is_short():
    source = (ROOT / "main.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 150
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 40, node.name


def test_heavy_packages_are_imported_where_used():
    heavy = set(
        "torchvision pretrainedmodels timm safetensors faiss wandb sklearn pandas matplotlib tensorboard optuna scipy "
        "onnx onnxscript onnxruntime huggingface_hub".split()
    )
    for path in (path for folder in {*ALLOWED} - {"experiments"} for path in (ROOT / folder).rglob("*.py")):
        at_once = [node for node in parsed(path).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = [alias.name for node in at_once if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in at_once if isinstance(node, ast.ImportFrom)]
        assert not heavy & {name.partition(".")[0] for name in names}, path
