"""What the crew used: in sum, by task, by agent, by program, by what came of it; and how messages got through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from liza.crew import run_state
from liza.crew.crew import Crew
from liza.programs.messages import inbox
from liza.programs.session.run_directory import Gauge
from liza.programs.usage import ledger
from liza.rules.errors import LizaError
from liza.rules.model import Budget, State
from liza.rules.paths import agent_of, run_id
from liza.rules.sessions import spending
from liza.rules.sessions.decide import find_current_work
from liza.rules.sessions.message_rules import MessageStage
from liza.rules.sessions.spending import LedgerEntry, UsageTotal


def sprint_cost(crew: Crew, state: State) -> dict[str, Any]:
    """The sprint's: ``money`` and ``tokens`` (null where no program told), and the budget. ``unreadable`` says why a
    ledger cannot be summed up: the rest of what stands is told all the same."""
    unreadable, found, living = None, UsageTotal(), _living_entries(crew, state)
    try:
        entries = _add_living(ledger.read_entries(crew.paths), living)
        found = spending.sum_usage(one for one in entries if one.sprint == state.sprint.id)
    except LizaError as error:
        unreadable = f"{error.message} (next: {error.hint})"
    told = found.sessions > found.silent
    return {
        "unreadable": unreadable,
        "money": found.used.cost,
        "tokens": found.used.tokens if told else None,
        "estimated": found.used.estimated,
        "sessions": found.sessions,
        "living": len(living),
        "silent": found.silent,
        "unpriced": found.unpriced,
        "said": unreadable or _cost_text(found, state.config.budget),
        "budget": {name: getattr(state.config.budget, name) for name in state.config.budget.__struct_fields__},
    }


def _cost_text(found: UsageTotal, budget: Budget) -> str:
    """The sum and the limits, in words."""
    used = [spending.format_tokens(found), spending.format_cost(found)] if found.sessions else ["nothing spent yet"]
    return ", ".join([*(one for one in used if one != "tokens not known"), spending.format_limits(budget)])


def task_cost_text(crew: Crew, state: State, task: str) -> str:
    """What a task has cost so far, in words. Raises LizaError where a line of the ledger cannot be read."""
    entries = _add_living(ledger.read_entries(crew.paths), _living_entries(crew, state))
    return spending.format_total(spending.sum_usage(one for one in entries if one.task == task))


def read_gauge(crew: Crew, state: State, agent: str) -> Gauge | None:
    """What was measured of the agent's living session; None without one."""
    runs = state.agents[agent].runs
    directory = crew.run_dir(run_id(agent, runs)) if runs else None
    found = directory.read_gauge() if directory is not None else None
    with suppress(LizaError):
        return None if found is None or directory is None or run_state.is_session_over(directory) else found
    return None


def unpriced_budget_reason(crew: Crew, state: State) -> str | None:
    """Why a budget of money does not hold; None while it does, and where nobody can tell."""
    if not {state.config.budget.money_per_task, state.config.budget.money_per_sprint} - {None}:
        return None
    with suppress(LizaError):
        entries = _add_living(ledger.read_entries(crew.paths), _living_entries(crew, state))
        return spending.unpriced_reason(state.config.budget, [one for one in entries if one.sprint == state.sprint.id])
    return None


def _living_entries(crew: Crew, state: State) -> tuple[LedgerEntry, ...]:
    """The sessions at work, with what was measured of them so far."""
    found = []
    for agent, known in state.agents.items():
        measured, held = read_gauge(crew, state, agent), find_current_work(state, agent)
        if measured is None or measured.used is None:
            continue
        spent = LedgerEntry(
            run=run_id(agent, known.runs),
            time=crew.clock.now(),
            kind=held.kind if held else "",
            program=known.program or "",
            outcome="living",
            seconds=0.0,
            task=held.task if held else None,
            sprint=state.sprint.id,
            used=measured.used,
        )
        found.append(spent)
    return tuple(found)


def _add_living(entries: Iterable[LedgerEntry], living: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """The ledger with the sessions at work, each session once."""
    found = list(entries)
    known = {one.run for one in found}
    return found + [one for one in living if one.run not in known]


def crew_over_budget_reason(crew: Crew, state: State) -> str | None:
    """Why supervisors would not go on: the sprint, or a task that somebody holds, has used what the budget allows.
    Raises LizaError where a line of the ledger cannot be read."""
    budget = state.config.budget
    if budget == Budget():
        return None
    found = ledger.read_entries(crew.paths)
    held = [one.task for agent in state.agents if (one := find_current_work(state, agent)) is not None]
    reasons = (spending.over_budget_reason(budget, found, task, state.sprint.id) for task in (None, *held))
    return next((why for why in reasons if why is not None), None)


def usage_breakdown(crew: Crew) -> dict[str, Any]:
    """The whole ledger, in sums. Raises LizaError where a line of it cannot be read."""
    found = ledger.read_entries(crew.paths)
    return {
        "by_task": _group_totals(found, lambda one: one.task or "planning"),
        "by_agent": _group_totals(found, lambda one: agent_of(one.run)),
        "by_program": _group_totals(found, lambda one: one.program),
        "by_outcome": _group_totals(found, lambda one: one.outcome),
    }


def _group_totals(spent: Iterable[LedgerEntry], key: Callable[[LedgerEntry], str]) -> dict[str, Any]:
    groups: dict[str, list[LedgerEntry]] = {}
    for one in spent:
        groups.setdefault(key(one), []).append(one)
    return {name: _total_row(spending.sum_usage(group)) for name, group in sorted(groups.items())}


def _total_row(found: UsageTotal) -> dict[str, Any]:
    told = found.sessions > found.silent
    return {
        "sessions": found.sessions,
        "seconds": round(found.seconds),
        "tokens": found.used.tokens if told else None,
        "estimated": found.used.estimated,
        "money": found.used.cost,
    }


def delivery_statistics(crew: Crew, state: State) -> dict[str, Any]:
    """How messages came into sessions: at the first try, after more, by the brief, not at all; and how fast. What went
    wrong with one stays counted when it was read in the end, or taken back."""
    over = [one for agent in state.agents for one in inbox.list_done(crew.paths, agent)]
    read = [one for one in over if one.acknowledged is not None]
    waiting = [one for agent in state.agents for one in inbox.list_pending(crew.paths, agent)]
    tries = [one.attempts for one in read]
    seconds = sorted((one.acknowledged - one.created).total_seconds() for one in read if one.acknowledged)
    return {
        "attempted": len(over) + sum(one.is_started for one in waiting),
        "first_try": sum(one.attempts == 1 and one.stage is MessageStage.QUEUED for one in read),
        "after_retry": sum(one.attempts > 1 and one.stage is MessageStage.QUEUED for one in read),
        "escalated_to_brief": sum(one.stage is not MessageStage.QUEUED for one in [*over, *waiting]),
        "failed": sum(one.stage is MessageStage.TOLD for one in [*over, *waiting]),
        "waiting": len(waiting),
        "unreadable": [str(one) for agent in state.agents for one in inbox.list_unreadable(crew.paths, agent)],
        "average_attempts": round(sum(tries) / len(tries), 2) if tries else None,
        "median_seconds": seconds[len(seconds) // 2] if seconds else None,
    }
