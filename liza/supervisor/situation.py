"""Gather what `decide` must know. Adoption is here, and is nothing special: a living session of this agent, whoever
started it, is found by its directory like any other."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from liza.board import signals
from liza.board.lock import Lock
from liza.programs import processes, session
from liza.programs.rundir import RunDir, runs_of
from liza.repo.survey import changed
from liza.rules import merging
from liza.rules.decide import SessionFacts, Situation, Standing, holding
from liza.rules.model import State
from liza.supervisor.memory import Memory, SessionMemory
from liza.verbs.crew import Crew

SETTLED = "settled"
LAST_WORDS = ("submit", "submit again", "block", "handoff", "approve", "reject", "deadlock", "release review")


def gather(crew: Crew, agent: str, memory: Memory, ready_timeout: float) -> Situation:
    """How things stand now. Raises LizaError where something cannot be read."""
    state = crew.board.read()
    steady, now = crew.clock.monotonic(), crew.clock.now()
    slept = memory.notice_gap(now, steady, state.config.lease_duration)
    facts = _session(crew, state, agent, memory, steady, now)
    if slept and memory.session is not None:
        memory.session.beat = float("-inf")
        memory.session.moved = steady
    return Situation(
        agent=agent,
        state=state,
        now=now,
        evidence=crew.evidence(state),
        signals=signals.standing(crew.paths),
        session=facts,
        job=f"{memory.job.name} runs" if memory.job else None,
        leaving=memory.leaving,
        crashes=tuple(steady - one for one in memory.crashes),
        rest=max(0.0, memory.rest_until - steady),
        ready_timeout=ready_timeout,
        merge_lock_free=_may_merge(crew, state, memory),
        offered=_free_of_files(crew, state, memory),
        since_gap=None if memory.gap_at is None else steady - memory.gap_at,
    )


def unsettled(crew: Crew, agent: str) -> RunDir | None:
    """The agent's newest run whose end was not settled; None when every one was."""
    for run in reversed(runs_of(crew.paths, agent)):
        directory = crew.run_dir(run)
        return None if (directory.path / SETTLED).exists() else directory
    return None


def _session(crew: Crew, state: State, agent: str, memory: Memory, steady: float, now: datetime) -> SessionFacts | None:
    directory = unsettled(crew, agent)
    held = holding(state, agent)
    if directory is None or not directory.exists():
        never = held is not None and not crew.run_dir(held.run).exists()
        memory.session = None
        return SessionFacts(run=held.run, standing=Standing.NEVER) if held and never else None
    found = session.look(directory.path)
    if isinstance(found, session.Never):
        # The directory was made and the program was not started: the supervisor died in between.
        owned = held is not None and held.run == directory.run
        return SessionFacts(run=directory.run, standing=Standing.NEVER if owned else Standing.OVER)
    if not isinstance(found, session.Living | session.Starting):
        return SessionFacts(run=directory.run, standing=Standing.OVER)
    return _living(crew, state, directory, memory, found, steady, now)


def _living(
    crew: Crew,
    state: State,
    directory: RunDir,
    memory: Memory,
    found: session.Living | session.Starting,
    steady: float,
    now: datetime,
) -> SessionFacts:
    known = memory.session
    if known is None or known.run != directory.run:
        known = SessionMemory(directory.run, started=steady - _age(found, now), moved=steady, beat=steady)
        memory.session = known
    _look_for_movement(crew, state, directory, known, found, steady)
    if known.word is None and (directory.word() is not None or has_ended(state, directory.run)):
        known.word = steady
    return SessionFacts(
        run=directory.run,
        standing=Standing.LIVING,
        ready=directory.is_ready(),
        since_start=steady - known.started,
        since_movement=steady - known.moved,
        since_word=None if known.word is None else steady - known.word,
        since_beat=steady - known.beat,
    )


def _age(found: session.Living | session.Starting, now: datetime) -> float:
    """How long a session has run that was found running: the clock may have been set since it began."""
    if isinstance(found, session.Starting):
        return 0.0
    age = processes.age(found.child)
    return max(0.0, (now - found.time).total_seconds()) if age is None else age


def has_ended(state: State, run: str) -> bool:
    """Whether the board says that this run has said its last word: its verb is there before its word is."""
    if any(note.event == run for note in state.goal.alignment_history):
        return True
    return any(event.run == run and event.event in LAST_WORDS for task in state.tasks for event in task.history)


def _look_for_movement(
    crew: Crew,
    state: State,
    directory: RunDir,
    known: SessionMemory,
    found: session.Living | session.Starting,
    steady: float,
) -> None:
    """Output, CPU time, the worktree's index, the agent's own heartbeat: any change vouches for the agent."""
    every = min(state.config.heartbeat_interval, state.config.hung_after / 4)
    if known.traces and steady - known.looked < every:
        return
    agent = state.agents.get(directory.agent)
    record = directory.record()
    traces = (
        directory.moved(),
        _ticks(found) if isinstance(found, session.Living) else 0,
        _touched(Path(record.worktree)) if record and record.worktree else None,
        agent.context_percent if agent else None,
        directory.is_ready(),
    )
    known.looked = steady
    if traces != known.traces:
        known.traces, known.moved = traces, steady


def _ticks(living: session.Living) -> int:
    """CPU time of the program and all below it, in clock ticks; 0 where the system does not tell."""
    total = 0
    for pid in processes.below(living.shim):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total


def _touched(worktree: Path) -> float | None:
    try:
        return max(
            worktree.stat().st_mtime, *(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(worktree))
        )
    except (OSError, TypeError):
        return None


def _may_merge(crew: Crew, state: State, memory: Memory) -> bool:
    """Whether a merger is worth starting: nobody merges now, and this one was not refused at this very revision."""
    ripe = merging.next_to_merge(state)
    if ripe is None or memory.job is not None or memory.merge_tried == (state.revision, ripe.id):
        return False
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        return False
    lock.release()
    return True


def _free_of_files(crew: Crew, state: State, memory: Memory) -> str | None:
    """A task whose candidate waits for files that a person had changed, and that are clean now."""
    if memory.job is not None:
        return None
    for task in state.tasks:
        if task.merging is None or not task.merging.waiting or memory.merge_tried == (state.revision, task.id):
            continue
        place = crew.checkout_of_integration()
        if place is None or not set(changed(crew.git.at(place))) & set(task.merging.waiting.split(", ")):
            return task.id
    return None
