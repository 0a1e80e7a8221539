"""Run ``gh`` or ``glab`` without a terminal, outside of the repository, within a time limit; decode what they print.

Texts of strangers in it are cleaned here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from liza.landing.rules.remote_urls import Forge, hide_credentials
from liza.model.errors import ForgeSlow, LoginMissing, Missing
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import Value, decodable
from liza.system import crash_points, program_path
from liza.text.quoting import sanitize

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
_RATE_WORDS = ("rate limit", "http 429")
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
    data = None if text is None else text.encode("utf-8", "replace")
    return _run(forge, args, data, subprocess.PIPE).decode("utf-8", "replace")


def run_forge_end(forge: Forge, *args: str, size: int) -> str:
    """Return the last ``size`` bytes that the program prints. A log may have many megabytes.

    Raises as ``run_forge``.
    """
    with tempfile.TemporaryFile() as output:
        _run(forge, args, None, output.fileno())
        output.seek(max(0, output.seek(0, os.SEEK_END) - size))
        return output.read(size).decode("utf-8", "replace")


def kill_running() -> None:
    """Kill the calls of this process that are under way, with their children: they fail."""
    for process in tuple(_running):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


_running: set[subprocess.Popen[bytes]] = set()


def _run(forge: Forge, args: Sequence[str], data: bytes | None, stdout: int) -> bytes:
    command = [program_path.find_program(forge), *args]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "LIZA_"))}
    process = subprocess.Popen(
        command,
        # Not in the repository: what these programs do does not depend on its configuration.
        cwd=Path("/"),
        env=kept | _ENVIRONMENT,
        stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        # A session of its own has no terminal: /dev/tty cannot be opened.
        start_new_session=True,
    )
    what = f"{forge} {' '.join(args[:2])}"
    _running.add(process)
    try:
        out, errors = process.communicate(data, FORGE_LIMIT)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            message = f"{what} took longer than {FORGE_LIMIT:g} s and was killed"
            raise ForgeSlow(message, f"{forge} auth status") from None
        raise
    finally:
        _running.discard(process)
    crash_points.point("forge", args[1].partition("?")[0])
    if process.returncode != 0:
        raise _explain(forge, what, process.returncode, errors.decode("utf-8", "replace"))
    return out or b""


def _explain(forge: Forge, what: str, code: int, errors: str) -> Missing:
    """Return the error for a failed call, with the command that shows or removes its cause."""
    message = hide_credentials(" ".join(errors.split())) or "without a message"
    text = f"{what} failed ({code}): {message[:500]}"
    if any(word in message.lower() for word in _RATE_WORDS):
        return ForgeSlow(text, f"{forge} api rate_limit" if forge is Forge.GITHUB else f"{forge} auth status")
    if any(word in message for word in _LOGIN_WORDS):
        return LoginMissing(text, f"{forge} auth login")
    return Missing(text, f"{forge} auth status")


PAGE_SIZE = 100
MAX_PAGES = 20
"""Pages of one list. A longer list is an error, never a part of the list."""
_MAX_ADDRESS = 500
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
T = TypeVar("T")


def decode_output(forge: Forge, output: str, kind: type[T], what: str) -> T:
    """Return the JSON that the program printed. Raises Missing if it is not of this type."""
    try:
        return msgspec.json.decode(output, type=decodable(kind))
    except msgspec.DecodeError as error:
        reason = describe_decode_error(error, kind)
        raise Missing(f"{forge} printed no {what} that can be read: {reason}", f"{forge} --version") from error


def read_pages(what: str, read_page: Callable[[str], list[T]]) -> Iterator[T]:
    """Yield the entries of a list. ``read_page`` takes the parameters of a page. Raises Missing for a longer list."""
    for page in range(1, MAX_PAGES + 1):
        rows = read_page(f"per_page={PAGE_SIZE}&page={page}")
        yield from rows
        if len(rows) < PAGE_SIZE:
            return
    raise Missing(f"{what} has more than {MAX_PAGES * PAGE_SIZE} entries", "liza task add --help")


def clean_text(text: str) -> str:
    """Return a text without escape sequences, control characters and secrets."""
    return sanitize(_ESCAPES.sub("", text))


def clean_address(url: str | None) -> str:
    """Return a web address of one line without credentials; empty for anything else."""
    text = hide_credentials(clean_text(url or ""))
    is_address = text.startswith(("https://", "http://")) and len(text.split()) == 1
    return text if is_address and len(text) <= _MAX_ADDRESS else ""


class PullRequest(Value):
    """An open pull request. ``body`` is its text."""

    number: int
    url: str
    body: str = ""
