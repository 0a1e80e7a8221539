"""Gather what `decide` must know. Adoption is here, and is nothing special: a living session of this agent, whoever
started it, is found by its directory like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from liza.board import signals
from liza.crew.crew import Crew
from liza.programs.messages import channel, inbox
from liza.programs.presets.preset import Preset
from liza.programs.usage import ledger
from liza.repo.survey import list_changed_files
from liza.rules.errors import LizaError
from liza.rules.merging import merge_rules
from liza.rules.model import Budget, State
from liza.rules.sessions import message_rules, spending
from liza.rules.sessions.decide import SessionFacts, SessionState, Situation, find_current_work
from liza.supervisor.memory import Memory
from liza.supervisor.observe import SessionObserver
from liza.system.file_lock import Lock


def gather_situation(crew: Crew, agent: str, memory: Memory, preset: Preset, takes: Callable[[str], bool]) -> Situation:
    """How things stand now; ``takes`` knows whether a message can be carried into a run's session at the moment.

    Raises LizaError where something cannot be read.
    """
    state = crew.board.read()
    steady, now = crew.clock.monotonic(), crew.clock.now()
    slept = memory.detect_clock_gap(now, steady, state.config.lease_duration)
    watcher = SessionObserver(crew, state, preset, memory, steady, now)
    facts = watcher.observe(agent)
    if slept and memory.session is not None:
        memory.session.last_heartbeat = float("-inf")
        memory.session.last_activity = steady
    money = _budget_state_or_unknown(crew, state, agent, memory, steady)
    return Situation(
        agent=agent,
        state=state,
        now=now,
        evidence=crew.gather_evidence(state),
        signals=signals.active_signals(crew.paths),
        session=facts,
        job=f"{memory.job.name} runs" if memory.job else None,
        leaving=memory.leaving,
        crashes=tuple(steady - one for one in memory.crashes),
        rest_seconds=max(0.0, memory.rest_until - steady),
        ready_timeout=watcher.ready_timeout,
        merge_lock_free=_may_start_merger(crew, state, memory),
        resumable_merge=_find_resumable_merge(crew, state, memory),
        since_clock_gap=None if memory.clock_gap_at is None else steady - memory.clock_gap_at,
        unusable_reason=memory.unusable_reason,
        over_budget=money.over_budget,
        seconds_left=money.seconds_left,
        message_step=next_message_step(crew, state, agent, facts, watcher)
        if facts is not None and takes(facts.run)
        else None,
    )


@dataclass(frozen=True)
class BudgetState:
    """Why no more may be spent; and, while that is not so, in how many seconds the living session uses up a limit."""

    over_budget: str | None = None
    seconds_left: float | None = None


def _budget_state_or_unknown(crew: Crew, state: State, agent: str, memory: Memory, steady: float) -> BudgetState:
    """As ``spending_now``: where the ledger cannot be read nobody knows what is left, and a person has to look."""
    try:
        return compute_budget_state(crew, state, agent, memory, steady)
    except LizaError as error:
        return BudgetState(f"what was spent cannot be told: {error.message}")


def compute_budget_state(crew: Crew, state: State, agent: str, memory: Memory, steady: float) -> BudgetState:
    """How the budget stands by the ledger and by what the living session says that it used so far. Raises LizaError."""
    budget = state.config.budget
    if budget == Budget():
        return BudgetState()
    live = _living_entry(state, memory, steady)
    held = find_current_work(state, agent)
    task = held.task if held else None
    spent = [one for one in _read_ledger(crew, memory) if live is None or one.run != live.run]
    spent += [live] if live is not None else []
    why = spending.over_budget_reason(budget, spent, task, state.sprint.id)
    left = spending.seconds_left(budget, spent, task, state.sprint.id) if live is not None and why is None else None
    return BudgetState(why, left)


def _read_ledger(crew: Crew, memory: Memory) -> tuple[spending.LedgerEntry, ...]:
    """The sessions that are over, read again only where the file changed."""
    seen = crew.paths.usage.stat() if crew.paths.usage.exists() else None
    stamp = seen and (seen.st_mtime_ns, seen.st_size)
    if memory.ledger[0] != stamp:
        memory.ledger = (stamp, ledger.read_entries(crew.paths))
    return memory.ledger[1]


def _living_entry(state: State, memory: Memory, steady: float) -> spending.LedgerEntry | None:
    """What the living session used until now, as measured."""
    known = memory.session
    if known is None or known.meter_thread is None:
        return None
    record = known.meter_thread.record
    return spending.LedgerEntry(
        run=known.run,
        time=record.started,
        kind=record.kind,
        program=record.program,
        outcome="living",
        seconds=steady - known.started,
        task=record.task,
        sprint=state.sprint.id,
        used=known.meter_thread.latest.used,
    )


def next_message_step(
    crew: Crew, state: State, agent: str, facts: SessionFacts, watcher: SessionObserver
) -> message_rules.DeliveryStep | None:
    """What is to be done for a message to a living session; None without messages."""
    if facts.state is not SessionState.LIVING:
        return None
    waiting = inbox.list_pending(crew.paths, agent)
    if not waiting:
        return None
    how, directory = state.config.delivery, crew.run_dir(facts.run)
    reach = channel.find_reach(directory, watcher.preset, watcher.has_terminal(directory))
    return message_rules.next_step(waiting, reach, watcher.now, how)


def _may_start_merger(crew: Crew, state: State, memory: Memory) -> bool:
    """Whether a merger is worth starting: nobody merges now, and this one was not refused at this very revision."""
    ripe = merge_rules.next_to_merge(state, crew.clock.now())
    if crew.clock.monotonic() < memory.merge_rest_until:
        return False
    if ripe is None or memory.job is not None or memory.last_merge_try == (state.revision, ripe.id):
        return False
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        return False
    lock.release()
    return True


def _find_resumable_merge(crew: Crew, state: State, memory: Memory) -> str | None:
    """A task whose candidate waits for files that a person had changed, and that are clean now."""
    if memory.job is not None:
        return None
    for task in state.tasks:
        if task.merging is None or not task.merging.waiting or memory.last_merge_try == (state.revision, task.id):
            continue
        place = crew.find_integration_checkout()
        changed = () if place is None else list_changed_files(crew.git.at(place))
        if not merge_rules.are_in_the_way(task.merging.waiting, changed):
            return task.id
    return None
