"""The branch that a task is merged into: integration, the branch of its epic, or one that a person named. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from liza.model.model import FINAL_STATUSES, Epic, State, Status, Task
from liza.model.value_classes import Value, replace
from liza.text.formats import count_noun

S = Status
EPIC_PREFIX = "epic/"
_NO_BRANCH = re.compile(r"^-|[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|(^|/)\.|\.lock(/|\Z)|\.\Z")


def epic_branch(epic: str) -> str:
    """Return the branch of an epic. It is not below the integration branch: git stores a ref as a file, and
    ``integration/x`` cannot exist beside ``integration``."""
    return EPIC_PREFIX + epic


def epic_of(subject: str) -> str | None:
    """Return the epic whose branch ``subject`` is; None for the id of a task or another branch."""
    return subject.removeprefix(EPIC_PREFIX) if subject.startswith(EPIC_PREFIX) else None


def is_branch_name(branch: str) -> bool:
    """Return whether git accepts the name of a branch, by the rules of `git check-ref-format --branch`."""
    return _NO_BRANCH.search(branch) is None and branch not in ("@", "HEAD") and all(branch.split("/"))


def is_crew_branch(branch: str) -> bool:
    """Return whether Liza and agents write this branch: that of a task or of an epic."""
    return branch.partition("/")[0] in ("task", "epic")


def is_target_name(branch: str) -> bool:
    """Return whether a task can name this branch: git accepts the name, and Liza and agents write no such branch."""
    is_full = branch.startswith("refs/")
    return is_branch_name(branch) and branch.isprintable() and not is_full and not is_crew_branch(branch)


def target_branch(state: State, task: Task) -> str:
    """Return the branch that a task is merged into."""
    if task.epic is not None:
        return epic_branch(task.epic)
    return task.target or state.config.integration_branch


def work_branch(state: State, task: Task) -> str:
    """Return the branch that has the work of a merged task: integration, once its epic has landed."""
    return state.config.integration_branch if task.landed is not None else target_branch(state, task)


def target_branches(state: State) -> tuple[str, ...]:
    """Return the branches that Liza merges into: integration first, then those of epics and tasks that are open."""
    branches = [state.config.integration_branch, *map(epic_branch, open_epics(state))]
    branches += [task.target for task in state.tasks if task.target and task.status not in FINAL_STATUSES]
    return tuple(dict.fromkeys(branches))


def tasks_of(state: State, epic: str) -> tuple[Task, ...]:
    """Return the tasks of an epic that are on the board."""
    return tuple(task for task in state.tasks if task.epic == epic)


def open_epics(state: State) -> tuple[str, ...]:
    """Return the epics with a task that is open, or merged and not landed, in the order of the board."""
    return tuple(
        dict.fromkeys(
            task.epic
            for task in state.tasks
            if task.epic is not None and (task.status not in FINAL_STATUSES or is_to_land(task))
        )
    )


def is_to_land(task: Task) -> bool:
    """Return whether a task is merged into the branch of its epic, and not into integration yet."""
    return task.status is S.MERGED and task.epic is not None and task.landed is None


def is_on_integration(task: Task) -> bool:
    """Return whether the work of a task is on integration."""
    return task.status is S.MERGED and task.target is None and not is_to_land(task)


def is_being_undone(task: Task) -> bool:
    """Return whether the revert of a merged task was tested, and the branch may not have it yet."""
    return task.undo is not None and task.status is S.MERGED


def find_own_commits(task: Task) -> tuple[str, ...]:
    """Return the commits that Liza put on integration for a task: its merge, and the revert of an undo."""
    if task.undo is None or task.status is S.MERGED:
        return (task.merge_commit,) if task.merge_commit is not None and is_on_integration(task) else ()
    if task.target is not None or (task.epic is not None and task.landed is None):
        return ()
    return tuple(filter(None, (task.merge_commit, task.undo.commit)))


def is_in_base(state: State, asking: Task, merged: Task) -> bool:
    """Return whether the branch that ``asking`` starts from has the work of ``merged``, a MERGED task."""
    if (asking.epic, asking.target) == (merged.epic, merged.target):
        return True
    return is_on_integration(merged) and is_task_in_base(state, asking, merged.id)


def is_task_in_base(state: State, asking: Task, task_id: str) -> bool:
    """Return whether the branch that ``asking`` starts from has the work of a task that is on integration."""
    if asking.epic is not None:
        return task_id in state.epics.get(asking.epic, Epic()).contains
    return asking.target is None


def find_needs(state: State, epic: str) -> frozenset[str]:
    """Return the tasks outside of an epic that open tasks of it depend on and whose work is on integration."""
    open_tasks = [task for task in tasks_of(state, epic) if task.status not in FINAL_STATUSES]
    waiting = [other for task in open_tasks for other in task.depends_on]
    needs: set[str] = set()
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        other = state.task(name)
        if other is None:
            needs |= {name} if state.archived.outcomes.get(name) is S.MERGED else set()
        elif other.status is S.SUPERSEDED:
            waiting += other.superseded_by
        elif other.epic != epic and is_on_integration(other):
            needs.add(name)
    return frozenset(needs)


def record_contained(state: State, epic: str, missing: Container[str] = ()) -> State:
    """Record that the epic's branch has the work that its tasks depend on, except that of the tasks ``missing``."""
    contains = [name for name in find_needs(state, epic) if name not in missing]
    entry = state.epics.get(epic, Epic())
    return with_epic(state, epic, replace(entry, contains=tuple(sorted({*entry.contains, *contains}))))


def with_epic(state: State, epic: str, entry: Epic) -> State:
    """Return the board with this entry of an epic."""
    return replace(state, epics={**state.epics, epic: entry})


def waits_for(tasks: Iterable[Task]) -> dict[str, tuple[str, ...]]:
    """Return for each task the tasks that must be closed before it can be merged.

    An open task outside of an epic that depends on one of its tasks, or on one that such a task replaces, waits for all
    open tasks of the epic: they land together. A MERGED task waits for nothing.
    """
    tasks = tuple(tasks)
    if not any(task.epic for task in tasks):
        return {task.id: (*task.depends_on, *task.superseded_by) for task in tasks}
    by_id = {task.id: task for task in tasks}
    open_tasks: dict[str | None, list[str]] = {}
    for task in tasks:
        if task.status not in FINAL_STATUSES:
            open_tasks.setdefault(task.epic, []).append(task.id)
    return {task.id: tuple(dict.fromkeys(_needed(task, by_id, open_tasks))) for task in tasks}


def _needed(task: Task, by_id: Mapping[str, Task], open_tasks: Mapping[str | None, list[str]]) -> Iterator[str]:
    if task.status is S.MERGED:
        return
    yield from (*task.depends_on, *task.superseded_by)
    if task.status in FINAL_STATUSES:
        return
    for needed in with_replacements(task.depends_on, by_id.get):
        if needed.status is not S.SUPERSEDED and needed.epic is not None and needed.epic != task.epic:
            yield from open_tasks.get(needed.epic, ())


def with_replacements(names: Iterable[str], find: Callable[[str], Task | None]) -> Iterator[Task]:
    """Yield the known tasks of these names, and those that replace superseded ones, at any distance."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        task = find(name)
        if task is not None and name not in seen:
            seen.add(name)
            waiting += task.superseded_by
            yield task


def mismatched_target(state: State, task: Task) -> str | None:
    """Return the dependency of a task that will never be in the branch it starts from; None without one.

    Of a superseded dependency the tasks count that replace it.
    """
    for name in task.depends_on:
        if state.task(name) is None and task.target is not None:
            return name
        for other in with_replacements((name,), state.task):
            if other.status is not S.SUPERSEDED and other.target != task.target:
                return other.id
    return None


class CommitsAhead(Value):
    """``commits`` of ``integration`` have work that ``branch`` does not have; it has ``own`` commits that integration
    does not have. ``request``: URL of the open pull request to ``branch``; empty without one. ``is_checked_out``: the
    checkout of the repository is on ``branch``.
    """

    integration: str
    branch: str
    commits: int
    own: int = 0
    request: str = ""
    is_checked_out: bool = True

    @property
    def next(self) -> str:
        """Command that lands them; without any, the commands that end or continue the crew."""
        branch = () if self.is_checked_out else (self.branch,)
        sync = f"{shlex.join(['liza', 'sync', *branch])} && " if self.own else ""
        if self.commits:
            return sync + shlex.join(["liza", "land", "--pr" if self.request else "--merge", *branch])
        return f"liza down --purge, or go on: {sync}liza task add"

    @property
    def summary(self) -> str:
        if not self.commits:
            return f"{self.branch} has all of {self.integration}"
        request = f" (pull request {self.request})" if self.request else ""
        return f"{self.integration} is {count_noun(self.commits, 'commit')} ahead of {self.branch}{request}"
