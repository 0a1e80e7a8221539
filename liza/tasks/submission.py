"""Submit a branch, or the worktree of another tool: work that Liza did not start, and its next commits."""

from __future__ import annotations

import shlex
from itertools import count
from pathlib import Path

from liza.crew.caller import enclosing_run, require_person
from liza.crew.crew import Crew, find_crew, find_crew_or_none, open_crew
from liza.crew.result import Result, make_result
from liza.git import branch_moves, git_refs, other_worktrees
from liza.git.git_config import git_dirs
from liza.git.git_refs import HEADS
from liza.git.other_worktrees import OtherWorktree
from liza.git.runner import Git
from liza.model import targets
from liza.model.derived import submit_command
from liza.model.errors import GitFailed, Refused, UnknownId, UsageError
from liza.model.history_events import first_line
from liza.model.model import State, Status, Submission, Task
from liza.model.narration import verdict_command
from liza.model.paths import check_task_id, role_of
from liza.model.transitions import Invocation
from liza.model.value_classes import replace
from liza.system import atomic, crash_points, untrusted_files
from liza.system.locks import Lock
from liza.tasks import archive, claim, next_steps, outside_work, permission, shared_code
from liza.tasks import task as verbs
from liza.tasks.draft_specs import find_existing_specs
from liza.tasks.evidence import describe_overlaps
from liza.tasks.next_steps import NextStep
from liza.tasks.outside_work import WorkSource
from liza.tasks.rules import backlog, claims, reviews, strangers, submissions
from liza.tasks.rules.backlog import RequestContext, sentence_spec_path
from liza.tasks.rules.picking import unmet_dependencies, waits_for_author
from liza.tasks.rules.planning import waits_for_verdict
from liza.tasks.rules.submissions import OutsideWork, SubmissionWishes
from liza.text.formats import count_noun, did_you_mean
from liza.text.undecoded import list_names

HERE = "."
_GOAL = "Land submitted work"  # of a crew that is begun for it
_LOCK_TIMEOUT = 60.0  # seconds: a submission of another process


def find_shared_crew() -> Crew:
    """Return the crew of this directory, or of the repository of a worktree that another tool has elsewhere.

    Raises NoCrew, Refused.
    """
    crew = find_crew_or_none()
    main = None if crew is not None else other_worktrees.find_main(Path.cwd())
    return find_crew(goal=_GOAL) if main is None else find_crew_at(main)


def find_crew_at(root: Path) -> Crew:
    """Return the crew of a checkout, or what ``find_crew`` finds here if it has none. Raises NoCrew, Refused."""
    crew = find_crew_or_none(root)
    return find_crew(goal=_GOAL) if crew is None else open_crew(crew.paths.root)


def type_step(crew: Crew, step: str) -> str:
    """Return a command as it can be typed here: others find the crew only in its repository, and logs at its top."""
    is_of_crew = step.startswith("liza ") and not step.startswith("liza submit") and find_crew_or_none() is None
    is_log = step.startswith("less ") and Path.cwd() != crew.paths.root
    return f"{shlex.join(['cd', str(crew.paths.root)])} && {step}" if is_of_crew or is_log else step


def require_author(crew: Crew) -> str:
    """Return the name of the person who submits. Raises Refused inside a session: a run submits its own task."""
    run = enclosing_run(crew)
    if run is not None:
        raise Refused(f"the session {run} submits its own task, and names none", "liza submit")
    return require_person(crew, planner=False)


def find_work(crew: Crew, word: str) -> WorkSource:
    """Return the work that ``.`` or a branch names. Raises Refused, UnknownId, UsageError, GitFailed."""
    if word == HERE:
        return _find_here(crew, Path.cwd())
    branch = word.removeprefix(HEADS)
    if not targets.is_branch_name(branch):
        raise UsageError(f"{word!r} is no branch, no pull request and not .", "git branch --all")
    tip = branch_moves.branch_tip(crew.git, branch)
    if tip is None:
        raise _unknown_branch(crew, branch)
    submissions.refuse_reserved(branch, crew.board.read().config.integration_branch)
    submissions.refuse_unprintable(branch, tip)
    checkouts = branch_moves.list_checkouts(crew.git)
    path = next((path for path, name in checkouts.items() if name == branch), None)
    directory = "" if path is None else str(path)
    # What another tool's worktree has beside the branch is its own matter, also if git cannot read it.
    try:
        worktree = None if path is None else other_worktrees.find_worktree(crew.git, path)
        remarks = () if worktree is None else _describe_left(crew.git, worktree)
    except GitFailed as error:
        remarks = (f"what is not committed in {directory} is not known: {error.message}",)
    shown = directory if directory.isprintable() else ""
    return WorkSource(tip, Submission(branch=branch, worktree=shown, host=crew.host), remarks)


def _unknown_branch(crew: Crew, word: str) -> UnknownId:
    git, task = crew.git, submissions.find_task(crew.board.read(), Submission(branch=word))
    if task is not None and task.submission is not None and not submissions.is_on_host(task.submission, crew.host):
        return UnknownId(f"branch {word} of {task.id} is on the host {task.submission.host}", f"liza diff {task.id}")
    if task is not None and task.review_commit is not None:
        step = shlex.join(["git", "branch", word, task.review_commit[:12]])
        return UnknownId(f"branch {word} of {task.id} is gone; its commit {task.review_commit[:12]} is kept", step)
    commit = git.find_commit(word)
    if commit is not None and not word.startswith("-"):
        step = shlex.join(["git", "branch", "my-work", word])
        return UnknownId(f"{word} is no branch of this repository: a branch keeps the commit", step)
    near = did_you_mean(word, git_refs.list_branches(git))
    return UnknownId(f"there is no branch {word}{near}", "git branch --all")


def _find_here(crew: Crew, directory: Path) -> WorkSource:
    """Return the work of the worktree that has the directory."""
    top = other_worktrees.find_top(directory.resolve())
    worktree = None if top is None else other_worktrees.find_worktree(crew.git, top)
    if top is None or worktree is None:
        shown = top or directory
        fetch = ["git", "-C", str(crew.paths.root), "fetch", str(shown), "HEAD:refs/heads/their-work"]
        if top is not None and _is_moved(crew, top):
            step = shlex.join(["git", "-C", str(crew.paths.root), "worktree", "repair", str(top)])
            raise Refused(f"{top} was moved, and git does not know where to", step)
        message = f"{shown} is no worktree of {crew.paths.root}, whose crew this is"
        raise Refused(message, f"{shlex.join(fetch)} && liza submit their-work")
    if top.parent == crew.paths.slots.resolve():
        raise Refused(f"{top} is a worktree of the crew: its task is submitted without an argument", "liza submit")
    operation = worktree.operation
    if operation is not None:
        raise Refused(operation.describe(str(top)), shlex.join(["git", "-C", str(top), "status"]))
    if worktree.commit is None:
        raise Refused(f"{top} has no commit yet", shlex.join(["git", "-C", str(top), "commit"]))
    branch = worktree.branch or ""
    if branch:
        submissions.refuse_reserved(branch, crew.board.read().config.integration_branch)
    for name in (branch, str(top)):
        submissions.refuse_unprintable(name, worktree.commit)
    try:
        _refuse_uncommitted(crew.git, worktree)
        remarks = _describe_left(crew.git, worktree)
    except GitFailed as error:
        git, index = shlex.join(["git", "-C", str(top)]), worktree.git_dir / "index"
        # The usual cause is a broken index: it is kept, and a new one is compared with the files.
        keep = shlex.join(["mv", str(index), f"{index}.broken"])
        step = f"{keep} && {git} read-tree HEAD && {git} status"
        raise GitFailed(f"what is not committed in {top} is not known: {error.message}", step) from error
    return WorkSource(worktree.commit, Submission(branch=branch, worktree=str(top), host=crew.host), remarks)


def _is_moved(crew: Crew, top: Path) -> bool:
    """Return whether a directory is a worktree of this repository that git has at another place."""
    try:
        return git_dirs(Git(top))[1].samefile(git_dirs(crew.git)[1])
    except (GitFailed, OSError):
        return False


def _refuse_uncommitted(git: Git, worktree: OtherWorktree) -> None:
    changed = other_worktrees.list_uncommitted(git, worktree)
    if not changed:
        return
    names, verb = list_names(changed, 3), "is" if len(changed) == 1 else "are"
    without = f"; without them: {shlex.join(['liza', 'submit', worktree.branch])}" if worktree.branch else ""
    message = f"{count_noun(len(changed), 'changed file')} of {worktree.path} {verb} not committed ({names}){without}"
    raise Refused(message, shlex.join(["git", "-C", str(worktree.path), "commit", "-a"]))


def _describe_left(git: Git, worktree: OtherWorktree) -> tuple[str, ...]:
    """Return remarks about files in a worktree that are not in its commit. Raises GitFailed."""
    changed = other_worktrees.list_uncommitted(git, worktree)
    new = other_worktrees.list_untracked(git, worktree)
    return tuple(
        f"{count_noun(len(names), kind)} of {worktree.path} not committed, so not submitted: {list_names(names, 3)}"
        for names, kind in ((changed, "changed file"), (new, "new file"))
        if names
    )


def submit_work(crew: Crew, source: WorkSource, wishes: SubmissionWishes, recover_merge: verbs.RecoverMerge) -> Result:
    """Make a task of the work, or submit its next commit. The same commit again changes nothing.

    Raises Refused, UsageError, RemoteUnavailable, GitFailed.
    """
    by = require_author(crew)
    lock = Lock(crew.paths.submit_lock)
    with lock.acquire(timeout=_LOCK_TIMEOUT):
        existing = submissions.find_task(crew.board.read(), source.submission)
        if existing is not None:
            verbs.recover_dead_merge(crew, by, existing.id, recover_merge)
        state = crew.board.read()
        landed = None if submissions.find_task(state, source.submission) else _find_landed(crew, state, source)
        if landed is not None:
            result = make_result(state, state, landed.id, f"liza task show {landed.id}")
            merged = (landed.merge_commit or "")[:12]
            return replace(result, message=f"{landed.id}: {source.commit[:12]} is merged already, as {merged}")
        work = outside_work.read_work(crew, state, source, submissions.find_task(state, source.submission))
        result = _record(crew, by, work, wishes)
    return replace(result, remarks=(*result.remarks, *source.remarks, *_describe_unsynced(crew, state, source)))


def _find_landed(crew: Crew, state: State, source: WorkSource) -> Task | None:
    """Return the task of the same work that was merged at this commit, also from the archive; None without one."""
    landed = submissions.find_landed(state.tasks, source.submission, source.commit)
    if landed is not None or not state.archived.total:
        return landed
    after = f"{source.commit}..{HEADS}{state.config.integration_branch}"
    # The oldest merge that contains the commit is last.
    merges = crew.git.out("rev-list", "--first-parent", "--ancestry-path", after).split()
    return submissions.find_landed(
        archive.find_merged(crew.board, state, merges[-1:]), source.submission, source.commit
    )


def _describe_unsynced(crew: Crew, state: State, source: WorkSource) -> tuple[str, ...]:
    """Return a remark about commits of the person's branch that the target lacks, and that the work brings along."""
    git, target, branch = crew.git, state.config.integration_branch, git_refs.current_branch(crew.git)
    tip = None if branch is None else git.find_commit(HEADS + branch)
    if (
        tip is None
        or branch in (None, target, source.submission.branch)
        or not git_refs.is_contained(git, tip, source.commit)
    ):
        return ()
    number = int(git.out("rev-list", "--count", tip, f"^{HEADS}{target}"))
    step = shlex.join(["liza", "sync", str(branch)])
    text = (
        f"it brings along {count_noun(number, 'commit')} of {branch} that {target} lacks; to bring them first: {step}"
    )
    return (text,) if number else ()


def _record(crew: Crew, by: str, work: OutsideWork, wishes: SubmissionWishes) -> Result:
    """Write the board. What the reviewer needs is there before the board names the commit."""
    state = crew.board.read()
    existing = submissions.find_task(state, work.submission)
    if existing is not None and wishes.task not in (None, existing.id):
        raise Refused(f"this work is {existing.id} already", f"liza task show {existing.id}")
    task_id = existing.id if existing is not None else _choose_id(crew, work, wishes)
    if existing is None:
        _write_document(crew, task_id, work, wishes)
        crash_points.point("submission", "document")
    else:
        # What the rules refuse is not pushed.
        submissions.resubmit(state, task_id, work, wishes, _invoke(crew, by, work))
    if crew.remote_name and not work.submission.is_foreign:  # at a forge, a push can run what it brings
        shared_code.push_submitted(crew, existing or Task(id=task_id, status=Status.DRAFT), work.commit)
        crash_points.point("submission", "pushed")
    specs = find_existing_specs(crew, [sentence_spec_path(task_id)])
    archived = archive.find_outcomes(crew.board, state, (task_id, *work.contained))
    with crew.change(by, "submit work", task_id) as tx:
        invocation = _invoke(crew, by, work)
        # Another host may have been faster.
        present = submissions.find_task(tx.state, work.submission)
        if present is not None:
            tx.task = task_id = present.id
            tx.state = submissions.resubmit(tx.state, task_id, work, wishes, invocation)
        else:
            fields = submissions.make_fields(task_id, work, wishes)
            context = RequestContext(Invocation(now=invocation.now, by=by), specs, archived=archived)
            added = backlog.add(tx.state, (fields,), context)
            tx.state = submissions.add_submitted(added, task_id, work, wishes, invocation)
    crash_points.point("submission", "recorded")
    _conclude(crew, tx.before.task(task_id), claims.get_task(tx.state, task_id))
    return _describe(crew, tx.before, tx.state, task_id, work)


def _invoke(crew: Crew, by: str, work: OutsideWork) -> Invocation:
    where = submissions.describe_place(work.submission)
    return Invocation(now=crew.clock.now(), by=by, commit=work.commit, detail=f"from {where}")


def _choose_id(crew: Crew, work: OutsideWork, wishes: SubmissionWishes) -> str:
    """Return the id of a new task: the wished one, or one of the name of the branch. Raises Refused, UsageError."""
    if wishes.task is not None:
        verbs.check_new_id(crew, check_task_id(wishes.task))
        return wishes.task
    name = backlog.choose_task_id(submissions.name_work(work), ())
    text = _compose(work, wishes)
    taken = verbs.TakenIds(crew)
    candidates = (name if number == 1 else f"{name}-{number}" for number in count(1))
    # A document without a task is of a submission that was killed before it wrote the board.
    return next(each for each in candidates if not taken.has_work(each) and _read_document(crew, each) in (None, text))


def _compose(work: OutsideWork, wishes: SubmissionWishes) -> bytes:
    fields = submissions.make_fields("", work, wishes)
    return submissions.compose_spec(work, fields.description or "").encode()


def _read_document(crew: Crew, task_id: str) -> bytes | None:
    return untrusted_files.read_if_exists(crew.paths.root / sentence_spec_path(task_id))


def _write_document(crew: Crew, task_id: str, work: OutsideWork, wishes: SubmissionWishes) -> None:
    path, text = crew.paths.root / sentence_spec_path(task_id), _compose(work, wishes)
    existing = _read_document(crew, task_id)
    if existing not in (None, text):
        name = sentence_spec_path(task_id)
        raise Refused(f"{name} exists with another text", shlex.join(["mv", name, f"{name}.old"]))
    if existing is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text, 0o644)


def _conclude(crew: Crew, before: Task | None, task: Task) -> None:
    """Keep the submitted commit, and end what worked on the earlier one. Recovery does the same after a crash."""
    if task.review_commit is not None:
        git_refs.write_review_ref(crew.git, task.id, task.review_commit)
    if before is None:
        return
    if before.review_run is not None and task.review_run is None:
        verbs.end_session(crew, before.review_run)
    if before.worktree is not None and task.worktree is None and crew.is_here(before):
        claim.release_orphan_slot(crew, before.worktree)


def _describe(crew: Crew, before: State, after: State, task_id: str, work: OutsideWork) -> Result:
    task, earlier = claims.get_task(after, task_id), before.task(task_id)
    result = make_result(before, after, task_id, f"liza task show {task_id}", commit=work.commit)
    remarks = []
    if earlier is not None and earlier.review_run is not None and task.review_run is None:
        remarks.append(f"{earlier.reviewing_by} was reviewing {(earlier.review_commit or '')[:12]}: that review ended")
    if earlier is not None and earlier.status is Status.INTEGRATION_FAILED and earlier.review_commit == work.commit:
        cause = submissions.describe_cause(earlier)
        remarks.append(f"no review mends what failed; after your approval it is tested again ({cause})")
    held = [other for other in after.tasks if other.merge_hold and other.id in work.rewritten]
    remarks += [f"{other.id} is held: {other.merge_hold}" for other in held]
    remarks += permission.describe_stranger(task)
    if task.depends_on:
        remarks.append(f"it lands after {', '.join(task.depends_on)}, whose commits it contains")
    remarks += describe_overlaps(crew, after, [task_id], in_work=True)
    result = replace(result, remarks=(*result.remarks, *remarks))
    if result.result == "unchanged":
        return replace(result, message=f"{task_id}: {work.commit[:12]} is submitted already")
    if earlier is not None and task.submission is not None and earlier.history == task.history:
        mender = {"author": "its author", "crew": "a coder of the crew"}[task.submission.fix]
        return replace(result, message=f"{task_id}: {work.commit[:12]} stays; what comes back goes to {mender}")
    # The last line: the task was added and submitted in one transaction.
    return replace(result, message=result.message.rpartition("\n")[2])


def add_next_step(crew: Crew, result: Result) -> Result:
    """Return the result of a submission with who goes on with it, and what the person types next."""
    state = crew.board.read()
    task = state.task(result.task or "")
    if result.result == "unchanged" or task is None:
        return result
    return next_steps.with_next_step(result, find_next_step(crew, state, task))


def find_next_step(crew: Crew, state: State, task: Task) -> NextStep:
    """Return who goes on with submitted work, and what the person types next."""
    if task.submission is not None and waits_for_author(task):
        return NextStep(*submissions.describe_return(task))
    if waits_for_verdict(task):
        step = strangers.permit_command(task) if strangers.lacks_permission(task) else verdict_command(task.id)
        return NextStep("", f"liza diff {task.id}; {step}")
    if task.status is Status.BLOCKED:
        return NextStep("", f'liza answer {task.id} "…"')
    if task.status is Status.APPROVED and task.merge_hold is not None:
        return NextStep(f"it is held: {task.merge_hold}", f"liza queue release {task.id}")
    if task.status is Status.APPROVED and strangers.lacks_permission(task):
        return NextStep(strangers.permission_obstacle(task) or "", strangers.permit_command(task))
    unmet = unmet_dependencies(state, task)
    if task.status is Status.APPROVED and unmet:
        lower = state.task(unmet[0])
        step = f"liza task show {unmet[0]}" if lower is None else find_next_step(crew, state, lower).command
        return NextStep(f"it waits for {', '.join(unmet)}, whose commits it contains", step)
    if task.status is Status.APPROVED and task.set_aside is not None:
        reason = first_line(task.set_aside.reason)
        return NextStep(f"it could not be merged: {reason}", f"liza merge {task.id}")
    if task.status in submissions.RETURNED:
        return next_steps.find_next_step(crew, state, "a coder mends it", "coder")
    if task.status not in (Status.READY_FOR_REVIEW, Status.APPROVED) or task.submission is None:
        return next_steps.find_next_step(crew, state, "the crew goes on with it")
    is_approved = task.status is Status.APPROVED
    agents = [agent for agent in state.agents if is_approved or role_of(agent) == reviews.REVIEWER]
    if not any(map(crew.is_supervised, agents)):
        text = "no agent runs that merges it" if is_approved else "no reviewer runs"
        return NextStep(text, f"{submit_command(task.submission)} --merge")
    return next_steps.find_next_step(crew, state, "the crew merges it" if is_approved else "a reviewer reviews it")
