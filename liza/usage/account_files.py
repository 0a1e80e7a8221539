"""The person's file of accounts, ``~/.config/liza/accounts.toml``, what is known of each account, and its secret.

The file may name commands, so it is only read from the person's own configuration: what a clone brings is never read.
It holds no secret itself, unless the person writes one into a command. A secret is read from a variable, or from what a
command prints, and is only in memory: no file, log, argument or message contains it. A command gets no terminal and no
input, so one that asks a question fails instead of waiting. Its error output is not read: it might contain the secret.

The records, ``accounts.json`` in the state directory, belong to the user and not to a crew: a usage limit applies to
the account, whichever crew reached it. Each change replaces the file atomically, under a lock beside it. Decision 026.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import stat
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from liza.model.errors import LizaError, Missing, NotRegularFile, UsageError
from liza.model.paths import state_directory
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import FrozenStruct, Value, decodable
from liza.programs.presets.preset import Preset
from liza.system import atomic, crash_points, program_path, untrusted_files
from liza.system.locks import lock_path
from liza.usage.rules.account_rules import AccountRecord

ACCOUNTS_COMMAND = "liza programs accounts"
_MAX_SIZE = 1 << 20  # bytes
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
VariableName = Annotated[str, msgspec.Meta(pattern=_VARIABLE)]
CredentialKind = Literal["api_key", "oauth", "token"]


class AccountRow(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An account as the file describes it.

    Its secret is in ``variable``, or is printed by ``command``; ``config_dir`` is a configuration directory of its
    own, with a login in it. ``login``: it is the program's own login, with nothing of these. ``sets``: the variable
    that the program reads the secret from; default: ``credential_env`` of its preset. ``valid_seconds``: how long the
    secret is valid after it was read.
    """

    variable: VariableName | None = None
    command: str | tuple[str, ...] | None = None
    config_dir: str | None = None
    login: bool = False
    sets: VariableName | None = None
    type: CredentialKind = "api_key"
    valid_seconds: Annotated[int, msgspec.Meta(ge=10, le=366 * 86_400)] | None = None


class _Document(FrozenStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    order: Literal["listed"] = "listed"  # files of earlier versions have it
    accounts: dict[str, dict[str, dict[str, Any]]] = msgspec.field(default_factory=dict)


class Account(Value):
    """An account of one program. ``id`` is ``PROGRAM/NAME``; ``sets`` is empty if it has no secret."""

    program: str
    name: str
    variable: str = ""
    command: tuple[str, ...] = ()
    config_dir: str = ""
    sets: str = ""
    kind: CredentialKind = "api_key"
    valid_seconds: int | None = None

    @property
    def id(self) -> str:
        return f"{self.program}/{self.name}"

    @property
    def has_secret(self) -> bool:
        """Whether a secret is to be read for it."""
        return bool(self.variable or self.command)


class AccountsFile(Value):
    """The accounts of all programs, in the order of the file, which is the order of their use."""

    path: Path
    rows: Mapping[str, Mapping[str, AccountRow]] = {}

    def accounts_of(self, preset: Preset) -> tuple[Account, ...]:
        """Return the accounts of a program. Raises UsageError for one that the program cannot use."""
        rows = self.rows.get(preset.name, {})
        return tuple(self._account(preset, name, row) for name, row in rows.items())

    def _account(self, preset: Preset, name: str, row: AccountRow) -> Account:
        where = f"[accounts.{preset.name}.{name}]"
        if row.config_dir is not None and not preset.config_dir_env:
            raise _error(self.path, f"{where} config_dir: {preset.name} has no variable for its directory")
        has_secret = row.variable is not None or row.command is not None
        sets = (row.sets or preset.credential_env) if has_secret else ""
        if has_secret and not sets:
            raise _error(self.path, f'{where} needs sets = "VARIABLE", from which {preset.name} reads the secret')
        command = shlex.split(row.command) if isinstance(row.command, str) else row.command or ()
        directory = "" if row.config_dir is None else str(Path(row.config_dir).expanduser())
        return Account(
            preset.name, name, row.variable or "", tuple(command), directory, sets, row.type, row.valid_seconds
        )


def accounts_path(home: Path) -> Path:
    """Return the path of the person's file of accounts."""
    return home / ".config" / "liza" / "accounts.toml"


def read_accounts(home: Path) -> AccountsFile:
    """Read the file; without one there are no accounts.

    Raises UsageError if another user may change it, if it cannot be parsed, or if an account is not complete.
    """
    path = accounts_path(home)
    try:
        data = untrusted_files.read_if_exists(path, _MAX_SIZE, follow_links=True)
        if data is None:
            return AccountsFile(path)
        _check_owner(path)
        document = msgspec.convert(tomllib.loads(data.decode()), decodable(_Document))
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise _error(path, describe_decode_error(error, _Document)) from error
    rows = {
        program: {name: _read_row(path, f"[accounts.{program}.{name}]", name, fields) for name, fields in named.items()}
        for program, named in document.accounts.items()
    }
    return AccountsFile(path, rows)


def _read_row(path: Path, where: str, name: str, fields: Mapping[str, Any]) -> AccountRow:
    """Return an account as the file describes it. Raises UsageError, with the account."""
    try:
        row = msgspec.convert(fields, decodable(AccountRow))
    except msgspec.ValidationError as error:
        raise _error(path, f"{where} {describe_decode_error(error, AccountRow)}") from error
    if (reason := _row_error(name, row)) is not None:
        raise _error(path, f"{where} {reason}")
    return row


def _check_owner(path: Path) -> None:
    """Raise UsageError if another user may change the file: Liza runs the commands in it."""
    status = path.stat()
    if os.geteuid() != 0 and status.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{path} belongs to another user", f"ls -l {shlex.quote(str(path))}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise UsageError(
            f"{path} has mode {mode:04o}: other users may change it", f"chmod 600 {shlex.quote(str(path))}"
        )


def _row_error(name: str, row: AccountRow) -> str | None:
    """Return what is wrong with an account for any program, or None."""
    if not _NAME.fullmatch(name):
        return "a name is lower-case letters, digits, '.', '-' and '_', at most 40"
    if row.variable is not None and row.command is not None:
        return "has a variable and a command: keep one"
    if row.login and (row.variable, row.command, row.config_dir) != (None, None, None):
        return "login = true is the program's own login: it has no variable, command or config_dir"
    if not row.login and (row.variable, row.command, row.config_dir) == (None, None, None):
        return "needs variable, command, config_dir, or login = true"
    return _command_error(row.command) or _directory_error(row.config_dir)


def _command_error(command: str | tuple[str, ...] | None) -> str | None:
    if command is None:
        return None
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        return f"command: {error}"
    if not words or not words[0]:
        return "command is empty"
    if any("\0" in word for word in words):
        return "command has a null character"
    # The command runs in the home directory. A path relative to the project would be a program of the clone.
    if "/" in words[0] and not words[0].startswith(("/", "~/")):
        return f"command: {words[0]!r} must be a name on PATH or an absolute path"
    return None


def _directory_error(directory: str | None) -> str | None:
    if directory is None or directory.startswith(("/", "~/")):
        return None
    return f"config_dir: {directory!r} must be an absolute path, or begin with ~/"


def _error(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path}: {reason}", f"${{EDITOR:-vi}} {shlex.quote(str(path))}")


def describe_source(account: Account) -> str:
    """Return where the secret comes from, for a person. A command is shown by its program only: see ``has_secret``."""
    parts = []
    if account.variable:
        parts.append(f"variable {account.variable}")
    if account.command:
        parts.append(f"command {Path(account.command[0]).name}")
    if account.config_dir:
        parts.append(f"directory {account.config_dir}")
    return ", ".join(parts) or "the program's own login"


Records = dict[str, AccountRecord]
LOCK_LIMIT = 10.0
"""Seconds to wait for the lock. It is held for one read and one write."""
MAX_REASON = 300  # characters
_UNUSED = AccountRecord()


def records_path(environ: Mapping[str, str], home: Path) -> Path:
    """Return the path of the file."""
    return state_directory(environ, home) / "accounts.json"


def read_records(path: Path) -> Records:
    """Return the records by account id; none if there is no file. Raises LizaError if it is damaged."""
    data = untrusted_files.read_if_exists(path, untrusted_files.MAX_RECORD_SIZE)
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=decodable(Records))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise LizaError(f"{path} cannot be read: {describe_decode_error(error, Records)}", f"rm {path}") from error


def read_sound_records(path: Path) -> Records:
    """Return the records as ``read_records`` does, and none from a damaged file: the next change repairs it.

    For decisions that go on without them: at worst a session starts with an account at its limit.
    """
    try:
        return read_records(path)
    except (LizaError, NotRegularFile):
        return {}


def change_records(path: Path, change: Callable[[Records], Records]) -> Records:
    """Replace the records by ``change`` of them, under the lock; return the new ones.

    After a damaged file they begin anew: each limit is found out again, at the price of one session. Raises OSError,
    LockTimeout.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_path(path.with_name(f"{path.name}.lock"), LOCK_LIMIT, 0o600):
        before = read_sound_records(path)
        after = change(dict(before))
        if after != before:
            atomic.write(path, msgspec.json.encode(after) + b"\n")
        return after


def change_record(path: Path, account: str, change: Callable[[AccountRecord], AccountRecord]) -> AccountRecord:
    """Replace the record of one account; return the new one. Raises OSError, LockTimeout."""

    def changed(records: Records) -> Records:
        return {**records, account: change(records.get(account, _UNUSED))}

    return change_records(path, changed)[account]


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
