"""The commands behind the console scripts, and the one place that turns an error into a message and an exit code."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza import __version__
from liza.cli import app
from liza.model.errors import (
    BoardInconsistent,
    BoardUnavailable,
    LizaError,
    LockTimeout,
    RemoteUnavailable,
    UsageError,
    WriteFailed,
)
from liza.model.paths import Paths
from liza.printing.error_output import print_error
from liza.printing.pager import EXIT_PIPE_CLOSED
from liza.programs.session.run_directory import RunDir
from liza.system import atomic, program_path
from liza.system.clock import SystemClock
from liza.system.files import to_write_failed
from liza.text.redaction import redact

_COMPLETION: Final = (["--install-completion"], ["--show-completion"])
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def liza() -> int:
    """Run ``liza`` with the arguments of this process; return the exit code."""
    _offer_command_server(sys.argv[1:])
    return run_liza()


def run_liza() -> int:
    """Run ``liza`` with the arguments of this process, in any process; return the exit code."""
    open_standard_streams()
    program_path.remove_unsafe_entries()
    words = sys.argv[1:]
    if app.is_completing() or words[:1] in _COMPLETION:
        from liza.cli import completion  # It imports what no other command needs.

        app.build_app()  # typer registers its own answers then.
        completion.register()
    # A program waits for its hook, and a mistake in the hook's words must not stop it.
    elif words[:1] == ["hook"] and "--help" not in words:
        return int(app.import_command("hook").run_hook(words[1:]))
    return run_command(words)


def run_command(words: Sequence[str]) -> int:
    """Run ``liza`` with these words; return the exit code."""
    code = run_reporting_errors(app.run_liza, words, "liza")
    _record_history()
    return code


def liza_agent() -> int:
    """``liza-agent``: the supervisor of one agent. Return its exit code."""
    open_standard_streams()
    program_path.remove_unsafe_entries()
    _offer_command_server(["liza-agent"])
    return run_reporting_errors(app.run_liza_agent, sys.argv[1:], "liza-agent")


def _offer_command_server(words: Sequence[str]) -> None:
    """Start the command server for later commands, if this command is one that starts it."""
    from liza.system import server_control

    server_control.offer(words)


def run_reporting_errors(command: Callable[[Sequence[str]], int], words: Sequence[str], name: str) -> int:
    """Run a command and return its exit code; report every exception on stderr."""
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        _require_utf8(words)
        code = command(words)
        sys.stdout.flush()
    except LizaError as error:
        return print_error(name, note_postponed(words, _name_survivors(error)), as_json)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout has gone. Python must not flush stdout again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except OSError as error:
        write_failed = to_write_failed(error)
        return print_error(
            name,
            note_postponed(words, write_failed) if write_failed else _report_bug(error, words),
            as_json,
        )
    except Exception as bug:  # noqa: BLE001 - any other exception is a bug, and is reported as one
        return print_error(name, _report_bug(bug, words), as_json)
    if code == 0:
        note_success(words)
    return code


def _name_survivors(error: LizaError) -> LizaError:
    """Return the error with a hint that first ends processes of a deleted .liza, if there are any."""
    if "liza.crew.crew" not in sys.modules:
        return error
    from liza.crew.crew import with_stop  # 60 ms: a hook has no crew.

    return with_stop(error)


def _require_utf8(words: Sequence[str]) -> None:
    """Raise UsageError for an argument that is not UTF-8 text: it could not be stored or printed later."""
    for argument in words:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{argument!r} is not UTF-8 text", "locale") from None


def _record_history() -> None:
    """Write the waiting revisions to the history, as the last step and only if no living supervisor does it."""
    if "liza.crew.crew" not in sys.modules:
        return
    from liza.crew.crew import find_crew_or_none
    from liza.crew.recorder import record_if_unsupervised

    # A failure is harmless: the journal keeps the revisions, and the command itself is done.
    with suppress(LizaError, OSError):
        crew = find_crew_or_none()
        if crew is not None:
            record_if_unsupervised(crew)


def _report_bug(bug: Exception, words: Sequence[str]) -> LizaError:
    """Return an error for a bug, and write a report with the arguments, the traceback and the versions."""
    report = (
        f"liza {__version__} on Python {platform.python_version()}, {platform.platform()}\n"
        f"arguments: {list(words)!r}\ndirectory: {_cwd()}\n\n{''.join(traceback.format_exception(bug))}"
    )
    message = str(bug).strip().partition("\n")[0]
    summary = f"this is a bug in liza: {type(bug).__name__}" + (f": {message}" if message else "")
    path = _report_path(bug)
    try:
        atomic.write(path, report.encode(errors="backslashreplace"), sync=False)
    except OSError as error:
        return LizaError(f"{summary} (no report could be written: {error})\n{report}")
    message = f"{summary}; the report is in {path}: send it with the steps to reproduce"
    return LizaError(message, shlex.join(["less", str(path)]))


def _report_path(bug: Exception) -> Path:
    """Path of the report of a bug: one for each cause, so that a process that is started again and again writes one."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(bug.__traceback__)]
    digest = hashlib.sha256(f"{type(bug).__name__} {frames}".encode()).hexdigest()
    return Path(tempfile.gettempdir()) / f"liza-report-{os.getuid()}-{digest[:12]}.txt"


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a directory that was deleted must not hide the bug
    except OSError as error:
        return f"unknown: {error}"


def open_standard_streams() -> None:
    """Open /dev/null in the place of each closed standard stream.

    Otherwise the next file that is opened gets the number of that stream, and output would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


RETRY_PAUSE: Final = 20  # seconds: the cause of the failure may have passed by then
MAX_HINT_COMMAND: Final = 200  # characters: a longer command is not repeated in a hint


_OUTSIDE_CAUSES = BoardInconsistent | WriteFailed | LockTimeout | BoardUnavailable | RemoteUnavailable
"""Errors of a command of a run of which neither the run nor its task is the cause."""


def note_postponed(words: Sequence[str], error: LizaError) -> LizaError:
    """Return the error for the run. If the run is not at fault, write a note and replace the hint by a retry."""
    if not isinstance(error, _OUTSIDE_CAUSES) or not words or not _is_in_a_run():
        return error

    # The disk may be full, and the environment variable may not name a run of an agent.
    with suppress(LizaError, OSError):
        directory = RunDir(Paths(_root()), os.environ["LIZA_RUN"])
        directory.write_postponed(SystemClock().now(), words[0], redact(error.message))
    error.hint = _retry_command(words)
    return error


def note_success(words: Sequence[str]) -> None:
    """Record that the run has called a command, and remove its note of this one: it succeeded."""
    if not words or not _is_in_a_run():
        return

    with suppress(LizaError, OSError):
        directory = RunDir(Paths(_root()), os.environ["LIZA_RUN"])
        directory.note_report()
        directory.clear_postponed(SystemClock().now(), words[0])


def _is_in_a_run() -> bool:
    return bool(os.environ.get("LIZA_RUN") and os.environ.get("LIZA_ROOT"))


def _root() -> Path:
    return Path(os.environ["LIZA_ROOT"]).resolve()


def _retry_command(words: Sequence[str]) -> str:
    command = shlex.join(["liza", *words])
    if len(command) > MAX_HINT_COMMAND or not command.isprintable():
        command = f"liza {words[0]} … (the same arguments again)"
    return f"sleep {RETRY_PAUSE}; {command}"
