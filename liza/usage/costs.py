"""What sessions cost: the ledger entry of an ended one, and sums by sprint, task, agent, program and outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from liza.board.shared_records import SharedLog
from liza.crew import shared_logs
from liza.crew.crew import Crew
from liza.model import spending
from liza.model.configuration import Budget
from liza.model.derived import find_current_work
from liza.model.errors import LizaError, LockTimeout, NotRegularFile
from liza.model.model import State
from liza.model.paths import Paths, agent_of, run_id
from liza.model.session_ends import SessionOutcome
from liza.model.spending import Costs, LedgerEntry, TokenUsage, ToolTotal, UsageTotal
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.presets import command_line, preset_table
from liza.programs.presets.preset import Preset
from liza.programs.reported_figures import ReportedUsage
from liza.programs.session.run_directory import Gauge, RunDir, RunRecord
from liza.usage import ledger, shared_facts
from liza.usage.meter import Meter
from liza.usage.run_account import account_of, account_parts, session_environ
from liza.usage.telemetry_log import TelemetryLog

_NO_FIGURES = "its program reports neither tool calls nor tokens: loops are not detected, only time limits apply"


def sprint_cost(crew: Crew, state: State) -> Costs:
    """Return usage and budget of the sprint. Of a ledger that cannot be read, ``unreadable`` is the reason."""
    unreadable, total, living = None, UsageTotal(), _living_entries(crew, state)
    try:
        has_entries = crew.is_on_server or crew.paths.usage.exists()
        entries = _add_living(_read_entries(crew) if has_entries else (), living)
        total = spending.sum_usage(entry for entry in entries if entry.sprint == state.sprint.id)
    except LizaError as error:
        unreadable = f"{error.message} (next: {error.hint})"
    is_known = total.sessions > total.silent
    return Costs(
        unreadable=unreadable,
        money=total.used.cost,
        tokens=total.used.tokens if is_known else None,
        estimated=total.used.estimated,
        sessions=total.sessions,
        living=len(living),
        silent=total.silent,
        unpriced=total.unpriced,
        text=unreadable or _cost_text(total, state.config.budget),
        budget={name: getattr(state.config.budget, name) for name in state.config.budget.__struct_fields__},
    )


def _cost_text(total: UsageTotal, budget: Budget) -> str:
    """Format the total and the limits."""
    used = [] if total.has_unknown_tokens else [spending.format_tokens(total)]
    used = [*used, spending.format_cost(total)] if total.sessions else ["nothing spent yet"]
    return ", ".join([*used, spending.format_limits(budget)])


def task_cost_text(crew: Crew, state: State, task: str) -> str:
    """Format the cost of a task so far. Raises LizaError if a line of the ledger cannot be read."""
    entries = _add_living(_read_entries(crew), _living_entries(crew, state))
    return spending.format_total(spending.sum_usage(entry for entry in entries if entry.task == task))


def read_gauge(paths: Paths, state: State, agent: str) -> Gauge | None:
    """Return the measurements of the agent's living session; None if no session lives."""
    runs = state.agents[agent].runs
    directory = RunDir(paths, run_id(agent, runs)) if runs else None
    gauge = directory.read_gauge() if directory is not None else None
    with suppress(LizaError):
        return None if gauge is None or directory is None or liveness.is_session_over(directory) else gauge
    return None


def unmeasured_reason(paths: Paths, state: State, agent: str) -> str | None:
    """Return why the session of a working agent is not measured; None if it is, or if there is no session."""
    if find_current_work(state, agent) is None or not state.agents[agent].program:
        return None
    gauge = read_gauge(paths, state, agent)
    if gauge is not None and gauge.unmeasured is not None:
        return gauge.unmeasured
    if gauge is not None and (gauge.calls or gauge.used is not None):
        return None
    return None if _reports_figures(paths, state.agents[agent].program or "") else _NO_FIGURES


def _reports_figures(paths: Paths, spec: str) -> bool:
    """Return whether a program reports tool calls or tokens; true for a program that is not known any more."""
    try:
        preset = preset_table.load_presets(paths).resolve(spec)
    except LizaError:
        return True
    usage = preset.usage
    has_tokens = bool(usage.input or usage.output or usage.pattern or preset.journal.file)
    return has_tokens or bool(preset.events) or command_line.has_hooks(preset)


def unpriced_budget_reason(crew: Crew, state: State) -> str | None:
    """Reason why a money budget cannot be enforced; None if it can, or if the ledger cannot be read."""
    if not {state.config.budget.money_per_task, state.config.budget.money_per_sprint} - {None}:
        return None
    with suppress(LizaError):
        entries = _add_living(_read_entries(crew), _living_entries(crew, state))
        in_sprint = [entry for entry in entries if entry.sprint == state.sprint.id]
        return spending.unpriced_reason(state.config.budget, in_sprint)
    return None


def list_living(crew: Crew, state: State) -> dict[str, LedgerEntry]:
    """Return the ledger entries of living sessions so far, by agent."""
    return {agent_of(entry.run): entry for entry in _living_entries(crew, state)}


def _living_entries(crew: Crew, state: State) -> tuple[LedgerEntry, ...]:
    """Ledger entries of the living sessions, from their latest measurements."""
    entries: list[LedgerEntry] = []
    for agent, row in state.agents.items():
        report = shared_facts.find_report(crew, agent)
        if report is not None:
            entries += [] if report.agent.living is None else [report.agent.living]
            continue
        gauge, work = read_gauge(crew.paths, state, agent), find_current_work(state, agent)
        if gauge is None or gauge.used is None:
            continue
        entry = LedgerEntry(
            run=run_id(agent, row.runs),
            time=crew.clock.now(),
            kind=work.kind if work else "",
            program=row.program or "",
            model=row.model,
            outcome="living",
            seconds=0.0,
            task=work.task if work else None,
            sprint=state.sprint.id,
            used=gauge.used,
            models=gauge.models,
        )
        entries.append(entry)
    return tuple(entries)


def _read_entries(crew: Crew) -> tuple[LedgerEntry, ...]:
    """Return the ledger of all hosts. Raises LizaError."""
    shared_logs.refresh(crew, SharedLog.USAGE)
    return ledger.read_entries(crew.paths)


def _add_living(entries: Iterable[LedgerEntry], living: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Return the ledger entries and those of living sessions, each session once."""
    known_entries = list(entries)
    runs = {entry.run for entry in known_entries}
    return known_entries + [entry for entry in living if entry.run not in runs]


def crew_over_budget_reason(paths: Paths, state: State) -> str | None:
    """Reason why supervisors would stop: the sprint, or a task that an agent holds, has used up its budget.

    Raises LizaError if a line of the ledger cannot be read.
    """
    return _first_of_budget(paths, state, spending.over_budget_reason)


def raise_budget_command(paths: Paths, state: State) -> str:
    """Return the command by which the crew continues after a budget was used up. Raises LizaError as above."""
    command = _first_of_budget(paths, state, spending.raise_limit_command)
    return "liza resume" if command is None else f"{command} && liza resume"


def _first_of_budget(
    paths: Paths,
    state: State,
    find: Callable[[Budget, Iterable[LedgerEntry], str | None, str | None], str | None],
) -> str | None:
    """Return the first text that ``find`` has for the sprint and the tasks that agents hold."""
    budget = state.config.budget
    if budget == Budget():
        return None
    entries = ledger.read_entries(paths)
    held_tasks = [work.task for agent in state.agents if (work := find_current_work(state, agent)) is not None]
    texts = (find(budget, entries, task, state.sprint.id) for task in (None, *held_tasks))
    return next((text for text in texts if text is not None), None)


def read_usage(crew: Crew, state: State) -> list[LedgerEntry]:
    """Usage of all sessions, each once: those of the ledger, and the living ones as far as they were measured.

    Raises LizaError if a line of the ledger cannot be read.
    """
    living = (_with_telemetry(crew.paths, entry) for entry in _living_entries(crew, state))
    return _add_living(_read_entries(crew), living)


def _with_telemetry(paths: Paths, entry: LedgerEntry) -> LedgerEntry:
    """Return the entry of a living session with what its runtime reported by model and tool, and its age."""
    directory = RunDir(paths, entry.run)
    # Files that an agent damaged hide only the details of its own session.
    with suppress(LizaError, OSError):
        record, sums = directory.read_record(), TelemetryLog(directory.path).read()
        seconds = max(0.0, (entry.time - record.started).total_seconds()) if record is not None else 0.0
        accounts = account_parts(directory, entry.used)
        entry = replace(entry, seconds=seconds, account=account_of(directory), accounts=accounts)
        return entry if sums is None else replace(entry, used=sums.used, models=sums.models, tools=sums.tools)
    return entry


class UsageRow(Value, kw_only=True):
    """Usage of a group of sessions. Tokens are None if no session told them, ``money`` if none told a price.

    ``unpriced``: sessions that told none.
    """

    sessions: int = 0
    seconds: int = 0
    tokens: int | None = None
    input: int | None = None
    cached: int | None = None
    output: int | None = None
    estimated: int = 0
    money: float | None = None
    unpriced: int = 0


class ToolUsage(Value):
    """Calls of a tool, and how many of them failed."""

    calls: int
    failures: int
    seconds: float


class UsageBreakdown(Value, kw_only=True):
    """Totals of all sessions, in groups."""

    by_task: Mapping[str, UsageRow] = {}
    by_agent: Mapping[str, UsageRow] = {}
    by_program: Mapping[str, UsageRow] = {}
    by_account: Mapping[str, UsageRow] = {}
    by_outcome: Mapping[str, UsageRow] = {}
    by_day: Mapping[str, UsageRow] = {}
    by_model: Mapping[str, UsageRow] = {}
    by_tool: Mapping[str, ToolUsage] = {}


def usage_breakdown(crew: Crew, state: State) -> UsageBreakdown:
    """Return the totals of all sessions. Raises LizaError if a line of the ledger cannot be read."""
    entries = read_usage(crew, state)
    return UsageBreakdown(
        by_task=_group_totals(entries, lambda entry: entry.task or "planning"),
        by_agent=_group_totals(entries, lambda entry: agent_of(entry.run)),
        by_program=_group_totals(entries, lambda entry: entry.program),
        by_account=_part_totals(entries, lambda entry: entry.accounts or _whole_account(entry)),
        by_outcome=_group_totals(entries, lambda entry: entry.outcome),
        by_day=_group_totals(entries, lambda entry: entry.time.date().isoformat()),
        by_model=_part_totals(entries, lambda entry: entry.models or _named_model(entry)),
        by_tool=_tool_totals(entries),
    )


def _named_model(entry: LedgerEntry) -> dict[str, TokenUsage | None]:
    """Return the whole usage by the model that a person named, for a program that does not report its model."""
    return {entry.model: entry.used} if entry.model else {}


def _whole_account(entry: LedgerEntry) -> dict[str, TokenUsage | None]:
    return {entry.account: entry.used} if entry.account else {}


def _part_totals(
    entries: Iterable[LedgerEntry], parts: Callable[[LedgerEntry], Mapping[str, TokenUsage | None]]
) -> Mapping[str, UsageRow]:
    """Usage by the parts of each session, such as its models; a session counts for each of its parts."""
    groups: dict[str, list[LedgerEntry]] = {}
    for entry in entries:
        for name, used in parts(entry).items():
            groups.setdefault(name, []).append(replace(entry, used=used))
    return {name: _total_row(spending.sum_usage(group)) for name, group in sorted(groups.items())}


def _group_totals(entries: Iterable[LedgerEntry], key: Callable[[LedgerEntry], str]) -> Mapping[str, UsageRow]:
    return _part_totals(entries, lambda entry: {key(entry): entry.used})


def _tool_totals(entries: Iterable[LedgerEntry]) -> Mapping[str, ToolUsage]:
    """Calls by tool of the sessions whose runtime reported them."""
    totals: dict[str, ToolTotal] = {}
    for entry in entries:
        for tool, total in entry.tools.items():
            totals[tool] = totals.get(tool, ToolTotal()) + total
    return {
        name: ToolUsage(total.calls, total.failures, round(total.milliseconds / 1000, 1))
        for name, total in sorted(totals.items())
    }


def _total_row(total: UsageTotal) -> UsageRow:
    row = UsageRow(
        sessions=total.sessions,
        seconds=round(total.seconds),
        estimated=total.used.estimated,
        money=total.used.cost,
        unpriced=total.unpriced,
    )
    if total.sessions <= total.silent:
        return row
    used = total.used
    return replace(row, tokens=used.tokens, input=used.input, cached=used.cached, output=used.output)


def trusted_record(crew: Crew, state: State, directory: RunDir) -> RunRecord | None:
    """Return what a run is for, or None if that is unknown.

    The board overrides the run's own record while the run has a claim: an agent can write to the record.
    """
    try:
        record = directory.read_record()
    except LizaError:
        record = None
    work = find_current_work(state, directory.agent)
    if work is None or work.run != directory.run:
        return record
    task = state.task(work.task) if work.task else None
    slot = task.worktree if task is not None and work.kind == WorkKind.WORK else directory.agent
    base = record or RunRecord(agent=directory.agent, run=directory.run, kind=work.kind, started=crew.clock.now())
    worktree = str(crew.paths.slot(slot)) if slot else ""
    return replace(base, kind=work.kind, task=work.task, worktree=worktree)


def record_usage(
    crew: Crew,
    directory: RunDir,
    record: RunRecord,
    preset: Preset,
    environ: Mapping[str, str],
    outcome: SessionOutcome,
) -> None:
    """Append the usage of an ended session to the ledger. Raises LizaError, OSError."""
    process_state = liveness.read_state(directory.path)
    ended = process_state.time if isinstance(process_state, liveness.EndedSession) else crew.clock.now()
    own_environ = session_environ(directory, preset, environ)
    meter = Meter(preset, directory, record.started, own_environ, crew.clock.monotonic, ended)
    report = _read_usage(meter)
    used = report.used if report else None
    entry = LedgerEntry(
        run=record.run,
        time=ended,
        kind=record.kind,
        program=record.spec or record.program,
        model=record.model,
        outcome=outcome,
        seconds=max(0.0, (ended - record.started).total_seconds()),
        task=record.task,
        sprint=crew.board.read().sprint.id,
        used=used,
        account=account_of(directory),
        accounts=account_parts(directory, used),
        conversation=meter.conversation,
        models=dict(report.models) if report else {},
        tools=meter.telemetry.tools if meter.telemetry else {},
    )
    ledger.append_entry(crew.paths, entry)


def _read_usage(meter: Meter) -> ReportedUsage | None:
    """Return what the session used, or None if its files cannot be read."""
    try:
        return meter.final_usage()
    except (OSError, NotRegularFile, LockTimeout):
        return None


def record_unconcluded_usage(crew: Crew, run: str) -> bool:
    """Record the usage of an ended session that no supervisor has concluded, if the ledger does not have it.

    The agent's next supervisor concludes it, and replaces the entry. Return whether it was recorded. An unreadable
    ledger has an alarm of its own, and must not prevent the repair or the claim that calls this.
    """
    with suppress(LizaError, OSError):
        return _record_unconcluded(crew, crew.run_dir(run))
    return False


def _record_unconcluded(crew: Crew, directory: RunDir) -> bool:
    if not directory.exists() or directory.is_concluded() or liveness.is_session_living(directory):
        return False
    record = trusted_record(crew, crew.board.read(), directory)
    if record is None or any(entry.run == directory.run for entry in ledger.read_entries(crew.paths)):
        return False
    preset = preset_table.load_presets(crew.paths).resolve(record.spec or record.program)
    record_usage(crew, directory, record, preset, os.environ, SessionOutcome.STOPPED)
    return True
