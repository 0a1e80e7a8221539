"""Find parts of .liza that were deleted or moved, a repository that was moved, and processes that still use them.

A .liza that does not belong to the repository is refused before anything is written.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime

from liza.board.presence import has_board_or_intent
from liza.config import confirmed_settings
from liza.git import slots_directory
from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.git.slots_directory import SlotsRecord
from liza.model.errors import LizaError, LockTimeout, Missing, NotRegularFile, Refused
from liza.model.model import State
from liza.model.paths import HISTORY_REF, Paths
from liza.model.session_ends import StopReason
from liza.model.value_classes import replace
from liza.programs import liveness
from liza.programs.session import run_directory, session_process
from liza.system import file_growth, processes
from liza.system.locks import Lock, lock_path

AGAIN = "liza restore --last-good --stop"
FIX = "liza doctor --fix"


def describe_damage(paths: Paths, state: State, asked: Iterable[str] = ()) -> str | None:
    """Describe which part of .liza was deleted although its board exists; None if nothing is known to be deleted.

    Also None if only the pins are gone and no process of the crew runs: `doctor --fix` repairs that.

    ``asked``: agents whose lock may exist before the board names their program. Open files of processes are searched
    only if something is missing. Raises NotRegularFile for the pins.
    """
    missing_pins = None if paths.pins.exists() else _lacking(paths)
    if missing_pins is not None and not _has_history(paths):
        # `liza init` is still creating this crew.
        return None
    unlocked = [agent for agent in _ever_supervised(state) if not paths.supervisor_lock(agent).exists()]
    if missing_pins is None and not unlocked and all(paths.supervisor_lock(agent).exists() for agent in asked):
        return None
    survivors = sorted(set(find_survivors(paths).values()))
    is_more_gone = missing_pins is not None and (unlocked or not paths.slots_record.exists())
    if not survivors and not is_more_gone:
        return None
    what = missing_pins or "lock files of this crew were deleted"
    running = f"; still running: {', '.join(survivors)}" if survivors else ""
    return f"a part of {paths.liza} was deleted: {what}{running}. Until it is restored, nothing runs"


def find_repair(paths: Paths, read_board: Callable[[], State]) -> str:
    """Return the command that repairs unreadable pins; it depends on whether more was deleted."""
    try:
        return FIX if describe_damage(paths, read_board()) is None else AGAIN
    except LizaError:
        return AGAIN


def has_pins(paths: Paths) -> bool:
    """Whether the file of confirmed settings exists and can be read. Raises NotRegularFile."""
    return _lacking(paths) is None


def _lacking(paths: Paths) -> str | None:
    try:
        confirmed_settings.load_pins(paths.pins)
    except NotRegularFile:
        raise  # new pins cannot replace it without a loss: a person moves it away first
    except Missing as error:
        return error.message
    return None


def _has_history(paths: Paths) -> bool:
    # No pins are needed: show-ref executes nothing that the configuration names.
    return Git(paths.root).ok("show-ref", "--verify", "--quiet", HISTORY_REF)


def _ever_supervised(state: State) -> tuple[str, ...]:
    """Agents for which a supervisor was ever started: each has had a lock file since then."""
    return tuple(name for name, agent in state.agents.items() if agent.program)


def find_survivors(paths: Paths) -> dict[int, str]:
    """Find processes that have a lock file of a deleted or moved .liza open.

    Returns lock names by pid: ``locks/supervisor-coder-1.lock`` or ``coder-1.1/session.lock``. The crew's present lock
    files do not show these processes.
    """
    root = re.escape(f"{paths.root}/.liza")
    lock = r"(locks/supervisor-[^/]+\.lock|run/[^/]+/[^/]+/session\.lock)"
    matches = processes.find_pids_with_open(rf"{root}(/{lock} \(deleted\)|[^/]+/{lock}( \(deleted\))?)")
    return {pid: "/".join(path.removesuffix(" (deleted)").split("/")[-2:]) for pid, path in matches.items()}


SESSION_GRACE = 2.0
"""Seconds for a session to end after SIGTERM, before it is killed."""
SUPERVISOR_GRACE = 5.0
"""Seconds for the supervisors of a moved repository to notice the move and exit."""


def repair_location(paths: Paths, record: SlotsRecord | None) -> tuple[Paths, str | None]:
    """Repair the paths of a crew whose record is missing or names another root. Return them, and why that was not
    possible.

    git's records and the slots point to each other again, and the record is written. Does nothing while
    supervisors run that use the former path. Raises LizaError, OSError.
    """
    if not has_board_or_intent(paths):
        return paths, None
    refuse_foreign(paths, record)
    old = record or slots_directory.reconstruct_record(paths, os.environ)
    if old.root != paths.root:
        agents = _wait_for_supervisors(paths)
        if agents:
            return replace(paths, chosen_slots=old.directory), (
                f"the repository was moved here from {old.root} under a running crew, and of that one "
                f"{', '.join(agents)} is still at work"
            )
    with lock_path(paths.worktree_lock):
        current = slots_directory.read_record(paths)
        if current is not None and current.root == paths.root:
            # Another process has repaired it while this one waited for the lock.
            return replace(paths, chosen_slots=current.directory), None
        current = current or old
        if current.root != paths.root:
            _release_sessions(paths, current)
            current = slots_directory.record_after_move(paths, current, os.environ)
        fresh = replace(paths, chosen_slots=current.directory)
        slots_directory.repair_records(fresh, old.directory)
        slots_directory.write_record(paths, current)
    return fresh, None


def refuse_foreign(paths: Paths, record: SlotsRecord | None) -> None:
    """Raise Refused for a .liza of another program, or copied from another checkout. Writes nothing.

    A repository that was moved or copied as a whole has the history of its crew. Raises GitFailed.
    """
    if record is not None and record.root == paths.root:
        return
    git = Git(paths.root)
    git_dir, common = git_dirs(git)
    is_repository = (paths.root / ".git").exists()
    if is_repository and git_dir != common:
        is_known = (
            record is not None and record.root.is_dir() and slots_directory.find_common_dir(record.root) == common
        )
        root = record.root if record is not None and is_known else common.parent
        raise Refused(
            f"{paths.liza} is a copy, and {paths.root} is a linked worktree: the crew of this repository is in {root}",
            shlex.join(["cd", str(root)]),
        )
    # A clone that joined a crew on a server may have no history of it; the server refuses other repositories.
    if is_repository and (paths.board_address.exists() or git.ok("show-ref", "--verify", "--quiet", HISTORY_REF)):
        return
    created = any(path.exists() for path in (paths.pins, paths.write_intent, paths.creation))
    if record is None and created and is_repository:
        return  # of an earlier version, or its record was deleted
    if record is not None or created:
        owner = "another crew" if record is None else f"the crew of {record.root}"
        message = f"{paths.liza} is a copy: it belongs to {owner}, and no history of that crew is here"
    else:
        message = f"{paths.liza} was not created by this Liza: {paths.creation.name} and {paths.pins.name} are missing"
    raise Refused(message, slots_directory.move_away_command(paths.liza))


def _release_sessions(paths: Paths, old: SlotsRecord) -> None:
    """Prevent that a session with the former path is adopted: its commands would not find the crew.

    After a move the session is ended. In a copy its record is removed: the session belongs to the original.
    """
    is_copy = slots_directory.is_copied(old)
    agents = sorted(path.name for path in paths.runs.iterdir()) if paths.runs.is_dir() else []
    for run in (run for agent in agents for run in run_directory.list_runs(paths, agent)):
        directory = run_directory.RunDir(paths, run)
        # The next reader of an unreadable record reports it.
        with suppress(LizaError, OSError):
            if liveness.is_session_over(directory):
                continue
            if is_copy:
                (directory.path / "session.json").unlink(missing_ok=True)
            else:
                directory.write_stop(datetime.now(UTC).replace(microsecond=0), StopReason.STOP)
                session_process.stop(directory.path, run, old.root, grace=SESSION_GRACE)


def _wait_for_supervisors(paths: Paths) -> list[str]:
    """Wake the supervisors, which then notice the move. Return the agents whose supervisor does not exit."""
    deadline = time.monotonic() + SUPERVISOR_GRACE
    remaining = []
    for path in sorted(paths.locks.glob("supervisor-*.lock")):
        lock = Lock(path)
        if lock.try_acquire():
            lock.release()
            continue
        with suppress(OSError):
            file_growth.wake_watchers(paths, "moved")
        try:
            lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
            lock.release()
        except LockTimeout:
            remaining.append(path.name.removeprefix("supervisor-").removesuffix(".lock"))
    return remaining
