"""Submitted work of authors whom Liza did not start: which task it is, what that task says, and its next commits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from liza.model import targets
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.derived import author_name, submit_command
from liza.model.errors import Refused, UsageError
from liza.model.history_events import (
    HistoryEvent,
    first_line,
    inspect_command,
    is_conflict,
    is_last_return_cleared,
    last_failure,
)
from liza.model.model import FINAL_STATUSES, State, Status, Submission, Task
from liza.model.statuses import describe_task
from liza.model.targets import is_crew_branch
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value, replace
from liza.tasks.rules import strangers
from liza.tasks.rules.backlog import STACK_HOLD, TaskFields, sentence_spec_path
from liza.tasks.rules.claims import get_task
from liza.tasks.rules.picking import unmet_dependencies, waits_for_author, waits_only_for_verdict
from liza.tasks.rules.reviews import REVIEW_OVER, format_comment
from liza.text.formats import count_noun
from liza.text.quoting import sanitize
from liza.text.undecoded import escape_name

S = Status
E = HistoryEvent
RETURNED: Final = (S.REJECTED, S.INTEGRATION_FAILED, S.UNCLAIMED, S.BLOCKED)
"""Statuses of submitted work that waits for another commit."""
MAX_SUBJECTS: Final = 30
MAX_TEXT: Final = 4000  # characters of a description
MAX_PATHS: Final = 20
_TRAILER = re.compile(r"^(co-authored|assisted|generated)-by: *([^<\n]+)(.*)$", re.IGNORECASE | re.MULTILINE)
_TRAILERS_AT_END = re.compile(r"(?:\n+[A-Za-z][A-Za-z-]*(?:-by|-Id): [^\n]*)+\s*\Z", re.IGNORECASE)
_NO_MESSAGE: Final = "a commit without a message"


class BranchCommit(Value):
    """A commit of submitted work: its id, its author as ``Name <mail>``, subject and body."""

    id: str
    author: str
    subject: str
    body: str = ""


class OutsideWork(Value):
    """Submitted work, as it is in the repository.

    ``commits``: those that the target lacks, without merges, oldest first. ``base``: where the work begins.
    ``paths``: files that it changes since then. ``contained``: open tasks whose submitted commit it contains.
    ``rewritten``: open tasks that are built on its earlier commit, and not on this one. ``containing``: open tasks
    whose submitted commit contains it. ``has_earlier``: it contains the commit that was submitted before.
    """

    commit: str
    base: str
    submission: Submission
    commits: tuple[BranchCommit, ...] = ()
    paths: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()
    containing: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    has_earlier: bool = True


class SubmissionWishes(Value):
    """What the caller asked for. None: not given."""

    task: str | None = None
    description: str | None = None
    review: Literal["agent", "human"] | None = None
    fix: Literal["author", "crew"] | None = None


def check_wish(name: str, word: str | None, expected: Sequence[str]) -> Any:
    """Return the word of an option. Raises UsageError if it is not an expected word."""
    if word is not None and word not in expected:
        message = f"--{name} is {word!r}; expected {' or '.join(expected)}"
        raise UsageError(message, f"liza submit --{name} {expected[-1]} .")
    return word


def check_wishes(task: str | None, description: str | None, review: str | None, fix: str | None) -> SubmissionWishes:
    """Return what the options ask for. Raises UsageError."""
    return SubmissionWishes(
        task,
        description,
        check_wish("review", review, ("agent", "human")),
        check_wish("fix", fix, ("author", "crew")),
    )


def refuse_reserved(branch: str, integration: str) -> None:
    """Raise Refused for a branch that Liza writes: it is no work of an author."""
    if branch == integration:
        raise Refused(f"{branch} is the branch that work is merged into; submit a branch of your own", "git branch")
    if is_crew_branch(branch) or branch.partition("/")[0] in ("liza", "refs"):
        message = f"{branch} is a name of Liza's own branches and refs; submit the work under another name"
        raise Refused(message, shlex.join(["git", "branch", branch.replace("/", "-"), f"refs/heads/{branch}"]))


def refuse_unprintable(name: str, commit: str) -> None:
    """Raise Refused for the name of a branch or worktree that no command can show, and the board cannot hold."""
    if not name.isprintable():
        message = f"{name!a} has characters that cannot be shown; submit the work under another name"
        raise Refused(message, f"git branch my-work {commit[:12]} && liza submit my-work")


def find_task(state: State, submission: Submission) -> Task | None:
    """Return the open task of the same request, else branch, else worktree; None without such a task."""
    for task in state.tasks:
        other = task.submission
        if other is None or task.status in FINAL_STATUSES:
            continue
        is_same_worktree = other.worktree == submission.worktree and is_on_host(other, submission.host)
        if task.status is S.CLAIMED and not task.worktree and is_same_worktree:
            return task
        if submission.request or other.request:
            is_same = submission.request == other.request
        elif submission.branch or other.branch:
            is_same = submission.branch == other.branch
        else:
            is_same = bool(other.worktree) and is_same_worktree
        if is_same:
            return task
    return None


def is_on_host(submission: Submission, host: str) -> bool:
    """Return whether the branch and the worktree of work are on a host. A crew on one host has no names of hosts."""
    return not host or submission.host in ("", host)


def find_landed(tasks: Iterable[Task], submission: Submission, commit: str) -> Task | None:
    """Return the task of the same work that was merged at this commit; None without such a task."""
    for task in tasks:
        other = task.submission if task.status is S.MERGED and task.review_commit == commit else None
        if other is not None and (other.branch, other.request) == (submission.branch, submission.request):
            return task
    return None


def name_work(work: OutsideWork) -> str:
    """Return the words of which an id is made: the branch, else the subject of the newest commit."""
    submission = work.submission
    if submission.branch:
        return submission.branch
    newest = work.commits[-1].subject if work.commits else ""
    return f"request {submission.request}" if submission.request and not newest else newest


def describe_commits(work: OutsideWork) -> str:
    """Return the description of a task: the message of a single commit, else the subjects of all."""
    commits = work.commits
    if len(commits) == 1:
        body = _TRAILERS_AT_END.sub("", f"\n{commits[0].body}").strip()
        return "\n\n".join(filter(None, (commits[0].subject, body)))[:MAX_TEXT] or _NO_MESSAGE
    rows = [f"- {commit.subject or _NO_MESSAGE}" for commit in commits[:MAX_SUBJECTS]]
    more = len(commits) - len(rows)
    rows += [f"- and {more} more"] if more > 0 else []
    title = ": ".join(filter(None, (work.submission.branch or name_work(work), count_noun(len(commits), "commit"))))
    return "\n".join((title, *rows))[:MAX_TEXT]


def describe_scope(paths: Sequence[str]) -> str:
    """Return a scope of the changed files, or of their directories if they are many."""
    paths = tuple(map(escape_name, paths))
    if len(paths) <= MAX_PATHS:
        return ", ".join(paths) or "no file"
    for depth in (3, 2, 1):
        areas = dict.fromkeys(_area(path, depth) for path in paths)
        if len(areas) <= MAX_PATHS:
            return ", ".join(areas)
    shown = list(areas)[:MAX_PATHS]
    return f"{', '.join(shown)} and {count_noun(len(areas) - MAX_PATHS, 'more place')}"


def _area(path: str, depth: int) -> str:
    parts = path.split("/")
    return path if len(parts) <= depth else f"{'/'.join(parts[:depth])}/"


def find_program(commits: Iterable[BranchCommit], programs: Collection[str]) -> str:
    """Return the program that a trailer of the newest commits names; empty without such a trailer.

    `Co-authored-by:` also names persons, who can have the name of a program: it counts with nothing but that name, or
    with an address like ``noreply@``.
    """
    for commit in reversed(tuple(commits)):
        for kind, name, address in _TRAILER.findall(commit.body):
            words = re.findall(r"[a-z0-9]+", re.sub(r"\(.*", "", name.lower()))
            is_program = kind.lower() != "co-authored" or len(words) == 1 or "<noreply@" in address.lower()
            named = [word for word in words if word in programs]
            if named and is_program:
                return str(named[0])
    return ""


def make_fields(task_id: str, work: OutsideWork, wishes: SubmissionWishes) -> TaskFields:
    """Return the fields of a new task."""
    description = (wishes.description or "").strip() or describe_commits(work)
    return TaskFields(
        task_id,
        description=description,
        done_when="A test or another command shows that the change does what its commits say, and breaks nothing.\n"
        "The work was submitted with no other document. Judge it by what its commits say, and what they leave open by "
        "the conventions of the project.",
        scope=describe_scope(work.paths),
        spec_ref=sentence_spec_path(task_id),
        depends_on=work.contained or None,
        review="human" if work.submission.is_foreign else wishes.review,
    )


def compose_spec(work: OutsideWork, description: str) -> str:
    """Return the document of the task. Texts of commits are quoted: their authors give no orders."""
    submission = work.submission
    quoted = "\n".join(f"> {line}".rstrip() for line in description.splitlines())
    return (
        f"# Work of {submission.author or 'an unknown author'}\n\n"
        f"It was submitted from {describe_place(submission)}; Liza did not start it. There is no other document. Its "
        f"commits say:\n\n{quoted}\n"
    )


def add_submitted(state: State, task_id: str, work: OutsideWork, wishes: SubmissionWishes, by: Invocation) -> State:
    """Submit the first commit of a task that was just added. Raises Refused."""
    task = replace(get_task(state, task_id), status=S.UNCLAIMED)
    _refuse_crew(task_id, work, wishes.fix or "author", is_new=True)
    state = state.with_task(replace(task, submission=replace(work.submission, fix=wishes.fix or "author")))
    return _submit(state, get_task(state, task_id), work, wishes, by)


def resubmit(state: State, task_id: str, work: OutsideWork, wishes: SubmissionWishes, by: Invocation) -> State:
    """Submit the next commit of an open task, or change who reviews and mends it. Raises Refused."""
    task = get_task(state, task_id)
    submission = task.submission
    assert submission is not None
    if task.is_being_merged and work.commit == task.review_commit and wishes == SubmissionWishes(task=wishes.task):
        return state
    _refuse_busy(task)
    if not work.has_earlier and not is_on_host(submission, work.submission.host):
        name = work.submission.branch
        other, on_host = shlex.quote(f"{name}-{work.submission.host}"), f"on the host {submission.host}"
        message = f"{name} is the branch of {task_id} {on_host}, and {work.commit[:12]} has not its commits"
        step = f"git branch {other} {shlex.quote(name)} && liza submit {other}"
        raise Refused(f"{message}: other work needs another name", step)
    if task.assigned_to is not None and not work.has_earlier:
        message = f"{task.assigned_to} mended {task_id} on task/{task_id}, and {work.commit[:12]} does not have that"
        raise Refused(message, f"git merge task/{task_id}")
    if work.commit != task.review_commit:
        return _submit(state, task, work, wishes, by)
    is_returned = task.status in RETURNED
    gets_review = wishes.review is not None and wishes.review != task.review and not submission.is_foreign
    fix, words = wishes.fix or submission.fix, (wishes.description or "").strip() or task.description
    if not gets_review and (fix, words) != (submission.fix, task.description):
        _refuse_crew(task_id, work, fix)
        return state.with_task(replace(task, description=words, submission=replace(submission, fix=fix)))
    if is_returned and not gets_review and not is_last_return_cleared(task):
        again = f"{submit_command(submission)} --review human"
        message = f"{work.commit[:12]} is the commit of {task_id} that was sent back; a new commit is needed, or "
        if task.status is not S.INTEGRATION_FAILED:
            raise Refused(f"{message}a person reviews this one", again)
        cause = f"if the cause is not in it, a verdict of yours tests it once more: {again}"
        raise Refused(message + cause, inspect_command(task))
    if gets_review or is_returned:
        return _submit(state, task, work, wishes, by)
    return state


def _refuse_crew(task_id: str, work: OutsideWork, fix: str, *, is_new: bool = False) -> None:
    """Raise Refused if a coder of the crew is to mend foreign work, which would run there with network and logins."""
    if fix == "crew" and work.submission.is_foreign:
        name = f"{task_id}-mended"
        drop = "" if is_new else f"liza task drop {task_id} 'mended as {name}' && "
        raise Refused(
            f"a stranger wrote {task_id}: no coder of the crew runs it; a branch of your own, instead of it, is yours",
            f"git branch {name} {work.commit} && {drop}liza submit {name}",
        )


def _refuse_busy(task: Task) -> None:
    if task.status is S.CLAIMED or task.reservation is not None:
        coder = task.reservation.agent if task.reservation is not None else task.assigned_to
        if task.submission is not None and not task.worktree and task.status is S.CLAIMED:
            message = f"{task.id} is claimed in {task.submission.worktree}: a program has it there, as {task.run}"
            raise Refused(message, f"liza task release {task.id}")
        message = f"{coder} mends {task.id} on task/{task.id}; its author goes on when that is over"
        raise Refused(message, f"liza task release {task.id}")
    if task.is_being_merged:
        raise Refused(f"{task.id} is being merged right now, at {(task.review_commit or '')[:12]}", "liza queue")
    if task.status is S.DRAFT:
        raise Refused(f"{describe_task(task.id, task.status)}: it is not complete", f"liza task edit {task.id}")


def _submit(state: State, task: Task, work: OutsideWork, wishes: SubmissionWishes, by: Invocation) -> State:
    before = task.submission
    assert before is not None
    is_foreign = work.submission.is_foreign
    fix: Literal["author", "crew"] = wishes.fix or ("author" if is_foreign else before.fix)
    _refuse_crew(task.id, work, fix)
    submitted = apply_verb(
        task,
        E.SUBMIT_WORK,
        by,
        submission=replace(work.submission, fix=fix),
        review="human" if is_foreign else (wishes.review or task.review),
        description=(wishes.description or "").strip() or task.description,
        scope=describe_scope(work.paths),
        review_commit=work.commit,
        review_cycles_current=0 if task.status is S.BLOCKED else task.review_cycles_current,
        **_BEGUN_ANEW,
        **REVIEW_OVER,
    )
    return _place_in_stack(state, task, submitted, work)


def record_contents(state: State, before: Task, work: OutsideWork) -> State:
    """Record what a program submitted for a task that it had claimed: its author, and what its commits are built on.

    ``before``: the task before the submission. A stranger's part makes it foreign.
    """
    task = get_task(state, before.id)
    fix = "author" if task.submission is None else task.submission.fix
    review = "human" if work.submission.is_foreign else task.review
    submitted = replace(task, submission=replace(work.submission, fix=fix), review=review)
    return _place_in_stack(state, before, submitted, work)


def _place_in_stack(state: State, task: Task, submitted: Task, work: OutsideWork) -> State:
    """Let a task depend on the open work that it contains. Work on top of its earlier commit is held."""
    others = {name for name in task.depends_on if _is_stacked(state, name)}
    kept = tuple(name for name in task.depends_on if name not in others or name in work.contained)
    submitted = replace(
        submitted,
        depends_on=tuple(dict.fromkeys((*kept, *work.contained))),
        base_commit=work.base,
        merge_hold=None if (task.merge_hold or "").startswith(STACK_HOLD) else task.merge_hold,
    )
    state = state.with_task(submitted)
    for name in work.rewritten:
        state = state.with_task(_hold(get_task(state, name), submitted, task.review_commit or ""))
    for name in work.containing:
        upper = get_task(state, name)
        if task.id not in upper.depends_on and upper.target == task.target and upper.epic == task.epic:
            state = state.with_task(replace(upper, depends_on=(*upper.depends_on, task.id)))
    return state


_BEGUN_ANEW: Final[Mapping[str, Any]] = {
    "assigned_to": None,
    "run": None,
    "worktree": None,
    "lease_expires": None,
    "approved_by": None,
    "merging": None,
    "rejection_reason": None,
    "blocked_reason": None,
    "blocked_questions": (),
    "handoff_pending": False,
    "reviews_without_verdict": 0,
}
"""What a new commit ends: the work of a coder, an approval, a rejection, a question."""


def _is_stacked(state: State, name: str) -> bool:
    """Return whether a dependency is work that another branch may contain, and so may cease to contain."""
    task = state.task(name)
    return task is not None and task.submission is not None and task.status not in FINAL_STATUSES


def _hold(upper: Task, lower: Task, earlier: str) -> Task:
    """Keep a task out of the queue that contains an earlier commit of a branch that was rewritten."""
    if upper.merge_hold is not None or upper.submission is None:
        return upper
    new, name = (lower.review_commit or "")[:12], upper.submission.branch or "HEAD"
    step = f"git rebase --onto {new} {earlier[:12]} {shlex.quote(name)} && {submit_command(upper.submission)}"
    return replace(upper, merge_hold=f"{STACK_HOLD}{lower.id} ({earlier[:12]}), which has no verdict any more: {step}")


def describe_place(submission: Submission) -> str:
    """Return where the work is, for a person."""
    request = f"pull request {submission.request}" if submission.request else ""
    branch = f"branch {submission.branch}" if submission.branch else ""
    worktree = f"worktree {submission.worktree}" if submission.worktree else ""
    host = f" on the host {submission.host}" if submission.host and (branch or worktree) else ""
    return (", ".join(filter(None, (request, branch, worktree))) or "an unknown place") + host


def describe_return(task: Task) -> tuple[str, str]:
    """Return where work went that was rejected or does not merge, and the author's command. One line each."""
    submission = task.submission
    assert submission is not None
    if submission.fix == "crew":
        return "a coder of the crew mends it", f"liza task show {task.id}"
    where = f"it is back with {author_name(submission)}: {describe_place(submission)}"
    return where, submit_command(submission)


def describe_cause(task: Task) -> str:
    """Return why work came back, in one line; empty if it did not."""
    reason = task.rejection_reason if task.status is S.REJECTED else task.blocked_reason
    reason = last_failure(task) if task.status is S.INTEGRATION_FAILED else reason
    return first_line(reason or "")


def compose_comment(task: Task) -> str:
    """Return the comment on a request whose work came back.

    What the tests of a stranger's commit print or return is not in it: they may have read secrets.
    """
    commit, cause = (task.review_commit or "")[:12], describe_cause(task)
    if strangers.is_foreign(task) and task.status is not S.REJECTED and not is_conflict(last_failure(task)):
        cause = "its tests did not pass here"
    rows = [f"Liza did not merge {commit}: {cause}", ""]
    rows += [f"- {format_comment(comment)}" for comment in task.review_comments]
    return sanitize("\n".join(rows)).strip()


def submission_alarms(state: State, tips: Mapping[str, str | None]) -> Iterator[Alarm]:
    """Yield an alarm for each open task whose author has another commit, or is to make one.

    ``tips``: present commits by ``name_source``; None: the branch or the worktree is gone; without an entry nothing is
    known.
    """
    for task in state.tasks:
        submission = task.submission
        if submission is None or task.status in (*FINAL_STATUSES, S.CLAIMED):
            continue
        source, commit = name_source(submission), task.review_commit or ""
        tip = tips.get(source, commit)
        is_back = waits_for_author(task)
        cause = (describe_cause(task) or "a new commit is needed") if is_back else ""
        came = f"; {task.id} came back: {cause}" if is_back else ""
        if tip is None and source == submission.worktree:
            if is_back:
                step = shlex.join(["git", "worktree", "add", "--detach", source, commit[:12]])
                yield AlarmKind.BRANCH_GONE.alarm(task.id, branch=source, commit=commit[:12], came=came, step=step)
        elif tip is None:
            back = shlex.join(["git", "branch", source, commit[:12]])
            step = back if is_back else f'liza task drop {task.id} "…"'
            yield AlarmKind.BRANCH_GONE.alarm(task.id, branch=source, commit=commit[:12], came=came, step=step)
        elif tip != commit and not (submission.fix == "crew" and task.assigned_to):
            step = submit_command(submission)
            yield AlarmKind.BRANCH_MOVED.alarm(
                task.id, branch=source, tip=tip[:12], commit=commit[:12], came=came, step=step
            )
        elif is_back:
            where, step = describe_return(task)
            since = task.history[-1].time if task.history else None
            yield AlarmKind.BACK_WITH_AUTHOR.alarm(task.id, where=where, reason=cause, step=step, waiting_since=since)


def name_source(submission: Submission) -> str:
    """Return what an author moves: the branch, or ``pull request 12``; the worktree if it has no branch."""
    return f"pull request {submission.request}" if submission.request else submission.branch or submission.worktree


def lower_command(state: State, task_id: str) -> str:
    """Return the command for a task that another is built on: the author's, if it waits for another commit."""
    task = state.task(task_id)
    if task is not None and task.status is S.APPROVED:
        return f"liza merge {task_id}"
    if task is not None and task.submission is not None and waits_for_author(task):
        return submit_command(task.submission)
    return f"liza task show {task_id}"


def open_submissions(state: State) -> tuple[Task, ...]:
    """Return the open tasks of work that Liza did not start."""
    return tuple(task for task in state.tasks if task.submission is not None and task.status not in FINAL_STATUSES)


def needs_crew(state: State) -> bool:
    """Return whether an open task is not submitted work that a reviewer alone can go on with."""
    return any(
        task.submission is None or (task.submission.fix == "crew" and task.status in (*RETURNED, S.CLAIMED))
        for task in state.tasks
        if task.status not in FINAL_STATUSES
    )


def merge_command(state: State) -> str | None:
    """Return the command that goes on with submitted work without a crew; None if nothing can."""
    waiting = []
    for task in open_submissions(state):
        is_ready = task.status is S.READY_FOR_REVIEW and not waits_only_for_verdict(task)
        is_free = task.merge_hold is None and task.set_aside is None and not strangers.lacks_permission(task)
        if is_ready or (task.status is S.APPROVED and is_free):
            waiting.append(task)
    free = [task for task in waiting if not unmet_dependencies(state, task)]
    first = next((task.submission for task in free or waiting), None)
    return None if first is None else f"{submit_command(first)} --merge"


def list_open(state: State, target: str) -> dict[str, str]:
    """Return the commits of the open tasks that are merged into a branch, by task, as they were submitted."""
    return {
        task.id: task.review_commit
        for task in state.tasks
        if task.review_commit and task.status not in FINAL_STATUSES and targets.target_branch(state, task) == target
    }
