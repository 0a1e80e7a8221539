"""One call to a tmux server, with a time limit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from liza.programs.terminal.tmux_socket import TmuxNotAnswering
from liza.system import program_path

CALL_LIMIT = 10.0  # seconds; a call takes some milliseconds
_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMUX_TMPDIR")

_silent_until: dict[str, float] = {}
"""Servers that did not answer, and until when (monotonic clock) they are not called again."""


def call_tmux(*words: str, socket: Sequence[str], limit: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tmux command. ``socket`` is the option that names the server.

    Raises TmuxNotAnswering after ``limit`` seconds (default CALL_LIMIT), or at once if the last call to this server
    timed out less than CALL_LIMIT seconds ago; Missing if there is no tmux.
    """
    client = ("tmux", *socket)
    hint = " ".join((*client[:3], "ls"))
    if time.monotonic() < _silent_until.get(hint, 0.0):
        raise TmuxNotAnswering("the tmux server has not answered an earlier call", hint)
    seconds = CALL_LIMIT if limit is None else limit
    try:
        # -u: the screen is UTF-8 in every locale. At the limit `run` kills the client and waits for its exit only: the
        # server may hold the other ends of its pipes.
        return subprocess.run(
            (program_path.find_program("tmux"), "-u", *socket, *words),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        _silent_until[hint] = time.monotonic() + CALL_LIMIT
        raise TmuxNotAnswering(f"the tmux server did not answer within {seconds:.0f} s", hint) from error


def _environment() -> dict[str, str]:
    """Return the variables that tmux needs.

    A server that the call starts passes its environment to every shim, and agents can read it: it gets none of this
    process's variables that may be secret.
    """
    env = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return env if env.get("LANG") or env.get("LC_ALL") else {**env, "LC_ALL": "C.UTF-8"}
