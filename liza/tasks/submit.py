"""submit: send a coder's committed work to review."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import identify_run, record_run_result, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import git_refs, hiding, local_files, slot_setup, survey
from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.git.worktrees import Worktrees
from liza.model.errors import NotOwner
from liza.model.model import State, Status, Task
from liza.model.narration import verdict_command
from liza.model.paths import Paths, branch_of
from liza.model.targets import target_branch
from liza.model.value_classes import replace
from liza.system import crash_points
from liza.tasks import shared_code, task_branches
from liza.tasks.evidence import describe_overlaps
from liza.tasks.rules import claims, coding
from liza.tasks.rules.coding import SubmittedFiles, SubmittedWork
from liza.tasks.rules.planning import waits_for_verdict

NEXT_STEP = "stop now: a reviewer continues"
_GITLINK = "160000"  # mode of an entry that is a commit of another repository
# Ids of the file without content, by SHA-1 and by SHA-256.
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
MANUAL_NEXT_STEP = "liza claim {task} --agent code-reviewer-1, or let a reviewer of `liza up` take it"


def submit(crew: Crew) -> Result:
    """Submit the commit at HEAD of the run's worktree for review. Raises Refused, NotOwner."""
    caller = identify_run(crew)
    task_id = require_task(caller)
    task = claims.get_task(crew.board.read(), task_id)
    if task.run != caller.run and not any(event.run == caller.run for event in task.history):
        raise NotOwner(f"You no longer own this task: {caller.run} asks for {task_id}. Stop at once", "liza task list")
    is_open = task.run == caller.run and task.status in _SUBMITTABLE_STATUSES
    work = (
        inspect_worktree(crew, task) if is_open else SubmittedWork(task.review_commit or "", True, branch_of(task_id))
    )
    if is_open and crew.remote_name:
        # No board names a commit that the remote lacks. What the rules refuse is not pushed.
        coding.submit(crew.board.read(), task_id, caller.run, work, crew.clock.now())
        shared_code.push_submitted(crew, task, work.head)
        crash_points.point("submit", "pushed")
    with crew.change(caller.run, "submit", task_id) as tx:
        tx.state = coding.submit(tx.state, task_id, caller.run, work, crew.clock.now())
    _keep_reviewed(crew.worktrees, claims.get_task(tx.state, task_id))
    record_run_result(crew, caller.run, "0")
    step = NEXT_STEP if crew.run_dir(caller.run).exists() else _next_by_hand(tx.state, task_id)
    outside = dict(work.outside_scope)
    result = make_result(tx.before, tx.state, task_id, step, commit=work.head, outside_scope=outside)
    lines = (result.message, coding.describe_outside(outside))
    shared = describe_overlaps(crew, tx.state, [task_id], in_work=True)
    message = "\n".join(line for line in lines if line)
    return replace(result, message=message, remarks=(*result.remarks, *shared))


def _next_by_hand(state: State, task_id: str) -> str:
    """Return the next step after work by hand: a review by an agent or, if the task asks for that, by a person."""
    if waits_for_verdict(claims.get_task(state, task_id)):
        return f"{verdict_command(task_id)}; its changes: liza diff {task_id}"
    return MANUAL_NEXT_STEP.format(task=task_id)


def _keep_reviewed(worktrees: Worktrees, task: Task) -> None:
    """Write a ref that keeps the commit under review. Until then HEAD keeps it; after a crash, recovery writes the
    ref."""
    if task.status is Status.READY_FOR_REVIEW and task.review_commit is not None and task.worktree is not None:
        git_refs.write_review_ref(worktrees.slot_git(task.worktree), task.id, task.review_commit)


_SUBMITTABLE_STATUSES = (Status.CLAIMED, Status.READY_FOR_REVIEW)


def inspect_worktree(crew: Crew, task: Task) -> SubmittedWork:
    """Collect the facts about a worktree that `submit` checks. Raises NoCrew, GitFailed."""
    slot = crew.worktree_path(task)
    imported = task_branches.import_work(crew.worktrees, task)
    git = crew.worktrees.slot_git(slot.name)
    # Commit, branch and changed files of one moment.
    tree = crew.worktrees.read_work_tree(slot.name)
    is_elsewhere = tree.branch != branch_of(task.id)
    if tree.head is None and is_elsewhere:
        return SubmittedWork("", False, tree.branch)  # on a branch without a commit
    if imported is not None and is_elsewhere:
        git = crew.worktrees.open_git(slot.name)  # only the run has its commits
    elif imported is not None:
        task_branches.refuse_moved_branch(crew.worktrees, task, imported)
        # What was imported is the work, whatever git says in the box.
        tree = replace(tree, head=imported)
    head = tree.head or git.out("rev-parse", "HEAD")  # without a commit this raises git's error
    has_changes = bool(set(tree.changed) - set(tree.untracked))
    operation = survey.add_conflicts(
        survey.find_operation(git_dirs(crew.worktrees.open_git(slot.name))[0]), tree.conflicts
    )
    if operation is not None:
        return SubmittedWork(head, False, tree.branch, tree.changed, has_changes, operation)
    board = crew.board.read()
    target = f"refs/heads/{target_branch(board, task)}"
    base = git_refs.find_merge_base(git, head, target)
    files = _submitted_files(git, head, base) if base else SubmittedFiles()
    own_copies = _keep_copied(crew.paths, board, files.added)
    files = replace(files, hidden=(*files.hidden, *own_copies)) if own_copies else files
    own = f"refs/heads/{branch_of(task.id)}"
    has_branch = not is_elsewhere or git.find_commit(own) is not None
    return SubmittedWork(
        head=head,
        branch=tree.branch,
        ahead=head != task.base_commit and git.out("rev-list", "--count", "-n1", head, f"^{task.base_commit}") != "0",
        dirty=tree.changed,
        has_changes=has_changes,
        markers=survey.find_conflict_markers(git, base, head) if base else (),
        briefs=hiding.find_committed_blocks(git, base, head) if base else (),
        hidden=_hidden_instructions(crew.paths, board, git),
        has_branch=has_branch,
        has_strays=is_elsewhere
        and has_branch
        and git.out("rev-list", "--count", "-n1", head, "--not", own, target) != "0",
        related=base is not None,
        no_work=coding.find_no_work(files, task.scope),
        outside_scope=coding.count_outside(files, task.scope),
    )


def _submitted_files(git: Git, head: str, base: str) -> SubmittedFiles:
    """Return what the commits change since ``base``, with what the worktree hides. Raises GitFailed."""
    files = read_changed_files(git, head, base)
    bound = frozenset(hiding.list_bound_files(git)) if files.empty else frozenset()
    briefs = tuple(name for name in files.empty if name in bound)
    return replace(files, hidden=slot_setup.hidden_names(git), briefs=briefs)


def read_changed_files(git: Git, head: str, base: str) -> SubmittedFiles:
    """Return what the commits change since ``base``, the merge base with the target. Raises GitFailed."""
    # Renames count as deleted and added: a directory that moves adds no more files than it deletes.
    fields = git.names("diff", "--raw", "--no-abbrev", "--no-renames", "-z", base, head, "--")
    # Before each name: ":old-mode new-mode old-object new-object letter".
    rows, names = [field.split(" ") for field in fields[::2]], fields[1::2]
    letters = [row[4] for row in rows]
    empty = {name for row, name in zip(rows, names, strict=True) if row[4] == "A" and row[3] in _EMPTY_BLOBS}
    links = [name for row, name in zip(rows, names, strict=True) if row[1] == _GITLINK and row[0] != _GITLINK]
    named = _submodule_paths(git, head) if links else frozenset()
    files = SubmittedFiles(
        changed=names,
        added=tuple(name for letter, name in zip(letters, names, strict=True) if letter == "A"),
        deleted=letters.count("D"),
        repositories=tuple(name for name in links if name not in named),
        empty=tuple(sorted(empty)),
    )
    if not coding.needs_directories(files):
        return files
    return replace(files, directories=frozenset(git.names("ls-tree", "-r", "-d", "-z", "--name-only", base)))


def _submodule_paths(git: Git, head: str) -> frozenset[str]:
    """Return the paths that ``.gitmodules`` of a commit names."""
    options = ("-z", "--blob", f"{head}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    rows = git.run("config", *options).stdout.decode("utf-8", "surrogateescape").split("\0")
    return frozenset(row.partition("\n")[2] for row in rows)


def _hidden_instructions(paths: Paths, board: State, git: Git) -> tuple[str, ...]:
    """Instructions files that git ignores and that contain text besides the brief, without the person's own ones."""
    names = [
        name
        for name in hiding.list_bound_files(git)
        if hiding.read_without_blocks(git, name) and not hiding.is_tracked(git, name)
    ]
    own_copies = _keep_copied(paths, board, names)
    return tuple(name for name in names if name not in own_copies)


def _keep_copied(paths: Paths, board: State, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of these files that worktrees get from the person's checkout: no agent commits them."""
    copied = board.config.sandbox_copy
    if not copied or not names:
        return ()

    return tuple(name for name in names if local_files.is_copied(name, copied) and (paths.root / name).is_file())
