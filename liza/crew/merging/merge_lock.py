"""The lock of the merge itself, for the commands of a person and for mergers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from liza.crew.crew import Crew
from liza.rules.errors import LockTimeout, Refused
from liza.system.file_lock import Lock

LOCK_TIMEOUT = 0.5  # seconds: a process that only checks whether the lock is free holds it for a moment


@contextmanager
def hold_merge_lock(crew: Crew, refusal: str = "another merge is under way") -> Iterator[Crew]:
    """Yield the crew with the merge lock. Raises Refused with the text ``refusal`` if another process holds it."""
    lock = Lock(crew.paths.merge_lock)
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout:
        raise Refused(refusal, "liza status") from None
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()
