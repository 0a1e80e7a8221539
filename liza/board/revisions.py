"""The revisions of a board: the records of the journal, and one line of text about each. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Final, TypeVar

import msgspec

from liza.board.text.values import Revision
from liza.model.model import State

_MAX_NAMES: Final = 5  # archived tasks that the line of a revision names


class RevisionRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """The head of a line: one revision. ``sha256`` is that of the board after it.

    ``void`` names a revision that was not committed, ``archived`` the tasks that the revision moved to the archive.
    """

    revision: Revision = 0
    time: str = ""
    actor: str = ""
    event: str = ""
    task: str | None = None
    from_: str | None = None
    to: str | None = None
    sha256: str = ""
    alerts: tuple[str, ...] = ()
    overwrote: tuple[int, ...] = ()
    archived: tuple[str, ...] = ()
    void: Revision | None = None


class EntryChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new text of one entry. ``after`` is the key of the entry before it, if the entry is new."""

    section: str
    key: str
    text: str
    after: str | None = None


class RevisionLine(RevisionRecord, frozen=True, omit_defaults=True):
    """A whole line: with the changed ``entries``, or the ``text`` of the board."""

    entries: tuple[EntryChange, ...] = ()
    text: str | None = None


RecordT = TypeVar("RecordT", bound=RevisionRecord)


def format_record(record: RevisionRecord) -> bytes:
    """Return a record as a line of the file."""
    return b"- " + json.dumps(msgspec.to_builtins(record), ensure_ascii=False).encode() + b"\n"


def format_subject(record: RevisionRecord) -> str:
    """Return a revision in one line: ``task-3: CLAIMED → READY_FOR_REVIEW (coder-1.7)``."""
    if record.archived:
        names = ", ".join(record.archived[:_MAX_NAMES])
        more = f" and {len(record.archived) - _MAX_NAMES} more" if len(record.archived) > _MAX_NAMES else ""
        return f"{record.event}: {names}{more} ({record.actor})"
    if record.task and record.from_ != record.to and record.to:
        return f"{record.task}: {record.from_ or 'new'} → {record.to} ({record.actor})"
    return f"{record.task}: {record.event} ({record.actor})" if record.task else f"{record.event} ({record.actor})"


def with_statuses(record: RecordT, before: State, after: State) -> RecordT:
    """Return the record with the old and the new status of its task, if the status changed."""
    if record.task is None:
        return record
    old, new = before.task(record.task), after.task(record.task)
    if old is not None and new is not None and old.status is new.status:
        return record
    return msgspec.structs.replace(record, from_=old and old.status.value, to=new and new.status.value)


def sha(data: bytes) -> str:
    """Return the sha256 of ``data`` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
