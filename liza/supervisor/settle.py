"""The session is over: say on the board what came of it, once, and leave the run settled."""

from __future__ import annotations

from dataclasses import dataclass

from liza.programs import aside, brief, ends, session
from liza.programs.preset import Preset
from liza.programs.rundir import Record, RunDir
from liza.repo import brief_filter
from liza.rules import planning, reviewing, taking, working
from liza.rules.model import State, Status
from liza.supervisor.situation import SETTLED
from liza.verbs.crew import Crew

STOPPED = "stop"


@dataclass(frozen=True)
class Came:
    """What came of a session: ``kind`` is finished, handed off, crashed or stopped; ``why`` in a sentence."""

    run: str
    kind: str
    why: str


def settle(crew: Crew, directory: RunDir, preset: Preset) -> Came:
    """Carry the end of a session onto the board. Repeatable: every step judges what is there."""
    record = directory.record()
    came = _what_came(directory, preset)
    session.stop(directory.path, directory.run, crew.paths.root, grace=0.0)
    if record is not None:
        _take_brief_away(crew, record)
        _tell(crew, record, came)
    aside.write(directory.path / SETTLED, f"{came.kind}: {came.why}\n".encode())
    return came


def _what_came(directory: RunDir, preset: Preset) -> Came:
    found = session.look(directory.path)
    halt = directory.stopped()
    if halt is not None and halt.reason in (STOPPED, "over", "fenced"):
        return Came(directory.run, "stopped" if halt.reason == STOPPED else "finished", halt.reason)
    if halt is not None:
        return Came(directory.run, "crashed", f"{halt.reason}. {_last_lines(directory)}")
    if isinstance(found, session.Never):
        return Came(directory.run, "stopped", "its program was never started")
    outcome = ends.outcome(directory.word(), found, preset.exit_codes)
    return Came(directory.run, outcome.kind, f"{outcome.why}. {_last_lines(directory)}".strip())


def _last_lines(directory: RunDir) -> str:
    lines = [line for line in directory.tail(2000).splitlines() if line.strip()]
    return " / ".join(lines[-3:])[:400]


def _take_brief_away(crew: Crew, record: Record) -> None:
    if record.worktree:
        brief.take_away(crew.paths.root / record.worktree, record.run)
        brief_filter.unbind(crew.git, record.run)


def _tell(crew: Crew, record: Record, came: Came) -> None:
    now = crew.clock.now()
    state = crew.board.read()
    if record.kind == "planning":
        if state.planning.run == record.run:
            with crew.change(record.agent, "planning over") as tx:
                tx.state = planning.planning_over(tx.state, record.run)
        return
    assert record.task is not None
    if record.kind == "review":
        _tell_review(crew, record, came)
        return
    task = state.task(record.task)
    if task is None or task.run != record.run or task.status is not Status.CLAIMED:
        return
    with crew.change(record.agent, _EVENTS[came.kind], record.task) as tx:
        tx.state = _after_work(crew, tx.state, record, came) if came.kind != "stopped" else taking.stop(
            tx.state, record.task, record.run, now
        )


_EVENTS = {"crashed": "crash", "finished": "ended", "handed off": "ended", "stopped": "stop"}


def _after_work(crew: Crew, state: State, record: Record, came: Came) -> State:
    assert record.task is not None
    task = taking.find(state, record.task)
    slot = task.worktree or ""
    moved = crew.worktrees.head(slot) != record.commit
    event = _EVENTS[came.kind]
    return working.session_over(
        state, record.task, record.run, event=event, detail=came.why, moved=moved, now=crew.clock.now()
    )


def _tell_review(crew: Crew, record: Record, came: Came) -> None:
    assert record.task is not None
    task = crew.board.read().task(record.task)
    if task is None or task.review_run != record.run:
        return
    now = crew.clock.now()
    with crew.change(record.agent, "release review", record.task) as tx:
        if came.kind == "stopped":
            tx.state = reviewing.release_review(tx.state, record.task, record.run, now)
        else:
            tx.state = reviewing.review_without_verdict(tx.state, record.task, record.run, now, came.why)
