"""The merge queue: order, rows, batches, the search for the task that breaks a batch, changes by people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from liza.config.rules import test_proof
from liza.merging.rules import merge_rules
from liza.merging.rules.merge_rules import MergeFailureKind
from liza.model import history_events, targets
from liza.model.configuration import Config
from liza.model.derived import tasks_with
from liza.model.errors import Refused, UsageError
from liza.model.history_events import HistoryEvent
from liza.model.model import MergeInProgress, State, Status, Task
from liza.model.statuses import describe_task
from liza.model.tested import HowTested
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value, replace
from liza.tasks.rules import strangers, submissions
from liza.tasks.rules.claims import get_task
from liza.tasks.rules.picking import unmet_dependencies

E = HistoryEvent
_EXITS: Final[Mapping[HistoryEvent, str]] = {
    E.MERGE: "merged",
    E.MERGE_FAILED: "does not merge",
    E.REJECT: "rejected",
    E.SUPERSEDE: "superseded",
    E.DROP: "given up",
}
"""Events by which an approved task leaves the queue, as people read them."""
_ALONE = frozenset({MergeFailureKind.DIED, MergeFailureKind.FAILED, MergeFailureKind.BATCH})
"""After a failure of these kinds the task is merged alone, so that it cannot stop others again."""


class QueueEntry(Value):
    """An approved task in the queue. ``obstacle``: why it is not merged now, and the command for that; None if it is
    merged in its turn."""

    task: Task
    obstacle: tuple[str, str] | None


def ordered_queue(state: State, now: datetime) -> tuple[QueueEntry, ...]:
    """Return all approved tasks in the order in which they are merged, each with its obstacle."""
    tasks = sorted((task for task in tasks_with(state, Status.APPROVED) if task.history), key=merge_rules.queue_key)
    red = merge_rules.find_red_branches(state)
    paused = {branch: red[branch].reason for branch in merge_rules.find_paused_branches(state, now)}
    return tuple(QueueEntry(task, _find_obstacle(state, task, now, paused)) for task in tasks)


def choose_batch(state: State, head: Task, now: datetime) -> tuple[Task, ...]:
    """Return the tasks to merge together, ``head`` first: at most ``config.queue.batch``, all into one branch.

    A task whose last merge failed is alone in its batch, and each is if the tests examine only the last commit.
    """
    if is_alone(head):
        return (head,)
    rest = [
        entry.task
        for entry in ordered_queue(state, now)
        if (entry.obstacle is None or _waits_only_for_tasks(state, entry.task, now))
        and entry.task.id != head.id
        and not is_alone(entry.task)
        and (entry.task.epic, entry.task.target) == (head.epic, head.target)
    ]
    batch, ids = [head], {head.id}
    while len(batch) < batch_size(state.config):
        # A task lands with those that it depends on, after them.
        task = next((task for task in rest if ids.issuperset(unmet_dependencies(state, task))), None)
        if task is None:
            break
        rest.remove(task)
        batch.append(task)
        ids.add(task.id)
    return tuple(batch)


def _waits_only_for_tasks(state: State, task: Task, now: datetime) -> bool:
    """Return whether a task would be merged in its turn if the tasks that it depends on were merged."""
    return bool(task.depends_on) and _find_obstacle(state, replace(task, depends_on=()), now, {}) is None


def batch_size(config: Config) -> int:
    """Return the most tasks that are merged together. Tests of the last commit would examine only the last of them."""
    return 1 if test_proof.reads_last_commit(config) else config.queue.batch


def plan_batches(tasks: Sequence[Task], size: int) -> tuple[tuple[Task, ...], ...]:
    """Return the batches of at most ``size`` in which tasks are merged, if all stays as it is.

    ``tasks`` are in the order of the queue. Each batch has the first of them that is left, and others with its branch.
    """
    rest, batches = list(tasks), []
    while rest:
        head = rest[0]
        same = [task for task in rest if (task.epic, task.target) == (head.epic, head.target)][:size]
        batches.append(tuple(same))
        rest = [task for task in rest if task not in same]
    return tuple(batches)


def is_alone(task: Task) -> bool:
    """Return whether the task must not share a batch. A red branch is no fault of the task that records it.

    The tests of foreign work run without network, so they say nothing about others.
    """
    if strangers.is_foreign(task):
        return True
    return task.set_aside is not None and task.set_aside.kind in _ALONE and not task.set_aside.branch


def _find_obstacle(state: State, task: Task, now: datetime, paused: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why a task is not merged now, and the command for that. ``paused``: red branches, each with the reason."""
    if task.merge_hold is not None:
        return f"held: {task.merge_hold}", f"liza queue release {task.id}"
    unpermitted = strangers.permission_obstacle(task)
    if unpermitted is not None:
        return unpermitted, strangers.permit_command(task)
    if task.merging is not None and task.merging.waiting:
        return f"waits for files in your checkout: {', '.join(task.merging.waiting)}", f"liza merge {task.id}"
    red = paused.get(targets.target_branch(state, task))
    if red is not None:
        return f"set aside: {' '.join(red.split())}", f"liza merge {task.id}"
    if merge_rules.is_paused(task, now):
        assert task.set_aside is not None
        return f"set aside: {' '.join(task.set_aside.reason.split())}", f"liza queue retry {task.id}"
    unmet = unmet_dependencies(state, task)
    if unmet:
        return f"depends on {', '.join(unmet)}", submissions.lower_command(state, unmet[0])
    forged = merge_rules.merge_obstacle(state, task)
    if forged is not None:
        return forged, f"liza history {task.id} --all"
    untested = test_proof.untested_reason(state.config)
    if untested is not None:
        return f"untested: {untested.text}", untested.hint
    return None


def refuse_held(task: Task) -> None:
    """Raise Refused if a person holds the task."""
    if task.merge_hold is not None:
        raise Refused(f"{task.id} is held: {task.merge_hold}", f"liza queue release {task.id}")


def refuse_stacked(state: State, task: Task) -> None:
    """Raise Refused for submitted work that contains the commits of tasks that are not merged."""
    unmet = unmet_dependencies(state, task) if task.submission is not None else ()
    if unmet:
        message = f"{task.id} is built on {', '.join(unmet)}, which is not merged"
        raise Refused(message, submissions.lower_command(state, unmet[0]))


def hold(state: State, task_id: str, reason: str) -> State:
    """Keep an open task out of the queue until ``release``. Raises Refused, UsageError."""
    task = get_task(state, task_id)
    if task.status in (Status.MERGED, Status.SUPERSEDED, Status.ABANDONED):
        raise Refused(f"{describe_task(task_id, task.status)}: it is in no queue", "liza queue")
    if task.is_being_merged:
        raise Refused(f"{task_id} is being merged right now", "liza queue")
    if not reason.strip():
        raise UsageError("the reason is empty", f'liza queue hold {task_id} "why"')
    return state.with_task(replace(task, merge_hold=" ".join(reason.split())))


def release(state: State, task_id: str) -> State:
    """End the hold of a task, so that it can be merged. A task that is not held is left as it is. Raises Refused."""
    return state.with_task(replace(get_task(state, task_id), merge_hold=None))


def retry(state: State, task_id: str) -> State:
    """End the pause after a failed merge: the next merger tries it. Raises Refused."""
    task = merge_rules.get_approved_task(state, task_id)
    refuse_held(task)
    branch = targets.target_branch(state, task)
    if branch in merge_rules.find_red_branches(state):
        return merge_rules.retry_red_branch(state, branch)
    if task.set_aside is None:
        return state
    return state.with_task(replace(task, set_aside=replace(task.set_aside, until=None)))


def move(state: State, task_id: str, position: int) -> State:
    """Put an approved task at a position of the queue, counted from 1. Raises Refused, UsageError.

    A moved task goes before all that were not moved: ranks count before priorities, and only those of the tasks up to
    its position change.
    """
    task = merge_rules.get_approved_task(state, task_id)
    others = [other for other in sorted(_queued(state), key=merge_rules.queue_key) if other.id != task_id]
    if not 1 <= position <= len(others) + 1:
        raise UsageError(f"there is no position {position}: the queue has {len(others) + 1}", "liza queue")
    ahead, behind = others[: position - 1], others[position - 1 :]
    rank = behind[0].merge_rank + 1 if behind else 1
    for number, moved in enumerate((task, *reversed(ahead))):
        if moved.merge_rank != rank + number:
            state = state.with_task(replace(moved, merge_rank=rank + number))
    return state


def _queued(state: State) -> list[Task]:
    return [task for task in tasks_with(state, Status.APPROVED) if task.history]


class QueueRow(Value):
    """An approved task in the merge queue as `queue --json` prints it. Times are in seconds.

    ``batch``: the number of the batch that it is merged with. ``estimate``: in how many seconds that ends. ``why``:
    why it is not merged now, with the command for that.
    """

    position: int
    id: str
    into: str
    priority: int
    waiting: int
    batch: int | None = None
    estimate: float | None = None
    why: str | None = None
    next: str | None = None


def queue_rows(state: State, now: datetime) -> tuple[QueueRow, ...]:
    """Return the approved tasks in the order of their merges, each with its batch or why it is not merged now."""
    entries = ordered_queue(state, now)
    ready = [entry.task for entry in entries if entry.obstacle is None]
    planned = plan_batches(ready, batch_size(state.config))
    batches = {task.id: number for number, batch in enumerate(planned, start=1) for task in batch}
    rows = []
    for position, entry in enumerate(entries, start=1):
        task, (why, step) = entry.task, entry.obstacle or (None, None)
        rows.append(
            QueueRow(
                position=position,
                id=task.id,
                into=targets.target_branch(state, task),
                priority=task.priority,
                waiting=int((now - task.history[-1].time).total_seconds()),
                batch=batches.get(task.id),
                why=why,
                next=step,
            )
        )
    return tuple(rows)


class QueueExit(Value):
    """A task that was approved and is not in the queue any more: since when, and why."""

    id: str
    time: datetime
    why: str
    is_merged: bool


def find_exits(state: State) -> tuple[QueueExit, ...]:
    """Return the tasks of the board that left the queue, the newest exit first; of each task its last one."""
    exits = [exit_ for task in state.tasks if (exit_ := _last_exit(task)) is not None]
    return tuple(sorted(exits, key=lambda row: row.time, reverse=True))


def _last_exit(task: Task) -> QueueExit | None:
    if task.status is Status.APPROVED:
        return None
    last, is_queued = None, False
    for event in task.history:
        if event.event == E.APPROVE:
            is_queued = True
        elif is_queued and event.event in _EXITS:
            is_queued, last = False, event
    if last is None:
        return None
    reason = history_events.first_line(last.detail)
    why = f"merged as {(last.commit or '')[:10]}" if last.event == E.MERGE else _EXITS[E(last.event)]
    return QueueExit(task.id, last.time, f"{why}: {reason}" if reason else why, last.event == E.MERGE)


class Member(Value):
    """A task of a batch, and its candidate."""

    task: Task
    merging: MergeInProgress


class Batch(Value):
    """The members of a batch in the order of the chain, at least one, and the ``branch`` that it is published to."""

    members: tuple[Member, ...]
    branch: str

    @property
    def expected(self) -> str:
        """The tip of the branch that the batch replaces."""
        return self.members[0].merging.expected

    @property
    def tip(self) -> str:
        """The commit that is published."""
        return tip_of(self.members[-1].merging)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(member.task for member in self.members)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(member.task.id for member in self.members)

    @property
    def title(self) -> str:
        """The task, or the number of tasks and the first one."""
        first = self.members[0].task.id
        return first if len(self.members) == 1 else f"{len(self.members)} tasks from {first} on"

    def prefix(self, length: int) -> Batch:
        """Return the first members, which are published with the candidate of the last of them."""
        members = self.members[:length]
        tip = None if length == 1 else members[-1].merging.candidate
        return Batch(tuple(Member(member.task, replace(member.merging, tip=tip)) for member in members), self.branch)


def tip_of(merging: MergeInProgress) -> str:
    """Return the commit that is tested and published for this candidate."""
    return merging.tip or merging.candidate


def find_batches(state: State) -> tuple[Batch, ...]:
    """Return the batches of the tasks that have a candidate, each in the order of its chain.

    Tasks with one tip whose candidates are no complete chain are not a batch: each is returned alone, with its own
    candidate, which is not the tip and so was never tested.
    """
    groups: dict[tuple[str, str], list[Member]] = {}
    for task in state.tasks:
        if task.merging is not None:
            group = (targets.target_branch(state, task), tip_of(task.merging))
            groups.setdefault(group, []).append(Member(task, task.merging))
    batches: list[Batch] = []
    for (branch, tip), members in groups.items():
        chain = _order_chain(members, tip)
        batches += [Batch(chain, branch)] if chain else [Batch((member,), branch) for member in members]
    return tuple(batches)


def _order_chain(members: Sequence[Member], tip: str) -> tuple[Member, ...] | None:
    by_candidate = {member.merging.candidate: member for member in members}
    chain: list[Member] = []
    commit = tip
    while commit in by_candidate:
        member = by_candidate.pop(commit)
        chain.append(member)
        commit = member.merging.expected
    return tuple(reversed(chain)) if len(chain) == len(members) else None


def begin_batch(state: State, batch: Batch) -> State:
    """Record the candidates of a batch before its tests run. Raises Refused."""
    for member in batch.members:
        state = merge_rules.begin_merge(state, member.task.id, member.merging)
    return state


def record_tested(state: State, published: Batch, dropped: Iterable[str], record: HowTested) -> State:
    """Record that ``published`` may be published, and remove the candidates of the tasks ``dropped``.

    Raises Refused.
    """
    for member in published.members:
        merging = replace(member.merging, tested=record.tested, remarks=record.remarks, gates=record.gates)
        state = merge_rules.begin_merge(state, member.task.id, merging)
    return drop_candidates(state, dropped)


def drop_candidates(state: State, tasks: Iterable[str]) -> State:
    """Remove the candidates of these tasks, which stay APPROVED. Raises Refused."""
    for task_id in tasks:
        state = merge_rules.drop_candidate(state, task_id)
    return state


def record_merged(state: State, batch: Batch, invocation: Invocation) -> State:
    """Record that integration contains the batch: its tasks are MERGED, each as its own candidate. Raises Refused."""
    for member in batch.members:
        own = replace(invocation, commit=member.merging.candidate, detail=member.merging.remade or None)
        state = merge_rules.record_merge(state, member.task.id, own, member.merging)
    return state


def wait_for_files(state: State, batch: Batch, files: tuple[str, ...]) -> State:
    """Record that changed files of a person's checkout block the tested batch. Raises Refused."""
    for task_id in batch.ids:
        state = merge_rules.wait_for_files(state, task_id, files)
    return state


class PrefixResult(Value):
    """Result of one test run of a prefix. ``certain``: a repetition could not change it."""

    length: int
    passed: bool
    certain: bool = False


class RunPrefix(Value):
    """Test the prefix of this length. ``again``: it was red, and nothing shorter is left to test."""

    length: int
    again: bool = False


class PublishPrefix(Value):
    """Publish the prefix of this length, which is 0 or green. ``culprit``: index of the task that is red on top of
    it, None if the whole batch is green."""

    length: int
    culprit: int | None = None


BatchStep = RunPrefix | PublishPrefix


def next_batch_step(size: int, results: Sequence[PrefixResult], retries: int) -> BatchStep:
    """Return the next step for a batch of ``size`` candidates, after ``results`` in the order of the runs.

    The whole batch is tested first. A red one is bisected. A task is a culprit only if its candidate was red
    ``1 + retries`` times on a prefix that is green.
    """
    green = max((result.length for result in results if result.passed), default=0)
    red = min((result.length for result in results if not result.passed and result.length > green), default=None)
    if red is None:
        return PublishPrefix(size) if green == size else RunPrefix(size)
    if red - green > 1:
        return RunPrefix((green + red) // 2)
    failures = [result for result in results if result.length == red]
    if len(failures) > retries or any(result.certain for result in failures):
        return PublishPrefix(green, culprit=red - 1)
    return RunPrefix(red, again=True)


def last_blamed(state: State, branch: str) -> Task | None:
    """Return the task that was blamed last for red gates, if nothing was merged into the branch since; else None.

    Then the cause may be outside of all tasks: the branch is tested alone before another one is blamed. Tasks in the
    archive do not count.
    """
    tasks = [task for task in state.tasks if targets.target_branch(state, task) == branch]
    blames = [(event.time, index) for index, task in enumerate(tasks) for event in history_events.find_blames(task)]
    if not blames:
        return None
    time, index = max(blames)
    merges = [event.time for task in tasks for event in task.history if event.event == E.MERGE]
    if branch == state.config.integration_branch:
        merges += [event.time for task in state.tasks for event in task.history if event.event == E.LAND]
    return None if max(merges, default=time) > time else tasks[index]


def clear_blame(state: State, branch: str, invocation: Invocation) -> State:
    """Return the board after the branch proved red without any task: the task that was blamed last is APPROVED again.

    If its coder has begun to fix it, or it is BLOCKED, it stays as it is; its failure does not count any more, and its
    coder may submit the same commit again.
    """
    task = last_blamed(state, branch)
    if task is None or history_events.is_conflict(history_events.last_failure(task)):
        return state
    if task.status in (Status.CLAIMED, Status.BLOCKED):
        return state.with_task(apply_verb(task, E.MERGE_CLEARED, invocation))
    if task.status is not Status.INTEGRATION_FAILED or task.reservation is not None:
        return state
    verdicts = [event for event in task.history if event.event == E.APPROVE]
    if not verdicts or verdicts[-1].commit != task.review_commit:
        return state
    return state.with_task(apply_verb(task, E.MERGE_CLEARED, invocation, approved_by=verdicts[-1].agent))
