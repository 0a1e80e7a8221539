"""A crew's files beside its board: directories, texts for agents, brief filter; checks for deleted parts of .liza."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from liza.board.presence import has_board_or_intent
from liza.board.text import document
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew.crew import Crew
from liza.crew.deleted_parts import AGAIN, describe_damage, find_survivors
from liza.git import board_history, hiding
from liza.model.configuration import Config
from liza.model.errors import BoardInconsistent, Missing, Refused
from liza.model.model import ProcessIdentity, State
from liza.model.paths import Paths
from liza.system import installation, processes

GOAL_FILE = ".liza/specs/goal.md"
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
    hiding.ignore_liza_dirs(crew.git)
    copy_texts(crew.paths)


def recreate_layout(crew: Crew) -> Crew:
    """Recreate the layout and pins of a crew that existed before, and return the crew. Idempotent.

    Raises GitFailed, OSError.
    """
    crew.paths.liza.mkdir(mode=0o755, exist_ok=True)
    # Pins first: if there is a board, git does not start without pins.
    confirmed_settings.create_pins(crew.paths)
    crew = Crew(crew.paths, crew.clock)
    create_layout(crew)
    hiding.install_filter(crew.git)
    return crew


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
    unconfirmed = confirmed_settings.find_unconfirmed(crew.paths, written) or ()
    summary = settings.describe_effective(confirmed_settings.with_trusted_settings(crew.paths, written).config)
    return summary, *(f"{setting.description}: liza doctor --accept {setting.key}" for setting in unconfirmed)


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


def refuse_damaged(paths: Paths, state: State, asked: Iterable[str] = ()) -> None:
    """Raise Refused if a part of .liza was deleted, with the command that restores it; arguments as of ``damage``."""
    reason = describe_damage(paths, state, asked)
    if reason is not None:
        raise Refused(reason, AGAIN)


def deleted_error(paths: Paths) -> Missing:
    """Return the error of a process of the crew whose .liza, or a part of it, was deleted: where the work is."""
    work = f"the work is in {paths.slots} and on task/*"
    return Missing(f"{paths.liza} or a part of it was deleted under the crew; {work}", AGAIN)


def is_deleted(paths: Paths) -> bool:
    """Return whether the pins or the board of a crew that was open are gone."""
    return not has_board_or_intent(paths) or not os.path.lexists(paths.pins)


def works_unseen(paths: Paths, agent: str) -> bool:
    """Whether a supervisor or a session of the agent still runs although its lock file was deleted."""
    if paths.supervisor_lock(agent).exists():
        return False
    own = f"locks/supervisor-{agent}.lock"
    return any(name == own or name.startswith(f"{agent}.") for name in find_survivors(paths).values())


def refuse_survivors(paths: Paths, step: str | None = None) -> None:
    """Raise Refused if a supervisor or a session of a deleted or moved .liza still runs.

    ``step``: the command that ends them. Only processes whose open files are visible to this user are found.
    """
    survivors = find_survivors(paths)
    if survivors:
        names, pids = ", ".join(sorted(set(survivors.values()))), " ".join(map(str, sorted(survivors)))
        raise Refused(f"processes of the crew whose .liza is gone still run here: {names}", step or f"kill {pids}")


def end_survivors(paths: Paths) -> tuple[str, ...]:
    """End the processes that ``find_survivors`` finds; return their agents and runs.

    Supervisors first: they would start sessions again. Raises Refused if one cannot be ended.
    """
    ended = []
    for pid, name in sorted(find_survivors(paths).items(), key=lambda entry: "session.lock" in entry[1]):
        holder = processes.identify_process(pid)
        if holder is None:
            continue
        directory, _, lock = name.partition("/")
        is_session = lock == "session.lock"
        _end(paths, holder, directory if is_session else None)
        ended.append(directory if is_session else lock.removeprefix("supervisor-").removesuffix(".lock"))
    refuse_survivors(paths)
    return tuple(ended)


def _end(paths: Paths, holder: ProcessIdentity, run: str | None) -> None:
    """Send SIGTERM, wait KILL_GRACE, then SIGKILL: to a supervisor, or to a session's processes and then its shim."""

    def session_pids() -> Iterator[int]:
        yield from processes.find_descendants(holder)
        if run is not None:
            yield from processes.iter_run_pids(run, paths.root)

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


_PACKAGED_TEXTS = Path(__file__).parent.parent / "_texts"
_TOOL_RULES = {
    ".prettierrc": """\
# `prettier .` in your checkout leaves the files of Liza alone: it changes only files that ask for it.
requirePragma: true
overrides:
  - files: "*.json"
    options: { parser: yaml } # the parser of JSON has no pragma
""",
    ".markdownlint.json": '{ "default": false }\n',
}
"""Configurations for tools of the person that do not read git's file info/exclude, by the name of the file in .liza."""
SPEC_DIRECTORIES = ("architecture", "protocols")
_CHECKOUT_ROOT = Path(__file__).parent.parent.parent


def find_texts(name: str) -> Path:
    """Path of ``contracts``, ``examples`` or ``specs``: in the package, or in the checkout that liza runs from.

    Raises Missing.
    """
    for path in (_PACKAGED_TEXTS / name, _CHECKOUT_ROOT / name):
        if path.is_dir():
            return path
    raise Missing(f"this installation of Liza has no {name}", _restore_command(name))


def _restore_command(name: str) -> str:
    if (_CHECKOUT_ROOT / ".git").exists():
        return shlex.join(["git", "-C", str(_CHECKOUT_ROOT), "restore", name])
    return installation.reinstall_command()


def copy_texts(paths: Paths) -> None:
    """Copy the contracts to .liza/contracts and the specs they refer to to .liza/specs. Idempotent.

    Beside them, write the rules that keep the person's formatters and linters away from .liza.
    """
    for name, rules in _TOOL_RULES.items():
        (paths.liza / name).write_text(rules, encoding="utf-8")
    shutil.copytree(find_texts("contracts"), paths.contracts, dirs_exist_ok=True)
    for directory in SPEC_DIRECTORIES:
        shutil.copytree(find_texts("specs") / directory, paths.specs / directory, dirs_exist_ok=True)
