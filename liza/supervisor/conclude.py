"""Conclude an ended session: record its result on the board once, and mark the run as concluded."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from liza.box import support
from liza.breaker.rules import board_reports
from liza.crew.crew import Crew
from liza.git import boxed_git
from liza.landing.submitted_requests import comment_return
from liza.model.errors import LizaError, Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import Anomaly, Clock, FailedCheck, State, Status
from liza.model.paths import Paths
from liza.model.session_ends import OUTCOME_RULES, STOP_RULES, Fault, SessionOutcome
from liza.model.setting_limits import BYPASS
from liza.model.statuses import SESSION_FAILED, StartupCheck, WorkKind
from liza.model.value_classes import replace
from liza.programs import liveness
from liza.programs.presets import preset_table
from liza.programs.presets.preset import Preset
from liza.programs.rules.session_events import (
    Failed,
    LoggedEvent,
    ModelText,
    find_last_failure,
    find_refused_calls,
    is_unread,
)
from liza.programs.session import log_file, outcomes, private_state, session_process
from liza.programs.session.failure_patterns import ModelFailure, ModelSigns, find_failure
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.terminal import tmux
from liza.recovery.run_cleanup import archive_old_runs
from liza.supervisor import foreign_review
from liza.supervisor.session_files import remove_worktree_files
from liza.system import crash_points
from liza.tasks import returned_work, task_branches
from liza.tasks.handoff import find_sprint_end
from liza.tasks.pause import is_at_own_checkpoint
from liza.tasks.rules import claims, coding, planning, reviews, strangers
from liza.text.quoting import quote_line
from liza.text.redaction import redact
from liza.usage import account_choice
from liza.usage.costs import record_usage, trusted_record
from liza.view import session_log

SCREEN_HISTORY_LINES = 2000  # lines of scroll-back that are saved besides the screen
LAST_LINES = 200  # lines of the output and of the conversation log in which the last words are searched
MAX_FAILURE = 500  # bytes of the reason of a failed session, on the board
OUTPUT_TAIL_BYTES = 64 << 10  # bytes: some programs print much text after the reason of their end
_UNWRITTEN_COMMIT = "fatal: failed to write commit object"
_BRIEF_END = re.compile(r"<!-- liza:end run=\S+ -->")


def conclude_session(
    crew: Crew, directory: RunDir, preset: Preset, environ: Mapping[str, str], notify: Callable[[str], None]
) -> SessionEnd:
    """Record the end of a session on the board and clean up after it. Idempotent: each step checks the present state.

    ``environ`` is the supervisor's own environment; ``notify`` prints notices.
    """
    record = trusted_record(crew, crew.board.read(), directory)
    _save_screen(crew.paths, directory)
    _import_commits(crew, record)
    crash_points.point("conclude", "imported")
    directory.write_question(None)
    directory.write_model_note(None)
    result = _apply_postponement(directory, _classify_session(crew, directory, preset))
    result = _apply_refused_conversation(crew, directory, record, result)
    session_process.stop(directory.path, directory.run, crew.paths.root, grace=0.0)
    crash_points.point("conclude", "stopped")
    crew.board.end_session(directory.run)
    if record is not None:
        private_state.collect_state(directory, record, preset, notify)
        remove_worktree_files(crew, record)
        crash_points.point("conclude", "brief-gone")
        # After the worktree's files: the recorded end releases the task, and another run may use the worktree then.
        _record_end(crew, record, result)
        crash_points.point("conclude", "recorded")
        if record.worktree and record.kind == WorkKind.WORK:
            returned_work.try_save(crew, Path(record.worktree).name, record.run)
        record_usage(crew, directory, record, preset, environ, result.outcome)
        _tell_author(crew, record, notify)
        _note_unread_output(crew, directory, preset)
    # Last: a supervisor that crashes before this line concludes the session again.
    directory.mark_concluded(f"{result.outcome}: {result.reason}")
    # A failure is harmless: the next concluded session or the next supervisor archives them.
    with suppress(LizaError, OSError):
        archive_old_runs(crew, directory.agent)
    return result


def _tell_author(crew: Crew, record: RunRecord, notify: Callable[[str], None]) -> None:
    """Comment on the pull request whose work this session rejected. A thread waits for the forge."""
    task = crew.board.read().task(record.task or "")
    last = task.history[-1] if task is not None and task.history else None
    is_returned = last is not None and last.event == HistoryEvent.REJECT and last.run == record.run
    if task is None or task.submission is None or not task.submission.request or not is_returned:
        return
    returned = task
    threading.Thread(target=lambda: notify(comment_return(crew, returned)), name="comment").start()


def _import_commits(crew: Crew, record: RunRecord | None) -> None:
    """Import what the session committed in its box. A failure is in the alert log: the end is recorded all the same."""
    if record is not None and record.worktree:
        # Only the name of the record's path is used: an agent can write any path into the record.
        task_branches.try_import(crew, Path(record.worktree).name, record.run)


def note_account_obstacle(
    crew: Crew, directory: RunDir, result: SessionEnd, environ: Mapping[str, str], notify: Callable[[str], None]
) -> bool:
    """Record what the end says about the session's account; return whether the account cannot be used now."""
    now, first = crew.clock.now(), crew.board.read().config.restart_after_crash
    try:
        obstacle = account_choice.record_session_end(directory, result, environ, now, first)
    except (LizaError, OSError) as error:
        notify(f"! what the session says about its account was not recorded: {error}")
        return False
    if obstacle is None:
        return False
    notify(f"! {obstacle.text} (next: {obstacle.next})")
    if obstacle.needs_person:
        crew.append_alert_log([f"account  {obstacle.text}. Next: {obstacle.next}"])
    return True


def _save_screen(paths: Paths, directory: RunDir) -> None:
    """Save the terminal's screen: it is lost with the terminal, and it is more readable than the logged bytes.

    A tmux server that does not answer is ignored: it must not keep the end from being recorded.
    """
    with suppress(Refused):
        pane = tmux.find_pane(paths.root, directory.run)
        if pane is not None and not directory.screen_path.exists():
            directory.write_screen(pane.capture(history=SCREEN_HISTORY_LINES))


def _classify_session(crew: Crew, directory: RunDir, preset: Preset) -> SessionEnd:
    """Return how the session ended, by exit status, closing code, stop note, commits and output."""
    process_state = liveness.read_state(directory.path)
    if isinstance(process_state, liveness.RunningSession | liveness.ShimStarting | liveness.NoSession):
        return SessionEnd(SessionOutcome.STOPPED, "its program was never started")
    end = outcomes.classify_end(
        process_state,
        directory.closing_code(),
        preset.exit_codes,
        _has_committed(crew, directory),
        directory.read_stop(),
        _find_model_failure(crew.clock, directory, preset),
        begun=directory.is_ready(),
    )
    if end.outcome is not SessionOutcome.CRASHED and end.reason:
        return end
    last = _describe_last_words(crew, directory, preset)
    if _UNWRITTEN_COMMIT in last and boxed_git.is_signing(crew.git):
        last = f"its git could not sign a commit; next: liza doctor. {last}"
    if not end.reason:
        return replace(end, reason=last)
    return end if end.reason.endswith(last) else replace(end, reason=f"{end.reason}. {last}")


def _find_model_failure(clock: Clock, directory: RunDir, preset: Preset) -> ModelFailure | None:
    """Return the failure that the program's last output reports, or None.

    A time of day in the output is read in this machine's time zone.
    """
    output = directory.last_output() if directory.screen_path.exists() else directory.output_tail(OUTPUT_TAIL_BYTES)
    return find_failure(ModelSigns(preset.failures, preset.answers), output, clock.now().astimezone())


def _note_unread_output(crew: Crew, directory: RunDir, preset: Preset) -> None:
    """Record in the alert log that no event of a session is known, with the version of its program."""
    if is_unread(_read_last_events(crew, directory)):
        version = preset_table.read_version(preset)
        name = preset.name if version in (None, "present") else f"{preset.name} {version}"
        text = f"no event in the output of {directory.run} has a known form: {name} has changed it"
        crew.append_alert_log([f"output_unread  {text}. Next: liza logs {directory.run} --raw"])


def _apply_postponement(directory: RunDir, result: SessionEnd) -> SessionEnd:
    """Return HELD_UP if the board or the disk made the closing command fail: not the session's fault."""
    note, stop_note = directory.read_postponed(), directory.read_stop()
    is_deliberate = stop_note is not None and STOP_RULES[stop_note.kind].deliberate
    if note is None or not coding.is_end_postponed(result.outcome, directory.closing_code(), is_deliberate):
        return result
    return SessionEnd(SessionOutcome.HELD_UP, f"liza {note.verb}: {note.reason}")


def _apply_refused_conversation(
    crew: Crew, directory: RunDir, record: RunRecord | None, result: SessionEnd
) -> SessionEnd:
    """Return HELD_UP if the program failed before it resumed its conversation. The next session begins a new one.

    A sidecar begins a new conversation by itself.
    """
    if record is None or record.continues is None or result.outcome is not SessionOutcome.CRASHED:
        return result
    if directory.has_sidecar():
        return result
    if directory.read_stop() is not None or any(directory.read_activity()) or _has_committed(crew, directory):
        return result
    text = f"the conversation of {record.continues} could not be resumed: {result.reason}"
    return SessionEnd(SessionOutcome.HELD_UP, text)


def _has_committed(crew: Crew, directory: RunDir) -> bool:
    """Whether the session made a commit."""
    record = trusted_record(crew, crew.board.read(), directory)
    if record is None or not record.worktree:
        return False
    slot = Path(record.worktree).name
    if crew.worktrees.exists(slot):
        return crew.worktrees.head_commit(slot) != record.commit
    # The slot or git's records of it were deleted: its commits are on the task's branch.
    tip = crew.worktrees.branch_tip(record.task) if record.kind == WorkKind.WORK and record.task else None
    return tip is not None and tip != record.commit


def _describe_last_words(crew: Crew, directory: RunDir, preset: Preset) -> str:
    """Return why the session may have ended without a result: refused commands; else its last command, if that failed,
    and the last lines of its output. Without secrets: the text is written to files and to the terminal.

    The brief that `liza ready` prints is no such line, nor what the program says of itself.
    """
    events = _read_last_events(crew, directory)
    refused = find_refused_calls(events)
    if refused:
        last = refused[-1]
        number = "a command" if len(refused) == 1 else f"{len(refused)} commands; the last"
        allow = (
            ""
            if support.session_permissions(crew.board.read().config) == BYPASS
            else " (liza config set permissions bypass allows all)"
        )
        # First what a person needs: texts are cut where they are shown.
        return f"{preset.name} refused {number}{allow}: `{_quote(last.what, 60)}`: {_quote(last.reason, 100)}"
    failure = find_last_failure(events)
    spoken = "\n".join(entry.event.text for entry in events if isinstance(entry.event, ModelText | Failed))
    own = spoken or _BRIEF_END.split(directory.last_output())[-1]
    words = (
        " / ".join(list(log_file.extract_lines(redact(own)))[-3:])[:400]
        or directory.unreadable()
        or "It printed nothing."
    )
    if failure is None:
        return words
    cause = f"`{_quote(failure.what, 60)}` failed: {_quote(failure.reason, 100)}"
    return f"{cause} (liza logs {directory.run}). {words}"


def _quote(text: str, limit: int) -> str:
    """Return a text in one line without secrets. They are found before the cut: a part of one is not recognised."""
    return quote_line(redact(text), limit)


def _read_last_events(crew: Crew, directory: RunDir) -> list[LoggedEvent]:
    """Return the last events of the session; none if its program's output and log have no known format."""
    with suppress(LizaError, OSError):
        if session_log.find_row(crew, directory.run) is not None:
            return session_log.read_recent(crew, [directory.run], LAST_LINES, None)[0]
    return []


def _record_end(crew: Crew, record: RunRecord, result: SessionEnd) -> None:
    now = crew.clock.now()
    state = crew.board.read()
    if record.kind == WorkKind.PLANNING:
        if state.planning.run == record.run:
            _record_planning_end(crew, record, result)
        return
    assert record.task is not None
    if record.kind == WorkKind.REVIEW:
        _record_review_end(crew, record, result)
        return
    task = state.task(record.task)
    if task is None or task.run != record.run or task.status is not Status.CLAIMED:
        return
    failed = _find_failed_start(crew, record, result)
    with crew.change(record.agent, OUTCOME_RULES[result.outcome].event, record.task) as tx:
        noted = tx.state if failed is None else coding.note_failed_check(tx.state, record.task, failed)
        noted = _report_failure(crew.clock, noted, record, result)
        tx.state = (
            _record_work_end(crew, noted, record, result)
            if result.outcome is not SessionOutcome.STOPPED
            else claims.stop(noted, record.task, record.run, now)
        )


def _find_failed_start(crew: Crew, record: RunRecord, result: SessionEnd) -> FailedCheck | None:
    """Return the failed start of a session that crashed before it had read its brief; None for other ends."""
    if result.outcome is not SessionOutcome.CRASHED or crew.run_dir(record.run).is_ready():
        return None
    return FailedCheck(
        time=crew.clock.now(),
        run=record.run,
        check=StartupCheck.SESSION,
        expected="the session reads its brief",
        actual=result.reason,
    )


def _report_failure(clock: Clock, state: State, record: RunRecord, result: SessionEnd) -> State:
    """Return the board with an anomaly for a session that says itself that it failed. Once for each cause.

    A session that was killed or stopped has none: its end says nothing about the work.
    """
    if not result.is_own_failure:
        return state
    text = quote_line(result.reason, MAX_FAILURE)
    failed = Anomaly(
        timestamp=clock.now(), task=record.task, reporter=record.run, type=SESSION_FAILED, details={"text": text}
    )
    return board_reports.add_failed_session(state, failed)


def _is_uncounted(outcome: SessionOutcome) -> bool:
    """Return whether the end counts against nothing: neither the session nor a person caused it."""
    return OUTCOME_RULES[outcome].fault is Fault.NONE and outcome is not SessionOutcome.STOPPED


def _record_planning_end(crew: Crew, record: RunRecord, result: SessionEnd) -> None:
    is_uncounted = _is_uncounted(result.outcome)
    end = None if is_uncounted else find_sprint_end(crew)
    with crew.change(record.agent, "planning held up" if is_uncounted else "planning over") as tx:
        if is_uncounted:
            tx.state = planning.undo_planning_claim(tx.state, record.run)
        else:
            reported = _report_failure(crew.clock, tx.state, record, result)
            is_asking = is_at_own_checkpoint(crew.board, record.agent)
            tx.state = (
                planning.end_at_checkpoint(reported, record.run)
                if is_asking
                else planning.end_planning(reported, record.run, end)
            )


def _record_work_end(crew: Crew, state: State, record: RunRecord, result: SessionEnd) -> State:
    assert record.task is not None
    moved = result.outcome is not SessionOutcome.LOOPED and _has_committed(crew, crew.run_dir(record.run))
    return coding.record_session_end(
        state,
        record.task,
        record.run,
        outcome=result.outcome,
        detail=result.reason,
        moved=moved,
        now=crew.clock.now(),
    )


def _record_review_end(crew: Crew, record: RunRecord, result: SessionEnd) -> None:
    assert record.task is not None
    task = crew.board.read().task(record.task)
    if task is None or task.review_run != record.run:
        return
    now = crew.clock.now()
    failed = _find_failed_start(crew, record, result)
    counts = result.outcome is not SessionOutcome.STOPPED and not _is_uncounted(result.outcome)
    if counts and strangers.is_foreign(task):
        _record_opinion(crew, record, result)
        return
    with crew.change(record.agent, "release review", record.task) as tx:
        if failed is not None:
            tx.state = coding.note_failed_check(tx.state, record.task, failed)
        if result.outcome is SessionOutcome.STOPPED:
            tx.state = reviews.release_review(tx.state, record.task, record.run, now)
        elif _is_uncounted(result.outcome):
            why = f"{result.outcome}: {result.reason}"
            tx.state = reviews.release_review(tx.state, record.task, record.run, now, why)
        else:
            reported = _report_failure(crew.clock, tx.state, record, result)
            tx.state = reviews.end_review_without_verdict(reported, record.task, record.run, now, result.reason)


def _record_opinion(crew: Crew, record: RunRecord, result: SessionEnd) -> None:
    """Record what a program without tools wrote about a stranger's commit, or why it wrote nothing."""
    assert record.task is not None
    directory, events = crew.run_dir(record.run), _read_last_events(crew, crew.run_dir(record.run))
    is_over = result.outcome is SessionOutcome.FINISHED
    has_events = session_log.find_row(crew, record.run) is not None
    opinion = foreign_review.read_opinion(directory, events, has_events=has_events) if is_over else ""
    reason = result.reason or "it wrote nothing"
    with crew.change(record.agent, "release review", record.task) as tx:
        now = crew.clock.now()
        if opinion:
            tx.state = strangers.record_opinion(tx.state, record.task, record.run, opinion, now)
        else:
            tx.state = strangers.end_without_opinion(tx.state, record.task, record.run, reason, now)
