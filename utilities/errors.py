"""Errors that the user can correct: one line, no traceback."""

import argparse
import contextlib
import errno
import os
import re
import signal
import sys
import threading

from utilities import extras
from utilities.numbers import OutOfRange
from utilities.programs import as_typed
from utilities.secrets import mask_urls

# torch's words
NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "CUDA out of memory",
    "Storage size calculation overflowed",
)
# What the system refuses, whatever the program does: names that are too long, a full or failing disk, missing
# permissions.
OF_THE_SYSTEM = {
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ESTALE,
    errno.EMFILE,
    errno.ENFILE,
}
_LOST_WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal: ([^.]*)|exited unexpectedly)"
)


class UserError(Exception):
    """A mistake of the user's: the message gives the value, the rule and the way out. Scripts print it and exit with
    2.
    """


class NotFinite(UserError):
    """A network gave NaN or infinity: nothing can be trained or measured with it any more."""


class BrokenImage(UserError):
    """An image that cannot be read or decoded."""


class UnknownName(UserError, LookupError):
    """A name that no registry holds; the message names the nearest match and what is available."""


class _BadValue(argparse.ArgumentError):
    """A value that a flag does not take: `--flag value must be …`."""

    def __str__(self):
        return f"{self.argument_name} {self.message}"


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line, without the usage, and exits with status 2;
    with `exits = False` it raises UserError.
    """

    exits = True

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.prog = as_typed(self.prog)

    def _get_value(self, action, text):
        """Convert a value, also of a file or a saved run. Refuses text that is not UTF-8, and numbers out of range,
        with the rule.
        """
        try:
            text.encode()
            return super()._get_value(action, text)
        except UnicodeEncodeError:
            raise _BadValue(
                action, f"{text!a} holds a byte or half a character that is no text: write it in UTF-8"
            ) from None
        except argparse.ArgumentError as error:
            if text.lower() in ("null", "none"):
                raise _BadValue(action, f"{text}: leave the flag out, or write null in a file of --config") from None
            if not isinstance(error.__context__, OutOfRange):
                raise
            raise _BadValue(action, f"{text.strip()} {error.message}") from None

    def error(self, message):
        """End the program with the line `<prog>: error: <message>`, or raise UserError."""
        message = mask_urls(message)
        if not self.exits:
            raise UserError(message)
        self.exit(2, as_typed(f"{self.prog}: error: {message}\n"))

    def format_help(self):
        """The help, its commands as this installation takes them."""
        return as_typed(super().format_help())


def needs_memory(error: BaseException) -> bool:
    """Whether an error is a failed allocation, of Python's, NumPy's or torch's."""
    text = " ".join(str(error).split())
    is_of_this_kind = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_of_this_kind or any(words in text for words in NO_MEMORY)


def too_large(error: Exception) -> str | None:
    """The message for a failed allocation, or for a number too large for a library; None for another error."""
    text = " ".join(str(error).split())
    if needs_memory(error):
        return (
            "there is not enough memory for these sizes. Lower --bs, --embed_dim, --embed_hidden, --eval_bs, "
            f"--crop_size or a count of the loss, miner or sampler ({text[:160] or 'MemoryError'})"
        )
    if isinstance(error, OverflowError) or "value cannot be converted to type" in text:
        return (
            "a number is too large to compute with: lower the counts, scales and weights that were given "
            f"({text[:160]})"
        )
    return None


def lost_worker(error: Exception) -> UserError | KeyboardInterrupt | None:
    """Translates torch's error for a lost worker: to an interrupt if SIGTERM ended it with its job, else a UserError.
    None for others.
    """
    killed = _LOST_WORKER.search(str(error))
    if not isinstance(error, RuntimeError) or killed is None:
        return None
    if killed[1] and killed[1].startswith("Terminated"):
        return KeyboardInterrupt()
    how = f" ({killed[1].strip(' .')})" if killed[1] else ""
    return UserError(
        f"a worker process that loads images was ended by the system{how}, mostly because memory, or the shared memory "
        "in /dev/shm, ran out: lower --kernels and --eval_kernels, or --bs. --resume goes on from the last whole epoch"
    )


@contextlib.contextmanager
def terminable():
    """Inside, SIGTERM, with which clusters end a job, raises KeyboardInterrupt; a second one kills.

    Python drops exceptions raised while it forks a worker or frees an object: an interrupt lost there is raised again.
    A worker ended by SIGTERM is an interrupt too. After an interrupt, also outside this context, torch no longer
    reports workers that end with the program. Outside the main thread, and in a program that handles SIGTERM itself,
    handlers stay as they are.
    """
    handlers = {}
    before = sys.unraisablehook
    program = os.getpid()

    def interrupt(number, frame):
        # a worker that has just been forked: it ends at once and says nothing
        if os.getpid() != program:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _expect_the_end_of_workers()
        raise KeyboardInterrupt

    def dropped(unraisable):
        # A worker lost while a loader is freed: the code that waits for the worker gets the error too.
        if lost_worker(unraisable.exc_value) is not None:
            return
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            return before(unraisable)
        signal.signal(signal.SIGTERM, interrupt)
        # later, as an exception of this hook is dropped as well
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, interrupt)
        sys.unraisablehook = dropped
    try:
        with _translated_loss_of_workers():
            yield
    finally:
        if sys.unraisablehook is dropped:
            sys.unraisablehook = before
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _translated_loss_of_workers():
    """Inside, torch's error for a lost worker is raised as what `lost_worker` makes of it."""
    try:
        yield
    except RuntimeError as error:
        translated = lost_worker(error)
        if translated is None:
            raise
        if isinstance(translated, KeyboardInterrupt):
            _expect_the_end_of_workers()
        raise translated from None


def _expect_the_end_of_workers() -> None:
    """Replace torch's SIGCHLD handler: workers end with the program, some while its last objects are freed, and it
    would report each.

    Nor does a loader say any more what fails while it is freed.
    """
    before = sys.unraisablehook

    def of_the_rest(unraisable):
        if issubclass(unraisable.exc_type, KeyboardInterrupt) or "DataLoader" not in repr(unraisable.object):
            before(unraisable)

    sys.unraisablehook = of_the_rest
    if threading.current_thread() is threading.main_thread():
        # with SIG_DFL Python complains of a pending signal
        signal.signal(signal.SIGCHLD, lambda number, frame: None)


@contextlib.contextmanager
def one_line_errors(program: str = "main.py"):
    """A user's mistake ends the program with one line and status 2 instead of a traceback; a second Ctrl-C ends it
    without a word.
    """
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number, frame):
        # an exception would be shown where nothing catches it
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
        _expect_the_end_of_workers()
        raise KeyboardInterrupt

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        with terminable():
            yield
    except BrokenPipeError:
        # `main.py --list losses | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print(as_typed(f"\n{program}: interrupted"), file=sys.stderr)
        sys.exit(130)
    except (OSError, RuntimeError, MemoryError, OverflowError, ModuleNotFoundError, UserError) as error:
        line = _line_of(error)
        if line is None:
            raise
        print(as_typed(f"{program}: error: {line}"), file=sys.stderr)
        sys.exit(2)
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, before)


def _line_of(error: Exception) -> str | None:
    """What the user reads of an error that they can correct; None for a fault of the program."""
    if isinstance(error, OSError):
        if error.errno not in OF_THE_SYSTEM or error.filename is None:
            return None
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError):
        return extras.missing(error)
    if isinstance(error, (RuntimeError, MemoryError, OverflowError)):
        return too_large(error)
    # A loader's worker process wraps its error in a traceback of its own; the last line is the message.
    line = re.sub(r"^[\w.]*utilities\.errors\.\w+: ", "", str(error).strip().splitlines()[-1])
    return mask_urls(line)


def reason_of(error: BaseException) -> str:
    """An error of a user's file of code as text."""
    if isinstance(error, SystemExit):
        argument = ""
        if error.code is not None:
            argument = repr(error.code)
        return f"SystemExit: sys.exit({argument}) would end the program: leave it out"
    return f"{type(error).__name__}: {error}"
