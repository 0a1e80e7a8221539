"""Run the project's own commands, its set-up and its tests, with a time limit and in a box."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from liza.box import slot_directories, support, surroundings
from liza.box.box import Box, Mount, MountKind, open_filter
from liza.box.run_mounts import build_slot_box
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.git import slot_records
from liza.git.git_config import git_dirs
from liza.git.rules.slot_states import slot_variables
from liza.git.run_git import find_stores, forget_set_up, make_run_git, read_mark, record_set_up, update_run_git
from liza.git.runner import Git
from liza.model import clean_environment
from liza.model.configuration import Config, Confinement, Network
from liza.model.errors import LizaError, Missing, NotRegularFile, Refused, UnknownId, UsageError
from liza.model.model import State
from liza.model.paths import BoxPaths, Paths
from liza.model.statuses import describe_task
from liza.model.value_classes import Value, replace
from liza.programs.presets import preset_table
from liza.programs.session import log_file, session_process
from liza.programs.session.program_faults import list_logins
from liza.project import foreign_runs
from liza.project.rules import first_failures, output_causes
from liza.system import ancestors, crash_points, processes, untrusted_files
from liza.text.redaction import redact


class CommandOutcome(Value):
    """Result of a project command; ``exit_status`` is None if it was ended at its time limit.

    ``passes_outside``: it failed in a box, and passes without one. ``is_kept``: it did not run; an earlier `init` ran
    it for the same inputs, in ``seconds``.
    """

    command: str
    directory: Path
    exit_status: int | None
    seconds: float
    log: Path
    passes_outside: bool = False
    is_kept: bool = False

    @property
    def passed(self) -> bool:
        return self.exit_status == 0

    def tail(self, lines: int = 20) -> str:
        """Last lines of the output, without secrets."""
        return redact("\n".join(log_file.read_tail(self.log).splitlines()[-lines:]))

    def describe(self) -> str:
        """Return the first failure in the output, else its last lines without warnings, without secrets."""
        return redact(first_failures.describe_output(log_file.read_tail(self.log, _EXAMINED_BYTES)))

    def find_crlf_script(self) -> str | None:
        """Return the script because of whose CRLF line ends the command failed, or None."""
        if self.passed:
            return None
        output = log_file.read_tail(self.log)
        script = find_crlf_script(output_causes.list_missing_programs(output), self.directory)
        if script is None and (self.exit_status in (126, 127) or output_causes.suggests_crlf(output)):
            script = find_crlf_script(output_causes.list_words(self.command), self.directory)
        return script


def find_crlf_script(names: Sequence[str], directory: Path) -> str | None:
    """Return the first of the names that is a script with CRLF line ends in a directory.

    The first name may be a script of any language, the others of a shell."""
    for number, name in enumerate(names):
        with suppress(OSError, ValueError, NotRegularFile), untrusted_files.open_to_read(directory / name) as file:
            line = file.readline(_MAX_FIRST_LINE)
            is_shell = name.endswith((".sh", ".bash")) or re.match(rb"#!.*\b[a-z]*sh\b", line)
            if line.endswith(b"\r\n") and (is_shell or (number == 0 and line.startswith(b"#!"))):
                return name if not name.startswith("/") else os.path.relpath(name, directory)
    return None


_MAX_FIRST_LINE = 4096
_EXAMINED_BYTES = 1 << 20  # bytes at the end of an output in which the first failure is searched
EXTERNAL_KILL_STATUSES = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT})
LOG_CHECK_INTERVAL = 1.0  # seconds between two checks of the size of a log
SEARCHED_LINES = 200
"""Number of lines at the end of an output that are searched for a missing module: test runners add a report."""
COMMAND_RUN = ancestors.PROJECT_COMMAND_RUN
"""LIZA_RUN of the project's own commands, by which the commands of a killed merger are found."""


def run_command(
    command: str,
    directory: Path,
    log: Path,
    limit: float,
    root: Path,
    keep: str | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
    cancelled: threading.Event | None = None,
    box: CommandBox | None = None,
    *,
    is_foreign: bool = False,
) -> CommandOutcome:
    """Run a shell command in ``directory`` with its output in ``log``; end it after ``limit`` seconds.

    All processes that it started are ended too: a leftover test server would break the next run, and could call liza as
    if it were the person. Variables and PATH entries that lead to the person's checkout are removed from its
    environment, except ``keep`` (``config.environment``); ``more`` is added.

    ``box``: the box in which it runs; None: as any process of this user. ``is_foreign``: a stranger wrote what it runs,
    so it gets no variable that may be a login.

    A run killed from outside is inconclusive; it is retried once. Raises OSError if the log cannot be written.

    With ``cancelled`` the command is one of several that run at the same time: it ends soon after the event is set, and
    the caller handles one that was killed from outside.
    """
    if is_foreign and box is None:
        raise Missing("what a stranger wrote runs only in a box, and this run has no box", "liza doctor")
    outside = command_environment(root, keep)
    env = {
        **(foreign_runs.select_variables(outside) if is_foreign else outside),
        **slot_variables(directory.name),
        **more,
    }
    if box is not None:
        env = box.environment(env)
    outcome = _run_once(command, directory, log, limit, env, cancelled, box)
    if cancelled is not None or outcome.exit_status not in EXTERNAL_KILL_STATUSES:
        return outcome
    return _run_once(command, directory, log, limit, env, box=box)


def _run_once(
    command: str,
    directory: Path,
    log: Path,
    limit: float,
    env: Mapping[str, str],
    cancelled: threading.Event | None = None,
    box: CommandBox | None = None,
) -> CommandOutcome:
    words = ["/bin/sh", "-c", command]
    log.parent.mkdir(mode=0o700, exist_ok=True)
    started = time.monotonic()
    with log_file.open_empty(log) as out:
        command_run = session_process.start_guarded(words if box is None else box.wrap(words), directory, out, env)
        crash_points.point("spawned", "command")
        try:
            with exit_on_signals():
                code: int | None = _wait(command_run.process, log, started + limit, cancelled)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            command_run.terminate()
            if command_run.process.returncode == -signal.SIGKILL and cancelled is None:
                # Either the command or its guard was killed. Without its guard, its processes still run.
                kill_orphan_commands(Path(env["LIZA_ROOT"]))
    if box is not None and code is not None and -(code - 128) in EXTERNAL_KILL_STATUSES:
        code = -(code - 128)  # the box ended by itself: it reports the signal that ended the command as a shell does
    return CommandOutcome(command, directory, code, time.monotonic() - started, log)


def _wait(process: subprocess.Popen[bytes], log: Path, end: float, cancelled: threading.Event | None) -> int:
    """Wait for the exit status and cap the log meanwhile. Raises TimeoutExpired at ``end`` (monotonic seconds), and
    within LOG_CHECK_INTERVAL after ``cancelled`` is set."""
    while True:
        remaining = end - time.monotonic()
        if cancelled is not None and cancelled.is_set():
            remaining = 0.0
        try:
            return process.wait(timeout=max(0.0, min(remaining, LOG_CHECK_INTERVAL)))
        except subprocess.TimeoutExpired:
            log_file.cap(log)
            if remaining <= LOG_CHECK_INTERVAL:
                raise


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that this process first ends the processes that it started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def exit_on_signal(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    # An ignored SIGHUP stays ignored, as under nohup.
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGHUP)
    former_handlers = [(number, signal.signal(number, exit_on_signal)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in former_handlers:
            signal.signal(number, handler)


def kill_orphan_commands(root: Path) -> None:
    """End the processes of a killed merger's commands. The caller must hold the merge lock.

    Their guards come first: one that has just started has no command yet, and each kills all that its command started.
    """
    if processes.wait_until_gone(lambda: processes.iter_guard_pids(COMMAND_RUN, root), session_process.END_LIMIT):
        processes.kill_all(lambda: processes.iter_guard_pids(COMMAND_RUN, root))
    processes.kill_run(COMMAND_RUN, root)


def command_environment(root: Path, keep: str | None = None) -> dict[str, str]:
    """Return the environment of the project's own commands; ``keep`` is ``config.environment``."""
    cleaned = clean_environment.clean_variables(os.environ, str(root), keep, os.path.realpath).variables
    variables = {name: value for name, value in cleaned.items() if not name.startswith(("LIZA_", "GIT_"))}
    # Without replace objects: git must show the tested commit itself, not an object that a refs/replace ref names.
    return {**variables, "GIT_NO_REPLACE_OBJECTS": "1", "LIZA_RUN": COMMAND_RUN, "LIZA_ROOT": str(root)}


class BoxUse(Value):
    """What a box is made for. ``program``: bubblewrap; ``environ``: the environment that its commands would have
    outside; ``executables``: what they start, beside what is in PATH; ``socket``: that of a session."""

    program: str
    environ: Mapping[str, str]
    home: Path
    executables: tuple[Path, ...] = ()
    mounts: tuple[Mount, ...] = ()
    socket: Path | None = None


class CommandBox(Value):
    """The box of commands in one slot. ``shared``: paths that a person shares with all boxes."""

    box: Box
    own: BoxPaths
    home: Path
    shared: tuple[Path, ...]

    def wrap(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs ``words`` in the box."""
        return self.box.wrap(words)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command in the box, whose environment outside would be ``environ``."""
        return slot_directories.make_box_environment(environ, self.own, self.home, self.shared)

    def with_network(self, network: Network) -> CommandBox:
        """Return the box with the network on or off. It has a loopback interface in any case."""
        return replace(self, box=replace(self.box, has_network=network is Network.ON))

    def with_writable(self, directory: Path) -> CommandBox:
        """Return the box in which a directory, also one below /tmp, is seen and can be written."""
        return replace(self, box=replace(self.box, mounts=(*self.box.mounts, Mount(MountKind.WRITABLE, directory))))


def is_confined(config: Config) -> bool:
    """Return whether commands run in a box. Raises Missing if they must and cannot."""
    return support.choose_box_program(config.confinement) is not None


def is_isolated(config: Config, network: Network | None = None) -> bool:
    """Return whether a command reaches no server outside of its box. ``network``: of a gate; None: as all commands.

    Raises Missing if it must run in a box and cannot.
    """
    return (network or config.network) is Network.OFF and is_confined(config)


def open_box(paths: Paths, git: Git, config: Config) -> CommandBox | None:
    """Return the box of commands in the slot of ``git``, whose git directory exists; None without confinement.

    Raises Missing if confinement is required and this machine cannot make a box, OSError.
    """
    program = support.choose_box_program(config.confinement)
    if program is None:
        return None
    home = Path.home()
    own = slot_directories.create_directories(paths, git.directory.name, home)
    if not own.git_pointer.is_file():
        make_run_git(git, own)
    return build_box(paths, git, config.shared, BoxUse(program, os.environ, home)).with_network(config.network)


def build_box(paths: Paths, git: Git, shared: Sequence[str], use: BoxUse) -> CommandBox:
    """Return a box in the slot of ``git``, whose directories exist. ``shared``: ``config.shared``. Raises OSError."""
    slot = git.directory.name
    own, shares = paths.box(slot), slot_directories.resolve_shared(shared)
    slot_directories.fill_cache(own, use.environ, use.home)
    stores = (Mount(MountKind.READ_ONLY, store) for store in find_stores(git_dirs(git)[1]))
    mounts = (*stores, *use.mounts, *slot_directories.share_mounts(own, use.environ, use.home, shares))
    logins = list_logins(preset_table.load_presets(paths).rows.values(), {**os.environ, **use.environ})
    around = surroundings.read_surroundings(use.program, paths, use.environ, use.executables, logins)
    return CommandBox(build_slot_box(around, slot, socket=use.socket, shared=mounts), own, use.home, shares)


def renew_git(paths: Paths, git: Git, config: Config) -> None:
    """Make the git directory of boxes in a slot, after another commit was checked out there.

    What earlier boxes left in /tmp goes, too. Does nothing without confinement. Raises Missing, GitFailed, OSError.
    """
    if is_confined(config):
        make_run_git(git, slot_directories.prepare_directories(paths, git.directory.name, Path.home()))


def begin_set_up(paths: Paths, git: Git, config: Config) -> None:
    """Make the git directory of a slot's boxes without what an earlier set-up configured. That of a session stays.

    Does nothing without confinement. Raises Missing, GitFailed, OSError.
    """
    if is_confined(config):
        forget_set_up(paths.box(git.directory.name))
        if read_mark(git_dirs(git)[0]) is None:
            renew_git(paths, git, config)


def end_set_up(paths: Paths, git: Git, config: Config) -> None:
    """Record what the set-up of a slot configured, after it succeeded. Raises Missing, GitFailed, OSError."""
    if is_confined(config):
        record_set_up(git, paths.box(git.directory.name))


def update_git(paths: Paths, git: Git, config: Config) -> None:
    """Let the git of boxes in a slot see the commit that is checked out now, and what hides a brief.

    What the set-up wrote into its configuration stays. Does nothing without confinement. Raises Missing, OSError.
    """
    if is_confined(config):
        update_run_git(git, paths.box(git.directory.name))


class BoxedCommand(Value):
    """A command line that runs in the box of a slot, its environment and its directory outside of the box."""

    slot: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    directory: Path


def confine(crew: Crew, words: Sequence[str], directory: Path, shell: str) -> BoxedCommand:
    """Return what runs a command in the box of a slot. Nothing that lives in the slot is changed.

    ``words``: the task or agent whose worktree it is, unless ``directory`` is in one; then the command, else ``shell``.
    Raises UsageError, Refused, UnknownId, Missing, GitFailed, OSError.
    """
    require_person(crew, planner=False)
    machine = support.find_support()
    if not machine.works:
        raise Missing(f"this machine cannot make a box: {machine.cause}", machine.remedy or "liza doctor")
    state = crew.board.read()
    slot, command = _choose_slot(crew, state, words, directory)
    config = replace(state.config, confinement=Confinement.REQUIRED)
    box = open_box(crew.paths, crew.worktrees.slot_git(slot), config)
    assert box is not None
    # Liza imports commits of sessions only, and a person must not hold a lock of git that a session needs.
    git = Mount(MountKind.READ_ONLY, box.own.git)
    # What an agent wrote must not type into the person's terminal.
    descriptor = None if support.forbids_typing() else open_filter()
    box = replace(box, box=replace(box.box, mounts=(*box.box.mounts, git), filter_descriptor=descriptor))
    outside = command_environment(crew.paths.root, state.config.environment)
    # It is a person's: a merger that looks for orphans of tests must not end it.
    environ = {name: value for name, value in outside.items() if name != "LIZA_RUN"} | slot_variables(slot)
    argv = tuple(box.wrap(command or (shell,)))
    inside = {**box.environment(environ), ancestors.CONFINED: ancestors.LOOKS}
    return BoxedCommand(slot, argv, inside, crew.paths.slot(slot))


def _choose_slot(crew: Crew, state: State, words: Sequence[str], directory: Path) -> tuple[str, tuple[str, ...]]:
    """Return the slot, and the command without the name of a task or an agent."""
    name = words[0] if words else ""
    task = state.task(name)
    if task is not None:
        if task.worktree is None or not crew.worktrees.exists(task.worktree):
            raise Refused(f"{describe_task(name, task.status)}: it has no worktree", f"liza task show {name}")
        return task.worktree, tuple(words[1:])
    if name in state.agents:
        slots = crew.worktrees.slots_of(name)
        if not slots:
            raise Refused(f"{name} has no worktree yet", "liza slots")
        return slots[0], tuple(words[1:])
    around = (_slot_at(crew, path) for path in (directory, *directory.parents))
    slot = next((slot for slot in around if slot is not None), None)
    if slot is None:
        if name:
            raise UnknownId(f"{name!r} is no task and no agent, and {directory} is no worktree", "liza slots")
        raise UsageError("confine needs a task or an agent, or to be typed in a worktree", "liza slots")
    return slot, tuple(words)


def _slot_at(crew: Crew, path: Path) -> str | None:
    try:
        name = slot_records.find_slot_name(path, crew.paths.slots)
        return name if name is not None and crew.worktrees.exists(name) else None
    except LizaError:
        return None
