"""Facts for the rules of claiming that are not on the board: offline agents, ended sessions, work records."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache, cached_property
from itertools import islice
from typing import Final

from liza.crew.crew import Crew
from liza.git import git_refs
from liza.model.derived import held_tasks, tasks_with
from liza.model.errors import LizaError
from liza.model.model import State, Status, Task
from liza.model.paths import agent_of
from liza.model.value_classes import replace
from liza.tasks.rules import work_record
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.work_record import TaskRecord

_OWNED_STATUSES = frozenset({Status.CLAIMED, Status.READY_FOR_REVIEW, Status.REJECTED, Status.INTEGRATION_FAILED})


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
    )


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
