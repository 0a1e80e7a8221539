"""A crew's files beside its board: directories, texts for agents, brief filter; checks for deleted parts of .liza."""

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
from liza.rules.errors import BoardInconsistent, LizaError, Missing, NotRegularFile, Refused
from liza.rules.model import Config, ProcessIdentity, State
from liza.rules.paths import HISTORY_REF
from liza.rules.reports import drift_alarms
from liza.system import processes

GOAL_FILE = ".liza/specs/goal.md"
AGAIN = "liza restore --last-good --stop"
FIX = "liza doctor --fix"
KILL_GRACE = 3.0  # seconds between SIGTERM and SIGKILL


def default_goal_text(goal: str) -> str:
    """First text of .liza/specs/goal.md."""
    return f"# {goal}\n\nSay here what must be true when this is done.\n"


def create_layout(crew: Crew) -> None:
    """Create directories and texts, and have git ignore them. Idempotent. Raises GitFailed, OSError."""
    for directory in (crew.paths.liza, crew.paths.locks, crew.paths.specs):
        directory.mkdir(mode=0o755, exist_ok=True)
    for directory in (crew.paths.logs, crew.paths.runs):
        directory.mkdir(mode=0o700, exist_ok=True)
    exclude.ignore_liza_dirs(crew.git, crew.paths)
    agent_texts.copy_texts(crew.paths)


def recreate_layout(crew: Crew) -> Crew:
    """Recreate the layout and pins of a crew that existed before, and return the crew. Idempotent.

    Pins are not read from the repository's configuration: an agent may have changed it. Raises GitFailed, OSError.
    """
    plain = Git(crew.paths.root)
    crew.paths.liza.mkdir(mode=0o755, exist_ok=True)
    # Pins first: if there is a board, git does not start without pins.
    Pins.from_user_config(plain).save(crew.paths)
    crew = Crew(crew.paths, crew.clock)
    create_layout(crew)
    brief_filter.install_filter(crew.git)
    Pins.from_user_config(plain).with_key(plain, brief_filter.FILTER_KEY).save(crew.paths)
    return Crew(crew.paths, crew.clock)


def restore_confirmed_settings(crew: Crew) -> tuple[str, ...]:
    """Restore the settings that a person had confirmed before the pins were lost.

    Returns lines that name the settings in effect, and those of the board that are not confirmed. Raises GitFailed,
    OSError, BoardInconsistent.
    """
    written = crew.board.read_as_written()
    recorded, first = board_history.read_settings(crew.git), board_history.read_first(crew.git)
    if recorded is not None or first is not None:
        initial = Config()
        with suppress(BoardInconsistent):
            initial = document.load_state(first or "").config
        confirmed_settings.restore_confirmed(crew.paths, recorded, initial)
    alarms = drift_alarms.settings_alarms(confirmed_settings.find_unconfirmed(crew.paths, written))
    summary = settings.describe_effective(confirmed_settings.with_trusted_settings(crew.paths, written).config)
    return summary, *(f"{alarm.message}: {alarm.next}" for alarm in alarms)


def restore_goal_file(crew: Crew, goal: str) -> bool:
    """Write the goal file if there is no such file, from the history or else from the default text.

    Returns whether the text came from the history.
    """
    path = crew.paths.root / GOAL_FILE
    if path.exists():
        return False
    text = board_history.read_goal(crew.git)
    path.write_bytes(default_goal_text(goal).encode() if text is None else text)
    return text is not None


def damage(crew: Crew, state: State, asked: Iterable[str] = ()) -> str | None:
    """Describe which part of .liza was deleted although its board exists; None if nothing is known to be deleted.

    Also None if only the pins are gone and no process of the crew runs: `doctor --fix` repairs that.

    ``asked``: agents whose lock may exist before the board names their program. Open files of processes are searched
    only if something is missing. Raises NotRegularFile for the pins.
    """
    missing_pins = None if crew.paths.pins.exists() else _lacking(crew)
    if missing_pins is not None and not _has_history(crew):
        # `liza init` is still creating this crew.
        return None
    unlocked = [agent for agent in _ever_supervised(state) if not crew.paths.supervisor_lock(agent).exists()]
    if missing_pins is None and not unlocked and all(crew.paths.supervisor_lock(agent).exists() for agent in asked):
        return None
    survivors = sorted(set(find_survivors(crew).values()))
    is_more_gone = missing_pins is not None and (unlocked or not crew.paths.slots_record.exists())
    if not survivors and not is_more_gone:
        return None
    what = missing_pins or "lock files of this crew were deleted"
    running = f"; still running: {', '.join(survivors)}" if survivors else ""
    return f"a part of {crew.paths.liza} was deleted: {what}{running}. Until it is restored, nothing runs"


def refuse_damaged(crew: Crew, state: State, asked: Iterable[str] = ()) -> None:
    """Raise Refused if a part of .liza was deleted, with the command that restores it; arguments as of ``damage``."""
    reason = damage(crew, state, asked)
    if reason is not None:
        raise Refused(reason, AGAIN)


def deleted_error(crew: Crew) -> Missing:
    """Return the error of a process of the crew whose .liza, or a part of it, was deleted: where the work is."""
    work = f"the work is in {crew.paths.slots} and on task/*"
    return Missing(f"{crew.paths.liza} or a part of it was deleted under the crew; {work}", AGAIN)


def is_deleted(crew: Crew) -> bool:
    """Return whether the pins or the board of a crew that was open are gone."""
    has_board = crew.paths.state.exists() or crew.paths.write_intent.exists()
    return not has_board or not os.path.lexists(crew.paths.pins)


def mending(crew: Crew) -> str:
    """Return the command that repairs unreadable pins; it depends on whether more was deleted."""
    try:
        return FIX if damage(crew, crew.board.read()) is None else AGAIN
    except LizaError:
        return AGAIN


def has_pins(crew: Crew) -> bool:
    """Whether the pinned configuration exists and can be read. Raises NotRegularFile."""
    return _lacking(crew) is None


def _lacking(crew: Crew) -> str | None:
    try:
        Pins.load(crew.paths.pins)
    except NotRegularFile:
        raise  # new pins cannot replace it without a loss: a person moves it away first
    except Missing as error:
        return error.message
    return None


def _has_history(crew: Crew) -> bool:
    # No pins are needed: show-ref executes nothing that the configuration names.
    return Git(crew.paths.root).ok("show-ref", "--verify", "--quiet", HISTORY_REF)


def _ever_supervised(state: State) -> tuple[str, ...]:
    """Agents for which a supervisor was ever started: each has had a lock file since then."""
    return tuple(name for name, agent in state.agents.items() if agent.program)


def find_survivors(crew: Crew) -> dict[int, str]:
    """Find processes that have a lock file of a deleted or moved .liza open.

    Returns lock names by pid: ``locks/supervisor-coder-1.lock`` or ``coder-1.1/session.lock``. The crew's present lock
    files do not show these processes.
    """
    root = re.escape(f"{crew.paths.root}/.liza")
    lock = r"(locks/supervisor-[^/]+\.lock|run/[^/]+/[^/]+/session\.lock)"
    matches = processes.find_pids_with_open(rf"{root}(/{lock} \(deleted\)|[^/]+/{lock}( \(deleted\))?)")
    return {pid: "/".join(path.removesuffix(" (deleted)").split("/")[-2:]) for pid, path in matches.items()}


def works_unseen(crew: Crew, agent: str) -> bool:
    """Whether a supervisor or a session of the agent still runs although its lock file was deleted."""
    if crew.paths.supervisor_lock(agent).exists():
        return False
    own = f"locks/supervisor-{agent}.lock"
    return any(name == own or name.startswith(f"{agent}.") for name in find_survivors(crew).values())


def refuse_survivors(crew: Crew, step: str | None = None) -> None:
    """Raise Refused if a supervisor or a session of a deleted or moved .liza still runs.

    ``step``: the command that ends them. Only processes whose open files are visible to this user are found.
    """
    survivors = find_survivors(crew)
    if survivors:
        names, pids = ", ".join(sorted(set(survivors.values()))), " ".join(map(str, sorted(survivors)))
        raise Refused(f"processes of the crew whose .liza is gone still run here: {names}", step or f"kill {pids}")


def end_survivors(crew: Crew) -> tuple[str, ...]:
    """End the processes that ``find_survivors`` finds; return their agents and runs.

    Supervisors first: they would start sessions again. Raises Refused if one cannot be ended.
    """
    ended = []
    for pid, name in sorted(find_survivors(crew).items(), key=lambda entry: "session.lock" in entry[1]):
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
    """Send SIGTERM, wait KILL_GRACE, then SIGKILL: to a supervisor, or to a session's processes and then its shim."""

    def session_pids() -> Iterator[int]:
        yield from processes.find_descendants(holder)
        if run is not None:
            yield from processes.iter_run_pids(run, crew.paths.root)

    targets = (holder.pid,) if run is None else tuple(session_pids())
    for pid in targets:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    handle = processes.open_pidfd(holder)
    if handle is not None:
        try:
            processes.wait_readable(handle, KILL_GRACE)
        finally:
            os.close(handle)
    processes.kill_all(session_pids if run is not None else lambda: ())
    processes.kill_all(lambda: (holder.pid,) if processes.is_proved_dead(holder) is False else ())
