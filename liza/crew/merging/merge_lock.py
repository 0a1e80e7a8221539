"""The lock of the merge itself, for the commands of a person and for mergers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from liza.board import wake_up
from liza.crew.crew import Crew
from liza.rules.errors import LizaError, LockTimeout, Refused
from liza.rules.merging import merge_rules
from liza.system.file_lock import Lock

LOCK_TIMEOUT = 0.5  # seconds: a process that only checks whether the lock is free holds it for a moment


@contextmanager
def hold_merge_lock(
    crew: Crew, refusal: str = "another merge is under way", *, has_turn: bool = False
) -> Iterator[Crew]:
    """Yield the crew with the merge lock. Raises Refused with the text ``refusal`` if another process holds it.

    ``has_turn``: for a supervisor's merger. It raises LockTimeout instead: the supervisor tries again on the same
    revision. Without a turn, the supervisors are woken at the end if a merge is due.
    """
    lock = Lock(crew.paths.merge_lock)
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout:
        if has_turn:
            raise
        raise Refused(refusal, "liza status") from None
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()
        if not has_turn:
            wake_for_next_merge(crew)


def wake_for_next_merge(crew: Crew) -> None:
    """Wake the supervisors if a merge is due: they found the merge lock held, and its end causes no event for them.

    A failure only delays the merge to their next poll.
    """
    with suppress(LizaError, OSError):
        if merge_rules.next_to_merge(crew.board.read(), crew.clock.now()) is not None:
            wake_up.wake_watchers(crew.paths, "merge")
