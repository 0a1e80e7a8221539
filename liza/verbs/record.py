"""Bring what the board spooled into the history, a git commit a revision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from liza.board.lock import Lock
from liza.board.spool import Spool, SpoolItem
from liza.repo import history
from liza.repo.history import Recorded
from liza.rules.errors import BoardInconsistent
from liza.verbs.crew import Crew

LARGEST_SPOOL = 64 << 20  # bytes


def record(crew: Crew) -> int:
    """Commit the spool in ascending order; how many revisions. 0 as well when somebody else is at it."""
    lock = Lock(crew.paths.recorder_lock)
    if not lock.try_acquire():
        return 0
    try:
        return _record(crew)
    finally:
        lock.release()


def _record(crew: Crew) -> int:
    spool = Spool(crew.paths.spool)
    # A revision is spooled before the board has it: a kill between the two keeps it from ever coming to be.
    try:
        reached = crew.board.read().revision
    except BoardInconsistent:
        return 0
    waiting = [revision for revision in spool.revisions() if revision <= reached]
    if not waiting:
        return 0
    done = [
        Recorded(
            revision=item.revision,
            subject=item.subject,
            body="",
            time=datetime.fromisoformat(item.time),
            author=item.actor,
            text=text,
        )
        for item, text in _texts(spool)
        if item.revision <= waiting[-1]
    ]
    # What was spooled since is for the next time: only what was read here may go.
    count = history.record(crew.git, done) if done else 0
    spool.drop(waiting[-1])
    return count


def _texts(spool: Spool) -> Iterator[tuple[SpoolItem, str]]:
    """Each waiting revision with the whole board as it was then."""
    waiting = {item.revision: item for item in spool.items()}
    for revision, text in spool.texts():
        if revision in waiting:
            yield waiting[revision], text


def record_if_alone(crew: Crew) -> None:
    """What a verb does last: with no supervisor alive, nobody else would record. A spool that has grown too large, for
    whatever reason, is drained by whoever adds to it."""
    spool = Spool(crew.paths.spool)
    if not spool.revisions():
        return
    if spool.size() > LARGEST_SPOOL:
        record(crew)
        return
    locks = crew.paths.locks.glob("supervisor-*.lock")
    if not any(crew.supervised(lock.name.removeprefix("supervisor-").removesuffix(".lock")) for lock in locks):
        record(crew)
