"""The console script ``liza``. It answers the usual event of a hook itself, and leaves everything else to
`entry_points`, whose import alone takes longer than such an event."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

EXIT_PIPE_CLOSED = 141
"""Exit code after the reader of stdout has exited: 128 + SIGPIPE, as a shell reports it."""


def liza() -> None:
    """``liza``."""
    open_standard_streams()
    payload = _answer_usual_hook(sys.argv[1:])
    from liza.cli import entry_points

    entry_points.liza(payload)


def _answer_usual_hook(words: list[str]) -> bytes | None:
    """Exit after the usual event of a hook; otherwise return its payload, None if it was not read."""
    if words[:1] != ["hook"] or len(words) != 3 or "--help" in words or "_LIZA_COMPLETE" in os.environ:
        return None
    gc.disable()
    from liza.verbs import quick_hook

    event = quick_hook.find_event(words[1], words[2], os.environ)
    if event is None:
        return None
    payload = read_payload(quick_hook.MAX_PAYLOAD)
    try:
        is_recorded = event.record(payload)
    except OSError as error:
        from liza.verbs.hook import Hook

        Hook(words[1], words[2], payload, os.environ).log_error(error)
        is_recorded = True
    if is_recorded:
        exit_at_once(_print_reply(*event.reply))
    return payload


def _print_reply(out: str, err: str, code: int) -> int:
    """Print the reply to a hook, and return its exit code."""
    try:
        sys.stdout.write(out)
        sys.stdout.flush()
        sys.stderr.write(err)
        sys.stderr.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def read_payload(limit: int) -> bytes:
    """Return the program's input; empty at a terminal or if stdin cannot be read."""
    try:
        return b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(limit)
    except (OSError, ValueError):
        return b""


def exit_at_once(code: int) -> NoReturn:
    """Exit without tearing down the modules, which takes 10 to 60 ms of CPU time.

    Functions registered with `atexit` are called, and output is flushed. If that fails, the interpreter exits as usual
    and reports the failure.
    """
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code)


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
