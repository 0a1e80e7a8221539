"""The present alarms of a crew: gather the facts, and evaluate them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from liza.alarms import confinement, notices
from liza.alarms.rules import alarm_checks as alarms
from liza.alarms.rules.alarm_checks import AlarmFacts, is_checkpoint_due
from liza.board.rules.host_leases import HostCondition, forget_command, judge_host, takeover_time
from liza.board.signals import Signal
from liza.breaker.rules.breaker_trips import signal_hint
from liza.config import confirmed_settings
from liza.crew import deleted_parts, recorder
from liza.crew.crew import Crew
from liza.git import git_refs, slot_records, slots_directory
from liza.guards import guard_files, session_guards
from liza.guards.rules.guard_rules import DENIALS_FILE, GUARDS_TOML
from liza.landing import remotes, submitted_tips
from liza.landing.rules import remote_failures
from liza.merging import drift, merge_lock, statement_writer
from liza.merging.rules.repository_drift import RepositoryDrift
from liza.model.agent_states import StoppedProcesses
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.derived import find_current_work
from liza.model.errors import LizaError, SharedPathBlocked
from liza.model.model import State, Status, SupervisorExit, Task
from liza.model.paths import Paths, branch_of
from liza.model.value_classes import asdict as fields_of
from liza.model.value_classes import replace
from liza.programs.session import run_directory
from liza.recovery import stopped_processes
from liza.system import files
from liza.tasks import draft_specs, task_branches
from liza.tasks.rules import submissions
from liza.tasks.rules.picking import Evidence, MissingParts
from liza.text.formats import format_time
from liza.text.redaction import redact
from liza.text.undecoded import escape_undecoded
from liza.usage import costs

RECENT_REVISIONS = 30  # an edit from outside is reported only among the newest revisions
MAX_NEWS_AGE = timedelta(days=1)
"""Maximum age of a reported edit. A second limit: while no crew runs, no newer revisions push it out."""
_DELETED_ENTRY = re.compile(r"changed outside liza: (\S+): id is gone\b")


def find_missing_parts(crew: Crew, state: State) -> dict[str, MissingParts]:
    """Missing parts of drafts; empty if git fails: `liza doctor` reports why."""
    if not any(task.status is Status.DRAFT for task in state.tasks):
        return {}
    try:
        return draft_specs.find_incomplete_drafts(crew, state)
    except (LizaError, OSError):
        return {}


def find_alarms(
    crew: Crew, state: State, evidence: Evidence, lacks: Mapping[str, MissingParts] | None = None
) -> tuple[Alarm, ...]:
    """Return all present alarms. ``lacks``: the result of ``find_incomplete_drafts``, if the caller has it."""
    before = _run_checks(_CHECKS_BEFORE_THE_BOARD, crew, state)
    # A supervisor whose lock file was deleted only seems to be gone.
    unwatched = () if any(alarm.kind == AlarmKind.DAMAGED for alarm in before) else state.agents
    missing_parts = find_missing_parts(crew, state) if lacks is None else lacks
    facts = replace(_gather_facts(crew, state, evidence), missing_parts=missing_parts)
    if state.agents:
        facts = replace(
            facts,
            exits={name: left for name in state.agents if (left := read_supervisor_exit(crew, name)) is not None},
            unsupervised=frozenset(name for name in unwatched if _is_unsupervised(crew, state, name)),
            stopped=_find_stopped(crew.paths, state) if _has_supervised(state) else StoppedProcesses(),
            no_progress=_stuck_agents(crew.paths, state),
            denials={name: rows for name in state.agents if (rows := _denials_of(crew.paths, state, name))},
        )
    present = alarms.evaluate_alarms(state, crew.clock.now(), facts)
    after = _run_checks(_CHECKS_AFTER_THE_BOARD, crew, state)
    return tuple(map(_without_undecoded, (*before, *present, *after)))


def _gather_facts(crew: Crew, state: State, evidence: Evidence) -> AlarmFacts:
    """Return the facts about the crew as a whole that are not on the board."""
    written = crew.board.read_as_written()
    signals = crew.board.signals()
    budget_pause = _find_budget_pause(signals, state)
    return AlarmFacts(
        evidence=evidence,
        signals={name: signal.time for name, signal in signals.items()},
        budget_pause=budget_pause,
        budget_step=_budget_step(crew.paths, state) if budget_pause else "",
        planners_checkpoint=_find_checkpoint(signals, state),
        unknown_config=crew.board.unknown_config(),
        written=written.config,
        unconfirmed=confirmed_settings.find_unconfirmed(crew.paths, written),
        repository=_repository(crew, state),
        unpriced=costs.unpriced_budget_reason(crew, state),
        guard_notices=_guard_notices(crew.paths) if (crew.paths.liza / GUARDS_TOML).exists() else (),
        tips=_find_tips(crew, state) if submissions.open_submissions(state) else {},
        cost=costs.sprint_cost(crew, state).text if is_checkpoint_due(state, crew.clock.now()) else "",
    )


_HALT_KINDS: Final = frozenset({AlarmKind.BREAKER_TRIPPED, AlarmKind.BUDGET_USED, AlarmKind.PLANNING_ROUNDS})


def halt_alarms(crew: Crew, state: State, signals: Mapping[str, Signal]) -> tuple[Alarm, ...]:
    """Return why the crew is halted by ``signals``, which no person has set."""
    budget_pause = _find_budget_pause(signals, state)
    step = _budget_step(crew.paths, state) if budget_pause else ""
    facts = AlarmFacts(budget_pause=budget_pause, budget_step=step)
    present = alarms.evaluate_alarms(state, crew.clock.now(), facts)
    halts = tuple(alarm for alarm in present if alarm.kind in _HALT_KINDS)
    return halts or tuple(_signal_alarm(state, signal) for signal in signals.values())


def _signal_alarm(state: State, signal: Signal) -> Alarm:
    reason = redact(signal.reason)
    message = f"{signal.name} is set by {signal.author}" + (f": {reason}" if reason else "")
    return Alarm(AlarmKind[f"STALE_{signal.name}"], signal.name, message, signal_hint(state))


def _run_checks(checks: Iterable[Check], crew: Crew, state: State) -> list[Alarm]:
    """Return what the checks find. Of what cannot be read `liza doctor` tells why."""
    result: list[Alarm] = []
    for check in checks:
        with suppress(LizaError, OSError):
            result += check(crew, state)
    return result


def _without_undecoded(alarm: Alarm) -> Alarm:
    """Return an alarm as it is shown, logged and compared: names in it may have bytes that are not UTF-8."""
    about, message, step = map(escape_undecoded, (alarm.about, alarm.message, alarm.next))
    return replace(alarm, about=about, message=message, next=step)


def _check_disk(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms for a disk on which nothing can be written: of the board, or of the worktrees."""
    faults: dict[int, tuple[str, str]] = {}
    for path in (crew.paths.liza, crew.paths.slots):
        with suppress(OSError):
            if (fault := files.find_disk_fault(path)) is not None:
                faults.setdefault(path.stat().st_dev, fault)
    for reason, command in faults.values():
        yield AlarmKind.DISK_FULL.alarm("disk", reason=reason, step=command)


def _check_crew_files(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms for deleted or damaged files of the crew, and for a moved repository."""
    damage = deleted_parts.describe_damage(crew.paths, state)
    if damage is not None:
        yield AlarmKind.DAMAGED.alarm("repository", reason=damage, step=deleted_parts.AGAIN)
    if crew.moved_reason is not None:
        yield AlarmKind.MOVED.alarm("repository", reason=crew.moved_reason)
    if damage is not None:
        return
    # A board without the records of a crew, such as a sample board, never had pins.
    if crew.paths.slots_record.exists() and not crew.paths.pins.exists():
        yield AlarmKind.PINS_GONE.alarm("repository", step=deleted_parts.FIX)
    if (error := confirmed_settings.damaged(crew.paths)) is not None:
        yield AlarmKind.PINS_DAMAGED.alarm("repository", reason=error.message, step=str(error.hint or ""))


def _check_merges(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms for conditions that block merges."""
    if any(task.epic for task in state.tasks):
        for epic, fault in task_branches.find_faults(crew).items():
            yield AlarmKind.EPIC_BRANCH.alarm(epic, reason=fault.message, step=str(fault.hint or ""))
    if any(task.status is Status.APPROVED for task in state.tasks):
        blocker = merge_lock.find_merge_blocker(crew, state)
        if blocker is not None:
            yield AlarmKind.MERGE_LOCK_HELD.alarm("merge", **fields_of(blocker))
        for task_id, reason in merge_lock.find_unwritable(crew.paths, state).items():
            yield AlarmKind.MERGE_SET_ASIDE.alarm(
                task_id, reason=reason, next_try="; it is not merged", step="liza edit"
            )


def _find_tips(crew: Crew, state: State) -> dict[str, str | None]:
    """Return the present commits of submitted branches and requests, and None for a worktree that is gone; none of
    branches if git fails, as `liza doctor` reports."""
    tips = submitted_tips.read_tips(crew.paths, state)
    sources = [task.submission for task in submissions.open_submissions(state) if task.submission is not None]
    # Other hosts have branches and worktrees of the same names.
    sources = [source for source in sources if not crew.remote_name or source.host == crew.host]
    branches = dict.fromkeys(source.branch for source in sources if source.branch and not source.request)
    with suppress(LizaError):
        commits = git_refs.find_commits(crew.git, *(git_refs.HEADS + branch for branch in branches)) if branches else ()
        tips |= dict(zip(branches, commits, strict=True))
    paths = (source.worktree for source in sources)
    return tips | {path: None for path in paths if path and not Path(path).exists()}


def _check_worktrees(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms about claimed tasks without a worktree, and about a slots directory that is not Liza's any more."""
    common = slots_directory.find_common_dir(crew.paths.root)
    foreign = None if crew.moved_reason is not None else slots_directory.foreign_error(crew.paths, common)
    if foreign is not None:
        yield AlarmKind.WORKTREES_REPLACED.alarm(str(crew.paths.slots), reason=foreign.message, step=str(foreign.hint))
        return
    missing = [task.id for task in state.tasks if task.status is Status.CLAIMED and _is_worktree_missing(crew, task)]
    if missing:
        verb = "is claimed, and its worktree is" if len(missing) == 1 else "are claimed, and their worktrees are"
        directory = str(crew.paths.slots)
        yield AlarmKind.WORKTREE_GONE.alarm(missing[0], names=", ".join(missing), verb=verb, directory=directory)


def _is_worktree_missing(crew: Crew, task: Task) -> bool:
    """Return whether the worktree of a claimed task is missing and its agent has no supervisor that repairs it."""
    if task.reservation is not None or task.worktree is None or not crew.is_here(task):
        return False
    return not crew.paths.slot(task.worktree).is_dir() and not crew.is_supervised(str(task.assigned_to))


def _check_hosts(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms about hosts that are not heard: what of them waits, and when others take it over."""
    table = crew.board.hosts()
    if table is None:
        return
    for row in table.hosts:
        condition = judge_host(row, table.now, table.started)
        if condition is HostCondition.ALIVE:
            continue
        placed = [agent.agent for agent in table.agents if table.find_host(agent.host, agent.incarnation) is row]
        tasks = [work.task for agent in placed if (work := find_current_work(state, agent)) is not None and work.task]
        at = format_time(takeover_time(row, table.started))
        is_lost = condition is HostCondition.LOST
        yield AlarmKind.HOST_SILENT.alarm(
            row.name,
            seen=format_time(row.seen),
            held=f"{', '.join(tasks)} {'waits' if len(tasks) == 1 else 'wait'}" if tasks else "it holds no task",
            takeover=f"other hosts may take over since {at}" if is_lost else f"other hosts may take over at {at}",
            step=forget_command(row, table.now, table.started),
        )


def _check_archive(crew: Crew, state: State) -> Iterator[Alarm]:
    damage = crew.board.find_archive_damage(state)
    if damage is not None:
        file, fault = damage.entry, str(damage.actual)
        yield AlarmKind.ARCHIVE_DAMAGED.alarm(file, file=file, fault=fault, step=damage.next)


def _check_places(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms for a link, and for a branch, where Liza makes worktrees and branches."""
    try:
        slot_records.refuse_links(crew.paths.slots)
    except SharedPathBlocked as error:
        yield AlarmKind.PLACE_BROKEN.alarm("worktrees", reason=error.message, step=str(error.hint or ""))
    if git_refs.has_branch_named_task(slots_directory.find_common_dir(crew.paths.root)):
        conflict = git_refs.ref_conflict_error("task", branch_of("<id>"), git_refs.list_branches(crew.git))
        yield AlarmKind.BRANCH_IN_THE_WAY.alarm("task", reason=conflict.message, step=str(conflict.hint or ""))


def _check_records(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms for agents without boxes, unwritten evidence, and a history with other revisions of its numbers."""
    if crew.paths.unconfined.exists():
        yield from confinement.find_alarms(crew.paths, state.config)
    if crew.paths.history_conflict.exists() and (conflict := recorder.read_conflict(crew)) is not None:
        yield AlarmKind.HISTORY_CONFLICT.alarm("history", reason=conflict.message, step=str(conflict.hint or ""))
    if crew.paths.evidence_failure.exists() and (failure := statement_writer.read_failure(crew.paths)) is not None:
        yield AlarmKind.EVIDENCE.alarm("evidence", reason=failure.reason, step=failure.next)


def _check_remotes(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield alarms for a pull request that cannot be read, branches that cannot be pushed, and notices not sent."""
    if state.pull_request.is_open:
        yield from remote_failures.sync_alarms(state, remotes.read_failure(crew.paths.request_sync))
    if state.config.push == "auto" and crew.paths.push_failure.exists():
        yield from remote_failures.backup_alarms(state, remotes.read_failure(crew.paths.push_failure))
    if crew.paths.notices.exists():
        yield from notices.failure_alarms(crew.paths, crew.clock.now())


def _has_supervised(state: State) -> bool:
    """Return whether any agent of the crew ever had a supervisor."""
    return any(agent.program for agent in state.agents.values())


def _find_stopped(paths: Paths, state: State) -> StoppedProcesses:
    """Stopped processes of the crew; none if the process table cannot be read."""
    try:
        return stopped_processes.find_stopped(paths, state.agents)
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


def find_refused_model(crew: Crew, agents: Iterable[str]) -> str:
    """Return which program of these agents does not have the model that was named; empty if none is known."""
    exits = (read_supervisor_exit(crew, agent) for agent in agents)
    return next((left.model for left in exits if left is not None and left.model), "")


def find_missing_login(crew: Crew, agents: Iterable[str]) -> str:
    """Return which program of these agents is not logged in, and how a person logs in; empty if none is known."""
    exits = (read_supervisor_exit(crew, agent) for agent in agents)
    return next((left.login for left in exits if left is not None and left.login), "")


def read_supervisor_exit(crew: Crew, agent: str) -> SupervisorExit | None:
    if crew.find_holder(agent):
        return None  # a note of the time when it was on this host
    try:
        return run_directory.read_supervisor_exit(crew.paths, agent)
    except LizaError as error:
        return SupervisorExit(time=crew.clock.now(), reason=error.message)


def _stuck_agents(paths: Paths, state: State) -> dict[str, str]:
    """Why the living sessions of agents make no progress, as measured by their supervisors."""
    gauges = {name: costs.read_gauge(paths, state, name) for name in state.agents}
    return {
        name: redact(gauge.stuck) for name, gauge in gauges.items() if gauge is not None and gauge.stuck is not None
    }


def _denials_of(paths: Paths, state: State, name: str) -> dict[str, tuple[int, str]]:
    """Denials of the guards in the present run of an agent, by rule."""
    work = find_current_work(state, name)
    path = paths.run(work.run) / DENIALS_FILE if work is not None else None
    if path is None or not path.exists():
        return {}

    counts = session_guards.count_denials(path.parent)
    return {redact(rule): (count, redact(last)) for rule, (count, last) in counts.items()}


def count_denials(paths: Paths, state: State, name: str) -> int:
    """Return how many tools the guards denied an agent in its present run."""
    return sum(count for count, _ in _denials_of(paths, state, name).values())


def _guard_notices(paths: Paths) -> tuple[tuple[str, str], ...]:
    """Why rules of the project's guard file do not count, each with a command."""
    try:
        notices = guard_files.load_guards(paths, Path.home()).notices
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


def _check_outside_edits(crew: Crew, state: State) -> Iterator[Alarm]:
    """Alarms for recent edits from outside that overwrote something, or deleted a task that is still missing.

    Other effects of such an edit are on the board itself, and have alarms of their own as long as they are there.
    """
    for record in islice(crew.board.records(), RECENT_REVISIONS):
        if not record.alerts or not _is_news(record.time, crew.clock.now()):
            continue
        for index, message in enumerate(record.alerts):
            deleted = _DELETED_ENTRY.match(message)
            revision = f"revision {record.revision}"
            if record.overwrote and index == 0:
                yield AlarmKind.OVERWRITTEN.alarm(revision, reason=message)
            elif deleted and state.task(deleted[1]) is None:
                yield AlarmKind.EXTERNAL_EDIT.alarm(revision, reason=message)


def _is_news(time: str, now: datetime) -> bool:
    """Whether a revision of that time is recent; one without a valid time was written by hand and is not."""
    try:
        return now - datetime.fromisoformat(time) < MAX_NEWS_AGE
    except (ValueError, TypeError):
        return False


def _find_budget_pause(signals: Mapping[str, Signal], state: State) -> str:
    """Return the reason of a PAUSE that a supervisor set: only a used-up budget makes it do so. Empty for others."""
    pause = signals.get("PAUSE")
    return redact(pause.reason) if pause is not None and pause.author in state.agents else ""


def _find_checkpoint(signals: Mapping[str, Signal], state: State) -> tuple[str, str] | None:
    """Return the planner that set CHECKPOINT, and its reason; None if a person or the circuit breaker did."""
    checkpoint = signals.get("CHECKPOINT")
    is_planners = checkpoint is not None and checkpoint.author in state.agents
    return (checkpoint.author, redact(checkpoint.reason)) if checkpoint is not None and is_planners else None


def _budget_step(paths: Paths, state: State) -> str:
    """Return the command that raises the used-up limit; `liza resume` says what is wrong if the ledger is damaged."""
    try:
        return costs.raise_budget_command(paths, state)
    except LizaError:
        return "liza resume"


Check = Callable[[Crew, State], Iterable[Alarm]]
_CHECKS_BEFORE_THE_BOARD: Final[tuple[Check, ...]] = (
    _check_disk,
    _check_crew_files,
    _check_merges,
    _check_worktrees,
    _check_archive,
    _check_places,
    _check_records,
)
"""What blocks every worktree, every merge or every new claim; its alarms come first."""
_CHECKS_AFTER_THE_BOARD: Final[tuple[Check, ...]] = (
    _check_hosts,
    _check_remotes,
    _check_outside_edits,
)
