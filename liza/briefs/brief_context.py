"""The data of a brief. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import datetime
from pathlib import Path

from liza.breaker.rules.breaker_trips import open_trips
from liza.briefs.rules.message_rules import Message
from liza.model.history_events import FRAMING_EVENTS, HistoryEvent, session_end
from liza.model.model import Anomaly, Discovery, FailedCheck, State, Task
from liza.model.paths import agent_of, role_of
from liza.model.session_ends import SessionOutcome
from liza.model.value_classes import Value
from liza.tasks.rules.root_cause import find_repeated_rejections

_REJECTIONS = (HistoryEvent.REJECT, HistoryEvent.DEADLOCK)


class BriefContext(Value):
    """The data of a brief. ``liza`` is the absolute path of the command, ``assignment`` that of the full text; None for
    work by hand, which has no file with it.

    ``task`` is None for a planner; ``wake_trigger``, ``wake_ids`` and ``wake_facts`` are its wake-up.
    ``unfinished``: the operation of git that is in progress in the worktree, or that an earlier session left.
    ``earlier_commits``: commits of earlier tries on the task's branch, newest first, one line each.
    ``sparse``: what the sparse checkout of the worktree includes; empty for a full one.
    ``is_set_up``: the set-up has been run in the worktree. ``hidden``: untracked names that git ignores only there.
    ``is_by_hand``: a person claimed the work or started the program; no supervisor does. ``is_confined``: the session
    runs in a box, with a git directory of its own.
    ``previous_outcome``: how the session before this one ended, of this task, or of a planner; None if there was none,
    or if that is not on record. ``continues``: the run whose conversation this one continues.
    """

    state: State
    run: str
    now: datetime
    root: Path
    liza: Path
    worktree: Path
    assignment: Path | None
    task: Task | None = None
    integration_tip: str = ""
    sparse: tuple[str, ...] = ()
    is_set_up: bool = False
    hidden: tuple[str, ...] = ()
    is_by_hand: bool = False
    is_confined: bool = False
    wake_trigger: str = ""
    wake_ids: tuple[str, ...] = ()
    wake_facts: str = ""
    messages: tuple[Message, ...] = ()
    unfinished: str = ""
    earlier_commits: tuple[str, ...] = ()
    previous_outcome: SessionOutcome | None = None
    continues: str | None = None

    @property
    def agent(self) -> str:
        """The agent of the run."""
        return agent_of(self.run)

    @property
    def role(self) -> str:
        """The role of the agent."""
        return role_of(self.agent)

    @property
    def liza_command(self) -> str:
        """The command, quoted for a shell."""
        return shlex.quote(str(self.liza))

    @property
    def full_text(self) -> str:
        """What has the full text: the path of the assignment, or for work by hand a command."""
        if self.assignment is not None:
            return str(self.assignment)
        return f"{self.liza_command} task show {self.task.id}" if self.task else f"{self.liza_command} status"

    @property
    def required_task(self) -> Task:
        """The task, which a coder's or a reviewer's brief must have. Raises ValueError if there is no task."""
        if self.task is None:
            raise ValueError(f"{self.run} has no task to be briefed on")
        return self.task

    @property
    def rejection(self) -> tuple[str, str] | None:
        """The agent that last rejected the work, and the reason; None if no agent has.

        A new submission removes it from the coder's brief. The reviewer's brief keeps it, because the reviewer judges
        whether the work was fixed.
        """
        if self.task is None or (self.role == "coder" and not self.task.rejection_reason):
            return None
        rejections = [event for event in self.task.history if event.event in _REJECTIONS]
        reason = self.task.rejection_reason or (rejections[-1].detail if rejections else None)
        if not reason:
            return None
        return (rejections[-1].agent if rejections and rejections[-1].agent else "the reviewer"), reason

    @property
    def repeated_rejections(self) -> tuple[str, ...]:
        """The reasons of similar rejections after which the coder has to state a root cause; empty if it has not to."""
        if self.task is None or self.role != "coder" or self.rejection is None:
            return ()
        return find_repeated_rejections(self.task, self.state.config.breaker.similarity)

    @property
    def previous_end(self) -> str | None:
        """How the session before this one ended, if it had no closing command; otherwise None."""
        events = self.task.history if self.task else ()
        framing = [event for event in events if event.event in FRAMING_EVENTS]
        end = session_end(framing[-1].event) if framing else ""
        return f"{end}. {framing[-1].detail or ''}".strip() if end else None

    @property
    def failed_check(self) -> FailedCheck | None:
        """The start-up check that the last session of the task failed; None if another session has begun since."""
        note = self.state.handoff.get(self.task.id) if self.task is not None else None
        failed = note.failed_check if note is not None else None
        if failed is None or self.task is None:
            return None
        later = (event for event in self.task.history if event.time >= failed.time)
        is_newest = all(event.run in (None, failed.run, self.run) for event in later)
        return failed if is_newest else None

    def spec_path(self, reference: str) -> str:
        """Return the path of a spec for the session: worktrees have no .liza, so those below it are absolute."""
        return str(self.root / reference) if reference.startswith(".liza/") else reference

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages of people to this agent, its role, its task, or everyone; the newest last."""
        recipients = {None, "", self.agent, self.role, self.task.id if self.task else self.agent}
        return tuple(note.message for note in self.state.human_notes if note.recipient in recipients)

    @property
    def open_trips(self) -> tuple[str, ...]:
        """The open trips of the circuit breaker, one line each; empty for other roles than planners."""
        trips = open_trips(self.state) if self.role == "planner" else ()
        return tuple(f"{trip.severity}, {trip.trigger}: {trip.detail}" for trip in trips)

    @property
    def test_command(self) -> str:
        """The command that tests the project; empty if none is configured."""
        return self.state.config.integration_command or ""


def describe_failed_check(failed: FailedCheck) -> str:
    """Return a failed start-up check in one sentence."""
    return f"{failed.run} failed the check of the {failed.check}. Expected: {failed.expected}. Found: {failed.actual}"


def describe_sprint(context: BriefContext) -> str:
    """Return the number of tasks by status, the tip of integration, and the number of untriaged discoveries."""
    counts = Counter(task.status.value for task in context.state.tasks)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no tasks"
    tip = (
        f" · {context.state.config.integration_branch} {context.integration_tip[:12]}"
        if context.integration_tip
        else ""
    )
    untriaged = sum(discovery.is_open for discovery in context.state.discovered)
    return f"{statuses}{tip} · {untriaged} {'discovery' if untriaged == 1 else 'discoveries'} not yet triaged"


def describe_discovery(discovery: Discovery) -> str:
    """Return a discovery as one text: id, urgency, author, what is wrong, what the author recommends."""
    during = f" during {discovery.during}" if discovery.during else ""
    advice = f" Recommended: {discovery.recommendation}" if discovery.recommendation else ""
    head = f"{discovery.id} {discovery.urgency}, {discovery.severity} (by {discovery.by or 'unknown'}{during})"
    return f"{head}: {discovery.description}{advice}"


def describe_anomaly(anomaly_id: str, anomaly: Anomaly) -> str:
    """Return an anomaly as one text: id, kind, author, task, details."""
    about = f" in {anomaly.task}" if anomaly.task else ""
    details = "; ".join(str(value) if name == "text" else f"{name}: {value}" for name, value in anomaly.details.items())
    return f"{anomaly_id} {anomaly.type} (by {anomaly.reporter or 'unknown'}{about}): {details}"


def describe_agents(context: BriefContext) -> str:
    """Return the other agents of the board with their status and task, such as ``coder-1 WORKING on shop-cart``."""
    return ", ".join(
        f"{name} {agent.status}{f' on {agent.current_task}' if agent.current_task else ''}"
        for name, agent in context.state.agents.items()
        if name != context.agent
    )


def root_cause_demand(context: BriefContext) -> str:
    """Return the instruction to a coder whose work was rejected for one reason again and again."""
    return (
        f"{len(context.repeated_rejections)} rejections in a row have the same reason; another try like the last one "
        "fails, too. Before you change code, write the root cause into a commit message or a test that fails because "
        "of it: what you assumed, what is true, how you saw it. "
        f"If you cannot: {context.liza_command} block."
    )
