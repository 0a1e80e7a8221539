"""A crew with approved tasks and a person's checkout, again and again in one place; what holds of it after a merge."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liza.crew.crew import find_crew
from liza.git import git_refs
from liza.landing.sync import sync
from liza.merging.merge import merge
from liza.model.errors import Refused
from liza.model.model import Status
from liza.recovery.recover import recover_crew
from liza.system.locks import Lock
from liza.tasks.claim import claim
from liza.tasks.submit import submit
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.campaign.consistency import problems
from tests.conftest import commit_all, git
from tests.journeys.crews import started

CHECK = """\
#!/bin/sh
# The tests of the project: which commit they ran on, and what they said of it.
here=$(git rev-parse HEAD)
if [ -n "$(git status --porcelain)" ] || grep -qs BAD *.txt; then said=red; else said=green; fi
echo "$here $said" >> "NOTES/tested"
for mover in NOTES/mover-*; do
    if [ $said = green ] && mv "$mover" "NOTES/moving" 2> /dev/null; then sh "NOTES/moving"; fi
    break
done
if [ -f "NOTES/hostile" ]; then . "NOTES/hostile"; fi
[ $said = green ]
"""
MOVES = """\
git -C "ROOT" update-ref refs/heads/integration \\
    "$(git -C "ROOT" commit-tree -m mine -p integration 'integration^{tree}')" "$(git -C "ROOT" rev-parse integration)"
"""
COMMITS = 'git -C "ROOT" commit -q --allow-empty -m mine\n'
PUTS = "git update-ref refs/heads/integration HEAD\n"
KILLS = f'[ $said = green ] || {{ {PUTS.strip()}; kill -9 $(cut -d" " -f1 "$LIZA_ROOT/.liza/merge.lock"); }}\n'
GREEN, RED = ("task-1", "task-3"), "task-2"
UNRELATED, GONE = "a-unrelated", "b-gone"


@dataclass(frozen=True)
class Setting:
    """How a person left their checkout. ``blocks``: what they changed is in the way of a merge until it is put back.

    ``meanwhile`` happens during the first ``times`` green test runs, ``hostile`` at the end of each run.
    ``unmergeable``: among the good tasks there are some that can never be merged.
    """

    checkout: str = "main"
    edits: tuple[tuple[str, str], ...] = ()
    staged: tuple[str, ...] = ()
    status: str = ""
    blocks: bool = False
    meanwhile: str = ""
    times: int = 1
    hostile: str = ""
    unmergeable: tuple[str, ...] = ()


MINE = "my own words\n"
SETTINGS = {
    "away": Setting(),
    "clean": Setting("integration"),
    "in the way": Setting("integration", (("README.md", MINE),), status=" M README.md", blocks=True),
    "elsewhere": Setting(
        "integration",
        (("other.txt", MINE), ("staged.txt", MINE), ("folder/new.txt", MINE)),
        ("staged.txt",),
        " M other.txt\nM  staged.txt\n?? folder/",
    ),
    "moved meanwhile": Setting(meanwhile=MOVES),
    "committed meanwhile": Setting("integration", meanwhile=COMMITS),
    "unmergeable": Setting(unmergeable=(UNRELATED, GONE)),
    "keeps moving": Setting(meanwhile=MOVES, times=4, unmergeable=(UNRELATED,)),
    "tests move refs": Setting(hostile=PUTS, unmergeable=(GONE,)),
    "tests move refs of a checkout": Setting("integration", hostile=PUTS),
    "tests kill the merger": Setting(hostile=KILLS, unmergeable=(UNRELATED, GONE)),
}


class World:
    """A crew with two good tasks and a bad one, approved, that can be had again and again in one place."""

    def __init__(self, at: Path, setting: Setting) -> None:
        self.root, self.notes, self.template = at / "project", at / "notes", at / "template"
        self.setting = setting
        with started(at, inside=True, integration_command=f"sh {at}/notes/check") as crew:
            (self.notes / "check").write_text(CHECK.replace("NOTES", str(self.notes)))
            for name in ("other.txt", "staged.txt"):
                (self.root / name).write_text("first\n")
            commit_all(crew.root, "second")
            crew.git("branch", "-f", "integration", "main")
            crew.add(*setting.unmergeable, "task-1", RED, "task-3")
            for task in setting.unmergeable:
                self._approve(task, f"{task}.txt", "good\n")
            self._approve("task-1", "README.md", "changed by task-1\n" * 50)
            self._approve(RED, "task-2.txt", "BAD\n")
            self._approve("task-3", "deep/task-3.txt", "good\n")
        self.base = git(self.root, "rev-parse", "integration")
        git(self.root, "switch", "-q", setting.checkout) if setting.checkout != "main" else None
        for name, text in setting.edits:
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)
        for name in setting.staged:
            git(self.root, "add", name)
        self.root.rename(self.template)

    def _approve(self, task: str, name: str, text: str) -> None:
        def work() -> None:
            crew = find_crew(self.root)
            claim(crew, "coder-1", task)
            there = crew.paths.task_link(task).resolve()
            (there / name).parent.mkdir(exist_ok=True)
            (there / name).write_text(text)
            git(there, "add", "-A")
            if task == UNRELATED:
                # As on a board that was written before submit looked for a merge base.
                git_refs.find_merge_base = lambda *words: ""
                git(there, "update-ref", "-d", "HEAD")
            git(there, "commit", "-q", "-m", "work")
            os.chdir(there)
            submit(find_crew(self.root))
            os.chdir(self.root)
            verdict(find_crew(self.root), "approve", "fine", task_id=task)
            if task == GONE:
                git(there, "commit", "-q", "--amend", "-m", "something else")
                git(self.root, "update-ref", "-d", git_refs.review_ref(task))
                git(self.root, "reflog", "expire", "--expire=now", "--all")
                git(self.root, "gc", "-q", "--prune=now")

        assert forks.run(work) == 0

    def renew(self) -> None:
        """The crew as it was before anything was merged."""
        for left in (self.root, self.notes / "tested", *self.notes.glob("mover-*")):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        shutil.copytree(self.template, self.root, symlinks=True)
        for number in range(self.setting.times if self.setting.meanwhile else 0):
            (self.notes / f"mover-{number}").write_text(self.setting.meanwhile.replace("ROOT", str(self.root)))
        if self.setting.hostile:
            (self.notes / "hostile").write_text(self.setting.hostile)

    def merge_all(self) -> None:
        """What a person does who says ``liza merge`` until nothing is left, also of what was set aside."""
        crew = find_crew(self.root)
        named: str | None = None
        while True:
            try:
                merge(crew, named)
                named = None
            except Refused as refused:
                if "while the tests of" in refused.message:
                    continue
                if "no approved task" not in refused.message:
                    raise
                _, _, aside = refused.message.partition("set aside: ")
                if not aside:
                    return
                named = aside.split(", ")[0]

    def merge_in_turn(self) -> None:
        """``merge_all`` of one among several: who finds another at it says it again when that one is done."""
        while True:
            try:
                return self.merge_all()
            except Refused as refused:
                if "another merge is under way" not in refused.message:
                    raise
            with Lock(find_crew(self.root).paths.merge_lock).acquire(timeout=60):
                pass

    def go_on_with_main(self) -> None:
        """Another commit on main, which integration does not have, whatever is checked out."""
        clone = self.notes / "clone"
        git(self.notes, "clone", "-q", "-b", "main", str(self.template), str(clone))
        commit_all(clone, "on main", {"from-main.txt": "good\n", "README.md": "changed on main\n"})
        commit = git(clone, "rev-parse", "main")
        git(self.template, "fetch", "-q", str(clone), "main")
        git(self.template, "update-ref", "refs/heads/main", commit)
        if self.setting.checkout == "main":
            git(self.template, "reset", "-q", "--hard")
        shutil.rmtree(clone)

    def recover(self) -> None:
        recover_crew(find_crew(self.root), "doctor")

    def quiet(self) -> Path:
        return self.notes / "said"

    def sync_main(self) -> None:
        sync(find_crew(self.root), "main")

    def settle(self, deed: Callable[[], None]) -> None:
        """Say it again after a kill; a git that outlived its merger is waited for."""
        for work in (self.recover, deed, self.recover):
            with Lock(find_crew(self.root).paths.merge_lock):
                pass
            self.to_its_end(work)

    def to_its_end(self, work: Callable[[], None], trace: Path | None = None) -> None:
        """Until it comes to its end by itself: tests may kill it."""
        for _ in range(8 if "kill" in self.setting.hostile else 1):
            code = forks.run(work, trace=trace, quiet=self.quiet())
            if code != -signal.SIGKILL:
                break
            with Lock(find_crew(self.root).paths.merge_lock).acquire(timeout=60):
                pass
        assert code == 0, self.quiet().read_text()[-3000:]

    def put_back(self) -> None:
        """The person puts away what was in the way."""
        for name, text in self.setting.edits:
            assert (self.root / name).read_text() == text
        git(self.root, "checkout", "-q", "--", *(name for name, _ in self.setting.edits))

    def wrong(self) -> list[str]:
        """What does not hold once everything is merged and settled."""
        moved = self._commits_of_person()
        more = {"mine": moved} if moved else {}
        found = [*problems(self.root), *self._in_git({**{f"Merge {task}": 1 for task in GREEN}, **more})]
        found += [*self._on_the_board(), *self._in_the_checkout(), *self._left_over()]
        return [*found, *self._not_reported()]

    def _commits_of_person(self) -> int:
        """How many commits of the person integration ever pointed at. A kill can take the test command along that makes
        one, so it is not always ``times``."""
        rows = git(self.root, "log", "--walk-reflogs", "--format=%H %s", "integration").splitlines()
        return len({row for row in rows if row.endswith(" mine")})

    def _not_reported(self) -> list[str]:
        """What went wrong and a person would not hear of."""
        tasks = {task.id: task for task in find_crew(self.root).board.read().tasks}
        wanted = {UNRELATED: "no commit in common", GONE: "is not in the repository any more"}
        wanted = {task: words for task, words in wanted.items() if task in self.setting.unmergeable}
        wanted[RED] = "its merger died before the tests" if "kill" in self.setting.hostile else "exit 1 on the merge"
        found = []
        for task, words in wanted.items():
            told = [event.detail or "" for event in tasks[task].history if event.event == "merge failed"]
            if not any(words in one for one in told):
                found.append(f"{task} went back with {told}, and not with {words!r}")
        place = self.root / ".liza" / "alerts.log"
        alerts = place.read_text() if place.exists() else ""
        kinds = {PUTS: "tests_moved_refs", KILLS: "untested_integration"}
        kind = kinds.get(self.setting.hostile)
        return found + ([f"alerts.log has no {kind}"] if kind and kind not in alerts else [])

    def wrong_after_sync(self) -> list[str]:
        """What does not hold once main is in integration."""
        found = [*problems(self.root), *self._in_git({"Merge main into integration": 1})]
        return [*found, *self._in_the_checkout(), *self._left_over(freed=())]

    def _tested(self) -> dict[str, str]:
        lines = (self.notes / "tested").read_text().splitlines()
        return {commit: said for commit, _, said in (line.partition(" ") for line in lines)}

    def _in_git(self, wanted: dict[str, int]) -> list[str]:
        rows = git(self.root, "log", "--first-parent", "--format=%H %s", f"{self.base}..integration").splitlines()
        made = [row.partition(" ")[::2] for row in rows]
        green = {commit for commit, said in self._tested().items() if said == "green"}
        moves = git(self.root, "log", "--walk-reflogs", "--format=%H %s", "integration").splitlines()
        found = [
            f"integration was at {subject}, which was never green"
            for commit, _, subject in (row.partition(" ") for row in moves)
            if subject.startswith("Merge") and commit not in green and not self.setting.hostile
        ]
        # The members of a batch are published with its tip, which was tested.
        published = next((number for number, (commit, _) in enumerate(made) if commit in green), len(made))
        found += [f"{subject} is the tip, and was never green" for _, subject in made[:published] if subject != "mine"]
        counted = Counter(subject.split(":")[0] for _, subject in made)
        return found + ([] if counted == wanted else [f"on integration: {dict(counted)}"])

    def _on_the_board(self) -> list[str]:
        found = []
        line = git(self.root, "rev-list", "--first-parent", "integration").split()
        for task in find_crew(self.root).board.read().tasks:
            bad = task.id in (RED, *self.setting.unmergeable)
            wanted = Status.INTEGRATION_FAILED if bad else Status.MERGED
            if task.status is not wanted:
                found.append(f"{task.id} is {task.status}")
            if task.set_aside is not None:
                found.append(f"{task.id} is set aside: {task.set_aside}")
            if task.merging is not None:
                found.append(f"{task.id} is merging: {task.merging}")
            if task.status is Status.MERGED and task.merge_commit not in line:
                found.append(f"{task.id} was merged as {task.merge_commit}, which is not on integration")
            told = [event.event for event in task.history if event.event in ("merge", "merge failed")]
            if len(told) != 1:
                found.append(f"{task.id} has heard {told}")
        return found

    def _in_the_checkout(self) -> list[str]:
        setting = self.setting
        status = git(self.root, "status", "--porcelain")
        found = [] if status == ("" if setting.blocks else setting.status) else [f"git status says {status!r}"]
        if not setting.blocks:
            found += [f"{name} changed" for name, text in setting.edits if (self.root / name).read_text() != text]
        if git(self.root, "symbolic-ref", "--short", "HEAD") != setting.checkout:
            found.append("another branch is checked out")
        return found

    def _left_over(self, freed: tuple[str, ...] = GREEN) -> list[str]:
        place = self.root / ".git"
        found = [str(path.relative_to(place)) for path in place.rglob("*.lock") if path.name != "liza.lock"]
        found += [str(path.relative_to(place)) for path in place.rglob("liza-move*")]
        places = ("refs/liza/candidates", "refs/liza/tested", *(f"refs/liza/review/{task}" for task in freed))
        refs = git(self.root, "for-each-ref", "--format=%(refname)", *places).split()
        crew = find_crew(self.root)
        for slot in crew.worktrees.slot_names():
            owner = crew.worktrees.owner(slot)
            if owner and owner[0] in freed:
                found.append(f"{slot} still belongs to {owner[0]}")
        links = [task for task in freed if crew.paths.task_link(task).is_symlink()]
        return [f"left over: {one}" for one in (*found, *refs, *links)]
