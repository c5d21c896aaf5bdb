"""The package `dmlkit`: imports, commands, extras, plug-ins of users, and the wheel in an environment of its own."""

import ast
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import criteria
import dmlkit
import parameters
from retrieval import __main__ as retrieval_program
from tests.kit.refusals import refused
from tests.kit.runs import read, words_of
from tests.test_imports import parsed, statements
from utilities import extras, imports, plug_in_folders, programs, provenance

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULE_OF = {"pillow": "PIL", "pyyaml": "yaml", "scikit-learn": "sklearn", "faiss-cpu": "faiss"}
# Not in the package index of extras: their messages name them (utilities/pml.py, runs/records/online.py, …).
NAMED_WHERE_USED = {"pytorch_metric_learning", "comet_ml", "triton", "sqlalchemy", "torchcodec"}
LOSS = '''"""Mean distance of positives, and one minus that of negatives."""
import torch

import criteria
from options.flags import Flag
from utilities.criterion import MetricCriterion
from utilities.numbers import number

FLAGS = {"scale": Flag(number(least=0), 2.0, "factor of the positives")}


class Criterion(MetricCriterion):
    """All pairs."""

    def forward(self, batch, labels, **kwargs):
        assert criteria.__name__ in ("criteria", "dmlkit.criteria")
        distances = torch.cdist(batch, batch)
        same = labels[:, None] == labels[None]
        return self.scale * distances[same].mean() + (1 - distances[~same]).clamp(min=0).mean()
'''


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import criteria\n", "from dmlkit import criteria\n"),
        ("import criteria as c\n", "from dmlkit import criteria as c\n"),
        ("import metrics.neighbours\n", "import dmlkit.metrics.neighbours; from dmlkit import metrics\n"),
        ("import metrics.neighbours as n\n", "import dmlkit.metrics.neighbours as n\n"),
        ("import os, criteria\n", "import os; from dmlkit import criteria\n"),
        ("from criteria import triplet as t, margin\n", "from dmlkit.criteria import triplet as t, margin\n"),
        ("from options.flags import Flag  # why\n", "from dmlkit.options.flags import Flag  # why\n"),
        ("from datasets import (\n    a,\n    b,\n)\nx = 1\n", "from dmlkit.datasets import a, b\n\n\n\nx = 1\n"),
        ("if x: import main; y = 'é'\n", "if x: from dmlkit import main; y = 'é'\n"),
        ("'\u2028'\n\x0c\nimport main\n", "'\u2028'\n\x0c\nfrom dmlkit import main\n"),
        ("é = 1; import main\n", "é = 1; from dmlkit import main\n"),
        ("from . import criteria\nfrom .metrics import x\n", "from . import criteria\nfrom .metrics import x\n"),
        ("import torch\nfrom criteria_of_mine import x\n", "import torch\nfrom criteria_of_mine import x\n"),
        ("text = 'import criteria'\n", "text = 'import criteria'\n"),
    ],
)
def test_imports_of_the_program_become_those_of_the_package(source, expected):
    assert imports.in_package(source, "file.py") == expected


def test_a_file_that_is_no_python_is_named():
    with pytest.raises(SyntaxError) as raised:
        imports.in_package("def half(:\n", "/mine/criteria/half.py")
    assert raised.value.filename == "/mine/criteria/half.py"


def test_commands_in_messages(monkeypatch):
    text = (
        "main.py: error: type python main.py --resume, torchrun --nproc_per_node 2 main.py --bs 8, python -m search x, "
        "python -m evaluation f.npz, python -m evaluation.overlap, python Result_Evaluations.py, /home/me/main.py"
    )
    assert programs.as_typed(text) == text
    monkeypatch.setattr(programs, "IS_PACKAGE", True)
    assert programs.as_typed(text) == (
        "dmlkit: error: type dmlkit --resume, torchrun --nproc_per_node 2 -m dmlkit.main --bs 8, dmlkit-search x, "
        "dmlkit-evaluate f.npz, python -m dmlkit.evaluation.overlap, dmlkit-results, /home/me/main.py"
    )


@pytest.mark.long
def test_the_staged_package_imports_itself_alone(tmp_path):
    spec = importlib.util.spec_from_file_location("backend", ROOT / "packing" / "backend.py")
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    backend.stage(tmp_path)
    files = list((tmp_path / "dmlkit").rglob("*.py"))
    assert len(files) > 300
    for file in files:
        source = file.read_text(encoding="utf-8")
        compile(source, str(file), "exec")
        assert imports.in_package(source, str(file)) == source, file
    missing = [room for room in imports.NAMES if not list((tmp_path / "dmlkit").glob(f"{room}*"))]
    assert not missing and (tmp_path / "dmlkit" / "configs" / "demo_glyphs.yaml").exists()
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"] == PROJECT and "backend-path" not in project["build-system"]


def modules_of(requirements: list[str]) -> set[str]:
    names = [re.match(r"[\w-]+", requirement)[0] for requirement in requirements]
    return {MODULE_OF.get(name, name) for name in names} - {"dmlkit"}


@pytest.mark.long
def test_every_package_that_is_imported_is_required_or_an_extra():
    optional = PROJECT["optional-dependencies"]
    assert not [line for line in sum(optional.values(), []) if "gpu" in line or "cuda" in line], "for a CPU too"
    allowed = modules_of(PROJECT["dependencies"]) | imports.NAMES | set(sys.stdlib_module_names) | NAMED_WHERE_USED
    for extra, modules in extras.EXTRAS.items():
        assert set(modules) <= modules_of(optional[extra]), extra
        allowed |= set(modules)
    assert set(optional["all"][0].partition("[")[2].rstrip("]").split(",")) == extras.EXTRAS.keys()
    unknown = {}
    for folder in imports.FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            for node in statements(parsed(file)):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                for name in names:
                    if name.partition(".")[0] not in allowed:
                        unknown.setdefault(name, file.relative_to(ROOT).as_posix())
    assert not unknown


def test_a_missing_package_is_one_line(monkeypatch):
    assert extras.way_out("sklearn.decomposition") == "pip install scikit-learn"
    monkeypatch.setattr(programs, "IS_PACKAGE", True)
    assert extras.way_out("sklearn.decomposition") == "pip install 'dmlkit[results]'"
    error = ModuleNotFoundError("No module named 'optuna'", name="optuna")
    assert extras.missing(error) == "this needs the package optuna, which is missing: pip install 'dmlkit[search]'"
    assert extras.missing(ModuleNotFoundError(name="no_package_of_ours")) is None
    assert extras.missing(ValueError("optuna")) is None


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A folder with the loss `of_mine`; the program forgets it after the test."""
    folder = tmp_path / "plugins"
    (folder / "criteria").mkdir(parents=True)
    (folder / "criteria" / "of_mine.py").write_text(LOSS, encoding="utf-8")
    monkeypatch.setattr(criteria, "__path__", list(criteria.__path__))
    monkeypatch.setattr(plug_in_folders, "_folders", [])
    yield folder
    sys.modules.pop("criteria.of_mine", None)


def test_plug_ins_of_a_folder(plugins, capsys):
    with pytest.raises(SystemExit):
        read("--loss of_mine")
    assert "unknown loss 'of_mine'" in capsys.readouterr().err
    opt = read("--plugins", plugins, "--loss of_mine --loss_of_mine_scale 3")
    assert opt.loss_of_mine_scale == 3 and criteria.select("of_mine", opt).scale == 3
    assert "of_mine" in dict(parameters.listing("losses"))
    with pytest.raises(SystemExit):
        read("--plugins", plugins, "--loss of_mine --loss_of_mine_scale -1")
    assert "--loss_of_mine_scale" in capsys.readouterr().err


def test_plug_ins_from_python_and_of_retrieval(plugins, tmp_path, monkeypatch):
    monkeypatch.chdir(plugins.parent)
    dmlkit.use_plugins(plugins.name)
    monkeypatch.chdir(tmp_path / "..")
    assert "criteria/of_mine.py" in plug_in_folders.files()
    assert "of_mine" in criteria.REGISTRY.names()
    with refused("--plugins /nowhere: no such folder"):
        retrieval_program.main(["query", str(tmp_path), "image.png", "--plugins", "/nowhere"])


def test_plug_ins_of_a_line_that_another_program_reads(plugins):
    opt = parameters.resolve(["--plugins", str(plugins), "--loss", "of_mine"])
    assert opt.loss == "of_mine" and opt.plugins == [str(plugins)]


def test_the_package_is_no_repository(monkeypatch):
    monkeypatch.setattr(provenance, "IS_PACKAGE", True)
    assert provenance.describe()["git_commit"] is None


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (None, "no such folder"),
        ("losses/x.py", "holds none of the folders architectures, batch_mining, criteria"),
        ("criteria/margin.py", "criteria/margin.py: the program has a file of this name"),
        ("criteria/_pairs.py", "criteria/_pairs.py: the program has a file of this name"),
    ],
)
def test_a_folder_that_cannot_be_taken_is_refused(tmp_path, monkeypatch, file, message):
    monkeypatch.setattr(plug_in_folders, "_folders", [])
    folder = tmp_path / "plugins"
    if file is not None:
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text("")
    with refused(message):
        plug_in_folders.use(["--loss", "margin", "--plugins", str(folder), "--bs", "8"])
    with refused(message):
        plug_in_folders.use([f"--plugins={folder}"])


# name of a plug-in -> its text, and what is said of it
BROKEN = {
    "half_done": (
        '"""Half done."""\nimport no_such_package\n',
        "half_done.py cannot be imported: line 2: ModuleNotFoundError: No module named 'no_such_package'",
    ),
    "no_flag": (
        '"""A flag that is none."""\nFLAGS = {"scale": 3}\n\n\nclass Criterion: ...\n',
        "no_flag.py cannot declare its flags: AttributeError: 'int' object has no attribute 'add_to'",
    ),
    "no_class": ('"""Nothing."""\n', "no_class.py has no class Criterion"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plug_in_stops_only_who_names_it(plugins, monkeypatch, capsys, name):
    text, message = BROKEN[name]
    (plugins / "criteria" / f"{name}.py").write_text(text)
    assert read("--plugins", plugins, "--loss of_mine").loss == "of_mine"
    assert capsys.readouterr().err == f"note: criteria/{message}: it is left out\n"
    words = words_of("--plugins", plugins, "--loss", name)
    monkeypatch.setattr(sys, "argv", ["main.py", *words])
    with pytest.raises(SystemExit):
        read(*words)
    assert capsys.readouterr().err == f"main.py: error: criteria/{message}\n"


def test_the_files_of_plug_ins_are_recorded(plugins):
    assert "plug_in_files" not in provenance.describe()
    plug_in_folders.use(["--plugins", str(plugins)])
    file = plugins / "criteria" / "of_mine.py"
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert provenance.describe()["plug_in_files"] == {"criteria/of_mine.py": sha256}


def test_what_the_package_has():
    assert dmlkit.__version__ == PROJECT["version"]
    names = dir(dmlkit)
    assert {"train", "Run", "UserError", "criteria", "metrics", "__version__"} <= {*names}
    for name in names:
        assert getattr(dmlkit, name) is not None
    assert {name for name in names if not name.startswith("__")} == {*imports.ROOMS, *imports.PUBLIC}
    with pytest.raises(AttributeError, match="no attribute 'configs'"):
        _ = dmlkit.configs


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of commands of an environment in which the built wheel is installed."""
    folder = tmp_path_factory.mktemp("package")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = folder.glob("dmlkit-*.whl")
    assert wheel.stat().st_size < 1_500_000
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.startswith(("dmlkit/", "dmlkit-")) for name in names)
    assert {"dmlkit/py.typed", "dmlkit/__init__.pyi"} <= {*names}
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    # the packages that it requires are those of this environment
    (path,) = environment.glob("lib/python*/site-packages")
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    (path / "required.pth").write_text("\n".join(packages))
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True)
    return environment / "bin"


@pytest.mark.long
def test_the_wheel_in_an_environment_of_its_own(installed, tmp_path):
    """From an empty folder: help, the demo shortened, a plug-in, a table; folders of other libraries' names beside."""

    def run(command: str, *words, status: int = 0) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        line = [installed / command, *words_of(*words)]
        process = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert process.returncode == status, process.stderr
        return process.stdout + process.stderr

    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("raise RuntimeError('another library')\n")
    (tmp_path / "criteria").mkdir()
    (tmp_path / "criteria" / "of_mine.py").write_text(LOSS, encoding="utf-8")
    for command in PROJECT["scripts"]:
        assert run(command, "--help").startswith(f"usage: {command} ")
    for command in ("dmlkit-launch", "dmlkit-search", "dmlkit-retrieval"):
        assert run(command, status=2).startswith(f"{command}: error: ")
    short = "--config demo_glyphs --n_epochs 1 --iterations_per_epoch 2 --no_train_metrics --kernels 0"
    assert "next: dmlkit-results --runs" in run("dmlkit", short)
    run("dmlkit", short, "--loss of_mine --loss_of_mine_scale 3 --group mine")
    assert not list((tmp_path / "criteria").glob("__pycache__"))
    run("dmlkit-results", "--runs Training_Results --out Tables")
    assert "mine" in "".join(path.read_text() for path in (tmp_path / "Tables").glob("*.md"))
    assert "dmlkit-results: error: --runs nowhere" in run("dmlkit-results", "--runs nowhere", status=2)
    script = "dmlkit --config demo_glyphs --n_epochs 0 --no_records --group launched\n"
    (tmp_path / "runs.sh").write_text(script)
    assert "launched" in run("dmlkit-launch", "runs.sh", "--list")
    program = (
        "import datasets_of_others as datasets, torch, dmlkit\n"
        "loss = dmlkit.criteria.select('multisimilarity', embed_dim=4)\n"
        "print(float(loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))) > 0, datasets.MINE)\n"
    )
    (tmp_path / "datasets_of_others.py").write_text("MINE = 1\n")
    assert run("python", "-c", program).split() == ["True", "1"]


USER_PROGRAM = """
from pathlib import Path

import dmlkit
import numpy as np
import torch


class Stop:
    def on_epoch_end(self, run: dmlkit.TrainingRun, epoch: int, scores: dict[str, dict[str, float]]) -> None:
        if epoch == 3:
            run.stop()


callback: dmlkit.Callback = Stop()
run: dmlkit.Run = dmlkit.train("photographs", [callback], loss="margin", n_epochs=3)
values: dict[str, float] = run.scores["test"]
vectors: np.ndarray = run.embed(["a.png", Path("b.png")])
print(len(run.index("photographs")), [neighbour.path for neighbour in run.query("a.png", k=3)])
exported: Path = run.export("onnx")
miner = dmlkit.batch_mining.select("semihard")
loss: torch.nn.Module = dmlkit.criteria.select("triplet", batchminer=miner, loss_triplet_margin=0.1)
results = dmlkit.metrics.compute(["e_recall@1"], vectors, [0, 1])
dmlkit.use_plugins("plugins")
version: str = dmlkit.__version__
try:
    dmlkit.Run("runs/first").embed(torch.zeros(1, 3, 8, 8))
except dmlkit.UserError as error:
    print(error)
"""
# a line of a user's program -> what the checker says
WRONG_CALLS = {
    "dmlkit.train(5)": 'Argument 1 to "train" has incompatible type "int"',
    "dmlkit.train('photographs', callbacks=[Late()])": 'has incompatible type "Late"; expected "Callback"',
    "dmlkit.Run('runs').query('a.png', k='three')": 'Argument "k" to "query" of "Run" has incompatible type "str"',
    "dmlkit.Run('runs').indices('a.png')": '"Run" has no attribute "indices"',
    "dmlkit.metrics.compute(['nmi'], 3)": 'Argument 2 to "compute" has incompatible type "int"',
    "dmlkit.criteria.select(0.1)": 'Argument 1 to "select" has incompatible type "float"; expected "str"',
    "dmlkit.batch_mining.select()": 'Missing positional argument "name"',
    "dmlkit.criterion": 'Module has no attribute "criterion"',
}


@pytest.mark.long
def test_a_type_checker_reads_the_package(installed, tmp_path):
    """The public names have types: a user's program passes, and each wrong call is one error."""
    late = "import dmlkit\n\n\nclass Late:\n    def on_epoch_end(self, epoch: int) -> None: ...\n\n\n"
    (tmp_path / "program.py").write_text(USER_PROGRAM)
    (tmp_path / "wrong.py").write_text(late + "\n".join(WRONG_CALLS))
    check = [installed / "python", "-m", "mypy", "--strict", "--no-error-summary", "program.py", "wrong.py"]
    process = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 1, process.stderr
    errors = [line for line in process.stdout.splitlines() if ": error: " in line]
    assert len(errors) == len(WRONG_CALLS)
    for number, (error, message) in enumerate(zip(errors, WRONG_CALLS.values(), strict=True), start=late.count("\n")):
        assert error.startswith(f"wrong.py:{number + 1}: ") and message in error


def test_the_dockerfile_builds_what_there_is():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    version = re.search(r"^FROM python:([\d.]+)-slim$", text, re.MULTILINE)[1]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    assert 'ENTRYPOINT ["dmlkit"]' in text and "dmlkit" in PROJECT["scripts"]
    for source in re.findall(r"^COPY (\S+) ", text, re.MULTILINE):
        assert (ROOT / source).exists(), source
    for file in re.findall(r"requirements/\S+\.txt", text):
        assert (ROOT / file).exists(), file
    ignored = set((ROOT / ".dockerignore").read_text().split())
    assert {".git", ".venv", "Datasets", "Training_Results"} <= ignored


def docker_runs() -> bool:
    """Whether docker is installed and its service answers."""
    return shutil.which("docker") is not None and not subprocess.run(["docker", "info"], capture_output=True).returncode


@pytest.mark.long
def test_the_container_runs_the_program():
    if not docker_runs():
        pytest.skip("needs docker")
    subprocess.run(["docker", "build", "--quiet", "--tag", "dmlkit-test", str(ROOT)], check=True)
    command = ["docker", "run", "--rm", "dmlkit-test", "--list", "losses"]
    assert "multisimilarity" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
