"""handoff, exit: end a session. The work continues in a fresh one if the context is full."""

from __future__ import annotations

from enum import StrEnum

from liza.crew.caller import RunCaller, identify_run, record_run_result, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.derived import require_planner
from liza.model.errors import Refused, UsageError
from liza.model.history_events import HistoryEvent
from liza.model.model import AlignmentNote, Handoff, State
from liza.model.paths import Paths, role_of
from liza.model.statuses import WakeTrigger
from liza.model.transitions import has_done
from liza.model.value_classes import Line, Lines, Text, WorkerRequest, replace
from liza.programs.session.run_directory import RunDir
from liza.tasks import task_branches
from liza.tasks.pause import is_at_own_checkpoint
from liza.tasks.rules import claims, coding, planning, reviews
from liza.tasks.rules.planning import SprintEnd
from liza.usage import costs

RESTART_STEP = "stop now: a fresh session continues"


class HandoffRequest(WorkerRequest, frozen=True, kw_only=True):
    """Hand the work over to a new session. ``done``: for a planner, planning is finished."""

    summary: Text
    next_action: Line = ""
    approach: Line | None = None
    blockers: Line | None = None
    files: Lines = ()
    steps: Lines = ()
    done: bool = False


def handoff(crew: Crew, request: HandoffRequest) -> Result:
    """Hand the work, the review or the planning over to a fresh session.

    Raises UsageError, NotOwner.
    """
    caller = identify_run(crew)
    role = role_of(caller.agent)
    if request.done and role != "planner":
        raise UsageError("--done is for planners; a coder ends with submit", 'liza handoff "what is done" --next "…"')
    if role == "planner":
        return _hand_off_planning(crew, caller, request)
    if role == "code-reviewer":
        return _hand_off_review(crew, caller, request)
    return _hand_off_work(crew, caller, request)


def _hand_off_work(crew: Crew, caller: RunCaller, request: HandoffRequest) -> Result:
    task = require_task(caller)
    task_branches.import_work(crew.worktrees, claims.get_task(crew.board.read(), task))
    now = crew.clock.now()
    entry = Handoff(
        agent=caller.agent,
        run=caller.run,
        timestamp=now,
        context_used=_context_used(crew.paths, caller.run),
        summary=request.summary,
        next_action=request.next_action,
        approach=request.approach,
        blockers=request.blockers,
        files_modified=request.files,
        next_steps=request.steps,
    )
    with crew.change(caller.run, "handoff", task) as tx:
        tx.state = coding.handoff(tx.state, task, caller.run, entry, now)
    record_run_result(crew, caller.run, "42")
    return make_result(tx.before, tx.state, task, RESTART_STEP)


def _context_used(paths: Paths, run: str) -> int | None:
    """Return the used part of the context window in percent, as the session's runtime reported it; None without one."""
    gauge = RunDir(paths, run).read_gauge()
    return None if gauge is None or gauge.context_usage is None else round(100 * gauge.context_usage)


def _hand_off_review(crew: Crew, caller: RunCaller, request: HandoffRequest) -> Result:
    task = require_task(caller)
    with crew.change(caller.run, "handoff", task) as tx:
        if not _has_given_back(tx.state, task, caller.run):
            reviews.get_reviewed_task(tx.state, task, caller.run)
            tx.state = reviews.end_review_without_verdict(tx.state, task, caller.run, crew.clock.now(), request.summary)
    record_run_result(crew, caller.run, "42")
    return make_result(tx.before, tx.state, task, RESTART_STEP)


def _has_given_back(state: State, task: str, run: str) -> bool:
    """Whether this run has handed off or given back its review before."""
    task_entry = claims.get_task(state, task)
    return any(has_done(task_entry, event, run) for event in (HistoryEvent.RELEASE_REVIEW, HistoryEvent.GIVE_UP_REVIEW))


def find_sprint_end(crew: Crew) -> SprintEnd | None:
    """Return the time and the usage for the retrospective; None if no planner may complete the sprint now.

    Read before the lock is taken.
    """
    state = crew.board.read()
    if state.planning.trigger != WakeTrigger.SPRINT_COMPLETE:
        return None
    return SprintEnd(crew.clock.now(), costs.sprint_cost(crew, state).text)


def _hand_off_planning(crew: Crew, caller: RunCaller, request: HandoffRequest) -> Result:
    end = find_sprint_end(crew) if request.done else None
    with crew.change(caller.run, "handoff") as tx:
        summaries = [entry.summary for entry in tx.state.goal.alignment_history if entry.event == caller.run]
        if not summaries or tx.state.planning.run == caller.run:
            require_planner(tx.state, caller.run)
            ended = _end_planning(crew, tx.state, caller, end) if request.done else tx.state
            entry = AlignmentNote(timestamp=crew.clock.now(), event=caller.run, summary=request.summary)
            notes = (*ended.goal.alignment_history, *(() if request.summary in summaries else (entry,)))
            tx.state = replace(ended, goal=replace(ended.goal, alignment_history=notes))
    record_run_result(crew, caller.run, "0" if request.done else "42")
    return make_result(tx.before, tx.state, None, "stop now" if request.done else RESTART_STEP)


def _end_planning(crew: Crew, state: State, caller: RunCaller, end: SprintEnd | None) -> State:
    """Return the board after the decision of a planner. At its own checkpoint the goal stays in progress."""
    if is_at_own_checkpoint(crew.board, caller.agent):
        return planning.end_at_checkpoint(state, caller.run)
    return planning.end_planning(planning.leave_drafts(state, caller.run), caller.run, end)


class ExitCode(StrEnum):
    """Closing code of a run: ``0`` done, ``1`` failed, ``42`` start a new session."""

    DONE = "0"
    FAILED = "1"
    RESTART = "42"


class ExitRequest(WorkerRequest, frozen=True, kw_only=True):
    """Record the result of the run. It overrides the exit code of its process."""

    code: ExitCode


def end_run(crew: Crew, request: ExitRequest) -> Result:
    """Record the result of the run."""
    return exit_run(crew, request.code.value)


def exit_run(crew: Crew, word: str) -> Result:
    """Set the closing code of this run: 0 (look for more), 1 (failed) or 42 (start again). Raises UsageError,
    Refused."""
    caller = identify_run(crew)
    directory = crew.run_dir(caller.run)
    if not directory.exists():
        raise Refused(f"{caller.run} has no session", "liza agents")
    directory.set_closing_code(word)
    return Result("changed", caller.task, None, "end the process now")
