"""A crew with an epic that is ready to land and one that needs an update, again and again in one place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from liza.crew.crew import find_crew
from liza.merging.merge import merge
from liza.model.errors import Refused
from liza.model.model import Epic, Status
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from tests.campaign.consistency import problems
from tests.campaign.merge_world import CHECK, Setting, World
from tests.conftest import git
from tests.journeys.crews import started

EPIC_TASKS = ("shop-1", "shop-2")


class EpicWorld(World):
    """Two approved tasks of the epic shop, one outside, and an open task of the epic tools that depends on it."""

    def __init__(self, at: Path, setting: Setting) -> None:
        self.root, self.notes, self.template = at / "project", at / "notes", at / "template"
        self.setting = setting
        with started(at, inside=True, integration_command=f"sh {at}/notes/check"):
            (self.notes / "check").write_text(CHECK.replace("NOTES", str(self.notes)))
            for task, epic, needs in (
                *((task, "shop", ()) for task in EPIC_TASKS),
                ("outside", None, ()),
                ("later", "tools", ("outside",)),
            ):
                fields = TaskFields(task, "Write", "done", f"{task}.txt", "README.md", depends_on=needs, epic=epic)
                add(find_crew(self.root), [fields])
            for task in (*EPIC_TASKS, "outside"):
                self._approve(task, f"{task}.txt", "good\n")
        self.base = git(self.root, "rev-parse", "integration")
        git(self.root, "switch", "-q", setting.checkout) if setting.checkout != "main" else None
        self.root.rename(self.template)

    def merge_all(self) -> None:
        """``liza merge`` until nothing is left, and the epics that were set aside by name."""
        crew = find_crew(self.root)
        while True:
            try:
                merge(crew)
            except Refused as refused:
                if "no approved task" not in refused.message:
                    raise
                waiting = [name for name, epic in crew.board.read().epics.items() if epic.set_aside is not None]
                if not waiting:
                    return
                merge(crew, f"epic/{waiting[0]}")

    def wrong(self) -> list[str]:
        """What does not hold once everything is merged, landed and settled."""
        state = find_crew(self.root).board.read()
        tasks = {task.id: task for task in state.tasks}
        found = [*problems(self.root), *self._positions(), *self._left_over((*EPIC_TASKS, "outside"))]
        subjects = git(self.root, "log", "--first-parent", "--format=%s", f"{self.base}..integration").splitlines()
        counted = Counter(subject.split(":")[0] for subject in subjects)
        if counted != {"Land the epic shop": 1, "Merge outside": 1}:
            found.append(f"on integration: {dict(counted)}")
        for name in (*EPIC_TASKS, "outside"):
            events = [event.event for event in tasks[name].history if event.event in ("merge", "land", "merge failed")]
            wanted = ["merge"] if name == "outside" else ["merge", "land"]
            if tasks[name].status is not Status.MERGED or events != wanted:
                found.append(f"{name} is {tasks[name].status} after {events}")
        for name in EPIC_TASKS:
            landed = tasks[name].landed
            if landed is None or landed not in git(self.root, "rev-list", "--first-parent", "integration").split():
                found.append(f"{name} landed as {landed}, which is not on integration")
        return [*found, *self._epics(state.epics)]

    def _epics(self, epics: dict[str, Epic]) -> list[str]:
        rows = {name: (epic.merging, epic.set_aside) for name, epic in epics.items()}
        found = [f"epic {name}: {row}" for name, row in rows.items() if row != (None, None)]
        places = ("refs/heads/epic/", "refs/liza/targets/")
        branches = git(self.root, "for-each-ref", "--format=%(refname)", *places).split()
        if branches != ["refs/heads/epic/tools", "refs/liza/targets/epic/tools"]:
            found.append(f"branches of epics: {branches}")
        elif "outside.txt" not in git(self.root, "ls-tree", "--name-only", "epic/tools"):
            found.append("epic/tools was not updated")
        return found

    def _positions(self) -> list[str]:
        """Commits that integration, or the branch of an epic that is left, pointed at without green tests."""
        green = {self.base, *(commit for commit, said in self._tested().items() if said == "green")}
        return [
            f"{branch} was at {commit}, which was never green"
            for branch in ("integration", "epic/tools")
            for commit in git(self.root, "log", "--walk-reflogs", "--format=%H", branch).split()
            if commit not in green and git(self.root, "rev-list", "--count", f"{self.base}..{commit}") != "0"
        ]
