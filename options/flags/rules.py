"""Rules beside a flag: with which other flags it acts. The help prints them; one loop, here, refuses what breaks them.

    group.add_argument("--warmup_start", …).needs = "warmup_epochs", "warmup_steps"   one of these is set
    group.add_argument("--gamma", …).only_with = {"scheduler": ["step", "plateau"]}   this flag has one of these values
    group.add_argument("--layer_decay", …).idle_with = {"freeze_backbone": [True]}    this flag has none of these values
    group.add_argument("--clip_grad_norm", …).excludes = "clip_grad_value"            none of these is set

`only_with` and `idle_with` name switches and flags with choices, `only_with` also words of a flag that has several; a
rule on numbers, such as that of --embed_hidden with --embed_dim 0, is a check of the plug-in or of options/checks.py.

A flag is set if its value differs from its default and is not off (None, False, 0, an empty list).

A flag without what it needs has no effect. It is refused where the user typed it. Where a --config file or a saved run
gives its value, and the command line perhaps the other flag, the start of the run says so in a line (`runs/idle.py`).
Flags that exclude each other are refused wherever they come from.
"""

import argparse
from collections.abc import Collection, Iterator

from utilities.errors import UserError


def refuse(actions: Collection[argparse.Action], opt, typed: Collection[str], searched: Collection[str] = ()) -> None:
    """Raise UserError for a flag among `typed` that has no effect, and for flags that exclude each other.

    Args:
        actions: the declared flags.
        opt: the namespace that holds their values; a rule on a flag that it does not hold is not examined.
        typed: the flags that the user gave a value.
        searched: flags that have further values; a flag that depends on one of them is not refused.
    """
    for action in actions:
        if action.dest not in typed or not depends_on(action).isdisjoint(searched):
            continue
        line = without_effect(actions, action, opt)
        if line is not None:
            raise UserError(line)
    for line in conflicts(actions, opt):
        raise UserError(line)


def without_effect(actions: Collection[argparse.Action], action: argparse.Action, opt) -> str | None:
    """Value, rule and way out of a flag that has no effect, in one line; None where it acts, or is not set."""
    value = getattr(opt, action.dest)
    is_off = value is None or value is False or (not value and value == action.default)
    if is_off:
        return None
    needed_flags = [flag for flag in _needed(actions, action) if hasattr(opt, flag.dest)]
    if needed_flags and not any(is_set(flag, opt) for flag in needed_flags):
        names = _alternatives([_name(flag) for flag in needed_flags])
        return f"{written(action, opt)} has no effect without {names}: add it, or leave {_name(action)} out"
    for flag, values in _only_with(action).items():
        if not hasattr(opt, flag) or _has_one_of(getattr(opt, flag), values):
            continue
        allowed = f"--{flag} {_alternatives(values)}"
        if getattr(opt, flag) is None:
            return f"{written(action, opt)} has no effect without {allowed}: add it, or leave {_name(action)} out"
        present = f"--{flag} {_text(getattr(opt, flag))}"
        return f"{written(action, opt)} has no effect with {present}: take {allowed}, or leave {_name(action)} out"
    for flag, values in _idle_with(action).items():
        if hasattr(opt, flag) and getattr(opt, flag) in values:
            return f"{written(action, opt)} has no effect with {_with_value(flag, getattr(opt, flag))}: leave one out"
    return None


def _has_one_of(value, values: Collection) -> bool:
    """Whether a flag's value, or a word of a flag of several, is one of these values."""
    return any(word in values for word in value) if isinstance(value, list) else value in values


def depends_on(action: argparse.Action) -> set[str]:
    """The flags without which a flag may have no effect."""
    return {*_needs(action), *_only_with(action), *_idle_with(action)}


def conflicts(actions: Collection[argparse.Action], opt) -> Iterator[str]:
    """A line for each two flags that are set and exclude each other."""
    by_name = {action.dest: action for action in actions}
    for action in actions:
        for flag in _excludes(action):
            excluded = by_name.get(flag)
            if excluded is not None and is_set(action, opt) and is_set(excluded, opt):
                yield f"{written(action, opt)} excludes {written(excluded, opt)}: leave one out"


def changed(actions: Collection[argparse.Action], opt) -> set[str]:
    """The flags whose value is not their default."""
    return {action.dest for action in actions if getattr(opt, action.dest, action.default) != action.default}


def is_set(action: argparse.Action, opt) -> bool:
    """Whether a flag's value differs from its default and is not off."""
    value = getattr(opt, action.dest)
    return bool(value) and value != action.default


def help_of(action: argparse.Action) -> str:
    """A flag's help with the range that its type declares and with its rules."""
    notes = [note for note in (getattr(action.type, "rule", ""), *_texts(action)) if note]
    if not notes:
        return action.help
    if action.help.endswith(")"):
        return f"{action.help[:-1]}; {'; '.join(notes)})"
    return f"{action.help} ({'; '.join(notes)})"


def written(action: argparse.Action, opt) -> str:
    """A flag with its value, as the command line has it."""
    return _with_value(action.dest, getattr(opt, action.dest))


def _texts(action: argparse.Action) -> Iterator[str]:
    """The rules of a flag as text."""
    needed = _needs(action)
    if needed:
        names = [f"--{flag}" for flag in needed]
        yield f"only with {_alternatives(names)}"
    for flag, values in _only_with(action).items():
        yield f"only with --{flag} {_alternatives(values)}"
    for flag, values in _idle_with(action).items():
        if values[0] is True:
            yield f"not with --{flag}"
            continue
        yield f"not with --{flag} {_alternatives(values)}"
    excluded = _excludes(action)
    if excluded:
        names = [f"--{flag}" for flag in excluded]
        yield f"not with {_alternatives(names)}"


def _needed(actions: Collection[argparse.Action], action: argparse.Action) -> list[argparse.Action]:
    names = _needs(action)
    return [flag for flag in actions if flag.dest in names]


def _needs(action: argparse.Action) -> tuple[str, ...]:
    """The flags of which one must be set."""
    return _names(getattr(action, "needs", ()))


def _only_with(action: argparse.Action) -> dict:
    """Flag -> the values of which it must have one."""
    return getattr(action, "only_with", {})


def _idle_with(action: argparse.Action) -> dict:
    """Flag -> the values of which it must have none."""
    return getattr(action, "idle_with", {})


def _excludes(action: argparse.Action) -> tuple[str, ...]:
    return _names(getattr(action, "excludes", ()))


def _names(names: str | Collection[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _alternatives(values: Collection) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *texts, last = map(str, values)
    return f"{', '.join(texts)} or {last}" if texts else last


def _name(action: argparse.Action) -> str:
    return f"--{action.dest}"


def _with_value(flag: str, value) -> str:
    return f"--{flag}" if value is True else f"--{flag} {_text(value)}"


def _text(value) -> str:
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
