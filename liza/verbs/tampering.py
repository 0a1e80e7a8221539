"""What happened to the repository outside of Liza: configuration that came after init, commits on integration.

A look costs a few gits, so it is kept, with a stamp of the files that it came from, for every supervisor and for
``liza status``. Who can write ``.git`` can deceive it; what runs, and what is merged, does not hang on it.
"""

from __future__ import annotations

from pathlib import Path

from liza.repo import merges
from liza.repo.pins import Pins, config_files, git_dirs
from liza.rules.alarms import Repository
from liza.rules.model import State, Task
from liza.verbs import last_look
from liza.verbs.crew import Crew
from liza.verbs.last_look import LastLook, Stamp

LEFT = "refs/liza/integration"
"""Where Liza left integration the last time that it moved it."""


def look(crew: Crew, state: State) -> Repository:
    """What stands now. Raises LizaError, OSError."""
    now, last = stamp(crew, state), last_look.read(crew.paths)
    if last.stamp == now:
        return last.seen
    seen = Repository(planted=Pins.load(crew.paths.pins).planted(crew.git), moved=_moved(crew, state))
    last_look.write(crew.paths, LastLook(now, seen))
    return seen


def stamp(crew: Crew, state: State) -> Stamp:
    """It changes when there is something new to look at. Raises OSError."""
    common = git_dirs(crew.git)[1]
    branch = state.config.integration_branch
    names = (
        "hooks", "packed-refs", "refs/replace", f"refs/heads/{branch}", LEFT, "reftable/tables.list", "shallow",
        "info/grafts", "objects/info/alternates", "commondir",
    )  # fmt: skip
    return [_stat(path) for path in (*config_files(crew.git), *(common / name for name in names), crew.paths.pins)]


def note_left(crew: Crew, tip: str) -> None:
    """Liza, or a person by a word to Liza, has put integration at ``tip``. Raises GitFailed."""
    crew.git.out("update-ref", LEFT, tip)


def note_merged(crew: Crew, task: Task, expected: str, candidate: str) -> str | None:
    """Liza has moved integration from ``expected``; a line about what others had put there before. Raises GitFailed."""
    left = _left(crew)
    line = None
    if left is not None and left not in (expected, candidate):
        line = (
            f"integration_moved  {task.id} was merged onto commits that no verdict was about: "
            f"{_described(crew, left, expected)}. Next: git log {left[:12]}..{expected[:12]}"
        )
    note_left(crew, candidate)
    return line


def _moved(crew: Crew, state: State) -> str | None:
    branch = state.config.integration_branch
    left, tip = _left(crew), merges.tip(crew.git, branch)
    merged = {commit for task in state.tasks for commit in (task.merge_commit, task.merging and task.merging.candidate)}
    if tip is None:
        return f"the branch {branch} is gone"
    if left is None or tip == left or tip in merged:
        return None
    return f"{branch} was moved outside of liza: {_described(crew, left, tip)}; `liza sync` accepts it"


def _described(crew: Crew, old: str, new: str) -> str:
    """From where to where, and the newest of what came."""
    lost = not crew.git.ok("merge-base", "--is-ancestor", old, new)
    lines = crew.git.out("log", "--no-color", "--format=%h %an: %s", "-n4", new, f"^{old}").splitlines()
    named = "; ".join(line[:80] for line in lines[:3]) + (" and more" if len(lines) > 3 else "")
    gone = f", without commits of {old[:10]}" if lost else ""
    return f"from {old[:10]} to {new[:10]}{gone} ({named or 'nothing new'})"


def _left(crew: Crew) -> str | None:
    done = crew.git.run("rev-parse", "-q", "--verify", f"{LEFT}^{{commit}}", codes=(0, 1))
    return done.stdout.decode().strip() or None


def _stat(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]
