"""A folder of plug-ins: names, captions, flags, defaults for foreign programs."""

import argparse
import importlib
import os
import sys

import pytest

from tests.kit.refusals import refused
from utilities import registry as registries
from utilities.errors import UnknownName, UserError
from utilities.registry import Registry

HELPER = """
def add_arguments(group):
    group.add_argument("--toy_seed", type=int, default=7)
"""
BALL = '''"""A ball (Round et al., 1901)."""

def add_arguments(group):
    group.add_argument("--toy_ball_radius", type=float, default=0.5)
    group.add_argument("--toy_ball_colour", choices=["red", "blue"], default="red")
'''


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Of a package `made_toys` with a helper and two plug-ins."""
    folder = tmp_path / "made_toys"
    folder.mkdir()
    for name, source in {"__init__": "", "_shared": HELPER, "ball": BALL, "kite": '"""A kite."""\n'}.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return Registry("made_toys", "toy")


def test_plugins_are_the_files_without_an_underscore_and_captions_cost_no_import(registry):
    assert registry.names() == ["ball", "kite"]
    assert [module.__name__ for module in registry.modules().values()] == ["made_toys.ball", "made_toys.kite"]
    (registry.folder / "broken.py").write_text('"""Broken."""\nraise RuntimeError\n')
    (registry.folder / "bare.py").write_text("x = 1\n")
    captions = [registry.caption(name) for name in ("ball", "broken", "bare")]
    assert captions == ["A ball (Round et al., 1901).", "Broken.", ""]


def test_an_unknown_name_comes_with_the_nearest_and_with_all(registry):
    with pytest.raises(UnknownName, match=r"^unknown toy 'bal'\. Did you mean 'ball'\? Available: ball, kite\.$"):
        registry.module("bal")
    with pytest.raises(UnknownName, match=r"^unknown toy '_shared'\. Available: ball, kite\.$"):
        registry.module("_shared")


def test_flags_stand_in_groups(registry):
    parser = argparse.ArgumentParser()
    registry.add_arguments(parser)
    assert vars(parser.parse_args([])) == {"toy_seed": 7, "toy_ball_radius": 0.5, "toy_ball_colour": "red"}
    titles = [group.title for group in parser._action_groups]
    assert titles[-2:] == ["made_toys", "toy ball"]


def test_options_are_defaults_then_namespace_then_flags(registry):
    assert (registry.options().toy_ball_radius, registry.options().bs) == (0.5, 112)
    opt = argparse.Namespace(toy_ball_radius=1.0, toy_seed=1, of_a_user="kept")
    complete = registry.options(opt, toy_seed=2)
    assert (complete.toy_ball_radius, complete.toy_seed, complete.of_a_user) == (1.0, 2, "kept")
    assert opt.toy_seed == 1, "the namespace given is left alone"
    assert registry.options(complete) is complete, "nothing to add"
    source = 'def add_arguments(group):\n    group.add_argument("--toy_top_speed", default=3)\n'
    (registry.folder / "top.py").write_text(source)
    assert registry.options().toy_top_speed == 3, "a new file is seen"


def test_flags_and_values_that_do_not_exist(registry):
    with refused(r"unknown flag 'toy_ball_radios'\. Did you mean 'toy_ball_radius'\?"):
        registry.options(toy_ball_radios=1.0)
    with refused("toy_ball_colour 'green': one of red, blue"):
        registry.options(toy_ball_colour="green")
    assert registry.options(n_classes=3, device="cpu").n_classes == 3, "known though no flag"


@pytest.fixture
def broken(registry, capsys, monkeypatch):
    """Two more files that cannot be imported."""
    monkeypatch.setattr(sys, "argv", ["main.py"])
    monkeypatch.setattr(registries, "_SAID", set())
    (registry.folder / "halfdone.py").write_text('"""Half done."""\nimport no_such_package\n')
    (registry.folder / "slip.py").write_text("def half(:\n")
    (registry.folder / "stops.py").write_text('"""Stops."""\nraise SystemExit\n')
    return registry


NO_PACKAGE = "made_toys/halfdone.py cannot be imported: line 2: ModuleNotFoundError: No module named 'no_such_package'"


def test_a_plug_in_that_cannot_be_imported_stops_only_who_names_it(broken, capsys):
    assert broken.names() == ["ball", "halfdone", "kite", "slip", "stops"]
    assert list(broken.modules()) == ["ball", "kite"]
    assert [broken.caption(name) for name in ("halfdone", "slip")] == ["Half done.", "cannot be imported"]
    assert broken.flags() == {"toy_seed", "toy_ball_radius", "toy_ball_colour"} and broken.flags("halfdone") == set()
    assert broken.options().toy_ball_radius == 0.5 and broken.derived("ball", broken.options()) == {}
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"note: {NO_PACKAGE}: it is left out",
        "note: made_toys/slip.py cannot be imported: line 1: SyntaxError: invalid syntax: it is left out",
        "note: made_toys/stops.py cannot be imported: line 2: SystemExit: it is left out",
    ], "each once"
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            broken.module("halfdone")
        assert str(caught.value) == NO_PACKAGE
    assert broken.module("kite").__doc__ == "A kite."


def test_a_plug_in_that_is_mended_is_imported(broken):
    with refused("slip.py cannot be imported"):
        broken.module("slip")
    path = broken.folder / "slip.py"
    path.write_text('"""A slip."""\n')
    os.utime(path, ns=(1, 1))
    importlib.invalidate_caches()
    assert broken.module("slip").__doc__ == "A slip."


@pytest.mark.parametrize("words", ["--toy halfdone", "--toy=halfdone"])
def test_who_names_it_gets_one_line(broken, capsys, monkeypatch, words):
    monkeypatch.setattr(sys, "argv", ["main.py", *words.split()])
    broken.modules()
    assert "halfdone" not in capsys.readouterr().err


def test_a_value_of_another_flag_names_no_plug_in(broken, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", "main.py --group halfdone --savename=slip".split())
    broken.modules()
    lines = capsys.readouterr().err
    assert NO_PACKAGE in lines and "slip.py" in lines


def test_the_caption_of_a_file_in_another_encoding(registry):
    text = '# -*- coding: latin-1 -*-\n"""Größe."""\n'
    (registry.folder / "size.py").write_bytes(text.encode("latin-1"))
    assert registry.caption("size") == "Größe."
