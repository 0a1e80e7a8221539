"""Push the branches of tasks to ``origin``, as a backup: `liza push`, and a child of a supervisor that runs it.

The board is only read, and no lock of it is held. ``refs/liza/pushed/origin/task/ID`` is the commit that was pushed
last. ``refs/liza/pushing/origin/task/ID`` is written before a push: after a crash it tells that the commit at the
remote is this crew's.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import git_refs
from liza.git.runner import Git
from liza.landing import accepted_origin
from liza.landing.remote_branches import REMOTE, BranchPush, Remote
from liza.landing.rules import backup_rules
from liza.landing.rules.backup_rules import BackupFailure, TaskTips
from liza.landing.rules.push_rules import PushFacts, PushStep, decide_push
from liza.model.errors import LizaError, Refused
from liza.model.model import State
from liza.model.paths import Paths, branch_of
from liza.model.value_classes import Value
from liza.programs.session.run_directory import read_struct
from liza.system import atomic, crash_points
from liza.system.installation import liza_argv
from liza.system.locks import Lock, is_flock_held
from liza.tasks.rules import claims
from liza.text.formats import count_noun
from liza.text.redaction import redact

LOCK_TIMEOUT: Final = 5.0  # seconds to wait for another push
FINISH_LIMIT: Final = 2.0
"""Seconds from the end of the supervisor to SIGINT: a push that works is over by then."""
STOP_LIMIT: Final = 5.0  # seconds from SIGINT to SIGKILL
_LOCAL = "refs/heads/task/"
_PUSHED = f"refs/liza/pushed/{REMOTE}/task/"
_BEGUN = f"refs/liza/pushing/{REMOTE}/task/"


class BackupOutcome(Value):
    """The tasks whose branches are at the remote now, and why the other ones are not."""

    address: str
    saved: tuple[str, ...]
    failed: Mapping[str, LizaError]


def push_tasks(crew: Crew, tasks: Sequence[str] = (), origin: str | None = None) -> Result:
    """Push the branches of these tasks, by default of all that have commits which were not pushed.

    ``origin``: the URL of origin that the person accepts; None: the one that was accepted. No branch is overwritten
    that others pushed. Raises Refused if any branch could not be pushed, LockTimeout while another push runs,
    UsageError, UnknownId, Missing, GitFailed.
    """
    require_person(crew, planner=False)
    if origin is not None:
        accepted_origin.accept_origin(crew, origin)
    state = crew.board.read()
    chosen = tuple(claims.get_task(state, task).id for task in tasks)
    with Lock(crew.paths.push_lock).acquire(LOCK_TIMEOUT):
        if not chosen:
            failure, tips = read_failure(crew.paths), read_tips(crew.git)
            chosen = backup_rules.find_unpushed(state, tips, failure)
        if not chosen:
            message = "no branch of an open task has commits that are not at origin"
            return Result("unchanged", None, None, "liza status", {"pushed": []}, message)
        outcome = push_and_record(crew, chosen)
    if outcome.failed:
        error = next(iter(outcome.failed.values()))
        others = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
        raise Refused(f"{error.message}{others}", error.hint)
    details = {"pushed": list(outcome.saved), "remote": outcome.address}
    message = f"{count_noun(len(outcome.saved), 'branch', 'branches')} at {outcome.address}: {', '.join(outcome.saved)}"
    return Result("changed", None, None, "liza status", details, message)


def push_and_record(crew: Crew, tasks: Sequence[str]) -> BackupOutcome:
    """Push the branches of ``tasks``, and record why it failed. A branch that others pushed is not overwritten.

    Raises Refused for an address that no person has accepted, Missing, GitFailed: then no branch was pushed.
    """
    before = read_failure(crew.paths)
    left = {*(before.tasks if before is not None else ())} - {*tasks}
    try:
        outcome = _push(crew.git, accepted_origin.find_accepted_origin(crew), tasks)
    except LizaError as error:
        _record(crew, before, error, left | {*tasks})
        raise
    if outcome.failed:
        _record(crew, before, next(iter(outcome.failed.values())), left | outcome.failed.keys())
    elif not left:
        with suppress(OSError):
            crew.paths.push_failure.unlink()
    return outcome


def _record(crew: Crew, before: BackupFailure | None, error: LizaError, tasks: Collection[str]) -> None:
    """Record a failure for all supervisors. A write error is ignored: a disk that is full has an alarm of its own."""
    now = crew.clock.now()
    failure = BackupFailure(
        reason=redact(error.message)[: backup_rules.MAX_REASON],
        next=error.hint,
        tasks=tuple(sorted(tasks)),
        since=before.since if before is not None else now,
        last=now,
    )
    with suppress(LizaError, OSError):
        atomic.make_directory(crew.paths.root, crew.paths.runs)
        atomic.write(crew.paths.push_failure, msgspec.json.encode(failure) + b"\n", sync=False)


def read_failure(paths: Paths) -> BackupFailure | None:
    """Return the failure; None if the last push succeeded, or if the record cannot be read: then it is tried again."""
    with suppress(LizaError, OSError):
        return read_struct(paths.push_failure, BackupFailure)
    return None


def read_tips(git: Git) -> TaskTips:
    """Return the commits of the branches of all tasks. Raises GitFailed."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname)", _LOCAL, _PUSHED, _BEGUN)
    tips: dict[str, dict[str, str]] = {prefix: {} for prefix in (_LOCAL, _PUSHED, _BEGUN)}
    for ref, commit in (row.split(" ", 1) for row in rows):
        prefix = next(prefix for prefix in tips if ref.startswith(prefix))
        tips[prefix][ref.removeprefix(prefix)] = commit
    return TaskTips(tips[_LOCAL], tips[_PUSHED], tips[_BEGUN])


def _push(git: Git, remote: Remote, tasks: Sequence[str]) -> BackupOutcome:
    tips = read_tips(git)
    remote_tips = remote.read_branches(*(branch_of(task) for task in tasks))
    saved: dict[str, str] = {}
    failed: dict[str, LizaError] = {}
    pushes: dict[str, BranchPush] = {}
    for task in tasks:
        tip, remote_tip = tips.local.get(task), remote_tips.get(branch_of(task))
        if tip is None:
            continue
        match _decide(git, tips, task, remote_tip):
            case PushStep.NOTHING:
                saved[task] = tip
            case PushStep.REFUSE:
                failed[task] = _not_overwritten(remote, task, str(remote_tip))
            case PushStep.PUSH if (other := git_refs.find_excluding(branch_of(task), remote_tips)) is not None:
                failed[task] = _excluded(remote, branch_of(task), other, remote_tips)
            case PushStep.PUSH:
                pushes[task] = BranchPush(branch_of(task), tip, remote_tip)
    _write_refs(git, _BEGUN, {task: push.commit for task, push in pushes.items()})
    errors = remote.push_branches(tuple(pushes.values())) if pushes else {}
    failed |= {task: errors[push.branch] for task, push in pushes.items() if push.branch in errors}
    saved |= {task: push.commit for task, push in pushes.items() if task not in failed}
    _write_refs(git, _PUSHED, saved)
    return BackupOutcome(remote.address, tuple(sorted(saved)), failed)


def _decide(git: Git, tips: TaskTips, task: str, remote_tip: str | None) -> PushStep:
    tip = tips.local[task]
    is_contained = remote_tip is not None and git_refs.is_contained(git, remote_tip, tip)
    return decide_push(PushFacts(tip, remote_tip, tips.own_tip(task, remote_tip), is_contained))


def _not_overwritten(remote: Remote, task: str, remote_tip: str) -> Refused:
    branch = branch_of(task)
    message = f"{branch} of {remote.name} is at {remote_tip[:10]}, which others pushed: it is not overwritten"
    return Refused(message, f"git fetch {remote.name} refs/heads/{branch} && git log -3 FETCH_HEAD")


def _excluded(remote: Remote, branch: str, other: str, remote_tips: Mapping[str, str]) -> Refused:
    message = f"the branch {other} of {remote.name} is in the way: git cannot have {branch} beside it"
    renamed = git_refs.find_free_name(f"{other}-old", remote_tips)
    fetch = shlex.join(["git", "fetch", remote.name, f"refs/heads/{other}"])
    push = shlex.join(["git", "push", remote.name, f"FETCH_HEAD:refs/heads/{renamed}"])
    return Refused(message, f"{fetch} && {push} && {shlex.join(['git', 'push', remote.name, f':refs/heads/{other}'])}")


def _write_refs(git: Git, prefix: str, commits: Mapping[str, str]) -> None:
    if commits:
        lines = (f"update {prefix}{task} {commit}\n" for task, commit in commits.items())
        git.out("update-ref", "--stdin", stdin="".join(lines))


class BranchPusher:
    """Starts `liza push` for tasks that are due, while `config.push` is `auto`; the supervisor does not wait for it."""

    def __init__(self, crew: Crew, environ: Mapping[str, str]) -> None:
        self._crew, self._environ = crew, environ
        self._child: subprocess.Popen[bytes] | None = None
        self._revision: int | None = None
        self._pushed: tuple[str, ...] = ()
        self._held_until = 0.0

    def look(self, state: State) -> None:
        """Start a push if a task is due and no other supervisor pushes. Raises GitFailed, OSError."""
        now = self._crew.clock.monotonic()
        if state.config.push != "auto" or self._is_pushing(now):
            return
        if state.revision == self._revision or is_flock_held(self._crew.paths.push_lock):
            return
        failure = read_failure(self._crew.paths)
        if backup_rules.is_waiting(failure, self._crew.clock.now()):
            return
        due = backup_rules.find_due(state, read_tips(self._crew.git), failure)
        if due and due == self._pushed and now < self._held_until:
            return
        self._revision = state.revision
        if due:
            self._pushed = due
            self._child = subprocess.Popen(
                [*liza_argv(), "push", *due, "--json"],
                cwd=self._crew.paths.root,
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            crash_points.point("spawned", "push")

    def close(self) -> None:
        """Wait a moment for a push that runs, then end it, with git and its children."""
        if self._child is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(FINISH_LIMIT)
            return
        # SIGINT and not SIGTERM: the child then kills its git, which has a session of its own.
        self._child.send_signal(signal.SIGINT)
        try:
            self._child.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _is_pushing(self, now: float) -> bool:
        """Return whether the child runs. After its end the next look reads the branches. What a push left that died
        without a record is not pushed again at once.
        """
        if self._child is not None and self._child.poll() is not None:
            if self._child.returncode != 0 and not self._crew.paths.push_failure.exists():
                self._held_until = now + backup_rules.RETRY_AFTER
            self._child = self._revision = None
        return self._child is not None
