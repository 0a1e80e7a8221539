"""Alarms about failed merges, and about checkouts and slots that a merge could not update. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime

from liza.merging.rules import merge_rules
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.model import Epic, MergeRetry, State, Task
from liza.model.targets import epic_branch


def _describe_next_try(until: datetime, now: datetime, meanwhile: str = "others are merged meanwhile") -> str:
    """Return when a failed merge is tried again. A time in the past passed without a supervisor that could try."""
    if until > now:
        return f"; the next try is at {until:%H:%M:%SZ}, {meanwhile}"
    return f"; the next try has been due since {until:%H:%M:%SZ}, and waits for a supervisor"


def retry_alarms(task: Task, now: datetime) -> Iterator[Alarm]:
    """Yield an alarm if the task's merge failed and its retry is delayed. The first death of a merger is no alarm."""
    retry = task.set_aside
    if retry is None or retry.until is None or retry.branch:
        return
    times = "once" if retry.tries == 1 else f"{retry.tries} times"
    reason = " ".join(retry.reason.split())
    message = f"{task.id} is approved and could not be merged ({times}): {reason[:400]}"
    next_try = _describe_next_try(retry.until, now)
    again = f"liza merge {task.id}"
    if retry.kind == merge_rules.MergeFailureKind.UNTESTED and _is_simple(retry.hint):
        step = retry.hint  # it is merged by itself afterwards, or by this command
    else:
        step = f"{retry.hint} && {again}" if _is_simple(retry.hint) and retry.hint != again else again
    yield Alarm(AlarmKind.MERGE_SET_ASIDE, task.id, message + next_try, step)


def epic_alarms(epics: Mapping[str, Epic], now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each epic that could not be landed or updated, and whose retry is delayed."""
    for name, epic in epics.items():
        retry = epic.set_aside
        if retry is None or retry.until is None or retry.branch:
            continue
        times = "once" if retry.tries == 1 else f"{retry.tries} times"
        branch, reason = epic_branch(name), " ".join(retry.reason.split())[:400]
        message = f"{branch} could not be merged with integration ({times}): {reason}"
        message += _describe_next_try(retry.until, now)
        again = f"liza merge {branch}"
        step = f"{retry.hint} && {again}" if _is_simple(retry.hint) else again
        yield Alarm(AlarmKind.EPIC_NOT_LANDED, branch, message, step)


def red_branch_alarms(state: State, now: datetime) -> Iterator[Alarm]:
    """Yield one alarm for each branch into which nothing is merged, because it is red without any task."""
    for branch, retry in merge_rules.find_red_branches(state).items():
        if retry.until is None:
            continue
        subject = next(name for name, record in _find_records(state) if record == retry)
        message = " ".join(retry.reason.split())[:400]
        message += _describe_next_try(retry.until, now, f"nothing is merged into {branch} until it is green")
        again = f"liza merge {subject}"
        step = f"{retry.hint} && {again}" if _is_simple(retry.hint) else again
        yield Alarm(AlarmKind.MERGE_SET_ASIDE, subject, message, step)


def _find_records(state: State) -> Iterator[tuple[str, MergeRetry | None]]:
    yield from ((task.id, task.set_aside) for task in state.tasks)
    yield from ((epic_branch(name), epic.set_aside) for name, epic in state.epics.items())


def _is_simple(command: str) -> bool:
    """Return whether ``command`` is one command without shell operators. Agents can write the board it comes from."""
    try:
        words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    except ValueError:
        return False
    operators = any(not set(word) - set("();<>|&") for word in words if word)
    return bool(words) and not operators and command.isprintable() and not set("`$") & set(command)
