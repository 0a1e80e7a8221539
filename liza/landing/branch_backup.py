"""Push the branches of tasks to ``origin``, as a backup. The board is only read, and no lock of it is held.

``refs/liza/pushed/origin/task/ID`` is the commit that was pushed last. ``refs/liza/pushing/origin/task/ID`` is written
before a push: after a crash it tells that the commit at the remote is this crew's.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from liza.crew.crew import Crew
from liza.git import ref_names
from liza.git.merge import merge_refs
from liza.landing import accepted_origin, backup_record
from liza.landing.remote_branches import REMOTE, BranchPush, Remote
from liza.landing.rules import backup_rules
from liza.landing.rules.backup_rules import TaskTips
from liza.landing.rules.push_rules import PushFacts, PushStep, decide_push
from liza.model.errors import LizaError, Refused
from liza.model.model import State
from liza.model.paths import branch_of
from liza.model.value_classes import Value

_LOCAL = "refs/heads/task/"
_PUSHED = f"refs/liza/pushed/{REMOTE}/task/"
_BEGUN = f"refs/liza/pushing/{REMOTE}/task/"


class BackupOutcome(Value):
    """The tasks whose branches are at the remote now, and why the other ones are not."""

    address: str
    saved: tuple[str, ...]
    failed: Mapping[str, LizaError]


def find_due_tasks(crew: Crew, state: State) -> tuple[str, ...]:
    """Return the tasks whose branches are to be pushed now. Runs one git. Raises GitFailed."""
    return backup_rules.find_due(state, read_tips(crew), backup_record.read_failure(crew), crew.clock.now())


def find_unpushed_tasks(crew: Crew, state: State) -> tuple[str, ...]:
    """Return all tasks on the board whose branches were not pushed, also those whose last push failed. Raises
    GitFailed.
    """
    failure = backup_record.read_failure(crew)
    failed = () if failure is None else failure.tasks
    unpushed = backup_rules.find_unpushed(state, read_tips(crew))
    return tuple(dict.fromkeys((*unpushed, *(task for task in failed if state.task(task)))))


def read_tips(crew: Crew) -> TaskTips:
    """Return the commits of the branches of all tasks. Raises GitFailed."""
    rows = crew.git.lines("for-each-ref", "--format=%(refname) %(objectname)", _LOCAL, _PUSHED, _BEGUN)
    tips: dict[str, dict[str, str]] = {prefix: {} for prefix in (_LOCAL, _PUSHED, _BEGUN)}
    for ref, commit in (row.split(" ", 1) for row in rows):
        prefix = next(prefix for prefix in tips if ref.startswith(prefix))
        tips[prefix][ref.removeprefix(prefix)] = commit
    return TaskTips(tips[_LOCAL], tips[_PUSHED], tips[_BEGUN])


def push_tasks(crew: Crew, tasks: Sequence[str]) -> BackupOutcome:
    """Push the branches of ``tasks``, and record the result. A branch that others pushed is not overwritten.

    Raises Refused for an address that no person has accepted, Missing, GitFailed: then no branch was pushed.
    """
    try:
        outcome = _push(crew, accepted_origin.find_accepted_origin(crew), tasks)
    except LizaError as error:
        backup_record.record_failure(crew, error, tasks, is_general=True)
        raise
    backup_record.record_success(crew, {*tasks} - outcome.failed.keys())
    if outcome.failed:
        first = next(iter(outcome.failed.values()))
        backup_record.record_failure(crew, first, outcome.failed.keys(), is_general=False)
    return outcome


def _push(crew: Crew, remote: Remote, tasks: Sequence[str]) -> BackupOutcome:
    tips = read_tips(crew)
    remote_tips = remote.read_branches(*(branch_of(task) for task in tasks))
    saved: dict[str, str] = {}
    failed: dict[str, LizaError] = {}
    pushes: dict[str, BranchPush] = {}
    for task in tasks:
        tip, remote_tip = tips.local.get(task), remote_tips.get(branch_of(task))
        if tip is None:
            continue
        match _decide(crew, tips, task, remote_tip):
            case PushStep.NOTHING:
                saved[task] = tip
            case PushStep.REFUSE:
                failed[task] = _not_overwritten(remote, task, str(remote_tip))
            case PushStep.PUSH if (other := ref_names.find_excluding(branch_of(task), remote_tips)) is not None:
                failed[task] = _excluded(remote, branch_of(task), other, remote_tips)
            case PushStep.PUSH:
                pushes[task] = BranchPush(branch_of(task), tip, remote_tip)
    _write_refs(crew, _BEGUN, {task: push.commit for task, push in pushes.items()})
    errors = remote.push_branches(tuple(pushes.values())) if pushes else {}
    failed |= {task: errors[push.branch] for task, push in pushes.items() if push.branch in errors}
    saved |= {task: push.commit for task, push in pushes.items() if task not in failed}
    _write_refs(crew, _PUSHED, saved)
    return BackupOutcome(remote.address, tuple(sorted(saved)), failed)


def _decide(crew: Crew, tips: TaskTips, task: str, remote_tip: str | None) -> PushStep:
    tip = tips.local[task]
    is_contained = remote_tip is not None and merge_refs.is_contained(crew.git, remote_tip, tip)
    return decide_push(PushFacts(tip, remote_tip, tips.own_tip(task, remote_tip), is_contained))


def _not_overwritten(remote: Remote, task: str, remote_tip: str) -> Refused:
    branch = branch_of(task)
    message = f"{branch} of {remote.name} is at {remote_tip[:10]}, which others pushed: it is not overwritten"
    return Refused(message, f"git fetch {remote.name} refs/heads/{branch} && git log -3 FETCH_HEAD")


def _excluded(remote: Remote, branch: str, other: str, remote_tips: Mapping[str, str]) -> Refused:
    message = f"the branch {other} of {remote.name} is in the way: git cannot have {branch} beside it"
    renamed = ref_names.find_free_name(f"{other}-old", remote_tips)
    fetch = shlex.join(["git", "fetch", remote.name, f"refs/heads/{other}"])
    push = shlex.join(["git", "push", remote.name, f"FETCH_HEAD:refs/heads/{renamed}"])
    return Refused(message, f"{fetch} && {push} && {shlex.join(['git', 'push', remote.name, f':refs/heads/{other}'])}")


def _write_refs(crew: Crew, prefix: str, commits: Mapping[str, str]) -> None:
    if commits:
        lines = (f"update {prefix}{task} {commit}\n" for task, commit in commits.items())
        crew.git.out("update-ref", "--stdin", stdin="".join(lines))
