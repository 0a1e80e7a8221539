"""Claim, submit and hand off a task in the worktree of a program that Liza did not start.

The program's server holds the lock of its worktree as long as it runs: the kernel releases it also after SIGKILL. A
bound task whose lock is free was left: recovery, the keeper or the next server hands it off. The worktree is only read.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import branch_moves, git_refs, other_worktrees, salvage, survey
from liza.git.git_config import git_dirs
from liza.git.git_refs import HEADS
from liza.git.other_worktrees import OtherWorktree
from liza.model.errors import LizaError, NotOwner, Refused
from liza.model.model import Handoff, State, Submission, Task
from liza.model.paths import Paths, agent_of, branch_of
from liza.model.targets import is_crew_branch, target_branch
from liza.model.value_classes import replace
from liza.system import crash_points, files
from liza.system.locks import is_flock_held
from liza.tasks import claim, outside_work, permission, shared_code
from liza.tasks import submit as submit_verb
from liza.tasks.evidence import describe_overlaps, gather_evidence
from liza.tasks.outside_work import WorkSource
from liza.tasks.rules import bound_claims, claims, coding, submissions
from liza.tasks.rules.bound_claims import BoundWorktree
from liza.tasks.rules.coding import SubmittedWork
from liza.text.formats import count_noun
from liza.text.undecoded import list_names

_LIST = "liza task list"


def lock_path(paths: Paths, worktree: Path | str) -> Path:
    """Return the lock that the server of a program holds whose worktree this is."""
    name = hashlib.sha256(str(worktree).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return paths.locks / f"bound-{name}.lock"


def is_alive(paths: Paths, worktree: str) -> bool:
    """Return whether the program of a worktree runs: its lock is held. Raises LizaError."""
    with files.convert_os_errors():
        return is_flock_held(lock_path(paths, worktree))


def find_own_worktree(crew: Crew, directory: Path) -> OtherWorktree:
    """Return the linked worktree that has the directory. Raises Refused, with the command that makes one; GitFailed."""
    top = other_worktrees.find_top(directory.resolve())
    worktree = None if top is None else other_worktrees.find_worktree(crew.git, top)
    root = crew.paths.root
    if worktree is None:
        raise Refused(f"{top or directory} is no worktree of {root}, whose crew this is", worktree_command(crew))
    if worktree.path.parent == crew.paths.slots.resolve():
        raise Refused(f"{worktree.path} is a worktree of the crew", worktree_command(crew))
    if worktree.git_dir == git_dirs(crew.git)[1]:
        message = f"{worktree.path} is the person's checkout: a task needs a worktree of its own"
        raise Refused(message, worktree_command(crew))
    return worktree


def worktree_command(crew: Crew) -> str:
    """Return the command that makes a worktree beside the repository."""
    root = crew.paths.root
    number = next(number for number in range(1, 10_000) if not root.with_name(f"{root.name}-work-{number}").exists())
    path, target = root.with_name(f"{root.name}-work-{number}"), crew.board.read().config.integration_branch
    return shlex.join(["git", "-C", str(root), "worktree", "add", "--detach", str(path), target])


def claim_here(crew: Crew, worktree: OtherWorktree, task_id: str | None, held_run: str, program: str) -> Result:
    """Claim a task for the program whose worktree this is. The same task again changes nothing.

    ``held_run``: the run of its last claim. Raises Refused, UnknownId, NoCrew, GitFailed.
    """
    require_person(crew, planner=False)
    if crew.remote_name and not crew.host:
        raise Refused("this clone runs no agents: .liza/board.toml has no host", "liza help join")
    path = str(worktree.path)
    if not is_alive(crew.paths, path):
        raise Refused(f"no program holds {path}: a claim lasts as long as its `liza mcp` runs", "liza mcp")
    bound = next(filter(bound_claims.is_bound, bound_claims.list_tasks_of(crew.board.read(), path, crew.host)), None)
    if bound is not None and bound.run == held_run:
        if task_id not in (None, bound.id):
            raise Refused(f"{bound.id} is claimed in {path}: one task at a time", f"liza task show {bound.id}")
        return _describe(crew, crew.board.read(), bound, worktree)
    if bound is not None:
        # This program has the lock, so the one that had claimed it is gone.
        hand_off(crew, bound, "another program began there")
    return _claim(crew, worktree, task_id, program)


def _claim(crew: Crew, worktree: OtherWorktree, task_id: str | None, program: str) -> Result:
    path, before = str(worktree.path), crew.board.read()
    evidence, now = gather_evidence(crew, before), crew.clock.now()
    chosen = task_id or bound_claims.choose_task(before, path, now, evidence, crew.host)
    if chosen is None:
        raise Refused("no task can be claimed", _LIST)
    task = claims.get_task(before, chosen)
    base = _check_start(crew, before, task, worktree)
    bound = BoundWorktree(path=path, base=base, program=program, host=crew.host)
    agent = bound_claims.choose_agent(before, task)
    with crew.change(agent, "claim", chosen) as tx:
        state = claims.ensure_agent(tx.state, agent, crew.host)
        tx.state, _ = bound_claims.claim(state, chosen, agent, bound, crew.clock.now(), evidence)
    crash_points.point("bound claim", "recorded")
    if task.worktree is not None and crew.is_here(task):
        claim.release_orphan_slot(crew, task.worktree)
    result = _describe(crew, before, claims.get_task(tx.state, chosen), worktree)
    return replace(result, remarks=(*result.remarks, *describe_overlaps(crew, tx.state, (chosen,), in_work=True)))


def _check_start(crew: Crew, state: State, task: Task, worktree: OtherWorktree) -> str:
    """Return the merge base of HEAD and the target. Raises Refused unless HEAD has only work of this task.

    Returned work of the same worktree may be under way again: its files may have changed.
    """
    path = worktree.path
    if worktree.operation is not None:
        raise Refused(worktree.operation.describe(str(path)), shlex.join(["git", "-C", str(path), "status"]))
    if worktree.commit is None:
        raise Refused(f"{path} has no commit yet", worktree_command(crew))
    target, tip = outside_work.find_target(crew, state, task)
    if worktree.branch == target:
        message = f"{path} has {target} checked out: what is committed there is not reviewed"
        raise Refused(message, shlex.join(["git", "-C", str(path), "switch", "--detach"]))
    base = git_refs.find_merge_base(crew.git, worktree.commit, tip)
    if not base:
        raise Refused(f"HEAD of {path} has no commit in common with {target}", worktree_command(crew))
    if bound_claims.is_of_worktree(task, str(path), crew.host):
        return base
    changed = other_worktrees.list_uncommitted(crew.git, worktree)
    if changed:
        message = f"{count_noun(len(changed), 'file')} of {path} changed and not committed ({list_names(changed, 3)})"
        raise Refused(message, worktree_command(crew))
    own = filter(None, (branch_moves.branch_tip(crew.git, branch_of(task.id)), task.review_commit))
    if crew.git.out("rev-list", "--count", "-n1", worktree.commit, "--not", tip, *own) != "0":
        message = f"HEAD of {path} has commits that {target} lacks, and that are not of {task.id}"
        raise Refused(message, shlex.join(["git", "-C", str(path), "switch", "--detach", target]))
    return base


def _describe(crew: Crew, before: State, task: Task, worktree: OtherWorktree) -> Result:
    """Return the claim, with the earlier commits of the task that HEAD lacks."""
    after = crew.board.read()
    tip = branch_moves.branch_tip(crew.git, branch_of(task.id))
    target = target_branch(after, task)
    head = worktree.commit or "HEAD"
    has_more = tip is not None and crew.git.out("rev-list", "--count", "-n1", tip, "--not", head, target) != "0"
    step = f"git merge --no-edit {branch_of(task.id)}" if has_more else "work, commit, then submit_work"
    unfinished = salvage.find_unrestored(crew.git, task.id)
    result = make_result(before, after, task.id, step, run=task.run, worktree=str(worktree.path), base=task.base_commit)
    return replace(result, details={**result.details, "uncommitted_work_of_an_earlier_session": unfinished})


def submit_here(crew: Crew, run: str, task_id: str) -> Result:
    """Submit HEAD of the worktree that a task is bound to. Raises Refused, NotOwner, GitFailed."""
    require_person(crew, planner=False)
    before = crew.board.read()
    task = claims.get_task(before, task_id)
    if task.submission is None or not task.submission.worktree:
        raise NotOwner(f"You no longer own this task: {run} asks for {task_id}", f"liza task show {task_id}")
    worktree = find_own_worktree(crew, Path(task.submission.worktree))
    work, now = _inspect(crew, before, task, worktree), crew.clock.now()
    # What the rules refuse is neither read nor pushed.
    bound_claims.submit(before, task_id, run, work, None, now)
    outside = outside_work.read_work(crew, before, _find_source(crew, before, task, worktree), task)
    if crew.remote_name and not outside.submission.is_foreign:
        # No board names a commit that the remote lacks.
        shared_code.push_submitted(crew, task, work.head)
    with crew.change(run, "submit", task_id) as tx:
        tx.state = bound_claims.submit(tx.state, task_id, run, work, outside, now)
    crash_points.point("bound submit", "recorded")
    git_refs.write_review_ref(crew.git, task_id, work.head)
    submitted, counts = claims.get_task(tx.state, task_id), dict(work.outside_scope)
    step = f"a {'person' if submitted.review == 'human' else 'reviewer'} reviews it; queue_status shows the verdict"
    result = make_result(tx.before, tx.state, task_id, step, commit=work.head, outside_scope=counts)
    left = other_worktrees.list_untracked(crew.git, worktree)
    note = (
        (f"{count_noun(len(left), 'new file')} not committed, so not submitted: {list_names(left, 3)}",) if left else ()
    )
    return replace(result, remarks=(*result.remarks, *permission.describe_stranger(submitted), *note))


def _find_source(crew: Crew, state: State, task: Task, worktree: OtherWorktree) -> WorkSource:
    """Return the work of a bound task: its branch has it too, unless that is one of Liza's."""
    branch = worktree.branch or ""
    if is_crew_branch(branch) or branch == target_branch(state, task):
        branch = ""
    program = "" if task.submission is None else task.submission.program
    submission = Submission(branch=branch, worktree=str(worktree.path), host=crew.host, program=program)
    return WorkSource(worktree.commit or "", submission)


def _inspect(crew: Crew, state: State, task: Task, worktree: OtherWorktree) -> SubmittedWork:
    """Return the facts about the worktree that the rules of `submit` need."""
    git, head, target = crew.git, worktree.commit or "", f"{HEADS}{target_branch(state, task)}"
    base = git_refs.find_merge_base(git, head, target) if head else None
    changed = submit_verb.read_changed_files(git, head, base) if base else coding.SubmittedFiles()
    return SubmittedWork(
        head=head,
        branch=branch_of(task.id),
        ahead=bool(base) and head != base,
        dirty=other_worktrees.list_uncommitted(git, worktree) if head else (),
        has_changes=True,
        operation=worktree.operation,
        markers=survey.find_conflict_markers(git, base, head) if base else (),
        related=base is not None,
        no_work=coding.find_no_work(changed, task.scope),
        outside_scope=coding.count_outside(changed, task.scope),
    )


def hand_off(crew: Crew, task: Task, why: str) -> bool:
    """End the claim of a program that is gone, and save its work first. Return whether the task was still its own.

    Its commits are on the branch of the task, its other files in a salvage. Raises GitFailed, LizaError.
    """
    run = task.run or ""
    with claim.lock_task(crew, task.id) as locked:
        if locked is None:
            return False
        current = locked.board.read().task(task.id)
        if current is None or not bound_claims.is_bound(current) or current.run != run:
            return False
        saved = save_work(locked, current, run)
        crash_points.point("bound hand-off", "saved")
        now = crew.clock.now()
        note = Handoff(
            agent=agent_of(run),
            run=run,
            timestamp=now,
            summary="; ".join((f"Its program ended: {why}", *saved)),
            next_action="Look at what is there, and go on.",
        )
        with locked.change(run, "handoff", task.id) as tx:
            tx.state = bound_claims.hand_off(tx.state, task.id, run, note, now)
    return True


def save_work(crew: Crew, task: Task, run: str) -> tuple[str, ...]:
    """Save what a bound worktree has beyond the target. Return sentences that say where it is. Raises GitFailed."""
    assert task.submission is not None
    path = Path(task.submission.worktree)
    if not submissions.is_on_host(task.submission, crew.host):
        return (f"its worktree {path} is on the host {task.submission.host}",)
    worktree = other_worktrees.find_worktree(crew.git, path) if path.is_dir() else None
    if worktree is None or worktree.commit is None:
        return (f"its worktree {path} is gone",)
    target = f"{HEADS}{target_branch(crew.board.read(), task)}"
    commit, saved = worktree.commit, []
    if not git_refs.is_contained(crew.git, commit, target):
        kept = _keep_commits(crew, task, run, commit)
        saved.append(f"its commits are on {kept}{_share_commits(crew, task, commit, kept)}")
    git = crew.git.with_git_dir(worktree.path, worktree.git_dir, git_dirs(crew.git)[1])
    ref = salvage.salvage_new_changes(git, task.id, run, (commit,))
    return (*saved, *([f"its uncommitted files are in {ref}{_name_host(crew)}"] if ref else []))


def _share_commits(crew: Crew, task: Task, commit: str, kept: str) -> str:
    """Push the branch of a task: its next run may be on another host. Return where it is, if it is only here."""
    if kept == branch_of(task.id):
        # The commits are kept here, and a host that is cut off still ends the claim.
        with suppress(LizaError):
            shared_code.push_submitted(crew, task, commit)
            return ""
    return _name_host(crew)


def _name_host(crew: Crew) -> str:
    return f" of the host {crew.host}" if crew.host else ""


def _keep_commits(crew: Crew, task: Task, run: str, commit: str) -> str:
    """Bring the branch of the task to a commit; keep a tip that the commit does not contain. Return the ref."""
    git, branch = crew.git, branch_of(task.id)
    tip = branch_moves.branch_tip(git, branch)
    if tip == commit:
        return branch
    kept, state = f"{salvage.salvage_ref(task.id, run)}{salvage.REFS_SUFFIX}", crew.board.read()
    target = target_branch(state, task)
    others = outside_work.find_contained(git, submissions.list_open(state, target), commit, f"{HEADS}{target}")
    is_checked_out = tip is not None and branch_moves.find_checkout(git, branch) is not None
    if is_checked_out or outside_work.has_foreign(state, others):
        # The files of that checkout would not be those of its branch; and a coder of the crew who goes on with it would
        # run what a stranger wrote.
        return salvage.keep_commit(git, kept, commit, None)
    if tip is not None and not git_refs.is_contained(git, tip, commit):
        salvage.keep_commit(git, kept, tip, None)
    git.with_identity().out("update-ref", f"{HEADS}{branch}", commit, *([tip] if tip else []))
    return branch


def leave(crew: Crew, path: str, run: str, why: str) -> tuple[str, ...]:
    """End the session of a worktree: hand its claim off, and let the crew go on with its other tasks.

    Return the ids of those tasks. Raises GitFailed, LizaError.
    """
    tasks = bound_claims.list_tasks_of(crew.board.read(), path, crew.host)
    bound = (task for task in tasks if bound_claims.is_bound(task) and task.run == run)
    handed = [task.id for task in bound if hand_off(crew, task, why)]
    left = [task for task in tasks if bound_claims.is_left(task)]
    for task in left:
        _keep_left(crew, task, run)
    if left:
        with crew.change(agent_of(run), "leave") as tx:
            tx.state = bound_claims.leave(tx.state, path, crew.host)
    return (*handed, *(task.id for task in left))


def _keep_left(crew: Crew, task: Task, run: str) -> None:
    """Make the branch with which a coder of the crew goes on: the submitted commit, or what is not submitted yet."""
    if task.review_commit is not None and git_refs.has_commit(crew.git, task.review_commit):
        _keep_commits(crew, task, run, task.review_commit)
    else:
        save_work(crew, task, run)


def leave_dead(crew: Crew) -> Iterator[tuple[str, str]]:
    """End the sessions of programs that died without a hand-off. Yield their tasks and worktrees.

    Raises GitFailed, LizaError.
    """
    state = crew.board.read()
    paths = dict.fromkeys(
        task.submission.worktree
        for task in state.tasks
        if task.submission is not None
        and submissions.is_on_host(task.submission, crew.host)
        and (bound_claims.is_bound(task) or bound_claims.is_left(task))
    )
    for path in paths:
        # Only the clone where it was claimed has the lock's file.
        if lock_path(crew.paths, path).exists() and not is_alive(crew.paths, path):
            tasks = bound_claims.list_tasks_of(state, path, crew.host)
            run = next(filter(None, (task.run for task in tasks)), None) or _last_run(tasks)
            yield from ((task, path) for task in leave(crew, path, run, "its process was killed"))


def _last_run(tasks: Iterable[Task]) -> str:
    runs = [event.run for task in tasks for event in task.history if event.run is not None]
    return runs[-1] if runs else f"coder-{bound_claims.FIRST_NUMBER}.1"
