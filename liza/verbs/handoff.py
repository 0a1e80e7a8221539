"""handoff: out of room; the work goes on in a fresh session. Also how a planner ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from liza.crew.caller import RunCaller, run_caller, task_of
from liza.crew.crew import Crew
from liza.crew.result import Result, answer
from liza.crew.run_end import said_last
from liza.rules.errors import Usage
from liza.rules.model import AlignmentNote, Handoff, State
from liza.rules.paths import role_of
from liza.rules.tasks import claims, coding, planning, reviews
from liza.rules.transitions import has_said

RESTART = "stop now: a fresh session goes on"


@dataclass(frozen=True)
class Note:
    """What the next session is told."""

    summary: str
    next_action: str = ""
    approach: str | None = None
    blockers: str | None = None
    files: Sequence[str] = ()
    steps: Sequence[str] = ()


def handoff(crew: Crew, note: Note, *, done: bool = False) -> Result:
    """Leave the work, the review or the planning to a fresh session; ``done`` ends the planning for good.

    Raises Usage, NotYours.
    """
    caller = run_caller(crew)
    role = role_of(caller.agent)
    if done and role != "planner":
        raise Usage("--done is a planner's word; a coder ends with submit", 'liza handoff "what is done" --next "…"')
    if role == "planner":
        return _planner(crew, caller, note, done)
    if role == "code-reviewer":
        return _reviewer(crew, caller, note)
    return _coder(crew, caller, note)


def _coder(crew: Crew, caller: RunCaller, note: Note) -> Result:
    task = task_of(caller)
    now = crew.clock.now()
    entry = Handoff(
        agent=caller.agent,
        run=caller.run,
        timestamp=now,
        summary=note.summary,
        next_action=note.next_action,
        approach=note.approach,
        blockers=note.blockers,
        files_modified=tuple(note.files),
        next_steps=tuple(note.steps),
    )
    with crew.change(caller.run, "handoff", task) as tx:
        tx.state = coding.handoff(tx.state, task, caller.run, entry, now)
    said_last(crew, caller.run, "42")
    return answer(tx.before, tx.state, task, RESTART)


def _reviewer(crew: Crew, caller: RunCaller, note: Note) -> Result:
    task = task_of(caller)
    with crew.change(caller.run, "handoff", task) as tx:
        if not _gave_back(tx.state, task, caller.run):
            reviews.reviewed(tx.state, task, caller.run)
            tx.state = reviews.review_without_verdict(tx.state, task, caller.run, crew.clock.now(), note.summary)
    said_last(crew, caller.run, "42")
    return answer(tx.before, tx.state, task, RESTART)


def _gave_back(state: State, task: str, run: str) -> bool:
    """Whether this run's review was handed off, or given back, before."""
    found = claims.find(state, task)
    return any(has_said(found, event, run) for event in ("release review", "give up review"))


def _planner(crew: Crew, caller: RunCaller, note: Note, done: bool) -> Result:
    with crew.change(caller.run, "handoff") as tx:
        heard = [line.summary for line in tx.state.goal.alignment_history if line.event == caller.run]
        if not heard or tx.state.planning.run == caller.run:
            planning.planned(tx.state, caller.run)
            over = planning.planning_over(tx.state, caller.run) if done else tx.state
            line = AlignmentNote(timestamp=crew.clock.now(), event=caller.run, summary=note.summary)
            lines = (*over.goal.alignment_history, *(() if note.summary in heard else (line,)))
            tx.state = replace(over, goal=replace(over.goal, alignment_history=lines))
    said_last(crew, caller.run, "0" if done else "42")
    return answer(tx.before, tx.state, None, "stop now" if done else RESTART)
