"""Users' plug-ins beside the program: `--plugins FOLDER` makes FOLDER/criteria/mine.py the loss `mine`.

The folder of each kind, `criteria/` or `datasets/`, joins the program's own as a further folder of the same package, so
that its files are found, imported and listed as the program's own files are. The installed commands also take those
that lie in the current folder, but for `datasets/` and `metrics/`, names that folders of other use have too; a program
that imports the package does not.

A plug-in is code. Its folder comes from the command line, from no file and no saved run.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

from utilities import imports, programs
from utilities.errors import UserError

PACKAGES = ("architectures", "batch_mining", "criteria", "datasampler", "datasets", "metrics", "trainers")
TAKEN_FROM_CURRENT_FOLDER = ("architectures", "batch_mining", "criteria", "datasampler", "trainers")
FLAG = "--plugins"

# folders that `use` was given, in addition to those of the command line
_folders = []


def use(words: list[str]) -> None:
    """Take the plug-ins of the folders that a command line names.

    Args:
        words: of the command line.

    Raises UserError for a folder that does not exist or holds no plug-ins, and for a file with the name of one of the
    program's own.
    """
    for name in _named(words):
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise UserError(f"{FLAG} {name}: no such folder")
        if not any((folder / package).is_dir() for package in PACKAGES):
            raise UserError(f"{FLAG} {name}: holds none of the folders {', '.join(PACKAGES)}, where plug-ins lie")
        _refuse_names_of_the_program(folder)
        if folder.resolve() not in _folders:
            _folders.append(folder.resolve())
    for package in PACKAGES:
        extend(package)


def extend(package: str) -> None:
    """Add users' folders of one kind to the package of that name, once it is imported."""
    module = sys.modules.get(programs.module_name(package))
    if module is None:
        return
    path = module.__path__
    for folder in _folders_of(package):
        if folder.is_dir() and str(folder) not in path:
            path.append(str(folder))


def files() -> dict[str, Path]:
    """`criteria/mine.py` -> the file, of the Python files in users' folders."""
    files = {}
    for package in PACKAGES:
        for folder in _folders_of(package):
            for file in sorted(folder.glob("*.py")):
                files.setdefault(f"{package}/{file.name}", file)
    return files


def _folders_of(package: str) -> list[Path]:
    named = [Path(name).expanduser() for name in _named(sys.argv[1:])]
    if programs.is_command() and package in TAKEN_FROM_CURRENT_FOLDER:
        named.append(Path.cwd())
    return [(folder / package).resolve() for folder in dict.fromkeys([*_folders, *named])]


def _named(words: list[str]) -> list[str]:
    """The values of --plugins in a command line, as argparse reads them."""
    names = []
    is_value = False
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("--"):
            is_value = flag == FLAG and not equals
            if flag == FLAG and equals:
                names.append(value)
        elif is_value:
            names.append(word)
    return names


def _refuse_names_of_the_program(folder: Path) -> None:
    for package in PACKAGES:
        own_folder = Path(importlib.util.find_spec(programs.module_name(package)).origin).parent
        for file in sorted((folder / package).glob("*.py")):
            if (own_folder / file.name).exists() and own_folder.resolve() != file.parent.resolve():
                raise UserError(f"{FLAG}: {file}: the program has a file of this name: give yours another name")


class _PlugInLoader(importlib.machinery.SourceFileLoader):
    """Loads a user's plug-in into the installed package: what it imports of the program is found in the package."""

    @property
    def _is_plug_in(self) -> bool:
        # an application may have packages of these names of its own
        return self.name.startswith(programs.PREFIX)

    def source_to_code(self, data, path, *, _optimize=-1):
        if self._is_plug_in:
            data = imports.in_package(importlib.util.decode_source(data), path)
        return super().source_to_code(data, path, _optimize=_optimize)

    def path_stats(self, path):
        if self._is_plug_in:
            # Without them Python keeps no compiled file beside the plug-in, which a clone would read too.
            raise OSError
        return super().path_stats(path)


def _finder(path: str):
    """Path hook: a finder for users' folders of plug-ins. Raises ImportError for others."""
    folder = Path(path)
    if folder.name not in PACKAGES or folder not in _folders_of(folder.name):
        raise ImportError(path)
    return importlib.machinery.FileFinder(path, (_PlugInLoader, [".py"]))


if programs.IS_PACKAGE:
    sys.path_hooks.insert(0, _finder)
