"""Findings of `liza doctor`: what crashed processes or people's edits left of a crew. Changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

from liza.api import api_server
from liza.api.api_server import ServerFailure, ServerReport
from liza.briefs import inbox
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew import recorder
from liza.crew.crew import Crew
from liza.git import board_history, checkout_moves, integration_tip, notes_ref, slot_records
from liza.git.rules.note_commits import NOTES_REF
from liza.git.runner import Git
from liza.guards import guard_files
from liza.guards.rules.guard_rules import GUARDS_TOML
from liza.merging import board_term, drift, gate_log, merge_lock, statement_writer
from liza.merging.rules import merge_alarms
from liza.model.alarm_table import AlarmKind
from liza.model.errors import Finding, GitFailed, LizaError
from liza.model.model import State, Task
from liza.model.paths import HISTORY_REF, Paths, run_id
from liza.model.value_classes import asdict as fields_of
from liza.programs import liveness
from liza.recovery import recover
from liza.system import installation
from liza.tasks.rules import picking
from liza.tasks.rules.up_command import up_command_for
from liza.text.formats import count_noun

ACTOR = "doctor"
FIX_COMMAND = "liza doctor --fix"


def list_findings(crew: Crew, state: State) -> Iterator[Finding]:
    """Yield what prevents the crew from working, or was lost. A failed check is a finding, too."""
    for about, check in _CHECKS:
        try:
            yield from check(crew, state)
        except LizaError as error:
            yield Finding(about, error.message, False, error.hint)
        except OSError as error:
            yield Finding(
                about, f"it cannot be checked: {error}", False, shlex.join(["ls", "-l", str(crew.paths.liza)])
            )


def _check_integration(crew: Crew, state: State) -> Iterator[Finding]:
    drift_now = drift.detect_drift(crew, state)
    tip = integration_tip.require_integration(crew.git, state)
    if drift_now.moved is not None:
        yield Finding("branch", drift_now.moved, not drift_now.lost, drift_now.ways)
    else:
        yield Finding("branch", f"{state.config.integration_branch} at {tip[:12]}")


def _check_slots_directory(crew: Crew, state: State) -> Iterator[Finding]:
    directory = crew.paths.slots
    slot_records.refuse_links(directory)
    if crew.moved_reason is not None:
        yield Finding("worktrees", crew.moved_reason, False, "liza down")
    else:
        yield Finding("worktrees", f"{directory}{'' if directory.is_dir() else ', created when needed'}")


def _check_settings(crew: Crew, state: State) -> Iterator[Finding]:
    for key in crew.board.unknown_config():
        yield Finding("board", settings.describe_unknown_key(key), True, "liza edit")
    unconfirmed = confirmed_settings.find_unconfirmed(crew.paths, crew.board.read_as_written())
    for _, message, command in settings.describe_unconfirmed(unconfirmed):
        yield Finding("settings", message, True, command)


def _check_claims(crew: Crew, state: State) -> Iterator[Finding]:
    for task in state.tasks:
        if task.reservation is not None:
            yield Finding("claim", f"{task.id} is reserved as {task.reservation.run}", True, FIX_COMMAND)
    for task in recover.claims_without_worktree(crew, ACTOR):
        yield Finding("claim", _missing_worktree_text(crew.paths, task), True, FIX_COMMAND)
    for task in recover.reviews_without_worktree(crew, ACTOR):
        text = f"{task.id} is under review as {task.review_run}, and the reviewer's worktree is not there"
        yield Finding("claim", text, True, FIX_COMMAND)


def _missing_worktree_text(paths: Paths, task: Task) -> str:
    """Say whether the worktree of a claimed task is gone, or incomplete, or only its link is gone."""
    worktree, link = paths.slot(str(task.worktree)), paths.task_link(task.id)
    if not worktree.is_dir():
        reason = f"its worktree {worktree} is gone"
    elif not link.is_symlink():
        reason = f"{link}, the link to its worktree {worktree}, is gone"
    else:
        reason = f"its worktree {worktree} is not complete"
    return f"{task.id} is claimed as {task.run}, and {reason}"


def _check_evidence(crew: Crew, state: State) -> Iterator[Finding]:
    runs, noted = gate_log.read_runs(crew.paths), notes_ref.list_notes(crew.git)
    missing = statement_writer.find_missing(crew, state, (), runs, noted)
    if not missing:
        return
    failure = statement_writer.read_failure(crew.paths)
    reason = "" if failure is None else f": {failure.reason}"
    text = f"{count_noun(len(missing), 'landed commit')} without a statement at {NOTES_REF}{reason}"
    yield Finding("evidence", text, True, FIX_COMMAND)


def _check_merges(crew: Crew, state: State) -> Iterator[Finding]:
    blocker = merge_lock.find_merge_blocker(crew, state)
    if blocker is not None:
        alarm = AlarmKind.MERGE_LOCK_HELD.alarm("merge", **fields_of(blocker))
        yield Finding("merge", alarm.message, False, alarm.next)
    # The lock is only checked: to hold it would refuse a merger. A merge that began or ended meanwhile is no leftover.
    if merge_lock.is_merger_running(crew.paths) or board_term.merges_elsewhere(crew):
        return
    is_move_unfinished, unfinished = checkout_moves.has_unfinished_move(crew.git), _find_unfinished(crew.board.read())
    if merge_lock.is_merger_running(crew.paths):
        return
    if is_move_unfinished:
        yield Finding("merge", "a killed merge has updated only some files of a checkout", True, FIX_COMMAND)
    for task in state.tasks:
        if task.id in unfinished:
            yield Finding("merge", f"{task.id} was being merged, and its merger died", True, FIX_COMMAND)
        for alarm in merge_alarms.retry_alarms(task, crew.clock.now()):
            yield Finding("merge", alarm.message, False, alarm.next)


def _find_unfinished(state: State) -> set[str]:
    return {task.id for task in state.tasks if recover.is_merge_unfinished(task)}


def _check_supervisors(crew: Crew, state: State) -> Iterator[Finding]:
    """Yield agents with work and no supervisor. An agent without a run directory is a person."""
    for name, agent in state.agents.items():
        if not agent.runs or crew.is_supervised(name):
            continue
        directory, holds = crew.run_dir(run_id(name, agent.runs)), picking.occupation(state, name)
        if directory.exists() and liveness.is_session_living(directory):
            message = f"its session {directory.run} lives on without a supervisor"
            yield Finding(name, message, True, up_command_for(state, name))
        elif directory.exists() and holds:
            yield Finding(name, f"it holds {holds}, and no supervisor runs", True, up_command_for(state, name))


def _check_history(crew: Crew, state: State) -> Iterator[Finding]:
    """Yield revisions that are lost: not in the history, and before the mark of the journal."""
    if crew.is_on_server:
        return
    conflict = recorder.read_conflict(crew)
    if conflict is not None:
        yield Finding("history", conflict.message, False, conflict.hint)
        return
    recorded = board_history.list_revisions(crew.git, None, 1)
    newest = recorded[0].revision if recorded else 0
    if newest >= state.revision:
        return
    records = crew.board.records()
    # From the end: the journal of an old crew has far more revisions than the history lacks.
    journaled = {record.revision for record in takewhile(lambda record: record.revision > newest, records)}
    kept = {record.revision for record in recorder.list_waiting(crew)}
    missing = sorted(revision for revision in {*journaled, state.revision} - kept if revision <= state.revision)
    if not missing:
        return
    loss = f"is gone: revisions up to {missing[-1]}" if newest == 0 else f"ends at {newest}: {_format_range(missing)}"
    lost = find_lost_revision(crew.git, newest, state.revision)
    message = f"{HISTORY_REF} {loss} are lost; new revisions are recorded"
    if lost is None:
        yield Finding("history", message)
        return
    message += f"; git still has the commit of revision {lost[0]}: git log -p {lost[1][:12]}"
    yield Finding("history", message, True, f"git update-ref {HISTORY_REF} {lost[1]}")


def _check_archive(crew: Crew, state: State) -> Iterator[Finding]:
    damage = crew.board.find_archive_damage(state)
    if damage is not None:
        yield Finding("archive", f".liza/{damage.entry}: {damage.actual}", False, damage.next)


def _check_inboxes(crew: Crew, state: State) -> Iterator[Finding]:
    for agent in state.agents:
        for error in inbox.list_unreadable(crew.paths, agent):
            yield Finding(agent, f"in its inbox: {error.message}", True, error.hint)


def _check_journal(crew: Crew, state: State) -> Iterator[Finding]:
    record = next(crew.board.records(), None)
    if record is None:
        message = "is gone, or has no entry"
    elif record.revision < state.revision:
        message = f"ends at revision {record.revision}, before the board's {state.revision}"
    else:
        return
    yield Finding(
        "journal", f"{crew.paths.journal.name} {message}; the next change is recorded in it", True, "liza history"
    )


def _format_range(revisions: list[int]) -> str:
    first, last = revisions[0], revisions[-1]
    return f"revision {first}" if first == last else f"revisions {first} to {last}"


def _check_guards(crew: Crew, _: State) -> Iterator[Finding]:
    """Raise the error of the project's guard file: no session starts with it."""
    if (crew.paths.liza / GUARDS_TOML).exists():
        guard_files.load_guards(crew.paths, Path.home())
    yield from ()


def _check_server(crew: Crew, state: State) -> Iterator[Finding]:
    missing = api_server.missing_packages()
    server = api_server.describe(crew)
    if missing:
        text = f"the worker API cannot be served: {', '.join(missing)} is not installed; all else works"
        yield Finding("api", text, True, installation.install_command(*missing))
    elif server.error:
        yield Finding("api", f"whether the worker API is served is not known: {server.error}", True, "ls -l .liza")
    elif server.running:
        yield from _check_running_server(crew, server)
    elif server.failure:
        yield _failed_server(server.failure)
    elif server.expected:
        yield Finding("api", "the worker API is not served now; agents that need it wait", True, "liza serve")


def _check_running_server(crew: Crew, server: ServerReport) -> Iterator[Finding]:
    fault = api_server.find_fault(crew.paths, server.pid)
    if fault is not None:
        yield Finding("api", fault[0], False, fault[1])
    else:
        yield Finding("api", f"served at {crew.paths.api_socket} and 127.0.0.1:{server.port}")


def _failed_server(failure: ServerFailure) -> Finding:
    times = count_noun(failure.count, "start")
    text = f"the worker API is not served, {times} failed, all else works: {failure.reason}"
    return Finding("api", text, True, failure.next)


_CHECKS: tuple[tuple[str, Callable[[Crew, State], Iterator[Finding]]], ...] = (
    ("branch", _check_integration),
    ("worktrees", _check_slots_directory),
    ("board", _check_settings),
    ("claim", _check_claims),
    ("merge", _check_merges),
    ("evidence", _check_evidence),
    ("agents", _check_supervisors),
    ("guards", _check_guards),
    ("inbox", _check_inboxes),
    ("history", _check_history),
    ("archive", _check_archive),
    ("journal", _check_journal),
    ("api", _check_server),
)


_TRAILER = "%(trailers:key=Liza-Revision,valueonly,separator=%x2C)"
_SEARCH_LIMIT = 60.0  # seconds: git fsck reads every object


def find_lost_revision(git: Git, newest: int, last: int) -> tuple[int, str] | None:
    """Return the last lost revision above ``newest`` and up to ``last``, and its commit; None if git has none.

    It continues the present history, if there is one. None also if git cannot search in time.
    """
    try:
        output = git.out("fsck", "--no-reflogs", "--connectivity-only", "--no-progress", timeout=_SEARCH_LIMIT)
        dangling = [line.split()[2] for line in output.splitlines() if line.startswith("dangling commit ")]
        revisions = _read_revisions(git, dangling)
    except GitFailed:
        return None
    for revision, commit in sorted(revisions, reverse=True):
        if newest < revision <= last and (not newest or git.ok("merge-base", "--is-ancestor", HISTORY_REF, commit)):
            return revision, commit
    return None


def _read_revisions(git: Git, commits: list[str]) -> list[tuple[int, str]]:
    """Return the revision and the name of each commit that is a revision of a board. Raises GitFailed."""
    if not commits:
        return []
    rows = git.out("log", "--no-walk", "--stdin", f"--format=%H {_TRAILER}", stdin="\n".join(commits) + "\n")
    fields = [row.split() for row in rows.splitlines()]
    return [(int(row[1]), row[0]) for row in fields if len(row) == 2 and row[1].isdecimal()]
