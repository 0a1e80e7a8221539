"""Commit spooled board revisions to the history, one git commit for each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from liza.board.spool import Spool, SpoolItem
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings
from liza.repo import board_history
from liza.repo.board_history import NewRevision
from liza.rules.errors import BoardInconsistent, LizaError
from liza.rules.value_classes import replace
from liza.system import untrusted_files
from liza.system.file_lock import Lock

MAX_SPOOL = 64 << 20  # bytes; a larger spool is recorded even beside a supervisor
MAX_GOAL = 1 << 20  # bytes of goal.md in the history


def record_history(crew: Crew) -> int:
    """Commit the spool in ascending order. Return the number of revisions; 0 if another process is recording."""
    lock = Lock(crew.paths.recorder_lock)
    count = 0
    previous: list[int] = []
    while lock.try_acquire():
        try:
            count += _record_batch(crew)
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


def _record_batch(crew: Crew) -> int:
    spool = Spool(crew.paths.spool)
    waiting = _recordable_revisions(crew)
    if not waiting:
        return 0
    revisions = [
        NewRevision(
            revision=item.revision,
            subject=item.subject,
            body="",
            time=datetime.fromisoformat(item.time),
            author=item.actor,
            text=text,
        )
        for item, text in _spooled_boards(spool)
        if item.revision <= waiting[-1]
    ]
    if revisions:
        # Not fields of the board, but a person's data, too: `git clean -x` would delete them with .liza.
        revisions[-1] = replace(
            revisions[-1], goal=_read_goal(crew), settings=confirmed_settings.export_settings(crew.paths)
        )
    # Drop only what was read here: newer revisions are not recorded yet.
    count = board_history.record_revisions(crew.git, revisions) if revisions else 0
    spool.drop_through(waiting[-1])
    return count


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
