"""What the dead, or somebody's hands, have left of a crew: each told, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from liza.board import revision_journal
from liza.crew import run_state
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings, drift
from liza.crew.recovery import recover
from liza.programs.messages import inbox
from liza.repo import board_history, stale_locks
from liza.repo.config_pins import Pins
from liza.repo.merge import branch_moves
from liza.repo.slots import leftovers, slot_records
from liza.rules import settings
from liza.rules.errors import LizaError
from liza.rules.merging import merge_alarms
from liza.rules.model import State
from liza.rules.paths import HISTORY_REF, run_id
from liza.rules.reports import drift_alarms
from liza.rules.reports.up_command import up_command_for
from liza.rules.tasks import picking
from liza.system.file_lock import Lock

ACTOR = "doctor"
FIX_COMMAND = "liza doctor --fix"


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``ok`` is False where a crew cannot work like this; ``hint`` is then a command."""

    about: str
    text: str
    ok: bool = True
    hint: str = ""


def list_findings(crew: Crew, state: State) -> Iterator[Finding]:
    """What stands in the way of the crew, or was lost. What cannot be looked at is a finding as well."""
    for about, look in _CHECKS:
        try:
            yield from look(crew, state)
        except LizaError as wrong:
            yield Finding(about, wrong.message, False, wrong.hint)
        except OSError as wrong:
            yield Finding(about, f"it cannot be looked at: {wrong}", False, f"ls -l {crew.paths.liza}")


def _check_integration(crew: Crew, state: State) -> Iterator[Finding]:
    seen = drift.detect_drift(crew, state)
    for link in seen.symbolic:
        yield Finding("branch", link.message, False, link.way)
    if any(link.ref == f"refs/heads/{state.config.integration_branch}" for link in seen.symbolic):
        return
    tip = drift.require_integration(crew, state)
    for alarm in merge_alarms.absent_checkout_alarms(seen.away):
        yield Finding("branch", alarm.message, True, alarm.next)
    for one in seen.trespasses:
        yield Finding("branch", drift_alarms.to_keep(one), True, one.way)
    if seen.moved is not None:
        yield Finding("branch", seen.moved, not seen.lost, seen.ways)
    else:
        yield Finding("branch", f"{state.config.integration_branch} at {tip[:12]}")


def _check_slots_directory(crew: Crew, state: State) -> Iterator[Finding]:
    place = crew.paths.slots
    slot_records.refuse_linked_directory(place)
    if crew.moved_reason is not None:
        yield Finding("worktrees", crew.moved_reason, False, "liza down")
    elif place.is_relative_to(crew.paths.root):
        text = "inside the repository: tests in them can import what lies in your checkout, and yours can find theirs"
        yield Finding("worktrees", f"{place}, {text}", True, "liza down --purge; liza init")
    else:
        yield Finding("worktrees", f"{place}{'' if place.is_dir() else ', made when one is needed'}")


def _check_pins(crew: Crew, state: State) -> Iterator[Finding]:
    for one in Pins.load(crew.paths.pins).find_violations(crew.git):
        text = f"executable configuration came after init, and is kept from running: {one.message}"
        yield Finding("git", text, True, one.fix_command)


def _check_locks(crew: Crew, state: State) -> Iterator[Finding]:
    for place in leftovers.find_blocked_locks(crew.paths, crew.git):
        told = f"{place} is a directory: every git that creates a lock file there fails"
        yield Finding("git", told, False, stale_locks.removal_command(place))


def _check_settings(crew: Crew, state: State) -> Iterator[Finding]:
    for one in crew.board.unknown_config():
        yield Finding("board", settings.describe_unknown_key(one), True, "liza edit")
    seen = confirmed_settings.find_unconfirmed(crew.paths, crew.board.read_as_written())
    for alarm in drift_alarms.settings_alarms(seen):
        yield Finding("settings", alarm.message, True, alarm.next)


def _check_claims(crew: Crew, state: State) -> Iterator[Finding]:
    for task in state.tasks:
        if task.reservation is not None:
            yield Finding("claim", f"{task.id} is reserved as {task.reservation.run}", True, FIX_COMMAND)
    for task in recover.claims_without_worktree(crew, ACTOR):
        text = f"{task.id} is claimed as {task.run}, and its worktree .worktrees/{task.id} is not there"
        yield Finding("claim", text, True, FIX_COMMAND)
    for task in recover.reviews_without_worktree(crew, ACTOR):
        text = f"{task.id} is under review as {task.review_run}, and the reviewer's worktree is not there"
        yield Finding("claim", text, True, FIX_COMMAND)


def _check_merges(crew: Crew, state: State) -> Iterator[Finding]:
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        # Whoever merges is at it.
        return
    try:
        if branch_moves.has_unfinished_move(crew.git):
            yield Finding(
                "merge", "a merge that was killed has left the files of a checkout half moved", True, FIX_COMMAND
            )
        for task in state.tasks:
            if task.merging is not None and task.merging.tested is None and not task.merging.waiting:
                yield Finding("merge", f"{task.id} was being merged, and its merger died", True, FIX_COMMAND)
            for alarm in merge_alarms.retry_alarms(task):
                yield Finding("merge", alarm.message, False, alarm.next)
    finally:
        lock.release()


def _check_retired_slots(crew: Crew, state: State) -> Iterator[Finding]:
    for alarm in merge_alarms.stuck_slot_alarms([str(path) for path in crew.worktrees.retired_slots()]):
        yield Finding("worktree", alarm.message, True, alarm.next)


def _check_supervisors(crew: Crew, state: State) -> Iterator[Finding]:
    """Agents whose supervisor has begun something and is gone. Who works by hand has no run directory."""
    for name, agent in state.agents.items():
        if not agent.runs or crew.is_supervised(name):
            continue
        directory, holds = crew.run_dir(run_id(name, agent.runs)), picking.occupation(state, name)
        if directory.exists() and run_state.is_session_living(directory):
            told = f"its session {directory.run} lives on without a supervisor"
            yield Finding(name, told, True, up_command_for(state, name))
        elif directory.exists() and holds:
            yield Finding(name, f"it holds {holds}, and no supervisor runs", True, up_command_for(state, name))


def _check_history(crew: Crew, state: State) -> Iterator[Finding]:
    """In this order: a revision is spooled before the board has it, and recorded before it leaves the spool."""
    waiting = crew.board.spool.revisions()
    known = board_history.list_revisions(crew.git, None, 1)
    newest = known[0].revision if known else 0
    if newest >= state.revision:
        return
    made = {
        record.revision for record in revision_journal.iter_newest_first(crew.paths.journal) if record.revision > newest
    }
    lacking = sorted(one for one in {*made, state.revision} - {*waiting} if one <= state.revision)
    if not lacking:
        return
    what = f"is gone: revisions up to {lacking[-1]}" if newest == 0 else f"ends at {newest}: {_format_range(lacking)}"
    yield Finding(
        "history",
        f"{HISTORY_REF} {what} are nowhere else, unless git still has the commit; what comes is recorded again",
        True,
        f"git fsck --no-reflogs --lost-found; git update-ref {HISTORY_REF} COMMIT",
    )


def _check_inboxes(crew: Crew, state: State) -> Iterator[Finding]:
    for agent in state.agents:
        for wrong in inbox.list_unreadable(crew.paths, agent):
            yield Finding(agent, f"in its inbox: {wrong.message}", True, wrong.hint)


def _check_journal(crew: Crew, state: State) -> Iterator[Finding]:
    last = revision_journal.last_record(crew.paths.journal)
    if last is None:
        told = "is gone, or has no entry"
    elif last.revision < state.revision:
        told = f"ends at revision {last.revision}, before the board's {state.revision}"
    else:
        return
    yield Finding("journal", f"{crew.paths.journal.name} {told}; it goes on with the next change", True, "liza history")


def _format_range(revisions: list[int]) -> str:
    first, last = revisions[0], revisions[-1]
    return f"revision {first}" if first == last else f"revisions {first} to {last}"


_CHECKS: tuple[tuple[str, Callable[[Crew, State], Iterator[Finding]]], ...] = (
    ("branch", _check_integration),
    ("worktrees", _check_slots_directory),
    ("git", _check_pins),
    ("git", _check_locks),
    ("board", _check_settings),
    ("claim", _check_claims),
    ("merge", _check_merges),
    ("worktree", _check_retired_slots),
    ("agents", _check_supervisors),
    ("inbox", _check_inboxes),
    ("history", _check_history),
    ("journal", _check_journal),
)
