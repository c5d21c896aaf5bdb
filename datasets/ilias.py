"""ILIAS, its core: 1,000 objects in 1,232 queries and 4,715 positives (Kordopatis-Zilos et al., arXiv 2502.11748).

Its 100 million distractors are judged from features: docs/evaluation.md. Text queries are left out.
"""

from pathlib import Path

from datasets import _download, _layout
from datasets._images import Image
from datasets._layout import Published, Reading

FOLDERS = ("ilias", "ilias_core")
TEST_ONLY = True
CORE = "ilias_core"
QUERIES = "query"
POSITIVES = "pos"
EXPECTED = f"{CORE}/<object>/{QUERIES}/Q….jpg and {POSITIVES}/P….jpg"
PUBLISHED = Published(classes=(0, 1000), images=(0, 1232 + 4715), query=(1232, 1000), gallery=(4715, 1000))
DOWNLOAD = _download.Source(
    folder="ilias", archives=(), alternatives="ilias_core as https://github.com/ilias-vrg/ilias says"
)
EVALUATION_METRICS = ["map@1000", "map@1000_macro", "oracle@1000"]


def derived(opt) -> dict:
    """Values of unset flags: queries without a match are left out."""
    return {"eval_skip_unmatched": 1}


def recognises(root: Path) -> bool:
    """Whether `root`, or its folder of the core, holds an object's queries."""
    return next(_core(root).glob(f"*/{QUERIES}"), None) is not None


def read(opt, root: Path) -> Reading:
    """The queries and positives of each object, whose folder names it."""
    core = _core(root)
    images = []
    for entry in _layout.visible(core):
        if not entry.is_dir():
            continue
        for kind in (QUERIES, POSITIVES):
            if (core / entry.name / kind).is_dir():
                for file in _layout.image_files(core / entry.name / kind):
                    path = f"{entry.name}/{kind}/{file}"
                    images.append(Image(path, entry.name, is_query=kind == QUERIES, is_gallery=kind == POSITIVES))
    reading = _layout.listed(core, images)
    reading.split_of = ["test"] * len(reading.images)
    return reading


def _core(root: Path) -> Path:
    return root / CORE if (root / CORE).is_dir() else root
