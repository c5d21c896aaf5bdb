"""Errors that are the user's to mend: one line, no traceback."""


class UserError(Exception):
    """A mistake of the user's: the message gives the value, the rule and the way out. Scripts print it and exit with 2."""


class NotFinite(UserError):
    """A network gave NaN or infinity: nothing can be trained or measured with it any more."""


class UnknownName(UserError, LookupError):
    """A name that no registry holds; the message names the nearest match and what is available."""
