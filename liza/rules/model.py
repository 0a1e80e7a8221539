"""The board as frozen values.

Every name here is a name in ``.liza/state.yaml``. Keys that are not named here belong to people: they survive every
write and no rule reads them. A field at its default is left out of the file.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Protocol

import msgspec

SCHEMA_VERSION = 1


class Clock(Protocol):
    """Time as an argument. ``now`` is UTC in whole seconds; ``monotonic`` is seconds that stand still in sleep."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class Status(StrEnum):
    """Where a task stands; each arrow between two of them is a row in ``transitions.ARROWS``."""

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


AwareDatetime = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time that says its zone: one that does not cannot be compared with any."""


class FrozenStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything on the board."""


class AlignmentNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
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
    """Phase one of a claim: who is making the worktree, and how to prove that it died."""

    agent: str
    run: str
    slot: str
    host: str
    boot: str
    pid: int
    start: str
    expires: datetime
    previous_run: str | None = None
    """The run that owned a lapsed claim; undo puts it back."""


class MergeInProgress(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A merge under way: ``candidate`` is to replace ``expected`` at the tip of integration.

    ``tested`` is None until the candidate may be published: True when its tests passed, False where no test command is
    configured. ``waiting`` holds the paths of changed files of a person's checkout that the merge waits for; ``.`` if git
    did not name them.
    """

    candidate: str
    expected: str
    waiting: tuple[str, ...] = ()
    tested: bool | None = None


class MergeRetry(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A merge that failed and is tried again.

    ``kind`` is one of ``merging.Kind``, ``reason`` the words of git or of the system, ``tries`` how many times in a row
    it failed, ``deaths`` how many of the last ones were mergers that died. No automatic try before ``until``; None: at
    once. ``hint`` is the command that removes the cause, where the failure named one.
    """

    kind: str
    reason: str
    hint: str = ""
    tries: int = 1
    deaths: int = 0
    until: AwareDatetime | None = None


class Answer(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    question: str
    answer: str
    by: str = ""
    timestamp: datetime | None = None


class Event(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a task's history; (event, run) is what makes a verb idempotent."""

    time: datetime
    event: str
    agent: str | None = None
    run: str | None = None
    commit: str | None = None
    detail: str | None = None


class Task(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    description: str = ""
    status: Status
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
    merge_commit: str | None = None
    tested: bool | None = None
    rejection_reason: str | None = None
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
    history: tuple[Event, ...] = ()


class Agent(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A permanent identity. ``runs`` only grows. ``status`` and ``current_task`` are for readers alone."""

    role: str
    status: str
    runs: int = 0
    current_task: str | None = None
    lease_expires: datetime | None = None
    heartbeat: datetime | None = None
    terminal: str | None = None
    program: str | None = None
    iterations_total: int = 0
    context_percent: int = 0


class PlanningClaim(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The planner's claim of a wake-up; ``fingerprint`` and ``count`` outlive it."""

    run: str | None = None
    trigger: str | None = None
    ids: tuple[str, ...] = ()
    fingerprint: str | None = None
    count: int = 0
    lease_expires: datetime | None = None


class Discovery(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    by: str = ""
    during: str | None = None
    description: str = ""
    severity: str = "medium"
    urgency: str = "deferred"
    recommendation: str = ""
    created: datetime | None = None
    converted_to_task: str | None = None


class Handoff(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
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


class Anomaly(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    timestamp: datetime
    task: str | None = None
    reporter: str = ""
    type: str
    details: dict[str, Any] = {}


class HumanNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    timestamp: datetime
    message: str
    recipient: str | None = msgspec.field(default=None, name="for")


class SpecChange(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    timestamp: datetime
    spec: str
    change: str = ""
    triggered_by: str = ""


class SprintScope(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    planned: tuple[str, ...] = ()
    stretch: tuple[str, ...] = ()


class Timeline(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    started: datetime | None = None
    deadline: datetime | None = None
    checkpoint_at: datetime | None = None
    ended: datetime | None = None


class Sprint(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    id: str = "sprint-1"
    goal_ref: str = "goal"
    scope: SprintScope = SprintScope()
    timeline: Timeline = Timeline()
    status: str = "IN_PROGRESS"
    metrics: dict[str, Any] = {}
    retrospective: str | None = None


class BreakerTrip(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    time: datetime
    trigger: str
    detail: str = ""
    resolved: datetime | None = None


class CircuitBreaker(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    last_check: datetime | None = None
    status: str = "OK"
    current_trigger: str | None = None
    history: tuple[BreakerTrip, ...] = ()


class Budget(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Ceilings; None is none. Money in dollars, wall time in seconds."""

    money_per_task: float | None = None
    money_per_sprint: float | None = None
    tokens_per_task: int | None = None
    tokens_per_sprint: int | None = None
    seconds_per_task: int | None = None
    seconds_per_sprint: int | None = None


class Delivery(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How messages are brought to a running agent. Times are seconds, patterns are regular expressions.

    ``readiness_timeout`` is how long to wait for a moment to type one in, ``acknowledgment_timeout`` how long for an
    answer; ``require_acknowledgment`` false lets the sight of it on the terminal do. ``retry_backoffs`` are the pauses
    after each try; after ``file_fallback_after_attempts`` it goes into the brief. ``readiness_patterns`` on the last
    line of the terminal mean that the program waits for input, besides what its row says.
    """

    readiness_timeout: float = 30.0
    require_acknowledgment: bool = True
    acknowledgment_timeout: float = 5.0
    retry_backoffs: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0)
    file_fallback_after_attempts: int = 3
    send_notification_on_failure: bool = True
    readiness_patterns: tuple[str, ...] = ()
    acknowledgment_patterns: tuple[str, ...] = (r"ACK:\s*context received",)


class TestProof(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the test command was shown to test the checkout that it runs in, and with which set-up.

    ``outcome`` is ``proved``, ``unproved``, ``elsewhere`` (it tests another checkout) or ``skipped`` (a person wanted
    no proof); empty before the first proof. ``why`` is the reason where it is not ``proved``.
    """

    outcome: str = ""
    command: str = ""
    setup: str = ""
    why: str = ""


class LoopLimits(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """When a session makes no progress. A limit of 0 is off. At a limit it is reported, at twice the limit it is ended.

    ``same_calls``: how often one tool call gave one result while nothing new was called. ``pause``: seconds; a call
    that comes later than that after the one before is waiting, such as polling a build, and does not count.
    ``unchanged_calls`` and ``unchanged_seconds``: so many calls, over so long a time, without a change in the worktree.
    """

    same_calls: int = 20
    pause: float = 10.0
    unchanged_calls: int = 300
    unchanged_seconds: int = 600


class Config(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings. Durations are seconds, sizes are bytes."""

    max_coder_iterations: int = 10
    max_review_cycles: int = 5
    heartbeat_interval: int = 60
    lease_duration: int = 300
    hung_after: int = 1800
    poll_interval: int = 30
    wait_interval: int = 30
    ready_timeout: int | None = None
    answer_timeout: int = 300
    idle_after: int = 60
    grace: int = 20
    restart_after_handoff: float = 2.0
    restart_after_crash: float = 5.0
    integration_branch: str = "integration"
    integration_command: str | None = None
    integration_timeout: int = 1800
    sandbox_setup: str | None = None
    sandbox_setup_files: tuple[str, ...] = ()
    sandbox_copy: tuple[str, ...] = ()
    sandbox_keep: tuple[str, ...] = ()
    merge_clean: str = "after_red"
    environment: str | None = None
    proof: TestProof = TestProof()
    programs: dict[str, str] = {}
    permissions: str = "confined"
    budget: Budget = Budget()
    delivery: Delivery = Delivery()
    loop: LoopLimits = LoopLimits()

    @property
    def has_tests(self) -> bool:
        """Whether there is a test command: one of blanks would be green whatever is merged."""
        return bool((self.integration_command or "").strip())


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
    config: Config = Config()

    def task(self, task_id: str) -> Task | None:
        """The task of that id, or None."""
        return next((task for task in self.tasks if task.id == task_id), None)

    def with_task(self, changed: Task) -> State:
        """The board with the task of ``changed.id`` replaced."""
        tasks = tuple(changed if task.id == changed.id else task for task in self.tasks)
        return msgspec.structs.replace(self, tasks=tasks)

    def with_agent(self, agent_id: str, changed: Agent) -> State:
        """The board with that agent added or replaced."""
        return msgspec.structs.replace(self, agents={**self.agents, agent_id: changed})


class ProcessIdentity(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A process, named so that its death can be proved: host, boot, pid and start time."""

    host: str
    boot: str
    pid: int
    start: str


class SupervisorExit(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a supervisor is not there any more, though nobody asked it to leave; beside its runs, not on the board.

    ``by_hand`` starts its program as a person does, where that waits for one to answer it or to log in.
    """

    time: datetime
    reason: str
    by_hand: str = ""


class Violation(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One broken invariant: where, what was found, what was wanted."""

    entry: str
    field: str
    actual: str
    expected: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.field} is {self.actual}, wanted {self.expected}"
