"""Which violations a change adds. An old one is an alarm, not an obstacle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from liza.board.text.document import SECTIONS
from liza.board.text.splitter import LIST_SECTIONS, TABLE_SECTIONS
from liza.rules import invariants
from liza.rules.model import State, Task, Violation

_EXCLUSIVE_FIELDS: Final = ("worktree", "assigned_to", "run", "review_run")
"""Fields of a task that another must not have too."""
_RELATION_FIELDS: Final = ("id", "status", "depends_on", "superseded_by", "reservation", *_EXCLUSIVE_FIELDS)
"""Fields of a task that invariants between tasks look at."""


def find_added(before: State, after: State) -> tuple[Violation, ...]:
    """The violations of ``after`` that ``before`` does not have, looking only at what changed."""
    if before.config != after.config or (
        len(before.tasks) != len(after.tasks) and (_has_duplicate_ids(before) or _has_duplicate_ids(after))
    ):
        return find_added_in_full(before, after)
    old: list[Violation] = []
    new: list[Violation] = []
    between: set[str] = set()
    for section, key, was, now in iter_changed_entries(before, after):
        if was is not None:
            old += invariants.check_entry(section, key, was, before)
        if now is not None:
            new += invariants.check_entry(section, key, now, after)
        if section == "tasks" and _affects_relations(was, now):
            between.add(key)
        if section == "agents" and was is not None and (now is None or now.runs < was.runs):
            return find_added_in_full(before, after)
    if between:
        names = _related_tasks(before, after, between)
        old += invariants.check_relations(select_tasks(before, names))
        new += invariants.check_relations(select_tasks(after, names))
    return _subtract(old, new)


def _has_duplicate_ids(state: State) -> bool:
    return len({task.id for task in state.tasks}) != len(state.tasks)


def find_all(state: State) -> tuple[Violation, ...]:
    """Every violation on a board."""
    return invariants.check_board(state)


def find_added_in_full(before: State, after: State) -> tuple[Violation, ...]:
    """The violations of ``after`` that ``before`` does not have, looking at everything."""
    return _subtract(invariants.check_board(before), invariants.check_board(after))


def _affects_relations(was: Task | None, now: Task | None) -> bool:
    return was is None or now is None or any(getattr(was, name) != getattr(now, name) for name in _RELATION_FIELDS)


def _related_tasks(before: State, after: State, start: set[str]) -> set[str]:
    """The tasks that an invariant could bring together with the tasks of ``start``, before or after."""
    reach = set(start)
    for state in (before, after):
        by_id = {task.id: task for task in state.tasks}
        if not start <= by_id.keys():
            reach |= {task.id for task in state.tasks if not start.isdisjoint((*task.depends_on, *task.superseded_by))}
        values = {value for name in start & by_id.keys() for value in _exclusive_values(by_id[name])}
        if values:
            reach |= {task.id for task in state.tasks if not values.isdisjoint(_exclusive_values(task))}
        waiting = list(reach)
        while waiting:
            task = by_id.get(waiting.pop())
            for other in (*task.depends_on, *task.superseded_by) if task else ():
                if other not in reach:
                    reach.add(other)
                    waiting.append(other)
    return reach


def _exclusive_values(task: Task) -> tuple[str | None, ...]:
    return tuple(value for value in (task.worktree, task.assigned_to, task.run, task.review_run) if value is not None)


def select_tasks(state: State, names: set[str]) -> State:
    """The board with those tasks only: invariants between tasks need no others to judge a change of these."""
    return msgspec.structs.replace(state, tasks=tuple(task for task in state.tasks if task.id in names))


def _subtract(old: Iterable[Violation], new: Iterable[Violation]) -> tuple[Violation, ...]:
    """The violations in ``new`` that stand for something ``old`` did not have, whatever value was found."""
    known = Counter((one.entry, one.field, one.expected) for one in old)
    found = []
    for one in new:
        name = one.entry, one.field, one.expected
        if known[name] > 0:
            known[name] -= 1
        else:
            found.append(one)
    return tuple(found)


def iter_changed_entries(before: State, after: State) -> Iterator[tuple[str, str, Any, Any]]:
    """Section, key, entry before and entry after of everything that differs; None where there is none."""
    for section in SECTIONS:
        was, now = getattr(before, section), getattr(after, section)
        if was is now or section in ("version", "revision"):
            continue
        if section in LIST_SECTIONS:
            yield from _changed_rows(section, was, now)
        elif section in TABLE_SECTIONS:
            for key in was.keys() | now.keys():
                if was.get(key) != now.get(key):
                    yield section, key, was.get(key), now.get(key)
        elif was != now:
            yield section, section, was, now


def _changed_rows(section: str, was: tuple[Any, ...], now: tuple[Any, ...]) -> Iterator[tuple[str, str, Any, Any]]:
    if len(was) == len(now) and all(
        a is b or _entry_name(a, 0) == _entry_name(b, 0) for a, b in zip(was, now, strict=True)
    ):
        for i, (a, b) in enumerate(zip(was, now, strict=True)):
            if a is not b and a != b:
                yield section, _entry_name(a, i), a, b
        return
    old = {_entry_name(entry, i): entry for i, entry in enumerate(was)}
    new = {_entry_name(entry, i): entry for i, entry in enumerate(now)}
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield section, key, old.get(key), new.get(key)


def _entry_name(entry: Any, place: int) -> str:
    return str(getattr(entry, "id", place))
