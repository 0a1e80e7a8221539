"""handoff: the context is full; the work continues in a fresh session. A planner ends with it too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from liza.crew import usage_summary
from liza.crew.caller import RunCaller, identify_run, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.crew.run_end import record_run_result
from liza.rules.errors import UsageError
from liza.rules.history_events import HistoryEvent
from liza.rules.model import AlignmentNote, Handoff, State
from liza.rules.paths import role_of
from liza.rules.tasks import claims, coding, planning, reviews
from liza.rules.transitions import has_done
from liza.rules.value_classes import Value, replace

if TYPE_CHECKING:
    from liza.rules.governance.retrospective import SprintEnd

RESTART_STEP = "stop now: a fresh session continues"


class HandoffNote(Value):
    """Information for the next session."""

    summary: str
    next_action: str = ""
    approach: str | None = None
    blockers: str | None = None
    files: Sequence[str] = ()
    steps: Sequence[str] = ()


def handoff(crew: Crew, note: HandoffNote, *, done: bool = False) -> Result:
    """Hand the work, the review or the planning over to a fresh session; ``done`` ends the planning for good.

    Raises UsageError, NotOwner.
    """
    caller = identify_run(crew)
    role = role_of(caller.agent)
    if done and role != "planner":
        raise UsageError("--done is for planners; a coder ends with submit", 'liza handoff "what is done" --next "…"')
    if role == "planner":
        return _hand_off_planning(crew, caller, note, done)
    if role == "code-reviewer":
        return _hand_off_review(crew, caller, note)
    return _hand_off_work(crew, caller, note)


def _hand_off_work(crew: Crew, caller: RunCaller, note: HandoffNote) -> Result:
    task = require_task(caller)
    now = crew.clock.now()
    entry = Handoff(
        agent=caller.agent,
        run=caller.run,
        timestamp=now,
        context_used=_context_used(crew, caller.run),
        summary=note.summary,
        next_action=note.next_action,
        approach=note.approach,
        blockers=note.blockers,
        files_modified=tuple(note.files),
        next_steps=tuple(note.steps),
    )
    with crew.change(caller.run, "handoff", task) as tx:
        tx.state = coding.handoff(tx.state, task, caller.run, entry, now)
    record_run_result(crew, caller.run, "42")
    return make_result(tx.before, tx.state, task, RESTART_STEP)


def _context_used(crew: Crew, run: str) -> int | None:
    """Return the used part of the context window in percent, as the session's runtime reported it; None without one."""
    gauge = crew.run_dir(run).read_gauge()
    return None if gauge is None or gauge.context_usage is None else round(100 * gauge.context_usage)


def _hand_off_review(crew: Crew, caller: RunCaller, note: HandoffNote) -> Result:
    task = require_task(caller)
    with crew.change(caller.run, "handoff", task) as tx:
        if not _has_given_back(tx.state, task, caller.run):
            reviews.get_reviewed_task(tx.state, task, caller.run)
            tx.state = reviews.end_review_without_verdict(tx.state, task, caller.run, crew.clock.now(), note.summary)
    record_run_result(crew, caller.run, "42")
    return make_result(tx.before, tx.state, task, RESTART_STEP)


def _has_given_back(state: State, task: str, run: str) -> bool:
    """Whether this run has handed off or given back its review before."""
    task_entry = claims.get_task(state, task)
    return any(has_done(task_entry, event, run) for event in (HistoryEvent.RELEASE_REVIEW, HistoryEvent.GIVE_UP_REVIEW))


def _sprint_end(crew: Crew) -> SprintEnd | None:
    """Return what the retrospective needs beside the board. Read before the lock is taken."""
    return usage_summary.sprint_end(crew, crew.board.read())


def _hand_off_planning(crew: Crew, caller: RunCaller, note: HandoffNote, done: bool) -> Result:
    end = _sprint_end(crew) if done else None
    with crew.change(caller.run, "handoff") as tx:
        summaries = [
            note_entry.summary for note_entry in tx.state.goal.alignment_history if note_entry.event == caller.run
        ]
        if not summaries or tx.state.planning.run == caller.run:
            planning.require_planner(tx.state, caller.run)
            ended = planning.end_planning(tx.state, caller.run, end) if done else tx.state
            note_entry = AlignmentNote(timestamp=crew.clock.now(), event=caller.run, summary=note.summary)
            notes = (*ended.goal.alignment_history, *(() if note.summary in summaries else (note_entry,)))
            tx.state = replace(ended, goal=replace(ended.goal, alignment_history=notes))
    record_run_result(crew, caller.run, "0" if done else "42")
    return make_result(tx.before, tx.state, None, "stop now" if done else RESTART_STEP)
