"""The present alarms of a crew: gather the facts, and evaluate them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from liza.alarms import confinement, notices
from liza.alarms.rules import alarms
from liza.alarms.rules.alarms import AlarmFacts, is_checkpoint_due
from liza.board import archive_files, revision_journal, signals
from liza.config import confirmed_settings
from liza.crew import deleted_parts, recorder
from liza.crew.crew import Crew
from liza.git import git_refs, slot_records, slots_directory
from liza.guards import guard_files, session_guards
from liza.guards.rules.guard_rules import DENIALS_FILE, GUARDS_TOML
from liza.landing import remotes
from liza.landing.rules import remote_failures
from liza.merging import drift, merge_lock
from liza.merging.rules.repository_drift import RepositoryDrift
from liza.model.agent_states import StoppedProcesses
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.derived import find_current_work
from liza.model.errors import LizaError, SharedPathBlocked
from liza.model.model import State, Status, SupervisorExit
from liza.model.paths import branch_of
from liza.model.value_classes import replace
from liza.programs.session import run_directory
from liza.recovery import lost_worktrees, stopped_processes
from liza.system import files
from liza.tasks import draft_specs, task_branches
from liza.tasks.rules.picking import Evidence, MissingParts
from liza.text.redaction import redact
from liza.text.undecoded import escape_undecoded
from liza.usage import costs

RECENT_REVISIONS = 30  # an edit from outside is reported only among the newest revisions
MAX_NEWS_AGE = timedelta(days=1)
"""Maximum age of a reported edit. A second limit: while no crew runs, no newer revisions push it out."""
_DELETED_ENTRY = re.compile(r"changed outside liza: (\S+): id is gone\b")


def find_missing_parts(crew: Crew, state: State) -> dict[str, MissingParts]:
    """Missing parts of drafts; empty if git fails: `liza doctor` reports why."""
    try:
        return draft_specs.find_incomplete_drafts(crew, state)
    except (LizaError, OSError):
        return {}


def find_alarms(
    crew: Crew, state: State, evidence: Evidence, lacks: Mapping[str, MissingParts] | None = None
) -> tuple[Alarm, ...]:
    """Return all present alarms. ``lacks``: the result of ``find_incomplete_drafts``, if the caller has it."""
    now = crew.clock.now()
    signal_times = {name: _signal_time(crew, name) for name in signals.active_signals(crew.paths)}
    blocking = tuple(_blocking_alarms(crew, state))
    # A supervisor whose lock file was deleted only seems to be gone.
    unwatched = () if any(alarm.kind == AlarmKind.DAMAGED for alarm in blocking) else state.agents
    written = crew.board.read_as_written()
    facts = AlarmFacts(
        evidence=evidence,
        signals=signal_times,
        budget_pause=(budget_pause := _read_budget_pause(crew, state)),
        budget_step=_budget_step(crew, state) if budget_pause else "",
        unknown_config=crew.board.unknown_config(),
        written=written.config,
        unconfirmed=confirmed_settings.find_unconfirmed(crew.paths, written),
        repository=_repository(crew, state),
        exits={name: left for name in state.agents if (left := read_supervisor_exit(crew, name)) is not None},
        unsupervised=frozenset(name for name in unwatched if _is_unsupervised(crew, state, name)),
        stopped=_find_stopped(crew, state),
        missing_parts=find_missing_parts(crew, state) if lacks is None else lacks,
        no_progress=_stuck_agents(crew, state),
        unpriced=costs.unpriced_budget_reason(crew, state),
        denials=_denials(crew, state),
        guard_notices=_guard_notices(crew),
        cost=costs.sprint_cost(crew, state).text if is_checkpoint_due(state, now) else "",
    )
    present = alarms.evaluate_alarms(state, now, facts)
    remote = (*_request_alarms(crew, state), *_backup_alarms(crew, state), *_notice_alarms(crew))
    every = (
        *blocking,
        *confinement.find_alarms(crew, state.config),
        *_history_alarms(crew),
        *present,
        *remote,
        *_outside_edit_alarms(crew, state),
    )
    return tuple(map(_without_undecoded, every))


def _without_undecoded(alarm: Alarm) -> Alarm:
    """Return an alarm as it is shown, logged and compared: names in it may have bytes that are not UTF-8."""
    about, message, step = map(escape_undecoded, (alarm.about, alarm.message, alarm.next))
    return replace(alarm, about=about, message=message, next=step)


def _epic_branch_alarms(crew: Crew) -> Iterator[Alarm]:
    """Alarms for branches of open epics that were deleted or moved outside of Liza."""
    # If the repository cannot be read, `liza doctor` reports it.
    with suppress(LizaError, OSError):
        for epic, fault in task_branches.find_faults(crew).items():
            yield Alarm(AlarmKind.EPIC_BRANCH, epic, f"{fault.message}: none of its tasks is merged", fault.hint)


def _blocking_alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """Alarms for conditions that block every worktree, every merge or every new claim."""
    yield from _disk_alarms(crew)
    damage_reason: str | None = None
    with suppress(LizaError, OSError):
        damage_reason = deleted_parts.describe_damage(crew.paths, state)
    if damage_reason is not None:
        yield Alarm(AlarmKind.DAMAGED, "repository", damage_reason, deleted_parts.AGAIN)
    if crew.moved_reason is not None:
        yield Alarm(AlarmKind.MOVED, "repository", crew.moved_reason, "liza down")
    if any(task.epic for task in state.tasks):
        yield from _epic_branch_alarms(crew)
    if any(task.status is Status.APPROVED for task in state.tasks):
        merge_alarm = merge_lock.find_merge_blocker(crew, state)
        if merge_alarm is not None:
            yield merge_alarm
        yield from merge_lock.find_unwritable(crew.paths, state)
    yield from lost_worktrees.worktree_alarms(crew, state)
    damage = archive_files.find_damage(crew.paths, state)
    if damage is not None:
        message = f".liza/{damage.entry}: {damage.actual}; its tasks are not shown, and no task can be added"
        yield Alarm(AlarmKind.ARCHIVE_DAMAGED, damage.entry, message, damage.next)
    # A board without the records of a crew, such as a sample board, never had pins.
    if damage_reason is None and crew.paths.slots_record.exists() and not crew.paths.pins.exists():
        message = ".liza/pins.json is gone, and with it which settings were confirmed"
        yield Alarm(AlarmKind.PINS_GONE, "repository", message, deleted_parts.FIX)
    pins_error = confirmed_settings.damaged(crew.paths)
    if damage_reason is None and pins_error is not None:
        yield Alarm(AlarmKind.PINS_DAMAGED, "repository", pins_error.message, pins_error.hint)
    # If the repository cannot be read, `liza doctor` reports it.
    with suppress(LizaError, OSError):
        try:
            slot_records.refuse_links(crew.paths.slots)
        except SharedPathBlocked as error:
            yield Alarm(AlarmKind.PLACE_BROKEN, "worktrees", f"{error.message}: no task can be merged", error.hint)
    with suppress(LizaError, OSError):
        if git_refs.has_branch_named_task(slots_directory.find_common_dir(crew.paths.root)):
            conflict = git_refs.ref_conflict_error("task", branch_of("<id>"), git_refs.list_branches(crew.git))
            yield Alarm(
                AlarmKind.BRANCH_IN_THE_WAY, "task", f"{conflict.message}: no new task can be claimed", conflict.hint
            )


def _disk_alarms(crew: Crew) -> Iterator[Alarm]:
    """Alarms for a disk on which nothing can be written: of the board, or of the worktrees."""
    faults: dict[int, tuple[str, str]] = {}
    for path in (crew.paths.liza, crew.paths.slots):
        with suppress(OSError):
            if (fault := files.find_disk_fault(path)) is not None:
                faults.setdefault(path.stat().st_dev, fault)
    for reason, command in faults.values():
        yield Alarm(AlarmKind.DISK_FULL, "disk", f"{reason}; sessions and merges wait for it", command)


def _request_alarms(crew: Crew, state: State) -> tuple[Alarm, ...]:
    """The alarm for an open pull request that `liza up` cannot read."""
    if not state.pull_request.is_open:
        return ()

    return tuple(remote_failures.sync_alarms(state, remotes.read_failure(crew.paths.request_sync)))


def _backup_alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """The alarm for branches that could not be pushed to origin."""
    if state.config.push == "auto" and crew.paths.push_failure.exists():
        yield from remote_failures.backup_alarms(state, remotes.read_failure(crew.paths.push_failure))


def _history_alarms(crew: Crew) -> Iterator[Alarm]:
    """The alarm for revisions that are not recorded, because the history has others of the same numbers."""
    if crew.paths.history_conflict.exists():
        # If the repository cannot be read, `liza doctor` reports it.
        with suppress(LizaError, OSError):
            if (conflict := recorder.read_conflict(crew)) is not None:
                yield Alarm(AlarmKind.HISTORY_CONFLICT, "history", conflict.message, conflict.hint)


def _notice_alarms(crew: Crew) -> Iterator[Alarm]:
    """The alarms for targets that could not be notified."""
    if crew.paths.notices.exists():
        yield from notices.failure_alarms(crew.paths, crew.clock.now())


def _find_stopped(crew: Crew, state: State) -> StoppedProcesses:
    """Stopped processes of the crew; none if the process table cannot be read."""
    try:
        return stopped_processes.find_stopped(crew.paths, state.agents)
    except OSError:
        return StoppedProcesses()


def _repository(crew: Crew, state: State) -> RepositoryDrift:
    """Changes made to the repository from outside; none if git fails.

    The other alarms are reported all the same; `liza doctor` reports why git fails.
    """
    try:
        return drift.detect_drift(crew, state)
    except (LizaError, OSError):
        return RepositoryDrift()


def find_missing_login(crew: Crew, agents: Iterable[str]) -> str:
    """Return which program of these agents is not logged in, and how a person logs in; empty if none is known."""
    exits = (read_supervisor_exit(crew, agent) for agent in agents)
    return next((left.login for left in exits if left is not None and left.login), "")


def read_supervisor_exit(crew: Crew, agent: str) -> SupervisorExit | None:
    try:
        return run_directory.read_supervisor_exit(crew.paths, agent)
    except LizaError as error:
        return SupervisorExit(time=crew.clock.now(), reason=error.message)


def _stuck_agents(crew: Crew, state: State) -> dict[str, str]:
    """Why the living sessions of agents make no progress, as measured by their supervisors."""
    gauges = {name: costs.read_gauge(crew.paths, state, name) for name in state.agents}
    return {
        name: redact(gauge.stuck) for name, gauge in gauges.items() if gauge is not None and gauge.stuck is not None
    }


def _denials(crew: Crew, state: State) -> dict[str, dict[str, tuple[int, str]]]:
    """Denials of the guards in the present runs of agents, by rule."""
    return {name: rows for name in state.agents if (rows := _denials_of(crew, state, name))}


def _denials_of(crew: Crew, state: State, name: str) -> dict[str, tuple[int, str]]:
    work = find_current_work(state, name)
    path = crew.paths.run(work.run) / DENIALS_FILE if work is not None else None
    if path is None or not path.exists():
        return {}

    counts = session_guards.count_denials(path.parent)
    return {redact(rule): (count, redact(last)) for rule, (count, last) in counts.items()}


def count_denials(crew: Crew, state: State, name: str) -> int:
    """Return how many tools the guards denied an agent in its present run."""
    return sum(count for count, _ in _denials_of(crew, state, name).values())


def _guard_notices(crew: Crew) -> tuple[tuple[str, str], ...]:
    """Why rules of the project's guard file do not count, each with a command; empty without such a file."""
    if not (crew.paths.liza / GUARDS_TOML).exists():
        return ()

    try:
        notices = guard_files.load_guards(crew.paths, Path.home()).notices
    except (LizaError, OSError) as error:
        hint = error.hint if isinstance(error, LizaError) else "liza doctor"
        return ((f"no session can start: {error}", hint),)
    return tuple((notice, "liza programs trust") for notice in notices)


def _is_unsupervised(crew: Crew, state: State, agent: str) -> bool:
    """Whether the agent holds work that a supervisor began, and no supervisor runs.

    A person who works by hand has no run directory and needs no supervisor.
    """
    work = find_current_work(state, agent)
    return work is not None and crew.run_dir(work.run).exists() and not crew.is_supervised(agent)


def _outside_edit_alarms(crew: Crew, state: State) -> Iterator[Alarm]:
    """Alarms for recent edits from outside that overwrote something, or deleted a task that is still missing.

    Other effects of such an edit are on the board itself, and have alarms of their own as long as they are there.
    """
    for record in islice(revision_journal.iter_newest_first(crew.paths.journal), RECENT_REVISIONS):
        if not _is_news(record.time, crew.clock.now()):
            continue
        for index, message in enumerate(record.alerts):
            deleted = _DELETED_ENTRY.match(message)
            revision = f"revision {record.revision}"
            if record.overwrote and index == 0:
                yield Alarm(AlarmKind.OVERWRITTEN, revision, message, "liza history -p")
            elif deleted and state.task(deleted[1]) is None:
                yield Alarm(AlarmKind.EXTERNAL_EDIT, revision, message, "liza history -p")


def _is_news(time: str, now: datetime) -> bool:
    """Whether a revision of that time is recent; one without a valid time was written by hand and is not."""
    try:
        return now - datetime.fromisoformat(time) < MAX_NEWS_AGE
    except (ValueError, TypeError):
        return False


def _read_budget_pause(crew: Crew, state: State) -> str:
    """Return the reason of a PAUSE that a supervisor set: only a used-up budget makes it do so. Empty for others."""
    is_budget = signals.read_author(crew.paths, "PAUSE") in state.agents
    return redact(signals.read_reason(crew.paths, "PAUSE")) if is_budget else ""


def _budget_step(crew: Crew, state: State) -> str:
    """Return the command that raises the used-up limit; `liza resume` says what is wrong if the ledger is damaged."""
    try:
        return costs.raise_budget_command(crew.paths, state)
    except LizaError:
        return "liza resume"


def _signal_time(crew: Crew, name: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(crew.paths.signal(name).stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
