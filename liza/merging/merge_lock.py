"""The lock of the merge itself, for the commands of a person and for mergers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from liza.crew.crew import Crew
from liza.merging.dead_mergers import recover_dead_merger
from liza.merging.rules import epic_rules
from liza.model.errors import LizaError, LockTimeout, Refused
from liza.system import wake_up
from liza.system.locks import Lock

LOCK_TIMEOUT = 0.5  # seconds: a process that only checks whether the lock is free holds it for a moment


@contextmanager
def hold_merge_lock(crew: Crew, refusal: str = "another merge is under way") -> Iterator[Crew]:
    """Yield the crew with the merge lock, and wake the supervisors at the end if a merge is due.

    Raises Refused with the text ``refusal`` if another process holds it.
    """
    lock = Lock(crew.paths.merge_lock)
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout:
        raise Refused(refusal, "liza status") from None
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()
        wake_for_next_merge(crew)


@contextmanager
def hold_merge_lock_in_turn(crew: Crew) -> Iterator[Crew]:
    """Yield the crew with the merge lock, for a supervisor's merger, whose turn it is to merge.

    Raises LockTimeout if another process holds it: the supervisor tries again on the same revision.
    """
    lock = Lock(crew.paths.merge_lock)
    lock.acquire(timeout=LOCK_TIMEOUT)
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()


def recover_if_dead(crew: Crew, by: str, task_id: str) -> None:
    """Recover the merge of a task if its merger has died: a person need not wait for a merge that no process continues.

    Does nothing while a merger runs. Raises Refused, GitFailed.
    """
    task = crew.board.read().task(task_id)
    if task is None or task.merging is None or task.merging.waiting:
        return
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        return
    try:
        recover_dead_merger(crew.with_lock(lock), by)
    finally:
        lock.release()


def wake_for_next_merge(crew: Crew) -> None:
    """Wake the supervisors if a merge is due: they found the merge lock held, and its end causes no event for them.

    A failure only delays the merge to their next poll.
    """
    with suppress(LizaError, OSError):
        if epic_rules.next_subject(crew.board.read(), crew.clock.now()) is not None:
            wake_up.wake_watchers(crew.paths, "merge")
