"""The site's page of each kind of method, from the plug-ins themselves.

A method's section has its caption, paper, formula, flags and its result on the embedded characters; the formula as
docs/formulas.md sets it, if it does, and as the docstring words it. `make docs` writes the pages into the site
(docs/site_hooks.py); `python docs/generate_reference.py losses` prints one.
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
from benchmarks._method_settings import METHODS

FORMULAS = Path(__file__).with_name("formulas.md")
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
# kinds for which docs/formulas.md has formulas
WITH_FORMULAS = ("losses", "metrics")
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
            "three seeds in percent. It shows that a loss learns, and with which settings; it is not a ranking: "
            "[methods_on_glyphs.md](methods_on_glyphs.md).",
            "",
        ]
    groups = {group.title: group for group in parameters.get_parser()._action_groups}
    for name, module in registry.modules().items():
        declared = groups.get(f"{registry.kind} {name}")
        parts += [*_method(kind, name, module), *_flags(declared), *_results(kind, name)]
    if kind == "trainers":
        parts += _memory()
    if kind in generate_methods.NOTES:
        parts += [generate_methods.NOTES[kind], ""]
    return "\n".join(parts)


def names(kind: str) -> list[str]:
    """The methods that have a section of their own."""
    return _registry(kind).names()


def _registry(kind: str):
    return metrics.REGISTRY if kind == "metrics" else parameters.REGISTRIES[kind]


def _method(kind: str, name: str, module) -> list[str]:
    """Heading, caption with its paper, formula, and the rest of the docstrings of class and module."""
    caption, _, module_text = inspect.getdoc(module).partition("\n\n")
    caption = " ".join(caption.split())
    plug_in = getattr(module, CLASSES[kind], None)
    formula, _, class_text = (inspect.getdoc(plug_in) or "").partition("\n\n")
    lines = [f"## `{name}` {{ #{name} }}", "", f"{generate_methods.linked(caption)}.", ""]
    if kind in WITH_FORMULAS:
        lines += [typeset(name), ""]
    if formula.strip():
        lines += ["```text", formula.strip(), "```", ""]
    if kind == "metrics":
        lines += [f"- `{metric}`: {plain(meaning)}" for metric, meaning in plug_in.NAMES.items()]
        lines.append("")
    lines += prose(class_text) + prose(module_text)
    if kind == "losses":
        lines += [_needs(module), ""]
    return lines


def typeset(name: str) -> str:
    """The section of a loss or of a family of metrics in docs/formulas.md; empty if there is none."""
    section = FORMULAS.read_text(encoding="utf-8").partition(f"\n### `{name}`\n")[2]
    return re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0].strip()


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
    # The parts at odd places are code.
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [SPECIAL.sub(r"\\\1", part).replace("\\<", "&lt;") for part in parts[::2]]
    return re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", "".join(parts))


def _needs(module) -> str:
    """What a loss requires of the command beside its own flags."""
    miner = "Takes no miner"
    if module.REQUIRES_BATCHMINER:
        miner = "Needs a miner, `--batch_mining`"
        allowed = ", ".join(f"`{name}`" for name in module.ALLOWED_MINING_OPS or ())
        if allowed:
            miner += f": {allowed}"
    optimiser = "Has parameters of its own" if module.REQUIRES_OPTIM else "Has no parameters"
    return f"{miner}. {optimiser}."


def _flags(group) -> list[str]:
    if group is None or not group._group_actions:
        return []
    return [*generate_flags.table(group._group_actions), ""]


def _results(kind: str, name: str) -> list[str]:
    """The rows of docs/methods_on_glyphs.md for a loss, a trainer, a miner or a sampler."""
    if kind == "trainers":
        return _table(_beside_its_base(f"--trainer {name}"), "every-trainer-compared-with-metric_only")
    if kind == "miners":
        rows = results("Every miner")
        for loss, flags, *values in of_losses():
            rows.append([f"`--loss {loss.strip('`')} {flags.strip('`')}`", "–", *values[:2]])
        return _table(_with_flag(rows, f"--batch_mining {name}"), "every-miner")
    if kind == "samplers":
        return _table(_with_flag(results("Every sampler"), f"--data_sampler {name}"), "every-sampler")
    if kind != "losses":
        return []
    for loss, flags, recall, map_r, _ in of_losses():
        if loss == f"`{name}`":
            settings = _settings(flags.strip("`"))
            return [
                f"On the embedded characters, with {settings}: e_recall@1 **{recall}**, map_r **{map_r}**.",
                "",
            ]
    command = ""
    if name in METHODS:
        command = f": with {_settings(METHODS[name])}, `python benchmarks/methods.py --only {name}` runs it"
    return [f"On the embedded characters: not run yet{command}.", ""]


def _with_flag(rows: list[list[str]], words: str) -> list[list[str]]:
    """The rows whose command has a flag with this value."""
    return [row for row in rows if re.search(rf"{words}[ `]", row[0])]


def _memory() -> list[str]:
    """The section of the cross-batch memory, which works with several trainers."""
    table = _table(_beside_its_base("--memory_size"), "cross-batch-memory-on-small-batches")
    text = (
        "Each batch is also compared with the last N embeddings: "
        "[training_methods.md](training_methods.md#cross-batch-memory---memory_size-n)."
    )
    return ["## Cross-batch memory, `--memory_size N` { #memory }", "", text, "", *table]


def _table(rows: list[list[str]], anchor: str) -> list[str]:
    """Rows of docs/methods_on_glyphs.md below a link to their table; nothing without rows."""
    if not rows:
        return []
    link = f"[On the embedded characters](methods_on_glyphs.md#{anchor}), in percent:"
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [link, "", "| flags | embedding | e_recall@1 | map_r |", "|-|-|-|-|", *lines, ""]


def _beside_its_base(flag: str) -> list[list[str]]:
    """The rows with a flag, each after the row of the same flags without it."""
    rows = []
    base = None
    # the base of the last row that was taken
    last_base = None
    for row in results():
        if not row[0].startswith("the same with"):
            base = row
        if flag in row[0]:
            if base is not last_base:
                rows.append(base)
            rows.append(row)
            last_base = base
    return rows


def _settings(flags: str) -> str:
    return f"`{flags}`" if flags.strip("–") else "its defaults"


def of_losses() -> list[list[str]]:
    """The rows of the table of losses: name, flags, e_recall@1, map_r, seconds; without those of other packages."""
    return [row for row in results() if len(row) == 5 and row[1].startswith("`")]


def results(section: str = "") -> list[list[str]]:
    """The cells of every row of the tables of docs/methods_on_glyphs.md, or of one section alone."""
    text = RESULTS.read_text(encoding="utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows]


if __name__ == "__main__":
    print(text(sys.argv[1]))
