"""Builds the package `dmlkit` from this clone: the PEP 517 backend that pyproject.toml names.

The program's folders lie at the root of the repository, under names that other libraries have too. They are copied
below `dmlkit/`, and their imports of each other are turned into imports of the package (utilities/imports.py). What
results is an ordinary project, which setuptools builds.
"""

import contextlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from setuptools import build_meta

ROOT = Path(__file__).resolve().parent.parent
# what the program reads beside its folders
DATA = (
    "Revisit_Runs.sh",
    "docs/migration.md",
    "docs/published/*.csv",
    "experiments/*.sh",
)
# line of pyproject.toml -> that of the package's project, which setuptools builds
BACKEND = {
    'build-backend = "backend"': 'build-backend = "setuptools.build_meta"',
    'backend-path = ["packing"]': "",
}
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def _imports():
    """utilities/imports.py, without the rest of utilities/."""
    spec = importlib.util.spec_from_file_location("imports", ROOT / "utilities" / "imports.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _stub(imports) -> str:
    """`dmlkit/__init__.pyi`: what type checkers see of a module that imports its names at their first use."""
    lines = [f"from {imports.PACKAGE} import {room} as {room}" for room in imports.ROOMS]
    for name, module in imports.PUBLIC.items():
        lines.append(f"from {imports.PACKAGE}.{module} import {name} as {name}")
    return "\n".join([*lines, "", "__version__: str", ""])


def stage(folder: Path) -> None:
    """Write the project of the package to `folder`: pyproject.toml, README, licence, `dmlkit/`."""
    imports = _imports()
    package = folder / imports.PACKAGE
    shutil.copytree(ROOT / imports.PACKAGE, package, ignore=LEFT_OUT)
    for name in imports.FOLDERS:
        shutil.copytree(ROOT / name, package / name, ignore=LEFT_OUT)
    for name in imports.FILES:
        shutil.copy(ROOT / f"{name}.py", package)
    for pattern in DATA:
        for file in ROOT.glob(pattern):
            target = package / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    for file in package.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        file.write_text(imports.in_package(source, str(file)), encoding="utf-8")
    (package / "__init__.pyi").write_text(_stub(imports), encoding="utf-8")
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line, replacement in BACKEND.items():
        if line not in text:
            raise ValueError(f"pyproject.toml has no line {line}")
        text = text.replace(line, replacement)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _staged():
    """Inside, the staged project is the current folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        stage(Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The wheel of the package; its file name."""
    target = str(Path(wheel_directory).resolve())
    with _staged():
        return build_meta.build_wheel(target, config_settings)


def build_sdist(sdist_directory, config_settings=None):
    """The source archive: the package as it is installed, which setuptools builds; its file name."""
    target = str(Path(sdist_directory).resolve())
    with _staged():
        return build_meta.build_sdist(target, config_settings)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """There is no editable install: a clone runs as it is."""
    raise SystemExit("pip install -e is not possible: a clone runs by python main.py; pip install . makes a package")


def get_requires_for_build_wheel(config_settings=None):
    """No further requirements than those of pyproject.toml."""
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
