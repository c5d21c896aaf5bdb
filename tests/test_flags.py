"""The contract of the flags: what is read is declared, what is declared is read, a plug-in's own flags bear its
prefix.
"""

import argparse
import ast
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

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = [
    "options",
    "runs",
    "utilities",
    "engine",
    "criteria",
    "batch_mining",
    "datasampler",
    "architectures",
    "trainers",
    "datasets",
    "metrics",
    "evaluation",
]
SOURCES = [
    ROOT / "main.py",
    ROOT / "parameters.py",
    *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")),
]
DECLARED = set(vars(parameters.get_parser().parse_args([])))
# what the namespace knows beside the flags
HANDED_AROUND = {name for name in dir(Options) if not name.startswith("_")}


def flags_read(path: Path) -> set[str]:
    """Names read from something called opt, options or self.opt, also by getattr with a literal."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in (
            "opt",
            "self.opt",
            "options",
            "derived",
            "run.opt",
            "self._opt",
        ):
            found.add(node.attr)
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "getattr"
            and ast.unparse(node.args[0]) in ("opt", "self.opt")
        ):
            if isinstance(node.args[1], ast.Constant):
                found.add(node.args[1].value)
            elif isinstance(node.args[1], ast.JoinedStr):  # f"loss_{opt.loss}_margin"
                found.add("*")
    return found


def attributes_read(module) -> set[str]:
    """The flags of a plug-in's table that its file, or a base of its folder, reads: `self.margin`, "margin"."""
    folder = Path(module.__file__).parent
    read = set()
    for path in [Path(module.__file__), *folder.glob("_*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tables = [node.value for node in tree.body if isinstance(node, ast.Assign) and is_table(node)]
        keys = {key for table in tables for key in table.keys}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self" and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and node not in keys:
                read.add(node.value)
    return {
        plug_ins.flag_name(module.__name__, name)
        for name, flag in module.FLAGS.items()
        if (flag.attribute or name) in read
    }


def is_table(assignment: ast.Assign) -> bool:
    """Whether a statement is `FLAGS = {…}`."""
    return [ast.unparse(target) for target in assignment.targets] == ["FLAGS"]


def test_every_flag_read_is_declared_and_every_declared_one_is_read():
    read = {path: flags_read(path) for path in SOURCES}
    unknown = {
        str(path): names
        for path, found in read.items()
        if (names := found - DECLARED - shared_flags.DERIVED - HANDED_AROUND - {"*"})
    }
    assert not unknown
    with_tables = [
        module for folder in PREFIXES for module in folder.REGISTRY.modules().values() if hasattr(module, "FLAGS")
    ]
    dead = (
        DECLARED
        - set().union(*read.values(), *map(attributes_read, with_tables))
        - {name for name, role in parameters.declared_roles().items() if role.weighs}
    )
    assert not dead, f"declared, but nobody reads them: {sorted(dead)}"


PREFIXES = {
    criteria: ("loss_{}_",),
    batch_mining: ("miner_{}_",),
    datasampler: ("data_",),
    architectures: ("arch_",),
    datasets: ("dataset_", "data_", "{}_", "cub_"),
    trainers: ("{}_", "cascade_"),  # of cub200; of the trainer cascaded
}


def test_a_plug_ins_own_flags_bear_its_prefix_and_every_flag_has_a_help_text():
    for folder, prefixes in PREFIXES.items():
        for name, module in folder.REGISTRY.modules().items():
            parser = argparse.ArgumentParser(add_help=False)
            plug_ins.declare(module, parser)
            for flag in vars(parser.parse_args([])):
                assert flag == name or flag.startswith(tuple(prefix.format(name) for prefix in prefixes)), (
                    f"{name}: --{flag}"
                )
    assert [action.option_strings for action in parameters.get_parser()._actions if not action.help] == []


@pytest.mark.parametrize("name", ["generate_flags", "generate_methods", "generate_python"])
def test_generated_pages_are_current(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = importlib.import_module(name)
    assert generate.TARGET.read_text(encoding="utf-8") == generate.text(), f"run: python docs/{name}.py"
