"""Read submitted work in git: its commits, its author, and the open tasks that it is built on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from liza.crew.crew import Crew
from liza.git import git_refs
from liza.git.git_refs import HEADS
from liza.git.runner import Git
from liza.model import targets
from liza.model.errors import Refused
from liza.model.model import State, Submission, Task
from liza.model.value_classes import Value, replace
from liza.programs.presets import preset_table
from liza.tasks import shared_code
from liza.tasks.rules import claims, strangers, submissions
from liza.tasks.rules.submissions import BranchCommit, OutsideWork
from liza.text.quoting import sanitize
from liza.text.undecoded import escape_undecoded

_SUBMITTED_REFS = ("refs/liza/review/", "refs/liza/fetched/")
_COMMIT_FORMAT = "--format=%H%n%aN <%aE>%n%s%n%b"


class WorkSource(Value):
    """Where submitted work is, and its commit. ``remarks``: what else the author should know."""

    commit: str
    submission: Submission
    remarks: tuple[str, ...] = ()


def find_target(crew: Crew, state: State, task: Task | None) -> tuple[str, str]:
    """Return the branch that a task is merged into, and its tip, which is fetched if hosts share it."""
    if task is None or (task.target is None and task.epic is None):
        return state.config.integration_branch, shared_code.fetch_integration(crew, state)
    target = targets.target_branch(state, task)
    return target, f"{HEADS}{target}"


def read_work(crew: Crew, state: State, source: WorkSource, existing: Task | None) -> OutsideWork:
    """Read the commits of the work, and the open tasks that they contain or that contain them.

    ``existing``: the task of its earlier commits. Raises Refused, GitFailed.
    """
    git, commit, submission = crew.git, source.commit, source.submission
    target, tip = find_target(crew, state, existing)
    base = git_refs.find_merge_base(git, commit, tip)
    if not base:
        step = shlex.join(["git", "rebase", "--onto", target, "--root", submission.branch or commit])
        raise Refused(f"{commit[:12]} has no commit in common with {target}, so it can never be merged", step)
    if base == commit and (existing is None or existing.review_commit != commit):
        undone = next((task for task in state.tasks if task.undo is not None and task.review_commit == commit), None)
        if undone is not None and undone.undo is not None:
            again = f"{undone.id}-again"
            step = f"git switch -c {again} {target} && git revert --no-edit {undone.undo.commit[:12]}"
            message = f"{commit[:12]} was merged as {undone.id} and undone: only a revert of the undo brings it back"
            raise Refused(message, f"{step} && liza submit {again}")
        raise Refused(
            f"{commit[:12]} has nothing that {target} lacks: it is merged, or it has no commit",
            f"git log -1 {commit[:12]}",
        )
    own = None if existing is None else existing.id
    others = {name: tip for name, tip in submissions.list_open(state, target).items() if name != own}
    same = next((name for name, other in others.items() if other == commit), None)
    if same is not None:
        raise Refused(f"{commit[:12]} is submitted already, as {same}", f"liza task show {same}")
    contained = find_contained(git, others, commit, tip)
    containing = _find_containing(git, others, commit)
    lower = [others[name] for name in contained]
    commits = _read_commits(git, commit, (tip, *lower))
    presets = preset_table.load_presets(crew.paths).rows.keys()
    program = submissions.find_program(commits, presets)
    author = submission.author or (commits[-1].author if commits else "")
    start = lower[0] if len(lower) == 1 else base
    is_foreign = submission.is_foreign or has_foreign(state, contained)
    return OutsideWork(
        commit=commit,
        base=start,
        submission=replace(submission, author=author, program=submission.program or program, is_foreign=is_foreign),
        commits=commits,
        paths=tuple(git.names("diff", "--no-renames", "--name-only", "-z", start, commit, "--")),
        contained=contained,
        containing=containing,
        rewritten=_find_rewritten(git, others, existing, commit),
        has_earlier=_has_earlier(git, existing, commit),
    )


def find_contained(git: Git, others: dict[str, str], commit: str, tip: str) -> tuple[str, ...]:
    """Return the open tasks whose commits the work contains, without those that another of them contains."""
    commits = frozenset(git.lines("rev-list", commit, f"^{tip}"))
    inside = {name: other for name, other in others.items() if other in commits}
    if len(inside) < 2:
        return tuple(inside)
    highest = frozenset(git.lines("merge-base", "--independent", *dict.fromkeys(inside.values())))
    return tuple(name for name, other in inside.items() if other in highest)


def _find_containing(git: Git, others: dict[str, str], commit: str) -> tuple[str, ...]:
    """Return the open tasks whose commits contain this one: each has a ref."""
    commits = frozenset(git.lines("for-each-ref", f"--contains={commit}", "--format=%(objectname)", *_SUBMITTED_REFS))
    return tuple(name for name, other in others.items() if other in commits)


def has_foreign(state: State, contained: Sequence[str]) -> bool:
    """Return whether a stranger wrote a part of the work: one of the submitted branches that it contains."""
    return any(strangers.is_foreign(claims.get_task(state, name)) for name in contained)


def _find_rewritten(git: Git, others: dict[str, str], existing: Task | None, commit: str) -> tuple[str, ...]:
    """Return the tasks that are built on the earlier commit of the work, which the new one does not contain."""
    earlier = None if existing is None else existing.review_commit
    if earlier is None or not git_refs.has_commit(git, earlier) or git_refs.is_contained(git, earlier, commit):
        return ()
    present = _find_containing(git, others, commit)
    return tuple(name for name in _find_containing(git, others, earlier) if name not in present)


def _has_earlier(git: Git, existing: Task | None, commit: str) -> bool:
    earlier = None if existing is None else existing.review_commit
    return earlier is None or git_refs.is_contained(git, earlier, commit)


def _read_commits(git: Git, commit: str, others: Sequence[str]) -> tuple[BranchCommit, ...]:
    """Return the commits that none of the others has, without merges, oldest first. Their texts are cleaned."""
    texts = git.names("log", "-z", "--no-merges", "--reverse", "--topo-order", _COMMIT_FORMAT, commit, "--not", *others)
    commits = []
    for text in texts:
        commit_id, author, subject, *body = sanitize(escape_undecoded(text)).split("\n")
        commits.append(BranchCommit(commit_id, author, subject, "\n".join(body).strip()))
    return tuple(commits)
