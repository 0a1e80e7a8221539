"""A crew that has merged two tasks, and one that a person undoes, again and again in one place."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from liza.crew.crew import find_crew
from liza.merging.undo import undo
from liza.model.model import Status
from tests.campaign import forks
from tests.campaign.consistency import problems
from tests.campaign.merge_world import GREEN, RED, Setting, World
from tests.conftest import git

UNDONE, KEPT = GREEN


class UndoWorld(World):
    """The world of a merge, with everything merged; what is done in it is an undo."""

    def __init__(self, at: Path, setting: Setting) -> None:
        super().__init__(at, setting)
        self.renew()
        assert forks.run(self.merge_all, quiet=self.quiet()) == 0, self.quiet().read_text()[-3000:]
        self.base = git(self.root, "rev-parse", "integration")
        shutil.rmtree(self.template)
        self.root.rename(self.template)

    def undo_merged(self) -> None:
        undo(find_crew(self.root), UNDONE, "not now")

    def wrong_after_undo(self) -> list[str]:
        """What does not hold once the task is undone."""
        found = [*problems(self.root), *self._in_the_checkout(), *self._left_over()]
        rows = git(self.root, "log", "--first-parent", "--format=%H %s", f"{self.base}..integration").splitlines()
        subjects = Counter(row.partition(" ")[2].split(":")[0] for row in rows)
        if subjects != {f"Undo {UNDONE}": 1}:
            found.append(f"on integration: {dict(subjects)}")
        green = {commit for commit, said in self._tested().items() if said == "green"}
        moves = git(self.root, "log", "--walk-reflogs", "--format=%H %s", "integration").splitlines()
        for commit, _, subject in (row.partition(" ") for row in moves):
            if subject.startswith("Undo") and commit not in green:
                found.append(f"integration was at {subject}, which was never green")
        state = find_crew(self.root).board.read()
        statuses = {task.id: task.status for task in state.tasks}
        if statuses != {UNDONE: Status.ABANDONED, KEPT: Status.MERGED, RED: Status.INTEGRATION_FAILED}:
            found.append(f"statuses: {statuses}")
        events = [event.event for task in state.tasks for event in task.history if event.event == "undo"]
        return found if events == ["undo"] else [*found, f"{UNDONE} was undone {len(events)} times"]
