"""Reading what a search wrote into its folder. A damaged file is one clear line."""

import csv
from pathlib import Path

import yaml

from utilities.errors import UserError

TABLE = "trials.csv"


def read_mapping(path: Path, parts: dict[str, type], way_out: str) -> dict:
    """A YAML file.

    Args:
        parts: what it holds at least: key -> type of the value.
        way_out: what to do about a damaged one.

    Raises:
        UserError: it is no YAML, or lacks one of `parts`.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} is damaged ({' '.join(str(error).split())[:160]}): {way_out}") from error
    lacking = [key for key, kind in parts.items() if not isinstance(content, dict) or not isinstance(content.get(key), kind)]
    if lacking:
        raise UserError(f"{path} is damaged (no {', '.join(lacking)} in it): {way_out}")
    return content


def read_table(folder: Path) -> list[dict]:
    """The rows of trials.csv, none where there is no such file. Raises UserError where it is damaged."""
    path = folder / TABLE
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
        for row in rows:
            row["trial"], float(row["value"] if row["state"] == "complete" else row["value"] or "nan")
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): move it away, the search writes it anew") from error
    return rows
