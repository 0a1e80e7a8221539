"""note: something that a person wants known; it stands in the briefs of whom it is for."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from liza.board import wake_up
from liza.crew import run_state
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.programs.messages import inbox
from liza.rules.errors import Refused, UnknownId, UsageError
from liza.rules.model import HumanNote, State, Status
from liza.rules.paths import parse_agent_id, run_id


def send_note(crew: Crew, text: str, to: str | None = None) -> Result:
    """As ``note``, and brought into the session of whoever it is for, at the next moment that it can take it.

    Raises UnknownId, Usage, Refused: nobody works there.
    """
    by = require_person(crew, planner=False)
    agent = _agent_at_work(crew.board.read(), to)
    # Outside of the board's transaction: an inbox has a lock of its own, and its agent can hold that.
    message = inbox.queue_message(crew.paths, agent, text, by, crew.clock.now(), "urgent")
    try:
        said = note(crew, text, to)
    except BaseException:
        inbox.remove_message(crew.paths, agent, message.id)
        raise
    wake_up.wake_watchers(crew.paths, agent)
    told = f"it waits in the inbox of {agent}; {_delivery_text(crew, agent)}"
    return dataclasses.replace(said, next=told, details={**said.details, "message": message.id})


def _delivery_text(crew: Crew, agent: str) -> str:
    """How it gets to the agent."""
    known = crew.board.read().agents.get(agent)
    run = run_id(agent, known.runs) if known is not None and known.runs else None
    if run is None or not run_state.is_session_living(crew.run_dir(run)):
        return "no session of it runs, so it comes with the next brief"
    return f"{run} gets it as soon as it can be told something"


def _agent_at_work(state: State, to: str | None) -> str:
    """The agent that is meant: the one named, or the one that holds the task named."""
    if to is None:
        raise UsageError("a note for now is for somebody", 'liza note --to coder-1 --now "…"')
    task = state.task(to)
    if task is None:
        return _recipient(state, to) or to
    at_work = task.reviewing_by or (task.assigned_to if task.status is Status.CLAIMED else None)
    if at_work is None:
        raise Refused(f"nobody works on {to} now", f"liza note --to {to} TEXT")
    return at_work


def note(crew: Crew, text: str, to: str | None = None) -> Result:
    """Write a note onto the board, for an agent, a task, or everyone. Raises UnknownId, Usage, Refused."""
    by = require_person(crew, planner=False)
    if not text.strip():
        raise UsageError("a note needs words", 'liza note --to coder-1 "…"')
    with crew.change(by, "note") as tx:
        whom = _recipient(tx.state, to)
        entry = HumanNote(timestamp=crew.clock.now(), message=text, recipient=whom)
        tx.state = replace(tx.state, human_notes=(*tx.state.human_notes, entry))
    task = whom if whom is not None and tx.state.task(whom) else None
    done = make_result(tx.before, tx.state, task, "liza note --now … brings a note into the session that runs", to=whom)
    return dataclasses.replace(done, message=f"noted for the next brief{f' of {whom}' if whom else ''}")


def _recipient(state: State, to: str | None) -> str | None:
    if to is None or state.task(to) is not None:
        return to
    try:
        name = parse_agent_id(to)
    except UsageError:
        name = to
    if name not in state.agents:
        known = ", ".join([*state.agents, *(task.id for task in state.tasks)][:8]) or "nobody yet"
        raise UnknownId(f"{to!r} is neither an agent nor a task on the board (there are: {known})", "liza status")
    return name
