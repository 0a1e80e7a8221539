"""Verbs of a coder (submit, block, handoff), the checks of submitted files, and the end of a session."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from types import MappingProxyType

from liza.git.rules import git_operations
from liza.git.rules.git_operations import GitOperation
from liza.model.errors import Refused, UsageError
from liza.model.history_events import HistoryEvent, is_last_return_cleared
from liza.model.model import FailedCheck, Handoff, State, Status, Task
from liza.model.paths import agent_of, branch_of
from liza.model.session_ends import OUTCOME_RULES, Fault, SessionOutcome
from liza.model.statuses import describe_task
from liza.model.transitions import Invocation, add_event, apply_verb, has_done
from liza.model.value_classes import Value, replace
from liza.tasks.rules.claims import get_owned_task, get_task, release
from liza.tasks.rules.leases import is_held_by
from liza.tasks.rules.picking import CRASHES_BEFORE_OTHERS, Evidence, crashes_in_a_row, has_untried
from liza.tasks.rules.work_record import scope_areas, scope_names
from liza.text.formats import count_noun, format_time
from liza.text.undecoded import list_names

S = Status
E = HistoryEvent
MAX_QUESTIONS = 3
MAX_CHECK_TEXT = 500  # characters
MAX_CRASHES = 5  # crashed sessions of a task since its last unblock, before it is BLOCKED
MAX_IDLE_SESSIONS = 2  # sessions in a row without progress, before the task is BLOCKED
SUPERVISORS_QUESTION = "What should the next try do differently?"


class SubmittedWork(Value):
    """State of the worktree when a coder submits.

    ``ahead``: HEAD has a commit beyond the base. ``branch`` is None if HEAD is detached. ``dirty``: uncommitted files;
    ``has_changes``: tracked ones. ``operation``: an operation of git that is not concluded; the other facts are then
    not read. ``has_branch``: the branch of the task exists. ``has_strays``: HEAD has commits that neither this branch
    nor the target has. ``markers``: ``FILE:LINE`` of conflict markers in the commits. ``briefs``: files of the commits
    with marks of a brief.
    ``hidden``: files ignored by git that hold text of the agent beside the brief. ``related``: HEAD has a merge base
    with integration. ``no_work``: what the commits must not add. ``outside_scope``: numbers of changed files outside
    the scope of the task, by directory.
    """

    head: str
    ahead: bool
    branch: str | None = None
    dirty: tuple[str, ...] = ()
    has_changes: bool = False
    operation: GitOperation | None = None
    has_branch: bool = True
    has_strays: bool = False
    markers: tuple[str, ...] = ()
    briefs: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    related: bool = True
    no_work: NoWork | None = None
    outside_scope: Mapping[str, int] = MappingProxyType({})


def submit(state: State, task_id: str, run: str, work: SubmittedWork, now: datetime) -> State:
    """Submit the work for review. It must be committed, clean and ahead of its base. Raises Refused, NotOwner."""
    task = get_task(state, task_id)
    invocation = Invocation(now=now, by=agent_of(run), run=run, commit=work.head, detail=_expired_lease(task, now))
    if task.status is S.READY_FOR_REVIEW and task.run == run:
        return _submit_again(state, task, invocation, work)
    if has_done(task, E.SUBMIT, run):
        return state
    task = get_owned_task(state, task_id, run)
    _refuse_unfinished(task, work)
    submitted = apply_verb(
        task,
        E.SUBMIT,
        invocation,
        review_commit=work.head,
        lease_expires=None,
        rejection_reason=None,
        handoff_pending=False,
        idle_sessions=0,
        reviews_without_verdict=0,
    )
    return state.with_task(submitted)


def _expired_lease(task: Task, now: datetime) -> str | None:
    """Return since when the lease has expired. An expired lease alone ends no claim: a takeover does."""
    expired = task.lease_expires
    return f"its lease expired at {format_time(expired)}" if expired is not None and expired < now else None


def _submit_again(state: State, task: Task, invocation: Invocation, work: SubmittedWork) -> State:
    if work.head == task.review_commit:
        return state
    if task.reviewing_by is not None:
        raise Refused(
            f"{task.reviewing_by} is reviewing {task.id} at {task.review_commit}", f"liza task show {task.id}"
        )
    _refuse_unfinished(task, work)
    return state.with_task(apply_verb(task, E.SUBMIT_AGAIN, invocation, review_commit=work.head))


def _refuse_unfinished(task: Task, work: SubmittedWork) -> None:
    if work.operation is not None:
        raise Refused(work.operation.describe(task.id), work.operation.next_step(work.has_changes))
    if work.branch != branch_of(task.id):
        gone = "" if work.has_branch else ", which does not exist any more"
        raise Refused(
            f"HEAD is on {work.branch or 'no branch'}; the work of {task.id} belongs on {branch_of(task.id)}{gone}",
            _step_to_branch(task.id, work),
        )
    if work.hidden:
        raise Refused(
            f"git ignores {work.hidden[0]}, and it holds text of yours beside the brief",
            f"git add -f {work.hidden[0]}",
        )
    if work.no_work is not None:
        raise Refused(work.no_work.describe(), work.no_work.hint)
    if work.dirty:
        names = list_names(work.dirty, 5)
        raise Refused(f"the worktree has changes that are not committed: {names}", _commit_step(work))
    if work.markers:
        raise Refused(
            f"the commits have conflict markers (<<<<<<<, =======, >>>>>>>) at {list_names(work.markers, 5)}",
            git_operations.next_step_for_markers([marker.rpartition(":")[0] for marker in work.markers[:5]]),
        )
    if work.briefs:
        raise Refused(
            f"the commits have the brief of a session in {list_names(work.briefs, 5)}",
            git_operations.next_step_for_briefs(work.briefs[:5]),
        )
    if not work.related:
        raise Refused(
            f"HEAD {work.head[:12]} has no commit in common with integration, so it can never be merged",
            f"git rebase --onto {(task.base_commit or 'integration')[:12]} --root",
        )
    if not work.ahead:
        raise Refused(
            f"HEAD {work.head[:12]} has no commit beyond the base {(task.base_commit or '?')[:12]}; "
            'if there is nothing to commit: liza block "why" --ask "…"',
            'git add -A && git commit -m "…"',
        )
    if task.status is S.CLAIMED and work.head == task.review_commit and not is_last_return_cleared(task):
        raise Refused(
            f"HEAD {work.head[:12]} is the commit that was sent back; a new commit is needed, "
            'or: liza block "why" --ask "…"',
            'git add -A && git commit -m "…"',
        )


def _commit_step(work: SubmittedWork) -> str:
    """Return the command that commits all files."""
    environment = find_untracked_environment(work.dirty)
    # `git add -A` would commit an environment, too.
    ignore = f"{ignore_command(environment)} && " if environment else ""
    return f'{ignore}git add -A && git commit -m "…"'


def _step_to_branch(task_id: str, work: SubmittedWork) -> str:
    """Return the command that brings HEAD and its commits to the branch of the task."""
    branch = branch_of(task_id)
    if not work.has_branch:
        # git cannot have both branches.
        is_below = work.branch is not None and work.branch.startswith(f"{branch}/")
        return f"git branch -m {branch}" if is_below else f"git switch -c {branch}"
    if work.has_changes:
        # On another branch the commit does not belong, either.
        return _commit_step(work) if work.branch is None else f"git switch --detach && {_commit_step(work)}"
    return f"git switch {branch}" + (f" && git merge --no-edit {work.head[:12]}" if work.has_strays else "")


def block(state: State, task_id: str, run: str, reason: str, questions: tuple[str, ...], now: datetime) -> State:
    """Block the task with questions that a person can answer. Raises UsageError, NotOwner."""
    task = get_task(state, task_id)
    if has_done(task, E.BLOCK, run):
        return state
    if (
        not reason.strip()
        or not 1 <= len(questions) <= MAX_QUESTIONS
        or not all(question.strip() for question in questions)
    ):
        raise UsageError(
            f"a block needs a reason and 1 to {MAX_QUESTIONS} questions; {len(questions)} were given",
            'liza block "why" --ask "a question that a person can answer"',
        )
    task = get_owned_task(state, task_id, run)
    return state.with_task(
        _blocked(task, reason, questions, Invocation(now=now, by=agent_of(run), run=run, detail=reason))
    )


def block_by_supervisor(state: State, task_id: str, reason: str, now: datetime) -> State:
    """Block the task because a limit is reached or no progress is made. Adds its coder to failed_by. Raises Refused."""
    task = get_task(state, task_id)
    if task.status is S.BLOCKED:
        return state
    if task.status not in (S.CLAIMED, S.REJECTED, S.INTEGRATION_FAILED):
        raise Refused(f"{describe_task(task_id, task.status)}: it cannot be blocked", f"liza task show {task_id}")
    if task.reservation is not None:
        taken = f"{task.reservation.agent} is taking it as {task.reservation.run}"
        raise Refused(f"{task_id} cannot be blocked: {taken}", f"liza task show {task_id}")
    invocation = Invocation(now=now, by=task.assigned_to, run=task.run, detail=reason)
    blocked = _blocked(task, reason, (SUPERVISORS_QUESTION,), invocation)
    return state.with_task(replace(blocked, failed_by=add_failure(task)))


def add_failure(task: Task) -> tuple[str, ...]:
    """Return the coders that failed the task, with the present one. A task without a coder adds none."""
    coder = task.assigned_to
    return task.failed_by if coder is None or coder in task.failed_by else (*task.failed_by, coder)


def _blocked(task: Task, reason: str, questions: tuple[str, ...], invocation: Invocation) -> Task:
    return apply_verb(
        task,
        E.BLOCK,
        invocation,
        blocked_reason=reason,
        blocked_questions=questions,
        lease_expires=None,
        handoff_pending=False,
    )


def handoff(state: State, task_id: str, run: str, note: Handoff, now: datetime) -> State:
    """Hand the task to a new session, with what is done and the next step. Raises UsageError, NotOwner."""
    task = get_task(state, task_id)
    if has_done(task, E.HANDOFF, run):
        return state
    task = get_owned_task(state, task_id, run)
    if not note.summary.strip() or not note.next_action.strip():
        raise UsageError(
            "a hand-off needs a summary and the next step", 'liza handoff "what is done" --next "the first thing to do"'
        )
    invocation = Invocation(now=now, by=agent_of(run), run=run)
    handed = apply_verb(task, E.HANDOFF, invocation, handoff_pending=True)
    return replace(state.with_task(handed), handoff={**state.handoff, task_id: note})


def note_failed_check(state: State, task_id: str, failed: FailedCheck) -> State:
    """Add a failed start-up check to the hand-off of the task, for the next brief. An earlier session's note stays.

    Only a run that holds the task or its review can; the first failure of a run is kept, because the others follow.
    """
    task = state.task(task_id)
    if task is None or not is_held_by(task, failed.run):
        return state
    note = state.handoff.get(task_id) or Handoff(agent=agent_of(failed.run), run=failed.run, timestamp=failed.time)
    if note.failed_check is not None and note.failed_check.run == failed.run:
        return state
    limited = replace(failed, expected=failed.expected[:MAX_CHECK_TEXT], actual=failed.actual[:MAX_CHECK_TEXT])
    return replace(state, handoff={**state.handoff, task_id: replace(note, failed_check=limited)})


def is_end_postponed(outcome: SessionOutcome, word: str | None, on_purpose: bool) -> bool:
    """Return whether a failure to carry out one of its verbs explains the end of a session.

    ``outcome`` is that without the failure, ``word`` the session's closing code. A closing code of a session that did
    not crash excludes this, and so does an end ``on_purpose``.
    """
    if on_purpose:
        return False
    if outcome is SessionOutcome.CRASHED:
        return True
    return outcome in (SessionOutcome.FINISHED, SessionOutcome.HANDED_OFF) and word is None


def record_session_end(
    state: State, task_id: str, run: str, *, outcome: SessionOutcome, detail: str, moved: bool, now: datetime
) -> State:
    """Record that a session of this run ended while the run still owns the task.

    ``moved``: the session made a commit. The task is blocked after MAX_CRASHES crashes since the last
    unblock, or after MAX_IDLE_SESSIONS sessions in a row without progress. After CRASHES_BEFORE_OTHERS crashes in a
    row, and after one while its coder may take a task without a crash, it is UNCLAIMED. An end without fault
    is only recorded.
    """
    task = state.task(task_id)
    event, fault = OUTCOME_RULES[outcome].event, OUTCOME_RULES[outcome].fault
    if task is None or task.run != run or task.status is not S.CLAIMED or has_done(task, event, run):
        return state
    if task.reservation is not None:  # a takeover that is not confirmed yet: no session has its run
        return state
    noted = add_event(task, event, Invocation(now=now, by=agent_of(run), run=run, detail=detail[:500]))
    if fault is Fault.CRASH:
        crashes = _count_since_unblocked(noted, event)
        if crashes >= MAX_CRASHES:
            return block_by_supervisor(
                state.with_task(noted), task_id, f"{crashes} sessions crashed; the last: {detail}", now
            )
        in_a_row = crashes_in_a_row(noted)
        if in_a_row < CRASHES_BEFORE_OTHERS and not has_untried(state.with_task(noted), agent_of(run), now, Evidence()):
            return state.with_task(noted)
        crashed = "its session" if in_a_row == 1 else f"{in_a_row} sessions in a row"
        why = f"{crashed} crashed: healthy tasks come first"
        return release(state.with_task(noted), task_id, run, now, agent_of(run), why)
    if fault is Fault.NONE:
        return state.with_task(noted)
    idle = 0 if moved else task.idle_sessions + 1
    counted = state.with_task(replace(noted, idle_sessions=idle))
    if idle >= MAX_IDLE_SESSIONS:
        return block_by_supervisor(
            counted, task_id, f"{idle} sessions in a row ended without progress; the last: {detail}", now
        )
    return counted


def _count_since_unblocked(task: Task, event: str) -> int:
    count = 0
    for line in reversed(task.history):
        if line.event == E.UNBLOCK:
            break
        count += line.event == event
    return count


MAX_NEW_FILES = 1000
"""A directory that the target branch does not have may get so many files more than the commit deletes elsewhere."""
_PACKAGE_DIRECTORIES = ("node_modules", "site-packages", "bower_components", "conda-meta")
_ENVIRONMENT_NAMES = (".venv", "venv", "env", "node_modules", "site-packages")
_MAX_DIRECTORIES = 5  # directories that the output of `submit` names


class SubmittedFiles(Value):
    """Files of a submission against its target branch.

    ``changed``: names of all; ``added``: new ones; ``deleted``: number of deleted ones. ``directories``: the
    directories that hold a tracked file on the target. ``hidden``: untracked names that git ignores in this worktree,
    because the set-up left or copied them; a directory ends with a slash. ``empty``: new files without content.
    ``repositories``: new repositories inside
    the worktree, of which the commit has only the id of a commit, and that ``.gitmodules`` does not name. ``briefs``:
    new files that are empty, because they held only the brief of a session.
    """

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    deleted: int = 0
    directories: frozenset[str] = frozenset()
    hidden: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    briefs: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


class NoWork(Value):
    """A path of a submission that is no work of its task: ``reason`` says what it is, ``count`` how many files.

    ``is_hidden``: git ignores it in this worktree already. ``is_repository``: it is one of ``repositories``.
    """

    path: str
    reason: str
    count: int
    is_hidden: bool = False
    is_repository: bool = False

    def describe(self) -> str:
        """Return the message of the refusal."""
        return (
            f"the commit adds {self.path} ({count_noun(self.count, 'file')}): {self.reason}. If it belongs to the "
            "task, a person names it in the scope of the task: liza edit"
        )

    @property
    def hint(self) -> str:
        """Return the command that takes the path out of the commit and leaves the files where they are.

        A repository becomes a plain directory: its files come into the commit.
        """
        path = shlex.quote(self.path)
        steps = [f"git rm -r -q --cached -- {path}"]
        if self.is_repository:
            steps += [f'mv -- {path}/.git "$(mktemp -d)"', f"git add -- {path}"]
        elif not self.is_hidden:
            steps += [ignore_command(self.path)]
        return " && ".join((*steps, "git commit -q --amend --no-edit", "liza submit"))


def ignore_command(directory: str) -> str:
    """Return the command that makes git ignore a directory in this worktree, without a change of a tracked file."""
    return f"echo '*' > {shlex.quote(directory)}/.gitignore"


def find_untracked_environment(dirty: Iterable[str]) -> str | None:
    """Return the first of these untracked directories whose name says that a tool fills it with packages, or None."""
    names = (name.rstrip("/") for name in dirty if name.endswith("/"))
    return next((name for name in names if PurePosixPath(name).name in _ENVIRONMENT_NAMES), None)


def needs_directories(files: SubmittedFiles) -> bool:
    """Return whether ``find_no_work`` needs the directories of the target branch: most submissions add few files."""
    return len(files.added) > MAX_NEW_FILES or any(True for _ in _environments(files.added))


def find_no_work(files: SubmittedFiles, scope: str) -> NoWork | None:
    """Return what the submission must not add, or None. What the scope of the task names is allowed."""
    for path, reason in _candidates(files):
        count = sum(name == path or name.startswith(f"{path}/") for name in files.added)
        if not _is_named(path, scope):
            is_hidden = path in (*files.hidden, *files.briefs) or f"{path}/" in files.hidden
            return NoWork(path, reason, count, is_hidden, path in files.repositories)
    return None


def _candidates(files: SubmittedFiles) -> Iterator[tuple[str, str]]:
    for path in files.briefs:
        yield path, "it is empty: on the disk it has only the brief of the session, which git does not see"
    for path in files.repositories:
        yield path, "it is a git repository of its own, and the commit has no file of it. No .gitmodules names it"
    for name in files.hidden:
        path = name.rstrip("/")
        if any(other == path or other.startswith(f"{path}/") for other in files.added):
            yield path, "the set-up of the worktree left it"
    for path in _environments(files.added):
        if path not in files.directories:
            yield path, "it is a virtual environment or a directory of installed packages"
    for path, count in _count(_new_top(name, files.directories) for name in files.added).items():
        if path and count - files.deleted > MAX_NEW_FILES:
            yield path, f"it is new, with more than {MAX_NEW_FILES} files"


def _count(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name occurs, most first. ``collections.Counter`` would load another module for that."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _environments(added: Iterable[str]) -> Iterator[str]:
    """Yield the directories among the new files that tools fill with packages, each once."""
    names = [(name, PurePosixPath(name)) for name in added if re.search(r"pyvenv\.cfg$|" + _PACKAGES, name)]
    roots = {str(path.parent) for _, path in names if path.name == "pyvenv.cfg"} - {"."}
    for _, path in names:
        number = next((index for index, part in enumerate(path.parts[:-1]) if part in _PACKAGE_DIRECTORIES), None)
        if number is not None and not any(str(path).startswith(f"{root}/") for root in roots):
            roots.add("/".join(path.parts[: number + 1]))
    yield from sorted(roots)


_PACKAGES = "|".join(f"(^|/){name}/" for name in _PACKAGE_DIRECTORIES)


def _new_top(name: str, directories: frozenset[str]) -> str:
    """Return the highest directory of a new file that the target branch does not have; empty if it has all."""
    parents = [str(parent) for parent in PurePosixPath(name).parents][:-1]
    return next((parent for parent in reversed(parents) if parent not in directories), "")


def _is_named(path: str, scope: str) -> bool:
    """Return whether the scope names ``path`` or something in it. A directory above it is not enough."""
    return any(area == path or area.startswith(f"{path}/") for area in scope_names(scope))


def count_outside(files: SubmittedFiles, scope: str) -> dict[str, int]:
    """Return how many changed files are outside the scope, by their directory at the top, most first.

    A file at the top is its own entry. A scope without a path says nothing about files: then the result is empty.
    """
    if not scope_areas(scope):
        return {}
    areas = scope_names(scope)
    outside = [name for name in files.changed if not any(name == area or name.startswith(f"{area}/") for area in areas)]
    return _count(f"{name.split('/', 1)[0]}/" if "/" in name else name for name in outside)


def describe_outside(counts: dict[str, int]) -> str:
    """Describe the files outside the scope in one line, or return an empty text."""
    if not counts:
        return ""
    shown = [f"{name} {count}" for name, count in list(counts.items())[:_MAX_DIRECTORIES]]
    more = len(counts) - len(shown)
    text = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return f"outside the scope: {count_noun(sum(counts.values()), 'file')} ({text})"
