"""requirements.txt, requirements/, pyproject.toml, the Makefile and docs/installation.md say the same."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.test_imports import imported, sources
from utilities import provenance

ROOT = Path(__file__).resolve().parent.parent
FURTHER = sorted(path.name for path in (ROOT / "requirements").glob("*.txt") if path.stem != "constraints")
FILES = ["requirements.txt", *(f"requirements/{name}" for name in FURTHER)]
MAY_IMPORT = re.compile(r"^\s*(?:from|import) +(\w+)|(?:import_module|__import__)\(\s*f?[\"'](\w+)", re.MULTILINE)
# no test has it, or in an environment of its own, so there is no version that passed with the others
NOT_TRIED = {"comet-ml", "boxmot", "ultralytics", "reid"}
INSTALLATION = (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def lines(name):
    return [line for line in text(name).splitlines() if line and not line.startswith(("#", "-"))]


def packages(*names):
    return [Requirement(line) for name in names for line in lines(name)]


PINS = {canonical(pin.name): next(iter(pin.specifier)).version for pin in packages("requirements/constraints.txt")}
LISTED = {canonical(package.name): package for package in packages(*FILES)}


def test_a_package_has_one_exact_pin_and_one_lower_bound_that_it_meets():
    pins = lines("requirements/constraints.txt")
    assert len(PINS) == len(pins) > 100 and all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)
    assert all(map(packages, FILES))
    for package in packages(*FILES):
        name = canonical(package.name)
        assert package.specifier == LISTED[name].specifier, package
        assert any(bound.operator == ">=" for bound in package.specifier), package
        assert name in NOT_TRIED or package.specifier.contains(PINS[name]), package


def test_the_list_without_gpu_libraries_is_the_other_one_but_for_faiss():
    of_gpu = lines("requirements.txt")
    of_cpu = lines("requirements/cpu.txt")
    assert [line for line in of_gpu if not line.startswith("faiss")] == [
        line for line in of_cpu if not line.startswith("faiss")
    ]
    (faiss,) = [line for line in of_gpu if line.startswith("faiss-cpu")]
    assert [line for line in of_cpu if line.startswith("faiss")] == [faiss.partition(";")[0].strip()]
    assert not [line for line in of_cpu if line.startswith(("triton", "nvidia", "faiss-gpu"))]


def test_installation_md_names_every_file_and_package():
    # uv sync would empty .venv otherwise
    assert tomllib.loads(text("pyproject.toml"))["tool"]["uv"] == {"managed": False}
    names = [*FILES, "requirements/constraints.txt", *(package.name for package in packages(*FILES))]
    assert not [name for name in names if name not in INSTALLATION]


def test_what_is_imported_is_in_a_file():
    """By its own name, or as what a listed package needs itself.

    These are SQLAlchemy for optuna's databases, packaging for pytest's marks, and fontTools, with which matplotlib
    embeds its fonts.
    """
    bringing = ("optuna", "pytest", "matplotlib")
    needed = [line for name in bringing for line in metadata.requires(name) if "extra" not in line]
    brought = {canonical(Requirement(line).name) for line in needed}
    # importlib's own function takes a second, this one keeps its answer
    distributions = provenance._distributions()
    project = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in sources()}
    project |= {path.stem for path in (ROOT / "docs").glob("*.py")}
    # name -> the files whose text may import it: parsing all of them takes seconds
    users = {}
    # an adapter names its program's distribution, which its own environment has
    files = [path for path in sources() if path.parent != ROOT / "referee/adapters"]
    for path in files:
        for name in MAY_IMPORT.findall(path.read_text(encoding="utf-8")):
            users.setdefault("".join(name), []).append(path)
    foreign = users.keys() - project - set(sys.stdlib_module_names) - {"torchcodec"}
    assert {"torch", "faiss", "sklearn", "yaml", "PIL", "pytest"} <= foreign
    allowed = {*LISTED} | brought
    for name in foreign:
        if not allowed.intersection(map(canonical, distributions.get(name, [name]))):
            assert not [path for path in users[name] if name in imported(path)], name


# ---------- make
def said_by_make(*words):
    """What make would do for targets in a fresh clone."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    done = subprocess.run(["make", "--dry-run", "--always-make", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("torch", "size"), [("gpu", "4.1 GB"), ("cpu", "0.4 GB")])
def test_the_demo_says_the_sizes_before_it_downloads_and_installs_by_choice(torch, size):
    output = said_by_make("demo", f"TORCH={torch}", "TORCH_INDEX=https://mirror.example/cpu")
    text = "\n".join(output)
    places = [text.index(word) for word in (f"downloads {size}", "pip install", "main.py --config demo_glyphs")]
    assert places == sorted(places)
    (install,) = [line for line in output if "pip install" in line]
    if torch == "gpu":
        files = "-r requirements.txt -r requirements/dev.txt"
        assert "index" not in install
    else:
        files = "-r requirements/cpu.txt -r requirements/dev.txt --extra-index-url https://mirror.example/cpu"
        assert "requirements.txt" not in install, "which asks for faiss-gpu"
    assert f"{files} -c requirements/constraints.txt" in install
    words = "make --always-make environment TORCH=tpu PYTHON=false".split()
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "TORCH=tpu: gpu or cpu" in done.stderr
