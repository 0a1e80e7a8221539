"""What one run has written on the board."""

from __future__ import annotations

from liza.rules.history_events import CLOSING_EVENTS
from liza.rules.model import State, Task


class RunEvents:
    """The events of one run. Of a later board only the tasks that changed are searched: there may be thousands."""

    def __init__(self) -> None:
        self._run = ""
        self._tasks: tuple[Task, ...] = ()
        self._found: dict[int, list[str]] = {}
        """The run's events in each task that has some, by the index of the task."""

    def count(self, state: State, run: str) -> int:
        """Return the number of the run's events in the histories of tasks."""
        self._search(state.tasks, run)
        return sum(map(len, self._found.values()))

    def has_closing_event(self, state: State, run: str) -> bool:
        """Whether the board has a closing event of the run. The board has it before the run's exit code file has."""
        if any(note.event == run for note in state.goal.alignment_history):
            return True
        self._search(state.tasks, run)
        return any(event in CLOSING_EVENTS for events in self._found.values() for event in events)

    def _search(self, tasks: tuple[Task, ...], run: str) -> None:
        if run != self._run or len(tasks) != len(self._tasks):
            self._run, self._tasks, self._found = run, (), {}
        if tasks is self._tasks:
            return
        previous = self._tasks or (None,) * len(tasks)
        changed = [index for index, (was, now) in enumerate(zip(previous, tasks, strict=True)) if was is not now]
        for index in changed:
            self._found.pop(index, None)
            events = [event.event for event in tasks[index].history if event.run == run]
            if events:
                self._found[index] = events
        self._tasks = tasks
