"""status: everything about the crew at one moment, as one structure."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msgspec.structs import asdict as fields_of

from liza.board import journal, signals
from liza.rules import alarms, choose, planning
from liza.rules.alarms import Alarm, Repository, Seen
from liza.rules.choose import Evidence, Limit, Pick
from liza.rules.model import State
from liza.rules.paths import role_of, run_id
from liza.verbs import last_look
from liza.verbs.crew import Crew

SETTLE = 0.1  # seconds: what one verb writes comes in several events

RECENT = 30  # revisions in which an edit from outside is still news


def status(crew: Crew) -> dict[str, Any]:
    """Goal, sprint, signals, tasks, agents, alerts and cost. Raises NoCrew, BoardUnreadable."""
    return summary(crew, crew.board.read())


def summary(crew: Crew, state: State) -> dict[str, Any]:
    """As ``status``, of a board that was read already."""
    evidence = crew.evidence(state)
    standing = signals.standing(crew.paths)
    return {
        "revision": state.revision,
        "goal": fields_of(state.goal),
        "sprint": fields_of(state.sprint),
        "integration_branch": state.config.integration_branch,
        "signals": list(standing),
        "tasks": [fields_of(task) for task in state.tasks],
        "agents": [agent_row(crew, state, name, evidence, standing) for name in state.agents],
        "alerts": [fields_of(one) for one in found_alarms(crew, state, evidence)],
        "cost": {"money": None, "tokens": None, "budget": fields_of(state.config.budget)},
    }


def found_alarms(
    crew: Crew, state: State, evidence: Evidence, repository: Repository | None = None
) -> tuple[Alarm, ...]:
    """What stands, seen from here. What happened to the ``repository`` is known from the last look, or was looked at
    now."""
    since = {name: _since(crew, name) for name in signals.standing(crew.paths)}
    seen = Seen(
        evidence=evidence,
        signals=since,
        unknown_config=crew.board.unknown_config(),
        repository=repository or last_look.read(crew.paths).seen,
    )
    return (*alarms.alarms(state, crew.clock.now(), seen), *_outside(crew))


def _outside(crew: Crew) -> Iterator[Alarm]:
    """Edits from outside that broke a rule or overwrote something, among the newest revisions."""
    for record in islice(journal.newest(crew.paths.journal), RECENT):
        for message in record.alerts:
            kind = "overwritten" if record.overwrote else "external_edit"
            yield Alarm(kind, f"revision {record.revision}", message, "liza history -p")


def _since(crew: Crew, name: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(crew.paths.signal(name).stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def agent_row(crew: Crew, state: State, name: str, evidence: Evidence, standing: tuple[str, ...]) -> dict[str, Any]:
    """An agent as `status --json` shows it; ``why`` is the one true reason that it is not at work, or null."""
    agent = state.agents[name]
    supervised = crew.supervised(name)
    holds = choose.occupation(state, name)
    if holds:
        shown, why = agent.status, None if supervised else f"it holds {holds}, and no supervisor runs"
    elif supervised:
        shown = agent.status if agent.status != "OFFLINE" else "IDLE"
        why = _why_idle(crew, state, name, evidence, standing)
    else:
        shown, why = "OFFLINE", "no supervisor runs"
    return {
        "id": name,
        "role": role_of(name),
        "status": shown,
        "run": run_id(name, agent.runs) if agent.runs else None,
        "current_task": agent.current_task,
        "lease_expires": agent.lease_expires,
        "program": agent.program,
        "why": why,
    }


def _why_idle(crew: Crew, state: State, name: str, evidence: Evidence, standing: tuple[str, ...]) -> str:
    if standing:
        return f"{standing[0]} stands; liza resume takes it away"
    role = role_of(name)
    if role == "planner":
        trigger = planning.wake(state)
        return trigger if isinstance(trigger, str) else f"about to plan: {trigger.name}"
    if role == "code-reviewer":
        review = choose.choose_review(state, name, evidence)
        return f"about to review {review.task.id}" if isinstance(review, Pick) else review.why
    picked = choose.choose(state, name, crew.clock.now(), evidence)
    if isinstance(picked, Pick):
        return f"about to take {picked.task.id}"
    return f"{picked.task.id}: {picked.reason}" if isinstance(picked, Limit) else picked.why


def follow(crew: Crew) -> Iterator[dict[str, Any]]:
    """The summary now, and again after each change of the board, of a signal or of a session."""
    for _ in changes(crew):
        yield status(crew)


def changes(crew: Crew) -> Iterator[None]:
    """Once now, and once after each change; leases run out without one, so the poll interval is the longest wait."""
    from liza.board import events

    heard: queue.Queue[Any] = queue.Queue()
    # Not the locks: to ask whether a supervisor lives touches its lock, and would wake us for ever.
    watch = events.watch(crew.paths)
    watch.put_into(heard)
    try:
        while True:
            yield None
            _until_something(heard, float(crew.board.read().config.poll_interval))
    finally:
        watch.close()


def _until_something(heard: queue.Queue[Any], longest: float) -> None:
    try:
        heard.get(timeout=longest)
        while True:
            heard.get(timeout=SETTLE)
    except queue.Empty:
        return
