"""notebooks/quickstart.ipynb runs from its first cell to its last, and is stored with what it shows."""

import json
import re
from pathlib import Path

import pytest

from dmlkit import Run
from tests.test_docs import anchors

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
MOST_BYTES = 300_000


def pictures_in(cells):
    """How many pictures the cells show."""
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_the_notebook_is_stored_as_it_ran():
    text = NOTEBOOK.read_text(encoding="utf-8")
    cells = json.loads(text)["cells"]
    programs = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in programs] == list(range(1, len(programs) + 1))
    assert not [output for cell in programs for output in cell["outputs"] if output["output_type"] == "error"]
    assert pictures_in(programs) == 5 and len(text.encode()) < MOST_BYTES
    assert str(Path.home()) not in text and "/tmp/" not in text
    prose = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    assert len(links) >= 4
    for link in links:
        path, _, anchor = link.partition("#")
        page = NOTEBOOK.parent / path
        assert page.is_file() and (not anchor or anchor in anchors(page)), link


@pytest.mark.long
def test_the_notebook_runs(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="requirements/notebook.txt is not installed")
    pytest.importorskip("ipykernel", reason="requirements/notebook.txt is not installed")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # the kernel shows its figures
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(NOTEBOOK, nbformat.NO_CONVERT)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=place).execute()
    run = Run(tmp_path / "Training_Results" / "folder" / "quickstart")
    assert run.scores["test"]["e_recall@1"] > 0.5
    assert pictures_in(notebook.cells) == 5
    photograph = next((tmp_path / "photographs" / "greek_small_letter_zeta").iterdir())
    nearest, *_ = run.query(photograph, k=1)
    assert Path(nearest.path).resolve() == photograph
