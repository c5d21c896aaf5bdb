"""Configuration files: YAML of `flag: value`. A bare name is a preset in configs/."""

import argparse
import difflib
from pathlib import Path

import yaml

from utilities.errors import UserError
from utilities.reading import Unreadable, read_yaml_nodes

PRESETS = Path(__file__).parents[2] / "configs"


def find(name: str) -> Path:
    """The file that `--config` names. Raises UserError if there is none."""
    path = Path(name)
    preset = PRESETS / f"{name.removesuffix('.yaml')}.yaml"
    if path.is_file():
        return path
    if preset.is_file():
        return preset
    presets = sorted(file.stem for file in PRESETS.glob("*.yaml"))
    nearest = difflib.get_close_matches(preset.stem, presets, n=1)
    hint = f": did you mean {nearest[0]}?" if nearest else ""
    problem = "no such file"
    if path.is_dir():
        problem = "a folder, no file (of a run: its parameters.yaml)"
    raise UserError(f"--config {name}: {problem}, and no such preset{hint} (configs/ holds {', '.join(presets)})")


def nodes(path: Path) -> dict[str, yaml.Node]:
    """Flag -> YAML node of its value, before YAML turns `010` into an octal number and `on` into True.

    Raises UserError for a file that cannot be read, is no YAML mapping, or names a flag twice.
    """
    try:
        root = read_yaml_nodes(path)
    except Unreadable as error:
        raise UserError(f"--config {path}: {error.reason}") from error
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"--config {path}: expected lines of `flag: value`")
    names = [str(key.value) for key, _ in root.value]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: {name} is there {names.count(name)} times: name each flag once")
    return dict(zip(names, (node for _, node in root.value), strict=True))


def converted(parser, action: argparse.Action, texts: list[str], source: str) -> list:
    """Values of a flag by the parser's own type and choices, as the command line takes them. Raises UserError, which
    begins with `source`.
    """
    try:
        values = [parser._get_value(action, text) for text in texts]
        for value in values:
            parser._check_value(action, value)
    except argparse.ArgumentError as error:
        raise UserError(f"{source}: {error.message}") from error
    return values
