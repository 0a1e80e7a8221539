"""pause, resume: set a signal, while which supervisors start nothing new, and clear it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from liza.board import signals
from liza.board.contract import Board
from liza.board.shared_records import SharedLog
from liza.breaker import breaker
from liza.breaker.rules import breaker_trips
from liza.breaker.rules.breaker_trips import BREAKER_AUTHOR
from liza.crew import shared_logs
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model.errors import Refused, UsageError
from liza.model.paths import is_person
from liza.model.value_classes import Line, WorkerRequest
from liza.tasks import next_steps
from liza.text.formats import count_noun, format_time
from liza.usage import costs

END_PLANNING = 'liza handoff "what a person has to look at" --done'
"""What a planner does after it has set a checkpoint."""


def pause(crew: Crew, why: str = "") -> Result:
    """Set PAUSE; unchanged if it is set with the same reason. Raises Refused inside a session."""
    return _raise(crew, "PAUSE", why)


class CheckpointRequest(WorkerRequest, frozen=True, kw_only=True):
    """Start nothing new until a person has looked. For planners."""

    why: Annotated[Line, msgspec.Meta(min_length=1)]


def checkpoint(crew: Crew, request: CheckpointRequest) -> Result:
    """Set CHECKPOINT: a person is to check the sprint. For people, and for the planner that plans now.

    Raises Refused inside another session, NotOwner, UsageError for a planner without a reason.
    """
    return _raise(crew, "CHECKPOINT", request.why, planner=True)


def _raise(crew: Crew, name: str, why: str, *, planner: bool = False) -> Result:
    by = require_person(crew, planner=planner)
    if not (why.strip() or is_person(by)):
        raise UsageError("a planner's checkpoint needs its reason", 'liza pause --checkpoint "why"')
    crew.board.read()
    with crew.board.lock_signals(is_stop=True):
        current = crew.board.signals().get(name)
        has_reason = current is not None and (not why or f"\n{why}\n" in current.text)
        author = "" if current is None else current.author
        # A person's signal outlives the resolution of a trip, and keeps planners from starting. A planner replaces no
        # signal but its own.
        is_replaced = author == BREAKER_AUTHOR or not has_reason
        is_own_anew = author == by and not has_reason
        is_new = current is None or (is_replaced if is_person(by) else is_own_anew)
        if is_new:
            crew.board.raise_signal(name, f"{format_time(crew.clock.now())} {by}\n{why}\n")
    step = "liza resume" if is_person(by) else END_PLANNING
    return _signal_result(crew.board, "changed" if is_new else "unchanged", name, step)


def _signal_result(board: Board, result: str, name: str, step: str) -> Result:
    message = f"{name} is set: sessions continue, and nothing new is started"
    return Result(result, None, None, step, {"signals": list(board.signals())}, message)


def is_at_own_checkpoint(board: Board, planner: str) -> bool:
    """Return whether a planner has set CHECKPOINT. It can have done so only in the session that plans now."""
    checkpoint = board.signals().get("CHECKPOINT")
    return checkpoint is not None and checkpoint.author == planner


def asks_root_cause(board: Board) -> str | None:
    """Return what the circuit breaker stopped the crew for: `resume` needs its root cause. None if it did not."""
    return next(map(breaker_trips.describe_trip, breaker_trips.signals_of_trips(board.read()).values()), None)


def resolve_trips(crew: Crew, root_cause: str) -> Result:
    """Resolve all open trips of the circuit breaker, as ``breaker.resolve`` does; the result says who goes on."""
    result = breaker.resolve(crew, root_cause)
    return next_steps.with_next_step(result, next_steps.find_next_step(crew, crew.board.read(), "the crew continues"))


def resume(crew: Crew, root_cause: str | None = None) -> Result:
    """Clear PAUSE, CHECKPOINT and ABORT, and count planning rounds anew; unchanged if none is set.

    ``root_cause`` resolves the open trips of the circuit breaker. Raises Refused inside a session, while the budget is
    exceeded, and without a root cause while a trip that stops the crew is open; LizaError if the spending cannot be
    read.
    """
    by = require_person(crew, planner=False)
    state = crew.board.read()
    shared_logs.refresh(crew, SharedLog.USAGE)
    reason = costs.crew_over_budget_reason(crew.paths, state) if crew.board.signals() else None
    if reason is not None:
        step = costs.raise_budget_command(crew.paths, state)
        # A supervisor would set PAUSE again at its next check, without an explanation for the person.
        raise Refused(f"{reason}; the crew would pause again at once: raise the limit first", step)
    resolved = [] if root_cause is None or not breaker_trips.open_trips(state) else [breaker.resolve(crew, root_cause)]
    if state.planning.rounds:
        # Before the signals are cleared: a planner's supervisor would set CHECKPOINT again.
        with crew.change(by, "resume"):
            pass
    with crew.board.lock_signals():
        # Read again: a trip that was recorded since then may have set its signal already.
        for trip in breaker_trips.signals_of_trips(crew.board.read()).values():
            message = f"{breaker_trips.describe_trip(trip)}; the crew continues once you name its root cause"
            raise Refused(message, breaker_trips.RESUME_COMMAND)
        cleared = [name for name in signals.SIGNALS if crew.board.clear_signal(name)]
    trips = [name for result in resolved for name in result.details["resolved"]]
    cleared = [*(name for result in resolved for name in result.details["cleared"]), *cleared]
    parts = [f"{count_noun(len(trips), 'trip')} resolved: {', '.join(trips)}"] * bool(trips)
    parts += [f"{', '.join(cleared)} cleared" if cleared else "no signal was set"]
    details = {"cleared": cleared, **({"resolved": trips} if trips else {})}
    result = Result("changed" if cleared or trips else "unchanged", None, None, "", details, "; ".join(parts))
    return next_steps.with_next_step(result, next_steps.find_next_step(crew, state, "the crew continues"))
