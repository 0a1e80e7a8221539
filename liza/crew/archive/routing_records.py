"""The work records that routing compares: of the tasks on the board only, read when a rule asks for the first one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from liza.crew.crew import Crew
from liza.repo.merge import merge_refs
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.reports import work_record
from liza.rules.reports.work_record import TaskRecord
from liza.rules.value_classes import replace


class LazyRecords(Mapping[str, tuple[TaskRecord, ...]]):
    """Records of the agents on the board, by agent. git is asked once, for the paths of all merges."""

    def __init__(self, crew: Crew, state: State) -> None:
        self._crew, self._state = crew, state
        self._records: dict[str, tuple[TaskRecord, ...]] = {}

    @cached_property
    def _paths(self) -> dict[str, tuple[str, ...]]:
        commits = [task.merge_commit for task in self._state.tasks if task.merge_commit is not None]
        try:
            return merge_refs.list_merged_paths(self._crew.git, commits)
        except LizaError:
            # Without paths no agent is preferred: a task goes to the first one, and `status` still works.
            return {}

    def __getitem__(self, agent: str) -> tuple[TaskRecord, ...]:
        if agent not in self._state.agents:
            raise KeyError(agent)
        if agent not in self._records:
            records = (work_record.task_record(task, agent, ()) for task in self._state.tasks)
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
