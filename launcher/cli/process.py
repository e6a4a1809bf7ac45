"""What every verb's process needs: the standard streams, interrupts, and the printing of errors.

While no verb runs (modules load, or the interpreter ends), an interrupt ends the process silently, as the system does
by default. A verb gets KeyboardInterrupt instead, so that it can clean up or print how to continue; if a request still
hangs some seconds later, the process ends.
"""

from __future__ import annotations

# the module behind `signal`, without its enumerations, which are slow to load
import _signal  # type: ignore[import-not-found]
import _thread
import errno
import io
import os
import select
import stat
import sys

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_TIDY = 5.0  # seconds that a verb gets after an interrupt
FAULT = 70  # exit code of a fault of the launcher itself (EX_SOFTWARE)
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
# errors of the system about a file or folder that the user named; they are no fault of the launcher
_FILES = _FULL | {
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EROFS, errno.EEXIST, errno.ENOTEMPTY, errno.ENXIO, errno.ENODEV, errno.EINVAL),
}
_own = False  # whether this process belongs to the command, so that its signals and streams may be set


class _OutputFailed(OSError):
    """Standard output refused a write."""


class _Output(io.FileIO):
    """Standard output whose errors are distinct from those of files and connections. It remembers them, because the
    parser ignores errors when it prints its help."""

    failed: _OutputFailed | None = None

    def write(self, data: Any, /) -> int:
        try:
            while (written := super().write(data)) is None:
                # another process that shares the terminal or the pipe has made it non-blocking
                import select

                select.select([], [self], [])
            return written
        except OSError as error:
            self.failed = _OutputFailed(error.errno, error.strerror)
            raise self.failed from None


_output: _Output | None = None


def to_a_file() -> bool:
    """Whether what this process prints goes into a file, or to another program, which may write it into one."""
    if not _own:
        return False
    try:
        mode = os.fstat(1).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def begin() -> None:
    """Sets the signals and streams of this process; not called for a program that only calls `main`."""
    global _own, _output
    _own = True
    if (
        _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
    ):  # unless a shell ignores it for a background job
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    sys.unraisablehook = _unraisable
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # closed by the caller: otherwise the next opened file would get the number, and the output
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    _output = _Output(1, "w", closefd=False)
    terminal = _output.isatty()
    # rendered text has the same bytes everywhere; a terminal keeps its encoding
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_output),
        encoding=sys.stdout.encoding if terminal else "utf-8",
        errors="backslashreplace",
        line_buffering=terminal,
    )


def _unraisable(what: Any) -> None:
    """Handles an interrupt in a destructor or an import callback, which Python would only print."""
    if what.exc_type is KeyboardInterrupt:
        _die()
    sys.__unraisablehook__(what)


def _die() -> None:
    if _output is not None and _output.isatty():
        os.write(1, b"\x1b[?25h")  # the live view may have hidden the cursor
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    os.kill(os.getpid(), _signal.SIGINT)


def _interrupt(_: int, frame: Any) -> None:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            _die()  # a module written in C may suppress exceptions of its imports, and the interrupt with them
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_what_hangs(signals: int, begun: _thread.LockType) -> None:
    """Reads the signal numbers that the system delivers. A request to an unresponsive store can keep the main thread
    from seeing an interrupt for minutes. The process may end there: every verb survives a kill without loss."""
    begun.release()
    while os.read(signals, 1)[0] != _signal.SIGINT or _signal.getsignal(_signal.SIGINT) not in (
        _interrupt,
        _signal.SIG_DFL,  # the verb has ended, but perhaps not its threads
    ):
        pass  # another signal, or a verb that handles interrupts itself
    select.select([signals], [], [], _TIDY)  # a second interrupt ends it at once
    os._exit(128 + int(_signal.SIGINT))


def verb(run: Callable[[], int]) -> int:
    """Runs a verb's own code; an interrupt raises KeyboardInterrupt in it."""
    ours = _own and _signal.getsignal(_signal.SIGINT) is _signal.SIG_DFL
    if ours:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        _signal.set_wakeup_fd(writing)
        begun = _thread.allocate_lock()
        begun.acquire()
        _thread.start_new_thread(_end_what_hangs, (reading, begun))
        _signal.signal(_signal.SIGINT, _interrupt)
    try:
        return run()
    finally:
        if ours:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
            begun.acquire()  # a thread that begins while the interpreter ends takes the process with it (SIGSEGV)


def guarded(said: str, run: Callable[[], int]) -> int:
    """Runs `run` and flushes its output; prints each error as one line after `said` and returns its exit code."""
    try:
        code = run()
        _check_output()
        return code
    except SystemExit:  # of the parser, which has printed its message
        try:
            _check_output()
        except OSError as error:
            return _of_system(said, error)
        raise
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 128 + int(_signal.SIGINT)
    except OSError as error:
        return _of_system(said, error)
    except Exception as error:
        return _of_launcher(said, error)


def _check_output() -> None:
    sys.stdout.flush()
    if _output is not None and _output.failed is not None:
        raise _output.failed


def _of_system(said: str, error: OSError) -> int:
    if isinstance(error, _OutputFailed):
        # the interpreter must not try to write it again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno == errno.EPIPE:  # the reader has closed the pipe, as `| head` does
            return 0
        print(f"{said}: standard output: {error.strerror}", file=sys.stderr)
        return 2
    if error.errno in (_FULL if error.filename is None else _FILES) and type(error).__module__ == "builtins":
        from launcher.spec.values.problems import one_line

        where = "" if error.filename is None else f"{one_line(os.fsdecode(error.filename), 300)}: "
        print(f"{said}: {where}{error.strerror}", file=sys.stderr)
        return 2
    return _of_launcher(said, error)


def _of_launcher(said: str, error: Exception) -> int:
    from launcher.errors import SlipwayError

    if isinstance(error, SlipwayError):
        from launcher.safe_text import block

        print(f"{said}: {block(str(error))}", file=sys.stderr)
        return error.exit_code
    from launcher.cli.fault import report

    print(f"{said}: {report(said, error)}", file=sys.stderr)
    return FAULT
