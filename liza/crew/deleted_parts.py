"""Find parts of .liza that were deleted or moved while its board exists, and processes that still use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from liza.config import confirmed_settings
from liza.git.runner import Git
from liza.model.errors import LizaError, Missing, NotRegularFile
from liza.model.model import State
from liza.model.paths import HISTORY_REF, Paths
from liza.system import processes

AGAIN = "liza restore --last-good --stop"
FIX = "liza doctor --fix"


def describe_damage(paths: Paths, state: State, asked: Iterable[str] = ()) -> str | None:
    """Describe which part of .liza was deleted although its board exists; None if nothing is known to be deleted.

    Also None if only the pins are gone and no process of the crew runs: `doctor --fix` repairs that.

    ``asked``: agents whose lock may exist before the board names their program. Open files of processes are searched
    only if something is missing. Raises NotRegularFile for the pins.
    """
    missing_pins = None if paths.pins.exists() else _lacking(paths)
    if missing_pins is not None and not _has_history(paths):
        # `liza init` is still creating this crew.
        return None
    unlocked = [agent for agent in _ever_supervised(state) if not paths.supervisor_lock(agent).exists()]
    if missing_pins is None and not unlocked and all(paths.supervisor_lock(agent).exists() for agent in asked):
        return None
    survivors = sorted(set(find_survivors(paths).values()))
    is_more_gone = missing_pins is not None and (unlocked or not paths.slots_record.exists())
    if not survivors and not is_more_gone:
        return None
    what = missing_pins or "lock files of this crew were deleted"
    running = f"; still running: {', '.join(survivors)}" if survivors else ""
    return f"a part of {paths.liza} was deleted: {what}{running}. Until it is restored, nothing runs"


def find_repair(paths: Paths, read_board: Callable[[], State]) -> str:
    """Return the command that repairs unreadable pins; it depends on whether more was deleted."""
    try:
        return FIX if describe_damage(paths, read_board()) is None else AGAIN
    except LizaError:
        return AGAIN


def has_pins(paths: Paths) -> bool:
    """Whether the file of confirmed settings exists and can be read. Raises NotRegularFile."""
    return _lacking(paths) is None


def _lacking(paths: Paths) -> str | None:
    try:
        confirmed_settings.load_pins(paths.pins)
    except NotRegularFile:
        raise  # new pins cannot replace it without a loss: a person moves it away first
    except Missing as error:
        return error.message
    return None


def _has_history(paths: Paths) -> bool:
    # No pins are needed: show-ref executes nothing that the configuration names.
    return Git(paths.root).ok("show-ref", "--verify", "--quiet", HISTORY_REF)


def _ever_supervised(state: State) -> tuple[str, ...]:
    """Agents for which a supervisor was ever started: each has had a lock file since then."""
    return tuple(name for name, agent in state.agents.items() if agent.program)


def find_survivors(paths: Paths) -> dict[int, str]:
    """Find processes that have a lock file of a deleted or moved .liza open.

    Returns lock names by pid: ``locks/supervisor-coder-1.lock`` or ``coder-1.1/session.lock``. The crew's present lock
    files do not show these processes.
    """
    root = re.escape(f"{paths.root}/.liza")
    lock = r"(locks/supervisor-[^/]+\.lock|run/[^/]+/[^/]+/session\.lock)"
    matches = processes.find_pids_with_open(rf"{root}(/{lock} \(deleted\)|[^/]+/{lock}( \(deleted\))?)")
    return {pid: "/".join(path.removesuffix(" (deleted)").split("/")[-2:]) for pid, path in matches.items()}
