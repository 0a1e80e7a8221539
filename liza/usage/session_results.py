"""What the end of a session says about its account: a usage limit, a refused login, or that it works."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from liza.model.session_ends import SessionOutcome
from liza.model.value_classes import Value
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.run_directory import RunDir
from liza.text.redaction import redact
from liza.text.times import format_time
from liza.usage import account_records
from liza.usage.account_file import ACCOUNTS_COMMAND
from liza.usage.rules import account_rules
from liza.usage.rules.account_rules import AccountRecord
from liza.usage.run_account import read_run_account


class AccountObstacle(Value):
    """The account of an ended session cannot be used now. ``text`` is for a person; ``needs_person``: only one can
    make it usable again, with the command ``next``."""

    account: str
    text: str
    needs_person: bool = False
    next: str = ACCOUNTS_COMMAND


def record_session_end(
    directory: RunDir,
    end: SessionEnd,
    environ: Mapping[str, str],
    now: datetime,
    first: float,
    home: Path | None = None,
) -> AccountObstacle | None:
    """Record what the end of a session says about its account. Return the obstacle, if there is one now.

    ``first``: see ``account_rules.after_limit``. Raises OSError, LizaError.
    """
    used = read_run_account(directory)
    if used is None:
        return None
    path = account_records.records_path(environ, home or Path.home())
    reason = redact(end.reason)[: account_records.MAX_REASON]
    if end.outcome is SessionOutcome.QUOTA:
        return record_limit(path, used.account, reason, end.retry_at, now, first)
    if end.login_refused:
        return record_refusal(path, used.account, reason, now)
    if end.outcome in (SessionOutcome.FINISHED, SessionOutcome.HANDED_OFF):
        _note_success(path, used.account)
    return None


def record_refusal(path: Path, account: str, reason: str, now: datetime) -> AccountObstacle:
    """Record that the model refused the login of an account. Raises OSError, LockTimeout."""
    account_records.change_record(path, account, lambda record: account_rules.after_refusal(record, now, reason))
    hint = f"{ACCOUNTS_COMMAND} --clear {account}"
    return AccountObstacle(account, f"account {account} is set aside: {reason}", True, hint)


def record_limit(
    path: Path, account: str, reason: str, until: datetime | None, now: datetime, first: float
) -> AccountObstacle:
    """Record that the usage limit of an account is reached. Raises OSError, LockTimeout."""

    def change(record: AccountRecord) -> AccountRecord:
        return account_rules.after_limit(record, now, reason, until, first)

    record = account_records.change_record(path, account, change)
    end = "" if record.until is None else f" until {format_time(record.until)}"
    return AccountObstacle(account, f"account {account} is not used{end}: {reason}")


def _note_success(path: Path, account: str) -> None:
    """Reset the count of failures. Most sessions have none: then nothing is written."""
    if account_records.read_sound_records(path).get(account, AccountRecord()).failures:
        account_records.change_record(path, account, account_rules.after_success)
