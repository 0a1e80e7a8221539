"""Run the project's own commands: its set-up and its tests."""

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

from liza.git.rules.slot_states import slot_variables
from liza.model import clean_environment
from liza.model.errors import NotRegularFile
from liza.model.value_classes import Value
from liza.programs.session import guarded_command, log_file
from liza.project.command_box import CommandBox
from liza.project.rules import project_kinds
from liza.system import ancestors, crash_points, processes, untrusted_files
from liza.text.redaction import redact


class CommandOutcome(Value):
    """Result of a project command; ``exit_status`` is None if it was ended at its time limit.

    ``passes_outside``: it failed in a box, and passes without one.
    """

    command: str
    directory: Path
    exit_status: int | None
    seconds: float
    log: Path
    passes_outside: bool = False

    @property
    def passed(self) -> bool:
        return self.exit_status == 0

    def tail(self, lines: int = 20) -> str:
        """Last lines of the output, without secrets."""
        return redact("\n".join(log_file.read_tail(self.log).splitlines()[-lines:]))

    def find_crlf_script(self) -> str | None:
        """Return the script because of whose CRLF line ends the command failed, or None."""
        if self.passed:
            return None
        output = log_file.read_tail(self.log)
        script = find_crlf_script(project_kinds.list_missing_programs(output), self.directory)
        if script is None and (self.exit_status in (126, 127) or project_kinds.suggests_crlf(output)):
            script = find_crlf_script(project_kinds.list_words(self.command), self.directory)
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
) -> CommandOutcome:
    """Run a shell command in ``directory`` with its output in ``log``; end it after ``limit`` seconds.

    All processes that it started are ended too: a leftover test server would break the next run, and could call liza as
    if it were the person. Variables and PATH entries that lead to the person's checkout are removed from its
    environment, except ``keep`` (``config.environment``); ``more`` is added.

    ``box``: the box in which it runs; None: as any process of this user.

    A run killed from outside is inconclusive; it is retried once. Raises OSError if the log cannot be written.

    With ``cancelled`` the command is one of several that run at the same time: it ends soon after the event is set, and
    the caller handles one that was killed from outside.
    """
    env = {**command_environment(root, keep), **slot_variables(directory.name), **more}
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
        command_run = guarded_command.start_guarded(words if box is None else box.wrap(words), directory, out, env)
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
    if processes.wait_until_gone(lambda: processes.iter_guard_pids(COMMAND_RUN, root), guarded_command.END_LIMIT):
        processes.kill_all(lambda: processes.iter_guard_pids(COMMAND_RUN, root))
    processes.kill_run(COMMAND_RUN, root)


def command_environment(root: Path, keep: str | None = None) -> dict[str, str]:
    """Return the environment of the project's own commands; ``keep`` is ``config.environment``."""
    cleaned = clean_environment.clean_variables(os.environ, str(root), keep, os.path.realpath).variables
    variables = {name: value for name, value in cleaned.items() if not name.startswith(("LIZA_", "GIT_"))}
    # Without replace objects: git must show the tested commit itself, not an object that a refs/replace ref names.
    return {**variables, "GIT_NO_REPLACE_OBJECTS": "1", "LIZA_RUN": COMMAND_RUN, "LIZA_ROOT": str(root)}
