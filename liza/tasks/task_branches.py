"""The branches of tasks and of epics, and the commits of sessions on them.

The branch of an epic is created from integration, restored or accepted by a person, and deleted after it landed. A ref
beside it records the commit at which Liza left it. A branch that is gone while that ref exists was deleted by hand; a
branch without it is a person's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from liza.crew.crew import Crew
from liza.git import branch_moves, following, git_refs, integration_tip
from liza.git.run_git import REMOTE
from liza.git.runner import Git
from liza.git.salvage import find_last_salvage
from liza.git.worktrees import Worktrees
from liza.model import targets
from liza.model.alarm_table import LoggedKind
from liza.model.errors import GitFailed, LizaError, Refused, UnknownId
from liza.model.history_events import HistoryEvent
from liza.model.model import Task
from liza.model.paths import branch_of
from liza.model.value_classes import replace
from liza.tasks import shared_code
from liza.tasks.rules.conversations import earlier_runs


def import_work(worktrees: Worktrees, task: Task) -> str | None:
    """Import the commits of the session that owns a task. Return the newest one; None without a boxed session.

    Raises ImportRefused, GitFailed, OSError, LockTimeout.
    """
    if task.worktree is None or not worktrees.exists(task.worktree):
        return None
    return worktrees.import_run(task.worktree)


def try_import(crew: Crew, slot: str, run: str) -> str:
    """Import the commits of a session in a slot. Return why that is impossible; empty if it was done.

    The reason is in the alert log. Nothing is lost: the commits stay in the git directory of the run.
    """
    try:
        if crew.worktrees.exists(slot):
            crew.worktrees.import_run(slot)
    except (LizaError, OSError) as error:
        reason = error.message if isinstance(error, LizaError) else str(error)
        hint = getattr(error, "hint", "") or "liza doctor"
        crew.append_alert_log(
            [f"{LoggedKind.NOT_IMPORTED}  the commits of {run} are not on its branch: {reason}. Next: {hint}"]
        )
        return reason
    return ""


def refuse_moved_branch(worktrees: Worktrees, task: Task, commit: str) -> None:
    """Raise Refused if a task's branch was moved away from ``commit`` outside of its session. Raises GitFailed."""
    branch, tip = branch_of(task.id), worktrees.branch_tip(task.id)
    if tip is not None and tip != commit:
        raise Refused(
            f"{branch} was moved to {tip[:12]} outside of your session",
            f"git fetch {REMOTE} && git rebase {REMOTE}/{branch}",
        )


def describe_left_work(git: Git, task: Task, run: str) -> str:
    """Return which operation of git an earlier run left since the last submission, or the commits that the last run
    left outside the branch, with the next step; empty if there is nothing. Raises GitFailed.
    """
    runs = earlier_runs(task, run)
    last = find_last_salvage(git, task.id) if runs else None
    if last is None:
        return ""
    submitted = max((at for at, event in enumerate(task.history) if event.event == HistoryEvent.SUBMIT), default=-1)
    if last.unfinished and any(event.run == last.run for event in task.history[submitted + 1 :]):
        saved = f"Its files are in {last.ref}: git diff HEAD {last.ref}"
        return f"{last.run} left the worktree like this, before it was reset: {last.unfinished}. {saved}"
    branch = branch_of(task.id)
    ancestry = ("merge-base", "--is-ancestor", last.head, f"refs/heads/{branch}")
    if last.run == runs[0] and git.run(*ancestry, codes=(0, 1)).code == 1:
        return f"{last.run} left commits that are not on {branch}: git merge --no-edit {last.head[:12]}"
    return ""


def find_persons_branches(crew: Crew, branches: Iterable[str]) -> frozenset[str]:
    """Return those of ``branches``, names that begin with ``task/``, that are a person's own.

    A branch is a task's if that task is on the board or in the archive, if a slot has it checked out, or if work of the
    task was saved. Raises BoardUnreadable, GitFailed, OSError.
    """
    tasks = {branch_of(task.id) for task in crew.board.read().tasks}
    rest = frozenset(branches) - tasks
    if not rest:
        return rest
    archived = {branch_of(task_id) for task_id in crew.board.archived_ids()}
    saved = {branch_of(name.partition("/")[0]) for name in git_refs.refs_below(crew.git, "refs/liza/salvage/")}
    return rest - archived - saved - _checked_out_in_slots(crew)


def _checked_out_in_slots(crew: Crew) -> set[str]:
    return {
        branch
        for path, branch in branch_moves.list_checkouts(crew.git).items()
        if branch is not None and path.parent == crew.paths.slots
    }


_TIPS = "refs/liza/targets/"


def ensure_branch(crew: Crew, epic: str) -> bool:
    """Create the branch of an epic at the tip of integration unless it exists. Return whether it was created.

    Raises Refused if it was deleted by hand or is a person's own; Missing, GitFailed.
    """
    branch = targets.epic_branch(epic)
    ref = f"refs/heads/{branch}"
    tip, last = git_refs.find_commits(crew.git, ref, branch_moves.last_tip_ref(branch))
    if tip is not None and last is not None:
        return False
    if tip is not None:
        free = git_refs.find_free_name(branch.replace("/", "-"), git_refs.list_branches(crew.git))
        renamed = shlex.join(["git", "branch", "-m", branch, free])
        raise Refused(f"the branch {branch} exists already, and Liza did not create it", renamed)
    if last is not None:
        raise _gone_error(epic)
    start = integration_tip.require_integration(crew.git, crew.board.read())
    created = _write_refs(crew.git, f"create {ref} {start}", f"create {branch_moves.last_tip_ref(branch)} {start}")
    if not created and branch_moves.branch_tip(crew.git, branch) is None:
        raise _creation_error(crew.git, branch)
    return created


def _creation_error(git: Git, branch: str) -> Refused | GitFailed:
    """Return the error for a branch that git could not create."""
    branches = git_refs.list_branches(git)
    in_the_way = git_refs.find_excluding(branch, branches)
    if in_the_way is not None:
        return git_refs.ref_conflict_error(in_the_way, branch, branches)
    return GitFailed(f"git could not create the branch {branch}", "liza doctor")


def _gone_error(epic: str) -> Refused:
    return Refused(f"the branch {targets.epic_branch(epic)} is gone", f"liza epics restore {epic}")


def moved_error(epic: str, last: str | None, tip: str) -> Refused:
    """Return the error for the branch of an epic that is not where Liza left it."""
    branch, start = targets.epic_branch(epic), "an unknown commit" if last is None else last[:10]
    message = f"{branch} was moved outside of liza, from {start} to {tip[:10]}: its commits have no verdict"
    return Refused(message, f"liza epics restore {epic}")


def worktrees_for(crew: Crew, task: Task) -> Worktrees:
    """Return the slots for a claim of ``task``, whose branch starts at the tip of the branch it is merged into.

    The branch of an epic is created if no task has needed it yet. On a crew with several hosts both branches are
    fetched first. Raises RemoteUnavailable, Refused, also for the branch of an epic that
    was deleted by hand, Missing, GitFailed.
    """
    if crew.remote_name:
        crew.refuse_moved()
        start = shared_code.fetch_start(crew, task)
        return replace(crew.worktrees_onto(targets.target_branch(crew.board.read(), task)), start=start)
    if task.epic is None and task.target is None:
        # Submitted work that a coder goes on with: a new branch of the task begins with it.
        if task.submission is None or task.review_commit is None:
            return crew.worktrees
        _follow_author(crew.git, task.id, task.review_commit)
        return replace(crew.worktrees, start=task.review_commit)
    crew.refuse_moved()
    if task.epic is not None:
        ensure_branch(crew, task.epic)
    return crew.worktrees_onto(targets.target_branch(crew.board.read(), task))


def _follow_author(git: Git, task_id: str, commit: str) -> None:
    """Bring the branch of a task to the commit that its author submitted on top of it. Raises GitFailed."""
    branch = branch_of(task_id)
    tip = branch_moves.branch_tip(git, branch)
    is_behind = tip is not None and tip != commit and git_refs.is_contained(git, tip, commit)
    if is_behind and branch_moves.find_checkout(git, branch) is None:
        following.move_branch(git, branch, commit, tip)


def find_faults(crew: Crew) -> dict[str, Refused]:
    """Return what is wrong with the branches of open epics, by epic. Raises GitFailed."""
    faults = {}
    state = crew.board.read()
    commits = {task.merge_commit for task in state.tasks if task.epic}
    heads = git_refs.refs_below(crew.git, f"refs/heads/{targets.EPIC_PREFIX}")
    tips = git_refs.refs_below(crew.git, _TIPS + targets.EPIC_PREFIX)
    for epic in targets.open_epics(state):
        tip, last = heads.get(epic), tips.get(epic)
        if tip is None and last is not None:
            faults[epic] = _gone_error(epic)
        elif tip is not None and tip != last and tip not in commits:
            faults[epic] = moved_error(epic, last, tip)
    return faults


def restore_branch(crew: Crew, epic: str) -> str:
    """Put the branch of an epic back to where Liza left it; its present tip is saved. Return a sentence.

    Raises UnknownId, Refused, GitFailed.
    """
    branch = targets.epic_branch(epic)
    tip, last = git_refs.find_commits(crew.git, f"refs/heads/{branch}", branch_moves.last_tip_ref(branch))
    if tip is None and last is None:
        if epic not in targets.open_epics(crew.board.read()):
            raise UnknownId(f"there is no open epic {epic!r}", "liza epics")
        ensure_branch(crew, epic)
        return f"{branch} was created at the tip of integration"
    if last is None:
        raise Refused(f"it is unknown where liza left {branch}", f"liza epics accept {epic}")
    if tip == last:
        return f"{branch} is where liza left it"
    saved = ""
    if tip is not None:
        saved = f"; its former tip is saved as {save_epic_tip(crew.git, epic, tip)}"
    if not branch_moves.restore_branch(crew.git, branch, last):
        message = f"{branch} could not be put back to {last[:10]}: files in its checkout are in the way"
        raise Refused(message, "git status")
    return f"{branch} was put back to {last[:10]}{saved}"


def save_epic_tip(git: Git, epic: str, tip: str) -> str:
    """Keep a commit of the branch of an epic under a ref; return the ref. Raises GitFailed."""
    ref = f"refs/liza/salvage/epic.{epic}/{tip[:12]}"
    git.out("update-ref", ref, tip)
    return ref


def accept_branch(git: Git, epic: str) -> str:
    """Accept where a person moved the branch of an epic. Return a sentence. Raises UnknownId, GitFailed."""
    branch = targets.epic_branch(epic)
    tip = branch_moves.branch_tip(git, branch)
    if tip is None:
        raise UnknownId(f"there is no branch {branch}", f"liza epics restore {epic}")
    git.out("update-ref", branch_moves.last_tip_ref(branch), tip)
    return f"{branch} is accepted at {tip[:10]}"


def delete_landed(crew: Crew) -> None:
    """Delete the branches of epics that have nothing left to land. One that is checked out, or has commits that
    integration has not, stays. The caller holds the merge lock. Raises GitFailed.
    """
    state = crew.board.read()
    tips = git_refs.refs_below(crew.git, _TIPS + targets.EPIC_PREFIX)
    for epic in sorted(tips.keys() - set(targets.open_epics(state))):
        branch = targets.epic_branch(epic)
        last, tip = tips[epic], branch_moves.branch_tip(crew.git, branch)
        delete_tip = f"delete {branch_moves.last_tip_ref(branch)} {last}"
        if tip is None:
            shared_code.delete_epic(crew, epic)
            _write_refs(crew.git, delete_tip)
        elif not branch_moves.contains(crew.git, state.config.integration_branch, tip):
            continue
        elif branch_moves.find_checkout(crew.git, branch) is None:
            shared_code.delete_epic(crew, epic)
            _write_refs(crew.git, f"delete refs/heads/{branch} {tip}", delete_tip)


def _write_refs(git: Git, *commands: str) -> bool:
    """Change refs in one transaction of git; return whether it succeeded.

    Not with the identity of the session of a planner: the reflog would say that the session moved them.
    """
    return git.with_identity().run("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in commands)).code == 0
