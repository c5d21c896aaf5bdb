"""The site's page of each kind of method, from the plug-ins themselves: caption, paper, formula, flags, result on the
embedded characters.

`make docs` writes them into the site (docs/site_hooks.py); `python docs/generate_reference.py losses` prints one.
"""

import inspect
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

import generate_flags
import generate_methods

import metrics
import parameters
from benchmarks.methods import METHODS

RESULTS = Path(__file__).with_name("methods_on_glyphs.md")
CLASSES = {
    "losses": "Criterion",
    "miners": "BatchMiner",
    "samplers": "Sampler",
    "trainers": "Trainer",
    "architectures": "Network",
    "metrics": "Metric",
}
KINDS = tuple(CLASSES)
SPECIAL = re.compile(r"([\\*_<\[\]|#~^])")


def text(kind: str) -> str:
    """The page of one of `KINDS`, as Markdown."""
    title, flag = generate_methods.TITLES[kind]
    registry = _registry(kind)
    parts = [
        f"# {title}",
        "",
        f"`{flag} NAME`. Each is one file of `{registry.package}/`, which holds its formula, its flags and its code.",
        "",
    ]
    if kind == "losses":
        parts += [
            "**On the embedded characters**: three epochs of a small network, test set, mean and standard deviation of "
            "three seeds in percent. It shows that a loss learns, and with "
            "which settings; it is not a ranking: [methods_on_glyphs.md](methods_on_glyphs.md).",
            "",
        ]
    groups = {group.title: group for group in parameters.get_parser()._action_groups}
    for name, module in registry.modules().items():
        declared = groups.get(f"{registry.kind} {name}")
        parts += [*_method(kind, name, module), *_flags(declared), *_results(kind, name)]
    parts += _memory() if kind == "trainers" else []
    parts += [generate_methods.NOTES[kind], ""] if kind in generate_methods.NOTES else []
    return "\n".join(parts)


def names(kind: str) -> list[str]:
    """The methods that have a section of their own."""
    return _registry(kind).names()


def _registry(kind: str):
    return metrics.REGISTRY if kind == "metrics" else parameters.REGISTRIES[kind]


def _method(kind: str, name: str, module) -> list[str]:
    """Heading, caption with its paper, formula, and the rest of the docstrings of class and module."""
    caption, _, beside = inspect.getdoc(module).partition("\n\n")
    caption = " ".join(caption.split())
    of_class = getattr(module, CLASSES[kind], None)
    formula, _, more = (inspect.getdoc(of_class) or "").partition("\n\n")
    lines = [f"## `{name}` {{ #{name} }}", "", f"{generate_methods.linked(caption)}.", ""]
    lines += ["```text", formula.strip(), "```", ""] if formula.strip() else []
    if kind == "metrics":
        lines += [f"- `{shown}`: {plain(means)}" for shown, means in of_class.NAMES.items()] + [""]
    for paragraph in (more, beside):
        lines += prose(paragraph)
    if kind == "losses":
        lines += [_needs(module), ""]
    return lines


def prose(text: str) -> list[str]:
    """Paragraphs; those with indented lines, such as a list of arguments, keep their lines."""
    lines = []
    for paragraph in text.strip().split("\n\n"):
        if re.search(r"^\s", paragraph, re.MULTILINE):
            lines += ["```text", paragraph.strip("\n"), "```", ""]
        elif paragraph:
            lines += [plain(paragraph), ""]
    return lines


def plain(text: str) -> str:
    """A docstring's text escaped for Markdown except in backticks; arXiv numbers become links."""
    parts = re.split(r"(`[^`]*`)", text)
    escaped = "".join(
        part if part.startswith("`") else SPECIAL.sub(r"\\\1", part).replace("\\<", "&lt;") for part in parts
    )
    return re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", escaped)


def _needs(module) -> str:
    """What a loss requires of the command beside its own flags."""
    miner = "Needs a miner, `--batch_mining`" if module.REQUIRES_BATCHMINER else "Takes no miner"
    allowed = module.ALLOWED_MINING_OPS
    miner += f": {', '.join(f'`{name}`' for name in allowed)}" if module.REQUIRES_BATCHMINER and allowed else ""
    return f"{miner}. {'Has parameters of its own' if module.REQUIRES_OPTIM else 'Has no parameters'}."


def _flags(group) -> list[str]:
    return [*generate_flags.table(group._group_actions), ""] if group is not None and group._group_actions else []


def _results(kind: str, name: str) -> list[str]:
    """The rows of docs/methods_on_glyphs.md for a loss, a trainer, a miner or a sampler."""
    if kind == "trainers":
        return _table(_beside_its_base(f"--trainer {name}"), "every-trainer-beside-metric_only")
    if kind == "miners":
        rows = [[f"`--loss {loss.strip('`')} {flags.strip('`')}`", "–", *row[:2]] for loss, flags, *row in of_losses()]
        return _table(
            [row for row in [*results("Every miner"), *rows] if re.search(rf"--batch_mining {name}[ `]", row[0])],
            "every-miner",
        )
    if kind == "samplers":
        return _table(
            [row for row in results("Every sampler") if re.search(rf"--data_sampler {name}[ `]", row[0])],
            "every-sampler",
        )
    if kind != "losses":
        return []
    for loss, flags, recall, map_r, _ in of_losses():
        if loss == f"`{name}`":
            return [
                (
                    f"On the embedded characters, with {_given(flags.strip('`'))}: e_recall@1 **{recall}**, map_r "
                    f"**{map_r}**."
                ),
                "",
            ]
    run = (
        f": with {_given(METHODS[name])}, `python benchmarks/methods.py --only {name}` runs it"
        if name in METHODS
        else ""
    )
    return [f"On the embedded characters: not run yet{run}.", ""]


def _memory() -> list[str]:
    """The section of the cross-batch memory, which works with several trainers."""
    table = _table(_beside_its_base("--memory_size"), "cross-batch-memory-on-small-batches")
    about = (
        "Each batch is also compared with the last N embeddings: "
        "[training_methods.md](training_methods.md#cross-batch-memory---memory_size-n)."
    )
    return ["## Cross-batch memory, `--memory_size N` { #memory }", "", about, "", *table]


def _table(rows: list[list[str]], place: str = "") -> list[str]:
    """Rows of docs/methods_on_glyphs.md; nothing where there are none."""
    there = f"[On the embedded characters](methods_on_glyphs.md{f'#{place}' if place else ''}), in percent:"
    table = [f"| {' | '.join(row)} |" for row in rows]
    return [there, "", "| flags | embedding | e_recall@1 | map_r |", "|-|-|-|-|", *table, ""] if table else []


def _beside_its_base(flag: str) -> list[list[str]]:
    """The rows with a flag, each after the row of the same flags without it."""
    rows = []
    base = None
    shown = None
    for row in results():
        base = base if row[0].startswith("the same with") else row
        if flag in row[0]:
            rows += [row] if shown is base else [base, row]
            shown = base
    return rows


def _given(flags: str) -> str:
    return f"`{flags}`" if flags.strip("–") else "its defaults"


def of_losses() -> list[list[str]]:
    """The rows of the table of losses: name, flags, e_recall@1, map_r, seconds; not those that compare with other
    packages.
    """
    return [row for row in results() if len(row) == 5 and row[1].startswith("`")]


def results(section: str = "") -> list[list[str]]:
    """The cells of every row of the tables of docs/methods_on_glyphs.md, or of one section alone."""
    lines = RESULTS.read_text(encoding="utf-8").partition(f"\n## {section}\n" if section else "# ")[2]
    lines = (lines.partition("\n## ")[0] if section else lines).splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]


if __name__ == "__main__":
    print(text(sys.argv[1]))
