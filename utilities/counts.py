"""Counts as text: `1 epoch`, `2 epochs`."""


def count_of(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun, which has an s unless the count is 1; `plural`: another form."""
    if count != 1:
        noun = plural or f"{noun}s"
    return f"{count:,} {noun}"
