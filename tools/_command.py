"""What the programs of this folder share: a parser with one-line errors,
and the flags of programs that embed a data set.
"""

import argparse
import sys
from pathlib import Path

import datasets
from engine.ranks import Ranks
from options.flags import shared as shared_flags
from utilities.errors import OneLineParser, UserError
from utilities.numbers import whole

# kinds of files that a chart is drawn to
PICTURES = (".png", ".svg")


def words_of(argv: list[str] | None) -> list[str]:
    """The words of a command line: those given, by default the process's own."""
    return sys.argv[1:] if argv is None else argv


def new_parser(program: str, description: str, **settings) -> OneLineParser:
    """A parser that takes whole flag names only, and reports a mistake in one line."""
    return OneLineParser(prog=program, description=description, allow_abbrev=False, **settings)


def parser_of_page(program: str, page: str) -> OneLineParser:
    """A parser whose help shows a module's docstring as it is."""
    return new_parser(program, page, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_data_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a program that embeds a data set with `engine.runtime.Runtime`: batches, workers, device, data set.

    The parsed namespace also has the settings of data and runtime that such a program does not change.
    """
    add = parser.add_argument
    add("--eval_bs", type=whole(1, 10**6), default=64, help="images per batch (default: 64)")
    add("--eval_kernels", type=whole(0), default=4, help="worker processes that load images (default: 4)")
    add("--gpu", type=whole(0), nargs=1, default=[0], help="which GPU, where there is one (default: 0)")
    shared_flags.add_arguments(parser)
    datasets.REGISTRY.add_arguments(parser)
    parser.set_defaults(precision="float32", clip_grad_norm=None, fold=None)


def check_output(flag: str, path: str | None, *suffixes: str) -> None:
    """Raise UserError if the file that a flag names could not be written, before anything is computed.

    Args:
        path: None: no file. suffixes: of the kinds of files that can be written; none: any.
    """
    if path is None:
        return
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise UserError(f"{flag} {path}: there is no folder {folder}")
    if suffixes and Path(path).suffix.lower() not in suffixes:
        raise UserError(f"{flag} {path}: a {' or '.join(suffixes)} file is expected")


def refuse_torchrun(program: str) -> None:
    """Raise UserError if torchrun started several processes of a program that runs in one."""
    if Ranks().size > 1:
        raise UserError(f"{program} runs in one process: leave out torchrun")
