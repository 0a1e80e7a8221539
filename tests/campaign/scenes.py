"""What a claim can find: crews in which one is about to happen, made once and copied back for each kill."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from liza.crew.crew import Crew as Verbs
from liza.crew.crew import open_crew
from liza.merging.merge_recovery import recover_if_dead
from liza.model.model import State
from liza.system.clock import SystemClock
from liza.tasks import claim, task
from liza.tasks.claim import claim_review
from liza.tasks.rules.backlog import TaskFields
from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import Crew

TASK = "one"
DIRTY = "what nobody committed\n"


class Later(SystemClock):
    """The machine's clock, so many seconds ahead: leases have lapsed by then."""

    def __init__(self, seconds: float) -> None:
        self._ahead = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self._ahead


def fresh(root: Path, ahead: float = 0) -> Verbs:
    """A crew as a new process opens it."""
    return open_crew(root, Later(ahead))


def add(root: Path, *ids: str) -> None:
    task.add(fresh(root), [TaskFields(one, f"Write {one}", "it is there", f"{one}.txt", "README.md") for one in ids])


@dataclass
class Scene:
    """A crew on the point of ``act``; ``again`` takes the task afterwards, as somebody else. To be found again are the
    ``commits`` that agents made and the ``uncommitted`` files (name to text), in the worktree those ``laid_back``."""

    root: Path
    act: Callable[[Path], object]
    again: Callable[[Path], object]
    commits: list[str] = field(default_factory=list)
    uncommitted: dict[str, str] = field(default_factory=dict)
    laid_back: tuple[str, ...] = ()

    def keep(self) -> None:
        """From here on ``restore`` leads back to now."""
        shutil.copytree(self.root, self._kept, symlinks=True)

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._kept, self.root, symlinks=True)

    @property
    def _kept(self) -> Path:
        return self.root.with_name("kept")

    def state(self) -> State:
        return fresh(self.root).board.read()


def _take(agent: str, ahead: float = 0) -> Callable[[Path], object]:
    return lambda root: claim.claim_task(fresh(root, ahead), agent, TASK)


def _work(root: Path, task_id: str, agent: str) -> str:
    """A commit in the worktree of a fresh claim."""
    claim.claim_task(fresh(root), agent, task_id)
    place = worktree_of(root, task_id)
    return commit_all(place, "work", {f"{task_id}.txt": f"{task_id}\n"})


def new_slot(crew: Crew) -> Scene:
    """The first claim of all."""
    add(crew.root, TASK)
    return Scene(crew.root, _take("coder-1"), _take("coder-3", 4000))


def used_slot(crew: Crew) -> Scene:
    """The slot still bears a task that was dropped, with a commit and a file of it."""
    add(crew.root, "old", TASK)
    made = _work(crew.root, "old", "coder-2")
    (worktree_of(crew.root, "old") / "left.txt").write_text(DIRTY)
    task.drop(fresh(crew.root), "old", "not wanted", None, recover_if_dead)
    return Scene(crew.root, _take("coder-1"), _take("coder-3", 4000), [made], {"left.txt": DIRTY})


def lapsed(crew: Crew) -> Scene:
    """The owner is gone, its lease has lapsed, and in the slot are a commit and unfinished files."""
    add(crew.root, TASK)
    made = _work(crew.root, TASK, "coder-2")
    place = worktree_of(crew.root, TASK)
    (place / "new.txt").write_text(DIRTY)
    (place / "README.md").write_text(f"# Changed\n{DIRTY}")
    files = {"new.txt": DIRTY, "README.md": f"# Changed\n{DIRTY}"}
    return Scene(crew.root, _take("coder-1", 4000), _take("coder-3", 9000), [made], files, tuple(files))


def rejected(crew: Crew) -> Scene:
    """The author is offline: another coder mends what was rejected."""
    add(crew.root, TASK)
    made = _submitted(crew)
    crew.liza("verdict", "reject", "1. x:1 not like this", "--task", TASK)
    return Scene(crew.root, _take("coder-1"), _take("coder-3", 4000), [made])


def review(crew: Crew) -> Scene:
    """A commit waits for a reviewer, whose slot holds what an earlier review left."""
    add(crew.root, TASK)
    made = _submitted(crew)
    first = claim_review(fresh(crew.root), "code-reviewer-1", TASK)
    (crew.paths.slot("code-reviewer-1") / "found.txt").write_text(DIRTY)
    task.release(fresh(crew.root), TASK)
    assert first.status == "READY_FOR_REVIEW"

    def take(agent: str, ahead: float) -> Callable[[Path], object]:
        return lambda root: claim_review(fresh(root, ahead), agent, TASK)

    return Scene(crew.root, take("code-reviewer-1", 0), take("code-reviewer-2", 4000), [made], {"found.txt": DIRTY})


def _submitted(crew: Crew) -> str:
    made = _work(crew.root, TASK, "coder-2")
    crew.liza("submit", cwd=worktree_of(crew.root, TASK))
    return made


SCENES: dict[str, Callable[[Crew], Scene]] = {
    "new slot": new_slot,
    "used slot": used_slot,
    "lapsed claim": lapsed,
    "rejected": rejected,
    "review": review,
}
