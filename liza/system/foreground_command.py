"""Run a command of the person or the agent that waits for its end, in the same terminal."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

from liza.model.errors import Missing


def run_command(command: Sequence[str]) -> int:
    """Run a command to its end; return its exit status, 128 + n if signal n killed it. Raises Missing.

    The command gets SIGINT from the terminal too: the caller keeps its lock until it has exited. A KeyboardInterrupt
    just after the end of the wait would lose its result.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _do_nothing)
    try:
        code = subprocess.run(list(command), check=False).returncode
    except OSError as error:
        raise Missing(f"{command[0]!r} cannot be run: {error.strerror}", f"command -v {command[0]}") from None
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _do_nothing(_: int, __: object) -> None:
    """Handle a signal. A handler, unlike SIG_IGN, is not inherited by the command."""
