"""main -> parameters -> plug-in folders -> utilities; main -> evaluation -> metrics -> utilities. Nothing points back."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLUG_INS = ["criteria", "batch_mining", "datasampler", "architectures", "datasets", "metrics"]
ALLOWED = {
    **{folder: {folder, "utilities"} for folder in PLUG_INS},
    "utilities": {"utilities"},
    "evaluation": {"evaluation", "metrics", "utilities"},
    "results": {"results", "metrics", "utilities"},
    "search": {"search", "utilities"},
    "launch": {"launch", "utilities"},
}
HOUSE = {
    *PLUG_INS,
    "utilities",
    "evaluation",
    "results",
    "search",
    "launch",
    "main",
    "parameters",
    "checks",
    "composition",
    "toy_experiments",
    "benchmarks",
    "tests",
}


def imported(path: Path) -> set[str]:
    """Top-level names of everything a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_point_down_only(folder):
    files = list((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        assert imported(path) & HOUSE <= ALLOWED[folder], path


def test_main_is_short():
    source = (ROOT / "main.py").read_text(encoding="utf-8")
    main = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "main")
    assert len(source.splitlines()) <= 150
    assert main.end_lineno - main.lineno < 50


def test_heavy_packages_are_imported_where_used():
    heavy = {"torchvision", "pretrainedmodels", "faiss", "wandb", "sklearn", "pandas", "matplotlib", "tensorboard", "optuna", "scipy"}
    for folder in ALLOWED:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                    assert not heavy & {name.partition(".")[0] for name in names}, path
