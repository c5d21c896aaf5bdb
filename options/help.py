"""What `--help`, `--help WORD …`, `--find WORD`, `--explain`, `--list` and `--check_data` print."""

import argparse
import difflib
import textwrap

from options.flags import migration, rules
from utilities.errors import UserError
from utilities.programs import as_typed

WIDTH = 120
# in the order of the first screen
EVERYDAY = (
    "dataset",
    "source_path",
    "arch",
    "embed_dim",
    "not_pretrained",
    "trainer",
    "loss",
    "batch_mining",
    "data_sampler",
    "bs",
    "samples_per_class",
    "n_epochs",
    "lr",
    "optim",
    "scheduler",
    "use_tv_split",
    "evaluation_metrics",
    "storage_metrics",
    "seed",
    "gpu",
    "save_path",
    "group",
    "config",
    "resume",
    "dry_run",
)
MORE = """\
--help GROUP, --help loss margin, --help FLAG, --help all   flags of a group, of a plug-in, one flag, all of them
--find WORD       flags whose name or text holds WORD
--list KIND       losses, miners, samplers, architectures, datasets, trainers, metrics
--explain         every flag that differs from its default, and where it was set"""


class Formatter(argparse.HelpFormatter):
    """Help with every default and range."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=42, width=WIDTH)

    def _get_default_metavar_for_optional(self, action):
        return {"int": "N", "float": "X"}.get(getattr(action.type, "__name__", None), "NAME")

    def _get_help_string(self, action):
        text = rules.help_of(action)
        has_default = action.default not in (None, argparse.SUPPRESS) and "%(default)" not in action.help
        if isinstance(action, argparse._StoreTrueAction) or not has_default:
            return text
        return f"{text} (default: {_default(action) or 'none'})"


class Help(argparse.Action):
    """`--help [WORD …]`: print the page of these words and exit. The parser's `plug_ins`:
    heading -> module, as `page` takes them.
    """

    def __call__(self, parser, namespace, values, option_string=None):
        """Print and exit; an unknown word is one line and status 2."""
        try:
            print(as_typed(page(parser, parser.plug_ins, values)))
        except UserError as error:
            parser.error(str(error))
        parser.exit()


def groups(parser) -> dict[str, list]:
    """Heading -> its flags, without those that are only read from old scripts."""
    flags_of = {}
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
        if actions and group.title != "options":
            flags_of[group.title] = actions
    return flags_of


def page(parser, plug_ins: dict, words: list[str]) -> str:
    """The help for `words`: none, `all`, a group, a plug-in such as `loss margin`, or a flag.

    Args:
        plug_ins: heading of a plug-in's flags, such as "loss margin" -> its module.

    Raises UserError for a name that there is not.
    """
    topic = " ".join(words).lstrip("-")
    flags_of = groups(parser)
    if not words:
        return _first_screen(flags_of, plug_ins)
    if topic == "all":
        return _sections(flags_of)
    if topic in plug_ins:
        section = f"{topic} adds no flags"
        if topic in flags_of:
            section = _section(topic, flags_of[topic])
        return f"{plug_ins[topic].__doc__.strip()}\n\n{section}"
    if topic in flags_of:
        return _section(topic, flags_of[topic])
    name = topic.replace("-", "_")
    flags = []
    for title, actions in flags_of.items():
        for action in actions:
            names = [option.lstrip("-") for option in action.option_strings]
            if name in names or name == action.dest:
                return _section(title, [action])
            flags.append(action.dest)
    headings = {heading.rpartition(" ")[2]: heading for heading in plug_ins}
    nearest = difflib.get_close_matches(name, [*flags_of, *headings, *flags], n=1)
    hint = f" Did you mean --help {headings.get(nearest[0], nearest[0])}?" if nearest else ""
    raise UserError(
        f"--help {topic}: no group, plug-in or flag.{hint} --help lists the groups, --find {words[-1]} searches "
        "all texts"
    )


def find(parser, word: str) -> str:
    """The flags whose name or help holds `word`, below their headings. Raises UserError if there is none."""
    sought = word.lstrip("-").lower()
    matches = {}
    for title, actions in groups(parser).items():
        for action in actions:
            text = f"{' '.join(action.option_strings)} {rules.help_of(action)}"
            if sought in text.lower():
                matches.setdefault(title, []).append(action)
    if not matches:
        replacement = migration.answer(word)
        hint = f"; here {replacement}" if replacement else ""
        raise UserError(f"--find {word}: no flag has it in its name or text{hint}")
    return _sections(matches)


def explain(opt) -> str:
    """Every flag whose value is not its default, with the value and the place where it was set, `opt.set_by`."""
    rows = [(f"--{name}", _text_of(getattr(opt, name)), place) for name, place in sorted(opt.set_by.items())]
    if not rows:
        return "every flag has its default"
    name_width = min(max(len(name) for name, _, _ in rows), 60)
    value_width = min(max(len(value) for _, value, _ in rows), 60)
    lines = [f"{name:{name_width}}  {value:{value_width}}  {place}" for name, value, place in rows]
    return "\n".join(lines)


def captions(rows: list[tuple[str, str]]) -> str:
    """The answer to --list: names and captions in two columns."""
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:{width}}  {caption}" for name, caption in rows]
    return "\n".join(lines)


def checked(problems: list[str]) -> str:
    """The answer to --check_data. Raises UserError, after printing them, where there are problems."""
    if not problems:
        return "every image can be decoded; nothing else is wrong with the files"
    print("\n".join(problems))
    raise UserError(f"--check_data: {len(problems)} problems, listed above")


def _first_screen(flags_of: dict, plug_ins: dict) -> str:
    flags = {action.dest: action for actions in flags_of.values() for action in actions}
    lines = ["usage: python main.py [flags]", "", "common flags (default)"]
    for name in EVERYDAY:
        action = flags[name]
        option = action.option_strings[0]
        default = _default(action)
        if default:
            option = f"{option} ({default})"
        text = action.help.partition(";")[0].partition(" (--list")[0]
        lines.append(f"  {_shortened(option, 46):46} {_shortened(text, WIDTH - 51)}")
    titles = ", ".join(title for title in flags_of if title not in plug_ins)
    return "\n".join([*lines, "", *textwrap.wrap(f"groups: {titles}", WIDTH), "", MORE])


def _shortened(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder=" …")


def _sections(flags_of: dict) -> str:
    sections = [_section(title, actions) for title, actions in flags_of.items()]
    return "\n\n".join(sections)


def _section(title: str, actions: list) -> str:
    formatter = Formatter("main.py")
    formatter.start_section(title)
    formatter.add_arguments(actions)
    formatter.end_section()
    return formatter.format_help().strip()


def _default(action) -> str:
    off = isinstance(action, argparse._StoreTrueAction) or action.default in (None, argparse.SUPPRESS, [])
    return "" if off else _text_of(action.default)


def _text_of(value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
