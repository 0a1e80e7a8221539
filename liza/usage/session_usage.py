"""The ledger entry of an ended session: of one that its supervisor concludes, or whose supervisor has died."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from liza.crew.crew import Crew
from liza.model.errors import LizaError, LockTimeout, NotRegularFile
from liza.model.model import State
from liza.model.owned_work import find_current_work
from liza.model.session_ends import SessionOutcome
from liza.model.spending import LedgerEntry
from liza.model.statuses import WorkKind
from liza.model.value_classes import replace
from liza.programs import run_state
from liza.programs.presets import preset_table
from liza.programs.presets.preset import Preset
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.usage_report import ReportedUsage
from liza.usage import ledger
from liza.usage.meter import Meter
from liza.usage.run_account import account_of, account_parts, session_environ


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
    process_state = session_process.read_state(directory.path)
    ended = process_state.time if isinstance(process_state, session_process.EndedSession) else crew.clock.now()
    own_environ = session_environ(directory, preset, environ)
    meter = Meter(preset, directory, record.started, own_environ, crew.clock.monotonic, ended)
    report = _read_usage(meter)
    used = report.used if report else None
    entry = LedgerEntry(
        run=record.run,
        time=ended,
        kind=record.kind,
        program=record.spec or record.program,
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
    if not directory.exists() or directory.is_concluded() or run_state.is_session_living(directory):
        return False
    record = trusted_record(crew, crew.board.read(), directory)
    if record is None or any(entry.run == directory.run for entry in ledger.read_entries(crew.paths)):
        return False
    preset = preset_table.load_presets(crew.paths).resolve(record.spec or record.program)
    record_usage(crew, directory, record, preset, os.environ, SessionOutcome.STOPPED)
    return True
