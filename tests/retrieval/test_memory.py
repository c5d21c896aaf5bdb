"""What `python -m retrieval index` holds in memory: no package that it does not need, and of an image its vector and
its path.
"""

from pathlib import Path

import pytest

from benchmarks import retrieval_memory

ROOT = Path(__file__).resolve().parents[2]
NOT_NEEDED = (
    "torch._dynamo",
    "torch._inductor",
    "sympy",
    "scipy",
    "pandas",
    "sklearn",
    "matplotlib",
    "wandb",
    "timm",
    "pretrainedmodels",
)


@pytest.mark.long
def test_of_an_image_its_vector_and_path_stay_in_memory(run, capsys):
    """10,000 images of 8 dimensions are 0.3 MB of vectors and 3 MB of paths; held as crops they would be 39 MB, as
    pixels 123; noise is some 8.
    """
    base_memory, memory = retrieval_memory.main([str(run), "--images", "10100", "--side", "64"])
    assert memory - base_memory < 25 and "10,100 images" in capsys.readouterr().out
    with pytest.raises(Exception, match="parameters.yaml is missing"):
        retrieval_memory.main([str(run.parent / "none"), "--images", "101"])
