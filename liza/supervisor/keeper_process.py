"""The keeper: the process that watches over a crew without a terminal.

``python -m liza.supervisor.keeper_process ROOT AGENT…``: the agents whose supervisors run at its start.

It starts supervisors again that died and ends left-over sessions. `liza up -d` starts it, or a
supervisor whose `liza up` was killed. It ends after `liza down`, or when no supervisor of the crew runs. A crew has
one: a second one ends. If it is killed, a supervisor starts it again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from liza.crew.crew import Crew, find_crew
from liza.model.errors import LizaError
from liza.model.model import State
from liza.supervisor.crew_options import UpOptions, start_supervisor
from liza.supervisor.healing import LOOK_SECONDS, Healer
from liza.system.locks import Lock

LOOKS_TO_END = 3
"""Number of looks in a row without a supervisor after which the process ends: one may be started again meanwhile."""
LOCK_LIMIT = 10.0
"""Seconds to wait for the lock: the keeper of a crew that was just stopped still holds it."""


def main(root: Path, agents: Collection[str]) -> int:
    """Watch over the crew until no supervisor runs, or SIGTERM; return the exit status."""
    crew, stopping = find_crew(root), threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    lock = Lock(crew.paths.keeper_lock)
    try:
        lock.acquire(timeout=LOCK_LIMIT)
    except LizaError:
        return 0
    crew.paths.keeper_mark.touch(0o600)
    Keeper(crew, agents).watch(stopping)
    # Not after an exception: then a supervisor starts it again, as after a kill.
    crew.paths.keeper_mark.unlink(missing_ok=True)
    lock.release()
    return 0


class Keeper:
    """The supervisors that it has seen running, and those that it has started."""

    def __init__(self, crew: Crew, agents: Collection[str]) -> None:
        self._crew = crew
        self._seen = set(agents)
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._healer = Healer(crew, self._start, self._say)
        self._down_time = self._last_down()

    def watch(self, stopping: threading.Event) -> None:
        """Look at the crew again and again until it needs no keeper, or until ``stopping``."""
        looks = 0
        while looks < LOOKS_TO_END and not stopping.is_set() and self._last_down() == self._down_time:
            looks = 0 if self._look() else looks + 1
            stopping.wait(LOOK_SECONDS)

    def _look(self) -> bool:
        """Heal the crew; return whether a supervisor runs, or is to be started again."""
        with suppress(LizaError, OSError):
            state = self._crew.board.read()
            running = self._find_running(state)
            self._seen |= running
            starting = {agent for agent, child in self._children.items() if child.poll() is None}
            healed = self._healer.look(state, self._seen, starting)
            return bool(running or starting or healed.started or healed.awaited)
        return False

    def _find_running(self, state: State) -> set[str]:
        return {agent for agent in state.agents if self._crew.is_supervised(agent)}

    def _last_down(self) -> float | None:
        """Time of the last `liza down`: it writes its lock file. After it no supervisor is to be started again."""
        with suppress(OSError):
            return self._crew.paths.down_lock.stat().st_mtime
        return None

    def _start(self, agent: str) -> None:
        entry = self._crew.board.read().agents[agent]
        options = UpOptions(program=entry.program, terminal=entry.tmux, detached=True)
        self._children[agent] = start_supervisor(self._crew, agent, options)

    def _say(self, agent: str, text: str) -> None:
        with suppress(LizaError, OSError):
            self._crew.append_alert_log([f"healed  {agent}: {text}. Next: liza logs {agent}"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
