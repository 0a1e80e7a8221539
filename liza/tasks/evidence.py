"""Facts for the rules of claiming that are not on the board: offline agents, ended sessions, work records."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache, cached_property
from itertools import islice
from typing import Final

from liza.crew.crew import Crew
from liza.git import git_refs
from liza.model import targets
from liza.model.derived import held_tasks, tasks_with
from liza.model.errors import LizaError
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import agent_of, branch_of
from liza.model.value_classes import replace
from liza.tasks.rules import overlap, work_record
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.work_record import TaskRecord

_OWNED_STATUSES = frozenset({Status.CLAIMED, Status.READY_FOR_REVIEW, Status.REJECTED, Status.INTEGRATION_FAILED})


MAX_SENTENCES: Final = 5


class LazySet(Container[str]):
    """The ``candidates`` for which ``is_member`` is true. It is called once for each, when membership is tested."""

    def __init__(self, candidates: Iterable[str | None], is_member: Callable[[str], bool]) -> None:
        self._candidates = frozenset(candidates)
        self._is_member = cache(is_member)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._candidates and self._is_member(name)


def gather_evidence(crew: Crew, state: State) -> Evidence:
    """Return the facts for `pick_task` that are not on the board: offline agents and ended sessions.

    A lock or a file is read when a rule asks for it, once for each agent and run. Most decisions need none, and to
    read all of them for each supervisor would grow with the square of the number of agents.
    """
    tasks = [task for status in _OWNED_STATUSES for task in tasks_with(state, status) if task.run]
    reviews = [(task.review_run, task.review_lease_expires) for task in held_tasks(state)]
    now, leases = crew.clock.now(), dict([*reviews, (state.planning.run, state.planning.lease_expires)])
    lapsed = {run for run, expires in leases.items() if run is not None and expires is not None and expires <= now}
    lost = LazySet({*(task.run for task in tasks), *leases}, lambda run: run in crew.board.lost_runs())
    return Evidence(
        offline=LazySet({task.assigned_to for task in tasks}, lambda agent: not crew.is_supervised(agent)),
        dead=LazySet({task.run for task in tasks}, crew.is_run_over),
        abandoned=LazySet(
            leases,
            lambda run: (
                (run in lapsed or run in lost) and not crew.is_supervised(agent_of(run)) and crew.is_run_over(run)
            ),
        ),
        lost=lost,
        online=LazySet(state.agents, crew.is_supervised),
        records=LazyRecords(crew, state) if state.config.routing == "record" else {},
        changed=LazyChanges(crew, state),
    )


class LazyChanges(Mapping[str, frozenset[str]]):
    """What the branches of tasks have changed, by task. git is asked once, when a rule looks at the first task.

    What a session has not committed is not known, nor what one in a box has committed since its last hand-off.
    """

    def __init__(self, crew: Crew, state: State) -> None:
        self._crew, self._state = crew, state
        self._tips = {task.id: tip for task in state.tasks if (tip := _find_tip(task)) is not None}

    @cached_property
    def _changes(self) -> dict[str, frozenset[str]]:
        branches = [f"refs/heads/{branch}" for branch in targets.target_branches(self._state)]
        below = {task.id: task.depends_on for task in self._state.tasks if task.id in self._tips}
        try:
            return git_refs.list_branch_changes(self._crew.git, self._tips, branches, below)
        except LizaError:
            # The scopes still tell which tasks have the same files; `liza doctor` says what is wrong with git.
            return {}

    def __getitem__(self, task: str) -> frozenset[str]:
        if task not in self._tips:
            raise KeyError(task)
        return self._changes[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)


def _find_tip(task: Task) -> str | None:
    """Return the branch, or the commit in review, of an open task that has one."""
    if task.status in FINAL_STATUSES or (task.base_commit is None and task.submission is None):
        return None
    is_submitted = task.status in (Status.READY_FOR_REVIEW, Status.APPROVED) or task.submission is not None
    return task.review_commit if is_submitted else f"refs/heads/{branch_of(task.id)}"


def describe_overlaps(crew: Crew, state: State, ids: Iterable[str], *, in_work: bool) -> tuple[str, ...]:
    """Return one sentence for each of these tasks that shares files with another open task, if no dependency orders
    them; at most MAX_SENTENCES, and how many more there are.

    ``in_work``: only tasks in work count. Otherwise each sentence has the command that makes the task wait.
    """
    tasks = [task for task in map(state.task, ids) if task is not None and task.status not in FINAL_STATUSES]
    is_other = overlap.is_in_work if in_work else lambda _: True
    overlaps = overlap.find_overlaps(state, tasks, LazyChanges(crew, state), is_other)
    texts = []
    for task in (task for task in tasks if task.id in overlaps):
        others = overlaps[task.id]
        wait = f": liza task edit {task.id} --depends {','.join((*task.depends_on, others[0].task))}"
        texts.append(f"{overlap.describe(task.id, others)}{'' if in_work else wait}")
    more = len(texts) - MAX_SENTENCES
    return (*texts[:MAX_SENTENCES], *([f"{more} more share files with others"] if more > 0 else []))


MAX_ARCHIVED: Final = 200
"""Number of archived tasks that count, the newest ones: as many as `config.archive_after` leaves on the board."""


class LazyRecords(Mapping[str, tuple[TaskRecord, ...]]):
    """Records of the agents on the board, by agent. git is asked once, for the paths of all merges."""

    def __init__(self, crew: Crew, state: State) -> None:
        self._crew, self._state = crew, state
        self._records: dict[str, tuple[TaskRecord, ...]] = {}

    @cached_property
    def _tasks(self) -> tuple[Task, ...]:
        """The tasks of the board, and archived ones that are not on it."""
        try:
            archived = tuple(islice(self._crew.board.archived_tasks(), MAX_ARCHIVED))
        except LizaError:
            # `liza validate` names what is wrong with the archive. The records of the board still count.
            archived = ()
        return (*self._state.tasks, *(task for task in archived if self._state.task(task.id) is None))

    @cached_property
    def _paths(self) -> dict[str, tuple[str, ...]]:
        commits = [task.merge_commit for task in self._tasks if task.merge_commit is not None]
        try:
            return git_refs.list_merged_paths(self._crew.git, commits)
        except LizaError:
            # Without paths no agent is preferred: a task goes to the first one, and `status` still works.
            return {}

    def __getitem__(self, agent: str) -> tuple[TaskRecord, ...]:
        if agent not in self._state.agents:
            raise KeyError(agent)
        if agent not in self._records:
            records = (work_record.task_record(task, agent, ()) for task in self._tasks)
            self._records[agent] = tuple(
                replace(record, paths=self._paths.get(record.merge_commit or "", ()))
                for record in records
                if record is not None
            )
        return self._records[agent]

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.agents)

    def __len__(self) -> int:
        return len(self._state.agents)
