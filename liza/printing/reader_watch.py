"""End a following command when the reader of its output has exited."""

from __future__ import annotations

import os
import select
import sys
import threading

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
