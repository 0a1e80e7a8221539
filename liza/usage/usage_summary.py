"""Usage of the crew: total, by task, agent, program and outcome; and statistics of message delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from liza.briefs import inbox
from liza.briefs.rules.message_rules import MessageStage
from liza.crew.crew import Crew
from liza.model import spending
from liza.model.errors import LizaError
from liza.model.model import Budget, State
from liza.model.owned_work import find_current_work
from liza.model.paths import agent_of, run_id
from liza.model.spending import LedgerEntry, TokenUsage, ToolTotal, UsageTotal
from liza.model.statuses import WakeTrigger
from liza.model.value_classes import replace
from liza.programs import run_state
from liza.programs.presets import command_line, preset_table
from liza.programs.session.run_directory import Gauge
from liza.tasks.rules.retrospective import SprintEnd
from liza.usage import ledger
from liza.usage.run_account import account_of, account_parts
from liza.usage.telemetry_log import TelemetryLog

_NO_FIGURES = "its program reports neither tool calls nor tokens: loops are not detected, only time limits apply"


def sprint_cost(crew: Crew, state: State) -> dict[str, Any]:
    """Usage and budget of the sprint: ``money`` and ``tokens`` are null if no program reported them.

    ``unreadable`` is the reason if a ledger cannot be read; the other keys are present all the same.
    """
    unreadable, total, living = None, UsageTotal(), _living_entries(crew, state)
    try:
        entries = _add_living(ledger.read_entries(crew.paths), living)
        total = spending.sum_usage(entry for entry in entries if entry.sprint == state.sprint.id)
    except LizaError as error:
        unreadable = f"{error.message} (next: {error.hint})"
    is_known = total.sessions > total.silent
    return {
        "unreadable": unreadable,
        "money": total.used.cost,
        "tokens": total.used.tokens if is_known else None,
        "estimated": total.used.estimated,
        "sessions": total.sessions,
        "living": len(living),
        "silent": total.silent,
        "unpriced": total.unpriced,
        "said": unreadable or _cost_text(total, state.config.budget),
        "budget": {name: getattr(state.config.budget, name) for name in state.config.budget.__struct_fields__},
    }


def sprint_end(crew: Crew, state: State) -> SprintEnd | None:
    """Return the time and the usage for the retrospective; None if no planner may complete the sprint now."""
    if state.planning.trigger != WakeTrigger.SPRINT_COMPLETE:
        return None

    return SprintEnd(crew.clock.now(), str(sprint_cost(crew, state)["said"]))


def _cost_text(total: UsageTotal, budget: Budget) -> str:
    """Format the total and the limits."""
    used = [] if total.has_unknown_tokens else [spending.format_tokens(total)]
    used = [*used, spending.format_cost(total)] if total.sessions else ["nothing spent yet"]
    return ", ".join([*used, spending.format_limits(budget)])


def task_cost_text(crew: Crew, state: State, task: str) -> str:
    """Format the cost of a task so far. Raises LizaError if a line of the ledger cannot be read."""
    entries = _add_living(ledger.read_entries(crew.paths), _living_entries(crew, state))
    return spending.format_total(spending.sum_usage(entry for entry in entries if entry.task == task))


def read_gauge(crew: Crew, state: State, agent: str) -> Gauge | None:
    """Return the measurements of the agent's living session; None if no session lives."""
    runs = state.agents[agent].runs
    directory = crew.run_dir(run_id(agent, runs)) if runs else None
    gauge = directory.read_gauge() if directory is not None else None
    with suppress(LizaError):
        return None if gauge is None or directory is None or run_state.is_session_over(directory) else gauge
    return None


def unmeasured_reason(crew: Crew, state: State, agent: str) -> str | None:
    """Return why the session of a working agent is not measured; None if it is, or if there is no session."""
    if find_current_work(state, agent) is None or not state.agents[agent].program:
        return None
    gauge = read_gauge(crew, state, agent)
    if gauge is not None and gauge.unmeasured is not None:
        return gauge.unmeasured
    if gauge is not None and (gauge.calls or gauge.used is not None):
        return None
    return None if _reports_figures(crew, state.agents[agent].program or "") else _NO_FIGURES


def _reports_figures(crew: Crew, spec: str) -> bool:
    """Return whether a program reports tool calls or tokens; true for a program that is not known any more."""
    try:
        preset = preset_table.load_presets(crew.paths).resolve(spec)
    except LizaError:
        return True
    usage = preset.usage
    has_tokens = bool(usage.input or usage.output or usage.pattern or preset.journal.file)
    return has_tokens or bool(preset.calls) or command_line.has_hooks(preset)


def unpriced_budget_reason(crew: Crew, state: State) -> str | None:
    """Reason why a money budget cannot be enforced; None if it can, or if the ledger cannot be read."""
    if not {state.config.budget.money_per_task, state.config.budget.money_per_sprint} - {None}:
        return None
    with suppress(LizaError):
        entries = _add_living(ledger.read_entries(crew.paths), _living_entries(crew, state))
        in_sprint = [entry for entry in entries if entry.sprint == state.sprint.id]
        return spending.unpriced_reason(state.config.budget, in_sprint)
    return None


def _living_entries(crew: Crew, state: State) -> tuple[LedgerEntry, ...]:
    """Ledger entries of the living sessions, from their latest measurements."""
    entries = []
    for agent, row in state.agents.items():
        gauge, work = read_gauge(crew, state, agent), find_current_work(state, agent)
        if gauge is None or gauge.used is None:
            continue
        entry = LedgerEntry(
            run=run_id(agent, row.runs),
            time=crew.clock.now(),
            kind=work.kind if work else "",
            program=row.program or "",
            outcome="living",
            seconds=0.0,
            task=work.task if work else None,
            sprint=state.sprint.id,
            used=gauge.used,
            models=gauge.models,
        )
        entries.append(entry)
    return tuple(entries)


def _add_living(entries: Iterable[LedgerEntry], living: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Return the ledger entries and those of living sessions, each session once."""
    known_entries = list(entries)
    runs = {entry.run for entry in known_entries}
    return known_entries + [entry for entry in living if entry.run not in runs]


def crew_over_budget_reason(crew: Crew, state: State) -> str | None:
    """Reason why supervisors would stop: the sprint, or a task that an agent holds, has used up its budget.

    Raises LizaError if a line of the ledger cannot be read.
    """
    return _first_of_budget(crew, state, spending.over_budget_reason)


def raise_budget_command(crew: Crew, state: State) -> str:
    """Return the command by which the crew continues after a budget was used up. Raises LizaError as above."""
    command = _first_of_budget(crew, state, spending.raise_limit_command)
    return "liza resume" if command is None else f"{command} && liza resume"


def _first_of_budget(
    crew: Crew,
    state: State,
    find: Callable[[Budget, Iterable[LedgerEntry], str | None, str | None], str | None],
) -> str | None:
    """Return the first text that ``find`` has for the sprint and the tasks that agents hold."""
    budget = state.config.budget
    if budget == Budget():
        return None
    entries = ledger.read_entries(crew.paths)
    held_tasks = [work.task for agent in state.agents if (work := find_current_work(state, agent)) is not None]
    texts = (find(budget, entries, task, state.sprint.id) for task in (None, *held_tasks))
    return next((text for text in texts if text is not None), None)


def read_usage(crew: Crew, state: State) -> list[LedgerEntry]:
    """Usage of all sessions, each once: those of the ledger, and the living ones as far as they were measured.

    Raises LizaError if a line of the ledger cannot be read.
    """
    living = (_with_telemetry(crew, entry) for entry in _living_entries(crew, state))
    return _add_living(ledger.read_entries(crew.paths), living)


def _with_telemetry(crew: Crew, entry: LedgerEntry) -> LedgerEntry:
    """Return the entry of a living session with what its runtime reported by model and tool, and its age."""
    directory = crew.run_dir(entry.run)
    # Files that an agent damaged hide only the details of its own session.
    with suppress(LizaError, OSError):
        record, sums = directory.read_record(), TelemetryLog(directory.path).read()
        seconds = max(0.0, (entry.time - record.started).total_seconds()) if record is not None else 0.0
        accounts = account_parts(directory, entry.used)
        entry = replace(entry, seconds=seconds, account=account_of(directory), accounts=accounts)
        return entry if sums is None else replace(entry, used=sums.used, models=sums.models, tools=sums.tools)
    return entry


def usage_breakdown(crew: Crew, state: State) -> dict[str, Any]:
    """Totals of all sessions, in groups. Raises LizaError if a line of the ledger cannot be read."""
    entries = read_usage(crew, state)
    return {
        "by_task": _group_totals(entries, lambda entry: entry.task or "planning"),
        "by_agent": _group_totals(entries, lambda entry: agent_of(entry.run)),
        "by_program": _group_totals(entries, lambda entry: entry.program),
        "by_account": _part_totals(entries, lambda entry: entry.accounts or _whole_account(entry)),
        "by_outcome": _group_totals(entries, lambda entry: entry.outcome),
        "by_day": _group_totals(entries, lambda entry: entry.time.date().isoformat()),
        "by_model": _part_totals(entries, lambda entry: entry.models),
        "by_tool": _tool_totals(entries),
    }


def _whole_account(entry: LedgerEntry) -> dict[str, TokenUsage | None]:
    return {entry.account: entry.used} if entry.account else {}


def _part_totals(
    entries: Iterable[LedgerEntry], parts: Callable[[LedgerEntry], Mapping[str, TokenUsage | None]]
) -> dict[str, Any]:
    """Usage by the parts of each session, such as its models; a session counts for each of its parts."""
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        for name, used in parts(entry).items():
            groups.setdefault(name, []).append(replace(entry, used=used))
    return {name: _total_row(spending.sum_usage(group)) for name, group in sorted(groups.items())}


def _tool_totals(entries: Iterable[LedgerEntry]) -> dict[str, Any]:
    """Calls by tool of the sessions whose runtime reported them."""
    totals: dict[str, ToolTotal] = {}
    for entry in entries:
        for tool, total in entry.tools.items():
            totals[tool] = totals.get(tool, ToolTotal()) + total
    return {
        name: {"calls": total.calls, "failures": total.failures, "seconds": round(total.milliseconds / 1000, 1)}
        for name, total in sorted(totals.items())
    }


def _group_totals(entries: Iterable[LedgerEntry], key: Callable[[LedgerEntry], str]) -> dict[str, Any]:
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return {name: _total_row(spending.sum_usage(group)) for name, group in sorted(groups.items())}


def _total_row(total: UsageTotal) -> dict[str, Any]:
    is_known = total.sessions > total.silent
    return {
        "sessions": total.sessions,
        "seconds": round(total.seconds),
        "tokens": total.used.tokens if is_known else None,
        "input": total.used.input if is_known else None,
        "cached": total.used.cached if is_known else None,
        "output": total.used.output if is_known else None,
        "estimated": total.used.estimated,
        "money": total.used.cost,
    }


def delivery_statistics(crew: Crew, state: State) -> dict[str, Any]:
    """Statistics of message delivery: first try, after a retry, by the brief, failed; and the time to the
    acknowledgement in seconds, of all messages that were read.

    A failed attempt stays counted if the message was read later or withdrawn.
    """
    done = [message for agent in state.agents for message in inbox.list_done(crew.paths, agent)]
    read = [message for message in done if message.acknowledged is not None]
    waiting = [message for agent in state.agents for message in inbox.list_pending(crew.paths, agent)]
    attempts = [message.attempts for message in read]
    seconds = sorted(
        (message.acknowledged - message.created).total_seconds() for message in read if message.acknowledged
    )
    return {
        "attempted": len(done) + sum(message.is_started for message in waiting),
        "first_try": sum(message.attempts == 1 and message.stage is MessageStage.QUEUED for message in read),
        "after_retry": sum(message.attempts > 1 and message.stage is MessageStage.QUEUED for message in read),
        "escalated_to_brief": sum(message.stage is not MessageStage.QUEUED for message in [*done, *waiting]),
        "failed": sum(message.stage is MessageStage.TOLD for message in [*done, *waiting]),
        "waiting": len(waiting),
        "unreadable": [str(message) for agent in state.agents for message in inbox.list_unreadable(crew.paths, agent)],
        "average_attempts": round(sum(attempts) / len(attempts), 2) if attempts else None,
        "average_seconds": round(sum(seconds) / len(seconds), 1) if seconds else None,
        "median_seconds": seconds[len(seconds) // 2] if seconds else None,
    }
