"""Conclude an ended session: record its result on the board once, and mark the run as concluded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from liza.crew.crew import Crew
from liza.crew.recovery.run_cleanup import archive_old_runs
from liza.programs.presets.preset import Preset
from liza.programs.session import outcomes, session_process, transcript
from liza.programs.session.failure_patterns import ModelFailure, ModelSigns, find_failure
from liza.programs.session.run_directory import RunDir, RunRecord, StopNote
from liza.programs.terminal import tmux
from liza.programs.usage import ledger
from liza.programs.usage.meter import Meter
from liza.rules.errors import LizaError, Refused
from liza.rules.model import State, Status
from liza.rules.sessions import model_silence
from liza.rules.sessions.loop_detection import NO_PROGRESS_PREFIX
from liza.rules.sessions.spending import LedgerEntry, TokenUsage
from liza.rules.tasks import claims, coding, planning, reviews
from liza.rules.tasks.claims import HELD_UP, QUOTA, STOP, UNANSWERED, UNCOUNTED_ENDS, UNUSABLE
from liza.supervisor.observe import trusted_record
from liza.supervisor.worktree_files import remove_worktree_files
from liza.system import crash_points

LOOPED = "looped"
"""Kind of a session that was ended because it made no progress."""
SCREEN_HISTORY_LINES = 2000  # lines of scroll-back that are saved besides the screen
OUTPUT_TAIL_BYTES = 64 << 10  # bytes: some programs print much text after the reason of their end
_BRIEF_END = re.compile(r"<!-- liza:end run=\S+ -->")


@dataclass(frozen=True)
class SessionResult:
    """Result of a session: how it ended, and why.

    ``kind``: finished, handed off, crashed, looped, stopped, held up, quota, unanswered or unusable. ``reason`` is a
    sentence for people. ``retry_at``: when a usage limit ends, if known. ``needs_person``: a person has to start the
    program once, to answer it or to log in.
    """

    run: str
    kind: str
    reason: str
    retry_at: datetime | None = None
    needs_person: bool = False


def conclude_session(crew: Crew, directory: RunDir, preset: Preset, environ: Mapping[str, str]) -> SessionResult:
    """Record the end of a session on the board and clean up after it. Idempotent: each step checks the present state.

    ``environ`` is the supervisor's own environment.
    """
    record = trusted_record(crew, crew.board.read(), directory)
    _save_screen(crew, directory)
    directory.write_question(None)
    directory.write_model_note(None)
    result = _apply_postponement(directory, _classify_session(crew, directory, preset))
    session_process.stop(directory.path, directory.run, crew.paths.root, grace=0.0)
    crash_points.point("settle", "stopped")
    if record is not None:
        remove_worktree_files(crew, record)
        crash_points.point("settle", "brief-gone")
        # After the worktree's files: the recorded end releases the task, and another run may use the worktree then.
        _record_end(crew, record, result)
        crash_points.point("settle", "told")
        meter = Meter(preset, directory, record.started, environ, crew.clock.monotonic)
        _append_usage(crew, directory, record, result, _used(meter))
    # Last: a supervisor that crashes before this line concludes the session again.
    directory.mark_concluded(f"{result.kind}: {result.reason}")
    # A failure is harmless: the next concluded session or the next supervisor archives them.
    with suppress(LizaError, OSError):
        archive_old_runs(crew, directory.agent)
    return result


def _used(meter: Meter) -> TokenUsage | None:
    """Return what the session used, or None if its files cannot be read."""
    try:
        return meter.final_usage()
    except OSError:
        return None


def _save_screen(crew: Crew, directory: RunDir) -> None:
    """Save the terminal's screen: it is lost with the terminal, and it is more readable than the logged bytes.

    A tmux server that does not answer is ignored: it must not keep the end from being recorded.
    """
    with suppress(Refused):
        pane = tmux.find_pane(crew.paths.root, directory.run)
        if pane is not None and not directory.screen_path.exists():
            directory.write_screen(pane.capture(history=SCREEN_HISTORY_LINES))


def _classify_session(crew: Crew, directory: RunDir, preset: Preset) -> SessionResult:
    """Return the result by exit status, closing command, stop note, commits and output, in the order of the cases."""
    process_state = session_process.read_state(directory.path)
    stop_note = directory.read_stop()
    if isinstance(
        process_state, session_process.RunningSession | session_process.ShimStarting | session_process.NoSession
    ):
        return SessionResult(directory.run, "stopped", "its program was never started")
    stop_reason = stop_note.reason if stop_note else None
    failure = _find_model_failure(crew, directory, preset)
    has_committed, is_ready = _has_committed(crew, directory), directory.is_ready()
    match outcomes.classify_end(
        process_state, directory.closing_code(), preset.exit_codes, has_committed, stop_reason, failure, begun=is_ready
    ):
        case outcomes.Halted(why) if why.startswith(NO_PROGRESS_PREFIX):
            return SessionResult(directory.run, LOOPED, why)
        case outcomes.Halted(why) if why in outcomes.DELIBERATE_STOPS:
            return SessionResult(directory.run, "stopped" if why == STOP else "finished", why)
        case outcomes.UsageLimited() | outcomes.ModelRefused() | outcomes.NoModelAnswer() | outcomes.Halted() if (
            stop_note is not None and stop_note.model
        ):
            return _result_of_model_failure(directory.run, stop_note, failure)
        case outcomes.Completed():
            return SessionResult(directory.run, "finished", _last_output_lines(directory))
        case outcomes.HandedOff():
            return SessionResult(directory.run, "handed off", _last_output_lines(directory))
        case outcomes.UsageLimited(why, until):
            return SessionResult(directory.run, QUOTA, why, until)
        case outcomes.LostBeforeStart(why):
            return SessionResult(directory.run, HELD_UP, why)
        case outcomes.NoModelAnswer(why):
            return SessionResult(directory.run, UNANSWERED, why)
        case outcomes.NeverRan(why):
            return SessionResult(directory.run, UNUSABLE, why)
        case outcomes.ModelRefused(why):
            return SessionResult(directory.run, UNUSABLE, why, needs_person=True)
        case outcomes.Halted(why) if stop_note is not None and stop_note.unusable:
            return SessionResult(directory.run, UNUSABLE, why, needs_person=True)
        case outcomes.Halted(why) | outcomes.Crashed(why):
            last = _last_output_lines(directory)
            return SessionResult(directory.run, "crashed", why if why.endswith(last) else f"{why}. {last}")


def _result_of_model_failure(run: str, stop_note: StopNote, failure: ModelFailure | None) -> SessionResult:
    """Return the result of a session that its supervisor ended because its model gave no answer."""
    if stop_note.model == model_silence.LOGIN:
        return SessionResult(run, UNUSABLE, stop_note.reason, needs_person=True)
    if stop_note.model == model_silence.QUOTA:
        until = failure.until if failure is not None and failure.kind == model_silence.QUOTA else None
        return SessionResult(run, QUOTA, stop_note.reason, until)
    return SessionResult(run, UNANSWERED, stop_note.reason)


def _find_model_failure(crew: Crew, directory: RunDir, preset: Preset) -> ModelFailure | None:
    """Return the failure that the program's last output reports, or None.

    A time of day in the output is read in this machine's time zone.
    """
    output = directory.last_output() if directory.screen_path.exists() else directory.output_tail(OUTPUT_TAIL_BYTES)
    return find_failure(ModelSigns(preset.failures, preset.answers), output, crew.clock.now().astimezone())


def _append_usage(
    crew: Crew, directory: RunDir, record: RunRecord, result: SessionResult, used: TokenUsage | None
) -> None:
    """Append the session's usage to the ledger."""
    process_state = session_process.read_state(directory.path)
    ended = process_state.time if isinstance(process_state, session_process.EndedSession) else crew.clock.now()
    entry = LedgerEntry(
        run=record.run,
        time=ended,
        kind=record.kind,
        program=record.spec or record.program,
        outcome=result.kind,
        seconds=max(0.0, (ended - record.started).total_seconds()),
        task=record.task,
        sprint=crew.board.read().sprint.id,
        used=used,
    )
    ledger.append_entry(crew.paths, entry)


def _apply_postponement(directory: RunDir, result: SessionResult) -> SessionResult:
    """Return "held up" if the board or the disk made the closing command fail: not the session's fault."""
    note, stop_note = directory.read_postponed(), directory.read_stop()
    is_deliberate = stop_note is not None and stop_note.reason in outcomes.DELIBERATE_STOPS
    if note is None or not coding.is_end_postponed(result.kind, directory.closing_code(), is_deliberate):
        return result
    return SessionResult(directory.run, HELD_UP, f"liza {note.verb}: {note.reason}")


def _has_committed(crew: Crew, directory: RunDir) -> bool:
    """Whether the session made a commit."""
    record = trusted_record(crew, crew.board.read(), directory)
    if record is None or not record.worktree:
        return False
    slot = Path(record.worktree).name
    if crew.worktrees.exists(slot):
        return crew.worktrees.head_commit(slot) != record.commit
    # The slot or git's records of it were deleted: its commits are on the task's branch.
    tip = crew.worktrees.branch_tip(record.task) if record.kind == "work" and record.task else None
    return tip is not None and tip != record.commit


def _last_output_lines(directory: RunDir) -> str:
    """Return the last lines of the program's own output, without the brief that `liza ready` prints."""
    own = _BRIEF_END.split(directory.last_output())[-1]
    lines = list(transcript.extract_lines(own))
    return " / ".join(lines[-3:])[:400] or directory.unreadable() or "It printed nothing."


def _record_end(crew: Crew, record: RunRecord, result: SessionResult) -> None:
    now = crew.clock.now()
    state = crew.board.read()
    if record.kind == "planning":
        if state.planning.run == record.run:
            _record_planning_end(crew, record, result)
        return
    assert record.task is not None
    if record.kind == "review":
        _record_review_end(crew, record, result)
        return
    task = state.task(record.task)
    if task is None or task.run != record.run or task.status is not Status.CLAIMED:
        return
    with crew.change(record.agent, _EVENT_OF_KIND[result.kind], record.task) as tx:
        tx.state = (
            _record_work_end(crew, tx.state, record, result)
            if result.kind != "stopped"
            else claims.stop(tx.state, record.task, record.run, now)
        )


_EVENT_OF_KIND = {"crashed": "crash", "finished": "ended", "handed off": "ended", "stopped": STOP}
_EVENT_OF_KIND[LOOPED] = "ended"
_EVENT_OF_KIND |= {kind: kind for kind in UNCOUNTED_ENDS}


def _record_planning_end(crew: Crew, record: RunRecord, result: SessionResult) -> None:
    is_uncounted = result.kind in UNCOUNTED_ENDS
    with crew.change(record.agent, "planning held up" if is_uncounted else "planning over") as tx:
        transition = planning.undo_planning_claim if is_uncounted else planning.end_planning
        tx.state = transition(tx.state, record.run)


def _record_work_end(crew: Crew, state: State, record: RunRecord, result: SessionResult) -> State:
    assert record.task is not None
    moved = result.kind != LOOPED and _has_committed(crew, crew.run_dir(record.run))
    return coding.record_session_end(
        state,
        record.task,
        record.run,
        event=_EVENT_OF_KIND[result.kind],
        detail=result.reason,
        moved=moved,
        now=crew.clock.now(),
    )


def _record_review_end(crew: Crew, record: RunRecord, result: SessionResult) -> None:
    assert record.task is not None
    task = crew.board.read().task(record.task)
    if task is None or task.review_run != record.run:
        return
    now = crew.clock.now()
    with crew.change(record.agent, "release review", record.task) as tx:
        if result.kind == "stopped":
            tx.state = reviews.release_review(tx.state, record.task, record.run, now)
        elif result.kind in UNCOUNTED_ENDS:
            tx.state = reviews.release_review(tx.state, record.task, record.run, now, f"{result.kind}: {result.reason}")
        else:
            tx.state = reviews.end_review_without_verdict(tx.state, record.task, record.run, now, result.reason)
