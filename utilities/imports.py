"""Imports of the program's own modules, turned into those of the package that holds them.

`from criteria import triplet` becomes `from dmlkit.criteria import triplet`. The build of the package rewrites the
program's files so, and the package the plug-ins of its users, which thus are the same files in a clone.
"""

import ast
import io

PACKAGE = "dmlkit"
FOLDERS = (
    *("appraise", "architectures", "batch_mining", "configs", "criteria", "datasampler", "datasets", "engine"),
    *("evaluation", "launch", "metrics", "options", "pictures", "results", "retrieval", "runs", "search", "tools"),
    *("trainers", "utilities"),
)
FILES = ("Result_Evaluations", "main", "parameters")
NAMES = frozenset([*FOLDERS, *FILES])  # what the package holds of the program
ROOMS = (*(name for name in FOLDERS if name != "configs"), "parameters")  # `dmlkit.<name>`, imported at its first use
PUBLIC = {  # further names of the package -> the modules that have them
    "Callback": "training",
    "Run": "training",
    "TrainingRun": "training",
    "UserError": "utilities.errors",
    "train": "training",
    "use_plugins": "training",
}


def in_package(source: str, filename: str) -> str:
    """A file's text with its absolute imports of the program as those of the package.

    All other text stays, line by line. Raises SyntaxError, with `filename`, for what is no Python.
    """
    # lines as `ast` counts them: only \n, \r and \r\n end one
    lines = io.StringIO(source, newline="").readlines()
    tree = ast.parse(source, filename)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in sorted(statements, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        text = _from_import(node) if isinstance(node, ast.ImportFrom) else _import(node)
        if text is not None:
            _replace(lines, node, text)
    return "".join(lines)


def _is_own(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in NAMES


def _from_import(node: ast.ImportFrom) -> str | None:
    """The text of `from room import name` in the package; None where it stays."""
    if node.level or not _is_own(node.module):
        return None
    return ast.unparse(ast.ImportFrom(f"{PACKAGE}.{node.module}", node.names, 0))


def _import(node: ast.Import) -> str | None:
    """The text of `import room` in the package, several statements in one line; None where it stays."""
    if not any(_is_own(alias.name) for alias in node.names):
        return None
    statements = []
    for alias in node.names:
        room, _, submodule = alias.name.partition(".")
        if room not in NAMES:
            statements.append(ast.unparse(ast.Import([alias])))
        elif alias.asname and submodule:
            statements.append(f"import {PACKAGE}.{alias.name} as {alias.asname}")
        elif alias.asname:
            statements.append(f"from {PACKAGE} import {room} as {alias.asname}")
        else:
            if submodule:
                statements.append(f"import {PACKAGE}.{alias.name}")
            statements.append(f"from {PACKAGE} import {room}")
    return "; ".join(statements)


def _replace(lines: list[str], node: ast.stmt, text: str) -> None:
    """Put `text` in the place of a statement; its further lines become empty, so that line numbers stay."""
    first = lines[node.lineno - 1].encode()
    last = lines[node.end_lineno - 1].encode()
    head = first[: node.col_offset].decode()
    tail = last[node.end_col_offset :].decode()
    n_more = node.end_lineno - node.lineno
    if n_more:
        tail = tail + "\n" * n_more
    lines[node.lineno - 1 : node.end_lineno] = [head + text + tail]
