"""Leases: how long a run keeps its task, its review or the planning; renewal, and an extension before a long step."""

from __future__ import annotations

from datetime import datetime, timedelta

from liza.model.errors import NotOwner, Refused, UsageError
from liza.model.history_events import HistoryEvent
from liza.model.model import State, Status, Task
from liza.model.paths import agent_of
from liza.model.setting_limits import lease_expiry
from liza.model.transitions import Invocation, add_event
from liza.model.value_classes import Value, replace
from liza.tasks.rules.claims import ensure_agent
from liza.text.formats import format_time

MAX_EXTENSION = 4 * 3600  # seconds
MAX_EXTENSIONS = 20  # of one run
MAX_REASON = 500  # characters
EXTENSION_EXAMPLE = 'liza heartbeat --extend 15m --reason "the integration tests take 12 minutes"'


class Extension(Value):
    """A longer lease before a step that takes long: its length in ``seconds`` from now, and the ``reason``."""

    seconds: int
    reason: str

    def check(self) -> None:
        """Raise UsageError if it is too short or too long, or has no reason."""
        if not 0 < self.seconds <= MAX_EXTENSION:
            raise UsageError(
                f"--extend is {self.seconds} s; it must be 1 s to {MAX_EXTENSION // 3600} h", EXTENSION_EXAMPLE
            )
        if not self.reason.strip():
            raise UsageError("--extend needs --reason: why the lease has to last longer", EXTENSION_EXAMPLE)


def renew_lease(state: State, run: str, now: datetime, context_usage: float | None = None) -> State:
    """Renew the lease that ``run`` holds, and the agent's heartbeat and lease. Raises NotOwner if it holds none.

    ``context_usage``: the used part of its context window, 0 to 1, if its runtime reports it.
    """
    agent = agent_of(run)
    record = ensure_agent(state, agent).agents[agent]
    until = lease_expiry(state.config, now)
    percent = record.context_percent if context_usage is None else round(100 * context_usage)
    renewed = state.with_agent(agent, replace(record, heartbeat=now, lease_expires=until, context_percent=percent))
    for task in state.tasks:
        if task.run == run and task.status is Status.CLAIMED and task.reservation is None:
            return renewed.with_task(replace(task, lease_expires=_later(until, task.lease_expires, now)))
        if task.review_run == run:
            return renewed.with_task(replace(task, review_lease_expires=_later(until, task.review_lease_expires, now)))
    if state.planning.run == run:
        return replace(renewed, planning=replace(state.planning, lease_expires=until))
    raise NotOwner(f"{run} holds no task, no review and no planning", f"liza agents {agent}")


def _later(until: datetime, present: datetime | None, now: datetime) -> datetime:
    """Return the later end of a lease: a renewal does not shorten an extension.

    An end that no extension reaches was written while the clock was ahead: it does not count.
    """
    longest = now + timedelta(seconds=MAX_EXTENSION)
    return until if present is None or present > longest else max(until, present)


def extend_lease(state: State, run: str, extension: Extension, now: datetime) -> State:
    """Renew the leases of ``run``, and keep that of its task or review for at least ``extension``.

    The history of the task gets the run, the new end and the reason. Raises UsageError, NotOwner, Refused.
    """
    extension.check()
    renewed = renew_lease(state, run, now)
    task = next((task for task in renewed.tasks if is_held_by(task, run)), None)
    if task is None:
        raise Refused(f"{run} plans: only the lease of a task or a review can be extended", "liza heartbeat")
    if sum(event.event == HistoryEvent.EXTEND and event.run == run for event in task.history) >= MAX_EXTENSIONS:
        raise Refused(
            f"{run} has extended its lease {MAX_EXTENSIONS} times: hand over to a fresh session",
            'liza handoff "what is done" --next "the first thing to do"',
        )
    is_review, end = task.review_run == run, now + timedelta(seconds=extension.seconds)
    until = _later(end, task.review_lease_expires if is_review else task.lease_expires, now)
    detail = f"until {format_time(until)}: {extension.reason.strip()}"
    extended = add_event(
        task, HistoryEvent.EXTEND, Invocation(now=now, by=agent_of(run), run=run, detail=detail[:MAX_REASON])
    )
    return renewed.with_task(
        replace(extended, review_lease_expires=until) if is_review else replace(extended, lease_expires=until)
    )


def is_held_by(task: Task, run: str) -> bool:
    """Return whether ``run`` holds the task or its review."""
    return task.review_run == run or (task.run == run and task.status is Status.CLAIMED)
