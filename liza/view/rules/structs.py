"""The facts about a crew at one moment, and the picture that is drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from liza.api.api_server import ServerReport
from liza.merging.rules.merge_queue import QueueRow
from liza.model.alarm_table import Alarm, AlarmRow
from liza.model.model import AlignmentNote, State, Task
from liza.model.spending import Costs
from liza.model.statuses import AgentWord, TaskWord
from liza.model.targets import CommitsAhead
from liza.model.value_classes import Value, asdict
from liza.tasks.rules.overlap import Overlap
from liza.tasks.rules.picking import MissingParts


class AgentRow(Value, kw_only=True):
    """An agent as `status --json` prints it. ``why``: why it does not work, or what it needs; None for neither.

    ``context``: percentage of its session's context window that is used; None without a session, or if the program
    does not report it. ``until``: when it goes on, while it waits for a time. ``host``: where it works; None on a crew
    without hosts.
    """

    id: str
    role: str
    status: str
    run: str | None = None
    current_task: str | None = None
    lease_expires: datetime | None = None
    program: str | None = None
    model: str | None = None
    host: str | None = None
    why: str | None = None
    state: str | None = None
    evidence: str | None = None
    state_since: datetime | None = None
    doing: str | None = None
    since: datetime | None = None
    seconds: int | None = None
    phase: str | None = None
    state_source: str | None = None
    reported_by: str | None = None
    calls: int | None = None
    denials: int = 0
    tokens: int | None = None
    unmeasured: str | None = None
    context: int | None = None
    until: datetime | None = None


class BoardPlace(Value):
    """Where a board on a server is, and the name of this host there. ``age``: the seconds since what is shown was read,
    if the server does not answer now; else None. ``hosts``: as `liza host list --json` has them; empty without the
    server. ``sessions_end``, ``takeover_in``: seconds until this host ends its sessions, and until others may take over
    its work, unless the server answers; None: no lease. ``next``: a command that shows more, or helps.
    """

    server: str
    crew: str
    host: str
    age: float | None = None
    hosts: tuple[Value, ...] = ()
    sessions_end: float | None = None
    takeover_in: float | None = None
    next: str = ""


class CrewFacts(Value, kw_only=True):
    """What is known about a crew. ``alarms``: all that are present; ``waiting``: those that wait for a person.

    ``alarm_times``: since when an alarm is logged, by kind and subject. ``signals``: each active signal with its
    reason. ``up``: the command that starts supervisors, if tasks are open and none runs. ``outdated_proof``: which
    files that define the tests have changed since the proof.
    """

    now: datetime
    state: State
    agents: tuple[AgentRow, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    waiting: tuple[Alarm, ...] = ()
    alarm_times: Mapping[tuple[str, str], datetime] = {}
    missing: Mapping[str, MissingParts] = {}
    signals: Mapping[str, str] = {}
    costs: Costs = Costs()
    ahead: CommitsAhead | None = None
    server: ServerReport | None = None
    up: str | None = None
    outdated_proof: str | None = None
    board: BoardPlace | None = None
    """None: the board is a file."""
    overlaps: Mapping[str, tuple[Overlap, ...]] = {}
    """The tasks in work that share files with a task in work, or with one that is held for them, by task."""
    closed: str | None = None
    """Until when no session starts, with the command that lets them; None: they start now."""


class TaskRow(Value):
    """A task with its word. ``owner``: who works on it or reviews it. ``reason``: why it is where it is, or its text.

    ``missing``: the missing parts of a DRAFT. ``waits_for``: the tasks that have to be merged first. ``is_stopped``:
    its agent is off. ``overlaps``: the tasks in work that share files with it, and what they share.
    """

    task: Task
    word: TaskWord
    owner: str = ""
    reason: str = ""
    missing: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    is_stopped: bool = False
    overlaps: tuple[Overlap, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the task as `status --json` prints it: with the words of the board."""
        return {**asdict(self.task), "missing": self.missing, "waits_for": self.waits_for, "overlaps": self.overlaps}


class AgentLine(Value):
    """An agent with its word. ``reason``: why it does not work, or what it works on beside a task."""

    row: AgentRow
    word: AgentWord
    reason: str = ""


class ReportRow(Value):
    """An open discovery or anomaly: its id, its urgency or type, who reported it, and the text."""

    id: str
    kind: str
    by: str
    text: str


class Picture(Value, kw_only=True):
    """All that `liza status` draws.

    ``waits``: the alarms that wait for a person; their number is the one that is printed everywhere. ``news``: the
    other alarms. ``counts``: tasks by word, with those of the archive. ``stopped``: how many of the working ones have
    an agent that is off. ``total``: all tasks but those that were given up. ``is_off``: the crew has agents, and all
    are off. ``limits``: what settings keep from starting, with the command that lets it.
    ``server_failure``: why the worker API is not served although the crew expects it.
    """

    time: datetime
    revision: int
    goal: str
    goal_status: str
    decision: AlignmentNote | None
    waits: tuple[AlarmRow, ...]
    news: tuple[AlarmRow, ...]
    counts: Mapping[TaskWord, int]
    stopped: int
    total: int
    archived: int
    tasks: tuple[TaskRow, ...]
    agents: tuple[AgentLine, ...]
    is_off: bool
    queue: tuple[QueueRow, ...]
    costs: Costs
    signals: Mapping[str, str]
    discoveries: tuple[ReportRow, ...]
    anomalies: tuple[ReportRow, ...]
    ahead: CommitsAhead | None
    up: str | None
    limits: tuple[str, ...]
    server_failure: str | None
    outdated_proof: str | None
