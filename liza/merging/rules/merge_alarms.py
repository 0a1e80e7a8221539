"""Alarms about failed merges, and about checkouts and slots that a merge could not update. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime

from liza.merging.rules import merge_rules
from liza.model.alarm_table import Alarm, AlarmKind
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
    reason = f"{task.id} is approved and could not be merged ({_times(retry)}): {_reason(retry)}"
    again = f"liza merge {task.id}"
    if retry.kind == merge_rules.MergeFailureKind.UNTESTED and _is_simple(retry.hint):
        step = retry.hint  # it is merged by itself afterwards, or by this command
    else:
        step = again if retry.hint == again else _then(retry.hint, again)
    next_try = _describe_next_try(retry.until, now)
    yield AlarmKind.MERGE_SET_ASIDE.alarm(task.id, reason=reason, next_try=next_try, step=step)


def epic_alarms(epics: Mapping[str, Epic], now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each epic that could not be landed or updated, and whose retry is delayed."""
    for name, epic in epics.items():
        retry = epic.set_aside
        if retry is not None and retry.until is not None and not retry.branch:
            branch, next_try = epic_branch(name), _describe_next_try(retry.until, now)
            step = _then(retry.hint, f"liza merge {branch}")
            yield AlarmKind.EPIC_NOT_LANDED.alarm(
                branch, times=_times(retry), reason=_reason(retry), next_try=next_try, step=step
            )


def red_branch_alarms(state: State, now: datetime) -> Iterator[Alarm]:
    """Yield one alarm for each branch into which nothing is merged, because it is red without any task."""
    for branch, retry in merge_rules.find_red_branches(state).items():
        if retry.until is not None:
            subject = next(name for name, record in _find_records(state) if record == retry)
            next_try = _describe_next_try(retry.until, now, f"nothing is merged into {branch} until it is green")
            step = _then(retry.hint, f"liza merge {subject}")
            yield AlarmKind.MERGE_SET_ASIDE.alarm(subject, reason=_reason(retry), next_try=next_try, step=step)


def _reason(retry: MergeRetry) -> str:
    return " ".join(retry.reason.split())[:400]


def _times(retry: MergeRetry) -> str:
    return "once" if retry.tries == 1 else f"{retry.tries} times"


def _then(hint: str, again: str) -> str:
    """Return the command that tries the merge again, after the hint of its failure if that is one command."""
    return f"{hint} && {again}" if _is_simple(hint) else again


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
