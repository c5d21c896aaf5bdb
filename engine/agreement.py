"""All processes of a run compute one experiment: at its start their flags, code, packages and data are compared.

Processes with other flags, such as another seed, would exchange gradients of different steps, and end without an error
with weights of neither. torchrun starts the processes of one machine with one command; of several each has its own.
"""

import hashlib
import platform
import sys
from pathlib import Path

import datasets
from engine.ranks import Ranks
from utilities import provenance
from utilities.errors import UserError
from utilities.files import expanded

FILES_OF_FLAGS = "config"  # where flags were read: their values are compared
MOST_SHOWN = 5  # differences in a message
LONGEST = 60  # characters of a value in a message
WAY_OUT = (
    "All processes of a run need the same flags, code, packages and data: "
    "start them with the same command, on equal copies"
)
# Folders whose loaded modules are compared.
FOLDERS = (
    "criteria",
    "batch_mining",
    "datasampler",
    "architectures",
    "datasets",
    "trainers",
    "engine",
    "utilities",
    "metrics",
    "evaluation",
    "runs",
)


def same_on_all(opt):
    """`opt`, the flags. Raises UserError, in all processes, where these differ in flags, files, packages or code."""
    ranks = Ranks()
    if ranks.size > 1:
        _refuse_differences(ranks.everyone({**_flags(opt), **_files(opt), **_versions()}))
    return opt


def same_data(splits: dict) -> dict:
    """`splits`, the data sets. Raises UserError, in all processes, where these differ in images or classes."""
    ranks = Ranks()
    if ranks.size == 1:
        return splits
    record = datasets.record(splits)
    facts = {name: str(record[name]) for name in ("name", "counts", "partial")}
    facts["fingerprint"] = record["fingerprint"]["sha256"]
    facts["classes"] = _digest(str(sorted(record["classes"].items())).encode())
    facts_of_all = ranks.everyone(facts)
    if all(facts_of_rank == facts_of_all[0] for facts_of_rank in facts_of_all):
        return splits
    words = ranks.everyone("; ".join(datasets.differences(ranks.share(record), record)))
    first_facts = facts_of_all[0]
    rank = [theirs != first_facts for theirs in facts_of_all].index(True)
    difference = words[rank] or f"{facts_of_all[rank]['counts']} in place of {first_facts['counts']}"
    raise UserError(f"the data of process {rank} are not those of process 0: {difference}. {WAY_OUT}")


def _flags(opt) -> dict[str, str]:
    """Flag -> its value, of the flags that must be the same: all but paths, devices and numbers of workers.

    Of a file or folder that may lie elsewhere on each machine only whether it is given:
    contents are compared, not places.
    """
    facts = {}
    for name, value in _compared(opt).items():
        role = opt.roles[name]
        if role.moves and value is not None:
            facts[f"--{name}"] = "given"
        elif isinstance(value, bool) or role.name != "place":
            facts[f"--{name}"] = str(value)
    return facts


def _compared(opt) -> dict:
    """Flag -> value, without the keys and passwords, which only the first process uses and no message shows."""
    names = vars(opt).keys() - opt.roles.having(secret=True) - {FILES_OF_FLAGS}
    return {name: getattr(opt, name) for name in sorted(names)}


def _files(opt) -> dict[str, str]:
    """`the file of --flag` -> the digest of its content, of the flags that name a file."""
    facts = {}
    for name, value in _compared(opt).items():
        if isinstance(value, str) and _is_file(value):
            facts[f"the file of --{name}"] = str(provenance.sha256(expanded(value)))
    return facts


def _is_file(value: str) -> bool:
    """Whether a flag's value is the path of a file; a text may be longer than any path."""
    try:
        return expanded(value).is_file()
    except OSError:
        return False


def _versions() -> dict[str, str]:
    """Python, packages and this program's loaded modules -> version, or the digest of the file."""
    facts = {"python": platform.python_version(), **provenance.packages()}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is None or not file.endswith(".py"):
            continue
        path = Path(file)
        if path.parent in (provenance.PROJECT, *(provenance.PROJECT / name for name in FOLDERS)):
            facts[f"{path.relative_to(provenance.PROJECT)}"] = _digest(path.read_bytes())
    return facts


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse_differences(facts_of_all: list[dict[str, str]]) -> None:
    """Raise UserError where a process's facts, name -> value, are not those of the first."""
    first = facts_of_all[0]
    for rank, facts in enumerate(facts_of_all):
        differences = []
        for name in {**first, **facts}:
            # A package or module that only one process has loaded, such as the first one of a search, is no difference.
            is_compared = name.startswith("--") or (name in first and name in facts)
            ours = first.get(name)
            theirs = facts.get(name)
            if is_compared and ours != theirs:
                differences.append(f"{name} is {_shown(ours)} in process 0 and {_shown(theirs)} in process {rank}")
        if not differences:
            continue
        message = "; ".join(differences[:MOST_SHOWN])
        if len(differences) > MOST_SHOWN:
            message += f"; and {len(differences) - MOST_SHOWN} more"
        raise UserError(f"the processes of this run differ: {message}. {WAY_OUT}")


def _shown(value: str | None) -> str:
    """A value in a message, shortened; a digest by its first characters."""
    if value is None:
        return "missing"
    is_digest = len(value) == 64 and set(value) <= set("0123456789abcdef")
    return value[:12] if is_digest else value[:LONGEST] or "empty"
