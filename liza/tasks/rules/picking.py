"""Choose the next task for an agent, or say why it has no task; find tasks that no agent can claim."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from liza.model import invariants, setting_limits, targets
from liza.model.configuration import OverlapRule
from liza.model.derived import held_tasks, is_incomplete, tasks_with
from liza.model.history_events import HistoryEvent, first_line, last_failure
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import host_of_slot, is_task_slot, role_of, split_run, task_slot
from liza.model.statuses import AgentStatus, GoalStatus, describe_task, goal_word, task_word
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value, replace
from liza.tasks.rules import overlap, strangers, work_record
from liza.tasks.rules.overlap import ChangedFiles, Overlap
from liza.tasks.rules.work_record import Preference, TaskRecord

S = Status
CLAIMABLE_STATUSES = frozenset({S.UNCLAIMED, S.REJECTED, S.INTEGRATION_FAILED, S.CLAIMED})
_RETURNED_STATUSES = frozenset({S.REJECTED, S.INTEGRATION_FAILED})
CRASHES_BEFORE_OTHERS = 2  # crashed sessions of a task in a row, before other coders come first
RESTING = "resting before the next session"
_CRASH_ROW_ENDS = frozenset(
    {
        HistoryEvent.ENDED,
        HistoryEvent.HANDOFF,
        HistoryEvent.SUBMIT,
        HistoryEvent.BLOCK,
        HistoryEvent.UNBLOCK,
        HistoryEvent.CONTEXT_FULL,
        HistoryEvent.TOO_OLD,
    }
)
"""Events that show a session which did not crash, or a person's decision to try again."""
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a time that the board does not have."""


class Evidence(Value):
    """Facts that the caller gathered outside of the board.

    ``offline``: agents whose supervisor lock is free. ``dead``: runs whose session is proved over. ``abandoned``: runs
    that hold a review or the planning, whose lease has expired or whose host is lost, whose agent is offline and whose
    session is over. ``lost``: runs whose session ended because their host was lost: their leases count no more.
    ``online``: agents whose supervisor runs. ``records``: work records by agent, for `config.routing: record`; empty
    for the routing ``first``. ``resting``: seconds for which the asking supervisor starts no session of a task.
    ``changed``: the files that the branches of tasks have changed.
    """

    offline: Container[str] = frozenset()
    dead: Container[str] = frozenset()
    abandoned: Container[str] = frozenset()
    lost: Container[str] = frozenset()
    online: Container[str] = frozenset()
    records: Mapping[str, Sequence[TaskRecord]] = {}
    resting: Mapping[str, float] = {}
    changed: Mapping[str, frozenset[str]] = {}


class Pick(Value):
    """The task to claim."""

    task: Task


class LimitReached(Value):
    """A returned task that the agent could take, but that has reached a limit. It must be blocked."""

    task: Task
    reason: str


class TakeLater(Value):
    """A task that the agent may take, but not yet: ``why``, and for how many ``seconds`` more."""

    why: str
    seconds: float


class NoTask(Value):
    """No task. ``why`` is the reason that `liza status` shows.

    ``seconds``: after that time a task that rests or is kept for another agent can be taken; None if none of them does.
    """

    why: str
    seconds: float | None = None


def pick_task(state: State, agent: str, now: datetime, evidence: Evidence) -> Pick | LimitReached | NoTask:
    """Return the next task for a coder: its own returned tasks first, then by priority, age and id.

    A task whose last session crashed comes after the others. After CRASHES_BEFORE_OTHERS it is first kept for another
    coder. One that shares files with a task in work comes after the others of its priority.
    """
    busy = occupation(state, agent)
    if busy:
        return NoTask(f"{agent} is busy with {busy}")
    if state.goal.status != GoalStatus.IN_PROGRESS:
        return NoTask(f"the goal is {goal_word(state.goal.status)}")
    reasons: list[str] = []
    kept: list[float] = []
    shares_files: Task | None = None
    claimable = [task for task in state.tasks if task.status in CLAIMABLE_STATUSES]
    for task in sorted(claimable, key=lambda task: _rank(task, agent)):
        if shares_files is not None and _rank(task, agent)[:3] != _rank(shares_files, agent)[:3]:
            break
        why = claim_obstacle(state, task, agent, now, evidence)
        own = task.assigned_to == agent and task.reservation is None
        limit = limit_reached(state, task) if task.status in _RETURNED_STATUSES and (own or why is None) else None
        if limit:
            return LimitReached(task, f"{limit}{_why_it_came_back(task)}")
        if why is None:
            later = (
                _rest(task, evidence)
                or _other_after_crashes(state, task, agent, now, evidence)
                or _better_agent(state, task, agent, now, evidence)
            )
            if later is None and _shares_files(state, task, evidence):
                shares_files = shares_files or task
                continue
            if later is None:
                return Pick(task)
            kept.append(later.seconds)
            why = later.why
        reasons.append(f"{task.id}: {why}")
    if shares_files is not None:
        return Pick(shares_files)
    return NoTask("; ".join(reasons[:3]) or "no task is claimable", min(kept, default=None))


def preferred_agent(state: State, task: Task, now: datetime, evidence: Evidence) -> Preference | None:
    """Return the idle coder whose record fits a claimable task best; None if all may take it alike.

    That is so with the routing ``first``, for a returned task, if no record fits, and after a bounded time. An agent
    that is busy, offline or refused by a rule is never preferred, so no task waits for it.
    """
    if state.config.routing != "record" or task.status is not S.UNCLAIMED:
        return None

    seconds = work_record.preference_seconds(state, task, now)
    if not seconds:
        return None
    idle = [name for name in state.agents if _may_take(state, task, name, now, evidence)]
    return work_record.choose(
        {name: work_record.fit(evidence.records.get(name, ()), task.scope) for name in idle}, seconds
    )


def _may_take(state: State, task: Task, agent: str, now: datetime, evidence: Evidence) -> bool:
    """Whether a coder is idle, its supervisor runs, and no rule keeps it from claiming the task."""
    return (
        claim_obstacle(state, task, agent, now, evidence) is None
        and state.agents[agent].status in (AgentStatus.IDLE, AgentStatus.WAITING)
        and occupation(state, agent) is None
        and agent in evidence.online
    )


def _better_agent(state: State, task: Task, agent: str, now: datetime, evidence: Evidence) -> Preference | None:
    """Return the preference for another agent. None for an agent without a supervisor: a person claims for it."""
    if state.config.routing != "record" or agent not in evidence.online:
        return None
    best = preferred_agent(state, task, now, evidence)
    return None if best is None or best.fits[best.agent] <= best.fits.get(agent, 0.0) else best


def crashes_in_a_row(task: Task) -> int:
    """Return how many of the task's last sessions crashed, one after the other. Ends without fault do not count."""
    count = 0
    for event in reversed(task.history):
        if event.event in _CRASH_ROW_ENDS:
            break
        count += event.event == HistoryEvent.CRASH
    return count


def has_untried(state: State, agent: str, now: datetime, evidence: Evidence) -> bool:
    """Return whether a coder or a reviewer holds or may take a task whose last session did not crash."""
    if state.goal.status != GoalStatus.IN_PROGRESS:
        return False
    if role_of(agent) == "code-reviewer":
        return any(
            task.reviews_without_verdict == 0
            and (task.reviewing_by == agent or review_obstacle(task, agent, evidence) is None)
            for task in tasks_with(state, S.READY_FOR_REVIEW)
        )
    return any(
        crashes_in_a_row(task) == 0
        and (_is_taken_by(task, agent) or claim_obstacle(state, task, agent, now, evidence) is None)
        for task in state.tasks
        if task.status in CLAIMABLE_STATUSES
    )


def _is_taken_by(task: Task, agent: str) -> bool:
    if task.reservation is not None:
        return task.reservation.agent == agent
    return task.status is S.CLAIMED and task.assigned_to == agent


def _rest(task: Task, evidence: Evidence) -> TakeLater | None:
    seconds = evidence.resting.get(task.id, 0.0)
    return TakeLater(RESTING, seconds) if seconds > 0 else None


def _other_after_crashes(state: State, task: Task, agent: str, now: datetime, evidence: Evidence) -> TakeLater | None:
    """Return that the task is kept for another coder, because its last sessions crashed, the last one under ``agent``.

    None if there is no other coder that may take it, or after a bounded time.
    """
    count = crashes_in_a_row(task)
    if count < CRASHES_BEFORE_OTHERS or agent != _last_crashed(task):
        return None

    seconds = work_record.preference_seconds(state, task, now)
    others = [
        name
        for name in state.agents
        if name != agent and name in evidence.online and claim_obstacle(state, task, name, now, evidence) is None
    ]
    if not seconds or not others:
        return None
    return TakeLater(f"its last {count} sessions crashed: {others[0]} tries it before {agent}", seconds)


def _last_crashed(task: Task) -> str | None:
    crashes = [event.agent for event in task.history if event.event == HistoryEvent.CRASH]
    return crashes[-1] if crashes else None


def pick_review(state: State, agent: str, evidence: Evidence) -> Pick | NoTask:
    """Return the next task for a reviewer: by priority, then the longest waiting first.

    A task whose last review ended without a verdict comes after the others.
    """
    busy = occupation(state, agent)
    if busy:
        return NoTask(f"{agent} is busy with {busy}")
    reasons: list[str] = []
    kept: list[float] = []
    for task in sorted(tasks_with(state, S.READY_FOR_REVIEW), key=_review_rank):
        why = review_obstacle(task, agent, evidence)
        if why is None:
            rest = _rest(task, evidence)
            if rest is None:
                return Pick(task)
            kept.append(rest.seconds)
            why = rest.why
        reasons.append(f"{task.id}: {why}")
    return NoTask("; ".join(reasons[:3]) or "no task is ready for review", min(kept, default=None))


def claimable_now(state: State, wanted: str, agent: str, now: datetime, evidence: Evidence) -> str | None:
    """Return the task that a coder takes which picked ``wanted`` on an older board; None if all are taken.

    Many agents wake up for the same revision and pick the same task. Under the lock each takes what is the best then,
    so no claim is lost while there is a task. A lapsed claim is taken over only if that was decided.
    """
    task = state.task(wanted)
    if task is None or occupation(state, agent) or claim_obstacle(state, task, agent, now, evidence) is None:
        return wanted
    # Records are read from git: not under the lock.
    pick = pick_task(state, agent, now, replace(evidence, online=frozenset(), records={}))
    return pick.task.id if isinstance(pick, Pick) and pick.task.status is not S.CLAIMED else None


def reviewable_now(state: State, wanted: str, agent: str, evidence: Evidence) -> str | None:
    """As ``claimable_now``, for a reviewer."""
    task = state.task(wanted)
    if task is None or occupation(state, agent) or review_obstacle(task, agent, evidence) is None:
        return wanted
    pick = pick_review(state, agent, evidence)
    return pick.task.id if isinstance(pick, Pick) else None


def claim_obstacle(
    state: State,
    task: Task,
    agent: str,
    now: datetime,
    evidence: Evidence,
    *,
    is_reserved: bool = False,
    is_own_worktree: bool | None = None,
) -> str | None:
    """Return why ``agent`` may not claim ``task`` now; None if it may. Only this function defines "claimable".

    ``is_reserved``: the agent had reserved it. Its former coder may have become free since, and does not get it back.
    ``is_own_worktree``: None for a claim of a slot; else the claimer has a worktree of its own, and this says whether
    the author of submitted work has the same.
    """
    if role_of(agent) != "coder":
        return f"{agent} is not a coder"
    if task.status is S.DRAFT:
        return "it is a draft"
    if task.status not in CLAIMABLE_STATUSES:
        return describe_task("it", task.status)
    if task.reservation is not None:
        return f"{task.reservation.agent} is taking it as {task.reservation.run}"
    if waits_for_author(task) and not is_own_worktree:
        return "its author goes on with it"
    if task.status is S.CLAIMED:
        lease = _lease_obstacle(task, agent, now, evidence)
        if lease:
            return lease
    # Its author's worktree has the work of a stack that a returned task waits for.
    unmet = () if is_own_worktree and task.status in _RETURNED_STATUSES else unmet_dependencies(state, task)
    if unmet:
        return f"it waits for {', '.join(unmet)}"
    if agent in task.failed_by:
        return f"{agent} has failed it before"
    if task.status in _RETURNED_STATUSES and not is_reserved and _waits_for_coder(state, task, agent, now, evidence):
        return f"{task.assigned_to} is to fix it first"
    broken = invariants.check_entry("tasks", task.id, task, state)
    if broken:
        return f"it breaks a rule: {broken[0]}"
    limit = state.config.slots.max
    if (
        is_own_worktree is None
        and limit is not None
        and task.worktree is None
        and len(used_slots(state, but=task.id)) >= limit
    ):
        return f"all {limit} slots are in use (config.slots.max)"
    holder = None if is_reserved else find_holder(state, task, evidence.changed)
    return None if holder is None else f"it waits for {holder.task}: both have {holder.path} ({RELEASE_HELD})"


RELEASE_HELD = "config.overlap is hold: liza config set overlap warn"


def find_holder(state: State, task: Task, changed: ChangedFiles) -> Overlap | None:
    """Return the task in work that `config.overlap: hold` lets a task wait for; None if it need not wait.

    Only a task that has not begun waits, and only for one whose own dependencies are met. So no two tasks ever wait for
    each other.
    """
    if state.config.overlap is not OverlapRule.HOLD or overlap.has_begun(task):
        return None
    in_work = (other for other in state.tasks if overlap.is_in_work(other) and not unmet_dependencies(state, other))
    return overlap.find_holder(state, task, in_work, changed)


def find_shared_files(state: State, changed: ChangedFiles) -> dict[str, tuple[Overlap, ...]]:
    """Return the tasks in work that share files with other tasks in work, and those that are held, each with them."""
    in_work = [task for task in state.tasks if overlap.is_in_work(task)]
    shared = overlap.find_overlaps(state, in_work, changed, overlap.is_in_work) if in_work else {}
    for task in tasks_with(state, S.UNCLAIMED) if in_work else ():
        holder = None if unmet_dependencies(state, task) else find_holder(state, task, changed)
        if holder is not None:
            shared[task.id] = (holder,)
    return shared


def _shares_files(state: State, task: Task, evidence: Evidence) -> bool:
    in_work = (other for other in state.tasks if overlap.is_in_work(other))
    return overlap.find_holder(state, task, in_work, evidence.changed) is not None


def waits_for_author(task: Task) -> bool:
    """Return whether only the author of submitted work, whom Liza did not start, can go on with a task."""
    return task.submission is not None and task.submission.fix == "author" and task.status in CLAIMABLE_STATUSES


def review_obstacle(task: Task, agent: str, evidence: Evidence) -> str | None:
    """Return why ``agent`` may not review ``task`` now; None if it may."""
    if role_of(agent) != "code-reviewer":
        return f"{agent} is not a code-reviewer"
    if task.status is not S.READY_FOR_REVIEW:
        return describe_task("it", task.status)
    # Only a supervisor starts the program without tools.
    if waits_only_for_verdict(task) or (strangers.is_foreign(task) and agent not in evidence.online):
        return "a person reviews it"
    if task.reviewing_by is not None and task.review_run not in evidence.abandoned:
        return f"{task.reviewing_by} is reviewing it"
    if agent in authors(task):
        return f"{agent} wrote it"
    if task.run is not None and task.run not in evidence.dead:
        return f"its author's session {task.run} is not over"
    return None


def waits_only_for_verdict(task: Task) -> bool:
    """Return whether a person reviews the submitted work of a task, and no program does anything for it."""
    is_persons = task.review == "human" or strangers.is_foreign(task)
    return task.status is S.READY_FOR_REVIEW and is_persons and not strangers.wants_opinion(task)


def authors(task: Task) -> frozenset[str]:
    """Return all agents that have ever claimed the task. None of them may review it."""
    claimed = {event.agent for event in task.history if event.event == HistoryEvent.CLAIM and event.agent}
    return frozenset(claimed | ({task.assigned_to} if task.assigned_to else set()))


def occupation(state: State, agent: str) -> str | None:
    """Return what ``agent`` is busy with (a claim, a review, a reservation, planning); None if it is free."""
    for task in held_tasks(state):
        if task.status is S.CLAIMED and task.assigned_to == agent:
            return task.id
        if task.reviewing_by == agent:
            return f"the review of {task.id}"
        if task.reservation is not None and task.reservation.agent == agent:
            return f"taking {task.id}"
    if state.planning.run is not None and split_run(state.planning.run)[0] == agent:
        return "planning"
    return None


def unmet_dependencies(state: State, task: Task) -> tuple[str, ...]:
    """Return the dependencies that are not met. One is met if it is MERGED into the branch that the task starts from,
    or SUPERSEDED by tasks that are all met.

    For a task in the archive its outcome counts.
    """
    return tuple(wanted for wanted in task.depends_on if not _is_met(state, task, wanted, frozenset()))


def _is_met(state: State, asking: Task, task_id: str, seen: frozenset[str]) -> bool:
    task = state.task(task_id)
    if task is None:
        is_merged = state.archived.outcomes.get(task_id) is S.MERGED
        return is_merged and targets.is_task_in_base(state, asking, task_id)
    if task_id in seen:
        return False
    if task.status is S.SUPERSEDED:
        return bool(task.superseded_by) and all(
            _is_met(state, asking, successor, seen | {task_id}) for successor in task.superseded_by
        )
    return task.status is S.MERGED and targets.is_in_base(state, asking, task)


def max_tries(state: State, task: Task) -> int:
    """Return how many tries a coder has for the task."""
    return task.max_iterations or state.config.max_coder_iterations


def limit_reached(state: State, task: Task) -> str | None:
    """Return the limit that another try would exceed, as text; None if another try is allowed."""
    most = max_tries(state, task)
    if task.iteration >= most:
        if task.iteration > most:
            return f"{task.iteration} tries are used up, and {most} {'was' if most == 1 else 'were'} allowed"
        return "its only try is used up" if most == 1 else f"{most} tries of at most {most} are used up"
    return None


def _why_it_came_back(task: Task) -> str:
    """Return the reason of the last rejection or failed merge as the end of a message; empty without a reason."""
    rejected = task.status is S.REJECTED
    why = first_line(task.rejection_reason if rejected else last_failure(task))
    return f"; it {'was rejected' if rejected else 'does not merge'}: {why}" if why else ""


def free_slot(state: State, task: Task, preferred: Sequence[str] = (), host: str = "") -> str:
    """Return the task's own slot if it is on this host; otherwise one that no task and no reservation uses: the first
    of ``preferred``, or of s1, s2, …"""
    if task.worktree and host_of_slot(task.worktree) == host:
        return task.worktree
    used = used_slots(state)
    own = (name for name in preferred if is_task_slot(name) and host_of_slot(name) == host)
    numbered = (task_slot(host, number) for number in range(1, len(state.tasks) + 2))
    return next(name for name in (*own, *numbered) if name not in used)


def used_slots(state: State, but: str = "") -> frozenset[str]:
    """Return the slots that tasks have, or are being claimed into, except those of the task ``but``."""
    tasks = [task for task in state.tasks if task.id != but]
    slots = [task.worktree for task in tasks]
    slots += [task.reservation.slot for task in tasks if task.reservation]
    return frozenset(slot for slot in slots if slot is not None)


def _lease_obstacle(task: Task, agent: str, now: datetime, evidence: Evidence) -> str | None:
    if task.assigned_to == agent:
        return "this agent has already claimed it"
    if task.lease_expires is not None and task.lease_expires > now and task.run not in evidence.lost:
        return f"{task.assigned_to} holds its lease until {task.lease_expires:%H:%M:%SZ}"
    if task.assigned_to not in evidence.offline:
        return f"its lease has expired, but the supervisor of {task.assigned_to} still runs"
    if task.run not in evidence.dead:
        return f"its lease has expired, but the session {task.run} is not proved dead"
    return None


def _waits_for_coder(state: State, task: Task, agent: str, now: datetime, evidence: Evidence) -> bool:
    """Return whether a returned task is kept for its coder, which has nothing else to do, for one lease duration."""
    coder = task.assigned_to
    if coder is None or coder == agent or coder in task.failed_by or occupation(state, coder) is not None:
        return False
    since = now - _last_event(task)
    # If the clock was set back, the event is in the future. Its age is then unknown and counts as long enough.
    waited = not timedelta(0) <= since < timedelta(seconds=setting_limits.lease_seconds(state.config))
    return not waited and coder not in evidence.offline


def _last_event(task: Task) -> datetime:
    if task.history:
        return task.history[-1].time
    return task.created or _NO_TIME


def _review_rank(task: Task) -> tuple[bool, int, datetime]:
    return (task.reviews_without_verdict > 0, task.priority, _last_event(task))


def _rank(task: Task, agent: str) -> tuple[int, int, int, datetime]:
    # Equal ranks keep their order on the board: tasks of one `task add` are taken in the order of its file.
    own = task.assigned_to == agent and task.status in _RETURNED_STATUSES
    return (0 if own else 1, crashes_in_a_row(task), task.priority, task.created or _NO_TIME)


def find_unclaimable(state: State) -> dict[str, str]:
    """Return the open tasks whose dependencies can never be met: id → text with the dependency and its state."""
    archived = state.archived.outcomes
    lost = {task.id for task in state.tasks if task.status is S.ABANDONED}
    lost |= {name for name, outcome in archived.items() if outcome is not S.MERGED}
    reasons: dict[str, str] = {}
    ids = {task.id for task in state.tasks} | archived.keys()
    while True:
        before = len(lost)
        for task in state.tasks:
            if task.id in lost:
                continue
            if task.status is S.SUPERSEDED:
                is_lost = not task.superseded_by or any(other in lost for other in task.superseded_by)
                lost |= {task.id} if is_lost else set()
            elif task.status is not S.MERGED:
                cause = next((other for other in task.depends_on if other in lost or other not in ids), None)
                if cause is not None:
                    lost.add(task.id)
                    reasons[task.id] = f"{cause}, {_how_lost(state, cause)}"
        if len(lost) == before:
            return reasons


def failed_by_every_coder(state: State, task: Task) -> bool:
    """Whether the task is claimable and every coder on the board has failed it: only another coder can claim it."""
    if not task.failed_by or task.status not in CLAIMABLE_STATUSES:
        return False
    coders = {name for name in state.agents if role_of(name) == "coder"}
    return bool(coders) and coders <= set(task.failed_by)


def first_able_coder(task: Task) -> int:
    """Return the lowest number of a coder that has not failed the task."""
    return next(number for number in range(1, len(task.failed_by) + 2) if f"coder-{number}" not in task.failed_by)


def waits_for_coder_text(task: Task) -> str:
    """Return the message for a task that every coder of the crew has failed."""
    return f"{task.id} waits for another coder: {', '.join(task.failed_by)} failed it before"


def _how_lost(state: State, task_id: str) -> str:
    task = state.task(task_id)
    if task is None:
        outcome = state.archived.outcomes.get(task_id)
        return "which is not on the board" if outcome is None else f"which is archived and was not merged: {outcome}"
    return (
        f"which is {task_word(task.status)}" if task.status in FINAL_STATUSES else "which can never be claimed itself"
    )


E = HistoryEvent


class MissingParts(Value):
    """What a DRAFT lacks now, as sentences for people, and the command that supplies it. Empty if it lacks nothing."""

    missing: tuple[str, ...]
    next: str


def release_complete_drafts(
    state: State, seen: State, lacks: Mapping[str, MissingParts], invocation: Invocation
) -> State:
    """Make every incomplete DRAFT UNCLAIMED that lacks nothing any more.

    ``lacks`` was computed for the board ``seen``. A draft that ``lacks`` does not name, or that has changed since
    ``seen``, stays a draft.
    """
    for task in state.tasks:
        parts = lacks.get(task.id)
        if parts is not None and not parts.missing and is_incomplete(task) and seen.task(task.id) == task:
            state = state.with_task(apply_verb(task, E.READY, invocation))
    return state


def group_incomplete(state: State, lacks: Mapping[str, MissingParts]) -> dict[MissingParts, list[str]]:
    """Return the ids of incomplete drafts, grouped by what they lack, in the order of the board."""
    groups: dict[MissingParts, list[str]] = {}
    for task in state.tasks:
        if task.id in lacks and is_incomplete(task):
            groups.setdefault(lacks[task.id], []).append(task.id)
    return groups
