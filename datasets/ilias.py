"""ILIAS, its core: 1,000 objects, 1,232 query images, 4,715 images that show them in the world (Kordopatis-Zilos et
al., CVPR 2025, arXiv 2502.11748).

Its 100 million distractors are judged from features: docs/evaluation.md. Text queries are left out.
"""

from pathlib import Path

from datasets import _download, _layout
from datasets._layout import Published, Reading

FOLDERS = ("ilias", "ilias_core")
TEST_ONLY = True
CORE = "ilias_core"
QUERIES = "query"
POSITIVES = "pos"
EXPECTED = f"{CORE}/<object>/{QUERIES}/Q….jpg and {POSITIVES}/P….jpg"
PUBLISHED = Published(classes=(0, 1000), images=(0, 1232 + 4715), query=(1232, 1000), gallery=(4715, 1000))
EVALUATION_METRICS = ["map@1000", "map@1000_macro", "oracle@1000"]
DOWNLOAD = _download.Source(
    folder="ilias", archives=(), alternatives="ilias_core as https://github.com/ilias-vrg/ilias says"
)


def recognises(root: Path) -> bool:
    """Whether `root`, or its folder of the core, holds an object's queries."""
    return next(_core(root).glob(f"*/{QUERIES}"), None) is not None


def derived(opt) -> dict:
    """Flags that are unset."""
    return {"eval_skip_unmatched": 1}


def read(opt, root: Path) -> Reading:
    """The queries and positives of each object, whose folder names it."""
    rows = []
    core = _core(root)
    for folder in (entry.name for entry in _layout.visible(core) if entry.is_dir()):
        for kind in (kind for kind in (QUERIES, POSITIVES) if (core / folder / kind).is_dir()):
            rows += [
                (f"{folder}/{kind}/{file}", folder, None, kind == QUERIES, kind == POSITIVES)
                for file in _layout.image_files(core / folder / kind)
            ]
    reading = _layout.listed(core, rows)
    reading.split_of = ["test"] * len(reading.images)
    return reading


def _core(root: Path) -> Path:
    return root / CORE if (root / CORE).is_dir() else root
