"""Gather the facts that `decide` needs.

Adoption is not a special case: a living session of this agent is found by its directory, whichever supervisor started
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime

from liza.board.shared_records import SharedLog
from liza.breaker.rules.breaker_trips import BREAKER_AUTHOR
from liza.briefs import inbox
from liza.briefs.rules import message_rules
from liza.briefs.rules.message_rules import DeliveryChannels
from liza.config.rules import test_proof
from liza.crew.crew import Crew
from liza.git.branch_moves import find_blocking
from liza.merging import board_term, merge_lock
from liza.merging.rules import epic_rules
from liza.model import setting_limits, spending, targets
from liza.model.configuration import Budget
from liza.model.derived import find_current_work, tasks_with
from liza.model.errors import LizaError
from liza.model.model import State, Status
from liza.model.paths import Paths, agent_of
from liza.model.value_classes import replace
from liza.programs.hooks.hook_events import TurnPhase
from liza.programs.presets import command_line
from liza.programs.presets.preset import Preset
from liza.programs.session import run_directory
from liza.programs.session.run_directory import RunDir
from liza.supervisor.memory import Memory
from liza.supervisor.observe import MeterMaker, SessionObserver
from liza.supervisor.rules.session_facts import (
    BudgetState,
    MergeFacts,
    SessionFacts,
    SessionState,
    Situation,
    SupervisorFacts,
)
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import picking
from liza.usage import account_choice, ledger
from liza.usage.account_files import ACCOUNTS_COMMAND
from liza.usage.rules.account_rules import NoneUsable


def gather_situation(
    crew: Crew,
    state: State,
    agent: str,
    memory: Memory,
    preset: Preset,
    make_meter: MeterMaker,
    can_type: Callable[[str], bool],
) -> Situation:
    """Return the present situation on the board ``state``.

    ``make_meter`` starts the measurement of a session. ``can_type`` tells whether a message can be typed into a run's
    session now. Raises LizaError if a file cannot be read.
    """
    monotonic_time, now = crew.clock.monotonic(), crew.clock.now()
    memory.clock = memory.clock.saw(now, monotonic_time, state.config.lease_duration)
    observer = SessionObserver(crew, state, preset, memory, make_meter, monotonic_time, now)
    facts = observer.observe(agent)
    if memory.clock.has_just_slept and memory.session is not None:
        memory.session.times = memory.session.times.renewed(float("-inf"))
        memory.session.activity = memory.session.activity.restarted(monotonic_time)
    wait = (
        None
        if facts is not None and facts.state is SessionState.LIVING
        else find_account_wait(crew, agent, memory, preset)
    )
    # Until the working hours begin no session starts, also not after a usage limit; one that runs goes on.
    starts = (None if wait is None else wait.until, setting_limits.find_opening(state.config, now))
    rests = [(start - now).total_seconds() for start in starts if start is not None]
    budget_state = _budget_state_or_unknown(crew, state, agent, memory, monotonic_time)
    signals = crew.board.signals()
    evidence = replace(gather_evidence(crew, state), resting=memory.streak.seconds_by_task(monotonic_time))
    return Situation(
        agent=agent,
        state=state,
        now=now,
        evidence=evidence,
        signals=tuple(signals),
        # A signal whose author cannot be read counts as a person's.
        signals_of_breaker=tuple(name for name, signal in signals.items() if signal.author == BREAKER_AUTHOR),
        session=facts,
        job=f"{memory.job.name} runs" if memory.job else None,
        supervisor=SupervisorFacts(
            leaving=memory.leaving,
            retiring=memory.retiring,
            crash_loop=memory.streak.crash_loop(
                monotonic_time,
                has_untried=bool(memory.streak.crashes) and picking.has_untried(state, agent, now, evidence),
            ),
            rest_seconds=max(memory.streak.rest_seconds(monotonic_time), 0.0, *rests),
            unusable_reason=_unusable_reason(memory, preset, wait),
            failed_set_up=memory.failed_set_up.reason if memory.failed_set_up else None,
            since_clock_gap=memory.clock.seconds_since_sleep(monotonic_time),
            only=memory.only,
        ),
        merging=MergeFacts(
            _may_start_merger(crew, state, memory),
            _find_resumable_merge(crew, state, memory),
            _may_prove(crew, state, memory),
        ),
        budget=budget_state,
        message_step=next_message_step(crew, state, facts, observer)
        if facts is not None and can_type(facts.run)
        else None,
    )


def find_account_wait(crew: Crew, agent: str, memory: Memory, preset: Preset) -> NoneUsable | None:
    """Return why no account of the program can be used, and write it for `status` when it changes. None: a session may
    start."""
    wait = account_choice.find_wait(preset, os.environ, crew.clock.now())
    text = None if wait is None or wait.until is None else _account_wait(preset, wait.until, wait.reason)
    before = memory.account_wait
    if (wait is None) != (before is None) or (wait and before and wait.reason != before.reason):
        memory.account_wait = wait
        run_directory.write_wait(crew.paths, agent, text)
    return wait


def _account_wait(preset: Preset, until: datetime, reason: str) -> run_directory.AgentWait:
    return run_directory.AgentWait(reason=f"no account can be used: {reason}: {ACCOUNTS_COMMAND}", until=until)


def _unusable_reason(memory: Memory, preset: Preset, wait: NoneUsable | None) -> str | None:
    """Return why no session can work until a person acts: its program cannot, or each of its accounts is set aside."""
    if memory.unusable is not None:
        return memory.unusable.reason
    if wait is None or wait.until is not None:
        return None
    return f"{account_choice.describe_wait(preset.name, wait)} (next: {ACCOUNTS_COMMAND})"


def _budget_state_or_unknown(
    crew: Crew, state: State, agent: str, memory: Memory, monotonic_time: float
) -> BudgetState:
    """As ``compute_budget_state``. An unreadable ledger counts as over budget: a person has to look."""
    try:
        return compute_budget_state(crew.paths, state, agent, memory, monotonic_time)
    except LizaError as error:
        return BudgetState(f"the spending is unknown: {error.message}")


def compute_budget_state(paths: Paths, state: State, agent: str, memory: Memory, monotonic_time: float) -> BudgetState:
    """Return the budget's state from the ledger and the living session's usage so far. Raises LizaError."""
    budget = state.config.budget
    if budget == Budget():
        return BudgetState()
    living = _living_entry(state, memory, monotonic_time)
    work = find_current_work(state, agent)
    task = work.task if work else None
    entries = [entry for entry in _read_ledger(paths, memory) if living is None or entry.run != living.run]
    entries += [living] if living is not None else []
    reason = spending.over_budget_reason(budget, entries, task, state.sprint.id)
    seconds_left = (
        spending.seconds_left(budget, entries, task, state.sprint.id) if living is not None and reason is None else None
    )
    return BudgetState(reason, seconds_left)


def _read_ledger(paths: Paths, memory: Memory) -> tuple[spending.LedgerEntry, ...]:
    """Return the ledger's entries, read again only if a file of it changed."""
    files = [path.stat() for path in (paths.usage, paths.shared_log(SharedLog.USAGE)) if path.exists()]
    stamp = [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in files]
    if memory.ledger[0] != stamp:
        memory.ledger = (stamp, ledger.read_entries(paths))
    return memory.ledger[1]


def _living_entry(state: State, memory: Memory, monotonic_time: float) -> spending.LedgerEntry | None:
    """Return a ledger entry for the living session's usage so far, as measured."""
    session = memory.session
    if session is None or session.meter_thread is None:
        return None
    record = session.meter_thread.record
    return spending.LedgerEntry(
        run=session.run,
        time=record.started,
        kind=record.kind,
        program=record.program,
        outcome="living",
        seconds=monotonic_time - session.times.started,
        task=record.task,
        sprint=state.sprint.id,
        used=session.meter_thread.latest.used,
    )


def next_message_step(
    crew: Crew, state: State, facts: SessionFacts, observer: SessionObserver
) -> message_rules.DeliveryStep | None:
    """Return the next step of message delivery to a living session, or None without messages."""
    if facts.state is not SessionState.LIVING:
        return None
    messages = inbox.list_pending(crew.paths, agent_of(facts.run))
    config, directory = state.config.delivery, crew.run_dir(facts.run)
    memory = observer.memory.session_of(facts.run)
    quoted = directory.read_quoted() if memory is None or memory.quoted is None else memory.quoted
    if memory is not None:
        memory.quoted = quoted
    if not messages and not quoted:
        return None
    reach = find_reach(directory, observer.preset, observer.has_terminal(directory))
    return message_rules.next_step(messages, reach, observer.now, config, quoted)


def _may_start_merger(crew: Crew, state: State, memory: Memory) -> bool:
    """Whether to start a merger: none runs, and none was refused at this revision."""
    if memory.job is not None or memory.merges.is_resting(crew.clock.monotonic()):
        return False
    # First what is known at once: while tasks wait, a merger nearly always runs.
    is_possible = tasks_with(state, Status.APPROVED) or any(task.epic for task in state.tasks)
    if not is_possible or merge_lock.is_merger_running(crew.paths):
        return False
    subject = epic_rules.next_subject(state, crew.clock.now())
    is_due = subject is not None and not memory.merges.was_tried(state.revision, subject)
    return is_due and not board_term.merges_elsewhere(crew)


def _may_prove(crew: Crew, state: State, memory: Memory) -> bool:
    """Whether the proof of the tests is old, no merge is due, and it did not fail already after the same changes."""
    if test_proof.outdated_reason(state.config) is None or memory.job is not None:
        return False
    if state.config.proof.changed == memory.proof_tried_after or merge_lock.is_merger_running(crew.paths):
        return False
    return epic_rules.next_subject(state, crew.clock.now()) is None and not board_term.merges_elsewhere(crew)


def _find_resumable_merge(crew: Crew, state: State, memory: Memory) -> str | None:
    """Return a task whose candidate waited for files of a person that are not in the way any more."""
    if memory.job is not None:
        return None
    for task in tasks_with(state, Status.APPROVED):
        if task.merging is None or not task.merging.waiting or memory.merges.was_tried(state.revision, task.id):
            continue
        if merge_lock.is_merger_running(crew.paths):
            return None
        if not find_blocking(crew.git, targets.target_branch(state, task), task.merging).blocking:
            return task.id
    return None


def find_reach(directory: RunDir, preset: Preset, terminal: bool) -> DeliveryChannels:
    """Return the ways into the session of a run, with or without a ``terminal``.

    Hooks count once one of them has run: their installation does not prove that the program runs them. Raises LizaError
    if a file cannot be read.
    """
    turn = directory.read_turn()
    has_hooks = turn is not None and command_line.has_hooks(preset)
    in_turn = turn is not None and turn.phase == TurnPhase.BUSY
    # A sidecar takes messages from the beginning, also before its first report.
    has_stream = turn.is_reported if turn is not None else command_line.read_order(directory.path) is not None
    return DeliveryChannels(
        directory.run, has_hooks=has_hooks, has_terminal=terminal, has_stream=has_stream, in_turn=in_turn
    )
