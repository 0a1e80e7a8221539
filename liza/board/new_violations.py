"""Which violations a change adds. An old one is an alarm, not an obstacle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from liza.board.text.document import SECTIONS
from liza.board.text.splitter import LISTS, TABLES
from liza.rules import invariants
from liza.rules.model import State, Task, Violation

_OWN: Final = ("worktree", "assigned_to", "run", "review_run")
"""Fields of a task that another must not have too."""
_BETWEEN: Final = ("id", "status", "depends_on", "superseded_by", "reservation", *_OWN)
"""Fields of a task that invariants between tasks look at."""


def added(before: State, after: State) -> tuple[Violation, ...]:
    """The violations of ``after`` that ``before`` does not have, looking only at what changed."""
    if before.config != after.config or (len(before.tasks) != len(after.tasks) and (_twice(before) or _twice(after))):
        return beyond(before, after)
    old: list[Violation] = []
    new: list[Violation] = []
    between: set[str] = set()
    for section, key, was, now in changed(before, after):
        if was is not None:
            old += invariants.of_entry(section, key, was, before)
        if now is not None:
            new += invariants.of_entry(section, key, now, after)
        if section == "tasks" and _matters(was, now):
            between.add(key)
        if section == "agents" and was is not None and (now is None or now.runs < was.runs):
            return beyond(before, after)
    if between:
        names = _reach(before, after, between)
        old += invariants.across(near(before, names))
        new += invariants.across(near(after, names))
    return _beyond(old, new)


def _twice(state: State) -> bool:
    return len({task.id for task in state.tasks}) != len(state.tasks)


def every(state: State) -> tuple[Violation, ...]:
    """Every violation on a board."""
    return invariants.check(state)


def beyond(before: State, after: State) -> tuple[Violation, ...]:
    """The violations of ``after`` that ``before`` does not have, looking at everything."""
    return _beyond(invariants.check(before), invariants.check(after))


def _matters(was: Task | None, now: Task | None) -> bool:
    return was is None or now is None or any(getattr(was, name) != getattr(now, name) for name in _BETWEEN)


def _reach(before: State, after: State, start: set[str]) -> set[str]:
    """The tasks that an invariant could bring together with the tasks of ``start``, before or after."""
    reach = set(start)
    for state in (before, after):
        by_id = {task.id: task for task in state.tasks}
        if not start <= by_id.keys():
            reach |= {task.id for task in state.tasks if not start.isdisjoint((*task.depends_on, *task.superseded_by))}
        values = {value for name in start & by_id.keys() for value in _own(by_id[name])}
        if values:
            reach |= {task.id for task in state.tasks if not values.isdisjoint(_own(task))}
        waiting = list(reach)
        while waiting:
            task = by_id.get(waiting.pop())
            for other in (*task.depends_on, *task.superseded_by) if task else ():
                if other not in reach:
                    reach.add(other)
                    waiting.append(other)
    return reach


def _own(task: Task) -> tuple[str | None, ...]:
    return tuple(value for value in (task.worktree, task.assigned_to, task.run, task.review_run) if value is not None)


def near(state: State, names: set[str]) -> State:
    """The board with those tasks only: invariants between tasks need no others to judge a change of these."""
    return msgspec.structs.replace(state, tasks=tuple(task for task in state.tasks if task.id in names))


def _beyond(old: Iterable[Violation], new: Iterable[Violation]) -> tuple[Violation, ...]:
    """The violations in ``new`` that stand for something ``old`` did not have, whatever value was found."""
    known = Counter((one.entry, one.field, one.wanted) for one in old)
    found = []
    for one in new:
        name = one.entry, one.field, one.wanted
        if known[name] > 0:
            known[name] -= 1
        else:
            found.append(one)
    return tuple(found)


def changed(before: State, after: State) -> Iterator[tuple[str, str, Any, Any]]:
    """Section, key, entry before and entry after of everything that differs; None where there is none."""
    for section in SECTIONS:
        was, now = getattr(before, section), getattr(after, section)
        if was is now or section in ("version", "revision"):
            continue
        if section in LISTS:
            yield from _changed_rows(section, was, now)
        elif section in TABLES:
            for key in was.keys() | now.keys():
                if was.get(key) != now.get(key):
                    yield section, key, was.get(key), now.get(key)
        elif was != now:
            yield section, section, was, now


def _changed_rows(section: str, was: tuple[Any, ...], now: tuple[Any, ...]) -> Iterator[tuple[str, str, Any, Any]]:
    if len(was) == len(now) and all(a is b or _name(a, 0) == _name(b, 0) for a, b in zip(was, now, strict=True)):
        for i, (a, b) in enumerate(zip(was, now, strict=True)):
            if a is not b and a != b:
                yield section, _name(a, i), a, b
        return
    old = {_name(entry, i): entry for i, entry in enumerate(was)}
    new = {_name(entry, i): entry for i, entry in enumerate(now)}
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield section, key, old.get(key), new.get(key)


def _name(entry: Any, place: int) -> str:
    return str(getattr(entry, "id", place))
