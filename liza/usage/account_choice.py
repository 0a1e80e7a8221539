"""The account of a session: choose it, put its secret into the environment, and record what the end says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from liza.model.errors import Missing, NoAccount, UsageError
from liza.model.session_ends import SessionOutcome
from liza.model.value_classes import Value
from liza.programs.presets.preset import Preset
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.run_directory import RunDir
from liza.text.formats import format_time
from liza.text.redaction import redact
from liza.usage import account_files
from liza.usage.account_files import ACCOUNTS_COMMAND, Account, Records, Secret
from liza.usage.rules import account_rules
from liza.usage.rules.account_rules import AccountRecord, NoneUsable
from liza.usage.run_account import RunAccount, forget_run_account, read_run_account, write_run_account

_UNUSED = AccountRecord()


class SessionAccount:
    """The account of a session and its secret. ``account`` None: the program has no accounts in the file."""

    def __init__(
        self, preset: Preset, account: Account | None, secret: Secret | None, others: Sequence[Account], now: datetime
    ) -> None:
        self.account = account
        self.secret = secret
        self._config_dir_env = preset.config_dir_env
        self._hidden = _credential_variables(preset, others)
        self.read = now

    @property
    def config_dir(self) -> str:
        """The account's own configuration directory, or empty."""
        return self.account.config_dir if self.account is not None else ""

    @property
    def expires(self) -> datetime | None:
        """When the secret ends, if that is known."""
        seconds = self.account.valid_seconds if self.account is not None else None
        return None if seconds is None else self.read + timedelta(seconds=seconds)

    def apply_to(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the session: with this account's credentials, and those of no other account."""
        if self.account is None:
            return dict(env)
        clean = {name: value for name, value in env.items() if name not in self._hidden}
        if self.account.config_dir:
            clean[self._config_dir_env] = self.account.config_dir
        return {**clean, self.account.sets: self.secret.value} if self.secret is not None else clean

    def record(self, directory: RunDir) -> None:
        """Record the account of the run, without the secret. Raises OSError."""
        forget_run_account(directory)
        if self.account is not None:
            write_run_account(
                directory,
                RunAccount(
                    account=self.account.id, read=self.read, expires=self.expires, config_dir=self.account.config_dir
                ),
            )


def _credential_variables(preset: Preset, accounts: Sequence[Account]) -> frozenset[str]:
    """Return the variables that can hold a credential of an account: what a session gets is set anew."""
    names = {name for account in accounts for name in (account.variable, account.sets)}
    return frozenset({*names, preset.credential_env} - {""}) if accounts else frozenset()


class AccountChooser:
    """Chooses accounts of the person for sessions of one program. ``environ`` is the supervisor's environment."""

    def __init__(
        self, preset: Preset, environ: Mapping[str, str], notify: Callable[[str], None], home: Path | None = None
    ) -> None:
        self._preset, self._environ, self._notify = preset, environ, notify
        self._home = home or Path.home()
        self._records = account_files.records_path(environ, self._home)

    def take(self, now: datetime, preferred: str | None = None) -> SessionAccount:
        """Choose an account, and read its secret. An account without a readable secret is skipped.

        ``preferred`` is the account of a conversation that the session continues. Raises NoAccount.
        """
        try:
            file = account_files.read_accounts(self._home)
            accounts = file.accounts_of(self._preset)
        except UsageError as error:
            # Without the file it is not known which account is allowed: the program's own login may be another's.
            raise NoAccount(error.message, error.hint) from error
        by_id = {account.id: account for account in accounts}
        # Of those skipped here: the file may be read-only, or the disk full.
        unreadable: Records = {}
        while by_id:
            records = {**account_files.read_sound_records(self._records), **unreadable}
            choice = account_rules.choose_account(tuple(by_id), records, now, preferred)
            if isinstance(choice, NoneUsable):
                raise NoAccount(describe_wait(self._preset.name, choice), ACCOUNTS_COMMAND)
            account = by_id[choice]
            try:
                account_files.check_directory(account)
                secret = account_files.read_secret(account, self._environ, self._home)
            except Missing as error:
                unreadable[account.id] = self._skip(account, error, now)
                continue
            return SessionAccount(self._preset, account, secret, accounts, now)
        return SessionAccount(self._preset, None, None, (), now)

    def read_again(self, account_id: str, now: datetime) -> SessionAccount:
        """Return the account of a living session with its secret, read again. Raises NoAccount, Missing."""
        account = self.find(account_id)
        secret = account_files.read_secret(account, self._environ, self._home)
        return SessionAccount(self._preset, account, secret, self._read_accounts(), now)

    def find(self, account_id: str) -> Account:
        """Return the account with this id. Raises NoAccount."""
        account = next((account for account in self._read_accounts() if account.id == account_id), None)
        if account is None:
            raise NoAccount(
                f"account {account_id} is not in {account_files.accounts_path(self._home)}", ACCOUNTS_COMMAND
            )
        return account

    def _read_accounts(self) -> tuple[Account, ...]:
        try:
            return account_files.read_accounts(self._home).accounts_of(self._preset)
        except UsageError as error:
            raise NoAccount(error.message, error.hint) from error

    def hide_credentials(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` without the credentials of accounts, for a process that calls no model.

        Raises NoAccount if the file of accounts cannot be read.
        """
        hidden = _credential_variables(self._preset, self._read_accounts())
        return {name: value for name, value in env.items() if name not in hidden}

    def _skip(self, account: Account, error: Missing, now: datetime) -> AccountRecord:
        """Record that the secret of an account cannot be read, so that another one is chosen; return the record."""
        self._notify(f"! {error.message} (next: {error.hint})")
        reason = error.message.removeprefix(f"account {account.id}: ")
        try:
            account_files.change_record(
                self._records, account.id, lambda record: account_rules.after_unreadable(record, now, reason)
            )
        except OSError as failed:
            self._notify(f"! what is known of accounts cannot be written: {failed}")
        return account_rules.after_unreadable(_UNUSED, now, reason)


def find_wait(preset: Preset, environ: Mapping[str, str], now: datetime, home: Path | None = None) -> NoneUsable | None:
    """Return why no account of the program can be used, and until when; None if a session may start."""
    home = home or Path.home()
    try:
        names = [account.id for account in account_files.read_accounts(home).accounts_of(preset)]
    except UsageError as error:
        return NoneUsable(now + account_rules.SOURCE_RETRY, f"{error.message} (next: {error.hint})")
    if not names:
        return None
    records = account_files.read_sound_records(account_files.records_path(environ, home))
    choice = account_rules.choose_account(names, records, now)
    return choice if isinstance(choice, NoneUsable) else None


def describe_wait(program: str, wait: NoneUsable) -> str:
    """Return why no account can be used, and until when."""
    until = "until a person acts" if wait.until is None else f"before {format_time(wait.until)}"
    return f"no account of {program} can be used {until}: {wait.reason}"


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
    path = account_files.records_path(environ, home or Path.home())
    reason = redact(end.reason)[: account_files.MAX_REASON]
    if end.outcome is SessionOutcome.QUOTA:
        return record_limit(path, used.account, reason, end.retry_at, now, first)
    if end.login_refused:
        return record_refusal(path, used.account, reason)
    if end.outcome in (SessionOutcome.FINISHED, SessionOutcome.HANDED_OFF):
        _note_success(path, used.account)
    return None


def record_refusal(path: Path, account: str, reason: str) -> AccountObstacle:
    """Record that the model refused the login of an account. Raises OSError, LockTimeout."""
    account_files.change_record(path, account, lambda record: account_rules.after_refusal(record, reason))
    hint = f"{ACCOUNTS_COMMAND} --clear {account}"
    return AccountObstacle(account, f"account {account} is set aside: {reason}", True, hint)


def record_limit(
    path: Path, account: str, reason: str, until: datetime | None, now: datetime, first: float
) -> AccountObstacle:
    """Record that the usage limit of an account is reached. Raises OSError, LockTimeout."""

    def change(record: AccountRecord) -> AccountRecord:
        return account_rules.after_limit(record, now, reason, until, first)

    record = account_files.change_record(path, account, change)
    end = "" if record.until is None else f" until {format_time(record.until)}"
    return AccountObstacle(account, f"account {account} is not used{end}: {reason}")


def _note_success(path: Path, account: str) -> None:
    """Reset the count of failures. Most sessions have none: then nothing is written."""
    if account_files.read_sound_records(path).get(account, AccountRecord()).failures:
        account_files.change_record(path, account, account_rules.after_success)
