"""Which tasks name the same files. Pure: the changed files of branches are an argument.

Two tasks overlap if one path can belong to both. To a task belong the files that its branch has changed and, until it
is submitted, every path that its scope names: ``*`` stands for any characters, and a directory for all below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from liza.model import targets
from liza.model.derived import find_owner
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.value_classes import Value
from liza.tasks.rules.work_record import scope_areas, scope_names, scope_patterns

S = Status
ChangedFiles = Mapping[str, frozenset[str]]
"""The files that the branch of each task has changed since it left the branch it is merged into, by task."""
_SUBMITTED_STATUSES = frozenset({S.READY_FOR_REVIEW, S.APPROVED})
_RETURNED_STATUSES = frozenset({S.REJECTED, S.INTEGRATION_FAILED})
MAX_OTHERS = 5  # tasks that one message names


class Overlap(Value):
    """Another task to which ``path`` belongs as well: a file, or a name of a scope. ``agent``: who works on it."""

    task: str
    path: str
    agent: str = ""

    @property
    def name(self) -> str:
        """The other task, and its agent."""
        return f"{self.task} ({self.agent})" if self.agent else self.task


class Footprint(Value):
    """What belongs to a task: the paths that its scope names, with wildcards, and what its branch has changed.

    ``words``: the other words of the scope; one of them may be a file, such as ``Makefile``.
    """

    patterns: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    changed: frozenset[str] = frozenset()

    def common_path(self, other: Footprint) -> str | None:
        """Return a path that belongs to both, or None: a changed file if there is one, else the longer name."""
        both = (self.changed & other.changed) or {*other.changed_below(self), *self.changed_below(other)}
        if both:
            return min(both)
        pairs = ((mine, its) for mine in self.patterns for its in other.patterns if can_meet(mine, its))
        return min((max(pair, key=len) for pair in pairs), default=None)

    def changed_below(self, other: Footprint) -> Iterator[str]:
        """Yield the changed files that the scope of another task names."""
        names = (*other.patterns, *other.words)
        return (path for path in self.changed if any(_contains(name, path) for name in names))


def footprint(task: Task, changed: ChangedFiles) -> Footprint:
    """Return what belongs to a task. Of submitted work it is what was changed, if that is known."""
    files = changed.get(task.id, frozenset())
    if files and task.status in _SUBMITTED_STATUSES:
        return Footprint(changed=files)
    return Footprint(*_read_scope(task.scope), files)


@lru_cache(maxsize=2048)
def _read_scope(scope: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that a scope names, and its other words; of a scope without a path nothing counts."""
    patterns = scope_patterns(scope)
    words = scope_names(scope) - scope_areas(scope) - patterns if patterns else frozenset()
    return tuple(sorted(patterns)), tuple(sorted(words))


_WILDCARD = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\[[^\]]+\]|.", re.DOTALL)


def _contains(name: str, path: str) -> bool:
    """Return whether a file belongs to a name."""
    if _WILDCARD.search(name):
        return any(fnmatchcase(path, pattern) for pattern in (name, *_below(name)))
    return path == name or path.startswith(f"{name}/")


@lru_cache(maxsize=65536)
def can_meet(name: str, other: str) -> bool:
    """Return whether a path can belong to both names."""
    start, other_start = (_WILDCARD.split(each, maxsplit=1)[0] for each in (name, other))
    if not start.startswith(other_start) and not other_start.startswith(start):
        return False
    if (start, other_start) == (name, other):
        return name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/")
    pairs = ((name, other), *((each, other) for each in _below(name)), *((name, each) for each in _below(other)))
    return any(_can_match(*pair) for pair in pairs)


def _below(name: str) -> tuple[str, ...]:
    """Return the pattern of what is below a name; none for a file, which has a suffix."""
    return () if "." in name.rpartition("/")[2][1:] else (f"{name}/*",)


def _can_match(pattern: str, other: str) -> bool:
    """Return whether one text can match both patterns: walk through both at the same time."""
    tokens, others = _TOKEN.findall(pattern), _TOKEN.findall(other)
    reached, todo = {(0, 0)}, [(0, 0)]
    while todo:
        at, to = todo.pop()
        if (at, to) == (len(tokens), len(others)):
            return True
        fresh = {(at + step, to + move) for step, move in _steps(tokens[at : at + 1], others[to : to + 1])} - reached
        reached |= fresh
        todo += fresh
    return False


def _steps(token: list[str], other: list[str]) -> Iterator[tuple[int, int]]:
    """Yield how far both patterns can go from a pair of tokens; an empty list is the end of a pattern."""
    is_star, is_other_star = token == ["*"], other == ["*"]
    if is_star:
        yield 1, 0
    if is_other_star:
        yield 0, 1
    if not token or not other or is_star is is_other_star is True:
        return
    if is_star or is_other_star or token == other or any(each == "?" or len(each) > 1 for each in (*token, *other)):
        yield int(not is_star), int(not is_other_star)


def is_in_work(task: Task) -> bool:
    """Return whether an agent works on a task, or its work is in review, approved, or goes back to a coder."""
    if task.reservation is not None or task.status is S.CLAIMED or task.status in _SUBMITTED_STATUSES:
        return True
    return task.status in _RETURNED_STATUSES and (task.submission is None or task.submission.fix != "author")


def has_begun(task: Task) -> bool:
    """Return whether there may be work for a task. It never waits for another one with the same files."""
    return task.base_commit is not None or task.submission is not None or task.reservation is not None


def find_overlaps(
    state: State, subjects: Iterable[Task], changed: ChangedFiles, is_other: Callable[[Task], bool]
) -> dict[str, tuple[Overlap, ...]]:
    """Return the open tasks with ``is_other`` that overlap with each of the ``subjects``, and that no dependency orders
    before or after it; those in work first. Without an overlap a task is left out.
    """
    subjects = tuple(subjects)
    others = [task for task in state.tasks if task.status not in FINAL_STATUSES and is_other(task)]
    if len({task.id for task in (*subjects, *others)}) < 2:
        return {}  # no file of a branch is looked at: to read them costs a git command
    index = FootprintIndex({task.id: footprint(task, changed) for task in others})
    by_id = {task.id: task for task in others}
    order = _Order(state)
    result = {}
    for subject in subjects:
        paths = index.find(subject.id, footprint(subject, changed))
        overlaps = [
            Overlap(name, path, _agent(by_id[name]))
            for name, path in paths.items()
            if not order.is_ordered(subject.id, name)
        ]
        if overlaps:
            result[subject.id] = tuple(sorted(overlaps, key=lambda overlap: not is_in_work(by_id[overlap.task])))
    return result


def _agent(task: Task) -> str:
    if task.reservation is not None:
        return task.reservation.agent
    return task.reviewing_by or find_owner(task)


class FootprintIndex:
    """Footprints by the paths that are written out, so that 500 tasks are not all compared with each other."""

    def __init__(self, footprints: Mapping[str, Footprint]) -> None:
        self._footprints = footprints
        self._at: dict[str, list[str]] = {}
        self._above: dict[str, list[str]] = {}
        self._words: dict[str, list[str]] = {}
        self._with_wildcard = [task for task, each in footprints.items() if _has_wildcard(each)]
        for task, each in footprints.items():
            for path in (*each.patterns, *each.changed):
                self._at.setdefault(path, []).append(task)
                for directory in _parents(path):
                    self._above.setdefault(directory, []).append(task)
            for word in each.words:
                self._words.setdefault(word, []).append(task)

    def find(self, subject: str, own: Footprint) -> dict[str, str]:
        """Return the tasks that overlap with a footprint, in the order of the board, with one path for each."""
        near = set(self._footprints if _has_wildcard(own) else self._with_wildcard)
        for path in (*own.patterns, *own.changed, *own.words):
            near.update(*(self._at.get(name, ()) for name in (path, *_parents(path))), self._above.get(path, ()))
        for path in own.changed:
            near.update(*(self._words.get(name, ()) for name in (path, *_parents(path))))
        near.discard(subject)
        paths = {name: own.common_path(each) for name, each in self._footprints.items() if name in near}
        return {name: path for name, path in paths.items() if path is not None}


def _has_wildcard(each: Footprint) -> bool:
    return any(map(_WILDCARD.search, each.patterns))


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class _Order:
    """Which of two tasks waits for the other one by its dependencies."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waits_for: Mapping[str, tuple[str, ...]] | None = None
        self._reached: dict[str, frozenset[str]] = {}

    def is_ordered(self, task: str, other: str) -> bool:
        """Return whether one of the tasks is merged before the other one begins."""
        return other in self._before(task) or task in self._before(other)

    def _before(self, task: str) -> frozenset[str]:
        if self._waits_for is None:
            self._waits_for = targets.waits_for(self._state.tasks)
        if task not in self._reached:
            reached: set[str] = set()
            todo = [task]
            while todo:
                fresh = set(self._waits_for.get(todo.pop(), ())) - reached
                reached |= fresh
                todo += fresh
            self._reached[task] = frozenset(reached)
        return self._reached[task]


def find_holder(state: State, task: Task, others: Iterable[Task], changed: ChangedFiles) -> Overlap | None:
    """Return the first of ``others``, tasks in work, that a task would share files with; None if it has begun."""
    if has_begun(task):
        return None
    own = footprint(task, changed)
    if not own.patterns:
        return None
    for other in others:
        path = None if other.id == task.id else own.common_path(footprint(other, changed))
        has_order = bool(task.depends_on or other.depends_on) and path is not None
        if path is not None and not (has_order and _Order(state).is_ordered(task.id, other.id)):
            return Overlap(other.id, path, _agent(other))
    return None


def describe(subject: str, overlaps: tuple[Overlap, ...]) -> str:
    """Return a sentence that names the tasks with the same files; empty if there are none."""
    if not overlaps:
        return ""
    more = f"; and {len(overlaps) - MAX_OTHERS} more" if len(overlaps) > MAX_OTHERS else ""
    others = "; ".join(f"{overlap.name}, {overlap.path}" for overlap in overlaps[:MAX_OTHERS])
    return f"{subject} shares files with {others}{more}"
