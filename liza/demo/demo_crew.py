"""The crew as processes: real supervisors, each with a scripted agent, and none that outlives the demo."""

from __future__ import annotations

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liza.crew.crew import Crew
from liza.crew.liza_path import liza_path
from liza.rules.paths import role_of
from liza.verbs.down import down

FIRST_TERM_WAIT, SECOND_TERM_WAIT = 15.0, 5.0
_AGENT_MODULES = {"planner": "planner", "coder": "coder", "code-reviewer": "reviewer"}
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class SupervisorEnded:
    """The event: a supervisor ended although nobody asked it to."""

    agent: str
    code: int


def scripted_program(agent: str) -> str:
    """The scripted agent of a role, as ``--program`` takes it."""
    words = [sys.executable, "-P", "-m", f"liza.demo.agents.{_AGENT_MODULES[role_of(agent)]}"]
    return f"script:{shlex.join(words)}"


def demo_environment() -> dict[str, str]:
    """A person's environment with nothing in it that would steer Liza or git past the demo's directory."""
    kept = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
    env = {name: text for name, text in os.environ.items() if name in kept or not name.startswith(("LIZA_", "GIT_"))}
    # The project's tests and the agents say python3: there is one beside the Python that runs this.
    env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH') or os.defpath}"
    return env


class DemoCrew:
    """Supervisors by agent. In a ``with``: at its end, however it comes, all of them are stopped."""

    def __init__(self, crew: Crew, env: Mapping[str, str], events: queue.Queue[Any]) -> None:
        self.crew, self.env, self.events = crew, dict(env), events
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False

    def start(self, agent: str) -> None:
        """Start a supervisor. In a group of its own: Ctrl+C reaches the demo alone, which then asks each once."""
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
        """What the supervisor of ``agent`` says."""
        return self.crew.paths.logs / f"{agent}.log"

    def started_agents(self) -> tuple[str, ...]:
        """Those that were started."""
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
        """Politely; firmly after a while or at Ctrl+C; then every session that is left. Nothing of it can be hurried
        away by an impatient Ctrl+C. Raises Refused, LockTimeout for what cannot be stopped."""
        self._stopping = True
        before = [
            (number, signal.signal(number, lambda *_: self._signal_all(signal.SIGTERM))) for number in _STOP_SIGNALS
        ]
        try:
            self._signal_all(signal.SIGTERM)
            for limit, harder in ((FIRST_TERM_WAIT, signal.SIGTERM), (SECOND_TERM_WAIT, signal.SIGKILL)):
                if not self._wait_all(limit):
                    self._signal_all(harder)
            down(self.crew, now=True)
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def _signal_all(self, number: int) -> None:
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(number)

    def _wait_all(self, limit: float) -> bool:
        """Whether all are gone within ``limit`` seconds."""
        ends = time.monotonic() + limit
        try:
            for child in self._children.values():
                child.wait(timeout=max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


def run_liza(words: Sequence[str], root: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A person types a liza command in the project's directory."""
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
