"""Errors that are the user's to mend: one line, no traceback."""

import argparse
import contextlib
import os
import sys


class UserError(Exception):
    """A mistake of the user's: the message gives the value, the rule and the way out. Scripts print it and exit with 2."""


class NotFinite(UserError):
    """A network gave NaN or infinity: nothing can be trained or measured with it any more."""


class UnknownName(UserError, LookupError):
    """A name that no registry holds; the message names the nearest match and what is available."""


class OneLineParser(argparse.ArgumentParser):
    """A command line whose mistakes are one line, without the usage, and exit status 2; where `exits` is set to False, UserError."""

    exits = True

    def error(self, message):
        """End the program with the line `<prog>: error: <message>`, or raise UserError."""
        if not self.exits:
            raise UserError(message)
        self.exit(2, f"{self.prog}: error: {message}\n")


@contextlib.contextmanager
def one_line_errors(program: str = "main.py"):
    """A user's mistake ends the program with one line and status 2 instead of a traceback."""
    try:
        yield
    except BrokenPipeError:  # `main.py --list losses | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted before training began", file=sys.stderr)
        sys.exit(130)
    except UserError as error:
        # A loader's worker process wraps its error in a traceback of its own; the last line is the message.
        print(f"{program}: error: {str(error).strip().splitlines()[-1].removeprefix('utilities.errors.UserError: ')}", file=sys.stderr)
        sys.exit(2)
