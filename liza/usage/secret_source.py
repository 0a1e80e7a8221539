"""Read the secret of an account: from a variable, or from what a command prints.

The secret is only in memory: no file, log, argument or message contains it. A command gets no terminal and no input, so
one that asks a question fails instead of waiting. Its error output is not read: it might contain the secret.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from liza.model.errors import Missing
from liza.system import crash_points, program_path
from liza.usage.account_files import ACCOUNTS_COMMAND, Account

COMMAND_LIMIT = 10.0
"""Seconds that a credentials command may take."""
MAX_SECRET = 16_384  # bytes


class Secret:
    """A secret in memory. Its text is in no message, also not by accident: ``repr`` does not show it."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Secret(…)"


def read_secret(account: Account, environ: Mapping[str, str], home: Path) -> Secret | None:
    """Return the secret of an account; None if it has none.

    Raises Missing, with the account and the cause, if it cannot be read.
    """
    if account.variable:
        return _checked(account, environ.get(account.variable, ""), f"variable {account.variable}", "is not set")
    if not account.command:
        return None
    data = _run_command(account, environ, home)
    return _checked(account, data, f"command {Path(account.command[0]).name}", "printed nothing")


def find_obstacle(account: Account, environ: Mapping[str, str]) -> Missing | None:
    """Return what would keep the account from being used, without running a command; None if nothing is known."""
    try:
        if account.variable and not environ.get(account.variable, "").strip():
            raise _failed(account, f"variable {account.variable} is not set", f"export {account.variable}=…")
        if account.command:
            _find_command(account)
        check_directory(account)
    except Missing as error:
        return error
    return None


def check_directory(account: Account) -> None:
    """Raise Missing if the account has a directory of its own that does not exist."""
    if account.config_dir and not Path(account.config_dir).is_dir():
        raise _failed(
            account, f"directory {account.config_dir} does not exist", f"mkdir -m 700 {shlex.quote(account.config_dir)}"
        )


def _checked(account: Account, text: str, source: str, if_empty: str) -> Secret:
    """Return the text as a secret. Raises Missing if it is empty, or more than one line."""
    value = text.strip()
    if not value:
        raise _failed(account, f"{source} {if_empty}", _hint(account))
    lines = value.splitlines()
    if len(lines) > 1:
        raise _failed(account, f"{source}: {len(lines)} lines, and a secret is one line", _hint(account))
    if not value.isprintable():
        raise _failed(account, f"{source}: it has control characters", _hint(account))
    return Secret(value)


def _hint(account: Account) -> str:
    """Return the command that shows a person what the source returns, without the secret."""
    return f"{ACCOUNTS_COMMAND} --check" if account.command else f"export {account.variable}=…"


def _failed(account: Account, reason: str, hint: str) -> Missing:
    return Missing(f"account {account.id}: {reason}", hint)


def _find_command(account: Account) -> str:
    """Return the absolute path of the account's command. Raises Missing."""
    name = account.command[0]
    if name.startswith("~/"):
        name = str(Path(name).expanduser())
    if not name.startswith("/"):
        try:
            return program_path.find_program(name)
        except Missing as error:
            raise _failed(account, f"command {name} is not installed, or not in PATH", ACCOUNTS_COMMAND) from error
    if not os.access(name, os.X_OK) or Path(name).is_dir():
        raise _failed(account, f"command {name} does not exist or is not executable", f"ls -l {shlex.quote(name)}")
    return name


def _run_command(account: Account, environ: Mapping[str, str], home: Path) -> str:
    """Return what the command of the account prints. Raises Missing."""
    words = [_find_command(account), *account.command[1:]]
    name = Path(words[0]).name
    # Without Liza's own variables, and at home: nothing of the project decides what the command reads.
    env = {key: value for key, value in environ.items() if not key.startswith("LIZA_")}
    try:
        process = subprocess.Popen(
            words,
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A session of its own has no terminal: /dev/tty cannot be opened.
            start_new_session=True,
        )
    except OSError as error:
        raise _failed(account, f"command {name}: {error.strerror}", _hint(account)) from error
    crash_points.point("spawned", "credentials-command")
    try:
        process.wait(COMMAND_LIMIT)
        data = _read_pipe(process)
    except subprocess.TimeoutExpired as error:
        raise _failed(account, f"command {name} did not end within {COMMAND_LIMIT:g} s", _hint(account)) from error
    finally:
        _end(process)
    if len(data) > MAX_SECRET:
        raise _failed(account, f"command {name} printed more than {MAX_SECRET} bytes", _hint(account))
    if process.returncode != 0:
        raise _failed(account, f"command {name} {_describe_status(process.returncode)}", _hint(account))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        # Without `from`: the error contains the output.
        raise _failed(account, f"command {name} printed no text ({error.reason})", _hint(account)) from None


def _read_pipe(process: subprocess.Popen[bytes]) -> bytes:
    """Return what a command that has ended left in its pipe, at most one byte more than MAX_SECRET.

    A pipe holds more than a secret. The end of file is not awaited: a background process may keep the pipe open.
    """
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    try:
        return os.read(process.stdout.fileno(), MAX_SECRET + 1)
    except BlockingIOError:
        return b""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a command that has not ended, and close its output."""
    assert process.stdout is not None
    process.stdout.close()
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _describe_status(status: int) -> str:
    return f"exited with {status}" if status > 0 else f"was ended by signal {-status}"
