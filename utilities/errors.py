"""Errors that are the user's to mend: one line, no traceback."""

import argparse
import contextlib
import os
import signal
import sys
import threading


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
def terminable():
    """Inside, SIGTERM, with which clusters end a job, is a Ctrl-C: it raises KeyboardInterrupt. A second one kills, as ever.

    Nothing changes outside the main thread, or where the program handles SIGTERM already.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def one_line_errors(program: str = "main.py"):
    """A user's mistake ends the program with one line and status 2 instead of a traceback."""
    try:
        with terminable():
            yield
    except BrokenPipeError:  # `main.py --list losses | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted before training began", file=sys.stderr)
        sys.exit(130)
    except RuntimeError as error:  # torch tells of a lost worker whatever is being done: in the step as well as in the loader
        from utilities.loading import lost_worker  # which raises this module's errors

        lost = lost_worker(error)
        if lost is None:
            raise
        print(f"{program}: error: {lost}", file=sys.stderr)
        sys.exit(2)
    except UserError as error:
        # A loader's worker process wraps its error in a traceback of its own; the last line is the message.
        print(f"{program}: error: {str(error).strip().splitlines()[-1].removeprefix('utilities.errors.UserError: ')}", file=sys.stderr)
        sys.exit(2)
