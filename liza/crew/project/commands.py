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
from liza.rules.secrets import redacted
from liza.system import ancestors, crash_points, processes


@dataclass(frozen=True)
class Outcome:
    """How a command of the project ended; ``code`` is None when it was ended at its time limit."""

    code: int | None
    seconds: float
    log: Path

    @property
    def green(self) -> bool:
        return self.code == 0

    def tail(self, lines: int = 20) -> str:
        """The last lines that the command said."""
        return redacted("\n".join(log_file.tail(self.log).splitlines()[-lines:]))


FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT})
LOOK = 1.0  # seconds between two looks at the size of a log
MARK = ancestors.COMMAND
"""The run that the project's own commands bear in their environment, so that a killed merger's can be found."""


def run(
    command: str,
    directory: Path,
    log: Path,
    limit: float,
    root: Path,
    keep: str | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run a shell command in ``directory``, its output to ``log``; at the limit it is ended. Nothing that it started
    outlives it: a test server left behind would break the next run, and could speak as the person.

    Its environment has nothing that leads to the person's checkout, but for ``keep`` (``config.environment``), and
    the variables of ``more``.

    One that somebody killed said neither green nor red: it is run once more. Raises OSError where the log cannot be
    written.
    """
    env = {**environment(root, keep), **more}
    done = _run(command, directory, log, limit, env)
    return _run(command, directory, log, limit, env) if done.code in FROM_OUTSIDE else done


def _run(command: str, directory: Path, log: Path, limit: float, env: Mapping[str, str]) -> Outcome:
    import time

    log.parent.mkdir(mode=0o700, exist_ok=True)
    began = time.monotonic()
    with log_file.fresh(log) as out:
        command_run = guarded_command.start(["/bin/sh", "-c", command], directory, out, env)
        crash_points.point("spawned", "command")
        try:
            with _ended_by_term():
                code: int | None = _wait(command_run.process, log, began + limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            command_run.end()
            if command_run.process.returncode == -signal.SIGKILL:
                # Either the command was killed, or its guard was, and then nobody has ended what it started.
                end_leftovers(Path(env["LIZA_ROOT"]))
    return Outcome(code, time.monotonic() - began, log)


def _wait(process: subprocess.Popen[bytes], log: Path, end: float) -> int:
    """Its exit code; its log is kept small meanwhile. Raises TimeoutExpired at ``end``."""
    import time

    while True:
        left = end - time.monotonic()
        try:
            return process.wait(timeout=max(0.0, min(left, LOOK)))
        except subprocess.TimeoutExpired:
            log_file.cap(log)
            if left <= LOOK:
                raise


@contextmanager
def _ended_by_term() -> Iterator[None]:
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


def end_leftovers(root: Path) -> None:
    """End what a command of a killed merger left. Only for who holds the merge lock."""
    processes.kill_run(MARK, root)


def environment(root: Path, keep: str | None = None) -> dict[str, str]:
    """The environment of the project's own commands; ``keep`` is ``config.environment``."""
    outside = clean_environment.cleaned(os.environ, str(root), keep, os.path.realpath).variables
    own = {name: value for name, value in outside.items() if not name.startswith(("LIZA_", "GIT_"))}
    # What is tested is the commit itself, not what a ref says instead of it.
    return {**own, "GIT_NO_REPLACE_OBJECTS": "1", "LIZA_RUN": MARK, "LIZA_ROOT": str(root)}
