"""The flags of a plug-in as data: a table in its file, which declares them and sets them on its object.

In criteria/mine.py,

    FLAGS = {"margin": Flag(number(least=0), 0.2, "cosine between positives and negatives")}

declares `--loss_mine_margin 0.2` (`declare`), and the base class of criteria, miners and samplers sets `self.margin`
from it (`set_flags`). Trainers and data sets read theirs from `opt`. So do all files the flags of a whole name,

    "--metrix": Flag(number(0), 0.0, "weight of the loss of mixed points")

those that they share with other files, or whose names begin otherwise. A file may also declare flags by a function
`add_arguments(group)`, with `group.add_argument("--…")` as of argparse.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence

from options.flags.roles import Role
from utilities.programs import name_in_clone

# package -> how the flags of a plug-in in it begin; {} is the plug-in's name
PREFIXES = {
    "criteria": "loss_{}_",
    "batch_mining": "miner_{}_",
    "datasampler": "data_",
    "architectures": "arch_",
    "datasets": "dataset_{}_",
    "trainers": "{}_",
}


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag of a plug-in.

    Attributes:
        type: `number(...)` or `whole(...)` with its range, `str`, or `bool` for a flag without a value.
        default: its value where it is not given.
        help: what it does, in a line.
        choices, nargs, metavar, action: as of `argparse`.
        aliases: further names, written out: `("--simix",)`.
        attribute: the attribute that holds its value, where that is not called as the flag.
        role: another role than that of all flags of the folder (`options.flags.roles`).
        rules: with which other flags it acts, such as `{"needs": "lora_rank"}` (`options.flags.rules`).
        before: what a saved run that is older than the flag did: its flags -> the value (`options.files`).
    """

    type: Callable
    default: object
    help: str
    choices: Sequence | None = None
    nargs: str | int | None = None
    metavar: str | tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()
    attribute: str | None = None
    role: Role | None = None
    rules: dict = dataclasses.field(default_factory=dict)
    action: type | None = None
    before: Callable | None = None

    def add_to(self, group, name: str) -> None:
        """Declare the flag as `--name` in an argument group."""
        if self.type is bool:
            words = {"action": "store_true"}
        else:
            words = {"default": self.default, "choices": self.choices, "nargs": self.nargs, "metavar": self.metavar}
        if self.type not in (bool, str):
            words["type"] = self.type
        if self.action is not None:
            words["action"] = self.action
        action = group.add_argument(f"--{name}", *self.aliases, help=self.help, **words)
        if self.role is not None:
            action.role = self.role
        if self.before is not None:
            action.before = self.before
        for rule, value in self.rules.items():
            setattr(action, rule, value)


def flag_name(module_name: str, name: str) -> str:
    """The flag `name` of the plug-in `module_name` in full: `loss_margin_beta` for `criteria.margin` and `beta`.

    A name with dashes, `--metrix`, is whole.
    """
    if _is_whole(name):
        return name.removeprefix("--")
    folder, _, plug_in = name_in_clone(module_name).rpartition(".")
    return PREFIXES.get(folder, "{}_").format(plug_in) + name


def declare(module, group) -> None:
    """Declare the flags of a plug-in: those of its table `FLAGS`, then those of its `add_arguments`."""
    for name, flag in getattr(module, "FLAGS", {}).items():
        flag.add_to(group, flag_name(module.__name__, name))
    if hasattr(module, "add_arguments"):
        module.add_arguments(group)


def set_flags(instance, opt) -> None:
    """Set the values of its plug-in's `FLAGS` on an object, `self.margin` from `opt.loss_mine_margin`.

    A class derived from that of another plug-in gets the flags of both, its own last.
    """
    for kind in reversed(type(instance).__mro__):
        for name, flag in getattr(sys.modules.get(kind.__module__), "FLAGS", {}).items():
            if not _is_whole(name):
                setattr(instance, flag.attribute or name, getattr(opt, flag_name(kind.__module__, name)))


def _is_whole(name: str) -> bool:
    return name.startswith("--")
