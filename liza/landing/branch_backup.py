"""Push the branches of tasks to ``origin``, as a backup: `liza push`, and a child of a supervisor that runs it.

The board is only read, and no lock of it is held. ``refs/liza/pushed/origin/task/ID`` is the commit that is at the
remote. Everything else is read from the remote at the next push.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import git_refs
from liza.git.runner import Git
from liza.landing import remotes
from liza.landing.remotes import REMOTE, BranchPush, Remote
from liza.landing.rules import push_rules, remote_failures
from liza.landing.rules.push_rules import PushFacts, PushStep, TaskTips, decide_push
from liza.merging import statement_writer
from liza.model.errors import LizaError, Refused
from liza.model.model import State
from liza.model.paths import branch_of
from liza.model.value_classes import Value
from liza.system import crash_points
from liza.system.installation import liza_argv
from liza.system.locks import Lock, is_flock_held
from liza.tasks.rules import claims
from liza.text.formats import count_noun

LOCK_TIMEOUT: Final = 5.0  # seconds to wait for another push
FINISH_LIMIT: Final = 2.0
"""Seconds from the end of the supervisor to SIGINT: a push that works is over by then."""
STOP_LIMIT: Final = 5.0  # seconds from SIGINT to SIGKILL
_LOCAL = "refs/heads/task/"
_PUSHED = f"refs/liza/pushed/{REMOTE}/task/"


class BackupOutcome(Value):
    """The tasks whose branches are at the remote now, and why the other ones are not."""

    address: str
    saved: tuple[str, ...]
    failed: Mapping[str, LizaError]


def push_tasks(crew: Crew, tasks: Sequence[str] = (), origin: str | None = None) -> Result:
    """Push the branches of these tasks, by default of all open ones that have commits which were not pushed.

    ``origin``: the URL of origin that the person accepts; None: the one that was accepted. No branch is overwritten
    that others pushed. Raises Refused if any branch could not be pushed, LockTimeout while another push runs,
    UsageError, UnknownId, Missing, GitFailed.
    """
    require_person(crew, planner=False)
    if origin is not None:
        remotes.accept_origin(crew, origin)
    state = crew.board.read()
    chosen = tuple(claims.get_task(state, task).id for task in tasks)
    with Lock(crew.paths.push_lock).acquire(LOCK_TIMEOUT):
        chosen = chosen or push_rules.find_unpushed(state, read_tips(crew.git))
        if not chosen:
            remotes.clear_failure(crew.paths.push_failure)
            message = "no branch of an open task has commits that are not at origin"
            return Result("unchanged", None, None, "liza status", {"pushed": []}, message)
        outcome = push_and_record(crew, chosen)
    if outcome.failed:
        error = next(iter(outcome.failed.values()))
        others = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
        raise Refused(f"{error.message}{others}", error.hint)
    details = {"pushed": list(outcome.saved), "remote": outcome.address}
    message = f"{count_noun(len(outcome.saved), 'branch', 'branches')} at {outcome.address}: {', '.join(outcome.saved)}"
    unshared = statement_writer.share_or_report(crew, remotes.find_accepted_origin(crew))
    message = "\n".join(filter(None, (message, unshared)))
    return Result("changed", None, None, "liza status", details, message)


def push_and_record(crew: Crew, tasks: Sequence[str]) -> BackupOutcome:
    """Push the branches of ``tasks``, and record why it failed. A branch that others pushed is not overwritten.

    Raises Refused for an address that no person has accepted, Missing, GitFailed: then no branch was pushed.
    """
    record, now = crew.paths.push_failure, crew.clock.now()
    try:
        outcome = _push(crew.git, remotes.find_accepted_origin(crew), tasks)
    except LizaError as error:
        remotes.record_failure(record, REMOTE, error, now)
        raise
    if outcome.failed:
        remotes.record_failure(record, REMOTE, next(iter(outcome.failed.values())), now)
    else:
        remotes.clear_failure(record)
    return outcome


def read_tips(git: Git) -> TaskTips:
    """Return the commits of the branches of all tasks. Raises GitFailed."""
    tips: dict[str, dict[str, str]] = {_LOCAL: {}, _PUSHED: {}}
    for row in git.lines("for-each-ref", "--format=%(refname) %(objectname)", *tips):
        ref, commit = row.split(" ", 1)
        prefix = next(prefix for prefix in tips if ref.startswith(prefix))
        tips[prefix][ref.removeprefix(prefix)] = commit
    return TaskTips(tips[_LOCAL], tips[_PUSHED])


def _push(git: Git, remote: Remote, tasks: Sequence[str]) -> BackupOutcome:
    tips, branches = read_tips(git), {task: branch_of(task) for task in tasks}
    remote_tips = remote.read_branches(*branches.values())
    saved: dict[str, str] = {}
    failed: dict[str, LizaError] = {}
    pushes: dict[str, BranchPush] = {}
    for task, branch in branches.items():
        tip, remote_tip = tips.local.get(task), remote_tips.get(branch)
        if tip is None:
            continue
        match _decide(git, tips, task, remote_tip):
            case PushStep.NOTHING:
                saved[task] = tip
            case PushStep.REFUSE:
                message = f"{branch} of {remote.name} is at {str(remote_tip)[:10]}, which others pushed"
                step = f"git fetch {remote.name} refs/heads/{branch} && git log -3 FETCH_HEAD"
                failed[task] = Refused(f"{message}: it is not overwritten", step)
            case PushStep.PUSH:
                pushes[task] = BranchPush(branch, tip, remote_tip)
    error = remote.push_branches(tuple(pushes.values())) if pushes else None
    if error is not None:
        # The remote may have taken some of them.
        remote_tips = remote.read_branches(*branches.values())
        failed |= {task: error for task, push in pushes.items() if remote_tips.get(push.branch) != push.commit}
    saved |= {task: push.commit for task, push in pushes.items() if task not in failed}
    if saved:
        lines = (f"update {_PUSHED}{task} {commit}\n" for task, commit in saved.items())
        git.out("update-ref", "--stdin", stdin="".join(lines))
    return BackupOutcome(remote.address, tuple(sorted(saved)), failed)


def _decide(git: Git, tips: TaskTips, task: str, remote_tip: str | None) -> PushStep:
    tip, pushed = tips.local[task], tips.pushed.get(task)
    is_contained = remote_tip is not None and git_refs.is_contained(git, remote_tip, tip)
    # A push that was killed before its record is the crew's own.
    if remote_tip is not None and not is_contained and git_refs.was_tip(git, branch_of(task), remote_tip):
        pushed = remote_tip
    return decide_push(PushFacts(tip, remote_tip, pushed, is_contained))


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
        now, paths = self._crew.clock.monotonic(), self._crew.paths
        if state.config.push != "auto" or self._is_pushing(now):
            return
        if state.revision == self._revision or is_flock_held(paths.push_lock):
            return
        if remote_failures.is_waiting(remotes.read_failure(paths.push_failure), self._crew.clock.now()):
            return
        due = push_rules.find_unpushed(state, read_tips(self._crew.git), at_rest=True)
        if due == self._pushed and now < self._held_until:
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
                self._held_until = now + remote_failures.RETRY_AFTER
            self._child = self._revision = None
        return self._child is not None
