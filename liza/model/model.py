"""The board as frozen structs.

Each field name is a key in ``.liza/state.yaml``. Other keys belong to people: every write keeps them and no rule reads
them. A field that has its default value is left out of the file.
"""

# Without `from __future__ import annotations`: every command needs the types of the fields, and evaluating them from
# strings takes 5 ms of its start.
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Protocol

import msgspec

from liza.model.configuration import Config
from liza.model.value_classes import AwareDatetime, FrozenStruct

SCHEMA_VERSION = 1


class Clock(Protocol):
    """Time source that is passed as an argument.

    ``now`` is UTC in whole seconds. ``monotonic`` is in seconds and does not count time in which the machine sleeps.
    """

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class Status(StrEnum):
    """Status of a task. ``transitions.TRANSITIONS`` lists the allowed changes."""

    DRAFT = "DRAFT"
    UNCLAIMED = "UNCLAIMED"
    CLAIMED = "CLAIMED"
    READY_FOR_REVIEW = "READY_FOR_REVIEW"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    BLOCKED = "BLOCKED"
    INTEGRATION_FAILED = "INTEGRATION_FAILED"
    MERGED = "MERGED"
    SUPERSEDED = "SUPERSEDED"
    ABANDONED = "ABANDONED"


FINAL_STATUSES = frozenset({Status.MERGED, Status.SUPERSEDED, Status.ABANDONED})


class AlignmentNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What a planning session decided, and how far the goal is met; or what a person changed in the goal.

    ``event`` is the run of the planner, or the person.
    """

    timestamp: datetime | None = None
    event: str = ""
    summary: str = ""


class Goal(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    description: str = ""
    spec_ref: str = ""
    created: datetime | None = None
    status: str
    alignment_history: tuple[AlignmentNote, ...] = ()


class Reservation(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Phase one of a claim: the process that creates the worktree, identified so that its death can be proved."""

    agent: str
    run: str
    slot: str
    host: str
    boot: str
    pid: int
    start: str
    expires: datetime
    previous_run: str | None = None
    """The run that owned the expired claim. ``claims.undo_reservation`` restores it."""


class MergeInProgress(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A merge under way: the commit ``candidate`` replaces ``expected`` at the tip of the task's target branch.

    ``tested`` is None until the candidate may be published; then it and ``remarks`` are those of ``Task``. ``gates`` is
    the digest of the gates that the candidate passed: it is tested again if they have changed. ``waiting`` holds the
    paths of changed files in a person's checkout that block the merge; ``.`` if git did not name them.

    In a batch ``expected`` is the candidate of the task before, and ``tip`` the last candidate, which is tested and
    published for all; None: ``candidate``. ``remade``: which conflicting files commands made again, in one line.
    """

    candidate: str
    expected: str
    tip: str | None = None
    waiting: tuple[str, ...] = ()
    tested: bool | None = None
    remarks: tuple[str, ...] = ()
    gates: str = ""
    remade: str = ""


class MergeRetry(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A failed merge that is retried.

    ``kind`` is a ``merge_rules.MergeFailureKind``, ``reason`` the message of git or of the system. ``tries`` counts the
    failures in a row, ``deaths`` how many of the last ones were mergers that died. There is no automatic retry before
    ``until``; None: retry at once. ``hint`` is the command that removes the cause, or empty. ``branch``: the target
    branch that is red without any task, and into which nothing is merged until then; ``gates``: its red gates, empty if
    its set-up failed.
    """

    kind: str
    reason: str
    hint: str = ""
    tries: int = 1
    deaths: int = 0
    until: AwareDatetime | None = None
    branch: str = ""
    gates: tuple[str, ...] = ()


class Undo(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The revert of a merged task: ``commit`` on the branch that has the task's merge, built on its tip.

    ``tested`` and ``remarks`` are as those of ``Task``. Until the branch is at ``commit`` the task is still MERGED, and
    ``by`` and ``because`` say who undoes it and why; after that its history does.
    """

    commit: str
    tested: bool
    remarks: tuple[str, ...] = ()
    by: str = ""
    because: str = ""


class Answer(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    question: str
    answer: str
    by: str = ""
    timestamp: datetime | None = None


class LineComment(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A comment of a rejection on a line, which counts from 1, of a file at ``commit``. ``quote`` is that line."""

    path: str
    line: int
    text: str
    quote: str = ""
    commit: str = ""


class Submission(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Work of an author whom Liza did not start: a person, or a session of another tool.

    ``branch``: the branch that has it in this repository, and ``worktree`` the directory where its author works; each
    may be empty. ``host``: the host that has these, in a crew on several. ``request``: the number of its pull request,
    0 without one. ``author``: of its newest commit.
    ``program``: the program that wrote it, if commits or connection name one. ``fix``: who mends what comes back.
    ``is_foreign``: the author cannot write to the repository. Code of it runs only at the commit ``permitted``.
    ``opinion``: what a program without tools wrote about a foreign commit; ``no_opinion``: why none did.
    """

    branch: str = ""
    worktree: str = ""
    host: str = ""
    request: int = 0
    author: str = ""
    program: str = ""
    fix: Literal["author", "crew"] = "author"
    is_foreign: bool = False
    permitted: str = ""
    opinion: str = ""
    no_opinion: str = ""


class Event(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a task's history. The pair (event, run) makes verbs idempotent.

    ``event`` is a ``history_events.HistoryEvent``, or a word of an older version or of a person, which means nothing.
    """

    time: datetime
    event: str
    agent: str | None = None
    run: str | None = None
    commit: str | None = None
    detail: str | None = None


class Task(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A task. ``merge_hold`` is the reason why a person keeps it out of the merge queue; tasks with a higher
    ``merge_rank`` are merged first.

    A task of an ``epic`` is merged into the branch of the epic, one with a ``target`` into that branch, all others into
    integration. ``landed`` is the commit with which its epic landed on integration. ``undo`` is the revert of its
    merge: the task is ABANDONED then. With the ``review`` ``human`` a person reviews it, and no agent claims the
    review. A ``submission`` needs no coder and no worktree of Liza. ``review_comments`` are those of the last
    rejection, until the next verdict.

    ``tested`` is True if every gate that applies passed on a full checkout of exactly the merged commit. With
    ``remarks``, which a person allowed, the merge is tested, but…; False without remarks: untested.
    """

    id: str
    description: str = ""
    status: Status
    epic: str | None = None
    target: str | None = None
    priority: int = 3
    created: datetime | None = None
    spec_ref: str = ""
    done_when: str = ""
    scope: str = ""
    depends_on: tuple[str, ...] = ()
    assigned_to: str | None = None
    run: str | None = None
    worktree: str | None = None
    base_commit: str | None = None
    lease_expires: datetime | None = None
    reservation: Reservation | None = None
    iteration: int = 0
    idle_sessions: int = 0
    reviews_without_verdict: int = 0
    review_cycles_current: int = 0
    review_cycles_total: int = 0
    review_commit: str | None = None
    reviewing_by: str | None = None
    review_run: str | None = None
    review_lease_expires: datetime | None = None
    approved_by: str | None = None
    merging: MergeInProgress | None = None
    set_aside: MergeRetry | None = None
    merge_hold: str | None = None
    merge_rank: int = 0
    merge_commit: str | None = None
    landed: str | None = None
    tested: bool | None = None
    remarks: tuple[str, ...] = ()
    undo: Undo | None = None
    rejection_reason: str | None = None
    review_comments: tuple[LineComment, ...] = ()
    blocked_reason: str | None = None
    blocked_questions: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    attempted: tuple[str, ...] = ()
    failed_by: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    supersedes: str | None = None
    rescope_reason: str | None = None
    integration_fix: bool = False
    handoff_pending: bool = False
    max_iterations: int | None = None
    review: Literal["agent", "human"] = "agent"
    submission: Submission | None = None
    history: tuple[Event, ...] = ()

    @property
    def is_being_merged(self) -> bool:
        """Whether a merger is at work on it, or died there. A tested candidate that is kept for a retry waits."""
        merging = self.merging
        if merging is None or merging.waiting:
            return False
        return merging.tested is None or self.set_aside is None


class Agent(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A permanent identity. ``runs`` only grows. ``status`` and ``current_task`` are derived, for display only.

    ``program``, ``model`` and ``tmux``: what its last supervisor was started with. ``model`` is None if the program's
    own configuration chooses it. ``tmux``: its sessions have a terminal in tmux. ``host``: where that supervisor is, or
    where a person works by hand as this agent; empty on a crew without hosts.
    """

    role: str
    status: str
    runs: int = 0
    current_task: str | None = None
    lease_expires: datetime | None = None
    heartbeat: datetime | None = None
    terminal: str | None = None
    program: str | None = None
    model: str | None = None
    tmux: bool = False
    host: str = ""
    iterations_total: int = 0
    context_percent: int = 0


class PlanningClaim(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The planner's claim of a wake-up. ``fingerprint`` and ``count`` are kept when the claim ends.

    ``exhausted``: fingerprints of other triggers that wait for a person, because planning sessions changed nothing.
    ``rounds``: planning sessions at the end of the sprint that added tasks, since a person last changed the board.
    """

    run: str | None = None
    trigger: str | None = None
    ids: tuple[str, ...] = ()
    fingerprint: str | None = None
    count: int = 0
    exhausted: tuple[str, ...] = ()
    lease_expires: datetime | None = None
    rounds: int = 0


class Urgency(StrEnum):
    """Urgency of a discovery. An immediate one wakes a planner at once."""

    IMMEDIATE = "immediate"
    DEFERRED = "deferred"


URGENCIES = tuple(Urgency)


class Resolution(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Who closed a report without a task, when and why."""

    by: str
    timestamp: datetime
    why: str


class Discovery(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault outside the scope of a task. It is open until it is a task (``converted_to_task``) or ``resolved``."""

    id: str
    by: str = ""
    during: str | None = None
    description: str = ""
    severity: str = "medium"
    urgency: str = "deferred"
    recommendation: str = ""
    created: datetime | None = None
    converted_to_task: str | None = None
    resolved: Resolution | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing has been decided about it."""
        return self.converted_to_task is None and self.resolved is None

    @property
    def is_urgent(self) -> bool:
        """Whether it is open and must not wait."""
        return self.urgency == Urgency.IMMEDIATE and self.is_open


class FailedCheck(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A start-up check that the session of ``run`` failed. ``check`` is a ``statuses.StartupCheck``."""

    time: datetime
    run: str
    check: str
    expected: str = ""
    actual: str = ""


class Handoff(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session of a task leaves for the next one: its own note, and the start-up check that it failed."""

    agent: str
    run: str | None = None
    timestamp: datetime | None = None
    context_used: int | None = None
    summary: str = ""
    next_action: str = ""
    approach: str | None = None
    blockers: str | None = None
    files_modified: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    failed_check: FailedCheck | None = None


class Anomaly(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    timestamp: datetime
    task: str | None = None
    reporter: str = ""
    type: str
    details: dict[str, Any] = {}
    resolved: Resolution | None = None


class HumanNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    timestamp: datetime
    message: str
    recipient: str | None = msgspec.field(default=None, name="for")


class SpecChange(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    timestamp: datetime
    spec: str
    change: str = ""
    triggered_by: str = ""


class Timeline(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Times of a sprint. A person writes ``deadline`` and ``checkpoint_at``, Liza the others."""

    started: datetime | None = None
    deadline: datetime | None = None
    checkpoint_at: datetime | None = None
    ended: datetime | None = None


class Sprint(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    id: str = "sprint-1"
    timeline: Timeline = Timeline()
    status: str = "IN_PROGRESS"
    metrics: dict[str, Any] = {}
    retrospective: str | None = None


class BreakerTrip(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A trip of the circuit breaker. It is open until ``resolved``.

    ``trigger`` is a ``statuses.Pattern``, ``subject`` the task or the spec it is about; empty: the crew.
    ``severity`` is one of ``statuses.SEVERITIES``. ``evidence``: the newest events, each as time, task and event.
    """

    time: AwareDatetime
    trigger: str
    severity: str = "warn"
    subject: str = ""
    detail: str = ""
    tasks: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    resolved: AwareDatetime | None = None
    resolved_by: str = ""
    root_cause: str = ""


class CircuitBreaker(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The circuit breaker. ``status`` is TRIGGERED while a trip is open."""

    status: str = "OK"
    history: tuple[BreakerTrip, ...] = ()


class EpicStep(StrEnum):
    """A merge of the branch of an epic with integration: into integration, or from it."""

    LAND = "land"
    UPDATE = "update"


class EpicMerge(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A merge under way: ``candidate`` replaces ``expected`` at the tip of integration if the epic lands, of its branch
    if that is updated.

    ``tested`` is None until the candidate may be published, then True if its tests passed without a remark.
    """

    step: EpicStep
    candidate: str
    expected: str
    tested: bool | None = None


class Epic(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """An epic: tasks that are merged into a branch of their own and land on integration together.

    ``contains``: the tasks of others that tasks of the epic depend on, and that its branch has. ``set_aside``: its last
    landing or update failed and is tried again. ``mends``: tasks that were added since the last landing because it
    failed. ``landed``: the commits of integration with which it landed.
    """

    contains: tuple[str, ...] = ()
    merging: EpicMerge | None = None
    set_aside: MergeRetry | None = None
    mends: int = 0
    landed: tuple[str, ...] = ()


class ArchiveSummary(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What the rules need of the tasks in the archive (see ``tasks.archiving``).

    ``counts``: tasks by status. ``verdicts``: verdicts in their histories, by event. ``outcomes``: for each archived
    task that a task on the board names, MERGED if its work is on integration, else its status; a superseded task has
    the outcome of its successors.
    """

    counts: dict[str, int] = {}
    verdicts: dict[str, int] = {}
    outcomes: dict[str, Status] = {}

    @property
    def total(self) -> int:
        """Number of archived tasks."""
        return sum(self.counts.values())


class TakenFeedback(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A check result or a comment of the pull request, and the task that was made of it or already covered it.

    ``key`` identifies it for ever: ``landing.request_feedback`` builds it.
    """

    key: str
    task: str


class TrackedRequest(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The pull request that `liza land --pr` opened or updated last; ``number`` is 0 before the first one.

    ``repository`` is HOST/OWNER/NAME. ``head`` and ``base`` are branches of origin, ``since`` is the commit of ``base``
    from which the tasks of the pull request are counted. ``state`` is OPEN, CLOSED or MERGED, as read last.
    """

    number: int = 0
    url: str = ""
    repository: str = ""
    head: str = ""
    base: str = ""
    since: str = ""
    state: str = "OPEN"
    taken: tuple[TakenFeedback, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether there is a pull request, and it was open when it was read last."""
        return self.number > 0 and self.state == "OPEN"


_last_looked_up: tuple[tuple[Task, ...], dict[str, Task] | None] = ((), None)
"""The tasks of the last lookup, and from the second lookup on by id: rules ask for each dependency of each task."""


def _tasks_by_id(tasks: tuple[Task, ...]) -> dict[str, Task] | None:
    """Return the tasks by id, or None at the first lookup in them."""
    global _last_looked_up
    last, by_id = _last_looked_up
    if last is not tasks:
        by_id = None
    elif by_id is None:
        by_id = {task.id: task for task in reversed(tasks)}  # of two with one id the first counts
    _last_looked_up = (tasks, by_id)
    return by_id


class State(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole board at one revision."""

    version: int
    revision: int
    goal: Goal
    tasks: tuple[Task, ...] = ()
    agents: dict[str, Agent] = {}
    planning: PlanningClaim = PlanningClaim()
    discovered: tuple[Discovery, ...] = ()
    handoff: dict[str, Handoff] = {}
    anomalies: tuple[Anomaly, ...] = ()
    human_notes: tuple[HumanNote, ...] = ()
    spec_changes: tuple[SpecChange, ...] = ()
    sprint: Sprint = Sprint()
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    epics: dict[str, Epic] = {}
    archived: ArchiveSummary = ArchiveSummary()
    pull_request: TrackedRequest = TrackedRequest()
    config: Config = Config()

    def task(self, task_id: str) -> Task | None:
        """Return the task with that id, or None."""
        by_id = _tasks_by_id(self.tasks)
        if by_id is not None:
            return by_id.get(task_id)
        return next((task for task in self.tasks if task.id == task_id), None)

    def with_task(self, changed: Task) -> "State":
        """Return the board with the task ``changed.id`` replaced."""
        tasks = tuple(changed if task.id == changed.id else task for task in self.tasks)
        return msgspec.structs.replace(self, tasks=tasks)

    def with_agent(self, agent_id: str, changed: Agent) -> "State":
        """Return the board with that agent added or replaced."""
        return msgspec.structs.replace(self, agents={**self.agents, agent_id: changed})


class ProcessIdentity(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity of a process by which its death can be proved: host, boot id, pid and start time."""

    host: str
    boot: str
    pid: int
    start: str


class SupervisorExit(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a supervisor exited without being asked to. Stored in the directory of its runs, not on the board.

    ``by_hand`` is the command by which a person starts the program, if the program waits for an answer or a login.
    ``next`` is the command that shows or resolves another cause, if no log of a session has it. ``login`` says that the
    program is not logged in, and how a person logs in; ``model`` which model the program does not have.
    """

    time: datetime
    reason: str
    by_hand: str = ""
    next: str = ""
    login: str = ""
    model: str = ""


class Violation(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One broken invariant: entry, field, value found, value expected."""

    entry: str
    field: str
    actual: str
    expected: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.field} is {self.actual}, wanted {self.expected}"
