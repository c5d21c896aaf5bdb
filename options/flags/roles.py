"""The role of a flag: what resume, reproduction, grouping, search and tables may do with it.

A flag has the role of its group (`group.role = DATA`) or its own (`group.add_argument("--kernels", …).role = PLACE`).
The flags of a plug-in have the role "method", in datasets/ the role "data".
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Role:
    """The rules for the flags of one role.

    Attributes:
        name: the role, as docs/flags.md prints it.
        saved: the flag is a property of the run, and is written to parameters.yaml.
        change: a run that goes on with another value needs --resume_allow_changes, and records the change.
        fixed: "always": no continuation may have another value; "first": the first of the flag's values must stay.
        moves: the value is a location, whose content is checked elsewhere: another value on resume is no change.
        compared: runs that differ in the flag are different configurations.
        measured: the flag decides what an evaluation measures, and --evaluate may have another value than the training.
        searched: a search may vary the flag.
        code: the value is a file of code. It is executed only if the command line names it, no file and no saved run.
        secret: the value, such as a key or a password, is shown in no log and on no screen, see `utilities.secrets`.
        weighs: the name in --loss_weights that this flag of older versions gives a weight.
    """

    name: str
    saved: bool = True
    change: bool = True
    fixed: str | None = None
    moves: bool = False
    compared: bool = True
    measured: bool = False
    searched: bool = True
    code: bool = False
    secret: bool = False
    weighs: str | None = None

    def but(self, **changes) -> "Role":
        """A copy of this role with some rules changed."""
        return dataclasses.replace(self, **changes)

    def changes(self, before, after) -> bool:
        """Whether a run that goes on with `after` in place of `before` is changed. Another location is no change."""
        is_other_place = self.moves and before is not None and after is not None
        return self.change and before != after and not is_other_place

    def forbids(self, before, after) -> bool:
        """Whether no continuation may change the value `before` to `after`, permitted or not."""
        if before == after:
            return False
        return self.fixed == "always" or (self.fixed == "first" and before[:1] != after[:1])


METHOD = Role("method")
DATA = Role("data", fixed="always", searched=False)
SELECTION = Role("selection", fixed="first", searched=False)  # which epoch is chosen
EVALUATION = Role("evaluation", measured=True, searched=False)  # how values are measured
CODE = EVALUATION.but(code=True, moves=True)  # a file of code that measures; its content is recorded as a hash
EXTENT = EVALUATION.but(name="extent", compared=False)  # which values are measured, not what they are
IDENTITY = Role("identity", compared=False, searched=False)  # what tells the runs of a configuration apart
RECORDS = Role("records", change=False, compared=False, searched=False)
PLACE = RECORDS.but(name="place")  # paths, devices, workers
CONTROL = RECORDS.but(name="control", saved=False)  # what this one command is asked to do
SECRET = CONTROL.but(name="secret", secret=True)  # keys and passwords


def weight_of(name: str) -> Role:
    """The role of a flag of older versions that weighed a loss: its value becomes `name=W` in --loss_weights."""
    return METHOD.but(saved=False, searched=False, weighs=name)


class Roles(dict):
    """Flag -> its role. A flag that is not declared here, such as that of another clone's plug-in,
    has the role METHOD.
    """

    def __missing__(self, flag: str) -> Role:
        return METHOD

    def having(self, **rules) -> set[str]:
        """The declared flags whose role has these values, such as `having(change=False)`."""
        flags = set()
        for flag, role in self.items():
            if all(getattr(role, rule) == value for rule, value in rules.items()):
                flags.add(flag)
        return flags


def group(parser, title: str, role: Role):
    """The argument group `title` of `parser`, for flags of one role; made where it is not there yet."""
    for group in parser._action_groups:
        if group.title == title:
            return group
    added = parser.add_argument_group(title)
    added.role = role
    return added


def declared(parser, default: Role | None = None) -> Roles:
    """The roles of a parser's flags. Raises LookupError for a flag without one if there is no default."""
    roles = Roles()
    for group in parser._action_groups:
        for action in group._group_actions:
            role = getattr(action, "role", None) or getattr(group, "role", default)
            if role is None and action.dest != "help":
                raise LookupError(f"--{action.dest} has no role: give its group one")
            if role is not None and action.dest != "help":
                roles[action.dest] = role
    return roles


def options_having(parser, **rules) -> set[str]:
    """The names, such as `--source` and `--source_path`, of a parser's flags whose role has these values."""
    flags = declared(parser, METHOD).having(**rules)
    return {option for action in parser._actions if action.dest in flags for option in action.option_strings}
