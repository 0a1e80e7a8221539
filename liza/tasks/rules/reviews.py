"""Reviews: claim, give back, approve and reject; alarms about tasks that wait for a review; comments on lines."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from datetime import datetime
from typing import Any, Final

from liza.model.errors import NotOwner, Refused, UsageError
from liza.model.history_events import HistoryEvent
from liza.model.model import Anomaly, LineComment, State, Status, Task
from liza.model.paths import agent_of, is_person, role_of
from liza.model.setting_limits import lease_expiry
from liza.model.statuses import AgentStatus, describe_task
from liza.model.transitions import Invocation, apply_verb, has_done
from liza.model.value_classes import replace
from liza.tasks.rules import strangers
from liza.tasks.rules.claims import allocate_run, get_task
from liza.tasks.rules.coding import add_failure
from liza.tasks.rules.picking import Evidence, authors, occupation, review_obstacle
from liza.text.formats import count_noun

S = Status
E = HistoryEvent
REVIEWER = "code-reviewer"
MAX_REVIEWS_WITHOUT_VERDICT = 2  # reviews without a verdict, before the task is BLOCKED
REVIEW_OVER: Final[dict[str, Any]] = {"reviewing_by": None, "review_run": None, "review_lease_expires": None}


def claim_review(state: State, task_id: str, agent: str, now: datetime, evidence: Evidence) -> tuple[State, str]:
    """Claim the review for ``agent``; return the board and the new run. Raises Refused."""
    task = get_task(state, task_id)
    why = review_obstacle(task, agent, evidence)
    if why:
        raise Refused(f"{agent} cannot review {task_id}: {why}", f"liza task show {task_id}")
    busy = occupation(state, agent)
    if busy:
        raise Refused(f"{agent} is busy with {busy}", f"liza agents {agent}")
    state, run = allocate_run(state, agent)
    invocation = Invocation(now=now, by=agent, run=run, commit=task.review_commit)
    claimed = apply_verb(
        task,
        E.CLAIM_REVIEW,
        invocation,
        reviewing_by=agent,
        review_run=run,
        review_lease_expires=lease_expiry(state.config, now),
    )
    return state.with_task(claimed), run


def get_reviewed_task(state: State, task_id: str, run: str) -> Task:
    """Return the task if ``run`` is reviewing it (fencing check). Raises NotOwner."""
    task = get_task(state, task_id)
    if task.status is not S.READY_FOR_REVIEW or task.review_run != run:
        actual = f"it is {task.status}" + (f", reviewed by {task.review_run}" if task.review_run else "")
        raise NotOwner(
            f"You no longer own this review: {run} asks for {task_id}, and {actual}. Stop at once",
            f"liza task show {task_id}",
        )
    return task


def release_review(state: State, task_id: str, run: str, now: datetime, reason: str = "stopped") -> State:
    """Give the review back without a penalty; any reviewer may claim it. No change if ``run`` does not hold it."""
    task = state.task(task_id)
    if task is None or task.review_run != run:
        return state
    invocation = Invocation(now=now, by=agent_of(run), run=run, detail=reason)
    return state.with_task(apply_verb(task, E.RELEASE_REVIEW, invocation, **REVIEW_OVER))


def end_review_without_verdict(state: State, task_id: str, run: str, now: datetime, reason: str) -> State:
    """Record that a review session ended without a verdict; after MAX_REVIEWS_WITHOUT_VERDICT the task is BLOCKED."""
    task = state.task(task_id)
    if task is None or task.review_run != run:
        return state
    invocation = Invocation(now=now, by=agent_of(run), run=run, detail=reason)
    count = task.reviews_without_verdict + 1
    if count < MAX_REVIEWS_WITHOUT_VERDICT:
        given_back = apply_verb(task, E.RELEASE_REVIEW, invocation, reviews_without_verdict=count, **REVIEW_OVER)
        return state.with_task(given_back)
    given_up = apply_verb(
        task,
        E.GIVE_UP_REVIEW,
        invocation,
        reviews_without_verdict=count,
        blocked_reason=f"{count} reviews ended without a verdict; the last: {reason}",
        blocked_questions=("Who should review this, and how?",),
        **REVIEW_OVER,
    )
    return state.with_task(given_up)


def asks_for_review(task: Task) -> bool:
    """Return whether the task is BLOCKED because its reviews ended without a verdict."""
    return task.status is S.BLOCKED and task.reviews_without_verdict >= MAX_REVIEWS_WITHOUT_VERDICT


def require_reviewer(agent: str) -> None:
    """Raise Refused if ``agent`` is not a code-reviewer."""
    if role_of(agent) != REVIEWER:
        raise Refused(f"{agent} is not a code-reviewer; agents do not review their own work", "liza ready")


def approve(state: State, task_id: str, by: str, commit: str, now: datetime, reason: str = "") -> State:
    """Approve the commit for merging. ``by``: a run or ``human:<name>``. Raises Refused, NotOwner."""
    task = _get_task_for_verdict(state, task_id, by, E.APPROVE, commit)
    if task is None:
        return state
    invocation = _verdict_invocation(by, now, commit, reason)
    return state.with_task(
        apply_verb(task, E.APPROVE, invocation, approved_by=invocation.by, review_comments=(), **REVIEW_OVER)
    )


def reject(
    state: State,
    task_id: str,
    by: str,
    commit: str,
    now: datetime,
    reason: str,
    *,
    comments: tuple[LineComment, ...] = (),
) -> State:
    """Reject the commit: the task goes back to its coder or, after max_review_cycles rejections, is BLOCKED.

    Raises Refused, NotOwner, UsageError.
    """
    task = _get_task_for_verdict(state, task_id, by, E.REJECT, commit)
    if task is None:
        return state
    if not reason.strip():
        raise UsageError(
            "a rejection needs its reason", 'liza verdict reject "1. file:line what is wrong, how you saw it"'
        )
    invocation = _verdict_invocation(by, now, commit, reason)
    cycles = {
        "review_cycles_current": task.review_cycles_current + 1,
        "review_cycles_total": task.review_cycles_total + 1,
        "rejection_reason": reason,
        "review_comments": comments,
    }
    if task.review_cycles_current + 1 < state.config.max_review_cycles:
        return state.with_task(apply_verb(task, E.REJECT, invocation, **cycles, **REVIEW_OVER))
    return _deadlock(state, task, invocation, {**cycles, **REVIEW_OVER})


def _deadlock(state: State, task: Task, invocation: Invocation, changes: dict[str, object]) -> State:
    rounds = state.config.max_review_cycles
    blocked = apply_verb(
        task,
        E.DEADLOCK,
        invocation,
        blocked_reason=f"review_deadlock: {count_noun(rounds, 'rejection')}; the last: {invocation.detail}",
        blocked_questions=("Is the reviewer right? What would settle it?",),
        failed_by=add_failure(task),
        **changes,
    )
    anomaly = Anomaly(
        timestamp=invocation.now,
        task=task.id,
        reporter=invocation.by or "",
        type="review_deadlock",
        details={"rounds": rounds, "text": f"{count_noun(rounds, 'rejection')}; the last: {invocation.detail}"},
    )
    return replace(state.with_task(blocked), anomalies=(*state.anomalies, anomaly))


def _verdict_invocation(by: str, now: datetime, commit: str, reason: str) -> Invocation:
    name, run = (by, None) if is_person(by) else (agent_of(by), by)
    return Invocation(now=now, by=name, run=run, commit=commit, detail=reason)


def _get_task_for_verdict(state: State, task_id: str, by: str, verb: HistoryEvent, commit: str) -> Task | None:
    """Return the task that a verdict is about; None if ``by`` has already given this verdict."""
    task = get_task(state, task_id)
    if is_person(by):
        if task.status is not S.READY_FOR_REVIEW:
            raise Refused(
                f"{describe_task(task_id, task.status)}: there is nothing to judge", f"liza task show {task_id}"
            )
    else:
        if has_done(task, verb, by) or (verb is E.REJECT and has_done(task, E.DEADLOCK, by)):
            return None
        if task.review == "human" or strangers.is_foreign(task):
            raise Refused(f"a person reviews {task_id}", f"liza task show {task_id}")
        if agent_of(by) in authors(task):
            raise Refused(
                f"{agent_of(by)} wrote {task_id}: an agent cannot review its own work", f"liza task show {task_id}"
            )
        task = get_reviewed_task(state, task_id, by)
    if commit != task.review_commit:
        raise Refused(
            f"the verdict is about {commit[:12]}, and {(task.review_commit or 'nothing')[:12]} is to be reviewed",
            f"liza diff {task_id}",
        )
    return task


def find_unreviewed(state: State, offline: Container[str], exits: Collection[str]) -> tuple[Task, ...]:
    """Return the tasks that wait for a review, if the crew has no reviewer; else none.

    None for a crew that was stopped as a whole, unless it never had a reviewer, and none for tasks that persons work
    on without a crew. ``exits``: agents whose supervisor exited by itself, which is an alarm of its own.
    """
    waiting = tuple(
        task
        for task in state.tasks
        if task.status is Status.READY_FOR_REVIEW
        and task.reviewing_by is None
        and task.review != "human"
        and not strangers.is_foreign(task)
    )
    supervised = {name for name, agent in state.agents.items() if agent.program}
    running = {name for name in supervised if name not in offline}
    reviewers = {name for name in (running or supervised) if role_of(name) == REVIEWER}
    if not supervised or reviewers or any(role_of(name) == REVIEWER for name in exits):
        return ()
    return waiting


def persons_review(state: State) -> bool:
    """Return whether the crew never had a reviewer, or each of its reviewers was stopped on request."""
    reviewers = [agent for name, agent in state.agents.items() if agent.program and role_of(name) == REVIEWER]
    return all(agent.status == AgentStatus.OFFLINE for agent in reviewers)


MAX_COMMENTS: Final = 50
"""Maximum number of comments of one rejection."""
MAX_COMMENT_TEXT: Final = 1000  # characters
MAX_LINE: Final = 999_999_999
MAX_QUOTED_LINE: Final = 200  # characters of the quoted line; the rest is cut
MAX_FILE: Final = 4 << 20  # bytes of a file whose line can be quoted
_EXAMPLE: Final = 'liza verdict reject "…" --comment src/tax.py:12 "rounds down"'


def parse_location(text: str) -> tuple[str, int]:
    """Return path and line of ``FILE:LINE``; lines count from 1. Raises UsageError."""
    path, _, number = text.strip().rpartition(":")
    path = path.removeprefix("./")
    if not path or not number.isascii() or not number.isdigit() or len(number) > 9 or not 1 <= int(number) <= MAX_LINE:
        raise UsageError(f"{text!r} is not a line of a file: expected FILE:LINE, such as src/tax.py:12", _EXAMPLE)
    return path, int(number)


def check_comments(comments: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError if there are too many comments, or if one has no text, a long one or no location."""
    if len(comments) > MAX_COMMENTS:
        raise UsageError(f"there are {len(comments)} comments; a rejection has at most {MAX_COMMENTS}", _EXAMPLE)
    for location, text in comments:
        parse_location(location)
        if not text.strip():
            raise UsageError(f"the comment on {location} has no text", _EXAMPLE)
        if len(text) > MAX_COMMENT_TEXT:
            message = f"the comment on {location} has {len(text)} characters; it can have {MAX_COMMENT_TEXT}"
            raise UsageError(message, _EXAMPLE)


def quote_comment(location: str, text: str, commit: str, data: bytes | None) -> LineComment:
    """Return the comment with the line that it is about. ``data``: the file at ``commit``; None if it is not there.

    Raises UsageError if the commit does not have the file or the line, or if the file is not a text.
    """
    path, line = parse_location(location)
    hint = f"git show --stat {commit[:12]}"
    if data is None:
        raise UsageError(f"{path} is not a file of the reviewed commit {commit[:12]}", hint)
    if b"\0" in data:
        raise UsageError(f"{path} is not a text at {commit[:12]}: it has no line {line}", hint)
    lines = data.decode(errors="replace").split("\n")
    count = len(lines) - (lines[-1] == "")
    if line > count:
        raise UsageError(
            f"{path} has {count_noun(count, 'line')} at the reviewed commit {commit[:12]}, and no line {line}", hint
        )
    quote = lines[line - 1].rstrip()
    cut = quote if len(quote) <= MAX_QUOTED_LINE else f"{quote[:MAX_QUOTED_LINE]}…"
    return LineComment(path=path, line=line, text=text.strip(), quote=cut, commit=commit)


def format_comment(comment: LineComment) -> str:
    """Return a comment as text: the location, the text, and the quoted line below them."""
    quote = f"\n> {comment.quote.strip()}" if comment.quote.strip() else ""
    return f"{comment.path}:{comment.line}: {comment.text}{quote}"
