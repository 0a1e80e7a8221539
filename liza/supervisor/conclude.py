"""The session is over: say on the board what came of it, once, and leave the run settled."""

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
"""What came of a session that made no progress and was ended for it."""
SCREEN_HISTORY_LINES = 2000  # lines of a terminal that are kept besides those on its screen
OUTPUT_TAIL_BYTES = 64 << 10  # bytes: some programs print much after what tells why they end
_BRIEF_END = re.compile(r"<!-- liza:end run=\S+ -->")


@dataclass(frozen=True)
class SessionResult:
    """What came of a session: ``kind`` is finished, handed off, crashed, looped, stopped, held up, quota,
    unanswered or unusable.

    ``why`` is a sentence, ``until`` when a limit of use is over, where that was said. ``by_hand``: a person has to
    start the program once, and to answer it or log in.
    """

    run: str
    kind: str
    reason: str
    retry_at: datetime | None = None
    needs_person: bool = False


def conclude_session(crew: Crew, directory: RunDir, preset: Preset, environ: Mapping[str, str]) -> SessionResult:
    """Carry the end of a session onto the board. Repeatable: every step judges what is there. ``environ`` is the
    supervisor's own."""
    record = trusted_record(crew, crew.board.read(), directory)
    _save_screen(crew, directory)
    directory.write_question(None)
    directory.write_model_note(None)
    came = _apply_postponement(directory, _classify_session(crew, directory, preset))
    session_process.stop(directory.path, directory.run, crew.paths.root, grace=0.0)
    crash_points.point("settle", "stopped")
    if record is not None:
        remove_worktree_files(crew, record)
        crash_points.point("settle", "brief-gone")
        _record_end(crew, record, came)
        crash_points.point("settle", "told")
        meter = Meter(preset, directory, record.started, environ, crew.clock.monotonic)
        _append_usage(crew, directory, record, came, _used(meter))
    directory.mark_concluded(f"{came.kind}: {came.reason}")
    # In nobody's way if it fails: the next end, or the next supervisor, does it.
    with suppress(LizaError, OSError):
        archive_old_runs(crew, directory.agent)
    return came


def _used(meter: Meter) -> TokenUsage | None:
    """What the session used; nobody knows where its files cannot be read, of which its end tells."""
    try:
        return meter.final_usage()
    except OSError:
        return None


def _save_screen(crew: Crew, directory: RunDir) -> None:
    """What the terminal shows is gone with it, and says more than the bytes that drew it. A server that does not answer
    keeps no end from being told."""
    with suppress(Refused):
        pane = tmux.find_pane(crew.paths.root, directory.run)
        if pane is not None and not directory.screen_path.exists():
            directory.write_screen(pane.capture(history=SCREEN_HISTORY_LINES))


def _classify_session(crew: Crew, directory: RunDir, preset: Preset) -> SessionResult:
    found = session_process.read_state(directory.path)
    halt = directory.read_stop()
    if isinstance(found, session_process.RunningSession | session_process.ShimStarting | session_process.NoSession):
        return SessionResult(directory.run, "stopped", "its program was never started")
    reason = halt.reason if halt else None
    found_trouble = _find_model_failure(crew, directory, preset)
    moved, begun = _has_committed(crew, directory), directory.is_ready()
    match outcomes.classify_end(
        found, directory.closing_code(), preset.exit_codes, moved, reason, found_trouble, begun=begun
    ):
        case outcomes.Halted(why) if why.startswith(NO_PROGRESS_PREFIX):
            return SessionResult(directory.run, LOOPED, why)
        case outcomes.Halted(why) if why in outcomes.DELIBERATE_STOPS:
            return SessionResult(directory.run, "stopped" if why == STOP else "finished", why)
        case outcomes.UsageLimited() | outcomes.ModelRefused() | outcomes.NoModelAnswer() | outcomes.Halted() if (
            halt is not None and halt.model
        ):
            return _result_of_model_failure(directory.run, halt, found_trouble)
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
        case outcomes.Halted(why) if halt is not None and halt.unusable:
            return SessionResult(directory.run, UNUSABLE, why, needs_person=True)
        case outcomes.Halted(why) | outcomes.Crashed(why):
            last = _last_output_lines(directory)
            return SessionResult(directory.run, "crashed", why if why.endswith(last) else f"{why}. {last}")


def _result_of_model_failure(run: str, halt: StopNote, said: ModelFailure | None) -> SessionResult:
    """What came of a session that its supervisor ended because its model gave no answer."""
    if halt.model == model_silence.LOGIN:
        return SessionResult(run, UNUSABLE, halt.reason, needs_person=True)
    if halt.model == model_silence.QUOTA:
        until = said.until if said is not None and said.kind == model_silence.QUOTA else None
        return SessionResult(run, QUOTA, halt.reason, until)
    return SessionResult(run, UNANSWERED, halt.reason)


def _find_model_failure(crew: Crew, directory: RunDir, preset: Preset) -> ModelFailure | None:
    """What the program's last words say that kept its model from answering; a time of day is one of this machine's."""
    said = directory.last_output() if directory.screen_path.exists() else directory.output_tail(OUTPUT_TAIL_BYTES)
    return find_failure(ModelSigns(preset.failures, preset.answers), said, crew.clock.now().astimezone())


def _append_usage(
    crew: Crew, directory: RunDir, record: RunRecord, came: SessionResult, used: TokenUsage | None
) -> None:
    """What the session used, in the ledger."""
    found = session_process.read_state(directory.path)
    over = found.time if isinstance(found, session_process.EndedSession) else crew.clock.now()
    spent = LedgerEntry(
        run=record.run,
        time=over,
        kind=record.kind,
        program=record.spec or record.program,
        outcome=came.kind,
        seconds=max(0.0, (over - record.started).total_seconds()),
        task=record.task,
        sprint=crew.board.read().sprint.id,
        used=used,
    )
    ledger.append_entry(crew.paths, spent)


def _apply_postponement(directory: RunDir, came: SessionResult) -> SessionResult:
    """What came of a session that could not say its word for the board's or the disk's sake is not its own fault."""
    note, halt = directory.read_postponed(), directory.read_stop()
    on_purpose = halt is not None and halt.reason in outcomes.DELIBERATE_STOPS
    if note is None or not coding.is_end_postponed(came.kind, directory.closing_code(), on_purpose):
        return came
    return SessionResult(directory.run, HELD_UP, f"liza {note.verb}: {note.reason}")


def _has_committed(crew: Crew, directory: RunDir) -> bool:
    """Whether the session made a commit."""
    record = trusted_record(crew, crew.board.read(), directory)
    if record is None or not record.worktree:
        return False
    slot = Path(record.worktree).name
    if crew.worktrees.exists(slot):
        return crew.worktrees.head_commit(slot) != record.commit
    # The slot was destroyed, or git's records of it: what was committed in it is on the branch.
    tip = crew.worktrees.branch_tip(record.task) if record.kind == "work" and record.task else None
    return tip is not None and tip != record.commit


def _last_output_lines(directory: RunDir) -> str:
    """What the program itself said last. `liza ready` prints the brief into the same log; that explains nothing."""
    own = _BRIEF_END.split(directory.last_output())[-1]
    lines = list(transcript.extract_lines(own))
    return " / ".join(lines[-3:])[:400] or directory.unreadable() or "It said nothing."


def _record_end(crew: Crew, record: RunRecord, came: SessionResult) -> None:
    now = crew.clock.now()
    state = crew.board.read()
    if record.kind == "planning":
        if state.planning.run == record.run:
            _record_planning_end(crew, record, came)
        return
    assert record.task is not None
    if record.kind == "review":
        _record_review_end(crew, record, came)
        return
    task = state.task(record.task)
    if task is None or task.run != record.run or task.status is not Status.CLAIMED:
        return
    with crew.change(record.agent, _EVENT_OF_KIND[came.kind], record.task) as tx:
        tx.state = (
            _record_work_end(crew, tx.state, record, came)
            if came.kind != "stopped"
            else claims.stop(tx.state, record.task, record.run, now)
        )


_EVENT_OF_KIND = {"crashed": "crash", "finished": "ended", "handed off": "ended", "stopped": STOP}
_EVENT_OF_KIND[LOOPED] = "ended"
_EVENT_OF_KIND |= {kind: kind for kind in UNCOUNTED_ENDS}


def _record_planning_end(crew: Crew, record: RunRecord, came: SessionResult) -> None:
    held_up = came.kind in UNCOUNTED_ENDS
    with crew.change(record.agent, "planning held up" if held_up else "planning over") as tx:
        after = planning.undo_planning_claim if held_up else planning.end_planning
        tx.state = after(tx.state, record.run)


def _record_work_end(crew: Crew, state: State, record: RunRecord, came: SessionResult) -> State:
    assert record.task is not None
    moved = came.kind != LOOPED and _has_committed(crew, crew.run_dir(record.run))
    return coding.record_session_end(
        state,
        record.task,
        record.run,
        event=_EVENT_OF_KIND[came.kind],
        detail=came.reason,
        moved=moved,
        now=crew.clock.now(),
    )


def _record_review_end(crew: Crew, record: RunRecord, came: SessionResult) -> None:
    assert record.task is not None
    task = crew.board.read().task(record.task)
    if task is None or task.review_run != record.run:
        return
    now = crew.clock.now()
    with crew.change(record.agent, "release review", record.task) as tx:
        if came.kind == "stopped":
            tx.state = reviews.release_review(tx.state, record.task, record.run, now)
        elif came.kind in UNCOUNTED_ENDS:
            tx.state = reviews.release_review(tx.state, record.task, record.run, now, f"{came.kind}: {came.reason}")
        else:
            tx.state = reviews.end_review_without_verdict(tx.state, record.task, record.run, now, came.reason)
