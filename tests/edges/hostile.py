"""A repository in which a crew has work under way, what supervisors do in it, and what may not happen meanwhile."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

from liza.crew.crew import Crew, find_crew
from liza.crew.recorder import record_history
from liza.git import hiding
from liza.landing.sync import sync
from liza.merging.merge import merge
from liza.model.errors import LizaError
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery.doctor import doctor
from liza.supervisor.down import purge
from liza.tasks.claim import claim
from liza.tasks.diff import diff
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add, release
from liza.tasks.verdict import verdict
from liza.view.history import history
from tests.conftest import KEY, commit_all, git, make_repository

TEXT = "".join(f"{number}\n" for number in range(20))
"""What a.txt holds; each side of a merge changes another line of it."""


class Place:
    """One hostile repository: ``root`` with its crew, ``slot`` of the agent, ``elsewhere`` that nobody may touch."""

    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "project"
        self.slot = top / "project.worktrees" / "s1"
        self.elsewhere = top / "elsewhere"
        self.witnesses = top / "witnesses"
        self.spell = top / "spell"

    @property
    def crew(self) -> Crew:
        return find_crew(self.root)

    @property
    def admin(self) -> Path:
        return self.root / ".git" / "worktrees" / "s1"

    def ran(self) -> list[str]:
        """What planted programs left; it is forgotten then."""
        found = sorted(path.name for path in self.witnesses.iterdir())
        for name in found:
            (self.witnesses / name).unlink()
        return found

    def config(self, key: str, value: str) -> None:
        git(self.root, "config", key, value)


def prepared(top: Path) -> Place:
    """task-1 is being worked on, with a changed and a new file; task-2 is approved and merges with another change."""
    place = Place(top)
    place.witnesses.mkdir(parents=True)
    project(place.root)
    place.spell.write_text(f'#!/bin/sh\n: > "{place.witnesses}/ran"\n[ -p /dev/stdin ] && cat\nexit 0\n')
    place.spell.chmod(0o755)
    outside(place.elsewhere)
    init(place.root, InitOptions(goal="Everything is there", test="true"))
    crew = place.crew
    add(crew, [TaskFields(f"task-{n}", "Write", "it is there", "a.txt", "README.md") for n in (1, 2)])
    claim(crew, "coder-1", "task-1")
    claim(crew, "coder-2", "task-2")
    (place.slot / "a.txt").write_text(TEXT.replace("5\n", "x\n", 1))
    (place.slot / "new.txt").write_text("new\n")
    second = place.slot.parent / "s2"
    commit(second, "a.txt", TEXT.replace("18\n", "eighteen\n"))
    with chdir(second):
        submit(place.crew)
    verdict(place.crew, "approve", "seen", task_id="task-2")
    commit(place.root, "a.txt", TEXT.replace("1\n", "one\n", 1))
    sync(place.crew)
    (place.root / "a.txt").write_text("the person's own change\n")
    return place


def project(root: Path) -> None:
    """A project whose every text file goes through drivers that nobody has defined."""
    make_repository(
        root, {"README.md": "# A project\n", "a.txt": TEXT, ".gitattributes": "*.txt filter=x diff=x merge=x\n"}
    )


def outside(place: Path) -> None:
    """A repository, and a file, that have nothing to do with the project."""
    make_repository(place, {"canary": "sings\n"})


def commit(there: Path, name: str, text: str) -> None:
    commit_all(there, name, {name: text})


def copied(made: Place, top: Path) -> Place:
    """A copy of the repository and its worktrees; opening its crew has them know their new places."""
    shutil.copytree(made.top, top, symlinks=True, dirs_exist_ok=True)
    place = Place(top)
    place.spell.write_text(place.spell.read_text().replace(str(made.top), str(top)))
    assert place.crew.paths.slots == place.slot.parent
    return place


def fingerprint(top: Path) -> str:
    """Every name, kind, mode and byte below ``top``."""
    whole = hashlib.sha256()
    for path in sorted(top.rglob("*")):
        what = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        whole.update(f"{path.relative_to(top)}\0{path.lstat().st_mode}\0{len(what)}\0".encode() + what)
    return whole.hexdigest()


def sweep(place: Place) -> dict[str, str]:
    """Everything that supervisors and people have Liza do with git; what was refused, and why."""
    refused: dict[str, str] = {}
    for step in _STEPS:
        try:
            step(place)
        except LizaError as error:
            refused[step.__name__] = error.message
    return refused


def _doctor(place: Place) -> None:
    doctor(place.root, fix=True)


def _diff(place: Place) -> None:
    diff(place.crew, "task-1")
    diff(place.crew, "task-2")


def _dirty(place: Place) -> None:
    place.crew.worktrees.list_changes("s1")


def _brief(place: Place) -> None:
    crew = place.crew
    there = crew.worktrees.slot_git("s1")
    hiding.bind_filter(crew.git, hiding.find_bindable(there, ("README.md",)), "coder-1.1", KEY)
    hiding.refresh_index_entry(there, "README.md")
    hiding.unbind_filter(crew.git, "coder-1.1")


def _merge(place: Place) -> None:
    merge(place.crew, "task-2")


def _release(place: Place) -> None:
    release(place.crew, "task-1")


def _claim_again(place: Place) -> None:
    claim(place.crew, "coder-3", "task-1")


def _review(place: Place) -> None:
    crew = place.crew
    crew.worktrees.detach("code-reviewer-1", crew.git.out("rev-parse", "refs/heads/integration"), "code-reviewer-1.1")


def _history(place: Place) -> None:
    record_history(place.crew)
    history(place.crew, None, 3, patch=True)


def _purge(place: Place) -> None:
    purge(place.crew)


_STEPS: tuple[Callable[[Place], None], ...] = (
    _doctor, _diff, _dirty, _brief, _merge, _release, _claim_again, _review, _history, _purge,
)  # fmt: skip


def sizes(top: Path) -> Iterator[int]:
    """The sizes of all files below ``top``."""
    for folder, _, files in os.walk(top):
        for name in files:
            yield (Path(folder) / name).lstat().st_size
