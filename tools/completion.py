"""Completion of flags and names by the Tab key: `python -m tools.completion bash`, or `zsh`, prints the shell's script.

`make completion` writes both to build/completion/. The script completes `dmlkit`, and in bash `python main.py` too. It
holds the flags and plug-ins of the moment when it was made; shtab writes it from the parser.
"""

import argparse
import copy

import parameters
from utilities.errors import OneLineParser, one_line_errors
from utilities.programs import IS_PACKAGE

PROGRAM = "python -m tools.completion"
# flag -> the plug-ins that it names
LISTS = {
    "dataset": "datasets",
    "arch": "architectures",
    "trainer": "trainers",
    "loss": "losses",
    "batch_mining": "miners",
    "data_sampler": "samplers",
    "evaluation_metrics": "metrics",
}
BASH_CLONE = """
# of a clone: python main.py
_dmlkit_in_a_clone() {
  if [[ ${COMP_WORDS[1]} == *main.py && COMP_CWORD -gt 1 ]]; then
    COMP_WORDS=(dmlkit "${COMP_WORDS[@]:2}")
    COMP_CWORD=$((COMP_CWORD - 1))
    _shtab_dmlkit
  else
    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
  fi
}
complete -o filenames -F _dmlkit_in_a_clone python python3
"""


def script(shell: str) -> str:
    """The completion script of `bash` or `zsh`."""
    import shtab

    parser = argparse.ArgumentParser("dmlkit", add_help=False)
    for action in parameters.get_parser()._actions:
        parser._add_action(_with_completion(action, shtab))
    text = shtab.complete(parser, shell)
    if shell == "bash" and not IS_PACKAGE:
        text += BASH_CLONE
    return text


def _with_completion(action: argparse.Action, shtab) -> argparse.Action:
    """A copy of an action with its choices, or by which files are completed where its value is one."""
    action = copy.copy(action)
    if action.dest in LISTS:
        action.choices = [name for name, _ in parameters.listing(LISTS[action.dest]) if " " not in name]
    elif action.metavar == "FILE":
        action.complete = shtab.FILE
    elif action.metavar in ("FOLDER", "DIR"):
        action.complete = shtab.DIRECTORY
    return action


def main(argv: list[str] | None = None) -> None:
    """Print the script."""
    parser = OneLineParser(prog=PROGRAM, description="Print the shell script that completes flags and names.")
    parser.add_argument("shell", choices=["bash", "zsh"])
    print(script(parser.parse_args(argv).shell))


if __name__ == "__main__":
    with one_line_errors(PROGRAM):
        main()
