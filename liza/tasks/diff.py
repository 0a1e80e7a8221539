"""diff, path: show the changes of a task against the branch it is merged into; return its worktree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from liza.crew.crew import Crew
from liza.git import branch_moves, git_refs, integration_tip
from liza.git.runner import Git
from liza.model.errors import Refused
from liza.model.model import State, Status, Task
from liza.model.paths import branch_of, check_task_id
from liza.model.statuses import describe_task
from liza.model.targets import target_branch
from liza.model.value_classes import Value, replace
from liza.model.value_classes import asdict as fields_of
from liza.programs.presets import preset_table
from liza.tasks import archive, shared_code
from liza.tasks.rules import claims, strangers, submissions
from liza.text.undecoded import escape_name

_DIFF_OPTIONS = ("--no-color", "--no-ext-diff", "--no-textconv", "--find-renames")
_UNQUOTED_NAMES = ("core.quotePath", "false")


class TaskDiff(Value):
    """Changes of a task from ``base`` to ``commit``; with ``directory``, those of its worktree.

    ``untracked`` names untracked files, ``comments`` are those of the last rejection on lines. ``instructing``: changed
    files of submitted work that tell agents, their programs or git what to do. ``opinion``: what a program that could
    run nothing wrote about it.
    """

    task: str
    status: str
    base: str
    commit: str
    directory: str | None
    untracked: tuple[str, ...]
    comments: tuple[dict[str, Any], ...]
    diff: str
    instructing: tuple[str, ...] = ()
    opinion: str = ""

    def list_notices(self) -> tuple[str, ...]:
        """Return the lines that a person reads before the diff."""
        named = (
            f"changes {', '.join(map(escape_name, self.instructing))}: agents, their programs or git obey such files"
        )
        rows = (f"  > {row}".rstrip() for row in self.opinion.splitlines())
        opinion = ("a program without tools wrote about it:", *rows) if self.opinion else ()
        return (*((named,) if self.instructing else ()), *opinion)


def diff(crew: Crew, task_id: str, stat: bool = False) -> TaskDiff:
    """Diff between the merge base with the target branch and the commit under review; for a CLAIMED task, its worktree.

    Raises UnknownId, Refused, Missing, GitFailed.
    """
    state = archive.with_archived(crew.board, crew.board.read(), check_task_id(task_id))
    task = claims.get_task(state, task_id)
    options = ("--stat",) if stat else ()
    is_at_work = task.status is Status.CLAIMED
    if is_at_work and task.worktree and crew.is_here(task) and crew.paths.slot(task.worktree).is_dir():
        return _diff_worktree(crew, task, _find_target_tip(crew.git, state, task), options)
    shared_code.fetch_shown(crew, task)
    if task.merge_commit:
        old, new = f"{task.merge_commit}^1", task.merge_commit
    else:
        new = _commit_to_show(crew, task)
        old = _find_base(crew.git, state, task, new)
    text = crew.git.with_config(_UNQUOTED_NAMES).out("diff", *_DIFF_OPTIONS, *options, old, new, "--")
    shown = TaskDiff(task.id, task.status.value, old, new, None, (), _comments(task), text)
    if task.submission is None:
        return shown
    return replace(shown, instructing=find_instructing(crew, old, new), opinion=task.submission.opinion)


def find_instructing(crew: Crew, old: str, new: str) -> tuple[str, ...]:
    """Return the files that differ between two commits and tell agents, their programs or git what to do."""
    rows = preset_table.load_presets(crew.paths).rows.values()
    names = {name for row in rows for name in row.instructions}
    return strangers.select_instructing(git_refs.list_changed_paths(crew.git, old, new), names)


def _comments(task: Task) -> tuple[dict[str, Any], ...]:
    """Return the comments as JSON has them: with the fields that are empty."""
    return tuple(map(fields_of, task.review_comments))


def _find_target_tip(git: Git, state: State, task: Task) -> str:
    """Return the tip of the branch that the task is merged into, or of integration if that is gone."""
    tip = branch_moves.branch_tip(git, target_branch(state, task)) if task.epic or task.target else None
    return tip or integration_tip.require_integration(git, state)


def _diff_worktree(crew: Crew, task: Task, onto: str, options: tuple[str, ...]) -> TaskDiff:
    assert task.worktree is not None
    git = crew.worktrees.open_git(task.worktree)
    head = git.out("rev-parse", "HEAD")
    base = _merge_base(git, onto, head)
    text = git.with_config(_UNQUOTED_NAMES).out("diff", *_DIFF_OPTIONS, *options, base, "--")
    untracked = tuple(git.names("ls-files", "-z", "--others", "--exclude-standard"))
    directory = str(crew.paths.task_link(task.id))
    return TaskDiff(task.id, task.status.value, base, head, directory, untracked, _comments(task), text)


def _find_base(git: Git, state: State, task: Task, new: str) -> str:
    """Return where the work of a task begins: of a branch on top of another submitted one, where that ends.

    Raises Refused, Missing, GitFailed.
    """
    base = _merge_base(git, _find_target_tip(git, state, task), new)
    start = None if task.submission is None else task.base_commit
    is_stacked = (
        start is not None and git_refs.is_contained(git, base, start) and git_refs.is_contained(git, start, new)
    )
    return start if start is not None and is_stacked else base


def _merge_base(git: Git, onto: str, commit: str) -> str:
    """Merge base of ``commit`` and the tip ``onto``. Raises Refused if they have no common commit, GitFailed."""
    base = git.run("merge-base", onto, commit, codes=(0, 1)).stdout.decode().strip()
    if not base:
        raise Refused(f"{commit[:12]} has no common commit with integration", f"git show {commit[:12]}")
    return base


def _commit_to_show(crew: Crew, task: Task) -> str:
    commit = task.review_commit or branch_moves.branch_tip(crew.git, branch_of(task.id))
    if commit is None:
        crew.require_here(task)
        raise Refused(f"{describe_task(task.id, task.status)}: it has no commit yet", f"liza task show {task.id}")
    return commit


def find_worktree(crew: Crew, task_id: str) -> str:
    """Return the path of the link to a task's worktree, or of its author's. Raises UnknownId, Refused without one."""
    state = archive.with_archived(crew.board, crew.board.read(), check_task_id(task_id))
    task, link = claims.get_task(state, task_id), crew.paths.task_link(task_id)
    crew.require_here(task)
    if link.is_dir():
        return str(link)
    submission = task.submission
    is_here = submission is not None and submissions.is_on_host(submission, crew.host)
    of_author = submission.worktree if submission is not None and is_here else ""
    if task.worktree is None and of_author and Path(of_author).is_dir():
        return of_author
    if task.worktree is None:
        raise Refused(f"{describe_task(task_id, task.status)}: it has no worktree", f"liza task show {task_id}")
    raise Refused(f"the worktree of {task_id} is not complete", "liza doctor --fix")
