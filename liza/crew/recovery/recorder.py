"""Bring what the board spooled into the history, a git commit a revision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from liza.board.spool import Spool, SpoolItem
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings
from liza.repo import board_history
from liza.repo.board_history import NewRevision
from liza.rules.errors import BoardInconsistent, LizaError
from liza.system import atomic
from liza.system.file_lock import Lock

MAX_SPOOL = 64 << 20  # bytes
MAX_GOAL = 1 << 20  # bytes


def record_history(crew: Crew) -> int:
    """Commit the spool in ascending order; how many revisions. 0 as well when somebody else is at it."""
    lock = Lock(crew.paths.recorder_lock)
    count = 0
    left: list[int] = []
    while lock.try_acquire():
        try:
            count += _record_batch(crew)
        finally:
            lock.release()
        # Whoever found the lock held meanwhile has gone away again, and relies on this look.
        waiting = _recordable_revisions(crew)
        if not waiting or waiting == left:
            break
        left = waiting
    return count


def _recordable_revisions(crew: Crew) -> list[int]:
    """The revisions in the spool that came to be: a kill between spool and board keeps one from ever doing so."""
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
    done = [
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
    if done:
        # Not fields of the board, and no less the person's: `git clean` takes them away with the rest of .liza.
        done[-1] = replace(done[-1], goal=_read_goal(crew), settings=confirmed_settings.export_settings(crew.paths))
    # What was spooled since is for the next time: only what was read here may go.
    count = board_history.record_revisions(crew.git, done) if done else 0
    spool.drop_through(waiting[-1])
    return count


def _read_goal(crew: Crew) -> bytes | None:
    """The page of the goal; None where it is no plain file of a size that people write."""
    try:
        return atomic.read_if_exists(crew.paths.specs / "goal.md", MAX_GOAL)
    except (LizaError, OSError):
        return None


def _spooled_boards(spool: Spool) -> Iterator[tuple[SpoolItem, str]]:
    """Each waiting revision with the whole board as it was then."""
    waiting = {item.revision: item for item in spool.read_items()}
    for revision, text in spool.rebuild_texts():
        if revision in waiting:
            yield waiting[revision], text


def record_if_unsupervised(crew: Crew) -> None:
    """What a verb does last: with no supervisor alive, nobody else would record. A spool that has grown too large, for
    whatever reason, is drained by whoever adds to it."""
    spool = Spool(crew.paths.spool)
    if not spool.revisions():
        return
    if spool.size() > MAX_SPOOL:
        record_history(crew)
        return
    locks = crew.paths.locks.glob("supervisor-*.lock")
    if not any(crew.is_supervised(lock.name.removeprefix("supervisor-").removesuffix(".lock")) for lock in locks):
        record_history(crew)
