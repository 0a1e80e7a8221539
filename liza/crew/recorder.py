"""Commit spooled board revisions to the history, one git commit for each.

The supervisors of a crew record together: whichever first sees that a batch is due writes it as a pack, and git joins
packs if there are many (decision 019). A command without a supervisor records at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import takewhile

import msgspec

from liza.board import archive_files
from liza.board.spool import RecordedRevisions, Spool, SpoolItem
from liza.config import confirmed_settings
from liza.crew.crew import Crew
from liza.git import board_history
from liza.git.board_history import HistoryConflict, NewRevision
from liza.model.errors import BoardInconsistent, LizaError, NotRegularFile
from liza.model.paths import HISTORY_REF
from liza.model.statuses import AgentStatus
from liza.model.value_classes import decodable, replace
from liza.system import files, untrusted_files
from liza.system.locks import Lock

MAX_SPOOL = 64 << 20  # bytes; a larger spool is recorded even beside a supervisor
MAX_GOAL = 1 << 20  # bytes of goal.md in the history
BATCH_INTERVAL = 10.0  # seconds that a revision waits in the spool at most, while a supervisor runs
QUIET_INTERVAL = 1.0
"""Seconds without a new revision after which a batch is due: without .liza the history is the only copy."""
BATCH_COUNT = 64  # revisions of a batch that does not wait for its time, and at most
_FIRST_SUBJECT = "init (human)"  # of the revision that `Board.create` writes
BATCH_SIZE = 1 << 20  # bytes of a batch that does not wait for its time


def seconds_to_batch(crew: Crew) -> float | None:
    """Return the seconds until the supervisors have to record, 0 if a batch is due; None if the spool is empty."""
    spool = Spool(crew.paths.spool)
    waiting = spool.revisions()
    if not waiting:
        return None
    if len(waiting) >= BATCH_COUNT or spool.size() >= BATCH_SIZE:
        return 0.0
    now = crew.clock.now()
    oldest, newest = spool.age(waiting[0], now), spool.age(waiting[-1], now)
    # A negative age: the clock was set back. The clock may be a second behind the file system.
    if oldest is None or newest is None or newest < -1:
        return 0.0
    return max(0.0, min(BATCH_INTERVAL - oldest, QUIET_INTERVAL - newest))


def record_history(crew: Crew, *, packed: bool = False) -> int:
    """Commit the spool in ascending order. Return the number of revisions; 0 if another process is recording.

    ``packed``: write packs, and let git join them if there are many.
    """
    lock = Lock(crew.paths.recorder_lock)
    count = 0
    previous: list[int] = []
    while lock.try_acquire():
        try:
            count += _record_batch(crew, packed)
        finally:
            lock.release()
        # Another process may have spooled, found the lock held and returned: look again.
        waiting = _recordable_revisions(crew)
        if not waiting or waiting == previous:
            break
        previous = waiting
    return count


def _recordable_revisions(crew: Crew) -> list[int]:
    """Return the spooled revisions that the board has reached. After a crash the spool may hold one that it never
    reaches.
    """
    try:
        reached = crew.board.read().revision
    except BoardInconsistent:
        return []
    return [revision for revision in Spool(crew.paths.spool).revisions() if revision <= reached]


def _record_batch(crew: Crew, packed: bool) -> int:
    spool = Spool(crew.paths.spool)
    # `record_history` continues with the rest.
    waiting = _recordable_revisions(crew)[:BATCH_COUNT]
    if not waiting:
        return 0
    if spool.lacks_base() and (newest := board_history.read_newest(crew.git)) is not None:
        # The base is not synced: after a power cut it may be empty.
        spool.write_base(*newest)
    recorded = RecordedRevisions()

    def new_revisions() -> Iterator[NewRevision]:
        previous = None
        for item, text in takewhile(lambda board: board[0].revision <= waiting[-1], _spooled_boards(spool)):
            if previous is not None:
                yield previous
            previous = _new_revision(item, text)
            recorded.add(item.revision, text)
        if previous is not None:
            yield _with_files(crew, previous)

    # Drop only what was read here: newer revisions are not recorded yet.
    try:
        count = board_history.record_revisions(crew.git, new_revisions(), packed=packed)
    except HistoryConflict as conflict:
        fields = conflict.message, conflict.hint, conflict.newest
        files.replace_unsynced(crew.paths.history_conflict, msgspec.json.encode(fields))
        return 0
    crew.paths.history_conflict.unlink(missing_ok=True)
    _report_unrecorded(crew, spool.drop_through(waiting[-1], recorded))
    if packed:
        # The revisions are recorded already: a failure only leaves more packs.
        with suppress(LizaError, OSError):
            board_history.maintain_objects(crew.git)
    return count


def read_conflict(crew: Crew) -> HistoryConflict | None:
    """Return why the last batch was not recorded: the history has other revisions. None if it can be recorded now.

    Raises GitFailed.
    """
    path = crew.paths.history_conflict
    try:
        fields = msgspec.json.decode(untrusted_files.read_record(path), type=decodable(tuple[str, str, str]))
    except (FileNotFoundError, NotRegularFile, msgspec.DecodeError):
        # The next attempt to record writes a damaged file anew.
        return None
    conflict = HistoryConflict(*fields)
    return conflict if crew.git.find_commit(HISTORY_REF) == conflict.newest else None


def _new_revision(item: SpoolItem, text: str) -> NewRevision:
    return NewRevision(
        revision=item.revision,
        subject=item.subject,
        body="",
        time=datetime.fromisoformat(item.time),
        author=item.actor,
        text=text,
        is_first=item.subject == _FIRST_SUBJECT,
    )


def _with_files(crew: Crew, last: NewRevision) -> NewRevision:
    """Return the last revision of a batch with the files beside the board.

    They are not fields of the board, but a person's data, too: `git clean -x` would delete them with .liza.
    """
    return replace(
        last,
        goal=_read_goal(crew),
        settings=confirmed_settings.export_settings(crew.paths),
        archive=_changed_archive(crew),
    )


def _changed_archive(crew: Crew) -> dict[str, bytes]:
    """Return the archive files that differ from the history; none if the archive is damaged or cannot be read.

    The history keeps the version before the damage, from which `restore` writes.
    """
    with suppress(LizaError, OSError):
        if crew.paths.archive.exists() and archive_files.find_damage(crew.paths, crew.board.read()) is None:
            recorded = board_history.list_archive(crew.git)
            present = archive_files.read_files(crew.paths).items()
            return {name: data for name, data in present if not board_history.has_content(recorded.get(name), data)}
    return {}


def _report_unrecorded(crew: Crew, revisions: list[int]) -> None:
    """Log the revisions that the history lacks because their files could not be read. `liza doctor` reports them."""
    paths = [crew.board.spool.unrecorded_path(revision) for revision in revisions]
    lines = [f"history  a revision could not be read and is not in the history; its file is {path}" for path in paths]
    if lines:
        with suppress(LizaError, OSError):
            crew.append_alert_log(lines)


def _read_goal(crew: Crew) -> bytes | None:
    """Return goal.md, or None if it is not a regular file of at most MAX_GOAL bytes."""
    try:
        return untrusted_files.read_if_exists(crew.paths.specs / "goal.md", MAX_GOAL)
    except (LizaError, OSError):
        return None


def _spooled_boards(spool: Spool) -> Iterator[tuple[SpoolItem, str]]:
    """Yield each spooled revision with the complete board at that time."""
    waiting = {item.revision: item for item in spool.read_items()}
    for revision, text in spool.rebuild_texts():
        if revision in waiting:
            yield waiting[revision], text


def record_if_unsupervised(crew: Crew) -> None:
    """Record the history at the end of a command if no supervisor is alive to do it.

    If the spool is larger than MAX_SPOOL, it is recorded in any case.
    """
    spool = Spool(crew.paths.spool)
    if not spool.revisions():
        return
    if spool.size() > MAX_SPOOL:
        record_history(crew)
        return
    locks = crew.paths.locks.glob("supervisor-*.lock")
    if not any(crew.is_supervised(lock.name.removeprefix("supervisor-").removesuffix(".lock")) for lock in locks):
        record_history(crew)


def record_at_exit(crew: Crew, agent: str) -> None:
    """Record at the end of the supervisor of ``agent``, which the board shows as OFFLINE, if it is the last one.

    The board orders the exits: of several supervisors that exit at the same time, the last one sees no other at work.
    """
    agents = crew.board.read().agents.items()
    others = (name for name, other in agents if name != agent and other.status != AgentStatus.OFFLINE)
    if not any(crew.is_supervised(name) for name in others):
        record_history(crew, packed=True)
