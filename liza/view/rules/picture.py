"""Build the picture of a crew from the facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from liza.breaker.rules.board_reports import open_anomalies, open_discoveries
from liza.config.rules import test_proof
from liza.merging.rules.merge_queue import QueueRow, queue_rows
from liza.model import history_events
from liza.model.agent_states import AgentState
from liza.model.alarm_table import CONTAINED_NOTICES, Alarm, AlarmKind, AlarmRow
from liza.model.derived import find_owner
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.setting_limits import NO_SESSION
from liza.model.statuses import TASK_WORDS, AgentWord, GoalStatus, TaskWord, agent_word
from liza.model.value_classes import Value, asdict
from liza.tasks.rules import overlap, picking
from liza.tasks.rules.overlap import Overlap
from liza.tasks.rules.picking import MissingParts
from liza.text.formats import count_noun
from liza.view.rules.structs import (
    AgentLine,
    AgentRow,
    CrewFacts,
    Picture,
    ReportRow,
    TaskRow,
)

_OTHER_WORK = ("set-up", "planning")
"""What an agent does that neither its word nor its task says."""
_CONTAINED: Mapping[str, str] = {str(kind): str(notice) for kind, notice in CONTAINED_NOTICES.items()}


class CrewReport(Value):
    """A crew at one moment: the facts, and the picture of them."""

    facts: CrewFacts
    picture: Picture

    def fields(self) -> dict[str, Any]:
        """Return the crew as `status --json` prints it.

        ``not_proved``: why it is not proved that the tests test the worktree they run in. ``outdated``: which files
        that define them have changed since the proof.
        """
        facts, picture, state = self.facts, self.picture, self.facts.state
        anomalies = open_anomalies(state)
        return {
            "time": facts.now,
            "revision": state.revision,
            "goal": asdict(state.goal),
            "sprint": asdict(state.sprint),
            "integration_branch": state.config.integration_branch,
            "tests": {
                "command": state.config.integration_command,
                "not_proved": test_proof.unproved_reason(state.config),
                "outdated": facts.outdated_proof,
            },
            "waits": len(picture.waits),
            "signals": list(facts.signals),
            "reasons": dict(facts.signals),
            "tasks": [row.fields() for row in picture.tasks],
            "archived": {"total": state.archived.total, "by_status": state.archived.counts},
            "agents": [asdict(row) for row in facts.agents],
            "waiting": [row.fields() for row in picture.waits],
            "alerts": [row.fields() for row in alarm_rows(facts)],
            "reports": {
                "discoveries": [asdict(discovery) for discovery in open_discoveries(state)],
                "anomalies": [{"id": name, **asdict(anomaly)} for name, anomaly in anomalies.items()],
            },
            "ahead": facts.ahead,
            "cost": facts.costs.fields(),
            "server": facts.server,
            "up": facts.up,
            **({"board": facts.board} if facts.board is not None else {}),
        }


def build_picture(facts: CrewFacts) -> Picture:
    """Return the picture of a crew."""
    state = facts.state
    waits = tuple(_alarm_row(facts, alarm) for alarm in facts.waiting)
    agents = tuple(agent_line(row, facts.signals) for row in facts.agents)
    off = frozenset(line.row.id for line in agents if line.word is AgentWord.OFF)
    queue = queue_rows(state, facts.now) if any(task.status is Status.APPROVED for task in state.tasks) else ()
    tasks = tuple(task_rows(state, state.tasks, facts.missing, off, queue, facts.overlaps))
    counts = Counter(row.word for row in tasks)
    for status, number in state.archived.counts.items():
        if status in Status.__members__:
            counts[TASK_WORDS[Status(status)]] += number
    notes = state.goal.alignment_history
    discoveries = open_discoveries(state) if state.discovered else ()
    anomalies = open_anomalies(state) if state.anomalies else {}
    return Picture(
        time=facts.now,
        revision=state.revision,
        goal=state.goal.description,
        goal_status=state.goal.status,
        decision=notes[-1] if notes else None,
        waits=waits,
        news=tuple(_alarm_row(facts, alarm) for alarm in _find_news(facts)),
        counts={word: counts[word] for word in TaskWord if counts[word]},
        stopped=sum(row.is_stopped for row in tasks),
        total=sum(number for word, number in counts.items() if word is not TaskWord.GIVEN_UP),
        archived=state.archived.total,
        tasks=tasks,
        agents=agents,
        is_off=bool(agents) and len(off) == len(agents),
        queue=queue,
        costs=facts.costs,
        signals={name: why for name, why in facts.signals.items() if not _has_reason_alarm(facts, name)},
        discoveries=tuple(ReportRow(entry.id, entry.urgency, entry.by, entry.description) for entry in discoveries),
        anomalies=tuple(
            ReportRow(name, entry.type, entry.reporter, str(entry.details.get("text", "")))
            for name, entry in anomalies.items()
        ),
        ahead=facts.ahead,
        up=facts.up,
        limits=tuple(_limits(facts, tasks)),
        server_failure=_server_failure(facts),
        outdated_proof=facts.outdated_proof,
    )


def alarm_rows(facts: CrewFacts) -> tuple[AlarmRow, ...]:
    """Return all alarms that are present, as `status --json` prints them."""
    return tuple(_alarm_row(facts, alarm) for alarm in facts.alarms)


def _alarm_row(facts: CrewFacts, alarm: Alarm) -> AlarmRow:
    since = alarm.waiting_since or facts.alarm_times.get((alarm.kind, alarm.about))
    seconds = None if since is None else max(0, int((facts.now - since).total_seconds()))
    reason = facts.signals.get(alarm.about, "")
    message = f"{alarm.message}: {reason}" if reason and alarm.kind.startswith("stale_") else alarm.message
    return AlarmRow(alarm.kind, alarm.about, message, alarm.next, alarm.waiting_since, since, seconds)


def _find_news(facts: CrewFacts) -> Iterator[Alarm]:
    """Yield the alarms that wait for no person, and that no waiting alarm contains."""
    waiting = {(alarm.kind, alarm.about, alarm.next) for alarm in facts.waiting}
    contained = {(_CONTAINED.get(alarm.kind), alarm.about) for alarm in facts.waiting}
    for alarm in facts.alarms:
        if (alarm.kind, alarm.about, alarm.next) not in waiting and (alarm.kind, alarm.about) not in contained:
            yield alarm


def _has_reason_alarm(facts: CrewFacts, signal: str) -> bool:
    """Return whether a waiting alarm says why the signal is set, and what removes it."""
    reason = facts.signals[signal]
    kinds = (AlarmKind.BUDGET_USED, AlarmKind.PLANNERS_CHECKPOINT, f"stale_{signal.lower()}")
    return any(
        (alarm.about == signal and alarm.kind in kinds)
        or (alarm.kind == AlarmKind.BREAKER_TRIPPED and alarm.message in reason)
        for alarm in facts.waiting
    )


def agent_line(row: AgentRow, signals: Collection[str]) -> AgentLine:
    """Return an agent with its word and its reason. ``signals``: the active ones."""
    word = agent_word(
        row.status,
        row.state,
        is_asking=row.doing == AgentWord.WAITS_FOR_YOU,
        is_halted=bool(signals) or (row.why or "").startswith(NO_SESSION),
    )
    reason = (row.evidence if row.state == AgentState.ZOMBIE else row.why) or ""
    if word is AgentWord.IDLE and any(reason.startswith(f"{name} is set") for name in signals):
        reason = ""  # the signal has a line of its own
    if word is AgentWord.IDLE and reason.startswith(NO_SESSION):
        reason = ""  # as well
    if word is AgentWord.WAITS_UNTIL:
        reason = reason.partition(": ")[2] or reason  # its word and its task say the rest
    if not reason and row.doing in _OTHER_WORK:
        reason = row.doing or ""
    if not reason and word is AgentWord.STUCK:
        reason = row.evidence or ""
    return AgentLine(row, word, reason)


def task_rows(
    state: State,
    tasks: Iterable[Task],
    missing: Mapping[str, MissingParts],
    off: Collection[str] = (),
    queue: Iterable[QueueRow] = (),
    overlaps: Mapping[str, tuple[Overlap, ...]] = MappingProxyType({}),
) -> Iterator[TaskRow]:
    """Yield the tasks with their words. ``off``: agents that are off."""
    queued = {row.id: row for row in queue}
    for task in tasks:
        lacks = missing[task.id].missing if task.id in missing else ()
        waits_for = tuple(picking.unmet_dependencies(state, task)) if task.status not in FINAL_STATUSES else ()
        is_stopped = task.status is Status.CLAIMED and task.assigned_to in off
        reason = f"{task.assigned_to} is off" if is_stopped else _task_reason(state, task, lacks, waits_for, queued)
        shared = overlaps.get(task.id, ())
        reason = reason or _shared_reason(task, shared)
        owner = f"{task.reviewing_by} reviews" if task.reviewing_by else find_owner(task)
        yield TaskRow(
            task,
            TASK_WORDS[task.status],
            owner,
            _one_line(reason or task.description),
            lacks,
            waits_for,
            is_stopped,
            shared,
        )


def _task_reason(
    state: State, task: Task, missing: tuple[str, ...], waits_for: tuple[str, ...], queued: Mapping[str, QueueRow]
) -> str:
    """Return what the word of a task leaves out; empty if nothing: then its description is shown."""
    match task.status:
        case Status.BLOCKED:
            return " / ".join(task.blocked_questions) or task.blocked_reason or ""
        case Status.REJECTED:
            return f"rejected: {task.rejection_reason or 'no reason is recorded'}"
        case Status.INTEGRATION_FAILED:
            return (
                f"does not merge: {history_events.first_line(history_events.last_failure(task)) or 'see its history'}"
            )
        case Status.DRAFT:
            return f"draft: {'; '.join(missing) or task.description}"
        case Status.UNCLAIMED if waits_for:
            return f"needs {', '.join(waits_for)}: {task.description}"
        case Status.APPROVED:
            return _approved_reason(queued.get(task.id))
        case Status.CLAIMED if task.id in state.handoff:
            return f"handed over: {state.handoff[task.id].next_action or task.description}"
        case Status.SUPERSEDED:
            return f"superseded by {', '.join(task.superseded_by)}"
        case Status.ABANDONED:
            return history_events.describe_undo(task)
        case _:
            return ""


def _shared_reason(task: Task, overlaps: tuple[Overlap, ...]) -> str:
    """Return with which task in work a task shares files; empty if with none."""
    if not overlaps:
        return ""
    first = overlaps[0]
    if not overlap.is_in_work(task):
        return f"waits for {first.task}: both have {first.path}"
    return f"shares {first.path} with {first.name}: {task.description}"


def _limits(facts: CrewFacts, tasks: Iterable[TaskRow]) -> Iterator[str]:
    """Yield what settings keep from starting, with the command that lets it."""
    if facts.closed is not None and facts.state.goal.status == GoalStatus.IN_PROGRESS:
        yield facts.closed
    held = sum(bool(row.overlaps) and not overlap.is_in_work(row.task) for row in tasks)
    if held:
        waits = "1 task waits" if held == 1 else f"{held} tasks wait"
        yield f"{waits} for a task in work with the same files: {picking.RELEASE_HELD}"


def _approved_reason(row: QueueRow | None) -> str:
    if row is None:
        return "approved"
    return f"approved, {row.why}" if row.why else f"approved, number {row.position} to be merged"


def _server_failure(facts: CrewFacts) -> str | None:
    """Return why the worker API is not served, with a command; None if it is, or if no supervisor expects it."""
    server = facts.server
    if server is None or not server.expected or server.running:
        return None
    failure = server.failure
    if failure is None:
        return "the worker API is not served now, work continues: less .liza/logs/server.log"
    times = count_noun(failure.count, "start")
    return f"the worker API is not served, {times} failed, work continues: {failure.reason}: {failure.next}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
