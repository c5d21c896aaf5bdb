"""Configuration files: flat YAML of `flag: value`, each value passed through its flag's own type."""

import argparse
from pathlib import Path

import yaml

from options.flags import configs, migration, roles
from utilities.errors import UserError
from utilities.numbers import OneOrTwo
from utilities.registry import did_you_mean


def read(parser, path: Path, lines: dict[str, yaml.Node]) -> dict:
    """The flags of a file, each value passed through its flag's own type. Raises UserError with file, key and rule.

    Args:
        lines: the file's, from `configs.nodes`.
    """
    declared = roles.declared(parser)
    actions = {action.dest: action for action in parser._actions if action.dest in declared}
    flags = {}
    for key, node in lines.items():
        action = _action(actions, declared, path, key)
        flags[key] = _value(parser, action, path, key, node)
    return flags


def _value(parser, action: argparse.Action, path: Path, key: str, node: yaml.Node):
    """A file's value passed through its flag's own type."""
    if isinstance(action, argparse._StoreTrueAction):
        if _kind(node) != "bool" or node.value.lower() not in yaml.SafeLoader.bool_values:
            raise UserError(f"{path}: {key} is a switch: true or false, not {_text(node)!r}")
        return yaml.SafeLoader.bool_values[node.value.lower()]
    if _kind(node) == "null":
        return action.default
    takes_several = _takes_several(action)
    items = [node]
    if takes_several and isinstance(node, yaml.SequenceNode):
        items = node.value
    elif not isinstance(node, yaml.ScalarNode):
        expected = "values" if takes_several else "one value"
        raise UserError(f"{path}: {key} takes {expected}, not {_text(node)}")
    for item in items:
        if _kind(item) == "bool":
            raise UserError(
                f"{path}: {key} is not a switch, and {item.value} stands for true or false in YAML: write it in quotes"
            )
    return _passed(parser, action, path, [_text(item) for item in items])


def passed(parser, path: Path, flags: dict) -> dict:
    """The flags of a saved run, each value passed through its flag's type, without unknown ones.
    Raises UserError for a damaged value.
    """
    actions = {action.dest: action for action in parser._actions}
    values = {}
    for key in sorted(set(flags) & set(actions), key=str):
        value = flags[key]
        action = actions[key]
        if value is None or value == action.default:
            values[key] = action.default
            continue
        is_switch = isinstance(action, argparse._StoreTrueAction)
        is_list = isinstance(value, list)
        items = value if is_list else [value]
        is_plain = all(isinstance(item, int | float | str) and isinstance(item, bool) == is_switch for item in items)
        has_its_form = is_list == _takes_several(action) or isinstance(action, OneOrTwo)
        if not is_plain or not has_its_form:
            raise UserError(f"{path} is damaged: {key} cannot be {str(value)[:60]}")
        if not is_switch:
            value = _passed(parser, action, path, [str(item) for item in items])
        values[key] = value
    return values


def before_they_existed(parser, saved: dict) -> dict:
    """Flag -> what a run did whose `saved` flags are older than the flag, where that is not the flag's default.

    A flag declares it by a function of the saved flags, `group.add_argument(…).before = lambda saved: …`;
    None: the default.
    """
    values = {}
    for action in parser._actions:
        before = getattr(action, "before", None)
        if before is not None and action.dest not in saved and before(saved) is not None:
            values[action.dest] = before(saved)
    return values


def _action(actions: dict, declared: roles.Roles, path: Path, key: str) -> argparse.Action:
    """The flag of a file's key, of all `actions`. Raises UserError for one that no file may hold."""
    if key not in actions:
        replacement = migration.answer(key)
        way_out = did_you_mean(key, actions) if replacement is None else f" Here: {replacement}"
        raise UserError(f"{path}: unknown flag {key!r}.{way_out}")
    role = declared[key]
    if not (role.saved or role.weighs):
        raise UserError(f"{path}: {key} is for the command line alone: --{key}")
    return actions[key]


def _takes_several(action: argparse.Action) -> bool:
    return action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 0)


def _passed(parser, action: argparse.Action, path: Path, texts: list[str]):
    """The texts as the command line would take them. Raises UserError."""
    takes_one_or_two = isinstance(action, OneOrTwo)
    if takes_one_or_two and len(texts) > 2:
        raise UserError(f"{path}: {action.dest} takes one value or two, not {len(texts)}")
    if isinstance(action.nargs, int) and action.nargs > 0 and len(texts) != action.nargs:
        raise UserError(f"{path}: {action.dest} takes {action.nargs} values, not {len(texts)}")
    if action.nargs == "+" and not texts:
        raise UserError(f"{path}: {action.dest} takes at least one value, not 0")
    values = configs.converted(parser, action, texts, f"{path}: {action.dest}")
    if not _takes_several(action) or (takes_one_or_two and len(values) == 1):
        return values[0]
    return values


def _kind(node: yaml.Node) -> str:
    """What YAML takes a value for: bool, null, int, float, str, seq, map."""
    return node.tag.rpartition(":")[2]


def _text(node: yaml.Node) -> str:
    """A value as the command line would have it."""
    if isinstance(node, yaml.SequenceNode):
        return f"[{', '.join(map(_text, node.value))}]"
    if isinstance(node, yaml.MappingNode):
        return "{…}"
    is_special = _kind(node) == "float" and node.value.lower().lstrip("+-") in (".inf", ".nan")
    return node.value.replace(".", "") if is_special else node.value
