"""What `python -m retrieval index` holds in memory: of an image its vector and its path."""

import pytest

from benchmarks import retrieval_memory


@pytest.mark.long
def test_of_an_image_its_vector_and_path_stay_in_memory(run, capsys):
    """Of 10,000 images 3.3 MB, some 8 of noise; their crops would be 39, their pixels 123."""
    base_memory, memory = retrieval_memory.main([str(run), "--images", "10100", "--side", "64"])
    assert memory - base_memory < 25 and "10,100 images" in capsys.readouterr().out
    with pytest.raises(Exception, match="parameters.yaml is missing"):
        retrieval_memory.main([str(run.parent / "none"), "--images", "101"])
