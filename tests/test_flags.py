"""The contract of the flags: what is read is declared, what is declared is read, a plug-in's own flags bear its
prefix.
"""

import argparse
import ast
import functools
import importlib
from pathlib import Path

import pytest

import architectures
import batch_mining
import criteria
import datasampler
import datasets
import parameters
import trainers
from options.flags import plug_ins
from options.flags import shared as shared_flags
from options.options import Options
from tests.test_imports import parsed

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "options runs utilities engine criteria batch_mining datasampler architectures trainers datasets metrics evaluation"
)
SOURCES = [ROOT / "main.py", ROOT / "parameters.py"]
SOURCES += [path for folder in FOLDERS.split() for path in (ROOT / folder).rglob("*.py")]
NAMESPACES = ("opt", "self.opt", "options", "derived", "run.opt", "self._opt")
DECLARED = set(vars(parameters.get_parser().parse_args([])))
# what the namespace knows beside the flags
HANDED_AROUND = {name for name in dir(Options) if not name.startswith("_")}


def flags_read(path: Path) -> set[str]:
    """Names read from something called opt, options or self.opt, also by getattr with a literal."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and dotted(node.value) in NAMESPACES:
            names.add(node.attr)
        if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and dotted(node.args[0]) in NAMESPACES:
            if isinstance(node.args[1], ast.Constant):
                names.add(node.args[1].value)
            elif isinstance(node.args[1], ast.JoinedStr):
                # a name such as f"loss_{opt.loss}_margin"
                names.add("*")
    return names


def dotted(node: ast.expr) -> str:
    """`a` or `a.b` as text, nothing of other expressions."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def attributes_and_texts(path: Path) -> set:
    """What a file reads of `self`, and its constants but the keys of its table of flags."""
    tree = parsed(path)
    tables = [node.value for node in tree.body if isinstance(node, ast.Assign) and dotted(node.targets[0]) == "FLAGS"]
    keys = {key for table in tables for key in table.keys}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node.value) == "self" and isinstance(node.ctx, ast.Load):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and node not in keys:
            names.add(node.value)
    return names


def table_flags_read(module) -> set[str]:
    """The flags of a plug-in's table that its file, or a base of its folder, reads: `self.margin`, "margin"."""
    path = Path(module.__file__)
    names = set().union(*map(attributes_and_texts, [path, *path.parent.glob("_*.py")]))
    flags = [name for name, flag in module.FLAGS.items() if (flag.attribute or name) in names]
    return {plug_ins.flag_name(module.__name__, name) for name in flags}


def test_every_flag_read_is_declared_and_every_declared_one_is_read():
    read = {path: flags_read(path) for path in SOURCES}
    readable = DECLARED | shared_flags.DERIVED | HANDED_AROUND | {"*"}
    assert not {path: names - readable for path, names in read.items() if names - readable}
    modules = [module for folder in PREFIXES for module in folder.REGISTRY.modules().values()]
    of_tables = [table_flags_read(module) for module in modules if hasattr(module, "FLAGS")]
    weights = {name for name, role in parameters.declared_roles().items() if role.weighs}
    unread = DECLARED - weights.union(*read.values(), *of_tables)
    assert not unread, f"declared, but nobody reads them: {sorted(unread)}"


PREFIXES = {
    criteria: ("loss_{}_",),
    batch_mining: ("miner_{}_",),
    datasampler: ("data_",),
    architectures: ("arch_",),
    # cub_ is the prefix of cub200, cascade_ that of the trainer cascaded
    datasets: ("dataset_", "data_", "{}_", "cub_"),
    trainers: ("{}_", "cascade_"),
}


def test_a_plug_ins_own_flags_bear_its_prefix_and_every_flag_has_a_help_text():
    for folder, prefixes in PREFIXES.items():
        for name, module in folder.REGISTRY.modules().items():
            parser = argparse.ArgumentParser(add_help=False)
            plug_ins.declare(module, parser)
            starts = tuple(prefix.format(name) for prefix in prefixes)
            for flag in vars(parser.parse_args([])):
                assert flag == name or flag.startswith(starts), f"{name}: --{flag}"
    assert [action.option_strings for action in parameters.get_parser()._actions if not action.help] == []


@pytest.mark.parametrize("name", ["generate_flags", "generate_methods", "generate_python"])
def test_generated_pages_are_current(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = importlib.import_module(name)
    assert generate.TARGET.read_text(encoding="utf-8") == generate.text(), f"run: python docs/{name}.py"
