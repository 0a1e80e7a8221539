"""The work records that routing compares: of the tasks on the board and of the newest ones in the archive.

They are read when a rule asks for the first one. A closed task never changes: a process reads each archived one once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from liza.crew.archive import archived_tasks
from liza.crew.crew import Crew
from liza.repo.merge import merge_refs
from liza.rules.errors import LizaError
from liza.rules.model import State, Task
from liza.rules.reports import work_record
from liza.rules.reports.work_record import TaskRecord
from liza.rules.value_classes import replace

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
            archived = _read_archived(self._crew)
        except LizaError:
            # `liza validate` names what is wrong with the archive. The records of the board still count.
            archived = ()
        return (*self._state.tasks, *(task for task in archived if self._state.task(task.id) is None))

    @cached_property
    def _paths(self) -> dict[str, tuple[str, ...]]:
        commits = [task.merge_commit for task in self._tasks if task.merge_commit is not None]
        try:
            return merge_refs.list_merged_paths(self._crew.git, commits)
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


_archived: dict[Path, dict[str, Task]] = {}
"""The newest tasks of each archive that this process has read, by id."""


def _read_archived(crew: Crew) -> tuple[Task, ...]:
    """Return the tasks that were archived last. Raises LizaError."""
    index = archived_tasks.open_index(crew)
    if index is None:
        return ()
    cached, newest = _archived.get(crew.paths.archive, {}), index.newest_ids(MAX_ARCHIVED)
    read = cached | index.read_tasks(name for name in newest if name not in cached)
    _archived[crew.paths.archive] = tasks = {name: read[name] for name in newest if name in read}
    return tuple(tasks.values())
