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
from liza.rules.reports import intrusions
from liza.rules.reports.up_command import starting
from liza.rules.tasks import picking
from liza.system.file_lock import Lock

BY = "doctor"
FIX = "liza doctor --fix"


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``ok`` is False where a crew cannot work like this; ``hint`` is then a command."""

    about: str
    text: str
    ok: bool = True
    hint: str = ""


def findings(crew: Crew, state: State) -> Iterator[Finding]:
    """What stands in the way of the crew, or was lost. What cannot be looked at is a finding as well."""
    for about, look in _LOOKS:
        try:
            yield from look(crew, state)
        except LizaError as wrong:
            yield Finding(about, wrong.message, False, wrong.hint)
        except OSError as wrong:
            yield Finding(about, f"it cannot be looked at: {wrong}", False, f"ls -l {crew.paths.liza}")


def _integration(crew: Crew, state: State) -> Iterator[Finding]:
    seen = drift.look(crew, state)
    for link in seen.symbolic:
        yield Finding("branch", link.message, False, link.way)
    if any(link.ref == f"refs/heads/{state.config.integration_branch}" for link in seen.symbolic):
        return
    tip = drift.need_integration(crew, state)
    for alarm in merge_alarms.away(seen.away):
        yield Finding("branch", alarm.message, True, alarm.next)
    for one in seen.trespasses:
        yield Finding("branch", intrusions.to_keep(one), True, one.way)
    if seen.moved is not None:
        yield Finding("branch", seen.moved, not seen.lost, seen.ways)
    else:
        yield Finding("branch", f"{state.config.integration_branch} at {tip[:12]}")


def _place(crew: Crew, state: State) -> Iterator[Finding]:
    place = crew.paths.slots
    slot_records.refuse_linked_place(place)
    if crew.moved is not None:
        yield Finding("worktrees", crew.moved, False, "liza down")
    elif place.is_relative_to(crew.paths.root):
        text = "inside the repository: tests in them can import what lies in your checkout, and yours can find theirs"
        yield Finding("worktrees", f"{place}, {text}", True, "liza down --purge; liza init")
    else:
        yield Finding("worktrees", f"{place}{'' if place.is_dir() else ', made when one is needed'}")


def _planted(crew: Crew, state: State) -> Iterator[Finding]:
    for one in Pins.load(crew.paths.pins).found(crew.git):
        text = f"executable configuration came after init, and is kept from running: {one.text}"
        yield Finding("git", text, True, one.mend)


def _locks(crew: Crew, state: State) -> Iterator[Finding]:
    for place in leftovers.no_locks(crew.paths, crew.git):
        told = f"{place} is a directory, and stops every git that makes a lock there"
        yield Finding("git", told, False, stale_locks.mending(place))


def _config(crew: Crew, state: State) -> Iterator[Finding]:
    for one in crew.board.unknown_config():
        yield Finding("board", settings.told(one), True, "liza edit")
    seen = confirmed_settings.unconfirmed(crew.paths, crew.board.as_written())
    for alarm in intrusions.of_settings(seen):
        yield Finding("settings", alarm.message, True, alarm.next)


def _claims(crew: Crew, state: State) -> Iterator[Finding]:
    for task in state.tasks:
        if task.reservation is not None:
            yield Finding("claim", f"{task.id} is reserved as {task.reservation.run}", True, FIX)
    for task in recover.not_laid_out(crew, BY):
        text = f"{task.id} is claimed as {task.run}, and its worktree .worktrees/{task.id} is not there"
        yield Finding("claim", text, True, FIX)
    for task in recover.reviews_not_laid_out(crew, BY):
        text = f"{task.id} is under review as {task.review_run}, and the reviewer's worktree is not there"
        yield Finding("claim", text, True, FIX)


def _merges(crew: Crew, state: State) -> Iterator[Finding]:
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        # Whoever merges is at it.
        return
    try:
        if branch_moves.under_way(crew.git):
            yield Finding("merge", "a merge that was killed has left the files of a checkout half moved", True, FIX)
        for task in state.tasks:
            if task.merging is not None and task.merging.tested is None and not task.merging.waiting:
                yield Finding("merge", f"{task.id} was being merged, and its merger died", True, FIX)
            for alarm in merge_alarms.set_aside(task):
                yield Finding("merge", alarm.message, False, alarm.next)
    finally:
        lock.release()


def _slots(crew: Crew, state: State) -> Iterator[Finding]:
    for alarm in merge_alarms.slots([str(path) for path in crew.worktrees.set_aside()]):
        yield Finding("worktree", alarm.message, True, alarm.next)


def _supervisors(crew: Crew, state: State) -> Iterator[Finding]:
    """Agents whose supervisor has begun something and is gone. Who works by hand has no run directory."""
    for name, agent in state.agents.items():
        if not agent.runs or crew.supervised(name):
            continue
        directory, holds = crew.run_dir(run_id(name, agent.runs)), picking.occupation(state, name)
        if directory.exists() and run_state.living(directory):
            told = f"its session {directory.run} lives on without a supervisor"
            yield Finding(name, told, True, starting(state, name))
        elif directory.exists() and holds:
            yield Finding(name, f"it holds {holds}, and no supervisor runs", True, starting(state, name))


def _history(crew: Crew, state: State) -> Iterator[Finding]:
    """In this order: a revision is spooled before the board has it, and recorded before it leaves the spool."""
    waiting = crew.board.spool.revisions()
    known = board_history.log(crew.git, None, 1)
    newest = known[0].revision if known else 0
    if newest >= state.revision:
        return
    made = {record.revision for record in revision_journal.newest(crew.paths.journal) if record.revision > newest}
    lacking = sorted(one for one in {*made, state.revision} - {*waiting} if one <= state.revision)
    if not lacking:
        return
    what = f"is gone: revisions up to {lacking[-1]}" if newest == 0 else f"ends at {newest}: {_span(lacking)}"
    yield Finding(
        "history",
        f"{HISTORY_REF} {what} are nowhere else, unless git still has the commit; what comes is recorded again",
        True,
        f"git fsck --no-reflogs --lost-found; git update-ref {HISTORY_REF} COMMIT",
    )


def _inboxes(crew: Crew, state: State) -> Iterator[Finding]:
    for agent in state.agents:
        for wrong in inbox.unreadable(crew.paths, agent):
            yield Finding(agent, f"in its inbox: {wrong.message}", True, wrong.hint)


def _journal(crew: Crew, state: State) -> Iterator[Finding]:
    last = revision_journal.last(crew.paths.journal)
    if last is None:
        told = "is gone, or has no entry"
    elif last.revision < state.revision:
        told = f"ends at revision {last.revision}, before the board's {state.revision}"
    else:
        return
    yield Finding("journal", f"{crew.paths.journal.name} {told}; it goes on with the next change", True, "liza history")


def _span(revisions: list[int]) -> str:
    first, last = revisions[0], revisions[-1]
    return f"revision {first}" if first == last else f"revisions {first} to {last}"


_LOOKS: tuple[tuple[str, Callable[[Crew, State], Iterator[Finding]]], ...] = (
    ("branch", _integration),
    ("worktrees", _place),
    ("git", _planted),
    ("git", _locks),
    ("board", _config),
    ("claim", _claims),
    ("merge", _merges),
    ("worktree", _slots),
    ("agents", _supervisors),
    ("inbox", _inboxes),
    ("history", _history),
    ("journal", _journal),
)
