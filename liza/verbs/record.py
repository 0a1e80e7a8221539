"""Bring what the board spooled into the history, a git commit a revision."""

from __future__ import annotations

from liza.board import spool
from liza.board.lock import Lock
from liza.repo import history
from liza.repo.history import Recorded
from liza.verbs.crew import Crew


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
    items = spool.items(crew.paths)
    if not items:
        return 0
    tip = history.tip(crew.git)
    text = tip[1] if tip else ""
    done: list[Recorded] = []
    for item in items:
        if tip is None or item.revision > tip[0]:
            text = spool.replay(text, item)
            done.append(
                Recorded(
                    revision=item.revision, subject=item.subject, body="", time=item.time, author=item.actor, text=text
                )
            )
    if done:
        history.record(crew.git, done)
    for item in items:
        spool.drop(crew.paths, item.revision)
    return len(done)


def record_if_alone(crew: Crew) -> None:
    """What a verb does last: with no supervisor alive, nobody else would record."""
    locks = crew.paths.locks.glob("supervisor-*.lock")
    if not any(crew.supervised(lock.name.removeprefix("supervisor-").removesuffix(".lock")) for lock in locks):
        record(crew)
