"""Start and stop the supervisors of the demo. Each runs a scripted agent; none survives the end of the demo."""

from __future__ import annotations

import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from liza.crew.crew import Crew
from liza.model.paths import role_of
from liza.model.value_classes import Value
from liza.supervisor.down import down
from liza.system.installation import liza_path

FIRST_TERM_WAIT, SECOND_TERM_WAIT = 15.0, 5.0  # seconds after the first and the second SIGTERM
_AGENT_MODULES = {"planner": "planner", "coder": "coder", "code-reviewer": "reviewer"}
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SupervisorEnded(Value):
    """Event: a supervisor ended that was not stopped by the demo."""

    agent: str
    code: int


def scripted_program(agent: str) -> str:
    """Return the scripted agent for the role of ``agent``, as a value of ``--program``."""
    words = [sys.executable, "-P", "-m", f"liza.demo.agents.{_AGENT_MODULES[role_of(agent)]}"]
    return f"script:{shlex.join(words)}"


def demo_environment() -> dict[str, str]:
    """Return the environment without variables that would point Liza or git outside the demo's directory."""
    git_config = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
    env = {
        name: value
        for name, value in os.environ.items()
        if name in git_config or not name.startswith(("LIZA_", "GIT_"))
    }
    # The project's tests and the agents run `python3`; it is in the directory of this interpreter.
    env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH') or os.defpath}"
    return env


class DemoCrew:
    """The supervisors, by agent. A ``with`` block stops all of them at its end."""

    def __init__(self, crew: Crew, env: Mapping[str, str], events: queue.Queue[Any]) -> None:
        self.crew, self.env, self.events = crew, dict(env), events
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False

    def start(self, agent: str) -> None:
        """Start a supervisor in a session of its own, so that Ctrl+C reaches only the demo, which stops it."""
        words = [str(liza_path().with_name("liza-agent")), agent, "--program", scripted_program(agent)]
        with self.log_path(agent).open("ab") as log:
            child = subprocess.Popen(
                words,
                cwd=self.crew.paths.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        self._children[agent] = child
        threading.Thread(target=self._wait, args=(agent, child), daemon=True).start()

    def log_path(self, agent: str) -> Path:
        """Return the path of the output of the supervisor of ``agent``."""
        return self.crew.paths.logs / f"{agent}.log"

    def started_agents(self) -> tuple[str, ...]:
        """Return the agents whose supervisors were started."""
        return tuple(self._children)

    def _wait(self, agent: str, child: subprocess.Popen[bytes]) -> None:
        code = child.wait()
        if not self._stopping:
            self.events.put(SupervisorEnded(agent, code))

    def __enter__(self) -> DemoCrew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all supervisors with SIGTERM, again after 15 s, then SIGKILL after 5 s; then end the sessions left.

        Ctrl+C meanwhile sends another SIGTERM and does not interrupt this. Raises Refused, LockTimeout.
        """
        self._stopping = True
        handlers = [
            (number, signal.signal(number, lambda *_: self._signal_all(signal.SIGTERM))) for number in _STOP_SIGNALS
        ]
        try:
            self._signal_all(signal.SIGTERM)
            for limit, next_signal in ((FIRST_TERM_WAIT, signal.SIGTERM), (SECOND_TERM_WAIT, signal.SIGKILL)):
                if not self._wait_all(limit):
                    self._signal_all(next_signal)
            down(self.crew, now=True)
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)

    def _signal_all(self, number: int) -> None:
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(number)

    def _wait_all(self, limit: float) -> bool:
        """Wait for all supervisors to end; return whether they did within ``limit`` seconds."""
        end = time.monotonic() + limit
        try:
            for child in self._children.values():
                child.wait(timeout=max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


def run_liza(words: Sequence[str], root: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a liza command in ``root``, as a person does. Raises TimeoutExpired after 60 seconds."""
    return subprocess.run(
        [str(liza_path()), *words],
        cwd=root,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def liza_word() -> str:
    """Return what a person types for ``liza`` in a shell: its path, if it is not on PATH."""
    return "liza" if shutil.which("liza") else shlex.quote(str(liza_path()))


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that they stop the crew as Ctrl+C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    handlers = [(number, signal.signal(number, interrupt)) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        yield
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
