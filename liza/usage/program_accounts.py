"""programs accounts: the accounts of the person, which sessions use them, and until when each is limited."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from liza.crew.caller import require_person
from liza.crew.crew import Crew, find_crew
from liza.model.errors import LizaError, Missing, NoCrew, NotRegularFile, UsageError
from liza.model.paths import Paths, run_id
from liza.model.value_classes import Value, replace
from liza.programs.liveness import is_session_living
from liza.programs.presets import preset_table
from liza.programs.presets.preset_table import Presets
from liza.system import file_growth
from liza.system.clock import SystemClock
from liza.text.redaction import redact
from liza.usage import account_files
from liza.usage.account_files import ACCOUNTS_COMMAND, Account, AccountsFile
from liza.usage.rules import account_rules
from liza.usage.rules.account_rules import AccountRecord
from liza.usage.run_account import read_run_account

_UNUSED = AccountRecord()


class AccountState(Value):
    """An account without its secret: its source, its state, and the living sessions that use it.

    ``until`` and ``reason``: while it cannot be used. ``problem``: why its secret cannot be read. ``checked``: whether
    the secret was read; None unless that was asked for.
    """

    id: str
    program: str
    name: str
    source: str
    sets: str
    state: str
    until: datetime | None
    reason: str | None
    used_by: tuple[str, ...]
    problem: str | None
    checked: bool | None = None


class AccountReport(Value):
    """The accounts of the person's file. ``ok``: none has a problem."""

    file: str
    accounts: tuple[AccountState, ...]
    ok: bool
    notices: tuple[str, ...]


def show_accounts(*, clear: str | None = None, check: bool = False) -> AccountReport:
    """Return the accounts of all programs, with their state; no secret.

    ``clear``: first forget what keeps this account from being used. ``check``: read each secret once and report
    whether that works; ``checked`` is False for a program's own login, which only the program can read. Both are for
    people. Raises LizaError if the file or the records cannot be read.
    """
    crew = _find_crew()
    if crew is not None and (clear is not None or check):
        require_person(crew, planner=False)
    home = Path.home()
    file = account_files.read_accounts(home)
    table = preset_table.load_presets(crew.paths if crew is not None else Paths(Path.cwd()))
    accounts, notices = _accounts(file, table)
    path = account_files.records_path(os.environ, home)
    if clear is not None:
        _clear(path, clear, accounts, crew)
    records = account_files.read_records(path)
    users, unknown = ({}, ()) if crew is None else _find_users(crew)
    states = [_state(account, records.get(account.id, _UNUSED), users.get(account.id, ())) for account in accounts]
    if check:
        states = [
            replace(state, problem=_try_secret(account, home), checked=account.has_secret or bool(account.config_dir))
            for account, state in zip(accounts, states, strict=True)
        ]
    return AccountReport(
        file=str(file.path),
        accounts=tuple(states),
        ok=all(state.problem is None for state in states),
        notices=(*notices, *unknown),
    )


def _find_crew() -> Crew | None:
    try:
        return find_crew()
    except NoCrew:
        return None


def _accounts(file: AccountsFile, table: Presets) -> tuple[list[Account], list[str]]:
    """Return the accounts of known programs, and a notice for each program that is unknown."""
    accounts: list[Account] = []
    notices: list[str] = []
    for program in file.rows:
        if program in table.rows:
            accounts += file.accounts_of(table.rows[program])
        else:
            suggestion = preset_table.did_you_mean(program, table.rows.keys())
            notices.append(f"{file.path} has accounts of an unknown program {program!r}{suggestion}")
    return accounts, notices


def _state(account: Account, record: AccountRecord, users: Sequence[str]) -> AccountState:
    now = SystemClock().now()
    is_usable = account_rules.is_usable(record, now)
    obstacle = account_files.find_obstacle(account, os.environ)
    return AccountState(
        id=account.id,
        program=account.program,
        name=account.name,
        source=account_files.describe_source(account),
        sets=account.sets,
        state=account_rules.describe_record(record, now),
        until=None if is_usable else record.until,
        reason=None if is_usable else redact(record.reason),
        used_by=tuple(users),
        problem=None if obstacle is None else obstacle.message,
    )


def _find_users(crew: Crew) -> tuple[Mapping[str, tuple[str, ...]], Sequence[str]]:
    """Return the living runs of this crew that use each account, and a notice for each whose account is not known."""
    users: dict[str, tuple[str, ...]] = {}
    unknown = []
    for name, agent in crew.board.read().agents.items():
        directory = crew.run_dir(run_id(name, agent.runs)) if agent.runs else None
        # A file that an agent damaged hides only its own run.
        try:
            used = read_run_account(directory) if directory is not None and is_session_living(directory) else None
            if used is not None and directory is not None:
                users[used.account] = (*users.get(used.account, ()), directory.run)
        except LizaError as error:
            unknown.append(str(error) if error.hint is None else f"{error} (next: {error.hint})")
    return users, unknown


def _clear(path: Path, account: str, accounts: Sequence[Account], crew: Crew | None) -> None:
    names = [each.id for each in accounts]
    if account not in names:
        suggestion = preset_table.did_you_mean(account, names)
        raise UsageError(f"unknown account {account!r}{suggestion}", ACCOUNTS_COMMAND)
    account_files.change_record(path, account, lambda record: AccountRecord())
    if crew is not None:
        # Without it the supervisors notice the change after config.poll_interval.
        with suppress(OSError):
            file_growth.wake_watchers(crew.paths, "accounts")


def _try_secret(account: Account, home: Path) -> str | None:
    """Read the secret of an account; return why that fails, or None."""
    try:
        account_files.check_directory(account)
        account_files.read_secret(account, os.environ, home)
    except Missing as error:
        return error.message
    return None


class AccountCheck(Value):
    """What `doctor` says of the accounts of a program, or of one of them."""

    text: str
    ok: bool = True
    hint: str = ""


def check_accounts(table: Presets) -> list[AccountCheck]:
    """Return what would keep each account from being used. No command is run."""
    home = Path.home()
    try:
        file = account_files.read_accounts(home)
        if not file.rows:
            return []
        accounts, notices = _accounts(file, table)
        records = account_files.read_records(account_files.records_path(os.environ, home))
    except (LizaError, NotRegularFile) as error:
        return [AccountCheck(error.message, False, error.hint)]
    checks = [(account, _check_account(account, records.get(account.id, _UNUSED))) for account in accounts]
    # One that works is enough for the sessions of its program.
    working = {account.program for account, check in checks if check.ok}
    unknown = [AccountCheck(notice, hint=f"${{EDITOR:-vi}} {file.path}") for notice in notices]
    return [*unknown, *(replace(check, ok=account.program in working) for account, check in checks)]


def _check_account(account: Account, record: AccountRecord) -> AccountCheck:
    """Check one account; not ``ok`` if a person has to act before it can be used."""
    obstacle = account_files.find_obstacle(account, os.environ)
    if obstacle is not None:
        return AccountCheck(obstacle.message, False, obstacle.hint)
    now = SystemClock().now()
    if account_rules.is_usable(record, now):
        return AccountCheck(f"{account.id}: {account_files.describe_source(account)}")
    state, again = account_rules.describe_record(record, now), f"{ACCOUNTS_COMMAND} --clear {account.id}"
    # A limit ends by itself; a refused login does not.
    return AccountCheck(f"{account.id} is {state}: {redact(record.reason)}", record.until is not None, again)
