"""What is known of each account: one small file of the user, ``accounts.json`` in the state directory, without secrets.

It belongs to the user and not to a crew: a usage limit applies to the account, whichever crew reached it. Each change
replaces the file atomically, under a lock beside it. Decision 026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from liza.model.errors import LizaError, NotRegularFile
from liza.model.paths import state_directory
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import decodable
from liza.system import atomic, crash_points, untrusted_files
from liza.system.locks import lock_path
from liza.usage.rules.account_rules import AccountRecord

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

    A damaged file is kept as ``accounts.json.damaged``, and the records begin anew: each limit is found out again, at
    the price of one session. Raises OSError, LockTimeout.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_path(path.with_name(f"{path.name}.lock"), LOCK_LIMIT, 0o600):
        try:
            before = read_records(path)
        except (LizaError, NotRegularFile):
            path.replace(damaged_path(path))
            crash_points.point("renamed", "damaged-accounts")
            before = {}
        after = change(dict(before))
        if after != before:
            atomic.write(path, msgspec.json.encode(after) + b"\n")
        return after


def change_record(path: Path, account: str, change: Callable[[AccountRecord], AccountRecord]) -> AccountRecord:
    """Replace the record of one account; return the new one. Raises OSError, LockTimeout."""

    def changed(records: Records) -> Records:
        return {**records, account: change(records.get(account, _UNUSED))}

    return change_records(path, changed)[account]


def damaged_path(path: Path) -> Path:
    """Return the path under which a damaged file is kept."""
    return path.with_name(f"{path.name}.damaged")
