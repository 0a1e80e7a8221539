"""What a crew stands on beside its board: its directories, the texts that agents read, the filter that hides briefs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress

from liza.board.text import document
from liza.crew import agent_texts
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings
from liza.repo import board_history
from liza.repo.config_pins import Pins
from liza.repo.hiding import brief_filter, exclude
from liza.repo.runner import Git
from liza.rules import settings
from liza.rules.errors import BoardInconsistent, LizaError, Missing, Refused
from liza.rules.model import Config, ProcessIdentity, State
from liza.rules.paths import HISTORY_REF
from liza.rules.reports import drift_alarms
from liza.system import processes

GOAL_FILE = ".liza/specs/goal.md"
AGAIN = "liza restore --last-good --stop"
FIX = "liza doctor --fix"
KILL_GRACE = 3.0  # seconds between SIGTERM and SIGKILL


def default_goal_text(goal: str) -> str:
    """What stands in .liza/specs/goal.md until a person says more."""
    return f"# {goal}\n\nSay here what must be true when this is done.\n"


def create_layout(crew: Crew) -> None:
    """Directories, texts, and what keeps them out of git's sight. Repeatable. Raises GitFailed, OSError."""
    for directory in (crew.paths.liza, crew.paths.locks, crew.paths.specs):
        directory.mkdir(mode=0o755, exist_ok=True)
    for directory in (crew.paths.logs, crew.paths.runs):
        directory.mkdir(mode=0o700, exist_ok=True)
    exclude.ignore_liza_dirs(crew.git)
    agent_texts.copy_texts(crew.paths)


def recreate_layout(crew: Crew) -> Crew:
    """The crew with new ground under it, where one has worked before. Repeatable. Raises GitFailed, OSError.

    Pins are not taken from the repository: by now anybody can have written there.
    """
    plain = Git(crew.paths.root)
    crew.paths.liza.mkdir(mode=0o755, exist_ok=True)
    # First of all: where a board is there, no git starts without them.
    Pins.from_user_config(plain).save(crew.paths.pins)
    crew = Crew(crew.paths, crew.clock)
    create_layout(crew)
    brief_filter.install_filter(crew.git)
    Pins.from_user_config(plain).with_key(plain, brief_filter.FILTER_KEY).save(crew.paths.pins)
    return Crew(crew.paths, crew.clock)


def restore_confirmed_settings(crew: Crew) -> tuple[str, ...]:
    """Let the settings count that a person had confirmed before the pins were lost, and say by name which these are,
    and which of the board's do not count. Raises GitFailed, OSError, BoardInconsistent."""
    written = crew.board.read_as_written()
    kept, first = board_history.read_settings(crew.git), board_history.read_first(crew.git)
    if kept is not None or first is not None:
        begun = Config()
        with suppress(BoardInconsistent):
            begun = document.load_state(first or "").config
        confirmed_settings.restore_confirmed(crew.paths, kept, begun)
    odd = drift_alarms.settings_alarms(confirmed_settings.find_unconfirmed(crew.paths, written))
    counting = settings.describe_effective(confirmed_settings.with_trusted_settings(crew.paths, written).config)
    return counting, *(f"{one.message}: {one.next}" for one in odd)


def restore_goal_file(crew: Crew, goal: str) -> bool:
    """The page of the goal, where there is none: as the history has it, or a new one; whether it was the history's."""
    page = crew.paths.root / GOAL_FILE
    if page.exists():
        return False
    kept = board_history.read_goal(crew.git)
    page.write_bytes(default_goal_text(goal).encode() if kept is None else kept)
    return kept is not None


def damage(crew: Crew, state: State, asked: Iterable[str] = ()) -> str | None:
    """What of .liza was taken away though its board is there, in words; None where nothing is known of that, and where
    only the pins are gone and nobody works without them: that `doctor --fix` mends.

    ``asked``: agents whose locks may have been taken before the board told of them. What processes have open is looked
    at only where something is missing. Raises GitFailed for pins that are no file.
    """
    lacking = None if crew.paths.pins.exists() else _lacking(crew)
    if lacking is not None and not _has_history(crew):
        # A crew that is only being laid out.
        return None
    unlocked = [agent for agent in _ever_supervised(state) if not crew.paths.supervisor_lock(agent).exists()]
    if lacking is None and not unlocked and all(crew.paths.supervisor_lock(agent).exists() for agent in asked):
        return None
    alive = sorted(set(find_survivors(crew).values()))
    more_is_gone = lacking is not None and (unlocked or not crew.paths.slots_record.exists())
    if not alive and not more_is_gone:
        return None
    told = lacking or "lock files of this crew were deleted"
    still = f"; still at work: {', '.join(alive)}" if alive else ""
    return f"a part of {crew.paths.liza} was deleted: {told}{still}. Until it is restored, nothing runs"


def refuse_damaged(crew: Crew, state: State, asked: Iterable[str] = ()) -> None:
    """Raises Refused where a part of .liza was deleted, with the command that restores it; arguments as of damage."""
    found = damage(crew, state, asked)
    if found is not None:
        raise Refused(found, AGAIN)


def mending(crew: Crew) -> str:
    """The one command for pins that cannot be read, which depends on what else was deleted."""
    try:
        return FIX if damage(crew, crew.board.read()) is None else AGAIN
    except LizaError:
        return AGAIN


def has_pins(crew: Crew) -> bool:
    """Whether the pinned configuration is there and can be read. Raises GitFailed where it is no file."""
    return _lacking(crew) is None


def _lacking(crew: Crew) -> str | None:
    try:
        Pins.load(crew.paths.pins)
    except Missing as gone:
        return gone.message
    return None


def _has_history(crew: Crew) -> bool:
    # Without pins, for they are what is missing: nothing that the configuration names runs for this.
    return Git(crew.paths.root).ok("show-ref", "--verify", "--quiet", HISTORY_REF)


def _ever_supervised(state: State) -> tuple[str, ...]:
    """The agents for which a supervisor was ever started: each has a lock file from then on."""
    return tuple(name for name, agent in state.agents.items() if agent.program)


def find_survivors(crew: Crew) -> dict[int, str]:
    """The processes that hold a lock of a .liza that was deleted or moved away, each with the name of that lock:
    ``locks/supervisor-coder-1.lock``, or ``coder-1.1/session.lock``. No lock of the crew tells of them any more."""
    own = re.escape(f"{crew.paths.root}/.liza")
    held = r"(locks/supervisor-[^/]+\.lock|run/[^/]+/[^/]+/session\.lock)"
    found = processes.find_pids_with_open(rf"{own}(/{held} \(deleted\)|[^/]+/{held}( \(deleted\))?)")
    return {pid: "/".join(path.removesuffix(" (deleted)").split("/")[-2:]) for pid, path in found.items()}


def works_unseen(crew: Crew, agent: str) -> bool:
    """Whether a supervisor or a session of the agent works on, and its lock file was deleted."""
    if crew.paths.supervisor_lock(agent).exists():
        return False
    own = f"locks/supervisor-{agent}.lock"
    return any(one == own or one.startswith(f"{agent}.") for one in find_survivors(crew).values())


def refuse_survivors(crew: Crew, step: str | None = None) -> None:
    """A supervisor or a session of a .liza that was deleted or moved away goes on by itself.

    ``step``: the command that ends them. Raises Refused where one lives, as far as the system shows what its processes
    have open.
    """
    found = find_survivors(crew)
    if found:
        told, pids = ", ".join(sorted(set(found.values()))), " ".join(map(str, sorted(found)))
        raise Refused(f"processes of the crew whose .liza is gone still work here: {told}", step or f"kill {pids}")


def end_survivors(crew: Crew) -> tuple[str, ...]:
    """End them: supervisors first, for they would start sessions again; their agents and runs.

    Raises Refused for one that cannot be ended.
    """
    ended = []
    for pid, name in sorted(find_survivors(crew).items(), key=lambda one: "session.lock" in one[1]):
        holder = processes.identify_process(pid)
        if holder is None:
            continue
        directory, _, lock = name.partition("/")
        is_session = lock == "session.lock"
        _end(crew, holder, directory if is_session else None)
        ended.append(directory if is_session else lock.removeprefix("supervisor-").removesuffix(".lock"))
    refuse_survivors(crew)
    return tuple(ended)


def _end(crew: Crew, holder: ProcessIdentity, run: str | None) -> None:
    """SIGTERM, and SIGKILL for what is still there: a supervisor, or what a session started and then its shim."""

    def there() -> Iterator[int]:
        yield from processes.find_descendants(holder)
        if run is not None:
            yield from processes.iter_run_pids(run, crew.paths.root)

    asked = (holder.pid,) if run is None else tuple(there())
    for pid in asked:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    handle = processes.open_pidfd(holder)
    if handle is not None:
        try:
            processes.wait_readable(handle, KILL_GRACE)
        finally:
            os.close(handle)
    processes.kill_all(there if run is not None else lambda: ())
    processes.kill_all(lambda: (holder.pid,) if processes.is_proved_dead(holder) is False else ())
