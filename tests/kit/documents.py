"""Examples that the documentation prints."""

import re
import textwrap
from pathlib import Path


def documented_example(line):
    """The source of the example in CONTRIBUTING.md that has this line."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return next(
        textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if line in block
    )
