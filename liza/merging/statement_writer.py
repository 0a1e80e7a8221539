"""Write what is known about landed commits to ``refs/notes/liza``, after they have landed.

A commit has landed when a branch of the crew has it: the merge of a task, of an epic, of a sync, or an undo. Which of
them have no note yet is found out from the board and from git, so the process after a killed one completes it.
Nothing here fails or delays a merge: it is published, and its lock is free.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from liza import __version__
from liza.crew.crew import Crew
from liza.git import git_refs, notes_ref
from liza.git.git_remote import GitRemote
from liza.git.rules.note_commits import NOTES_REF
from liza.git.runner import Git
from liza.merging import gate_log
from liza.merging.rules import statements
from liza.merging.rules.statements import StatedLanding, TaskFacts, commit_resource
from liza.model import targets
from liza.model.errors import LizaError, NotRegularFile
from liza.model.gates import GateOutcome, GateRun, last_gate_runs
from liza.model.model import State, Status, Task
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry
from liza.model.tested import describe_tested
from liza.model.value_classes import AwareDatetime, FrozenStruct, Value
from liza.programs.session.run_directory import RunDir, read_struct
from liza.system import atomic, untrusted_files
from liza.system.locks import Lock
from liza.tasks import shared_code
from liza.text.redaction import redact
from liza.usage import costs

SYNC_SUBJECT: Final = "sync"
"""The subject of the runs of gates on the merge of a person's branch."""
RETRY_AFTER: Final = 3600.0
"""Seconds after a failure in which nothing tries again by itself: a program for keys may ask a person each time."""
_LOCK_LIMIT = 30.0  # seconds; git needs milliseconds, and a key at most notes_ref.SIGN_LIMIT
_MAX_BATCHES = 50  # candidates of several tasks among which that of a task is looked for
_MAX_LANDED = 10_000  # first-parent commits of integration that one landing may have brought
_MAX_COMMITS = 500  # commits of a task whose trailers are read


class UnwrittenEvidence(FrozenStruct, frozen=True, kw_only=True):
    """Why statements could not be written last, and the command ``next``."""

    time: AwareDatetime
    reason: str
    next: str


class _Landed(Value):
    """A commit without a note. Either it is the merge of ``task``, or ``record`` says what it brought."""

    commit: str
    task: Task | None = None
    record: StatedLanding | None = None


def complete_quietly(crew: Crew) -> int:
    """Write the missing notes, as after a merge; return how many. A failure is an alarm until a later call, a landing
    or `liza doctor --fix` repairs it."""
    failure = read_failure(crew.paths)
    if failure is not None and 0 <= (crew.clock.now() - failure.time).total_seconds() < RETRY_AFTER:
        return 0
    with suppress(LizaError, OSError):
        return complete(crew)
    return 0


def complete(crew: Crew, tasks: Sequence[Task] = ()) -> int:
    """Write the missing notes of the board's tasks, of these ``tasks`` and of other landed commits; return how many.

    A failure is recorded, for `liza doctor`, and raised. Raises LizaError, OSError.
    """
    with _lock_notes(crew):
        state = crew.board.read()
        remote = shared_code.find_remote(crew)
        if remote is not None:
            # Another host may have written them.
            notes_ref.share_notes(remote, crew.clock.now())
        count = _write_missing(crew, state, tasks)
        if remote is not None and count:
            notes_ref.share_notes(remote, crew.clock.now())
        return count


@contextmanager
def _lock_notes(crew: Crew) -> Iterator[None]:
    """Hold the lock for writing notes; record a failure, and raise it."""
    try:
        with Lock(crew.paths.evidence_lock).acquire(_LOCK_LIMIT):
            yield
    except (LizaError, OSError) as error:
        _record_failure(crew, error)
        raise


def _write_missing(crew: Crew, state: State, tasks: Sequence[Task]) -> int:
    runs = gate_log.refresh_runs(crew)
    notes = notes_ref.restore_lines(crew.git, crew.clock.now())
    missing = find_missing(crew, state, tasks, runs, notes.entries)
    lines: dict[str, tuple[str, ...]] = {}
    if missing:
        chains: dict[str, tuple[str, ...]] = {}
        used = costs.read_usage(crew, state) if any(landed.task for landed in missing) else []
        living = frozenset(entry.run for entry in costs.list_living(crew, state).values())
        for landed in missing:
            if landed.task is not None:
                facts = _gather_facts(crew, state, landed.task, runs, chains, used, living)
                lines[landed.commit] = statements.compose_task_note(landed.task, facts)
            elif landed.record is not None:
                own = _ended_runs(runs, landed.commit)
                lines[landed.commit] = statements.compose_landing_note(landed.commit, landed.record, own)
        notes_ref.add_lines(crew.git, lines, crew.clock.now(), notes)
    with suppress(OSError):
        forget_failure(crew.paths)
    return len(lines)


def find_missing(
    crew: Crew, state: State, tasks: Sequence[Task], runs: Iterable[GateRun], noted: Container[str]
) -> tuple[_Landed, ...]:
    """Return the landed commits of the board and of ``tasks`` that are not ``noted``. Raises GitFailed."""
    landed = [
        *(_Landed(str(task.merge_commit), task) for task in (*state.tasks, *tasks) if _is_merged(task)),
        *(_Landed(commit, record=record) for commit, record in _list_records(crew, state, runs, noted)),
    ]
    unique = {each.commit: each for each in landed if each.commit not in noted}
    return tuple(each for commit, each in unique.items() if git_refs.has_commit(crew.git, commit))


def _is_merged(task: Task) -> bool:
    return task.merge_commit is not None and task.review_commit is not None and task.status is Status.MERGED


def _list_records(
    crew: Crew, state: State, runs: Iterable[GateRun], noted: Container[str]
) -> Iterator[tuple[str, StatedLanding]]:
    """Yield the commits of epics, undos and syncs on integration, each with what it brought. Of syncs only those that
    are not ``noted``."""
    integration, writer = state.config.integration_branch, writer_name()
    for epic in state.epics.values():
        for commit in epic.landed:
            merges = [task.merge_commit for task in state.tasks if task.landed == commit]
            brought = tuple(commit_resource(merge) for merge in merges if merge is not None)
            yield commit, StatedLanding(branch=integration, writer=writer, brought=brought)
    for task in state.tasks:
        if task.undo is not None and task.status is Status.ABANDONED and task.merge_commit is not None:
            word = describe_tested(task.undo.tested, task.undo.remarks)
            branch = targets.work_branch(state, task)
            reverts = commit_resource(task.merge_commit)
            yield task.undo.commit, StatedLanding(branch=branch, writer=writer, reverts=reverts, how_tested=word)
    for commit in dict.fromkeys(run.candidate for run in runs if run.subject == SYNC_SUBJECT):
        # A candidate that was not published is on no branch.
        if commit not in noted and git_refs.is_contained(crew.git, commit, f"refs/heads/{integration}"):
            yield commit, StatedLanding(branch=integration, writer=writer)


def _ended_runs(runs: Iterable[GateRun], commit: str) -> tuple[GateRun, ...]:
    return tuple(run for run in runs if run.candidate == commit and run.outcome is not GateOutcome.RUNNING)


def _is_green(runs: Sequence[GateRun], candidate: str) -> bool:
    last = last_gate_runs(runs, candidate)
    return bool(last) and all(run.outcome is GateOutcome.GREEN for run in last)


def _find_tested(git: Git, commit: str, runs: Sequence[GateRun], chains: dict[str, tuple[str, ...]]) -> str | None:
    """Return the commit whose tests let ``commit`` land: itself, or the last one of its batch; None if unknown.

    ``chains``: the commits of the batches that were looked at.
    """
    if _is_green(runs, commit):
        return commit
    sizes = {run.candidate: run.tasks for run in runs if run.tasks > 1}
    for candidate in list(reversed(sizes))[:_MAX_BATCHES]:
        if candidate not in chains and _is_green(runs, candidate):
            words = ("rev-list", "--first-parent", f"--max-count={sizes[candidate]}", candidate, "--")
            chains[candidate] = tuple(git.run(*words, codes=(0, 128)).stdout.decode().split())
        if commit in chains.get(candidate, ()):
            return candidate
    return None


def _gather_facts(
    crew: Crew,
    state: State,
    task: Task,
    runs: Sequence[GateRun],
    chains: dict[str, tuple[str, ...]],
    used: Iterable[LedgerEntry],
    living: frozenset[str],
) -> TaskFacts:
    commit = str(task.merge_commit)
    tested = _find_tested(crew.git, commit, runs, chains)
    words = ("log", f"--max-count={_MAX_COMMITS}", "--format=%(trailers:key=Assisted-by,valueonly)")
    trailers = crew.git.run(*words, f"{commit}^1..{commit}^2", "--", codes=(0, 128)).stdout.decode("utf-8", "replace")
    return TaskFacts(
        branch=targets.target_branch(state, task),
        tested=tested,
        runs=() if tested is None else _ended_runs(runs, tested),
        sessions=tuple(entry for entry in used if entry.task == task.id),
        living=living,
        trailers=tuple(dict.fromkeys(line.strip() for line in trailers.splitlines() if line.strip())),
        logs=_digest_outputs(crew.paths, {event.run for event in task.history if event.run is not None}),
        writer=writer_name(),
    )


def _digest_outputs(paths: Paths, runs: Collection[str]) -> dict[str, str]:
    """Return the SHA-256 of the output of each session that has ended and whose output is here."""
    digests = {}
    for run in runs:
        with suppress(LizaError, NotRegularFile, OSError, ValueError):
            directory = RunDir(paths, run)
            if directory.is_concluded():
                digests[run] = untrusted_files.digest(directory.output_path)
    return digests


def write_landing(crew: Crew, branch: str, commit: str, tip: str, how_tested: str = "") -> None:
    """Write that ``commit`` brought integration, up to ``tip``, to a branch of the person; nothing if that is written.

    The commit is ``tip``, or one that has its files, from a squash. A failure is recorded, for `liza doctor`, and
    raised. Raises LizaError, OSError.
    """
    with _lock_notes(crew):
        _write_landing(crew, branch, commit, tip, how_tested)


def _write_landing(crew: Crew, branch: str, commit: str, tip: str, how_tested: str) -> None:
    git = crew.git
    chain = git.lines("rev-list", "--first-parent", f"--max-count={_MAX_LANDED}", tip, "--")
    notes = notes_ref.list_notes(git)
    wanted = dict.fromkeys((commit, *chain))
    texts = notes_ref.read_notes(git, {each: notes[each] for each in wanted if each in notes})
    brought: list[str] = []
    if _has_landing(texts.get(commit, ()), branch):
        return
    for each in chain:
        if _has_landing(texts.get(each, ()), branch):
            break
        if each in texts:
            brought.append(each)
    resources = tuple(map(commit_resource, brought))
    record = StatedLanding(branch=branch, writer=writer_name(), brought=resources, how_tested=how_tested)
    runs = _ended_runs(gate_log.refresh_runs(crew), commit)
    notes_ref.add_lines(git, {commit: statements.compose_landing_note(commit, record, runs)}, crew.clock.now())


def _has_landing(lines: Iterable[str], branch: str) -> bool:
    for line in lines:
        statement = statements.decode_line(line)
        with suppress(msgspec.DecodeError):
            record = None if statement is None else statement.read_landing()
            if record is not None and record.branch == branch:
                return True
    return False


def share_or_report(crew: Crew, remote: GitRemote) -> str:
    """Push the notes with a push of commits; return a sentence about a failure, which is no failure of that push."""
    try:
        if crew.git.find_commit(NOTES_REF) is not None:
            notes_ref.share_notes(remote, crew.clock.now())
    except (LizaError, OSError) as error:
        hint = error.hint if isinstance(error, LizaError) else ""
        return f"the evidence at {NOTES_REF} is not pushed: {error}. Next: {hint or 'liza doctor'}"
    return ""


def read_failure(paths: Paths) -> UnwrittenEvidence | None:
    """Return why statements could not be written last; None if they could, or if the record cannot be read."""
    with suppress(LizaError, OSError):
        return read_struct(paths.evidence_failure, UnwrittenEvidence)
    return None


def forget_failure(paths: Paths) -> None:
    """Let the next call try again at once: a person may have unlocked the key. Raises OSError."""
    paths.evidence_failure.unlink(missing_ok=True)


def _record_failure(crew: Crew, error: LizaError | OSError) -> None:
    hint = error.hint if isinstance(error, LizaError) else ""
    failure = UnwrittenEvidence(
        time=crew.clock.now(), reason=redact(f"{error}")[:400], next=hint or "liza doctor --fix"
    )
    with suppress(LizaError, OSError):
        atomic.write(crew.paths.evidence_failure, msgspec.json.encode(failure) + b"\n", sync=False)


def writer_name() -> str:
    """Return who writes a statement: Liza, with its version."""
    return f"liza {__version__}"
