"""Find the violations that a change adds. Only these refuse a change; older ones raise an alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from liza.board.text.document import SECTIONS
from liza.board.text.splitter import LIST_SECTIONS, TABLE_SECTIONS
from liza.model import invariants
from liza.model.model import State, Task, Violation

_EXCLUSIVE_FIELDS: Final = ("worktree", "assigned_to", "run", "review_run")
"""Fields of a task whose values must be unique among tasks."""
_RELATION_FIELDS: Final = ("id", "status", "depends_on", "superseded_by", "reservation", *_EXCLUSIVE_FIELDS)
"""Fields of a task that the invariants between tasks use."""


def find_added(before: State, after: State) -> tuple[Violation, ...]:
    """Return the violations of ``after`` that ``before`` does not have, checking changed entries only."""
    if before.config != after.config or (
        len(before.tasks) != len(after.tasks) and (_has_duplicate_ids(before) or _has_duplicate_ids(after))
    ):
        return find_added_in_full(before, after)
    old: list[Violation] = []
    new: list[Violation] = []
    related: set[str] = set()
    for section, key, was, now in iter_changed_entries(before, after):
        if was is not None:
            old += invariants.check_entry(section, key, was, before)
        if now is not None:
            new += invariants.check_entry(section, key, now, after)
        if section == "tasks" and _affects_relations(was, now):
            related.add(key)
        if section == "agents" and was is not None and (now is None or now.runs < was.runs):
            return find_added_in_full(before, after)
    related |= before.archived.outcomes.keys() ^ after.archived.outcomes.keys()
    if related:
        names = _related_tasks(before, after, related)
        old += invariants.check_relations(select_tasks(before, names))
        new += invariants.check_relations(select_tasks(after, names))
    return _subtract(old, new)


def _has_duplicate_ids(state: State) -> bool:
    return len({task.id for task in state.tasks}) != len(state.tasks)


def find_all(state: State) -> tuple[Violation, ...]:
    """Return every violation on a board."""
    return invariants.check_board(state)


def find_added_in_full(before: State, after: State) -> tuple[Violation, ...]:
    """Return the violations of ``after`` that ``before`` does not have, checking both boards in full."""
    return _subtract(invariants.check_board(before), invariants.check_board(after))


def _affects_relations(was: Task | None, now: Task | None) -> bool:
    return was is None or now is None or any(getattr(was, name) != getattr(now, name) for name in _RELATION_FIELDS)


def _related_tasks(before: State, after: State, start: set[str]) -> set[str]:
    """Return the ids of all tasks that share an invariant with a task of ``start``, before or after the change."""
    reached = set(start)
    for state in (before, after):
        by_id = {task.id: task for task in state.tasks}
        if not start <= by_id.keys():
            reached |= {
                task.id for task in state.tasks if not start.isdisjoint((*task.depends_on, *task.superseded_by))
            }
        values = {value for name in start & by_id.keys() for value in _exclusive_values(by_id[name])}
        if values:
            reached |= {task.id for task in state.tasks if not values.isdisjoint(_exclusive_values(task))}
        waiting = list(reached)
        while waiting:
            task = by_id.get(waiting.pop())
            for other in (*task.depends_on, *task.superseded_by) if task else ():
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
    return reached


def _exclusive_values(task: Task) -> tuple[str | None, ...]:
    return tuple(value for value in (task.worktree, task.assigned_to, task.run, task.review_run) if value is not None)


def select_tasks(state: State, names: set[str]) -> State:
    """Return the board with the tasks of ``names`` only, to check the invariants between them."""
    return msgspec.structs.replace(state, tasks=tuple(task for task in state.tasks if task.id in names))


def _subtract(old: Iterable[Violation], new: Iterable[Violation]) -> tuple[Violation, ...]:
    """Return the violations of ``new`` without those of ``old``. The found values are not compared."""
    remaining = Counter((violation.entry, violation.field, violation.expected) for violation in old)
    added = []
    for violation in new:
        name = violation.entry, violation.field, violation.expected
        if remaining[name] > 0:
            remaining[name] -= 1
        else:
            added.append(violation)
    return tuple(added)


def iter_changed_entries(before: State, after: State) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield section, key, entry before and entry after of everything that differs; None for a missing entry."""
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


def _entry_name(entry: Any, index: int) -> str:
    return str(getattr(entry, "id", index))
