"""Run ``gh`` or ``glab`` without a terminal, outside of the repository, within a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from liza.rules.errors import Missing
from liza.rules.landing.remote_urls import Forge, hide_credentials
from liza.system import crash_points, program_path

FORGE_LIMIT = 60.0
"""Seconds for one call."""
_ENVIRONMENT = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_PAGER": "cat",
    "GLAB_CHECK_UPDATE": "false",
    "NO_PROMPT": "1",
    "PAGER": "cat",
    "NO_COLOR": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
}
_LOGIN_WORDS = ("auth login", "GH_TOKEN", "not logged", "401", "authentication")


def is_installed(forge: Forge) -> bool:
    """Return whether the program is in PATH."""
    try:
        program_path.find_program(forge)
    except Missing:
        return False
    return True


def run_forge(forge: Forge, *args: str, text: str | None = None) -> str:
    """Return what the program prints. ``text`` is its input; without it, the input is closed.

    Raises Missing if it is not installed, fails, or does not end in time.
    """
    command = [program_path.find_program(forge), *args]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "LIZA_"))}
    process = subprocess.Popen(
        command,
        # Not in the repository: these programs run git, and agents can write its configuration.
        cwd=Path("/"),
        env=kept | _ENVIRONMENT,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A session of its own has no terminal: /dev/tty cannot be opened.
        start_new_session=True,
    )
    what = f"{forge} {' '.join(args[:2])}"
    try:
        out, errors = process.communicate(None if text is None else text.encode("utf-8", "replace"), FORGE_LIMIT)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            message = f"{what} took longer than {FORGE_LIMIT:g} s and was killed"
            raise Missing(message, f"{forge} auth status") from None
        raise
    crash_points.point("forge", args[1])
    if process.returncode != 0:
        message = hide_credentials(" ".join(errors.decode("utf-8", "replace").split())) or "without a message"
        hint = f"{forge} auth login" if any(word in message for word in _LOGIN_WORDS) else f"{forge} auth status"
        raise Missing(f"{what} failed ({process.returncode}): {message[:500]}", hint)
    return out.decode("utf-8", "replace")
