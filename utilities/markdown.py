"""Text that Markdown shows as it is: no markup, link or HTML, so that a `<placeholder>` is not taken for a tag."""

import re

# Within words _ and ~ are plain.
MARKUP = re.compile(r"[\\|`*]|<(?=[\w/!?])|(?<=\])\(|&(?=#?\w+;)|(?<!\w)[_~]|[_~](?!\w)")
_HTML = {"<": "&lt;", "&": "&amp;"}
_CODE = re.compile(r"(`[^`]*`)")


def escaped(text: str) -> str:
    """The text, all of it shown as it is."""
    return MARKUP.sub(lambda match: _HTML.get(match[0], f"\\{match[0]}"), text)


def prose(text: str) -> str:
    """The text, shown as it is but for its code in backticks; in a table's cell too."""
    parts = _CODE.split(text)
    parts[::2] = [escaped(part) for part in parts[::2]]
    parts[1::2] = [part.replace("|", "\\|") for part in parts[1::2]]
    return "".join(parts)
