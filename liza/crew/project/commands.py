"""Running the project's own commands: its set-up and its tests."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from liza.programs.session import guarded_command, log_file
from liza.rules.project import clean_environment
from liza.rules.redaction import redact
from liza.system import ancestors, crash_points, processes


@dataclass(frozen=True)
class CommandOutcome:
    """How a command of the project ended; ``code`` is None when it was ended at its time limit."""

    exit_status: int | None
    seconds: float
    log: Path

    @property
    def passed(self) -> bool:
        return self.exit_status == 0

    def tail(self, lines: int = 20) -> str:
        """The last lines that the command said."""
        return redact("\n".join(log_file.read_tail(self.log).splitlines()[-lines:]))


EXTERNAL_KILL_STATUSES = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT})
LOG_CHECK_INTERVAL = 1.0  # seconds between two looks at the size of a log
COMMAND_RUN = ancestors.PROJECT_COMMAND_RUN
"""The run that the project's own commands bear in their environment, so that a killed merger's can be found."""


def run_command(
    command: str,
    directory: Path,
    log: Path,
    limit: float,
    root: Path,
    keep: str | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> CommandOutcome:
    """Run a shell command in ``directory``, its output to ``log``; at the limit it is ended. Nothing that it started
    outlives it: a test server left behind would break the next run, and could speak as the person.

    Its environment has nothing that leads to the person's checkout, but for ``keep`` (``config.environment``), and
    the variables of ``more``.

    One that somebody killed said neither green nor red: it is run once more. Raises OSError where the log cannot be
    written.
    """
    env = {**command_environment(root, keep), **more}
    done = _run_once(command, directory, log, limit, env)
    return _run_once(command, directory, log, limit, env) if done.exit_status in EXTERNAL_KILL_STATUSES else done


def _run_once(command: str, directory: Path, log: Path, limit: float, env: Mapping[str, str]) -> CommandOutcome:
    import time

    log.parent.mkdir(mode=0o700, exist_ok=True)
    began = time.monotonic()
    with log_file.open_empty(log) as out:
        command_run = guarded_command.start_guarded(["/bin/sh", "-c", command], directory, out, env)
        crash_points.point("spawned", "command")
        try:
            with _exit_on_signals():
                code: int | None = _wait(command_run.process, log, began + limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            command_run.terminate()
            if command_run.process.returncode == -signal.SIGKILL:
                # Either the command was killed, or its guard was, and then nobody has ended what it started.
                kill_orphan_commands(Path(env["LIZA_ROOT"]))
    return CommandOutcome(code, time.monotonic() - began, log)


def _wait(process: subprocess.Popen[bytes], log: Path, end: float) -> int:
    """Its exit code; its log is kept small meanwhile. Raises TimeoutExpired at ``end``."""
    import time

    while True:
        left = end - time.monotonic()
        try:
            return process.wait(timeout=max(0.0, min(left, LOG_CHECK_INTERVAL)))
        except subprocess.TimeoutExpired:
            log_file.cap(log)
            if left <= LOG_CHECK_INTERVAL:
                raise


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """TERM and HUP end this process as Ctrl+C does: not before it has ended what it started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    # What is deaf to HUP stays so: nohup.
    deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = (signal.SIGTERM,) if deaf else (signal.SIGTERM, signal.SIGHUP)
    before = [(number, signal.signal(number, leave)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def kill_orphan_commands(root: Path) -> None:
    """End what a command of a killed merger left. Only for who holds the merge lock."""
    processes.kill_run(COMMAND_RUN, root)


def command_environment(root: Path, keep: str | None = None) -> dict[str, str]:
    """The environment of the project's own commands; ``keep`` is ``config.environment``."""
    outside = clean_environment.clean_variables(os.environ, str(root), keep, os.path.realpath).variables
    own = {name: value for name, value in outside.items() if not name.startswith(("LIZA_", "GIT_"))}
    # What is tested is the commit itself, not what a ref says instead of it.
    return {**own, "GIT_NO_REPLACE_OBJECTS": "1", "LIZA_RUN": COMMAND_RUN, "LIZA_ROOT": str(root)}
