"""The contract of the flags: what is read is declared, what is declared is read, a plug-in's own flags bear its prefix."""

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
import options
import parameters
import trainers
from utilities import flags as shared_flags

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [
    path
    for pattern in ("main.py", "parameters.py", "options/*.py", "runs/**/*.py", "utilities/**/*.py", "training/*.py", "criteria/*.py", "batch_mining/*.py", "datasampler/*.py",
                    "architectures/*.py", "trainers/*.py", "datasets/*.py", "metrics/*.py", "evaluation/*.py")
    for path in ROOT.glob(pattern)
]  # fmt: skip
DECLARED = set(vars(parameters.get_parser().parse_args([])))
HANDED_AROUND = {name for name in dir(options.Options) if not name.startswith("_")}  # what the namespace knows beside the flags


def flags_read(path: Path) -> set[str]:
    """Names read from something called opt, options or self.opt, also by getattr with a literal."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("opt", "self.opt", "options", "derived", "run.opt", "self._opt"):
            found.add(node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and ast.unparse(node.args[0]) in ("opt", "self.opt"):
            if isinstance(node.args[1], ast.Constant):
                found.add(node.args[1].value)
            elif isinstance(node.args[1], ast.JoinedStr):  # f"loss_{opt.loss}_margin"
                found.add("*")
    return found


def test_every_flag_read_is_declared():
    for path in SOURCES:
        unknown = flags_read(path) - DECLARED - shared_flags.DERIVED - HANDED_AROUND - {"*"}
        assert not unknown, f"{path}: {unknown}"


def test_every_declared_flag_is_read():
    read = set().union(*(flags_read(path) for path in SOURCES))
    dead = DECLARED - read - {name for name, role in parameters.declared_roles().items() if role.weighs}
    assert not dead, f"declared, but nobody reads them: {sorted(dead)}"


@pytest.mark.parametrize(
    ("registry", "prefixes"),
    [
        (criteria.REGISTRY, ("loss_{}_",)),
        (batch_mining.REGISTRY, ("miner_{}_",)),
        (datasampler.REGISTRY, ("data_",)),
        (architectures.REGISTRY, ("arch_",)),
        (datasets.REGISTRY, ("dataset_", "data_", "{}_", "cub_")),  # of cub200
        (trainers.REGISTRY, ("{}_", "cascade_")),  # of the trainer cascaded
    ],
    ids=lambda value: getattr(value, "package", None),
)
def test_a_plug_ins_own_flags_bear_its_prefix(registry, prefixes):
    for name, module in registry.modules().items():
        parser = argparse.ArgumentParser(add_help=False)
        if hasattr(module, "add_arguments"):
            module.add_arguments(parser)
        for flag in vars(parser.parse_args([])):
            assert flag == name or flag.startswith(tuple(prefix.format(name) for prefix in prefixes)), f"{name}: --{flag}"


def test_every_flag_has_a_help_text_and_no_abbreviation_works(capsys):
    for action in parameters.get_parser()._actions:
        assert action.help, action.option_strings
    with pytest.raises(SystemExit) as stop:
        parameters.read(["--los", "triplet"])
    assert stop.value.code == 2
    assert "--loss" in capsys.readouterr().err


def test_flags_md_is_current(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = importlib.import_module("generate_flags")
    assert generate.TARGET.read_text(encoding="utf-8") == generate.text(), "run: python docs/generate_flags.py"


def test_methods_md_is_current(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = importlib.import_module("generate_methods")
    assert generate.TARGET.read_text(encoding="utf-8") == generate.text(), "run: python docs/generate_methods.py"
