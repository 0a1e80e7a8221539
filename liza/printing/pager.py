"""Show long output in a pager at a terminal, and end a command whose reader has exited."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

from liza.git.git_config import read_config
from liza.git.runner import Git
from liza.printing import printing
from liza.printing.columns import strip_controls, strip_controls_but_colours

_NO_PAGER = ("", "cat")
_NOT_FOUND = 127


def page_text(text: str, git: Git) -> None:
    """Write a text to stdout; at a terminal through the pager that git would use, with LESS=FRX unless LESS is set."""
    pager = _find_pager(git) if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else None
    if not text or pager is None or not _run_pager(pager, text):
        printing.print_text(text)


def _find_pager(git: Git) -> str | None:
    """Return the pager's command: GIT_PAGER, core.pager, PAGER, or less; None for no pager."""
    pager = os.environ.get("GIT_PAGER")
    if pager is None:
        pager = read_config(git).get("core.pager", (None,))[-1]
    if pager is None:
        pager = os.environ.get("PAGER")
    if pager is None:
        return shutil.which("less")  # Unsafe directories were removed from PATH when this process started.
    return None if pager.strip() in _NO_PAGER else pager


def _run_pager(pager: str, text: str) -> bool:
    """Run the pager. Return False if the program does not exist; nothing was shown then."""
    output = strip_controls_but_colours(text) if printing.wants_colours() else strip_controls(text)
    environ = {"LESS": "FRX", "LV": "-c", **os.environ}
    sys.stdout.flush()
    # Ctrl+C is for the pager: it ends its output or a search. This process waits for the pager.
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        argv = ["/bin/sh", "-c", pager]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, env=environ, preexec_fn=_restore_sigint) as child:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.write((output if output.endswith("\n") else output + "\n").encode())
            with suppress(BrokenPipeError):
                child.stdin.close()
            return child.wait() != _NOT_FOUND
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def _restore_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


EXIT_PIPE_CLOSED = 141
"""Exit code after the reader of stdout has exited: 128 + SIGPIPE, as a shell reports it."""


def exit_with_reader() -> None:
    """Exit as soon as stdout has no reader, as in ``liza logs -f | head``.

    Without this, the command would learn it only when it writes its next line, which may never come. Call this only in
    commands that change nothing: the process exits at once.
    """
    threading.Thread(target=_wait_for_exit, name="reader", daemon=True).start()


def _wait_for_exit() -> None:
    poll = select.poll()
    # No event is asked for: the kernel reports an error and a hang-up always.
    poll.register(sys.stdout.fileno(), 0)
    poll.poll()
    os._exit(EXIT_PIPE_CLOSED)
