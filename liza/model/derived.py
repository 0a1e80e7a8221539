"""What follows from the board: groups of tasks, the work of an agent, durations, and the derived fields.

The derived fields are computed again in every transaction, for display and for hints. No decision reads them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from liza.model.errors import NotOwner
from liza.model.history_events import ANSWER_EVENTS, QUESTION_EVENTS, UNFINISHED_ENDS, VERDICTS, HistoryEvent
from liza.model.model import FINAL_STATUSES, Agent, Event, State, Status, Submission, Task
from liza.model.paths import agent_of, is_person, split_run
from liza.model.statuses import AgentStatus, GoalStatus, WorkKind
from liza.model.value_classes import Value, replace

S = Status
_SUPERVISOR_STATUSES = (AgentStatus.STARTING, AgentStatus.WAITING, AgentStatus.OFFLINE)


def update_derived_fields(state: State) -> State:
    """Return the board with agents.status, agents.current_task and sprint.metrics computed from the tasks."""
    work = work_by_agent(state)
    agents = {name: _agent(agent, work.get(name)) for name, agent in state.agents.items()}
    return replace(state, agents=agents, sprint=replace(state.sprint, metrics=sprint_metrics(state)))


def author_name(submission: Submission) -> str:
    """Return who wrote submitted work, without a mail address, and with the program if it is known."""
    name = submission.author.partition(" <")[0].strip() or "its author"
    return f"{name} ({submission.program})" if submission.program else name


def submit_command(submission: Submission) -> str:
    """Return the command with which the author submits the next commit."""
    if submission.request:
        return f"liza submit {submission.request}"
    if submission.branch:
        return shlex.join(["liza", "submit", submission.branch])
    return f"{shlex.join(['cd', submission.worktree])} && liza submit ."


def find_owner(task: Task) -> str:
    """Return the coder of a task, or the author of submitted work that no coder has; empty without either."""
    return task.assigned_to or ("" if task.submission is None else author_name(task.submission))


def restart_planning_rounds(state: State) -> State:
    """Return the board after a person changed it: from now on planning rounds are counted anew."""
    if not state.planning.rounds:
        return state
    return replace(state, planning=replace(state.planning, rounds=0))


def work_by_agent(state: State) -> dict[str, tuple[AgentStatus, str | None]]:
    """Return the status and the task (None: planning) of each agent that holds a claim, a review or planning."""
    work: dict[str, tuple[AgentStatus, str | None]] = {}
    if state.planning.run is not None:
        work[split_run(state.planning.run)[0]] = (AgentStatus.WORKING, None)
    for task in state.tasks:
        if task.reservation is not None:
            work[task.reservation.agent] = (AgentStatus.WORKING, task.id)
        elif task.status is S.CLAIMED and task.assigned_to:
            work[task.assigned_to] = (AgentStatus.HANDOFF if task.handoff_pending else AgentStatus.WORKING, task.id)
        if task.reviewing_by:
            work[task.reviewing_by] = (AgentStatus.REVIEWING, task.id)
    return work


def _agent(agent: Agent, work: tuple[AgentStatus, str | None] | None) -> Agent:
    if work is None:
        return replace(
            agent, status=agent.status if agent.status in _SUPERVISOR_STATUSES else AgentStatus.IDLE, current_task=None
        )
    if work[0] == AgentStatus.HANDOFF and agent.status == AgentStatus.OFFLINE:
        # The supervisor has exited. The task stays with this agent until it runs again.
        return replace(agent, current_task=work[1])
    return replace(agent, status=work[0], current_task=work[1])


def sprint_metrics(state: State) -> dict[str, Any]:
    """Return counts over the sprint's tasks, those in the archive included, for people and planners."""
    counts = Counter(task.status for task in state.tasks)
    counts.update({status: state.archived.counts.get(status.value, 0) for status in FINAL_STATUSES})
    verdicts = Counter(event.event for task in state.tasks for event in task.history if event.event in VERDICTS)
    verdicts.update(state.archived.verdicts)
    return {
        "total": len(state.tasks) + state.archived.total,
        "merged": counts[S.MERGED],
        "in_progress": sum(counts[status] for status in (S.CLAIMED, S.READY_FOR_REVIEW, S.APPROVED, S.REJECTED)),
        "blocked": counts[S.BLOCKED],
        "approved": verdicts[HistoryEvent.APPROVE],
        "rejected": verdicts[HistoryEvent.REJECT] + verdicts[HistoryEvent.DEADLOCK],
    }


class CurrentWork(Value):
    """Work that an agent holds: a claim or a review of ``task``, or planning (``task`` is None)."""

    run: str
    task: str | None
    kind: WorkKind


def find_current_work(state: State, agent: str) -> CurrentWork | None:
    """Return the work that ``agent`` holds on the board; None if it holds none."""
    for task in held_tasks(state):
        if task.status is Status.CLAIMED and task.assigned_to == agent and task.run and task.reservation is None:
            return CurrentWork(task.run, task.id, WorkKind.WORK)
        if task.reviewing_by == agent and task.review_run:
            return CurrentWork(task.review_run, task.id, WorkKind.REVIEW)
    if state.planning.run and current_planner(state) == agent:
        return CurrentWork(state.planning.run, None, WorkKind.PLANNING)
    return None


def require_planner(state: State, run: str) -> None:
    """Check that ``run`` is the planning run (fencing check). Raises NotOwner."""
    if state.planning.run != run:
        raise NotOwner(
            f"{run} is not the planning run, which is {state.planning.run or 'none'}. Stop at once", "liza status"
        )


def current_planner(state: State) -> str | None:
    """Return the agent that plans now, or None."""
    return agent_of(state.planning.run) if state.planning.run else None


def tasks_with(state: State, status: Status) -> list[Task]:
    """Return the tasks with that status."""
    return [task for task in state.tasks if task.status is status]


def held_tasks(state: State) -> list[Task]:
    """Return the tasks that an agent claims, has claimed or reviews."""
    return [
        task
        for task in state.tasks
        if task.status is Status.CLAIMED
        or task.reviewing_by is not None
        or task.review_run is not None
        or task.reservation is not None
    ]


def changed_tasks(before: State, after: State) -> list[Task]:
    """Return the tasks of ``after`` that may differ from those of ``before``: an entry that is the same is kept."""
    previous = set(map(id, before.tasks))
    return [task for task in after.tasks if id(task) not in previous]


_SHAPED = (HistoryEvent.ADD, HistoryEvent.EDIT)


def is_incomplete(task: Task) -> bool:
    """Return whether a task is a DRAFT because something was missing when it was last added or edited.

    A draft that was requested has no missing parts recorded. It stays a draft until it is edited.
    """
    return find_lack(task) is not None


def find_lack(task: Task) -> Event | None:
    """Return the event by which an incomplete DRAFT was last added or edited; None for any other task."""
    if task.status is not Status.DRAFT:
        return None
    shaped = next((event for event in reversed(task.history) if event.event in _SHAPED), None)
    return shaped if shaped is not None and shaped.detail is not None else None


def describe_lack(task: Task) -> str | None:
    """Return what an incomplete DRAFT lacked when it was last added or edited; None for any other task."""
    lack = find_lack(task)
    return lack.detail if lack is not None else None


Span = tuple[datetime, datetime]


class TaskTimes(Value):
    """Times of a task: seconds from its first claim to its end or now, seconds it waited for a person, claims."""

    seconds: int | None
    waiting: int
    tries: int


def task_times(task: Task, now: datetime) -> TaskTimes:
    """Return the times of a task; ``seconds`` is None if it was never claimed."""
    claims = [event.time for event in task.history if event.event == HistoryEvent.CLAIM]
    done = [event.time for event in task.history if event.event != HistoryEvent.UNDO]
    over = done[-1] if done and task.status in FINAL_STATUSES else now
    seconds = int((over - claims[0]).total_seconds()) if claims else None
    return TaskTimes(seconds, _union_seconds(waiting_spans(task, now)), len(claims))


_SAME_STATUS = frozenset(
    {
        *UNFINISHED_ENDS,
        HistoryEvent.EDIT,
        HistoryEvent.EXTEND,
        HistoryEvent.RESUME,
        HistoryEvent.HANDOFF,
        HistoryEvent.CLAIM_REVIEW,
        HistoryEvent.RELEASE_REVIEW,
        HistoryEvent.MERGING,
        HistoryEvent.SAVED,
        HistoryEvent.TESTS_MOVED_REFS,
        HistoryEvent.LAND,
    }
)
"""Events after which the status of a task is as before."""


def status_since(task: Task) -> datetime | None:
    """Return since when a task has its status; None if its history does not say so."""
    return next((event.time for event in reversed(task.history) if event.event not in _SAME_STATUS), None)


def goal_seconds(state: State, now: datetime) -> int | None:
    """Return the seconds from the creation of the goal to its end or now; None if the board has no start time."""
    began = state.goal.created or state.sprint.timeline.started
    if began is None:
        return None
    decisions = (note for note in state.goal.alignment_history if not is_person(note.event))
    ends = [note.timestamp for note in decisions if note.timestamp is not None]
    ended = state.sprint.timeline.ended or max(ends, default=None)
    over = ended if ended is not None and state.goal.status != GoalStatus.IN_PROGRESS else now
    return max(0, int((over - began).total_seconds()))


def waiting_seconds(state: State, now: datetime, archived: Iterable[Span] = ()) -> int:
    """Return the seconds in which at least one task waited for a person. ``archived``: spans of archived tasks."""
    return _union_seconds((*archived, *(span for task in state.tasks for span in waiting_spans(task, now))))


def waiting_spans(task: Task, now: datetime) -> list[Span]:
    """Return the times in which a task waited for a person."""
    spans, since = [], _draft_since(task)
    for event in task.history:
        if event.event in QUESTION_EVENTS:
            since = since or event.time
        elif since is not None and event.event in ANSWER_EVENTS:
            spans.append((since, event.time))
            since = None
    return [*spans, *([(since, now)] if since is not None and _still_waits(task) else [])]


def _draft_since(task: Task) -> datetime | None:
    """Return when the task was added if it was incomplete then; else None."""
    first: Event | None = task.history[0] if task.history else None
    return first.time if first is not None and first.event == HistoryEvent.ADD and first.detail is not None else None


def _still_waits(task: Task) -> bool:
    return task.status is Status.BLOCKED or is_incomplete(task)


def _union_seconds(spans: Iterable[Span]) -> int:
    """Return the seconds in the union of the spans."""
    total, end = 0.0, None
    for start, stop in sorted(spans):
        begin = start if end is None else max(start, end)
        if stop > begin:
            total += (stop - begin).total_seconds()
        end = stop if end is None else max(end, stop)
    return int(total)
