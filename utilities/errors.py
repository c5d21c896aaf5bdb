"""Errors that are the user's to mend: one line, no traceback."""

import argparse


class UserError(Exception):
    """A mistake of the user's: the message gives the value, the rule and the way out. Scripts print it and exit with 2."""


class NotFinite(UserError):
    """A network gave NaN or infinity: nothing can be trained or measured with it any more."""


class UnknownName(UserError, LookupError):
    """A name that no registry holds; the message names the nearest match and what is available."""


class OneLineParser(argparse.ArgumentParser):
    """A command line whose mistakes are one line, without the usage, and exit status 2."""

    def error(self, message):
        """End the program with the line `<prog>: error: <message>`."""
        self.exit(2, f"{self.prog}: error: {message}\n")
