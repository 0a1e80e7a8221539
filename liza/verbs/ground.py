"""What a crew stands on beside its board: its directories, the texts that agents read, the filter that hides briefs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress

from liza.board import document
from liza.programs import processes
from liza.repo import brief_filter, exclude, history
from liza.repo.pins import Pins
from liza.rules import intrusions, settings
from liza.rules.errors import BoardInconsistent, Refused
from liza.rules.model import Config, Identity
from liza.verbs import confirmed, texts
from liza.verbs.crew import Crew

GOAL = ".liza/specs/goal.md"
GRACE = 3.0  # seconds between SIGTERM and SIGKILL


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


def confirm_again(crew: Crew) -> tuple[str, ...]:
    """Let the settings count that a person had confirmed before the pins were lost, and say by name which these are,
    and which of the board's do not count. Raises GitFailed, OSError, BoardInconsistent."""
    written = crew.board.as_written()
    kept, first = history.settings(crew.git), history.first(crew.git)
    if kept is not None or first is not None:
        begun = Config()
        with suppress(BoardInconsistent):
            begun = document.load(first or "").config
        confirmed.confirm_kept(crew.paths, kept, begun)
    odd = intrusions.of_settings(confirmed.unconfirmed(crew.paths, written))
    counting = settings.counting(confirmed.trusted(crew.paths, written).config)
    return counting, *(f"{one.message}: {one.next}" for one in odd)


def lay_goal(crew: Crew, goal: str) -> bool:
    """The page of the goal, where there is none: as the history has it, or a new one; whether it was the history's."""
    page = crew.paths.root / GOAL
    if page.exists():
        return False
    kept = history.goal(crew.git)
    page.write_bytes(goal_page(goal).encode() if kept is None else kept)
    return kept is not None


def survivors(crew: Crew) -> dict[int, str]:
    """The processes that hold a lock of a .liza that was deleted or moved away, each with the name of that lock:
    ``locks/supervisor-coder-1.lock``, or ``coder-1.1/session.lock``. No lock of the crew tells of them any more."""
    own = re.escape(f"{crew.paths.root}/.liza")
    held = r"(locks/supervisor-[^/]+\.lock|run/[^/]+/[^/]+/session\.lock)"
    found = processes.having_open(rf"{own}(/{held} \(deleted\)|[^/]+/{held}( \(deleted\))?)")
    return {pid: "/".join(path.removesuffix(" (deleted)").split("/")[-2:]) for pid, path in found.items()}


def refuse_survivors(crew: Crew, step: str | None = None) -> None:
    """A supervisor or a session of a .liza that was deleted or moved away goes on by itself.

    ``step``: the command that ends them. Raises Refused where one lives, as far as the system shows what its processes
    have open.
    """
    found = survivors(crew)
    if found:
        told, pids = ", ".join(sorted(set(found.values()))), " ".join(map(str, sorted(found)))
        raise Refused(f"processes of the crew whose .liza is gone still work here: {told}", step or f"kill {pids}")


def end_survivors(crew: Crew) -> tuple[str, ...]:
    """End them: supervisors first, for they would start sessions again; their agents and runs.

    Raises Refused for one that cannot be ended.
    """
    ended = []
    for pid, name in sorted(survivors(crew).items(), key=lambda one: "session.lock" in one[1]):
        holder = processes.identity_of(pid)
        if holder is None:
            continue
        directory, _, lock = name.partition("/")
        is_session = lock == "session.lock"
        _end(crew, holder, directory if is_session else None)
        ended.append(directory if is_session else lock.removeprefix("supervisor-").removesuffix(".lock"))
    refuse_survivors(crew)
    return tuple(ended)


def _end(crew: Crew, holder: Identity, run: str | None) -> None:
    """SIGTERM, and SIGKILL for what is still there: a supervisor, or what a session started and then its shim."""

    def there() -> Iterator[int]:
        yield from processes.below(holder)
        if run is not None:
            yield from processes.each_of_run(run, crew.paths.root)

    asked = (holder.pid,) if run is None else tuple(there())
    for pid in asked:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    handle = processes.handle_on(holder)
    if handle is not None:
        try:
            processes.readable(handle, GRACE)
        finally:
            os.close(handle)
    processes.kill_all(there if run is not None else lambda: ())
    processes.kill_all(lambda: (holder.pid,) if processes.proved_dead(holder) is False else ())
