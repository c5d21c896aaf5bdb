"""What `python -m retrieval index` holds in memory: no package that it does not need, and of an image its vector and its path."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import retrieval_memory
from tests import builders

ROOT = Path(__file__).resolve().parents[2]
NOT_NEEDED = ("torch._dynamo", "torch._inductor", "sympy", "scipy", "pandas", "sklearn", "matplotlib", "wandb", "timm", "pretrainedmodels")


def test_index_and_query_load_no_package_that_they_do_not_need(run, tmp_path):
    picture = builders.write_image(tmp_path / "images" / "0.jpg", 0)
    words = [["index", str(run), str(picture), "--out", str(tmp_path / "index")], ["query", str(tmp_path / "index"), str(picture)]]
    code = f"import sys\nfrom retrieval import __main__\nfor words in {words}: __main__.main(words)\n"
    code += f"print([name for name in {NOT_NEEDED} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


def test_torchvision_without_the_compiler_is_the_same_and_the_compiler_comes_when_it_is_used():
    code = """
import sys
from retrieval import lean
import torch
given = torch.compiler.disable
lean.import_torchvision()
lean.import_torchvision()
assert "torch._dynamo" not in sys.modules and lean.COMPILER not in sys.modules and torch.compiler.disable is given
import torchvision
from torchvision import tv_tensors
from torchvision.transforms import v2
image = torch.arange(3 * 8 * 8, dtype=torch.uint8).reshape(3, 8, 8)
small = v2.Resize(4, antialias=True)(tv_tensors.Image(image))
assert type(small) is tv_tensors.Image and torch.equal(small, v2.functional.resize(image, [4], antialias=True))
boxes, maps = torch.tensor([[0.0, 1, 1, 6, 6]]), image[None].float()
from torchvision.ops import roi_align
pooled = roi_align(maps, boxes, 2)
assert roi_align.__globals__["is_compile_supported"]("cpu") in (True, False) and "torch._dynamo" in sys.modules
compiled = torch.compile(v2.functional.horizontal_flip, backend="eager")
assert torch.equal(compiled(image), image.flip(2)) and torch.equal(roi_align(maps, boxes, 2), pooled)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_what_torchvision_asks_of_the_compiler_besides_is_the_compilers_own():
    code = """
import sys, types
from retrieval import lean
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            from torch._dynamo.utils import counters, is_compile_supported
            Finder.given = counters, is_compile_supported
            raise ImportError("no torchvision here")
sys.meta_path.insert(0, Finder())
try:
    lean.import_torchvision()
except ImportError as error:
    assert "no torchvision here" in str(error)
import torch._dynamo.utils
assert Finder.given[0] is torch._dynamo.utils.counters
assert torch.compiler.disable.__module__ == "torch.compiler"
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.long
def test_of_an_image_its_vector_and_path_stay_in_memory(run, capsys):
    """10,000 images of 8 dimensions are 0.3 MB of vectors and 3 MB of paths; held as crops they would be 39 MB, as pixels 123; noise is some 8."""
    few, many = retrieval_memory.main([str(run), "--images", "10100", "--side", "64"])
    assert many - few < 25 and "10,100 images" in capsys.readouterr().out
    with pytest.raises(Exception, match="parameters.yaml is missing"):
        retrieval_memory.main([str(run.parent / "none"), "--images", "101"])
