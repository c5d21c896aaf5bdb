"""A file of code is executed only because the command line names it, and its content is recorded."""

import hashlib
from types import SimpleNamespace

import pytest

import main
from evaluation import relevance
from runs import reports
from search import report
from tests.kit.refusals import refused
from tests.kit.runs import content_of, resolve, run_main, run_words

CODE = """
from pathlib import Path
import numpy as np
Path(r"{marker}").touch()
def relevance(queries, gallery):
    return np.equal.outer(queries % 3, gallery % 3)
"""


@pytest.fixture
def code(tmp_path):
    """A file of code, and the file that it makes when it is executed."""
    marker = tmp_path / "executed"
    file = tmp_path / "relevance.py"
    file.write_text(CODE.format(marker=marker))
    return file, marker


def test_a_proposed_command_names_the_file_of_code(code, tmp_path, capsys):
    file, _ = code
    opt = resolve("--dataset glyphs --eval_relevance", file)
    reports.propose_next(opt, SimpleNamespace(complete=False, folder=tmp_path))
    assert capsys.readouterr().out.endswith(f"main.py --resume_from {tmp_path} --eval_relevance {file}\n")
    run = SimpleNamespace(opt=opt, folder=tmp_path, close=lambda: None)
    with pytest.raises(SystemExit), reports.interruptible(run):
        raise KeyboardInterrupt
    assert f"main.py --resume_from {tmp_path} --eval_relevance {file}\n" in capsys.readouterr().out


def test_the_command_of_the_best_trial_names_the_file_of_code(tmp_path, capsys):
    path = tmp_path / "best_parameters.yaml"
    for content, words in (
        ("eval_relevance: rel.py\nlr: 0.1\n", " --eval_relevance rel.py"),
        ("eval_relevance: null\n", ""),
    ):
        path.write_text(content)
        report.propose_next(tmp_path, {"eval_relevance"})
        assert capsys.readouterr().out.endswith(f"main.py --config {path}{words}\n")


def test_the_command_line_alone_executes_code(code, folder_data, tmp_path, capsys):
    file, marker = code
    words = run_words(folder_data, tmp_path, "--savename Own --iterations_per_epoch 1")
    run = main.main(resolve(*words, "--n_epochs 1 --eval_relevance", file))
    assert marker.exists()
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    assert content_of(run.folder / "environment.yaml")["code_files"] == {"eval_relevance": sha256}

    marker.unlink()
    resume = f"--resume_from {run.folder}"
    (tmp_path / "asks.yaml").write_text(f"eval_relevance: {file}\n")
    configs = [f"--config {run.folder}/parameters.yaml", f"--config {tmp_path}/asks.yaml"]
    for asking in (resume, f"--evaluate {resume}", f"--reproduce_results {run.folder}", *configs):
        with refused("is code", f"--eval_relevance {file}", "--eval_relevance none"):
            resolve(asking)
        assert resolve(asking, "--eval_relevance", file).eval_relevance == str(file)
    relevance._lists.cache_clear()
    run_main("--evaluate", resume, "--eval_relevance none")
    assert not marker.exists(), "by the classes"
    run_main("--evaluate", resume, "--eval_relevance", file)
    assert marker.exists()
    flags = [content_of(path)["flags"] for path in sorted(run.folder.glob("evaluation_*.json"))]
    assert [recorded.get("eval_relevance_sha256") for recorded in flags] == [None, sha256]

    words = f"{resume} --n_epochs 2 --eval_relevance"
    with refused("flags differ", "--eval_relevance None"):
        resolve(words, "none")
    moved = tmp_path / "moved.py"
    file.rename(moved)
    moved.write_text(moved.read_text() + "# another content\n")
    with refused("is not the file", str(moved), "--resume_allow_changes"):
        main.main(resolve(words, moved))
    moved.write_text(moved.read_text().removesuffix("# another content\n"))
    assert run_main(words, moved).epoch == 2, "the same content at another place"
    moved.write_text(moved.read_text() + "# another content\n")
    capsys.readouterr()
    run_main(resume, "--n_epochs 3 --eval_relevance", moved, "--resume_allow_changes")
    assert "other code_files" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys.exit()\n",
        "import sys\ndef relevance(queries, gallery):\n    sys.exit(0)\n",
        "raise SystemExit(3)\n",
    ],
)
def test_code_that_ends_the_program_is_an_error(text, tmp_path):
    import numpy as np

    file = tmp_path / "ends.py"
    rows = np.arange(4)
    file.write_text(text)
    with refused("--eval_relevance", str(file), "SystemExit: sys.exit(", "leave it out"):
        relevance.lists(str(file), rows, rows, rows)
