"""Code of a crew on several hosts at a claim, a submission, a review and a look: it goes through the remote.

A crew on one host has no remote: then nothing here runs a git command.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress

from liza.crew.crew import Crew
from liza.git import branch_moves, following, git_refs, integration_tip, publication_log, salvage, slot_records
from liza.git.following import SeenTip, TaskBranchStep
from liza.git.git_refs import HEADS
from liza.git.git_remote import FETCH_OPTIONS
from liza.git.shared_remote import FETCHED_PREFIX, SharedRemote, open_remote
from liza.model import targets
from liza.model.errors import LizaError, Missing, Refused, RemoteUnavailable
from liza.model.model import State, Task
from liza.model.paths import branch_of
from liza.tasks.rules import strangers


def find_remote(crew: Crew) -> SharedRemote | None:
    """Return the remote of a crew on several hosts; None for a crew on one host.

    Raises Refused for an address that no person has accepted, Missing, GitFailed.
    """
    return open_remote(crew.git, crew.remote_name, crew.paths) if crew.remote_name else None


def last_tip_ref(crew: Crew, branch: str) -> str:
    """Return the ref at the commit at which Liza left a branch that it merges into."""
    if branch == crew.board.read().config.integration_branch:
        return branch_moves.LAST_INTEGRATION_REF
    return branch_moves.last_tip_ref(branch)


def fetch_target(crew: Crew, remote: SharedRemote, branch: str, *others: str) -> tuple[str, Refused | None]:
    """Fetch a branch that the crew merges into, and ``others``; let it follow. Return its tip at the remote, and why
    the branch of this clone is not there.

    Raises Missing if the remote has no such branch, RemoteUnavailable, Refused, GitFailed.
    """
    before = remote.seen(branch)
    tip = remote.fetch(branch, *others, crew.board.read().config.integration_branch)[branch]
    if tip is None:
        raise missing_branch(remote, branch)
    obstacle = following.follow_target(crew.git, remote, SeenTip(branch, tip, before), last_tip_ref(crew, branch))
    if obstacle is None:
        remote.mark_seen(branch, tip)
    return tip, obstacle


def missing_branch(remote: SharedRemote, branch: str) -> Missing:
    """Return the error for a remote without a branch that the crew merges into, and the command that restores it: here
    it may be older, or be missing, too."""
    published, seen = publication_log.find_published_tip(remote.git, branch), remote.seen(branch)
    is_newer = published is None or (seen is not None and git_refs.is_contained(remote.git, published, seen))
    commit = seen if is_newer else published
    source = HEADS + branch if commit is None else commit[:12]
    text = f"{remote.name} ({remote.address}) has no branch {branch}"
    return Missing(text, f"git push {remote.name} {source}:{HEADS}{branch}")


def fetch_all_targets(crew: Crew, remote: SharedRemote) -> None:
    """Fetch the branches that the crew merges into, except integration, and let them follow as far as they can.

    Raises RemoteUnavailable, Missing, Refused, GitFailed.
    """
    integration, *branches = targets.target_branches(crew.board.read())
    tips = remote.fetch(integration, *branches) if branches else {}
    for branch in branches:
        tip = tips[branch]
        if tip is not None:
            seen = SeenTip(branch, tip, remote.seen(branch))
            if following.follow_target(crew.git, remote, seen, last_tip_ref(crew, branch)) is None:
                remote.mark_seen(branch, tip)


def follow_integration(crew: Crew) -> None:
    """Bring integration of this clone to where the remote has it; nothing for a crew on one host.

    Raises Refused if it cannot follow, RemoteUnavailable, Missing, GitFailed.
    """
    remote = find_remote(crew)
    if remote is not None:
        obstacle = fetch_target(crew, remote, crew.board.read().config.integration_branch)[1]
        if obstacle is not None:
            raise obstacle


def ensure_epic(crew: Crew, remote: SharedRemote, epic: str) -> None:
    """Create the branch of an epic at the remote, at the tip of integration, unless it is there; let it follow.

    Raises Refused, RemoteUnavailable, Missing, GitFailed.
    """
    branch, integration = targets.epic_branch(epic), crew.board.read().config.integration_branch
    tips = remote.fetch(branch, integration)
    start = tips[integration]
    if tips[branch] is None and start is not None:
        # If another host was faster, its branch counts.
        remote.create_branch(branch, start)
    fetch_target(crew, remote, branch)


def delete_epic(crew: Crew, epic: str) -> None:
    """Delete the branch of a landed epic at the remote, unless it has moved; nothing for a crew on one host. A failure
    only leaves the branch there."""
    with suppress(LizaError):
        remote = find_remote(crew)
        if remote is not None:
            remote.delete_branch(targets.epic_branch(epic))


def fetch_integration(crew: Crew, state: State) -> str:
    """Return the tip of integration, as the remote has it if the crew has several hosts.

    Raises Missing if it is gone, RemoteUnavailable, Refused, GitFailed.
    """
    remote = find_remote(crew)
    if remote is None:
        return integration_tip.require_integration(crew.git, state)
    return fetch_target(crew, remote, state.config.integration_branch)[0]


def fetch_start(crew: Crew, task: Task) -> str | None:
    """Fetch what a run of the task begins with: its target and its own branch. Return the commit at which a new branch
    of the task starts; None for a crew on one host.

    What only this clone has of the task is kept: on its branch, or as a salvage if others went on with the task.
    Raises RemoteUnavailable, Missing, Refused, GitFailed.
    """
    remote = find_remote(crew)
    if remote is None:
        return None
    target, branch = targets.target_branch(crew.board.read(), task), branch_of(task.id)
    try:
        if task.epic is not None:
            ensure_epic(crew, remote, task.epic)
        start, _ = fetch_target(crew, remote, target, branch)
    except RemoteUnavailable as error:
        message = f"{task.id} cannot be claimed: {target} and {branch} cannot be fetched: {error.message}"
        raise RemoteUnavailable(message, error.hint) from error
    tip = remote.fetched(branch)
    if tip is not None:
        _follow_task(crew, remote, task, SeenTip(branch, tip, remote.seen(branch)))
        remote.mark_seen(branch, tip)
    return start


def _follow_task(crew: Crew, remote: SharedRemote, task: Task, seen: SeenTip) -> None:
    """Bring the branch of a task to where the remote has it, unless the work of this clone counts."""
    local = branch_moves.branch_tip(crew.git, seen.branch)
    step = following.choose_task_step(crew.git, seen, local)
    if step is TaskBranchStep.KEEP:
        return
    run = _leave_slot(crew, task, seen.branch)
    if step is TaskBranchStep.SAVE_AND_MOVE and local is not None:
        name = salvage.salvage_ref(task.id, f"{run or 'unknown'}{salvage.REFS_SUFFIX}")
        saved = salvage.keep_commit(crew.git, name, local, None)
        line = f"{seen.branch} of this clone was at {local[:10]}, which {remote.name} does not have"
        crew.append_alert_log([f"task_branch  {line}; it is saved. Next: git log {saved}"])
    unrestored = salvage.find_unrestored(crew.git, task.id)
    if unrestored is not None and local is not None:
        # Others went on with the task: its next run begins with their work, and not with files of an earlier one.
        salvage.mark_restored(crew.git, task.id, unrestored)
    following.move_branch(crew.git, seen.branch, seen.tip, local)


def _leave_slot(crew: Crew, task: Task, branch: str) -> str | None:
    """Save and empty the slot of this clone that has the branch checked out. Return its run; None without a slot."""
    checkout = branch_moves.find_checkout(crew.git, branch)
    slot = None if checkout is None else slot_records.find_slot_name(checkout, crew.paths.slots)
    owner = None if slot is None else crew.worktrees.owner(slot)
    if slot is None or owner is None or owner[0] != task.id:
        return None
    crew.worktrees.release(slot, *owner)
    return owner[1]


def forget_fetched(crew: Crew, tasks: Container[str]) -> None:
    """Delete what was fetched of the branches of all tasks but ``tasks``: their commits need not be kept here.

    Raises GitFailed.
    """
    prefix = FETCHED_PREFIX + branch_of("")
    names = [name for name in git_refs.refs_below(crew.git, prefix) if name not in tasks]
    if names:
        crew.git.out("update-ref", "--stdin", stdin="".join(f"delete {prefix}{name}\n" for name in names))


def push_submitted(crew: Crew, task: Task, commit: str) -> None:
    """Push the commit of a task before the board names it, so that every host can fetch it.

    Raises Refused, RemoteUnavailable, Missing, GitFailed: then nothing was submitted.
    """
    remote = find_remote(crew)
    if remote is None:
        return
    try:
        remote.push_task(task.id, commit)
    except RemoteUnavailable as error:
        message = f"{task.id} is not submitted: {commit[:10]} could not be pushed, and is still on its branch here"
        raise RemoteUnavailable(f"{message}: {error.message}", "liza submit") from error


def fetch_submitted(crew: Crew, tasks: Sequence[Task]) -> None:
    """Fetch the submitted commits of tasks that this clone lacks. One that the remote lacks too is no error here.

    Raises RemoteUnavailable, Missing, Refused, GitFailed.
    """
    remote = find_remote(crew)
    if remote is None:
        return
    missing = [task for task in tasks if task.review_commit and not git_refs.has_commit(crew.git, task.review_commit)]
    if missing:
        fetch_requests(remote, missing)
        remote.fetch(crew.board.read().config.integration_branch, *(branch_of(task.id) for task in missing))


def fetch_requests(remote: SharedRemote, tasks: Sequence[Task]) -> None:
    """Fetch the heads of the pull requests of strangers: their commits are never pushed before they are merged.

    What cannot be fetched is missed when the commit is needed. Raises GitFailed.
    """
    for task in filter(strangers.is_foreign, tasks):
        assert task.submission is not None
        for name in ("pull", "merge-requests") if task.submission.request else ():
            remote.call("fetch", *FETCH_OPTIONS, patterns=[f"refs/{name}/{task.submission.request}/head"])


def require_submitted(crew: Crew, task: Task) -> None:
    """Raise Refused if neither this clone nor the fetched branch of the task has exactly the submitted commit."""
    commit = task.review_commit
    if not crew.remote_name or commit is None or git_refs.has_commit(crew.git, commit):
        return
    remote = find_remote(crew)
    assert remote is not None
    branch = branch_of(task.id)
    tip = remote.fetched(branch)
    where = "is gone" if tip is None else f"is at {tip[:10]}"
    message = f"{branch} of {remote.name} {where}, and has not the submitted commit {commit[:10]}"
    raise Refused(message, f"git ls-remote {remote.name} {HEADS}{branch}")


def fetch_reviewed(crew: Crew, task: Task) -> None:
    """Fetch exactly the submitted commit of a task. Raises Refused, RemoteUnavailable, Missing, GitFailed."""
    fetch_submitted(crew, [task])
    require_submitted(crew, task)


def choose_review_checkout(crew: Crew, task: Task) -> str:
    """Return the commit that is checked out for a review: the submitted one, but the target for a stranger's work.

    Then no filter of git meets its files, and none of them tells a program what to do. Raises Missing,
    RemoteUnavailable, Refused, GitFailed.
    """
    assert task.review_commit is not None
    return fetch_integration(crew, crew.board.read()) if strangers.is_foreign(task) else task.review_commit


def fetch_shown(crew: Crew, task: Task) -> None:
    """Fetch what a look at a task needs and this clone lacks: its merge, its submitted commit, or its branch.

    Raises RemoteUnavailable, Missing, Refused, GitFailed.
    """
    remote, commit = find_remote(crew), task.merge_commit or task.review_commit
    if remote is None or (commit is not None and git_refs.has_commit(crew.git, commit)):
        return
    target, branch = targets.target_branch(crew.board.read(), task), branch_of(task.id)
    fetch_requests(remote, [task])
    fetch_target(crew, remote, target, branch)
    if commit is None and branch_moves.branch_tip(crew.git, branch) is None:
        tip = remote.fetched(branch)
        if tip is not None:
            following.move_branch(crew.git, branch, tip, None)
            remote.mark_seen(branch, tip)
