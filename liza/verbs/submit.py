"""submit: the coder's work is committed and goes to review."""

from __future__ import annotations

from liza.crew.caller import run_caller, task_of
from liza.crew.crew import Crew
from liza.crew.result import Result, answer
from liza.crew.run_end import said_last
from liza.repo import symbolic_refs
from liza.repo.hiding import brief_filter
from liza.repo.merge import merge_refs
from liza.repo.runner import Git
from liza.rules.errors import NotYours
from liza.rules.model import Status, Task
from liza.rules.paths import branch_of
from liza.rules.tasks import claims, coding
from liza.rules.tasks.coding import Work

NEXT = "stop now: a reviewer takes it from here"
BY_HAND = "liza claim {task} --agent code-reviewer-1, or let a reviewer of `liza up` take it"


def submit(crew: Crew) -> Result:
    """What stands at HEAD of the run's worktree is to be reviewed. Raises Refused, NotYours."""
    caller = run_caller(crew)
    task_id = task_of(caller)
    task = claims.find(crew.board.read(), task_id)
    if task.run != caller.run and not any(event.run == caller.run for event in task.history):
        raise NotYours(f"You no longer own this task: {caller.run} asks for {task_id}. Stop at once", "liza task list")
    work = (
        look(crew, task)
        if task.run == caller.run and task.status in _OPEN
        else Work(task.review_commit or "", True, branch_of(task_id))
    )
    with crew.change(caller.run, "submit", task_id) as tx:
        tx.state = coding.submit(tx.state, task_id, caller.run, work, crew.clock.now())
    _keep_reviewed(crew, claims.find(tx.state, task_id))
    said_last(crew, caller.run, "0")
    step = NEXT if crew.run_dir(caller.run).exists() else BY_HAND.format(task=task_id)
    return answer(tx.before, tx.state, task_id, step, commit=work.head)


def _keep_reviewed(crew: Crew, task: Task) -> None:
    """Keep the commit under review with a ref. It is at HEAD until then, and recovery does the same after a crash."""
    if task.status is Status.READY_FOR_REVIEW and task.review_commit is not None and task.worktree is not None:
        merge_refs.keep_reviewed(crew.worktrees.slot_git(task.worktree), task.id, task.review_commit)


_OPEN = (Status.CLAIMED, Status.READY_FOR_REVIEW)


def look(crew: Crew, task: Task) -> Work:
    """The worktree as `submit` must know it. Raises NoCrew, GitFailed."""
    slot = crew.slot_of(task)
    git = crew.worktrees.slot_git(slot.name)
    symbolic_refs.refuse(git, f"refs/heads/{branch_of(task.id)}")
    head = git.out("rev-parse", "HEAD")
    assert task.worktree is not None
    return Work(
        head=head,
        branch=_branch(git),
        ahead=git.out("rev-list", "--count", "-n1", head, f"^{task.base_commit}") != "0",
        dirty=crew.worktrees.dirty(task.worktree),
        stray=_strays(git),
        related=merge_refs.related(git, head, f"refs/heads/{crew.board.read().config.integration_branch}"),
    )


def _branch(git: Git) -> str | None:
    found = git.run("symbolic-ref", "--quiet", "--short", "HEAD", codes=(0, 1))
    return found.stdout.decode("utf-8", "replace").strip() or None


def _strays(git: Git) -> tuple[str, ...]:
    """Instructions files that git is told to overlook, and that hold text besides the brief."""
    return tuple(
        name
        for name in brief_filter.bound(git)
        if not brief_filter.is_known(git, name) and brief_filter.text_outside(git.directory / name)
    )
