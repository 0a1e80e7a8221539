"""Carry out an action: read the task again, compare it with what was drawn, and call the verb of the command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from liza.briefs import note as notes
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git.runner import Git
from liza.landing.submitted_requests import comment_returns
from liza.merging import queue
from liza.merging.merge_recovery import recover_if_dead
from liza.model.derived import find_current_work
from liza.model.errors import LizaError, Refused, UsageError
from liza.model.model import State, Task
from liza.model.paths import branch_of, run_id
from liza.model.targets import target_branch
from liza.model.value_classes import Value, replace
from liza.supervisor.down import stop_agents
from liza.tasks import pause
from liza.tasks import task as task_verbs
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.verdict import verdict
from liza.text.formats import count_noun
from liza.text.redaction import redact
from liza.ui.rules.offers import ActionName, Offer, ShownWork, describe_change, find_work
from liza.view.attach import attach

_MAX_NAMES = 4
"""Names of files that are shown of what is not committed."""


class ActionOutcome(Value):
    """What became of an action, in one sentence. ``next``: a command. ``task``: the task as it is now."""

    is_done: bool
    text: str
    next: str = ""
    task: Task | None = None


def act(crew: Crew, offer: Offer, texts: Sequence[str]) -> ActionOutcome:
    """Do it, or say in one sentence why not. Nothing is raised: the picture goes on whatever a verb does."""
    fresh = replace(crew)  # Another thread reads with the board of ``crew``.
    try:
        state = fresh.board.read()
        task = state.task(offer.subject) if offer.mark is not None else None
        change = describe_change(offer.mark, task, offer.subject) if offer.mark is not None else None
        change = change or _describe_other_work(state, offer) or _describe_other_signal(fresh, offer)
        if change is not None:
            step = f"liza task show {offer.subject}" if offer.mark is not None else "liza status"
            return ActionOutcome(False, change, step, task)
        result = _VERBS[offer.name](fresh, offer, [text.strip() for text in texts])
    except LizaError as error:
        return ActionOutcome(False, redact(error.message), error.hint, _read_task(fresh, offer))
    except OSError as error:
        return ActionOutcome(False, redact(str(error)), "liza doctor")
    except Exception as error:  # noqa: BLE001
        return ActionOutcome(False, redact(f"{type(error).__name__}: {error}"), "liza bug-report")
    text = "; ".join(filter(None, (*result.message.split("\n"), *result.remarks))) or result.result
    return ActionOutcome(True, redact(text), result.next)


def _describe_other_work(state: State, offer: Offer) -> str | None:
    """Return whose session the action would end or reach instead of the one that was drawn; None if it is the same."""
    if offer.work is None:
        return None
    if offer.mark is not None:
        task = state.task(offer.subject)
        now = find_work(task) if task is not None else None
    else:
        agent = state.agents.get(offer.subject)
        now = ShownWork(offer.subject, run_id(offer.subject, agent.runs) if agent is not None and agent.runs else None)
    if now is None or now == offer.work:
        return None
    worker = f"{now.agent} works in {now.run}" if now.run else now.agent or "nobody has it"
    return f"{offer.subject} changed while you looked: now {worker}"


def _describe_other_signal(crew: Crew, offer: Offer) -> str | None:
    """Return a signal that was set, or set anew, after the picture was drawn; None if there is none."""
    if offer.name not in (ActionName.RESUME, ActionName.RESOLVE):
        return None
    drawn = dict(offer.signals)
    for name, signal in crew.board.signals().items():
        reason = redact(signal.reason)
        is_trip = offer.name is ActionName.RESOLVE and any(text in reason for text in offer.intro)
        if not is_trip and (name not in drawn or drawn[name] not in (None, reason)):
            return f"{name} was set while you looked: {reason or 'without a reason'}"
    return None


def _read_task(crew: Crew, offer: Offer) -> Task | None:
    try:
        return crew.board.read().task(offer.subject)
    except (LizaError, OSError):
        return None


def _move(crew: Crew, offer: Offer, texts: Sequence[str]) -> Result:
    position = texts[0]
    if not (position.isascii() and position.isdigit()):
        raise UsageError(f"{position!r} is not a position: expected a number from 1", "liza queue")
    return queue.move(crew, offer.subject, int(position))


def _reject(crew: Crew, offer: Offer, texts: Sequence[str]) -> Result:
    comments = [(row.location, row.text) for row in offer.comments]
    result = verdict(crew, "reject", texts[0], task_id=offer.subject, commit=_commit(offer), comments=comments)
    # The author of a pull request gets a comment, for which the picture does not wait.
    threading.Thread(target=comment_returns, args=(replace(crew), [offer.subject]), daemon=True).start()
    return result


def _approve(crew: Crew, offer: Offer, texts: Sequence[str]) -> Result:
    return verdict(crew, "approve", texts[0], task_id=offer.subject, commit=_commit(offer))


def _commit(offer: Offer) -> str:
    """Return the commit that was drawn. Raises Refused: without one there is nothing to judge."""
    if offer.mark is None or offer.mark.commit is None:
        raise Refused(f"{offer.subject} has no commit to judge", f"liza task show {offer.subject}")
    return offer.mark.commit


def _add(crew: Crew, _: Offer, texts: Sequence[str]) -> Result:
    task_id, *fields = texts
    description, done_when, scope, spec = (text or None for text in fields)
    requested = TaskFields(task_id, description=description, done_when=done_when, scope=scope, spec_ref=spec)
    return task_verbs.add(crew, (requested,))


def _complete(crew: Crew, offer: Offer, texts: Sequence[str]) -> Result:
    description, done_when, scope, spec = (text or None for text in texts)
    fields = TaskFields(offer.subject, description=description, done_when=done_when, scope=scope, spec_ref=spec)
    return task_verbs.edit(crew, fields)


_VERBS: Final[Mapping[ActionName, Callable[[Crew, Offer, Sequence[str]], Result]]] = {
    ActionName.ANSWER: lambda crew, offer, texts: task_verbs.unblock(crew, offer.subject, texts),
    ActionName.APPROVE: _approve,
    ActionName.REJECT: _reject,
    ActionName.NOTE: lambda crew, offer, texts: notes.note(crew, texts[0], offer.subject or None),
    ActionName.SEND: lambda crew, offer, texts: notes.send_note(crew, texts[0], offer.subject),
    ActionName.MOVE: _move,
    ActionName.HOLD: lambda crew, offer, texts: queue.hold(crew, offer.subject, texts[0]),
    ActionName.UNHOLD: lambda crew, offer, _: queue.release(crew, offer.subject),
    ActionName.RETRY: lambda crew, offer, _: queue.retry(crew, offer.subject),
    ActionName.RELEASE: lambda crew, offer, _: task_verbs.release(crew, offer.subject),
    ActionName.DROP: lambda crew, offer, texts: task_verbs.drop(crew, offer.subject, texts[0], None, recover_if_dead),
    ActionName.STOP: lambda crew, offer, _: stop_agents(crew, [offer.subject]),
    ActionName.PAUSE: lambda crew, _, texts: pause.pause(crew, texts[0]),
    ActionName.RESUME: lambda crew, _, __: pause.resume(crew),
    ActionName.RESOLVE: lambda crew, _, texts: pause.resume(crew, texts[0]),
    ActionName.ADD: _add,
    ActionName.COMPLETE: _complete,
}


def check_attach(crew: Crew, agent: str) -> ActionOutcome | None:
    """Return why a person cannot attach to an agent; None if it is possible."""
    try:
        attach(replace(crew), agent)
    except LizaError as error:
        return ActionOutcome(False, redact(error.message), error.hint)
    except OSError as error:
        return ActionOutcome(False, redact(str(error)), "liza doctor")
    return None


def find_losses(crew: Crew, offer: Offer) -> tuple[str, ...]:
    """Return what an action ends and sets aside: the session, uncommitted lines, commits that are not merged.

    What cannot be read is said to be unknown.
    """
    fresh = replace(crew)
    try:
        state = fresh.board.read()
        task, run = _find_work(state, offer)
        ends = [f"ends the session {run}"] if run is not None and fresh.run_dir(run).exists() else []
        return (*ends, *(_describe_work(fresh, state, task) if task is not None else ()))
    except (LizaError, OSError) as error:
        return (f"? what would be set aside cannot be read: {redact(str(error))}",)


def _find_work(state: State, offer: Offer) -> tuple[Task | None, str | None]:
    """Return the task that the action touches, and the run that it ends."""
    if offer.name is ActionName.STOP:
        work = find_current_work(state, offer.subject)
        return (None, None) if work is None else (state.task(work.task or ""), work.run)
    task = state.task(offer.subject)
    return task, None if task is None else find_work(task).run


def _describe_work(crew: Crew, state: State, task: Task) -> Iterator[str]:
    target = f"refs/heads/{target_branch(state, task)}"
    if task.worktree and crew.is_here(task) and crew.paths.slot(task.worktree).is_dir():
        git = crew.worktrees.open_git(task.worktree)
        yield from _describe_uncommitted(git)
        head = git.out("rev-parse", "HEAD")
    else:
        head = crew.git.find_commit(f"refs/heads/{branch_of(task.id)}") or ""
    number = int(crew.git.out("rev-list", "--count", head, "--not", target)) if head else 0
    if number:
        yield f"sets aside {count_noun(number, 'commit')} that {'is' if number == 1 else 'are'} not merged"


def _describe_uncommitted(git: Git) -> Iterator[str]:
    counts = [row.split("\t") for row in git.lines("diff", "--numstat", "HEAD", "--")]
    lines = sum(int(number) for row in counts for number in row[:2] if number.isdigit())
    untracked = git.names("ls-files", "-z", "--others", "--exclude-standard")
    names = [*(row[-1] for row in counts), *untracked]
    if names:
        shown = ", ".join(names[:_MAX_NAMES]) + (
            f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        )
        new = count_noun(len(untracked), "new file")
        yield f"sets aside {count_noun(lines, 'uncommitted line')} and {new}: {shown}"
