"""Where the slots of a crew are: the record of it, also after its repository was renamed, moved or copied."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from liza.board import wake_up
from liza.crew import run_state
from liza.programs.session import run_directory, session_process
from liza.repo.slots import relocate, slots_directory
from liza.rules.errors import LizaError, LockTimeout
from liza.rules.paths import Paths
from liza.rules.project.slots_location import SlotsRecord
from liza.system.file_lock import Lock
from liza.system.flock import lock_path

SESSION_GRACE = 2.0
"""Seconds for a session to end by itself."""
SUPERVISOR_GRACE = 5.0
"""Seconds for the supervisors of a repository that was moved to notice it and leave."""


def repair_location(paths: Paths, placed: SlotsRecord | None) -> tuple[Paths, str | None]:
    """The paths of a crew whose record is missing or names another root, put right; and why they could not be.

    Git's records of the slots, the slots and the links are made to lead to each other again, and the record is
    written. Nothing is done while supervisors are at work that know the repository by its former path.
    Raises LizaError, OSError.
    """
    if not paths.state.exists() and not paths.seal.exists():
        return paths, None
    common = relocate.find_common_dir(paths.root)
    old = placed or _reconstruct_record(paths, common)
    if old.root != paths.root:
        agents = _wait_for_supervisors(paths)
        if agents:
            return replace(paths, chosen_slots=old.directory), (
                f"the repository was moved here from {old.root} under a running crew, and of that one "
                f"{', '.join(agents)} is still at work"
            )
    with lock_path(paths.worktree_lock):
        now = slots_directory.read_record(paths)
        if now is not None and now.root == paths.root:
            # Another process was quicker.
            return replace(paths, chosen_slots=now.directory), None
        now = now or old
        if now.root != paths.root:
            _release_sessions(paths, now)
            now = slots_directory.record_after_move(paths, now, os.environ)
        fresh = replace(paths, chosen_slots=now.directory)
        relocate.repair_records(fresh, common, {old.directory})
        if now.directory.is_dir():
            slots_directory.write_mark(now)
        slots_directory.write_record(paths, now)
    return fresh, None


def _reconstruct_record(paths: Paths, common: Path) -> SlotsRecord:
    """The record of a crew that has none: slots inside the repository, those that git knows, or a new place."""
    inside = Paths(paths.root).slots
    if inside.is_dir():
        # Crews of earlier versions have them there.
        return replace(slots_directory.new_record(paths.root, inside), created_by_liza=True)
    for place in dict.fromkeys(slot.parent for slot in relocate.recorded_slots(common).values()):
        mark = slots_directory.read_mark(place) if place.is_dir() else None
        if mark is not None and (mark.root == paths.root or slots_directory.read_record(Paths(mark.root)) is None):
            return SlotsRecord(mark.root, place, mark.id, created_by_liza=True)
    return slots_directory.choose_directory(paths.root, None, os.environ)


def _release_sessions(paths: Paths, old: SlotsRecord) -> None:
    """Let no session be adopted that knows the repository by its former path: none of its verbs would find a crew.

    After a move it is ended. In a copy the records of sessions are those of the original, where they are at work, and
    are forgotten.
    """
    original = slots_directory.read_record(Paths(old.root))
    copied = original is not None and original.id == old.id
    agents = sorted(path.name for path in paths.runs.iterdir()) if paths.runs.is_dir() else []
    for run in (run for agent in agents for run in run_directory.list_runs(paths, agent)):
        directory = run_directory.RunDir(paths, run)
        # A record that cannot be read is told by whoever needs it.
        with suppress(LizaError, OSError):
            if run_state.is_session_over(directory):
                continue
            if copied:
                (directory.path / "session.json").unlink(missing_ok=True)
            else:
                directory.write_stop(datetime.now(UTC).replace(microsecond=0), "stop")
                session_process.stop(directory.path, run, old.root, grace=SESSION_GRACE)


def _wait_for_supervisors(paths: Paths) -> list[str]:
    """The agents whose supervisors do not leave, woken by the bell: they see for themselves that they were moved."""
    end = time.monotonic() + SUPERVISOR_GRACE
    found = []
    for path in sorted(paths.locks.glob("supervisor-*.lock")):
        lock = Lock(path)
        if lock.try_acquire():
            lock.release()
            continue
        with suppress(OSError):
            wake_up.wake_watchers(paths, "moved")
        try:
            lock.acquire(timeout=max(0.0, end - time.monotonic()))
            lock.release()
        except LockTimeout:
            found.append(path.name.removeprefix("supervisor-").removesuffix(".lock"))
    return found
