"""Whether a program has a usable account now, as its supervisor asks before each decision."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from liza.programs.accounts import account_file, account_records
from liza.programs.accounts.account_file import AccountsFile
from liza.programs.accounts.account_records import Records
from liza.programs.presets.preset import Preset
from liza.rules.errors import LizaError
from liza.rules.worker_api import account_rules
from liza.rules.worker_api.account_rules import SOURCE_RETRY, NoneUsable

_Stamp = tuple[int, int, int]


class AccountWatch:
    """Reads the file of accounts and their records, again only after a change. Without the file it costs one stat."""

    def __init__(self, environ: Mapping[str, str], home: Path | None = None) -> None:
        self._home = home or Path.home()
        self._records_path = account_records.records_path(environ, self._home)
        self._file: tuple[_Stamp | None, AccountsFile | LizaError] | None = None
        self._records: tuple[_Stamp | None, Records] | None = None

    def find_wait(self, preset: Preset, now: datetime) -> NoneUsable | None:
        """Return why no account of the program can be used, and until when; None if a session may start."""
        path = account_file.accounts_path(self._home)
        stamp = _stamp(path)
        if stamp is None:
            return None
        if self._file is None or self._file[0] != stamp:
            self._file = (stamp, _read_file(self._home))
        try:
            if isinstance(self._file[1], LizaError):
                raise self._file[1]
            names = [account.id for account in self._file[1].accounts_of(preset)]
        except LizaError as error:
            return NoneUsable(now + SOURCE_RETRY, f"{error.message} (next: {error.hint})")
        choice = account_rules.choose_account(names, self._read_records(), now, self._file[1].order) if names else None
        return choice if isinstance(choice, NoneUsable) else None

    def _read_records(self) -> Records:
        stamp = _stamp(self._records_path)
        if self._records is None or self._records[0] != stamp:
            self._records = (stamp, account_records.read_sound_records(self._records_path))
        return self._records[1]


def _read_file(home: Path) -> AccountsFile | LizaError:
    try:
        return account_file.read_accounts(home)
    except LizaError as error:
        return error


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_mode)
