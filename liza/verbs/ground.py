"""What a crew stands on beside its board: its directories, the texts that agents read, the filter that hides briefs."""

from __future__ import annotations

import re

from liza.programs import processes
from liza.repo import brief_filter, exclude
from liza.repo.pins import Pins
from liza.rules.errors import Refused
from liza.verbs import texts
from liza.verbs.crew import Crew

GOAL = ".liza/specs/goal.md"


def goal_page(goal: str) -> str:
    """What stands in .liza/specs/goal.md until a person says more."""
    return f"# {goal}\n\nSay here what must be true when this is done.\n"


def lay(crew: Crew) -> None:
    """Directories, texts, and what keeps them out of git's sight. Repeatable. Raises GitFailed, OSError."""
    for directory in (crew.paths.liza, crew.paths.locks, crew.paths.specs):
        directory.mkdir(mode=0o755, exist_ok=True)
    for directory in (crew.paths.logs, crew.paths.runs):
        directory.mkdir(mode=0o700, exist_ok=True)
    exclude.keep_out(crew.git)
    texts.lay(crew.paths)


def lay_again(crew: Crew) -> Crew:
    """The crew with new ground under it, where one has worked before. Repeatable. Raises GitFailed, OSError.

    Pins are not taken from the repository: by now anybody can have written there.
    """
    lay(crew)
    brief_filter.install(crew.git)
    Pins.of_person(crew.git).with_key(crew.git, brief_filter.KEY).save(crew.paths.pins)
    return Crew(crew.paths, crew.clock)


def lay_goal(crew: Crew, goal: str) -> None:
    """The page of the goal, where there is none."""
    page = crew.paths.root / GOAL
    if not page.exists():
        page.write_text(goal_page(goal))


def refuse_survivors(crew: Crew) -> None:
    """A supervisor or a session of a .liza that was deleted or moved away goes on by itself, and no lock tells of it.

    Raises Refused where one lives, as far as the system shows what its processes have open.
    """
    own = re.escape(f"{crew.paths.root}/.liza")
    held = r"(locks/supervisor-[^/]+\.lock|run/[^/]+/[^/]+/session\.lock)"
    found = processes.having_open(rf"{own}(/{held} \(deleted\)|[^/]+/{held}( \(deleted\))?)")
    if found:
        # What a pid holds: locks/supervisor-coder-1.lock, or the session.lock of a run.
        told = ", ".join(sorted({"/".join(path.removesuffix(" (deleted)").split("/")[-2:]) for path in found.values()}))
        pids = " ".join(map(str, sorted(found)))
        raise Refused(f"processes of the crew whose .liza is gone still work here: {told}", f"kill {pids}")
